//! Region: memory of a rank that all ranks reach by (rank, region, offset).
//!
//! The library allocates it, zeroed and aligned to a page. Its address for peers belongs to its id and is the same in every
//! life of the rank; keys stay inside the library.

use core::ffi::c_void;
use core::ptr;

use super::arguments::timeout_or;
use super::error::reclane_error;
use super::guard;
use super::handle::{self, Noun};
use super::options::publish_to;
use super::rank::{WAIT_DEFAULT, reclane_rank};
use super::structs::{self, Versioned};
use crate::engine::{OwnRegion, Rank};
use crate::error::{Error, Status};
use crate::fabric::Access;

/// A region of this rank. Opaque; made by reclane_region_open().
#[derive(Debug)]
pub struct reclane_region {
    _opaque: (),
}

impl Noun for reclane_region {
    type Object = OwnRegion;
    const TAG: u32 = 0x4E61_0401;
    const NAME: &'static str = "reclane_region";
}

/// What other ranks may do with a region; the values can be added.
#[repr(u32)]
#[derive(Clone, Copy, Debug)]
pub enum reclane_right {
    /// Write.
    Write = 1,
    /// Read.
    Read = 2,
    /// Fetch-add and compare-swap.
    Atomic = 4,
    /// All of it.
    All = 7,
}

const _: () = assert!(
    reclane_right::Write as u8 == Access::REMOTE_WRITE.0
        && reclane_right::Read as u8 == Access::REMOTE_READ.0
        && reclane_right::Atomic as u8 == Access::REMOTE_ATOMIC.0
        && reclane_right::All as u8 == Access::ALL.0
);

/// What is known of a region of another rank. Set struct_size = sizeof(reclane_region_info) before the call.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct reclane_region_info {
    /// sizeof(reclane_region_info), set by the caller.
    pub struct_size: u32,
    /// The rank that owns it.
    pub rank: u32,
    /// Its id.
    pub region: u32,
    /// What other ranks may do with it, reclane_right values added.
    pub rights: u32,
    /// Its length in bytes.
    pub bytes: u64,
    /// Counts the owner's changes of its regions: another number is another registration.
    pub version: u64,
}

// SAFETY: repr(C), `struct_size` first, integers only.
unsafe impl Versioned for reclane_region_info {
    const NAME: &'static str = "reclane_region_info";
    const FIRST_SIZE: usize = 32;
}
const _: () = assert!(size_of::<reclane_region_info>() == 32);

/// Allocates a zeroed region and shows it to all ranks. When this returns, every rank that has a lane to this one can use
/// it, and others when they make one. A region that came back from a checkpoint is there already, filled: this hands it out,
/// and refuses another length or other rights than it had.
///
/// rank    from reclane_rank_open(); closed after the region, or before: then peers have lost the region already.
/// id      0..511, free on this rank.
/// bytes   its length, 1 to 2^40.
/// rights  what other ranks may do with it, reclane_right values added; at least one.
/// out     receives the handle; NULL is written on failure. Close it with reclane_region_close().
/// error   may be NULL; filled on failure only.
///
/// RECLANE_STATUS_INVALID_ARGUMENT           id, bytes or rights cannot be, or the id is open
/// RECLANE_STATUS_RESOURCE_LIMIT, _OS_ERROR  there is no memory, or it cannot be registered
/// RECLANE_STATUS_UNSUPPORTED                the fabric cannot register memory under a chosen address
/// RECLANE_STATUS_SHARD_UNREACHABLE          a rank that has a lane to this one did not map it within 5 s
/// RECLANE_STATUS_CONTROL_PLANE_UNREACHABLE  ranks that have a lane to this one could not be told
/// RECLANE_STATUS_NULL_POINTER, _BAD_HANDLE, _CLOSED, _FORKED, _POISONED, _STRUCT_SIZE, _BUG  as their names say
/// Threads: any.  Blocks: until ranks with lanes have mapped it, at most 5 s for each.
#[unsafe(no_mangle)]
#[must_use]
pub unsafe extern "C" fn reclane_region_open(
    rank: *const reclane_rank,
    id: u32,
    bytes: usize,
    rights: u32,
    out: *mut *mut reclane_region,
    error: *mut reclane_error,
) -> Status {
    let body = |rank: &Rank| {
        let make = || {
            let access = u8::try_from(rights).ok().map(Access).filter(|access| access.0 <= Access::ALL.0);
            let Some(access) = access else {
                let why = format!("region {id}: rights {rights:#x} have a bit that is no reclane_right");
                return Err(Error::new(Status::InvalidArgument, why));
            };
            rank.open_region(id, bytes, access)
        };
        // SAFETY: the caller vouches for `out`.
        unsafe { publish_to(out, make) }
    };
    // SAFETY: the caller vouches for the handle and `error`.
    unsafe { guard::with(rank, error, body) }
}

