//! Memory that the library allocated and every shard can reach.

use crate::fabric::shm::ShmRegion;
#[cfg(feature = "verbs")]
use crate::fabric::verbs::VerbsRegion;
use crate::fabric::{Region, RegionAddress};
use crate::sync::Arc;
use core::ptr::NonNull;

/// Registered memory of a client. Lives until the last of its users is gone; rows in it are f32, and a request that
/// names it keeps it alive no longer than the caller does: keep it until the request is done. When the last clone is
/// dropped the shards let go of it too.
#[derive(Clone, Debug)]
pub struct Buffer {
    memory: Memory,
    _lease: Arc<Lease>,
}

/// The memory itself, by fabric.
#[derive(Clone, Debug)]
pub(super) enum Memory {
    /// Shared memory.
    Shm(ShmRegion),
    /// Memory registered with a device.
    #[cfg(feature = "verbs")]
    Verbs(VerbsRegion),
}

/// Does the same on the region of whichever fabric a buffer is of.
macro_rules! on_region {
    ($buffer:expr, $region:ident => $body:expr) => {
        match &$buffer.memory {
            Memory::Shm($region) => $body,
            #[cfg(feature = "verbs")]
            Memory::Verbs($region) => $body,
        }
    };
}

/// The shards' knowledge of a buffer.
struct Lease(Box<dyn Fn() + Send + Sync>);

impl core::fmt::Debug for Lease {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.write_str("Lease")
    }
}

impl Drop for Lease {
    fn drop(&mut self) {
        (self.0)();
    }
}

impl Buffer {
    pub(super) fn new(memory: Memory, give_back: impl Fn() + Send + Sync + 'static) -> Buffer {
        Buffer { memory, _lease: Arc::new(Lease(Box::new(give_back))) }
    }

    /// Where it is mapped.
    #[must_use]
    pub fn data(&self) -> *mut u8 {
        self.base().as_ptr()
    }

    /// Its size.
    #[must_use]
    pub fn bytes(&self) -> usize {
        Region::bytes(self)
    }
}

impl Region for Buffer {
    fn base(&self) -> NonNull<u8> {
        on_region!(self, region => region.base())
    }

    fn bytes(&self) -> usize {
        on_region!(self, region => region.bytes())
    }

    fn lkey(&self) -> u32 {
        on_region!(self, region => region.lkey())
    }

    fn address(&self) -> RegionAddress {
        on_region!(self, region => region.address())
    }
}
