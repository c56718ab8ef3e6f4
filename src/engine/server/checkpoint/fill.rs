//! Fills a shard from the files of a checkpoint.
//!
//! Shard 0 looks at every byte of a checkpoint before it chooses it. Where keys lie as they lay it fills its rows in the same
//! pass, its own file last, and forgets them again when the file is not whole: nobody has seen them.

use super::windows::{SavedWindow, decode};
use crate::checkpoint::disk::RealDisk;
use crate::checkpoint::verify::{Depth, open_member, verify};
use crate::checkpoint::{Catalog, Container, Manifest, Member, Role, SectionKind};
use crate::engine::state::{HostState, Piece};
use crate::error::{Error, Result, Status};
use crate::ids::TableTag;
use crate::options::{HashMethod, Settings};
use crate::ps::BuiltinStore;
use std::collections::BTreeMap;

/// Largest description of a table.
const TABLE_BYTES_MAX: u64 = 1 << 20;

/// What is filled, and what was already.
#[derive(Debug)]
pub(in crate::engine) struct Filler<'a> {
    pub(super) settings: &'a Settings,
    /// The built-in store; None: another one, whose state is the host program's.
    pub(super) store: Option<&'a BuiltinStore>,
    pub(super) state: Option<&'a dyn HostState>,
    /// Rows that were filled while their file was looked at.
    pub(super) rows: Option<usize>,
    /// What is wrong with this server and not with a file.
    pub(super) fatal: Option<Box<Error>>,
}

impl<'a> Filler<'a> {
    /// Fills nothing, and looks at every byte of files that others read.
    pub(in crate::engine) fn judge_only(settings: &'a Settings) -> Filler<'a> {
        Filler { settings, store: None, state: None, rows: None, fatal: None }
    }
}

impl Filler<'_> {
    /// Shards and keys are as they were: the other shards' files have nothing for this one.
    fn is_same(&self, manifest: &Manifest) -> bool {
        let method = u32::from(self.settings.hash_method == HashMethod::SimpleMod);
        manifest.shards() == self.settings.num_shards && manifest.hash_method == method
    }

    /// Looks at every byte of a checkpoint.
    pub(super) fn judge(&mut self, catalog: &Catalog, manifest: &Manifest) -> Result<()> {
        if self.fatal.is_some() {
            return Err(Error::new(Status::WrongState, "this shard cannot be filled"));
        }
        verify(&RealDisk, catalog, manifest, Depth::Outline)?;
        let same = self.is_same(manifest);
        let own = |member: &&Member| same && member.role == Role::Shard && member.rank == self.settings.shard_id;
        for member in manifest.members.iter().filter(|member| !own(member)) {
            open_member(&RealDisk, catalog, manifest, member)?.verify()?;
        }
        let own = manifest.members.iter().find(own);
        own.map_or(Ok(()), |member| self.fill_unread(&open_member(&RealDisk, catalog, manifest, member)?))
    }

    /// Looks at every byte of a file, and fills rows on the way.
    fn fill_unread(&mut self, container: &Container) -> Result<()> {
        let Some(store) = self.store else { return container.verify() };
        let chunks = Container::chunks_of(container.toc.sections.iter());
        let tags = read_tables(container)?.into_iter().map(|(id, table)| Ok((id, store.restore_table(&table)?)));
        let tags: BTreeMap<u32, TableTag> = match tags.collect::<Result<_>>() {
            Ok(tags) => tags,
            Err(error) => return Err(self.cannot(error)),
        };
        let (mut rows, mut fatal) = (0, None);
        let filled = container.read_ahead(&chunks, true, &mut |section, _, bytes| {
            if section.kind != SectionKind::TableRows as u16 {
                return Ok(());
            }
            let tag = tag_of(container, &tags, section)?;
            rows += store.restore_block(tag, bytes).inspect_err(|error| fatal = Some(error.clone()))?;
            Ok(())
        });
        match (filled, fatal) {
            (Ok(()), _) => {
                self.rows = Some(rows);
                Ok(())
            }
            (Err(_), Some(error)) => Err(self.cannot(error)),
            // The next older one starts from an empty store.
            (Err(error), None) => match store.clear(0) {
                Ok(()) => Err(error),
                Err(trouble) => Err(self.cannot(trouble)),
            },
        }
    }

    fn cannot(&mut self, error: Box<Error>) -> Box<Error> {
        self.fatal = Some(error.clone());
        error
    }

