//! The 8-byte words that commit and complete: lane generation and slot sequence in one atomic unit.

/// A commit word (request) or status word (answer).
///
/// The n-th use of a slot within one lane generation has slot sequence n, starting at 1; a client cannot use a slot
/// again before its answer, so the server waits for exactly one value per slot. A word of another generation or another
/// sequence is never acted on. The all-zero word is "never written": generations start at 1.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Word(pub u64);

impl Word {
    /// Never written.
    pub const ZERO: Word = Word(0);

    /// The word of the `slot_sequence`-th use of a slot in this generation.
    #[inline]
    #[must_use]
    pub fn new(generation: u32, slot_sequence: u32) -> Word {
        Word((u64::from(generation) << 32) | u64::from(slot_sequence))
    }

    /// The lane generation that wrote it.
    #[inline]
    #[must_use]
    pub fn generation(self) -> u32 {
        (self.0 >> 32) as u32
    }

    /// Which use of the slot it belongs to.
    #[inline]
    #[must_use]
    #[allow(clippy::cast_possible_truncation)] // the low half is what is meant
    pub fn slot_sequence(self) -> u32 {
        self.0 as u32
    }

    /// The word of the next use of the same slot. Sequence 0 is skipped on wrap, so ZERO never recurs as a use.
    #[inline]
    #[must_use]
    pub fn next(self) -> Word {
        let following = self.slot_sequence().wrapping_add(1);
        Word::new(self.generation(), if following == 0 { 1 } else { following })
    }
}

/// How many rows of a large answer are readable already, tied to the use of the slot it belongs to.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Progress(pub u64);

impl Progress {
    /// `rows` rows of the answer to the `slot_sequence`-th use are in place.
    #[inline]
    #[must_use]
    pub fn new(slot_sequence: u32, rows: u32) -> Progress {
        Progress((u64::from(rows) << 32) | u64::from(slot_sequence))
    }

    /// Rows readable for that use; 0 when the word belongs to another one.
    #[inline]
    #[must_use]
    #[allow(clippy::cast_possible_truncation)] // the halves are what is meant
    pub fn rows(self, slot_sequence: u32) -> u32 {
        if self.0 as u32 == slot_sequence { (self.0 >> 32) as u32 } else { 0 }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn halves_survive() {
        let word = Word::new(7, u32::MAX);
        assert_eq!((word.generation(), word.slot_sequence()), (7, u32::MAX));
        assert_eq!(word.next(), Word::new(7, 1));
        assert_eq!(Word::new(7, 1).next(), Word::new(7, 2));
        assert_ne!(Word::new(1, 1), Word::ZERO);
    }

    #[test]
    fn progress_of_another_use_counts_nothing() {
        assert_eq!(Progress::new(3, 64).rows(3), 64);
        assert_eq!(Progress::new(3, 64).rows(4), 0);
    }
}
