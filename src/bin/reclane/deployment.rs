//! `reclane deployment check`.

use super::flags;
use clap::Subcommand;
use reclane::error::{Error, Result};
use reclane::options::deployment::{Contract, Mode, Node, NodeRole, read_all};
use reclane::options::{Options, Settings, Side};
use serde_json::{Value, json};
use std::fmt::Write as _;
use std::io::Write as _;
use std::process::ExitCode;

/// Look at deployment files.
#[derive(clap::Args)]
pub struct Arguments {
    #[command(subcommand)]
    action: Action,
}

#[derive(Subcommand)]
enum Action {
    /// Check a deployment file, and what it makes of the options of every process.
    ///
    /// Prints the deployment, its nodes, and the digests that members compare when they join. The exit code is 0 when the
    /// file can be used, and 2 when it cannot; then each fault is named with its field, value and bound.
    Check(Check),
}

#[derive(clap::Args)]
struct Check {
    /// The file, JSON (docs/deployment.md).
    file: String,
    /// As one JSON object.
    #[arg(long)]
    json: bool,
    /// Options of servers and clients alike, after `--`: what contradicts the file is an error here too.
    #[arg(last = true)]
    flags: Vec<String>,
}

const REFUSED: u8 = 2;

pub fn run(arguments: &Arguments) -> ExitCode {
    let Action::Check(check) = &arguments.action;
    let found = look(check);
    let text = if check.json { as_json(&check.file, &found) } else { as_text(&check.file, &found) };
    // A reader that closes the pipe early has seen what it wanted.
    let _ = std::io::stdout().lock().write_all(text.as_bytes());
    if found.is_ok() { ExitCode::SUCCESS } else { ExitCode::from(REFUSED) }
}

/// The contract and the layout's digest; or all that is wrong, as path and message.
type Found = std::result::Result<(Contract, u64), Vec<(String, String)>>;

fn look(check: &Check) -> Found {
    let whole = |error: Box<Error>| vec![(String::new(), error.message)];
    let options = flags::options(&check.flags).map_err(whole)?;
    let contract = read_all(&check.file).map_err(whole)?;
    let contract = contract
        .map_err(|problems| problems.into_iter().map(|problem| (problem.path, problem.message)).collect::<Vec<_>>())?;
    let settings = every_process(&options, &contract).map_err(whole)?;
    Ok((contract, settings.digest()))
}

/// What each process of the deployment would be opened with; the first refusal is the answer.
fn every_process(options: &Options, contract: &Contract) -> Result<Settings> {
    let origin = "the file";
    for node in &contract.nodes {
        let mut own = options.clone();
        let side = match node.role {
            NodeRole::Server => Side::Server,
            NodeRole::Client => Side::Client,
        };
        own.set("global-id", &node.node_id.to_string())?;
        own.settings_under(contract, origin, side).map_err(|mut error| {
            error.message = format!("{} of node {}: {}", node.role, node.node_id, error.message);
            error
        })?;
    }
    options.settings_under(contract, origin, Side::Both)
}

fn as_text(file: &str, found: &Found) -> String {
    let mut text = String::new();
    match found {
        Ok((contract, layout)) => {
            let mode = contract.nodes.first().map_or("", |node| node.mode.word());
            let _ = writeln!(
                text,
                "{file}: deployment {} epoch {}: {} shards, {} clients, mode {mode}",
                contract.deployment_id, contract.epoch, contract.num_shards, contract.num_clients
            );
            let _ = writeln!(text, "control plane: {}", plane(contract));
            for server in &contract.servers {
                let _ = writeln!(text, "shard {}: host {} port {}", server.shard, server.host, server.port);
            }
            for node in &contract.nodes {
                let _ = writeln!(text, "node {}: {}{}", node.node_id, node.role, port(node));
            }
            let _ = writeln!(text, "configuration digest: {:016x}", contract.digests().configuration);
            let _ = writeln!(text, "fabric digest: {:016x}", contract.digests().fabric);
            let _ = writeln!(text, "layout digest: {layout:016x} (the file and all options that shape the layout)");
        }
        Err(faults) => {
            let _ = writeln!(text, "{file}: refused");
            for (path, message) in faults {
                let at = if path.is_empty() { String::new() } else { format!("{path}: ") };
                let _ = writeln!(text, "error: {at}{message}");
            }
        }
    }
    text
}

fn plane(contract: &Contract) -> String {
    match (&contract.control_plane, contract.servers.first()) {
        (Some((host, port)), _) => format!("{host} port {port}"),
        (None, Some(shard)) => {
            format!("{} (the host of shard 0, unless rdma-control-plane-host names it otherwise)", shard.host)
        }
        (None, None) => String::new(),
    }
}

fn port(node: &Node) -> String {
    if node.mode == Mode::Shm {
        return String::new();
    }
    let gid = match (node.gid_index, node.gid_subnet) {
        (Some(index), _) => format!("index {index}"),
        (None, Some(subnet)) => format!("found by type in {subnet}"),
        (None, None) => "found by type".to_owned(),
    };
    format!(", device {} port {}, GID {gid}", node.device, node.port)
}

fn as_json(file: &str, found: &Found) -> String {
    let object = match found {
        Ok((contract, layout)) => {
            let canonical: Value = serde_json::from_str(&contract.canonical()).unwrap_or(Value::Null);
            json!({
                "file": file,
                "ok": true,
                "problems": [],
                "contract": canonical,
                "configuration_digest": format!("{:016x}", contract.digests().configuration),
                "fabric_digest": format!("{:016x}", contract.digests().fabric),
                "layout_digest": format!("{layout:016x}"),
            })
        }
        Err(faults) => {
            let problems: Vec<Value> =
                faults.iter().map(|(path, message)| json!({ "path": path, "message": message })).collect();
            json!({ "file": file, "ok": false, "problems": problems })
        }
    };
    format!("{object:#}\n")
}
