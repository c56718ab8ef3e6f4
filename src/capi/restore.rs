//! Restore: a checkpoint that was found whole, what is in it, and servers that start from it.
//!
//! Nothing is made before every byte was looked at. The newest checkpoint that is whole is taken; newer ones that are not
//! are passed over. Servers do the same by themselves with the option checkpoint-restore; this is for programs that want
//! to know first, or that have a section of their own in the checkpoint.

use core::ffi::{c_char, c_void};

use super::arguments::text;
use super::error::reclane_error;
use super::handle::{self, Noun};
use super::options::{publish_to, reclane_options};
use super::structs::{self, Versioned};
use super::{fork, guard};
use crate::engine::RestorePlan;
use crate::error::{Error, Status};
use crate::sync::lock;

/// A checkpoint that was found whole. Opaque; made by reclane_restore_open().
#[derive(Debug)]
pub struct reclane_restore {
    _opaque: (),
}

impl Noun for reclane_restore {
    type Object = RestorePlan;
    const TAG: u32 = 0x4E57_0401;
    const NAME: &'static str = "reclane_restore";
}

/// What a restore would bring back. Set struct_size = sizeof(reclane_restore_info) before the call.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct reclane_restore_info {
    /// sizeof(reclane_restore_info), set by the caller.
    pub struct_size: u32,
    /// How many shards it was taken of; 0: it is of ranks. It can be restored by any number.
    pub shards: u32,
    /// Its epoch.
    pub epoch: u64,
    /// The one that it builds on; 0: none.
    pub parent: u64,
    /// When it was committed, microseconds since 1970 UTC.
    pub unix_us: u64,
    /// Bytes of state.
    pub state_bytes: u64,
    /// Bytes of its own files.
    pub file_bytes: u64,
    /// Nanoseconds that requests waited for it at most.
    pub hold_ns: u64,
    /// Nanoseconds until it was durable.
    pub total_ns: u64,
    /// Newer ones that were passed over; reclane_restore_refused() says why.
    pub refused: u32,
    /// Earlier ones that it builds on.
    pub needs: u32,
    /// How many ranks it was taken of; 0: it is of a parameter server. As many get their regions back.
    pub ranks: u32,
    /// 0.
    pub reserved: u32,
}

// SAFETY: repr(C), `struct_size` first, integers only.
unsafe impl Versioned for reclane_restore_info {
    const NAME: &'static str = "reclane_restore_info";
    const FIRST_SIZE: usize = 72;
}
const _: () = assert!(size_of::<reclane_restore_info>() == 80);

fn face(plan: &RestorePlan) -> reclane_restore_info {
    let manifest = plan.manifest();
    let count = |count: usize| u32::try_from(count).unwrap_or(u32::MAX);
    reclane_restore_info {
        struct_size: 0,
        shards: manifest.shards(),
        epoch: manifest.epoch,
        parent: manifest.parent,
        unix_us: manifest.unix_us,
        state_bytes: manifest.members.iter().map(|member| member.state_bytes).sum(),
        file_bytes: manifest.members.iter().map(|member| member.bytes).sum(),
        hold_ns: manifest.timing.hold_ns,
        total_ns: manifest.timing.total_ns,
        refused: count(plan.refused().len()),
        needs: count(manifest.needs.len()),
        ranks: plan.ranks(),
        reserved: 0,
    }
}

/// Finds the newest checkpoint that is whole, and reads every byte of it once.
///
/// directory  the servers' checkpoint-directory, NUL-terminated UTF-8.
/// epoch      this one and no other; 0: the newest that is whole.
/// out        receives the handle; NULL is written on failure. Close it with reclane_restore_close().
/// error      may be NULL; filled on failure only.
///
/// RECLANE_STATUS_INVALID_ARGUMENT  there is none; the message has the reasons against those that are there
/// RECLANE_STATUS_OS_ERROR          the directory cannot be read
/// RECLANE_STATUS_NULL_POINTER, _NOT_UTF8, _FORKED, _STRUCT_SIZE, _BUG  as their names say
/// Threads: any.  Blocks: while files are read.
#[unsafe(no_mangle)]
#[must_use]
pub unsafe extern "C" fn reclane_restore_open(
    directory: *const c_char,
    epoch: u64,
    out: *mut *mut reclane_restore,
    error: *mut reclane_error,
) -> Status {
    guard::keep_panics_quiet();
    let make = || {
        fork::check()?;
        // SAFETY: the caller vouches for the string.
        RestorePlan::open(unsafe { text(directory, "directory") }?, Some(epoch).filter(|epoch| *epoch != 0))
    };
    // SAFETY: the caller vouches for `out` and `error`.
    unsafe { guard::call(error, || publish_to(out, make)) }
}

