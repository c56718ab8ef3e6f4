//! Which parts of a range are given out. Pure.

use std::collections::BTreeMap;

/// What is given out begins at a multiple of this.
pub(super) const UNIT_BYTES: usize = 4096;

/// The free parts of a range, by their start.
#[derive(Debug)]
pub(super) struct Space {
    free: BTreeMap<usize, usize>,
    bytes: usize,
}

impl Space {
    /// A range of which nothing is given out.
    pub(super) fn new(bytes: usize) -> Space {
        Space { free: BTreeMap::from([(0, bytes)]), bytes }
    }

    /// Takes the first free part that is large enough.
    pub(super) fn take(&mut self, bytes: usize) -> Option<usize> {
        let bytes = bytes.checked_next_multiple_of(UNIT_BYTES)?;
        let (start, length) = self.free.iter().find(|(_, length)| **length >= bytes).map(|(s, l)| (*s, *l))?;
        self.free.remove(&start);
        if length > bytes {
            self.free.insert(start + bytes, length - bytes);
        }
        Some(start)
    }

    /// Gives back what [`Space::take`] gave for so many bytes.
    pub(super) fn give_back(&mut self, mut start: usize, bytes: usize) {
        let mut length = bytes.next_multiple_of(UNIT_BYTES).min(self.bytes - start);
        if let Some((before, its)) = self.free.range(..start).next_back().map(|(s, l)| (*s, *l))
            && before + its == start
        {
            self.free.remove(&before);
            (start, length) = (before, its + length);
        }
        if let Some(after) = self.free.remove(&(start + length)) {
            length += after;
        }
        self.free.insert(start, length);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn what_is_given_back_is_one_again() {
        let mut space = Space::new(10 * UNIT_BYTES);
        let taken: Vec<usize> = (0..5).map(|_| space.take(UNIT_BYTES + 1).unwrap()).collect();
        assert_eq!(taken, [0, 2, 4, 6, 8].map(|unit| unit * UNIT_BYTES));
        assert_eq!(space.take(1), None);
        for start in [taken[1], taken[3], taken[2], taken[0], taken[4]] {
            space.give_back(start, UNIT_BYTES + 1);
        }
        assert_eq!(space.free, BTreeMap::from([(0, 10 * UNIT_BYTES)]));
        assert_eq!(space.take(usize::MAX), None);
    }

    proptest! {
        #[test]
        fn parts_never_overlap_and_none_is_lost(steps in proptest::collection::vec((any::<bool>(), 1_usize..40_000), 1..80)) {
            let mut space = Space::new(64 * UNIT_BYTES);
            let mut held: Vec<(usize, usize)> = Vec::new();
            for (take, bytes) in steps {
                if take {
                    if let Some(start) = space.take(bytes) {
                        let end = start + bytes.next_multiple_of(UNIT_BYTES);
                        prop_assert!(end <= 64 * UNIT_BYTES);
                        for (other, length) in &held {
                            let other_end = other + length.next_multiple_of(UNIT_BYTES);
                            prop_assert!(end <= *other || start >= other_end);
                        }
                        held.push((start, bytes));
                    }
                } else if !held.is_empty() {
                    let (start, bytes) = held.swap_remove(bytes % held.len());
                    space.give_back(start, bytes);
                }
                let used: usize = held.iter().map(|(_, bytes)| bytes.next_multiple_of(UNIT_BYTES)).sum();
                prop_assert_eq!(space.free.values().sum::<usize>() + used, 64 * UNIT_BYTES);
            }
        }
    }
}
