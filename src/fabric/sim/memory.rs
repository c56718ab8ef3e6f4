//! Memory of simulated processes: real memory, touched by the network through atomics only.

use super::net::Net;
use crate::error::{Error, Result, Status};
use crate::fabric::{Access, Region, RegionAddress};
use crate::sync::{Arc, AtomicU8, AtomicU64, Ordering};
use crate::wire::PAGE_BYTES;
use core::ptr::NonNull;
use std::alloc::{Layout, alloc_zeroed, dealloc};

/// Page-aligned zeroed memory.
#[derive(Debug)]
pub(super) struct Memory {
    base: NonNull<u8>,
    layout: Layout,
}

// SAFETY: the memory is reached through atomics and raw pointers, by whatever thread.
unsafe impl Send for Memory {}
// SAFETY: as above.
unsafe impl Sync for Memory {}

impl Memory {
    pub(super) fn new(bytes: usize) -> Result<Memory> {
        let refuse = || Error::new(Status::ResourceLimit, format!("no memory for a simulated region of {bytes} bytes"));
        let rounded = bytes.max(1).checked_next_multiple_of(PAGE_BYTES).ok_or_else(refuse)?;
        let layout = Layout::from_size_align(rounded, PAGE_BYTES).map_err(|_| refuse())?;
        // SAFETY: the layout has a size above 0.
        let base = NonNull::new(unsafe { alloc_zeroed(layout) }).ok_or_else(refuse)?;
        Ok(Memory { base, layout })
    }

    pub(super) fn base(&self) -> NonNull<u8> {
        self.base
    }

    /// Where `address` lies, if `bytes` from it on are inside.
    pub(super) fn offset_of(&self, address: usize, bytes: usize) -> Option<usize> {
        let offset = address.checked_sub(self.base.addr().get())?;
        (offset.checked_add(bytes)? <= self.layout.size()).then_some(offset)
    }

    pub(super) fn word(&self, offset: usize) -> Option<&AtomicU64> {
        if !offset.is_multiple_of(8) || offset.checked_add(8)? > self.layout.size() {
            return None;
        }
        // SAFETY: aligned and inside the memory, which the borrow keeps.
        Some(unsafe { AtomicU64::from_ptr(self.base.as_ptr().add(offset).cast()) })
    }

    fn byte(&self, offset: usize) -> Option<&AtomicU8> {
        if offset >= self.layout.size() {
            return None;
        }
        // SAFETY: inside the memory, which the borrow keeps.
        Some(unsafe { AtomicU8::from_ptr(self.base.as_ptr().add(offset)) })
    }

    /// Stores bytes in ascending order, whole words in one piece.
    pub(super) fn store(&self, mut offset: usize, mut data: &[u8]) {
        while !data.is_empty() {
            if let (Some(word), Some((eight, rest))) = (self.word(offset), data.split_first_chunk::<8>()) {
                // Release: a reader that sees this word with Acquire sees what was stored before it.
                word.store(u64::from_ne_bytes(*eight), Ordering::Release);
                (offset, data) = (offset + 8, rest);
                continue;
            }
            let Some(byte) = self.byte(offset) else { return };
            byte.store(data[0], Ordering::Relaxed);
            (offset, data) = (offset + 1, &data[1..]);
        }
    }

    /// Appends `bytes` bytes to `out`.
    pub(super) fn load(&self, mut offset: usize, bytes: usize, out: &mut Vec<u8>) {
        let end = offset + bytes;
        while offset < end {
            if let Some(word) = self.word(offset).filter(|_| end - offset >= 8) {
                // Acquire: pairs with the Release of whoever stored the word.
                out.extend_from_slice(&word.load(Ordering::Acquire).to_ne_bytes());
                offset += 8;
                continue;
            }
            let Some(byte) = self.byte(offset) else { return };
            out.push(byte.load(Ordering::Relaxed));
            offset += 1;
        }
    }
}

impl Drop for Memory {
    fn drop(&mut self) {
        // SAFETY: allocated with this layout, and nobody holds it any more.
        unsafe { dealloc(self.base.as_ptr(), self.layout) };
    }
}

/// What the network knows of a region.
#[derive(Clone, Debug)]
pub(super) struct Registered {
    pub(super) memory: Arc<Memory>,
    pub(super) iova: u64,
    pub(super) bytes: usize,
    pub(super) access: Access,
}

#[derive(Debug)]
struct Inner {
    net: Arc<Net>,
    host: u32,
    key: u32,
    registered: Registered,
}

impl Drop for Inner {
    fn drop(&mut self) {
        self.net.lock().forget_region(self.host, self.key);
    }
}

/// Registered memory of one simulated process.
#[derive(Clone, Debug)]
pub struct SimRegion(Arc<Inner>);

impl SimRegion {
    pub(super) fn new(net: &Arc<Net>, host: u32, bytes: usize, access: Access, iova: Option<u64>) -> Result<SimRegion> {
        let memory = Arc::new(Memory::new(bytes)?);
        let (key, registered) = net.lock().register(host, memory, bytes, access, iova);
        Ok(SimRegion(Arc::new(Inner { net: Arc::clone(net), host, key, registered })))
    }

    pub(super) fn owner(&self) -> u32 {
        self.0.host
    }
}

impl Region for SimRegion {
    fn base(&self) -> NonNull<u8> {
        self.0.registered.memory.base()
    }

    fn bytes(&self) -> usize {
        self.0.registered.bytes
    }

    fn lkey(&self) -> u32 {
        self.0.key
    }

    fn address(&self) -> RegionAddress {
        let r = &self.0.registered;
        RegionAddress { iova: r.iova, bytes: r.bytes as u64, rkey: self.0.key, access: r.access }
    }
}
