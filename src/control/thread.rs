//! Threads of the control plane: named, and deaf to signals, which belong to the host program's own threads.

use crate::error::{Error, Result};
use std::thread::JoinHandle;
use tokio::runtime::{Builder, Runtime};

/// Starts a thread with all signals blocked.
pub(super) fn start<T: Send + 'static>(name: &str, body: impl FnOnce() -> T + Send + 'static) -> Result<JoinHandle<T>> {
    // A thread inherits the mask of its creator, so the creator wears it for a moment: no signal finds the new thread.
    let before = block_all_signals();
    let spawned = std::thread::Builder::new().name(name.to_string()).spawn(body);
    restore_signals(&before);
    spawned.map_err(|source| Error::os(format_args!("cannot start thread {name}"), &source))
}

/// A runtime that works on the calling thread. Only name look-ups use a second, short-lived thread.
pub(super) fn runtime(name: &str) -> Result<Runtime> {
    Builder::new_current_thread()
        .enable_io()
        .enable_time()
        .thread_name(name)
        .max_blocking_threads(1)
        .build()
        .map_err(|source| Error::os(format_args!("cannot start the event loop of {name}"), &source))
}

fn block_all_signals() -> libc::sigset_t {
    // SAFETY: a sigset_t is plain bits, for which zero is a value.
    let mut all: libc::sigset_t = unsafe { core::mem::zeroed() };
    let mut before = all;
    // SAFETY: `all` is a live sigset_t.
    unsafe { libc::sigfillset(&raw mut all) };
    // SAFETY: both are live sigset_t; the call changes only the calling thread's mask.
    let failed = unsafe { libc::pthread_sigmask(libc::SIG_SETMASK, &raw const all, &raw mut before) };
    assert_eq!(failed, 0, "pthread_sigmask fails only for an unknown `how`");
    before
}

fn restore_signals(before: &libc::sigset_t) {
    // SAFETY: `before` is a mask that this thread had; no old mask is asked for.
    let failed = unsafe { libc::pthread_sigmask(libc::SIG_SETMASK, before, core::ptr::null_mut()) };
    assert_eq!(failed, 0, "pthread_sigmask fails only for an unknown `how`");
}
