//! From row numbers to addresses. A row, once it has an address, keeps it.

use super::arena::RowMemory;
use super::shared::More;
use crate::error::{Error, Result, Status};
use crate::sync::{Arc, AtomicPtr, AtomicU32, Ordering};
use core::ptr::{NonNull, null_mut};

/// Bytes of the first growing chunk; each further one has twice the rows of the one before.
const FIRST_CHUNK_BYTES: usize = 64 << 10;
pub(super) const CHUNKS: usize = 32;

/// Where a row and its optimizer state are.
#[derive(Clone, Copy)]
pub(super) struct Spot {
    pub row: *mut u8,
    pub state: *mut u8,
}

/// Rows `0..dense_rows` lie in one piece; later ones in chunks that double. Each piece holds its rows first and the
/// optimizer's state of the same rows behind them, so that a GET touches rows only.
pub(super) struct Rows {
    memory: Arc<dyn RowMemory>,
    /// Where chunks lie and are told of, if other processes read them.
    shared: Option<More>,
    /// Bytes from a row to the next: row bytes rounded up so that no row crosses more cache lines than it must.
    stride: usize,
    /// Bytes from one row's state to the next; 0 when the optimizer has none.
    state_stride: usize,
    dense_rows: u32,
    dense_base: *mut u8,
    dense_lkey: u32,
    /// log2 of the rows in the first growing chunk.
    first_shift: u32,
    chunks: [AtomicPtr<u8>; CHUNKS],
    lkeys: [AtomicU32; CHUNKS],
}

// SAFETY: the pointers name memory that `memory` keeps valid; who may touch which row when is the table's business.
unsafe impl Send for Rows {}
// SAFETY: as above.
unsafe impl Sync for Rows {}

/// Row bytes rounded up: to a power of two below a cache line, to whole lines from there on.
pub(super) fn stride_of(row_bytes: usize) -> usize {
    if row_bytes < 64 { row_bytes.next_power_of_two() } else { row_bytes.next_multiple_of(64) }
}

/// log2 of the rows in the first growing chunk.
pub(super) fn first_shift(stride: usize) -> u32 {
    (FIRST_CHUNK_BYTES / stride).max(1).ilog2()
}

/// Chunk, rows in it, and place inside it, of a row by its number among those that are not dense. `first_shift` is below
/// 32.
#[inline]
#[allow(clippy::cast_possible_truncation)] // 64-bit only
pub(super) fn chunk_of(number: u32, first_shift: u32) -> (usize, usize, usize) {
    let shifted = u64::from(number) + (1 << first_shift);
    let log = shifted.ilog2();
    ((log - first_shift) as usize, 1 << log, (shifted - (1 << log)) as usize)
}

impl Rows {
    /// `dense`: where the dense piece comes from.
    pub fn new(
        memory: &Arc<dyn RowMemory>,
        dense: &dyn RowMemory,
        row_bytes: usize,
        state_stride: usize,
        dense_rows: u32,
    ) -> Result<Rows> {
        let stride = stride_of(row_bytes);
        let (dense_base, dense_lkey) = if dense_rows == 0 {
            (null_mut(), 0)
        } else {
            let bytes = (dense_rows as usize).saturating_mul(stride + state_stride);
            let segment = dense.allocate(bytes)?;
            (segment.base.as_ptr(), segment.lkey)
        };
        Ok(Rows {
            memory: Arc::clone(memory),
            shared: None,
            stride,
            state_stride,
            dense_rows,
            dense_base,
            dense_lkey,
            first_shift: first_shift(stride),
            chunks: [const { AtomicPtr::new(null_mut()) }; CHUNKS],
            lkeys: [const { AtomicU32::new(0) }; CHUNKS],
        })
    }

    /// [`chunk_of`] a row that is not dense.
    #[inline]
    fn chunk_of(&self, row: u32) -> (usize, usize, usize) {
        chunk_of(row - self.dense_rows, self.first_shift)
    }

    /// Address of a row that exists: a dense one, or one that [`Rows::ensure`] was called for.
    #[inline]
    pub fn address(&self, row: u32) -> *mut u8 {
        if row < self.dense_rows {
            return self.dense_base.wrapping_add(row as usize * self.stride);
        }
        let (chunk, _, place) = self.chunk_of(row);
        // Relaxed: the row number came from an index entry that was published with Release after `ensure`.
        self.chunks[chunk].load(Ordering::Relaxed).wrapping_add(place * self.stride)
    }

    /// Address of a row that exists, and of its optimizer state.
    #[inline]
    pub fn spot(&self, row: u32) -> Spot {
        let (base, rows, place) = if row < self.dense_rows {
            (self.dense_base, self.dense_rows as usize, row as usize)
        } else {
            let (chunk, rows, place) = self.chunk_of(row);
            (self.chunks[chunk].load(Ordering::Relaxed), rows, place)
        };
        Spot {
            row: base.wrapping_add(place * self.stride),
            state: base.wrapping_add(rows * self.stride + place * self.state_stride),
        }
    }

    /// Later rows lie where other processes can read them.
    pub fn share(&mut self, more: More) {
        self.shared = Some(more);
    }

    /// How many rows lie in the first piece, and where it begins.
    pub fn dense(&self) -> (u32, *const u8) {
        (self.dense_rows, self.dense_base)
    }

    /// Bytes from one row to the next.
    pub fn stride(&self) -> usize {
        self.stride
    }

    /// How many rows, this one included, lie one after the other from this one on, and their states as well.
    pub fn run_from(&self, row: u32) -> usize {
        if row < self.dense_rows {
            return (self.dense_rows - row) as usize;
        }
        let (_, rows, place) = self.chunk_of(row);
        rows - place
    }

    /// Local key of the region that holds a row that exists.
    pub fn lkey(&self, row: u32) -> u32 {
        if row < self.dense_rows { self.dense_lkey } else { self.lkeys[self.chunk_of(row).0].load(Ordering::Relaxed) }
    }

    /// Sees to it that a row has an address. One caller at a time (the table's insert lock).
    pub fn ensure(&self, row: u32) -> Result<()> {
        if row < self.dense_rows {
            return Ok(());
        }
        let (chunk, rows, _) = self.chunk_of(row);
        let Some(slot) = self.chunks.get(chunk) else {
            return Err(Error::new(Status::ResourceLimit, format!("row {row} is beyond what a table can hold")));
        };
        if slot.load(Ordering::Relaxed).is_null() {
            let bytes = rows.saturating_mul(self.stride + self.state_stride);
            // What does not fit the file any more is not read by others.
            let shared = self.shared.as_ref().and_then(|shared| shared.rows().allocate(bytes).ok());
            let segment = shared.map_or_else(|| self.memory.allocate(bytes), Ok)?;
            self.lkeys[chunk].store(segment.lkey, Ordering::Relaxed);
            slot.store(NonNull::as_ptr(segment.base), Ordering::Relaxed);
            if let Some(shared) = &self.shared {
                shared.chunk(chunk, segment.base.as_ptr());
            }
        }
        Ok(())
    }
}
