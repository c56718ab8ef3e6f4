//! The reading side: another process's rows.

use super::super::gather::{RING, ahead_of, copy_row};
use super::super::index::{Slot, fetch_line, fetch_row, home};
use super::super::locks::{STRIPES, Stripes, Versions};
use super::super::rows::chunk_of;
use super::{
    BASE_AT, DIRECT, ENTRIES_AT, ENTRY_BYTES, EPOCH_AT, HASHED, MAGIC, MAGIC_AT, MAPPED, OWNER_AT, ROWS_AT, STRIPES_AT,
    more, word,
};
use crate::ids::TableTag;
use crate::ps::routing::Router;
use crate::sync::{AtomicU32, AtomicU64, Ordering, fence};

/// Slots of a hash index that are looked at for one key. Half of them are free, so an honest search is far shorter.
const PROBES_MAX: usize = 1024;

/// A shard's file of rows, as it is mapped here.
#[derive(Clone, Copy, Debug)]
pub struct View {
    base: *const u8,
    bytes: usize,
}

// SAFETY: memory that any thread may read, and that nobody reaches through this value otherwise.
unsafe impl Send for View {}
// SAFETY: as above.
unsafe impl Sync for View {}

/// A GET.
#[derive(Clone, Copy, Debug)]
pub struct Wanted<'a> {
    /// How keys find their shard.
    pub router: &'a Router,
    /// The shard whose file it is.
    pub shard: u32,
    /// The table.
    pub table: TableTag,
    /// The keys.
    pub keys: &'a [u64],
    /// Bytes of a row, as this side knows the table.
    pub row_bytes: usize,
    /// Where the rows go.
    pub out: *mut u8,
    /// Which row of `out` each key's is, as many as keys; None: in their order.
    pub positions: Option<&'a [u32]>,
}

/// A table's entry, every place in it checked. Good as long as the file is mapped where it was.
#[derive(Clone, Copy, Debug)]
pub struct Sight {
    keying: Keying,
    row_bytes: usize,
    /// Keys below this are found by number.
    keys: u64,
    rows: u64,
    stride: usize,
    /// Where the first piece of rows begins in the file.
    rows_at: usize,
    index: *const u8,
    more: *const AtomicU64,
    file: View,
    /// Address of the file where it is served.
    served_at: usize,
}

/// How keys below the table's number of keys find rows.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Keying {
    Direct,
    Mapped,
    Hashed,
}

impl View {
    /// None: this is no such file.
    ///
    /// # Safety
    /// `bytes` bytes at `base`, a multiple of 8, are mapped for reading as long as the view is used. Anybody may write
    /// to them.
    #[must_use]
    pub unsafe fn new(base: *const u8, bytes: usize) -> Option<View> {
        let view = View { base, bytes };
        // Acquire: pairs with the Release of `SharedRows::new`.
        (bytes >= ROWS_AT && base.addr().is_multiple_of(4096) && view.word(MAGIC_AT).load(Ordering::Acquire) == MAGIC)
            .then_some(view)
    }

    #[inline(always)]
    fn word(&self, offset: usize) -> &AtomicU64 {
        debug_assert!(offset + 8 <= ROWS_AT);
        // SAFETY: within the directory, which is mapped as `new` was promised, and aligned; only loaded.
        unsafe { &*self.base.add(offset).cast() }
    }

    /// Whether a thread serves the file at this moment.
    #[inline(always)]
    fn is_served(&self) -> bool {
        // SAFETY: as in `word`.
        let owner: &AtomicU32 = unsafe { &*self.base.add(OWNER_AT).cast() };
        let word = owner.load(Ordering::Relaxed);
        word & libc::FUTEX_OWNER_DIED == 0 && word & libc::FUTEX_TID_MASK != 0
    }

