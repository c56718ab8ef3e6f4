//! Rank: one process of a job that uses regions and one-sided operations.
//!
//! Ranks are a deployment of their own, beside or without a parameter server: the option num-server-processes is their
//! number, shard-id the rank, and rank 0 hosts the control plane. Lanes to other ranks come up when they are first used,
//! and again after a failure when they are next used. docs/memory.md tells the whole of it.

use core::ffi::c_char;
use std::time::Duration;

use super::arguments::{required, text, timeout_or};
use super::error::reclane_error;
use super::handle::{self, Noun};
use super::options::{publish_to, reclane_options, snapshot};
use super::structs::{self, Versioned};
use super::{fork, guard};
use crate::engine::{HoldId, Rank};
use crate::error::{Error, Status};
use crate::options::Side;

/// A rank. Opaque; made by reclane_rank_open().
#[derive(Debug)]
pub struct reclane_rank {
    _opaque: (),
}

impl Noun for reclane_rank {
    type Object = Rank;
    const TAG: u32 = 0x4A4B_0401;
    const NAME: &'static str = "reclane_rank";
}

/// How long waits of this file take when the caller names no time.
pub(super) const WAIT_DEFAULT: Duration = Duration::from_secs(60);
/// How long a hold stays in force when the caller names no time.
const LAPSE_DEFAULT: Duration = Duration::from_secs(60);

/// What a rank has and has done. Set struct_size = sizeof(reclane_rank_info) before the call.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct reclane_rank_info {
    /// sizeof(reclane_rank_info), set by the caller.
    pub struct_size: u32,
    /// Its number.
    pub rank: u32,
    /// Ranks of the job.
    pub ranks: u32,
    /// Port of the control plane; of rank 0 the one that it listens on.
    pub control_plane_port: u32,
    /// Regions that it has open.
    pub regions: u32,
    /// Ranks that it has a working lane to.
    pub lanes: u32,
    /// Operations that were posted on all lanes.
    pub posted: u64,
    /// Operations that are settled.
    pub settled: u64,
    /// Epoch of the checkpoint that it started from; 0: it started empty.
    pub restored_epoch: u64,
}

// SAFETY: repr(C), `struct_size` first, integers only.
unsafe impl Versioned for reclane_rank_info {
    const NAME: &'static str = "reclane_rank_info";
    const FIRST_SIZE: usize = 40;
}
const _: () = assert!(size_of::<reclane_rank_info>() == 48);

/// Joins a job: rank shard-id of num-server-processes. Rank 0 starts the control plane first. Does not wait for the
/// others: reclane_rank_barrier() does.
///
/// options  NULL for all defaults. Read during the call only.
/// out      receives the handle; NULL is written on failure. Close it with reclane_rank_close().
/// error    may be NULL; filled on failure only.
///
/// RECLANE_STATUS_OPTION_CONFLICT            two options contradict each other, or one the deployment file
/// RECLANE_STATUS_FABRIC_UNAVAILABLE         the chosen fabric cannot run here
/// RECLANE_STATUS_DUPLICATE_ID               another live process is this rank
/// RECLANE_STATUS_DEPLOYMENT_MISMATCH        settings differ from those of the job; the message has both values
/// RECLANE_STATUS_STALE_EPOCH                the job has a newer epoch, or another id
/// RECLANE_STATUS_CONTROL_PLANE_UNREACHABLE  rank 0 did not answer within rdma-control-plane-timeout-ms
/// RECLANE_STATUS_OS_ERROR, _RESOURCE_LIMIT, _NULL_POINTER, _BAD_HANDLE, _CLOSED, _FORKED, _STRUCT_SIZE, _BUG  as their
/// names say
/// Threads: any.  Blocks: up to the option rdma-control-plane-timeout-ms.
#[unsafe(no_mangle)]
#[must_use]
pub unsafe extern "C" fn reclane_rank_open(
    options: *const reclane_options,
    out: *mut *mut reclane_rank,
    error: *mut reclane_error,
) -> Status {
    guard::keep_panics_quiet();
    let make = || {
        fork::check()?;
        fork::watch()?;
        // SAFETY: the caller vouches for the handle.
        let settings = unsafe { snapshot(options) }?.settings(Side::Server)?;
        Rank::open(&settings)
    };
    // SAFETY: the caller vouches for `out` and `error`.
    unsafe { guard::call(error, || publish_to(out, make)) }
}

