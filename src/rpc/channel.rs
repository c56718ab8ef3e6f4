//! All lanes of one client to one shard, and the slots that requests take.

use super::bell::Bell;
use super::connection::{Connection, MappedRows};
use super::hints::Hints;
use super::raw::{checksum_foreign, copy_header, fetch_to_read, fetch_to_write, load_acquire};
use super::slot::{Held, Own, Slot};
use super::{ClientLane, ClientLaneParts, Scheme};
use crate::error::{Error, Result, Status};
use crate::fabric::{Fabric, Mutant, mutated};
use crate::lane::DirtyReason;
use crate::sync::{Arc, AtomicPtr, AtomicU32, AtomicU64, CachePadded, Ordering};
use crate::wire::{
    HEADER_BYTES, INLINE_BYTES, Progress, RequestHeader, ResponseHeader, Word, flags, request_checksum,
    response_offsets,
};
use core::cell::UnsafeCell;

/// Why no slot was had.
#[derive(Debug)]
pub enum AcquireError {
    /// All slots of usable lanes are held.
    NoSlot,
    /// The same, but slots that no request holds are on their way: of a lane that is being connected for the first time,
    /// or the one of a probe.
    Soon,
    /// No lane is usable; the error of the one that says most about why.
    Down(Box<Error>),
}

/// What is thought of an answer.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Judgement {
    /// It is this request's, and agrees with its checksum if it has one.
    Whole,
    /// Some of it is still on its way.
    NotYet,
    /// It does not agree with its own checksum, or answers another request.
    Corrupt,
}

/// All lanes of one client to one shard.
///
/// `R` is what the layer above keeps with each request. Threads: any; a held slot belongs to one thread at a time.
#[derive(Debug)]
pub struct Channel<F: Fabric, R> {
    shard: u32,
    pub(super) checksum: bool,
    request_bytes_max: u32,
    response_bytes_max: u32,
    has_windows: bool,
    pub(super) lanes: Box<[ClientLane<F>]>,
    pub(super) slots: Box<[CachePadded<Slot<F, R>>]>,
    /// Raised when a probe begins and when it ends: there is one at a time.
    pub(super) probes: AtomicU32,
    /// Where each thread looks first: the slot it released last.
    hints: Hints,
}

/// How many slots ahead answers are asked for: one comes from the server's core in the time of about two small requests.
const FETCHED_AHEAD: usize = 2;

/// A caller that holds the slot so far ahead of the one it gives back has many requests under way.
const DEEP: usize = 12;

