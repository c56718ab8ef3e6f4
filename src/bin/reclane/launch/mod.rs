//! `reclane launch`: servers and clients from one command.
//!
//! What to start is decided by pure functions ([`topology`], [`plan`]); [`supervise`] starts, watches and stops it.

mod plan;
mod process;
mod shell;
mod signals;
mod supervise;
#[cfg(test)]
mod tests;
mod topology;

use reclane::error::{Error, Result, Status};
use reclane::options::look_up;
use std::net::{TcpListener, UdpSocket};
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::Duration;

/// Start servers and clients, wait for the clients, stop the servers.
///
/// There are two topologies, and they do not mix. Generic: --server-shard-ips, --client-ips, --client-processes-per-ip.
/// RC, all on this host: --server-count, --client-count, --thread-num. Without any of them: one server and one client here.
///
/// Each process gets its number, the counts, the control plane's address and the namespace as flags, and a log of its own.
/// All are stopped when a client fails, when a server ends early, and when the command is interrupted. The exit code is 0,
/// that of the first process that failed, 124 when the clients took too long, 2 when nothing was started, or 128 + signal.
#[derive(clap::Args, Debug, Clone)]
#[command(after_help = crate::options::LISTED)]
pub struct Arguments {
    /// Generic: the hosts of the servers, one per shard, separated by commas.
    #[arg(long, value_delimiter = ',')]
    pub server_shard_ips: Vec<String>,
    /// Generic: the hosts of the clients, separated by commas.
    #[arg(long, value_delimiter = ',')]
    pub client_ips: Vec<String>,
    /// Generic: clients on each of them [default: 1].
    #[arg(long)]
    pub client_processes_per_ip: Option<u32>,
    /// Generic: poll threads of each server.
    #[arg(long)]
    pub server_rdma_threads: Option<u32>,
    /// Generic: how processes are started [default: local].
    #[arg(long, value_enum)]
    pub execution_backend: Option<Backend>,
    /// RC: number of servers [default: 1].
    #[arg(long)]
    pub server_count: Option<u32>,
    /// RC: number of clients [default: 1].
    #[arg(long)]
    pub client_count: Option<u32>,
    /// RC: poll threads of each server [default: 1].
    #[arg(long)]
    pub thread_num: Option<u32>,

    /// The servers' command line. Quotes group words; nothing else is expanded.
    #[arg(long, default_value = "reclane_ps_server")]
    pub server_cmd: String,
    /// The clients' command line.
    #[arg(long, default_value = "reclane_ps_bench")]
    pub client_cmd: String,
    /// How clients get what they need to know: as flags, or as RECLANE_ variables for clients that read the environment
    /// alone.
    #[arg(long, value_enum, default_value = "flags")]
    pub client_entry: ClientEntry,
    /// Flags for servers and clients alike, after `--`.
    #[arg(last = true)]
    pub flags: Vec<String>,

    /// Where shard 0 serves the control plane [default: the first server's host].
    #[arg(long, visible_alias = "control-plane-host")]
    pub rdma_control_plane_host: Option<String>,
    /// Its port [default: a free one].
    #[arg(long, visible_alias = "control-plane-port")]
    pub rdma_control_plane_port: Option<u16>,
    /// Keeps runs apart; `auto` makes a new one.
    #[arg(long, visible_alias = "namespace", default_value = "auto")]
    pub rdma_namespace: String,

    /// Directory of the logs, one per process [default: reclane-logs/<namespace>].
    #[arg(long)]
    pub log_dir: Option<PathBuf>,
    /// Copy this process's log to standard output as it grows, for example client-0.
    #[arg(long)]
    pub follow: Option<String>,
    /// Seconds that clients may take; 0: no limit.
    #[arg(long, default_value_t = 0)]
    pub client_timeout: u64,
    /// Milliseconds that processes get to stop before they are killed.
    #[arg(long, default_value_t = 10_000)]
    pub grace_ms: u64,
}

/// How processes are started.
#[derive(clap::ValueEnum, Clone, Copy, PartialEq, Eq, Debug)]
pub enum Backend {
    /// On this host.
    Local,
    /// By ssh.
    Ssh,
}

/// How clients are told what they need to know.
#[derive(clap::ValueEnum, Clone, Copy, PartialEq, Eq, Debug)]
pub enum ClientEntry {
    /// As flags.
    Flags,
    /// As environment variables.
    Environment,
}

/// Exit code when nothing was started.
const USAGE: u8 = 2;

pub fn run(arguments: &Arguments) -> ExitCode {
    match prepare(arguments).and_then(|(plan, run)| supervise::run(&plan, &run)) {
        Ok(code) => ExitCode::from(code),
        Err(error) => {
            eprintln!("reclane launch: {}", error.message);
            ExitCode::from(USAGE)
        }
    }
}

