//! Request: one GET, PUT, UPDATE or UPDATE_FLAT.
//!
//! The plain calls send a request and wait for its end. The submit calls send it and return a reclane_request, a number
//! that stays good until it is released: query it, wait for it, borrow its rows, then revoke it; or wait and release with
//! reclane_client_finish(). Every request that was submitted must be released once, also when it failed; a number that
//! was released is recognised and refused with RECLANE_STATUS_STALE_TOKEN. A request belongs to one thread at a time;
//! different requests of one client may be worked on by different threads at once.
//!
//! Each open request holds a slot until it is released, also when it has ended; one of several parts holds a slot for
//! each part that was sent, until the part's answer is taken home. To one shard there are qps-per-client-per-shard times
//! slots-per-qp slots, for all threads together. When all are held,
//!   - submit calls answer RECLANE_STATUS_NO_SLOT at once, and a plain call waits for one, at most rdma-wait-timeout-ms.
//!     A thread that holds them all itself would wait for itself: its submit call is refused, and its plain call fails
//!     with RECLANE_STATUS_NO_SLOT when that time is over. It must release a request first.
//!   - a request whose keys go to several shards, or do not fit one slot, is taken all the same: its parts are sent, as
//!     slots become free, by who queries it or waits for it, and before any single request takes a slot. If none becomes
//!     free for rdma-wait-timeout-ms, it fails with RECLANE_STATUS_NO_SLOT, or with RECLANE_STATUS_WAIT_TIMEOUT when a
//!     part was sent.
//!
//! A client connects few of its lanes when it opens: those that the option async-depth needs, and one to spare. When all
//! slots of these are held, as many lanes more are connected as there are already, and the request that needed them waits
//! for that; some milliseconds, 1 s at most, once for each time that a client needs more than ever before. Set
//! async-depth to the requests that the client keeps under way at one shard, or the option qps-at-open to 1024, and
//! reclane_client_open() connects them all, so that no submit call waits.
//!
//! There is no thread behind a request: query, wait and borrow drive it. Keys are copied before a submit call returns.
//! Rows that are sent, and the array of pointers to gradients, must stay valid and unchanged, and memory that a GET writes
//! to must stay valid, until the request has ended or was revoked. keys and rows may be NULL when key_count is 0; such a
//! request is done at once. The parts of a batch that was split may be executed in any order.
//!
//! Every call below can give, beside what its comment lists:
//!   RECLANE_STATUS_NULL_POINTER, _BAD_HANDLE, _CLOSED, _FORKED, _POISONED, _STRUCT_SIZE, _BUG  as their names say
//! and every call that sends or ends a request:
//!   RECLANE_STATUS_INVALID_ARGUMENT  an array is misaligned or impossibly long
//!   RECLANE_STATUS_UNKNOWN_TABLE     this client knows no table of this number: call reclane_client_init_table() first
//!   RECLANE_STATUS_BUFFER_TOO_SMALL  the floats given are not key_count rows of the table's width; nothing was sent
//!   RECLANE_STATUS_NO_SLOT           too many requests are open; nothing was sent, revoke some and try again
//!   RECLANE_STATUS_INVALID_PAYLOAD, _WRONG_SHARD, _BATCH_TOO_LARGE, _VALUE_SIZE_MISMATCH, _INTERNAL_ERROR  the server's
//!   answer
//!   RECLANE_STATUS_CORRUPT_RESPONSE  the server's answer disagrees with its checksum, or answers something else; the lane
//!   goes on
//!   RECLANE_STATUS_WAIT_TIMEOUT, _LANE_DOWN, _POST_FAILED, _COMPLETION_ERROR, _COMPLETION_TIMEOUT  the lane that carried
//!   it is lost
//!   RECLANE_STATUS_SHARD_UNREACHABLE, _DRAINING  the shard is gone or going; error names it
//! error->outcome says whether a failed PUT or UPDATE was executed.

use super::arguments::{array, check_array, required, table_tag};
use super::buffer::reclane_buffer;
use super::client::reclane_client;
use super::error::reclane_error;
use super::{guard, handle};
use crate::engine::{Buffer, Client, Request, Rows, Target};
use crate::error::{Result, Status};

/// Names one submitted request of one client. Never 0.
pub type reclane_request = u64;

/// Sends a request, waits for its end, and lets it go.
///
/// # Safety
/// As for `Client::call`.
unsafe fn complete(client: &Client, request: &Request<'_>) -> Result<Status> {
    // SAFETY: the caller's word.
    unsafe { client.call(request) }?;
    Ok(Status::Ok)
}

