//! Starts the processes, waits for the clients, stops the servers. Whatever happens, nothing survives.

use super::plan::{Process, Role};
use super::process::{Running, verdict};
use super::shell::quoted;
use super::signals::{Arrival, Signals};
use reclane::error::Result;
use reclane::time::{self, Tick};
use std::fs::File;
use std::io::{Read, Write};
use std::path::{Path, PathBuf};
use std::time::Duration;

/// How often logs are copied and clocks looked at; ends of processes are noticed at once.
const TICK: Duration = Duration::from_millis(50);
/// Lines of the log shown for the process that failed.
const LAST_LINES: usize = 20;
/// Bytes of the log that these lines are taken from.
const LAST_BYTES: usize = 16 * 1024;
const TIMEOUT_CODE: u8 = 124;

/// How the run goes.
pub struct Run {
    /// Directory of the logs.
    pub log_dir: PathBuf,
    /// What a look at the run takes behind `--`.
    pub member_flags: Vec<String>,
    /// The process whose log is copied to standard output.
    pub follow: Option<String>,
    /// Most time for the clients.
    pub client_timeout: Option<Duration>,
    /// Time to stop before being killed.
    pub grace: Duration,
}

/// Why the run ended.
enum End {
    /// Every client ended with 0.
    Done,
    /// This process failed.
    Failed { index: usize, code: u8, what: String },
    /// A signal to us.
    Interrupted(i32),
    /// The clients' time is over.
    TimedOut(Duration),
}

/// Runs to the end and gives the exit code: 0, the first failing process's, or 128 + signal.
pub fn run(plan: &[Process], run: &Run) -> Result<u8> {
    let signals = Signals::block()?;
    // Dropping the vector kills what was started, should a later start fail.
    let mut processes = Vec::with_capacity(plan.len());
    for process in plan {
        processes.push(Running::start(process, &run.log_dir)?);
    }
    introduce(plan, run);
    let mut follower = run.follow.as_ref().and_then(|wanted| {
        let process = processes.iter().find(|process| process.plan.name() == *wanted)?;
        File::open(&process.log).ok()
    });
    let deadline = run.client_timeout.map(|timeout| (time::now().after(timeout), timeout));
    let end = watch(&mut processes, &signals, deadline, &mut follower);
    let stopped = stop(&mut processes, &signals, run.grace, &mut follower);
    copy(&mut follower);
    Ok(report(end, stopped, &processes, &run.log_dir))
}

/// Says how to watch what was started.
fn introduce(plan: &[Process], run: &Run) {
    let servers = plan.iter().filter(|process| matches!(process.role, Role::Server(_))).count();
    let (clients, logs) = (plan.len() - servers, run.log_dir.display());
    let command = std::env::args().next().unwrap_or_else(|| "reclane".to_owned());
    let flags: Vec<String> = run.member_flags.iter().map(|flag| quoted(flag)).collect();
    eprintln!("reclane launch: started; servers: {servers}, clients: {clients}");
    eprintln!("reclane launch: logs: {logs}/server-N.log, {logs}/client-N.log");
    for (what, action) in [("look once", "status"), ("watch", "top")] {
        eprintln!("reclane launch: {what}: {} {action} -- {}", quoted(&command), flags.join(" "));
    }
}

fn watch(
    processes: &mut [Running],
    signals: &Signals,
    deadline: Option<(Tick, Duration)>,
    follower: &mut Option<File>,
) -> End {
    loop {
        let mut clients_left = 0;
        for (index, process) in processes.iter_mut().enumerate() {
            let is_client = matches!(process.plan.role, Role::Client(_));
            match process.ended() {
                None => clients_left += usize::from(is_client),
                Some(status) if is_client && status.success() => {}
                Some(status) => {
                    let (code, what) = verdict(status);
                    let early = if is_client { "" } else { " while clients were running" };
                    return End::Failed { index, code: code.max(1), what: format!("{what}{early}") };
                }
            }
        }
        copy(follower);
        if clients_left == 0 {
            return End::Done;
        }
        if let Some((deadline, timeout)) = deadline
            && time::now() >= deadline
        {
            return End::TimedOut(timeout);
        }
        if let Arrival::Stop(signal) = signals.next(TICK) {
            return End::Interrupted(signal);
        }
    }
}

