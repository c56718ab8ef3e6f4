//! Checkpoints: all shards of a deployment as they were at one moment, on disk (docs/checkpoint.md).
//!
//! Shard 0 leads; the option checkpoint-directory of all servers says where. A client asks for one here, with a section of
//! its own bytes that is part of it; servers can take them by themselves too (checkpoint-interval-ms). Requests wait while
//! state is copied (milliseconds), not while it is written.
//!
//! Restoring is the servers' start: with checkpoint-restore, or with options that reclane_restore_apply() has filled in.

use core::ffi::{c_char, c_void};
use std::time::Duration;

use super::arguments::{array, required, text, timeout_or};
use super::client::reclane_client;
use super::error::reclane_error;
use super::guard;
use super::structs::{self, Versioned};
use crate::engine::{Advice, CheckpointState, CheckpointStatus, Client, Cost, advise};
use crate::error::{Error, Result, Status};

/// How long `wait` waits when the caller names no time.
pub(super) const WAIT_DEFAULT: Duration = Duration::from_secs(600);
/// Bits of reclane_checkpoint_request.flags.
#[repr(u32)]
#[derive(Clone, Copy, Debug)]
pub enum reclane_checkpoint_flag {
    /// Everything is written, whether it has changed or not.
    Full = 1,
}

pub(super) const FULL: u32 = reclane_checkpoint_flag::Full as u32;

/// How far a checkpoint is: values of reclane_checkpoint_info.state. They only grow.
#[repr(u32)]
#[derive(Clone, Copy, Debug)]
pub enum reclane_checkpoint_state {
    /// Asked for.
    Asked = 0,
    /// Requests come to rest.
    Holding = 1,
    /// State is being copied.
    Capturing = 2,
    /// Requests go on; files are being written.
    Writing = 3,
    /// It exists.
    Committed = 4,
    /// It came to nothing; requests go on.
    Aborted = 5,
}

const _: () = assert!(
    reclane_checkpoint_state::Writing as u32 == CheckpointState::Writing as u32
        && reclane_checkpoint_state::Committed as u32 == CheckpointState::Committed as u32
        && reclane_checkpoint_state::Aborted as u32 == CheckpointState::Aborted as u32
);

/// What is asked for. Set struct_size = sizeof(reclane_checkpoint_request) and the rest to zero before filling it in.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct reclane_checkpoint_request {
    /// sizeof(reclane_checkpoint_request), set by the caller.
    pub struct_size: u32,
    /// 0 or RECLANE_CHECKPOINT_FLAG_FULL.
    pub flags: u32,
    /// Name of the application section, NUL-terminated UTF-8 of at most 255 bytes; NULL: there is none. Copied.
    pub section_name: *const c_char,
    /// Its bytes, at most 32768. Copied during the call.
    pub section: *const c_void,
    /// How many.
    pub section_bytes: u64,
}

// SAFETY: repr(C), `struct_size` first, integers and pointers only.
unsafe impl Versioned for reclane_checkpoint_request {
    const NAME: &'static str = "reclane_checkpoint_request";
    const FIRST_SIZE: usize = 32;
}
const _: () = assert!(size_of::<reclane_checkpoint_request>() == 32);

/// How far a checkpoint is. Set struct_size = sizeof(reclane_checkpoint_info) before the call.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct reclane_checkpoint_info {
    /// sizeof(reclane_checkpoint_info), set by the caller.
    pub struct_size: u32,
    /// A reclane_checkpoint_state.
    pub state: u32,
    /// Its epoch; 0 while it has none.
    pub epoch: u64,
    /// Nanoseconds that requests waited at most; 0 until they go on.
    pub hold_ns: u64,
    /// Nanoseconds from the first word until all was durable; 0 until then.
    pub total_ns: u64,
    /// Bytes of state in it; 0 until it is committed.
    pub state_bytes: u64,
    /// Bytes that were written for it; the rest lies in earlier ones.
    pub written_bytes: u64,
}

