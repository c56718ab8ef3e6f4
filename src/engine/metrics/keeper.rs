//! The thread that keeps numbers: brings gauges up to date, writes profile lines, and answers Prometheus.
//!
//! One for each client and shard whose requests are counted; without that it is not started. A scraper that is slow or
//! sends nonsense costs itself its connection, and this thread a second at most.

use super::{Source, text};
use crate::error::{Error, Result};
use crate::observe::layout::place;
use crate::observe::profile::{Profile, write};
use crate::observe::{Level, events, http};
use crate::options::Settings;
use crate::sync::{Arc, Ordering};
use crate::thread::start;
use crate::time::{Tick, now};
use core::time::Duration;
use std::collections::BTreeMap;
use std::io::Write;
use std::net::TcpListener;
use std::os::fd::AsRawFd;
use std::os::unix::net::UnixStream;
use std::thread::JoinHandle;

/// How often gauges are brought up to date.
const REFRESH: Duration = Duration::from_secs(1);

/// The thread. Dropped, it ends.
pub(in crate::engine) struct Keeper {
    bell: UnixStream,
    thread: Option<JoinHandle<()>>,
    port: Option<u16>,
}

impl core::fmt::Debug for Keeper {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.debug_struct("Keeper").field("port", &self.port).finish_non_exhaustive()
    }
}

impl Keeper {
    /// Starts it over a source.
    ///
    /// # Errors
    /// `OsError` when the port cannot be had, or no thread.
    pub(in crate::engine) fn start(settings: &Settings, source: Arc<dyn Source>) -> Result<Keeper> {
        let listener = match settings.metrics_port {
            None => None,
            Some(port) => Some(listen(&settings.metrics_host, u16::try_from(port).unwrap_or(0))?),
        };
        let port = listener.as_ref().map(|(_, port)| *port);
        let os = |source: &std::io::Error| Error::os("making a socket pair for the metrics thread", source);
        let (bell, heard) = UnixStream::pair().map_err(|source| os(&source))?;
        source.page().head(place::PORT).store(u64::from(port.unwrap_or(0)), Ordering::Relaxed);
        if let Some(port) = port {
            crate::event!(Level::INFO, events::METRICS_LISTENING, host = settings.metrics_host, port);
        }
        source.refresh();
        let interval = (settings.profile_interval_ms > 0).then(|| Duration::from_millis(settings.profile_interval_ms));
        let thread = start("reclane-metrics", move || {
            let listener = listener.map(|(listener, _)| listener);
            keep(&*source, listener.as_ref(), &heard, interval);
        })?;
        Ok(Keeper { bell, thread: Some(thread), port })
    }

    /// The port of the metrics over HTTP.
    pub(in crate::engine) fn port(&self) -> Option<u16> {
        self.port
    }
}

impl Drop for Keeper {
    fn drop(&mut self) {
        // An end that cannot be told is seen by the other side's end of the pair, which is dropped with this value.
        let _ = self.bell.write_all(&[1]);
        let _ = self.bell.shutdown(std::net::Shutdown::Both);
        if let Some(thread) = self.thread.take() {
            // A panic of that thread was reported by its own hook; there is nothing left to save here.
            let _ = thread.join();
        }
    }
}

fn listen(host: &str, port: u16) -> Result<(TcpListener, u16)> {
    let failed = |source: &std::io::Error| {
        let what =
            format!("metrics-host={host} metrics-port={port}: cannot listen; choose another port or `auto` for none");
        Error::os(what, source)
    };
    let listener = TcpListener::bind((host, port)).map_err(|source| failed(&source))?;
    listener.set_nonblocking(true).map_err(|source| failed(&source))?;
    let port = listener.local_addr().map_err(|source| failed(&source))?.port();
    Ok((listener, port))
}

/// Until it is told to end.
fn keep(source: &dyn Source, listener: Option<&TcpListener>, bell: &UnixStream, interval: Option<Duration>) {
    let mut profiles = BTreeMap::new();
    let (mut refresh, mut print) = (now().after(REFRESH), interval.map(|every| now().after(every)));
    loop {
        let due = print.map_or(refresh, |print| print.min(refresh));
        match wait(listener, bell, due) {
            Woken::Told => break,
            Woken::Called => {
                if let Some(Ok((connection, _))) = listener.map(TcpListener::accept) {
                    http::answer(connection, || text(source));
                }
            }
            Woken::Due => {}
        }
        if now() >= refresh {
            source.refresh();
            refresh = now().after(REFRESH);
        }
        if print.is_some_and(|print| now() >= print) {
            tell(source, &mut profiles);
            print = interval.map(|every| now().after(every));
        }
    }
    // What was counted since the last lines would be lost otherwise.
    if interval.is_some() {
        tell(source, &mut profiles);
    }
    source.refresh();
}

/// Writes a line for each component that the source has.
fn tell(source: &dyn Source, profiles: &mut BTreeMap<usize, Profile>) {
    for (index, totals) in source.totals().into_iter().enumerate() {
        let profile = profiles.entry(index).or_insert_with(|| Profile::new(totals.component));
        write(&profile.line(totals.counters, &totals.head));
    }
}

enum Woken {
    Told,
    Called,
    Due,
}

fn wait(listener: Option<&TcpListener>, bell: &UnixStream, due: Tick) -> Woken {
    let watched = |descriptor: libc::c_int| libc::pollfd { fd: descriptor, events: libc::POLLIN, revents: 0 };
    let mut both = [watched(bell.as_raw_fd()), watched(listener.map_or(-1, AsRawFd::as_raw_fd))];
    let timeout_ms = libc::c_int::try_from(due.remaining().as_millis()).unwrap_or(libc::c_int::MAX).saturating_add(1);
    // SAFETY: two live pollfds; a negative descriptor is passed over.
    unsafe { libc::poll(both.as_mut_ptr(), 2, timeout_ms) };
    match both {
        [bell, _] if bell.revents != 0 => Woken::Told,
        [_, listener] if listener.revents != 0 => Woken::Called,
        _ => Woken::Due,
    }
}
