//! A store-load fence whose cost lies with the side that goes to sleep.
//!
//! The ringer stores a word and then looks whether the sleeper sleeps; the sleeper says that it sleeps and then looks at
//! the words. Without a fence between store and load on both sides each can miss the other, and the wake-up is lost. A
//! fence on the ringer's side would cost every commit some 5 to 20 ns, so the kernel puts it there when it is needed:
//!
//! - `heavy` (sleeper, between its store and its loads) makes every running thread of every registered process pass
//!   through a full barrier. A thread that does not run passed one when it was taken off its core.
//! - `light` (ringer, between its store and its load) only keeps the compiler from swapping the two.
//!
//! Take the moment at which the ringer's core passes that barrier. If the ringer's load comes later, it sees the
//! sleeper's store and rings. If the load came earlier, so did the ringer's store, which the barrier made visible before
//! `heavy` returned, and the sleeper sees the word. There is no third case.
//!
//! Linux (6.18 and before, `membarrier_switch_mm`) breaks the first rule in one case: when a thread ends and its core goes
//! straight to a thread of the same process, that core is left out of barriers for all registered processes until another
//! process runs there. The barrier for the own process alone does not have the fault, so `heavy` sends both. For a ringer in
//! another process the fault stays: pollers therefore look once more a moment after they went to sleep
//! ([`crate::fabric::sleep`]), and a ring lost to it costs that moment.
//!
//! Where the kernel cannot do it for either process, the ringer uses a full fence, and `heavy` contains one always.

use crate::sync::{OnceLock, Ordering, compiler_fence, fence};

const MEMBARRIER_QUERY: libc::c_int = 0;
const MEMBARRIER_GLOBAL_EXPEDITED: libc::c_int = 1 << 1;
const MEMBARRIER_REGISTER_GLOBAL_EXPEDITED: libc::c_int = 1 << 2;
const MEMBARRIER_PRIVATE_EXPEDITED: libc::c_int = 1 << 3;
const MEMBARRIER_REGISTER_PRIVATE_EXPEDITED: libc::c_int = 1 << 4;

fn membarrier(command: libc::c_int) -> libc::c_long {
    // SAFETY: no pointers; flags and cpu are 0.
    unsafe { libc::syscall(libc::SYS_membarrier, command, 0, 0) }
}

/// Whether this process takes part: it receives barriers and can send them.
pub(super) fn available() -> bool {
    static AVAILABLE: OnceLock<bool> = OnceLock::new();
    *AVAILABLE.get_or_init(|| {
        let needed = libc::c_long::from(MEMBARRIER_GLOBAL_EXPEDITED | MEMBARRIER_REGISTER_GLOBAL_EXPEDITED);
        let offered = membarrier(MEMBARRIER_QUERY);
        offered >= 0
            && offered & needed == needed
            && membarrier(MEMBARRIER_REGISTER_GLOBAL_EXPEDITED) == 0
            && membarrier(MEMBARRIER_GLOBAL_EXPEDITED) == 0
            && membarrier(MEMBARRIER_REGISTER_PRIVATE_EXPEDITED) == 0
            && membarrier(MEMBARRIER_PRIVATE_EXPEDITED) == 0
    })
}

/// The sleeper's side.
pub(super) fn heavy() {
    // Partner: the SeqCst fence in `full`, for ringers that cannot receive barriers.
    fence(Ordering::SeqCst);
    if available() {
        membarrier(MEMBARRIER_PRIVATE_EXPEDITED);
        membarrier(MEMBARRIER_GLOBAL_EXPEDITED);
    }
}

/// The ringer's side, where both processes take part.
#[inline]
pub(super) fn light() {
    // Partner: the barrier that `heavy` sends to this core.
    compiler_fence(Ordering::SeqCst);
}

/// The ringer's side, where one of them does not.
#[inline]
pub(super) fn full() {
    // Partner: the SeqCst fence in `heavy`.
    fence(Ordering::SeqCst);
}
