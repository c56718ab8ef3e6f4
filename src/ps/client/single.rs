//! A request that takes one slot: it lives in that slot's record from submit to revoke.

use super::fill::{blank, place_keys, place_rows};
use super::record::{Record, Stage};
use super::request::{Borrowed, Source, name_of};
use super::tally::fault;
use super::words::{not_in_place, refused, too_much};
use super::{Plan, PsClient, Token};
use crate::error::{Error, Result, Status};
use crate::fabric::{Fabric, Mutant, Region, mutated};
use crate::rpc::{Channel, Held, Judgement, Turn};
use crate::time::now;
use crate::wire::{INLINE_BYTES, InlineWords, Op, RequestHeader, ResponseHeader, RpcStatus, flags};
use core::time::Duration;

/// Answers below this length are not worth publishing in chunks.
pub const GROWS_FROM_BYTES: usize = 8192;
/// Every so many fruitless queries the slow signs are looked at.
const QUERIES_PER_CHECK: u32 = 64;

impl<F: Fabric> PsClient<F> {
    /// Marks a request that changes something, where it may be sent again.
    #[inline(always)]
    fn once(&self, mut header: RequestHeader) -> RequestHeader {
        if self.options.retry {
            header.flags |= flags::ONCE;
        }
        header
    }

    #[inline(always)]
    pub(super) fn take(&self, channel: &Channel<F, Record>) -> Result<Held> {
        if self.batches.is_hungry() {
            self.feed_batches();
        }
        match channel.acquire() {
            Ok(held) => Ok(held),
            Err(error) => self.take_late(channel, error),
        }
    }

    /// Sends, and says so to the record of a request that is `timed`; gives the slot back when that fails.
    #[inline(always)]
    unsafe fn launch(
        &self,
        channel: &Channel<F, Record>,
        held: Held,
        header: RequestHeader,
        landing: *const u8,
        timed: bool,
    ) -> Result<()> {
        // SAFETY: the slot is held; the payload was written; landing is the caller's to keep.
        match unsafe { channel.send(held, header, landing) } {
            Ok(()) if timed => {
                // SAFETY: the record is the holder's.
                unsafe { (*channel.record(held)).sent() };
                Ok(())
            }
            Ok(()) => Ok(()),
            Err(error) => {
                self.count_fault(channel.shard(), fault::FAILED);
                channel.release(held);
                Err(error)
            }
        }
    }

    /// Whether the request that a slot was just taken for is timed; comes before its record is written.
    ///
    /// # Safety
    /// The slot is held.
    #[inline(always)]
    unsafe fn is_timed(channel: &Channel<F, Record>, held: Held) -> bool {
        // SAFETY: the record is the holder's.
        let record = unsafe { &mut *channel.record(held) };
        record.is_unusual && record.begin_unusual()
    }

    /// # Safety
    /// `rows`, unless null, is valid for the whole answer until the request is done.
    #[inline(always)]
    pub(super) unsafe fn single_get<R: Region>(
        &self,
        shard: usize,
        plan: &Plan<'_>,
        rows: *mut f32,
        region: Option<&R>,
    ) -> Result<Token> {
        let channel = &self.channels[shard];
        let held = self.take(channel)?;
        // SAFETY: the slot is held; the rest as the caller vouches.
        unsafe { self.send_get(channel, held, plan, rows, region) }?;
        Ok(Token::single(shard, held.index, held.use_count))
    }

    /// # Safety
    /// As [`PsClient::single_get`], with a held slot.
    #[inline(never)]
    pub(super) unsafe fn start_get<R: Region>(
        &self,
        shard: usize,
        held: Held,
        plan: &Plan<'_>,
        rows: *mut f32,
        region: Option<&R>,
    ) -> Result<()> {
        // SAFETY: as the caller vouches.
        unsafe { self.send_get(&self.channels[shard], held, plan, rows, region) }
    }

