//! A rank that starts from a checkpoint: its regions, filled, under the ids and addresses that peers know them by.

use super::contents::{SavedRegion, decode_executed, decode_regions};
use super::desk::Section;
use super::world::Entry;
use crate::checkpoint::disk::RealDisk;
use crate::checkpoint::format::CHUNK_BYTES;
use crate::checkpoint::verify::open_member;
use crate::checkpoint::{Container, Role, SectionKind, steps};
use crate::engine::rank::core::Shared;
use crate::error::{Error, Result, Status};
use crate::fabric::{Fabric, Region};
use crate::memory::Executed;
use crate::sync::lock;
use crate::time::now;

/// Largest table of regions or of what was executed.
const TABLE_BYTES_MAX: u64 = 64 << 20;
/// Largest section of the program.
pub(super) const SECTION_BYTES_MAX: u64 = 64 << 20;

/// What a container of this rank has, judged; nothing was made of it yet.
#[derive(Debug)]
pub(in crate::engine::rank) struct Saved {
    container: Container,
    regions: Vec<SavedRegion>,
    executed: Vec<Executed>,
    sections: Vec<Section>,
}

fn bad(container: &Container, what: &str) -> Box<Error> {
    Error::new(Status::InvalidArgument, format!("{}: {what}", container.path().display()))
}

/// The regions that a container has, each with its contents.
fn regions_of(container: &Container) -> Result<Vec<SavedRegion>> {
    let mut table = Vec::new();
    for section in container.of_kind(SectionKind::Regions) {
        table.extend(container.read_section(section, TABLE_BYTES_MAX)?);
    }
    let regions = decode_regions(&table).map_err(|what| bad(container, &what))?;
    for region in &regions {
        let data = container.toc.section(SectionKind::RegionData, region.id);
        let fits = data.is_some_and(|data| {
            data.bytes() == region.bytes && data.chunks.iter().all(|chunk| chunk.bytes as usize <= CHUNK_BYTES)
        });
        if !fits {
            return Err(bad(container, &format!("region {} does not have its {} bytes", region.id, region.bytes)));
        }
    }
    Ok(regions)
}

/// Reads and judges what this rank gets back, before anything is made. None: nothing is restored.
pub(in crate::engine::rank) fn look(entry: &Entry, rank: u32) -> Result<Option<Saved>> {
    let Some(manifest) = &entry.manifest else { return Ok(None) };
    let member = manifest.member(Role::Rank, rank).ok_or_else(|| {
        let message = format!("checkpoint {} has no rank {rank}", manifest.epoch);
        Error::new(Status::InvalidArgument, message)
    })?;
    let container = open_member(&RealDisk, &entry.catalog, manifest, member)?;
    let regions = regions_of(&container)?;
    let mut executed = Vec::new();
    for section in container.of_kind(SectionKind::Dedupe) {
        let bytes = container.read_section(section, TABLE_BYTES_MAX)?;
        executed = decode_executed(&bytes).ok_or_else(|| bad(&container, "its table of requests is malformed"))?;
    }
    let mut sections = Vec::new();
    for section in container.of_kind(SectionKind::App) {
        sections.push((section.name.clone(), container.read_section(section, SECTION_BYTES_MAX)?));
    }
    steps::at("restore-chosen");
    Ok(Some(Saved { container, regions, executed, sections }))
}

impl<F: Fabric> Shared<F> {
    /// Opens the regions and fills them. Nobody is let in yet.
    pub(in crate::engine::rank) fn fill(&self, saved: Saved) -> Result<()> {
        let started = now();
        let (mut bytes, mut chunk) = (0, Vec::new());
        for region in &saved.regions {
            let length = usize::try_from(region.bytes).unwrap_or(usize::MAX);
            let memory = self.home.open(&self.fabric, region.id, length, region.access)?;
            let section = saved.container.toc.section(SectionKind::RegionData, region.id);
            let section = section.ok_or_else(|| bad(&saved.container, "a region without contents"))?;
            let mut at = 0_usize;
            for index in 0..section.chunks.len() {
                saved.container.read_chunk(section, index, &mut chunk)?;
                if chunk.len() > memory.bytes().saturating_sub(at) {
                    return Err(bad(&saved.container, "a region that is longer than it was found to be"));
                }
                // SAFETY: inside the region by the check above; nobody else knows of it yet.
                unsafe { core::ptr::copy_nonoverlapping(chunk.as_ptr(), memory.base().as_ptr().add(at), chunk.len()) };
                at += chunk.len();
            }
            self.home.publish(region.id);
            lock(&self.unclaimed).insert(region.id, memory);
            bytes += region.bytes;
        }
        lock(&self.dedupe).import(&saved.executed);
        steps::at("restore-filled");
        crate::event!(
            crate::observe::Level::INFO,
            crate::observe::events::CHECKPOINT_RESTORED,
            rank = self.rank,
            epoch = saved.container.block.epoch,
            regions = saved.regions.len(),
            bytes,
            ms = now().since_ns(started) / 1_000_000
        );
        *lock(&self.sections) = saved.sections;
        Ok(())
    }
}
