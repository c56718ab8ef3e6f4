//! GET, PUT, UPDATE, UPDATE_FLAT, INIT_TABLE, COMMAND: what holds the rows and how keys find their shard.

mod store;

pub use store::{GetStats, RowRef, RowsIn, Store, TableShape};
