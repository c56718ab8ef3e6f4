//! What a shard's container has in it, as chunks of sections.

use super::windows::{Exported, encode};
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