/// What a rank has and has done.
///
/// rank   from reclane_rank_open().
/// info   receives the report; struct_size must be set.
/// error  may be NULL; filled on failure only.
///
/// RECLANE_STATUS_STRUCT_SIZE  info or error has a size that cannot be
/// RECLANE_STATUS_NULL_POINTER, _BAD_HANDLE, _CLOSED, _FORKED, _POISONED, _BUG  as their names say
/// Threads: any.  Blocks: never.
#[unsafe(no_mangle)]
#[must_use]
pub unsafe extern "C" fn reclane_rank_describe(
    rank: *const reclane_rank,
    info: *mut reclane_rank_info,
    error: *mut reclane_error,
) -> Status {
    let body = |rank: &Rank| {
        // SAFETY: the caller vouches for `info`.
        unsafe { structs::check_report(info.cast_const()) }?;
        let lanes = rank.lanes();
        let short = |count: usize| u32::try_from(count).unwrap_or(u32::MAX);
        let face = reclane_rank_info {
            struct_size: 0,
            rank: rank.number(),
            ranks: short(lanes.len()),
            control_plane_port: u32::from(rank.control_plane_port()),
            regions: short(rank.regions().len()),
            lanes: short(lanes.iter().filter(|lane| lane.generation != 0).count()),
            posted: lanes.iter().map(|lane| lane.posted).sum(),
            settled: lanes.iter().map(|lane| lane.retired).sum(),
            restored_epoch: rank.restored(),
        };
        // SAFETY: checked above.
        unsafe { structs::write(info, &face) };
        Ok(Status::Ok)
    };
    // SAFETY: the caller vouches for the handle and `error`.
    unsafe { guard::with(rank, error, body) }
}

/// Waits until all ranks of the job have come to the barrier of this name. A name can be used again.
///
/// rank        from reclane_rank_open().
/// name        UTF-8, at most 256 bytes; the same on all ranks.
/// timeout_ms  how long to wait, milliseconds; 0 for 60 s.
/// error       may be NULL; filled on failure only.
///
/// RECLANE_STATUS_STARTUP_TIMEOUT    not all came in time; the message names who did
/// RECLANE_STATUS_SHARD_UNREACHABLE  a rank died or left while it waited there; the message names it
/// RECLANE_STATUS_CONTROL_PLANE_UNREACHABLE, _RESOURCE_LIMIT, _INVALID_ARGUMENT, _NOT_UTF8  as their names say
/// RECLANE_STATUS_NULL_POINTER, _BAD_HANDLE, _CLOSED, _FORKED, _POISONED, _STRUCT_SIZE, _BUG  as their names say
/// Threads: any; calls of one rank at one barrier count once.  Blocks: up to timeout_ms.
#[unsafe(no_mangle)]
#[must_use]
pub unsafe extern "C" fn reclane_rank_barrier(
    rank: *const reclane_rank,
    name: *const c_char,
    timeout_ms: u64,
    error: *mut reclane_error,
) -> Status {
    let body = |rank: &Rank| {
        // SAFETY: the caller vouches for the string.
        let name = unsafe { text(name, "name") }?;
        rank.barrier(name, timeout_or(timeout_ms, WAIT_DEFAULT))?;
        Ok(Status::Ok)
    };
    // SAFETY: the caller vouches for the handle and `error`.
    unsafe { guard::with(rank, error, body) }
}

/// Holds a rank still: closes the gate before everything that it posts, then waits until nothing of it is under way.
/// Operations of its other threads wait meanwhile, up to their own timeouts. What other ranks have under way towards this
/// one is theirs: for a consistent copy hold all ranks, then have a barrier, then copy.
///
/// rank        from reclane_rank_open().
/// drain_ms    how long to wait for what is under way, milliseconds; 0 for 60 s.
/// lapse_ms    after how long the hold ends by itself, milliseconds, so that a holder that died holds up nobody; 0 for
///             60 s; never before drain_ms.
/// hold        receives the number to release it with.
/// error       may be NULL; filled on failure only.
///
/// RECLANE_STATUS_WAIT_TIMEOUT  something is under way still; the message names the rank it goes to; the gate is open
/// RECLANE_STATUS_BUSY          another hold is under way
/// RECLANE_STATUS_NULL_POINTER, _BAD_HANDLE, _CLOSED, _FORKED, _POISONED, _STRUCT_SIZE, _BUG  as their names say
/// Threads: any.  Blocks: up to drain_ms.
#[unsafe(no_mangle)]
#[must_use]
pub unsafe extern "C" fn reclane_rank_hold(
    rank: *const reclane_rank,
    drain_ms: u64,
    lapse_ms: u64,
    hold: *mut u64,
    error: *mut reclane_error,
) -> Status {
    let body = |rank: &Rank| {
        required(hold, "hold")?;
        // SAFETY: not NULL; writable by the caller's word.
        unsafe { hold.write(0) };
        let id = rank.hold(timeout_or(drain_ms, WAIT_DEFAULT), timeout_or(lapse_ms, LAPSE_DEFAULT))?;
        // SAFETY: as above.
        unsafe { hold.write(id.number()) };
        Ok(Status::Ok)
    };
    // SAFETY: the caller vouches for the handle and `error`.
    unsafe { guard::with(rank, error, body) }
}

