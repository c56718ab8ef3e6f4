//! The queue between the control thread and the engine's thread that waits for events.

use super::limits::{EVENTS_MAX, MAIL_WAITING_MAX};
use super::types::Event;
use crate::sync::{Condvar, Mutex, lock};
use crate::time;
use core::time::Duration;
use std::collections::VecDeque;

#[derive(Debug, Default)]
struct Inner {
    queue: VecDeque<Event>,
    woken: bool,
    closed: bool,
    dropped: u64,
}

/// Events in order, for one consumer.
#[derive(Debug, Default)]
pub(super) struct Events {
    inner: Mutex<Inner>,
    changed: Condvar,
}

impl Events {
    pub(super) fn push(&self, events: impl IntoIterator<Item = Event>) {
        let mut inner = lock(&self.inner);
        for event in events {
            // Letters may be lost; what changed around the member may not be for their sake.
            let letters =
                |queue: &VecDeque<Event>| queue.iter().filter(|event| matches!(event, Event::Mail { .. })).count();
            if matches!(event, Event::Mail { .. }) && letters(&inner.queue) >= MAIL_WAITING_MAX {
                continue;
            }
            // A publication that was not looked at yet stands for all later ones of the same life.
            if matches!(event, Event::LanesPublished { .. }) && inner.queue.back() == Some(&event) {
                continue;
            }
            if inner.queue.len() >= EVENTS_MAX {
                inner.queue.pop_front();
                inner.dropped += 1;
                if inner.dropped.is_power_of_two() {
                    crate::event!(
                        crate::observe::Level::WARN,
                        crate::observe::events::CONTROL_EVENTS_DROPPED,
                        count = inner.dropped,
                        "nobody takes the events"
                    );
                }
            }
            inner.queue.push_back(event);
        }
        self.changed.notify_all();
    }

    /// Lets a waiting `next`, or the following one, return at once.
    pub(super) fn wake(&self) {
        lock(&self.inner).woken = true;
        self.changed.notify_all();
    }

    /// No more events will come.
    pub(super) fn close(&self) {
        lock(&self.inner).closed = true;
        self.changed.notify_all();
    }

    pub(super) fn next(&self, timeout: Duration) -> Option<Event> {
        let deadline = time::now().after(timeout);
        let mut inner = lock(&self.inner);
        loop {
            if let Some(event) = inner.queue.pop_front() {
                return Some(event);
            }
            let left = deadline.remaining();
            if core::mem::take(&mut inner.woken) || inner.closed || left.is_zero() {
                return None;
            }
            inner = self.changed.wait_timeout(inner, left).unwrap_or_else(|poisoned| poisoned.into_inner()).0;
        }
    }
}

/// Where one caller waits for one answer.
#[derive(Debug)]
pub(super) struct Slot<T> {
    value: Mutex<(Option<T>, bool)>,
    filled: Condvar,
}

/// The other end of a [`Slot`]; dropped unfilled, it tells the caller that no answer will come.
#[derive(Debug)]
pub(super) struct Filler<T>(crate::sync::Arc<Slot<T>>);

impl<T> Slot<T> {
    pub(super) fn new() -> (crate::sync::Arc<Slot<T>>, Filler<T>) {
        let slot = crate::sync::Arc::new(Slot { value: Mutex::new((None, false)), filled: Condvar::new() });
        (slot.clone(), Filler(slot))
    }

    /// Blocks until the other end fills it or goes away. The other end holds every deadline.
    pub(super) fn wait(&self) -> Option<T> {
        let mut value = lock(&self.value);
        while value.0.is_none() && !value.1 {
            value = self.filled.wait(value).unwrap_or_else(|poisoned| poisoned.into_inner());
        }
        value.0.take()
    }
}

impl<T> Filler<T> {
    pub(super) fn fill(self, answer: T) {
        lock(&self.0.value).0 = Some(answer);
    }
}

impl<T> Drop for Filler<T> {
    fn drop(&mut self) {
        lock(&self.0.value).1 = true;
        self.0.filled.notify_all();
    }
}
