//! Operation codes and the server's own answers.

use crate::error::Status;

/// What a request asks for.
#[repr(u8)]
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Op {
    /// Rows of keys; a missing key gives a zero row.
    Get = 1,
    /// Sets rows: keys, then one dense matrix.
    Put = 2,
    /// Applies gradients through the table's optimizer: blocks of key and row, as a row-wise caller has them.
    Update = 3,
    /// Creates a table, or finds it again; the answer carries its tag.
    InitTable = 4,
    /// Applies gradients through the table's optimizer: keys, then one dense matrix.
    UpdateFlat = 5,
    /// CLEAR, SAVE, LOAD and other words to the store as a whole.
    Command = 6,
    /// Nothing: the answer repeats the 8 bytes of the inline area, and shows that a lane works from end to end.
    Probe = 7,
}

impl Op {
    /// The operation with this code.
    #[inline]
    #[must_use]
    pub fn from_code(code: u8) -> Option<Op> {
        match code {
            1 => Some(Op::Get),
            2 => Some(Op::Put),
            3 => Some(Op::Update),
            4 => Some(Op::InitTable),
            5 => Some(Op::UpdateFlat),
            6 => Some(Op::Command),
            7 => Some(Op::Probe),
            _ => None,
        }
    }
}

/// The server's answer to one request. The numbers are agreed with callers that compare them: 0 and -1..-6.
#[repr(i32)]
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum RpcStatus {
    /// Executed.
    Ok = 0,
    /// Malformed: unknown operation, lengths that do not agree, bytes that do not decode.
    InvalidPayload = -1,
    /// The request names another shard, or a key that another shard owns.
    WrongShard = -2,
    /// More keys or bytes than the server takes in one request, or more answer than the client's slot holds.
    BatchTooLarge = -3,
    /// The row width does not match the table.
    ValueSizeMismatch = -4,
    /// No table has this tag.
    UnknownTable = -5,
    /// The handler failed; the server lives on.
    InternalError = -6,
}

impl RpcStatus {
    /// The status with this number; an unknown number from a peer is an internal error of that peer.
    #[inline]
    #[must_use]
    pub fn from_code(code: i32) -> RpcStatus {
        match code {
            0 => RpcStatus::Ok,
            -1 => RpcStatus::InvalidPayload,
            -2 => RpcStatus::WrongShard,
            -3 => RpcStatus::BatchTooLarge,
            -4 => RpcStatus::ValueSizeMismatch,
            -5 => RpcStatus::UnknownTable,
            _ => RpcStatus::InternalError,
        }
    }

    /// The library status that the caller of the client sees.
    #[must_use]
    pub fn to_status(self) -> Status {
        match self {
            RpcStatus::Ok => Status::Ok,
            RpcStatus::InvalidPayload => Status::InvalidPayload,
            RpcStatus::WrongShard => Status::WrongShard,
            RpcStatus::BatchTooLarge => Status::BatchTooLarge,
            RpcStatus::ValueSizeMismatch => Status::ValueSizeMismatch,
            RpcStatus::UnknownTable => Status::UnknownTable,
            RpcStatus::InternalError => Status::InternalError,
        }
    }
}
