//! Requests on their way from poll threads to workers.

use crate::fabric::Fabric;
use crate::rpc::{Ready, ServerLane};
use crate::sync::{Arc, AtomicU32, Condvar, Mutex, Ordering, SpinMutex, lock};
use crate::wire::RequestHeader;
use core::time::Duration;
use std::collections::VecDeque;

/// One request for a worker.
#[derive(Debug)]
pub(super) struct Job<F: Fabric> {
    pub(super) lane: Arc<ServerLane<F>>,
    pub(super) slot: u32,
    pub(super) header: RequestHeader,
}

impl<F: Fabric> Job<F> {
    pub(super) fn of(lane: &Arc<ServerLane<F>>, ready: &Ready) -> Job<F> {
        Job { lane: Arc::clone(lane), slot: ready.slot, header: ready.header() }
    }
}

/// First in, first out. Its length is bounded by the number of slots: a slot holds one request at a time.
#[derive(Debug)]
pub(in crate::engine) struct Queue<F: Fabric> {
    /// Held for a push or a pop only, by threads that own their core.
    jobs: SpinMutex<VecDeque<Job<F>>>,
    sleepers: AtomicU32,
    closed: Mutex<bool>,
    wake: Condvar,
}

/// How long a worker sleeps at most: an answer to a lost wake-up that cannot happen, not a poll interval.
const NAP: Duration = Duration::from_millis(50);
const SPINS: u32 = 2000;

impl<F: Fabric> Queue<F> {
    pub(super) fn new() -> Queue<F> {
        Queue {
            jobs: SpinMutex::new(VecDeque::with_capacity(1024)),
            sleepers: AtomicU32::new(0),
            closed: Mutex::new(false),
            wake: Condvar::new(),
        }
    }

    /// Requests that wait.
    pub(in crate::engine) fn len(&self) -> usize {
        self.jobs.lock().len()
    }

    pub(super) fn push(&self, job: Job<F>) {
        self.jobs.lock().push_back(job);
        // SeqCst: pairs with the SeqCst in `pop`: either this sees the sleeper, or the sleeper sees the job.
        crate::sync::fence(Ordering::SeqCst);
        if self.sleepers.load(Ordering::SeqCst) > 0 {
            let _guard = lock(&self.closed);
            self.wake.notify_one();
        }
    }

    /// The next job; None when the queue was closed and is empty.
    pub(super) fn pop(&self) -> Option<Job<F>> {
        loop {
            for _ in 0..SPINS {
                if let Some(job) = self.jobs.lock().pop_front() {
                    return Some(job);
                }
                core::hint::spin_loop();
            }
            let closed = lock(&self.closed);
            // SeqCst: both pair with the SeqCst in `push`.
            self.sleepers.fetch_add(1, Ordering::SeqCst);
            crate::sync::fence(Ordering::SeqCst);
            let job = self.jobs.lock().pop_front();
            let done = *closed;
            if job.is_none() && !done {
                drop(self.wake.wait_timeout(closed, NAP));
            }
            // SeqCst: pairs with the load in `push`, which may see it late and ring once in vain.
            self.sleepers.fetch_sub(1, Ordering::SeqCst);
            if job.is_some() || done {
                return job;
            }
        }
    }

    /// No job comes any more; workers end when the queue is empty.
    pub(super) fn close(&self) {
        *lock(&self.closed) = true;
        self.wake.notify_all();
    }
}
