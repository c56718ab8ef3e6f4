//! A clock that costs a few nanoseconds, for things that take a few hundred.

use reclane::time::{Tick, now};

/// Ticks of the processor's counter where there is one, else nanoseconds.
#[inline]
pub fn ticks() -> u64 {
    #[cfg(target_arch = "x86_64")]
    // SAFETY: every x86-64 processor has the instruction; it reads a counter and touches no memory.
    unsafe {
        core::arch::x86_64::_rdtsc()
    }
    #[cfg(not(target_arch = "x86_64"))]
    now().0
}

/// How long a tick is.
#[derive(Clone, Copy, Debug)]
pub struct Clock {
    ns_per_tick: f64,
}

/// How long the counter is compared with the monotonic clock.
const CALIBRATION_NS: u64 = 20_000_000;

impl Clock {
    /// Compares the counter with the monotonic clock for 20 ms.
    pub fn calibrate() -> Clock {
        let (start, first) = (now(), ticks());
        let until = Tick(start.0 + CALIBRATION_NS);
        while now() < until {
            core::hint::spin_loop();
        }
        let (last, end) = (ticks(), now());
        let elapsed = last.wrapping_sub(first).max(1);
        Clock { ns_per_tick: end.since_ns(start) as f64 / elapsed as f64 }
    }

    /// Nanoseconds of a difference of [`ticks`].
    #[inline]
    #[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss)] // rounded, never negative, far below 2^53
    pub fn ns(self, ticks: u64) -> u64 {
        (ticks as f64 * self.ns_per_tick + 0.5) as u64
    }

    /// Ticks of so many nanoseconds.
    #[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss)] // as above
    pub fn ticks_of(self, ns: u64) -> u64 {
        (ns as f64 / self.ns_per_tick) as u64
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ticks_agree_with_the_monotonic_clock() {
        let clock = Clock::calibrate();
        let (start, first) = (now(), ticks());
        while now().since_ns(start) < 5_000_000 {}
        let by_ticks = clock.ns(ticks() - first);
        assert!(by_ticks >= 4_900_000, "5 ms by the clock were {by_ticks} ns by the counter");
        assert!(clock.ns(clock.ticks_of(1_000_000)).abs_diff(1_000_000) < 10);
    }
}