impl<F: Fabric, R: Default + Send> Channel<F, R> {
    /// A channel of `lanes` lanes, the first of which are connected; slots have the same sizes everywhere. Whoever looks
    /// after lanes sleeps on `bell`.
    ///
    /// # Errors
    /// `DeploymentMismatch` when the server's region does not hold the slots of the geometry; `Bug` without a lane that
    /// is connected.
    pub fn new(
        shard: u32,
        checksum: bool,
        lanes: u32,
        parts: Vec<ClientLaneParts<F>>,
        bell: &Arc<Bell>,
    ) -> Result<Channel<F, R>> {
        let connected = parts.into_iter().map(|parts| ClientLane::new(parts, Arc::clone(bell)));
        let mut lanes_made: Vec<ClientLane<F>> = connected.collect();
        let first = lanes_made.first().and_then(ClientLane::connection);
        let first = first.ok_or_else(|| Error::new(Status::Bug, "a channel without a lane that is connected"))?;
        for lane in u32::try_from(lanes_made.len()).unwrap_or(u32::MAX)..lanes {
            lanes_made.push(ClientLane::unconnected(shard, lane, Arc::clone(bell)));
        }
        let lanes = lanes_made.into_boxed_slice();
        let sizes = first.parts().there.geometry;
        let mut slots = Vec::new();
        for lane in &lanes {
            // Slots of a lane that is not connected yet wait in the places of the first one: nobody takes them.
            let connection = lane.connection().unwrap_or_else(|| Arc::clone(&first));
            let generation = if lane.is_fresh() { 0 } else { connection.parts().generation };
            for slot in 0..sizes.slots {
                let places = connection.places(slot).ok_or_else(|| {
                    let message = format!("the region of shard {shard} does not hold the slots that it offered");
                    Error::new(Status::DeploymentMismatch, message).at_shard(shard)
                })?;
                slots.push(CachePadded(Slot {
                    state: AtomicU64::new(0),
                    working: AtomicU32::new(0),
                    slow: AtomicU64::new(0),
                    arrived: AtomicU32::new(0),
                    generation: AtomicU32::new(generation),
                    answer_hint: AtomicPtr::new(places.response_header.cast_mut()),
                    request_hint: AtomicPtr::new(places.request_header),
                    lane: lane.number(),
                    slot,
                    own: UnsafeCell::new(Own {
                        word: Word::new(connection.parts().generation, 0),
                        landing: core::ptr::null(),
                        places,
                        connection: Arc::clone(&connection),
                        at: slot,
                        via: u32::try_from(slots.len()).unwrap_or(u32::MAX),
                        is_bare: false,
                        is_plain: connection.is_plain(checksum),
                        record: R::default(),
                    }),
                }));
            }
            if !lane.is_fresh() && connection.parts().scheme == Scheme::Imm && !connection.replenish(sizes.slots) {
                lane.fail(connection.parts().generation, DirtyReason::PostFailed);
            }
        }
        Ok(Channel {
            shard,
            checksum,
            request_bytes_max: sizes.request_payload_bytes,
            response_bytes_max: sizes.response_payload_bytes,
            has_windows: first.parts().staging.is_none(),
            lanes,
            slots: slots.into_boxed_slice(),
            probes: AtomicU32::new(0),
            hints: Hints::new(),
        })
    }
}

impl<F: Fabric, R> Channel<F, R> {
    /// The shard it leads to.
    #[must_use]
    pub fn shard(&self) -> u32 {
        self.shard
    }

    /// Its lanes.
    #[must_use]
    pub fn lanes(&self) -> &[ClientLane<F>] {
        &self.lanes
    }

    /// Whether requests are stored straight into the server's memory, and the server reaches this side's the same way.
    #[must_use]
    pub fn has_windows(&self) -> bool {
        self.has_windows
    }

    /// Number of slots of all lanes.
    #[must_use]
    pub fn slot_count(&self) -> usize {
        self.slots.len()
    }

    /// Slots that are held now.
    #[must_use]
    pub fn held_count(&self) -> usize {
        self.slots.iter().filter(|slot| slot.state.load(Ordering::Relaxed) & 1 == 1).count()
    }

    /// Uses of slots that have ended.
    #[must_use]
    pub fn use_count(&self) -> u64 {
        self.slots.iter().map(|slot| slot.state.load(Ordering::Relaxed) >> 1).sum()
    }

    pub(super) fn lane_of(&self, slot: &Slot<F, R>) -> &ClientLane<F> {
        &self.lanes[slot.lane as usize]
    }

    /// Takes a free slot of a usable lane: the one this thread released last, whose lines are still warm, or else the
    /// one after the last that it took, which is most likely free when many are taken in a row.
    ///
    /// # Errors
    /// [`AcquireError`].
    #[inline(always)]
    pub fn acquire(&self) -> core::result::Result<Held, AcquireError> {
        let hint = self.hints.mine();
        let first = hint.load(Ordering::Relaxed);
        if (first as usize) < self.slots.len()
            && let Some(held) = self.try_take(first as usize)
        {
            hint.store(first + 1, Ordering::Relaxed);
            return Ok(held);
        }
        self.acquire_any(hint, first as usize)
    }