    /// # Safety
    /// As [`PsClient::start_get`].
    #[inline(always)]
    unsafe fn send_get<R: Region>(
        &self,
        channel: &Channel<F, Record>,
        held: Held,
        plan: &Plan<'_>,
        rows: *mut f32,
        region: Option<&R>,
    ) -> Result<()> {
        let total = plan.keys.len() * plan.row_bytes;
        // SAFETY: the slot is held.
        let timed = unsafe { Self::is_timed(channel, held) };
        // SAFETY: the record is the holder's.
        let record = unsafe { &mut *channel.record(held) };
        record.begin(plan, total);
        record.rows = rows.expose_provenance();
        // SAFETY: the slot is held, and its record begun; the rest as the caller vouches.
        let reads = |mapped| unsafe { self.reads_by_itself(channel, held, plan, record, (mapped, timed)) };
        if channel.rows(held).is_some_and(reads) {
            return Ok(());
        }
        // SAFETY: as above.
        let composed = unsafe { self.compose_get(channel, held, plan, (rows, region), record) };
        let Some((header, landing)) = composed else {
            channel.release(held);
            return Err(too_much(total));
        };
        // SAFETY: the keys are in their place; the landing is the caller's to keep.
        unsafe { self.launch(channel, held, header, landing, timed) }
    }

    /// Puts a GET together in its slot, as its begun record says: header, and where rows land. None: more than a request
    /// can name.
    ///
    /// # Safety
    /// As [`PsClient::start_get`]; `record` is the slot's.
    #[inline(always)]
    pub(super) unsafe fn compose_get<R: Region>(
        &self,
        channel: &Channel<F, Record>,
        held: Held,
        plan: &Plan<'_>,
        (rows, region): (*mut f32, Option<&R>),
        record: &mut Record,
    ) -> Option<(RequestHeader, *const u8)> {
        let total = plan.keys.len() * plan.row_bytes;
        let mut header = blank(Op::Get, plan.table.0, plan.keys.len());
        header.flags = self.options.get_flags;
        #[allow(clippy::cast_possible_truncation)] // a part fits a slot
        {
            header.response_bytes = total as u32;
        }
        let mut landing = core::ptr::null();
        if let Some(region) = region.filter(|_| total > 0) {
            header.set_remote_buffer(name_of(region, rows.cast_const().cast(), total)?);
            record.lands = true;
            landing = rows.cast_const().cast();
        } else if total >= GROWS_FROM_BYTES {
            record.grows = true;
            header.flags |= flags::PROGRESS;
        }
        #[allow(clippy::cast_possible_truncation)] // bounded by the slot
        {
            // SAFETY: the plan's part was bounded by the slot's payload.
            header.payload_bytes = unsafe { place_keys(&mut header, plan.keys, channel.payload(held)) } as u32;
        }
        Some((header, landing))
    }

    /// # Safety
    /// The source has one row per key, valid until the request is done.
    #[inline(always)]
    pub(super) unsafe fn single_rows(&self, shard: usize, plan: &Plan<'_>, source: Source) -> Result<Token> {
        let channel = &self.channels[shard];
        let held = self.take(channel)?;
        // SAFETY: the slot is held; the rest as the caller vouches.
        unsafe { self.send_rows(channel, held, plan, source, None) }?;
        Ok(Token::single(shard, held.index, held.use_count))
    }

    /// Starts a request of rows: the rows at `positions` of the source, or all in order.
    ///
    /// # Safety
    /// The slot is held; the source has a row for each position.
    #[inline(never)]
    pub(super) unsafe fn start_rows(
        &self,
        shard: usize,
        held: Held,
        plan: &Plan<'_>,
        source: Source,
        positions: Option<&[u32]>,
    ) -> Result<()> {
        // SAFETY: as the caller vouches.
        unsafe { self.send_rows(&self.channels[shard], held, plan, source, positions) }
    }

    /// # Safety
    /// As [`PsClient::start_rows`].
    #[inline(always)]
    unsafe fn send_rows(
        &self,
        channel: &Channel<F, Record>,
        held: Held,
        plan: &Plan<'_>,
        source: Source,
        positions: Option<&[u32]>,
    ) -> Result<()> {
        let mut header = self.once(blank(plan.op, plan.table.0, plan.keys.len()));
        // SAFETY: the plan's part was bounded by the slot's payload; the record is the holder's.
        unsafe {
            #[allow(clippy::cast_possible_truncation)] // bounded by the slot
            {
                header.payload_bytes = place_rows(&mut header, plan, source, positions, channel.payload(held)) as u32;
            }
            let timed = Self::is_timed(channel, held);
            (*channel.record(held)).begin(plan, 0);
            self.launch(channel, held, header, core::ptr::null(), timed)
        }
    }

