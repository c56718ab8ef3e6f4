//! The table of regions in shared memory: one writer, any number of readers in other processes, a sequence per entry.
//!
//! The writer makes the sequence odd, stores the words, and makes it even again. A reader that finds the same even number
//! before and after has read one version whole. A writer that died in between leaves it odd: readers give up after a
//! bounded number of looks and ask elsewhere. tests/seqlock_model.rs tries all interleavings of these orderings.

use crate::sync::{AtomicU64, Ordering, fence};
use crate::wire::region::{ENTRY_BYTES, ENTRY_WORDS, REGIONS_MAX};
use core::ptr::NonNull;

/// Looks at an entry that is being written before a reader gives up.
const LOOKS_MAX: u32 = 1000;

/// Places of a table: the head, and one per region id.
pub(super) const HEAD: usize = 0;

/// A table in memory of this process or of a peer.
#[derive(Clone, Copy, Debug)]
pub(super) struct Page {
    base: NonNull<u8>,
}

// SAFETY: an address of memory that processes share; all access to it is atomic.
unsafe impl Send for Page {}
// SAFETY: as above.
unsafe impl Sync for Page {}

/// Place of a region's entry.
pub(super) fn place_of(region: u32) -> usize {
    1 + region as usize
}

impl Page {
    /// A table at `base`.
    ///
    /// # Safety
    /// `TABLE_BYTES` from `base` on, which is a multiple of 64, are mapped and touched through atomics only, as long as
    /// the page is used.
    pub(super) unsafe fn at(base: NonNull<u8>) -> Page {
        Page { base }
    }

    #[inline]
    fn word(&self, place: usize, index: usize) -> &AtomicU64 {
        assert!(place <= REGIONS_MAX && index <= ENTRY_WORDS);
        // SAFETY: inside the table by the assertion, aligned, mapped as long as the page is used.
        unsafe { AtomicU64::from_ptr(self.base.as_ptr().add(place * ENTRY_BYTES + index * 8).cast()) }
    }

    /// Writes an entry. One thread at a time.
    pub(super) fn write(&self, place: usize, words: &[u64; ENTRY_WORDS]) {
        let sequence = self.word(place, 0);
        // Relaxed: this thread alone writes.
        let before = sequence.load(Ordering::Relaxed);
        sequence.store(before.wrapping_add(1) | 1, Ordering::Relaxed);
        // Release: the odd number is visible before any word. Partner: the Acquire fence in `read`.
        fence(Ordering::Release);
        for (index, word) in words.iter().enumerate() {
            self.word(place, 1 + index).store(*word, Ordering::Relaxed);
        }
        // Release: the words are visible before the even number. Partner: the Acquire load in `read`.
        sequence.store((before.wrapping_add(1) | 1).wrapping_add(1), Ordering::Release);
    }

    /// The sequence of an entry: while it stays the same and even, so does the entry.
    #[inline]
    pub(super) fn sequence(&self, place: usize) -> u64 {
        // Acquire: what this reader does next is not older. Partner: the Release store in `write`.
        self.word(place, 0).load(Ordering::Acquire)
    }

    /// An entry and its sequence; none when it is being written all the time.
    pub(super) fn read(&self, place: usize) -> Option<(u64, [u64; ENTRY_WORDS])> {
        for _ in 0..LOOKS_MAX {
            let before = self.sequence(place);
            if before & 1 == 0 {
                let mut words = [0; ENTRY_WORDS];
                for (index, word) in words.iter_mut().enumerate() {
                    *word = self.word(place, 1 + index).load(Ordering::Relaxed);
                }
                // Acquire: the words are read before the sequence is again. Partner: the Release fence in `write`.
                fence(Ordering::Acquire);
                if self.word(place, 0).load(Ordering::Relaxed) == before {
                    return Some((before, words));
                }
            }
            core::hint::spin_loop();
        }
        None
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::wire::region::TABLE_BYTES;

    fn memory() -> (Vec<u64>, Page) {
        let mut memory = vec![0_u64; TABLE_BYTES / 8 + 8];
        let at = memory.as_mut_ptr().cast::<u8>();
        let base = NonNull::new(at.wrapping_add(at.align_offset(64))).expect("memory");
        // SAFETY: the vector is longer than a table by an alignment, and outlives the page.
        (memory, unsafe { Page::at(base) })
    }

    #[test]
    fn readers_never_see_half_an_entry() {
        let (_memory, page) = memory();
        const ROUNDS: u64 = 20_000;
        std::thread::scope(|scope| {
            scope.spawn(|| (1..=ROUNDS).for_each(|n| page.write(3, &[n; ENTRY_WORDS])));
            for _ in 0..2 {
                scope.spawn(|| {
                    let mut last = 0;
                    while last < ROUNDS {
                        let Some((_, words)) = page.read(3) else { continue };
                        assert!(words.iter().all(|word| *word == words[0]), "{words:?}");
                        assert!(words[0] >= last);
                        last = words[0];
                    }
                });
            }
        });
    }

    #[test]
    fn a_writer_that_died_inside_an_entry_leaves_none() {
        let (_memory, page) = memory();
        page.write(1, &[7; ENTRY_WORDS]);
        assert_eq!(page.read(1).map(|(sequence, words)| (sequence, words[6])), Some((2, 7)));
        page.word(1, 0).store(3, Ordering::Relaxed);
        assert_eq!(page.read(1), None);
        // Whoever writes it next makes it whole again.
        page.write(1, &[8; ENTRY_WORDS]);
        assert_eq!(page.read(1), Some((6, [8; ENTRY_WORDS])));
    }
}
