//! State of the host program in checkpoints: what a shard keeps beside the rows of the built-in table, and everything that
//! a storage engine behind reclane_store keeps.
//!
//! The callbacks run on a thread of the server, one at a time. None may throw, stop or close the server, or wait for a
//! request to it.

use core::ffi::{c_int, c_void};

use super::structs::Versioned;

/// Keeps the state as it is now, and writes to *bytes how many bytes it takes. Requests wait until this returns; one that
/// only reads may still be under way. The cheap way is to copy what is small, and to copy on write what is large.
pub type reclane_state_freeze_fn =
    Option<unsafe extern "C-unwind" fn(user_data: *mut c_void, epoch: u64, bytes: *mut u64) -> c_int>;

/// Writes the count bytes from offset on of the frozen state to buffer. Parts come in any order, while requests go on;
/// a checkpoint may be given up before all were asked for.
pub type reclane_state_save_fn = Option<
    unsafe extern "C-unwind" fn(user_data: *mut c_void, offset: u64, buffer: *mut c_void, count: usize) -> c_int,
>;

/// What was frozen is not needed any more: once after each freeze that answered 0. committed is 1 when the checkpoint
/// exists, 0 when it came to nothing or nobody knows.
pub type reclane_state_release_fn =
    Option<unsafe extern "C-unwind" fn(user_data: *mut c_void, epoch: u64, committed: c_int)>;

/// Takes a piece of saved state back, before the shard serves: the count bytes from offset on of the total bytes that
/// shard `shard` of `shards` had. With as many shards as then a shard gets its own state; with another number each gets
/// that of all, shard by shard, and takes what is its own. Pieces of one shard come in order; a state of 0 bytes comes as
/// one piece of 0 bytes.
pub type reclane_state_load_fn = Option<
    unsafe extern "C-unwind" fn(
        user_data: *mut c_void,
        shard: u32,
        shards: u32,
        total: u64,
        offset: u64,
        buffer: *const c_void,
        count: usize,
    ) -> c_int,
>;

/// State of the host program. Zero the struct, set struct_size = sizeof(reclane_state) and the callbacks, all of which are
/// required. Those that return an int answer 0 when done; any other number ends the checkpoint, or keeps the shard from
/// starting, and is in the message.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct reclane_state {
    /// sizeof(reclane_state).
    pub struct_size: u32,
    /// 0.
    pub reserved: u32,
    /// Given back to every callback. Stays the caller's, and valid until reclane_server_close() has returned.
    pub user_data: *mut c_void,
    /// Required.
    pub freeze: reclane_state_freeze_fn,
    /// Required.
    pub save: reclane_state_save_fn,
    /// Required.
    pub release: reclane_state_release_fn,
    /// Required.
    pub load: reclane_state_load_fn,
}

// SAFETY: repr(C), `struct_size` first; zero is a valid pointer, integer and `Option` of a function.
unsafe impl Versioned for reclane_state {
    const NAME: &'static str = "reclane_state";
    const FIRST_SIZE: usize = 48;
}

const _: () = assert!(size_of::<reclane_state>() == 48);
