//! A rank: one process of a job that uses regions and one-sided operations.
//!
//! Ranks are a deployment of their own: rank 0 hosts its control plane, `num-server-processes` is the number of ranks and
//! `shard-id` the rank. Lanes come up when they are first used, and again after a failure when they are next used.

mod admit;
mod ask;
mod board;
mod checkpoint;
mod core;
mod hold;
mod numbers;
mod once;
mod operate;
mod suspend;

pub use checkpoint::{Hooks, Section};
pub use operate::Ticket;

use self::core::Core;
use super::client::CheckpointStatus;
use super::client::shm_options;
#[cfg(not(feature = "verbs"))]
use super::client::verbs_unavailable;
use super::log::{Sinks, sinks};
use super::metrics;
use crate::checkpoint::cut::State as CheckpointState;
use crate::error::Result;
use crate::fabric::Access;
use crate::fabric::Region as _;
use crate::fabric::shm::{Shm, ShmRegion};
#[cfg(feature = "verbs")]
use crate::fabric::verbs::{Verbs, VerbsOptions, VerbsRegion};
use crate::memory::{Entry, Executed, HoldId, Kind, Known, LaneFacts, Operation, RegionFacts};
use crate::options::{FabricKind, Settings};
use crate::sync::Arc;
use crate::wire::region::AtomicRequest;
use ::core::time::Duration;

/// A place in a peer's memory.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Place {
    /// The rank that owns it.
    pub rank: u32,
    /// Its region.
    pub region: u32,
    /// Byte offset in it.
    pub offset: u64,
}

/// One process of a job. Threads: any.
#[derive(Debug)]
pub struct Rank {
    face: Arc<Face>,
    /// Last, so that what the rest says while it is dropped is still written.
    _log: Sinks,
}

#[derive(Debug)]
enum Face {
    Shm(Core<Shm>),
    #[cfg(feature = "verbs")]
    Verbs(Core<Verbs>),
}

/// A region of this rank. It is open while this lives; the rank may be closed before, then peers have lost it already.
#[derive(Debug)]
pub struct OwnRegion {
    id: u32,
    memory: Memory,
    home: Arc<Face>,
}

/// The memory itself, by fabric.
#[derive(Debug)]
enum Memory {
    Shm(ShmRegion),
    #[cfg(feature = "verbs")]
    Verbs(VerbsRegion),
}

impl OwnRegion {
    /// Its id.
    #[must_use]
    pub fn id(&self) -> u32 {
        self.id
    }

    /// Its first byte. Peers change the memory at any time: it is touched through raw pointers and atomics only.
    #[must_use]
    pub fn data(&self) -> *mut u8 {
        match &self.memory {
            Memory::Shm(memory) => memory.base().as_ptr(),
            #[cfg(feature = "verbs")]
            Memory::Verbs(memory) => memory.base().as_ptr(),
        }
    }

    /// Its length.
    #[must_use]
    pub fn bytes(&self) -> usize {
        match &self.memory {
            Memory::Shm(memory) => memory.bytes(),
            #[cfg(feature = "verbs")]
            Memory::Verbs(memory) => memory.bytes(),
        }
    }
}

impl Drop for OwnRegion {
    fn drop(&mut self) {
        on_core!(&*self.home, core => core.close_region(self.id));
    }
}

impl Rank {
    /// Joins the deployment of ranks that the settings name: rank `shard_id` of `num_shards`. Rank 0 hosts its control
    /// plane. Does not wait for the others; a barrier does.
    ///
    /// # Errors
    /// PEER statuses when the deployment refuses this rank; `FabricUnavailable`; CONTEXT statuses.
    pub fn open(settings: &Settings) -> Result<Rank> {
        let log = sinks(settings)?;
        let face = match settings.fabric {
            FabricKind::Shm => Face::Shm(Core::open(Shm::open(shm_options(settings))?, settings)?),
            #[cfg(feature = "verbs")]
            FabricKind::Verbs => {
                let fabric = Verbs::open(&VerbsOptions::from_settings(settings))?;
                Face::Verbs(Core::open(fabric, settings)?)
            }
            #[cfg(not(feature = "verbs"))]
            FabricKind::Verbs => return Err(verbs_unavailable()),
        };
        Ok(Rank { face: Arc::new(face), _log: log })
    }

    /// Its number.
    #[must_use]
    pub fn number(&self) -> u32 {
        on_core!(&*self.face, core => core.shared.rank)
    }

    /// The port of the control plane: of rank 0 the one that it listens on.
    #[must_use]
    pub fn control_plane_port(&self) -> u16 {
        on_core!(&*self.face, core => core.plane_port())
    }

