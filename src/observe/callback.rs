//! The host's callback, called from one thread of ours with no lock held.

use super::record::EventRecord;
use crate::error::{Error, Result};
use crate::sync::{Arc, AtomicU64, Condvar, Mutex, Ordering, lock};
use std::collections::VecDeque;
use std::thread::JoinHandle;

/// Events that wait for a slow callback; more are dropped and counted.
const QUEUE_EVENTS_MAX: usize = 8192;

/// What the host gives: called with one event after the other, never from two threads at a time.
pub type Callback = Box<dyn Fn(&EventRecord) + Send>;

#[derive(Default)]
struct Queue {
    events: VecDeque<EventRecord>,
    closed: bool,
}

#[derive(Default)]
struct Shared {
    queue: Mutex<Queue>,
    filled: Condvar,
    dropped: AtomicU64,
}

/// The queue and the thread behind it. Dropping it delivers what is queued.
pub(super) struct CallbackSink {
    shared: Arc<Shared>,
    thread: Option<JoinHandle<()>>,
}

impl CallbackSink {
    pub(super) fn start(callback: Callback) -> Result<CallbackSink> {
        let shared = Arc::new(Shared::default());
        let theirs = Arc::clone(&shared);
        let builder = std::thread::Builder::new().name("reclane-events".to_owned());
        let thread = crate::thread::deaf(|| builder.spawn(move || run(&theirs, &callback)))
            .map_err(|source| Error::os("starting the thread that calls the host's event callback", &source))?;
        Ok(CallbackSink { shared, thread: Some(thread) })
    }

    pub(super) fn send(&self, event: &EventRecord) {
        let mut queue = lock(&self.shared.queue);
        if queue.events.len() < QUEUE_EVENTS_MAX {
            queue.events.push_back(event.clone());
            drop(queue);
            self.shared.filled.notify_one();
        } else {
            self.shared.dropped.fetch_add(1, Ordering::Relaxed);
        }
    }

    pub(super) fn dropped(&self) -> u64 {
        self.shared.dropped.load(Ordering::Relaxed)
    }
}

impl Drop for CallbackSink {
    fn drop(&mut self) {
        lock(&self.shared.queue).closed = true;
        self.shared.filled.notify_one();
        if let Some(thread) = self.thread.take() {
            // A callback that closes its own sink runs on that thread, which cannot wait for itself; it ends by itself.
            if thread.thread().id() != std::thread::current().id() {
                let _ = thread.join();
            }
        }
    }
}

fn run(shared: &Shared, callback: &Callback) {
    loop {
        let mut queue = lock(&shared.queue);
        let event = loop {
            if let Some(event) = queue.events.pop_front() {
                break event;
            }
            if queue.closed {
                return;
            }
            queue = shared.filled.wait(queue).unwrap_or_else(std::sync::PoisonError::into_inner);
        };
        drop(queue);
        // A callback that panics loses this event; the thread goes on.
        let _ = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| callback(&event)));
    }
}
