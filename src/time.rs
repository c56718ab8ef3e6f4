//! The only door to the clock.
#![allow(clippy::disallowed_methods)] // here is their place

mod patience;

pub use patience::Patience;

use crate::sync::{AtomicBool, OnceLock, Ordering};
use core::cell::Cell;
use std::time::{Duration, Instant};

/// A point in monotonic time, in nanoseconds since the first use of the clock in this process.
#[derive(Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub struct Tick(pub u64);

/// Whether any thread of this process has ever had a clock of its own.
static SIMULATED: AtomicBool = AtomicBool::new(false);
thread_local!(static VIRTUAL: Cell<Option<Tick>> = const { Cell::new(None) });

/// Gives the calling thread a clock of its own, which stands at `tick` until it is set again; None gives the real one
/// back. For simulated worlds only; other threads are not concerned.
pub fn set_virtual(tick: Option<Tick>) {
    SIMULATED.fetch_or(tick.is_some(), Ordering::Relaxed);
    VIRTUAL.set(tick);
}

/// The thread's own clock. A thread that set one sees its own store to the flag, so Relaxed is enough.
#[inline]
fn virtual_now() -> Option<Tick> {
    if SIMULATED.load(Ordering::Relaxed) { VIRTUAL.get() } else { None }
}

/// Now.
#[must_use]
pub fn now() -> Tick {
    if let Some(tick) = virtual_now() {
        return tick;
    }
    static START: OnceLock<Instant> = OnceLock::new();
    let start = *START.get_or_init(Instant::now);
    Tick(u64::try_from(start.elapsed().as_nanos()).unwrap_or(u64::MAX))
}

/// Wall-clock time for log lines: microseconds since 1970-01-01 UTC. It may jump; nothing is measured with it.
#[must_use]
pub fn unix_us() -> u64 {
    let since = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).unwrap_or_default();
    u64::try_from(since.as_micros()).unwrap_or(u64::MAX)
}

impl Tick {
    /// This point plus a duration.
    #[must_use]
    pub fn after(self, duration: Duration) -> Tick {
        Tick(self.0.saturating_add(u64::try_from(duration.as_nanos()).unwrap_or(u64::MAX)))
    }

    /// Nanoseconds from `earlier` to this point; 0 if it lies ahead.
    #[must_use]
    pub fn since_ns(self, earlier: Tick) -> u64 {
        self.0.saturating_sub(earlier.0)
    }

    /// What is left until this point.
    #[must_use]
    pub fn remaining(self) -> Duration {
        Duration::from_nanos(self.0.saturating_sub(now().0))
    }
}

/// Gives the core away for at least this long. Not for tests and not for synchronisation: pollers back off with it.
///
/// On a thread with a clock of its own that clock moves on instead.
pub fn pause(duration: Duration) {
    if let Some(tick) = virtual_now() {
        VIRTUAL.set(Some(tick.after(duration)));
        return;
    }
    std::thread::sleep(duration);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_clock_of_ones_own_stands_still_and_is_given_back() {
        set_virtual(Some(Tick(5)));
        assert_eq!((now(), now()), (Tick(5), Tick(5)));
        pause(Duration::from_nanos(7));
        assert_eq!(now(), Tick(12));
        assert_eq!(Tick(20).remaining(), Duration::from_nanos(8));
        set_virtual(None);
        assert!(now() <= now());
    }
}
