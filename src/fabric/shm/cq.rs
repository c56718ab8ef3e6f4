//! Completion queues.

use super::ring::ReceiveRing;
use crate::fabric::{Completion, Cq};
use crate::sync::{Arc, AtomicU32, AtomicUsize, Mutex, Ordering, lock};
use std::collections::VecDeque;

/// How many work requests of a queue pair were posted and not yet given back by a polled completion.
pub(super) type SendAccount = AtomicU32;

/// A completion and what polling it gives back.
#[derive(Debug)]
pub(super) struct Entry {
    pub(super) completion: Completion,
    gives_back: Option<(Arc<SendAccount>, u32)>,
}

impl Entry {
    /// A completion that gives nothing back.
    pub(super) fn plain(completion: Completion) -> Entry {
        Entry { completion, gives_back: None }
    }

    /// A completion of work: polling it frees `count` places of the send queue.
    pub(super) fn work(completion: Completion, account: &Arc<SendAccount>, count: u32) -> Entry {
        Entry { completion, gives_back: Some((Arc::clone(account), count)) }
    }
}

/// Completion queue of the shared-memory provider.
///
/// It holds as many completions as its queue pairs have work outstanding, so it never overflows; its depth is only what
/// is allocated at the start.
#[derive(Debug)]
pub struct ShmCq {
    /// Length of `queue`, so that polling an empty queue is one load.
    waiting: AtomicUsize,
    queue: Mutex<VecDeque<Entry>>,
    /// Number of `rings`, for the same reason.
    listening: AtomicUsize,
    rings: Mutex<Vec<Arc<ReceiveRing>>>,
}

impl ShmCq {
    pub(super) fn new(depth: u32) -> ShmCq {
        const ALLOCATED_MAX: u32 = 1 << 16;
        ShmCq {
            waiting: AtomicUsize::new(0),
            queue: Mutex::new(VecDeque::with_capacity(depth.min(ALLOCATED_MAX) as usize)),
            listening: AtomicUsize::new(0),
            rings: Mutex::new(Vec::new()),
        }
    }

    /// Adds completions.
    pub(super) fn push(&self, entries: impl IntoIterator<Item = Entry>) {
        let mut queue = lock(&self.queue);
        queue.extend(entries);
        // Release: a poller that sees the count finds the lock's contents. Partner: Acquire in `poll`.
        self.waiting.store(queue.len(), Ordering::Release);
    }

    /// Looks at this ring from now on.
    pub(super) fn listen(&self, ring: &Arc<ReceiveRing>) {
        let mut rings = lock(&self.rings);
        if !rings.iter().any(|known| Arc::ptr_eq(known, ring)) {
            rings.push(Arc::clone(ring));
            // Release. Partner: Acquire in `poll`.
            self.listening.store(rings.len(), Ordering::Release);
        }
    }

    /// No longer looks at this ring; what arrived and the flushed rest become completions.
    pub(super) fn stop_listening(&self, ring: &Arc<ReceiveRing>) {
        let mut rings = lock(&self.rings);
        rings.retain(|known| !Arc::ptr_eq(known, ring));
        // Release. Partner: Acquire in `poll`.
        self.listening.store(rings.len(), Ordering::Release);
        let mut arrived = Vec::new();
        ring.close(&mut arrived);
        if !arrived.is_empty() {
            self.push(arrived);
        }
    }

    /// Forgets the completions of a queue pair.
    pub(super) fn purge(&self, qp: u32) {
        let mut queue = lock(&self.queue);
        queue.retain(|entry| entry.completion.qp != qp);
        // Release. Partner: Acquire in `poll`.
        self.waiting.store(queue.len(), Ordering::Release);
    }
}

impl Cq for ShmCq {
    fn poll(&self, out: &mut [Completion]) -> usize {
        // Acquire. Partners: the Release stores above.
        if self.listening.load(Ordering::Acquire) != 0 {
            let rings = lock(&self.rings);
            let mut arrived = Vec::new();
            for ring in rings.iter() {
                ring.take(&mut arrived);
            }
            if !arrived.is_empty() {
                self.push(arrived);
            }
        }
        // Acquire. Partners: the Release stores above.
        if self.waiting.load(Ordering::Acquire) == 0 {
            return 0;
        }
        let mut queue = lock(&self.queue);
        let count = queue.len().min(out.len());
        for (place, entry) in out.iter_mut().zip(queue.drain(..count)) {
            *place = entry.completion;
            if let Some((account, freed)) = entry.gives_back {
                // Relaxed: a counter; the poster checks it under the sender's lock.
                account.fetch_sub(freed, Ordering::Relaxed);
            }
        }
        // Release. Partner: Acquire above.
        self.waiting.store(queue.len(), Ordering::Release);
        count
    }
}
