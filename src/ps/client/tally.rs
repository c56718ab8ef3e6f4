//! What a client counts once per request, where somebody asked for it: into rows of a page that other processes may be
//! reading.
//!
//! A row belongs to a slot. A slot is held by one thread from submit to revoke, and handed on with Release and Acquire, so
//! its row has one writer at a time without a look-up of the thread, and its line is as warm as the slot's own.

use super::PsClient;
use super::record::{Record, Stage};
use crate::fabric::Fabric;
use crate::observe::histogram;
use crate::observe::page::{Buckets, Page, Rows, count};
use crate::rpc::{Channel, Held};
use crate::sync::{Arc, AtomicU64, Ordering};
use crate::time::{Tick, now};
use crate::wire::{INLINE_BYTES, Op};

/// Words of a slot's row.
pub const WIDTH: usize = 24;

/// Words of a slot's row, by place.
pub mod word {
    /// GETs that were answered well.
    pub const GETS: usize = 0;
    /// PUTs.
    pub const PUTS: usize = 1;
    /// UPDATEs of both kinds.
    pub const UPDATES: usize = 2;
    /// INIT_TABLEs, COMMANDs.
    pub const OTHERS: usize = 3;
    /// Keys of all of them.
    pub const KEYS: usize = 4;
    /// Bytes of rows that GETs brought.
    pub const BYTES: usize = 5;
    /// Requests with more than their own cache line.
    pub const PAYLOADS: usize = 6;
    /// Answers with more than their own cache line.
    pub const ANSWER_PAYLOADS: usize = 7;
    /// Time of submits that were timed.
    pub const SUBMIT_NS: usize = 8;
    /// Time from there until the answer was seen.
    pub const WAIT_NS: usize = 9;
    /// Time in which it was taken home.
    pub const COPY_NS: usize = 10;
    /// Time of giving the slot back.
    pub const REVOKE_NS: usize = 11;
    /// Requests that were timed.
    pub const TIMED: usize = 12;
    /// Revokes that were timed.
    pub const TIMED_REVOKES: usize = 13;
    /// Slots held, added up over the requests that were timed.
    pub const PENDING: usize = 14;
    /// Most of these.
    pub const PENDING_PEAK: usize = 15;
    /// GETs whose rows this side read by itself.
    pub const OWN_READS: usize = 16;
}

/// Words of a shard's row of what goes wrong. Any thread adds to them.
pub const FAULT_WIDTH: usize = 4;

/// Words of a shard's row of what goes wrong, by place.
pub mod fault {
    /// Requests that failed.
    pub const FAILED: usize = 0;
    /// Those without an answer in time.
    pub const TIMEOUTS: usize = 1;
    /// Requests sent again.
    pub const RETRIES: usize = 2;
    /// Slots that were looked for in vain.
    pub const NO_SLOT: usize = 3;
}

/// Where a client counts.
#[derive(Debug)]
pub struct Tallies {
    /// For each shard, a row per slot.
    pub slots: Box<[Rows<WIDTH>]>,
    /// A row per shard.
    pub faults: Rows<FAULT_WIDTH>,
    /// Latencies of GET, PUT and UPDATE.
    pub latency: [Buckets; 3],
    /// The page that all of it lies in.
    pub page: Arc<Page>,
    /// A slot's request is timed when its number of use has none of these bits; all bits: never.
    pub sample_mask: u64,
}

/// When a timed request was where.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Times {
    due: bool,
    begun: Tick,
    sent: Tick,
}

impl Times {
    /// A request begins in the slot. True: it is timed.
    pub(super) fn begin(&mut self) -> bool {
        let due = core::mem::take(&mut self.due);
        if due {
            self.begun = now();
            self.sent = self.begun;
        }
        due
    }

    pub(super) fn sent(&mut self) {
        self.sent = now();
    }
}