    /// Sends a request whose payload is bytes (INIT_TABLE, COMMAND) to one shard.
    ///
    /// # Errors
    /// As [`PsClient::submit`].
    pub(crate) fn submit_bytes(&self, shard: usize, op: Op, bytes: &[u8]) -> Result<Token> {
        let channel = &self.channels[shard];
        if bytes.len() > channel.payload_bytes_max() as usize {
            return Err(Error::new(
                Status::BatchTooLarge,
                format!(
                    "{} bytes do not fit a slot to shard {}, which takes {}: raise rdma-rc-request-slot-bytes on both sides",
                    bytes.len(),
                    channel.shard(),
                    channel.payload_bytes_max()
                ),
            ));
        }
        let held = self.take(channel)?;
        // To create a table that is there finds it: that may be done twice, and on a shard that has lost its memory too.
        let blank = blank(op, 0, 0);
        let mut header = if op == Op::InitTable { blank } else { self.once(blank) };
        // SAFETY: the bytes fit the slot's payload; the record is the holder's.
        unsafe {
            core::ptr::copy_nonoverlapping(bytes.as_ptr(), channel.payload(held), bytes.len());
            #[allow(clippy::cast_possible_truncation)] // bounded by the slot
            {
                header.payload_bytes = bytes.len() as u32;
            }
            *channel.record(held) = Record { op: op as u8, ..Record::default() };
            self.launch(channel, held, header, core::ptr::null(), false)?;
        }
        Ok(Token::single(shard, held.index, held.use_count))
    }

    /// The frequent end of a request: its answer is there, and good. False says nothing.
    #[inline(always)]
    pub(super) fn single_is_done(&self, channel: &Channel<F, Record>, held: Held) -> bool {
        // SAFETY: the token's holder is the only thread on this request (the documented rule).
        let record = unsafe { &mut *channel.record(held) };
        match record.stage {
            Stage::Waiting => self.take_answer(channel, held, record) && record.stage == Stage::Done,
            Stage::Unread => self.read_now(channel, held, record),
            _ => false,
        }
    }

    /// Looks for the answer; true when the request is done, well or not.
    #[inline(never)]
    pub(super) fn single_advance(&self, channel: &Channel<F, Record>, held: Held, query: bool) -> bool {
        // SAFETY: the token's holder is the only thread on this request (the documented rule).
        let record = unsafe { &mut *channel.record(held) };
        if record.stage != Stage::Waiting {
            return self.advance_unusual(channel, held, record, query);
        }
        self.take_answer(channel, held, record) || self.not_answered(channel, held, record, query)
    }

    /// The same for a request that is timed, or over.
    #[cold]
    fn advance_unusual(&self, channel: &Channel<F, Record>, held: Held, record: &mut Record, query: bool) -> bool {
        if record.stage == Stage::Unread {
            return self.read_now(channel, held, record) || self.ask_late(channel, held, record);
        }
        if record.stage != Stage::Timed {
            return true;
        }
        // SAFETY: the token's holder is the only thread on this request.
        if unsafe { channel.is_answered(held, record.total) } {
            let seen = now();
            if self.bring_home(channel, held, record) {
                self.count_timed(channel, held, record, seen);
                return true;
            }
        }
        self.not_answered(channel, held, record, query)
    }

    /// There is no answer yet; true when the request has failed.
    #[inline(always)]
    fn not_answered(&self, channel: &Channel<F, Record>, held: Held, record: &mut Record, query: bool) -> bool {
        if record.grows && record.rows != 0 {
            copy_grown(channel, held, record);
        }
        if query {
            record.queries += 1;
            if record.queries.is_multiple_of(QUERIES_PER_CHECK) {
                return self.check_slow(channel, held, record);
            }
        }
        false
    }

    /// Takes the answer home if it is there; true when the request is done by that, well or not.
    #[inline(always)]
    fn take_answer(&self, channel: &Channel<F, Record>, held: Held, record: &mut Record) -> bool {
        // SAFETY: the token's holder is the only thread on this request.
        if !unsafe { channel.is_answered(held, record.total) } {
            return false;
        }
        self.bring_home(channel, held, record)
    }

    /// The answer's word is there.
    #[inline(always)]
    fn bring_home(&self, channel: &Channel<F, Record>, held: Held, record: &mut Record) -> bool {
        // SAFETY: the token's holder is the only thread on this request.
        let answer = unsafe { channel.answer(held) };
        // SAFETY: as above.
        match unsafe { channel.judge(held, record.total, &answer) } {
            Judgement::Whole => settle(channel, held, record, &answer),
            Judgement::NotYet => return false,
            Judgement::Corrupt => fail_corrupt(channel, held, record),
        }
        self.count_answered(channel.shard(), held, record);
        true
    }

