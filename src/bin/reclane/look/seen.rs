//! What is seen of a deployment at one moment: the control plane's overview, and the counters files of this host.

use reclane::control::overview::{Happened, Overview};
use reclane::control::{Peer, Spectator};
use reclane::engine::figures_of;
use reclane::error::{Error, Result};
use reclane::observe::directory::{self, Life, Report as FileReport};
use reclane::observe::layout::Role;
use reclane::options::Settings;
use reclane::time::{now, pause, unix_us};
use std::path::{Path, PathBuf};
use std::time::Duration;

/// A report that is older is not believed to be the present state: the process does not answer.
const FRESH: Duration = Duration::from_millis(1500);
/// How long members have to say their numbers.
const ANSWER_TIME: Duration = Duration::from_millis(800);
const LOOK_AGAIN: Duration = Duration::from_millis(20);

/// One process.
#[derive(Clone, Debug)]
pub struct Process {
    pub role: Role,
    pub number: u32,
    /// False: the control plane does not know it.
    pub is_member: bool,
    pub pid: u32,
    pub host: String,
    pub incarnation: u128,
    /// joined, ready, draining; gone.
    pub state: &'static str,
    /// serving, suspect, dead; empty when nothing is known.
    pub health: &'static str,
    pub idle_ms: u64,
    pub figures: Vec<(String, u64)>,
    /// How old the figures are; None: there are none.
    pub age_ms: Option<u64>,
    /// It said them itself, just now.
    pub answers: bool,
    /// The figures are those of its counters file, and what is known of the process by that.
    pub file: Option<(PathBuf, Life)>,
}

impl Process {
    pub fn figure(&self, name: &str) -> Option<u64> {
        self.figures.iter().find(|(known, _)| known == name).map(|(_, value)| *value)
    }

    /// Whether there is nothing to complain of.
    pub fn is_well(&self) -> bool {
        self.is_member && self.answers && matches!(self.health, "" | "serving") && self.state != "gone"
    }
}

/// A deployment at one moment.
#[derive(Debug, Default)]
pub struct Seen {
    pub overview: Option<Overview>,
    /// Why there is no overview.
    pub error: Option<Box<Error>>,
    pub processes: Vec<Process>,
    /// Counters files that cannot be read.
    pub broken: Vec<(PathBuf, Box<Error>)>,
}

impl Seen {
    pub fn of(&self, role: Role) -> impl Iterator<Item = &Process> {
        self.processes.iter().filter(move |process| process.role == role)
    }

    pub fn events(&self) -> &[Happened] {
        self.overview.as_ref().map_or(&[], |overview| &overview.events)
    }

    /// Every shard is here and serves, and everybody answers.
    pub fn is_well(&self) -> bool {
        let shards = self.overview.as_ref().map(|overview| overview.num_shards as usize);
        shards == Some(self.of(Role::Server).count()) && self.processes.iter().all(Process::is_well)
    }
}

/// Looks at everything. Members are given a moment to answer.
///
/// # Errors
/// Only what makes looking impossible: a directory that cannot be read.
pub fn look(spectator: &mut Spectator, settings: &Settings) -> Result<Seen> {
    let mut seen = Seen::default();
    match gather(spectator) {
        Ok(overview) => {
            seen.processes = members(&overview);
            seen.overview = Some(overview);
        }
        Err(error) => seen.error = Some(error),
    }
    if !settings.metrics_directory.is_empty() {
        add_files(&mut seen, settings)?;
    }
    let order = |process: &Process| (process.role != Role::Server, process.number);
    seen.processes.sort_by_key(order);
    Ok(seen)
}

/// Asks until every member has answered since the first question, or its time is up.
fn gather(spectator: &mut Spectator) -> Result<Overview> {
    let began = now();
    let mut overview = spectator.look()?;
    loop {
        let waited = Duration::from_nanos(now().since_ns(began));
        let waited_ms = u64::try_from(waited.as_millis()).unwrap_or(u64::MAX);
        let answered = |member: &reclane::control::overview::Seen| {
            member.report.as_ref().is_some_and(|report| report.age_ms < waited_ms.max(1))
        };
        if overview.members.iter().all(answered) || waited >= ANSWER_TIME {
            return Ok(overview);
        }
        pause(LOOK_AGAIN);
        overview = spectator.look()?;
    }
}

fn members(overview: &Overview) -> Vec<Process> {
    let fresh_ms = u64::try_from(FRESH.as_millis()).unwrap_or(u64::MAX);
    let mut all: Vec<Process> = overview
        .members
        .iter()
        .map(|member| {
            let (role, number) = match member.peer {
                Peer::Server(shard) => (Role::Server, shard.0),
                Peer::Client(client) => (Role::Client, client.0),
            };
            let age_ms = member.report.as_ref().map(|report| report.age_ms);
            Process {
                role,
                number,
                is_member: true,
                pid: member.pid,
                host: member.host.clone(),
                incarnation: member.incarnation.0,
                state: member.stage.word(),
                health: member.health.map_or("", |health| health.name()),
                idle_ms: member.idle_ms,
                figures: member.report.as_ref().map(|report| report.figures.clone()).unwrap_or_default(),
                age_ms,
                answers: age_ms.is_some_and(|age| age < fresh_ms),
                file: None,
            }
        })
        .collect();
    for shard in 0..overview.num_shards {
        if !all.iter().any(|process| process.role == Role::Server && process.number == shard) {
            all.push(gone(Role::Server, shard));
        }
    }
    all
}

fn gone(role: Role, number: u32) -> Process {
    Process {
        role,
        number,
        is_member: false,
        pid: 0,
        host: String::new(),
        incarnation: 0,
        state: "gone",
        health: "",
        idle_ms: 0,
        figures: Vec::new(),
        age_ms: None,
        answers: false,
        file: None,
    }
}

/// Whoever does not answer is looked up in its counters file; so is whoever is no member any more.
fn add_files(seen: &mut Seen, settings: &Settings) -> Result<()> {
    let files = match directory::list(Path::new(&settings.metrics_directory)) {
        Ok(files) => files,
        // Nobody has counted there yet.
        Err(error) if error.os_error == libc::ENOENT => return Ok(()),
        Err(error) => return Err(error),
    };
    for (path, read) in files {
        let report = match read {
            Ok(report) => report,
            Err(error) => {
                seen.broken.push((path, error));
                continue;
            }
        };
        if (&report.head.deployment, &report.head.namespace) == (&settings.deployment_id, &settings.namespace) {
            add_file(seen, path, &report);
        }
    }
    Ok(())
}

fn add_file(seen: &mut Seen, path: PathBuf, report: &FileReport) {
    let head = &report.head;
    let age_ms = Some(unix_us().saturating_sub(head.updated_us) / 1000);
    let known = seen.processes.iter_mut().find(|process| process.incarnation == head.incarnation);
    if let Some(process) = known {
        process.file = Some((path, report.life));
        if !process.answers {
            process.figures = figures_of(&report.samples);
            process.age_ms = age_ms;
        }
        return;
    }
    // A shard that is gone has its last numbers in its file.
    let place = |process: &&mut Process| {
        !process.is_member && process.role == head.role && process.number == head.number && process.file.is_none()
    };
    let mut process = gone(head.role, head.number);
    process.pid = head.pid;
    process.host.clone_from(&head.host);
    process.incarnation = head.incarnation;
    process.figures = figures_of(&report.samples);
    process.age_ms = age_ms;
    process.file = Some((path, report.life));
    match seen.processes.iter_mut().find(place) {
        Some(empty) => *empty = process,
        None => seen.processes.push(process),
    }
}
