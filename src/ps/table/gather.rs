//! GET: rows of a batch of keys, one after the other, into one place.

use super::index::fetch_row;
use super::locks::Stripes;
use super::one::{ABSENT, Table};
use crate::ps::store::GetTimes;
use crate::time::now;
use crate::wire::RpcStatus;

/// Rows asked for ahead of the one being copied. 16 to 32 measured best on short rows that come from memory.
const AHEAD_MAX: usize = 24;
/// Of long rows fewer: the processor keeps track of so many lines at once.
const AHEAD_LINES: usize = 48;
const AHEAD_MIN: usize = 4;
pub(super) const RING: usize = 32;
/// Keys that a timed GET takes at a time.
const TIMED_KEYS: usize = 64;

/// How many rows of this length are asked for ahead.
#[inline(always)]
pub(super) fn ahead_of(row_bytes: usize) -> usize {
    (AHEAD_LINES * 64 / row_bytes.max(1)).clamp(AHEAD_MIN, AHEAD_MAX)
}

/// One GET.
pub(super) struct Gather<'a> {
    pub table: &'a Table,
    /// None: the store has one worker.
    pub stripes: Option<&'a Stripes>,
    pub keys: &'a [u64],
    /// Keys of the call that follows.
    pub ahead: &'a [u64],
    /// Valid for writes of all rows.
    pub out: *mut u8,
}

