//! How often to take a checkpoint: Young's and Daly's formulas, from what one was measured to cost.

#![forbid(unsafe_code)]

use core::time::Duration;

/// What is known.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Cost {
    /// How long work stands still for one checkpoint.
    pub pause: Duration,
    /// How long one restore takes until work goes on.
    pub restart: Duration,
    /// Mean time between failures of the whole deployment.
    pub mtbf: Duration,
    /// How long one takes until it is durable: a shorter interval would ask for the next one before the last is done.
    pub durable: Duration,
}

/// What to do.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Advice {
    /// Time between two checkpoints.
    pub interval: Duration,
    /// Part of the time that is lost then, to pauses, repeated work and restarts. Above 1: nothing gets done.
    pub lost: f64,
}

/// Daly's higher-order estimate; Young's square root where the cost is small against the time between failures, which it
/// contains. None when a failure is expected before a single checkpoint is through.
#[must_use]
pub fn advise(cost: &Cost) -> Option<Advice> {
    let (pause, mtbf) = (cost.pause.as_secs_f64().max(1e-9), cost.mtbf.as_secs_f64());
    if mtbf <= cost.durable.as_secs_f64() || mtbf <= pause {
        return None;
    }
    let ratio = pause / (2.0 * mtbf);
    let daly = if pause < 2.0 * mtbf {
        (2.0 * pause * mtbf).sqrt() * (1.0 + ratio.sqrt() / 3.0 + ratio / 9.0) - pause
    } else {
        mtbf
    };
    let interval = daly.max(cost.durable.as_secs_f64()).max(1e-3);
    // Pauses, half an interval of repeated work and a restart per failure.
    let lost = pause / interval + (interval / 2.0 + cost.durable.as_secs_f64() + cost.restart.as_secs_f64()) / mtbf;
    Some(Advice { interval: Duration::from_secs_f64(interval.min(1e9)), lost })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn cost(pause: f64, mtbf: f64) -> Cost {
        let seconds = Duration::from_secs_f64;
        Cost { pause: seconds(pause), restart: Duration::ZERO, mtbf: seconds(mtbf), durable: Duration::ZERO }
    }

    #[test]
    fn two_seconds_and_a_failure_a_day_ask_for_ten_minutes() {
        let advice = advise(&cost(2.0, 86_400.0)).unwrap();
        // Young: sqrt(2 * 2 * 86400) = 588 s.
        assert!((580.0..592.0).contains(&advice.interval.as_secs_f64()), "{advice:?}");
        assert!((0.006..0.008).contains(&advice.lost), "{advice:?}");
    }

    #[test]
    fn an_interval_is_never_shorter_than_what_a_checkpoint_takes() {
        let slow = Cost { durable: Duration::from_secs(900), ..cost(0.01, 86_400.0) };
        assert_eq!(advise(&slow).unwrap().interval, Duration::from_secs(900));
    }

    #[test]
    fn where_failures_come_faster_than_checkpoints_there_is_no_advice() {
        assert_eq!(advise(&cost(5.0, 4.0)), None);
        assert_eq!(advise(&Cost { durable: Duration::from_secs(60), ..cost(0.1, 59.0) }), None);
    }
}