/// Ends a hold: operations go on.
///
/// rank   from reclane_rank_open().
/// hold   from reclane_rank_hold().
/// error  may be NULL; filled on failure only.
///
/// RECLANE_STATUS_STALE_TOKEN  the hold had lapsed: what was copied since then may be mixed
/// RECLANE_STATUS_NULL_POINTER, _BAD_HANDLE, _CLOSED, _FORKED, _POISONED, _STRUCT_SIZE, _BUG  as their names say
/// Threads: any.  Blocks: never.
#[unsafe(no_mangle)]
#[must_use]
pub unsafe extern "C" fn reclane_rank_release(
    rank: *const reclane_rank,
    hold: u64,
    error: *mut reclane_error,
) -> Status {
    let body = |rank: &Rank| {
        if rank.release(HoldId::from_number(hold)) {
            return Ok(Status::Ok);
        }
        Err(Error::new(Status::StaleToken, format!("hold {hold} is not in force any more: it lapsed or was released")))
    };
    // SAFETY: the caller vouches for the handle and `error`.
    unsafe { guard::with(rank, error, body) }
}

/// Gives everything of the device back, in place: lanes, registrations of regions, descriptors, mappings and threads of the
/// fabric. A tool that cannot deal with devices may act on the process then. Regions stay readable and writable where they
/// are; operations wait, up to their own timeouts. All ranks call it, each at a point where no other thread of its program
/// posts or touches regions until it has returned. The session with the control plane stays open. Only fabric=shm can.
///
/// rank        from reclane_rank_open().
/// timeout_ms  how long to wait for what is under way and for the other ranks, milliseconds; 0 for 60 s.
/// error       may be NULL; filled on failure only. The rank is awake then, as far as that was possible.
///
/// RECLANE_STATUS_WAIT_TIMEOUT     something is under way still; the message names the rank it goes to
/// RECLANE_STATUS_STARTUP_TIMEOUT  not all ranks came in time
/// RECLANE_STATUS_UNSUPPORTED      the fabric cannot be suspended
/// RECLANE_STATUS_WRONG_STATE      it is suspended already
/// RECLANE_STATUS_BUSY             a hold or a checkpoint is under way
/// RECLANE_STATUS_SHARD_UNREACHABLE, _OS_ERROR, _RESOURCE_LIMIT, _CONTROL_PLANE_UNREACHABLE  as their names say
/// RECLANE_STATUS_BAD_HANDLE, _CLOSED, _FORKED, _POISONED, _STRUCT_SIZE, _BUG  as their names say
/// Threads: any; one at a time per rank.  Blocks: up to timeout_ms.
#[unsafe(no_mangle)]
#[must_use]
pub unsafe extern "C" fn reclane_rank_suspend(
    rank: *const reclane_rank,
    timeout_ms: u64,
    error: *mut reclane_error,
) -> Status {
    let body = |rank: &Rank| {
        rank.suspend(timeout_or(timeout_ms, WAIT_DEFAULT))?;
        Ok(Status::Ok)
    };
    // SAFETY: the caller vouches for the handle and `error`.
    unsafe { guard::with(rank, error, body) }
}

/// Takes the device again, with new keys under the same addresses. Returns when all ranks have called it; lanes come up with
/// the next operation.
///
/// rank        from reclane_rank_open().
/// timeout_ms  how long to wait for the other ranks, milliseconds; 0 for 60 s.
/// error       may be NULL; filled on failure only. Operations wait still then; call again.
///
/// RECLANE_STATUS_WRONG_STATE      it is not suspended
/// RECLANE_STATUS_STARTUP_TIMEOUT  not all ranks came in time
/// RECLANE_STATUS_SHARD_UNREACHABLE, _OS_ERROR, _RESOURCE_LIMIT, _CONTROL_PLANE_UNREACHABLE, _FABRIC_UNAVAILABLE  as their
/// names say
/// RECLANE_STATUS_BAD_HANDLE, _CLOSED, _FORKED, _POISONED, _STRUCT_SIZE, _BUG  as their names say
/// Threads: any; one at a time per rank.  Blocks: up to timeout_ms.
#[unsafe(no_mangle)]
#[must_use]
pub unsafe extern "C" fn reclane_rank_resume(
    rank: *const reclane_rank,
    timeout_ms: u64,
    error: *mut reclane_error,
) -> Status {
    let body = |rank: &Rank| {
        rank.resume(timeout_or(timeout_ms, WAIT_DEFAULT))?;
        Ok(Status::Ok)
    };
    // SAFETY: the caller vouches for the handle and `error`.
    unsafe { guard::with(rank, error, body) }
}

/// Leaves the job and closes the handle: lanes end, and so does what is under way on them; regions that are still open stay
/// readable here until reclane_region_close(). Rank 0 stays for the others to leave first, at most 5 s. NULL and an
/// already closed handle do nothing.
///
/// Threads: one at a time per rank; no other call on it may be under way.  Blocks: until its threads have ended.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn reclane_rank_close(rank: *mut reclane_rank) {
    // SAFETY: the caller vouches for the handle.
    guard::quietly(|| drop(unsafe { handle::take(rank) }));
}
