//! The reading side: another process's rows.

use super::sight::{Copied, Keying, Sight};
use super::{
    BASE_AT, DIRECT, ENTRIES_AT, ENTRY_BYTES, EPOCH_AT, HASHED, MAGIC, MAGIC_AT, MAPPED, OWNER_AT, ROWS_AT, WITHDRAWN,
    WRITER_LINES_AT, WRITERS_AT, WRITERS_MAX, more, word,
};
use crate::ids::TableTag;
use crate::ps::routing::Router;
use crate::sync::{AtomicU32, AtomicU64, Ordering, fence};

/// Fewer keys are read under the locks of their rows: there is too little to win.
const HOPEFUL_KEYS: usize = 4;
/// Batches that a reader does not hope for after a writer came between.
const RESIGNED_FOR: u8 = 16;

/// A shard's file of rows, as it is mapped here.
#[derive(Clone, Copy, Debug)]
pub struct View {
    pub(super) base: *const u8,
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

/// Whether writers left a reader alone lately. It reads without a look at the rows' locks as long as they do, and would
/// read everything twice if it hoped so beside one who writes all the time.
#[derive(Clone, Copy, Default, Debug)]
pub struct Calm(u8);

impl Calm {
    #[inline(always)]
    fn is_hopeful(&mut self) -> bool {
        let hopeful = self.0 == 0;
        self.0 = self.0.saturating_sub(1);
        hopeful
    }
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
        Some(Sight { table, keying, row_bytes, keys, rows, stride, rows_at, index, more, file: *self, served_at })
    }

    /// An offset, if so many bytes lie in the file from there on.
    #[inline(always)]
    #[allow(clippy::cast_possible_truncation)] // no more than the file's length
    pub(super) fn within(&self, offset: u64, bytes: u64) -> Option<usize> {
        let end = offset.checked_add(bytes)?;
        (end <= self.bytes as u64 && offset.is_multiple_of(8)).then_some(offset as usize)
    }

    /// The epoch that a read begins in. None: all rows may be changing, or nobody serves them any more.
    #[inline(always)]
    #[must_use]
    pub fn epoch(&self) -> Option<u64> {
        // Acquire: pairs with the end of a change of all rows.
        let epoch = self.word(EPOCH_AT).load(Ordering::Acquire);
        (epoch & (1 | WITHDRAWN) == 0 && self.is_served()).then_some(epoch)
    }

    /// Whether what was read since `epoch` was the serving shard's: nothing changed as a whole, and it serves still.
    #[inline(always)]
    #[must_use]
    pub fn holds(&self, epoch: u64) -> bool {
        // Acquire: what is loaded below is not older than the rows.
        fence(Ordering::Acquire);
        self.word(EPOCH_AT).load(Ordering::Relaxed) == epoch && self.is_served()
    }

    /// What all writers have done so far. None: one is at work, or there are more than the file has room for.
    #[inline(always)]
    fn marks(&self) -> Option<u64> {
        let writers = usize::try_from(self.word(WRITERS_AT).load(Ordering::Relaxed)).ok()?;
        if writers == 0 || writers > WRITERS_MAX {
            return None;
        }
        let (mut sum, mut all) = (0_u64, 0);
        for writer in 0..writers {
            // Acquire: pairs with the end of `Busy`: what was written before is there.
            let mark = self.word(WRITER_LINES_AT + writer * 64).load(Ordering::Acquire);
            (sum, all) = (sum.wrapping_add(mark), all | mark);
        }
        // Marks only grow: an equal sum means equal marks.
        (all & 1 == 0).then_some(sum)
    }

    /// Copies the rows of all keys, zeros for those that are not there. False: they are to be asked for by request, and
    /// what `out` holds means nothing.
    ///
    /// # Safety
    /// `out` is valid for writes of a row for each key, or at each position.
    #[inline]
    #[must_use]
    pub unsafe fn read(&self, wanted: &Wanted<'_>, calm: &mut Calm) -> bool {
        let Some(epoch) = self.epoch() else { return false };
        let Some(sight) = self.sight(wanted.table, wanted.row_bytes) else { return false };
        if wanted.keys.len() >= HOPEFUL_KEYS
            && calm.is_hopeful()
            && let Some(marks) = self.marks()
        {
            // SAFETY: the caller's promise.
            let copied = unsafe { sight.gather::<true>(wanted) };
            // Acquire: the marks loaded below are not older than the rows: whoever saw a byte of a writer sees his mark.
            fence(Ordering::Acquire);
            match copied {
                Copied::All if self.marks() == Some(marks) => return self.holds(epoch),
                Copied::Unknown => return false,
                Copied::All | Copied::Torn => *calm = Calm(RESIGNED_FOR),
            }
        }
        // SAFETY: the caller's promise.
        let copied = unsafe { sight.gather::<false>(wanted) };
        matches!(copied, Copied::All) && self.holds(epoch)
    }
}