// SAFETY: repr(C), `struct_size` first, integers only.
unsafe impl Versioned for reclane_checkpoint_info {
    const NAME: &'static str = "reclane_checkpoint_info";
    const FIRST_SIZE: usize = 48;
}
const _: () = assert!(size_of::<reclane_checkpoint_info>() == 48);

/// What checkpoints, restores and failures cost. Set struct_size = sizeof(reclane_checkpoint_cost) before the call.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct reclane_checkpoint_cost {
    /// sizeof(reclane_checkpoint_cost), set by the caller.
    pub struct_size: u32,
    /// 0.
    pub reserved: u32,
    /// Nanoseconds that work stands still for one checkpoint, as reclane_checkpoint_info.hold_ns.
    pub pause_ns: u64,
    /// Nanoseconds until one is durable, as reclane_checkpoint_info.total_ns.
    pub durable_ns: u64,
    /// Nanoseconds from a failure until work goes on.
    pub restart_ns: u64,
    /// Mean nanoseconds between two failures of the whole deployment.
    pub mtbf_ns: u64,
}

// SAFETY: repr(C), `struct_size` first, integers only.
unsafe impl Versioned for reclane_checkpoint_cost {
    const NAME: &'static str = "reclane_checkpoint_cost";
    const FIRST_SIZE: usize = 40;
}
const _: () = assert!(size_of::<reclane_checkpoint_cost>() == 40);

pub(super) fn face(status: &CheckpointStatus) -> reclane_checkpoint_info {
    reclane_checkpoint_info {
        struct_size: 0,
        state: status.state as u32,
        epoch: status.epoch,
        hold_ns: status.hold_ns,
        total_ns: status.total_ns,
        state_bytes: status.state_bytes,
        written_bytes: status.written_bytes,
    }
}

/// The state that a caller waits for.
pub(super) fn state_of(state: u32) -> Result<CheckpointState> {
    let states = [
        CheckpointState::Asked,
        CheckpointState::Holding,
        CheckpointState::Capturing,
        CheckpointState::Writing,
        CheckpointState::Committed,
    ];
    states
        .get(state as usize)
        .copied()
        .ok_or_else(|| Error::new(Status::InvalidArgument, format!("state {state} cannot be waited for; 0 to 4 can")))
}

/// The section of a request, if it has one.
///
/// # Safety
/// The pointers are what the request's comments say.
pub(super) unsafe fn section_of(request: &reclane_checkpoint_request) -> Result<Option<(String, Vec<u8>)>> {
    if request.flags & !FULL != 0 {
        return Err(Error::new(Status::InvalidArgument, format!("flags {:#x} are unknown", request.flags)));
    }
    if request.section_name.is_null() {
        return Ok(None);
    }
    // SAFETY: the caller's promise.
    let name = unsafe { text(request.section_name, "section_name") }?.to_owned();
    let count = usize::try_from(request.section_bytes).unwrap_or(usize::MAX);
    // SAFETY: as above.
    let bytes = unsafe { array(request.section.cast::<u8>(), count, "section") }?;
    Ok(Some((name, bytes.to_vec())))
}