impl Tallies {
    /// Counts an answer that was taken home.
    #[inline]
    fn answered(&self, shard: u32, held: Held, record: &mut Record) {
        if record.stage == Stage::Failed {
            self.fault(shard, fault::FAILED);
            return;
        }
        let Some(rows) = self.slots.get(shard as usize) else { return };
        let row = rows.row(held.index as usize);
        let (place, bytes, bare) = match record.op {
            op if op == Op::Get as u8 => {
                (word::GETS, u64::from(record.total), record.keys as usize * 8 <= INLINE_BYTES)
            }
            op if op == Op::Put as u8 => (word::PUTS, 0, false),
            op if op == Op::Update as u8 || op == Op::UpdateFlat as u8 => (word::UPDATES, 0, false),
            _ => (word::OTHERS, 0, false),
        };
        count(&row[place], 1);
        count(&row[word::KEYS], u64::from(record.keys));
        // Branches that go one way for one kind of request are cheaper than adding nothing.
        if !bare {
            count(&row[word::PAYLOADS], 1);
        }
        if bytes > 0 {
            count(&row[word::BYTES], bytes);
            if bytes > INLINE_BYTES as u64 {
                count(&row[word::ANSWER_PAYLOADS], 1);
            }
        }
        if held.use_count & self.sample_mask == 0 && self.sample_mask != u64::MAX {
            record.times.due = true;
            record.is_unusual = true;
        }
    }

    #[cold]
    fn fault(&self, shard: u32, place: usize) {
        // Any thread may meet a fault of any shard: a locked add, for it is rare.
        self.faults.row(shard as usize)[place].fetch_add(1, Ordering::Relaxed);
    }

    #[cold]
    fn timed<F: Fabric>(&self, channel: &Channel<F, Record>, held: Held, record: &Record, seen: Tick) {
        let end = now();
        let Some(rows) = self.slots.get(channel.shard() as usize) else { return };
        let row = rows.row(held.index as usize);
        count(&row[word::SUBMIT_NS], record.times.sent.since_ns(record.times.begun));
        count(&row[word::WAIT_NS], seen.since_ns(record.times.sent));
        count(&row[word::COPY_NS], end.since_ns(seen));
        count(&row[word::TIMED], 1);
        let pending = channel.held_count() as u64;
        count(&row[word::PENDING], pending);
        raise(&row[word::PENDING_PEAK], pending);
        let place = match record.op {
            op if op == Op::Get as u8 => 0,
            op if op == Op::Put as u8 => 1,
            _ => 2,
        };
        histogram::add(self.page.buckets(self.latency[place]), end.since_ns(record.times.begun));
    }
}

fn raise(word: &AtomicU64, value: u64) {
    if value > word.load(Ordering::Relaxed) {
        word.store(value, Ordering::Relaxed);
    }
}

impl<F: Fabric> PsClient<F> {
    /// From now on requests are counted. Called before the first one.
    pub fn count_into(&mut self, tallies: Tallies) {
        self.tallies = Some(Box::new(tallies));
    }

    /// Where requests are counted, if they are.
    #[must_use]
    pub fn tallies(&self) -> Option<&Tallies> {
        self.tallies.as_deref()
    }

    #[inline(always)]
    pub(super) fn count_answered(&self, shard: u32, held: Held, record: &mut Record) {
        if let Some(tallies) = &self.tallies {
            tallies.answered(shard, held, record);
        }
    }

    /// The same for a GET whose rows this side read by itself.
    #[inline(always)]
    pub(super) fn count_read(&self, shard: u32, held: Held, record: &mut Record) {
        if let Some(tallies) = &self.tallies {
            tallies.answered(shard, held, record);
            if let Some(rows) = tallies.slots.get(shard as usize) {
                count(&rows.row(held.index as usize)[word::OWN_READS], 1);
            }
        }
    }

    #[cold]
    pub(super) fn count_timed(&self, channel: &Channel<F, Record>, held: Held, record: &mut Record, seen: Tick) {
        if let Some(tallies) = &self.tallies
            && record.stage == Stage::Done
        {
            record.stage = Stage::DoneTimed;
            tallies.timed(channel, held, record, seen);
        }
    }

    /// Gives back the slot of a request that was timed.
    #[cold]
    pub(super) fn release_timed(&self, channel: &Channel<F, Record>, held: Held) {
        let begun = now();
        let Some(rows) = self.tallies.as_ref().and_then(|tallies| tallies.slots.get(channel.shard() as usize)) else {
            channel.release(held);
            return;
        };
        // The row is this thread's only while the slot is: what is measured is the way there and back.
        let row = rows.row(held.index as usize);
        count(&row[word::REVOKE_NS], now().since_ns(begun));
        count(&row[word::TIMED_REVOKES], 1);
        channel.release(held);
    }

    #[cold]
    pub(super) fn count_fault(&self, shard: u32, place: usize) {
        if let Some(tallies) = &self.tallies {
            tallies.fault(shard, place);
        }
    }
}
