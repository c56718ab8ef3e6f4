//! The built-in store: tables of f32 rows in memory, one optimizer each.
//!
//! # Threads
//!
//! With one worker nothing is locked, unless other processes read rows (`shared`): then writers hold their rows' locks. With more, every row lies under one of 4096 sequence locks: a GET never sees a torn
//! row, whole batches are not atomic. Growth of a hash index, CLEAR, SAVE and LOAD keep all workers out for their time.
//!
//! # Pins
//!
//! A pinned row is neither moved nor changed. Pinning never waits: when a writer is at work or waits, it is refused and
//! the caller copies. Writers of other workers wait for a pin at most two seconds, then fail with `InternalError` (rows
//! of earlier keys in the batch are then written). A worker takes its own pins back before it calls `put`, `update` or
//! `command`: on a row that is pinned these fail at once while the worker itself has pins.

mod arena;
mod commands;
mod format;
mod gather;
mod image;
mod index;
mod locks;
mod naming;
mod one;
mod optimizer;
mod persist;
mod pins;
mod rows;
mod scatter;
mod shared;
#[cfg(test)]
#[allow(clippy::cast_possible_truncation)] // small numbers
mod tests;

pub use crate::options::HugePages;
pub use arena::{MappedMemory, MemoryReport, RowMemory, RowSegment};
pub use image::{StoreImage, TableImage};
pub use shared::{Calm, Serving, SharedRows, Sight, Spot, View, Wanted};

use super::routing::{HashMethod, Router};
use super::store::{GetStats, GetTimes, RowRef, RowsIn, Store, TableShape};
use crate::error::{Error, Result, Status};
use crate::ids::TableTag;
use crate::numa;
use crate::sync::{Arc, AtomicPtr, Mutex, Ordering};
use crate::wire::RpcStatus;
use crate::wire::payload::{Command, DIM_MAX, Optimizer, TableSpec};
use gather::Gather;
use index::Zeroed;
use locks::{Gate, Stripes};
use one::{Place, Table};
use pins::Pins;
use scatter::{Scatter, Stopped};
use std::collections::HashMap;
use std::path::PathBuf;

/// Tables of a store at most, the default one included.
const TABLES_MAX: usize = 1 << 16;
/// Workers of a store at most: more than a machine has cores.
const WORKERS_MAX: u32 = 1 << 12;
/// Keys of a write between two looks at the room in the index.
const PART_KEYS: usize = 256;
/// Keys of a hint that are followed; more would push each other out of the nearest cache.
const HINTED_KEYS_MAX: usize = 32;
/// Name of the table with tag 0.
const DEFAULT_TABLE: &str = "default";
/// Learning rate of the default table.
const DEFAULT_LEARNING_RATE: f32 = 0.01;

/// How a store is made.
#[derive(Clone, Debug)]
pub struct StoreOptions {
    /// The shard whose rows these are.
    pub shard: u32,
    /// How many shards there are.
    pub num_shards: u32,
    /// How keys find their shard.
    pub hash_method: HashMethod,
    /// Worker numbers are below this; 1 means no locks.
    pub workers: u32,
    /// Bytes of a row of the default table (tag 0, SGD with learning rate 0.01); 0: there is no default table.
    pub value_size: u32,
    /// Whether rows are put on huge pages.
    pub huge_pages: HugePages,
    /// The NUMA node that rows come from, as far as it has room; None: wherever they are touched first.
    pub numa_id: Option<u32>,
    /// A table gets storage by key number only if this would take at most so many bytes of address space; 0: half of
    /// the physical memory.
    pub dense_bytes_max: u64,
    /// Where SAVE and LOAD have their files; None: both are refused.
    pub checkpoint_directory: Option<PathBuf>,
    /// Whether tables lie where other processes of this host can read them. Not with [`HugePages::On`].
    pub shared: bool,
}

