//! The ring through which immediates of the peer's write-with-immediate reach a queue pair.
//!
//! It lies in memory of the receiver that the peer can write. `posted` (receiver's) says how many receives were posted in
//! all; entry `n` holds immediate `n` under the mark `n + 1`, in one word, so that a word is either old or whole. The
//! receiver keeps its own count of what it posted and took, and so takes only what it asked for, whatever the peer
//! writes.

use super::cq::Entry;
use super::memory::{Mapping, sealed_memory};
use crate::fabric::{Completion, WcOpcode, WcStatus};
use crate::sync::{Arc, AtomicU64, Mutex, Ordering, lock};
use std::io;
use std::os::fd::OwnedFd;

/// Bytes before the first entry.
const HEAD_BYTES: usize = 128;
/// Most entries of a ring, ours or a peer's.
pub(super) const RING_ENTRIES_MAX: u32 = 1 << 16;

/// Length of a ring's memory.
pub(super) fn ring_bytes(entries: u32) -> usize {
    HEAD_BYTES + entries as usize * size_of::<u64>()
}

fn word(memory: &Mapping, index: u64, entries: u32) -> &AtomicU64 {
    let offset = HEAD_BYTES + usize::try_from(index % u64::from(entries)).unwrap_or(0) * size_of::<u64>();
    // SAFETY: the memory has `ring_bytes(entries)` bytes, checked when it was made or mapped; the offset is a multiple
    // of 8 below that; it is only touched atomically.
    unsafe { AtomicU64::from_ptr(memory.base().as_ptr().add(offset).cast()) }
}

fn posted_word(memory: &Mapping) -> &AtomicU64 {
    // SAFETY: as in `word`, at offset 0.
    unsafe { AtomicU64::from_ptr(memory.base().as_ptr().cast()) }
}

fn mark(index: u64) -> u64 {
    // Never 0 for the first lap of fresh memory, and different on neighbouring laps.
    (index + 1) & 0xffff_ffff
}

/// The receiver's end.
#[derive(Debug)]
pub(super) struct ReceiveRing {
    pub(super) fd: Arc<OwnedFd>,
    pub(super) entries: u32,
    memory: Mapping,
    qp: u32,
    counts: Mutex<Counts>,
}

#[derive(Debug)]
struct Counts {
    posted: u64,
    taken: u64,
    closed: bool,
}

impl ReceiveRing {
    /// A ring with room for `receives` posted receives.
    pub(super) fn new(qp: u32, receives: u32) -> io::Result<ReceiveRing> {
        let entries = receives.next_power_of_two();
        let (fd, memory) = sealed_memory(ring_bytes(entries), false, true)?;
        let counts = Mutex::new(Counts { posted: 0, taken: 0, closed: false });
        Ok(ReceiveRing { fd: Arc::new(fd), entries, memory, qp, counts })
    }

    /// Posts receives; false when fewer than `count` fit below `receives_max`.
    pub(super) fn post(&self, count: u32, receives_max: u32) -> bool {
        let mut counts = lock(&self.counts);
        if counts.closed || counts.posted - counts.taken + u64::from(count) > u64::from(receives_max) {
            return false;
        }
        counts.posted += u64::from(count);
        // Release: an entry may be written again only after `taken` moved past it. Partner: Acquire in `push`.
        posted_word(&self.memory).store(counts.posted, Ordering::Release);
        true
    }

    /// Takes everything that arrived.
    pub(super) fn take(&self, out: &mut Vec<Entry>) {
        let mut counts = lock(&self.counts);
        if !counts.closed {
            self.take_arrived(&mut counts, out);
        }
    }

    fn take_arrived(&self, counts: &mut Counts, out: &mut Vec<Entry>) {
        while counts.taken < counts.posted {
            // Acquire: the data of the write is visible with its immediate. Partner: Release in `push`.
            let value = word(&self.memory, counts.taken, self.entries).load(Ordering::Acquire);
            if value >> 32 != mark(counts.taken) {
                break;
            }
            counts.taken += 1;
            let imm = u32::try_from(value & 0xffff_ffff).unwrap_or(0);
            out.push(Entry::receive(self.qp, WcStatus::Success, imm));
        }
    }

