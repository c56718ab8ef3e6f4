//! What only trying tells: libibverbs, files in memory, the control plane, requests through this host's own fabric.

use super::finding::Finding;
use super::tree::Tree;
use crate::bench::clock::Clock;
use crate::bench::histogram::Histogram;
use crate::bench::workload::{Kind, Run, Table, Workload};
use reclane::engine::{Client, Server, builtin_store};
use reclane::error::{Error, Result};
use reclane::options::{FabricKind, Options, Settings, Side};
use reclane::sync::Arc;
use reclane::time::now;
use serde_json::{Value, json};
use std::ffi::CStr;
use std::io::ErrorKind;
use std::net::{SocketAddr, TcpStream, ToSocketAddrs};
use std::os::fd::{FromRawFd, OwnedFd};
use std::os::unix::fs::PermissionsExt;
use std::time::Duration;

const LIBRARY: &CStr = c"libibverbs.so.1";

/// Whether libibverbs can be loaded, and which drivers it will find.
pub fn library(tree: &Tree, needed: bool) -> Finding {
    let finding = look_for_library(tree, needed);
    if needed { finding } else { finding.not_needed() }
}

fn look_for_library(tree: &Tree, needed: bool) -> Finding {
    let check = "libibverbs";
    // SAFETY: the name is a C string; the library's initialisers are those of rdma-core. It stays open: closing it would
    // run code of drivers for nothing.
    let handle = unsafe { libc::dlopen(LIBRARY.as_ptr(), libc::RTLD_NOW | libc::RTLD_LOCAL) };
    if handle.is_null() {
        return Finding::needed(check, needed, "libibverbs.so.1 cannot be loaded")
            .means("it is opened when this fabric is chosen; nothing else needs it")
            .mend("apt-get install libibverbs1 ibverbs-providers (dnf install libibverbs)");
    }
    let drivers: Vec<String> = tree
        .names("etc/libibverbs.d")
        .iter()
        .filter_map(|name| name.strip_suffix(".driver").map(str::to_owned))
        .collect();
    if drivers.is_empty() {
        return Finding::needed(check, needed, "libibverbs.so.1 is there, and no drivers in /etc/libibverbs.d")
            .means("it finds no device without the driver of the adapter")
            .mend("apt-get install ibverbs-providers");
    }
    Finding::ok(check, format!("libibverbs.so.1 is there, with drivers {}", drivers.join(", ")))
}

/// Whether memory can be shared between processes the way fabric=shm does.
pub fn files_in_memory() -> Finding {
    let check = "memfd";
    // SAFETY: the name is a C string.
    let fd = unsafe { libc::memfd_create(c"reclane-doctor".as_ptr(), libc::MFD_CLOEXEC | libc::MFD_ALLOW_SEALING) };
    if fd < 0 {
        let refused = std::io::Error::last_os_error();
        return Finding::error(check, format!("memfd_create: {refused}"))
            .means("fabric=shm cannot make the memory that it shares")
            .mend("a seccomp filter or vm.memfd_noexec=2 refuses it: sysctl vm.memfd_noexec; --security-opt seccomp=PROFILE in a container");
    }
    // SAFETY: the descriptor is new and nobody else's.
    let owned = unsafe { OwnedFd::from_raw_fd(fd) };
    // SAFETY: no pointers; the descriptor is open.
    let sealed = unsafe { libc::fcntl(fd, libc::F_ADD_SEALS, libc::F_SEAL_SHRINK | libc::F_SEAL_SEAL) } == 0;
    let refused = std::io::Error::last_os_error();
    drop(owned);
    if sealed {
        Finding::ok(check, format!("files in memory can be made and sealed; {}", shared_mount()))
    } else {
        Finding::error(check, format!("a file in memory cannot be sealed: {refused}"))
            .means("fabric=shm shares only memory that cannot shrink")
            .mend("take a kernel of 3.17 or newer, and no filter on fcntl")
    }
}

/// What is said of /dev/shm, which people look at first.
fn shared_mount() -> String {
    // SAFETY: all zero is a value of this struct of numbers.
    let mut status: libc::statvfs = unsafe { core::mem::zeroed() };
    // SAFETY: the path is a C string, and `status` is ours.
    if unsafe { libc::statvfs(c"/dev/shm".as_ptr(), &raw mut status) } != 0 {
        return "there is no /dev/shm, which reclane does not use".to_owned();
    }
    let free = super::needs::human(status.f_bavail.saturating_mul(status.f_frsize));
    format!("they do not lie in /dev/shm ({free} free), whose size does not matter")
}

