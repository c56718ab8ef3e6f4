//! From keys to row numbers.

use crate::sync::{AtomicU32, AtomicU64, Ordering};
use std::alloc::{Layout, alloc_zeroed, handle_alloc_error};

/// A boxed slice of zeroed values without touching its pages: a large one costs memory only where it is used.
///
/// # Safety
/// All-zero bytes are a value of `T`.
unsafe fn zeroed_slice<T>(len: usize) -> Box<[T]> {
    let layout = Layout::array::<T>(len).unwrap_or_else(|_| Layout::new::<T>());
    if layout.size() == 0 || len == 0 {
        return Box::new([]);
    }
    assert!(layout.size() / size_of::<T>() == len, "an index of {len} entries is beyond the address space");
    // SAFETY: the layout is not empty; zero bytes are values of T; Box frees with this same layout.
    unsafe {
        let start = alloc_zeroed(layout).cast::<T>();
        if start.is_null() {
            handle_alloc_error(layout);
        }
        Box::from_raw(core::ptr::slice_from_raw_parts_mut(start, len))
    }
}

/// Zeroed atomics, lazily backed by memory.
pub(super) fn zeroed_u32s(len: usize) -> Box<[AtomicU32]> {
    // SAFETY: zero bytes are an AtomicU32 of 0.
    unsafe { zeroed_slice(len) }
}

/// One bit for each row that is addressed by its key: whether it was ever written.
pub(super) struct Presence(Box<[AtomicU64]>);

impl Presence {
    pub fn new(rows: u32) -> Presence {
        // SAFETY: zero bytes are an AtomicU64 of 0.
        Presence(unsafe { zeroed_slice((rows as usize).div_ceil(64)) })
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
        for word in &self.0 {
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

    /// Rows that are there, ascending.
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

#[repr(C, align(16))]
struct Slot {
    key: AtomicU64,
    /// Row number plus one; 0: the slot is free. Once taken, a slot's key and row stay.
    row: AtomicU32,
}

/// Open addressing with linear probing. Lookups run beside one insertion; growth and clearing need the table alone.
pub(super) struct HashIndex {
    slots: Box<[Slot]>,
    /// Taken slots; counted under the table's insert lock.
    taken: AtomicU32,
    /// Makes the order of slots unforeseeable, so that nobody can choose keys that collide.
    seed: u64,
}

const SLOTS_MIN: usize = 64;

impl HashIndex {
    pub fn new(seed: u64) -> HashIndex {
        HashIndex { slots: Box::new([]), taken: AtomicU32::new(0), seed }
    }

    #[inline]
    fn home(&self, key: u64) -> usize {
        let mixed = (key ^ self.seed).wrapping_mul(0x9e37_79b9_7f4a_7c15);
        let mixed = (mixed ^ (mixed >> 32)).wrapping_mul(self.seed | 1);
        // The upper half is the better mixed one.
        (mixed >> 32) as usize & (self.slots.len() - 1)
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
            let slot = &self.slots[at];
            // Acquire: pairs with `insert`: the key in this slot and the row's first contents are there.
            let row = slot.row.load(Ordering::Acquire);
            if row == 0 {
                return None;
            }
            if slot.key.load(Ordering::Relaxed) == key {
                return Some(row - 1);
            }
            at = (at + 1) & mask;
        }
    }

    /// Whether `more` insertions may be too many. Call [`HashIndex::grow`] then.
    #[inline]
    pub fn is_short_of(&self, more: usize) -> bool {
        (self.taken.load(Ordering::Relaxed) as usize + more) * 2 > self.slots.len()
    }

    /// Makes room for `more` insertions at least.
    pub fn grow(&mut self, more: usize) {
        let taken = self.taken.load(Ordering::Relaxed) as usize;
        let len = ((taken + more) * 2).next_power_of_two().max(SLOTS_MIN);
        if len <= self.slots.len() {
            return;
        }
        // SAFETY: zero bytes are a free slot.
        let old = core::mem::replace(&mut self.slots, unsafe { zeroed_slice(len) });
        for slot in &old {
            let row = slot.row.load(Ordering::Relaxed);
            if row != 0 {
                self.place(slot.key.load(Ordering::Relaxed), row);
            }
        }
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
        for slot in &self.slots {
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
