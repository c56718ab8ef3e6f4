//! What a shard remembers of the requests that it executed for one client: enough to answer a repetition without
//! executing it again.
//!
//! A client does not use a logical slot again before the request on it is settled. So the next request of a slot says
//! that the last one's answer has arrived, and one entry per logical slot is the whole memory. It outlives lanes and
//! their connections, not the process.

use crate::sync::{AtomicU64, CachePadded, Ordering};
use crate::wire::RequestHeader;

/// What to do with a request that must be executed at most once.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Claim {
    /// Execute it, then [`Window::settle`].
    Execute,
    /// It was executed: answer this status and aux.
    Done(i32, u32),
    /// It is being executed, over another lane: look again later.
    UnderWay,
    /// The slot has moved on, or is none of this client's: nobody waits for an answer.
    Obsolete,
}

const EXECUTING: u64 = 1;
const DONE: u64 = 2;
/// It was claimed and nothing of it was executed.
const RELEASED: u64 = 3;
const STATE_BITS: u64 = 3;

/// One logical slot's entry.
#[derive(Debug, Default)]
struct Entry {
    /// `use count << 2 | state`; 0: never used.
    word: AtomicU64,
    /// `aux << 32 | status` of the use that is DONE.
    result: AtomicU64,
}

/// The memory of one client's requests. Threads: any.
#[derive(Debug)]
pub struct Window {
    /// Tells this memory from others of the same process.
    number: u64,
    entries: Box<[CachePadded<Entry>]>,
}

impl Window {
    /// Set in the number of a window that outlives its process.
    pub const LASTING: u64 = 1 << 63;

    /// Nothing executed yet, for a client with so many logical slots.
    #[must_use]
    pub fn new(number: u64, slots: u32) -> Window {
        Window { number, entries: (0..slots).map(|_| CachePadded::default()).collect() }
    }

    /// Tells this memory from others of the same process; never 0.
    #[must_use]
    pub fn number(&self) -> u64 {
        self.number
    }

    fn entry(&self, sequence: u64) -> Option<(&Entry, u64)> {
        let (slot, use_count) = RequestHeader::parts_of_identity(sequence)?;
        let entry = self.entries.get(slot as usize)?;
        Some((&entry.0, use_count << 2))
    }

    /// Claims the request with this identity.
    #[inline]
    #[must_use]
    pub fn claim(&self, sequence: u64) -> Claim {
        let Some((entry, mine)) = self.entry(sequence) else {
            return Claim::Obsolete;
        };
        // Acquire: pairs with the Release in `settle`, so that the result is seen.
        let mut word = entry.word.load(Ordering::Acquire);
        loop {
            let (seen, state) = (word & !STATE_BITS, word & STATE_BITS);
            if word != 0 && seen == mine {
                match state {
                    DONE => return done(entry),
                    RELEASED => {}
                    _ => return Claim::UnderWay,
                }
            } else if word != 0 && !is_newer(mine >> 2, seen >> 2) {
                return Claim::Obsolete;
            }
            if state == EXECUTING {
                // The client has given the last one up, and it is still being executed: one at a time.
                return Claim::UnderWay;
            }
            // Acquire: as above.
            match entry.word.compare_exchange(word, mine | EXECUTING, Ordering::Acquire, Ordering::Acquire) {
                Ok(_) => return Claim::Execute,
                Err(now) => word = now,
            }
        }
    }

    /// Slots, and the entries that were used: slot, word and result. Meaningful when nothing is being executed.
    #[must_use]
    pub fn export(&self) -> (u32, Vec<(u32, u64, u64)>) {
        let used = (0_u32..).zip(self.entries.iter()).filter_map(|(slot, entry)| {
            // Acquire: pairs with the Release in `settle`.
            let word = entry.word.load(Ordering::Acquire);
            (word & STATE_BITS == DONE).then(|| (slot, word, entry.result.load(Ordering::Relaxed)))
        });
        (u32::try_from(self.entries.len()).unwrap_or(u32::MAX), used.collect())
    }

    /// Takes over an entry of [`Window::export`]. False: it is none. Before anybody claims.
    #[must_use]
    pub fn import(&self, (slot, word, result): (u32, u64, u64)) -> bool {
        let Some(entry) = self.entries.get(slot as usize).filter(|_| word & STATE_BITS == DONE) else { return false };
        entry.result.store(result, Ordering::Relaxed);
        // Release: pairs with the Acquire in `claim`.
        entry.word.store(word, Ordering::Release);
        true
    }

    /// The claimed request was not executed, and will not be by who claimed it: its rows never came.
    #[cold]
    pub fn release(&self, sequence: u64) {
        if let Some((entry, mine)) = self.entry(sequence) {
            // Release: pairs with the Acquire in `claim`; nothing was done, but the rule is simpler without exceptions.
            entry.word.store(mine | RELEASED, Ordering::Release);
        }
    }

    /// The claimed request was executed.
    #[inline]
    pub fn settle(&self, sequence: u64, status: i32, aux: u32) {
        if let Some((entry, mine)) = self.entry(sequence) {
            let packed = (u64::from(aux) << 32) | u64::from(status.cast_unsigned());
            entry.result.store(packed, Ordering::Relaxed);
            // Release: pairs with the Acquire in `claim`.
            entry.word.store(mine | DONE, Ordering::Release);
        }
    }
}