/// Where rows that others may read will lie. None: nobody may, or the memory cannot be had.
fn share(options: &StoreOptions) -> Option<Arc<SharedRows>> {
    if !options.shared || options.huge_pages == HugePages::On {
        return None;
    }
    match SharedRows::new(options.huge_pages, options.workers) {
        Ok(shared) => {
            numa::prefer(options.numa_id, shared.file().base(), shared.file().bytes());
            Some(Arc::new(shared))
        }
        Err(error) => {
            not_shared(options.shard, &error);
            None
        }
    }
}

/// Says that rows do not lie where others can read them, and why.
pub(crate) fn not_shared(shard: u32, error: &Error) {
    crate::event!(
        crate::observe::Level::WARN,
        crate::observe::events::ROWS_NOT_SHARED,
        shard,
        error = %error
    );
}

/// What SAVE and LOAD do instead of the built-in files.
pub type CommandHook = Box<dyn Fn(&BuiltinStore, &Command) -> Result<()> + Send + Sync>;

/// The built-in store.
pub struct BuiltinStore {
    options: StoreOptions,
    router: Router,
    memory: Arc<dyn RowMemory>,
    shared: Option<Arc<SharedRows>>,
    dense_bytes_max: u64,
    seed: u64,
    gate: Option<Gate>,
    /// With one worker, used while that worker has pins, or where other processes read.
    stripes: Stripes,
    pins: Pins,
    hook: Option<CommandHook>,
    /// Tables by tag; each is set once and lives as long as the store. A table can have several tags; its own is in it.
    tables: Zeroed<AtomicPtr<Table>>,
    names: Mutex<HashMap<String, TableTag>>,
}

impl BuiltinStore {
    /// A store in anonymous memory of this process.
    ///
    /// # Errors
    /// As for [`BuiltinStore::with_memory`]; `OptionBounds` for a NUMA node that is not there, `OsError` when no address space can be had.
    pub fn new(options: StoreOptions) -> Result<BuiltinStore> {
        numa::check(options.numa_id)?;
        let memory = MappedMemory::new(options.huge_pages)?;
        memory.prefer(options.numa_id);
        BuiltinStore::with_memory(options, Arc::new(memory))
    }

    /// A store whose rows lie in memory of the caller's choice, registered with a fabric say.
    ///
    /// # Errors
    /// `OptionBounds` for a shard, worker or value size out of range; what `memory` says when the default table does not
    /// fit.
    pub fn with_memory(options: StoreOptions, memory: Arc<dyn RowMemory>) -> Result<BuiltinStore> {
        let bounds = |message: String| Err(Error::new(Status::OptionBounds, message));
        if options.num_shards == 0 || options.shard >= options.num_shards {
            return bounds(format!("shard {} is not below num_shards {}", options.shard, options.num_shards));
        }
        if options.workers == 0 || options.workers > WORKERS_MAX {
            return bounds(format!("workers {} must be 1..={WORKERS_MAX}", options.workers));
        }
        if !options.value_size.is_multiple_of(4) || options.value_size / 4 > DIM_MAX {
            let most = DIM_MAX * 4;
            return bounds(format!("value_size {} must be a multiple of 4 up to {most}", options.value_size));
        }
        let mut seed = [0; 8];
        getrandom::fill(&mut seed)
            .map_err(|error| Error::new(Status::OsError, format!("no random seed for the table's index: {error}")))?;
        let locked = options.workers > 1;
        let shared = share(&options);
        let half = arena::physical_bytes() / 2;
        let store = BuiltinStore {
            router: Router::new(options.hash_method, options.num_shards),
            memory,
            dense_bytes_max: if options.dense_bytes_max == 0 { half } else { options.dense_bytes_max },
            seed: u64::from_le_bytes(seed),
            gate: locked.then(|| Gate::new(options.workers)),
            stripes: shared.as_ref().map_or_else(Stripes::new, SharedRows::stripes),
            shared,
            pins: Pins::new(options.workers),
            hook: None,
            tables: Zeroed::new(TABLES_MAX, false)?,
            names: Mutex::new(HashMap::new()),
            options,
        };
        if store.options.value_size != 0 {
            store.add_table(TableTag(0), store.default_spec())?;
        }
        Ok(store)
    }

