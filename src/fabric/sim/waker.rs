//! What a poller would sleep on. In a world nobody sleeps: pollers are stepped.

use crate::fabric::Waker;
use crate::sync::{Condvar, Mutex, lock};
use crate::time::now;
use core::time::Duration;

/// A flag to wait for.
#[derive(Debug, Default)]
pub struct SimWaker {
    rung: Mutex<bool>,
    changed: Condvar,
}

impl Waker for SimWaker {
    fn arm(&self) {}

    fn wait(&self, timeout: Duration) -> bool {
        let deadline = now().after(timeout);
        let mut rung = lock(&self.rung);
        loop {
            if core::mem::take(&mut *rung) {
                return true;
            }
            let left = deadline.remaining();
            if left.is_zero() {
                return false;
            }
            rung = self.changed.wait_timeout(rung, left).unwrap_or_else(|poisoned| poisoned.into_inner()).0;
        }
    }

    fn disarm(&self) {}

    fn notify(&self) {
        *lock(&self.rung) = true;
        self.changed.notify_all();
    }
}
