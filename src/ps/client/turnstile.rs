//! Who may work on a batch: one word of use count and state. It guards what lies beside it like a lock that nobody waits
//! for, except that a helper is waited for.

use crate::sync::{AtomicU64, Ordering};

const FREE: u64 = 0;
const HELD: u64 = 1;
const BUSY: u64 = 2;
/// As BUSY, by a thread that works on another request and needs slots: soon over.
const HELPED: u64 = 3;
const STATE_BITS: u64 = 3;

/// What the word needs of an atomic, so that tests can put in one that tries all interleavings.
pub(super) trait Word64 {
    fn load(&self, order: Ordering) -> u64;
    fn store(&self, value: u64, order: Ordering);
    fn replace(&self, from: u64, to: u64, success: Ordering) -> bool;
}

impl Word64 for AtomicU64 {
    #[inline]
    fn load(&self, order: Ordering) -> u64 {
        AtomicU64::load(self, order)
    }

    #[inline]
    fn store(&self, value: u64, order: Ordering) {
        AtomicU64::store(self, value, order);
    }

    #[inline]
    fn replace(&self, from: u64, to: u64, success: Ordering) -> bool {
        self.compare_exchange(from, to, success, Ordering::Relaxed).is_ok()
    }
}

/// `use_count << 2 | state`; begins as 0.
#[derive(Debug)]
pub(super) struct Turnstile<A> {
    word: A,
}

/// What became of an attempt to work on a use.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Entry {
    /// This thread works on it now; the full use count.
    In(u64),
    /// That use is over.
    Gone,
    /// Another thread of the caller works on it.
    Busy,
    /// A helper works on it, or it just changed: try again.
    Soon,
}

impl<A: Word64> Turnstile<A> {
    pub(super) fn new(zero: A) -> Turnstile<A> {
        Turnstile { word: zero }
    }

    /// Begins a new use, and works on it; its count.
    pub(super) fn take(&self) -> Option<u64> {
        let word = self.word.load(Ordering::Relaxed);
        // Acquire: pairs with the Release of the `leave` that freed it.
        (word & STATE_BITS == FREE && self.word.replace(word, word | BUSY, Ordering::Acquire)).then_some(word >> 2)
    }

    /// Works on the held use whose count has these low bits.
    pub(super) fn enter(&self, use_low: u64, mask: u64) -> Entry {
        let word = self.word.load(Ordering::Relaxed);
        let use_count = word >> 2;
        match word & STATE_BITS {
            _ if use_count & mask != use_low => Entry::Gone,
            FREE => Entry::Gone,
            BUSY => Entry::Busy,
            HELD if self.hold(use_count, BUSY) => Entry::In(use_count),
            _ => Entry::Soon,
        }
    }

    /// Works on whatever use is held and rests.
    pub(super) fn help(&self) -> Option<u64> {
        let word = self.word.load(Ordering::Relaxed);
        (word & STATE_BITS == HELD && self.hold(word >> 2, HELPED)).then_some(word >> 2)
    }

    /// Whether a use is under way.
    pub(super) fn is_taken(&self) -> bool {
        self.word.load(Ordering::Relaxed) & STATE_BITS != FREE
    }

    fn hold(&self, use_count: u64, state: u64) -> bool {
        // Acquire: pairs with the Release of the `leave` before.
        self.word.replace((use_count << 2) | HELD, (use_count << 2) | state, Ordering::Acquire)
    }

    /// Ends this thread's work on the use, and with `last` the use itself.
    pub(super) fn leave(&self, use_count: u64, last: bool) {
        let after = if last { ((use_count + 1) << 2) | FREE } else { (use_count << 2) | HELD };
        // Release: pairs with the Acquire of the next `take` or `hold`.
        self.word.store(after, Ordering::Release);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use loom::cell::UnsafeCell;
    use loom::sync::Arc;
    use loom::sync::atomic::AtomicU64 as LoomU64;

    impl Word64 for LoomU64 {
        fn load(&self, order: Ordering) -> u64 {
            LoomU64::load(self, order)
        }

        fn store(&self, value: u64, order: Ordering) {
            LoomU64::store(self, value, order);
        }

        fn replace(&self, from: u64, to: u64, success: Ordering) -> bool {
            self.compare_exchange(from, to, success, Ordering::Relaxed).is_ok()
        }
    }

    struct Place {
        gate: Turnstile<LoomU64>,
        /// Loom reports two threads in here at once, or one that does not see what the last one left.
        work: UnsafeCell<u64>,
    }

    // SAFETY: `work` is reached only by the thread that the turnstile let in; this is what the tests below try.
    unsafe impl Sync for Place {}
    // SAFETY: as above.
    unsafe impl Send for Place {}

    impl Place {
        fn new() -> Arc<Place> {
            Arc::new(Place { gate: Turnstile::new(LoomU64::new(0)), work: UnsafeCell::new(0) })
        }

        fn add(&self) {
            self.work.with_mut(|work| {
                // SAFETY: as the turnstile says.
                unsafe { *work += 1 };
            });
        }

        /// One use from beginning to end; its count.
        fn use_once(&self) -> Option<u64> {
            let mine = self.gate.take()?;
            self.add();
            self.gate.leave(mine, false);
            loop {
                match self.gate.enter(mine, u64::MAX) {
                    Entry::In(count) => {
                        assert_eq!(count, mine);
                        self.add();
                        self.gate.leave(mine, true);
                        assert_eq!(self.gate.enter(mine, u64::MAX), Entry::Gone);
                        return Some(mine);
                    }
                    Entry::Soon => loom::thread::yield_now(),
                    other => panic!("the only owner of a live use met {other:?}"),
                }
            }
        }
    }

    #[test]
    fn owner_and_helper_are_never_in_at_once() {
        loom::model(|| {
            let place = Place::new();
            let helping = Arc::clone(&place);
            let helper = loom::thread::spawn(move || {
                if let Some(count) = helping.gate.help() {
                    helping.add();
                    helping.gate.leave(count, false);
                    return 1;
                }
                0
            });
            assert_eq!(place.use_once(), Some(0));
            let helped = helper.join().expect("no panic");
            // SAFETY: the other thread ended.
            let total = place.work.with(|work| unsafe { *work });
            assert_eq!(total, 2 + helped);
        });
    }

    #[test]
    fn two_owners_have_different_uses() {
        loom::model(|| {
            let place = Place::new();
            let other = Arc::clone(&place);
            let second = loom::thread::spawn(move || other.use_once());
            let first = place.use_once();
            let second = second.join().expect("no panic");
            assert!(first.is_some() || second.is_some());
            assert_ne!(first, second);
        });
    }
}
