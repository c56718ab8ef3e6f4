//! Telling a second thread that a first one is at work on the same request, which the rules of the API forbid.

use super::{Channel, Held};
use crate::fabric::Fabric;
use crate::sync::Ordering;

impl<F: Fabric, R> Channel<F, R> {
    /// Begins to work on the request. False: another thread is at it, against the rule.
    ///
    /// A load and a store, not an exchange, for the reason given in [`Channel::release`]. So of two threads that come
    /// within the same few nanoseconds neither may be told; one that goes on waiting [stays](Channel::stay) visible.
    #[inline(always)]
    #[must_use]
    pub fn enter(&self, held: Held) -> bool {
        let working = &self.slots[held.index as usize].working;
        if working.load(Ordering::Relaxed) != 0 {
            return false;
        }
        working.store(1, Ordering::Relaxed);
        true
    }

    /// This thread is still at it: another one that came in the same moment may have left since.
    #[cold]
    pub fn stay(&self, held: Held) {
        let slot = &self.slots[held.index as usize];
        if slot.state.load(Ordering::Relaxed) == (held.use_count << 1) | 1 {
            slot.working.store(1, Ordering::Relaxed);
        }
    }

    /// Ends this thread's work on the request, which goes on.
    #[inline(always)]
    pub fn leave(&self, held: Held) {
        self.slots[held.index as usize].working.store(0, Ordering::Relaxed);
    }
}