/// Everything that depends on this machine: free ports, programs, directories.
fn prepare(arguments: &Arguments) -> Result<(Vec<plan::Process>, supervise::Run)> {
    let topology = topology::of(arguments)?;
    let local = topology.backend == Backend::Local;
    if local {
        for host in topology.servers.iter().chain(&topology.clients) {
            require_local(host)?;
        }
    }
    let namespace = match arguments.rdma_namespace.as_str() {
        "auto" => format!("launch-{}-{:x}", std::process::id(), reclane::time::unix_us()),
        given => given.to_owned(),
    };
    let host = arguments.rdma_control_plane_host.clone().unwrap_or_else(|| topology.first_server());
    let port = match arguments.rdma_control_plane_port {
        Some(port) => port,
        None => free_port(if local { &host } else { "0.0.0.0" })?,
    };
    let (mut server, mut client) = (shell::split(&arguments.server_cmd)?, shell::split(&arguments.client_cmd)?);
    if local {
        server[0] = find_program(&server[0], "--server-cmd")?;
        client[0] = find_program(&client[0], "--client-cmd")?;
    }
    let log_dir = arguments.log_dir.clone().unwrap_or_else(|| Path::new("reclane-logs").join(&namespace));
    let commands = plan::Commands { server, client, entry: arguments.client_entry, flags: arguments.flags.clone() };
    let meeting = plan::Meeting { host, port, namespace };
    let processes = plan::of(&topology, &commands, &meeting)?;
    if let Some(wanted) = &arguments.follow
        && processes.iter().all(|process| process.name() != *wanted)
    {
        let names: Vec<String> = processes.iter().map(plan::Process::name).collect();
        return Err(refuse(format!("--follow={wanted} names no process; there are {}", names.join(", "))));
    }
    std::fs::create_dir_all(&log_dir)
        .map_err(|source| Error::os(format_args!("creating the log directory {}", log_dir.display()), &source))?;
    let run = supervise::Run {
        log_dir,
        member_flags: member_flags(&meeting, &arguments.flags),
        follow: arguments.follow.clone(),
        client_timeout: (arguments.client_timeout > 0).then(|| Duration::from_secs(arguments.client_timeout)),
        grace: Duration::from_millis(arguments.grace_ms),
    };
    Ok((processes, run))
}

/// What `reclane status` and `reclane top` must be told to see this run.
fn member_flags(meeting: &plan::Meeting, flags: &[String]) -> Vec<String> {
    const SEEN_WITH: [&str; 4] = ["deployment-id", "deployment-epoch", "control-plane-token-file", "metrics-directory"];
    let mut words = vec![
        format!("--rdma-control-plane-host={}", meeting.host),
        format!("--rdma-control-plane-port={}", meeting.port),
        format!("--rdma-namespace={}", meeting.namespace),
    ];
    // Others are the programs' own, or say nothing of where the run is found.
    let is_seen_with = |flag: &&String| {
        let name = flag.split('=').next().unwrap_or_default();
        look_up(name).is_ok_and(|spec| SEEN_WITH.contains(&spec.name))
    };
    words.extend(flags.iter().filter(is_seen_with).cloned());
    words
}

fn refuse(message: impl Into<String>) -> Box<Error> {
    Error::new(Status::InvalidArgument, message)
}

/// With the local backend every host must be this one, or the run would not be what was asked for.
fn require_local(host: &str) -> Result<()> {
    UdpSocket::bind((host, 0)).map(drop).map_err(|source| {
        refuse(format!("host {host} is not this machine ({source}); use --execution-backend=ssh to start there"))
    })
}

/// A port that was free a moment ago. Another process may take it before shard 0 does; then shard 0 says so.
fn free_port(host: &str) -> Result<u16> {
    let listener = TcpListener::bind((host, 0))
        .map_err(|source| Error::os(format_args!("looking for a free port on {host}"), &source))?;
    let address = listener.local_addr().map_err(|source| Error::os("asking for the free port's number", &source))?;
    Ok(address.port())
}

/// A name with a slash is a path; another one is looked for beside this program and then in PATH.
fn find_program(name: &str, flag: &str) -> Result<String> {
    let is_file = |path: &Path| path.is_file().then(|| path.to_string_lossy().into_owned());
    if name.contains('/') {
        return is_file(Path::new(name)).ok_or_else(|| refuse(format!("{flag}: there is no file {name}")));
    }
    let beside = std::env::current_exe().ok().and_then(|me| is_file(&me.with_file_name(name)));
    let in_path = || {
        let path = std::env::var_os("PATH")?;
        std::env::split_paths(&path).find_map(|directory| is_file(&directory.join(name)))
    };
    beside
        .or_else(in_path)
        .ok_or_else(|| refuse(format!("{flag}: there is no program {name} beside this one or in PATH; give its path")))
}
