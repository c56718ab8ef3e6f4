//! GET, PUT, UPDATE, UPDATE_FLAT, INIT_TABLE, COMMAND: what holds the rows and how keys find their shard.

pub mod client;
mod handler;
pub mod routing;
mod store;
pub mod table;

pub use handler::{Handler, HandlerCounts, Scratch};
pub use routing::{HashMethod, Partition, Router};
pub use store::{GetStats, RowRef, RowsIn, Store, TableShape};
pub use table::{BuiltinStore, StoreOptions};
