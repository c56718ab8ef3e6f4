//! The format, the catalogue and the writer against damage, full disks and lost power.

mod catalogue;
mod damage;
mod faults;
mod power;

use super::catalog::Catalog;
use super::disk::Disk;
use super::format::{FileRef, SectionKind, Superblock};
use super::manifest::{Manifest, Member, Role, Timing};
use super::reader::Container;
use super::writer::{ChunkSource, Known, SectionPlan, Task, Unfinished, Written, write_container};
use crate::error::Result;
use std::path::Path;

pub(super) const JOB: u128 = 0x0b0b;

/// A source whose chunks are computed: section, chunk and a salt decide.
#[derive(Clone, Debug)]
pub(super) struct Computed {
    pub plans: Vec<SectionPlan>,
    /// One per section and chunk; equal salts give equal bytes.
    pub salts: Vec<Vec<u64>>,
    pub bytes: usize,
}

pub(super) fn filler(salt: u64, bytes: usize) -> Vec<u8> {
    let mut state = salt.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1;
    (0..bytes)
        .map(|_| {
            state ^= state << 13;
            state ^= state >> 7;
            state ^= state << 17;
            state.to_le_bytes()[3]
        })
        .collect()
}

impl ChunkSource for Computed {
    fn chunk(&self, section: usize, index: u32, out: &mut Vec<u8>) {
        let salt = self.salts[section][index as usize];
        out.extend(filler(salt, self.bytes + usize::try_from(salt % 7).unwrap()));
    }
}

pub(super) fn plan(kind: SectionKind, id: u32, name: &str, chunks: u32) -> SectionPlan {
    SectionPlan { kind, id, name: name.to_owned(), version: 1, optional: false, chunks }
}

/// A small container's contents: several kinds, an empty section, chunks that are no multiple of anything.
pub(super) fn sample(salt: u64) -> Computed {
    let plans = vec![
        plan(SectionKind::Host, 0, "", 1),
        plan(SectionKind::Table, 3, "items", 1),
        plan(SectionKind::TableRows, 3, "items", 4),
        plan(SectionKind::Dedupe, 0, "", 0),
        plan(SectionKind::App, 0, "trainer", 1),
    ];
    let salts = plans.iter().zip(1..).map(|(p, s)| (0..u64::from(p.chunks)).map(|c| salt + s * 100 + c).collect());
    Computed { salts: salts.collect(), plans, bytes: 5000 }
}

pub(super) fn block(epoch: u64, rank: u32, world: u32) -> Superblock {
    Superblock {
        minor: 0,
        required: 0,
        optional: 0,
        checkpoint: 0xc0ffee_u128 << 64 | u128::from(epoch),
        job: JOB,
        epoch,
        role: Role::Shard as u32,
        rank,
        world,
        instance: 77,
        unix_us: 1_234_567,
    }
}

/// Writes one shard's container.
pub(super) fn write(
    disk: &dyn Disk,
    catalog: &Catalog,
    block: &Superblock,
    source: &Computed,
    known: Option<&Known>,
) -> Result<Written> {
    let name = Role::Shard.file_name(block.rank, block.world);
    let directory = catalog.directory_of(block.epoch);
    let nonce = u128::from(block.rank) + 1;
    let unfinished = Unfinished::create(disk, &directory, &name, nonce, 100_000)?;
    let task = Task { name: &name, block, plans: &source.plans, source, known, threads: 2 };
    write_container(disk, unfinished, &task)
}

/// A whole checkpoint of `world` shards; what was written, for the next one to build on.
pub(super) fn checkpoint(
    disk: &dyn Disk,
    catalog: &Catalog,
    sources: &[Computed],
    before: &[(FileRef, Written)],
) -> Result<Vec<(FileRef, Written)>> {
    let epoch = catalog.promise(disk, 99)?;
    let world = u32::try_from(sources.len()).unwrap();
    let (mut members, mut done, mut needs) = (Vec::new(), Vec::new(), Vec::new());
    for (rank, source) in (0..).zip(sources) {
        let block = block(epoch, rank, world);
        let known = before.get(rank as usize).map(|(file, written)| Known::of(*file, &written.toc));
        let written = write(disk, catalog, &block, source, known.as_ref())?;
        needs.extend(&written.needs);
        let Written { bytes, digest, state_bytes, .. } = written;
        members.push(Member { role: Role::Shard, rank, world, bytes, digest, state_bytes });
        let file = FileRef { epoch, checkpoint: block.checkpoint, rank, world, bytes, digest };
        done.push((file, written));
    }
    needs.sort_unstable();
    needs.dedup();
    catalog.commit(disk, &manifest(epoch, members, needs), 98)?;
    Ok(done)
}

pub(super) fn manifest(epoch: u64, members: Vec<Member>, needs: Vec<u64>) -> Manifest {
    Manifest {
        checkpoint: block(epoch, 0, 1).checkpoint,
        job: JOB,
        job_name: "reclane".to_owned(),
        epoch,
        parent: needs.last().copied().unwrap_or(0),
        unix_us: 5,
        hash_method: 0,
        timing: Timing::default(),
        members,
        needs,
    }
}

/// Every chunk of a container is what the source says.
pub(super) fn assert_holds(container: &Container, source: &Computed) {
    let (mut chunk, mut wanted) = (Vec::new(), Vec::new());
    for (at, plan) in source.plans.iter().enumerate() {
        let section = container.toc.section(plan.kind, plan.id).expect("the section is there");
        assert_eq!(section.chunks.len(), plan.chunks as usize);
        for index in 0..plan.chunks {
            container.read_chunk(section, index as usize, &mut chunk).expect("the chunk is good");
            wanted.clear();
            source.chunk(at, index, &mut wanted);
            assert!(chunk == wanted, "chunk {index} of {}", section.title());
        }
    }
}

pub(super) fn open(disk: &dyn Disk, catalog: &Catalog, epoch: u64, rank: u32, world: u32) -> Result<Container> {
    let path = catalog.directory_of(epoch).join(Role::Shard.file_name(rank, world));
    Container::open(disk, &path, &|epoch| catalog.directory_of(epoch))
}

pub(super) fn catalog() -> Catalog {
    Catalog::new(Path::new("/checkpoints"))
}
