//! `reclane bench`: what the machine can do (yardsticks) and what the transport does (workloads), interleaved in one run,
//! so that the second can be told as a ratio to the first.

pub mod checkpoint;
pub mod clock;
#[cfg(feature = "verbs")]
pub mod device;
pub mod gather;
pub mod histogram;
pub mod host;
pub mod recovery;
pub mod report;
pub mod service;
pub mod workload;
pub mod yardstick;

use reclane::error::Result;

/// The hidden subcommand that makes this program another process of the bench: role, core or `-`, more arguments.
pub const CHILD_COMMAND: &str = "bench-child";

/// The other process.
///
/// # Errors
/// What its role fails with.
pub fn child(role: &str, cpu: Option<usize>, rest: &[String]) -> Result<()> {
    match role {
        service::ROLE => service::child(cpu, rest),
        recovery::ROLE => recovery::child(rest),
        _ => yardstick::child(role, cpu),
    }
}