    /// The same store, with SAVE and LOAD done by `hook`.
    #[must_use]
    pub fn with_hook(mut self, hook: CommandHook) -> BuiltinStore {
        self.hook = Some(hook);
        self
    }

    fn default_spec(&self) -> TableSpec {
        TableSpec {
            name: DEFAULT_TABLE.to_owned(),
            num_embeddings: 0,
            dim: self.options.value_size / 4,
            optimizer: Optimizer::Sgd,
            learning_rate: DEFAULT_LEARNING_RATE,
            epsilon: 0.0,
            initial_accumulator: 0.0,
        }
    }

    /// What the rows' memory is made of, huge pages in particular.
    #[must_use]
    pub fn memory(&self) -> MemoryReport {
        let mut report = self.memory.report();
        if let Some(shared) = &self.shared {
            let more = shared.report();
            report.reserved_bytes += more.reserved_bytes;
            report.used_bytes += more.used_bytes;
        }
        report
    }

    fn add_table(&self, tag: TableTag, spec: TableSpec) -> Result<()> {
        let place = Place {
            router: self.router,
            shard: self.options.shard,
            memory: &self.memory,
            shared: self.shared.as_ref(),
            dense_bytes_max: self.dense_bytes_max,
            seed: self.seed,
            huge_pages: self.options.huge_pages != HugePages::Off,
        };
        let table = Box::new(Table::new(tag, spec, &place)?);
        self.show(tag, &table);
        // Release: pairs with `table`.
        self.tables[usize::from(tag.0)].store(Box::into_raw(table), Ordering::Release);
        Ok(())
    }

    /// Lets readers of other processes find a table under a tag, if they can read it.
    fn show(&self, tag: TableTag, table: &Table) {
        if let (Some(shared), Some(entry)) = (&self.shared, table.entry()) {
            shared.publish(tag, &entry);
        }
    }

    /// The rows that other processes can read.
    #[must_use]
    pub fn shared(&self) -> Option<&Arc<SharedRows>> {
        self.shared.as_ref()
    }

    #[inline]
    fn table(&self, tag: TableTag) -> core::result::Result<&Table, RpcStatus> {
        // Acquire: pairs with `add_table`.
        let table = self.tables[usize::from(tag.0)].load(Ordering::Acquire);
        // SAFETY: set once, freed only with the store.
        unsafe { table.as_ref() }.ok_or(RpcStatus::UnknownTable)
    }

    #[allow(clippy::cast_possible_truncation)] // there are TABLES_MAX
    fn all_tables(&self) -> impl Iterator<Item = &Table> {
        let by_tag = |tag| self.table(TableTag(tag as u16)).ok().filter(|table| usize::from(table.tag.0) == tag);
        (0..TABLES_MAX).filter_map(by_tag)
    }

