//! Memory of lanes out of few large registrations: one after the other, each shared by as many lanes as fit, whoever they
//! lead to. A registration goes when nothing of it is used any more.

use super::device::Device;
use super::memory::VerbsRegion;
use super::space::{Space, UNIT_BYTES};
use crate::error::Result;
use crate::fabric::{Access, Region};
use crate::options::HugePages;
use crate::sync::{Arc, Mutex, Weak, lock};

/// How memory of one kind is had.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Kind {
    pub(super) access: Access,
    pub(super) huge: HugePages,
    pub(super) numa_id: Option<u32>,
}

/// One registration.
#[derive(Debug)]
pub(super) struct Chunk {
    region: VerbsRegion,
    space: Mutex<Space>,
}

/// The registrations of a device that lanes share.
#[derive(Debug, Default)]
pub(super) struct Arena {
    chunks: Mutex<Vec<(Kind, Weak<Chunk>)>>,
    /// By kind: what somebody has said that will be asked for soon.
    expected: Mutex<Vec<(Kind, usize)>>,
}

/// A part of a registration. It goes back when this is dropped.
#[derive(Debug)]
pub(super) struct Part {
    pub(super) chunk: Arc<Chunk>,
    pub(super) offset: usize,
    bytes: usize,
}

impl Chunk {
    pub(super) fn region(&self) -> &VerbsRegion {
        &self.region
    }

    fn part(self: &Arc<Chunk>, bytes: usize) -> Option<Part> {
        let offset = lock(&self.space).take(bytes)?;
        Some(Part { chunk: Arc::clone(self), offset, bytes })
    }
}

impl Drop for Part {
    fn drop(&mut self) {
        lock(&self.chunk.space).give_back(self.offset, self.bytes);
    }
}

impl Arena {
    /// So many bytes of this kind will be asked for, so that they can be one registration.
    pub(super) fn expect(&self, kind: Kind, bytes: usize) {
        let mut expected = lock(&self.expected);
        match expected.iter_mut().find(|(known, _)| *known == kind) {
            Some((_, more)) => *more += bytes,
            None => expected.push((kind, bytes)),
        }
    }

    /// Zeroed memory. A new registration is as large as what is asked for and expected, or as a quarter of all that there is of
    /// the kind, but not larger than `most`, unless that much is asked for at once.
    pub(super) fn take(device: &Arc<Device>, kind: Kind, bytes: usize, most: usize) -> Result<VerbsRegion> {
        let arena = &device.arena;
        let mut chunks = lock(&arena.chunks);
        chunks.retain(|(_, chunk)| chunk.strong_count() > 0);
        let asked = bytes.next_multiple_of(UNIT_BYTES);
        let expected = {
            let mut expected = lock(&arena.expected);
            let known = expected.iter_mut().find(|(known, _)| *known == kind);
            known.map_or(0, |(_, more)| core::mem::replace(more, more.saturating_sub(asked)))
        };
        let alive = || chunks.iter().filter(|(known, _)| *known == kind).filter_map(|(_, chunk)| chunk.upgrade());
        if let Some(part) = alive().find_map(|chunk| chunk.part(bytes)) {
            let region = VerbsRegion::part(part, bytes);
            // What was here before has left it; a peer of that time is not connected any more.
            region.clear();
            return Ok(region);
        }
        let had: usize = alive().map(|chunk| chunk.region.bytes()).sum();
        let wanted = asked.max(expected.max(had / 4 / UNIT_BYTES * UNIT_BYTES).min(most));
        let region = match VerbsRegion::allocate(device, wanted, kind, None) {
            // Room to spare is not worth a failure.
            Err(_) if wanted > asked => VerbsRegion::allocate(device, asked, kind, None)?,
            other => other?,
        };
        let space = Mutex::new(Space::new(region.bytes()));
        let chunk = Arc::new(Chunk { region, space });
        chunks.push((kind, Arc::downgrade(&chunk)));
        match chunk.part(bytes) {
            Some(part) => Ok(VerbsRegion::part(part, bytes)),
            // As large as was asked for, so it fits.
            None => Ok(chunk.region.clone()),
        }
    }
}
