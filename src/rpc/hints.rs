//! Which slot each thread looks at first.

use crate::sync::{AtomicU32, CachePadded, Ordering};
use core::cell::Cell;

const HINTS: usize = 16;

/// One number for each thread, as long as there are few of them; more share. Nothing but speed hangs on it.
#[derive(Debug)]
pub(super) struct Hints([CachePadded<AtomicU32>; HINTS]);

impl Hints {
    pub(super) fn new() -> Hints {
        Hints(core::array::from_fn(|_| CachePadded(AtomicU32::new(0))))
    }

    /// This thread's number.
    #[inline]
    pub(super) fn mine(&self) -> &AtomicU32 {
        &self.0[thread_hint()]
    }
}

/// A small number that differs between threads as long as there are few of them.
#[inline]
fn thread_hint() -> usize {
    static NEXT: AtomicU32 = AtomicU32::new(0);
    thread_local!(static MINE: Cell<usize> = const { Cell::new(usize::MAX) });
    MINE.with(|mine| {
        if mine.get() == usize::MAX {
            mine.set(NEXT.fetch_add(1, Ordering::Relaxed) as usize % HINTS);
        }
        mine.get()
    })
}
