//! GET, PUT, UPDATE, UPDATE_FLAT, INIT_TABLE, COMMAND: what holds the rows and how keys find their shard.

pub mod client;
mod counts;
mod handler;
pub mod routing;
mod store;
pub mod table;

pub use counts::HandlerCounts;
pub use handler::{Handler, Scratch};
pub use routing::{HashMethod, Partition, Router};
pub use store::{GetStats, GetTimes, RowRef, RowsIn, Store, TableShape};
pub use table::{BuiltinStore, StoreOptions};
