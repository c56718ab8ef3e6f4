//! `reclane checkpoint`: what is in a directory of checkpoints, and what a restore would do.

use clap::{Args, Subcommand};
use reclane::checkpoint::catalog::Choice;
use reclane::checkpoint::disk::RealDisk;
use reclane::checkpoint::verify::{Depth, open_member, verify};
use reclane::checkpoint::{Catalog, Found, Manifest, Member, Role, SectionKind};
use reclane::error::{Error, Result, Status};
use serde_json::{Value, json};
use std::process::ExitCode;

/// Look into the checkpoints of a deployment, without changing anything.
#[derive(Args)]
pub struct Arguments {
    #[command(subcommand)]
    action: Action,
}

#[derive(Subcommand)]
enum Action {
    /// List all epochs, newest first: committed, attempts, damaged manifests.
    List(Where),
    /// Show files, sections and chunks of one checkpoint.
    Inspect(One),
    /// Read every byte of all committed checkpoints, or of one.
    Verify(One),
    /// Say which checkpoint would be restored, what is passed over and why, and how shards would be filled.
    RestorePlan {
        #[command(flatten)]
        one: One,
        /// Shards that would start; by default as many as there were.
        #[arg(long)]
        shards: Option<u32>,
    },
}

#[derive(Args)]
struct Where {
    /// The servers' checkpoint-directory.
    directory: String,
    /// One JSON object instead of text.
    #[arg(long)]
    json: bool,
}

#[derive(Args)]
struct One {
    #[command(flatten)]
    at: Where,
    /// This epoch; by default the newest that is committed.
    #[arg(long)]
    epoch: Option<u64>,
}

pub fn run(arguments: &Arguments) -> ExitCode {
    let done = match &arguments.action {
        Action::List(at) => list(at),
        Action::Inspect(one) => inspect(one),
        Action::Verify(one) => verify_all(one),
        Action::RestorePlan { one, shards } => plan(one, *shards),
    };
    match done {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::FAILURE,
        Err(error) => {
            eprintln!("reclane: {error}");
            ExitCode::FAILURE
        }
    }
}

/// Text for people, or one object.
fn say(at: &Where, value: &Value, lines: &[String]) {
    if at.json {
        println!("{value}");
    } else {
        lines.iter().for_each(|line| println!("{line}"));
    }
}

fn state_bytes(manifest: &Manifest) -> u64 {
    manifest.members.iter().map(|member| member.state_bytes).sum()
}

fn file_bytes(manifest: &Manifest) -> u64 {
    manifest.members.iter().map(|member| member.bytes).sum()
}

/// Shards or ranks, and how many.
fn members(manifest: &Manifest) -> String {
    match manifest.ranks() {
        0 => format!("{} shards", manifest.shards()),
        ranks => format!("{ranks} ranks"),
    }
}

fn ms(ns: u64) -> String {
    format!("{}.{:03}", ns / 1_000_000, ns / 1000 % 1000)
}

fn summary(manifest: &Manifest) -> Value {
    json!({
        "epoch": manifest.epoch,
        "checkpoint": format!("{:032x}", manifest.checkpoint),
        "deployment": manifest.job_name,
        "parent": manifest.parent,
        "needs": manifest.needs,
        "unix_us": manifest.unix_us,
        "shards": manifest.shards(),
        "ranks": manifest.ranks(),
        "state_bytes": state_bytes(manifest),
        "file_bytes": file_bytes(manifest),
        "hold_ns": manifest.timing.hold_ns,
        "capture_ns": manifest.timing.capture_ns,
        "total_ns": manifest.timing.total_ns,
    })
}

