//! The client: one handle per process, or several; each with lanes of its own to every shard.

mod buffer;
pub(in crate::engine) mod checkpoint;
pub(super) mod core;
mod listen;
pub(crate) mod mend;
pub(crate) mod offered;
mod open;
pub(crate) mod reach;

pub use buffer::Buffer;
use buffer::Memory;
pub use checkpoint::CheckpointStatus;

use self::core::Core;
use super::log::{Sinks, sinks};
use super::metrics::{self, Totals};
use super::{Request, Token};
use crate::checkpoint::cut::State as CheckpointState;
use crate::control::HealthReport;
#[cfg(not(feature = "verbs"))]
use crate::error::Error;
use crate::error::{Outcome, Result};
use crate::fabric::shm::{Shm, ShmOptions};
#[cfg(feature = "verbs")]
use crate::fabric::verbs::{Verbs, VerbsOptions};
use crate::ids::TableTag;
use crate::lane::LaneState;
use crate::options::{FabricKind, Settings};
use crate::ps::client::{Borrowed, ShardResult};
use crate::wire::payload::{Command, TableSpec};
use ::core::time::Duration;

/// What a lane is doing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LaneInfo {
    /// The shard it leads to.
    pub shard: u32,
    /// Its number.
    pub lane: u32,
    /// Its state.
    pub state: LaneState,
    /// Whether connecting anew can help; false for one that is Dead, or would be.
    pub rebuildable: bool,
    /// Times that it was connected anew, or tried to be.
    pub attempts: u32,
    /// Why it last left Active; empty when it never has.
    pub reason: &'static str,
    /// Which connection it is.
    pub generation: u32,
    /// Its commit scheme's name.
    pub scheme: &'static str,
    /// Its queue pair's number.
    pub queue_pair: u32,
}

/// What a client has at a moment.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ClientStats {
    /// Lanes to all shards.
    pub lanes: u32,
    /// Lanes that carry requests.
    pub active_lanes: u32,
    /// Request slots of all lanes.
    pub slots: u32,
    /// Slots held by requests.
    pub held_slots: u32,
    /// Bytes of registered memory for the lanes of this side.
    pub lane_bytes: u64,
}

/// A client of one deployment. Threads: any; each request belongs to one thread at a time.
#[derive(Debug)]
pub struct Client {
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

impl Client {
    /// Joins the deployment that the settings name, waits until every shard is ready, and connects lanes to each.
    ///
    /// # Errors
    /// `StartupTimeout` naming the missing shards; PEER statuses when the deployment refuses this client;
    /// `FabricUnavailable`; CONTEXT statuses.
    pub fn open(settings: &Settings) -> Result<Client> {
        let log = sinks(settings)?;
        match settings.fabric {
            FabricKind::Shm => {
                let fabric = Shm::open(shm_options(settings))?;
                Ok(Client { face: Face::Shm(Core::open(fabric, settings)?), _log: log })
            }
            #[cfg(feature = "verbs")]
            FabricKind::Verbs => {
                let fabric = Verbs::open(&VerbsOptions::from_settings(settings))?;
                Ok(Client { face: Face::Verbs(Core::open(fabric, settings)?), _log: log })
            }
            #[cfg(not(feature = "verbs"))]
            FabricKind::Verbs => Err(verbs_unavailable()),
        }
    }

    /// Number of shards.
    #[must_use]
    pub fn num_shards(&self) -> u32 {
        on_core!(&self.face, core => core.num_shards())
    }

    /// The number by which the deployment knows this client.
    #[must_use]
    pub fn client_id(&self) -> u32 {
        on_core!(&self.face, core => core.client_id())
    }

    /// The shard that owns a key.
    #[must_use]
    pub fn shard_of(&self, key: u64) -> u32 {
        on_core!(&self.face, core => core.ps().shard_of(key))
    }

    /// f32 elements of a row of a table known to this client.
    ///
    /// # Errors
    /// `UnknownTable`.
    pub fn dim(&self, table: TableTag) -> Result<u32> {
        on_core!(&self.face, core => core.ps().dim(table))
    }

    /// Creates a table on all shards, or finds it again; all must give the same tag.
    ///
    /// # Errors
    /// `InvalidArgument` for a bad spec; `InvalidPayload` when a table of this name exists with another spec;
    /// `DeploymentMismatch` when shards disagree about the tag.
    pub fn init_table(&self, spec: &TableSpec) -> Result<TableTag> {
        on_core!(&self.face, core => core.init_table(spec))
    }

