//! Ending: look at a submitted request, wait for it, read its rows in place, release it.

use super::arguments::{required, timeout};
use super::client::reclane_client;
use super::error::reclane_error;
use super::guard;
use super::request::reclane_request;
use crate::engine::{Client, Token};
use crate::error::{Result, Status};

/// Looks whether a request has ended, and drives it on. Does not release it.
///
/// client   from reclane_client_open().
/// request  from a submit call of this client.
/// error    may be NULL; filled on failure only.
///
/// RECLANE_STATUS_OK           it has ended, well or not: reclane_client_wait() tells how
/// RECLANE_STATUS_PENDING      it is under way
/// RECLANE_STATUS_STALE_TOKEN  it was revoked
/// RECLANE_STATUS_BUSY         another thread is working on it
/// Threads: one at a time per request.  Blocks: never.
#[unsafe(no_mangle)]
#[must_use]
pub unsafe extern "C" fn reclane_client_query(
    client: *mut reclane_client,
    request: reclane_request,
    error: *mut reclane_error,
) -> Status {
    let body = |client: &Client| Ok(if client.query(Token(request))? { Status::Ok } else { Status::Pending });
    // SAFETY: the caller vouches for the handle and `error`.
    unsafe { guard::with(client.cast_const(), error, body) }
}

/// Waits until a request has ended. Does not release it.
///
/// client      from reclane_client_open().
/// request     from a submit call of this client.
/// timeout_ms  how long to wait, milliseconds. 0 for the option rdma-wait-timeout-ms, after which the request fails.
/// error       may be NULL; filled on failure only.
///
/// RECLANE_STATUS_OK            it has ended well: its rows are there
/// RECLANE_STATUS_PENDING       timeout_ms is over and it is still under way; wait again
/// RECLANE_STATUS_WAIT_TIMEOUT  it did not end within the option's time; the lane that carried it is lost
/// RECLANE_STATUS_STALE_TOKEN   it was revoked
/// RECLANE_STATUS_BUSY          another thread is working on it
/// and what it ended with: the statuses of sending and ending a request
/// Threads: one at a time per request.  Blocks: up to timeout_ms.
#[unsafe(no_mangle)]
#[must_use]
pub unsafe extern "C" fn reclane_client_wait(
    client: *mut reclane_client,
    request: reclane_request,
    timeout_ms: u64,
    error: *mut reclane_error,
) -> Status {
    let body = |client: &Client| unless_pending(client.wait(Token(request), timeout(timeout_ms)));
    // SAFETY: the caller vouches for the handle and `error`.
    unsafe { guard::with(client.cast_const(), error, body) }
}

/// Waits until a request has ended and releases it: reclane_client_wait() and reclane_client_revoke() in one call, for
/// less than the two. For requests with memory of the caller's: the rows of a GET in place are gone with the release.
///
/// client      from reclane_client_open().
/// request     from a submit call of this client; valid afterwards only with the statuses that say so.
/// timeout_ms  how long to wait, milliseconds. 0 for the option rdma-wait-timeout-ms, after which the request fails.
/// error       may be NULL; filled on failure only.
///
/// RECLANE_STATUS_OK            it has ended well: its rows are in the caller's memory
/// RECLANE_STATUS_PENDING       timeout_ms is over and it is still under way: it stays valid
/// RECLANE_STATUS_WAIT_TIMEOUT  it did not end within the option's time; the lane that carried it is lost
/// RECLANE_STATUS_STALE_TOKEN   it was revoked before
/// RECLANE_STATUS_BUSY          another thread is working on it: it stays valid
/// and what it ended with: the statuses of sending and ending a request
/// Threads: one at a time per request.  Blocks: up to timeout_ms.
#[unsafe(no_mangle)]
#[must_use]
pub unsafe extern "C" fn reclane_client_finish(
    client: *mut reclane_client,
    request: reclane_request,
    timeout_ms: u64,
    error: *mut reclane_error,
) -> Status {
    let body = |client: &Client| unless_pending(client.finish(Token(request), timeout(timeout_ms)));
    // SAFETY: the caller vouches for the handle and `error`.
    unsafe { guard::with(client.cast_const(), error, body) }
}

/// The end of the caller's own patience is no failure.
#[inline(always)]
fn unless_pending(outcome: Result<()>) -> Result<Status> {
    match outcome {
        Ok(()) => Ok(Status::Ok),
        Err(late) if late.status == Status::Pending => Ok(Status::Pending),
        Err(failure) => Err(failure),
    }
}

/// Gives the rows of a GET where they are, also while it is under way: the server publishes its progress, so the first
/// rows can be read before the last are there.
///
/// client      from reclane_client_open().
/// request     from reclane_client_submit_get_in_place() of this client.
/// rows        receives a pointer to the first row, aligned to 4 bytes. It belongs to the library and is valid until the
///             request is revoked or the client closed.
/// rows_ready  receives how many rows, from the first on, can be read now.
/// rows_total  receives how many there will be.
/// error       may be NULL; filled on failure only.
///
/// RECLANE_STATUS_OK           all rows are ready
/// RECLANE_STATUS_PENDING      rows_ready of them are; call again
/// RECLANE_STATUS_WRONG_STATE  the request is no GET in place
/// RECLANE_STATUS_STALE_TOKEN  it was revoked
/// and what it ended with: the statuses of sending and ending a request
/// Threads: one at a time per request.  Blocks: never.
#[unsafe(no_mangle)]
#[must_use]
pub unsafe extern "C" fn reclane_client_borrow(
    client: *mut reclane_client,
    request: reclane_request,
    rows: *mut *const f32,
    rows_ready: *mut usize,
    rows_total: *mut usize,
    error: *mut reclane_error,
) -> Status {
    let body = |client: &Client| {
        required(rows, "rows")?;
        required(rows_ready, "rows_ready")?;
        required(rows_total, "rows_total")?;
        client.borrow(Token(request), |borrowed| {
            // SAFETY: not NULL; writable by the caller's word.
            unsafe { rows.write(borrowed.rows) };
            // SAFETY: as above.
            unsafe { rows_ready.write(borrowed.rows_ready) };
            // SAFETY: as above.
            unsafe { rows_total.write(borrowed.rows_total) };
            if borrowed.rows_ready == borrowed.rows_total { Status::Ok } else { Status::Pending }
        })
    };
    // SAFETY: the caller vouches for the handle and `error`.
    unsafe { guard::with(client.cast_const(), error, body) }
}

/// Releases a request. One that is still under way is waited for, since its memory may still be written; the parts of a
/// batch that were not sent yet are not sent.
///
/// client   from reclane_client_open().
/// request  from a submit call of this client; not valid afterwards.
/// error    may be NULL; filled on failure only.
///
/// RECLANE_STATUS_STALE_TOKEN  it was revoked before
/// RECLANE_STATUS_BUSY         another thread is working on it; it stays valid
/// Threads: one at a time per request.  Blocks: up to the option rdma-wait-timeout-ms when it is under way.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn reclane_client_revoke(
    client: *mut reclane_client,
    request: reclane_request,
    error: *mut reclane_error,
) -> Status {
    let body = |client: &Client| {
        client.revoke(Token(request))?;
        Ok(Status::Ok)
    };
    // SAFETY: the caller vouches for the handle and `error`.
    unsafe { guard::with(client.cast_const(), error, body) }
}