    /// Waits until all ranks have come to the barrier of this name.
    ///
    /// # Errors
    /// `ShardUnreachable` naming a rank that died or left while it waited; `StartupTimeout` naming who came.
    pub fn barrier(&self, name: &str, timeout: Duration) -> Result<()> {
        on_core!(&*self.face, core => core.barrier(name, timeout))
    }

    /// Opens a region: zeroed memory that every rank can reach by this rank's number, `id` and an offset.
    ///
    /// # Errors
    /// `InvalidArgument` for an id, length or rights that cannot be, or an id that is open; `ShardUnreachable` when a rank
    /// that has a lane does not map it; CONTEXT statuses.
    pub fn open_region(&self, id: u32, bytes: usize, access: Access) -> Result<OwnRegion> {
        let memory = match &*self.face {
            Face::Shm(core) => Memory::Shm(core.open_region(id, bytes, access)?),
            #[cfg(feature = "verbs")]
            Face::Verbs(core) => Memory::Verbs(core.open_region(id, bytes, access)?),
        };
        Ok(OwnRegion { id, memory, home: Arc::clone(&self.face) })
    }

    /// Waits until a rank has a region open, and connects the lane to it.
    ///
    /// # Errors
    /// `InvalidArgument` when it has none by then; `ShardUnreachable`.
    pub fn find_region(&self, rank: u32, region: u32, timeout: Duration) -> Result<Entry> {
        on_core!(&*self.face, core => core.find(rank, region, timeout))
    }

    /// Writes to a peer's region and waits until the bytes are there.
    ///
    /// # Safety
    /// `bytes` bytes are readable at `from` during the call.
    ///
    /// # Errors
    /// `ShardUnreachable`, `CompletionError`, `WaitTimeout`, each with what is known of the outcome; CALLER statuses.
    pub unsafe fn write(&self, to: Place, from: *const u8, bytes: u32) -> Result<()> {
        let operation = simple(Kind::Write, to, bytes, from.cast_mut());
        // SAFETY: the caller's promise.
        on_core!(&*self.face, core => unsafe { core.run(to.rank, &operation) })
    }

    /// Reads from a peer's region.
    ///
    /// # Safety
    /// `bytes` bytes are writable at `into` during the call.
    ///
    /// # Errors
    /// As [`Rank::write`].
    pub unsafe fn read(&self, from: Place, into: *mut u8, bytes: u32) -> Result<()> {
        let operation = simple(Kind::Read, from, bytes, into);
        // SAFETY: the caller's promise.
        on_core!(&*self.face, core => unsafe { core.run(from.rank, &operation) })
    }

    /// Adds to 8 bytes of a peer's region by the fabric. The old value. At most once: when the lane fails meanwhile, the
    /// error says whether it took effect, as far as that is known.
    ///
    /// # Errors
    /// As [`Rank::write`].
    pub fn fetch_add(&self, at: Place, add: u64) -> Result<u64> {
        let mut old = 0;
        let operation = Operation { operand: add, ..simple(Kind::FetchAdd, at, 8, (&raw mut old).cast()) };
        // SAFETY: `old` lives during the call.
        on_core!(&*self.face, core => unsafe { core.run(at.rank, &operation) })?;
        Ok(old)
    }

    /// Swaps 8 bytes of a peer's region if they equal `expect`. The old value.
    ///
    /// # Errors
    /// As [`Rank::fetch_add`].
    pub fn compare_swap(&self, at: Place, expect: u64, swap: u64) -> Result<u64> {
        let mut old = 0;
        let local = (&raw mut old).cast();
        let operation = Operation { operand: expect, swap, ..simple(Kind::CompareSwap, at, 8, local) };
        // SAFETY: `old` lives during the call.
        on_core!(&*self.face, core => unsafe { core.run(at.rank, &operation) })?;
        Ok(old)
    }

    /// As [`Rank::fetch_add`], executed by the owner's processor exactly once, whatever happens to the lane. Not atomic
    /// with the fabric's own atomics on the same bytes, unless the fabric is `shm`.
    ///
    /// # Errors
    /// As [`Rank::write`]; the outcome is unknown only when the owner is gone or silent.
    pub fn fetch_add_once(&self, at: Place, add: u64) -> Result<u64> {
        let request = AtomicRequest { sequence: 0, op: 1, region: at.region, offset: at.offset, operand: add, swap: 0 };
        on_core!(&*self.face, core => core.atomic(at.rank, request))
    }

