//! GET, PUT, UPDATE, UPDATE_FLAT, INIT_TABLE, COMMAND: what holds the rows and how keys find their shard.

mod aside;
pub mod client;
mod counts;
mod handler;
pub mod routing;
mod scratch;
mod store;
pub mod table;

pub use aside::{Fetching, RowKeys, Sending, changes_rows};
pub use counts::HandlerCounts;
pub use handler::Handler;
pub use routing::{HashMethod, Partition, Router};
pub use scratch::Scratch;
pub use store::{GetStats, GetTimes, RowRef, RowsIn, Store, TableShape};
pub use table::{BuiltinStore, StoreOptions};
