//! A simulated shard's state as sections of a container, and back.

use crate::checkpoint::format::{Reader, put_u32, put_u64};
use crate::checkpoint::{ChunkSource, Container, SectionKind, SectionPlan};
use crate::engine::server::checkpoint::windows::{Exported, SavedWindow, decode, encode};
use crate::error::{Error, Result, Status};
use crate::simulate::ledger::{Image, Ledger};
use crate::simulate::shard::Shard;

/// Keys of one chunk.
const KEYS: u64 = 2;

/// What a shard is at one moment.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub(super) struct State {
    pub(super) image: Image,
    /// What was executed for its clients.
    pub(super) windows: Vec<Exported>,
    /// The same as a file has it.
    encoded: Vec<Vec<u8>>,
}

impl State {
    /// Of this moment.
    pub(super) fn of(shard: &Shard, ledger: &Ledger) -> State {
        State::new(ledger.image(), windows(shard, true))
    }

    pub(super) fn new(image: Image, windows: Vec<Exported>) -> State {
        let encoded = encode(&windows);
        State { image, windows, encoded }
    }

    pub(super) fn plans(&self, keys: u64) -> Vec<SectionPlan> {
        let plan = |kind, chunks: u64| SectionPlan {
            kind,
            id: 0,
            name: String::new(),
            version: 1,
            optional: false,
            chunks: chunks as u32,
        };
        vec![plan(SectionKind::TableRows, keys.div_ceil(KEYS)), plan(SectionKind::Dedupe, self.encoded.len() as u64)]
    }
}

/// The windows of a shard's clients; without what is in them, where that is forgotten.
pub(super) fn windows(shard: &Shard, with_entries: bool) -> Vec<Exported> {
    let export = |((client, incarnation), guest): (&(_, _), &crate::simulate::join::Guest)| {
        let mut exported = Exported::of(*client, *incarnation, &guest.window);
        if !with_entries {
            exported.entries.clear();
        }
        exported
    };
    shard.guests.iter().map(export).collect()
}

impl ChunkSource for State {
    fn chunk(&self, section: usize, index: u32, out: &mut Vec<u8>) {
        if section == 1 {
            out.extend_from_slice(&self.encoded[index as usize]);
            return;
        }
        let first = u64::from(index) * KEYS;
        for key in first..first + KEYS {
            let updates = self.image.applied.iter().filter(|((_, of), _)| *of == key);
            put_u64(out, key);
            put_u32(out, self.image.versions.get(&key).copied().unwrap_or(0));
            put_u32(out, updates.clone().count() as u32);
            for ((op, _), times) in updates {
                put_u64(out, *op);
                put_u32(out, *times);
            }
        }
    }
}

/// What a container says.
pub(super) fn read(container: &Container) -> Result<(State, Vec<SavedWindow>)> {
    let malformed =
        |what: &str| Error::new(Status::InvalidArgument, format!("{what} of a simulated shard are malformed"));
    let (mut state, mut saved, mut chunk) = (State::default(), Vec::new(), Vec::new());
    for section in container.of_kind(SectionKind::TableRows) {
        for index in 0..section.chunks.len() {
            container.read_chunk(section, index, &mut chunk)?;
            read_rows(&chunk, &mut state.image).ok_or_else(|| malformed("rows"))?;
        }
    }
    for section in container.of_kind(SectionKind::Dedupe) {
        for index in 0..section.chunks.len() {
            container.read_chunk(section, index, &mut chunk)?;
            decode(&chunk, &mut saved).ok_or_else(|| malformed("windows"))?;
        }
    }
    let export = |one: &SavedWindow| Exported::of(one.client, one.incarnation, &one.window);
    let windows = saved.iter().map(export).collect();
    Ok((State::new(state.image, windows), saved))
}

fn read_rows(chunk: &[u8], image: &mut Image) -> Option<()> {
    let mut r = Reader(chunk);
    while !r.is_empty() {
        let (key, version) = (r.u64()?, r.u32()?);
        if version > 0 {
            image.versions.insert(key, version);
        }
        for _ in 0..r.count(12)? {
            let (op, times) = (r.u64()?, r.u32()?);
            image.applied.insert((op, key), times);
        }
    }
    Some(())
}
