//! The event loop of a control-plane thread.

use crate::error::{Error, Result};
use tokio::runtime::{Builder, Runtime};

/// A runtime that works on the calling thread. Only name look-ups use a second, short-lived thread.
pub(super) fn event_loop(name: &str) -> Result<Runtime> {
    Builder::new_current_thread()
        .enable_io()
        .enable_time()
        .thread_name(name)
        .max_blocking_threads(1)
        .build()
        .map_err(|source| Error::os(format_args!("cannot start the event loop of {name}"), &source))
}
