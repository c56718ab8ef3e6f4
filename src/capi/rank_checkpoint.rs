//! Checkpoints of ranks: the regions of all ranks and the programs' own sections at one moment (docs/checkpoint.md).
//!
//! Set checkpoint-directory on all ranks, to the same files. Programs that work in step come to a checkpoint together:
//! reclane_rank_checkpoint(). Others set hooks that bring them to rest, and any rank, or the option checkpoint-interval-ms,
//! begins one. Rank 0 leads.
//!
//! With checkpoint-restore a job starts from the newest checkpoint that is whole: reclane_region_open() finds regions
//! filled, under the ids and addresses that peers knew them by; reclane_rank_describe() says from which checkpoint.

use core::ffi::{c_char, c_int, c_void};
use core::{ptr, slice};
use std::time::Duration;

use super::arguments::{required, text, timeout_or};
use super::callback::{self, Inside};
use super::checkpoint::{
    FULL, WAIT_DEFAULT, face, reclane_checkpoint_info, reclane_checkpoint_request, section_of, state_of,
};
use super::error::reclane_error;
use super::guard;
use super::rank::{WAIT_DEFAULT as REST_DEFAULT, reclane_rank};
use super::store::reclane_drop_fn;
use super::structs::{self, Versioned};
use crate::engine::{Hooks, Rank, Section};
use crate::error::{Error, Result, Status};
use crate::sync::Arc;

/// Brings the program to rest within so many milliseconds: until the resume callback nothing of it touches its regions.
/// Operations that are under way may end. Returns 0, or another number when it cannot; the checkpoint is given up then.
pub type reclane_rest_fn = Option<unsafe extern "C-unwind" fn(user_data: *mut c_void, within_ms: u64) -> c_int>;

/// The program's own bytes, as it rests, and how many; valid until the resume callback.
pub type reclane_section_fn =
    Option<unsafe extern "C-unwind" fn(user_data: *mut c_void, bytes: *mut u64) -> *const c_void>;

/// The program goes on. copied is 1 when it is in the checkpoint, if that is committed, and 0 when it was given up.
pub type reclane_resume_fn = Option<unsafe extern "C-unwind" fn(user_data: *mut c_void, copied: c_int)>;

/// What brings a program to rest. Zero the struct, set struct_size = sizeof(reclane_rank_hooks) and the required callbacks.
///
/// They are called on a thread of the rank, one at a time, in this order. No callback may throw: a C++ exception that
/// leaves one ends the process. A callback must not begin, wait for or abort a checkpoint, nor close the rank.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct reclane_rank_hooks {
    /// sizeof(reclane_rank_hooks).
    pub struct_size: u32,
    /// 0.
    pub reserved: u32,
    /// Given back to every callback.
    pub user_data: *mut c_void,
    /// May be NULL.
    pub drop_user_data: reclane_drop_fn,
    /// Required.
    pub rest: reclane_rest_fn,
    /// May be NULL: the program has no bytes of its own.
    pub section: reclane_section_fn,
    /// Required.
    pub resume: reclane_resume_fn,
    /// Name of the section, NUL-terminated UTF-8 of at most 255 bytes; copied. Required with section.
    pub section_name: *const c_char,
}

// SAFETY: repr(C), `struct_size` first; zero is a valid pointer, integer and `Option` of a function.
unsafe impl Versioned for reclane_rank_hooks {
    const NAME: &'static str = "reclane_rank_hooks";
    const FIRST_SIZE: usize = 56;
}
const _: () = assert!(size_of::<reclane_rank_hooks>() == 56);

/// The host's callbacks, and the section's name.
struct Host {
    hooks: reclane_rank_hooks,
    name: String,
}

// SAFETY: the header demands of the host that its callbacks and `user_data` can be used from the rank's threads.
unsafe impl Send for Host {}
// SAFETY: as above; calls come one after the other.
unsafe impl Sync for Host {}

impl Drop for Host {
    fn drop(&mut self) {
        if let Some(drop_user_data) = self.hooks.drop_user_data {
            let _inside = Inside::enter();
            // SAFETY: the host gave this function for this pointer, and it is called once.
            unsafe { drop_user_data(self.hooks.user_data) };
        }
    }
}

impl Hooks for Host {
    fn hold(&self, within: Duration) -> core::result::Result<(), String> {
        let Some(rest) = self.hooks.rest else { return Err("it is NULL".to_owned()) };
        let _inside = Inside::enter();
        let within_ms = u64::try_from(within.as_millis()).unwrap_or(u64::MAX);
        // SAFETY: the host's function with its own data.
        match unsafe { rest(self.hooks.user_data, within_ms) } {
            0 => Ok(()),
            other => Err(format!("no ({other})")),
        }
    }

