//! How regions are named, by those who use them and by those who keep them.

use crate::fabric::{Access, RegionAddress};
use crate::ids::{Epoch, Incarnation};
use core::fmt;

/// Which registration of a region: who registered it, in which epoch, and the how-manieth change of its table it was. A
/// restarted process has another incarnation, so its counting cannot be taken for an older one's.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Version {
    /// The owner's life.
    pub incarnation: Incarnation,
    /// The deployment's epoch.
    pub epoch: Epoch,
    /// Counts the changes of the owner's table, from 1.
    pub n: u32,
}

/// A region as its owner tells it. The key is for the fabric alone: it is not printed and not stored.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct Entry {
    /// Which registration.
    pub n: u32,
    /// Where it is; of the rights of this address a peer has those that it was opened with.
    pub address: RegionAddress,
}

impl fmt::Debug for Entry {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Entry")
            .field("n", &self.n)
            .field("bytes", &self.address.bytes)
            .field("access", &self.address.access)
            .finish_non_exhaustive()
    }
}

impl Entry {
    /// Words in the shared table.
    pub(super) fn words(&self) -> [u64; crate::wire::region::ENTRY_WORDS] {
        let a = &self.address;
        let rights = u64::from(a.access.0) << 32 | u64::from(a.rkey);
        [a.iova, a.bytes, rights, u64::from(self.n), 0, 0, 0]
    }

    /// Reads them; none for an empty place, or one that cannot be.
    pub(super) fn from_words(words: &[u64; crate::wire::region::ENTRY_WORDS]) -> Option<Entry> {
        let [iova, bytes, rights, n, ..] = *words;
        iova.checked_add(bytes).filter(|_| bytes != 0)?;
        let access = Access(u8::try_from(rights >> 32).ok().filter(|bits| *bits <= Access::ALL.0)?);
        let rkey = u32::try_from(rights & u64::from(u32::MAX)).ok()?;
        Some(Entry { n: u32::try_from(n).ok()?, address: RegionAddress { iova, bytes, rkey, access } })
    }
}

/// The address that peers know a region by: the same in every life of its owner.
#[must_use]
pub fn iova_of(region: u32) -> u64 {
    (u64::from(region) + 1) << IOVA_BITS
}

/// A region's addresses end before the next one's begin.
const IOVA_BITS: u32 = 40;
/// Largest region.
pub const REGION_BYTES_MAX: u64 = 1 << IOVA_BITS;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn entries_come_back_and_their_keys_are_not_shown() {
        let address = RegionAddress { iova: iova_of(6), bytes: 4096, rkey: 0xdead_beef, access: Access::REMOTE_READ };
        let entry = Entry { n: 3, address };
        assert_eq!(Entry::from_words(&entry.words()), Some(entry));
        assert_eq!(Entry::from_words(&[0; 7]), None);
        let mut wrapping = entry.words();
        wrapping[0] = u64::MAX;
        assert_eq!(Entry::from_words(&wrapping), None);
        let shown = format!("{entry:?}").to_lowercase();
        assert!(!shown.contains("dead") && !shown.contains("3735928559"), "{shown}");
    }
}
