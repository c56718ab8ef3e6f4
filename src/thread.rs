//! The library's threads: named, and deaf to signals, which belong to the host program's own threads.

use crate::error::{Error, Result};
use std::thread::JoinHandle;

/// Runs `start`, which starts threads, with all signals blocked: the new threads inherit the mask from their first
/// instruction on, and the caller has its own back afterwards.
pub fn deaf<T>(start: impl FnOnce() -> T) -> T {
    // SAFETY: a sigset_t is plain bits, for which zero is a value.
    let (mut all, mut before): (libc::sigset_t, libc::sigset_t) = unsafe { core::mem::zeroed() };
    // SAFETY: both sets are live, and the call changes only this thread's mask.
    let blocked = unsafe {
        libc::sigfillset(&raw mut all);
        libc::pthread_sigmask(libc::SIG_SETMASK, &raw const all, &raw mut before) == 0
    };
    let result = start();
    if blocked {
        // SAFETY: `before` is the mask that this thread had; no old mask is asked for.
        unsafe { libc::pthread_sigmask(libc::SIG_SETMASK, &raw const before, core::ptr::null_mut()) };
    }
    result
}

/// Starts a named thread that is deaf to signals.
///
/// # Errors
/// `OsError` when the system gives no thread.
#[allow(clippy::disallowed_methods)] // the one place that starts threads
pub fn start<T: Send + 'static>(name: &str, body: impl FnOnce() -> T + Send + 'static) -> Result<JoinHandle<T>> {
    deaf(|| std::thread::Builder::new().name(name.to_owned()).spawn(body))
        .map_err(|source| Error::os(format_args!("cannot start thread {name}"), &source))
}
