//! A model of how an entry of the table of regions is written and read, and of how a gate is closed, in all interleavings.
//! What is modelled are the words and their orderings: those of `memory::seqlock::Page` and of `memory::Gate` with a
//! lane's lock.

use loom::sync::atomic::{AtomicBool, AtomicU64, Ordering, fence};
use loom::sync::{Arc, Mutex};

struct Entry {
    sequence: AtomicU64,
    words: [AtomicU64; 2],
}

impl Entry {
    fn new() -> Entry {
        Entry { sequence: AtomicU64::new(0), words: [AtomicU64::new(0), AtomicU64::new(0)] }
    }

    fn write(&self, value: u64) {
        let before = self.sequence.load(Ordering::Relaxed);
        self.sequence.store(before.wrapping_add(1) | 1, Ordering::Relaxed);
        // Release: pairs with the Acquire fence of `read`.
        fence(Ordering::Release);
        self.words.iter().for_each(|word| word.store(value, Ordering::Relaxed));
        // Release: pairs with the Acquire load of `read`.
        self.sequence.store((before.wrapping_add(1) | 1).wrapping_add(1), Ordering::Release);
    }

    /// One look.
    fn read(&self) -> Option<[u64; 2]> {
        let before = self.sequence.load(Ordering::Acquire);
        if before & 1 == 1 {
            return None;
        }
        let words = [self.words[0].load(Ordering::Relaxed), self.words[1].load(Ordering::Relaxed)];
        // Acquire: pairs with the Release fence of `write`.
        fence(Ordering::Acquire);
        (self.sequence.load(Ordering::Relaxed) == before).then_some(words)
    }
}

#[test]
fn a_reader_sees_a_whole_entry_or_none() {
    loom::model(|| {
        let entry = Arc::new(Entry::new());
        let writer = {
            let entry = Arc::clone(&entry);
            loom::thread::spawn(move || (1..=2).for_each(|value| entry.write(value)))
        };
        if let Some([first, second]) = entry.read() {
            assert_eq!(first, second);
        }
        writer.join().expect("a writer");
        assert_eq!(entry.read(), Some([2, 2]));
    });
}

/// A lane: what was posted, under its lock, and the gate that a poster looks at inside.
struct Lane {
    closed: AtomicBool,
    posted: Mutex<u64>,
}

#[test]
fn after_a_gate_was_closed_and_the_lock_taken_once_nothing_is_posted() {
    loom::model(|| {
        let lane = Arc::new(Lane { closed: AtomicBool::new(false), posted: Mutex::new(0) });
        let posters: Vec<_> = (0..2)
            .map(|_| {
                let lane = Arc::clone(&lane);
                loom::thread::spawn(move || {
                    let mut posted = lane.posted.lock().expect("a lock");
                    if !lane.closed.load(Ordering::Relaxed) {
                        *posted += 1;
                    }
                })
            })
            .collect();
        lane.closed.store(true, Ordering::Relaxed);
        let seen = *lane.posted.lock().expect("a lock");
        posters.into_iter().for_each(|poster| poster.join().expect("a poster"));
        assert_eq!(*lane.posted.lock().expect("a lock"), seen);
    });
}
