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

/// A small number that differs between most threads: where the thread's stack lies. A look into thread-local storage
/// would be a call, in a shared library.
#[inline(always)]
fn thread_hint() -> usize {
    /// Bits of an address within 1 MiB: less than the stack of a thread, more than what lies between two calls.
    const WITHIN_STACK_BITS: u32 = 20;
    /// 2^64 divided by the golden ratio: near addresses give numbers that lie far apart.
    const SPREAD: u64 = 0x9E37_79B9_7F4A_7C15;
    let here = 0_u8;
    let stack = ((&raw const here).addr() >> WITHIN_STACK_BITS) as u64;
    (stack.wrapping_mul(SPREAD) >> (u64::BITS - HINTS.ilog2())) as usize
}