/// Asks shard 0 for a checkpoint of all shards. What requests have done whose answer this thread has seen is in it; other
/// threads' and clients' requests are executed before it or after it, each as a whole.
///
/// client   from reclane_client_open().
/// request  NULL: what has changed, without a section of the application.
/// number   receives the request's number, for the other calls. The last 64 are remembered.
/// error    may be NULL; filled on failure only.
///
/// RECLANE_STATUS_INVALID_ARGUMENT           unknown flags, or a section that is too large
/// RECLANE_STATUS_SHARD_UNREACHABLE          shard 0 is not here
/// RECLANE_STATUS_CONTROL_PLANE_UNREACHABLE  the control plane does not answer
/// RECLANE_STATUS_NULL_POINTER, _NOT_UTF8, _BAD_HANDLE, _CLOSED, _FORKED, _POISONED, _STRUCT_SIZE, _BUG  as their names
/// say
/// Threads: any.  Blocks: for one exchange with the control plane.
#[unsafe(no_mangle)]
#[must_use]
pub unsafe extern "C" fn reclane_checkpoint_begin(
    client: *const reclane_client,
    request: *const reclane_checkpoint_request,
    number: *mut u64,
    error: *mut reclane_error,
) -> Status {
    let body = |client: &Client| {
        required(number, "number")?;
        let (full, section) = if request.is_null() {
            (false, None)
        } else {
            // SAFETY: the caller vouches for the struct.
            let request = unsafe { structs::read(request) }?;
            // SAFETY: and for what it names.
            (request.flags & FULL != 0, unsafe { section_of(&request) }?)
        };
        let begun = client.checkpoint_begin(full, section)?;
        // SAFETY: not NULL; writable by the caller's word.
        unsafe { number.write(begun) };
        Ok(Status::Ok)
    };
    // SAFETY: the caller vouches for the handle and `error`.
    unsafe { guard::with(client, error, body) }
}

/// Waits until a checkpoint is so far. RECLANE_CHECKPOINT_STATE_WRITING: state is copied, and what is done from now on is
/// not in it; a program that has a section may go on then. RECLANE_CHECKPOINT_STATE_COMMITTED: it exists.
///
/// client      from reclane_client_open().
/// number      from reclane_checkpoint_begin().
/// state       a reclane_checkpoint_state up to RECLANE_CHECKPOINT_STATE_COMMITTED.
/// timeout_ms  how long to wait, milliseconds; 0 for 600 s.
/// info        may be NULL; receives how far it is. struct_size must be set.
/// error       may be NULL; filled on failure only.
///
/// RECLANE_STATUS_CHECKPOINT_ABORTED  it came to nothing; the message says why, and requests go on
/// RECLANE_STATUS_BUSY                it is not so far yet; call again
/// RECLANE_STATUS_INVALID_ARGUMENT    no such request, or no such state
/// RECLANE_STATUS_NULL_POINTER, _BAD_HANDLE, _CLOSED, _FORKED, _POISONED, _STRUCT_SIZE, _BUG  as their names say
/// Threads: any.  Blocks: up to timeout_ms.
#[unsafe(no_mangle)]
#[must_use]
pub unsafe extern "C" fn reclane_checkpoint_wait(
    client: *const reclane_client,
    number: u64,
    state: u32,
    timeout_ms: u64,
    info: *mut reclane_checkpoint_info,
    error: *mut reclane_error,
) -> Status {
    let body = |client: &Client| {
        let least = state_of(state)?;
        if !info.is_null() {
            // SAFETY: the caller vouches for `info`.
            unsafe { structs::check_report(info.cast_const()) }?;
        }
        let status = client.checkpoint_wait(number, least, timeout_or(timeout_ms, WAIT_DEFAULT))?;
        if !info.is_null() {
            // SAFETY: checked above.
            unsafe { structs::write(info, &face(&status)) };
        }
        Ok(Status::Ok)
    };
    // SAFETY: the caller vouches for the handle and `error`.
    unsafe { guard::with(client, error, body) }
}

