//! What the client says of requests that cannot be: the thing, its value, its bound, and what to do.

use super::Token;
use crate::error::{Error, Outcome, Status};
use crate::fabric::{Fabric, Region};
use crate::ids::TableTag;
use crate::rpc::Channel;
use crate::wire::{RequestHeader, RpcStatus};

/// Found here: the shard was not asked.
#[cold]
pub(super) fn unknown(table: TableTag) -> Box<Error> {
    let message = format!("table {} is not known to this client: call init_table first", table.0);
    Error::new(Status::UnknownTable, message).before_sending()
}

#[cold]
pub(super) fn too_wide<F: Fabric, R: Default + Send>(first: Option<&Channel<F, R>>, row_bytes: usize) -> Box<Error> {
    let (request, response) =
        first.map_or((0, 0), |channel| (channel.payload_bytes_max(), channel.response_bytes_max()));
    Error::new(
        Status::BatchTooLarge,
        format!(
            "a row of {row_bytes} bytes does not fit a slot: a request takes {request} bytes (8 for the key), an answer \
             {response}; raise rdma-rc-request-slot-bytes and rdma-rc-response-slot-bytes on both sides"
        ),
    )
}

#[cold]
pub(super) fn too_much(bytes: usize) -> Box<Error> {
    let most = u32::MAX;
    let message = format!("{bytes} bytes of rows in one request that names a buffer, at most {most}: split it");
    Error::new(Status::BatchTooLarge, message)
}

#[cold]
pub(super) fn stale(token: Token) -> Box<Error> {
    Error::new(Status::StaleToken, format!("request {:#x} was finished or revoked before, or never existed", token.0))
}

#[cold]
pub(super) fn busy() -> Box<Error> {
    Error::new(Status::Busy, "another thread is working on this request: it belongs to one thread at a time")
}

#[cold]
pub(super) fn not_in_place() -> Box<Error> {
    Error::new(Status::WrongState, "only rows of a GET in place (submit_get_in_place) can be borrowed; this is another")
}

#[cold]
pub(super) fn no_shard(shard: u32, shards: usize) -> Box<Error> {
    Error::new(Status::InvalidArgument, format!("there is no shard {shard}: this client has {shards}, from 0 on"))
}

/// Every slot is held.
#[cold]
pub(super) fn no_slot<F: Fabric, R: Default + Send>(channel: &Channel<F, R>) -> Box<Error> {
    let (shard, slots) = (channel.shard(), channel.slot_count());
    let message = format!(
        "no idle slot to shard {shard}: each of its {slots} is held by a request that was not revoked, or is on a lane \
         that is down; finish or revoke requests, or raise qps-per-client-per-shard or slots-per-qp"
    );
    Error::new(Status::NoSlot, message).at_shard(shard)
}

// The parts of a plan and not the plan in what follows: that the frequent way would keep in memory otherwise.

/// `floats` were given for the rows.
#[cold]
pub(super) fn too_short(table: TableTag, keys: usize, row_bytes: usize, floats: usize) -> Box<Error> {
    let dim = row_bytes / 4;
    let message = format!(
        "table {}: {keys} keys of {dim} floats need {} floats ({} bytes), {floats} floats ({} bytes) were given",
        table.0,
        keys.saturating_mul(dim),
        keys.saturating_mul(row_bytes),
        floats.saturating_mul(4)
    );
    Error::new(Status::BufferTooSmall, message)
}

/// The rows do not fit a buffer of the library.
#[cold]
pub(super) fn buffer_short<R: Region>(
    table: TableTag,
    keys: usize,
    row_bytes: usize,
    region: &R,
    offset: usize,
) -> Box<Error> {
    not_within(table, keys, row_bytes, region.bytes(), offset)
}

