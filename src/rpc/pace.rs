//! How a waiter spends its time: spin, then yield, then sleep, with a deadline. The clock is first read when spinning
//! did not help, so a request that is answered in microseconds never reads it.

use crate::time::{Tick, now, pause};
use core::time::Duration;

/// The numbers of a [`Pace`].
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct PacePolicy {
    /// Turns that only spin.
    pub spins: u32,
    /// Turns after those that give the core away.
    pub yields: u32,
    /// Length of the sleeps after those.
    pub sleep: Duration,
}

/// What the waiter should do after a turn.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Turn {
    /// Look again.
    Again,
    /// Look again, and also at the slow signs: lane state, completions.
    CheckHealth,
    /// Time is up.
    Expired,
}

/// One wait.
#[derive(Debug)]
pub struct Pace {
    policy: PacePolicy,
    timeout: Duration,
    turns: u32,
    started: Option<Tick>,
}

/// Every so many turns of spinning the slow signs are looked at: some microseconds apart, so that a dead peer is known
/// at once and a live one costs nothing measurable.
const HEALTH_EVERY_TURNS: u32 = 128;

impl Pace {
    /// A wait of at most `timeout` beyond the spinning.
    #[inline]
    #[must_use]
    pub fn new(policy: PacePolicy, timeout: Duration) -> Pace {
        Pace { policy, timeout, turns: 0, started: None }
    }

    /// Spends one turn.
    #[inline]
    pub fn turn(&mut self) -> Turn {
        self.turns = self.turns.saturating_add(1);
        if self.turns <= self.policy.spins && !self.timeout.is_zero() {
            core::hint::spin_loop();
            return if self.turns.is_multiple_of(HEALTH_EVERY_TURNS) { Turn::CheckHealth } else { Turn::Again };
        }
        self.slow_turn()
    }

    #[cold]
    fn slow_turn(&mut self) -> Turn {
        let at = now();
        let started = *self.started.get_or_insert(at);
        if at.since_ns(started) >= u64::try_from(self.timeout.as_nanos()).unwrap_or(u64::MAX) {
            return Turn::Expired;
        }
        if self.turns <= self.policy.spins.saturating_add(self.policy.yields) {
            std::thread::yield_now();
        } else {
            pause(self.policy.sleep);
        }
        Turn::CheckHealth
    }

    /// How long it has been waiting, as far as it knows.
    #[must_use]
    pub fn elapsed_ns(&self) -> u64 {
        self.started.map_or(0, |started| now().since_ns(started))
    }
}
