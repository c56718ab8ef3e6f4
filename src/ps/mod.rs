//! GET, PUT, UPDATE, UPDATE_FLAT, INIT_TABLE, COMMAND: what holds the rows and how keys find their shard.

mod handler;
mod store;

pub use handler::{Handler, HandlerCounts, Scratch};
pub use store::{GetStats, RowRef, RowsIn, Store, TableShape};