fn list(at: &Where) -> Result<bool> {
    let catalog = Catalog::new(&at.directory);
    let all = catalog.list(&RealDisk)?;
    let mut values = Vec::new();
    let mut lines = vec![format!(
        "{:>8}  {:<10} {:>9} {:>14} {:>14} {:>10}  needs",
        "epoch", "state", "members", "state bytes", "file bytes", "pause ms"
    )];
    for Found { epoch, manifest } in &all {
        match manifest {
            Ok(Some(manifest)) => {
                let mut value = summary(manifest);
                value["state"] = json!("committed");
                values.push(value);
                let needs: Vec<String> = manifest.needs.iter().map(u64::to_string).collect();
                lines.push(format!(
                    "{epoch:>8}  {:<10} {:>9} {:>14} {:>14} {:>10}  {}",
                    "committed",
                    members(manifest),
                    state_bytes(manifest),
                    file_bytes(manifest),
                    ms(manifest.timing.hold_ns),
                    needs.join(",")
                ));
            }
            Ok(None) => {
                values.push(json!({ "epoch": epoch, "state": "attempt" }));
                lines.push(format!("{epoch:>8}  attempt"));
            }
            Err(why) => {
                values.push(json!({ "epoch": epoch, "state": "damaged", "why": why }));
                lines.push(format!("{epoch:>8}  damaged: {why}"));
            }
        }
    }
    if all.is_empty() {
        lines = vec![format!("no checkpoints in {}", at.directory)];
    }
    say(at, &json!({ "directory": at.directory, "checkpoints": values }), &lines);
    Ok(true)
}

/// The manifest that is meant.
fn find(one: &One) -> Result<(Catalog, Manifest)> {
    let catalog = Catalog::new(&one.at.directory);
    for found in catalog.list(&RealDisk)? {
        match (found.manifest, one.epoch) {
            (Ok(Some(manifest)), None) => return Ok((catalog, manifest)),
            (state, Some(epoch)) if epoch == found.epoch => {
                let no = |why: String| Error::new(Status::InvalidArgument, format!("epoch {epoch}: {why}"));
                let manifest = state.map_err(no)?.ok_or_else(|| no("it was not committed".to_owned()))?;
                return Ok((catalog, manifest));
            }
            _ => {}
        }
    }
    let what = one.epoch.map_or_else(|| "a committed checkpoint".to_owned(), |epoch| format!("epoch {epoch}"));
    Err(Error::new(Status::InvalidArgument, format!("there is no {what} in {}", one.at.directory)))
}

fn inspect(one: &One) -> Result<bool> {
    let (catalog, manifest) = find(one)?;
    let mut lines = vec![format!(
        "epoch {} of {}: {}, parent {}, needs {:?}, pause {} ms, durable after {} ms",
        manifest.epoch,
        manifest.job_name,
        members(&manifest),
        manifest.parent,
        manifest.needs,
        ms(manifest.timing.hold_ns),
        ms(manifest.timing.total_ns)
    )];
    let mut files = Vec::new();
    for member in &manifest.members {
        files.push(inspect_file(&catalog, &manifest, member, &mut lines)?);
    }
    let mut value = summary(&manifest);
    value["files"] = json!(files);
    say(&one.at, &value, &lines);
    Ok(true)
}

fn inspect_file(catalog: &Catalog, manifest: &Manifest, member: &Member, lines: &mut Vec<String>) -> Result<Value> {
    let container = open_member(&RealDisk, catalog, manifest, member)?;
    lines.push(format!("  {}  {} bytes", member.file_name(), member.bytes));
    let mut sections = Vec::new();
    for section in &container.toc.sections {
        let own = section.chunks.iter().filter(|chunk| chunk.file == 0).count();
        let kind = SectionKind::from_code(section.kind).map_or("?", SectionKind::name);
        let text = matches!(kind, "HOST" | "COUNTERS" | "LANES")
            .then(|| container.read_section(section, 1 << 16).map(|bytes| String::from_utf8_lossy(&bytes).into_owned()))
            .transpose()?;
        lines.push(format!(
            "    {kind:<12} {:>6} {:<20} {:>14} bytes {:>6} chunks, {own} of them here{}",
            section.id,
            section.name,
            section.bytes(),
            section.chunks.len(),
            text.as_ref().map_or_else(String::new, |text| format!("  [{}]", text.trim_end().replace('\n', " ")))
        ));
        sections.push(json!({
            "kind": kind, "id": section.id, "name": section.name, "version": section.version,
            "bytes": section.bytes(), "chunks": section.chunks.len(), "own_chunks": own, "text": text,
        }));
    }
    Ok(json!({
        "file": member.file_name(), "bytes": member.bytes, "state_bytes": member.state_bytes,
        "instance": format!("{:032x}", container.block.instance), "sections": sections,
    }))
}