/// Whether the secret of the deployment can be read, and by whom else.
pub fn token(settings: &Settings) -> Option<Finding> {
    let check = "token file";
    let path = settings.control_plane_token_file.as_str();
    if path.is_empty() {
        return None;
    }
    if let Err(error) = reclane::control::Secret::read(path) {
        return Some(
            Finding::error(check, error.message)
                .means("no server or client can be opened: members are asked for the token")
                .mend(format!("head -c 32 /dev/urandom | base64 > {path}; the same file for all members")),
        );
    }
    let mode = std::fs::metadata(path).map_or(0, |metadata| metadata.permissions().mode() & 0o777);
    let found = format!("control-plane-token-file={path}: a token, mode {mode:o}");
    Some(if mode & 0o077 == 0 {
        Finding::ok(check, found)
    } else {
        Finding::warning(check, found)
            .means("other users of this host can read it and join")
            .mend(format!("chmod 600 {path}"))
    })
}

/// How long an answer of the control plane may take.
const PLANE_TIMEOUT: Duration = Duration::from_secs(3);

/// Whether the control plane that the options name answers. `named`: somebody named it.
pub fn control_plane(settings: &Settings, awaited: bool) -> Finding {
    let check = "control plane";
    let (host, port) = (settings.control_plane_host.as_str(), settings.control_plane_port);
    if port == 0 {
        return Finding::ok(check, "rdma-control-plane-port=0: shard 0 takes any free port");
    }
    let resolved: Vec<SocketAddr> = match (host, port).to_socket_addrs() {
        Ok(addresses) => addresses.collect(),
        Err(error) => {
            return Finding::error(check, format!("rdma-control-plane-host={host}: {error}"))
                .means("no member can find the control plane by this name")
                .mend(format!(
                    "getent hosts {host}; set rdma-control-plane-host to a name or address of shard 0's host"
                ));
        }
    };
    let addresses = resolved.iter().map(|address| address.ip().to_string()).collect::<Vec<_>>().join(", ");
    let refused = |address: &SocketAddr| {
        let tried = TcpStream::connect_timeout(address, PLANE_TIMEOUT);
        tried.is_err_and(|error| error.kind() == ErrorKind::ConnectionRefused)
    };
    if resolved.iter().all(refused) {
        let found = format!("{host}:{port} ({addresses}): nobody listens");
        let finding = if awaited { Finding::warning(check, found) } else { Finding::ok(check, found) };
        return finding
            .means("shard 0, which serves it, does not run there yet, or listens on another address: 127.0.0.1 unless rdma-control-plane-host says otherwise")
            .mend(format!("start shard 0; there: ss -ltnp 'sport = :{port}'"));
    }
    match reclane::control::probe(host, port, PLANE_TIMEOUT) {
        Ok(()) => Finding::ok(check, format!("{host}:{port} ({addresses}) answers")),
        Err(error) => Finding::error(check, error.message)
            .means("the host is off or not reachable, a firewall drops packets, or another program has the port")
            .mend(format!("ping {host}; nc -vz {host} {port}; open TCP port {port} in the firewall")),
    }
}

/// What a loopback measured.
#[derive(Debug)]
struct Measured {
    requests: Histogram,
    scheme: &'static str,
}

/// Bytes of a row.
const ROW_BYTES: usize = 64;
/// Bytes of the table: it stays in the caches.
const TABLE_BYTES: u64 = 64 << 10;
const CHUNK: usize = 500;
const REQUESTS_MAX: usize = 20_000;
/// Stops asking after this, however few it were.
const ENOUGH_NS: u64 = 400_000_000;
/// Above this a round trip over shared memory says that something is in its way.
const SHM_SLOW_NS: u64 = 50_000;

