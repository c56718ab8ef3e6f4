//! From keys to row numbers.

use super::arena::{HUGE_BYTES, RowMemory};
use super::shared::More;
use crate::error::{Error, Result, Status};
use crate::sync::{AtomicPtr, AtomicU32, AtomicU64, Ordering};
use core::ops::Deref;
use core::ptr::NonNull;
use std::alloc::{Layout, alloc_zeroed, dealloc};

/// Bytes of a row that are worth asking for ahead; the hardware follows by itself after that.
const FETCH_BYTES_MAX: usize = 512;

/// A kind of atomic whose zero bytes are zero.
pub(super) trait ZeroBytes {}
impl ZeroBytes for AtomicU32 {}
impl ZeroBytes for AtomicU64 {}
impl<T> ZeroBytes for AtomicPtr<T> {}
impl ZeroBytes for Slot {}

/// A slice of zeros whose pages are backed when they are first touched.
pub(super) struct Zeroed<T: ZeroBytes> {
    first: NonNull<T>,
    len: usize,
    kept: Kept,
}

/// Where a slice's memory comes from.
enum Kept {
    Heap,
    /// Start and length of a mapping of its own.
    Mapping(NonNull<u8>, usize),
    /// It is another's.
    Elsewhere,
}

// SAFETY: it owns its elements, as a boxed slice does.
unsafe impl<T: ZeroBytes + Send> Send for Zeroed<T> {}
// SAFETY: as above.
unsafe impl<T: ZeroBytes + Sync> Sync for Zeroed<T> {}

impl<T: ZeroBytes> Zeroed<T> {
    /// A slice without elements.
    pub fn empty() -> Zeroed<T> {
        Zeroed { first: NonNull::dangling(), len: 0, kept: Kept::Heap }
    }

    /// A slice in row memory.
    ///
    /// # Errors
    /// As for [`RowMemory::allocate`].
    ///
    /// # Safety
    /// `memory` outlives the slice.
    pub unsafe fn within(len: usize, memory: &dyn RowMemory) -> Result<Zeroed<T>> {
        let segment = memory.allocate(len.saturating_mul(size_of::<T>()))?;
        Ok(Zeroed { first: segment.base.cast(), len, kept: Kept::Elsewhere })
    }

    /// # Errors
    /// `ResourceLimit` when the memory cannot be had.
    pub fn new(len: usize, huge_pages: bool) -> Result<Zeroed<T>> {
        let refused = || Error::new(Status::ResourceLimit, format!("no memory for an index of {len} entries"));
        let layout = Layout::array::<T>(len).map_err(|_| refused())?;
        if layout.size() == 0 {
            return Ok(Zeroed::empty());
        }
        // From this size on, a slice is a mapping of its own that starts at a huge page.
        if layout.size() < HUGE_BYTES {
            // SAFETY: the layout is not empty.
            let start = unsafe { alloc_zeroed(layout) };
            return Ok(Zeroed { first: NonNull::new(start.cast()).ok_or_else(refused)?, len, kept: Kept::Heap });
        }
        let bytes = layout.size().checked_add(2 * HUGE_BYTES).ok_or_else(refused)? / HUGE_BYTES * HUGE_BYTES;
        let protection = libc::PROT_READ | libc::PROT_WRITE;
        let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_NORESERVE;
        // SAFETY: a fresh private mapping touches nothing that exists.
        let start = unsafe { libc::mmap(core::ptr::null_mut(), bytes, protection, flags, -1, 0) };
        if start == libc::MAP_FAILED {
            return Err(refused());
        }
        let start = NonNull::new(start.cast::<u8>()).ok_or_else(refused)?;
        // SAFETY: the mapping is more than a huge page longer than needed.
        let first = unsafe { start.add(start.as_ptr().align_offset(HUGE_BYTES)) };
        if huge_pages {
            // SAFETY: inside our mapping; advice changes no contents, and a refusal does no harm.
            unsafe { libc::madvise(first.as_ptr().cast(), bytes - HUGE_BYTES, libc::MADV_HUGEPAGE) };
        }
        Ok(Zeroed { first: first.cast(), len, kept: Kept::Mapping(start, bytes) })
    }
}

impl<T: ZeroBytes> Deref for Zeroed<T> {
    type Target = [T];

    #[inline]
    fn deref(&self) -> &[T] {
        // SAFETY: `len` elements, zero or written since, that live as long as this value.
        unsafe { core::slice::from_raw_parts(self.first.as_ptr(), self.len) }
    }
}