impl Gather<'_> {
    /// Copies the rows; the number of missing ones.
    ///
    /// # Safety
    /// `out` is valid for writes of a row for each key. Rows do not change meanwhile unless under `stripes`.
    pub unsafe fn run(&self) -> Result<u32, RpcStatus> {
        // SAFETY: the caller's promise.
        unsafe {
            match (self.table.row_bytes, self.stripes.is_some()) {
                (64, false) => self.run_wide::<64, false>(),
                (128, false) => self.run_wide::<128, false>(),
                (_, false) => self.run_wide::<0, false>(),
                (64, true) => self.run_wide::<64, true>(),
                (128, true) => self.run_wide::<128, true>(),
                (_, true) => self.run_wide::<0, true>(),
            }
        }
    }

    /// # Safety
    /// As for [`Gather::run`].
    unsafe fn run_wide<const ROW: usize, const LOCKED: bool>(&self) -> Result<u32, RpcStatus> {
        #[cfg(target_arch = "x86_64")]
        if std::arch::is_x86_feature_detected!("avx2") {
            // SAFETY: the processor has AVX2; the rest is the caller's promise.
            return unsafe { self.run_avx2::<ROW, LOCKED>() };
        }
        // SAFETY: the caller's promise.
        unsafe { self.body::<ROW, LOCKED>() }
    }

    /// # Safety
    /// As for [`Gather::run`], on a processor with AVX2.
    #[cfg(target_arch = "x86_64")]
    #[target_feature(enable = "avx2")]
    unsafe fn run_avx2<const ROW: usize, const LOCKED: bool>(&self) -> Result<u32, RpcStatus> {
        // SAFETY: the caller's promise.
        unsafe { self.body::<ROW, LOCKED>() }
    }

    /// Row bytes, known when compiling where `ROW` says so.
    #[inline(always)]
    fn row_bytes<const ROW: usize>(&self) -> usize {
        if ROW == 0 { self.table.row_bytes } else { ROW }
    }

    /// Address of a key's row, NULL if missing; the row is asked for.
    #[inline(always)]
    fn locate<const ROW: usize, const LOCKED: bool>(&self, key: u64) -> Result<*const u8, RpcStatus> {
        let row = self.table.find(key)?;
        if row == ABSENT {
            return Ok(core::ptr::null());
        }
        let address = self.table.rows.address(row).cast_const();
        fetch_row(address, self.row_bytes::<ROW>());
        if LOCKED && let Some(stripes) = self.stripes {
            stripes.fetch(address);
        }
        Ok(address)
    }

    /// # Safety
    /// As for [`Gather::run`].
    #[inline(always)]
    unsafe fn body<const ROW: usize, const LOCKED: bool>(&self) -> Result<u32, RpcStatus> {
        let row_bytes = self.row_bytes::<ROW>();
        if let ([key], []) = (self.keys, self.ahead) {
            // SAFETY: the caller's promise.
            return unsafe { self.one::<ROW, LOCKED>(*key) };
        }
        let ahead = ahead_of(row_bytes);
        let mut ring = [core::ptr::null(); RING];
        let hashed = !self.table.is_direct();
        if hashed {
            self.keys.iter().take(2 * ahead).for_each(|key| self.table.fetch_index(*key));
        }
        for (i, key) in self.keys.iter().take(ahead).enumerate() {
            ring[i] = self.locate::<ROW, LOCKED>(*key)?;
        }
        let mut missing = 0;
        let mut out = self.out;
        for i in 0..self.keys.len() {
            let source = ring[i % RING];
            if let Some(next) = self.keys.get(i + ahead) {
                ring[(i + ahead) % RING] = self.locate::<ROW, LOCKED>(*next)?;
                if hashed && let Some(later) = self.keys.get(i + 2 * ahead) {
                    self.table.fetch_index(*later);
                }
            } else if let Some(next) = self.ahead.get(i + ahead - self.keys.len().max(ahead)) {
                // Only a hint: whether this shard owns the key is the next call's business.
                let _ = self.locate::<ROW, LOCKED>(*next);
            }
            // SAFETY: out has room for a row per key.
            unsafe {
                missing += self.copy::<ROW, LOCKED>(source, out);
                out = out.add(row_bytes);
            }
        }
        Ok(missing)
    }

    /// The rows of `keys`, each to its own place: all are looked up, and asked for, before the first is copied.
    ///
    /// # Safety
    /// As for [`Gather::run`], but for `out`: there are as many `outs` as keys, each valid for writes of a row.
    pub unsafe fn run_each(&self, outs: &[*mut u8]) -> Result<u32, RpcStatus> {
        // SAFETY: the caller's promise.
        unsafe {
            match (self.table.row_bytes, self.stripes.is_some()) {
                (64, false) => self.each::<64, false>(outs),
                (128, false) => self.each::<128, false>(outs),
                (_, false) => self.each::<0, false>(outs),
                (64, true) => self.each::<64, true>(outs),
                (128, true) => self.each::<128, true>(outs),
                (_, true) => self.each::<0, true>(outs),
            }
        }
    }

    /// # Safety
    /// As for [`Gather::run_each`].
    #[inline(always)]
    unsafe fn each<const ROW: usize, const LOCKED: bool>(&self, outs: &[*mut u8]) -> Result<u32, RpcStatus> {
        let mut missing = 0;
        for (keys, outs) in self.keys.chunks(RING).zip(outs.chunks(RING)) {
            let mut found = [core::ptr::null(); RING];
            for (place, key) in found.iter_mut().zip(keys) {
                *place = self.locate::<ROW, LOCKED>(*key)?;
            }
            for (source, out) in found.iter().zip(outs) {
                // SAFETY: the place has room for a row.
                missing += unsafe { self.copy::<ROW, LOCKED>(*source, *out) };
            }
        }
        Ok(missing)
    }

    /// The same with the clock between its steps, which are done one after the other for some keys at a time; the number
    /// of missing rows.
    ///
    /// # Safety
    /// As for [`Gather::run`].
    #[cold]
    pub unsafe fn run_timed(&self, times: &mut GetTimes) -> Result<u32, RpcStatus> {
        let row_bytes = self.row_bytes::<0>();
        let (mut missing, mut out) = (0, self.out);
        for keys in self.keys.chunks(TIMED_KEYS) {
            let mut found = [core::ptr::null(); TIMED_KEYS];
            let begun = now();
            for (place, key) in found.iter_mut().zip(keys) {
                *place = self.locate::<0, true>(*key)?;
            }
            let looked = now();
            let rows = &found[..keys.len()];
            let place = |index: usize| out.wrapping_add(index * row_bytes);
            for (index, source) in rows.iter().enumerate().filter(|(_, source)| source.is_null()) {
                // SAFETY: out has room for a row per key.
                missing += unsafe { self.copy::<0, true>(*source, place(index)) };
            }
            let zeroed = now();
            for (index, source) in rows.iter().enumerate().filter(|(_, source)| !source.is_null()) {
                // SAFETY: as above.
                unsafe { self.copy::<0, true>(*source, place(index)) };
            }
            times.lookup_ns += looked.since_ns(begun);
            times.zero_ns += zeroed.since_ns(looked);
            times.copy_ns += now().since_ns(zeroed);
            out = out.wrapping_add(keys.len() * row_bytes);
        }
        Ok(missing)
    }

    /// The frequent single key, without the machinery of looking ahead.
    ///
    /// # Safety
    /// As for [`Gather::run`].
    #[inline(always)]
    unsafe fn one<const ROW: usize, const LOCKED: bool>(&self, key: u64) -> Result<u32, RpcStatus> {
        let row = self.table.find(key)?;
        let source = if row == ABSENT { core::ptr::null() } else { self.table.rows.address(row).cast_const() };
        // SAFETY: the caller's promise.
        Ok(unsafe { self.copy::<ROW, LOCKED>(source, self.out) })
    }

    /// Copies one row that was found, or zeros for NULL; the number of missing rows.
    ///
    /// # Safety
    /// `out` is valid for writes of a row.
    #[inline(always)]
    unsafe fn copy<const ROW: usize, const LOCKED: bool>(&self, source: *const u8, out: *mut u8) -> u32 {
        let row_bytes = self.row_bytes::<ROW>();
        // SAFETY: a row found is row_bytes long and stays; `out` is the caller's promise.
        unsafe {
            if source.is_null() {
                out.write_bytes(0, row_bytes);
                return 1;
            }
            match self.stripes {
                Some(stripes) if LOCKED => stripes.read(source, || copy_row::<ROW>(source, out, row_bytes)),
                _ => copy_row::<ROW>(source, out, row_bytes),
            }
        }
        0
    }
}