    /// Enters the gate, if there is one.
    #[inline]
    fn enter(&self, worker: u32) -> core::result::Result<Option<locks::Inside<'_>>, RpcStatus> {
        match &self.gate {
            None if worker == 0 => Ok(None),
            None => Err(RpcStatus::InternalError),
            Some(gate) => gate.enter(worker).map(Some).ok_or(RpcStatus::InternalError),
        }
    }

    /// Puts a write through in parts, so that the index can grow in between.
    ///
    /// # Safety
    /// As for [`Store::put`].
    unsafe fn write(
        &self,
        worker: u32,
        tag: TableTag,
        keys: &[u64],
        rows: RowsIn,
        change: impl Fn(&Scatter<'_>) -> core::result::Result<(), Stopped>,
    ) -> core::result::Result<(), RpcStatus> {
        let table = self.table(tag)?;
        if rows.row_bytes as usize != table.row_bytes {
            return Err(RpcStatus::ValueSizeMismatch);
        }
        table.check_owner(keys)?;
        let has_pins = self.pins.has(worker);
        let stripes = (self.gate.is_some() || has_pins || self.shared.is_some()).then_some(&self.stripes);
        let workers = self.options.workers as usize;
        for (part, keys) in keys.chunks(PART_KEYS).enumerate() {
            let mut inside = self.enter(worker)?;
            while table.is_short_of(keys, workers) {
                drop(inside.take());
                self.grow(table, keys.len()).map_err(|error| self.report(table, &Stopped::Memory(error)))?;
                inside = self.enter(worker)?;
            }
            let first = rows.first.wrapping_add(part * PART_KEYS * rows.stride);
            let rows = RowsIn { first, ..rows };
            let scatter = Scatter { table, stripes, patient: !has_pins, keys, rows };
            let _busy = self.shared.as_ref().and_then(|shared| shared.busy(worker));
            change(&scatter).map_err(|stopped| self.report(table, &stopped))?;
        }
        Ok(())
    }

    /// Makes room in a table's index for each worker to add so many keys. The caller is outside the gate.
    #[cold]
    fn grow(&self, table: &Table, keys: usize) -> Result<()> {
        let _alone = self.gate.as_ref().map(Gate::enter_alone);
        let _changing = self.shared.as_ref().map(|shared| shared.change_all());
        // SAFETY: everybody else is outside, or this is the only worker.
        unsafe { table.grow(keys, self.options.workers as usize) }
    }

    #[cold]
    fn report(&self, table: &Table, stopped: &Stopped) -> RpcStatus {
        let (shard, name) = (self.options.shard, table.spec.name.as_str());
        match stopped {
            Stopped::Memory(error) => crate::event!(
                crate::observe::Level::ERROR,
                crate::observe::events::STORE_REFUSED,
                shard,
                table = name,
                "a new row has no memory: {error}"
            ),
            Stopped::Pinned => crate::event!(
                crate::observe::Level::ERROR,
                crate::observe::events::STORE_REFUSED,
                shard,
                table = name,
                "a row stayed pinned for too long to be written"
            ),
        }
        RpcStatus::InternalError
    }
}

impl core::fmt::Debug for BuiltinStore {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.debug_struct("BuiltinStore").field("options", &self.options).field("memory", &self.memory()).finish()
    }
}

impl Drop for BuiltinStore {
    fn drop(&mut self) {
        // Each once, whatever the number of its tags.
        let tables: Vec<*mut Table> = self.all_tables().map(|table| core::ptr::from_ref(table).cast_mut()).collect();
        for table in tables {
            // SAFETY: made by Box::into_raw in `add_table`; nobody uses the store any more.
            drop(unsafe { Box::from_raw(table) });
        }
    }
}

impl Store for BuiltinStore {
    fn init_table(&self, _worker: u32, spec: &TableSpec) -> core::result::Result<TableTag, RpcStatus> {
        self.name_table(spec, None)?.ok_or(RpcStatus::InternalError)
    }

    fn init_table_as(
        &self,
        _worker: u32,
        spec: &TableSpec,
        wanted: TableTag,
    ) -> core::result::Result<Option<TableTag>, RpcStatus> {
        self.name_table(spec, Some(wanted))
    }

    fn spec(&self, name: &str) -> Option<TableSpec> {
        let tag = crate::sync::lock(&self.names).get(name).copied()?;
        self.table(tag).ok().map(|table| table.spec.clone())
    }

    #[inline]
    fn shape(&self, table: TableTag) -> Option<TableShape> {
        self.table(table).ok().map(|table| TableShape { dim: table.spec.dim })
    }

