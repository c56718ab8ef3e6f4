//! GETs that need no request: their rows lie in memory of the shard that is mapped here.
//!
//! Of one key the row is only found at first, and asked for from memory: it is read when somebody asks for it, and until
//! then the caller can submit others, whose misses go on at the same time. Many keys overlap among themselves, and are
//! read at once. Where reading fails, or the connection turns out to have ended, the request is sent, as if it had never
//! been tried: what goes wrong then is noticed there.

use super::record::{Near, Record, Stage};
use super::tally::fault;
use super::{Plan, PsClient};
use crate::error::{Error, Status};
use crate::fabric::Fabric;
use crate::ps::table::{Calm, Sight, View, Wanted};
use crate::rpc::{Channel, Held, MappedRows};
use crate::time::now;
use crate::wire::{INLINE_BYTES, Op};

/// The shard's rows, as a held slot's connection maps them.
#[inline(always)]
fn view(mapped: MappedRows) -> Option<View> {
    // SAFETY: mapped as long as the slot is held, and longer than any use of the view.
    unsafe { View::new(mapped.base.as_ptr(), mapped.bytes) }
}

/// What is known of a table: looked up once for each slot, table and connection.
#[inline(always)]
fn sight<'n>(mapped: MappedRows, plan: &Plan<'_>, known: &'n mut Option<(u64, Sight)>) -> Option<&'n Sight> {
    let is_known = |(over, sight): &(u64, Sight)| *over == mapped.connection && sight.is_of(plan.table, plan.row_bytes);
    if !known.as_ref().is_some_and(is_known) {
        *known = Some((mapped.connection, view(mapped)?.sight(plan.table, plan.row_bytes)?));
    }
    known.as_ref().map(|(_, sight)| sight)
}

/// Where the rows of a request go.
#[inline(always)]
fn landing<F: Fabric>(channel: &Channel<F, Record>, held: Held, record: &mut Record) -> *mut u8 {
    if record.rows != 0 {
        core::ptr::with_exposed_provenance_mut(record.rows)
    } else if record.total as usize <= INLINE_BYTES {
        record.inline.as_mut_ptr().cast()
    } else {
        channel.response(held, record.total).cast_mut()
    }
}

impl<F: Fabric> PsClient<F> {
    /// Takes a GET on, if its rows lie where this side can read them. False: it is to be sent.
    ///
    /// # Safety
    /// `mapped` is what the connection of the held slot maps, `record` is that slot's, begun; its `rows`, unless 0, are
    /// valid for the whole answer until the request is done.
    #[inline(never)]
    pub(super) unsafe fn reads_by_itself(
        &self,
        channel: &Channel<F, Record>,
        held: Held,
        plan: &Plan<'_>,
        record: &mut Record,
        (mapped, timed): (MappedRows, bool),
    ) -> bool {
        if let ([key], false) = (plan.keys, timed) {
            let near = &mut record.near;
            let mut found = || {
                let sight = sight(mapped, plan, &mut near.sight)?;
                let epoch = sight.view().epoch()?;
                Some((epoch, sight.spot(&self.router, channel.shard(), *key, plan.row_bytes)?))
            };
            let Some((epoch, spot)) = found() else { return false };
            (near.table, near.key, near.epoch, near.spot) = (plan.table, *key, epoch, spot);
            record.stage = Stage::Unread;
            return true;
        }
        let out = landing(channel, held, record);
        // SAFETY: `out` is the caller's memory, or the slot's own, which nobody else writes before the request is sent.
        if !unsafe { self.bring(channel, held, mapped, plan, (out, None), &mut record.near.calm) } {
            return false;
        }
        if timed {
            record.sent();
        }
        record.stage = Stage::Done;
        self.count_read(channel.shard(), held, record);
        if timed {
            self.count_timed(channel, held, record, now());
        }
        true
    }

