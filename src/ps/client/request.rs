//! What a caller asks for, and where rows come from and go to.

use crate::fabric::Region;
use crate::ids::TableTag;
use crate::wire::RemoteBuffer;

/// Where the rows of a GET go.
#[derive(Debug)]
pub enum Target<'a, R> {
    /// The caller's memory: `capacity` f32 at `rows`, valid until the request is done.
    Memory {
        /// First element.
        rows: *mut f32,
        /// Elements.
        capacity: usize,
    },
    /// Nowhere: the caller reads them in place, until it revokes the request.
    InPlace,
    /// Memory that the library allocated: the server writes there.
    Buffer {
        /// The memory.
        region: &'a R,
        /// Where in it; a multiple of 4.
        offset_bytes: usize,
    },
}

/// Where the rows of a PUT or UPDATE come from; valid until the request is done.
#[derive(Debug)]
pub enum Rows<'a, R> {
    /// One dense matrix of `count` f32.
    Flat {
        /// First element.
        rows: *const f32,
        /// Elements.
        count: usize,
    },
    /// One pointer per row.
    Scattered(&'a [*const f32]),
    /// One dense matrix in memory that the library allocated.
    Buffer {
        /// The memory.
        region: &'a R,
        /// Where in it; a multiple of 4.
        offset_bytes: usize,
    },
}

/// One request.
#[derive(Debug)]
pub enum Request<'a, R> {
    /// Rows of keys, in the order of the keys; a missing key gives a zero row.
    Get {
        /// The table.
        table: TableTag,
        /// The keys.
        keys: &'a [u64],
        /// Where the rows go.
        target: Target<'a, R>,
    },
    /// Sets rows.
    Put {
        /// The table.
        table: TableTag,
        /// The keys.
        keys: &'a [u64],
        /// The rows.
        rows: Rows<'a, R>,
    },
    /// Applies gradients; travels as blocks of key and row.
    Update {
        /// The table.
        table: TableTag,
        /// The keys.
        keys: &'a [u64],
        /// One gradient per key.
        gradients: Rows<'a, R>,
    },
    /// Applies gradients; travels as keys and one matrix.
    UpdateFlat {
        /// The table.
        table: TableTag,
        /// The keys.
        keys: &'a [u64],
        /// One gradient per key.
        gradients: Rows<'a, R>,
    },
}

// By hand, since a derived one would ask the same of `R`, of which there is but a reference.
impl<R> Clone for Target<'_, R> {
    fn clone(&self) -> Self {
        *self
    }
}
impl<R> Copy for Target<'_, R> {}
impl<R> Clone for Rows<'_, R> {
    fn clone(&self) -> Self {
        *self
    }
}
impl<R> Copy for Rows<'_, R> {}
impl<R> Clone for Request<'_, R> {
    fn clone(&self) -> Self {
        *self
    }
}
impl<R> Copy for Request<'_, R> {}

/// Rows of a GET, read in place.
#[derive(Clone, Copy, Debug)]
pub struct Borrowed {
    /// The first row. Valid until the request is revoked.
    pub rows: *const f32,
    /// Rows that can be read already.
    pub rows_ready: usize,
    /// Rows that there will be.
    pub rows_total: usize,
}

/// Where rows to send lie, after the checks.
#[derive(Clone, Copy, Debug)]
pub(super) enum Source {
    /// In memory of this process: they are copied into slots.
    Local(Local),
    /// In registered memory, row by row: the server reads them there.
    Named(RemoteBuffer),
}

/// Rows in memory of this process.
#[derive(Clone, Copy, Debug)]
pub(super) enum Local {
    /// Row `i` at `first + i * row_bytes`.
    Dense(*const u8),
    /// Row `i` at `*pointers[i]`.
    Scattered(*const *const f32),
}

impl Local {
    /// Copies row `index` to `out`.
    ///
    /// # Safety
    /// The source has that row, and `out` is valid for `row_bytes` bytes.
    #[inline]
    pub(super) unsafe fn copy_row(self, index: usize, row_bytes: usize, out: *mut u8) {
        // SAFETY: as the caller vouches.
        unsafe {
            let from = match self {
                Local::Dense(first) => first.add(index * row_bytes),
                Local::Scattered(pointers) => (*pointers.add(index)).cast::<u8>(),
            };
            core::ptr::copy_nonoverlapping(from, out, row_bytes);
        }
    }
}

/// How a request names the part of `region` that begins at `place`. None: more than a request can name.
pub(super) fn name_of<R: Region>(region: &R, place: *const u8, bytes: usize) -> Option<RemoteBuffer> {
    let address = region.address();
    let offset = (place.addr() - region.base().as_ptr().addr()) as u64;
    Some(RemoteBuffer { address: address.iova + offset, rkey: address.rkey, bytes: u32::try_from(bytes).ok()? })
}

/// The address range of a buffer's part, checked against its length.
pub(super) fn part_of<R: Region>(region: &R, offset_bytes: usize, bytes: usize) -> Option<*mut u8> {
    let end = offset_bytes.checked_add(bytes)?;
    if end > region.bytes() || !offset_bytes.is_multiple_of(4) {
        return None;
    }
    // SAFETY: the offset was found to lie within the region.
    Some(unsafe { region.base().as_ptr().add(offset_bytes) })
}
