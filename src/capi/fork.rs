//! Tells a forked child from the process that opened the handles: one flag, set by a fork handler, no system call.

use crate::error::{Error, Result, Status};
use crate::sync::{AtomicBool, OnceLock, Ordering};

static FORKED: AtomicBool = AtomicBool::new(false);

extern "C" fn in_child() {
    // Relaxed: the child has one thread, and it is the one that reads the flag.
    FORKED.store(true, Ordering::Relaxed);
}

/// Starts to watch for forks. Called before the first thread of the library starts; a child forked earlier is as good
/// as a fresh process.
pub(super) fn watch() -> Result<()> {
    static WATCH: OnceLock<i32> = OnceLock::new();
    // SAFETY: the handler is a function that lives as long as the library, which is never unloaded (`-z nodelete`).
    let code = *WATCH.get_or_init(|| unsafe { libc::pthread_atfork(None, None, Some(in_child)) });
    if code == 0 {
        return Ok(());
    }
    Err(Error::os("pthread_atfork", &std::io::Error::from_raw_os_error(code)))
}

/// Whether this process was forked from one that had opened a client or a server.
#[inline]
pub(super) fn is_child() -> bool {
    FORKED.load(Ordering::Relaxed)
}

/// Refuses work in a forked child.
#[inline]
pub(super) fn check() -> Result<()> {
    if is_child() { Err(refusal()) } else { Ok(()) }
}

#[cold]
fn refusal() -> Box<Error> {
    Error::new(
        Status::Forked,
        "this process was forked from one that had opened a client or a server; it may only exec, or use a library \
         loaded afresh",
    )
}