    /// Starts a request.
    ///
    /// # Safety
    /// Pointers in the request are valid for the lengths given, and stay so until the request is done.
    ///
    /// # Errors
    /// As [`PsClient::submit`](crate::ps::client::PsClient::submit).
    #[inline(always)]
    pub unsafe fn submit(&self, request: &Request<'_>) -> Result<Token> {
        match &self.face {
            // SAFETY: as the caller vouches.
            Face::Shm(core) => unsafe { core.submit(request) },
            #[cfg(feature = "verbs")]
            Face::Verbs(core) => {
                // A copy, so that only this way needs the request in memory.
                let copy = *request;
                // SAFETY: as the caller vouches.
                unsafe { core.submit_elsewhere(&copy) }
            }
        }
    }

    /// Submits, waits and revokes in one call.
    ///
    /// # Safety
    /// As [`Client::submit`], during the call.
    ///
    /// # Errors
    /// As [`Client::submit`] and [`Client::wait`].
    #[inline]
    pub unsafe fn call(&self, request: &Request<'_>) -> Result<()> {
        // SAFETY: as the caller vouches.
        on_core!(&self.face, core => unsafe { core.call(request) })
    }

    /// Whether the request is done, well or not. Never blocks.
    ///
    /// # Errors
    /// `StaleToken`, `Busy`.
    #[inline(always)]
    pub fn query(&self, token: Token) -> Result<bool> {
        on_core!(&self.face, core => core.ps().query(token))
    }

    /// Waits until the request is done.
    ///
    /// # Errors
    /// As [`PsClient::wait`](crate::ps::client::PsClient::wait).
    #[inline(always)]
    pub fn wait(&self, token: Token, timeout: Option<Duration>) -> Result<()> {
        on_core!(&self.face, core => core.ps().wait(token, timeout))
    }

    /// Waits until the request is done, and gives its slots back.
    ///
    /// # Errors
    /// As [`PsClient::finish`](crate::ps::client::PsClient::finish).
    #[inline(always)]
    pub fn finish(&self, token: Token, timeout: Option<Duration>) -> Result<()> {
        on_core!(&self.face, core => core.ps().finish(token, timeout))
    }

    /// Hands the rows of an in-place GET to `take`.
    ///
    /// # Errors
    /// As [`PsClient::borrow`](crate::ps::client::PsClient::borrow).
    #[inline(always)]
    pub fn borrow<T>(&self, token: Token, take: impl FnOnce(Borrowed) -> T) -> Result<T> {
        on_core!(&self.face, core => core.ps().borrow(token, take))
    }

    /// How the keys of a shard did in a request that has ended.
    ///
    /// # Errors
    /// As [`PsClient::shard_result`](crate::ps::client::PsClient::shard_result).
    pub fn shard_result(&self, token: Token, shard: u32) -> Result<ShardResult> {
        on_core!(&self.face, core => core.ps().shard_result(token, shard))
    }

    /// How each key did in a request that has ended.
    ///
    /// # Errors
    /// As [`PsClient::key_outcomes`](crate::ps::client::PsClient::key_outcomes).
    pub fn key_outcomes(&self, token: Token, outcomes: &mut [Outcome]) -> Result<()> {
        on_core!(&self.face, core => core.ps().key_outcomes(token, outcomes))
    }

    /// Gives the request's slots back.
    ///
    /// # Errors
    /// `StaleToken`, `Busy`.
    #[inline(always)]
    pub fn revoke(&self, token: Token) -> Result<()> {
        on_core!(&self.face, core => core.ps().revoke(token))
    }

    /// A word to the stores of all shards.
    ///
    /// # Errors
    /// The error names each shard that failed; the others have been asked too.
    pub fn command(&self, command: &Command) -> Result<()> {
        on_core!(&self.face, core => core.command(command))
    }

    /// Waits until `participants` members have come to the barrier of this name.
    ///
    /// # Errors
    /// `StartupTimeout`-like expiry, or the name of a participant that died.
    pub fn barrier(&self, name: &str, participants: u32, timeout: Duration) -> Result<()> {
        on_core!(&self.face, core => core.barrier(name, participants, timeout))
    }

