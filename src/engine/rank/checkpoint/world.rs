//! Entering a world: rank 0 begins it, the others find it, and what is of an earlier one stays outside.
//!
//! The number of the world, promised in the directory of checkpoints, is added to the deployment's epoch. So the control
//! plane of a world takes its own ranks only: a process that was stopped while the job was started again is refused when
//! it wakes up, wherever it knocks first.

use crate::checkpoint::disk::RealDisk;
use crate::checkpoint::verify::Depth;
use crate::checkpoint::{Catalog, Manifest, World};
use crate::control::{ControlClient, Identity, Member};
use crate::engine::server::checkpoint::{Filler, catalog, choose, job, random};
use crate::error::{Error, Result, Status};
use crate::ids::Epoch;
use crate::options::{CheckpointRestore, Settings};
use crate::time::{Tick, now, pause};
use core::time::Duration;
use std::collections::BTreeSet;

/// Between two looks for the world that rank 0 begins.
const LOOK: Duration = Duration::from_millis(20);

/// A rank's entry into a world.
#[derive(Debug)]
pub(in crate::engine::rank) struct Entry {
    pub(in crate::engine::rank) catalog: Catalog,
    pub(in crate::engine::rank) world: World,
    /// What is restored.
    pub(super) manifest: Option<Manifest>,
    /// Newer checkpoints that are damaged.
    pub(in crate::engine::rank) damaged: BTreeSet<u64>,
}

/// Rank 0 begins a world, restored as the settings say. Nothing is made before all of it was found whole. None: the job
/// has no directory of checkpoints.
pub(in crate::engine::rank) fn begin(settings: &Settings) -> Result<Option<Entry>> {
    let Some(catalog) = catalog(settings) else { return no_directory(settings) };
    let mut damaged = BTreeSet::new();
    let manifest = match settings.checkpoint_restore {
        CheckpointRestore::Off => None,
        _ => choose(&mut Filler::judge_only(settings), &catalog, &mut damaged)?,
    };
    manifest.as_ref().map_or(Ok(()), |manifest| fits(settings, manifest))?;
    let (restored, checkpoint) = manifest.as_ref().map_or((0, 0), |one| (one.epoch, one.checkpoint));
    let world = World { number: catalog.promise(&RealDisk, random()?)?, restored, checkpoint };
    catalog.begin_world(&RealDisk, &world, random()?)?;
    Ok(Some(Entry { catalog, world, manifest, damaged }))
}

fn no_directory(settings: &Settings) -> Result<Option<Entry>> {
    if settings.checkpoint_restore == CheckpointRestore::Off {
        return Ok(None);
    }
    Err(Error::new(Status::OptionConflict, "checkpoint-restore needs checkpoint-directory"))
}

/// Regions go back to the ranks that they were of.
fn fits(settings: &Settings, manifest: &Manifest) -> Result<()> {
    let (then, now) = (manifest.ranks(), settings.num_shards);
    if then == now {
        return Ok(());
    }
    let message = format!(
        "checkpoint {} is of {then} ranks, this job has {now}: each rank gets its own regions back. Start {then} ranks, or \
         start with checkpoint-restore=off and read the old regions through reclane_restore_region",
        manifest.epoch
    );
    Err(Error::new(Status::InvalidArgument, message))
}

/// Joins the control plane as a member of its world: rank 0 with its entry, whose epoch is the identity's already.
pub(in crate::engine::rank) fn join(
    settings: &Settings,
    identity: &mut Identity,
    member: &Member,
    deadline: Tick,
    entry: Option<Entry>,
) -> Result<(ControlClient, Option<Entry>)> {
    let (host, port) = (&settings.control_plane_host, settings.control_plane_port);
    let knock = |identity: &Identity| ControlClient::join(host, port, deadline.remaining(), identity, member);
    if entry.is_some() || settings.shard_id == 0 {
        return Ok((knock(identity)?, entry));
    }
    let Some(catalog) = catalog(settings) else {
        no_directory(settings)?;
        let control = knock(identity).map_err(|mut error| {
            if error.status == Status::StaleEpoch {
                error.message.push_str("; is checkpoint-directory set on all ranks, or on none?");
            }
            error
        })?;
        return Ok((control, None));
    };
    let plain = identity.epoch.0;
    let mut last = None;
    loop {
        if let Some(world) = catalog.world(&RealDisk)? {
            identity.epoch = Epoch(plain.saturating_add(world.number));
            match knock(identity) {
                Ok(control) => {
                    return Ok((control, Some(follow(settings, catalog, world)?)));
                }
                // The file is of the world before, or rank 0 is: the newer of the two is on its way.
                Err(error) if error.status == Status::StaleEpoch => last = Some(error),
                Err(error) => return Err(error),
            }
        }
        if deadline <= now() {
            let nobody = || {
                let message = format!("rank 0 has not begun a world in {} within the time", catalog.root().display());
                Error::new(Status::StartupTimeout, message)
            };
            return Err(last.unwrap_or_else(nobody));
        }
        pause(LOOK);
    }
}

/// What rank 0 has chosen, for another rank.
fn follow(settings: &Settings, catalog: Catalog, world: World) -> Result<Entry> {
    let manifest = match (world.restored, settings.checkpoint_restore) {
        (0, CheckpointRestore::Require) => {
            let message = "rank 0 restores nothing, and this rank has checkpoint-restore=require";
            return Err(Error::new(Status::InvalidArgument, message));
        }
        (0, _) => None,
        (epoch, CheckpointRestore::Off) => {
            let message = format!("rank 0 restores checkpoint {epoch}, and this rank has checkpoint-restore=off");
            return Err(Error::new(Status::OptionConflict, message));
        }
        (epoch, _) => {
            let choice = catalog.choose(&RealDisk, Some(job(settings).0), Some(epoch), Depth::Outline)?;
            let reasons = choice.refused.iter().map(|(_, why)| why.as_str()).collect::<Vec<_>>().join("; ");
            let manifest = choice.manifest.filter(|manifest| manifest.checkpoint == world.checkpoint);
            let missing = || {
                let message = format!(
                    "rank 0 restores checkpoint {epoch}, which is not in {} here ({reasons}); all ranks must see the same \
                     files",
                    catalog.root().display()
                );
                Error::new(Status::InvalidArgument, message)
            };
            Some(manifest.ok_or_else(missing)?)
        }
    };
    manifest.as_ref().map_or(Ok(()), |manifest| fits(settings, manifest))?;
    Ok(Entry { catalog, world, manifest, damaged: BTreeSet::new() })
}

impl Entry {
    /// The epoch by which members of this world know each other.
    pub(in crate::engine::rank) fn epoch(&self, deployment: Epoch) -> Epoch {
        Epoch(deployment.0.saturating_add(self.world.number))
    }

    /// Takes this rank's seat. A world that was restored is a cut of all ranks: who comes back alone, while the others have
    /// gone on, would mix two moments.
    pub(in crate::engine::rank) fn take_seat(&self, rank: u32) -> Result<()> {
        let free = self.catalog.take_seat(&RealDisk, rank, &self.world, random()?)?;
        if free || self.world.restored == 0 {
            return Ok(());
        }
        let message = format!(
            "rank {rank} was part of this world already, which was restored from checkpoint {}, and the others have gone on: \
             a checkpoint is restored by all ranks together. Stop them all and start them again",
            self.world.restored
        );
        Err(Error::new(Status::WrongState, message))
    }
}