    /// The slow signs of a request that only queries look at. True when it failed.
    #[cold]
    fn check_slow(&self, channel: &Channel<F, Record>, held: Held, record: &mut Record) -> bool {
        let at = now();
        let first = *record.first_slow.get_or_insert_with(|| self.slow_from(channel, held, at));
        let limit_ns = u64::try_from(self.options.wait_timeout.as_nanos()).unwrap_or(u64::MAX);
        let expired = at.since_ns(first) >= limit_ns && !mutated::<F>(Mutant::NoDeadline);
        let outcome = if expired { Err(channel.timed_out(held)) } else { channel.check(held) };
        self.consider_asking(channel.shard(), record, Duration::from_nanos(at.since_ns(first)));
        if let Err(mut error) = outcome {
            // An answer that came before the lane went down counts.
            if self.take_answer(channel, held, record) {
                return true;
            }
            if !expired && self.send_again(channel, held, record, &mut error) {
                return false;
            }
            error.elapsed_ns = at.since_ns(first);
            if expired {
                let limit_ms = self.options.wait_timeout.as_millis();
                error.message.push_str(&format!(
                    "; no answer within rdma-wait-timeout-ms = {limit_ms}: is the shard stopped, or its handler slow?"
                ));
                self.count_fault(channel.shard(), fault::TIMEOUTS);
            }
            record.fail(error);
            self.count_fault(channel.shard(), fault::FAILED);
            return true;
        }
        false
    }

    #[inline(never)]
    pub(super) fn single_wait(
        &self,
        channel: &Channel<F, Record>,
        held: Held,
        timeout: Option<Duration>,
    ) -> Result<()> {
        let mut pace = self.pace(timeout);
        while !self.single_advance(channel, held, false) {
            match pace.turn() {
                Turn::Again => {}
                turn => {
                    channel.stay(held);
                    // SAFETY: the token's holder is the only thread on this request.
                    let record = unsafe { &mut *channel.record(held) };
                    if self.check_slow(channel, held, record) {
                        break;
                    }
                    if turn == Turn::Expired && timeout.is_some() {
                        return Err(Error::new(Status::Pending, "the request is still under way"));
                    }
                }
            }
        }
        // SAFETY: as above.
        let record = unsafe { &*channel.record(held) };
        match &record.error {
            None => Ok(()),
            Some(error) => Err(error.clone()),
        }
    }

    /// The rows of a GET that has ended well and is read in place. None says nothing.
    #[inline(always)]
    pub(super) fn single_lend(&self, channel: &Channel<F, Record>, held: Held) -> Option<Borrowed> {
        // SAFETY: the token's holder is the only thread on this request.
        let record = unsafe { &*channel.record(held) };
        if record.stage != Stage::Done || !record.is_get() || record.rows != 0 {
            return None;
        }
        let rows_total = record.keys as usize;
        Some(Borrowed { rows: rows_in_place(channel, held, record), rows_ready: rows_total, rows_total })
    }

    #[inline(never)]
    pub(super) fn single_borrow(&self, channel: &Channel<F, Record>, held: Held) -> Result<Borrowed> {
        let done = self.single_advance(channel, held, true);
        // SAFETY: the token's holder is the only thread on this request.
        let record = unsafe { &mut *channel.record(held) };
        if !record.is_get() || record.rows != 0 {
            return Err(not_in_place());
        }
        if let Some(error) = &record.error {
            return Err(error.clone());
        }
        let rows_total = record.keys as usize;
        let ready = if done {
            record.keys
        } else if record.grows {
            // The header of the answer covers the progress before its word is there: what was ready stays so.
            // SAFETY: as above.
            record.copied = unsafe { channel.progress(held) }.min(record.keys).max(record.copied);
            record.copied
        } else {
            0
        };
        Ok(Borrowed { rows: rows_in_place(channel, held, record), rows_ready: ready as usize, rows_total })
    }

    #[inline(always)]
    pub(super) fn single_revoke(&self, channel: &Channel<F, Record>, held: Held) {
        // SAFETY: the token's holder is the only thread on this request.
        if !matches!(unsafe { (*channel.record(held)).stage }, Stage::Done | Stage::Unread) {
            return self.revoke_unusual(channel, held);
        }
        channel.release(held);
    }

