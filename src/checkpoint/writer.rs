//! Writes one container: chunks by several threads, each hashed once, unchanged ones not at all.

use super::disk::{Disk, DiskFile};
use super::format::{
    CHUNK_BYTES_MAX, Chunk, FEATURE_INCREMENTAL, FileRef, PAGE, Section, SectionKind, Superblock, Toc, Trailer,
    chunk_crc, page_up,
};
use super::steps;
use crate::error::{Error, Result, Status};
use crate::sync::{AtomicBool, AtomicU64, AtomicUsize, Mutex, Ordering, lock};
use std::collections::HashMap;
use std::io;
use std::path::{Path, PathBuf};

/// A section to write.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct SectionPlan {
    /// What it is.
    pub kind: SectionKind,
    /// Which of its kind.
    pub id: u32,
    /// Its name.
    pub name: String,
    /// Version of its contents.
    pub version: u16,
    /// Whether a reader may go on without knowing it.
    pub optional: bool,
    /// How many chunks it has.
    pub chunks: u32,
}

/// What is written. Threads: several at once, each with its own `out`.
pub trait ChunkSource: Sync {
    /// Puts a chunk into `out`, which is empty: the `index`-th of the `section`-th of the plan.
    fn chunk(&self, section: usize, index: u32, out: &mut Vec<u8>);
}

/// What an earlier checkpoint has of the same member, by section kind, section and chunk.
#[derive(Clone, Debug, Default)]
pub struct Known {
    chunks: HashMap<(u16, u32, u32), (FileRef, Chunk)>,
}

impl Known {
    /// What a container has, itself and its ancestors.
    #[must_use]
    pub fn of(own: FileRef, toc: &Toc) -> Known {
        let mut chunks = HashMap::new();
        for section in &toc.sections {
            for (index, chunk) in (0..).zip(&section.chunks) {
                let file = chunk.file.checked_sub(1).map_or(Some(own), |at| toc.files.get(at as usize).copied());
                chunks.extend(file.map(|file| ((section.kind, section.id, index), (file, *chunk))));
            }
        }
        Known { chunks }
    }

    fn same(&self, kind: u16, id: u32, index: u32, hash: &[u8; 32], bytes: usize) -> Option<(FileRef, Chunk)> {
        let known = self.chunks.get(&(kind, id, index))?;
        (known.1.hash == *hash && known.1.bytes as usize == bytes).then_some(*known)
    }
}

/// A container that is on the disk under its name.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Written {
    /// Its length.
    pub bytes: u64,
    /// Its digest.
    pub digest: [u8; 32],
    /// Bytes of all chunks.
    pub state_bytes: u64,
    /// Bytes of the chunks that are in this file.
    pub own_bytes: u64,
    /// Its table of contents, for the next incremental one.
    pub toc: Toc,
    /// Earlier epochs that it needs.
    pub needs: Vec<u64>,
}

/// A container that is being written, under a name that no reader looks at.
#[derive(Debug)]
pub struct Unfinished {
    path: PathBuf,
    file: Box<dyn DiskFile>,
}

fn failed(doing: &str, path: &Path, error: &io::Error) -> Box<Error> {
    Error::os(format_args!("cannot {doing} {}", path.display()), error)
}

/// Whether a file name is one of an unfinished file, which may be removed when nobody writes it.
#[must_use]
pub fn is_unfinished(name: &str) -> bool {
    name.starts_with(".unfinished-")
}

/// A name for a file that becomes `name`: no leftover of another attempt is in its way.
#[must_use]
pub fn unfinished_name(name: &str, nonce: u128) -> String {
    format!(".unfinished-{nonce:032x}-{name}")
}

impl Unfinished {
    /// Makes the directory and the file, and sets `bytes` aside in it, so that a full disk shows before work stops.
    ///
    /// # Errors
    /// `OsError`; nothing is left behind then.
    pub fn create(disk: &dyn Disk, directory: &Path, name: &str, nonce: u128, bytes: u64) -> Result<Unfinished> {
        disk.make_dir(directory).map_err(|error| failed("make directory", directory, &error))?;
        let path = directory.join(unfinished_name(name, nonce));
        let file = disk.create(&path).map_err(|error| failed("create", &path, &error))?;
        let unfinished = Unfinished { path, file };
        if let Err(error) = unfinished.file.allocate(bytes) {
            let message = format!("set {bytes} bytes aside for a checkpoint in");
            let error = failed(&message, &unfinished.path, &error);
            unfinished.discard(disk);
            return Err(error);
        }
        steps::at("space-allocated");
        Ok(unfinished)
    }

