//! What a shard counts of its checkpoints, for its metrics. Threads: any.

use crate::sync::{AtomicU64, Mutex, Ordering, lock};
use crate::time::{Tick, now};

/// Numbers since the shard started.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(in crate::engine) struct Counts {
    /// Parts that were begun.
    pub(in crate::engine) begun: u64,
    /// Those that are durable.
    pub(in crate::engine) written: u64,
    /// Those that could not be written.
    pub(in crate::engine) failed: u64,
    /// Bytes of state in what was written, and those that were written for it.
    pub(in crate::engine) state_bytes: u64,
    pub(in crate::engine) written_bytes: u64,
    /// Time that requests waited, all of it and the longest one.
    pub(in crate::engine) held_ns: u64,
    pub(in crate::engine) held_max_ns: u64,
    /// Time that writing took.
    pub(in crate::engine) writing_ns: u64,
    /// The newest epoch of which the part is durable.
    pub(in crate::engine) epoch: u64,
    /// Of the whole deployment, where this shard leads.
    pub(in crate::engine) committed: u64,
    pub(in crate::engine) aborted: u64,
}

/// Where they are counted.
#[derive(Debug, Default)]
pub(in crate::engine) struct Tally {
    counts: Mutex<Counts>,
    /// When the gate was shut; 0: it is open.
    shut: AtomicU64,
}

impl Tally {
    pub(in crate::engine) fn counts(&self) -> Counts {
        *lock(&self.counts)
    }

    /// The gate is about to be shut.
    pub(super) fn shuts(&self) {
        lock(&self.counts).begun += 1;
        self.shut.store(now().0.max(1), Ordering::Relaxed);
    }

    /// The gate is open.
    pub(super) fn opened(&self) {
        let shut = self.shut.swap(0, Ordering::Relaxed);
        if shut == 0 {
            return;
        }
        let ns = now().since_ns(Tick(shut));
        let mut counts = lock(&self.counts);
        counts.held_ns += ns;
        counts.held_max_ns = counts.held_max_ns.max(ns);
    }

    /// A part was written since then, or could not be.
    pub(super) fn wrote(&self, since: Tick, epoch: u64, bytes: Option<(u64, u64)>) {
        let mut counts = lock(&self.counts);
        counts.writing_ns += now().since_ns(since);
        match bytes {
            Some((state, written)) => {
                counts.written += 1;
                counts.state_bytes += state;
                counts.written_bytes += written;
                counts.epoch = counts.epoch.max(epoch);
            }
            None => counts.failed += 1,
        }
    }

    /// A checkpoint that this shard led has ended.
    pub(super) fn ended(&self, is_committed: bool) {
        let mut counts = lock(&self.counts);
        *(if is_committed { &mut counts.committed } else { &mut counts.aborted }) += 1;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_part_is_counted_from_gate_to_file() {
        let tally = Tally::default();
        // An open gate that is opened again is no time of waiting.
        tally.opened();
        assert_eq!(tally.counts(), Counts::default());
        tally.shuts();
        tally.opened();
        tally.wrote(now(), 7, Some((100, 40)));
        tally.shuts();
        tally.opened();
        tally.wrote(now(), 8, None);
        tally.ended(true);
        tally.ended(false);
        let counts = tally.counts();
        assert_eq!((counts.begun, counts.written, counts.failed, counts.epoch), (2, 1, 1, 7));
        assert_eq!((counts.state_bytes, counts.written_bytes, counts.committed, counts.aborted), (100, 40, 1, 1));
        assert!(counts.held_ns >= counts.held_max_ns && counts.held_max_ns > 0);
    }
}