    #[inline(never)]
    fn acquire_any(&self, hint: &AtomicU32, first: usize) -> core::result::Result<Held, AcquireError> {
        let count = self.slots.len();
        let start = if first < count { first } else { 0 };
        // Acquire: before the look at the slots. See `why_none`.
        let probes = self.probes.load(Ordering::Acquire);
        let found = (start..count).chain(0..start).find_map(|index| self.try_take(index));
        if let Some(held) = found {
            hint.store(held.index + 1, Ordering::Relaxed);
        }
        found.ok_or_else(|| self.why_none(probes))
    }

    #[inline(always)]
    pub(super) fn try_take(&self, index: usize) -> Option<Held> {
        let slot = &self.slots[index];
        let state = slot.state.load(Ordering::Relaxed);
        if state & 1 == 1 {
            return None;
        }
        let active = self.lane_of(slot).active();
        if active == 0 {
            self.lane_of(slot).want();
            return None;
        }
        // Acquire: pairs with the Release of `release`, so that the last holder's writes to `own` are seen.
        slot.state.compare_exchange(state, state | 1, Ordering::Acquire, Ordering::Relaxed).ok()?;
        #[allow(clippy::cast_possible_truncation)] // slot counts are far below 2^32
        let held = Held { index: index as u32, use_count: state >> 1 };
        let is_home = slot.generation.load(Ordering::Relaxed) == active || mutated::<F>(Mutant::SlotIgnoresGeneration);
        if !is_home && !self.move_home(held) {
            self.release(held);
            return None;
        }
        Some(held)
    }

    /// The held use of a slot whose low bits of the use count are these: how a token finds its request.
    #[inline(always)]
    #[must_use]
    pub fn resolve(&self, index: u32, use_low: u64, mask: u64) -> Option<Held> {
        let state = self.slots.get(index as usize)?.state.load(Ordering::Relaxed);
        (state & 1 == 1 && (state >> 1) & mask == use_low).then_some(Held { index, use_count: state >> 1 })
    }

    /// What the layer above keeps with the request.
    ///
    /// # Safety
    /// The caller holds the slot and is the only thread working on this request; the pointer is not used after
    /// [`Channel::release`].
    #[inline(always)]
    #[must_use]
    pub unsafe fn record(&self, held: Held) -> *mut R {
        let own = self.slots[held.index as usize].own.get();
        // SAFETY: the holder has `own` to itself.
        unsafe { &raw mut (*own).record }
    }

    /// Where the request's payload is put together.
    #[inline(always)]
    #[must_use]
    pub fn payload(&self, held: Held) -> *mut u8 {
        // SAFETY: the holder has `own` to itself, and the caller is the holder.
        unsafe { (*self.slots[held.index as usize].own.get()).places.request_payload }
    }

    /// Where the server's rows are mapped as long as the slot is held, if they are.
    #[inline(always)]
    #[must_use]
    pub fn rows(&self, held: Held) -> Option<MappedRows> {
        // SAFETY: the holder has `own` to itself, and the caller is the holder.
        unsafe { (*self.slots[held.index as usize].own.get()).connection.rows() }
    }

    /// Whether the connection of a held slot is in use, as far as is known.
    #[inline(always)]
    #[must_use]
    pub fn is_up(&self, held: Held) -> bool {
        // SAFETY: the holder has `own` to itself, and the caller is the holder.
        unsafe { (*self.slots[held.index as usize].own.get()).connection.is_up() }
    }

    /// Most payload bytes of a request.
    #[must_use]
    pub fn payload_bytes_max(&self) -> u32 {
        self.request_bytes_max
    }

    /// Most payload bytes of an answer in the slot.
    #[must_use]
    pub fn response_bytes_max(&self) -> u32 {
        self.response_bytes_max
    }

    /// Where an answer of this length lies in the slot.
    #[inline(always)]
    #[must_use]
    pub fn response(&self, held: Held, bytes: u32) -> *const u8 {
        // SAFETY: the holder has `own` to itself, and the caller is the holder.
        let header = unsafe { (*self.slots[held.index as usize].own.get()).places.response_header };
        header.wrapping_sub(crate::wire::Geometry::response_payload_distance(bytes))
    }

