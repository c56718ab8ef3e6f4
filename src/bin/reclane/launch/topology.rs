//! Which processes run where.

use super::{Arguments, Backend, refuse};
use reclane::error::Result;

const THIS_HOST: &str = "127.0.0.1";
/// As many as the control plane takes.
const SERVERS_MAX: u32 = 4096;
/// More processes than this from one command are a typing mistake.
const CLIENTS_MAX: u32 = 4096;

/// Hosts of all processes; both lists have at least one.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Topology {
    /// Host of each shard.
    pub servers: Vec<String>,
    /// Host of each client.
    pub clients: Vec<String>,
    /// How they are started.
    pub backend: Backend,
    /// The flag that tells servers their number of poll threads.
    pub server_threads: Option<String>,
}

impl Topology {
    /// Address of shard 0's host, without the user that ssh logs in as.
    pub fn first_server(&self) -> String {
        let host = self.servers[0].as_str();
        host.rsplit_once('@').map_or(host, |(_, address)| address).to_owned()
    }
}

/// Reads the arguments of one topology and refuses a mix of both.
pub fn of(arguments: &Arguments) -> Result<Topology> {
    let generic = given(&[
        ("--server-shard-ips", !arguments.server_shard_ips.is_empty()),
        ("--client-ips", !arguments.client_ips.is_empty()),
        ("--client-processes-per-ip", arguments.client_processes_per_ip.is_some()),
        ("--server-rdma-threads", arguments.server_rdma_threads.is_some()),
        ("--execution-backend", arguments.execution_backend.is_some()),
    ]);
    let rc = given(&[
        ("--server-count", arguments.server_count.is_some()),
        ("--client-count", arguments.client_count.is_some()),
        ("--thread-num", arguments.thread_num.is_some()),
    ]);
    match (generic.is_empty(), rc.is_empty()) {
        (false, false) => Err(refuse(format!(
            "{} belong to the generic topology and {} to the RC topology; use one of the two",
            generic.join(", "),
            rc.join(", ")
        ))),
        (true, false) => of_counts(arguments),
        _ => of_hosts(arguments),
    }
}

fn given(flags: &[(&'static str, bool)]) -> Vec<&'static str> {
    flags.iter().filter(|(_, given)| *given).map(|(name, _)| *name).collect()
}

fn of_hosts(arguments: &Arguments) -> Result<Topology> {
    let hosts = |given: &[String], flag| -> Result<Vec<String>> {
        if given.is_empty() {
            return Ok(vec![THIS_HOST.to_owned()]);
        }
        given.iter().map(|host| checked(host, flag)).collect()
    };
    let servers = hosts(&arguments.server_shard_ips, "--server-shard-ips")?;
    let client_hosts = hosts(&arguments.client_ips, "--client-ips")?;
    let per_host = bounded(arguments.client_processes_per_ip, "--client-processes-per-ip", CLIENTS_MAX)?;
    let clients: Vec<String> =
        client_hosts.iter().flat_map(|host| std::iter::repeat_n(host.clone(), per_host as usize)).collect();
    for (count, max, what) in [(servers.len(), SERVERS_MAX, "servers"), (clients.len(), CLIENTS_MAX, "clients")] {
        if count > max as usize {
            return Err(refuse(format!("{count} {what} are more than {max}")));
        }
    }
    Ok(Topology {
        servers,
        clients,
        backend: arguments.execution_backend.unwrap_or(Backend::Local),
        server_threads: arguments.server_rdma_threads.map(|threads| format!("--server_rdma_threads={threads}")),
    })
}

fn of_counts(arguments: &Arguments) -> Result<Topology> {
    let here = |count: u32| vec![THIS_HOST.to_owned(); count as usize];
    Ok(Topology {
        servers: here(bounded(arguments.server_count, "--server-count", SERVERS_MAX)?),
        clients: here(bounded(arguments.client_count, "--client-count", CLIENTS_MAX)?),
        backend: Backend::Local,
        server_threads: arguments.thread_num.map(|threads| format!("--thread_num={threads}")),
    })
}

fn bounded(count: Option<u32>, flag: &str, max: u32) -> Result<u32> {
    match count.unwrap_or(1) {
        count if (1..=max).contains(&count) => Ok(count),
        count => Err(refuse(format!("{flag}={count} is not between 1 and {max}"))),
    }
}

/// A host name, address, or `user@host`: nothing that ssh could take for an option or a shell for syntax.
fn checked(host: &str, flag: &str) -> Result<String> {
    let host = host.trim();
    let legal = |c: char| c.is_ascii_alphanumeric() || "._-:@%[]".contains(c);
    if host.is_empty() || host.starts_with('-') || !host.chars().all(legal) {
        return Err(refuse(format!("{flag}: {host:?} is no host name or address")));
    }
    Ok(host.to_owned())
}
