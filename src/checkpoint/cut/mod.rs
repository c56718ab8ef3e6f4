//! The cut: everybody stops, everybody copies, everybody goes on, and only then files are written.
//!
//! ```text
//! coordinator   PREPARE ──▶ all HELD ──▶ CUT ──▶ all CAPTURED ──▶ RESUME ──▶ all DURABLE ──▶ manifest, COMMIT
//! participant   RUN ──▶ HELD (gate shut, nothing under way) ──▶ CAPTURED (copied) ──▶ RUN, writing ──▶ DURABLE
//! ```
//!
//! Both sides are machines without clock, thread or file: they are handed the time and what happened, and say what to
//! do. A participant whose gate is shut opens it by itself at its deadline, so a coordinator that died holds up nobody
//! for longer. Epochs fence: a participant follows the highest it has heard of and no lower one ever after. Whatever
//! goes wrong before the manifest is durable ends in ABORT, and what was written is garbage.

mod coordinator;
mod message;
mod participant;
#[cfg(test)]
mod tests;

pub use coordinator::{Act, Coordinator, Done, Phase};
pub use message::{
    APP_BYTES_MAX, Command, Message, Note, Order, REASON_BYTES_MAX, Report, Request, State, WrittenFile,
};
pub use participant::{Deed, Participant};
