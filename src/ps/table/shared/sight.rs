//! A table of another process, as its entry says: from keys to rows, and the rows.

use super::super::gather::{RING, ahead_of, copy_row};
use super::super::index::{Slot, fetch_line, fetch_row, home};
use super::super::locks::{STRIPES, Stripes, Versions};
use super::super::rows::chunk_of;
use super::view::{View, Wanted};
use super::{STRIPES_AT, more};
use crate::ids::TableTag;
use crate::ps::routing::Router;
use crate::sync::{AtomicU32, AtomicU64, Ordering};

/// Slots of a hash index that are looked at for one key. Half of them are free, so an honest search is far shorter.
const PROBES_MAX: usize = 1024;

/// A table's entry, every place in it checked. Good as long as the file is mapped where it was.
#[derive(Clone, Copy, Debug)]
pub struct Sight {
    pub(super) table: TableTag,
    pub(super) keying: Keying,
    pub(super) row_bytes: usize,
    /// Keys below this are found by number.
    pub(super) keys: u64,
    pub(super) rows: u64,
    pub(super) stride: usize,
    /// Where the first piece of rows begins in the file.
    pub(super) rows_at: usize,
    pub(super) index: *const u8,
    pub(super) more: *const AtomicU64,
    pub(super) file: View,
    /// Address of the file where it is served.
    pub(super) served_at: usize,
}

/// How keys below the table's number of keys find rows.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Keying {
    Direct,
    Mapped,
    Hashed,
}

/// What became of a batch.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Copied {
    All,
    /// Of some key the file cannot say where its row is.
    Unknown,
    /// A writer was at work all the time.
    Torn,
}

/// A key's row: where it lies, or would, and the versions of its stripe.
#[derive(Clone, Copy, Debug)]
pub struct Spot {
    row: *const u8,
    /// Apart from the address, so that the row is asked for before it is known to be there.
    is_there: bool,
    versions: *const AtomicU64,
}

/// Where a row lies in the file, or would.
#[derive(Clone, Copy, Debug)]
struct Place {
    offset: usize,
    is_there: bool,
}

/// Of no row.
const NOWHERE: Place = Place { offset: 0, is_there: false };

/// The slots of a hash index: the first one, how many less one, and what keys are mixed with.
#[derive(Clone, Copy, Debug)]
struct Slots {
    first: *const Slot,
    mask: usize,
    seed: u64,
}

impl Slots {
    /// Asks for what the search for a key will read first.
    #[inline(always)]
    fn fetch(&self, key: u64) {
        fetch_line(self.first.wrapping_add(home(key, self.seed, self.mask)).cast());
    }

    /// The number, plus one, of a key's row; 0: it has none. None: no end of the search in sight.
    #[inline(always)]
    fn find(&self, key: u64) -> Option<u32> {
        let mut at = home(key, self.seed, self.mask);
        for _ in 0..PROBES_MAX {
            // SAFETY: a slot's number is masked, and all slots were found to lie within the file, aligned.
            let slot = unsafe { &*self.first.add(at) };
            match slot.look() {
                (0, _) => return Some(0),
                (row_plus_one, found) if found == key => return Some(row_plus_one),
                _ => at = (at + 1) & self.mask,
            }
        }
        None
    }
}

// Everything here takes a `Sight` by value: what rows are written to might otherwise be the sight itself, as far as the
// compiler knows, and it would be loaded anew for every row.
impl Sight {
    /// Whether it is this table's, checked for rows of this length.
    #[inline(always)]
    #[must_use]
    pub fn is_of(&self, table: TableTag, row_bytes: usize) -> bool {
        self.table == table && self.row_bytes == row_bytes
    }

    /// The file that it is of.
    #[inline(always)]
    #[must_use]
    pub fn view(&self) -> &View {
        &self.file
    }

    /// Finds a key's row and asks for it from memory. None: the file cannot say where it is.
    #[inline(always)]
    #[must_use]
    pub fn spot(self, router: &Router, shard: u32, key: u64, row_bytes: usize) -> Option<Spot> {
        let found = match self.keying {
            Keying::Direct => self.find::<true>(router, shard, key, None),
            Keying::Mapped | Keying::Hashed => self.find::<false>(router, shard, key, None),
        };
        let Place { offset, is_there } = found?;
        let spot = Spot { row: self.row(offset), is_there, versions: self.versions(offset) };
        fetch_row(spot.row, row_bytes);
        fetch_line(spot.versions.cast());
        Some(spot)
    }

    /// Copies the rows of all keys. `QUIET`: nobody writes to them meanwhile, or the caller finds out.
    ///
    /// # Safety
    /// As for [`View::read`].
    pub(super) unsafe fn gather<const QUIET: bool>(self, wanted: &Wanted<'_>) -> Copied {
        #[cfg(target_arch = "x86_64")]
        if std::arch::is_x86_feature_detected!("avx2") {
            // SAFETY: the processor has AVX2; the rest is the caller's promise.
            return unsafe { self.gather_avx2::<QUIET>(wanted) };
        }
        // SAFETY: the caller's promise.
        unsafe { self.body::<0, QUIET, false>(wanted) }
    }

