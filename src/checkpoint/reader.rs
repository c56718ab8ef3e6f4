//! Reads containers, taking every byte for hostile.

use super::disk::{Disk, DiskFile};
use super::format::{FileRef, PAGE, Section, SectionKind, Superblock, Toc, Trailer, chunk_crc, page_up};
use super::manifest::Role;
use crate::error::{Error, Result, Status};
use std::io;
use std::path::{Path, PathBuf};

/// An open container, judged as far as one can without reading its chunks.
#[derive(Debug)]
pub struct Container {
    path: PathBuf,
    file: Box<dyn DiskFile>,
    /// Whose it is.
    pub block: Superblock,
    /// What is in it.
    pub toc: Toc,
    /// Its end.
    pub trailer: Trailer,
    /// Files of earlier checkpoints that chunks lie in, as [`Toc::files`] has them.
    older: Vec<Container>,
}

fn unreadable(path: &Path, error: &io::Error) -> Box<Error> {
    Error::os(format_args!("cannot read checkpoint file {}", path.display()), error)
}

fn bad(path: &Path, what: impl core::fmt::Display) -> Box<Error> {
    Error::new(Status::InvalidArgument, format!("checkpoint file {}: {what}", path.display()))
}

impl Container {
    /// Opens a container and those of earlier checkpoints that it needs; `directory_of` says where an epoch's files are.
    ///
    /// # Errors
    /// `OsError`; `InvalidArgument` naming what is wrong.
    pub fn open(disk: &dyn Disk, path: &Path, directory_of: &dyn Fn(u64) -> PathBuf) -> Result<Container> {
        let mut container = Container::open_alone(disk, path)?;
        let role = Role::from_code(container.block.role).ok_or_else(|| {
            bad(path, format_args!("the superblock names role {}, which is unknown", container.block.role))
        })?;
        for file in &container.toc.files {
            if file.epoch >= container.block.epoch {
                return Err(bad(
                    path,
                    format_args!("it needs epoch {}, which is not earlier than its own", file.epoch),
                ));
            }
            let older = directory_of(file.epoch).join(role.file_name(file.rank, file.world));
            let older = Container::open_alone(disk, &older)
                .map_err(|mut error| {
                    error.message =
                        format!("checkpoint file {} needs an earlier one: {}", path.display(), error.message);
                    error
                })
                .and_then(|older| if older.is(file) { Ok(older) } else { Err(older.foreign(path)) })?;
            container.older.push(older);
        }
        container.check_borrowed()?;
        Ok(container)
    }

    fn open_alone(disk: &dyn Disk, path: &Path) -> Result<Container> {
        let read = |error| unreadable(path, &error);
        let file = disk.open(path).map_err(read)?;
        let length = file.bytes().map_err(read)?;
        if length < 2 * PAGE as u64 || !length.is_multiple_of(PAGE as u64) {
            return Err(bad(path, format_args!("it has {length} bytes, which no whole container has: it was cut off")));
        }
        let mut page = [0; PAGE];
        file.read_at(length - PAGE as u64, &mut page).map_err(read)?;
        let trailer = Trailer::decode(&page, length).map_err(|what| bad(path, format_args!("the trailer {what}")))?;
        let mut head = [0; PAGE];
        file.read_at(0, &mut head).map_err(read)?;
        let block = Superblock::decode(&head).map_err(|what| bad(path, format_args!("the superblock {what}")))?;
        // Bounded by TOC_BYTES_MAX and by the file.
        let mut toc = vec![0; usize::try_from(page_up(trailer.toc_bytes)).unwrap_or(0)];
        file.read_at(trailer.toc_at, &mut toc).map_err(read)?;
        let padding = toc.split_off(usize::try_from(trailer.toc_bytes).unwrap_or(0));
        let contents = |what: &str| bad(path, format_args!("the table of contents {what}"));
        if crc32c::crc32c(&toc) != trailer.toc_crc || padding.iter().any(|byte| *byte != 0) {
            return Err(contents("is damaged: its checksum does not fit"));
        }
        let mut digest = blake3::Hasher::new();
        digest.update(&head).update(&toc);
        if *digest.finalize().as_bytes() != trailer.digest {
            return Err(bad(path, "superblock, table of contents and trailer are not of one file"));
        }
        let toc = Toc::decode(&toc, trailer.toc_at).map_err(|what| contents(&what))?;
        Ok(Container { path: path.to_owned(), file, block, toc, trailer, older: Vec::new() })
    }

