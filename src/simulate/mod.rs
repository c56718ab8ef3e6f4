//! Whole deployments in one thread: control plane, shards, clients and lanes of the product itself, on a simulated
//! network with a clock of its own. One seed gives one history; a checker reads it.
//!
//! What is real: the control plane's state machine and its members' view, lane offers and the checks of them, channels,
//! lanes, scanners, the parameter server's client and handler. What is simulated: the fabric, the clock, the connections
//! of the control plane, and the store, which keeps a ledger of what was applied.
//!
//! [`run`] runs one [`Plan`]; [`hunt()`] runs many seeds, and shrinks the faults of one that fails.

// Numbers of a simulated world are far below the bounds of their types.
#![allow(clippy::cast_possible_truncation)]

mod check;
pub mod checkpoint;
mod client;
mod history;
mod hunt;
mod join;
mod ledger;
mod member;
mod plan;
mod plane;
mod shard;
#[cfg(test)]
mod tests;
mod trouble;
mod wires;
mod world;

pub use check::{Report, run};
pub use history::Counts;
pub use hunt::{Caught, Failure, Hunt, MUTANT_SEEDS_MAX, hunt, hunt_mutant};
pub use plan::{Actor, Fault, Plan, Trouble};

use crate::time::Tick;

/// The control plane's clock runs so many times faster: it waits for seconds where lanes wait for milliseconds.
const CONTROL_SPEED: u64 = 400;

/// The time on the control plane's clock.
fn control_tick(now_ns: u64) -> Tick {
    Tick(now_ns.saturating_mul(CONTROL_SPEED))
}
