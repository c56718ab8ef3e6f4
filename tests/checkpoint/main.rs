//! Checkpoints of a parameter server whose processes are killed, at chosen steps and at any moment, and restored.
//!
//! As in tests/kills, servers are processes of their own, and nothing bounds time from above but the patience that ends a
//! test that hangs.

mod child;
#[cfg(feature = "command")]
mod command;
mod cuts;
mod full;
mod restores;
#[path = "../kills/rows.rs"]
#[allow(dead_code)] // shared with tests/kills, which uses all of it
mod rows;
mod steps;
#[path = "../kills/support.rs"]
#[allow(dead_code)] // as above
mod support;
mod survivors;
mod world;
mod zombies;

/// The other processes of a test.
#[test]
fn child() {
    child::play();
}
