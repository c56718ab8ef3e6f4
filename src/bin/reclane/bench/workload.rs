//! One kind of request at one depth, over and over: how long each takes, and how many a second.

use super::clock::{Clock, ticks};
use super::histogram::Histogram;
use reclane::engine::{Client, Request, Rows, Target, Token};
use reclane::error::{Error, Result, Status};
use reclane::ids::TableTag;
use reclane::ps::client::GROWS_FROM_BYTES;
use reclane::wire::payload::{Optimizer, TableSpec};
use std::collections::VecDeque;

/// What is asked for.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Kind {
    /// Large answers are read in place, each line of them, while the server still gathers; small ones land in the
    /// caller's memory.
    Get,
    /// Rows are copied from ordinary memory.
    Put,
    /// Gradients are copied from ordinary memory and applied with SGD.
    Update,
}

/// A workload.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Workload {
    /// What is asked for.
    pub kind: Kind,
    /// Keys of one request.
    pub rows: usize,
    /// Bytes of a row.
    pub row_bytes: usize,
    /// Requests under way.
    pub depth: usize,
}

/// A table of the bench on one client.
#[derive(Debug)]
pub struct Table {
    spec: TableSpec,
    tag: TableTag,
    keys: u64,
    floats: usize,
    payload: Vec<f32>,
}

const FILL_KEYS: u64 = 1024;

impl Table {
    /// A table of `bytes` bytes, every row written: element `i` of key `k`'s row is `k + i`, exact below 2^24.
    ///
    /// # Errors
    /// What the requests fail with.
    pub fn fill(client: &Client, name: &str, row_bytes: usize, bytes: u64) -> Result<Table> {
        let keys = bytes / row_bytes as u64;
        let floats = row_bytes / 4;
        let spec = spec(name, row_bytes, keys);
        let tag = client.init_table(&spec)?;
        let mut first = 0;
        while first < keys {
            let part: Vec<u64> = (first..keys.min(first + FILL_KEYS)).collect();
            let rows: Vec<f32> = part.iter().flat_map(|key| (0..floats).map(|i| value(*key, i))).collect();
            let rows = Rows::Flat { rows: rows.as_ptr(), count: rows.len() };
            // SAFETY: the rows live until the call returns.
            unsafe { client.call(&Request::Put { table: tag, keys: &part, rows }) }?;
            first += FILL_KEYS;
        }
        Ok(Table { spec, tag, keys, floats, payload: vec![0.0; 1024 * floats] })
    }

    /// Lets another client know it.
    ///
    /// # Errors
    /// As [`Client::init_table`].
    pub fn find(&self, client: &Client) -> Result<()> {
        client.init_table(&self.spec).map(|_| ())
    }
}

fn spec(name: &str, row_bytes: usize, keys: u64) -> TableSpec {
    TableSpec {
        name: format!("bench-{name}-{row_bytes}"),
        num_embeddings: keys,
        dim: u32::try_from(row_bytes / 4).unwrap_or(0),
        optimizer: Optimizer::Sgd,
        learning_rate: f32::MIN_POSITIVE,
        epsilon: 0.0,
        initial_accumulator: 0.0,
    }
}

#[allow(clippy::cast_precision_loss)] // the bench's tables have fewer than 2^24 keys that are checked
fn value(key: u64, index: usize) -> f32 {
    ((key & 0x00ff_ffff) + index as u64) as f32
}

/// A fast generator of keys (SplitMix64: Steele, Lea, Flood 2014).
#[derive(Debug)]
struct Keys {
    state: u64,
    below: u64,
}

impl Keys {
    fn next(&mut self) -> u64 {
        self.state = self.state.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.state;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^= z >> 31;
        // The high half of a product is uniform below the bound, without a division.
        ((u128::from(z) * u128::from(self.below)) >> 64) as u64
    }
}

/// A workload in progress.
#[derive(Debug)]
pub struct Run<'a> {
    client: &'a Client,
    table: &'a Table,
    workload: Workload,
    clock: Clock,
    keys: Vec<u64>,
    next: usize,
    begun: u32,
    under_way: VecDeque<UnderWay>,
    /// Where small answers land: the rows of one request after those of another, in turn.
    landing: Vec<f32>,
    place: usize,
}

/// A request that was submitted.
#[derive(Debug)]
struct UnderWay {
    token: Token,
    /// Its first key among those made before.
    at: usize,
    start: u64,
    /// Its first row in `landing`.
    place: usize,
}

/// With several requests under way one of so many is timed. Odd, so that each slot has its turn.
const TIMED_EVERY: u32 = 7;
/// The beginning of a request that is not timed.
const UNTIMED: u64 = 0;

/// Key batches made before the clock runs.
const BATCHES: usize = 4096;