    /// Removes it.
    pub fn discard(self, disk: &dyn Disk) {
        drop(self.file);
        // What cannot be removed now is collected later.
        let _ = disk.remove_file(&self.path);
    }
}

/// What to write.
#[derive(Clone, Copy)]
pub struct Task<'a> {
    /// The file's name within its directory.
    pub name: &'a str,
    /// Whose it is; the writer adds the features that it uses.
    pub block: &'a Superblock,
    /// Its sections.
    pub plans: &'a [SectionPlan],
    /// Their contents.
    pub source: &'a dyn ChunkSource,
    /// Chunks that need not be written again.
    pub known: Option<&'a Known>,
    /// Threads that write.
    pub threads: usize,
}

impl core::fmt::Debug for Task<'_> {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.debug_struct("Task").field("name", &self.name).field("sections", &self.plans.len()).finish_non_exhaustive()
    }
}

/// What the writing threads share.
struct Work<'a> {
    plans: &'a [SectionPlan],
    source: &'a dyn ChunkSource,
    known: Option<&'a Known>,
    /// Section and chunk of each piece of work.
    jobs: Vec<(usize, u32)>,
    next_job: AtomicUsize,
    next_at: AtomicU64,
    file: &'a dyn DiskFile,
    failed: AtomicBool,
    done: Mutex<(Vec<Done>, Option<io::Error>)>,
}

struct Done {
    job: usize,
    chunk: Chunk,
    older: Option<FileRef>,
}

impl Work<'_> {
    fn run(&self) {
        let (mut buffer, mut mine) = (Vec::new(), Vec::new());
        let mut trouble = None;
        while !self.failed.load(Ordering::Relaxed) {
            let job = self.next_job.fetch_add(1, Ordering::Relaxed);
            if job >= self.jobs.len() {
                break;
            }
            match self.one(job, &mut buffer) {
                Ok(done) => mine.push(done),
                Err(error) => {
                    trouble = Some(error);
                    self.failed.store(true, Ordering::Relaxed);
                }
            }
        }
        let mut done = lock(&self.done);
        done.0.append(&mut mine);
        if done.1.is_none() {
            done.1 = trouble;
        }
    }

    fn one(&self, job: usize, buffer: &mut Vec<u8>) -> io::Result<Done> {
        let (section, index) = self.jobs[job];
        let plan = &self.plans[section];
        buffer.clear();
        self.source.chunk(section, index, buffer);
        let length = buffer.len();
        if length > CHUNK_BYTES_MAX {
            let message = format!("a chunk of {length} bytes is larger than {CHUNK_BYTES_MAX}");
            return Err(io::Error::new(io::ErrorKind::InvalidInput, message));
        }
        let kind = plan.kind as u16;
        let hash = *blake3::hash(buffer).as_bytes();
        if let Some((file, chunk)) = self.known.and_then(|known| known.same(kind, plan.id, index, &hash, length)) {
            return Ok(Done { job, chunk, older: Some(file) });
        }
        let crc = chunk_crc(kind, plan.id, index, buffer);
        let padded = page_up(length as u64);
        let at = self.next_at.fetch_add(padded, Ordering::Relaxed);
        buffer.resize(usize::try_from(padded).unwrap_or(length), 0);
        self.file.write_at(at, buffer)?;
        self.file.start_writing(at, padded);
        let bytes = u32::try_from(length).unwrap_or(u32::MAX);
        Ok(Done { job, chunk: Chunk { file: 0, at, bytes, crc, hash }, older: None })
    }
}

/// Writes a container and gives it its name. It is durable when this returns.
///
/// A failed sync is final: the file is thrown away, never synced a second time.
///
/// # Errors
/// `OsError`, `InvalidArgument` for a plan that the format cannot hold; the unfinished file is removed.
pub fn write_container(disk: &dyn Disk, unfinished: Unfinished, task: &Task<'_>) -> Result<Written> {
    let written = fill(&unfinished, task)
        .map_err(|error| failed("write", &unfinished.path, &error))
        .and_then(|written| publish(disk, &unfinished, task.name).map(|()| written));
    if written.is_err() {
        unfinished.discard(disk);
    }
    written
}

fn publish(disk: &dyn Disk, unfinished: &Unfinished, name: &str) -> Result<()> {
    let directory = unfinished.path.parent().ok_or_else(|| Error::new(Status::Bug, "a container without directory"))?;
    let path = directory.join(name);
    let settle = || {
        disk.rename(&unfinished.path, &path)?;
        steps::at("file-renamed");
        disk.sync_dir(directory)
    };
    settle().map_err(|error| failed("give its name to", &path, &error))
}

