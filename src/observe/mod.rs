//! What the library tells about itself: events, counters, profile lines.
//!
//! An event is one line of `key=value`. Nothing is written unless somebody asked: [`install`] adds a sink (a file,
//! standard error, or the host's callback), any number of them at a time, and its [`Guard`] takes it away again.
//! Events pass through `tracing` with a dispatcher of our own, so a host that uses `tracing` itself is left alone.
//!
//! No sink ever blocks the thread that reports: lines that do not fit a sink's queue are counted and dropped.

mod callback;
pub mod directory;
pub mod events;
pub mod histogram;
pub mod http;
pub mod layout;
pub mod metrics;
pub mod page;
pub mod profile;
pub mod recent;
mod record;
pub mod sample;
mod sink;
mod subscriber;
#[cfg(test)]
mod tests;

pub use record::EventRecord;
pub use sink::{Guard, Sink, install};
pub use tracing::Level;

/// Used by [`event!`](crate::event): runs `report` so that what it sends through `tracing` reaches our sinks.
pub fn deliver(report: impl FnOnce()) {
    subscriber::deliver(report);
}

/// Reports an event: level, name (a constant of [`events`]), then fields as in `tracing`: `name = value`, `%` before a
/// value for its `Display`, `?` for its `Debug`.
///
/// ```
/// use reclane::observe::{Level, events};
/// reclane::event!(Level::WARN, events::LANE_DIRTY, shard = 0, lane = 3, reason = "wait_timeout");
/// ```
#[macro_export]
macro_rules! event {
    ($level:expr, $name:expr $(, $($fields:tt)*)?) => {
        $crate::observe::deliver(|| {
            $crate::observe::tracing::event!(target: "reclane", $level, event = $name $(, $($fields)*)?);
        })
    };
}

/// For [`event!`](crate::event) alone.
#[doc(hidden)]
pub use tracing;
