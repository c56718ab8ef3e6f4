//! A store that can be held in its calls, so that the poll thread comes round when there is exactly one request.

use super::callgrind;
use reclane::ids::TableTag;
use reclane::ps::{BuiltinStore, GetStats, RowsIn, Store, TableShape};
use reclane::sync::{Arc, AtomicBool, AtomicU64, Mutex, Ordering, lock};
use reclane::time::pause;
use reclane::wire::RpcStatus;
use reclane::wire::payload::{Command, TableSpec};
use std::time::Duration;

/// Between two looks at what the other thread has done. Under callgrind one thread runs at a time.
const LOOK: Duration = Duration::from_millis(1);

/// Holds calls of GET and UPDATE, and counts from one to the next.
#[derive(Default)]
pub struct Gate {
    calls: AtomicU64,
    may_go: AtomicU64,
    /// What the counts are called while the gate is closed.
    name: Mutex<Option<&'static str>>,
    /// The poll thread's own note: it counts since the last call.
    is_counting: AtomicBool,
}

impl Gate {
    /// Calls that have begun.
    pub fn calls(&self) -> u64 {
        self.calls.load(Ordering::SeqCst)
    }

    /// Until so many calls have begun, and some more, so that the answer of the last one is there. Should it not be, a
    /// fruitless look is counted, and that count is not the median.
    pub fn await_calls(&self, count: u64) {
        while self.calls() < count {
            pause(LOOK);
        }
        pause(LOOK);
    }

    /// From now on each call waits for [`Gate::let_one_go`].
    pub fn close(&self, name: &'static str) {
        self.may_go.store(self.calls(), Ordering::SeqCst);
        *lock(&self.name) = Some(name);
    }

    /// Lets the call that waits, or the next one, go.
    pub fn let_one_go(&self) {
        self.may_go.fetch_add(1, Ordering::SeqCst);
    }

    /// Lets all go, and counts no more.
    pub fn open(&self) {
        *lock(&self.name) = None;
        self.may_go.store(u64::MAX, Ordering::SeqCst);
    }

    /// At the beginning of a call: ends the count that the call before began, waits, begins the next.
    fn pass(&self) {
        if self.is_counting.load(Ordering::Relaxed) {
            callgrind::toggle();
            self.is_counting.store(false, Ordering::Relaxed);
            callgrind::dump(lock(&self.name).unwrap_or("unnamed"));
        }
        let before = self.calls.fetch_add(1, Ordering::SeqCst);
        if lock(&self.name).is_none() {
            return;
        }
        while self.may_go.load(Ordering::SeqCst) <= before {
            pause(LOOK);
        }
        if lock(&self.name).is_some() {
            self.is_counting.store(true, Ordering::Relaxed);
            callgrind::toggle();
        }
    }
}

/// The built-in store behind a gate.
pub struct GatedStore {
    inner: BuiltinStore,
    gate: Arc<Gate>,
    is_shown: bool,
}

impl GatedStore {
    /// Behind this gate. `is_shown`: clients may read its rows where they lie.
    pub fn new(inner: BuiltinStore, gate: Arc<Gate>, is_shown: bool) -> GatedStore {
        GatedStore { inner, gate, is_shown }
    }
}

impl Store for GatedStore {
    fn init_table(&self, worker: u32, spec: &TableSpec) -> Result<TableTag, RpcStatus> {
        self.inner.init_table(worker, spec)
    }

    fn init_table_as(&self, worker: u32, spec: &TableSpec, wanted: TableTag) -> Result<Option<TableTag>, RpcStatus> {
        self.inner.init_table_as(worker, spec, wanted)
    }

    fn shape(&self, table: TableTag) -> Option<TableShape> {
        self.inner.shape(table)
    }

    fn prefetch(&self, worker: u32, table: TableTag, keys: &[u64]) {
        self.inner.prefetch(worker, table, keys);
    }

    unsafe fn get(
        &self,
        worker: u32,
        table: TableTag,
        keys: &[u64],
        ahead: &[u64],
        out: *mut u8,
    ) -> Result<GetStats, RpcStatus> {
        self.gate.pass();
        // SAFETY: as the caller promises.
        unsafe { self.inner.get(worker, table, keys, ahead, out) }
    }

    unsafe fn get_each(&self, worker: u32, table: TableTag, keys: &[u64], outs: &[*mut u8]) -> Option<GetStats> {
        self.gate.pass();
        // SAFETY: as the caller promises.
        unsafe { self.inner.get_each(worker, table, keys, outs) }
    }

    unsafe fn put(&self, worker: u32, table: TableTag, keys: &[u64], rows: RowsIn) -> Result<(), RpcStatus> {
        // SAFETY: as the caller promises.
        unsafe { self.inner.put(worker, table, keys, rows) }
    }

    unsafe fn update(
        &self,
        worker: u32,
        table: TableTag,
        keys: &[u64],
        gradients: RowsIn,
        flat: bool,
    ) -> Result<(), RpcStatus> {
        self.gate.pass();
        // SAFETY: as the caller promises.
        unsafe { self.inner.update(worker, table, keys, gradients, flat) }
    }

    fn as_builtin(&self) -> Option<&BuiltinStore> {
        self.is_shown.then_some(&self.inner)
    }

    fn command(&self, worker: u32, command: &Command) -> Result<(), RpcStatus> {
        self.inner.command(worker, command)
    }
}
