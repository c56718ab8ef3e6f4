//! How long somebody has waited, without the time in which nobody ran.

use super::Tick;
use core::time::Duration;

/// Of the time between two looks only so much counts: a process or a machine that stood still meanwhile has not waited for
/// anybody.
const LOOK_MOST_NS: u64 = 100_000_000;

/// What a thread has waited so far that looks again and again.
#[derive(Clone, Copy, Debug)]
pub struct Patience {
    last: Tick,
    waited_ns: u64,
}

impl From<Tick> for Patience {
    fn from(at: Tick) -> Patience {
        Patience { last: at, waited_ns: 0 }
    }
}

impl Patience {
    /// Looks once more; what was waited by now.
    pub fn look(&mut self, at: Tick) -> Duration {
        self.waited_ns = self.waited_ns.saturating_add(at.since_ns(self.last).min(LOOK_MOST_NS));
        self.last = at;
        Duration::from_nanos(self.waited_ns)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn standing_still_is_not_waiting() {
        let mut patience = Patience::from(Tick(7));
        assert_eq!(patience.look(Tick(10)), Duration::from_nanos(3));
        assert_eq!(patience.look(Tick(10_000_000_010)), Duration::from_nanos(LOOK_MOST_NS + 3));
        assert_eq!(patience.look(Tick(10_000_000_015)), Duration::from_nanos(LOOK_MOST_NS + 8));
    }
}
