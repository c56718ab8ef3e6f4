//! A request of several parts: split by shard and by what one slot takes, sent in parallel as slots become free, and
//! brought home in the caller's order. Driven by the caller's own query and wait; there is no thread behind it.
//!
//! Parts that were answered hold slots until somebody takes the answers home. So whoever finds no slot does that for
//! all batches, not only its own: otherwise callers that wait for one batch each, while others of theirs hold all slots,
//! would wait for each other.
//!
//! Parts of one shard may be executed in any order: a key that occurs in two parts of one UPDATE is updated twice, in
//! either order. Within a part the order of the keys holds.

use super::outcome::{ShardResult, under_way};
use super::request::{Borrowed, Local, Source};
use super::turnstile::{Entry, Turnstile};
use super::words::{busy, not_in_place, stale};
use super::{Plan, PsClient, Token};
use crate::error::{Error, Outcome, Result, Status};
use crate::fabric::{Fabric, Mutant, mutated};
use crate::ids::TableTag;
use crate::ps::routing::Partition;
use crate::rpc::{AcquireError, Held, Turn};
use crate::sync::{AtomicBool, AtomicU64, CachePadded, Ordering};
use crate::time::{Tick, now};
use crate::wire::Op;
use core::cell::UnsafeCell;
use core::time::Duration;

/// Most keys of one batch: the positions are 32 bits, and nothing sane comes near.
pub(super) const KEYS_MAX: usize = 1 << 28;

#[derive(Debug)]
struct Part {
    shard: u32,
    /// Range in the shard's part of the partition.
    first: u32,
    count: u32,
    state: PartState,
}

#[derive(Debug)]
enum PartState {
    Unsent,
    Sent(Held),
    /// Whether it was executed, as far as is known.
    Over(Outcome),
}

/// What is kept with a batch; reused, so that it allocates nothing once the largest one was seen.
#[derive(Debug)]
pub(super) struct Batch {
    op: Op,
    table: TableTag,
    row_bytes: usize,
    partition: Partition,
    parts: Vec<Part>,
    open: usize,
    /// Where rows of a GET go; its own memory when read in place.
    rows: *mut u8,
    own_rows: Vec<f32>,
    in_place: bool,
    source: Source,
    queries: u32,
    first_slow: Option<Tick>,
    /// Why parts are not sent now, when it is not for want of slots.
    waits_for: Option<Box<Error>>,
    /// Of the part that failed first, or of the whole.
    error: Option<Box<Error>>,
    /// Shards with a part that failed, and how the first one did: nothing more is sent there.
    failed: Vec<(u32, Status)>,
    /// Nothing more is sent to anybody.
    abandoned: bool,
}

// SAFETY: the raw pointers are the caller's memory, which it keeps valid until the request is done; a batch is worked on
// by one thread at a time.
unsafe impl Send for Batch {}

#[derive(Debug)]
struct Place {
    gate: Turnstile<AtomicU64>,
    batch: UnsafeCell<Option<Box<Batch>>>,
}

// SAFETY: `batch` is reached only by the thread that `gate` let in.
unsafe impl Sync for Place {}

/// The batches of one client.
#[derive(Debug)]
pub(super) struct Batches {
    places: Box<[CachePadded<Place>]>,
    /// Some batch may have found no slot for a part when it was last worked on.
    hungry: AtomicBool,
}

/// The right to work on one batch; given back when dropped.
struct Guard<'a> {
    place: &'a Place,
    use_count: u64,
    /// Nobody will come back to this use.
    last: bool,
}

impl Guard<'_> {
    #[allow(clippy::mut_from_ref)] // the gate lets one thread in
    fn batch(&self) -> &mut Batch {
        // SAFETY: the gate let this guard's thread in.
        let place = unsafe { &mut *self.place.batch.get() };
        place.get_or_insert_with(|| Box::new(Batch::new()))
    }
}

impl Drop for Guard<'_> {
    fn drop(&mut self) {
        self.place.gate.leave(self.use_count, self.last);
    }
}

impl Batches {
    pub(super) fn new(count: usize) -> Batches {
        let place = |_| CachePadded(Place { gate: Turnstile::new(AtomicU64::new(0)), batch: UnsafeCell::new(None) });
        Batches { places: (0..count).map(place).collect(), hungry: AtomicBool::new(false) }
    }