    /// # Safety
    /// As for [`View::read`], on a processor with AVX2.
    #[cfg(target_arch = "x86_64")]
    #[target_feature(enable = "avx2")]
    unsafe fn gather_avx2<const QUIET: bool>(self, wanted: &Wanted<'_>) -> Copied {
        // SAFETY: the caller's promise.
        unsafe {
            match (self.row_bytes, self.keying) {
                (64, Keying::Direct) => self.body::<64, QUIET, true>(wanted),
                (128, Keying::Direct) => self.body::<128, QUIET, true>(wanted),
                (_, Keying::Direct) => self.body::<0, QUIET, true>(wanted),
                (_, Keying::Mapped | Keying::Hashed) => self.body::<0, QUIET, false>(wanted),
            }
        }
    }

    #[inline(always)]
    fn row(self, offset: usize) -> *const u8 {
        self.file.base.wrapping_add(offset)
    }

    /// The versions of the stripe that a row is under.
    #[inline(always)]
    fn versions(self, offset: usize) -> *const AtomicU64 {
        let served_at = core::ptr::without_provenance(self.served_at.wrapping_add(offset));
        // A stripe's index is below their number, and all of them lie in the directory.
        self.row(STRIPES_AT).cast::<AtomicU64>().wrapping_add(Stripes::index_of(served_at) as usize % STRIPES)
    }

    /// A key's row. `DIRECT`: the table is. `slots`: its hash index, if that was looked up before. None: the file cannot
    /// say where the row is.
    #[inline(always)]
    fn find<const DIRECT: bool>(self, router: &Router, shard: u32, key: u64, slots: Option<Slots>) -> Option<Place> {
        let local = router.local(key, shard)?;
        if key >= self.keys {
            return match slots {
                Some(slots) => self.numbered(slots.find(key)?),
                None => self.find_far(key),
            };
        }
        if !DIRECT && self.keying != Keying::Direct {
            #[allow(clippy::cast_possible_truncation)] // found to be within the index
            // SAFETY: the index was found to have a number for each key.
            let number: &AtomicU32 = unsafe { &*self.index.cast::<AtomicU32>().add(key as usize) };
            // Acquire: pairs with `Table::make_row`.
            return self.numbered(number.load(Ordering::Acquire));
        }
        if local >= self.rows {
            return None;
        }
        #[allow(clippy::cast_possible_truncation)] // below the rows, which lie within the file
        let local = local as usize;
        // SAFETY: the index was found to have a bit for each row.
        let bits: &AtomicU64 = unsafe { &*self.index.cast::<AtomicU64>().add(local / 64) };
        // Acquire: pairs with `Presence::set`: the row's first contents are there.
        let is_there = bits.load(Ordering::Acquire) >> (local % 64) & 1 != 0;
        Some(Place { offset: self.rows_at + local * self.stride, is_there })
    }

    /// The row of a number that an index has; 0: none.
    #[inline(always)]
    fn numbered(self, row_plus_one: u32) -> Option<Place> {
        let Some(row) = row_plus_one.checked_sub(1) else { return Some(NOWHERE) };
        let row = u64::from(row);
        if row >= self.rows {
            return self.later(row - self.rows);
        }
        #[allow(clippy::cast_possible_truncation)] // below `rows`, which were found to lie within the file
        Some(Place { offset: self.rows_at + row as usize * self.stride, is_there: true })
    }

    /// A row of a chunk, by its number among these.
    #[inline(never)]
    fn later(self, number: u64) -> Option<Place> {
        let first_shift = self.more(more::FIRST_SHIFT).and_then(|shift| u32::try_from(shift).ok());
        let (chunk, _, place) = chunk_of(u32::try_from(number).ok()?, first_shift.filter(|shift| *shift < 32)?);
        let chunk_at = self.more(more::CHUNKS_AT + chunk).filter(|at| *at != 0)?;
        let offset = (place as u64).checked_mul(self.stride as u64)?;
        self.file.within(chunk_at, offset.checked_add(self.stride as u64)?)?;
        Some(Place { offset: usize::try_from(chunk_at + offset).ok()?, is_there: true })
    }

    /// A word of the second part of the entry; None: it has no such word.
    #[inline(always)]
    fn more(self, place: usize) -> Option<u64> {
        if place >= more::WORDS {
            return None;
        }
        // SAFETY: the second part was found to lie within the file.
        let word = unsafe { &*self.more.add(place) };
        // Acquire: pairs with `More::set`.
        Some(word.load(Ordering::Acquire))
    }

    /// The slots of the hash index; None: there is no index yet. Err: the file does not have it.
    #[inline(always)]
    fn slots(self) -> Result<Option<Slots>, ()> {
        let (at, len) = (self.more(more::SLOTS_AT).ok_or(())?, self.more(more::SLOTS).ok_or(())?);
        if len == 0 {
            return Ok(None);
        }
        let bytes = len.checked_mul(size_of::<Slot>() as u64).ok_or(())?;
        let at = self.file.within(at, bytes).filter(|at| *at != 0 && at.is_multiple_of(align_of::<Slot>())).ok_or(())?;
        #[allow(clippy::cast_possible_truncation)] // found to lie within the file
        let mask = (len as usize).wrapping_sub(1);
        let seed = self.more(more::SEED).unwrap_or(0);
        if len.is_power_of_two() { Ok(Some(Slots { first: self.row(at).cast(), mask, seed })) } else { Err(()) }
    }