fn fill(unfinished: &Unfinished, task: &Task<'_>) -> io::Result<Written> {
    let file = &*unfinished.file;
    let Task { block, plans, source, known, threads, .. } = *task;
    let jobs: Vec<(usize, u32)> = plans
        .iter()
        .enumerate()
        .flat_map(|(section, plan)| (0..plan.chunks).map(move |index| (section, index)))
        .collect();
    let work = Work {
        plans,
        source,
        known,
        jobs,
        next_job: AtomicUsize::new(0),
        next_at: AtomicU64::new(PAGE as u64),
        file,
        failed: AtomicBool::new(false),
        done: Mutex::default(),
    };
    let helpers = threads.clamp(1, work.jobs.len().max(1)) - 1;
    std::thread::scope(|scope| {
        // Those that cannot be had are done without.
        let start = |_| crate::thread::start_scoped(scope, "reclane-ckpt-io", || work.run());
        (0..helpers).map(start).take_while(Result::is_ok).for_each(drop);
        work.run();
    });
    let toc_at = work.next_at.load(Ordering::Relaxed);
    let (done, trouble) = work.done.into_inner().unwrap_or_else(std::sync::PoisonError::into_inner);
    if let Some(error) = trouble {
        return Err(error);
    }
    let toc = contents(plans, &work.jobs, done);
    let mut block = *block;
    if !toc.files.is_empty() {
        block.required |= FEATURE_INCREMENTAL;
    }
    let (head, encoded) = (block.encode(), toc.encode());
    let mut digest = blake3::Hasher::new();
    digest.update(&head).update(&encoded);
    let total_bytes = toc_at + page_up(encoded.len() as u64) + PAGE as u64;
    let trailer = Trailer {
        total_bytes,
        toc_at,
        toc_bytes: encoded.len() as u64,
        toc_crc: crc32c::crc32c(&encoded),
        digest: *digest.finalize().as_bytes(),
    };
    // Shortened first: what `allocate` set aside beyond the end goes, and all padding reads as zero.
    file.set_len(toc_at)?;
    file.set_len(total_bytes)?;
    file.write_at(0, &head)?;
    file.write_at(toc_at, &encoded)?;
    file.write_at(total_bytes - PAGE as u64, &trailer.encode())?;
    steps::at("file-written");
    file.sync()?;
    steps::at("file-synced");
    let mut needs: Vec<u64> = toc.files.iter().map(|file| file.epoch).collect();
    needs.sort_unstable();
    needs.dedup();
    Ok(Written {
        bytes: total_bytes,
        digest: trailer.digest,
        state_bytes: toc.sections.iter().map(Section::bytes).sum(),
        own_bytes: toc.own_chunks().map(|chunk| u64::from(chunk.bytes)).sum(),
        toc,
        needs,
    })
}

fn contents(plans: &[SectionPlan], jobs: &[(usize, u32)], mut done: Vec<Done>) -> Toc {
    let mut toc = Toc::default();
    let mut places: HashMap<FileRef, u32> = HashMap::new();
    done.sort_unstable_by_key(|done| done.job);
    for plan in plans {
        let (kind, id, name) = (plan.kind as u16, plan.id, plan.name.clone());
        let chunks = Vec::with_capacity(plan.chunks as usize);
        toc.sections.push(Section { kind, version: plan.version, optional: plan.optional, id, name, chunks });
    }
    for Done { job, mut chunk, older } in done {
        chunk.file = older.map_or(0, |file| {
            *places.entry(file).or_insert_with(|| {
                toc.files.push(file);
                u32::try_from(toc.files.len()).unwrap_or(u32::MAX)
            })
        });
        toc.sections[jobs[job].0].chunks.push(chunk);
    }
    toc
}

/// Writes a small file so that it is there whole or not at all, and durable when this returns.
///
/// # Errors
/// `OsError`; the unfinished file is removed.
pub fn write_small(disk: &dyn Disk, directory: &Path, name: &str, nonce: u128, bytes: &[u8]) -> Result<()> {
    let (path, temporary) = (directory.join(name), directory.join(unfinished_name(name, nonce)));
    let write = || {
        let file = disk.create(&temporary)?;
        file.write_at(0, bytes)?;
        file.sync()?;
        drop(file);
        steps_of_manifest(name, "manifest-written");
        disk.rename(&temporary, &path)?;
        steps_of_manifest(name, "manifest-renamed");
        disk.sync_dir(directory)
    };
    write().map_err(|error| {
        let _ = disk.remove_file(&temporary);
        failed("write", &path, &error)
    })
}

fn steps_of_manifest(name: &str, label: &'static str) {
    if name == super::catalog::MANIFEST {
        steps::at(label);
    }
}