/// How far a checkpoint is, as far as this client has heard.
///
/// client  from reclane_client_open().
/// number  from reclane_checkpoint_begin().
/// info    receives it; struct_size must be set.
/// error   may be NULL; filled on failure only.
///
/// RECLANE_STATUS_INVALID_ARGUMENT  no such request, or one of long ago
/// RECLANE_STATUS_NULL_POINTER, _BAD_HANDLE, _CLOSED, _FORKED, _POISONED, _STRUCT_SIZE, _BUG  as their names say
/// Threads: any.  Blocks: never.
#[unsafe(no_mangle)]
#[must_use]
pub unsafe extern "C" fn reclane_checkpoint_status(
    client: *const reclane_client,
    number: u64,
    info: *mut reclane_checkpoint_info,
    error: *mut reclane_error,
) -> Status {
    let body = |client: &Client| {
        // SAFETY: the caller vouches for `info`.
        unsafe { structs::check_report(info.cast_const()) }?;
        let status = client.checkpoint_status(number)?;
        // SAFETY: checked above.
        unsafe { structs::write(info, &face(&status)) };
        Ok(Status::Ok)
    };
    // SAFETY: the caller vouches for the handle and `error`.
    unsafe { guard::with(client, error, body) }
}

/// Gives a checkpoint up. When its manifest is being written already, it is committed all the same.
///
/// client  from reclane_client_open().
/// number  from reclane_checkpoint_begin().
/// error   may be NULL; filled on failure only.
///
/// RECLANE_STATUS_INVALID_ARGUMENT           no such request
/// RECLANE_STATUS_SHARD_UNREACHABLE          shard 0 is not here
/// RECLANE_STATUS_CONTROL_PLANE_UNREACHABLE  the control plane does not answer
/// RECLANE_STATUS_NULL_POINTER, _BAD_HANDLE, _CLOSED, _FORKED, _POISONED, _STRUCT_SIZE, _BUG  as their names say
/// Threads: any.  Blocks: for one exchange with the control plane.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn reclane_checkpoint_abort(
    client: *const reclane_client,
    number: u64,
    error: *mut reclane_error,
) -> Status {
    let body = |client: &Client| {
        client.checkpoint_abort(number)?;
        Ok(Status::Ok)
    };
    // SAFETY: the caller vouches for the handle and `error`.
    unsafe { guard::with(client, error, body) }
}

/// How often to take a checkpoint, by Daly's formula (Young's, where pauses are short): the interval at which pauses,
/// repeated work and restarts together cost the least.
///
/// cost         what was measured; struct_size must be set.
/// interval_ns  receives the time between two checkpoints, nanoseconds.
/// lost         may be NULL; receives the part of the time that is lost then. Above 1 nothing gets done.
/// error        may be NULL; filled on failure only.
///
/// RECLANE_STATUS_INVALID_ARGUMENT  failures come faster than a checkpoint is through, so no interval helps
/// RECLANE_STATUS_NULL_POINTER, _STRUCT_SIZE  as their names say
/// Threads: any.  Blocks: never.
#[unsafe(no_mangle)]
#[must_use]
pub unsafe extern "C" fn reclane_checkpoint_advise(
    cost: *const reclane_checkpoint_cost,
    interval_ns: *mut u64,
    lost: *mut f64,
    error: *mut reclane_error,
) -> Status {
    let body = || {
        required(interval_ns, "interval_ns")?;
        // SAFETY: the caller vouches for the struct.
        let cost = unsafe { structs::read(cost) }?;
        let time = Duration::from_nanos;
        let measured = Cost {
            pause: time(cost.pause_ns),
            durable: time(cost.durable_ns),
            restart: time(cost.restart_ns),
            mtbf: time(cost.mtbf_ns),
        };
        let Some(Advice { interval, lost: part }) = advise(&measured) else {
            let message = format!(
                "a failure each {} ns comes before a checkpoint of {} ns is through",
                cost.mtbf_ns, cost.durable_ns
            );
            return Err(Error::new(Status::InvalidArgument, message));
        };
        // SAFETY: not NULL; writable by the caller's word.
        unsafe { interval_ns.write(u64::try_from(interval.as_nanos()).unwrap_or(u64::MAX)) };
        if !lost.is_null() {
            // SAFETY: writable by the caller's word.
            unsafe { lost.write(part) };
        }
        Ok(Status::Ok)
    };
    // SAFETY: the caller vouches for `error`.
    unsafe { guard::call(error, body) }
}
