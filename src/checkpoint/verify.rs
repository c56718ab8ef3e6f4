//! Whether a checkpoint is whole: every file that its manifest names, and every earlier one that they build on.

use super::catalog::Catalog;
use super::disk::Disk;
use super::manifest::{Manifest, Member};
use super::reader::Container;
use crate::error::{Error, Result, Status};

/// How closely to look.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Depth {
    /// Names, lengths, superblocks, tables of contents, trailers.
    Outline,
    /// Every byte.
    Whole,
}

/// Opens the container of a member and compares it with what the manifest says.
///
/// # Errors
/// `OsError`; `InvalidArgument` naming file and reason.
pub fn open_member(disk: &dyn Disk, catalog: &Catalog, manifest: &Manifest, member: &Member) -> Result<Container> {
    let path = catalog.directory_of(manifest.epoch).join(member.file_name());
    let container = Container::open(disk, &path, &|epoch| catalog.directory_of(epoch))?;
    let (block, trailer) = (&container.block, &container.trailer);
    let named = [
        ("checkpoint", block.checkpoint == manifest.checkpoint),
        ("job", block.job == manifest.job),
        ("epoch", block.epoch == manifest.epoch),
        ("role", block.role == member.role as u32),
        ("number", (block.rank, block.world) == (member.rank, member.world)),
        ("length", trailer.total_bytes == member.bytes),
        ("digest", trailer.digest == member.digest),
    ];
    match named.iter().find(|(_, same)| !same) {
        None => Ok(container),
        Some((what, _)) => {
            let message = format!(
                "checkpoint file {}: its {what} is not the one in the manifest; it belongs elsewhere",
                path.display()
            );
            Err(Error::new(Status::InvalidArgument, message))
        }
    }
}

/// Looks at all of a checkpoint.
///
/// # Errors
/// The first thing that is wrong, with its file.
pub fn verify(disk: &dyn Disk, catalog: &Catalog, manifest: &Manifest, depth: Depth) -> Result<()> {
    for member in &manifest.members {
        let container = open_member(disk, catalog, manifest, member)?;
        let missing = container.toc.files.iter().find(|file| !manifest.needs.contains(&file.epoch));
        if let Some(file) = missing {
            let path = container.path().display();
            let message =
                format!("checkpoint file {path} builds on epoch {}, which the manifest does not name", file.epoch);
            return Err(Error::new(Status::InvalidArgument, message));
        }
        if depth == Depth::Whole {
            container.verify()?;
        }
    }
    Ok(())
}