/// What a restore would bring back.
///
/// restore  from reclane_restore_open().
/// info     receives it; struct_size must be set.
/// error    may be NULL; filled on failure only.
///
/// RECLANE_STATUS_NULL_POINTER, _BAD_HANDLE, _CLOSED, _FORKED, _STRUCT_SIZE  as their names say
/// Threads: any.  Blocks: never.
#[unsafe(no_mangle)]
#[must_use]
pub unsafe extern "C" fn reclane_restore_describe(
    restore: *const reclane_restore,
    info: *mut reclane_restore_info,
    error: *mut reclane_error,
) -> Status {
    let body = |plan: &RestorePlan| {
        // SAFETY: the caller vouches for `info`.
        unsafe { structs::check_report(info.cast_const()) }?;
        // SAFETY: checked above.
        unsafe { structs::write(info, &face(plan)) };
        Ok(Status::Ok)
    };
    // SAFETY: the caller vouches for the handle and `error`.
    unsafe { guard::with(restore, error, body) }
}

/// Why a newer checkpoint was passed over.
///
/// restore   from reclane_restore_open().
/// index     0..reclane_restore_info.refused - 1, newest first.
/// epoch     may be NULL; receives its epoch.
/// buffer    receives the reason, always NUL-terminated when capacity is not 0; cut if it does not fit.
/// capacity  bytes of buffer, the NUL included.
/// length    may be NULL; receives the bytes of the whole reason without the NUL, also when buffer is too small.
/// error     may be NULL; filled on failure only.
///
/// RECLANE_STATUS_INVALID_ARGUMENT  there is none with this index
/// RECLANE_STATUS_BUFFER_TOO_SMALL  the reason and its NUL need more than capacity bytes; call again with *length + 1
/// RECLANE_STATUS_NULL_POINTER, _BAD_HANDLE, _CLOSED, _FORKED, _STRUCT_SIZE  as their names say
/// Threads: any.  Blocks: never.
#[unsafe(no_mangle)]
#[must_use]
pub unsafe extern "C" fn reclane_restore_refused(
    restore: *const reclane_restore,
    index: u32,
    epoch: *mut u64,
    buffer: *mut c_char,
    capacity: usize,
    length: *mut usize,
    error: *mut reclane_error,
) -> Status {
    let body = |plan: &RestorePlan| {
        let (refused, why) = plan.refused().get(index as usize).ok_or_else(|| {
            let message = format!("index {index}: {} checkpoints were passed over", plan.refused().len());
            Error::new(Status::InvalidArgument, message)
        })?;
        if !epoch.is_null() {
            // SAFETY: writable by the caller's word.
            unsafe { epoch.write(*refused) };
        }
        // SAFETY: the caller vouches for `buffer` and `length`.
        unsafe { super::arguments::write_text(why, buffer, capacity, length, "the reason") }
    };
    // SAFETY: the caller vouches for the handle and `error`.
    unsafe { guard::with(restore, error, body) }
}

/// Copies an application section out of the checkpoint. Of a checkpoint of ranks: rank 0's.
///
/// restore   from reclane_restore_open().
/// name      the section's name, NUL-terminated UTF-8.
/// buffer    receives its bytes; may be NULL when capacity is 0, to ask for the length.
/// capacity  bytes of buffer.
/// length    receives the section's bytes, also when buffer is too small.
/// error     may be NULL; filled on failure only.
///
/// RECLANE_STATUS_INVALID_ARGUMENT  the checkpoint has no section of this name
/// RECLANE_STATUS_BUFFER_TOO_SMALL  it has more than capacity bytes; nothing was copied
/// RECLANE_STATUS_OS_ERROR          its file cannot be read any more
/// RECLANE_STATUS_NULL_POINTER, _NOT_UTF8, _BAD_HANDLE, _CLOSED, _FORKED, _STRUCT_SIZE  as their names say
/// Threads: any.  Blocks: while the section is read.
#[unsafe(no_mangle)]
#[must_use]
pub unsafe extern "C" fn reclane_restore_section(
    restore: *const reclane_restore,
    name: *const c_char,
    buffer: *mut c_void,
    capacity: usize,
    length: *mut usize,
    error: *mut reclane_error,
) -> Status {
    let body = |plan: &RestorePlan| {
        super::arguments::required(length, "length")?;
        // SAFETY: the caller vouches for the string.
        let name = unsafe { text(name, "name") }?;
        let section = plan.section(name)?.ok_or_else(|| {
            let message = format!("checkpoint {} has no section '{name}'", plan.manifest().epoch);
            Error::new(Status::InvalidArgument, message)
        })?;
        // SAFETY: not NULL; writable by the caller's word.
        unsafe { length.write(section.len()) };
        if section.len() > capacity {
            let message = format!("section '{name}' has {} bytes, the buffer {capacity}", section.len());
            return Err(Error::new(Status::BufferTooSmall, message));
        }
        if !section.is_empty() {
            super::arguments::required(buffer, "buffer")?;
            // SAFETY: the buffer has `capacity` bytes by the caller's word, and is not ours.
            unsafe { core::ptr::copy_nonoverlapping(section.as_ptr(), buffer.cast::<u8>(), section.len()) };
        }
        Ok(Status::Ok)
    };
    // SAFETY: the caller vouches for the handle and `error`.
    unsafe { guard::with(restore, error, body) }
}