impl<T: ZeroBytes> Drop for Zeroed<T> {
    fn drop(&mut self) {
        match self.kept {
            // SAFETY: our own mapping, used by nobody any more; the elements need no drop.
            Kept::Mapping(start, bytes) => unsafe {
                libc::munmap(start.as_ptr().cast(), bytes);
            },
            Kept::Heap => {
                if let (Ok(layout), true) = (Layout::array::<T>(self.len), self.len != 0) {
                    // SAFETY: allocated with this layout in `new`.
                    unsafe { dealloc(self.first.as_ptr().cast(), layout) };
                }
            }
            Kept::Elsewhere => {}
        }
    }
}

/// One bit for each row that is addressed by its key: whether it was ever written.
pub(super) struct Presence(Zeroed<AtomicU64>);

impl Presence {
    pub fn new(rows: u32, huge_pages: bool) -> Result<Presence> {
        Ok(Presence(Zeroed::new((rows as usize).div_ceil(64), huge_pages)?))
    }

    /// As [`Zeroed::within`].
    ///
    /// # Safety
    /// As there.
    pub unsafe fn within(rows: u32, memory: &dyn RowMemory) -> Result<Presence> {
        // SAFETY: the caller's promise.
        Ok(Presence(unsafe { Zeroed::within((rows as usize).div_ceil(64), memory)? }))
    }

    /// Where the bits lie.
    pub fn words(&self) -> &[AtomicU64] {
        &self.0
    }

    #[inline]
    pub fn has(&self, row: u32) -> bool {
        // Acquire: pairs with `set`: the row's first contents are there.
        self.0[row as usize / 64].load(Ordering::Acquire) >> (row % 64) & 1 != 0
    }

    /// Says that the row is there. The caller holds the row's write lock, if the store has locks.
    pub fn set(&self, row: u32) {
        // Release: pairs with `has`.
        self.0[row as usize / 64].fetch_or(1 << (row % 64), Ordering::Release);
    }

    /// Forgets all rows. The caller is alone.
    pub fn clear(&self) {
        for word in self.0.iter() {
            // A page that was never written stays unbacked.
            if word.load(Ordering::Relaxed) != 0 {
                word.store(0, Ordering::Relaxed);
            }
        }
    }

    #[inline]
    pub fn fetch(&self, row: u32) {
        fetch_line(core::ptr::from_ref(&self.0[row as usize / 64]).cast());
    }

    /// How many rows are there.
    pub fn count(&self) -> usize {
        self.0.iter().map(|word| word.load(Ordering::Relaxed).count_ones() as usize).sum()
    }

    /// Rows that are there, ascending.
    #[allow(clippy::cast_possible_truncation)] // made for a u32 of rows
    pub fn rows(&self) -> impl Iterator<Item = u32> {
        self.0.iter().enumerate().flat_map(|(at, word)| {
            let word = word.load(Ordering::Relaxed);
            (0..64).filter(move |bit| word >> bit & 1 != 0).map(move |bit| at as u32 * 64 + bit)
        })
    }
}

/// Asks for a cache line. Any address is allowed.
#[inline(always)]
pub(super) fn fetch_line(at: *const u8) {
    #[cfg(target_arch = "x86_64")]
    // SAFETY: a prefetch never faults; SSE is part of every x86-64.
    unsafe {
        core::arch::x86_64::_mm_prefetch::<{ core::arch::x86_64::_MM_HINT_T0 }>(at.cast());
    }
    #[cfg(not(target_arch = "x86_64"))]
    let _ = at;
}

/// Asks for the lines of a row that are worth it.
#[inline(always)]
pub(super) fn fetch_row(row: *const u8, bytes: usize) {
    let mut at = 0;
    while at < bytes.min(FETCH_BYTES_MAX) {
        fetch_line(row.wrapping_add(at));
        at += 64;
    }
}

#[repr(C, align(16))]
pub(super) struct Slot {
    key: AtomicU64,
    /// Row number plus one; 0: the slot is free. Once taken, a slot's key and row stay.
    row: AtomicU32,
}

impl Slot {
    /// Row number plus one, 0: free; and whose row it is.
    #[inline(always)]
    pub fn look(&self) -> (u32, u64) {
        // Acquire: pairs with `insert`: the key in this slot and the row's first contents are there.
        let row = self.row.load(Ordering::Acquire);
        (row, self.key.load(Ordering::Relaxed))
    }
}

/// Open addressing with linear probing. Lookups run beside one insertion; growth and clearing need the table alone.
pub(super) struct HashIndex {
    slots: Zeroed<Slot>,
    huge_pages: bool,
    /// Taken slots; counted under the table's insert lock.
    taken: AtomicU32,
    /// Makes the order of slots unforeseeable, so that nobody can choose keys that collide.
    seed: u64,
    /// Where the slots lie and are told of, if other processes read them.
    shared: Option<More>,
}

const SLOTS_MIN: usize = 64;