impl<'a> Run<'a> {
    /// Prepares a workload.
    pub fn new(client: &'a Client, table: &'a Table, workload: Workload, clock: Clock) -> Run<'a> {
        let mut random = Keys { state: 42, below: table.keys };
        let batches = BATCHES.min((1 << 21) / workload.rows.max(1)).max(64);
        let keys = (0..batches * workload.rows).map(|_| random.next()).collect();
        let landing = vec![0.0; workload.depth * workload.rows * table.floats];
        let under_way = VecDeque::with_capacity(workload.depth);
        Run { client, table, workload, clock, keys, next: 0, begun: 0, under_way, landing, place: 0 }
    }

    /// `count` requests: latencies of each, and requests per second.
    ///
    /// # Errors
    /// What a request fails with; `CorruptResponse` when a row is not what was put.
    pub fn chunk(&mut self, count: usize) -> Result<(Histogram, f64)> {
        let mut latencies = Histogram::new();
        let start = ticks();
        for _ in 0..count {
            if self.under_way.len() == self.workload.depth {
                self.finish(&mut latencies)?;
            }
            self.begin()?;
        }
        while !self.under_way.is_empty() {
            self.finish(&mut latencies)?;
        }
        let elapsed = self.clock.ns(ticks() - start).max(1);
        Ok((latencies, count as f64 * 1e9 / elapsed as f64))
    }

    #[inline]
    fn begin(&mut self) -> Result<()> {
        let Workload { kind, rows, .. } = self.workload;
        let at = self.next;
        self.next = if at + 2 * rows > self.keys.len() { 0 } else { at + rows };
        let keys = &self.keys[at..at + rows];
        let table = self.table.tag;
        let flat = || Rows::Flat { rows: self.table.payload.as_ptr(), count: rows * self.table.floats };
        let place = self.place;
        let floats = rows * self.table.floats;
        let target = if self.grows() {
            Target::InPlace
        } else {
            self.place = if place + floats == self.landing.len() { 0 } else { place + floats };
            Target::Memory { rows: self.landing[place..].as_mut_ptr(), capacity: floats }
        };
        let request = match kind {
            Kind::Get => Request::Get { table, keys, target },
            Kind::Put => Request::Put { table, keys, rows: flat() },
            Kind::Update => Request::UpdateFlat { table, keys, gradients: flat() },
        };
        // To read the counter twice takes a fifth of the time of a small request: with many under way one in some is timed.
        self.begun = self.begun.wrapping_add(1);
        let is_timed = self.workload.depth == 1 || self.begun.is_multiple_of(TIMED_EVERY);
        let start = if is_timed { ticks() } else { UNTIMED };
        // SAFETY: the table's payload outlives the run, and the run its requests: see `drop`.
        let token = unsafe { self.client.submit(&request) }?;
        self.under_way.push_back(UnderWay { token, at, start, place });
        Ok(())
    }

    /// Whether answers are read in place while they grow.
    #[inline]
    fn grows(&self) -> bool {
        self.workload.kind == Kind::Get && self.workload.rows * self.workload.row_bytes >= GROWS_FROM_BYTES
    }

    #[inline]
    fn finish(&mut self, latencies: &mut Histogram) -> Result<()> {
        let Some(UnderWay { token, at, start, place }) = self.under_way.pop_front() else {
            return Ok(());
        };
        if self.grows() {
            let done = self.read(token, at);
            // A failed request gives its slot back as well.
            self.client.revoke(token)?;
            done?;
        } else {
            self.client.finish(token, None)?;
            if self.workload.kind == Kind::Get {
                let Workload { rows, .. } = self.workload;
                let floats = self.table.floats;
                check(&self.keys[at..at + rows], &self.landing[place..place + rows * floats], floats)?;
            }
        }
        if start != UNTIMED {
            latencies.record(self.clock.ns(ticks() - start));
        }
        Ok(())
    }

    /// Reads every line of every row as soon as it is there, and checks it.
    #[inline]
    fn read(&mut self, token: Token, at: usize) -> Result<()> {
        let Workload { rows, .. } = self.workload;
        let mut done = 0;
        while done < rows {
            let (first, ready) = self.client.borrow(token, |borrowed| (borrowed.rows, borrowed.rows_ready))?;
            let floats = self.table.floats;
            // SAFETY: these rows are ready, and have `floats` elements each.
            let got = unsafe { core::slice::from_raw_parts(first.add(done * floats), (ready - done) * floats) };
            check(&self.keys[at + done..at + ready], got, floats)?;
            if done == ready {
                core::hint::spin_loop();
            }
            done = ready;
        }
        Ok(())
    }
}

impl Drop for Run<'_> {
    /// After an error some requests are still under way, and their rows have a place here.
    fn drop(&mut self) {
        for request in self.under_way.drain(..) {
            let _ = self.client.finish(request.token, None);
        }
    }
}

/// One element of each line of every row.
#[inline]
fn check(keys: &[u64], rows: &[f32], floats: usize) -> Result<()> {
    let mut wrong = 0;
    for (key, row) in keys.iter().zip(rows.chunks_exact(floats)) {
        // The same as each element's `value`, with one conversion: the sums are exact.
        let mut expected = value(*key, 0);
        for line in row.chunks(16) {
            wrong |= line[0].to_bits() ^ expected.to_bits();
            expected += 16.0;
        }
    }
    if wrong == 0 { Ok(()) } else { Err(what_is_wrong(keys, rows, floats)) }
}

#[cold]
fn what_is_wrong(keys: &[u64], rows: &[f32], floats: usize) -> Box<Error> {
    let differs = |key: u64, row: &[f32]| (0..floats).find(|at| row[*at].to_bits() != value(key, *at).to_bits());
    let found = keys.iter().zip(rows.chunks_exact(floats)).find_map(|(key, row)| Some((key, row, differs(*key, row)?)));
    let text = found.map_or_else(
        || "a row changed while it was looked at".to_owned(),
        |(key, row, at)| format!("key {key}: element {at} is {}", row[at]),
    );
    Error::new(Status::CorruptResponse, text)
}
