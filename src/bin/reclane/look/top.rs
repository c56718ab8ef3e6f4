//! `reclane top`.
//!
//! Frames are plain text, and on a terminal they are written over each other with two control sequences that every
//! terminal knows. That is all a live table needs; a library for terminals would bring raw mode, which leaves a broken
//! terminal behind when this program is killed.

use super::fold;
use super::seen::{Process, Seen, look};
use super::status::remark;
use super::table::{Table, microseconds, short};
use super::{settings, spectator};
use reclane::error::Result;
use reclane::observe::layout::Role;
use reclane::options::Settings;
use reclane::time::{Tick, now, pause};
use std::collections::HashMap;
use std::io::{IsTerminal, Write};
use std::process::ExitCode;
use std::time::Duration;

/// Events of a frame.
const EVENTS_SHOWN: usize = 10;

/// Watch a running deployment: shards with their health, clients, lanes by state, rates, latencies, retries, errors, and
/// events as they happen.
///
/// As `reclane status`, again and again. Where standard output is no terminal, frames follow each other. Control-C ends it.
#[derive(clap::Args)]
#[command(after_help = crate::options::LISTED)]
pub struct Arguments {
    /// Milliseconds between two looks.
    #[arg(long, default_value_t = 1000, value_parser = clap::value_parser!(u64).range(50..=3_600_000))]
    interval_ms: u64,
    /// End after so many frames. 0: never.
    #[arg(long, default_value_t = 0)]
    frames: u64,
    /// Options of a member of the deployment, after `--`.
    #[arg(last = true)]
    flags: Vec<String>,
}

pub fn run(arguments: &Arguments) -> ExitCode {
    super::super::finish(watch(arguments))
}

fn watch(arguments: &Arguments) -> Result<()> {
    let settings = settings(&arguments.flags)?;
    let mut spectator = spectator(&settings)?;
    let mut rates = Rates::default();
    for number in 1_u64.. {
        let begun = now();
        let seen = look(&mut spectator, &settings)?;
        rates.take(&seen, now());
        if !show(&frame(&seen, &settings, &rates, height())) || number == arguments.frames {
            break;
        }
        pause(begun.after(Duration::from_millis(arguments.interval_ms)).remaining());
    }
    Ok(())
}

/// Writes a frame; false when nobody reads.
fn show(lines: &[String]) -> bool {
    let out = std::io::stdout();
    let (before, after) = if out.is_terminal() { ("\x1b[H\x1b[J", "") } else { ("", "\n") };
    let width = size().map_or(usize::MAX, |(columns, _)| columns);
    let cut = |line: &String| line.chars().take(width).collect::<String>();
    let text = lines.iter().map(cut).collect::<Vec<_>>().join("\n");
    let mut out = out.lock();
    write!(out, "{before}{text}\n{after}").and_then(|()| out.flush()).is_ok()
}

fn height() -> usize {
    size().map_or(usize::MAX, |(_, rows)| rows.saturating_sub(1).max(5))
}

/// Columns and rows of the terminal, where there is one.
fn size() -> Option<(usize, usize)> {
    // SAFETY: the struct is ours, and all zeros is a value of it.
    let mut size = unsafe { core::mem::zeroed::<libc::winsize>() };
    // SAFETY: a plain system call that fills the struct.
    let done = unsafe { libc::ioctl(libc::STDOUT_FILENO, libc::TIOCGWINSZ, &raw mut size) } == 0;
    (done && size.ws_col > 0 && size.ws_row > 0).then_some((size.ws_col as usize, size.ws_row as usize))
}

/// What every process had counted at the last look, and how fast it counts.
#[derive(Default)]
pub struct Rates {
    last: HashMap<u128, (Tick, Vec<(String, u64)>)>,
    per_second: HashMap<(u128, String), u64>,
}

