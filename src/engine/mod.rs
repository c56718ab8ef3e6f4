//! Threads and glue: opens fabrics, joins the control plane, connects lanes, and runs the rooms below on real threads.
//!
//! [`Client`] and [`Server`] are what the C API wraps. Everything else is generic over the fabric and chosen once, when
//! they are opened.

/// Does the same on the core of whichever fabric a face has.
macro_rules! on_core {
    ($face:expr, $core:ident => $body:expr) => {
        match $face {
            Face::Shm($core) => $body,
            #[cfg(feature = "verbs")]
            Face::Verbs($core) => $body,
        }
    };
}

pub(crate) mod client;
pub(crate) mod connect;
mod log;
pub(crate) mod metrics;
pub(crate) mod rank;
mod restore_plan;
pub(crate) mod server;
mod state;
mod store;

pub use client::{Buffer, CheckpointStatus, Client, ClientStats, LaneInfo};
pub use metrics::Totals;
pub use metrics::figures::of as figures_of;
pub use rank::{Hooks, OwnRegion, Place, Rank, Section, Ticket};
pub use restore_plan::RestorePlan;
pub use server::{Server, ServerStats};
pub use state::{HostState, Piece};
pub use store::builtin_store;

pub use crate::checkpoint::cut::State as CheckpointState;
pub use crate::checkpoint::{Advice, Cost, advise};
pub use crate::control::{Health, HealthReport};
pub use crate::lane::LaneState;
pub use crate::memory::{Entry, Executed, HoldId, Kind, Known, LaneFacts, Operation, RegionFacts};
pub use crate::ps::client::{Borrowed, ShardResult, Token};

use crate::control::{Identity, Secret};
use crate::error::{Error, Result, Status};
use crate::ids::{Epoch, Incarnation};
use crate::options::Settings;

/// A client's request over memory of this process.
pub type Request<'a> = crate::ps::client::Request<'a, Buffer>;
/// Where the rows of a GET go.
pub type Target<'a> = crate::ps::client::Target<'a, Buffer>;
/// Where the rows of a PUT or UPDATE come from.
pub type Rows<'a> = crate::ps::client::Rows<'a, Buffer>;

/// What every member tells the control plane about the deployment it believes to belong to.
fn identity(settings: &Settings) -> Result<Identity> {
    Ok(Identity {
        deployment_id: settings.deployment_id.clone(),
        epoch: Epoch(settings.deployment_epoch),
        namespace: settings.namespace.clone(),
        num_shards: settings.num_shards,
        layout: settings.layout(),
        secret: Secret::read(&settings.control_plane_token_file)?,
    })
}

/// A random identity for this process life.
fn fresh_incarnation() -> Result<Incarnation> {
    let mut bytes = [0_u8; 16];
    getrandom::fill(&mut bytes)
        .map_err(|error| Error::new(Status::OsError, format!("no random bytes for an identity: {error}")))?;
    // Zero means "answers nobody" in a lane offer.
    Ok(Incarnation(u128::from_le_bytes(bytes).max(1)))
}

/// The name of this host, for messages; empty when it has none.
fn host_name() -> String {
    std::fs::read_to_string("/proc/sys/kernel/hostname").map(|name| name.trim().to_owned()).unwrap_or_default()
}
