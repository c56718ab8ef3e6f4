//! Filling a shard that starts from the deployment's last good checkpoint.
//!
//! Shard 0 chooses and tells the others: all start from the same cut. Everything is looked at before anything is made, and
//! a shard that cannot be filled does not start.

use super::fill::Filler;
use super::windows::SavedWindow;
use super::{LEADER, catalog, job, random};
use crate::checkpoint::disk::RealDisk;
use crate::checkpoint::format::{Reader, put_u64, put_u128};
use crate::checkpoint::verify::Depth;
use crate::checkpoint::{Catalog, Manifest, steps};
use crate::control::{ControlClient, Peer};
use crate::engine::state::HostState;
use crate::error::{Error, Result, Status};
use crate::ids::ShardId;
use crate::options::{CheckpointRestore, Settings};
use crate::ps::Store;
use crate::time::now;
use core::time::Duration;
use std::collections::BTreeSet;

/// First bytes of what shard 0 tells the others.
const MAGIC: u64 = u64::from_le_bytes(*b"RECLRST\n");
/// Tells a shard that starts alone that the others run on.
const RUNNING: u64 = u64::MAX;

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
    state: Option<&dyn HostState>,
) -> Result<Restored> {
    if settings.checkpoint_restore == CheckpointRestore::Off {
        return Ok(Restored::default());
    }
    let Some(catalog) = catalog(settings) else {
        let message = "checkpoint-restore needs checkpoint-directory";
        return Err(Error::new(Status::OptionConflict, message));
    };
    let mut damaged = BTreeSet::new();
    let mut filler = Filler { settings, store: store.as_builtin(), state, rows: None, fatal: None };
    let manifest = if settings.shard_id == LEADER.0 {
        let manifest = choose(&mut filler, &catalog, &mut damaged)?;
        if manifest.is_some() {
            fence(settings, &catalog);
            steps::at("restore-fenced");
        }
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
    let (rows, windows) = filler.fill(&catalog, &manifest)?;
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
    filler: &mut Filler<'_>,
    catalog: &Catalog,
    damaged: &mut BTreeSet<u64>,
) -> Result<Option<Manifest>> {
    let settings = filler.settings;
    let wanted = Some(settings.checkpoint_restore_epoch).filter(|epoch| *epoch != 0);
    let judge = &mut |manifest: &Manifest| filler.judge(catalog, manifest);
    let choice = catalog.choose_by(&RealDisk, Some(job(settings).0), wanted, judge)?;
    if let Some(error) = filler.fatal.take() {
        return Err(error);
    }
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

/// Takes an epoch that nobody uses: a leader of the world before, which may only sleep, cannot commit any more. Rows can
/// be read where nothing can be written, so a failure is told and no more.
fn fence(settings: &Settings, catalog: &Catalog) {
    if let Err(error) = random().and_then(|nonce| catalog.fence(&RealDisk, nonce)) {
        let shard = settings.shard_id;
        crate::event!(crate::observe::Level::WARN, crate::observe::events::CHECKPOINT_FAILED, shard, epoch = 0, error = %error);
    }
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