/// Sends a request and hands its number to the caller.
///
/// # Safety
/// As for `Client::submit`; `out` is NULL or writable.
#[inline(always)]
unsafe fn submit(client: &Client, request: &Request<'_>, out: *mut reclane_request) -> Result<Status> {
    required(out, "request")?;
    // SAFETY: not NULL; writable by the caller's word.
    unsafe { out.write(0) };
    // SAFETY: the caller's word.
    let token = unsafe { client.submit(request) }?;
    // SAFETY: as above.
    unsafe { out.write(token.0) };
    Ok(Status::Ok)
}

#[inline(always)]
fn memory<'a>(rows: *mut f32, rows_capacity: usize) -> Result<Target<'a>> {
    check_array(rows.cast_const(), rows_capacity, "rows")?;
    Ok(Target::Memory { rows, capacity: rows_capacity })
}

#[inline(always)]
fn flat<'a>(rows: *const f32, float_count: usize) -> Result<Rows<'a>> {
    check_array(rows, float_count, "rows")?;
    Ok(Rows::Flat { rows, count: float_count })
}

/// # Safety
/// `gradients` is an array of `count` pointers, or `count` is 0.
unsafe fn scattered<'a>(gradients: *const *const f32, count: usize) -> Result<Rows<'a>> {
    // SAFETY: the caller's word.
    let gradients = unsafe { array(gradients, count, "gradients") }?;
    for (i, row) in gradients.iter().enumerate() {
        if row.is_null() || !row.is_aligned() {
            check_array(*row, 1, &format!("gradients[{i}]"))?;
        }
    }
    Ok(Rows::Scattered(gradients))
}

/// # Safety
/// `buffer` is NULL or a handle.
unsafe fn buffer_of<'a>(buffer: *const reclane_buffer) -> Result<&'a Buffer> {
    // SAFETY: the caller's word.
    unsafe { handle::object(buffer) }
}

/// Reads rows: GET. A key that has no row gives a row of zeroes.
///
/// client         from reclane_client_open().
/// table          from reclane_client_init_table().
/// keys           key_count keys.
/// rows           receives key_count rows, row i for keys[i]. Its content is undefined on failure.
/// rows_capacity  floats that fit in rows; at least key_count times the table's width.
/// error          may be NULL; filled on failure only.
///
/// RECLANE_STATUS_BUFFER_TOO_SMALL  rows_capacity is too small; nothing was sent
/// Threads: any.  Blocks: up to the option rdma-wait-timeout-ms.
#[unsafe(no_mangle)]
#[must_use]
pub unsafe extern "C" fn reclane_client_get(
    client: *mut reclane_client,
    table: u32,
    keys: *const u64,
    key_count: usize,
    rows: *mut f32,
    rows_capacity: usize,
    error: *mut reclane_error,
) -> Status {
    // SAFETY: the caller vouches for the arrays.
    let body = |client: &Client| unsafe {
        let target = memory(rows, rows_capacity)?;
        let keys = array(keys, key_count, "keys")?;
        complete(client, &Request::Get { table: table_tag(table)?, keys, target })
    };
    // SAFETY: the caller vouches for the handle and `error`.
    unsafe { guard::with(client.cast_const(), error, body) }
}

/// Sets rows: PUT. A key that occurs twice has the later row.
///
/// client       from reclane_client_open().
/// table        from reclane_client_init_table().
/// keys         key_count keys.
/// rows         key_count rows, row i for keys[i].
/// float_count  floats in rows: key_count times the table's width.
/// error        may be NULL; filled on failure only.
///
/// Threads: any.  Blocks: up to the option rdma-wait-timeout-ms.
#[unsafe(no_mangle)]
#[must_use]
pub unsafe extern "C" fn reclane_client_put(
    client: *mut reclane_client,
    table: u32,
    keys: *const u64,
    key_count: usize,
    rows: *const f32,
    float_count: usize,
    error: *mut reclane_error,
) -> Status {
    // SAFETY: the caller vouches for the arrays.
    let body = |client: &Client| unsafe {
        let rows = flat(rows, float_count)?;
        let keys = array(keys, key_count, "keys")?;
        complete(client, &Request::Put { table: table_tag(table)?, keys, rows })
    };
    // SAFETY: the caller vouches for the handle and `error`.
    unsafe { guard::with(client.cast_const(), error, body) }
}

