//! `reclane status`.

use super::seen::{Process, Seen, look};
use super::table::ago;
use super::top::{Rates, frame};
use super::{settings, spectator};
use reclane::control::Peer;
use reclane::error::{Error, Result, Status};
use reclane::observe::directory;
use reclane::observe::layout::Role;
use reclane::options::Settings;
use serde_json::{Map, Value, json};
use std::io::Write;
use std::path::Path;
use std::process::ExitCode;

/// Show a running deployment once: shards with their health, clients, lanes, numbers, what happened lately.
///
/// The control plane is asked, and it asks its members. With --metrics-directory among the options, processes of this
/// host that do not answer are read from their counters files, also when they are dead.
///
/// The exit code is 0 when every shard serves and everybody answers, 1 when not, and 2 when nothing can be seen.
#[derive(clap::Args)]
#[command(after_help = crate::options::LISTED)]
pub struct Arguments {
    /// As one JSON object.
    #[arg(long)]
    json: bool,
    /// Remove the counters files of processes that are gone, and say which.
    #[arg(long)]
    clean: bool,
    /// Options of a member of the deployment, after `--`.
    #[arg(last = true)]
    flags: Vec<String>,
}

pub fn run(arguments: &Arguments) -> ExitCode {
    match work(arguments) {
        Ok(code) => code,
        Err(error) => {
            eprintln!("reclane: {error}");
            ExitCode::from(2)
        }
    }
}

fn work(arguments: &Arguments) -> Result<ExitCode> {
    let settings = settings(&arguments.flags)?;
    if arguments.clean {
        return clean(&settings, arguments.json);
    }
    let seen = look(&mut spectator(&settings)?, &settings)?;
    let text = if arguments.json {
        format!("{:#}\n", as_json(&seen, &settings))
    } else {
        frame(&seen, &settings, &Rates::default(), usize::MAX).join("\n") + "\n"
    };
    // A reader that closes the pipe early has seen what it wanted.
    let _ = std::io::stdout().lock().write_all(text.as_bytes());
    let nothing = seen.overview.is_none() && seen.processes.is_empty();
    Ok(ExitCode::from(if nothing { 2 } else { u8::from(!seen.is_well()) }))
}

fn clean(settings: &Settings, as_json: bool) -> Result<ExitCode> {
    if settings.metrics_directory.is_empty() {
        let what = "--clean needs the directory: reclane status --clean -- --metrics-directory=DIRECTORY";
        return Err(Error::new(Status::InvalidArgument, what));
    }
    let removed = directory::clean(Path::new(&settings.metrics_directory))?;
    let text = if as_json {
        format!("{}\n", json!({ "removed": removed.iter().map(|path| path.display().to_string()).collect::<Vec<_>>() }))
    } else {
        removed.iter().map(|path| format!("removed {}\n", path.display())).collect()
    };
    let _ = std::io::stdout().lock().write_all(text.as_bytes());
    Ok(ExitCode::SUCCESS)
}

fn as_json(seen: &Seen, settings: &Settings) -> Value {
    let overview = seen.overview.as_ref();
    json!({
        "control_plane": {
            "address": format!("{}:{}", settings.control_plane_host, settings.control_plane_port),
            "reached": overview.is_some(),
            "error": seen.error.as_ref().map(|error| error.message.clone()),
            "life": overview.map(|overview| overview.life.to_string()),
        },
        "deployment": settings.deployment_id,
        "namespace": settings.namespace,
        "epoch": overview.map(|overview| overview.epoch),
        "num_shards": overview.map(|overview| overview.num_shards),
        "well": seen.is_well(),
        "shards": seen.of(Role::Server).map(|process| member(process, "shard")).collect::<Vec<_>>(),
        "clients": seen.of(Role::Client).map(|process| member(process, "client")).collect::<Vec<_>>(),
        "events": seen.events().iter().map(|event| json!({
            "number": event.number,
            "age_ms": event.age_ms,
            "who": who(event.peer),
            "what": event.what,
            "source": if event.is_said { "member" } else { "control_plane" },
        })).collect::<Vec<_>>(),
        "unreadable_files": seen.broken.iter().map(|(path, error)| json!({
            "path": path.display().to_string(),
            "error": error.message,
        })).collect::<Vec<_>>(),
    })
}

fn who(peer: Peer) -> Value {
    match peer {
        Peer::Server(shard) => json!({ "shard": shard.0 }),
        Peer::Client(client) => json!({ "client": client.0 }),
    }
}

fn member(process: &Process, kind: &str) -> Value {
    let figures: Map<String, Value> =
        process.figures.iter().map(|(name, value)| (name.clone(), json!(value))).collect();
    let known = !process.health.is_empty();
    let mut object = json!({
        "member": process.is_member,
        "pid": process.pid,
        "host": process.host,
        "incarnation": format!("{:032x}", process.incarnation),
        "state": process.state,
        "health": if known { json!(process.health) } else { Value::Null },
        "idle_ms": if known { json!(process.idle_ms) } else { Value::Null },
        "answers": process.answers,
        "figures_age_ms": process.age_ms,
        "figures": figures,
        "file": process.file.as_ref().map(|(path, _)| path.display().to_string()),
        "process": process.file.as_ref().map(|(_, life)| life.word()),
    });
    object[kind] = json!(process.number);
    object
}

/// What is to be said of a process that does not answer.
pub fn remark(process: &Process) -> String {
    let how_old = process.age_ms.map(|age| format!(", numbers {} old", ago(age))).unwrap_or_default();
    match &process.file {
        _ if process.answers => String::new(),
        Some((_, life)) => format!("{}{how_old}, from its file", life.word()),
        None if !process.is_member => String::new(),
        None => format!("does not answer{how_old}"),
    }
}