    /// A table's entry. None: none, another width, or one that leads out of the file.
    #[inline]
    #[must_use]
    pub fn sight(&self, table: TableTag, row_bytes: usize) -> Option<Sight> {
        let at = ENTRIES_AT + usize::from(table.0) * ENTRY_BYTES;
        let get = |place: usize| self.word(at + place * 8).load(Ordering::Relaxed);
        // Acquire: pairs with `publish`.
        let keying = self.word(at + word::KEYING * 8).load(Ordering::Acquire);
        let (keys, rows) = (get(word::KEYS), get(word::ROWS));
        let (width, stride) = (get(word::ROW) & u64::from(u32::MAX), get(word::ROW) >> 32);
        let (keying, keys, index_bytes) = match keying {
            DIRECT => (Keying::Direct, keys, rows.checked_add(63)? / 64 * 8),
            MAPPED => (Keying::Mapped, keys, keys.checked_mul(4)?),
            HASHED => (Keying::Hashed, 0, 0),
            _ => return None,
        };
        if width != row_bytes as u64 || stride < width || !stride.is_multiple_of(4) {
            return None;
        }
        #[allow(clippy::cast_possible_truncation)] // an address of a process of the same kind
        let served_at = self.word(BASE_AT).load(Ordering::Relaxed) as usize;
        let rows_at = self.within(get(word::ROWS_AT), rows.checked_mul(stride)?)?;
        let index = self.base.wrapping_add(self.within(get(word::INDEX_AT), index_bytes)?);
        let more = self.base.wrapping_add(self.within(get(word::MORE_AT), more::WORDS as u64 * 8)?).cast();
        #[allow(clippy::cast_possible_truncation)] // 32 bits
        let stride = stride as usize;
        Some(Sight { keying, row_bytes, keys, rows, stride, rows_at, index, more, file: *self, served_at })
    }

    /// An offset, if so many bytes lie in the file from there on.
    #[inline(always)]
    #[allow(clippy::cast_possible_truncation)] // no more than the file's length
    fn within(&self, offset: u64, bytes: u64) -> Option<usize> {
        let end = offset.checked_add(bytes)?;
        (end <= self.bytes as u64 && offset.is_multiple_of(8)).then_some(offset as usize)
    }

    /// The epoch that a read begins in. None: all rows may be changing, or nobody serves them.
    #[inline(always)]
    #[must_use]
    pub fn epoch(&self) -> Option<u64> {
        // Acquire: pairs with the end of a change of all rows.
        let epoch = self.word(EPOCH_AT).load(Ordering::Acquire);
        (epoch & 1 == 0 && self.is_served()).then_some(epoch)
    }

    /// Whether what was read since `epoch` was the serving shard's: nothing changed as a whole, and it serves still.
    #[inline(always)]
    #[must_use]
    pub fn holds(&self, epoch: u64) -> bool {
        // Acquire: what is loaded below is not older than the rows.
        fence(Ordering::Acquire);
        let is_ours = self.word(MAGIC_AT).load(Ordering::Relaxed) == MAGIC;
        is_ours && self.word(EPOCH_AT).load(Ordering::Relaxed) == epoch && self.is_served()
    }

    /// Copies the rows of all keys, zeros for those that are not there. False: they are to be asked for by request, and
    /// what `out` holds means nothing.
    ///
    /// # Safety
    /// `out` is valid for writes of a row for each key, or at each position.
    #[inline]
    #[must_use]
    pub unsafe fn read(&self, wanted: &Wanted<'_>) -> bool {
        let Some(epoch) = self.epoch() else { return false };
        let Some(sight) = self.sight(wanted.table, wanted.row_bytes) else { return false };
        // SAFETY: the caller's promise.
        let copied = unsafe {
            match wanted.row_bytes {
                64 => sight.gather::<64>(wanted),
                128 => sight.gather::<128>(wanted),
                _ => sight.gather::<0>(wanted),
            }
        };
        copied && self.holds(epoch)
    }
}

/// A key's row: where it lies, or would, and the versions of its stripe.
#[derive(Clone, Copy, Debug)]
pub struct Spot {
    row: *const u8,
    /// Apart from the address, so that the row is asked for before it is known to be there.
    is_there: bool,
    versions: *const AtomicU64,
}

impl Sight {
    /// Whether it was checked for rows of this length.
    #[inline(always)]
    #[must_use]
    pub fn is_of(&self, row_bytes: usize) -> bool {
        self.row_bytes == row_bytes
    }

    /// # Safety
    /// As for [`View::read`].
    unsafe fn gather<const ROW: usize>(&self, wanted: &Wanted<'_>) -> bool {
        #[cfg(target_arch = "x86_64")]
        if std::arch::is_x86_feature_detected!("avx2") {
            // SAFETY: the processor has AVX2; the rest is the caller's promise.
            return unsafe { self.gather_avx2::<ROW>(wanted) };
        }
        // SAFETY: the caller's promise.
        unsafe { self.body::<ROW>(wanted) }
    }

    /// # Safety
    /// As for [`View::read`], on a processor with AVX2.
    #[cfg(target_arch = "x86_64")]
    #[target_feature(enable = "avx2")]
    unsafe fn gather_avx2<const ROW: usize>(&self, wanted: &Wanted<'_>) -> bool {
        // SAFETY: the caller's promise.
        unsafe { self.body::<ROW>(wanted) }
    }