    fn sections(&self) -> Vec<Section> {
        let Some(section) = self.hooks.section else { return Vec::new() };
        let _inside = Inside::enter();
        let mut bytes = 0_u64;
        // SAFETY: the host's function with its own data; the number is ours.
        let first = unsafe { section(self.hooks.user_data, &raw mut bytes) };
        let count = usize::try_from(bytes).unwrap_or(0);
        if first.is_null() || count == 0 {
            return vec![(self.name.clone(), Vec::new())];
        }
        // SAFETY: valid until the resume callback by the host's word.
        let all = unsafe { slice::from_raw_parts(first.cast::<u8>(), count) };
        vec![(self.name.clone(), all.to_vec())]
    }

    fn resume(&self, copied: bool) {
        let Some(resume) = self.hooks.resume else { return };
        let _inside = Inside::enter();
        // SAFETY: the host's function with its own data.
        unsafe { resume(self.hooks.user_data, c_int::from(copied)) };
    }
}

fn full_of(flags: u32) -> Result<bool> {
    if flags & !FULL != 0 {
        return Err(Error::new(Status::InvalidArgument, format!("flags {flags:#x} are unknown")));
    }
    Ok(flags & FULL != 0)
}

/// Takes a checkpoint of all ranks: each calls this at a point where its program rests, that is, where no other thread of it
/// posts or touches its regions. When all have come, lanes are drained and regions copied; then this returns, and the
/// program goes on while files are written. When it fails the program goes on without a checkpoint.
///
/// rank        from reclane_rank_open().
/// request     NULL: what has changed, without a section. The section may have up to 64 MiB here.
/// timeout_ms  how long to wait for the other ranks, milliseconds; 0 for 60 s. Copying is bounded by the option
///             checkpoint-hold-timeout-ms.
/// number      receives the request's number, for the other calls. The last 64 are remembered.
/// error       may be NULL; filled on failure only.
///
/// RECLANE_STATUS_CHECKPOINT_ABORTED  it came to nothing; the message says why: a rank is gone, the one before is still being
///                                    written, a disk is full
/// RECLANE_STATUS_BUSY                not all ranks came in time, or another thread of this rank is in this call
/// RECLANE_STATUS_WRONG_STATE         there is no checkpoint-directory
/// RECLANE_STATUS_WOULD_DEADLOCK      called from inside a callback
/// RECLANE_STATUS_INVALID_ARGUMENT, _NOT_UTF8  as their names say
/// RECLANE_STATUS_NULL_POINTER, _BAD_HANDLE, _CLOSED, _FORKED, _POISONED, _STRUCT_SIZE, _BUG  as their names say
/// Threads: any; one at a time per rank.  Blocks: up to timeout_ms, then until copying has ended.
#[unsafe(no_mangle)]
#[must_use]
pub unsafe extern "C" fn reclane_rank_checkpoint(
    rank: *const reclane_rank,
    request: *const reclane_checkpoint_request,
    timeout_ms: u64,
    number: *mut u64,
    error: *mut reclane_error,
) -> Status {
    let body = |rank: &Rank| {
        callback::check_outside("reclane_rank_checkpoint")?;
        required(number, "number")?;
        // SAFETY: not NULL; writable by the caller's word.
        unsafe { number.write(0) };
        let (full, section) = if request.is_null() {
            (false, None)
        } else {
            // SAFETY: the caller vouches for the struct.
            let request = unsafe { structs::read(request) }?;
            // SAFETY: and for what it names.
            (full_of(request.flags)?, unsafe { section_of(&request) }?)
        };
        let taken = rank.checkpoint(full, section.into_iter().collect(), timeout_or(timeout_ms, REST_DEFAULT))?;
        // SAFETY: as above.
        unsafe { number.write(taken) };
        Ok(Status::Ok)
    };
    // SAFETY: the caller vouches for the handle and `error`.
    unsafe { guard::with(rank, error, body) }
}

/// Begins a checkpoint of all ranks, whose programs' hooks bring them to rest. Does not wait.
///
/// rank    from reclane_rank_open().
/// flags   0 or RECLANE_CHECKPOINT_FLAG_FULL.
/// number  receives the request's number, for the other calls.
/// error   may be NULL; filled on failure only.
///
/// RECLANE_STATUS_WRONG_STATE       there is no checkpoint-directory
/// RECLANE_STATUS_INVALID_ARGUMENT  unknown flags
/// RECLANE_STATUS_WOULD_DEADLOCK    called from inside a callback
/// RECLANE_STATUS_NULL_POINTER, _BAD_HANDLE, _CLOSED, _FORKED, _POISONED, _STRUCT_SIZE, _BUG  as their names say
/// Threads: any.  Blocks: for one exchange with the control plane.
#[unsafe(no_mangle)]
#[must_use]
pub unsafe extern "C" fn reclane_rank_checkpoint_begin(
    rank: *const reclane_rank,
    flags: u32,
    number: *mut u64,
    error: *mut reclane_error,
) -> Status {
    let body = |rank: &Rank| {
        callback::check_outside("reclane_rank_checkpoint_begin")?;
        required(number, "number")?;
        // SAFETY: not NULL; writable by the caller's word.
        unsafe { number.write(0) };
        let begun = rank.checkpoint_begin(full_of(flags)?)?;
        // SAFETY: as above.
        unsafe { number.write(begun) };
        Ok(Status::Ok)
    };
    // SAFETY: the caller vouches for the handle and `error`.
    unsafe { guard::with(rank, error, body) }
}