/// Where the search for a key begins, of so many slots less one.
#[inline(always)]
#[allow(clippy::cast_possible_truncation)] // masked
pub(super) fn home(key: u64, seed: u64, mask: usize) -> usize {
    let mixed = (key ^ seed).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    let mixed = (mixed ^ (mixed >> 32)).wrapping_mul(seed | 1);
    // The upper half is the better mixed one.
    (mixed >> 32) as usize & mask
}

impl HashIndex {
    pub fn new(seed: u64, huge_pages: bool, shared: Option<More>) -> HashIndex {
        HashIndex { slots: Zeroed::empty(), huge_pages, taken: AtomicU32::new(0), seed, shared }
    }

    #[inline]
    fn home(&self, key: u64) -> usize {
        home(key, self.seed, self.slots.len() - 1)
    }

    /// Slots in the file that others read, or in memory of this process where that is full.
    fn slots_of(&self, len: usize) -> Result<Zeroed<Slot>> {
        if let Some(shared) = &self.shared {
            // SAFETY: the file outlives the slots: `shared` keeps it.
            if let Ok(slots) = unsafe { Zeroed::<Slot>::within(len, &**shared.rows()) } {
                // All of it is touched at once.
                shared.rows().warm(slots.as_ptr().cast(), size_of_val::<[Slot]>(&slots));
                return Ok(slots);
            }
        }
        Zeroed::new(len, self.huge_pages)
    }

    #[inline]
    pub fn fetch(&self, key: u64) {
        if !self.slots.is_empty() {
            fetch_line(core::ptr::from_ref(&self.slots[self.home(key)]).cast());
        }
    }

    /// The row of a key.
    #[inline]
    pub fn find(&self, key: u64) -> Option<u32> {
        if self.slots.is_empty() {
            return None;
        }
        let mask = self.slots.len() - 1;
        let mut at = self.home(key);
        loop {
            match self.slots[at].look() {
                (0, _) => return None,
                (row, found) if found == key => return Some(row - 1),
                _ => at = (at + 1) & mask,
            }
        }
    }

    /// Whether `more` insertions may be too many. Call [`HashIndex::grow`] then.
    #[inline]
    pub fn is_short_of(&self, more: usize) -> bool {
        (self.taken.load(Ordering::Relaxed) as usize + more) * 2 > self.slots.len()
    }

    /// Makes room for `more` insertions at least.
    ///
    /// # Errors
    /// As for [`Zeroed::new`]; nothing has changed then.
    pub fn grow(&mut self, more: usize) -> Result<()> {
        let taken = self.taken.load(Ordering::Relaxed) as usize;
        let len = ((taken + more) * 2).next_power_of_two().max(SLOTS_MIN);
        if len <= self.slots.len() {
            return Ok(());
        }
        let larger = self.slots_of(len)?;
        let old = core::mem::replace(&mut self.slots, larger);
        for slot in old.iter() {
            let row = slot.row.load(Ordering::Relaxed);
            if row != 0 {
                self.place(slot.key.load(Ordering::Relaxed), row);
            }
        }
        if let Some(shared) = &self.shared {
            shared.slots(self.slots.as_ptr().cast(), len, self.seed);
            shared.rows().give_back(old.as_ptr().cast(), size_of_val(&*old));
        }
        Ok(())
    }

    /// Adds a key that is not there. One caller at a time; room was made before.
    pub fn insert(&self, key: u64, row: u32) {
        assert!((self.taken.load(Ordering::Relaxed) as usize) < self.slots.len() - 1, "room was made before");
        self.place(key, row + 1);
        self.taken.fetch_add(1, Ordering::Relaxed);
    }

    fn place(&self, key: u64, row_plus_one: u32) {
        let mask = self.slots.len() - 1;
        let mut at = self.home(key);
        while self.slots[at].row.load(Ordering::Relaxed) != 0 {
            at = (at + 1) & mask;
        }
        self.slots[at].key.store(key, Ordering::Relaxed);
        // Release: pairs with `find`.
        self.slots[at].row.store(row_plus_one, Ordering::Release);
    }

    /// Forgets all keys and keeps the memory.
    pub fn clear(&mut self) {
        for slot in self.slots.iter() {
            if slot.row.load(Ordering::Relaxed) != 0 {
                slot.row.store(0, Ordering::Relaxed);
            }
        }
        self.taken.store(0, Ordering::Relaxed);
    }

    /// All keys with their rows, in no order.
    pub fn entries(&self) -> impl Iterator<Item = (u64, u32)> {
        self.slots.iter().filter_map(|slot| {
            let row = slot.row.load(Ordering::Relaxed);
            (row != 0).then(|| (slot.key.load(Ordering::Relaxed), row - 1))
        })
    }
}
