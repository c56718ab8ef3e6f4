//! Checkpoints and restores in simulated deployments: one seed, one history, and a checker of it.
//!
//! What is real: everything that is real in [`super`], the machines of the cut, writer, reader, catalogue and manifest,
//! the exactly-once windows and their bytes. What is simulated beside that: the disk, which can fail, be full, lie, lose
//! its power and rot; the letters between leader and members, which are lost, late and told twice; and the threads around
//! the machines.
//!
//! The checker knows how all shards were at each cut. What is in the files, and what a restored shard starts with, must be
//! that; of committed checkpoints two are there and whole; a restore takes the newest that can be, and none of a world
//! that was undone; nothing is applied twice, counted from what a shard was restored with; a client that should open again
//! gets nothing done; no gate stays shut and no request waits beyond its deadline; and when all is whole a checkpoint is
//! taken and all capacity is there.

mod check;
mod deployment;
mod ends;
mod hunt;
mod image;
mod leader;
mod member;
mod mistake;
mod plan;
#[cfg(test)]
mod tests;
mod truth;

pub use check::{CheckpointReport, run};
pub use deployment::Taken;
pub use hunt::{MISTAKE_SEEDS_MAX, hunt, hunt_mistake};
pub use mistake::Mistake;
pub use plan::{CheckpointPlan, End, Woe};