    /// Whether a slot that is free now should be a batch's. One load.
    #[inline(always)]
    pub(super) fn is_hungry(&self) -> bool {
        self.hungry.load(Ordering::Relaxed)
    }

    /// How many are under way, and how many can be.
    pub(super) fn load(&self) -> (usize, usize) {
        (self.places.iter().filter(|place| place.gate.is_taken()).count(), self.places.len())
    }

    fn take(&self) -> Result<(usize, Guard<'_>)> {
        for (index, place) in self.places.iter().enumerate() {
            if let Some(use_count) = place.gate.take() {
                return Ok((index, Guard { place, use_count, last: false }));
            }
        }
        let most = self.places.len();
        let message =
            format!("{most} requests of several parts are under way, the most there can be: revoke finished ones");
        Err(Error::new(Status::NoSlot, message))
    }

    fn lock(&self, index: usize, use_low: u64) -> Result<Guard<'_>> {
        let gone = || stale(Token::batch(index, use_low));
        let place = self.places.get(index).ok_or_else(gone)?;
        loop {
            match place.gate.enter(use_low, super::token::USE_MASK) {
                Entry::In(use_count) => return Ok(Guard { place, use_count, last: false }),
                Entry::Gone => return Err(gone()),
                Entry::Busy => return Err(busy()),
                Entry::Soon => std::thread::yield_now(),
            }
        }
    }

    /// Batches that nobody works on now, one after the other.
    fn idle(&self) -> impl Iterator<Item = Guard<'_>> {
        self.places
            .iter()
            .filter_map(|place| place.gate.help().map(|use_count| Guard { place, use_count, last: false }))
    }
}

impl Batch {
    fn new() -> Batch {
        Batch {
            op: Op::Get,
            table: TableTag(0),
            row_bytes: 0,
            partition: Partition::new(),
            parts: Vec::new(),
            open: 0,
            rows: core::ptr::null_mut(),
            own_rows: Vec::new(),
            in_place: false,
            source: Source::Local(Local::Dense(core::ptr::null())),
            queries: 0,
            first_slow: None,
            waits_for: None,
            error: None,
            failed: Vec::new(),
            abandoned: false,
        }
    }

    fn begin(&mut self, plan: &Plan<'_>, router: &crate::ps::routing::Router) {
        self.op = plan.op;
        self.table = plan.table;
        self.row_bytes = plan.row_bytes;
        self.rows = core::ptr::null_mut();
        self.in_place = false;
        self.queries = 0;
        self.first_slow = None;
        self.waits_for = None;
        self.error = None;
        self.failed.clear();
        self.abandoned = false;
        self.partition.split(router, plan.keys);
        self.parts.clear();
        let step = u32::try_from(plan.part_keys).unwrap_or(u32::MAX);
        for shard in 0..router.shards() {
            let keys = u32::try_from(self.partition.keys(shard).len()).unwrap_or(u32::MAX);
            let mut first = 0;
            while first < keys {
                let count = step.min(keys - first);
                self.parts.push(Part { shard, first, count, state: PartState::Unsent });
                first += count;
            }
        }
        self.open = self.parts.len();
    }

    fn failure_of(&self, shard: u32) -> Option<Status> {
        self.failed.iter().find(|(failed, _)| *failed == shard).map(|(_, status)| *status)
    }

    /// How the parts of a shard ended.
    pub(super) fn shard_result(&self, shard: u32) -> ShardResult {
        let mut result = ShardResult::none(shard);
        for part in self.parts.iter().filter(|part| part.shard == shard) {
            let PartState::Over(outcome) = part.state else { continue };
            result.add(u64::from(part.count), outcome);
        }
        if result.keys != result.executed {
            let whole = || self.error.as_ref().map_or(Status::Bug, |error| error.status);
            result.status = self.failure_of(shard).unwrap_or_else(whole);
        }
        result
    }

    pub(super) fn key_count(&self) -> usize {
        self.parts.iter().map(|part| part.count as usize).sum()
    }

    /// How each key's part ended, in the order of the caller's keys.
    pub(super) fn key_outcomes(&self, outcomes: &mut [Outcome]) {
        for part in &self.parts {
            let PartState::Over(outcome) = part.state else { continue };
            let range = part.first as usize..(part.first + part.count) as usize;
            for position in &self.partition.positions(part.shard)[range] {
                outcomes[*position as usize] = outcome;
            }
        }
    }
}