    /// The connection that the request of a held slot is on, and the slot's number there.
    #[cold]
    pub(super) fn where_is(&self, held: Held) -> (Arc<Connection<F>>, u32) {
        // SAFETY: the holder has `own` to itself, and the caller is the holder.
        let own = unsafe { &*self.slots[held.index as usize].own.get() };
        (Arc::clone(&own.connection), own.at)
    }

    /// Sends the request: `header` with operation, flags, table, counts and inline bytes set; the rest is filled here.
    /// `landing` is where rows will lie when the header names a remote buffer, else null.
    ///
    /// # Safety
    /// The caller holds the slot, has written `header.payload_bytes` bytes to [`Channel::payload`], and keeps `landing`
    /// valid for the expected answer until the request is done.
    ///
    /// # Errors
    /// The lane is down; nothing was executed.
    #[inline(always)]
    pub unsafe fn send(&self, held: Held, mut header: RequestHeader, landing: *const u8) -> Result<()> {
        let slot = &self.slots[held.index as usize];
        // SAFETY: the holder has `own` to itself.
        let own = unsafe { &mut *slot.own.get() };
        own.word = own.word.next();
        own.landing = landing;
        own.is_bare = header.payload_bytes == 0;
        header.sequence = RequestHeader::identity(held.index, held.use_count);
        #[allow(clippy::cast_possible_truncation)] // options bound the number of shards far below 2^16
        {
            header.shard = self.shard as u16;
        }
        self.commit(own, header).map_err(|failure| self.not_sent(held, failure))
    }

    /// Stamps the header of a request that lies in its slot with word and checksum, and hands it over.
    #[inline(always)]
    pub(super) fn commit(
        &self,
        own: &Own<F, R>,
        mut header: RequestHeader,
    ) -> core::result::Result<(), super::connection::NotPosted> {
        header.commit = own.word;
        if own.is_plain {
            // SAFETY: the places are those of a slot of this connection, which the caller holds.
            unsafe { own.connection.commit_plain(&own.places, &header.to_words()) };
            return Ok(());
        }
        self.commit_elaborate(own, header)
    }

    #[inline(never)]
    fn commit_elaborate(
        &self,
        own: &Own<F, R>,
        mut header: RequestHeader,
    ) -> core::result::Result<(), super::connection::NotPosted> {
        let connection = &*own.connection;
        if self.checksum || connection.parts().scheme == Scheme::Crc {
            header.flags |= flags::CHECKSUM;
            header.checksum = 0;
            let sum = request_checksum(&header.to_words());
            // SAFETY: the holder of the slot wrote that many payload bytes.
            header.checksum =
                unsafe { checksum_foreign(sum, own.places.request_payload, header.payload_bytes as usize) };
        }
        // SAFETY: the places are those of the slot `at` of this connection.
        unsafe { connection.commit(&own.places, own.at, &header.to_words(), header.payload_bytes) }
    }

    #[cold]
    fn not_sent(&self, held: Held, failure: super::connection::NotPosted) -> Box<Error> {
        let (connection, _) = self.where_is(held);
        let error = self.lanes[connection.parts().lane as usize].post_failed(&connection, failure);
        self.check_siblings(&connection);
        self.describe(held, error)
    }

    /// Slots are taken in the order in which they were given back, so callers with several requests under way mostly go
    /// through them in order: what a later one will touch is asked for while this one is worked on. Not when that one is
    /// free: then there are few requests at a time.
    #[inline(always)]
    fn fetch_ahead(&self, index: u32, fetch: impl Fn(&Slot<F, R>)) {
        let later = index as usize + FETCHED_AHEAD;
        let later = if later < self.slots.len() { later } else { later - self.slots.len() };
        if let Some(later) = self.slots.get(later)
            && later.state.load(Ordering::Relaxed) & 1 == 1
        {
            fetch(later);
        }
    }

