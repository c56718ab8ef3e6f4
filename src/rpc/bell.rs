//! Wakes the thread that looks after lanes.

use crate::sync::{Condvar, Mutex, lock};
use core::time::Duration;

/// One sleeper, many ringers. A ring while it is awake makes its next sleep end at once.
#[derive(Debug, Default)]
pub struct Bell {
    rung: Mutex<bool>,
    changed: Condvar,
}

impl Bell {
    /// Ends the present or the next sleep.
    #[cold]
    pub fn ring(&self) {
        *lock(&self.rung) = true;
        self.changed.notify_all();
    }

    /// Sleeps until rung, at most `timeout`.
    pub fn sleep(&self, timeout: Duration) {
        let mut rung = lock(&self.rung);
        if !*rung {
            rung = self.changed.wait_timeout(rung, timeout).unwrap_or_else(std::sync::PoisonError::into_inner).0;
        }
        *rung = false;
    }
}
