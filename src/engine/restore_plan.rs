//! A checkpoint that was found and looked at, and what a restore of it means.

use crate::checkpoint::disk::RealDisk;
use crate::checkpoint::verify::{Depth, open_member};
use crate::checkpoint::{Catalog, Manifest, Role, SectionKind};
use crate::error::{Error, Result, Status};
use crate::options::Options;

/// Largest application section that is handed out.
const SECTION_BYTES_MAX: u64 = 64 << 20;

/// A checkpoint, every byte of it looked at. Nothing was made of it yet.
#[derive(Clone, Debug)]
pub struct RestorePlan {
    catalog: Catalog,
    manifest: Manifest,
    refused: Vec<(u64, String)>,
}

impl RestorePlan {
    /// The newest checkpoint below `directory` that is whole, or the one of `epoch`.
    ///
    /// # Errors
    /// `InvalidArgument` when there is none, with the reasons against those that are there; `OsError`.
    pub fn open(directory: &str, epoch: Option<u64>) -> Result<RestorePlan> {
        let catalog = Catalog::new(directory);
        let choice = catalog.choose(&RealDisk, None, epoch, Depth::Whole)?;
        let Some(manifest) = choice.manifest else {
            let reasons: Vec<String> = choice.refused.iter().map(|(epoch, why)| format!("{epoch}: {why}")).collect();
            let why = if reasons.is_empty() { "there is none".to_owned() } else { reasons.join("; ") };
            let message = format!("no checkpoint in {directory} can be restored: {why}");
            return Err(Error::new(Status::InvalidArgument, message));
        };
        Ok(RestorePlan { catalog, manifest, refused: choice.refused })
    }

    /// What will be restored.
    #[must_use]
    pub fn manifest(&self) -> &Manifest {
        &self.manifest
    }

    /// Newer ones that were passed over, each with the reason.
    #[must_use]
    pub fn refused(&self) -> &[(u64, String)] {
        &self.refused
    }

    /// The application section of this name; None: the checkpoint has none.
    ///
    /// # Errors
    /// `OsError`; `InvalidArgument` when it was damaged since it was looked at.
    pub fn section(&self, name: &str) -> Result<Option<Vec<u8>>> {
        // Ranks bring their own: rank 0's is the one that a launcher asks for.
        let member = self.manifest.member(Role::App, 0).or_else(|| self.manifest.member(Role::Rank, 0));
        let Some(member) = member else { return Ok(None) };
        let container = open_member(&RealDisk, &self.catalog, &self.manifest, member)?;
        let section = container.of_kind(SectionKind::App).find(|section| section.name == name);
        section.map(|section| container.read_section(section, SECTION_BYTES_MAX)).transpose()
    }

    /// How many ranks it is of; 0: it is of a parameter server.
    #[must_use]
    pub fn ranks(&self) -> u32 {
        self.manifest.ranks()
    }

    /// Copies bytes of a rank's region from `offset` on, as many as `out` takes and there are. The region's whole length.
    ///
    /// # Errors
    /// `InvalidArgument` when there is no such rank or region, or it was damaged since it was looked at; `OsError`.
    pub fn region(&self, rank: u32, region: u32, offset: u64, out: &mut [u8]) -> Result<u64> {
        let missing = |what: &str| {
            let message = format!("checkpoint {} has no {what}", self.manifest.epoch);
            Error::new(Status::InvalidArgument, message)
        };
        let member = self.manifest.member(Role::Rank, rank).ok_or_else(|| missing(&format!("rank {rank}")))?;
        let container = open_member(&RealDisk, &self.catalog, &self.manifest, member)?;
        let section = container.toc.section(SectionKind::RegionData, region);
        let section = section.ok_or_else(|| missing(&format!("region {region} of rank {rank}")))?;
        let end = offset.saturating_add(out.len() as u64);
        let (mut at, mut chunk) = (0_u64, Vec::new());
        for (index, known) in section.chunks.iter().enumerate() {
            let next = at + u64::from(known.bytes);
            let (from, to) = (at.max(offset), next.min(end));
            if from < to {
                container.read_chunk(section, index, &mut chunk)?;
                let place = |position: u64, base: u64| usize::try_from(position - base).unwrap_or(usize::MAX);
                let piece = &chunk[place(from, at)..place(to, at)];
                out[place(from, offset)..place(to, offset)].copy_from_slice(piece);
            }
            at = next;
        }
        Ok(at)
    }

    /// Lets servers or ranks that are opened with these options start from this checkpoint and no other.
    ///
    /// # Errors
    /// As for [`Options::set`].
    pub fn apply(&self, options: &mut Options) -> Result<()> {
        let directory = self.catalog.root().to_str().unwrap_or_default();
        options.set("checkpoint-directory", directory)?;
        options.set("checkpoint-restore", "require")?;
        options.set("checkpoint-restore-epoch", &self.manifest.epoch.to_string())
    }
}
