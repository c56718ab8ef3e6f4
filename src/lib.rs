//! reclane: RDMA transport for parameter servers, with a C ABI.
//!
//! docs/architecture.md is the map: rooms, their borders and the invariants between them.

// Tests make small numbers out of large ones on purpose, and their helpers are not for readers of the documentation.
#![cfg_attr(test, allow(clippy::cast_possible_truncation, clippy::cast_sign_loss))]
#![cfg_attr(test, allow(missing_docs, missing_debug_implementations))]

const _: () = assert!(usize::BITS == 64, "lengths and addresses of peers are 64-bit numbers");

pub mod control;
pub mod engine;
pub mod error;
pub mod fabric;
pub mod ids;
pub mod lane;
pub mod observe;
pub mod options;
pub mod ps;
pub mod rpc;
pub mod sync;
pub mod time;
pub mod wire;
