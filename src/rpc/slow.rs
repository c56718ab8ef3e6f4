//! Since when requests wait: the hot path reads no clock, so it is known only from the first time that somebody found one
//! of them slow. All that were under way then have waited as long.

use super::{Channel, Held};
use crate::fabric::Fabric;
use crate::sync::Ordering;
use crate::time::Tick;

/// A mark has the time in microseconds, plus one, in its lower bits (enough for eight years), and the lowest bits of the
/// slot's use above. 0: there is none.
const TIME_BITS: u32 = 48;
const TIME: u64 = (1 << TIME_BITS) - 1;

fn mark(use_count: u64, at: Tick) -> u64 {
    use_count << TIME_BITS | (at.0 / 1000 + 1).min(TIME)
}

fn is_of(mark: u64, use_count: u64) -> bool {
    mark & TIME != 0 && mark >> TIME_BITS == use_count & (u64::MAX >> TIME_BITS)
}

impl<F: Fabric, R> Channel<F, R> {
    /// Notes of every request under way, whoever holds it, that it has waited since `at` at least. An earlier note of it
    /// stays.
    #[cold]
    pub fn mark_slow(&self, at: Tick) {
        for slot in &self.slots {
            let state = slot.state.load(Ordering::Relaxed);
            let use_count = state >> 1;
            // A slot that is given back and taken again meanwhile has another use count: the note is not of its request.
            if state & 1 == 1 && !is_of(slot.slow.load(Ordering::Relaxed), use_count) {
                slot.slow.store(mark(use_count, at), Ordering::Relaxed);
            }
        }
    }

    /// Since when the request of a held slot is known to wait; None: nobody has noted it.
    #[cold]
    #[must_use]
    pub fn slow_since(&self, held: Held) -> Option<Tick> {
        let mark = self.slots[held.index as usize].slow.load(Ordering::Relaxed);
        is_of(mark, held.use_count).then(|| Tick((mark & TIME) * 1000))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_mark_is_of_one_use_and_not_earlier_than_its_time() {
        for (use_count, ns) in [(0, 0), (1, 999), (7, 1_234_567), (0xffff, 1 << 50), (0x1_0003, 5)] {
            let mark = mark(use_count, Tick(ns));
            assert!(is_of(mark, use_count));
            assert!(!is_of(mark, use_count + 1));
            assert!((ns..=ns + 1000).contains(&((mark & TIME) * 1000)), "{ns}");
        }
        assert!(!is_of(0, 0), "no mark");
    }
}
