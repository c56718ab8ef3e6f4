//! The gate of a shard: poll threads come to rest between two requests, and commands wait.
//!
//! A request is never half executed while everybody rests: each was claimed, executed, settled and answered, or nothing of
//! it was executed, though its rows may be on their way from the client. The path of a request does not know of the gate:
//! poll threads look for mail in any case.

use crate::sync::{Condvar, Mutex, MutexGuard, lock};
use crate::time::Tick;

#[derive(Debug, Default)]
struct State {
    shut: bool,
    /// For ever open: the shard stops.
    ended: bool,
    resting: usize,
    /// Commands that are being executed.
    inside: usize,
}

/// The gate. Threads: any.
#[derive(Debug, Default)]
pub(in crate::engine::server) struct Hold {
    state: Mutex<State>,
    changed: Condvar,
}

/// A command that is being executed.
#[derive(Debug)]
pub(in crate::engine::server) struct Inside<'a>(&'a Hold);

impl Hold {
    fn wait<'a>(&self, guard: MutexGuard<'a, State>) -> MutexGuard<'a, State> {
        self.changed.wait(guard).unwrap_or_else(std::sync::PoisonError::into_inner)
    }

    /// Shuts the gate. Poll threads must be told to rest after that.
    pub(super) fn shut(&self) {
        lock(&self.state).shut = true;
    }

    /// Waits until so many poll threads rest and no command is being executed. False: not in time.
    pub(super) fn wait_for_rest(&self, pollers: usize, deadline: Tick) -> bool {
        let mut state = lock(&self.state);
        loop {
            if state.ended {
                return false;
            }
            if state.resting == pollers && state.inside == 0 {
                return true;
            }
            let left = deadline.remaining();
            if left.is_zero() {
                return false;
            }
            state = self.changed.wait_timeout(state, left).unwrap_or_else(std::sync::PoisonError::into_inner).0;
        }
    }

    /// Lets everybody go on.
    pub(super) fn open(&self) {
        lock(&self.state).shut = false;
        self.changed.notify_all();
    }

    /// The gate is open for good: the shard stops.
    pub(in crate::engine::server) fn end(&self) {
        lock(&self.state).ended = true;
        self.changed.notify_all();
    }

    /// A poll thread rests until the gate is open; at once if it is.
    pub(in crate::engine::server) fn rest(&self) {
        let mut state = lock(&self.state);
        if !state.shut || state.ended {
            return;
        }
        state.resting += 1;
        self.changed.notify_all();
        while state.shut && !state.ended {
            state = self.wait(state);
        }
        state.resting -= 1;
    }

    /// A command begins, when the gate is open.
    pub(in crate::engine::server) fn command(&self) -> Inside<'_> {
        let mut state = lock(&self.state);
        while state.shut && !state.ended {
            state = self.wait(state);
        }
        state.inside += 1;
        Inside(self)
    }
}

impl Drop for Inside<'_> {
    fn drop(&mut self) {
        lock(&self.0.state).inside -= 1;
        self.0.changed.notify_all();
    }
}
