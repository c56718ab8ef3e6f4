//! Counters that cost their thread one plain add, and nobody else anything.

use crate::sync::{AtomicU64, CachePadded, Ordering};

/// Counters of one padded block: it fills the block exactly.
const BLOCK: usize = 16;

/// A row of counters per thread. A row is written by one thread only, so an add needs no locked instruction; rows never
/// share a cache line. Readers add the rows up and may see a moment between two adds, never a torn value.
#[derive(Debug)]
pub struct CounterSet {
    names: &'static [&'static str],
    rows: usize,
    blocks: Vec<CachePadded<[AtomicU64; BLOCK]>>,
}

impl CounterSet {
    /// Counters with these names, for so many threads.
    #[must_use]
    pub fn new(names: &'static [&'static str], rows: usize) -> CounterSet {
        let rows = rows.max(1);
        let blocks = (0..rows * names.len().div_ceil(BLOCK).max(1)).map(|_| CachePadded::default()).collect();
        CounterSet { names, rows, blocks }
    }

    /// The counters' names.
    #[must_use]
    pub fn names(&self) -> &'static [&'static str] {
        self.names
    }

    /// Number of rows.
    #[must_use]
    pub fn rows(&self) -> usize {
        self.rows
    }

    fn cell(&self, row: usize, counter: usize) -> &AtomicU64 {
        debug_assert!(row < self.rows && counter < self.names.len());
        let blocks_per_row = self.blocks.len() / self.rows;
        &self.blocks[row * blocks_per_row + counter / BLOCK][counter % BLOCK]
    }

    /// Adds to a counter of the calling thread's own row. Two threads on one row lose counts, nothing worse.
    #[inline]
    pub fn add(&self, row: usize, counter: usize, amount: u64) {
        let cell = self.cell(row, counter);
        cell.store(cell.load(Ordering::Relaxed).wrapping_add(amount), Ordering::Relaxed);
    }

    /// Raises a counter of the calling thread's own row to this value, if it is lower.
    #[inline]
    pub fn raise(&self, row: usize, counter: usize, value: u64) {
        let cell = self.cell(row, counter);
        if value > cell.load(Ordering::Relaxed) {
            cell.store(value, Ordering::Relaxed);
        }
    }

    /// One counter of one row.
    #[must_use]
    pub fn read(&self, row: usize, counter: usize) -> u64 {
        self.cell(row, counter).load(Ordering::Relaxed)
    }

    /// A counter over all rows.
    #[must_use]
    pub fn sum(&self, counter: usize) -> u64 {
        (0..self.rows).fold(0, |sum, row| sum.wrapping_add(self.read(row, counter)))
    }

    /// The highest of all rows, for counters that are [raised](CounterSet::raise).
    #[must_use]
    pub fn peak(&self, counter: usize) -> u64 {
        (0..self.rows).map(|row| self.read(row, counter)).max().unwrap_or(0)
    }

    /// All sums, in the order of the names.
    #[must_use]
    pub fn sums(&self) -> Vec<u64> {
        (0..self.names.len()).map(|counter| self.sum(counter)).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sync::Arc;

    const NAMES: &[&str] =
        &["a", "b", "c", "d", "e", "f", "g", "h", "i", "j", "k", "l", "m", "n", "o", "p", "q", "r", "s", "t"];

    #[test]
    fn every_thread_counts_in_its_own_row_and_nothing_is_lost() {
        let set = Arc::new(CounterSet::new(NAMES, 4));
        let threads: Vec<_> = (0..4)
            .map(|row| {
                let set = Arc::clone(&set);
                std::thread::spawn(move || {
                    for round in 0..10_000_u64 {
                        set.add(row, (round % 20) as usize, 2);
                    }
                })
            })
            .collect();
        for thread in threads {
            thread.join().unwrap();
        }
        assert_eq!(set.sums(), vec![4 * 1000; 20]);
        assert_eq!(set.read(2, 19), 1000);
    }

    #[test]
    fn a_raised_counter_keeps_its_peak() {
        let set = CounterSet::new(NAMES, 2);
        for (row, value) in [(0, 7), (1, 9), (0, 3), (1, 8)] {
            set.raise(row, 17, value);
        }
        assert_eq!((set.read(0, 17), set.peak(17)), (7, 9));
    }

    #[test]
    fn rows_do_not_share_cache_lines() {
        let set = CounterSet::new(&["only"], 3);
        let at = |row| std::ptr::from_ref(set.cell(row, 0)).addr();
        assert_eq!((at(0) % 128, at(1) - at(0), at(2) - at(1)), (0, 128, 128));
    }
}