fn not_within(table: TableTag, keys: usize, row_bytes: usize, bytes: usize, offset: usize) -> Box<Error> {
    let dim = row_bytes / 4;
    let message = if offset.is_multiple_of(4) {
        format!(
            "table {}: {keys} keys of {dim} floats need {} bytes, the buffer of {bytes} bytes has {} from offset_bytes \
             {offset} on",
            table.0,
            keys.saturating_mul(row_bytes),
            bytes.saturating_sub(offset)
        )
    } else {
        format!("offset_bytes is {offset}: it must be a multiple of 4, within the buffer of {bytes} bytes")
    };
    Error::new(Status::BufferTooSmall, message)
}

#[cold]
pub(super) fn bad_pointer(rows: *const f32) -> Box<Error> {
    Error::new(
        if rows.is_null() { Status::NullPointer } else { Status::InvalidArgument },
        format!("the pointer to rows is {rows:p}: it must not be NULL and must be 4-aligned"),
    )
}

/// The error that a server's refusal becomes. `sent` is the request, if it can still be seen.
#[cold]
pub(super) fn refused(shard: u32, status: RpcStatus, sent: Option<&RequestHeader>) -> Box<Error> {
    let table = sent.map_or_else(|| "the table".to_owned(), |header| format!("table {}", header.table));
    let keys = sent.map_or_else(String::new, |header| format!(" ({} keys)", header.key_count));
    let words = match status {
        RpcStatus::Ok => "answered something else than was asked".to_owned(),
        RpcStatus::InvalidPayload => "found the request malformed".to_owned(),
        RpcStatus::WrongShard => format!("does not own a key of the request for {table}: are num-shards the same?"),
        RpcStatus::BatchTooLarge => {
            format!("takes fewer keys or bytes in one request{keys}: split it, or raise the slot bytes on both sides")
        }
        RpcStatus::ValueSizeMismatch => {
            format!("has another row width for {table} than this client: call init_table on this client")
        }
        RpcStatus::UnknownTable => format!("does not know {table}, maybe since it was started again: call init_table"),
        RpcStatus::InternalError => "failed inside its handler; its log has the reason".to_owned(),
    };
    // An answer that says "done" and is not what was asked for must not pass for success.
    let named = if status == RpcStatus::Ok { Status::CorruptResponse } else { status.to_status() };
    let mut error = Error::new(named, format!("shard {shard} {words}"));
    error.outcome = match status {
        RpcStatus::Ok | RpcStatus::InternalError => Outcome::Unknown,
        _ => Outcome::NotExecuted,
    };
    error
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::error::Layer;

    #[test]
    fn a_table_that_is_unknown_here_is_the_callers_and_one_that_is_unknown_there_the_servers() {
        let here = unknown(TableTag(7));
        assert_eq!((here.status, here.layer, here.outcome), (Status::UnknownTable, Layer::Usage, Outcome::NotExecuted));
        assert!(here.message.contains("table 7"), "{here}");
        let there = refused(3, RpcStatus::UnknownTable, None);
        let known = (Status::UnknownTable, Layer::Server, Outcome::NotExecuted);
        assert_eq!((there.status, there.layer, there.outcome), known);
        assert_eq!(there.message, "shard 3 does not know the table, maybe since it was started again: call init_table");
    }

    #[test]
    fn what_is_too_short_is_said_with_what_there_is_and_what_is_needed() {
        let short = |floats| too_short(TableTag(9), 3, 16, floats).message;
        let buffer_short = |bytes, offset| not_within(TableTag(9), 3, 16, bytes, offset).message;
        let given = "table 9: 3 keys of 4 floats need 12 floats (48 bytes), 11 floats (44 bytes) were given";
        assert_eq!(short(11), given);
        assert!(short(usize::MAX).contains(&usize::MAX.to_string()));
        let buffer = "table 9: 3 keys of 4 floats need 48 bytes, the buffer of 64 bytes has 44 from offset_bytes 20 on";
        assert_eq!(buffer_short(64, 20), buffer);
        assert!(buffer_short(64, 2).contains("offset_bytes is 2: it must be a multiple of 4"));
        assert!(buffer_short(64, 100).contains("has 0 from offset_bytes 100"));
    }
}