    /// Only rows that are found by key number are fetched: the hash index may be growing at this moment.
    #[inline]
    fn prefetch(&self, worker: u32, table: TableTag, keys: &[u64]) {
        let Ok(table) = self.table(table) else { return };
        let keys = keys.iter().take(HINTED_KEYS_MAX);
        if table.is_direct() {
            keys.for_each(|key| table.hint(*key));
        } else if let Ok(_inside) = self.enter(worker) {
            // The index may be replaced by a larger one, but not while a worker is inside.
            keys.for_each(|key| table.fetch_index(*key));
        }
    }

    unsafe fn get(
        &self,
        worker: u32,
        table: TableTag,
        keys: &[u64],
        ahead: &[u64],
        out: *mut u8,
    ) -> core::result::Result<GetStats, RpcStatus> {
        let table = self.table(table)?;
        let _inside = self.enter(worker)?;
        let gather = Gather { table, stripes: self.gate.is_some().then_some(&self.stripes), keys, ahead, out };
        // SAFETY: the caller's promise; rows change under the stripes, or not at all with one worker.
        let missing_rows = unsafe { gather.run()? };
        Ok(GetStats { missing_rows })
    }

    unsafe fn get_each(&self, worker: u32, table: TableTag, keys: &[u64], outs: &[*mut u8]) -> Option<GetStats> {
        let table = self.table(table).ok()?;
        let _inside = self.enter(worker).ok()?;
        let stripes = self.gate.is_some().then_some(&self.stripes);
        let gather = Gather { table, stripes, keys, ahead: &[], out: core::ptr::null_mut() };
        // SAFETY: the caller's promise; rows change under the stripes, or not at all with one worker.
        let missing_rows = unsafe { gather.run_each(outs) }.ok()?;
        Some(GetStats { missing_rows })
    }

    unsafe fn get_timed(
        &self,
        worker: u32,
        table: TableTag,
        keys: &[u64],
        out: *mut u8,
        times: &mut GetTimes,
    ) -> core::result::Result<GetStats, RpcStatus> {
        let table = self.table(table)?;
        let _inside = self.enter(worker)?;
        let gather = Gather { table, stripes: self.gate.is_some().then_some(&self.stripes), keys, ahead: &[], out };
        // SAFETY: the caller's promise; rows change under the stripes, or not at all with one worker.
        let missing_rows = unsafe { gather.run_timed(times)? };
        Ok(GetStats { missing_rows })
    }

    unsafe fn put(
        &self,
        worker: u32,
        table: TableTag,
        keys: &[u64],
        rows: RowsIn,
    ) -> core::result::Result<(), RpcStatus> {
        // SAFETY: the caller's promise.
        unsafe { self.write(worker, table, keys, rows, |scatter| scatter.put()) }
    }

    unsafe fn update(
        &self,
        worker: u32,
        table: TableTag,
        keys: &[u64],
        gradients: RowsIn,
        _flat: bool,
    ) -> core::result::Result<(), RpcStatus> {
        // SAFETY: the caller's promise.
        unsafe { self.write(worker, table, keys, gradients, |scatter| scatter.update()) }
    }

    fn pin(
        &self,
        worker: u32,
        table: TableTag,
        keys: &[u64],
        rows: &mut Vec<RowRef>,
    ) -> core::result::Result<u64, RpcStatus> {
        self.pin_rows(worker, table, keys, rows)
    }

    fn unpin(&self, _worker: u32, token: u64) {
        self.pins.give_back(token, &self.stripes);
    }

    fn row_memory(&self) -> Option<Vec<(*const u8, usize)>> {
        Some(self.memory.segments())
    }

    fn as_builtin(&self) -> Option<&BuiltinStore> {
        Some(self)
    }

    fn command(&self, worker: u32, command: &Command) -> core::result::Result<(), RpcStatus> {
        self.run_command(worker, command).map_err(|error| {
            crate::event!(
                crate::observe::Level::ERROR,
                crate::observe::events::STORE_REFUSED,
                shard = self.options.shard,
                "{command:?} failed: {error}"
            );
            match error.status {
                Status::InvalidArgument => RpcStatus::InvalidPayload,
                _ => RpcStatus::InternalError,
            }
        })
    }
}
