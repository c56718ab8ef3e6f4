//! The library's threads: named, and deaf to the host program's signals.

use crate::error::{Error, Result};
use std::thread::JoinHandle;

/// Starts a thread that blocks all signals, so that the host's handlers run on the host's own threads.
#[allow(clippy::disallowed_methods)] // the one place of this room that starts threads
pub(super) fn spawn<T: Send + 'static>(name: &str, body: impl FnOnce() -> T + Send + 'static) -> Result<JoinHandle<T>> {
    let restore = block_signals();
    let started = std::thread::Builder::new().name(name.to_owned()).spawn(body);
    restore_signals(&restore);
    started.map_err(|error| Error::os(format!("cannot start thread {name}"), &error))
}

fn block_signals() -> libc::sigset_t {
    // SAFETY: both sets are ours; the new thread inherits the mask, and this one gets its own back right after.
    unsafe {
        let mut all = core::mem::zeroed::<libc::sigset_t>();
        let mut before = core::mem::zeroed::<libc::sigset_t>();
        libc::sigfillset(&raw mut all);
        libc::pthread_sigmask(libc::SIG_SETMASK, &raw const all, &raw mut before);
        before
    }
}

fn restore_signals(before: &libc::sigset_t) {
    // SAFETY: the set was filled by `block_signals`.
    unsafe { libc::pthread_sigmask(libc::SIG_SETMASK, before, core::ptr::null_mut()) };
}