    /// A caller with many small requests under way takes this slot again at once, and then the next one: the line of the
    /// next one's request is taken back from the server meanwhile, so that its stores do not wait for that. 17 % at a
    /// depth of 32; with few under way, or payload beside the header, the server would only lose the line too early.
    #[inline(always)]
    fn claim_next(&self, index: u32, is_bare: bool) {
        let index = index as usize;
        let count = self.slots.len();
        let ahead = if index + DEEP < count { index + DEEP } else { (index + DEEP) % count };
        if is_bare
            && self.slots[ahead].state.load(Ordering::Relaxed) & 1 == 1
            && let Some(next) = self.slots.get(index + 1)
            && next.state.load(Ordering::Relaxed) & 1 == 1
        {
            fetch_to_write(next.request_hint.load(Ordering::Relaxed).cast_const());
        }
    }

    /// Whether the answer's word is there. `expected_bytes` is what the answer will bring.
    ///
    /// # Safety
    /// The caller holds the slot and is the only thread working on this request.
    #[inline(always)]
    pub unsafe fn is_answered(&self, held: Held, expected_bytes: u32) -> bool {
        let slot = &self.slots[held.index as usize];
        // SAFETY: the holder has `own` to itself.
        let own = unsafe { &*slot.own.get() };
        let connection = &*own.connection;
        if !own.is_plain && connection.parts().scheme == Scheme::Imm && !self.immediate_arrived(own) {
            return false;
        }
        // SAFETY: the places are this connection's.
        if unsafe { connection.is_answered(&own.places, own.word) } {
            self.fetch_ahead(held.index, |later| {
                let header = later.answer_hint.load(Ordering::Relaxed).cast_const();
                fetch_to_read(header);
                fetch_to_read(header.wrapping_sub(HEADER_BYTES));
            });
            return true;
        }
        if (INLINE_BYTES + 1..=HEADER_BYTES).contains(&(expected_bytes as usize)) {
            // The line before the header is the whole answer: it comes along, not after.
            fetch_to_read(own.places.response_header.wrapping_sub(HEADER_BYTES));
        }
        false
    }

    /// A private copy of an answer's header, nothing of it judged.
    ///
    /// # Safety
    /// As [`Channel::is_answered`], which was true.
    #[inline(always)]
    #[must_use]
    pub unsafe fn answer(&self, held: Held) -> ResponseHeader {
        // SAFETY: the holder has `own` to itself; the response header lies in the connection's own region.
        let words = unsafe { copy_header((*self.slots[held.index as usize].own.get()).places.response_header) };
        ResponseHeader::from_words(&words)
    }

    /// Whether an answer is whole and this request's. `expected_bytes` bounds one that lands outside the slot.
    ///
    /// # Safety
    /// As [`Channel::is_answered`]; `header` is what [`Channel::answer`] gave.
    #[inline(always)]
    #[must_use]
    pub unsafe fn judge(&self, held: Held, expected_bytes: u32, header: &ResponseHeader) -> Judgement {
        // SAFETY: the holder has `own` to itself.
        let own = unsafe { &*self.slots[held.index as usize].own.get() };
        if own.is_plain && header.sequence == RequestHeader::identity(held.index, held.use_count) {
            return Judgement::Whole;
        }
        // A copy, so that only this way needs the header in memory.
        let copy = *header;
        self.judge_elaborate(held, own, expected_bytes, &copy)
    }

    #[inline(never)]
    fn judge_elaborate(&self, held: Held, own: &Own<F, R>, expected_bytes: u32, header: &ResponseHeader) -> Judgement {
        let connection = &*own.connection;
        if header.sequence != RequestHeader::identity(held.index, held.use_count) {
            // Under `crc` the word may come before the rest of its header.
            let torn = connection.parts().scheme == Scheme::Crc && !mutated::<F>(Mutant::ClientJudgesTornHeader);
            return if torn { Judgement::NotYet } else { Judgement::Corrupt };
        }
        if mutated::<F>(Mutant::ClientSkipsChecksum) {
            return Judgement::Whole;
        }
        if self.checksum || connection.parts().scheme == Scheme::Crc {
            let fits = header.response_bytes <= expected_bytes || own.landing.is_null();
            if !fits || !connection.agrees(&own.places, own.landing, header) {
                // Under `crc` the bytes may still be on their way; otherwise they are not coming any more.
                return if connection.parts().scheme == Scheme::Crc { Judgement::NotYet } else { Judgement::Corrupt };
            }
        }
        Judgement::Whole
    }