    /// Takes what arrived, then flushes the receives that are left, once.
    pub(super) fn close(&self, out: &mut Vec<Entry>) {
        let mut counts = lock(&self.counts);
        if counts.closed {
            return;
        }
        self.take_arrived(&mut counts, out);
        for _ in counts.taken..counts.posted {
            out.push(Entry::receive(self.qp, WcStatus::WrFlush, 0));
        }
        counts.taken = counts.posted;
        counts.closed = true;
    }
}

impl Entry {
    fn receive(qp: u32, status: WcStatus, imm: u32) -> Entry {
        Entry::plain(Completion { qp, status, opcode: WcOpcode::ReceiveImm, imm, ..Completion::EMPTY })
    }
}

/// The sender's end. One sender at a time.
#[derive(Debug)]
pub(super) struct SendRing {
    memory: Arc<Mapping>,
    entries: u32,
    sent: u64,
}

impl SendRing {
    /// `memory` has at least `ring_bytes(entries)` bytes.
    pub(super) fn new(memory: Arc<Mapping>, entries: u32) -> SendRing {
        debug_assert!(memory.bytes() >= ring_bytes(entries) && entries > 0);
        SendRing { memory, entries, sent: 0 }
    }

    /// Hands over an immediate; false when the peer has no receive posted.
    pub(super) fn push(&mut self, imm: u32) -> bool {
        // Acquire: the peer took the entry before we write it again. Partner: Release in `post`.
        let posted = posted_word(&self.memory).load(Ordering::Acquire);
        if self.sent >= posted {
            return false;
        }
        let value = mark(self.sent) << 32 | u64::from(imm);
        // Release: everything written before is visible with the immediate. Partner: Acquire in `take_arrived`.
        word(&self.memory, self.sent, self.entries).store(value, Ordering::Release);
        self.sent += 1;
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::fd::AsFd;

    #[test]
    fn immediates_arrive_in_order_within_the_credit_and_are_flushed_once() {
        let ring = ReceiveRing::new(5, 3).expect("ring");
        let memory = Mapping::shared(ring.fd.as_fd(), ring_bytes(ring.entries), true, false).expect("map");
        let mut sender = SendRing::new(Arc::new(memory), ring.entries);
        assert!(!sender.push(0), "no receive is posted");
        let mut next = 0;
        for _ in 0..10 {
            assert!(ring.post(3, 3));
            assert!(!ring.post(1, 3));
            assert!(sender.push(next) && sender.push(next + 1));
            let mut out = Vec::new();
            ring.take(&mut out);
            assert_eq!(out.iter().map(|e| e.completion.imm).collect::<Vec<_>>(), [next, next + 1]);
            assert!(sender.push(next + 2));
            assert!(!sender.push(99));
            ring.take(&mut out);
            assert_eq!(out.len(), 3);
            next += 3;
        }
        assert!(ring.post(2, 3) && sender.push(7));
        let mut out = Vec::new();
        ring.close(&mut out);
        ring.close(&mut out);
        assert_eq!(out.iter().map(|e| e.completion.status).collect::<Vec<_>>(), [WcStatus::Success, WcStatus::WrFlush]);
        assert!(!ring.post(1, 3));
    }

    #[test]
    fn a_peer_that_scribbles_on_the_ring_gets_no_more_than_what_was_posted() {
        let ring = ReceiveRing::new(5, 4).expect("ring");
        let memory = Mapping::shared(ring.fd.as_fd(), ring_bytes(4), true, false).expect("map");
        assert!(ring.post(2, 4));
        posted_word(&memory).store(u64::MAX, Ordering::Release);
        for index in 0..4 {
            word(&memory, index, 4).store(mark(index) << 32 | 1, Ordering::Release);
        }
        let mut out = Vec::new();
        ring.take(&mut out);
        assert_eq!(out.len(), 2);
    }
}