    /// As [`Rank::compare_swap`], executed by the owner's processor exactly once.
    ///
    /// # Errors
    /// As [`Rank::fetch_add_once`].
    pub fn compare_swap_once(&self, at: Place, expect: u64, swap: u64) -> Result<u64> {
        let (region, offset) = (at.region, at.offset);
        let request = AtomicRequest { sequence: 0, op: 2, region, offset, operand: expect, swap };
        on_core!(&*self.face, core => core.atomic(at.rank, request))
    }

    /// Posts operations on one peer's regions with one doorbell, in order, and does not wait.
    ///
    /// # Safety
    /// What they name here stays valid until [`Rank::wait`] or [`Rank::flush`] has said that they are settled.
    ///
    /// # Errors
    /// As [`Rank::write`]; nothing was posted.
    pub unsafe fn post(&self, peer: u32, operations: &[Operation]) -> Result<Ticket> {
        // SAFETY: the caller's promise.
        on_core!(&*self.face, core => unsafe { core.batch(peer, operations) })
    }

    /// Waits until the ticket's operations, and all before them to the same peer, are settled.
    ///
    /// # Errors
    /// Of the last of them; [`Rank::outcomes`] has each. `WaitTimeout` when they are still under way.
    pub fn wait(&self, ticket: Ticket, timeout: Duration) -> Result<()> {
        on_core!(&*self.face, core => core.wait(ticket, timeout))
    }

    /// What is known of the operations that end with the ticket's, as many as `out` has.
    ///
    /// # Errors
    /// `StaleToken` when they are too long ago.
    pub fn outcomes(&self, ticket: Ticket, out: &mut [Known]) -> Result<()> {
        on_core!(&*self.face, core => core.outcomes(ticket, out))
    }

    /// Waits until everything posted to a peer is settled and visible to its processor.
    ///
    /// # Errors
    /// The newest failure of an operation that no call has told of yet; `WaitTimeout`.
    pub fn flush(&self, peer: u32, timeout: Duration) -> Result<()> {
        on_core!(&*self.face, core => core.flush(peer, timeout))
    }

    /// Closes the gate and waits until nothing of this rank is under way, at most `drain`. The hold lapses after `lapse`
    /// by itself. Operations of other threads wait meanwhile, up to their own timeouts.
    ///
    /// # Errors
    /// `WaitTimeout` naming the peer, with the gate open again; `Busy` when another hold is under way.
    pub fn hold(&self, drain: Duration, lapse: Duration) -> Result<HoldId> {
        on_core!(&*self.face, core => core.hold(drain, lapse))
    }

    /// Opens the gate. True: the hold was still in force, so nothing was posted since.
    pub fn release(&self, id: HoldId) -> bool {
        on_core!(&*self.face, core => core.release(id))
    }

    /// Whether the hold is still in force.
    #[must_use]
    pub fn is_held(&self, id: HoldId) -> bool {
        on_core!(&*self.face, core => core.is_held(id))
    }

    /// This rank's regions, in the order of their ids.
    #[must_use]
    pub fn regions(&self) -> Vec<RegionFacts> {
        on_core!(&*self.face, core => core.regions())
    }

    /// What the lanes to all ranks have posted and settled.
    #[must_use]
    pub fn lanes(&self) -> Vec<LaneFacts> {
        on_core!(&*self.face, core => core.lanes())
    }

    /// Ends the lanes to a peer, as a failed completion would: for maintenance and tests. They come back with the next
    /// operation.
    ///
    /// # Errors
    /// `InvalidArgument` when there is no such rank.
    pub fn break_lanes(&self, peer: u32) -> Result<()> {
        on_core!(&*self.face, core => core.break_lanes(peer))
    }

    /// What this rank has executed for others exactly once: part of the same cut as the regions.
    #[must_use]
    pub fn executed(&self) -> Vec<Executed> {
        on_core!(&*self.face, core => core.executed())
    }

    /// Takes over what a checkpoint kept of [`Rank::executed`].
    pub fn restore_executed(&self, executed: &[Executed]) {
        on_core!(&*self.face, core => core.restore_executed(executed));
    }

    /// Takes a checkpoint of all ranks: each calls this where its program rests, that is, where no other thread of it touches
    /// its regions or posts. Returns the request's number when all ranks are copied; the caller goes on while files are
    /// written. `sections`: the program's own state, part of the checkpoint.
    ///
    /// # Errors
    /// `CheckpointAborted` with the reason, `Busy` when not all ranks came within the time: the program goes on without a
    /// checkpoint. `WrongState` without a directory; `InvalidArgument` for sections that are too large.
    pub fn checkpoint(&self, full: bool, sections: Vec<Section>, timeout: Duration) -> Result<u64> {
        on_core!(&*self.face, core => core.checkpoint(full, sections, timeout))
    }

