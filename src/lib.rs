//! reclane: RDMA transport for parameter servers, with a C ABI.
//!
//! docs/architecture.md is the map: rooms, their borders and the invariants between them.

pub mod capi;
pub mod checkpoint;
pub mod control;
pub mod engine;
pub mod error;
pub mod fabric;
pub mod ids;
pub mod lane;
pub mod memory;
pub mod numa;
pub mod observe;
pub mod options;
pub mod ps;
pub mod rpc;
pub mod simulate;
pub mod sync;
pub mod thread;
pub mod time;
pub mod wire;
