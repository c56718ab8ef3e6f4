//! Which slot each thread looks at first.

use crate::sync::{AtomicU32, CachePadded};

const HINTS: usize = 16;

/// One number for each thread, as long as there are few of them; some share. Nothing but speed hangs on it.
#[derive(Debug)]
pub(super) struct Hints([CachePadded<AtomicU32>; HINTS]);

impl Hints {
    pub(super) fn new() -> Hints {
        Hints(core::array::from_fn(|_| CachePadded(AtomicU32::new(0))))
    }

    /// This thread's number.
    #[inline(always)]
    pub(super) fn mine(&self) -> &AtomicU32 {
        &self.0[thread_hint()]
    }
}

/// A small number that is always the same for a thread, and differs between most threads.
#[inline(always)]
#[allow(clippy::cast_possible_truncation)] // below HINTS
fn thread_hint() -> usize {
    /// 2^64 divided by the golden ratio: near addresses give numbers that lie far apart.
    const SPREAD: u64 = 0x9E37_79B9_7F4A_7C15;
    ((crate::thread::here() as u64).wrapping_mul(SPREAD) >> (u64::BITS - HINTS.ilog2())) as usize
}