/// Copies bytes of a rank's region out of the checkpoint: for programs that go on with another number of ranks, or that look
/// into it.
///
/// restore   from reclane_restore_open().
/// rank      the rank that it was of.
/// region    its id.
/// offset    first byte that is wanted.
/// buffer    receives the bytes from there on, as many as it takes and there are; may be NULL when capacity is 0.
/// capacity  bytes of buffer.
/// length    receives the length of the whole region.
/// error     may be NULL; filled on failure only.
///
/// RECLANE_STATUS_INVALID_ARGUMENT  the checkpoint has no such rank or region
/// RECLANE_STATUS_OS_ERROR          its file cannot be read any more
/// RECLANE_STATUS_NULL_POINTER, _BAD_HANDLE, _CLOSED, _FORKED, _STRUCT_SIZE  as their names say
/// Threads: any.  Blocks: while it is read.
#[unsafe(no_mangle)]
#[must_use]
pub unsafe extern "C" fn reclane_restore_region(
    restore: *const reclane_restore,
    rank: u32,
    region: u32,
    offset: u64,
    buffer: *mut c_void,
    capacity: usize,
    length: *mut u64,
    error: *mut reclane_error,
) -> Status {
    let body = |plan: &RestorePlan| {
        super::arguments::required(length, "length")?;
        super::arguments::check_array(buffer.cast::<u8>().cast_const(), capacity, "buffer")?;
        let out = if capacity == 0 {
            &mut [][..]
        } else {
            // SAFETY: not NULL; the buffer has `capacity` bytes by the caller's word, and is nobody else's during the call.
            unsafe { core::slice::from_raw_parts_mut(buffer.cast::<u8>(), capacity) }
        };
        let bytes = plan.region(rank, region, offset, out)?;
        // SAFETY: not NULL; writable by the caller's word.
        unsafe { length.write(bytes) };
        Ok(Status::Ok)
    };
    // SAFETY: the caller vouches for the handle and `error`.
    unsafe { guard::with(restore, error, body) }
}

/// Lets servers, or ranks, that are opened with these options start from this checkpoint and no other: sets
/// checkpoint-directory, checkpoint-restore and checkpoint-restore-epoch. All shards must do so, in any number; rows
/// find their shards.
///
/// restore  from reclane_restore_open().
/// options  from reclane_options_open().
/// error    may be NULL; filled on failure only.
///
/// RECLANE_STATUS_OPTION_TYPE, _OPTION_BOUNDS  the directory is no value of an option
/// RECLANE_STATUS_NULL_POINTER, _BAD_HANDLE, _CLOSED, _FORKED, _STRUCT_SIZE  as their names say
/// Threads: one at a time per options.  Blocks: never.
#[unsafe(no_mangle)]
#[must_use]
pub unsafe extern "C" fn reclane_restore_apply(
    restore: *const reclane_restore,
    options: *mut reclane_options,
    error: *mut reclane_error,
) -> Status {
    let body = |plan: &RestorePlan| {
        // SAFETY: the caller vouches for the handle.
        let options = unsafe { handle::object::<reclane_options>(options.cast_const()) }?;
        plan.apply(&mut lock(options))?;
        Ok(Status::Ok)
    };
    // SAFETY: the caller vouches for the handle and `error`.
    unsafe { guard::with(restore, error, body) }
}

/// Closes a restore. Files are left alone. NULL and an already closed handle do nothing.
///
/// Threads: one at a time per restore; no other call on it may be under way.  Blocks: never.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn reclane_restore_close(restore: *mut reclane_restore) {
    // SAFETY: the caller vouches for the handle.
    guard::quietly(|| drop(unsafe { handle::take(restore) }));
}
