//! Outcome: how a request that has ended did, shard by shard and key by key.
//!
//! A request whose keys belong to several shards, or do not fit one slot, travels in parts, and each part has an end of its
//! own. After reclane_client_wait() has failed, and before reclane_client_revoke(), these calls tell which keys were
//! executed, which were certainly not, and which are in doubt: only the second kind may be sent again without counting
//! twice. With request-retry=exactly-once few are ever in doubt: those of a shard whose process has ended.

use super::arguments::check_array;
use super::client::reclane_client;
use super::error::reclane_error;
use super::guard;
use super::request::reclane_request;
use super::structs::{self, Versioned};
use crate::engine::{Client, ShardResult, Token};
use crate::error::{Outcome, Status};

/// How the keys of one shard did in one request. Set struct_size = sizeof(reclane_shard_result) before the call.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct reclane_shard_result {
    /// sizeof(reclane_shard_result), set by the caller.
    pub struct_size: u32,
    /// The shard.
    pub shard: u32,
    /// How its part that failed first did, a reclane_status; RECLANE_STATUS_OK when none failed.
    pub status: i32,
    /// Of its keys together, a reclane_outcome: RECLANE_OUTCOME_UNKNOWN also when some were executed and some were not.
    pub outcome: u32,
    /// Keys of the request that belong to this shard.
    pub key_count: u64,
    /// Keys of these that were executed.
    pub executed_count: u64,
    /// Keys of these that were certainly not executed. The rest is in doubt.
    pub not_executed_count: u64,
}

// SAFETY: repr(C), `struct_size` first, integers only.
unsafe impl Versioned for reclane_shard_result {
    const NAME: &'static str = "reclane_shard_result";
    const FIRST_SIZE: usize = 40;
}
const _: () = assert!(size_of::<reclane_shard_result>() == 40);

fn face(result: &ShardResult) -> reclane_shard_result {
    reclane_shard_result {
        struct_size: 0,
        shard: result.shard,
        status: result.status as i32,
        outcome: result.outcome() as u32,
        key_count: result.keys,
        executed_count: result.executed,
        not_executed_count: result.not_executed,
    }
}

/// Tells how the keys of one shard did.
///
/// client   from reclane_client_open().
/// request  from a submit call of this client, ended and not revoked.
/// shard    0..num_shards - 1.
/// result   receives the report; struct_size must be set.
/// error    may be NULL; filled on failure only.
///
/// RECLANE_STATUS_INVALID_ARGUMENT  there is no such shard
/// RECLANE_STATUS_WRONG_STATE       the request is still under way
/// RECLANE_STATUS_STALE_TOKEN       it was revoked
/// RECLANE_STATUS_BUSY              another thread is working on it
/// RECLANE_STATUS_STRUCT_SIZE       result or error has a size that cannot be
/// RECLANE_STATUS_NULL_POINTER, _BAD_HANDLE, _CLOSED, _FORKED, _POISONED, _BUG  as their names say
/// Threads: one at a time per request.  Blocks: never.
#[unsafe(no_mangle)]
#[must_use]
pub unsafe extern "C" fn reclane_client_shard_result(
    client: *mut reclane_client,
    request: reclane_request,
    shard: u32,
    result: *mut reclane_shard_result,
    error: *mut reclane_error,
) -> Status {
    let body = |client: &Client| {
        // SAFETY: the caller vouches for `result`.
        unsafe { structs::check_report(result.cast_const()) }?;
        let face = face(&client.shard_result(Token(request), shard)?);
        // SAFETY: checked above.
        unsafe { structs::write(result, &face) };
        Ok(Status::Ok)
    };
    // SAFETY: the caller vouches for the handle and `error`.
    unsafe { guard::with(client.cast_const(), error, body) }
}

/// Tells how each key did.
///
/// client     from reclane_client_open().
/// request    from a submit call of this client, ended and not revoked.
/// outcomes   receives key_count values of reclane_outcome, one byte each, in the order of the request's keys.
/// key_count  the request's.
/// error      may be NULL; filled on failure only.
///
/// RECLANE_STATUS_BUFFER_TOO_SMALL  the request has not key_count keys
/// RECLANE_STATUS_WRONG_STATE       the request is still under way
/// RECLANE_STATUS_STALE_TOKEN       it was revoked
/// RECLANE_STATUS_BUSY              another thread is working on it
/// RECLANE_STATUS_NULL_POINTER, _BAD_HANDLE, _CLOSED, _FORKED, _POISONED, _STRUCT_SIZE, _BUG  as their names say
/// Threads: one at a time per request.  Blocks: never.
#[unsafe(no_mangle)]
#[must_use]
pub unsafe extern "C" fn reclane_client_key_outcomes(
    client: *mut reclane_client,
    request: reclane_request,
    outcomes: *mut u8,
    key_count: usize,
    error: *mut reclane_error,
) -> Status {
    let body = |client: &Client| {
        check_array(outcomes.cast_const(), key_count, "outcomes")?;
        let mut found = vec![Outcome::Unknown; key_count];
        client.key_outcomes(Token(request), &mut found)?;
        for (index, outcome) in found.iter().enumerate() {
            // SAFETY: the caller vouches for `key_count` writable bytes.
            unsafe { outcomes.add(index).write(*outcome as u8) };
        }
        Ok(Status::Ok)
    };
    // SAFETY: the caller vouches for the handle and `error`.
    unsafe { guard::with(client.cast_const(), error, body) }
}