/// First byte of a region, valid until reclane_region_close(). Returns NULL for a handle that cannot be used. Other ranks
/// read and write it at any time: use atomics where both sides touch the same bytes.
///
/// region  from reclane_region_open().
///
/// Threads: any.  Blocks: never.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn reclane_region_data(region: *const reclane_region) -> *mut c_void {
    // SAFETY: the caller vouches for the handle.
    unsafe { handle::object(region) }.map_or(ptr::null_mut(), |region| region.data().cast::<c_void>())
}

/// Length of a region in bytes. Returns 0 for a handle that cannot be used.
///
/// region  from reclane_region_open().
///
/// Threads: any.  Blocks: never.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn reclane_region_bytes(region: *const reclane_region) -> usize {
    // SAFETY: the caller vouches for the handle.
    unsafe { handle::object(region) }.map_or(0, OwnRegion::bytes)
}

/// Waits until another rank has a region open, and connects the lane to it. An operation does the same without waiting for
/// the region; this is for programs that have no barrier between opening and using.
///
/// rank        from reclane_rank_open().
/// peer        the rank that owns the region; it may be this one.
/// region      its id.
/// timeout_ms  how long to wait, milliseconds; 0 for 60 s.
/// info        receives what is known of it; struct_size must be set.
/// error       may be NULL; filled on failure only.
///
/// RECLANE_STATUS_INVALID_ARGUMENT   there is no such rank, or it has no such region within the time
/// RECLANE_STATUS_SHARD_UNREACHABLE  the rank is gone or does not answer
/// RECLANE_STATUS_CONTROL_PLANE_UNREACHABLE, _RESOURCE_LIMIT, _OS_ERROR  as their names say
/// RECLANE_STATUS_NULL_POINTER, _BAD_HANDLE, _CLOSED, _FORKED, _POISONED, _STRUCT_SIZE, _BUG  as their names say
/// Threads: any.  Blocks: up to timeout_ms.
#[unsafe(no_mangle)]
#[must_use]
pub unsafe extern "C" fn reclane_region_find(
    rank: *const reclane_rank,
    peer: u32,
    region: u32,
    timeout_ms: u64,
    info: *mut reclane_region_info,
    error: *mut reclane_error,
) -> Status {
    let body = |rank: &Rank| {
        // SAFETY: the caller vouches for `info`.
        unsafe { structs::check_report(info.cast_const()) }?;
        let entry = rank.find_region(peer, region, timeout_or(timeout_ms, WAIT_DEFAULT))?;
        let face = reclane_region_info {
            struct_size: 0,
            rank: peer,
            region,
            rights: u32::from(entry.address.access.0),
            bytes: entry.address.bytes,
            version: u64::from(entry.n),
        };
        // SAFETY: checked above.
        unsafe { structs::write(info, &face) };
        Ok(Status::Ok)
    };
    // SAFETY: the caller vouches for the handle and `error`.
    unsafe { guard::with(rank, error, body) }
}

/// Closes a region: other ranks cannot use it any more, and its bytes must not be touched any more, nor be named by an
/// operation under way. NULL and an already closed handle do nothing.
///
/// Threads: one at a time per region.  Blocks: until ranks with lanes were told, up to rdma-control-plane-timeout-ms.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn reclane_region_close(region: *mut reclane_region) {
    // SAFETY: the caller vouches for the handle.
    guard::quietly(|| drop(unsafe { handle::take(region) }));
}
