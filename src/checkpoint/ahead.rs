//! Reads chunks of a container by several threads, ahead of who takes them, and hands them over in order.

use super::format::Section;
use super::reader::Container;
use crate::error::{Error, Result, Status};
use crate::sync::{Condvar, Mutex, MutexGuard, lock};
use std::collections::BTreeMap;

/// Chunks that each thread reads before the first of them is taken.
const AHEAD: usize = 2;
/// Fewer are read by the caller itself.
const CHUNKS_MIN: usize = 16;

fn readers() -> usize {
    std::thread::available_parallelism().map_or(2, usize::from).clamp(2, 4)
}

/// A chunk, by section and place in it.
pub type ChunkOf<'a> = (&'a Section, usize);

#[derive(Debug, Default)]
struct State {
    next: usize,
    taken: usize,
    ready: BTreeMap<usize, Result<Vec<u8>>>,
    spare: Vec<Vec<u8>>,
    stop: bool,
}

/// Where readers put what they have read.
#[derive(Debug, Default)]
struct Desk {
    state: Mutex<State>,
    changed: Condvar,
}

/// Lets the readers go home, also when the taker falls.
struct Closing<'a>(&'a Desk);

impl Drop for Closing<'_> {
    fn drop(&mut self) {
        lock(&self.0.state).stop = true;
        self.0.changed.notify_all();
    }
}

impl Desk {
    fn wait<'a>(&self, guard: MutexGuard<'a, State>) -> MutexGuard<'a, State> {
        self.changed.wait(guard).unwrap_or_else(std::sync::PoisonError::into_inner)
    }

    fn read(&self, container: &Container, chunks: &[ChunkOf<'_>], hashes: bool, window: usize) {
        let mut state = lock(&self.state);
        loop {
            while !state.stop && state.next < chunks.len() && state.next >= state.taken + window {
                state = self.wait(state);
            }
            if state.stop || state.next >= chunks.len() {
                return;
            }
            let mine = state.next;
            state.next += 1;
            let mut buffer = state.spare.pop().unwrap_or_default();
            drop(state);
            let judged = container.read_judged(chunks[mine], hashes, &mut buffer).map(|()| buffer);
            state = lock(&self.state);
            state.ready.insert(mine, judged);
            self.changed.notify_all();
        }
    }

    fn take_all(&self, chunks: &[ChunkOf<'_>], take: &mut Take<'_>) -> Result<()> {
        for (at, (section, index)) in chunks.iter().enumerate() {
            let mut state = lock(&self.state);
            let judged = loop {
                if let Some(judged) = state.ready.remove(&at) {
                    break judged;
                }
                state = self.wait(state);
            };
            drop(state);
            let buffer = judged?;
            take(section, *index, &buffer)?;
            let mut state = lock(&self.state);
            state.taken = at + 1;
            state.spare.push(buffer);
            self.changed.notify_all();
        }
        Ok(())
    }
}

/// Who takes chunks: section, place in it, bytes.
pub type Take<'a> = dyn FnMut(&Section, usize, &[u8]) -> Result<()> + 'a;

impl Container {
    /// Every chunk of sections, in order.
    pub fn chunks_of<'a>(sections: impl Iterator<Item = &'a Section>) -> Vec<ChunkOf<'a>> {
        sections.flat_map(|section| (0..section.chunks.len()).map(move |index| (section, index))).collect()
    }

    fn read_judged(&self, (section, index): ChunkOf<'_>, hashes: bool, buffer: &mut Vec<u8>) -> Result<()> {
        self.read_chunk(section, index, buffer)?;
        let chunk = section.chunks.get(index);
        if hashes && chunk.is_none_or(|chunk| *blake3::hash(buffer).as_bytes() != chunk.hash) {
            let (path, title) = (self.path().display(), section.title());
            let message = format!("checkpoint file {path}: chunk {index} of {title} does not have its hash");
            return Err(Error::new(Status::InvalidArgument, message));
        }
        Ok(())
    }

    /// Reads chunks, judges each, with its hash if `hashes` says so, and hands them to `take` in order. Reading goes on in
    /// other threads meanwhile.
    ///
    /// # Errors
    /// As for [`Container::read_chunk`]; the first that `take` returns. Chunks after the one with the error are not taken.
    pub fn read_ahead(&self, chunks: &[ChunkOf<'_>], hashes: bool, take: &mut Take<'_>) -> Result<()> {
        if chunks.len() < CHUNKS_MIN {
            let mut buffer = Vec::new();
            return chunks.iter().try_for_each(|chunk| {
                self.read_judged(*chunk, hashes, &mut buffer)?;
                take(chunk.0, chunk.1, &buffer)
            });
        }
        let (desk, threads) = (Desk::default(), readers());
        std::thread::scope(|scope| {
            let closing = Closing(&desk);
            for reader in 0..threads {
                let read = || desk.read(self, chunks, hashes, threads * AHEAD);
                match crate::thread::start_scoped(scope, "reclane-ckpt-io", read) {
                    Err(error) if reader == 0 => return Err(error),
                    // Those that there are read it all.
                    Err(_) => break,
                    Ok(()) => {}
                }
            }
            let done = desk.take_all(chunks, take);
            drop(closing);
            done
        })
    }

    /// Reads every chunk once; nothing is kept.
    ///
    /// # Errors
    /// As for [`Container::read_chunk`]; also when a chunk's hash is not that of its bytes.
    pub fn verify(&self) -> Result<()> {
        self.read_ahead(&Container::chunks_of(self.toc.sections.iter()), true, &mut |_, _, _| Ok(()))
    }
}