fn verify_all(one: &One) -> Result<bool> {
    let catalog = Catalog::new(&one.at.directory);
    let (mut lines, mut values, mut good, mut seen) = (Vec::new(), Vec::new(), true, 0);
    for found in catalog.list(&RealDisk)?.into_iter().filter(|found| one.epoch.is_none_or(|epoch| epoch == found.epoch))
    {
        let epoch = found.epoch;
        let result = match found.manifest {
            Ok(Some(manifest)) => verify(&RealDisk, &catalog, &manifest, Depth::Whole).map_err(|error| error.message),
            Ok(None) if one.epoch.is_none() => continue,
            Ok(None) => Err("it was not committed".to_owned()),
            Err(why) => Err(why),
        };
        seen += 1;
        good &= result.is_ok();
        let why = result.err();
        lines.push(
            why.as_ref().map_or_else(|| format!("epoch {epoch}: good"), |why| format!("epoch {epoch}: BAD: {why}")),
        );
        values.push(json!({ "epoch": epoch, "good": why.is_none(), "why": why }));
    }
    if seen == 0 {
        lines.push(format!("there is nothing to verify in {}", one.at.directory));
    }
    say(&one.at, &json!({ "directory": one.at.directory, "good": good && seen > 0, "checkpoints": values }), &lines);
    Ok(good && seen > 0)
}

fn plan(one: &One, shards: Option<u32>) -> Result<bool> {
    let catalog = Catalog::new(&one.at.directory);
    let Choice { manifest, refused, .. } = catalog.choose(&RealDisk, None, one.epoch, Depth::Whole)?;
    let mut lines: Vec<String> =
        refused.iter().map(|(epoch, why)| format!("epoch {epoch} is passed over: {why}")).collect();
    let passed: Vec<Value> = refused.iter().map(|(epoch, why)| json!({ "epoch": epoch, "why": why })).collect();
    let Some(manifest) = manifest else {
        lines.push("nothing can be restored".to_owned());
        say(&one.at, &json!({ "restore": null, "passed_over": passed }), &lines);
        return Ok(false);
    };
    if manifest.ranks() > 0 {
        return Ok(plan_ranks(one, &manifest, &passed, lines));
    }
    let then = manifest.shards();
    let now = shards.unwrap_or(then);
    let same = then == now;
    lines.push(format!("epoch {} would be restored: {} shards then, {now} now", manifest.epoch, then));
    let files: Vec<&Member> = manifest.members.iter().filter(|member| member.role == Role::Shard).collect();
    let steps: Vec<Value> = (0..now)
        .map(|shard| {
            let reads: Vec<String> =
                files.iter().filter(|file| !same || file.rank == shard).map(|file| file.file_name()).collect();
            let what = if same { "all rows and windows" } else { "the rows whose keys it owns; windows are dropped" };
            lines.push(format!("  shard {shard} reads {}: {what}", reads.join(", ")));
            json!({ "shard": shard, "reads": reads })
        })
        .collect();
    let value = json!({
        "restore": summary(&manifest), "passed_over": passed, "shards": now, "windows_kept": same, "steps": steps,
    });
    say(&one.at, &value, &lines);
    Ok(true)
}

/// Ranks get their own regions back, as many as there were.
fn plan_ranks(one: &One, manifest: &Manifest, passed: &[Value], mut lines: Vec<String>) -> bool {
    lines.push(format!("epoch {} would be restored: {} ranks, and no other number", manifest.epoch, manifest.ranks()));
    let ranks = manifest.members.iter().filter(|member| member.role == Role::Rank);
    let steps: Vec<Value> = ranks
        .map(|member| {
            let file = member.file_name();
            lines.push(format!("  rank {} reads {file}: its regions, sections and what it executed once", member.rank));
            json!({ "rank": member.rank, "reads": [file] })
        })
        .collect();
    let value = json!({ "restore": summary(manifest), "passed_over": passed, "steps": steps });
    say(&one.at, &value, &lines);
    true
}
