//! A rank's own regions: allocated, published in the table, found again by the threads that post from them.

use super::names::{Entry, REGION_BYTES_MAX, Version, iova_of};
use super::seqlock::{HEAD, Page, place_of};
use crate::error::{Error, Result, Status};
use crate::fabric::{Access, Fabric, Region, RegionAddress};
use crate::ids::{Epoch, Incarnation};
use crate::sync::{AtomicU64, Ordering, RwLock};
use crate::wire::region::{REGIONS_MAX, TABLE_BYTES, TABLE_MAGIC};
use core::ptr::NonNull;
use std::collections::BTreeMap;

/// A region of this rank, for who copies it or speaks of it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RegionFacts {
    /// Its id.
    pub id: u32,
    /// The address that peers know it by, in every life of this rank.
    pub iova: u64,
    /// Its length.
    pub bytes: usize,
    /// Its first byte here. Valid until the region is closed.
    pub data: NonNull<u8>,
    /// What peers may do with it.
    pub access: Access,
    /// Which registration it is.
    pub version: Version,
}

// SAFETY: an address of memory that processes share; whoever uses it goes through raw pointers or atomics.
unsafe impl Send for RegionFacts {}
// SAFETY: as above.
unsafe impl Sync for RegionFacts {}

#[derive(Debug)]
struct Held<F: Fabric> {
    memory: F::Region,
    entry: Entry,
}

#[derive(Debug)]
struct Regions<F: Fabric> {
    open: BTreeMap<u32, Held<F>>,
    /// Changes of the table so far.
    n: u32,
}

/// All regions of a rank.
#[derive(Debug)]
pub struct Home<F: Fabric> {
    incarnation: Incarnation,
    epoch: Epoch,
    table: F::Region,
    page: Page,
    regions: RwLock<Regions<F>>,
}

impl<F: Fabric> Home<F> {
    /// No regions yet.
    ///
    /// # Errors
    /// CONTEXT statuses when there is no memory for the table.
    pub fn new(fabric: &F, incarnation: Incarnation, epoch: Epoch) -> Result<Home<F>> {
        let table = fabric.allocate(TABLE_BYTES, Access::REMOTE_READ)?;
        // SAFETY: the region has that many bytes, is page-aligned, and lives as long as `table`, beside which it is kept.
        let page = unsafe { Page::at(table.base()) };
        let words = incarnation.0.to_le_bytes();
        let half = |at: usize| words[at..at + 8].try_into().map_or(0, u64::from_le_bytes);
        page.write(HEAD, &[TABLE_MAGIC, half(0), half(8), epoch.0, REGIONS_MAX as u64, 0, 0]);
        let regions = RwLock::new(Regions { open: BTreeMap::new(), n: 0 });
        Ok(Home { incarnation, epoch, table, page, regions })
    }

    /// The table's memory, which peers may read.
    #[must_use]
    pub fn table(&self) -> &F::Region {
        &self.table
    }

