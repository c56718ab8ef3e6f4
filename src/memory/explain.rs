//! Failures and refusals in words: rank, region, what was wanted, the bound, the outcome.

use super::lane::{CELLS_REGION, OPERATION_BYTES_MAX, Operation};
use super::log::{Kind, Known, Record};
use super::names::Entry;
use crate::error::{Error, Layer, Outcome, Status, Verdict};
use crate::fabric::{Access, PostError, WcStatus};

/// The end of a connection, for those whose operations it concerned.
#[derive(Clone, Debug)]
pub(super) struct Failure {
    pub(super) first: u64,
    pub(super) last: u64,
    pub(super) status: WcStatus,
    pub(super) vendor_error: u32,
    pub(super) generation: u32,
    pub(super) gone: bool,
    pub(super) detail: String,
}

impl Failure {
    /// In words, for one operation of a failed connection.
    #[cold]
    pub(super) fn error(&self, peer: u32, sequence: u64, record: Option<&Record>) -> Box<Error> {
        let failure = self;
        let (what, known) = match record {
            Some(record) => (described(record), record.known),
            None => ("an operation".to_owned(), Known::Ambiguous),
        };
        let (fate, outcome) = match known {
            Known::NotDone => ("it had no effect", Outcome::NotExecuted),
            Known::Done => ("it is done", Outcome::Executed),
            Known::ResultLost => ("it is done, and its old value is lost", Outcome::Executed),
            Known::UnderWay | Known::Ambiguous => ("whether it had an effect is not known", Outcome::Unknown),
        };
        let status = if failure.gone { Status::ShardUnreachable } else { Status::CompletionError };
        let why = if failure.detail.is_empty() { failure.status.name() } else { &failure.detail };
        let text = format!("rank {peer}, {what}: {}: {why}; {fate}", failure.status.name());
        let mut error = Error::new(status, text).at_shard(peer).at_lane(0, failure.generation).in_layer(Layer::Device);
        error.completion = failure.status.0;
        error.vendor_error = failure.vendor_error;
        error.sequence = sequence;
        error.outcome = outcome;
        error.verdict = if failure.gone { Verdict::Dead } else { Verdict::Unknown };
        error
    }
}

pub(super) fn right(kind: Kind) -> Access {
    match kind {
        Kind::Write => Access::REMOTE_WRITE,
        Kind::Read => Access::REMOTE_READ,
        Kind::FetchAdd | Kind::CompareSwap => Access::REMOTE_ATOMIC,
    }
}

fn verb(kind: Kind) -> &'static str {
    match kind {
        Kind::Write => "write",
        Kind::Read => "read",
        Kind::FetchAdd => "fetch-add",
        Kind::CompareSwap => "compare-swap",
    }
}

fn described(record: &Record) -> String {
    let Record { kind, bytes, offset, region, .. } = record;
    match *region {
        CELLS_REGION => format!("{} of {bytes} bytes of the connection's own memory", verb(*kind)),
        region => format!("region {region}: {} of {bytes} bytes at offset {offset}", verb(*kind)),
    }
}

#[cold]
pub(super) fn refusal(peer: u32, operation: &Operation, entry: &Entry) -> Box<Error> {
    let Operation { kind, region, offset, bytes, .. } = *operation;
    let what = verb(kind);
    let access = entry.address.access;
    let why = if !access.allows(right(kind)) {
        format!("{what}: its owner gave no right for it; the region was opened without it")
    } else if matches!(kind, Kind::FetchAdd | Kind::CompareSwap) && !offset.is_multiple_of(8) {
        format!("{what} at offset {offset}: it must be a multiple of 8")
    } else if bytes > OPERATION_BYTES_MAX {
        format!("{what} of {bytes} bytes: at most {OPERATION_BYTES_MAX} in one operation")
    } else if bytes != 0 && operation.local.is_null() {
        return Error::new(
            Status::NullPointer,
            format!("rank {peer}, region {region}: {what}: the local address is NULL"),
        )
        .at_shard(peer);
    } else {
        format!("{what} of {bytes} bytes at offset {offset}: the region has {} bytes", entry.address.bytes)
    };
    Error::new(Status::InvalidArgument, format!("rank {peer}, region {region}: {why}")).at_shard(peer)
}

#[cold]
pub(super) fn unregistered(peer: u32, operation: &Operation) -> Box<Error> {
    let why = format!(
        "rank {peer}, region {}: {} of {} bytes: this fabric reaches local memory only inside an open region of this rank; \
         use memory of one",
        operation.region,
        verb(operation.kind),
        operation.bytes
    );
    Error::new(Status::InvalidArgument, why).at_shard(peer)
}

#[cold]
pub(super) fn not_posted(peer: u32, operations: &[Operation], why: &PostError) -> Box<Error> {
    let region = operations.first().map_or(0, |operation| operation.region);
    let mut error =
        Error::new(Status::PostFailed, format!("rank {peer}, region {region}: the fabric refused the post: {why:?}"))
            .at_shard(peer)
            .in_layer(Layer::Post);
    error.outcome = Outcome::NotExecuted;
    error
}
