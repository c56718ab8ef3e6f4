//! What an executing thread of a shard tells of itself, where somebody asked for it: counts in its row of a page, and the
//! times of some requests.

use crate::fabric::Fabric;
use crate::ids::TableTag;
use crate::observe::histogram;
use crate::observe::page::{Buckets, Page, Rows};
use crate::ps::{GetStats, GetTimes, Handler, HandlerCounts, RowsIn, Scratch, Store, TableShape};
use crate::rpc::ServerLane;
use crate::sync::{Arc, AtomicU64, Ordering};
use crate::time::{Tick, now};
use crate::wire::payload::{Command, TableSpec};
use crate::wire::{Op, RequestHeader, RpcStatus, flags};

macro_rules! words {
    ($($(#[doc = $meaning:literal])+ $place:ident,)+) => {
        #[allow(non_camel_case_types, clippy::upper_case_acronyms)] // spelled as the constants made of it
        enum Place { $($place,)+ END }
        /// Words of a thread's row, by place.
        pub(crate) mod word {
            use super::Place;
            $($(#[doc = $meaning])+ pub(crate) const $place: usize = Place::$place as usize;)+
        }
        /// Words of a thread's row.
        pub(crate) const WIDTH: usize = Place::END as usize;
    };
}

words! {
    /// GETs executed.
    GETS,
    /// PUTs.
    PUTS,
    /// UPDATEs of both kinds.
    UPDATES,
    /// INIT_TABLEs.
    INITS,
    /// COMMANDs.
    COMMANDS,
    /// Keys of GETs.
    GET_ROWS,
    /// Those without a row.
    MISSING,
    /// Bytes of rows answered.
    GET_BYTES,
    /// Answers with more than their own cache line.
    GET_PAYLOADS,
    /// GETs whose rows were copied twice.
    STAGED,
    /// Keys of PUTs and UPDATEs.
    WRITE_KEYS,
    /// Requests refused.
    REFUSED,
    /// Those for other shards.
    WRONG_SHARD,
    /// Requests whose handler failed.
    INTERNAL,
    /// Requests that came again.
    REPEATED,
    /// Those that came while they were being executed.
    WAITED,
    /// Rounds over slots.
    ROUNDS,
    /// Those that found nothing.
    EMPTY,
    /// Requests found, or handed over.
    FOUND,
    /// Sleeps.
    SLEEPS,
    /// Lanes scanned.
    LANES,
    /// Bytes of their memory.
    LANE_BYTES,
    /// Their slots.
    SLOTS,
    /// Slots looked at, worked out from the number of those in use.
    LOOKS,
    /// Most requests that one timed round found.
    FOUND_MAX,
    /// Time not asleep.
    LOOP_NS,
    /// Time of GETs that were timed, and so on.
    GET_NS,
    /// Their number.
    GET_TIMED,
    /// PUTs.
    PUT_NS,
    /// PUTs.
    PUT_TIMED,
    /// UPDATEs.
    UPDATE_NS,
    /// UPDATEs.
    UPDATE_TIMED,
    /// INIT_TABLEs.
    INIT_NS,
    /// INIT_TABLEs.
    INIT_TIMED,
    /// Answering, of all of them.
    ANSWER_NS,
    /// Answering.
    ANSWER_TIMED,
    /// The store's part of GETs.
    STORE_NS,
    /// Finding rows.
    LOOKUP_NS,
    /// Zeros for those that are missing.
    ZERO_NS,
    /// Copying rows.
    COPY_NS,
    /// GETs whose rows were copied once.
    DIRECT_NS,
    /// Their number.
    DIRECT_TIMED,
}

/// Rounds of a poll thread.
#[derive(Clone, Copy, Debug)]
pub(super) struct Rounds {
    pub(super) rounds: u64,
    pub(super) empty: u64,
    pub(super) found: u64,
    pub(super) waited: u64,
}

/// What threads need to be watched.
#[derive(Clone, Debug)]
pub(crate) struct Watch {
    pub(crate) rows: Rows<WIDTH>,
    /// Service times of GET, PUT and UPDATE.
    pub(crate) service: [Buckets; 3],
    pub(crate) sample_mask: u64,
}

/// One watched thread.
#[derive(Debug)]
pub(super) struct Watched {
    watch: Watch,
    row: usize,
    /// The handler over a store that takes times.
    timed: Option<(Handler, Arc<TimedStore>)>,
    awake: Tick,
    times: [u64; WIDTH],
}

impl Watched {
    pub(super) fn new(watch: Watch, row: usize) -> Watched {
        Watched { watch, row, timed: None, awake: now(), times: [0; WIDTH] }
    }

    pub(super) fn sample_mask(&self) -> u64 {
        self.watch.sample_mask
    }

    fn page(&self) -> &Arc<Page> {
        self.watch.rows.page()
    }

    fn set(&self, place: usize, value: u64) {
        self.watch.rows.row(self.row)[place].store(value, Ordering::Relaxed);
    }

    fn add(&mut self, place: usize, value: u64) {
        self.times[place] += value;
        self.set(place, self.times[place]);
    }

    pub(super) fn looked(&mut self, slots: u64) {
        self.add(word::LOOKS, slots);
    }

    /// A timed round found so many requests.
    pub(super) fn found(&mut self, requests: usize) {
        self.times[word::FOUND_MAX] = self.times[word::FOUND_MAX].max(requests as u64);
        self.set(word::FOUND_MAX, self.times[word::FOUND_MAX]);
    }

    /// Time passed, awake.
    pub(super) fn spent(&mut self) {
        let at = now();
        self.add(word::LOOP_NS, at.since_ns(self.awake));
        self.awake = at;
    }

    /// Time passed, asleep.
    pub(super) fn slept(&mut self) {
        self.awake = now();
    }

    pub(super) fn store(&self, counts: &HandlerCounts, rounds: Rounds) {
        store(self.watch.rows.row(self.row), counts);
        self.set(word::ROUNDS, rounds.rounds);
        self.set(word::EMPTY, rounds.empty);
        self.set(word::FOUND, rounds.found);
        self.set(word::WAITED, rounds.waited);
    }

    /// Of a worker, which has no rounds.
    pub(super) fn store_worker(&self, counts: &HandlerCounts, jobs: u64) {
        store(self.watch.rows.row(self.row), counts);
        self.set(word::FOUND, jobs);
    }

    /// Executes a request with the clock.
    pub(super) fn execute<F: Fabric>(
        &mut self,
        handler: &Handler,
        lane: &ServerLane<F>,
        slot: u32,
        header: &RequestHeader,
        scratch: &mut Scratch,
    ) -> bool {
        let (timed, store) = self.timed.get_or_insert_with(|| {
            let store = Arc::new(TimedStore::new(Arc::clone(handler.store())));
            (handler.over(Arc::clone(&store) as Arc<dyn Store>), store)
        });
        let store = Arc::clone(store);
        let (begun, mut executed) = (now(), None);
        let staged = scratch.counts.staged;
        let done = timed.execute_watched(lane, slot, header, scratch, || executed = Some(now()));
        let (Some(executed), end) = (executed, now()) else { return done };
        let handled = executed.since_ns(begun);
        self.add(word::ANSWER_NS, end.since_ns(executed));
        self.add(word::ANSWER_TIMED, 1);
        let (time, count, service) = match Op::from_code(header.op) {
            Some(Op::Get) => (word::GET_NS, word::GET_TIMED, Some(0)),
            Some(Op::Put) => (word::PUT_NS, word::PUT_TIMED, Some(1)),
            Some(Op::Update | Op::UpdateFlat) => (word::UPDATE_NS, word::UPDATE_TIMED, Some(2)),
            Some(Op::InitTable) => (word::INIT_NS, word::INIT_TIMED, None),
            _ => return done,
        };
        self.add(time, handled);
        self.add(count, 1);
        if let Some(service) = service {
            histogram::add(self.page().buckets(self.watch.service[service]), end.since_ns(begun));
        }
        if service == Some(0) {
            let parts = store.take();
            self.add(word::STORE_NS, parts.lookup_ns + parts.zero_ns + parts.copy_ns);
            self.add(word::LOOKUP_NS, parts.lookup_ns);
            self.add(word::ZERO_NS, parts.zero_ns);
            self.add(word::COPY_NS, parts.copy_ns);
            if header.flags & flags::DIRECT != 0 && scratch.counts.staged == staged {
                self.add(word::DIRECT_NS, handled);
                self.add(word::DIRECT_TIMED, 1);
            }
        }
        done
    }
}

/// Stores a thread's counts in its row.
pub(crate) fn store(row: &[AtomicU64; WIDTH], counts: &HandlerCounts) {
    let pairs = [
        (word::GETS, counts.gets),
        (word::PUTS, counts.puts),
        (word::UPDATES, counts.updates),
        (word::INITS, counts.init_tables),
        (word::COMMANDS, counts.commands),
        (word::GET_ROWS, counts.get_rows),
        (word::MISSING, counts.missing_rows),
        (word::GET_BYTES, counts.get_bytes),
        (word::GET_PAYLOADS, counts.get_payloads),
        (word::STAGED, counts.staged),
        (word::WRITE_KEYS, counts.write_keys),
        (word::REFUSED, counts.refused),
        (word::WRONG_SHARD, counts.wrong_shard),
        (word::INTERNAL, counts.internal_errors),
        (word::REPEATED, counts.repeated),
    ];
    pairs.iter().for_each(|(place, value)| row[*place].store(*value, Ordering::Relaxed));
}

/// A store that takes the time of GETs: for timed requests only, so that the others go past no clock.
struct TimedStore {
    inner: Arc<dyn Store>,
    lookup_ns: AtomicU64,
    zero_ns: AtomicU64,
    copy_ns: AtomicU64,
}

impl core::fmt::Debug for TimedStore {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.debug_struct("TimedStore").finish_non_exhaustive()
    }
}

impl TimedStore {
    fn new(inner: Arc<dyn Store>) -> TimedStore {
        let zero = || AtomicU64::new(0);
        TimedStore { inner, lookup_ns: zero(), zero_ns: zero(), copy_ns: zero() }
    }

    /// The times since the last call.
    fn take(&self) -> GetTimes {
        let take = |time: &AtomicU64| time.swap(0, Ordering::Relaxed);
        GetTimes { lookup_ns: take(&self.lookup_ns), zero_ns: take(&self.zero_ns), copy_ns: take(&self.copy_ns) }
    }
}

impl Store for TimedStore {
    fn init_table(&self, worker: u32, spec: &TableSpec) -> Result<TableTag, RpcStatus> {
        self.inner.init_table(worker, spec)
    }

    fn init_table_as(&self, worker: u32, spec: &TableSpec, wanted: TableTag) -> Result<Option<TableTag>, RpcStatus> {
        self.inner.init_table_as(worker, spec, wanted)
    }

    fn spec(&self, name: &str) -> Option<TableSpec> {
        self.inner.spec(name)
    }

    fn shape(&self, table: TableTag) -> Option<TableShape> {
        self.inner.shape(table)
    }

    unsafe fn get(
        &self,
        worker: u32,
        table: TableTag,
        keys: &[u64],
        _ahead: &[u64],
        out: *mut u8,
    ) -> Result<GetStats, RpcStatus> {
        let mut times = GetTimes::default();
        // SAFETY: as the caller vouches.
        let stats = unsafe { self.inner.get_timed(worker, table, keys, out, &mut times) };
        self.lookup_ns.fetch_add(times.lookup_ns, Ordering::Relaxed);
        self.zero_ns.fetch_add(times.zero_ns, Ordering::Relaxed);
        self.copy_ns.fetch_add(times.copy_ns, Ordering::Relaxed);
        stats
    }

    fn pin(
        &self,
        worker: u32,
        table: TableTag,
        keys: &[u64],
        rows: &mut Vec<crate::ps::RowRef>,
    ) -> Result<u64, RpcStatus> {
        self.inner.pin(worker, table, keys, rows)
    }

    fn unpin(&self, worker: u32, token: u64) {
        self.inner.unpin(worker, token);
    }

    fn row_memory(&self) -> Option<Vec<(*const u8, usize)>> {
        self.inner.row_memory()
    }

    unsafe fn put(&self, worker: u32, table: TableTag, keys: &[u64], rows: RowsIn) -> Result<(), RpcStatus> {
        // SAFETY: as the caller vouches.
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
        // SAFETY: as the caller vouches.
        unsafe { self.inner.update(worker, table, keys, gradients, flat) }
    }

    fn command(&self, worker: u32, command: &Command) -> Result<(), RpcStatus> {
        self.inner.command(worker, command)
    }
}
