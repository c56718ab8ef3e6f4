//! The reading side: another process's rows.

use super::super::gather::copy_row;
use super::super::index::{fetch_line, fetch_row};
use super::super::locks::{STRIPES, Stripes, Versions};
use super::{
    BASE_AT, DIRECT, ENTRIES_AT, ENTRY_BYTES, EPOCH_AT, MAGIC, MAGIC_AT, MAPPED, OWNER_AT, ROWS_AT, STRIPES_AT, word,
};
use crate::ids::TableTag;
use crate::ps::routing::Router;
use crate::sync::{AtomicU32, AtomicU64, Ordering, fence};

/// Rows asked for ahead of the one being copied, as many as when a shard gathers.
const AHEAD_MAX: usize = 24;
const AHEAD_LINES: usize = 48;
const AHEAD_MIN: usize = 4;
const RING: usize = 32;

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
    is_direct: bool,
    keys: u64,
    rows: u64,
    stride: usize,
    first_row: *const u8,
    index: *const u8,
    /// Address of the first row where the file is served.
    served_at: usize,
    stripes: *const AtomicU64,
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
        let index_bytes = match keying {
            DIRECT => rows.checked_add(63)? / 64 * 8,
            MAPPED => keys.checked_mul(4)?,
            _ => return None,
        };
        let within = |offset: u64, bytes: u64| {
            let end = offset.checked_add(bytes)?;
            (end <= self.bytes as u64 && offset.is_multiple_of(8)).then_some(())
        };
        let (rows_at, index_at) = (get(word::ROWS_AT), get(word::INDEX_AT));
        within(rows_at, rows.checked_mul(stride)?)?;
        within(index_at, index_bytes)?;
        if width != row_bytes as u64 || stride < width || !stride.is_multiple_of(4) {
            return None;
        }
        #[allow(clippy::cast_possible_truncation)] // found to lie within the file
        let place = |offset: u64| self.base.wrapping_add(offset as usize);
        #[allow(clippy::cast_possible_truncation)] // an address of a process of the same kind
        let base = self.word(BASE_AT).load(Ordering::Relaxed) as usize;
        Some(Sight {
            is_direct: keying == DIRECT,
            keys,
            rows,
            #[allow(clippy::cast_possible_truncation)] // 32 bits
            stride: stride as usize,
            first_row: place(rows_at),
            index: place(index_at),
            #[allow(clippy::cast_possible_truncation)] // found to lie within the file
            served_at: base.wrapping_add(rows_at as usize),
            stripes: self.base.wrapping_add(STRIPES_AT).cast(),
        })
    }

    /// The epoch that a read begins in. None: all rows may be changing.
    #[inline(always)]
    #[must_use]
    pub fn epoch(&self) -> Option<u64> {
        // Acquire: pairs with the end of a change of all rows.
        let epoch = self.word(EPOCH_AT).load(Ordering::Acquire);
        (epoch & 1 == 0).then_some(epoch)
    }

    /// Whether what was read since `epoch` was the serving shard's: nothing changed as a whole, and it serves still.
    #[inline(always)]
    #[must_use]
    pub fn holds(&self, epoch: u64) -> bool {
        // Acquire: what is loaded below is not older than the rows.
        fence(Ordering::Acquire);
        self.word(EPOCH_AT).load(Ordering::Relaxed) == epoch && self.is_served()
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
        let local = router.local(key, shard);
        let (local, is_mine) = (local.unwrap_or(0), local.is_some() && key < self.keys);
        #[allow(clippy::cast_possible_truncation)] // found to be within the index
        if self.is_direct {
            if !is_mine || local >= self.rows {
                return (self.place(false, 0), false);
            }
            // SAFETY: the index was found to have a bit for each row.
            let bits: &AtomicU64 = unsafe { &*self.index.cast::<AtomicU64>().add((local / 64) as usize) };
            // Acquire: pairs with `Presence::set`: the row's first contents are there.
            let is_there = bits.load(Ordering::Acquire) >> (local % 64) & 1 != 0;
            (self.place(is_there, local), true)
        } else {
            if !is_mine {
                return (self.place(false, 0), false);
            }
            // SAFETY: the index was found to have a number for each key.
            let number: &AtomicU32 = unsafe { &*self.index.cast::<AtomicU32>().add(key as usize) };
            // Acquire: pairs with `Table::make_row`.
            let row = u64::from(number.load(Ordering::Acquire));
            let is_within = row <= self.rows;
            (self.place(is_within && row != 0, if is_within { row.saturating_sub(1) } else { 0 }), is_within)
        }
    }

    #[inline(always)]
    fn place(&self, is_there: bool, row: u64) -> Spot {
        #[allow(clippy::cast_possible_truncation)] // below `rows`, which were found to lie within the file
        let offset = row as usize * self.stride;
        let served_at = core::ptr::without_provenance(self.served_at.wrapping_add(offset));
        // A stripe's index is below their number, and all of them lie in the directory.
        let versions = self.stripes.wrapping_add(Stripes::index_of(served_at) as usize % STRIPES);
        Spot { row: self.first_row.wrapping_add(offset), is_there, versions }
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
        let ahead = (AHEAD_LINES * 64 / row_bytes.max(1)).clamp(AHEAD_MIN, AHEAD_MAX);
        let nowhere = Spot { row: core::ptr::null(), is_there: false, versions: self.stripes };
        let (mut ring, mut all_known) = ([nowhere; RING], true);
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