/// Applies gradients through the table's optimizer, given as one pointer per row: UPDATE. A key that occurs twice is
/// updated twice.
///
/// client     from reclane_client_open().
/// table      from reclane_client_init_table().
/// keys       key_count keys.
/// gradients  key_count pointers; gradients[i] points to one row of the table's width for keys[i].
/// error      may be NULL; filled on failure only.
///
/// Threads: any.  Blocks: up to the option rdma-wait-timeout-ms.
#[unsafe(no_mangle)]
#[must_use]
pub unsafe extern "C" fn reclane_client_update(
    client: *mut reclane_client,
    table: u32,
    keys: *const u64,
    key_count: usize,
    gradients: *const *const f32,
    error: *mut reclane_error,
) -> Status {
    // SAFETY: the caller vouches for the arrays.
    let body = |client: &Client| unsafe {
        let gradients = scattered(gradients, key_count)?;
        let keys = array(keys, key_count, "keys")?;
        complete(client, &Request::Update { table: table_tag(table)?, keys, gradients })
    };
    // SAFETY: the caller vouches for the handle and `error`.
    unsafe { guard::with(client.cast_const(), error, body) }
}

/// Applies gradients through the table's optimizer, given as one matrix: UPDATE_FLAT. A key that occurs twice is updated
/// twice.
///
/// client       from reclane_client_open().
/// table        from reclane_client_init_table().
/// keys         key_count keys.
/// gradients    key_count rows, row i for keys[i].
/// float_count  floats in gradients: key_count times the table's width.
/// error        may be NULL; filled on failure only.
///
/// Threads: any.  Blocks: up to the option rdma-wait-timeout-ms.
#[unsafe(no_mangle)]
#[must_use]
pub unsafe extern "C" fn reclane_client_update_flat(
    client: *mut reclane_client,
    table: u32,
    keys: *const u64,
    key_count: usize,
    gradients: *const f32,
    float_count: usize,
    error: *mut reclane_error,
) -> Status {
    // SAFETY: the caller vouches for the arrays.
    let body = |client: &Client| unsafe {
        let gradients = flat(gradients, float_count)?;
        let keys = array(keys, key_count, "keys")?;
        complete(client, &Request::UpdateFlat { table: table_tag(table)?, keys, gradients })
    };
    // SAFETY: the caller vouches for the handle and `error`.
    unsafe { guard::with(client.cast_const(), error, body) }
}

/// Sends a GET whose rows go to the caller's memory.
///
/// client, table, keys, key_count, rows, rows_capacity  as reclane_client_get(); rows must stay valid until the request
///          is revoked, and is complete once reclane_client_wait() gave RECLANE_STATUS_OK.
/// request  receives the request's number; 0 on failure. Release it with reclane_client_revoke().
/// error    may be NULL; filled on failure only.
///
/// RECLANE_STATUS_BUFFER_TOO_SMALL  rows_capacity is too small; nothing was sent
/// RECLANE_STATUS_NO_SLOT  all slots to the shard are held, by this thread maybe; nothing was sent: release one first
/// Threads: any.  Blocks: never; but up to 1 s while a lane is connected for the first time.
#[unsafe(no_mangle)]
#[must_use]
pub unsafe extern "C" fn reclane_client_submit_get(
    client: *mut reclane_client,
    table: u32,
    keys: *const u64,
    key_count: usize,
    rows: *mut f32,
    rows_capacity: usize,
    request: *mut reclane_request,
    error: *mut reclane_error,
) -> Status {
    // SAFETY: the caller vouches for the arrays and `request`.
    let body = |client: &Client| unsafe {
        let target = memory(rows, rows_capacity)?;
        let keys = array(keys, key_count, "keys")?;
        submit(client, &Request::Get { table: table_tag(table)?, keys, target }, request)
    };
    // SAFETY: the caller vouches for the handle and `error`.
    unsafe { guard::with(client.cast_const(), error, body) }
}

/// Sends a GET whose rows stay where the library has them: read them in place with reclane_client_borrow(). When all keys
/// belong to one shard and fit one request, that is where the server put them, and they can be read as they come in.
///
/// client, table, keys, key_count  as reclane_client_get().
/// request  receives the request's number; 0 on failure. Release it with reclane_client_revoke(); the rows are gone then.
/// error    may be NULL; filled on failure only.
///
/// RECLANE_STATUS_NO_SLOT  all slots to the shard are held, by this thread maybe; nothing was sent: release one first
/// Threads: any.  Blocks: never; but up to 1 s while a lane is connected for the first time.
#[unsafe(no_mangle)]
#[must_use]
pub unsafe extern "C" fn reclane_client_submit_get_in_place(
    client: *mut reclane_client,
    table: u32,
    keys: *const u64,
    key_count: usize,
    request: *mut reclane_request,
    error: *mut reclane_error,
) -> Status {
    // SAFETY: the caller vouches for the arrays and `request`.
    let body = |client: &Client| unsafe {
        let keys = array(keys, key_count, "keys")?;
        submit(client, &Request::Get { table: table_tag(table)?, keys, target: Target::InPlace }, request)
    };
    // SAFETY: the caller vouches for the handle and `error`.
    unsafe { guard::with(client.cast_const(), error, body) }
}