impl<F: Fabric> PsClient<F> {
    #[inline(never)]
    pub(super) fn batch_get(&self, plan: &Plan<'_>, rows: *mut f32) -> Result<Token> {
        let (index, guard) = self.begin_batch(plan)?;
        let batch = guard.batch();
        if rows.is_null() {
            batch.own_rows.clear();
            batch.own_rows.resize(plan.keys.len() * plan.row_bytes / 4, 0.0);
            batch.rows = batch.own_rows.as_mut_ptr().cast();
            batch.in_place = true;
        } else {
            batch.rows = rows.cast();
        }
        self.advance_batch(batch);
        Ok(Token::batch(index, guard.use_count))
    }

    #[inline(never)]
    pub(super) fn batch_rows(&self, plan: &Plan<'_>, source: Source) -> Result<Token> {
        let (index, guard) = self.begin_batch(plan)?;
        let batch = guard.batch();
        batch.source = source;
        self.advance_batch(batch);
        Ok(Token::batch(index, guard.use_count))
    }

    fn begin_batch(&self, plan: &Plan<'_>) -> Result<(usize, Guard<'_>)> {
        if plan.keys.len() > KEYS_MAX {
            return Err(Error::new(
                Status::BatchTooLarge,
                format!("{} keys in one call; at most {KEYS_MAX}: split it", plan.keys.len()),
            ));
        }
        let (index, guard) = self.batches.take()?;
        guard.batch().begin(plan, &self.router);
        Ok((index, guard))
    }

    /// Takes home what was answered, of all batches: their slots are needed.
    #[cold]
    pub(super) fn help_batches(&self) {
        for guard in self.batches.idle() {
            self.finish_parts(guard.batch());
        }
    }

    /// Moves all batches on that nobody works on now: before a single request takes a slot that one of them waits for, or
    /// they could wait for ever.
    #[cold]
    pub(super) fn feed_batches(&self) {
        self.batches.hungry.store(false, Ordering::Relaxed);
        for guard in self.batches.idle() {
            self.advance_batch(guard.batch());
        }
    }

    fn finish_parts(&self, batch: &mut Batch) {
        for index in 0..batch.parts.len() {
            if matches!(batch.parts[index].state, PartState::Sent(_)) {
                self.finish_part(batch, index);
            }
        }
    }

    /// Moves every part on; true when none is open any more.
    fn advance_batch(&self, batch: &mut Batch) -> bool {
        self.finish_parts(batch);
        batch.waits_for = None;
        let mut full = None;
        for index in 0..batch.parts.len() {
            let shard = batch.parts[index].shard;
            if matches!(batch.parts[index].state, PartState::Unsent) && full != Some(shard) {
                if batch.abandoned || batch.failure_of(shard).is_some() {
                    close(batch, index, Outcome::NotExecuted);
                } else if !self.send_part(batch, index) {
                    full = Some(shard);
                }
            }
        }
        if full.is_some() && batch.waits_for.is_none() {
            self.batches.hungry.store(true, Ordering::Relaxed);
        }
        batch.open == 0
    }

    /// False when the shard has no free slot now.
    fn send_part(&self, batch: &mut Batch, index: usize) -> bool {
        let Part { shard, first, count, .. } = batch.parts[index];
        let held = match self.channels[shard as usize].acquire() {
            Ok(held) => held,
            Err(AcquireError::NoSlot | AcquireError::Soon) => return false,
            // They may be back within this request's time.
            Err(AcquireError::Down(error)) if self.may_wait(&error) => {
                batch.waits_for = Some(error);
                return false;
            }
            Err(AcquireError::Down(error)) => {
                part_failed(batch, index, error);
                return true;
            }
        };
        let range = first as usize..(first + count) as usize;
        let keys = &batch.partition.keys(shard)[range.clone()];
        let plan =
            Plan { op: batch.op, table: batch.table, keys, row_bytes: batch.row_bytes, part_keys: count as usize };
        // SAFETY: the slot is held; the source has a row for every position of the batch; rows are read in place.
        let sent = unsafe {
            if batch.op == Op::Get {
                let channel = &self.channels[shard as usize];
                if self.reads_part(channel, held, &plan, &batch.partition.positions(shard)[range], batch.rows) {
                    channel.release(held);
                    close(batch, index, Outcome::Executed);
                    return true;
                }
                self.start_get::<F::Region>(shard as usize, held, &plan, core::ptr::null_mut(), None)
            } else {
                let positions = &batch.partition.positions(shard)[range];
                self.start_rows(shard as usize, held, &plan, batch.source, Some(positions))
            }
        };
        match sent {
            Ok(()) => batch.parts[index].state = PartState::Sent(held),
            Err(error) if self.may_wait(&error) => {
                batch.waits_for = Some(error);
                return false;
            }
            Err(error) => part_failed(batch, index, error),
        }
        true
    }

