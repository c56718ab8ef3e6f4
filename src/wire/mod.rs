//! Every byte layout that two processes share, as pure functions between bytes and values.
//!
//! All integers are little-endian. This room does no I/O, allocates only in [`control payloads`](payload), knows no
//! clock, and contains no `unsafe`. docs/wire.md is the prose of it; the sizes and offsets are asserted at compile time.
//!
//! A request is a 64-byte [`RequestHeader`] in the server's memory, whose last 8 bytes are the [`Word`] that commits it,
//! and up to `request_slot_bytes` of payload that lie apart from it. An answer is a 64-byte [`ResponseHeader`] in the
//! client's memory, whose last 8 bytes are the [`Word`] that completes it, with the payload right-aligned before it, so
//! that payload and header can travel in one write.

#![forbid(unsafe_code)]

mod geometry;
mod header;
pub mod payload;
pub mod region;
mod status;
mod word;

pub use geometry::{Geometry, HEADER_BYTES, INLINE_BYTES, PAGE_BYTES};
pub use header::{
    InlineWords, RemoteBuffer, RequestHeader, ResponseHeader, SmallGet, Words, checksum_append, flags,
    request_checksum, response_checksum, response_offsets,
};
pub use status::{Op, RpcStatus};
pub use word::{Progress, Word};

/// Version of everything in this room. Part of the deployment digest: both ends must agree.
pub const WIRE_VERSION: u32 = 1;
