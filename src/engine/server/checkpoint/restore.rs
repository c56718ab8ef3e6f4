//! Filling a shard that starts from the deployment's last good checkpoint.
//!
//! Shard 0 chooses and tells the others: all start from the same cut. Everything is looked at before anything is made, and
//! a shard that cannot be filled does not start.

use super::windows::{SavedWindow, decode};
use super::{LEADER, catalog, job};
use crate::checkpoint::disk::RealDisk;
use crate::checkpoint::format::{Reader, put_u64, put_u128};
use crate::checkpoint::verify::{Depth, open_member};
use crate::checkpoint::{Catalog, Container, Manifest, Role, SectionKind, steps};
use crate::control::{ControlClient, Peer};
use crate::error::{Error, Result, Status};
use crate::ids::{ShardId, TableTag};
use crate::options::{CheckpointRestore, HashMethod, Settings};
use crate::ps::{BuiltinStore, Store};
use crate::time::now;
use core::time::Duration;
use std::collections::{BTreeMap, BTreeSet};

/// First bytes of what shard 0 tells the others.
const MAGIC: u64 = u64::from_le_bytes(*b"RECLRST\n");
/// Tells a shard that starts alone that the others run on.
const RUNNING: u64 = u64::MAX;
/// Largest description of a table.
const TABLE_BYTES_MAX: u64 = 1 << 20;

/// What a shard starts with.
#[derive(Debug, Default)]
pub(in crate::engine::server) struct Restored {
    /// Of which checkpoint; 0: none, the shard is empty.
    pub(in crate::engine::server) epoch: u64,
    /// What was executed before the cut, for clients that live on.
    pub(in crate::engine::server) windows: Vec<SavedWindow>,
    /// Newer checkpoints that are damaged.
    pub(in crate::engine::server) damaged: BTreeSet<u64>,
}

fn announcement(epoch: u64, checkpoint: u128) -> Vec<u8> {
    let mut out = Vec::new();
    put_u64(&mut out, MAGIC);
    put_u64(&mut out, epoch);
    put_u128(&mut out, checkpoint);
    out
}

fn read_announcement(bytes: &[u8]) -> Option<(u64, u128)> {
    let mut r = Reader(bytes);
    if r.u64()? != MAGIC {
        return None;
    }
    Some((r.u64()?, r.u128()?))
}

/// Fills the store as the settings say, before anybody uses it.
pub(in crate::engine::server) fn restore(
    settings: &Settings,
    control: &ControlClient,
    store: &dyn Store,
) -> Result<Restored> {
    if settings.checkpoint_restore == CheckpointRestore::Off {
        return Ok(Restored::default());
    }
    let Some(catalog) = catalog(settings) else {
        let message = "checkpoint-restore needs checkpoint-directory";
        return Err(Error::new(Status::OptionConflict, message));
    };
    let mut damaged = BTreeSet::new();
    let manifest = if settings.shard_id == LEADER.0 {
        let manifest = choose(settings, &catalog, &mut damaged)?;
        let (epoch, checkpoint) = manifest.as_ref().map_or((0, 0), |one| (one.epoch, one.checkpoint));
        for shard in 1..settings.num_shards {
            control.publish_lanes(Peer::Server(ShardId(shard)), announcement(epoch, checkpoint))?;
        }
        manifest
    } else {
        follow(settings, &catalog, control)?
    };
    steps::at("restore-chosen");
    let Some(manifest) = manifest else { return Ok(Restored { damaged, ..Restored::default() }) };
    let started = now();
    let (rows, windows) = fill(settings, &catalog, &manifest, store)?;
    steps::at("restore-filled");
    crate::event!(
        crate::observe::Level::INFO,
        crate::observe::events::CHECKPOINT_RESTORED,
        shard = settings.shard_id,
        epoch = manifest.epoch,
        rows,
        clients = windows.len(),
        shards_then = manifest.shards(),
        shards_now = settings.num_shards,
        ms = now().since_ns(started) / 1_000_000
    );
    Ok(Restored { epoch: manifest.epoch, windows, damaged })
}

/// The newest that is whole, every byte of it looked at.
pub(in crate::engine) fn choose(
    settings: &Settings,
    catalog: &Catalog,
    damaged: &mut BTreeSet<u64>,
) -> Result<Option<Manifest>> {
    let wanted = Some(settings.checkpoint_restore_epoch).filter(|epoch| *epoch != 0);
    let choice = catalog.choose(&RealDisk, Some(job(settings).0), wanted, Depth::Whole)?;
    for (epoch, why) in &choice.refused {
        crate::event!(crate::observe::Level::WARN, crate::observe::events::CHECKPOINT_REFUSED, epoch, why);
    }
    damaged.extend(&choice.damaged);
    if choice.manifest.is_none() {
        let reasons: Vec<String> = choice.refused.iter().map(|(epoch, why)| format!("{epoch}: {why}")).collect();
        let required = settings.checkpoint_restore == CheckpointRestore::Require || wanted.is_some();
        // An empty start in place of a damaged checkpoint would look like a good one.
        if required || !damaged.is_empty() {
            let message = format!(
                "no checkpoint of '{}' in {} can be restored ({}); to start empty, set checkpoint-restore=off",
                job(settings).1,
                catalog.root().display(),
                if reasons.is_empty() { "there is none".to_owned() } else { reasons.join("; ") }
            );
            return Err(Error::new(Status::InvalidArgument, message));
        }
    }
    steps::at("restore-verified");
    Ok(choice.manifest)
}

