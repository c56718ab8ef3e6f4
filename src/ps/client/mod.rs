//! The client's side of the operations: checks, splitting over shards and requests, and bringing rows home in order.
//!
//! A request whose keys all go to one shard and fit one slot takes the short way (`single`): it lives in its slot,
//! and costs two atomic read-modify-writes, no allocation and no clock. Any other is a `batch` of parts, which go to
//! their shards in parallel and are driven by the caller's own `query` and `wait`.

mod all;
mod batch;
mod fill;
mod heal;
mod late;
mod near;
mod outcome;
mod record;
mod request;
mod single;
pub mod tally;
mod token;
mod turnstile;
mod words;

pub use outcome::ShardResult;
pub use record::Record;
pub use request::{Borrowed, Request, Rows, Target};
pub use single::GROWS_FROM_BYTES;
pub use token::{INDEX_MAX, SHARDS_MAX, Token};

use super::routing::Router;
use crate::error::{Result, Status};
use crate::fabric::{Fabric, Region};
use crate::ids::TableTag;
use crate::lane::RebuildPolicy;
use crate::rpc::{Channel, Pace, PacePolicy, Turn};
use crate::sync::{AtomicU32, Ordering};
use crate::wire::Op;
use batch::Batches;
use core::time::Duration;
use heal::Concerns;
use request::{Local, Source, name_of, part_of};
use tally::Tallies;
use token::Named;
use words::{bad_pointer, buffer_short, busy, stale, too_much, too_short, too_wide, unknown};

/// What a client is set to.
#[derive(Clone, Debug)]
pub struct PsClientOptions {
    /// Most keys of one request to one shard.
    pub keys_max: u32,
    /// How rows of a GET come: flags DIRECT and COPY_ALLOWED of its header.
    pub get_flags: u8,
    /// PUT and UPDATE from registered memory: the server reads it, instead of the client pushing it.
    pub put_read: bool,
    /// How waits spend their time.
    pub pace: PacePolicy,
    /// How long submitting may wait for a lane that is being connected for the first time.
    pub growth: Duration,
    /// How long a request may take.
    pub wait_timeout: Duration,
    /// f32 elements of a row of table 0.
    pub default_dim: u32,
    /// A request whose lane was lost is sent again.
    pub retry: bool,
    /// How lanes are rebuilt: requests wait for it only while there is hope.
    pub rebuild: RebuildPolicy,
    /// A request that waited so long wants the control plane to be asked about its shard; zero: never.
    pub health_after: Duration,
    /// Time between two such questions.
    pub health_every: Duration,
}

/// One client's operations on all shards. Threads: any; each request belongs to one thread at a time.
#[derive(Debug)]
pub struct PsClient<F: Fabric> {
    channels: Box<[Channel<F, Record>]>,
    router: Router,
    options: PsClientOptions,
    /// What is known of a table, by tag.
    tables: Box<[Limits]>,
    batches: Batches,
    concerns: Concerns,
    /// Only where somebody asked for it.
    tallies: Option<Box<Tallies>>,
}

const TAGS: usize = 1 << 16;

/// Row width of a table, and how many keys one slot takes; all 0: no such table. Worked out once, so that no request
/// divides.
#[derive(Debug, Default)]
struct Limits {
    row_bytes: AtomicU32,
    get_keys: AtomicU32,
    rows_keys: AtomicU32,
}

/// The checked common part of a request.
#[derive(Clone, Copy, Debug)]
struct Plan<'a> {
    op: Op,
    table: TableTag,
    keys: &'a [u64],
    row_bytes: usize,
    /// Most keys of one part.
    part_keys: usize,
}

impl<F: Fabric> PsClient<F> {
    /// A client over one connected channel per shard, in the order of the shards.
    #[must_use]
    pub fn new(channels: Vec<Channel<F, Record>>, router: Router, options: PsClientOptions) -> PsClient<F> {
        let tables: Box<[Limits]> = (0..TAGS).map(|_| Limits::default()).collect();
        let slots: usize = channels.iter().map(Channel::slot_count).sum();
        let batches = Batches::new((slots * 2).clamp(16, INDEX_MAX));
        let concerns = Concerns::new(channels.len());
        let channels = channels.into_boxed_slice();
        let client = PsClient { channels, router, options, tables, batches, concerns, tallies: None };
        client.set_dim(TableTag(0), client.options.default_dim);
        client
    }

