//! What a shard's container has in it, as chunks of sections.

use super::windows::{Exported, encode};
use crate::checkpoint::format::CHUNK_BYTES;
use crate::checkpoint::{ChunkSource, SectionKind, SectionPlan};
use crate::engine::state::HostState;
use crate::error::{Error, Result, Status};
use crate::ps::HandlerCounts;
use crate::ps::table::StoreImage;
use crate::sync::{Arc, Mutex, lock};

/// Most bytes of the host program's state: its chunks must fit a table of contents.
const STATE_BYTES_MAX: u64 = 1 << 41;

/// The host program's state as it was at the cut.
#[derive(Debug)]
pub(super) struct Frozen {
    state: Arc<dyn HostState>,
    epoch: u64,
    bytes: u64,
    /// Held while the program writes a part: one at a time.
    failed: Mutex<Option<Box<Error>>>,
}

impl Frozen {
    pub(super) fn freeze(state: &Arc<dyn HostState>, epoch: u64) -> Result<Frozen> {
        let bytes = state.freeze(epoch)?;
        let frozen = Frozen { state: Arc::clone(state), epoch, bytes, failed: Mutex::default() };
        if bytes > STATE_BYTES_MAX {
            frozen.release(false);
            let message = format!("the program's state of {bytes} bytes is larger than {STATE_BYTES_MAX}");
            return Err(Error::new(Status::ResourceLimit, message));
        }
        Ok(frozen)
    }

    fn chunk(&self, index: u32, out: &mut Vec<u8>) {
        let offset = u64::from(index) * CHUNK_BYTES as u64;
        let count = self.bytes.saturating_sub(offset).min(CHUNK_BYTES as u64);
        out.resize(usize::try_from(count).unwrap_or(CHUNK_BYTES), 0);
        let mut failed = lock(&self.failed);
        if failed.is_none() {
            *failed = self.state.save(offset, out).err();
        }
    }

    /// Why a part could not be written, if one could not.
    pub(super) fn trouble(&self) -> Option<Box<Error>> {
        lock(&self.failed).take()
    }

    pub(super) fn release(self, committed: bool) {
        self.state.release(self.epoch, committed);
    }
}

/// Name of the section of the host program's state.
const STATE: &str = "state";

/// A shard at the cut.
#[derive(Debug)]
pub(super) struct Contents {
    pub(super) image: StoreImage,
    pub(super) windows: Vec<Exported>,
    pub(super) counts: HandlerCounts,
    pub(super) host: String,
    pub(super) frozen: Option<Frozen>,
    made: Vec<(SectionPlan, Made)>,
}

/// How a section's chunks are made.
#[derive(Debug)]
enum Made {
    Bytes(Vec<Vec<u8>>),
    Rows(usize),
    State,
}

impl Contents {
    pub(super) fn new(image: StoreImage) -> Contents {
        let counts = HandlerCounts::default();
        Contents { image, windows: Vec::new(), counts, host: String::new(), frozen: None, made: Vec::new() }
    }

    /// Lays out the sections. After the gate is open again.
    pub(super) fn lay_out(&mut self) {
        self.image.settle();
        let mut made = Vec::new();
        let mut add = |kind, id, name: &str, optional, chunks: u32, how| {
            made.push((SectionPlan { kind, id, name: name.to_owned(), version: 1, optional, chunks }, how));
        };
        let bytes = |chunks: Vec<Vec<u8>>| (u32::try_from(chunks.len()).unwrap_or(u32::MAX), Made::Bytes(chunks));
        let (count, how) = bytes(vec![self.host.clone().into_bytes()]);
        add(SectionKind::Host, 0, "", true, count, how);
        for (at, table) in self.image.tables().iter().enumerate() {
            let id = u32::from(table.tag().0);
            let (count, how) = bytes(vec![table.describe()]);
            add(SectionKind::Table, id, table.name(), false, count, how);
            add(SectionKind::TableRows, id, table.name(), false, table.blocks(), Made::Rows(at));
        }
        if let Some(frozen) = &self.frozen {
            let chunks = frozen.bytes.div_ceil(CHUNK_BYTES as u64);
            add(SectionKind::App, 0, STATE, false, u32::try_from(chunks).unwrap_or(u32::MAX), Made::State);
        }
        let (count, how) = bytes(encode(&self.windows));
        add(SectionKind::Dedupe, 0, "", false, count, how);
        let (count, how) = bytes(vec![lines(&self.counts)]);
        add(SectionKind::Counters, 0, "", true, count, how);
        self.made = made;
    }

    pub(super) fn plans(&self) -> Vec<SectionPlan> {
        self.made.iter().map(|(plan, _)| plan.clone()).collect()
    }
}

impl ChunkSource for Contents {
    fn chunk(&self, section: usize, index: u32, out: &mut Vec<u8>) {
        match &self.made[section].1 {
            Made::Bytes(chunks) => out.extend_from_slice(&chunks[index as usize]),
            Made::State => self.frozen.iter().for_each(|frozen| frozen.chunk(index, out)),
            Made::Rows(table) => self.image.tables()[*table].block(index, out),
        }
    }
}

/// For people: what the shard had done.
fn lines(counts: &HandlerCounts) -> Vec<u8> {
    let HandlerCounts { gets, puts, updates, init_tables, commands, repeated, .. } = counts;
    format!(
        "gets={gets}\nputs={puts}\nupdates={updates}\ninit_tables={init_tables}\ncommands={commands}\nrepeated={repeated}\n"
    )
    .into_bytes()
}