/// The one that shard 0 has chosen.
fn follow(settings: &Settings, catalog: &Catalog, control: &ControlClient) -> Result<Option<Manifest>> {
    let patience = Duration::from_millis(settings.checkpoint_write_timeout_ms);
    let told = control.get_lanes(Peer::Server(LEADER), patience).map_err(|mut error| {
        error.message = format!("shard 0 has not said which checkpoint to restore: {}", error.message);
        error
    })?;
    let malformed =
        || Error::new(Status::DeploymentMismatch, "shard 0 does not restore; does it have checkpoint-restore?");
    match read_announcement(&told).ok_or_else(malformed)? {
        (0, _) => Ok(None),
        (RUNNING, _) => {
            let message = "the other shards run: a checkpoint is restored by all shards together, or by none. Stop them \
                           all and start them again, or start this one with checkpoint-restore=off";
            Err(Error::new(Status::WrongState, message))
        }
        (epoch, checkpoint) => {
            let choice = catalog.choose(&RealDisk, Some(job(settings).0), Some(epoch), Depth::Outline)?;
            let reasons = choice.refused.iter().map(|(_, why)| why.as_str()).collect::<Vec<_>>().join("; ");
            choice.manifest.filter(|manifest| manifest.checkpoint == checkpoint).map(Some).ok_or_else(|| {
                let message = format!(
                    "shard 0 restores epoch {epoch}, which is not in {} here ({reasons}); all shards must see the same files",
                    catalog.root().display()
                );
                Error::new(Status::InvalidArgument, message)
            })
        }
    }
}

/// Tells a shard that starts while the others run that it cannot restore alone.
pub(in crate::engine::server) fn refuse_lone_restart(control: &ControlClient, shard: ShardId) {
    // It waits until its patience ends when this fails.
    let _ = control.publish_lanes(Peer::Server(shard), announcement(RUNNING, 0));
}

/// Whether what shard 0 has just published says that the deployment was restored under this running shard.
pub(in crate::engine::server) fn supersedes(control: &ControlClient) -> bool {
    let told = control.get_lanes(Peer::Server(LEADER), Duration::from_secs(1));
    told.is_ok_and(|told| read_announcement(&told).is_some_and(|(epoch, _)| epoch != RUNNING))
}

/// Rows of this shard, and windows if shards and keys are as they were.
fn fill(
    settings: &Settings,
    catalog: &Catalog,
    manifest: &Manifest,
    store: &dyn Store,
) -> Result<(usize, Vec<SavedWindow>)> {
    let Some(store) = store.as_builtin() else {
        let message =
            "checkpoints fill the built-in store; this shard has another one: start it with checkpoint-restore=off";
        return Err(Error::new(Status::Unsupported, message));
    };
    let method = u32::from(settings.hash_method == HashMethod::SimpleMod);
    let same = manifest.shards() == settings.num_shards && manifest.hash_method == method;
    let (mut rows, mut windows) = (0, Vec::new());
    for member in manifest.members.iter().filter(|member| member.role == Role::Shard) {
        // Where keys lie as they lay, the other shards' files have nothing for this one.
        if same && member.rank != settings.shard_id {
            continue;
        }
        let container = open_member(&RealDisk, catalog, manifest, member)?;
        rows += fill_tables(store, &container)?;
        if same {
            read_windows(&container, &mut windows)?;
        }
    }
    Ok((rows, windows))
}

fn fill_tables(store: &BuiltinStore, container: &Container) -> Result<usize> {
    let mut tags: BTreeMap<u32, TableTag> = BTreeMap::new();
    for section in container.of_kind(SectionKind::Table) {
        tags.insert(section.id, store.restore_table(&container.read_section(section, TABLE_BYTES_MAX)?)?);
    }
    let (mut rows, mut chunk) = (0, Vec::new());
    for section in container.of_kind(SectionKind::TableRows) {
        let tag = tags.get(&section.id).copied().ok_or_else(|| {
            let message = format!("{}: {} has no table", container.path().display(), section.title());
            Error::new(Status::InvalidArgument, message)
        })?;
        for index in 0..section.chunks.len() {
            container.read_chunk(section, index, &mut chunk)?;
            rows += store.restore_block(tag, &chunk)?;
        }
    }
    Ok(rows)
}

fn read_windows(container: &Container, windows: &mut Vec<SavedWindow>) -> Result<()> {
    let mut chunk = Vec::new();
    for section in container.of_kind(SectionKind::Dedupe) {
        for index in 0..section.chunks.len() {
            container.read_chunk(section, index, &mut chunk)?;
            decode(&chunk, windows).ok_or_else(|| {
                let message = format!("{}: {} is malformed", container.path().display(), section.title());
                Error::new(Status::InvalidArgument, message)
            })?;
        }
    }
    Ok(())
}