    /// Finds a key's row and asks for it from memory. None: the file cannot say where it is.
    #[inline(always)]
    #[must_use]
    pub fn spot(&self, router: &Router, shard: u32, key: u64, row_bytes: usize) -> Option<Spot> {
        let (spot, is_known) = self.locate(router, shard, key, row_bytes);
        is_known.then_some(spot)
    }

    /// A key's row, and whether the file can say where that is: if not, the spot is of no row.
    #[inline(always)]
    fn find(&self, router: &Router, shard: u32, key: u64) -> (Spot, bool) {
        let Some(local) = router.local(key, shard) else { return (self.nowhere(), false) };
        if key >= self.keys {
            return self.find_hashed(key);
        }
        #[allow(clippy::cast_possible_truncation)] // found to be within the index
        if self.keying == Keying::Direct {
            if local >= self.rows {
                return (self.nowhere(), false);
            }
            // SAFETY: the index was found to have a bit for each row.
            let bits: &AtomicU64 = unsafe { &*self.index.cast::<AtomicU64>().add((local / 64) as usize) };
            // Acquire: pairs with `Presence::set`: the row's first contents are there.
            let is_there = bits.load(Ordering::Acquire) >> (local % 64) & 1 != 0;
            (Spot { is_there, ..self.spot_at(self.rows_at + local as usize * self.stride) }, true)
        } else {
            // SAFETY: the index was found to have a number for each key.
            let number: &AtomicU32 = unsafe { &*self.index.cast::<AtomicU32>().add(key as usize) };
            // Acquire: pairs with `Table::make_row`.
            self.numbered(number.load(Ordering::Acquire))
        }
    }

    /// The row of a number that an index has; 0: none.
    #[inline(always)]
    fn numbered(&self, row_plus_one: u32) -> (Spot, bool) {
        let Some(row) = row_plus_one.checked_sub(1) else { return (self.nowhere(), true) };
        let row = u64::from(row);
        if row >= self.rows {
            return self.later(row - self.rows);
        }
        #[allow(clippy::cast_possible_truncation)] // below `rows`, which were found to lie within the file
        (self.spot_at(self.rows_at + row as usize * self.stride), true)
    }

    /// A row of a chunk, by its number among these.
    #[inline(never)]
    fn later(&self, number: u64) -> (Spot, bool) {
        let place = || {
            let first_shift = self.more(more::FIRST_SHIFT).and_then(|shift| u32::try_from(shift).ok());
            let (chunk, _, place) = chunk_of(u32::try_from(number).ok()?, first_shift.filter(|shift| *shift < 32)?);
            let chunk_at = self.more(more::CHUNKS_AT + chunk).filter(|at| *at != 0)?;
            let offset = (place as u64).checked_mul(self.stride as u64)?;
            self.file.within(chunk_at, offset.checked_add(self.stride as u64)?)?;
            usize::try_from(chunk_at + offset).ok()
        };
        place().map_or((self.nowhere(), false), |offset| (self.spot_at(offset), true))
    }

    /// A word of the second part of the entry; None: it has no such word.
    #[inline(always)]
    fn more(&self, place: usize) -> Option<u64> {
        if place >= more::WORDS {
            return None;
        }
        // SAFETY: the second part was found to lie within the file.
        let word = unsafe { &*self.more.add(place) };
        // Acquire: pairs with `More::set`.
        Some(word.load(Ordering::Acquire))
    }

    /// The slots of the hash index: the first one, and how many less one. None: there is no index yet. Err: the file does
    /// not have it.
    #[inline(always)]
    fn slots(&self) -> Result<Option<(*const Slot, usize)>, ()> {
        let (at, len) = (self.more(more::SLOTS_AT).ok_or(())?, self.more(more::SLOTS).ok_or(())?);
        if len == 0 {
            return Ok(None);
        }
        let bytes = len.checked_mul(size_of::<Slot>() as u64).ok_or(())?;
        let at = self.file.within(at, bytes).filter(|at| *at != 0 && at.is_multiple_of(align_of::<Slot>())).ok_or(())?;
        #[allow(clippy::cast_possible_truncation)] // found to lie within the file
        let mask = (len as usize).wrapping_sub(1);
        if len.is_power_of_two() { Ok(Some((self.file.base.wrapping_add(at).cast(), mask))) } else { Err(()) }
    }