    /// Allocates memory that every shard can reach: GETs land in it, PUT-v2 `read` takes rows from it.
    ///
    /// # Errors
    /// CONTEXT statuses; `ShardUnreachable`.
    pub fn allocate_buffer(&self, bytes: usize) -> Result<Buffer> {
        match &self.face {
            Face::Shm(core) => {
                let region = core.allocate_buffer(bytes)?;
                let give_back = core.giver_back(&region);
                Ok(Buffer::new(Memory::Shm(region), give_back))
            }
            #[cfg(feature = "verbs")]
            Face::Verbs(core) => {
                let region = core.allocate_buffer(bytes)?;
                let give_back = core.giver_back(&region);
                Ok(Buffer::new(Memory::Verbs(region), give_back))
            }
        }
    }

    /// What a lane is doing.
    ///
    /// # Errors
    /// `InvalidArgument` when there is no such shard or lane.
    pub fn lane(&self, shard: u32, lane: u32) -> Result<LaneInfo> {
        on_core!(&self.face, core => core.lane(shard, lane))
    }

    /// Takes a lane out of use, as a failed completion would: for maintenance and tests. Where lanes are rebuilt it comes
    /// back.
    ///
    /// # Errors
    /// `InvalidArgument` when there is no such lane.
    pub fn break_lane(&self, shard: u32, lane: u32) -> Result<()> {
        on_core!(&self.face, core => core.break_lane(shard, lane))
    }

    /// What the control plane knows of a shard's health; `known` is false when it does not answer. Blocks for at most
    /// the time that questions about health may take.
    ///
    /// # Errors
    /// `InvalidArgument` when there is no such shard; `Closed`.
    pub fn health(&self, shard: u32) -> Result<HealthReport> {
        on_core!(&self.face, core => core.health(shard))
    }

    /// Asks shard 0 for a checkpoint of all shards; its number. `full`: everything is written, changed or not. `section`:
    /// the caller's own bytes, by name, as part of it.
    ///
    /// # Errors
    /// `InvalidArgument` for a section that is too large; `ShardUnreachable`; `ControlPlaneUnreachable`; `Closed`.
    pub fn checkpoint_begin(&self, full: bool, section: Option<(String, Vec<u8>)>) -> Result<u64> {
        on_core!(&self.face, core => core.checkpoint_begin(full, section))
    }

    /// How far a checkpoint is, as far as this client has heard.
    ///
    /// # Errors
    /// `InvalidArgument` for a number that is none of this client's, or one of long ago.
    pub fn checkpoint_status(&self, number: u64) -> Result<CheckpointStatus> {
        on_core!(&self.face, core => core.checkpoint_status(number))
    }

    /// Waits until a checkpoint is so far.
    ///
    /// # Errors
    /// `CheckpointAborted` with the reason; `Busy` when it is not so far in time; as [`Client::checkpoint_status`].
    pub fn checkpoint_wait(&self, number: u64, least: CheckpointState, timeout: Duration) -> Result<CheckpointStatus> {
        on_core!(&self.face, core => core.checkpoint_wait(number, least, timeout))
    }

    /// Gives a checkpoint up, unless its manifest is being written already.
    ///
    /// # Errors
    /// As [`Client::checkpoint_begin`].
    pub fn checkpoint_abort(&self, number: u64) -> Result<()> {
        on_core!(&self.face, core => core.checkpoint_abort(number))
    }

    /// What the client has now.
    #[must_use]
    pub fn stats(&self) -> ClientStats {
        on_core!(&self.face, core => core.stats())
    }

    /// All numbers of this client as Prometheus' text.
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

    /// The totals of the profiles: one client and one transport component for each shard.
    #[must_use]
    pub fn profile_totals(&self) -> Vec<Totals> {
        on_core!(&self.face, core => core.numbers().totals())
    }

    /// The port of the metrics over HTTP, if there is one.
    #[must_use]
    pub fn metrics_port(&self) -> Option<u16> {
        on_core!(&self.face, core => core.metrics_port())
    }

    /// Waits until no request is under way, then leaves the deployment.
    ///
    /// # Errors
    /// `Busy` when requests are still under way at the end of `timeout`; it can be called again.
    pub fn shutdown(&self, timeout: Duration) -> Result<()> {
        on_core!(&self.face, core => core.shutdown(timeout))
    }
}

pub(super) fn shm_options(settings: &Settings) -> ShmOptions {
    ShmOptions { huge_pages: settings.huge_pages, numa_id: settings.numa_id }
}

/// Why `fabric=verbs` cannot be had.
#[cfg(not(feature = "verbs"))]
pub(super) fn verbs_unavailable() -> Box<Error> {
    let why =
        "fabric=verbs: this build has no verbs feature; build with it, or use fabric=shm for processes of one host";
    Error::new(crate::error::Status::FabricUnavailable, why)
}
