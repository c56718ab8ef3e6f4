//! The only door to the clock.
#![allow(clippy::disallowed_methods)] // here is their place

use crate::sync::OnceLock;
use std::time::{Duration, Instant};

/// A point in monotonic time, in nanoseconds since the first use of the clock in this process.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub struct Tick(pub u64);

/// Now.
#[must_use]
pub fn now() -> Tick {
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
pub fn pause(duration: Duration) {
    std::thread::sleep(duration);
}