/// Stops clients first, then servers, and kills what does not stop in time; a second interruption kills at once. Gives the
/// first process that did not stop well.
fn stop(
    processes: &mut [Running],
    signals: &Signals,
    grace: Duration,
    follower: &mut Option<File>,
) -> Option<(usize, u8, String)> {
    let mut first_bad = None;
    for servers in [false, true] {
        let mut stopping: Vec<usize> = Vec::new();
        for (index, process) in processes.iter_mut().enumerate() {
            if matches!(process.plan.role, Role::Server(_)) == servers && process.ended().is_none() {
                process.ask_to_stop();
                stopping.push(index);
            }
        }
        let deadline = time::now().after(grace);
        let mut impatient = false;
        while stopping.iter().any(|index| processes[*index].ended().is_none()) {
            if impatient || time::now() >= deadline {
                break;
            }
            copy(follower);
            impatient = matches!(signals.next(TICK), Arrival::Stop(_));
        }
        for index in stopping {
            let bad = match processes[index].ended() {
                None => Some((1, format!("did not stop within {} ms and was killed", grace.as_millis()))),
                Some(status) if status.success() || verdict(status).0 == term_code() => None,
                Some(status) => Some((verdict(status).0, format!("{} when asked to stop", verdict(status).1))),
            };
            if let (Some((code, what)), None) = (bad, &first_bad) {
                first_bad = Some((index, code, what));
            }
        }
        for process in processes.iter_mut().filter(|p| matches!(p.plan.role, Role::Server(_)) == servers) {
            process.kill();
        }
    }
    first_bad
}

/// What a process shows that has no handler for the request to stop.
fn term_code() -> u8 {
    u8::try_from(128 + libc::SIGTERM).unwrap_or(u8::MAX)
}

fn report(end: End, stopped: Option<(usize, u8, String)>, processes: &[Running], log_dir: &Path) -> u8 {
    match end {
        End::Done => match stopped {
            None => {
                eprintln!("reclane launch: every client ended with code 0; logs are in {}", log_dir.display());
                0
            }
            Some((index, code, what)) => failed(&processes[index], code, &what),
        },
        End::Failed { index, code, what } => failed(&processes[index], code, &what),
        End::Interrupted(signal) => {
            eprintln!("reclane launch: interrupted by signal {signal}; logs are in {}", log_dir.display());
            u8::try_from(128 + signal).unwrap_or(u8::MAX)
        }
        End::TimedOut(timeout) => {
            eprintln!(
                "reclane launch: the clients did not end within {} s; logs are in {}",
                timeout.as_secs(),
                log_dir.display()
            );
            TIMEOUT_CODE
        }
    }
}

fn failed(process: &Running, code: u8, what: &str) -> u8 {
    eprintln!("reclane launch: {} {what}; the end of {}:", process.plan.name(), process.log.display());
    let log = std::fs::read(&process.log).unwrap_or_default();
    let tail = String::from_utf8_lossy(&log[log.len().saturating_sub(LAST_BYTES)..]).into_owned();
    let lines: Vec<&str> = tail.lines().collect();
    for line in &lines[lines.len().saturating_sub(LAST_LINES)..] {
        eprintln!("    {line}");
    }
    code
}

/// Copies what the followed log has grown by.
fn copy(follower: &mut Option<File>) {
    let Some(file) = follower else { return };
    let mut text = Vec::new();
    if file.read_to_end(&mut text).is_ok() && !text.is_empty() {
        let mut output = std::io::stdout().lock();
        // Nobody may be reading any more; the run goes on.
        let _ = output.write_all(&text).and_then(|()| output.flush());
    }
}