impl Rates {
    fn take(&mut self, seen: &Seen, at: Tick) {
        self.per_second.clear();
        let mut next = HashMap::new();
        for process in &seen.processes {
            if let Some((before, figures)) = self.last.get(&process.incarnation) {
                let ns = u128::from(at.since_ns(*before).max(1));
                for (name, value) in &process.figures {
                    let old = figures.iter().find(|(known, _)| known == name).map_or(0, |(_, old)| *old);
                    let rate = u128::from(value.saturating_sub(old)) * 1_000_000_000 / ns;
                    let rate = u64::try_from(rate).unwrap_or(u64::MAX);
                    self.per_second.insert((process.incarnation, name.clone()), rate);
                }
            }
            next.insert(process.incarnation, (at, process.figures.clone()));
        }
        self.last = next;
    }

    fn of(&self, process: &Process, name: &str) -> String {
        self.per_second.get(&(process.incarnation, name.to_owned())).map_or_else(|| "-".to_owned(), |rate| short(*rate))
    }

    fn are_known(&self) -> bool {
        !self.per_second.is_empty()
    }
}

/// The lines of a frame, at most so many.
pub fn frame(seen: &Seen, settings: &Settings, rates: &Rates, most: usize) -> Vec<String> {
    let mut lines = vec![title(seen, settings)];
    if let Some(error) = &seen.error {
        lines.push(error.message.clone());
    }
    let tables = [shards(seen, rates), ranks(seen, rates), clients(seen, rates)];
    for table in tables.into_iter().filter(|table| !table.is_empty()) {
        lines.push(String::new());
        lines.extend(table.lines());
    }
    for (path, error) in &seen.broken {
        lines.push(format!("unreadable: {}: {}", path.display(), error.message));
    }
    let events = fold::lines(seen.events());
    if !events.is_empty() {
        lines.push(String::new());
        let first = events.len().saturating_sub(EVENTS_SHOWN);
        lines.extend(events.into_iter().skip(first));
    }
    let cut = lines.len().saturating_sub(most);
    if cut > 0 {
        lines.truncate(most.saturating_sub(1));
        lines.push(format!("... {} more lines", cut + 1));
    }
    lines
}

fn title(seen: &Seen, settings: &Settings) -> String {
    let place = format!("{}:{}", settings.control_plane_host, settings.control_plane_port);
    let who = format!("{}/{}", settings.deployment_id, settings.namespace);
    match &seen.overview {
        Some(overview) => format!(
            "reclane {who} at {place}  epoch {}  {} of {} shards  {} clients",
            overview.epoch,
            seen.of(Role::Server).filter(|process| process.is_member).count(),
            overview.num_shards,
            seen.of(Role::Client).filter(|process| process.is_member).count()
        ),
        None => format!("reclane {who} at {place}: no control plane"),
    }
}

fn number(process: &Process, name: &str) -> String {
    process.figure(name).map_or_else(|| "-".to_owned(), short)
}

fn latency(process: &Process, name: &str) -> String {
    process.figure(name).filter(|ns| *ns > 0).map_or_else(|| "-".to_owned(), microseconds)
}

/// A rate where there is one, else the total.
fn counted(process: &Process, rates: &Rates, name: &str) -> String {
    if rates.are_known() { rates.of(process, name) } else { number(process, name) }
}

/// `name/s` where rates are known.
fn heads(rates: &Rates, names: &[&str]) -> Vec<String> {
    names
        .iter()
        .map(|name| {
            name.strip_suffix("/s")
                .filter(|_| !rates.are_known())
                .map_or_else(|| (*name).to_owned(), |total| format!("{total}S"))
        })
        .collect()
}

fn table(rates: &Rates, names: &[&str]) -> Table {
    let heads = heads(rates, names);
    Table::new(&heads.iter().map(String::as_str).collect::<Vec<_>>())
}