/// Waits until a checkpoint is so far; see reclane_checkpoint_wait().
///
/// rank        from reclane_rank_open().
/// number      from reclane_rank_checkpoint() or reclane_rank_checkpoint_begin() of this rank.
/// state       a reclane_checkpoint_state up to RECLANE_CHECKPOINT_STATE_COMMITTED.
/// timeout_ms  how long to wait, milliseconds; 0 for 600 s.
/// info        may be NULL; receives how far it is. struct_size must be set.
/// error       may be NULL; filled on failure only.
///
/// RECLANE_STATUS_CHECKPOINT_ABORTED  it came to nothing; the message says why
/// RECLANE_STATUS_BUSY                it is not so far yet; call again
/// RECLANE_STATUS_INVALID_ARGUMENT    no such request, or no such state
/// RECLANE_STATUS_WOULD_DEADLOCK      called from inside a callback
/// RECLANE_STATUS_NULL_POINTER, _BAD_HANDLE, _CLOSED, _FORKED, _POISONED, _STRUCT_SIZE, _BUG  as their names say
/// Threads: any.  Blocks: up to timeout_ms.
#[unsafe(no_mangle)]
#[must_use]
pub unsafe extern "C" fn reclane_rank_checkpoint_wait(
    rank: *const reclane_rank,
    number: u64,
    state: u32,
    timeout_ms: u64,
    info: *mut reclane_checkpoint_info,
    error: *mut reclane_error,
) -> Status {
    let body = |rank: &Rank| {
        callback::check_outside("reclane_rank_checkpoint_wait")?;
        let least = state_of(state)?;
        if !info.is_null() {
            // SAFETY: the caller vouches for `info`.
            unsafe { structs::check_report(info.cast_const()) }?;
        }
        let status = rank.checkpoint_wait(number, least, timeout_or(timeout_ms, WAIT_DEFAULT))?;
        if !info.is_null() {
            // SAFETY: checked above.
            unsafe { structs::write(info, &face(&status)) };
        }
        Ok(Status::Ok)
    };
    // SAFETY: the caller vouches for the handle and `error`.
    unsafe { guard::with(rank, error, body) }
}

/// How far a checkpoint is, as far as this rank has heard.
///
/// rank    from reclane_rank_open().
/// number  from reclane_rank_checkpoint() or reclane_rank_checkpoint_begin() of this rank.
/// info    receives it; struct_size must be set.
/// error   may be NULL; filled on failure only.
///
/// RECLANE_STATUS_INVALID_ARGUMENT  no such request, or one of long ago
/// RECLANE_STATUS_NULL_POINTER, _BAD_HANDLE, _CLOSED, _FORKED, _POISONED, _STRUCT_SIZE, _BUG  as their names say
/// Threads: any.  Blocks: never.
#[unsafe(no_mangle)]
#[must_use]
pub unsafe extern "C" fn reclane_rank_checkpoint_status(
    rank: *const reclane_rank,
    number: u64,
    info: *mut reclane_checkpoint_info,
    error: *mut reclane_error,
) -> Status {
    let body = |rank: &Rank| {
        // SAFETY: the caller vouches for `info`.
        unsafe { structs::check_report(info.cast_const()) }?;
        let status = rank.checkpoint_status(number)?;
        // SAFETY: checked above.
        unsafe { structs::write(info, &face(&status)) };
        Ok(Status::Ok)
    };
    // SAFETY: the caller vouches for the handle and `error`.
    unsafe { guard::with(rank, error, body) }
}

/// Gives a checkpoint up. When its manifest is being written already, it is committed all the same.
///
/// rank    from reclane_rank_open().
/// number  from reclane_rank_checkpoint() or reclane_rank_checkpoint_begin() of this rank.
/// error   may be NULL; filled on failure only.
///
/// RECLANE_STATUS_INVALID_ARGUMENT  no such request
/// RECLANE_STATUS_NULL_POINTER, _BAD_HANDLE, _CLOSED, _FORKED, _POISONED, _STRUCT_SIZE, _BUG  as their names say
/// Threads: any.  Blocks: for one exchange with the control plane.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn reclane_rank_checkpoint_abort(
    rank: *const reclane_rank,
    number: u64,
    error: *mut reclane_error,
) -> Status {
    let body = |rank: &Rank| {
        rank.checkpoint_abort(number)?;
        Ok(Status::Ok)
    };
    // SAFETY: the caller vouches for the handle and `error`.
    unsafe { guard::with(rank, error, body) }
}