/// Copies a row: of `ROW` bytes, or of `bytes`, a multiple of 4, where that is 0. Pieces of a known size become a few wide
/// moves; a length known only at run time would be a call, and the end of one that is no multiple of a piece is copied by
/// a piece that begins earlier.
///
/// # Safety
/// `from` is valid for reads and `to` for writes of `bytes`; they do not overlap.
#[inline(always)]
pub(super) unsafe fn copy_row<const ROW: usize>(from: *const u8, to: *mut u8, bytes: usize) {
    const LINE: usize = 64;
    // SAFETY: the caller's promise; every piece ends at `bytes` at the latest.
    unsafe {
        let copy_4 = |at: usize| to.add(at).cast::<u32>().write(from.add(at).cast::<u32>().read());
        match bytes {
            _ if ROW != 0 => core::ptr::copy_nonoverlapping(from, to, ROW),
            LINE.. => {
                for line in 0..bytes / LINE {
                    core::ptr::copy_nonoverlapping(from.add(line * LINE), to.add(line * LINE), LINE);
                }
                if !bytes.is_multiple_of(LINE) {
                    core::ptr::copy_nonoverlapping(from.add(bytes - LINE), to.add(bytes - LINE), LINE);
                }
            }
            32.. => {
                core::ptr::copy_nonoverlapping(from, to, 32);
                core::ptr::copy_nonoverlapping(from.add(bytes - 32), to.add(bytes - 32), 32);
            }
            16.. => {
                core::ptr::copy_nonoverlapping(from, to, 16);
                core::ptr::copy_nonoverlapping(from.add(bytes - 16), to.add(bytes - 16), 16);
            }
            4.. => {
                // One to three words.
                copy_4(0);
                copy_4(bytes / 8 * 4);
                copy_4(bytes - 4);
            }
            _ => {}
        }
    }
}
