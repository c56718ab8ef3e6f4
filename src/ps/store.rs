//! What holds the rows of one shard: the built-in table, or a C++ engine behind callbacks.

use crate::ids::TableTag;
use crate::time::now;
use crate::wire::RpcStatus;
use crate::wire::payload::{Command, TableSpec};

/// Rows in memory that a peer may be changing at the same time: read once, never through a reference.
#[derive(Clone, Copy, Debug)]
pub struct RowsIn {
    /// The first row.
    pub first: *const u8,
    /// Bytes from one row to the next.
    pub stride: usize,
    /// Bytes of one row.
    pub row_bytes: u32,
}

/// One row in place, for `direct_sg`.
#[derive(Clone, Copy, Debug)]
pub struct RowRef {
    /// NULL when the key is missing: a zero row is meant.
    pub address: *const u8,
    /// Bytes of the row.
    pub bytes: u32,
    /// Local key of the registered region that holds it.
    pub lkey: u32,
}

/// What a GET found.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct GetStats {
    /// Keys without a row.
    pub missing_rows: u32,
}

/// Where the time of a GET went.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct GetTimes {
    /// Finding rows.
    pub lookup_ns: u64,
    /// Zeros for missing ones.
    pub zero_ns: u64,
    /// Copying rows; of a store that does not tell, all of it.
    pub copy_ns: u64,
}

/// What the transport must know of a table.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct TableShape {
    /// f32 elements of a row.
    pub dim: u32,
}

impl TableShape {
    /// Bytes of a row.
    #[inline]
    #[must_use]
    pub fn row_bytes(self) -> u32 {
        self.dim * 4
    }
}

/// The rows of one shard. Threads: any; `worker` is distinct among concurrent calls and below the number given to the
/// store at its making.
///
/// A call that fails has changed nothing that a later call could see half-done, or says so in its own documentation.
/// A panic in a call is answered with [`RpcStatus::InternalError`].
pub trait Store: Send + Sync + 'static {
    /// Creates a table or finds the same one again.
    ///
    /// # Errors
    /// `InvalidPayload` when a table of this name exists with another spec.
    fn init_table(&self, worker: u32, spec: &TableSpec) -> Result<TableTag, RpcStatus>;

    /// The same, under a tag that a client proposes. A store that gives its own tags to tables answers the one that it
    /// has; None: the proposed one is another table's.
    ///
    /// # Errors
    /// As [`Store::init_table`].
    fn init_table_as(&self, worker: u32, spec: &TableSpec, wanted: TableTag) -> Result<Option<TableTag>, RpcStatus> {
        let _ = wanted;
        self.init_table(worker, spec).map(Some)
    }

    /// The spec of the table of this name, to say how it differs from what a client asks for. None: there is none, or the
    /// store does not tell.
    fn spec(&self, name: &str) -> Option<TableSpec> {
        let _ = name;
        None
    }

    /// The shape of a table. Called for each request: must be cheap.
    fn shape(&self, table: TableTag) -> Option<TableShape>;

    /// Fetches what `get` of these keys will touch first. Only a hint.
    fn prefetch(&self, worker: u32, table: TableTag, keys: &[u64]) {
        let _ = (worker, table, keys);
    }

    /// Writes one row for each key to `out`, in order; a missing key gives a zero row. `ahead` are the keys of the call
    /// that follows: a hint to fetch.
    ///
    /// # Safety
    /// `out` is valid for writes of `keys.len() * row_bytes` bytes, 4-aligned; a peer may read it meanwhile.
    ///
    /// # Errors
    /// Any status.
    unsafe fn get(
        &self,
        worker: u32,
        table: TableTag,
        keys: &[u64],
        ahead: &[u64],
        out: *mut u8,
    ) -> Result<GetStats, RpcStatus>;

    /// Writes the row of `keys[i]` to `outs[i]`, for several requests at once, so that what they share is done once and
    /// their misses overlap. None: this store does not, or some of it failed, and each must be asked for by itself.
    ///
    /// # Safety
    /// There are as many `outs` as `keys`; each is valid for writes of a row, 4-aligned; a peer may read it meanwhile.
    unsafe fn get_each(&self, worker: u32, table: TableTag, keys: &[u64], outs: &[*mut u8]) -> Option<GetStats> {
        let _ = (worker, table, keys, outs);
        None
    }

    /// The same as [`Store::get`], with the clock read between its steps: for the few requests that are timed.
    ///
    /// # Safety
    /// As for [`Store::get`].
    ///
    /// # Errors
    /// As for [`Store::get`].
    unsafe fn get_timed(
        &self,
        worker: u32,
        table: TableTag,
        keys: &[u64],
        out: *mut u8,
        times: &mut GetTimes,
    ) -> Result<GetStats, RpcStatus> {
        let begun = now();
        // SAFETY: as the caller vouches.
        let stats = unsafe { self.get(worker, table, keys, &[], out) };
        times.copy_ns += now().since_ns(begun);
        stats
    }

    /// Names the rows in place and keeps each from being freed or torn until [`Store::unpin`] of the returned token.
    ///
    /// # Errors
    /// `None`-like refusal: [`RpcStatus::InternalError`] makes the caller copy instead.
    fn pin(&self, worker: u32, table: TableTag, keys: &[u64], rows: &mut Vec<RowRef>) -> Result<u64, RpcStatus> {
        let _ = (worker, table, keys, rows);
        Err(RpcStatus::InternalError)
    }

    /// Lets pinned rows go. `worker` may be another one than pinned them.
    fn unpin(&self, worker: u32, token: u64) {
        let _ = (worker, token);
    }

    /// Memory that pinned rows lie in: start and length of each piece. It grows, and nothing of it goes before the store.
    /// None: rows cannot be pinned.
    fn row_memory(&self) -> Option<Vec<(*const u8, usize)>> {
        None
    }

    /// Sets rows.
    ///
    /// # Safety
    /// `rows` is valid for reads of `keys.len()` rows of the table's width, 4-aligned; a peer may write it meanwhile.
    ///
    /// # Errors
    /// Any status.
    unsafe fn put(&self, worker: u32, table: TableTag, keys: &[u64], rows: RowsIn) -> Result<(), RpcStatus>;

    /// Applies gradients, in the order of `keys`; a key that occurs twice is updated twice. `flat` tells which of the
    /// two operations the client used (both carry the same thing).
    ///
    /// # Safety
    /// As for [`Store::put`].
    ///
    /// # Errors
    /// Any status.
    unsafe fn update(
        &self,
        worker: u32,
        table: TableTag,
        keys: &[u64],
        gradients: RowsIn,
        flat: bool,
    ) -> Result<(), RpcStatus>;

    /// The built-in store, which checkpoints know how to copy and fill; another one keeps its state by itself.
    fn as_builtin(&self) -> Option<&super::BuiltinStore> {
        None
    }

    /// A word to the store as a whole.
    ///
    /// # Errors
    /// `InternalError` when it cannot be done; `InvalidPayload` when the store does not know it.
    fn command(&self, worker: u32, command: &Command) -> Result<(), RpcStatus>;
}
