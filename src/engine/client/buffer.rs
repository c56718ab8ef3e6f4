//! Memory that the library allocated and every shard can reach.

use crate::fabric::shm::ShmRegion;
use crate::fabric::{Region, RegionAddress};
use core::ptr::NonNull;

/// Registered memory of a client. Lives until the last of its users is gone; rows in it are f32, and a request that
/// names it keeps it alive no longer than the caller does: keep it until the request is done.
#[derive(Clone, Debug)]
pub enum Buffer {
    /// Shared memory.
    Shm(ShmRegion),
}

impl Buffer {
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
        let Buffer::Shm(region) = self;
        region.base()
    }

    fn bytes(&self) -> usize {
        let Buffer::Shm(region) = self;
        region.bytes()
    }

    fn lkey(&self) -> u32 {
        let Buffer::Shm(region) = self;
        region.lkey()
    }

    fn address(&self) -> RegionAddress {
        let Buffer::Shm(region) = self;
        region.address()
    }
}
