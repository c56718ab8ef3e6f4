//! What waits for the threads that take checkpoints.

use crate::checkpoint::cut::Message;
use crate::control::Peer;
use crate::sync::{Condvar, Mutex, lock};
use crate::time::Tick;
use std::collections::VecDeque;

/// One thing to hear.
#[derive(Debug)]
pub(in crate::engine) enum Item {
    /// Somebody wrote.
    Letter(Peer, Message),
    /// A shard's process is gone.
    Left(u32),
}

/// A queue with one reader.
#[derive(Debug, Default)]
pub(in crate::engine) struct Letters {
    inner: Mutex<(VecDeque<Item>, bool)>,
    changed: Condvar,
}

impl Letters {
    pub(in crate::engine) fn push(&self, item: Item) {
        lock(&self.inner).0.push_back(item);
        self.changed.notify_one();
    }

    /// Nothing will be read any more.
    pub(in crate::engine) fn close(&self) {
        lock(&self.inner).1 = true;
        self.changed.notify_all();
    }

    pub(in crate::engine) fn is_closed(&self) -> bool {
        lock(&self.inner).1
    }

    /// The next; None at the deadline, and at the end.
    pub(in crate::engine) fn next(&self, deadline: Tick) -> Option<Item> {
        let mut inner = lock(&self.inner);
        loop {
            let left = deadline.remaining();
            if let Some(item) = inner.0.pop_front() {
                return Some(item);
            }
            if inner.1 || left.is_zero() {
                return None;
            }
            inner = self.changed.wait_timeout(inner, left).unwrap_or_else(std::sync::PoisonError::into_inner).0;
        }
    }
}
