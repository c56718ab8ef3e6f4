//! The server: one shard, its poll threads and workers, and what lets clients in.

mod accept;
pub(crate) mod checkpoint;
pub(super) mod core;
pub(crate) mod guests;
mod listen;
mod parked;
mod poller;
mod queue;
mod registered;
pub(crate) mod respond;
#[cfg(all(test, feature = "device-tests"))]
mod slow_client;
pub(super) mod watched;

use self::core::Core;
use super::client::shm_options;
#[cfg(not(feature = "verbs"))]
use super::client::verbs_unavailable;
use super::log::{Sinks, sinks};
use super::metrics::{self, Totals};
use super::state::HostState;
use crate::error::Result;
use crate::fabric::shm::Shm;
#[cfg(feature = "verbs")]
use crate::fabric::verbs::{Verbs, VerbsOptions};
use crate::options::{FabricKind, Settings};
use crate::ps::{HandlerCounts, Store};
use crate::sync::Arc;
use ::core::time::Duration;

/// What a server has done and has now.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ServerStats {
    /// What its threads executed.
    pub handled: HandlerCounts,
    /// Lanes that are scanned.
    pub lanes: u64,
    /// Rounds over all slots.
    pub scan_rounds: u64,
    /// Rounds that found nothing.
    pub empty_scan_rounds: u64,
    /// Times a poll thread went to sleep.
    pub sleeps: u64,
    /// Bytes of registered memory for the lanes of this side.
    pub lane_bytes: u64,
}

/// One shard of a deployment. Threads: any.
#[derive(Debug)]
pub struct Server {
    face: Face,
    /// Last, so that what the rest says while it is dropped is still written.
    _log: Sinks,
}

#[derive(Debug)]
enum Face {
    Shm(Core<Shm>),
    #[cfg(feature = "verbs")]
    Verbs(Core<Verbs>),
}

impl Server {
    /// Starts the shard that the settings name over a store; shard 0 hosts the control plane. Returns when the shard is
    /// ready; clients wait for all shards.
    ///
    /// `store` is called with worker numbers below [`Server::workers`] of the same settings.
    ///
    /// # Errors
    /// PEER statuses when the deployment refuses this shard (another one with its number, another layout, ...); CONTEXT
    /// statuses.
    pub fn start(settings: &Settings, store: Arc<dyn Store>) -> Result<Server> {
        Server::start_with(settings, store, None)
    }

    /// The same, with state of the host program that goes with the shard's checkpoints.
    ///
    /// # Errors
    /// As for [`Server::start`]; what [`HostState::load`] says.
    pub fn start_with(settings: &Settings, store: Arc<dyn Store>, state: Option<Arc<dyn HostState>>) -> Result<Server> {
        let log = sinks(settings)?;
        match settings.fabric {
            FabricKind::Shm => {
                let fabric = Shm::open(shm_options(settings))?;
                Ok(Server { face: Face::Shm(Core::start(fabric, settings, store, state)?), _log: log })
            }
            #[cfg(feature = "verbs")]
            FabricKind::Verbs => {
                let fabric = Verbs::open(&VerbsOptions::from_settings(settings))?;
                Ok(Server { face: Face::Verbs(Core::start(fabric, settings, store, state)?), _log: log })
            }
            #[cfg(not(feature = "verbs"))]
            FabricKind::Verbs => Err(verbs_unavailable()),
        }
    }

    /// How many threads call the store at the same time: one per poll thread and GET worker. With more than one in all
    /// there is one more, for commands; a single poll thread executes them itself.
    #[must_use]
    pub fn workers(settings: &Settings) -> u32 {
        let threads = settings.server_threads + settings.get_workers;
        if threads == 1 { 1 } else { threads + 1 }
    }

    /// The port of the control plane, if this shard hosts it.
    #[must_use]
    pub fn control_plane_port(&self) -> Option<u16> {
        on_core!(&self.face, core => core.control_plane_port())
    }

    /// What the server has done and has now.
    #[must_use]
    pub fn stats(&self) -> ServerStats {
        on_core!(&self.face, core => core.stats())
    }

    /// All numbers of this shard as Prometheus' text.
    #[must_use]
    pub fn metrics_text(&self) -> String {
        metrics::text(on_core!(&self.face, core => core.numbers()))
    }

    /// One number by name: of a metric, or `component/field` of a profile. docs/metrics.md has the names.
    ///
    /// # Errors
    /// `InvalidArgument` when there is none.
    pub fn metric(&self, name: &str) -> Result<u64> {
        metrics::number(on_core!(&self.face, core => core.numbers()), name)
    }

    /// The totals of the profiles: the server's, its transport's, and one for each poll thread.
    #[must_use]
    pub fn profile_totals(&self) -> Vec<Totals> {
        on_core!(&self.face, core => core.numbers().totals())
    }

    /// The port of the metrics over HTTP, if there is one.
    #[must_use]
    pub fn metrics_port(&self) -> Option<u16> {
        on_core!(&self.face, core => core.metrics_port())
    }

    /// Says that the shard is draining, executes what was committed, ends all threads, and leaves. Called again, it does
    /// nothing.
    ///
    /// # Errors
    /// `Busy` when a handler did not return within `timeout`; it can be called again.
    pub fn stop(&self, timeout: Duration) -> Result<()> {
        on_core!(&self.face, core => core.stop(timeout))
    }
}