/// Sends a GET whose rows land in a buffer of the library; without a second copy when all keys belong to one shard and
/// fit one request.
///
/// client, table, keys, key_count  as reclane_client_get().
/// buffer        from reclane_buffer_open() of this client; its bytes from offset_bytes on belong to the request until it
///               is revoked.
/// offset_bytes  where the first row goes, a multiple of 4.
/// request       receives the request's number; 0 on failure. Release it with reclane_client_revoke().
/// error         may be NULL; filled on failure only.
///
/// RECLANE_STATUS_BUFFER_TOO_SMALL  the rows do not fit behind offset_bytes; nothing was sent
/// RECLANE_STATUS_NO_SLOT  all slots to the shard are held, by this thread maybe; nothing was sent: release one first
/// Threads: any.  Blocks: never; but up to 1 s while a lane is connected for the first time.
#[unsafe(no_mangle)]
#[must_use]
pub unsafe extern "C" fn reclane_client_submit_get_into(
    client: *mut reclane_client,
    table: u32,
    keys: *const u64,
    key_count: usize,
    buffer: *mut reclane_buffer,
    offset_bytes: usize,
    request: *mut reclane_request,
    error: *mut reclane_error,
) -> Status {
    // SAFETY: the caller vouches for the arrays, the buffer and `request`.
    let body = |client: &Client| unsafe {
        let target = Target::Buffer { region: buffer_of(buffer)?, offset_bytes };
        let keys = array(keys, key_count, "keys")?;
        submit(client, &Request::Get { table: table_tag(table)?, keys, target }, request)
    };
    // SAFETY: the caller vouches for the handle and `error`.
    unsafe { guard::with(client.cast_const(), error, body) }
}

/// Sends a PUT.
///
/// client, table, keys, key_count, rows, float_count  as reclane_client_put().
/// request  receives the request's number; 0 on failure. Release it with reclane_client_revoke().
/// error    may be NULL; filled on failure only.
///
/// RECLANE_STATUS_NO_SLOT  all slots to the shard are held, by this thread maybe; nothing was sent: release one first
/// Threads: any.  Blocks: never; but up to 1 s while a lane is connected for the first time.
#[unsafe(no_mangle)]
#[must_use]
pub unsafe extern "C" fn reclane_client_submit_put(
    client: *mut reclane_client,
    table: u32,
    keys: *const u64,
    key_count: usize,
    rows: *const f32,
    float_count: usize,
    request: *mut reclane_request,
    error: *mut reclane_error,
) -> Status {
    // SAFETY: the caller vouches for the arrays and `request`.
    let body = |client: &Client| unsafe {
        let rows = flat(rows, float_count)?;
        let keys = array(keys, key_count, "keys")?;
        submit(client, &Request::Put { table: table_tag(table)?, keys, rows }, request)
    };
    // SAFETY: the caller vouches for the handle and `error`.
    unsafe { guard::with(client.cast_const(), error, body) }
}

/// Sends a PUT whose rows lie in a buffer of the library: key_count rows from offset_bytes on.
///
/// client, table, keys, key_count  as reclane_client_put().
/// buffer        from reclane_buffer_open() of this client; the rows must not change until the request has ended.
/// offset_bytes  where the first row is, a multiple of 4.
/// request       receives the request's number; 0 on failure. Release it with reclane_client_revoke().
/// error         may be NULL; filled on failure only.
///
/// RECLANE_STATUS_BUFFER_TOO_SMALL  the buffer ends before the last row; nothing was sent
/// RECLANE_STATUS_NO_SLOT  all slots to the shard are held, by this thread maybe; nothing was sent: release one first
/// Threads: any.  Blocks: never; but up to 1 s while a lane is connected for the first time.
#[unsafe(no_mangle)]
#[must_use]
pub unsafe extern "C" fn reclane_client_submit_put_from(
    client: *mut reclane_client,
    table: u32,
    keys: *const u64,
    key_count: usize,
    buffer: *mut reclane_buffer,
    offset_bytes: usize,
    request: *mut reclane_request,
    error: *mut reclane_error,
) -> Status {
    // SAFETY: the caller vouches for the arrays, the buffer and `request`.
    let body = |client: &Client| unsafe {
        let rows = Rows::Buffer { region: buffer_of(buffer)?, offset_bytes };
        let keys = array(keys, key_count, "keys")?;
        submit(client, &Request::Put { table: table_tag(table)?, keys, rows }, request)
    };
    // SAFETY: the caller vouches for the handle and `error`.
    unsafe { guard::with(client.cast_const(), error, body) }
}

