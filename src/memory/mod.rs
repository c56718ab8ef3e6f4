//! Regions of ranks and one-sided operations on them.
//!
//! A region is named by its owner's rank and a small id; an operation by (rank, region, offset). Keys and addresses of the
//! fabric stay inside: they are told with a version, looked up when an operation is posted, and never stored or shown.
//!
//! - [`Home`]: a rank's own regions, and the table of them that peers of one host read (`seqlock`).
//! - [`Lane`]: the posting side to one peer. Every operation is in its [`Log`] before it is posted, and is settled as
//!   done, not done or ambiguous when its connection fails; the peer's evidence turns ambiguous into done.
//! - [`Gate`]: closes the posting path, for a checkpoint.
//! - [`Mailbox`] and [`Asker`]: atomics that the owner executes exactly once, by [`Dedupe`].
//! - [`Notice`]: what ranks tell each other through the control plane.
//!
//! Nothing here waits, starts threads or knows the control plane: `engine::rank` does. Generic over the fabric.

mod cells;
mod dedupe;
mod explain;
mod gate;
mod home;
mod lane;
mod log;
mod names;
mod notice;
mod seqlock;
#[cfg(test)]
mod tests;
mod view;

pub use cells::{Asked, Asker, Mailbox};
pub use dedupe::{Dedupe, Executed, Verdict};
pub use gate::{Gate, HoldId};
pub use home::{Home, RegionFacts};
pub use lane::{
    CELLS_REGION, Lane, LaneFacts, Line, Look, OPERATION_BYTES_MAX, Operation, SCRATCH_STRIDE, Stop, evidence,
    was_refused,
};
pub use log::{Judgement, Kind, Known, Log, Record, Tally, judge};
pub use names::{Entry, REGION_BYTES_MAX, Version, iova_of};
pub use notice::{Answer, Ask, Notice, Purpose, TableAddress};
pub use view::PageOfPeer;