    /// One channel per shard.
    #[must_use]
    pub fn channels(&self) -> &[Channel<F, Record>] {
        &self.channels
    }

    /// The shard that owns a key.
    #[inline]
    #[must_use]
    pub fn shard_of(&self, key: u64) -> u32 {
        self.router.shard_of(key)
    }

    /// Makes a table's row width known, as INIT_TABLE's answer says.
    pub fn set_dim(&self, table: TableTag, dim: u32) {
        let limits = &self.tables[usize::from(table.0)];
        let row_bytes = dim.saturating_mul(4);
        let (request, response) =
            self.channels.first().map_or((0, 0), |channel| (channel.payload_bytes_max(), channel.response_bytes_max()));
        let get_keys = (request / 8).min(response.checked_div(row_bytes).unwrap_or(0));
        limits.get_keys.store(get_keys.min(self.options.keys_max), Ordering::Relaxed);
        limits.rows_keys.store((request / (8 + row_bytes)).min(self.options.keys_max), Ordering::Relaxed);
        limits.row_bytes.store(row_bytes, Ordering::Relaxed);
    }

    /// f32 elements of a row.
    ///
    /// # Errors
    /// `UnknownTable` when no INIT_TABLE of this client gave this tag.
    #[inline(never)]
    pub fn dim(&self, table: TableTag) -> Result<u32> {
        match self.tables[usize::from(table.0)].row_bytes.load(Ordering::Relaxed) / 4 {
            0 => Err(unknown(table)),
            dim => Ok(dim),
        }
    }

    /// Submits, waits and revokes in one call. While every slot is held by other threads it waits for one.
    ///
    /// # Safety
    /// As [`PsClient::submit`]; the pointers need to be valid during this call only.
    ///
    /// # Errors
    /// As [`PsClient::submit`] and [`PsClient::wait`].
    pub unsafe fn call<R: Region>(&self, request: &Request<'_, R>) -> Result<()> {
        // SAFETY: as the caller vouches.
        let token = self.patiently(|| unsafe { self.submit(request) })?;
        self.finish(token, None)
    }

    /// Submits; again, as long as a request may take, while every slot is held or the shard's lanes are being rebuilt.
    #[inline]
    pub(super) fn patiently(&self, submit: impl Fn() -> Result<Token>) -> Result<Token> {
        let mut pace = None;
        loop {
            match submit() {
                Ok(token) => return Ok(token),
                Err(error) => {
                    let may_come = error.status == Status::NoSlot || self.may_wait(&error);
                    if !may_come || pace.get_or_insert_with(|| self.pace(None)).turn() == Turn::Expired {
                        return Err(error);
                    }
                }
            }
        }
    }

    /// Requests under way.
    #[must_use]
    pub fn under_way(&self) -> usize {
        self.channels.iter().map(Channel::held_count).sum()
    }

    /// Batches under way, and the most that can be.
    #[must_use]
    pub fn batch_load(&self) -> (usize, usize) {
        self.batches.load()
    }

