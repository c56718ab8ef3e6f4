//! Latencies as counts of buckets: as wide as a thirty-second of their value, from one nanosecond to eighteen minutes.
//!
//! The buckets are those of an HDR histogram with one and a half digits. They are laid out here and not taken from a
//! crate, because they lie in memory that another process reads while threads add to them: a fixed number of 8-byte
//! words, each changed by one atomic add, in a place that the counters file names.

use crate::sync::{AtomicU64, Ordering};

/// Values below this have a bucket of their own; above it every power of two is divided in so many.
const PARTS: u64 = 32;
const PART_BITS: u32 = PARTS.trailing_zeros();
/// Values from 2^40 ns on count as just below it.
const LARGEST: u64 = (1 << 40) - 1;
/// Number of buckets.
pub const BUCKETS: usize = bucket_of(LARGEST) + 1;
/// Words of a histogram: the sum, the largest value, and the buckets.
pub const WORDS: usize = BUCKETS + FIRST_BUCKET;

const SUM: usize = 0;
const MAX: usize = 1;
const FIRST_BUCKET: usize = 2;

/// The bucket that a value falls into.
#[must_use]
#[allow(clippy::cast_possible_truncation)] // bounded by BUCKETS
pub const fn bucket_of(value: u64) -> usize {
    let value = if value > LARGEST { LARGEST } else { value };
    if value < PARTS {
        return value as usize;
    }
    let shift = 63 - value.leading_zeros() - PART_BITS;
    (PARTS + shift as u64 * PARTS + ((value >> shift) - PARTS)) as usize
}

/// The largest value that falls into a bucket.
#[must_use]
pub const fn upper_bound(bucket: usize) -> u64 {
    let bucket = bucket as u64;
    if bucket < PARTS {
        return bucket;
    }
    let shift = (bucket - PARTS) / PARTS;
    let part = (bucket - PARTS) % PARTS + PARTS;
    ((part + 1) << shift) - 1
}

/// Adds a value. Threads: any, also of several at a time. `words` has [`WORDS`] words; of fewer nothing is done.
pub fn add(words: &[AtomicU64], value: u64) {
    if let Some(bucket) = words.get(FIRST_BUCKET + bucket_of(value)) {
        bucket.fetch_add(1, Ordering::Relaxed);
        words[SUM].fetch_add(value, Ordering::Relaxed);
        words[MAX].fetch_max(value, Ordering::Relaxed);
    }
}

/// A histogram at one moment.
#[derive(Clone, Default, PartialEq, Eq)]
pub struct Histogram {
    /// Sum of all values.
    pub sum: u64,
    /// The largest value.
    pub max: u64,
    buckets: Vec<u64>,
}

impl core::fmt::Debug for Histogram {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.debug_struct("Histogram").field("count", &self.count()).field("sum", &self.sum).finish_non_exhaustive()
    }
}

impl Histogram {
    /// From the words of one, as they lie in memory. Missing buckets are empty.
    #[must_use]
    pub fn from_words(words: &[u64]) -> Histogram {
        let at = |word: usize| words.get(word).copied().unwrap_or(0);
        let last = words.len().min(WORDS);
        let buckets = words.get(FIRST_BUCKET..last).map(<[u64]>::to_vec).unwrap_or_default();
        Histogram { sum: at(SUM), max: at(MAX), buckets }
    }

    /// Number of values.
    #[must_use]
    pub fn count(&self) -> u64 {
        self.buckets.iter().fold(0, |sum, count| sum.wrapping_add(*count))
    }

    /// The value that so many thousandths of all values do not exceed: 500 is the median. 0 when there are none. At most
    /// a thirty-second too large.
    #[must_use]
    pub fn quantile(&self, thousandths: u32) -> u64 {
        let count = self.count();
        let wanted = u128::from(count) * u128::from(thousandths.min(1000));
        let mut seen = 0_u128;
        for (bucket, here) in self.buckets.iter().enumerate().filter(|(_, here)| **here > 0) {
            seen += u128::from(*here) * 1000;
            if seen >= wanted {
                return upper_bound(bucket).min(self.max.max(1));
            }
        }
        self.max
    }

    /// How many values do not exceed `bound`, which is one less than a power of two.
    #[must_use]
    pub fn up_to(&self, bound: u64) -> u64 {
        self.buckets.iter().take(bucket_of(bound) + 1).fold(0, |sum, count| sum.wrapping_add(*count))
    }

    /// Adds the values of another one.
    pub fn merge(&mut self, other: &Histogram) {
        self.sum = self.sum.wrapping_add(other.sum);
        self.max = self.max.max(other.max);
        self.buckets.resize(self.buckets.len().max(other.buckets.len()), 0);
        self.buckets.iter_mut().zip(&other.buckets).for_each(|(mine, theirs)| *mine = mine.wrapping_add(*theirs));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn filled(values: &[u64]) -> Histogram {
        let words: Vec<AtomicU64> = (0..WORDS).map(|_| AtomicU64::new(0)).collect();
        values.iter().for_each(|value| add(&words, *value));
        let words: Vec<u64> = words.iter().map(|word| word.load(Ordering::Relaxed)).collect();
        Histogram::from_words(&words)
    }

    proptest! {
        #[test]
        fn a_bucket_holds_its_values_and_is_a_thirty_second_wide(value in 0..LARGEST) {
            let bucket = bucket_of(value);
            let first = if bucket == 0 { 0 } else { upper_bound(bucket - 1) + 1 };
            let last = upper_bound(bucket);
            prop_assert!((first..=last).contains(&value));
            prop_assert!((last - first) * PARTS <= first.max(PARTS));
        }

        #[test]
        fn quantiles_are_those_of_the_sorted_values(mut values in proptest::collection::vec(1..1_u64 << 41, 1..200)) {
            let histogram = filled(&values);
            values.sort_unstable();
            for thousandths in [1, 500, 990, 1000] {
                let place = (values.len() * thousandths as usize).div_ceil(1000).max(1) - 1;
                let exact = values[place].min(LARGEST);
                let found = histogram.quantile(thousandths);
                prop_assert!(found >= exact && found - exact <= exact / 32 + 1, "{thousandths}: {exact} {found}");
            }
        }
    }

    #[test]
    fn sums_and_counts_are_exact_and_merge() {
        let mut one = filled(&[1, 100, 5000]);
        one.merge(&filled(&[u64::MAX >> 1]));
        assert_eq!((one.count(), one.max, one.sum), (4, u64::MAX >> 1, 5101 + (u64::MAX >> 1)));
        assert_eq!((one.up_to(127), one.up_to(8191), one.up_to(LARGEST)), (2, 3, 4));
        assert_eq!((Histogram::default().quantile(500), Histogram::from_words(&[7]).count()), (0, 0));
    }
}