    fn finish_part(&self, batch: &mut Batch, index: usize) {
        let Part { shard, first, count, state: PartState::Sent(held) } = batch.parts[index] else {
            return;
        };
        let channel = &self.channels[shard as usize];
        if !self.single_advance(channel, held, true) {
            return;
        }
        match self.single_wait(channel, held, Some(Duration::ZERO)) {
            Ok(()) if batch.op == Op::Get => {
                if let Ok(borrowed) = self.single_borrow(channel, held) {
                    let range = first as usize..(first + count) as usize;
                    let positions = &batch.partition.positions(shard)[range];
                    // SAFETY: the part's rows are complete in its slot; the batch's memory has a row per position.
                    unsafe { scatter(borrowed.rows.cast(), batch.row_bytes, positions, batch.rows) };
                }
            }
            Ok(()) => {}
            Err(error) => {
                channel.release(held);
                return part_failed(batch, index, error);
            }
        }
        channel.release(held);
        close(batch, index, Outcome::Executed);
    }

    #[inline(never)]
    pub(super) fn batch_query(&self, index: usize, use_low: u64) -> Result<bool> {
        let guard = self.batches.lock(index, use_low)?;
        let batch = guard.batch();
        let done = self.advance_batch(batch);
        if !done {
            batch.queries += 1;
            if batch.queries.is_multiple_of(8) {
                self.care_for_unsent(batch);
            }
        }
        Ok(done)
    }

    /// Parts that are not sent yet need slots. Those that could not be sent for as long as a request may take will not
    /// be: the slots are held by requests that nobody revokes.
    #[cold]
    fn care_for_unsent(&self, batch: &mut Batch) {
        let unsent = batch.parts.iter().find(|part| matches!(part.state, PartState::Unsent));
        let Some(part) = unsent.filter(|_| batch.error.is_none()) else {
            return;
        };
        self.help_batches();
        let at = now();
        let first = *batch.first_slow.get_or_insert(at);
        let limit = u64::try_from(self.options.wait_timeout.as_nanos()).unwrap_or(u64::MAX);
        if at.since_ns(first) >= limit {
            // Once a part was sent, "nothing happened" would be a lie that makes an UPDATE count twice when repeated.
            let sent = batch.parts.iter().any(|part| !matches!(part.state, PartState::Unsent));
            let shard = part.shard;
            let limit_ms = self.options.wait_timeout.as_millis();
            let no_slot = Error::new(
                if sent { Status::WaitTimeout } else { Status::NoSlot },
                format!(
                    "a part of {} keys found no idle slot to shard {shard} within rdma-wait-timeout-ms = {limit_ms}: \
                     finish or revoke requests, or raise qps-per-client-per-shard or slots-per-qp",
                    part.count
                ),
            );
            let mut error = batch.waits_for.take().unwrap_or(no_slot).at_shard(shard);
            error.elapsed_ns = at.since_ns(first);
            batch.error = Some(error);
            batch.abandoned = true;
        }
    }

    #[inline(never)]
    pub(super) fn batch_wait(&self, index: usize, use_low: u64, timeout: Option<Duration>) -> Result<()> {
        let guard = self.batches.lock(index, use_low)?;
        self.drive(guard.batch(), timeout)
    }