    /// Rows of the answer that are readable already.
    ///
    /// # Safety
    /// The caller holds the slot and is the only thread working on this request.
    #[inline]
    #[must_use]
    pub unsafe fn progress(&self, held: Held) -> u32 {
        let slot = &self.slots[held.index as usize];
        // SAFETY: the holder has `own` to itself; the response header lies in the lane's own region.
        let (word, sequence) = unsafe {
            let own = &*slot.own.get();
            (load_acquire(own.places.response_header, response_offsets::PROGRESS), own.word.slot_sequence())
        };
        Progress(word).rows(sequence)
    }

    /// Looks at the slow signs of the request's lane.
    ///
    /// # Errors
    /// What ended the lane, with slot and sequence.
    #[cold]
    pub fn check(&self, held: Held) -> Result<()> {
        let (connection, _) = self.where_is(held);
        let lane = &self.lanes[connection.parts().lane as usize];
        lane.check_connection(&connection).map_err(|error| {
            self.check_siblings(&connection);
            self.describe(held, error)
        })
    }

    /// A process that is gone takes all its lanes with it, though the others may not show it yet: whoever comes next is to
    /// know, before he sends into the void.
    fn check_siblings(&self, ended: &Connection<F>) {
        if ended.ended() == Some(DirtyReason::PeerGone) {
            let incarnation = ended.parts().witness.incarnation;
            self.lanes.iter().for_each(|lane| lane.fail_peer(incarnation, DirtyReason::PeerGone));
        }
    }

    /// Adds what is known about the request to an error.
    #[cold]
    #[must_use]
    pub fn describe(&self, held: Held, mut error: Box<Error>) -> Box<Error> {
        let (connection, slot) = self.where_is(held);
        error.shard = Some(self.shard);
        error.lane = Some(connection.parts().lane);
        error.slot = Some(slot);
        error.generation = connection.parts().generation;
        error.sequence = RequestHeader::identity(held.index, held.use_count);
        error
    }

    /// The answer did not come: ends the lane, because the server may still write into the slot.
    #[cold]
    pub fn timed_out(&self, held: Held) -> Box<Error> {
        let (connection, _) = self.where_is(held);
        let parts = connection.parts();
        if !mutated::<F>(Mutant::TimeoutKeepsLane) {
            self.lanes[parts.lane as usize].fail(parts.generation, DirtyReason::WaitTimeout);
        }
        self.describe(held, connection.error())
    }

    /// Gives the slot back. False when this use of it was given back before.
    ///
    /// On a lane that is not Active it is not handed out again, whoever gives it back, until the lane is rebuilt.
    #[inline(always)]
    pub fn release(&self, held: Held) -> bool {
        let slot = &self.slots[held.index as usize];
        let state = (held.use_count << 1) | 1;
        if slot.state.load(Ordering::Relaxed) != state {
            return false;
        }
        // SAFETY: the caller is the holder, and the holder has `own` to itself.
        if unsafe { (*slot.own.get()).via } != held.index {
            self.give_back_borrowed(held);
        }
        // SAFETY: the holder has `own` to itself until the store below.
        let is_bare = unsafe { (*slot.own.get()).is_bare };
        slot.working.store(0, Ordering::Relaxed);
        // A plain store, not an exchange: an exchange would wait until every store before it has reached the server's
        // lines, and so put one crossing of cores into each request. One thread at a time works on a request, so nobody
        // else changes a held slot.
        // Release: pairs with the Acquire of `try_take`.
        slot.state.store(state + 1, Ordering::Release);
        self.hints.mine().store(held.index, Ordering::Relaxed);
        self.claim_next(held.index, is_bare);
        true
    }
}