/// Sets what brings the program to rest for checkpoints that it does not wait for in reclane_rank_checkpoint().
///
/// rank   from reclane_rank_open().
/// hooks  copied; they take the place of those before. NULL: none. On RECLANE_STATUS_OK the library owns
///        hooks->user_data and calls hooks->drop_user_data once, when no callback is under way; on any other status it
///        stays the caller's.
/// error  may be NULL; filled on failure only.
///
/// RECLANE_STATUS_NULL_POINTER    a required callback, or the name of the section, is NULL
/// RECLANE_STATUS_WOULD_DEADLOCK  called from inside a callback
/// RECLANE_STATUS_NOT_UTF8, _BAD_HANDLE, _CLOSED, _FORKED, _POISONED, _STRUCT_SIZE, _BUG  as their names say
/// Threads: any.  Blocks: never.
#[unsafe(no_mangle)]
#[must_use]
pub unsafe extern "C" fn reclane_rank_set_hooks(
    rank: *const reclane_rank,
    hooks: *const reclane_rank_hooks,
    error: *mut reclane_error,
) -> Status {
    let body = |rank: &Rank| {
        callback::check_outside("reclane_rank_set_hooks")?;
        if hooks.is_null() {
            rank.set_checkpoint_hooks(None);
            return Ok(Status::Ok);
        }
        // SAFETY: the caller vouches for the struct.
        let hooks = unsafe { structs::read(hooks) }?;
        if hooks.rest.is_none() || hooks.resume.is_none() {
            let message = "reclane_rank_hooks.rest and .resume must not be NULL";
            return Err(Error::new(Status::NullPointer, message));
        }
        let name = match hooks.section {
            // SAFETY: the caller vouches for the string.
            Some(_) => unsafe { text(hooks.section_name, "reclane_rank_hooks.section_name") }?.to_owned(),
            None => String::new(),
        };
        rank.set_checkpoint_hooks(Some(Arc::new(Host { hooks, name })));
        Ok(Status::Ok)
    };
    // SAFETY: the caller vouches for the handle and `error`.
    unsafe { guard::with(rank, error, body) }
}

/// Copies a section of the checkpoint that this rank started from; it is the one that this rank had brought.
///
/// rank      from reclane_rank_open().
/// name      the section's name, NUL-terminated UTF-8.
/// buffer    receives its bytes; may be NULL when capacity is 0, to ask for the length.
/// capacity  bytes of buffer.
/// length    receives the section's bytes, also when buffer is too small.
/// error     may be NULL; filled on failure only.
///
/// RECLANE_STATUS_INVALID_ARGUMENT  it did not start from a checkpoint, or had no section of this name
/// RECLANE_STATUS_BUFFER_TOO_SMALL  it has more than capacity bytes; nothing was copied
/// RECLANE_STATUS_NULL_POINTER, _NOT_UTF8, _BAD_HANDLE, _CLOSED, _FORKED, _POISONED, _STRUCT_SIZE, _BUG  as their names
/// say
/// Threads: any.  Blocks: never.
#[unsafe(no_mangle)]
#[must_use]
pub unsafe extern "C" fn reclane_rank_restored_section(
    rank: *const reclane_rank,
    name: *const c_char,
    buffer: *mut c_void,
    capacity: usize,
    length: *mut usize,
    error: *mut reclane_error,
) -> Status {
    let body = |rank: &Rank| {
        required(length, "length")?;
        // SAFETY: the caller vouches for the string.
        let name = unsafe { text(name, "name") }?;
        let section = rank.restored_section(name).ok_or_else(|| {
            let message = format!("checkpoint {} has no section '{name}' of this rank", rank.restored());
            Error::new(Status::InvalidArgument, message)
        })?;
        // SAFETY: not NULL; writable by the caller's word.
        unsafe { length.write(section.len()) };
        if section.len() > capacity {
            let message = format!("section '{name}' has {} bytes, the buffer {capacity}", section.len());
            return Err(Error::new(Status::BufferTooSmall, message));
        }
        if !section.is_empty() {
            required(buffer, "buffer")?;
            // SAFETY: the buffer has `capacity` bytes by the caller's word, and is not ours.
            unsafe { ptr::copy_nonoverlapping(section.as_ptr(), buffer.cast::<u8>(), section.len()) };
        }
        Ok(Status::Ok)
    };
    // SAFETY: the caller vouches for the handle and `error`.
    unsafe { guard::with(rank, error, body) }
}
