//! Knows whether the present thread is inside a callback of the host, so that calls which would wait for that callback
//! are refused.

use core::cell::Cell;

use crate::error::{Error, Result, Status};

thread_local! {
    static DEPTH: Cell<u32> = const { Cell::new(0) };
}

/// While it lives, the present thread is inside a callback.
pub(super) struct Inside(());

impl Inside {
    pub(super) fn enter() -> Inside {
        DEPTH.set(DEPTH.get() + 1);
        Inside(())
    }
}

impl Drop for Inside {
    fn drop(&mut self) {
        DEPTH.set(DEPTH.get() - 1);
    }
}

/// Whether a callback of the host is running on this thread.
pub(super) fn is_inside() -> bool {
    DEPTH.get() > 0
}

/// Refuses `what` inside a callback.
pub(super) fn check_outside(what: &str) -> Result<()> {
    if is_inside() {
        return Err(Error::new(
            Status::WouldDeadlock,
            format!("{what} was called inside a callback, which it would wait for; call it from another thread"),
        ));
    }
    Ok(())
}