    /// A key's row by the hash index.
    #[inline(never)]
    fn find_hashed(&self, key: u64) -> (Spot, bool) {
        let (first, mask) = match self.slots() {
            Ok(Some(slots)) => slots,
            Ok(None) => return (self.nowhere(), true),
            Err(()) => return (self.nowhere(), false),
        };
        let mut at = home(key, self.more(more::SEED).unwrap_or(0), mask);
        for _ in 0..PROBES_MAX {
            // SAFETY: a slot's number is masked, and all slots were found to lie within the file, aligned.
            let slot = unsafe { &*first.add(at) };
            match slot.look() {
                (0, _) => return (self.nowhere(), true),
                (row_plus_one, found) if found == key => return self.numbered(row_plus_one),
                _ => at = (at + 1) & mask,
            }
        }
        (self.nowhere(), false)
    }

    /// Asks for what the search for a hashed key will read first.
    #[inline(always)]
    fn fetch_slot(&self, key: u64) {
        if key >= self.keys
            && let Ok(Some((first, mask))) = self.slots()
        {
            fetch_line(first.wrapping_add(home(key, self.more(more::SEED).unwrap_or(0), mask)).cast());
        }
    }

    #[inline(always)]
    fn nowhere(&self) -> Spot {
        Spot { is_there: false, ..self.spot_at(STRIPES_AT) }
    }

    /// The row that lies at an offset of the file.
    #[inline(always)]
    fn spot_at(&self, offset: usize) -> Spot {
        let served_at = core::ptr::without_provenance(self.served_at.wrapping_add(offset));
        // A stripe's index is below their number, and all of them lie in the directory.
        let stripes = self.file.base.wrapping_add(STRIPES_AT).cast::<AtomicU64>();
        let versions = stripes.wrapping_add(Stripes::index_of(served_at) as usize % STRIPES);
        Spot { row: self.file.base.wrapping_add(offset), is_there: true, versions }
    }

    /// Finds a key's row and asks for it.
    #[inline(always)]
    fn locate(&self, router: &Router, shard: u32, key: u64, row_bytes: usize) -> (Spot, bool) {
        let (spot, is_known) = self.find(router, shard, key);
        fetch_row(spot.row, row_bytes);
        fetch_line(spot.versions.cast());
        (spot, is_known)
    }

    /// # Safety
    /// As for [`View::read`].
    #[inline(always)]
    unsafe fn body<const ROW: usize>(&self, wanted: &Wanted<'_>) -> bool {
        let row_bytes = if ROW == 0 { wanted.row_bytes } else { ROW };
        let ahead = ahead_of(row_bytes);
        let (mut ring, mut all_known) = ([self.nowhere(); RING], true);
        let hashed = self.keying == Keying::Hashed;
        if hashed {
            wanted.keys.iter().take(2 * ahead).for_each(|key| self.fetch_slot(*key));
        }
        for (i, key) in wanted.keys.iter().take(ahead).enumerate() {
            let (spot, is_known) = self.locate(wanted.router, wanted.shard, *key, row_bytes);
            ring[i] = spot;
            all_known &= is_known;
        }
        for i in 0..wanted.keys.len() {
            let place = ring[i % RING];
            if let Some(next) = wanted.keys.get(i + ahead) {
                let (spot, is_known) = self.locate(wanted.router, wanted.shard, *next, row_bytes);
                ring[(i + ahead) % RING] = spot;
                all_known &= is_known;
                if hashed && let Some(later) = wanted.keys.get(i + 2 * ahead) {
                    self.fetch_slot(*later);
                }
            }
            let position = match wanted.positions {
                None => i,
                Some(positions) => positions.get(i).map_or(i, |position| *position as usize),
            };
            // SAFETY: the caller's promise.
            if !unsafe { copy::<ROW>(place, wanted.out.wrapping_add(position * row_bytes), row_bytes) } {
                return false;
            }
        }
        all_known
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
        unsafe { if row_bytes == 64 { copy::<64>(self, out, row_bytes) } else { copy::<0>(self, out, row_bytes) } }
    }
}

// SAFETY: addresses of memory that any thread may read.
unsafe impl Send for Spot {}
// SAFETY: as above.
unsafe impl Send for Sight {}

/// Copies a row, or zeros; false when a writer was at work all the time.
///
/// # Safety
/// The place is one of the file; `out` is valid for writes of a row.
#[inline(always)]
unsafe fn copy<const ROW: usize>(place: Spot, out: *mut u8, row_bytes: usize) -> bool {
    let row_bytes = if ROW == 0 { row_bytes } else { ROW };
    if !place.is_there {
        // SAFETY: the caller's promise.
        unsafe { out.write_bytes(0, row_bytes) };
        return true;
    }
    // SAFETY: the stripe lies in the directory.
    let versions = Versions(unsafe { &*place.versions });
    // SAFETY: the row lies within the file; `out` is the caller's promise.
    versions.read(|| unsafe { copy_row::<ROW>(place.row, out, row_bytes) })
}