    fn write(&self) -> impl core::ops::DerefMut<Target = Regions<F>> + '_ {
        self.regions.write().unwrap_or_else(std::sync::PoisonError::into_inner)
    }

    fn read(&self) -> impl core::ops::Deref<Target = Regions<F>> + '_ {
        self.regions.read().unwrap_or_else(std::sync::PoisonError::into_inner)
    }

    /// Allocates a region under the address that belongs to its id. Peers do not see it before [`Home::publish`].
    ///
    /// # Errors
    /// `InvalidArgument` for an id or length out of bounds, or an id that is open; CONTEXT statuses.
    pub fn open(&self, fabric: &F, id: u32, bytes: usize, access: Access) -> Result<F::Region> {
        let refuse = |why: String| Err(Error::new(Status::InvalidArgument, why));
        if id as usize >= REGIONS_MAX {
            return refuse(format!("region {id}: ids go from 0 to {}", REGIONS_MAX - 1));
        }
        if bytes == 0 || bytes as u64 > REGION_BYTES_MAX {
            return refuse(format!("region {id}: {bytes} bytes; it must be 1 to {REGION_BYTES_MAX}"));
        }
        if access == Access::LOCAL {
            return refuse(format!("region {id}: no right for peers was named; name one of read, write, atomic"));
        }
        if self.read().open.contains_key(&id) {
            return refuse(format!("region {id} is open already; close it first, or take another id"));
        }
        let memory = fabric.allocate_at(bytes, access, Some(iova_of(id)))?;
        let mut regions = self.write();
        if regions.open.contains_key(&id) {
            return refuse(format!("region {id} is open already: another thread has just opened it"));
        }
        regions.n += 1;
        let entry = Entry { n: regions.n, address: memory.address() };
        regions.open.insert(id, Held { memory: memory.clone(), entry });
        Ok(memory)
    }

    /// Shows an open region in the table.
    pub fn publish(&self, id: u32) {
        let regions = self.write();
        if let Some(held) = regions.open.get(&id) {
            self.page.write(place_of(id), &held.entry.words());
        }
    }

    /// Takes a region out of the table. Its memory, for whoever has to take it back from peers.
    #[must_use]
    pub fn close(&self, id: u32) -> Option<F::Region> {
        let mut regions = self.write();
        let held = regions.open.remove(&id)?;
        regions.n += 1;
        self.page.write(place_of(id), &[0; crate::wire::region::ENTRY_WORDS]);
        Some(held.memory)
    }

    /// Takes all memory back from the device; see [`Region::suspend`]. On failure some of it may be taken back.
    ///
    /// # Errors
    /// As there.
    pub fn suspend(&self) -> Result<()> {
        self.table.suspend()?;
        self.read().open.values().try_for_each(|held| held.memory.suspend())
    }

    /// Registers it again: each region under its address and a new key, which is another version of it.
    ///
    /// # Errors
    /// As [`Region::resume`]; it can be tried again.
    pub fn resume(&self) -> Result<()> {
        self.table.resume()?;
        let mut regions = self.write();
        let Regions { open, n } = &mut *regions;
        for (id, held) in open {
            held.memory.resume()?;
            *n += 1;
            held.entry = Entry { n: *n, address: held.memory.address() };
            self.page.write(place_of(*id), &held.entry.words());
        }
        Ok(())
    }

    /// What peers are told.
    #[must_use]
    pub fn entries(&self) -> Vec<(u32, Entry)> {
        self.read().open.iter().map(|(id, held)| (*id, held.entry)).collect()
    }

    /// The memory of all regions.
    #[must_use]
    pub fn memory(&self) -> Vec<F::Region> {
        self.read().open.values().map(|held| held.memory.clone()).collect()
    }

    /// All regions, in the order of their ids.
    #[must_use]
    pub fn facts(&self) -> Vec<RegionFacts> {
        self.held().into_iter().map(|(facts, _)| facts).collect()
    }

    /// All regions with their memory, which stays while it is held.
    #[must_use]
    pub fn held(&self) -> Vec<(RegionFacts, F::Region)> {
        let one = |(id, held): (&u32, &Held<F>)| {
            let RegionAddress { iova, access, .. } = held.entry.address;
            let version = Version { incarnation: self.incarnation, epoch: self.epoch, n: held.entry.n };
            let (bytes, data) = (held.memory.bytes(), held.memory.base());
            (RegionFacts { id: *id, iova, bytes, data, access, version }, held.memory.clone())
        };
        self.read().open.iter().map(one).collect()
    }

    /// The local key of a piece of this rank's regions; none when it lies in none of them.
    #[must_use]
    pub fn key_of(&self, piece: *const u8, bytes: usize) -> Option<u32> {
        let holds = |held: &&Held<F>| {
            let offset = piece.addr().checked_sub(held.memory.base().addr().get());
            offset.and_then(|offset| offset.checked_add(bytes)).is_some_and(|end| end <= held.memory.bytes())
        };
        self.read().open.values().find(holds).map(|held| held.memory.lkey())
    }

    /// Executes an atomic by this processor: 1 fetch-add, 2 compare-swap. The old value, or why not (the numbers of
    /// [`AtomicAnswer`](crate::wire::region::AtomicAnswer)).
    ///
    /// # Errors
    /// Those numbers.
    pub fn execute(
        &self,
        op: u32,
        region: u32,
        offset: u64,
        operand: u64,
        swap: u64,
    ) -> core::result::Result<u64, u32> {
        let regions = self.read();
        let held = regions.open.get(&region).ok_or(1_u32)?;
        let end = offset.checked_add(8).ok_or(2_u32)?;
        if end > held.memory.bytes() as u64 || !offset.is_multiple_of(8) {
            return Err(2);
        }
        if !held.entry.address.access.allows(Access::REMOTE_ATOMIC) {
            return Err(3);
        }
        let offset = usize::try_from(offset).map_err(|_| 2_u32)?;
        // SAFETY: eight aligned bytes inside the region, which the lock keeps open; shared memory is touched atomically.
        let word = unsafe { AtomicU64::from_ptr(held.memory.base().as_ptr().add(offset).cast()) };
        match op {
            // AcqRel: ordered with what the asker wrote before and reads after. Partner: the same here.
            1 => Ok(word.fetch_add(operand, Ordering::AcqRel)),
            // AcqRel, Acquire: as above.
            2 => {
                Ok(word.compare_exchange(operand, swap, Ordering::AcqRel, Ordering::Acquire).unwrap_or_else(|old| old))
            }
            _ => Err(4),
        }
    }
}
