//! A model of how request slots change hands, in all interleavings: `rpc::Channel` takes a slot by a compare-and-swap and
//! gives it back by a plain Release store, so that no request waits for the stores before it. What is modelled is the
//! slot's word and what lies beside it; the orderings here are those of `try_take`, `resolve` and `release`.

use loom::cell::UnsafeCell;
use loom::sync::Arc;
use loom::sync::atomic::{AtomicU64, Ordering};

/// `use_count << 1 | held`, and what belongs to the holder.
struct Slot {
    state: AtomicU64,
    own: UnsafeCell<u64>,
}

impl Slot {
    fn new() -> Slot {
        Slot { state: AtomicU64::new(0), own: UnsafeCell::new(0) }
    }

    fn take(&self) -> Option<u64> {
        let state = self.state.load(Ordering::Relaxed);
        if state & 1 == 1 {
            return None;
        }
        // Acquire: pairs with the Release of `release`.
        self.state.compare_exchange(state, state | 1, Ordering::Acquire, Ordering::Relaxed).ok().map(|held| held >> 1)
    }

    fn resolve(&self, use_count: u64) -> bool {
        self.state.load(Ordering::Relaxed) == (use_count << 1) | 1
    }

    fn release(&self, use_count: u64) -> bool {
        let state = (use_count << 1) | 1;
        if self.state.load(Ordering::Relaxed) != state {
            return false;
        }
        // Release: pairs with the Acquire of `take`.
        self.state.store(state + 1, Ordering::Release);
        true
    }

    /// Takes it, counts in what it owns, gives it back; the use that it had.
    fn use_once(&self) -> Option<u64> {
        let use_count = self.take()?;
        assert!(self.resolve(use_count));
        // SAFETY: the holder has it to itself; loom reports any other access.
        self.own.with_mut(|own| unsafe { *own += 1 });
        assert!(self.release(use_count));
        assert!(!self.release(use_count), "a use is given back once");
        Some(use_count)
    }
}

#[test]
fn a_slot_has_one_holder_who_sees_what_the_last_one_did() {
    loom::model(|| {
        let slot = Arc::new(Slot::new());
        let other = Arc::clone(&slot);
        let other =
            loom::thread::spawn(move || u64::from(other.use_once().is_some()) + u64::from(other.use_once().is_some()));
        let mine = u64::from(slot.use_once().is_some());
        let uses = mine + other.join().expect("no panic");
        assert!(uses >= 1, "somebody gets a free slot");
        // SAFETY: the other one has ended.
        assert_eq!(slot.own.with(|own| unsafe { *own }), uses);
        assert_eq!(slot.state.load(Ordering::Relaxed), uses << 1);
    });
}

#[test]
fn a_token_of_a_former_use_never_names_the_present_one() {
    loom::model(|| {
        let slot = Arc::new(Slot::new());
        let first = slot.take().expect("it is free");
        assert!(slot.release(first));
        let other = Arc::clone(&slot);
        let taker = loom::thread::spawn(move || other.use_once());
        // However far the other one is, the old use is over.
        assert!(!slot.resolve(first));
        assert!(!slot.release(first));
        assert_ne!(taker.join().expect("no panic"), Some(first));
    });
}
