//! Which posts ask for a completion.

use crate::sync::{AtomicU32, Ordering};

/// Every so many posts one is signaled, so that the send queue's places come back.
const SIGNAL_EVERY: u32 = 32;

/// Counts the posts of one lane.
#[derive(Debug, Default)]
pub(super) struct Signals(AtomicU32);

impl Signals {
    /// Whether the next post is to be signaled.
    pub(super) fn next(&self) -> bool {
        self.0.fetch_add(1, Ordering::Relaxed) % SIGNAL_EVERY == SIGNAL_EVERY - 1
    }
}