/// Use counts wrap around.
fn is_newer(one: u64, other: u64) -> bool {
    let ahead = one.wrapping_sub(other) & ((1 << RequestHeader::USE_BITS) - 1);
    ahead != 0 && ahead < 1 << (RequestHeader::USE_BITS - 1)
}

#[allow(clippy::cast_possible_truncation)] // the halves are what is meant
fn done(entry: &Entry) -> Claim {
    let packed = entry.result.load(Ordering::Relaxed);
    Claim::Done((packed as u32).cast_signed(), (packed >> 32) as u32)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn identity(slot: u32, use_count: u64) -> u64 {
        RequestHeader::identity(slot, use_count)
    }

    #[test]
    fn each_identity_is_executed_once_and_its_answer_kept_until_the_next() {
        let window = Window::new(1, 4);
        let first = identity(2, 0);
        assert_eq!(window.claim(first), Claim::Execute);
        assert_eq!(window.claim(first), Claim::UnderWay);
        window.settle(first, -6, 77);
        assert_eq!(window.claim(first), Claim::Done(-6, 77));
        assert_eq!(window.claim(identity(1, 0)), Claim::Execute);
        // Released, it can be claimed once more, and an older one still cannot.
        let third = identity(3, 7);
        assert_eq!(window.claim(third), Claim::Execute);
        window.release(third);
        assert_eq!(window.claim(identity(3, 6)), Claim::Obsolete);
        assert_eq!(window.claim(third), Claim::Execute);
        assert_eq!(window.claim(third), Claim::UnderWay);
        let next = identity(2, 5);
        assert_eq!(window.claim(next), Claim::Execute);
        assert_eq!(window.claim(first), Claim::Obsolete);
        window.settle(next, 0, 0);
        assert_eq!(window.claim(next), Claim::Done(0, 0));
    }

    #[test]
    fn what_is_exported_answers_repetitions_elsewhere_and_what_was_not_finished_is_executed() {
        let window = Window::new(7, 4);
        let (done, open) = (identity(1, 3), identity(2, 9));
        assert_eq!((window.claim(done), window.claim(open)), (Claim::Execute, Claim::Execute));
        window.settle(done, 0, 41);
        let (slots, entries) = window.export();
        let other = Window::new(7, slots);
        assert!(entries.iter().all(|entry| other.import(*entry)));
        assert_eq!(other.claim(done), Claim::Done(0, 41));
        assert_eq!(other.claim(identity(1, 2)), Claim::Obsolete);
        assert_eq!(other.claim(open), Claim::Execute);
        assert!(!other.import((4, entries[0].1, 0)) && !other.import((0, 1, 0)));
    }

    #[test]
    fn use_counts_wrap_around() {
        let window = Window::new(1, 1);
        let last = (1 << RequestHeader::USE_BITS) - 1;
        assert_eq!(window.claim(identity(0, last)), Claim::Execute);
        window.settle(identity(0, last), 0, 0);
        assert_eq!(window.claim(identity(0, last + 1)), Claim::Execute);
        window.settle(identity(0, 0), 0, 1);
        assert_eq!(window.claim(identity(0, 0)), Claim::Done(0, 1));
        assert_eq!(window.claim(identity(0, last)), Claim::Obsolete);
    }

    #[test]
    fn a_slot_executes_one_request_at_a_time() {
        let window = Window::new(1, 1);
        assert_eq!(window.claim(identity(0, 0)), Claim::Execute);
        assert_eq!(window.claim(identity(0, 1)), Claim::UnderWay);
        window.settle(identity(0, 0), 0, 0);
        assert_eq!(window.claim(identity(0, 1)), Claim::Execute);
    }

    #[test]
    fn identities_that_no_slot_has_are_not_executed() {
        let window = Window::new(1, 2);
        for sequence in [0, 1, identity(2, 0), u64::MAX] {
            assert_eq!(window.claim(sequence), Claim::Obsolete, "{sequence:x}");
        }
        window.settle(u64::MAX, 0, 0);
    }

    #[test]
    fn of_many_threads_with_one_request_one_executes_it() {
        let window = Window::new(1, 1);
        let executed = crate::sync::AtomicU64::new(0);
        std::thread::scope(|scope| {
            for _ in 0..4 {
                scope.spawn(|| {
                    for use_count in 0..2000 {
                        let mine = identity(0, use_count);
                        loop {
                            match window.claim(mine) {
                                Claim::Execute => {
                                    executed.fetch_add(1, Ordering::Relaxed);
                                    window.settle(mine, 0, u32::try_from(use_count).expect("small"));
                                }
                                Claim::Done(_, aux) => {
                                    assert_eq!(u64::from(aux), use_count);
                                    break;
                                }
                                // Another thread is ahead by one request already.
                                Claim::Obsolete => break,
                                Claim::UnderWay => std::thread::yield_now(),
                            }
                        }
                    }
                });
            }
        });
        assert_eq!(executed.load(Ordering::Relaxed), 2000);
    }
}
