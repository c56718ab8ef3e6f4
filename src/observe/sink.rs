//! Where events go, and for how long.

use super::callback::{Callback, CallbackSink};
use super::record::EventRecord;
use super::{events, recent, subscriber};
use crate::error::{Error, Result};
use crate::options::LogLevel;
use crate::sync::{Arc, Mutex, lock};
use core::fmt;
use std::fs::OpenOptions;
use std::io::Write;
use std::path::PathBuf;
use tracing::level_filters::LevelFilter;
use tracing_appender::non_blocking::{ErrorCounter, NonBlocking, NonBlockingBuilder, WorkerGuard};

/// Where events go.
pub enum Sink {
    /// Nowhere.
    None,
    /// Standard error, written by a thread of its own.
    Stderr,
    /// The end of this file, written by a thread of its own.
    File(PathBuf),
    /// The host's function, called from one thread of ours: it may block, and it must not close what it logs for.
    Callback(Callback),
}

impl fmt::Debug for Sink {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Sink::None => f.write_str("None"),
            Sink::Stderr => f.write_str("Stderr"),
            Sink::File(path) => f.debug_tuple("File").field(path).finish(),
            Sink::Callback(_) => f.write_str("Callback"),
        }
    }
}

impl Sink {
    /// What the option log-file says: empty, `stderr`, or a path.
    #[must_use]
    pub fn from_text(text: &str) -> Sink {
        match text {
            "" => Sink::None,
            "stderr" => Sink::Stderr,
            path => Sink::File(PathBuf::from(path)),
        }
    }
}

/// Keeps a sink installed. Dropping it takes the sink away and waits until everything reported before is written.
#[must_use]
pub struct Guard(Option<Arc<Active>>);

impl fmt::Debug for Guard {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Guard").field("installed", &self.0.is_some()).finish()
    }
}

impl Guard {
    /// Events that this sink lost because its queue was full.
    #[must_use]
    pub fn dropped_events(&self) -> u64 {
        self.0.as_ref().map_or(0, |active| active.dropped())
    }
}

impl Drop for Guard {
    fn drop(&mut self) {
        if let Some(active) = self.0.take() {
            subscriber::remove(&active);
            active.close();
        }
    }
}

/// Adds a sink for events of this level and more important ones.
///
/// # Errors
/// `OsError` when the file cannot be opened or the thread cannot be started.
pub fn install(sink: Sink, level: LogLevel) -> Result<Guard> {
    let filter = match level {
        LogLevel::Off => LevelFilter::OFF,
        LogLevel::Error => LevelFilter::ERROR,
        LogLevel::Warn => LevelFilter::WARN,
        LogLevel::Info => LevelFilter::INFO,
        LogLevel::Debug => LevelFilter::DEBUG,
        LogLevel::Trace => LevelFilter::TRACE,
    };
    let outlet = match sink {
        Sink::None => return Ok(Guard(None)),
        _ if filter == LevelFilter::OFF => return Ok(Guard(None)),
        Sink::Stderr => lines(std::io::stderr()),
        Sink::File(path) => {
            let opened = OpenOptions::new().append(true).create(true).open(&path);
            lines(opened.map_err(|source| Error::os(format_args!("opening the log file {}", path.display()), &source))?)
        }
        Sink::Callback(callback) => Outlet::Callback(CallbackSink::start(callback)?),
    };
    Ok(start(filter, outlet))
}

/// The sink that keeps the last events in memory.
pub(super) fn recent() -> Guard {
    start(LevelFilter::INFO, Outlet::Recent)
}

fn start(filter: LevelFilter, outlet: Outlet) -> Guard {
    let active = Arc::new(Active { filter, outlet: Mutex::new(Some(outlet)) });
    subscriber::add(&active);
    Guard(Some(active))
}

fn lines(target: impl Write + Send + 'static) -> Outlet {
    let builder = NonBlockingBuilder::default().lossy(true).thread_name("reclane-log");
    let (writer, worker) = crate::thread::deaf(|| builder.finish(target));
    let errors = writer.error_counter();
    Outlet::Lines { writer, errors, worker }
}

enum Outlet {
    Lines { writer: NonBlocking, errors: ErrorCounter, worker: WorkerGuard },
    Callback(CallbackSink),
    Recent,
}

/// A sink at work.
pub(super) struct Active {
    pub(super) filter: LevelFilter,
    /// None once closed: a thread that still holds a reference writes nothing more.
    outlet: Mutex<Option<Outlet>>,
}

impl Active {
    pub(super) fn send(&self, event: &EventRecord) {
        match lock(&self.outlet).as_mut() {
            Some(Outlet::Lines { writer, .. }) => write_line(writer, &event.line()),
            Some(Outlet::Callback(sink)) => sink.send(event),
            Some(Outlet::Recent) => recent::push(event),
            None => {}
        }
    }

    /// One line that is no event. Callbacks get events only.
    pub(super) fn send_line(&self, line: &str) -> bool {
        match lock(&self.outlet).as_mut() {
            Some(Outlet::Lines { writer, .. }) => {
                write_line(writer, line);
                true
            }
            _ => false,
        }
    }

    fn dropped(&self) -> u64 {
        match lock(&self.outlet).as_ref() {
            Some(Outlet::Lines { errors, .. }) => errors.dropped_lines() as u64,
            Some(Outlet::Callback(sink)) => sink.dropped(),
            Some(Outlet::Recent) | None => 0,
        }
    }

    fn close(&self) {
        let dropped = self.dropped();
        // Taken out first: the wait for the writer happens with no lock held.
        let outlet = lock(&self.outlet).take();
        if let Some(Outlet::Lines { mut writer, worker, .. }) = outlet {
            if dropped > 0 {
                write_line(&mut writer, &format!("level=warn event={} count={dropped}", events::EVENTS_DROPPED));
            }
            drop(writer);
            drop(worker);
        }
    }
}

/// One write for line and line end, so that lines of several threads do not mix.
fn write_line(writer: &mut NonBlocking, line: &str) {
    let mut bytes = String::with_capacity(line.len() + 1);
    bytes.push_str(line);
    bytes.push('\n');
    // The non-blocking writer counts what it drops and reports no other failure.
    let _ = writer.write_all(bytes.as_bytes());
}
