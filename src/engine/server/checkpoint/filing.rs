//! One member's file of a checkpoint, from what was copied to what the leader is told.

use super::job;
use crate::checkpoint::cut::{Order, WrittenFile};
use crate::checkpoint::disk::{Disk, RealDisk};
use crate::checkpoint::format::{FileRef, Superblock};
use crate::checkpoint::writer::{Known, Task, Unfinished};
use crate::checkpoint::{Catalog, ChunkSource, Role, SectionPlan, Written, write_container};
use crate::error::{Error, Result};
use crate::ids::Incarnation;
use crate::options::Settings;
use crate::time::unix_us;

/// Whose file it is.
#[derive(Debug)]
pub(in crate::engine) struct Filing<'a> {
    pub(in crate::engine) settings: &'a Settings,
    pub(in crate::engine) catalog: &'a Catalog,
    pub(in crate::engine) role: Role,
    pub(in crate::engine) incarnation: Incarnation,
}

impl Filing<'_> {
    /// Writes the file; it is durable when this returns. `known`: what the last committed one has, and its epoch.
    pub(in crate::engine) fn write(
        &self,
        order: &Order,
        unfinished: Unfinished,
        (plans, source): (&[SectionPlan], &dyn ChunkSource),
        known: Option<&(u64, Known)>,
    ) -> Result<(FileRef, Written, WrittenFile)> {
        let settings = self.settings;
        let block = Superblock {
            minor: 0,
            required: 0,
            optional: 0,
            checkpoint: order.checkpoint,
            job: job(settings).0,
            epoch: order.epoch,
            role: self.role as u32,
            rank: settings.shard_id,
            world: settings.num_shards,
            instance: self.incarnation.0,
            unix_us: unix_us(),
        };
        let name = self.role.file_name(block.rank, block.world);
        // Only what the leader knows to be committed is there for certain.
        let known = known.filter(|(epoch, _)| order.parent != 0 && *epoch == order.parent);
        let task = Task {
            name: &name,
            block: &block,
            plans,
            source,
            known: known.map(|(_, known)| known),
            threads: settings.checkpoint_writers as usize,
        };
        let written = write_container(&RealDisk, unfinished, &task)?;
        let Superblock { epoch, checkpoint, rank, world, .. } = block;
        let file = FileRef { epoch, checkpoint, rank, world, bytes: written.bytes, digest: written.digest };
        let report = WrittenFile {
            bytes: written.bytes,
            state_bytes: written.state_bytes,
            own_bytes: written.own_bytes,
            digest: written.digest,
            needs: written.needs.clone(),
        };
        // The directory's own name, which may be new.
        let root = self.catalog.root();
        RealDisk.sync_dir(root).map_err(|error| Error::os(format_args!("cannot sync {}", root.display()), &error))?;
        Ok((file, written, report))
    }
}
