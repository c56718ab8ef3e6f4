//! What heals: lanes that are broken, shards that are killed, stopped and started again, while clients go on.
//!
//! As in tests/kills, servers and clients that are to die are processes of their own, and nothing bounds time from above
//! but the patience that ends a test that hangs.

mod broken;
mod budget;
mod chaos;
mod child;
mod growth;
mod restarts;
#[path = "../kills/rows.rs"]
#[allow(dead_code)] // shared with tests/kills, which uses all of it
mod rows;
mod stops;
mod storm;
#[path = "../kills/support.rs"]
#[allow(dead_code)] // as above
mod support;

/// The other processes of a test.
#[test]
fn child() {
    child::play();
}
