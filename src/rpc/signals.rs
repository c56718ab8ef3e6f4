//! Which posts ask for a completion.

use crate::sync::{AtomicU32, Ordering};

/// At least every so many posts one is signaled, so that the send queue's places come back.
const SIGNAL_EVERY_MAX: u32 = 32;
/// A post takes up to two places. With one signaled in each quarter of the queue, half of it is always given back before
/// it is needed.
const POSTS_PER_QUEUE: u32 = 4;

/// Counts the posts of one lane.
#[derive(Debug, Default)]
pub(super) struct Signals(AtomicU32);

impl Signals {
    /// Whether the next post to a send queue of this depth is to be signaled.
    pub(super) fn next(&self, depth: u32) -> bool {
        let every = (depth / POSTS_PER_QUEUE).clamp(1, SIGNAL_EVERY_MAX);
        self.0.fetch_add(1, Ordering::Relaxed) % every == every - 1
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_queue_fills_with_work_that_never_completes() {
        for depth in [4, 5, 16, 63, 64, 128, 1024] {
            let signals = Signals::default();
            let mut unsignaled = 0;
            for _ in 0..1000 {
                unsignaled += 2;
                if signals.next(depth) {
                    unsignaled = 0;
                }
                assert!(unsignaled <= depth / 2, "{unsignaled} of {depth}");
            }
        }
    }
}
