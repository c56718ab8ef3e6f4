//! Signals as values: they are blocked for the whole process and fetched one by one.

use reclane::error::{Error, Result};
use std::mem::MaybeUninit;
use std::time::Duration;

/// Our signals, blocked from now on.
pub struct Signals {
    set: libc::sigset_t,
}

/// What came.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Arrival {
    /// SIGINT, SIGTERM or SIGHUP: stop everything.
    Stop(i32),
    /// A child ended, or nothing came in time.
    Nothing,
}

impl Signals {
    /// Blocks them. Must be called before any other thread exists, for threads inherit what is blocked.
    pub fn block() -> Result<Signals> {
        let set = set_of(&[libc::SIGINT, libc::SIGTERM, libc::SIGHUP, libc::SIGCHLD]);
        // SAFETY: the set is initialised, and a null old set means that we do not ask for it.
        let code = unsafe { libc::pthread_sigmask(libc::SIG_BLOCK, &raw const set, std::ptr::null_mut()) };
        if code != 0 {
            return Err(Error::os("blocking signals", &std::io::Error::from_raw_os_error(code)));
        }
        Ok(Signals { set })
    }

    /// Waits for the next one, at most so long.
    pub fn next(&self, patience: Duration) -> Arrival {
        let seconds = libc::time_t::try_from(patience.as_secs()).unwrap_or(libc::time_t::MAX);
        let timeout = libc::timespec { tv_sec: seconds, tv_nsec: patience.subsec_nanos().into() };
        // SAFETY: set and timeout are initialised; a null info means that we do not ask for it.
        match unsafe { libc::sigtimedwait(&raw const self.set, std::ptr::null_mut(), &raw const timeout) } {
            signal if signal > 0 && signal != libc::SIGCHLD => Arrival::Stop(signal),
            _ => Arrival::Nothing,
        }
    }
}

/// Lets all signals through again; for the child between fork and exec.
pub fn unblock_all() {
    let set = set_of(&[]);
    // SAFETY: the set is initialised; the call is async-signal-safe.
    unsafe { libc::pthread_sigmask(libc::SIG_SETMASK, &raw const set, std::ptr::null_mut()) };
}

fn set_of(signals: &[i32]) -> libc::sigset_t {
    let mut set = MaybeUninit::uninit();
    // SAFETY: sigemptyset initialises the whole set, and sigaddset changes an initialised one.
    unsafe {
        libc::sigemptyset(set.as_mut_ptr());
        for signal in signals {
            libc::sigaddset(set.as_mut_ptr(), *signal);
        }
        set.assume_init()
    }
}