    /// Asks for a checkpoint of all ranks at any moment; their programs have hooks that bring them to rest.
    ///
    /// # Errors
    /// `WrongState` without a directory; `Closed`.
    pub fn checkpoint_begin(&self, full: bool) -> Result<u64> {
        on_core!(&*self.face, core => core.checkpoint_begin(full))
    }

    /// What brings the program to rest for checkpoints that it does not wait for in [`Rank::checkpoint`].
    pub fn set_checkpoint_hooks(&self, hooks: Option<Arc<dyn Hooks>>) {
        on_core!(&*self.face, core => core.set_hooks(hooks));
    }

    /// How far a checkpoint is, as far as this rank has heard.
    ///
    /// # Errors
    /// `InvalidArgument` for a number that is not known, or of long ago.
    pub fn checkpoint_status(&self, number: u64) -> Result<CheckpointStatus> {
        on_core!(&*self.face, core => core.checkpoint_status(number))
    }

    /// Waits until a checkpoint is so far.
    ///
    /// # Errors
    /// `CheckpointAborted` with the reason; `Busy` when it is not so far in time; as [`Rank::checkpoint_status`].
    pub fn checkpoint_wait(&self, number: u64, least: CheckpointState, timeout: Duration) -> Result<CheckpointStatus> {
        on_core!(&*self.face, core => core.checkpoint_wait(number, least, timeout))
    }

    /// Gives a checkpoint up, unless its manifest is being written already.
    ///
    /// # Errors
    /// As [`Rank::checkpoint_begin`].
    pub fn checkpoint_abort(&self, number: u64) -> Result<()> {
        on_core!(&*self.face, core => core.checkpoint_abort(number))
    }

    /// Epoch of the checkpoint that this rank started from; 0: it started empty.
    #[must_use]
    pub fn restored(&self) -> u64 {
        on_core!(&*self.face, core => core.restored())
    }

    /// A section of the checkpoint that this rank started from.
    #[must_use]
    pub fn restored_section(&self, name: &str) -> Option<Vec<u8>> {
        on_core!(&*self.face, core => core.section(name))
    }

    /// Gives everything of the device back, in place: lanes, registrations of regions, descriptors, mappings and threads of the
    /// fabric. Regions stay readable and writable where they are; operations wait. All ranks call it, each where its program
    /// rests. The session with the control plane stays.
    ///
    /// # Errors
    /// `WaitTimeout` naming who is not drained; `StartupTimeout` when not all ranks came; `Unsupported` on fabrics that
    /// cannot; `WrongState` when it is suspended. It is awake then, as far as that was possible.
    pub fn suspend(&self, timeout: Duration) -> Result<()> {
        on_core!(&*self.face, core => core.suspend(timeout))
    }

    /// Takes the device again, with new keys under the same addresses. Operations go on when all ranks have called it; lanes
    /// come up with the next operation.
    ///
    /// # Errors
    /// `WrongState` when it is not suspended; `StartupTimeout` when not all ranks came within the time, and CONTEXT statuses: it
    /// stays suspended and can be resumed again.
    pub fn resume(&self, timeout: Duration) -> Result<()> {
        on_core!(&*self.face, core => core.resume(timeout))
    }

    /// All numbers as Prometheus' text.
    #[must_use]
    pub fn metrics_text(&self) -> String {
        metrics::text(on_core!(&*self.face, core => core.numbers()))
    }

    /// One number by name. docs/metrics.md has the names.
    ///
    /// # Errors
    /// `InvalidArgument` when there is none of this name.
    pub fn metric(&self, name: &str) -> Result<u64> {
        metrics::number(on_core!(&*self.face, core => core.numbers()), name)
    }

    /// The port of the metrics over HTTP, if there is one.
    #[must_use]
    pub fn metrics_port(&self) -> Option<u16> {
        on_core!(&*self.face, core => core.metrics_port())
    }

    /// Leaves the deployment. Rank 0 stays for the others to leave first, at most 5 s.
    pub fn close(&self) {
        on_core!(&*self.face, core => core.end());
    }
}

impl Drop for Rank {
    fn drop(&mut self) {
        self.close();
    }
}

fn simple(kind: Kind, at: Place, bytes: u32, local: *mut u8) -> Operation {
    Operation { kind, region: at.region, offset: at.offset, bytes, local, operand: 0, swap: 0 }
}
