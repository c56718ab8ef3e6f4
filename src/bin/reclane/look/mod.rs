//! `reclane status` and `reclane top`: a running deployment as its control plane tells it, and what counters files say of
//! processes that do not answer.

mod fold;
mod seen;
mod status;
mod table;
mod top;

pub use status::{Arguments as StatusArguments, run as status};
pub use top::{Arguments as TopArguments, run as top};

use super::flags;
use reclane::control::overview::Observer;
use reclane::control::{Secret, Spectator};
use reclane::error::Result;
use reclane::options::{Settings, Side};
use std::time::Duration;

/// How long one look at the control plane may take.
const LOOK_TIMEOUT: Duration = Duration::from_secs(3);

/// The settings that options on the command line and in the environment make.
fn settings(words: &[String]) -> Result<Settings> {
    flags::options(words)?.settings(Side::Client)
}

/// Who asks the control plane of these settings.
fn spectator(settings: &Settings) -> Result<Spectator> {
    let observer = Observer {
        deployment_id: settings.deployment_id.clone(),
        namespace: settings.namespace.clone(),
        secret: Secret::read(&settings.control_plane_token_file)?,
    };
    Spectator::new(&settings.control_plane_host, settings.control_plane_port, observer, LOOK_TIMEOUT)
}
