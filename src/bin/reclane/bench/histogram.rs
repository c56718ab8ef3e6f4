//! A histogram of latencies in fixed memory: exact below 512, then 256 steps per power of two (0.4 %).

const STEPS_LOG2: u32 = 8;
const STEPS: usize = 1 << STEPS_LOG2;
/// Values of 2^40 ns (18 minutes) and above count as the largest.
const EXPONENT_MAX: u32 = 40;
const BUCKETS: usize = (EXPONENT_MAX as usize - STEPS_LOG2 as usize + 1) * STEPS;

/// Counts of latencies in nanoseconds.
#[derive(Clone, Debug)]
pub struct Histogram {
    counts: Vec<u64>,
    total: u64,
    min: u64,
    max: u64,
}

impl Default for Histogram {
    fn default() -> Self {
        Histogram { counts: vec![0; BUCKETS], total: 0, min: u64::MAX, max: 0 }
    }
}

#[allow(clippy::cast_possible_truncation)] // bounded by BUCKETS
fn bucket_of(value: u64) -> usize {
    let value = value.min((1 << EXPONENT_MAX) - 1);
    let shift = (u64::BITS - value.leading_zeros()).saturating_sub(STEPS_LOG2 + 1);
    (shift as usize) * STEPS + (value >> shift) as usize
}

/// The middle of a bucket.
fn value_of(bucket: usize) -> u64 {
    if bucket < 2 * STEPS {
        return bucket as u64;
    }
    let shift = bucket / STEPS - 1;
    let step = (bucket % STEPS + STEPS) as u64;
    (step << shift) + (1 << shift) / 2
}

impl Histogram {
    /// Empty.
    pub fn new() -> Histogram {
        Histogram::default()
    }

    /// Counts one latency.
    #[inline]
    pub fn record(&mut self, value: u64) {
        self.counts[bucket_of(value)] += 1;
        self.total += 1;
        self.min = self.min.min(value);
        self.max = self.max.max(value);
    }

    /// Counts what another one has counted too.
    pub fn merge(&mut self, other: &Histogram) {
        self.counts.iter_mut().zip(&other.counts).for_each(|(count, more)| *count += more);
        self.total += other.total;
        self.min = self.min.min(other.min);
        self.max = self.max.max(other.max);
    }

    /// The value below which `fraction` (0..=1) of the latencies lie; 0 when there are none.
    #[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss)] // a fraction of a count
    pub fn quantile(&self, fraction: f64) -> u64 {
        let rank = ((self.total as f64 * fraction).ceil() as u64).max(1);
        if rank >= self.total {
            return self.max;
        }
        let mut seen = 0;
        for (bucket, count) in self.counts.iter().enumerate() {
            seen += count;
            if seen >= rank {
                return value_of(bucket).clamp(self.min, self.max);
            }
        }
        0
    }

    /// How many.
    #[cfg(test)]
    pub fn total(&self) -> u64 {
        self.total
    }

    /// The smallest; 0 when there are none.
    #[cfg(test)]
    pub fn min(&self) -> u64 {
        if self.total == 0 { 0 } else { self.min }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn a_bucket_is_within_half_a_percent(value in 0_u64..(1 << EXPONENT_MAX)) {
            let near = value_of(bucket_of(value));
            prop_assert!(near.abs_diff(value) * 512 <= value, "{value} became {near}");
        }
    }

    #[test]
    fn quantiles_are_ranks() {
        let mut histogram = Histogram::new();
        assert_eq!(histogram.quantile(0.5), 0);
        (1..=100).for_each(|v| histogram.record(v));
        assert_eq!((histogram.quantile(0.5), histogram.quantile(0.99), histogram.quantile(1.0)), (50, 99, 100));
        histogram.record(u64::MAX);
        assert_eq!((histogram.total(), histogram.min(), histogram.quantile(1.0)), (101, 1, u64::MAX));
        assert!(bucket_of(u64::MAX) < BUCKETS);
        let mut twice = histogram.clone();
        twice.merge(&histogram);
        assert_eq!((twice.total(), twice.quantile(0.5), twice.quantile(1.0)), (202, histogram.quantile(0.5), u64::MAX));
    }
}