    /// Rows of this shard, the host program's state, and windows if shards and keys are as they were.
    pub(super) fn fill(&self, catalog: &Catalog, manifest: &Manifest) -> Result<(usize, Vec<SavedWindow>)> {
        if self.store.is_none() && self.state.is_none() {
            let message = "this shard's store keeps its own state and has not been opened with callbacks for it: use \
                           reclane_server_open_with_state, or start it with checkpoint-restore=off";
            return Err(Error::new(Status::Unsupported, message));
        }
        let same = self.is_same(manifest);
        let (mut rows, mut windows) = (self.rows.unwrap_or(0), Vec::new());
        for member in manifest.members.iter().filter(|member| member.role == Role::Shard) {
            if same && member.rank != self.settings.shard_id {
                continue;
            }
            let container = open_member(&RealDisk, catalog, manifest, member)?;
            match self.store {
                Some(store) if self.rows.is_none() => rows += fill_tables(store, &container)?,
                Some(_) => {}
                None => refuse_rows(&container)?,
            }
            load_state(self.state, &container)?;
            if same {
                read_windows(&container, &mut windows)?;
            }
        }
        Ok((rows, windows))
    }
}

/// Descriptions of tables, by section.
fn read_tables(container: &Container) -> Result<BTreeMap<u32, Vec<u8>>> {
    let tables = container.of_kind(SectionKind::Table);
    tables.map(|section| Ok((section.id, container.read_section(section, TABLE_BYTES_MAX)?))).collect()
}

fn tag_of(
    container: &Container,
    tags: &BTreeMap<u32, TableTag>,
    section: &crate::checkpoint::format::Section,
) -> Result<TableTag> {
    tags.get(&section.id).copied().ok_or_else(|| {
        let message = format!("{}: {} has no table", container.path().display(), section.title());
        Error::new(Status::InvalidArgument, message)
    })
}

fn fill_tables(store: &BuiltinStore, container: &Container) -> Result<usize> {
    let tables = read_tables(container)?.into_iter();
    let tags = tables.map(|(id, table)| Ok((id, store.restore_table(&table)?))).collect::<Result<BTreeMap<_, _>>>()?;
    let chunks = Container::chunks_of(container.of_kind(SectionKind::TableRows));
    let mut rows = 0;
    container.read_ahead(&chunks, false, &mut |section, _, bytes| {
        rows += store.restore_block(tag_of(container, &tags, section)?, bytes)?;
        Ok(())
    })?;
    Ok(rows)
}

/// A store of its own kind has no use for the built-in one's rows, and they must not be lost silently.
fn refuse_rows(container: &Container) -> Result<()> {
    match container.of_kind(SectionKind::TableRows).find(|section| !section.chunks.is_empty()) {
        None => Ok(()),
        Some(section) => {
            let (path, title) = (container.path().display(), section.title());
            let message = format!("{path}: {title} has rows of the built-in store; this shard has another one");
            Err(Error::new(Status::Unsupported, message))
        }
    }
}

/// Hands the program back what was saved of it.
fn load_state(state: Option<&dyn HostState>, container: &Container) -> Result<()> {
    let (shard, shards) = (container.block.rank, container.block.world);
    for section in container.of_kind(SectionKind::App) {
        let total = section.bytes();
        let Some(state) = state else {
            let path = container.path().display();
            let message = format!(
                "{path}: there are {total} bytes of the program's own state in it; open the server with \
                 reclane_server_open_with_state, or they are lost"
            );
            return Err(Error::new(Status::Unsupported, message));
        };
        let mut offset = 0;
        if total == 0 {
            state.load(&Piece { shard, shards, total, offset, bytes: &[] })?;
        }
        container.read_ahead(&Container::chunks_of([section].into_iter()), false, &mut |_, _, bytes| {
            state.load(&Piece { shard, shards, total, offset, bytes })?;
            offset += bytes.len() as u64;
            Ok(())
        })?;
    }
    Ok(())
}

fn read_windows(container: &Container, windows: &mut Vec<SavedWindow>) -> Result<()> {
    let chunks = Container::chunks_of(container.of_kind(SectionKind::Dedupe));
    container.read_ahead(&chunks, false, &mut |section, _, bytes| {
        decode(bytes, windows).ok_or_else(|| {
            let message = format!("{}: {} is malformed", container.path().display(), section.title());
            Error::new(Status::InvalidArgument, message)
        })
    })
}
