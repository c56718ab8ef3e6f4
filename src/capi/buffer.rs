//! Buffer: memory of the library that the fabric can reach without a copy.
//!
//! A GET of one shard's keys that fits one request lands there directly; a PUT or UPDATE from a buffer can be read by
//! the server from there. Close a buffer only when every request that names it was revoked. Rows in it are float,
//! row-major.

use core::ffi::c_void;
use core::ptr;

use super::client::reclane_client;
use super::error::reclane_error;
use super::guard;
use super::handle::{self, Noun};
use super::options::publish_to;
use crate::engine::{Buffer, Client};
use crate::error::{Error, Status};

/// Memory that the fabric can reach. Opaque; made by reclane_buffer_open().
#[derive(Debug)]
pub struct reclane_buffer {
    _opaque: (),
}

impl Noun for reclane_buffer {
    type Object = Buffer;
    const TAG: u32 = 0xB0FF_E401;
    const NAME: &'static str = "reclane_buffer";
}

/// Allocates a zeroed, registered buffer, aligned to a page.
///
/// client  from reclane_client_open(). The buffer can be used with this client only; its memory may outlive it.
/// bytes   its size, at least 1.
/// out     receives the handle; NULL is written on failure. Close it with reclane_buffer_close().
/// error   may be NULL; filled on failure only.
///
/// RECLANE_STATUS_INVALID_ARGUMENT          bytes is 0
/// RECLANE_STATUS_RESOURCE_LIMIT, _OS_ERROR  there is no memory, or it cannot be registered
/// RECLANE_STATUS_SHARD_UNREACHABLE          a shard did not map it
/// RECLANE_STATUS_NULL_POINTER, _BAD_HANDLE, _CLOSED, _FORKED, _POISONED, _STRUCT_SIZE, _BUG  as their names say
/// Threads: any.  Blocks: until every shard has mapped it, at most 5 s for each lane.
///
/// A client has at most 1023 buffers open at a time.
#[unsafe(no_mangle)]
#[must_use]
pub unsafe extern "C" fn reclane_buffer_open(
    client: *mut reclane_client,
    bytes: usize,
    out: *mut *mut reclane_buffer,
    error: *mut reclane_error,
) -> Status {
    let body = |client: &Client| {
        let make = || {
            if bytes == 0 {
                return Err(Error::new(Status::InvalidArgument, "a buffer of 0 bytes was asked for; at least 1"));
            }
            client.allocate_buffer(bytes)
        };
        // SAFETY: the caller vouches for `out`.
        unsafe { publish_to(out, make) }
    };
    // SAFETY: the caller vouches for the handle and `error`.
    unsafe { guard::with(client.cast_const(), error, body) }
}

/// First byte of a buffer, valid until reclane_buffer_close(). Returns NULL for a handle that cannot be used.
///
/// buffer  from reclane_buffer_open(). The bytes may be read and written freely while no request names them.
///
/// Threads: any.  Blocks: never.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn reclane_buffer_data(buffer: *const reclane_buffer) -> *mut c_void {
    // SAFETY: the caller vouches for the handle.
    unsafe { handle::object(buffer) }.map_or(ptr::null_mut(), |buffer| buffer.data().cast::<c_void>())
}

/// Size of a buffer in bytes. Returns 0 for a handle that cannot be used.
///
/// buffer  from reclane_buffer_open().
///
/// Threads: any.  Blocks: never.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn reclane_buffer_bytes(buffer: *const reclane_buffer) -> usize {
    // SAFETY: the caller vouches for the handle.
    unsafe { handle::object(buffer) }.map_or(0, Buffer::bytes)
}

/// Closes a buffer. Its bytes must not be touched any more, and no request that was not revoked may name it. NULL and an
/// already closed handle do nothing. The shards let go of it too, each when it has done with what it is executing.
///
/// Threads: one at a time per buffer.  Blocks: never.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn reclane_buffer_close(buffer: *mut reclane_buffer) {
    // SAFETY: the caller vouches for the handle.
    guard::quietly(|| drop(unsafe { handle::take(buffer) }));
}