/// Sends an UPDATE.
///
/// client, table, keys, key_count, gradients  as reclane_client_update().
/// request  receives the request's number; 0 on failure. Release it with reclane_client_revoke().
/// error    may be NULL; filled on failure only.
///
/// RECLANE_STATUS_NO_SLOT  all slots to the shard are held, by this thread maybe; nothing was sent: release one first
/// Threads: any.  Blocks: never; but up to 1 s while a lane is connected for the first time.
#[unsafe(no_mangle)]
#[must_use]
pub unsafe extern "C" fn reclane_client_submit_update(
    client: *mut reclane_client,
    table: u32,
    keys: *const u64,
    key_count: usize,
    gradients: *const *const f32,
    request: *mut reclane_request,
    error: *mut reclane_error,
) -> Status {
    // SAFETY: the caller vouches for the arrays and `request`.
    let body = |client: &Client| unsafe {
        let gradients = scattered(gradients, key_count)?;
        let keys = array(keys, key_count, "keys")?;
        submit(client, &Request::Update { table: table_tag(table)?, keys, gradients }, request)
    };
    // SAFETY: the caller vouches for the handle and `error`.
    unsafe { guard::with(client.cast_const(), error, body) }
}

/// Sends an UPDATE_FLAT.
///
/// client, table, keys, key_count, gradients, float_count  as reclane_client_update_flat()
/// request  receives the request's number; 0 on failure. Release it with reclane_client_revoke().
/// error    may be NULL; filled on failure only.
///
/// RECLANE_STATUS_NO_SLOT  all slots to the shard are held, by this thread maybe; nothing was sent: release one first
/// Threads: any.  Blocks: never; but up to 1 s while a lane is connected for the first time.
#[unsafe(no_mangle)]
#[must_use]
pub unsafe extern "C" fn reclane_client_submit_update_flat(
    client: *mut reclane_client,
    table: u32,
    keys: *const u64,
    key_count: usize,
    gradients: *const f32,
    float_count: usize,
    request: *mut reclane_request,
    error: *mut reclane_error,
) -> Status {
    // SAFETY: the caller vouches for the arrays and `request`.
    let body = |client: &Client| unsafe {
        let gradients = flat(gradients, float_count)?;
        let keys = array(keys, key_count, "keys")?;
        submit(client, &Request::UpdateFlat { table: table_tag(table)?, keys, gradients }, request)
    };
    // SAFETY: the caller vouches for the handle and `error`.
    unsafe { guard::with(client.cast_const(), error, body) }
}

/// Sends an UPDATE_FLAT whose gradients lie in a buffer of the library: key_count rows from offset_bytes on.
///
/// client, table, keys, key_count  as reclane_client_update_flat().
/// buffer        from reclane_buffer_open() of this client; the rows must not change until the request has ended.
/// offset_bytes  where the first row is, a multiple of 4.
/// request       receives the request's number; 0 on failure. Release it with reclane_client_revoke().
/// error         may be NULL; filled on failure only.
///
/// RECLANE_STATUS_BUFFER_TOO_SMALL  the buffer ends before the last row; nothing was sent
/// RECLANE_STATUS_NO_SLOT  all slots to the shard are held, by this thread maybe; nothing was sent: release one first
/// Threads: any.  Blocks: never; but up to 1 s while a lane is connected for the first time.
#[unsafe(no_mangle)]
#[must_use]
pub unsafe extern "C" fn reclane_client_submit_update_flat_from(
    client: *mut reclane_client,
    table: u32,
    keys: *const u64,
    key_count: usize,
    buffer: *mut reclane_buffer,
    offset_bytes: usize,
    request: *mut reclane_request,
    error: *mut reclane_error,
) -> Status {
    // SAFETY: the caller vouches for the arrays, the buffer and `request`.
    let body = |client: &Client| unsafe {
        let gradients = Rows::Buffer { region: buffer_of(buffer)?, offset_bytes };
        let keys = array(keys, key_count, "keys")?;
        submit(client, &Request::UpdateFlat { table: table_tag(table)?, keys, gradients }, request)
    };
    // SAFETY: the caller vouches for the handle and `error`.
    unsafe { guard::with(client.cast_const(), error, body) }
}