    /// The row of a key that no number leads to.
    #[inline(never)]
    fn find_far(self, key: u64) -> Option<Place> {
        match self.slots() {
            Ok(Some(slots)) => self.numbered(slots.find(key)?),
            Ok(None) => Some(NOWHERE),
            Err(()) => None,
        }
    }

    /// Asks for a row, and for its versions unless all is quiet. Where it lies; 0: it is not there.
    #[inline(always)]
    fn fetch<const QUIET: bool>(self, place: Place, row_bytes: usize) -> usize {
        fetch_row(self.row(place.offset), row_bytes);
        if !QUIET {
            fetch_line(self.versions(place.offset).cast());
        }
        if place.is_there { place.offset } else { 0 }
    }

    /// # Safety
    /// As for [`View::read`].
    #[inline(always)]
    unsafe fn body<const ROW: usize, const QUIET: bool, const DIRECT: bool>(self, wanted: &Wanted<'_>) -> Copied {
        let Wanted { router, shard, keys, out, positions, .. } = *wanted;
        let row_bytes = if ROW == 0 { wanted.row_bytes } else { ROW };
        let (router, ahead) = (*router, ahead_of(row_bytes));
        // Within an epoch the index stays where it is.
        let slots = if DIRECT || self.keying == Keying::Direct { Ok(None) } else { self.slots() };
        let Ok(slots) = slots else { return Copied::Unknown };
        let fetch_slot = |key: Option<&u64>| {
            if let (Some(slots), Some(key)) = (&slots, key)
                && *key >= self.keys
            {
                slots.fetch(*key);
            }
        };
        let mut ring = [0; RING];
        (0..2 * ahead).for_each(|i| fetch_slot(keys.get(i)));
        for (i, key) in keys.iter().take(ahead).enumerate() {
            let found = self.find::<DIRECT>(&router, shard, *key, slots);
            let Some(place) = found else { return Copied::Unknown };
            ring[i] = self.fetch::<QUIET>(place, row_bytes);
        }
        for i in 0..keys.len() {
            let offset = ring[i % RING];
            if let Some(next) = keys.get(i + ahead) {
                let found = self.find::<DIRECT>(&router, shard, *next, slots);
                let Some(place) = found else { return Copied::Unknown };
                ring[(i + ahead) % RING] = self.fetch::<QUIET>(place, row_bytes);
                fetch_slot(keys.get(i + 2 * ahead));
            }
            let position = match positions {
                None => i,
                Some(positions) => positions.get(i).map_or(i, |position| *position as usize),
            };
            let (row, to) = (self.row(offset), out.wrapping_add(position * row_bytes));
            // SAFETY: a row that is there lies within the file; the rest is the caller's promise.
            unsafe {
                if offset == 0 {
                    to.write_bytes(0, row_bytes);
                } else if QUIET {
                    copy_row::<ROW>(row, to, row_bytes);
                } else if !copy_whole::<ROW>(row, self.versions(offset), to, row_bytes) {
                    return Copied::Torn;
                }
            }
        }
        Copied::All
    }
}

impl Spot {
    /// No row of any file.
    pub const NOWHERE: Spot = Spot { row: core::ptr::null(), is_there: false, versions: core::ptr::null() };

    /// Copies the row, or zeros; false when a writer was at work all the time.
    ///
    /// # Safety
    /// The file that it is of is mapped; `out` is valid for writes of a row of the table's length.
    #[inline(always)]
    #[must_use]
    pub unsafe fn read(self, out: *mut u8, row_bytes: usize) -> bool {
        // SAFETY: the caller's promise.
        unsafe {
            if !self.is_there {
                out.write_bytes(0, row_bytes);
                true
            } else if row_bytes == 64 {
                copy_whole::<64>(self.row, self.versions, out, row_bytes)
            } else {
                copy_whole::<0>(self.row, self.versions, out, row_bytes)
            }
        }
    }
}

// SAFETY: addresses of memory that any thread may read.
unsafe impl Send for Spot {}
// SAFETY: as above.
unsafe impl Send for Sight {}

/// Copies a row under the lock of its stripe; false when a writer was at work all the time.
///
/// # Safety
/// Row and versions are of a file that is mapped; `out` is valid for writes of a row.
#[inline(always)]
unsafe fn copy_whole<const ROW: usize>(
    row: *const u8,
    versions: *const AtomicU64,
    out: *mut u8,
    row_bytes: usize,
) -> bool {
    let row_bytes = if ROW == 0 { row_bytes } else { ROW };
    // SAFETY: the stripe lies in the directory.
    let versions = Versions(unsafe { &*versions });
    // SAFETY: the row lies within the file; `out` is the caller's promise.
    versions.read(|| unsafe { copy_row::<ROW>(row, out, row_bytes) })
}