    #[inline(always)]
    fn plan<'a>(&self, op: Op, table: TableTag, keys: &'a [u64]) -> Result<Plan<'a>> {
        let limits = &self.tables[usize::from(table.0)];
        let row_bytes = limits.row_bytes.load(Ordering::Relaxed) as usize;
        let part_keys = if op == Op::Get { &limits.get_keys } else { &limits.rows_keys };
        let part_keys = part_keys.load(Ordering::Relaxed) as usize;
        if part_keys == 0 {
            return Err(if row_bytes == 0 { unknown(table) } else { too_wide(self.channels.first(), row_bytes) });
        }
        Ok(Plan { op, table, keys, row_bytes, part_keys })
    }

    /// Starts a request.
    ///
    /// # Safety
    /// Pointers in the request are valid for the lengths given, and stay so until the request is done.
    ///
    /// # Errors
    /// A CALLER status for a bad request, `NoSlot` when every slot is held, LANE or PEER when the shard cannot be
    /// reached. Nothing was executed.
    #[inline(always)]
    pub unsafe fn submit<R: Region>(&self, request: &Request<'_, R>) -> Result<Token> {
        match request {
            Request::Get { table, keys, target } => {
                let plan = self.plan(Op::Get, *table, keys)?;
                let total = plan.keys.len() * plan.row_bytes;
                match target {
                    Target::Memory { rows, capacity } => {
                        if capacity.checked_mul(4).is_none_or(|bytes| bytes < total) {
                            return Err(too_short(*table, plan.keys.len(), plan.row_bytes, *capacity));
                        }
                        check_pointer(rows.cast_const(), total)?;
                        // SAFETY: the memory was found large enough for every row.
                        unsafe { self.submit_get::<R>(&plan, *rows, None) }
                    }
                    // SAFETY: nothing of the caller's is written.
                    Target::InPlace => unsafe { self.submit_get::<R>(&plan, core::ptr::null_mut(), None) },
                    Target::Buffer { region, offset_bytes } => {
                        let Some(place) = part_of(*region, *offset_bytes, total) else {
                            return Err(buffer_short(*table, plan.keys.len(), plan.row_bytes, *region, *offset_bytes));
                        };
                        // SAFETY: the part lies within the region, which the caller keeps until the request is done.
                        unsafe { self.submit_get(&plan, place.cast(), Some(*region)) }
                    }
                }
            }
            // SAFETY: as the caller vouches.
            Request::Put { table, keys, rows } => unsafe { self.submit_rows(Op::Put, *table, keys, rows) },
            // SAFETY: as the caller vouches.
            Request::Update { table, keys, gradients } => unsafe {
                self.submit_rows(Op::Update, *table, keys, gradients)
            },
            // SAFETY: as the caller vouches.
            Request::UpdateFlat { table, keys, gradients } => unsafe {
                self.submit_rows(Op::UpdateFlat, *table, keys, gradients)
            },
        }
    }

    /// The one shard that all keys go to, if that is known without looking at each.
    #[inline(always)]
    fn only_shard(&self, plan: &Plan<'_>) -> Option<usize> {
        if plan.keys.len() > plan.part_keys || plan.keys.is_empty() {
            return None;
        }
        if self.channels.len() == 1 {
            return Some(0);
        }
        // Keys of several shards mostly show it at once.
        let (first, others) = plan.keys.split_first()?;
        let shard = self.router.shard_of(*first);
        others.iter().all(|key| self.router.shard_of(*key) == shard).then_some(shard as usize)
    }

    /// The same for rows that the server reads: a key and a number take room in the slot, and no row.
    fn plan_named<'a>(&self, op: Op, table: TableTag, keys: &'a [u64]) -> Result<Plan<'a>> {
        let row_bytes = self.dim(table)? as usize * 4;
        let room = self.channels.first().map_or(0, Channel::payload_bytes_max);
        let part_keys = (room / (8 + 4)).min(self.options.keys_max) as usize;
        Ok(Plan { op, table, keys, row_bytes, part_keys })
    }

    #[inline(always)]
    unsafe fn submit_get<R: Region>(&self, plan: &Plan<'_>, rows: *mut f32, region: Option<&R>) -> Result<Token> {
        match self.only_shard(plan) {
            // SAFETY: as the caller vouches.
            Some(shard) => unsafe { self.single_get(shard, plan, rows, region) },
            None => {
                // A copy, so that only this way needs the plan in memory.
                let copy = *plan;
                self.batch_get(&copy, rows)
            }
        }
    }

    #[inline(always)]
    unsafe fn submit_rows<R: Region>(
        &self,
        op: Op,
        table: TableTag,
        keys: &[u64],
        rows: &Rows<'_, R>,
    ) -> Result<Token> {
        let named = self.options.put_read && matches!(rows, Rows::Buffer { .. });
        // Without windows the server reads rows into a slot of its own: those of one request that fits.
        let windows = self.channels.first().is_some_and(Channel::has_windows);
        let plan = if named && windows { self.plan_named(op, table, keys) } else { self.plan(op, table, keys) }?;
        let total = keys.len() * plan.row_bytes;
        let (count_of_keys, row_bytes) = (keys.len(), plan.row_bytes);
        let source = match rows {
            Rows::Flat { rows, count } => {
                if count.checked_mul(4) != Some(total) {
                    return Err(too_short(table, count_of_keys, row_bytes, *count));
                }
                check_pointer(*rows, total)?;
                Source::Local(Local::Dense(rows.cast()))
            }
            Rows::Scattered(pointers) => {
                if pointers.len() != keys.len() {
                    let floats = pointers.len().saturating_mul(row_bytes / 4);
                    return Err(too_short(table, count_of_keys, row_bytes, floats));
                }
                pointers.iter().try_for_each(|row| check_pointer(*row, plan.row_bytes))?;
                Source::Local(Local::Scattered(pointers.as_ptr()))
            }
            Rows::Buffer { region, offset_bytes } => {
                let Some(place) = part_of(*region, *offset_bytes, total) else {
                    return Err(buffer_short(table, count_of_keys, row_bytes, *region, *offset_bytes));
                };
                if named && (windows || self.only_shard(&plan).is_some()) {
                    Source::Named(name_of(*region, place, total).ok_or_else(|| too_much(total))?)
                } else {
                    Source::Local(Local::Dense(place))
                }
            }
        };
        match self.only_shard(&plan) {
            // SAFETY: the source was found to have one row per key.
            Some(shard) => unsafe { self.single_rows(shard, &plan, source) },
            None => {
                let copy = plan;
                self.batch_rows(&copy, source)
            }
        }
    }

    /// Whether the request is done. Never blocks. A request that failed is done; `wait` tells how.
    ///
    /// # Errors
    /// `StaleToken`; `Busy` when another thread works on the request.
    #[inline(always)]
    pub fn query(&self, token: Token) -> Result<bool> {
        if self.is_done(token) {
            return Ok(true);
        }
        self.query_longer(token)
    }

    #[inline(never)]
    fn query_longer(&self, token: Token) -> Result<bool> {
        match token.named() {
            Some(Named::Single { shard, index, use_low }) => {
                let (channel, held) = self.enter(shard, index, use_low)?;
                let outcome = Ok(self.single_advance(channel, held, true));
                channel.leave(held);
                outcome
            }
            Some(Named::Batch { index, use_low }) => self.batch_query(index, use_low),
            None => Err(stale(token)),
        }
    }

    /// Whether the request takes one slot and has just ended well. False says nothing.
    #[inline(always)]
    fn is_done(&self, token: Token) -> bool {
        let Some(Named::Single { shard, index, use_low }) = token.named() else { return false };
        let Some((channel, held)) = self.seek(shard, index, use_low) else { return false };
        if !channel.enter(held) {
            return false;
        }
        let is_done = self.single_is_done(channel, held);
        channel.leave(held);
        is_done
    }

    /// Waits until the request is done, at most `timeout` beyond a short spin; None: the option's.
    ///
    /// # Errors
    /// `Pending`-like expiry of an own `timeout` is `Status::Pending` in the error and leaves the request as it is; the
    /// option's wait timeout ends the lane. Otherwise what the request failed with.
    #[inline(always)]
    pub fn wait(&self, token: Token, timeout: Option<Duration>) -> Result<()> {
        if self.is_done(token) {
            return Ok(());
        }
        self.wait_longer(token, timeout)
    }

    #[inline(never)]
    fn wait_longer(&self, token: Token, timeout: Option<Duration>) -> Result<()> {
        match token.named() {
            Some(Named::Single { shard, index, use_low }) => {
                let (channel, held) = self.enter(shard, index, use_low)?;
                let outcome = self.single_wait(channel, held, timeout);
                channel.leave(held);
                outcome
            }
            Some(Named::Batch { index, use_low }) => self.batch_wait(index, use_low, timeout),
            None => Err(stale(token)),
        }
    }

    /// Hands the rows of an `InPlace` GET to `take`: a struct of three words that is returned is stored and loaded again,
    /// and the loads may have to wait until all that was stored before has reached the server's lines.
    ///
    /// # Errors
    /// `StaleToken`; `WrongState` when the request is not such a GET, or is a batch that is not done; what the request
    /// failed with.
    #[inline(always)]
    pub fn borrow<T>(&self, token: Token, take: impl FnOnce(Borrowed) -> T) -> Result<T> {
        if let Some(Named::Single { shard, index, use_low }) = token.named()
            && let Some((channel, held)) = self.seek(shard, index, use_low)
            && channel.enter(held)
        {
            let lent = self.single_lend(channel, held);
            channel.leave(held);
            if let Some(borrowed) = lent {
                return Ok(take(borrowed));
            }
        }
        self.borrow_longer(token).map(take)
    }

    #[inline(never)]
    fn borrow_longer(&self, token: Token) -> Result<Borrowed> {
        match token.named() {
            Some(Named::Single { shard, index, use_low }) => {
                let (channel, held) = self.enter(shard, index, use_low)?;
                let outcome = self.single_borrow(channel, held);
                channel.leave(held);
                outcome
            }
            Some(Named::Batch { index, use_low }) => self.batch_borrow(index, use_low),
            None => Err(stale(token)),
        }
    }

    /// Gives the request's slots back. A request that is not done is waited for: its memory may still be written.
    ///
    /// # Errors
    /// `StaleToken`; `Busy` when another thread works on the request.
    #[inline(always)]
    pub fn revoke(&self, token: Token) -> Result<()> {
        match token.named() {
            Some(Named::Single { shard, index, use_low }) => {
                let (channel, held) = self.enter(shard, index, use_low)?;
                self.single_revoke(channel, held);
                Ok(())
            }
            Some(Named::Batch { index, use_low }) => self.batch_revoke(index, use_low),
            None => Err(stale(token)),
        }
    }

    /// Waits until the request is done and gives its slots back: [`wait`](Self::wait) and [`revoke`](Self::revoke) in one
    /// look at the request.
    ///
    /// # Errors
    /// `Pending` when an own `timeout` is over, `StaleToken` and `Busy` leave the request as it is. Otherwise what the
    /// request failed with: it is given back all the same.
    #[inline(always)]
    pub fn finish(&self, token: Token, timeout: Option<Duration>) -> Result<()> {
        if let Some(Named::Single { shard, index, use_low }) = token.named()
            && let Some((channel, held)) = self.seek(shard, index, use_low)
            && channel.enter(held)
        {
            if self.single_is_done(channel, held) {
                channel.release(held);
                return Ok(());
            }
            channel.leave(held);
        }
        self.finish_longer(token, timeout)
    }

    #[inline(never)]
    fn finish_longer(&self, token: Token, timeout: Option<Duration>) -> Result<()> {
        let outcome = self.wait_longer(token, timeout);
        if let Err(error) = &outcome
            && matches!(error.status, Status::Pending | Status::StaleToken | Status::Busy)
        {
            return outcome;
        }
        self.revoke(token)?;
        outcome
    }

    #[inline(always)]
    fn seek(&self, shard: usize, index: u32, use_low: u64) -> Option<(&Channel<F, Record>, crate::rpc::Held)> {
        let channel = self.channels.get(shard)?;
        Some((channel, channel.resolve(index, use_low, token::USE_MASK)?))
    }

    #[inline(always)]
    fn find(&self, shard: usize, index: u32, use_low: u64) -> Result<(&Channel<F, Record>, crate::rpc::Held)> {
        self.seek(shard, index, use_low).ok_or_else(|| stale(Token::single(shard, index, use_low)))
    }

    /// The same, for a thread that works on the request until it leaves, or gives the slot back.
    #[inline(always)]
    fn enter(&self, shard: usize, index: u32, use_low: u64) -> Result<(&Channel<F, Record>, crate::rpc::Held)> {
        let (channel, held) = self.find(shard, index, use_low)?;
        if channel.enter(held) { Ok((channel, held)) } else { Err(busy()) }
    }

    /// The pace of a wait: an own timeout, or the option's.
    #[inline]
    fn pace(&self, timeout: Option<Duration>) -> Pace {
        Pace::new(self.options.pace, timeout.unwrap_or(self.options.wait_timeout))
    }
}

#[inline(always)]
fn check_pointer(rows: *const f32, bytes: usize) -> Result<()> {
    if bytes == 0 || (!rows.is_null() && rows.is_aligned()) { Ok(()) } else { Err(bad_pointer(rows)) }
}