    fn is(&self, file: &FileRef) -> bool {
        let block = &self.block;
        (block.epoch, block.checkpoint, block.rank, block.world) == (file.epoch, file.checkpoint, file.rank, file.world)
            && (self.trailer.total_bytes, self.trailer.digest) == (file.bytes, file.digest)
    }

    fn foreign(&self, wanted_by: &Path) -> Box<Error> {
        bad(&self.path, format_args!("it is not the file that {} builds on", wanted_by.display()))
    }

    /// How a later container names this one.
    #[must_use]
    pub fn reference(&self) -> FileRef {
        let Superblock { epoch, checkpoint, rank, world, .. } = self.block;
        FileRef { epoch, checkpoint, rank, world, bytes: self.trailer.total_bytes, digest: self.trailer.digest }
    }

    /// Where it is.
    #[must_use]
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// What is taken from an earlier file is there, as the same chunk of the same section.
    fn check_borrowed(&self) -> Result<()> {
        for section in &self.toc.sections {
            for (index, chunk) in section.chunks.iter().enumerate().filter(|(_, chunk)| chunk.file != 0) {
                let Some(older) = self.older.get(chunk.file as usize - 1) else {
                    return Err(bad(&self.path, format_args!("{} lies in a file that is not named", section.title())));
                };
                let same = |other: &Section| (other.kind, other.id) == (section.kind, section.id);
                let theirs =
                    older.toc.sections.iter().find(|other| same(other)).and_then(|other| other.chunks.get(index));
                let whole = |theirs: &&super::format::Chunk| {
                    let (a, b) = (theirs, chunk);
                    theirs.file == 0 && (a.at, a.bytes, a.crc, a.hash) == (b.at, b.bytes, b.crc, b.hash)
                };
                if theirs.filter(whole).is_none() {
                    let older = older.path.display();
                    return Err(bad(
                        &self.path,
                        format_args!("chunk {index} of {} is not in {older}", section.title()),
                    ));
                }
            }
        }
        Ok(())
    }

    /// Reads a chunk and judges it.
    ///
    /// # Errors
    /// `OsError`; `InvalidArgument` naming section and chunk when a byte of it is not what was written.
    pub fn read_chunk(&self, section: &Section, index: usize, out: &mut Vec<u8>) -> Result<()> {
        let chunk = section
            .chunks
            .get(index)
            .ok_or_else(|| bad(&self.path, format_args!("{} has no chunk {index}", section.title())))?;
        let holder = match chunk.file {
            0 => self,
            at => self
                .older
                .get(at as usize - 1)
                .ok_or_else(|| bad(&self.path, format_args!("{} lies in a file that is not named", section.title())))?,
        };
        let length = chunk.bytes as usize;
        out.resize(usize::try_from(page_up(u64::from(chunk.bytes))).unwrap_or(length), 0);
        holder.file.read_at(chunk.at, out).map_err(|error| unreadable(&holder.path, &error))?;
        let clean = out[length..].iter().all(|byte| *byte == 0);
        out.truncate(length);
        let place = u32::try_from(index).unwrap_or(u32::MAX);
        if !clean || chunk_crc(section.kind, section.id, place, out) != chunk.crc {
            let what = format!("chunk {index} of {} is damaged: its checksum does not fit", section.title());
            return Err(bad(&holder.path, what));
        }
        Ok(())
    }

    /// All bytes of a section of at most `most` bytes.
    ///
    /// # Errors
    /// As for [`Container::read_chunk`]; `InvalidArgument` for a larger one.
    pub fn read_section(&self, section: &Section, most: u64) -> Result<Vec<u8>> {
        if section.bytes() > most {
            let what = format!("{} has {} bytes, more than {most}", section.title(), section.bytes());
            return Err(bad(&self.path, what));
        }
        let (mut all, mut chunk) = (Vec::new(), Vec::new());
        for index in 0..section.chunks.len() {
            self.read_chunk(section, index, &mut chunk)?;
            all.extend_from_slice(&chunk);
        }
        Ok(all)
    }

    /// Sections of a kind.
    pub fn of_kind(&self, kind: SectionKind) -> impl Iterator<Item = &Section> {
        self.toc.of_kind(kind)
    }
}
