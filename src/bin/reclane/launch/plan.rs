//! The command line of each process, as plain values.

use super::shell;
use super::topology::Topology;
use super::{Backend, ClientEntry, refuse};
use reclane::error::Result;
use std::fmt;

/// What a process is.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Role {
    /// Serves this shard.
    Server(u32),
    /// The client with this number.
    Client(u32),
}

impl fmt::Display for Role {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Role::Server(shard) => write!(f, "server-{shard}"),
            Role::Client(client) => write!(f, "client-{client}"),
        }
    }
}

/// The command lines that were given.
pub struct Commands {
    /// Words of the servers'.
    pub server: Vec<String>,
    /// Words of the clients'.
    pub client: Vec<String>,
    /// How clients are told what they need to know.
    pub entry: ClientEntry,
    /// Flags for both.
    pub flags: Vec<String>,
}

/// Where the processes meet.
pub struct Meeting {
    /// Host of the control plane.
    pub host: String,
    /// Port of the control plane.
    pub port: u16,
    /// Namespace of the run.
    pub namespace: String,
}

/// One process to start on this machine: the program itself, or the ssh that starts it elsewhere.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Process {
    /// What it is.
    pub role: Role,
    /// Program and arguments.
    pub words: Vec<String>,
    /// Variables added to the environment.
    pub environment: Vec<(String, String)>,
    /// Whether it lives as long as its standard input is open: the hold that we have on a process of another machine.
    pub held_by_input: bool,
}

impl Process {
    /// The role's name, also of the log.
    pub fn name(&self) -> String {
        self.role.to_string()
    }
}

/// All processes, servers first.
pub fn of(topology: &Topology, commands: &Commands, meeting: &Meeting) -> Result<Vec<Process>> {
    if commands.server.is_empty() || commands.client.is_empty() {
        return Err(refuse("--server-cmd and --client-cmd name a program each"));
    }
    let mut processes = Vec::with_capacity(topology.servers.len() + topology.clients.len());
    for (shard, host) in (0_u32..).zip(&topology.servers) {
        let mut words = commands.server.clone();
        words.extend(flags(&identity(topology, meeting, shard)));
        words.extend(topology.server_threads.clone());
        words.extend(commands.flags.iter().cloned());
        processes.push(placed(topology.backend, host, Role::Server(shard), words, Vec::new()));
    }
    let servers = u32::try_from(topology.servers.len()).unwrap_or(u32::MAX);
    for (client, host) in (0_u32..).zip(&topology.clients) {
        let mut words = commands.client.clone();
        let identity = identity(topology, meeting, servers + client);
        let mut environment = Vec::new();
        match commands.entry {
            ClientEntry::Flags => words.extend(flags(&identity)),
            ClientEntry::Environment => environment = variables(identity),
        }
        words.extend(commands.flags.iter().cloned());
        processes.push(placed(topology.backend, host, Role::Client(client), words, environment));
    }
    Ok(processes)
}

/// What every process must know: option names and values.
fn identity(topology: &Topology, meeting: &Meeting, global_id: u32) -> Vec<(&'static str, String)> {
    vec![
        ("global_id", global_id.to_string()),
        ("num_server_processes", topology.servers.len().to_string()),
        ("num_client_processes", topology.clients.len().to_string()),
        ("rdma_control_plane_host", meeting.host.clone()),
        ("rdma_control_plane_port", meeting.port.to_string()),
        ("rdma_namespace", meeting.namespace.clone()),
    ]
}

fn flags(identity: &[(&'static str, String)]) -> impl Iterator<Item = String> {
    identity.iter().map(|(name, value)| format!("--{name}={value}"))
}

fn variables(identity: Vec<(&'static str, String)>) -> Vec<(String, String)> {
    identity.into_iter().map(|(name, value)| (format!("RECLANE_{}", name.to_ascii_uppercase()), value)).collect()
}

fn placed(backend: Backend, host: &str, role: Role, words: Vec<String>, environment: Vec<(String, String)>) -> Process {
    match backend {
        Backend::Local => Process { role, words, environment, held_by_input: false },
        Backend::Ssh => {
            let words = shell::ssh(host, &words, &environment);
            Process { role, words, environment: Vec::new(), held_by_input: true }
        }
    }
}
