//! What a shard's container has in it, as chunks of sections.

use super::windows::{Exported, encode};
use crate::checkpoint::format::{put_u64, Reader};
use crate::checkpoint::{ChunkSource, SectionKind, SectionPlan};
use crate::ps::HandlerCounts;
use crate::ps::table::StoreImage;

/// A shard at the cut.
#[derive(Debug)]
pub(super) struct Contents {
    pub(super) image: StoreImage,
    pub(super) windows: Vec<Exported>,
    pub(super) counts: HandlerCounts,
    pub(super) host: String,
    made: Vec<(SectionPlan, Made)>,
}

/// How a section's chunks are made.
#[derive(Debug)]
enum Made {
    Bytes(Vec<Vec<u8>>),
    Rows(usize),
}

impl Contents {
    pub(super) fn new(image: StoreImage) -> Contents {
        let counts = HandlerCounts::default();
        Contents { image, windows: Vec::new(), counts, host: String::new(), made: Vec::new() }
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
        let (count, how) = bytes(encode(&self.windows));
        add(SectionKind::Dedupe, 0, "", false, count, how);
        let (count, how) = bytes(vec![encode_counts(&self.counts)]);
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
            Made::Rows(table) => self.image.tables()[*table].block(index, out),
        }
    }
}

fn encode_counts(counts: &HandlerCounts) -> Vec<u8> {
    let mut out = Vec::new();
    for value in [counts.gets, counts.puts, counts.updates, counts.init_tables, counts.commands, counts.repeated] {
        put_u64(&mut out, value);
    }
    out
}

/// Names and values of a COUNTERS section, for people.
pub(in crate::engine) fn decode_counts(bytes: &[u8]) -> Vec<(&'static str, u64)> {
    let mut r = Reader(bytes);
    ["gets", "puts", "updates", "init_tables", "commands", "repeated"]
        .into_iter()
        .map_while(|name| r.u64().map(|value| (name, value)))
        .collect()
}