    fn drive(&self, batch: &mut Batch, timeout: Option<Duration>) -> Result<()> {
        // Sent parts watch their own deadlines; this pace bounds the caller's patience and unsent parts.
        let mut pace = self.pace(timeout);
        while !self.advance_batch(batch) {
            match pace.turn() {
                Turn::Again => {}
                Turn::Expired if timeout.is_some() => {
                    return Err(Error::new(Status::Pending, "the request is still under way"));
                }
                Turn::CheckHealth | Turn::Expired => self.care_for_unsent(batch),
            }
        }
        match &batch.error {
            None => Ok(()),
            Some(error) => {
                let mut error = error.clone();
                if !mutated::<F>(Mutant::BatchCalledUndone) {
                    describe_parts(batch, &mut error);
                }
                Err(error)
            }
        }
    }

    #[inline(never)]
    pub(super) fn batch_borrow(&self, index: usize, use_low: u64) -> Result<Borrowed> {
        let guard = self.batches.lock(index, use_low)?;
        let batch = guard.batch();
        if !batch.in_place {
            return Err(not_in_place());
        }
        let done = self.advance_batch(batch);
        if let Some(error) = &batch.error {
            return Err(error.clone());
        }
        let rows_total = batch.own_rows.len() * 4 / batch.row_bytes;
        let rows_ready = if done { rows_total } else { 0 };
        Ok(Borrowed { rows: batch.own_rows.as_ptr(), rows_ready, rows_total })
    }

    /// Works on a batch that has ended.
    pub(super) fn with_ended_batch<T>(&self, index: usize, use_low: u64, work: impl FnOnce(&Batch) -> T) -> Result<T> {
        let guard = self.batches.lock(index, use_low)?;
        let batch = guard.batch();
        if self.advance_batch(batch) { Ok(work(batch)) } else { Err(under_way()) }
    }

    #[inline(never)]
    pub(super) fn batch_revoke(&self, index: usize, use_low: u64) -> Result<()> {
        let mut guard = self.batches.lock(index, use_low)?;
        let batch = guard.batch();
        if batch.open > 0 {
            // Nothing new is sent; what was sent may still write.
            batch.error.get_or_insert_with(|| Error::new(Status::Closed, "the request was revoked"));
            batch.abandoned = true;
            let _ = self.drive(batch, None);
        }
        guard.last = true;
        Ok(())
    }
}

fn close(batch: &mut Batch, index: usize, outcome: Outcome) {
    batch.parts[index].state = PartState::Over(outcome);
    batch.open -= 1;
}

#[cold]
fn part_failed(batch: &mut Batch, index: usize, error: Box<Error>) {
    close(batch, index, error.outcome);
    let shard = batch.parts[index].shard;
    let status = error.status;
    match &mut batch.error {
        // One part that may have been executed leaves the whole in doubt.
        Some(first) if error.outcome != Outcome::NotExecuted => first.outcome = Outcome::Unknown,
        Some(_) => {}
        None => batch.error = Some(error),
    }
    if batch.failure_of(shard).is_none() {
        batch.failed.push((shard, status));
    }
}

/// Says of which parts an error tells. Those of shards that it does not name were executed, unless the whole was given
/// up. A batch of which any part was executed is never called undone: repeated as a whole it would count twice.
#[cold]
fn describe_parts(batch: &Batch, error: &mut Error) {
    if batch.parts.len() < 2 {
        return;
    }
    let ran = |part: &Part| matches!(part.state, PartState::Over(Outcome::Executed));
    if error.outcome == Outcome::NotExecuted && batch.parts.iter().any(ran) {
        error.outcome = Outcome::Unknown;
    }
    if batch.abandoned {
        return;
    }
    let failed: Vec<String> = batch.failed.iter().map(|(shard, _)| shard.to_string()).collect();
    let shards = if failed.len() == 1 { "shard" } else { "shards" };
    error.message.push_str(&format!("; of this batch, parts for {shards} {} failed, all others", failed.join(", ")));
    error.message.push_str(" were executed");
}

/// Row `i` of `from` becomes row `positions[i]` of `to`.
///
/// # Safety
/// `from` has one row per position; `to` has a row at each position.
unsafe fn scatter(from: *const u8, row_bytes: usize, positions: &[u32], to: *mut u8) {
    for (index, position) in positions.iter().enumerate() {
        // SAFETY: as the caller vouches.
        unsafe {
            let out = to.add(*position as usize * row_bytes);
            core::ptr::copy_nonoverlapping(from.add(index * row_bytes), out, row_bytes);
        }
    }
}