fn shards(seen: &Seen, rates: &Rates) -> Table {
    let heads = [
        "SHARD", "STATE", "HEALTH", "PID", "HOST", "CLIENTS", "LANES", "GET/s", "PUT/s", "UPDATE/s", "P50us", "P99us",
        "REFUSED", "FAILED", "REPEATED", "SLEEP/s", "QUEUED", "EPOCH", "",
    ];
    let mut table = table(rates, &heads);
    for process in seen.of(Role::Server).filter(|process| !is_rank(process)) {
        table.row(vec![
            process.number.to_string(),
            process.state.to_owned(),
            process.health.to_owned(),
            if process.pid == 0 { String::new() } else { process.pid.to_string() },
            process.host.clone(),
            number(process, "clients"),
            number(process, "lanes"),
            counted(process, rates, "gets"),
            counted(process, rates, "puts"),
            counted(process, rates, "updates"),
            latency(process, "get_p50_ns"),
            latency(process, "get_p99_ns"),
            number(process, "refused"),
            number(process, "failed"),
            number(process, "repeated"),
            counted(process, rates, "sleeps"),
            number(process, "queued"),
            number(process, "checkpoint_epoch"),
            remark(process),
        ]);
    }
    table
}

/// The control plane takes ranks for shards of their own deployment; their numbers tell.
fn is_rank(process: &Process) -> bool {
    process.figure("operations").is_some()
}

fn ranks(seen: &Seen, rates: &Rates) -> Table {
    let heads = [
        "RANK", "STATE", "HEALTH", "PID", "HOST", "PEERS", "LANES", "IDLE", "GONE", "GUESTS", "REGIONS", "MiB", "OP/s",
        "BYTE/s", "UNDERWAY", "FAILED", "ONCE/s", "HELD", "",
    ];
    let mut table = table(rates, &heads);
    for process in seen.of(Role::Server).filter(|process| is_rank(process)) {
        table.row(vec![
            process.number.to_string(),
            process.state.to_owned(),
            process.health.to_owned(),
            if process.pid == 0 { String::new() } else { process.pid.to_string() },
            process.host.clone(),
            number(process, "peers"),
            number(process, "lanes_connected"),
            number(process, "lanes_idle"),
            number(process, "lanes_gone"),
            number(process, "guest_lanes"),
            number(process, "regions"),
            process.figure("region_bytes").map_or_else(|| "-".to_owned(), |bytes| (bytes >> 20).to_string()),
            counted(process, rates, "operations"),
            counted(process, rates, "operation_bytes"),
            number(process, "under_way"),
            number(process, "operations_failed"),
            counted(process, rates, "atomics_executed"),
            number(process, "held"),
            remark(process),
        ]);
    }
    table
}

fn clients(seen: &Seen, rates: &Rates) -> Table {
    let heads = [
        "CLIENT",
        "STATE",
        "PID",
        "HOST",
        "ACTIVE",
        "DIRTY",
        "REBUILD",
        "DEAD",
        "SLOTS",
        "HELD",
        "REQUEST/s",
        "GET/s",
        "PUT/s",
        "UPDATE/s",
        "P50us",
        "P99us",
        "RETRIES",
        "FAILED",
        "NOSLOT",
        "",
    ];
    let mut table = table(rates, &heads);
    for process in seen.of(Role::Client) {
        table.row(vec![
            process.number.to_string(),
            process.state.to_owned(),
            process.pid.to_string(),
            process.host.clone(),
            number(process, "lanes_active"),
            number(process, "lanes_dirty"),
            number(process, "lanes_rebuilding"),
            number(process, "lanes_dead"),
            number(process, "slots"),
            number(process, "slots_held"),
            counted(process, rates, "requests"),
            counted(process, rates, "gets"),
            counted(process, rates, "puts"),
            counted(process, rates, "updates"),
            latency(process, "get_p50_ns"),
            latency(process, "get_p99_ns"),
            number(process, "retries"),
            number(process, "failed"),
            number(process, "no_slot"),
            remark(process),
        ]);
    }
    table
}
