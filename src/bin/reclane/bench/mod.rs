//! `reclane bench`: what the machine can do (yardsticks), so that what the library does can be told as a ratio to it,
//! taken in the same run.

pub mod clock;
pub mod gather;
pub mod histogram;
pub mod host;
pub mod service;
pub mod workload;
pub mod yardstick;

/// The hidden subcommand that makes this program the other process of a yardstick. Its standard input is the memory
/// that both share; its arguments are those of [`yardstick::child`].
pub const CHILD_COMMAND: &str = "bench-child";
