//! `reclane doctor`: whether this host can do what the options ask, and what to do when it cannot.
//!
//! What files tell ([`rdma`], [`system`]) is read below one root, so that a copy of another host's files can be looked at
//! alike; what only trying tells ([`live`]) is tried on this host alone.

mod devices;
mod finding;
mod limits;
mod live;
mod needs;
mod rdma;
mod system;
mod tree;

use super::flags;
use finding::{Finding, as_json, as_text, worst};
use reclane::error::Result;
use reclane::options::{FabricKind, Options, Settings, Side};
use serde_json::{Value, json};
use std::io::Write;
use std::path::PathBuf;
use std::process::ExitCode;
use tree::Tree;

/// Memory that this host can give to new work; None where it does not tell.
pub fn available_bytes() -> Option<u64> {
    system::meminfo(&Tree::new(None), "MemAvailable")
}

/// Check whether this host can run a server or a client with the given options.
///
/// Looks at RDMA devices, ports, addresses and device files, limits, memory, processors, kernel settings, the control
/// plane, and sends requests through this host's own fabric. Each finding says what was found, what it means, and the
/// command that mends it. Nothing is changed.
///
/// The exit code is 0 when all is well, 1 when there are warnings, and 2 when there are errors: something that the
/// options ask for cannot run. Without options it is fabric=shm that is asked for, and a host without RDMA is well.
#[derive(clap::Args)]
#[command(after_help = crate::options::LISTED)]
pub struct Arguments {
    /// As one JSON object.
    #[arg(long)]
    json: bool,
    /// Which process the options are for; it matters with a deployment file.
    #[arg(long, value_enum, default_value = "both")]
    side: Which,
    /// Take the options from the environment, as the op-layer entry does.
    #[arg(long, conflicts_with = "flags")]
    from_environment: bool,
    /// Send no requests through this host's own fabric.
    #[arg(long)]
    no_self_test: bool,
    /// Look at sys, proc, dev and etc below this directory, a copy of another host's, and try nothing.
    #[arg(long)]
    root: Option<PathBuf>,
    /// Options of the server or client, after `--`.
    #[arg(last = true)]
    flags: Vec<String>,
}

/// Which process the options are for.
#[derive(clap::ValueEnum, Clone, Copy)]
enum Which {
    /// A server and a client.
    Both,
    /// A server.
    Server,
    /// A client.
    Client,
}

pub fn run(arguments: &Arguments) -> ExitCode {
    let mut measured = json!({});
    let findings = examine(arguments, &mut measured);
    let text = if arguments.json { as_json(&findings, &measured) } else { as_text(&findings) };
    // A reader that closes the pipe early has seen what it wanted.
    let _ = std::io::stdout().lock().write_all(text.as_bytes());
    ExitCode::from(worst(&findings).exit_code())
}

fn examine(arguments: &Arguments, measured: &mut Value) -> Vec<Finding> {
    let tree = Tree::new(arguments.root.as_deref());
    let mut findings = Vec::new();
    let (settings, named) = match settings(arguments) {
        Ok(good) => good,
        Err(error) => {
            let finding = Finding::error("options", error.to_string())
                .means("no server or client can be opened with these options; the rest is checked with the defaults")
                .mend("reclane options lists them with their bounds");
            findings.push(finding);
            match Options::new().settings(Side::Both) {
                Ok(defaults) => (defaults, false),
                Err(_) => return findings,
            }
        }
    };
    let rdma = settings.fabric == FabricKind::Verbs;
    findings.push(if rdma {
        Finding::ok("fabric", "fabric=verbs: RDMA devices, or Soft-RoCE, between hosts")
    } else {
        Finding::ok("fabric", "fabric=shm: memory that processes of this host share; it needs nothing of RDMA")
    });
    findings.extend(rdma::check(&tree, &settings));
    findings.extend(system::check(&tree, &settings));
    if !tree.live {
        findings.push(Finding::ok("live checks", "not tried: --root names a copy of a host's files"));
        return findings;
    }
    findings.push(live::library(&tree, rdma));
    if rdma {
        findings.extend(limits::check(&settings));
    }
    findings.push(live::files_in_memory());
    findings.extend(live::token(&settings));
    // Only a client waits for it: shards are looked at before they are started.
    findings.push(live::control_plane(&settings, named && matches!(arguments.side, Which::Client)));
    if !arguments.no_self_test {
        let has_device = !tree.names("sys/class/infiniband").is_empty();
        findings.extend(live::self_test(&settings, has_device, measured));
    }
    findings
}

/// The settings, and whether somebody named the control plane.
fn settings(arguments: &Arguments) -> Result<(Settings, bool)> {
    let options =
        if arguments.from_environment { Options::from_environment()? } else { flags::options(&arguments.flags)? };
    let side = match (arguments.side, arguments.from_environment) {
        (Which::Server, _) => Side::Server,
        (Which::Client, _) | (Which::Both, true) => Side::Client,
        (Which::Both, false) => Side::Both,
    };
    let mut named = false;
    for name in ["rdma-control-plane-host", "rdma-control-plane-port", "deployment-file"] {
        named |= options.is_given(name)?;
    }
    Ok((options.settings(side)?, named))
}
