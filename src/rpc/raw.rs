//! Access to memory that a peer reads and writes at any time: atomics and raw copies, never a reference.

use crate::sync::{AtomicU64, Ordering};
use crate::wire::{HEADER_BYTES, Words};
use core::mem::MaybeUninit;

const WORDS: usize = HEADER_BYTES / 8;

/// # Safety
/// `place` is 8-aligned and mapped.
#[inline(always)]
unsafe fn word<'a>(place: *const u8) -> &'a AtomicU64 {
    // SAFETY: the caller vouches for mapping and alignment; shared memory is only ever reached through atomics here.
    unsafe { AtomicU64::from_ptr(place.cast_mut().cast::<u64>()) }
}

/// Asks for a line that will be read. Any address may be given.
#[inline(always)]
pub(super) fn fetch_to_read(place: *const u8) {
    #[cfg(target_arch = "x86_64")]
    // SAFETY: a prefetch reads nothing and never faults.
    unsafe {
        core::arch::x86_64::_mm_prefetch::<{ core::arch::x86_64::_MM_HINT_T0 }>(place.cast());
    }
    #[cfg(not(target_arch = "x86_64"))]
    let _ = place;
}

/// Asks for a line that will be written, as its only owner: what the other side holds of it is taken away while this
/// side still does something else. Any address may be given.
#[inline(always)]
pub(super) fn fetch_to_write(place: *const u8) {
    #[cfg(target_arch = "x86_64")]
    // SAFETY: a prefetch reads and writes nothing and never faults; processors without it take it for a no-op.
    unsafe {
        core::arch::asm!("prefetchw [{place}]", place = in(reg) place, options(nostack, preserves_flags, readonly));
    }
    #[cfg(not(target_arch = "x86_64"))]
    let _ = place;
}

/// The word at `header + offset`.
///
/// # Safety
/// `header` is an 8-aligned, mapped header; `offset` is a multiple of 8 below 64.
#[inline(always)]
pub(super) unsafe fn load_acquire(header: *const u8, offset: usize) -> u64 {
    // SAFETY: as the caller vouches.
    // Acquire: pairs with the Release of `store_release` on the other side.
    u64::from_le(unsafe { word(header.add(offset)) }.load(Ordering::Acquire))
}

/// Stores the word at `header + offset` behind everything stored before.
///
/// # Safety
/// As [`load_acquire`], and writable.
#[inline(always)]
pub(super) unsafe fn store_release(header: *mut u8, offset: usize, value: u64) {
    // SAFETY: as the caller vouches.
    // Release: pairs with the Acquire of `load_acquire` on the other side.
    unsafe { word(header.add(offset)) }.store(value.to_le(), Ordering::Release);
}

/// Copies a header out. The peer may be changing it: the copy is what is judged.
///
/// # Safety
/// `header` is an 8-aligned, mapped header.
#[inline(always)]
pub(super) unsafe fn copy_header(header: *const u8) -> Words {
    let load = |index: usize| {
        // SAFETY: index < 8, so each word lies within the header.
        u64::from_le(unsafe { word(header.add(index * 8)) }.load(Ordering::Relaxed))
    };
    // Word by word and not by a loop over an array: so they stay in registers (see [`Words`]).
    [load(0), load(1), load(2), load(3), load(4), load(5), load(6), load(7)]
}

/// Stores a header with its last word last.
///
/// # Safety
/// `header` is an 8-aligned, mapped, writable header.
#[inline(always)]
pub(super) unsafe fn store_header(header: *mut u8, words: &Words) {
    for (index, value) in words[..WORDS - 1].iter().enumerate() {
        // SAFETY: index < 7, so the word lies within the header.
        unsafe { word(header.add(index * 8)) }.store(value.to_le(), Ordering::Relaxed);
    }
    // SAFETY: the last word of the header.
    unsafe { store_release(header, HEADER_BYTES - 8, words[WORDS - 1]) };
}

/// Appends `count` keys that lie at `from` in memory a peer may be changing.
///
/// # Safety
/// `from` is valid for reads of `count * 8` bytes.
#[inline]
pub unsafe fn copy_keys(from: *const u8, count: usize, out: &mut Vec<u64>) {
    out.reserve(count);
    let filled = out.len();
    // SAFETY: reserved above; the source is valid for the same number of bytes. Torn keys are the peer's own loss:
    // each is read once, and what was read is what is judged.
    unsafe {
        core::ptr::copy_nonoverlapping(from, out.as_mut_ptr().add(filled).cast::<u8>(), count * 8);
        out.set_len(filled + count);
    }
    if cfg!(target_endian = "big") {
        out[filled..].iter_mut().for_each(|key| *key = u64::from_le(*key));
    }
}

/// Bytes that are summed at a time: the crate sums three streams of 256 bytes at once, and what is left over by one.
const CHUNK_BYTES: usize = 4 * 3 * 256;

/// A private copy of some bytes to sum. It begins at a line: bytes before the first whole word are summed one by one. Not
/// zeroed first: that would take longer than to sum a small answer.
#[repr(align(64))]
struct Chunk([MaybeUninit<u8>; CHUNK_BYTES]);

/// Continues a checksum with bytes that a peer may be changing: a private copy is summed.
///
/// # Safety
/// `from` is valid for reads of `bytes` bytes.
#[inline]
pub(super) unsafe fn checksum_foreign(mut sum: u32, from: *const u8, bytes: usize) -> u32 {
    let mut done = 0;
    while done < bytes {
        let mut chunk = Chunk([MaybeUninit::uninit(); CHUNK_BYTES]);
        let step = (bytes - done).min(chunk.0.len());
        // SAFETY: `done + step <= bytes`, which the caller vouches for; the chunk is ours, and `step` bytes of it are
        // written before they are read.
        let copied = unsafe {
            core::ptr::copy_nonoverlapping(from.add(done), chunk.0.as_mut_ptr().cast::<u8>(), step);
            core::slice::from_raw_parts(chunk.0.as_ptr().cast::<u8>(), step)
        };
        sum = crate::wire::checksum_append(sum, copied);
        done += step;
    }
    sum
}
