//! The library's threads: named, and deaf to signals, which belong to the host program's own threads.

use crate::error::{Error, Result};
use std::thread::{JoinHandle, Scope};

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

/// The same in a scope, which waits for its end.
///
/// # Errors
/// As for [`start`].
#[allow(clippy::disallowed_methods)] // as above
pub fn start_scoped<'scope>(
    scope: &'scope Scope<'scope, '_>,
    name: &str,
    body: impl FnOnce() + Send + 'scope,
) -> Result<()> {
    deaf(|| std::thread::Builder::new().name(name.to_owned()).spawn_scoped(scope, body))
        .map(drop)
        .map_err(|source| Error::os(format_args!("cannot start thread {name}"), &source))
}

/// A number of this thread that no other living thread of the process has: the address of its control block, which the
/// processor keeps in a register. In a shared library thread-local storage is a call.
#[inline(always)]
#[must_use]
pub fn here() -> usize {
    #[cfg(all(target_arch = "x86_64", target_os = "linux"))]
    {
        let block: usize;
        // SAFETY: the first word of a thread's control block is its own address (System V ABI for x86-64, "Thread-Local
        // Storage", variant II); it is read and nothing else.
        unsafe {
            core::arch::asm!("mov {block}, fs:0", block = out(reg) block, options(nostack, preserves_flags, readonly, pure));
        }
        block
    }
    #[cfg(not(all(target_arch = "x86_64", target_os = "linux")))]
    {
        std::thread_local!(static PLACE: u8 = const { 0 });
        PLACE.with(|place| core::ptr::from_ref(place).addr())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_thread_is_the_same_at_every_depth_and_another_one_is_not() {
        /// What it is more than 1 MiB of stack below `from`.
        fn deep(from: usize) -> usize {
            let room = [0_u8; 4096];
            let at = core::hint::black_box(&raw const room).addr();
            let found = if from.abs_diff(at) > 1 << 20 { here() } else { deep(from) };
            core::hint::black_box(&room);
            found
        }
        let mine = here();
        let top = 0_u8;
        assert_eq!(deep((&raw const top).addr()), mine);
        let other = start("test-here", here).expect("a thread").join().expect("it ends");
        assert_ne!(other, mine);
    }
}