    /// The same for a request that is not done, has failed, or is timed.
    #[cold]
    fn revoke_unusual(&self, channel: &Channel<F, Record>, held: Held) {
        // The server may still write into the slot, and into the caller's memory by our own hand: let it finish. A lane
        // that goes down ends this as well.
        let _ = self.single_wait(channel, held, None);
        // SAFETY: the token's holder is the only thread on this request.
        if unsafe { (*channel.record(held)).stage } == Stage::DoneTimed {
            return self.release_timed(channel, held);
        }
        channel.release(held);
    }

    /// What a finished INIT_TABLE was answered: its tag, and what it was told of a refusal.
    pub(crate) fn answer_of(&self, token: Token) -> (u32, InlineWords) {
        let Some(super::Named::Single { shard, index, use_low }) = token.named() else { return (0, [0; 3]) };
        self.find(shard, index, use_low).map_or((0, [0; 3]), |(channel, held)| {
            // SAFETY: the token's holder is the only thread on this request.
            let record = unsafe { &*channel.record(held) };
            (record.aux, record.inline)
        })
    }
}

/// Where the rows of a GET are that is read in place.
#[inline(always)]
fn rows_in_place<F: Fabric>(channel: &Channel<F, Record>, held: Held, record: &Record) -> *const f32 {
    if record.total as usize <= INLINE_BYTES {
        return record.inline.as_ptr().cast();
    }
    channel.response(held, record.total).cast()
}

/// Copies the rows that have become readable.
fn copy_grown<F: Fabric>(channel: &Channel<F, Record>, held: Held, record: &mut Record) {
    // SAFETY: the token's holder is the only thread on this request.
    let ready = unsafe { channel.progress(held) }.min(record.keys);
    copy_rows(channel.response(held, record.total), record, ready);
}

#[inline(always)]
fn copy_rows(from: *const u8, record: &mut Record, until: u32) {
    let (done, row) = (record.copied as usize, record.row_bytes as usize);
    let bytes = (until.saturating_sub(record.copied)) as usize * row;
    if bytes == 0 {
        return;
    }
    let rows = core::ptr::with_exposed_provenance_mut::<u8>(record.rows);
    // SAFETY: the caller's memory was checked for every row at submit and is kept until the request is done; the answer
    // lies in the response slot, which holds `total` bytes.
    unsafe { core::ptr::copy_nonoverlapping(from.add(done * row), rows.add(done * row), bytes) };
    record.copied = until;
}

#[cold]
fn fail_corrupt<F: Fabric>(channel: &Channel<F, Record>, held: Held, record: &mut Record) {
    let error =
        Error::new(Status::CorruptResponse, "the answer does not agree with its checksum, or answers another request");
    record.fail(channel.describe(held, error));
}

#[cold]
fn fail_refused<F: Fabric>(
    channel: &Channel<F, Record>,
    held: Held,
    record: &mut Record,
    status: RpcStatus,
    inline: [u64; INLINE_BYTES / 8],
) {
    // What INIT_TABLE is told about its refusal.
    record.inline = inline;
    // SAFETY: the token's holder is the only thread on this request, which was sent, for it was answered.
    let sent = unsafe { channel.sent(held) };
    let error = refused(channel.shard(), status, sent.as_ref());
    record.fail(channel.describe(held, error));
}

/// Takes the answer home.
#[inline(always)]
fn settle<F: Fabric>(channel: &Channel<F, Record>, held: Held, record: &mut Record, answer: &ResponseHeader) {
    let status = RpcStatus::from_code(answer.status);
    record.aux = answer.aux;
    if status != RpcStatus::Ok || (record.is_get() && answer.response_bytes != record.total) {
        // Its parts, so that the frequent way keeps the header in registers.
        let inline = answer.inline;
        fail_refused(channel, held, record, status, inline);
        return;
    }
    record.stage = Stage::Done;
    if !record.is_get() || record.lands {
        return;
    }
    if record.total as usize <= INLINE_BYTES {
        record.inline = answer.inline.map(u64::to_le);
        if record.rows != 0 {
            let from = record.inline.as_ptr().cast::<u8>();
            let keys = record.keys;
            copy_rows(from, record, keys);
        }
    } else if record.rows != 0 {
        let keys = record.keys;
        copy_rows(channel.response(held, record.total), record, keys);
    }
}