    /// Copies all rows to `out`, in order or to their positions. False: they could not be read.
    ///
    /// # Safety
    /// The slot is held, and its connection maps `mapped`; `out` is valid for writes of a row for each key, or at each of the positions, which are as many.
    #[inline(always)]
    unsafe fn bring(
        &self,
        channel: &Channel<F, Record>,
        held: Held,
        mapped: MappedRows,
        plan: &Plan<'_>,
        (out, positions): (*mut u8, Option<&[u32]>),
        calm: &mut Calm,
    ) -> bool {
        let Some(view) = view(mapped) else { return false };
        let (router, shard, table, row_bytes) = (&self.router, channel.shard(), plan.table, plan.row_bytes);
        let wanted = Wanted { router, shard, table, keys: plan.keys, row_bytes, out, positions };
        // SAFETY: the caller's promise.
        let read = unsafe { view.read(&wanted, calm) };
        read && channel.is_up(held)
    }

    /// Brings the rows of a part of a batch to their positions in `rows`, if this side can read them. False: the part is to
    /// be sent.
    ///
    /// # Safety
    /// The slot is held; `rows` is valid for writes of a row at each of the positions, which are as many as keys.
    #[inline(never)]
    pub(super) unsafe fn reads_part(
        &self,
        channel: &Channel<F, Record>,
        held: Held,
        plan: &Plan<'_>,
        positions: &[u32],
        rows: *mut u8,
    ) -> bool {
        // SAFETY: the record is the holder's.
        let record = unsafe { &mut *channel.record(held) };
        let calm = &mut record.near.calm;
        // SAFETY: the caller's promise.
        let read = |mapped| unsafe { self.bring(channel, held, mapped, plan, (rows, Some(positions)), calm) };
        // One that is unusual goes the usual way, which knows what to do about it.
        if record.is_unusual || !channel.rows(held).is_some_and(read) {
            return false;
        }
        record.begin(plan, plan.keys.len() * plan.row_bytes);
        record.stage = Stage::Done;
        self.count_read(channel.shard(), held, record);
        true
    }

    /// Reads the row of a request that is unread. False: it could not be.
    #[inline(never)]
    pub(super) fn read_now(&self, channel: &Channel<F, Record>, held: Held, record: &mut Record) -> bool {
        let (out, row_bytes) = (landing(channel, held, record), record.row_bytes as usize);
        let Near { spot, epoch, sight: Some((_, sight)), .. } = &record.near else { return false };
        // SAFETY: the file stays mapped as long as the slot is held; `out` is the caller's memory, or the slot's own.
        let read = unsafe { spot.read(out, row_bytes) };
        if !(read && sight.view().holds(*epoch) && channel.is_up(held)) {
            return false;
        }
        record.stage = Stage::Done;
        self.count_read(channel.shard(), held, record);
        true
    }

    /// Sends a request that is unread and could not be read; true when that fails, and so the request.
    #[cold]
    pub(super) fn ask_late(&self, channel: &Channel<F, Record>, held: Held, record: &mut Record) -> bool {
        let (keys, table) = ([record.near.key], record.near.table);
        let plan = Plan { op: Op::Get, table, keys: &keys, row_bytes: record.row_bytes as usize, part_keys: 1 };
        let rows = core::ptr::with_exposed_provenance_mut::<f32>(record.rows);
        record.stage = Stage::Waiting;
        // SAFETY: the slot is held, and what submit was promised of `rows` holds until the request is done.
        let sent = unsafe {
            match self.compose_get::<F::Region>(channel, held, &plan, (rows, None), record) {
                Some((header, landing)) => channel.send(held, header, landing),
                None => Err(Error::new(Status::Bug, "one row of more than 4 GiB")),
            }
        };
        let Err(mut error) = sent else { return false };
        if self.send_again(channel, held, record, &mut error) {
            return false;
        }
        self.count_fault(channel.shard(), fault::FAILED);
        record.fail(error);
        true
    }
}
