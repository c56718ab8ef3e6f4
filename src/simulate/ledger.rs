//! The store of a simulated shard: rows that say of themselves whether they are whole, and a ledger of what was done.

use super::history::History;
use crate::fabric::sim::mix;
use crate::ids::TableTag;
use crate::ps::{GetStats, RowsIn, Store, TableShape};
use crate::sync::{Arc, AtomicU32, Mutex, Ordering, lock};
use crate::wire::RpcStatus;
use crate::wire::payload::{Command, Optimizer, TableSpec};
use std::collections::BTreeMap;

/// f32 elements, here any 32 bits, of a row.
pub(super) const DIM: usize = 16;
/// Bytes of a row.
pub(super) const ROW_BYTES: usize = DIM * 4;

/// A row or a gradient: two numbers that say what it is, and a spread of them that shows whether it is whole.
pub(super) type Row = [u32; DIM];

/// The table that clients make, beside the one that is always there, and what its stores call it.
pub(super) fn table_spec() -> TableSpec {
    TableSpec {
        name: "made".to_owned(),
        num_embeddings: 64,
        dim: DIM as u32,
        optimizer: Optimizer::Add,
        learning_rate: 0.0,
        epsilon: 0.0,
        initial_accumulator: 0.0,
    }
}

pub(super) const TABLE_TAG: TableTag = TableTag(7);

/// The row of `a` and `b`.
pub(super) fn row(a: u64, b: u64) -> Row {
    core::array::from_fn(|at| {
        let word = match at {
            0 => a,
            1 => a >> 32,
            2 => b,
            3 => b >> 32,
            _ => mix(a ^ mix(b.wrapping_add(at as u64))),
        };
        word as u32
    })
}

/// What a row says, if it is whole.
pub(super) fn read_row(found: &Row) -> Option<(u64, u64)> {
    let a = u64::from(found[1]) << 32 | u64::from(found[0]);
    let b = u64::from(found[3]) << 32 | u64::from(found[2]);
    (row(a, b) == *found).then_some((a, b))
}

/// The second number of a key's row: of which life of the shard, and after how many updates.
pub(super) fn stamp(life: u32, version: u32) -> u64 {
    u64::from(life) << 32 | u64::from(version)
}

/// All that a store remembers.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub(super) struct Image {
    /// Of each key: how many updates it has had.
    pub(super) versions: BTreeMap<u64, u32>,
    /// Of each update and key: how often it was applied.
    pub(super) applied: BTreeMap<(u64, u64), u32>,
}

/// One life of one shard's store.
#[derive(Debug)]
pub(super) struct Ledger {
    shard: u32,
    /// Counts the lives of this shard.
    pub(super) life: u32,
    inner: Mutex<Image>,
    /// How often its table was made or found; not part of what it remembers.
    tables: AtomicU32,
    history: Arc<History>,
}

impl Ledger {
    pub(super) fn new(shard: u32, life: u32, history: &Arc<History>) -> Ledger {
        Ledger { shard, life, inner: Mutex::default(), tables: AtomicU32::new(0), history: Arc::clone(history) }
    }

    /// How often this update was applied to this key.
    pub(super) fn applied(&self, op: u64, key: u64) -> u32 {
        lock(&self.inner).applied.get(&(op, key)).copied().unwrap_or(0)
    }

    /// A copy of all that it remembers.
    pub(super) fn image(&self) -> Image {
        lock(&self.inner).clone()
    }

    /// Remembers this and nothing else. Before anybody asks.
    pub(super) fn fill(&self, image: Image) {
        *lock(&self.inner) = image;
    }

    /// How many updates this key has had.
    pub(super) fn version(&self, key: u64) -> u32 {
        lock(&self.inner).versions.get(&key).copied().unwrap_or(0)
    }

    /// How often its table was made or found.
    pub(super) fn tables(&self) -> u32 {
        self.tables.load(Ordering::Relaxed)
    }

    /// What a PUT or an UPDATE does: the next version of each key.
    ///
    /// # Safety
    /// There is a row for each key.
    unsafe fn apply(&self, keys: &[u64], rows: RowsIn) {
        for (index, key) in keys.iter().enumerate() {
            // SAFETY: the caller vouches for a row per key.
            let found = unsafe { rows.first.add(index * rows.stride).cast::<Row>().read_unaligned() };
            let Some((op, meant)) = read_row(&found) else {
                self.history.violation(format!("shard {} was given a torn row for key {key}", self.shard));
                continue;
            };
            if meant != *key || !self.history.was_sent(op, *key) {
                self.history.violation(format!(
                    "shard {} was given update {op} for key {key}, which nobody sent (it is for key {meant})",
                    self.shard
                ));
                continue;
            }
            let mut inner = lock(&self.inner);
            let count = inner.applied.entry((op, *key)).or_default();
            *count += 1;
            let count = *count;
            *inner.versions.entry(*key).or_default() += 1;
            drop(inner);
            if count > 1 {
                self.history.violation(format!("update {op} was applied {count} times to key {key}"));
            }
        }
    }
}

impl Store for Ledger {
    fn init_table(&self, _worker: u32, spec: &TableSpec) -> Result<TableTag, RpcStatus> {
        if *spec != table_spec() {
            self.history
                .violation(format!("shard {} was told to make a table that nobody wanted: {spec:?}", self.shard));
        }
        self.tables.fetch_add(1, Ordering::Relaxed);
        Ok(TABLE_TAG)
    }

    fn shape(&self, table: TableTag) -> Option<TableShape> {
        (table == TableTag(0)).then_some(TableShape { dim: DIM as u32 })
    }

    unsafe fn get(
        &self,
        _worker: u32,
        _table: TableTag,
        keys: &[u64],
        _ahead: &[u64],
        out: *mut u8,
    ) -> Result<GetStats, RpcStatus> {
        for (index, key) in keys.iter().enumerate() {
            let found = row(*key, stamp(self.life, self.version(*key)));
            // SAFETY: the caller vouches for a row's room per key.
            unsafe { out.add(index * ROW_BYTES).cast::<Row>().write_unaligned(found) };
        }
        Ok(GetStats { missing_rows: 0 })
    }

    unsafe fn put(&self, _worker: u32, _table: TableTag, keys: &[u64], rows: RowsIn) -> Result<(), RpcStatus> {
        // SAFETY: as the caller vouches.
        unsafe { self.apply(keys, rows) };
        Ok(())
    }

    unsafe fn update(
        &self,
        _worker: u32,
        _table: TableTag,
        keys: &[u64],
        gradients: RowsIn,
        _flat: bool,
    ) -> Result<(), RpcStatus> {
        // SAFETY: as the caller vouches.
        unsafe { self.apply(keys, gradients) };
        Ok(())
    }

    fn command(&self, _worker: u32, _command: &Command) -> Result<(), RpcStatus> {
        Err(RpcStatus::InvalidPayload)
    }
}
