//! What a rank knows of a peer's regions: a flat array by id, told by the peer's notices, and on one host checked against
//! the peer's table in shared memory with one load per operation.

use super::names::Entry;
use super::seqlock::{HEAD, Page, place_of};
use crate::fabric::{Access, Qp, RegionAddress, RemoteAddr};
use crate::ids::{Epoch, Incarnation};
use crate::wire::region::{REGIONS_MAX, TABLE_BYTES, TABLE_MAGIC};

/// The sequence of an entry that no table has: it is read before it is believed.
const FROM_NOTICE: u64 = u64::MAX;

#[derive(Clone, Copy, Debug)]
struct Cached {
    entry: Entry,
    sequence: u64,
}

/// A peer's table in shared memory.
#[derive(Clone, Copy, Debug)]
pub struct PageOfPeer(pub(super) Page);

impl PageOfPeer {
    /// The table at this address, if it is that of this life of the peer.
    pub fn find<Q: Qp>(qp: &Q, table: RegionAddress, incarnation: Incarnation, epoch: Epoch) -> Option<PageOfPeer> {
        let remote = RemoteAddr { address: table.iova, rkey: table.rkey };
        let place = qp.window(remote, TABLE_BYTES, Access::REMOTE_READ)?;
        // SAFETY: the window is that long, page-aligned, and mapped as long as the queue pair lives, which is kept beside
        // the page in the line.
        let page = unsafe { Page::at(place) };
        is_of(page, incarnation, epoch).then_some(PageOfPeer(page))
    }
}

/// A peer's regions.
#[derive(Debug, Default)]
pub(super) struct View {
    /// Empty until the peer has told something.
    entries: Vec<Option<Cached>>,
}

/// Whether a table in shared memory is this life's of the peer: one of an earlier life is not believed.
pub(super) fn is_of(page: Page, incarnation: Incarnation, epoch: Epoch) -> bool {
    let Some((_, [magic, low, high, at, ..])) = page.read(HEAD) else { return false };
    magic == TABLE_MAGIC && (u128::from(high) << 64 | u128::from(low)) == incarnation.0 && at == epoch.0
}

impl View {
    /// The peer has told all its regions.
    pub(super) fn told(&mut self, regions: &[(u32, Entry)]) {
        self.entries.clear();
        self.entries.resize(REGIONS_MAX, None);
        for (id, entry) in regions {
            if let Some(place) = self.entries.get_mut(*id as usize) {
                *place = Some(Cached { entry: *entry, sequence: FROM_NOTICE });
            }
        }
    }

    /// A region, as it is now as far as can be seen from here.
    #[inline]
    pub(super) fn get(&mut self, page: Option<Page>, region: u32) -> Option<Entry> {
        let cached = self.entries.get(region as usize).copied().flatten();
        let Some(page) = page else { return cached.map(|cached| cached.entry) };
        match cached {
            // Only regions below the bound are ever cached.
            Some(cached) if page.sequence(place_of(region)) == cached.sequence => Some(cached.entry),
            _ => self.read(page, region),
        }
    }

    #[cold]
    fn read(&mut self, page: Page, region: u32) -> Option<Entry> {
        if region as usize >= REGIONS_MAX {
            return None;
        }
        if self.entries.is_empty() {
            self.entries.resize(REGIONS_MAX, None);
        }
        let place = self.entries.get_mut(region as usize)?;
        // Its owner died or is stopped inside the entry: what was told has to do.
        let Some((sequence, words)) = page.read(place_of(region)) else { return place.map(|cached| cached.entry) };
        *place = Entry::from_words(&words).map(|entry| Cached { entry, sequence });
        place.map(|cached| cached.entry)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use core::ptr::NonNull;

    fn entry(n: u32) -> Entry {
        Entry { n, address: RegionAddress { iova: 1 << 40, bytes: 64, rkey: n, access: Access::ALL } }
    }

    #[test]
    fn a_table_in_shared_memory_is_fresher_than_what_was_told() {
        let mut memory = vec![0_u64; TABLE_BYTES / 8 + 8];
        let at = memory.as_mut_ptr().cast::<u8>();
        // SAFETY: the vector is longer than a table by an alignment, and outlives the page.
        let page = unsafe { Page::at(NonNull::new(at.wrapping_add(at.align_offset(64))).expect("memory")) };
        let mut view = View::default();
        assert_eq!((view.get(None, 3), view.get(Some(page), 3), view.get(Some(page), 9999)), (None, None, None));
        view.told(&[(3, entry(1)), (4, entry(2))]);
        assert_eq!(view.get(None, 3), Some(entry(1)));
        // The table does not have it (any more).
        assert_eq!(view.get(Some(page), 3), None);
        page.write(place_of(3), &entry(5).words());
        assert_eq!((view.get(Some(page), 3), view.get(Some(page), 3)), (Some(entry(5)), Some(entry(5))));
        page.write(place_of(3), &entry(6).words());
        assert_eq!(view.get(Some(page), 3), Some(entry(6)));
        assert!(!is_of(page, Incarnation(1), Epoch(1)));
        page.write(HEAD, &[TABLE_MAGIC, 1, 2, 3, 512, 0, 0]);
        assert!(is_of(page, Incarnation((2 << 64) | 1), Epoch(3)) && !is_of(page, Incarnation(1), Epoch(3)));
    }
}