/// A server, a client and a small table in this process: requests go the whole way through the fabric.
fn loopback(settings: &Settings, fabric: FabricKind) -> Result<Measured> {
    let mut options = Options::new();
    let mut changes = vec![
        ("fabric", fabric.word().to_owned()),
        ("rdma-control-plane-port", "0".to_owned()),
        ("rdma-namespace", format!("doctor-{}", std::process::id())),
        ("qps-per-client-per-shard", "2".to_owned()),
        ("rdma-rc-request-slot-bytes", "65536".to_owned()),
        ("rdma-rc-response-slot-bytes", "65536".to_owned()),
        ("value-size", ROW_BYTES.to_string()),
        // Every GET goes through the fabric.
        ("shared-reads", "off".to_owned()),
        ("rdma-wait-timeout-ms", "10000".to_owned()),
        ("rdma-control-plane-timeout-ms", "10000".to_owned()),
    ];
    if fabric == FabricKind::Verbs {
        let gid = settings.gid_index.map_or_else(|| "auto".to_owned(), |index| index.to_string());
        changes.extend([
            ("rdma-device", settings.device.clone()),
            ("rdma-port", settings.device_port.to_string()),
            ("rdma-mode", settings.rdma_mode.to_string()),
            ("rdma-gid-index", gid),
            ("rdma-gid-subnet", settings.gid_subnet.clone()),
        ]);
    }
    for (name, value) in &changes {
        options.set(name, value)?;
    }
    let own = options.settings(Side::Server)?;
    let server = Server::start(&own, Arc::new(builtin_store(&own)?))?;
    options.set("rdma-control-plane-port", &server.control_plane_port().unwrap_or(0).to_string())?;
    let measured = Client::open(&options.settings(Side::Client)?).and_then(|client| {
        let measured = ask(&client);
        let closed = client.shutdown(Duration::from_secs(5));
        measured.and_then(|measured| closed.map(|()| measured))
    });
    let stopped = server.stop(Duration::from_secs(5));
    measured.and_then(|measured| stopped.map(|()| measured))
}

fn ask(client: &Client) -> Result<Measured> {
    let table = Table::fill(client, "doctor", ROW_BYTES, TABLE_BYTES)?;
    let workload = Workload { kind: Kind::Get, rows: 1, row_bytes: ROW_BYTES, depth: 1 };
    let mut run = Run::new(client, &table, workload, Clock::calibrate());
    // The first ones meet cold caches and pages.
    run.chunk(CHUNK)?;
    let (started, mut requests, mut count) = (now(), Histogram::new(), 0);
    while count < REQUESTS_MAX && now().since_ns(started) < ENOUGH_NS {
        let (chunk, _) = run.chunk(CHUNK)?;
        requests.merge(&chunk);
        count += CHUNK;
    }
    Ok(Measured { requests, scheme: client.lane(0, 0)?.scheme })
}

/// Requests through shared memory and, where a device is there or asked for, through it.
pub fn self_test(settings: &Settings, has_device: bool, measured: &mut Value) -> Vec<Finding> {
    let mut findings =
        vec![tried("self-test shm", &loopback(settings, FabricKind::Shm), FabricKind::Shm, true, measured)];
    let needed = settings.fabric == FabricKind::Verbs;
    if !cfg!(feature = "verbs") {
        let finding = Finding::needed("self-test verbs", needed, "not built in: this program was built without verbs");
        findings.push(if needed {
            finding.means("fabric=verbs cannot run with it").mend("cargo build --features verbs")
        } else {
            finding
        });
    } else if needed || has_device {
        let outcome = loopback(settings, FabricKind::Verbs);
        let finding = tried("self-test verbs", &outcome, FabricKind::Verbs, needed, measured);
        findings.push(if needed { finding } else { finding.not_needed() });
    } else {
        findings.push(Finding::ok("self-test verbs", "not tried: there is no device, and fabric=shm is chosen"));
    }
    findings
}

fn tried(
    check: &'static str,
    outcome: &Result<Measured>,
    fabric: FabricKind,
    needed: bool,
    measured: &mut Value,
) -> Finding {
    let got = match outcome {
        Ok(got) => got,
        Err(error) => return failed(check, error, needed),
    };
    let (fastest, p50, p99) = (got.requests.quantile(0.0), got.requests.quantile(0.5), got.requests.quantile(0.99));
    measured[format!("{fabric}_get_1x64_min_ns")] = json!(fastest);
    measured[format!("{fabric}_get_1x64_p50_ns")] = json!(p50);
    measured[format!("{fabric}_get_1x64_p99_ns")] = json!(p99);
    // A GET is one write each way.
    measured[format!("{fabric}_write_p50_ns")] = json!(p50 / 2);
    let what = format!(
        "a write takes some {} ns: GET of one 64-byte row there and back, fastest {fastest} ns, half within {p50} ns, \
         99 % within {p99} ns (scheme {})",
        p50 / 2,
        got.scheme
    );
    if fabric == FabricKind::Shm && p50 > SHM_SLOW_NS {
        return Finding::warning(check, what)
            .means("the two ends do not run at the same time: one core, a busy host, or a virtual machine that is taken off its cores")
            .mend("top; nproc; taskset -pc $$");
    }
    Finding::ok(check, what)
}

fn failed(check: &'static str, error: &Error, needed: bool) -> Finding {
    let finding =
        if needed { Finding::error(check, error.to_string()) } else { Finding::warning(check, error.to_string()) };
    finding
        .means("a server and a client in this process could not talk to each other; programs will fail alike")
        .mend("see the findings above, and docs/deployment.md by the text of the message")
}
