//! A shard in a process of its own, for workloads: started by the bench, told its options, ended with its input.

use super::CHILD_COMMAND;
use super::host::{end_with_parent, pin};
use reclane::engine::{Client, Server, builtin_store};
use reclane::error::{Error, Result, Status};
use reclane::options::{Options, Settings, Side};
use reclane::sync::Arc;
use std::io::{BufRead, BufReader, Read, Write};
use std::process::{Child, Command, Stdio};

/// The role of the other process.
pub const ROLE: &str = "shard";

/// Options by name, as both ends get them.
pub type Changes = Vec<(String, String)>;

/// Settings of one side.
///
/// # Errors
/// What the options refuse.
pub fn settings(changes: &Changes, side: Side) -> Result<Settings> {
    let mut options = Options::new();
    for (name, value) in changes {
        options.set(name, value)?;
    }
    options.settings(side)
}

/// A running shard.
#[derive(Debug)]
pub struct Shard {
    child: Child,
    /// Options of a client of it.
    pub changes: Changes,
}

impl Shard {
    /// Starts one shard on `cpu` and waits until it is ready.
    ///
    /// # Errors
    /// `OsError` when the process cannot be started, `WrongState` when it ended instead.
    pub fn start(mut changes: Changes, cpu: Option<usize>) -> Result<Shard> {
        let program = std::env::current_exe().map_err(|e| Error::os("finding this program's own file", &e))?;
        let name = format!("bench-{}-{}", std::process::id(), reclane::time::now().0);
        changes.push(("rdma-namespace".to_owned(), name));
        let mut command = Command::new(program);
        command.args([CHILD_COMMAND, ROLE, &cpu.map_or("-".to_owned(), |c| c.to_string())]);
        command.args(changes.iter().map(|(name, value)| format!("{name}={value}")));
        command.stdin(Stdio::piped()).stdout(Stdio::piped());
        let mut child = command.spawn().map_err(|e| Error::os("starting a shard's process", &e))?;
        let mut line = String::new();
        if let Some(output) = child.stdout.take() {
            // A line that does not come is told apart below.
            let _ = BufReader::new(output).read_line(&mut line);
        }
        let Some(port) = line.trim().strip_prefix("port ") else {
            let _ = child.kill();
            let _ = child.wait();
            return Err(Error::new(Status::WrongState, "the shard's process ended before it was ready"));
        };
        changes.push(("rdma-control-plane-port".to_owned(), port.to_owned()));
        Ok(Shard { child, changes })
    }

    /// Opens a client of it.
    ///
    /// # Errors
    /// As [`Client::open`].
    pub fn client(&self) -> Result<Client> {
        self.client_with(&[])
    }

    /// The same with other options.
    ///
    /// # Errors
    /// As [`Client::open`].
    pub fn client_with(&self, changes: &[(&str, &str)]) -> Result<Client> {
        let more = changes.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned()));
        Client::open(&settings(&self.changes.iter().cloned().chain(more).collect(), Side::Client)?)
    }

    /// Takes it off its core, so that it does not disturb what else is measured.
    pub fn hold(&self) {
        self.signal(libc::SIGSTOP);
    }

    /// Lets it go on.
    pub fn resume(&self) {
        self.signal(libc::SIGCONT);
    }

    fn signal(&self, signal: libc::c_int) {
        if let Ok(pid) = libc::pid_t::try_from(self.child.id()) {
            // SAFETY: takes no pointer; the child is not reaped before drop, so the number is not another process's.
            unsafe { libc::kill(pid, signal) };
        }
    }

    /// Memory of the shard's process that is in RAM; None when it cannot be read.
    pub fn resident_bytes(&self) -> Option<u64> {
        let text = std::fs::read_to_string(format!("/proc/{}/statm", self.child.id())).ok()?;
        Some(text.split_whitespace().nth(1)?.parse::<u64>().ok()? * 4096)
    }

    /// CPU time that the shard's process has used so far, in clock ticks of the system; None when it cannot be read.
    pub fn cpu_ticks(&self) -> Option<u64> {
        let text = std::fs::read_to_string(format!("/proc/{}/stat", self.child.id())).ok()?;
        let fields: Vec<&str> = text.rsplit_once(')')?.1.split_whitespace().collect();
        Some(fields.get(11)?.parse::<u64>().ok()? + fields.get(12)?.parse::<u64>().ok()?)
    }
}

impl Drop for Shard {
    fn drop(&mut self) {
        self.resume();
        drop(self.child.stdin.take());
        // It ends with its input; when it does not, the wait is the caller's to see.
        let _ = self.child.wait();
    }
}

/// The other process: serves until its input ends.
///
/// # Errors
/// What the options or the server refuse.
pub fn child(cpu: Option<usize>, arguments: &[String]) -> Result<()> {
    end_with_parent();
    pin(cpu)?;
    let mut changes: Changes = arguments
        .iter()
        .filter_map(|pair| pair.split_once('='))
        .map(|(name, value)| (name.to_owned(), value.to_owned()))
        .collect();
    changes.push(("rdma-control-plane-port".to_owned(), "0".to_owned()));
    let settings = settings(&changes, Side::Server)?;
    let server = Server::start(&settings, Arc::new(builtin_store(&settings)?))?;
    let port = server.control_plane_port().unwrap_or(0);
    let told = writeln!(std::io::stdout(), "port {port}").and_then(|()| std::io::stdout().flush());
    told.map_err(|e| Error::os("telling the port", &e))?;
    let mut rest = Vec::new();
    // The end of the input is the end of the work, whatever came before it.
    let _ = std::io::stdin().read_to_end(&mut rest);
    server.stop(std::time::Duration::from_secs(5))
}
