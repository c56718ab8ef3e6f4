//! Threads of sinks are deaf to signals, which belong to the host program's own threads.

/// Runs `start`, which starts threads: they inherit the mask of the caller, who blocks all signals meanwhile.
pub(super) fn deaf<T>(start: impl FnOnce() -> T) -> T {
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
