//! What the server does with one committed request: judge every field, call the store, answer.
//!
//! A request is judged on a private copy of its header; keys are copied out before they are used; rows are read in
//! place, once. Whatever the client stores meanwhile can only change its own rows' values. Every request that was
//! committed gets an answer, whatever is wrong with it.

mod small;
mod write;

use super::aside::Aside;
use super::scratch::Scratch;
use super::store::Store;
use crate::fabric::{Access, Fabric, Loan, Mutant, mutated};
use crate::ids::TableTag;
use crate::rpc::{Answer, Claim, Scheme, ServerLane, copy_keys, request_agrees};
use crate::sync::Arc;
use crate::wire::payload::{Command, NAME_BYTES_MAX, TAG_TAKEN, TableSpec};
use crate::wire::{INLINE_BYTES, Op, RemoteBuffer, RequestHeader, RpcStatus, flags};
use std::panic::{AssertUnwindSafe, catch_unwind};

/// Bytes of rows after which a growing answer's progress is published: a page keeps the client's reading and the
/// server's gathering overlapped at the price of one store per 64 lines.
const PROGRESS_BYTES: u32 = 4096;
/// Bytes of a PROBE's nonce.
const PROBE_BYTES: u32 = 8;
/// Longest argument of a COMMAND.
const COMMAND_BYTES_MAX: u32 = 4096;

/// Executes requests of one shard. Threads: any, each with its own [`Scratch`].
#[derive(Clone)]
pub struct Handler {
    store: Arc<dyn Store>,
    shard: u16,
    keys_max: u32,
}

impl core::fmt::Debug for Handler {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.debug_struct("Handler").field("shard", &self.shard).field("keys_max", &self.keys_max).finish_non_exhaustive()
    }
}

/// What is answered goes into an [`Answer`] that the caller has, empty before. A struct of that size that is returned is
/// moved in larger pieces than it was put together in, and these loads would wait until all that was stored before has
/// reached the client's lines: that was a fifth of the time of a PUT.
type Judged = Result<(), RpcStatus>;

pub(super) const EMPTY: Answer =
    Answer { status: 0, bytes: 0, aux: 0, inline: [0; INLINE_BYTES / 8], landed: None, landed_from: core::ptr::null() };

impl Handler {
    /// A handler over a store. `keys_max` bounds the keys of one request.
    #[must_use]
    pub fn new(store: Arc<dyn Store>, shard: u16, keys_max: u32) -> Handler {
        Handler { store, shard, keys_max }
    }

    /// The same handler over another store.
    #[must_use]
    pub fn over(&self, store: Arc<dyn Store>) -> Handler {
        Handler { store, ..self.clone() }
    }

    /// The store.
    #[must_use]
    pub fn store(&self) -> &Arc<dyn Store> {
        &self.store
    }

    /// The shard whose requests it executes.
    #[must_use]
    pub fn shard(&self) -> u16 {
        self.shard
    }

    /// Whether a request may take long and must not be executed by a poll thread.
    #[must_use]
    pub fn is_slow(header: &RequestHeader) -> bool {
        header.op == Op::Command as u8
    }

    /// Fetches what a small request will touch in the store, so that the misses of several requests overlap.
    #[inline]
    pub fn prefetch(&self, worker: u32, header: &RequestHeader) {
        if let (true, Some(keys)) = (header.op <= Op::UpdateFlat as u8, header.inline_keys()) {
            self.store.prefetch(worker, TableTag(header.table), keys);
        }
    }

    /// Executes a request and answers it. A panic of the store is answered with `InternalError`. False: it is a
    /// repetition of a request that is being executed now; hand it in again later.
    #[inline]
    pub fn execute<F: Fabric>(
        &self,
        lane: &ServerLane<F>,
        slot: u32,
        header: &RequestHeader,
        scratch: &mut Scratch,
    ) -> bool {
        self.execute_watched(lane, slot, header, scratch, || {})
    }

    /// The same; `executed` is called when the request is executed and before it is answered.
    #[inline(always)]
    pub fn execute_watched<F: Fabric>(
        &self,
        lane: &ServerLane<F>,
        slot: u32,
        header: &RequestHeader,
        scratch: &mut Scratch,
        executed: impl FnOnce(),
    ) -> bool {
        let once = header.flags & flags::ONCE != 0 && !mutated::<F>(Mutant::NoDedupe);
        if once {
            let known = match lane.parts().window.claim(header.sequence) {
                Claim::Execute => None,
                Claim::UnderWay => return false,
                Claim::Done(status, aux) => Some(Answer { status, aux, ..EMPTY }),
                // Nobody waits for it, or the client made the number up.
                Claim::Obsolete => Some(Answer { status: RpcStatus::InvalidPayload as i32, ..EMPTY }),
            };
            if let Some(known) = known {
                scratch.counts.repeated += 1;
                lane.answer(slot, header, header.flags & flags::CHECKSUM != 0, &known);
                return true;
            }
        }
        let mut answer = EMPTY;
        self.run(lane, slot, header, scratch, &mut answer);
        if let Aside::Fetching(_) = scratch.aside {
            return self.set_aside(lane, slot, header, &answer, scratch);
        }
        executed();
        if once && !mutated::<F>(Mutant::SettleForgotten) {
            // Before the answer: whoever has seen it must find this settled.
            lane.parts().window.settle(header.sequence, answer.status, answer.aux);
        }
        if let Aside::Pinned(_) = scratch.aside {
            return self.set_aside(lane, slot, header, &answer, scratch);
        }
        lane.answer(slot, header, header.flags & flags::CHECKSUM != 0, &answer);
        if scratch.held.is_some() {
            scratch.held = None;
        }
        true
    }

    /// Remembers what was executed, if it is to be executed once, and answers.
    pub(super) fn conclude<F: Fabric>(&self, lane: &ServerLane<F>, slot: u32, header: &RequestHeader, answer: &Answer) {
        if header.flags & flags::ONCE != 0 {
            lane.parts().window.settle(header.sequence, answer.status, answer.aux);
        }
        lane.answer(slot, header, header.flags & flags::CHECKSUM != 0, answer);
    }

    /// Executes a request.
    #[inline]
    pub(super) fn run<F: Fabric>(
        &self,
        lane: &ServerLane<F>,
        slot: u32,
        header: &RequestHeader,
        scratch: &mut Scratch,
        answer: &mut Answer,
    ) {
        let judged = catch_unwind(AssertUnwindSafe(|| self.judge(lane, slot, header, scratch, answer)));
        if !matches!(judged, Ok(Ok(()))) {
            self.refuse(judged, header, scratch, answer);
        }
    }

    #[cold]
    fn refuse(
        &self,
        judged: std::thread::Result<Judged>,
        header: &RequestHeader,
        scratch: &mut Scratch,
        answer: &mut Answer,
    ) {
        let status = match judged {
            Ok(Ok(())) => RpcStatus::Ok,
            Ok(Err(_)) if matches!(scratch.aside, Aside::Fetching(_)) => return,
            Ok(Err(status)) => {
                let internal = u64::from(status == RpcStatus::InternalError);
                scratch.counts.internal_errors += internal;
                scratch.counts.refused += 1 - internal;
                scratch.counts.wrong_shard += u64::from(status == RpcStatus::WrongShard);
                status
            }
            Err(panic) => {
                scratch.counts.internal_errors += 1;
                report_panic(panic.as_ref(), self.shard, header);
                RpcStatus::InternalError
            }
        };
        // Only INIT_TABLE says more than that it was refused.
        let inline = if header.op == Op::InitTable as u8 { answer.inline } else { EMPTY.inline };
        *answer = Answer { status: status as i32, inline, ..EMPTY };
    }

    fn judge<F: Fabric>(
        &self,
        lane: &ServerLane<F>,
        slot: u32,
        h: &RequestHeader,
        scratch: &mut Scratch,
        answer: &mut Answer,
    ) -> Judged {
        let op = Op::from_code(h.op).ok_or(RpcStatus::InvalidPayload)?;
        let homeless = h.flags & (flags::INDEXED | flags::REMOTE_BUFFER) == flags::INDEXED;
        if h.flags & !flags::KNOWN != 0 || h.reserved != 0 || homeless {
            return Err(RpcStatus::InvalidPayload);
        }
        if h.shard != self.shard {
            return Err(RpcStatus::WrongShard);
        }
        if h.payload_bytes > lane.parts().geometry.request_payload_bytes || h.key_count > self.keys_max {
            return Err(RpcStatus::BatchTooLarge);
        }
        let unchecked = h.flags & flags::CHECKSUM != 0 && lane.parts().scheme != Scheme::Crc;
        if unchecked && !request_agrees(lane, slot, h) {
            return Err(RpcStatus::InvalidPayload);
        }
        match op {
            Op::Get => self.get(lane, slot, h, scratch, answer),
            Op::Put | Op::Update | Op::UpdateFlat => self.write(op, lane, slot, h, scratch),
            Op::InitTable => {
                let most = u32::try_from(NAME_BYTES_MAX).unwrap_or(0) + 64;
                let (spec, wanted) = TableSpec::decode_init(&payload_copy(lane, slot, h, most)?)?;
                scratch.counts.init_tables += 1;
                let made = match wanted {
                    0 => self.store.init_table(scratch.worker, &spec).map(Some),
                    _ => self.store.init_table_as(scratch.worker, &spec, TableTag(wanted)),
                };
                if made == Err(RpcStatus::InvalidPayload)
                    && let Some(known) = self.store.spec(&spec.name)
                {
                    answer.inline = known.difference(&spec);
                }
                answer.aux = made?.map_or(TAG_TAKEN, |tag| u32::from(tag.0));
                Ok(())
            }
            Op::Command => {
                let command = Command::decode(&payload_copy(lane, slot, h, COMMAND_BYTES_MAX)?)?;
                scratch.counts.commands += 1;
                self.store.command(scratch.worker, &command)
            }
            Op::Probe if h.payload_bytes != 0 || h.key_count != 0 => Err(RpcStatus::InvalidPayload),
            Op::Probe => {
                (answer.bytes, answer.inline) = (PROBE_BYTES, h.inline);
                Ok(())
            }
        }
    }

    /// Copies the keys out of header or payload.
    #[inline]
    fn keys<F: Fabric>(
        lane: &ServerLane<F>,
        slot: u32,
        h: &RequestHeader,
        keys: &mut Vec<u64>,
    ) -> Result<u32, RpcStatus> {
        keys.clear();
        if let Some(inline) = h.inline_keys() {
            keys.extend_from_slice(inline);
            return Ok(0);
        }
        let bytes = u64::from(h.key_count) * 8;
        if bytes > u64::from(h.payload_bytes) {
            return Err(RpcStatus::InvalidPayload);
        }
        // SAFETY: `payload_bytes` was found to fit the slot, and the keys fit `payload_bytes`.
        unsafe { copy_keys(lane.request_payload(slot), h.key_count as usize, keys) };
        u32::try_from(bytes).map_err(|_| RpcStatus::InvalidPayload)
    }

    #[inline]
    fn get<F: Fabric>(
        &self,
        lane: &ServerLane<F>,
        slot: u32,
        h: &RequestHeader,
        scratch: &mut Scratch,
        answer: &mut Answer,
    ) -> Judged {
        if h.flags & flags::INDEXED != 0 {
            return Err(RpcStatus::InvalidPayload);
        }
        let table = TableTag(h.table);
        let row_bytes = self.store.shape(table).ok_or(RpcStatus::UnknownTable)?.row_bytes();
        let total = u64::from(h.key_count) * u64::from(row_bytes);
        if total != u64::from(h.response_bytes) {
            return Err(RpcStatus::ValueSizeMismatch);
        }
        if Self::keys(lane, slot, h, &mut scratch.keys)? != h.payload_bytes {
            return Err(RpcStatus::InvalidPayload);
        }
        let total = h.response_bytes;
        scratch.counts.gets += 1;
        scratch.counts.get_rows += u64::from(h.key_count);
        scratch.counts.get_bytes += u64::from(total);
        answer.bytes = total;
        let remote = h.remote_buffer();
        if remote.is_none() && total as usize <= INLINE_BYTES {
            let mut room = [0_u64; INLINE_BYTES / 8];
            self.gather(scratch, table, row_bytes, room.as_mut_ptr().cast(), total)?;
            answer.inline = room.map(u64::from_le);
            return Ok(());
        }
        if let Some(buffer) = remote {
            return self.get_into_buffer(lane, (slot, h), (table, row_bytes, total), buffer, scratch, answer);
        }
        if total > lane.parts().geometry.response_payload_bytes {
            return Err(RpcStatus::BatchTooLarge);
        }
        scratch.counts.get_payloads += 1;
        if !lane.has_windows() && self.get_in_place(lane, h, (table, row_bytes), scratch) {
            return Ok(());
        }
        let place = lane.response_payload(slot, total);
        let chunk_rows = (PROGRESS_BYTES / row_bytes).max(1);
        let grows = h.flags & flags::PROGRESS != 0 && lane.has_windows() && h.key_count > 2 * chunk_rows;
        // Without windows the place is a staging area of this side already.
        if h.flags & flags::DIRECT == 0 && lane.has_windows() {
            self.get_staged(scratch, table, row_bytes, place, total)
        } else if grows {
            self.get_growing(lane, slot, h, (table, row_bytes, chunk_rows), place, scratch)
        } else {
            self.gather(scratch, table, row_bytes, place, total)
        }
    }

    /// All rows straight to their place.
    #[inline]
    fn gather(
        &self,
        scratch: &mut Scratch,
        table: TableTag,
        row_bytes: u32,
        place: *mut u8,
        total: u32,
    ) -> Result<(), RpcStatus> {
        debug_assert_eq!(scratch.keys.len() * row_bytes as usize, total as usize);
        // SAFETY: the place has `total` bytes, which is one row per key.
        let stats = unsafe { self.store.get(scratch.worker, table, &scratch.keys, &[], place) }?;
        scratch.counts.missing_rows += u64::from(stats.missing_rows);
        Ok(())
    }

    /// Rows into private memory first, then in one copy to their place: the `staging_copy` mode.
    fn get_staged(
        &self,
        scratch: &mut Scratch,
        table: TableTag,
        row_bytes: u32,
        place: *mut u8,
        total: u32,
    ) -> Result<(), RpcStatus> {
        scratch.counts.staged += 1;
        scratch.staging.resize((total as usize).div_ceil(8), 0);
        let staging = scratch.staging.as_mut_ptr().cast::<u8>();
        self.gather(scratch, table, row_bytes, staging, total)?;
        // SAFETY: both hold `total` bytes; private memory does not overlap the client's.
        unsafe { core::ptr::copy_nonoverlapping(staging, place, total as usize) };
        Ok(())
    }

    /// Rows straight to their place, chunk by chunk, each published as soon as it is there.
    fn get_growing<F: Fabric>(
        &self,
        lane: &ServerLane<F>,
        slot: u32,
        h: &RequestHeader,
        (table, row_bytes, chunk_rows): (TableTag, u32, u32),
        place: *mut u8,
        scratch: &mut Scratch,
    ) -> Result<(), RpcStatus> {
        let sequence = h.commit.slot_sequence();
        let mut done = 0_u32;
        while done < h.key_count {
            let rows = chunk_rows.min(h.key_count - done);
            let (first, end) = (done as usize, (done + rows) as usize);
            let (now, ahead) = scratch.keys[first..].split_at(end - first);
            // SAFETY: the place has one row per key; this chunk's lie at `first` rows.
            let stats = unsafe {
                let out = place.add(first * row_bytes as usize);
                self.store.get(scratch.worker, table, now, ahead, out)
            }?;
            scratch.counts.missing_rows += u64::from(stats.missing_rows);
            done += rows;
            if done < h.key_count {
                lane.publish_progress(slot, sequence, done);
            }
        }
        Ok(())
    }

    fn get_into_buffer<F: Fabric>(
        &self,
        lane: &ServerLane<F>,
        (slot, h): (u32, &RequestHeader),
        (table, row_bytes, total): (TableTag, u32, u32),
        buffer: RemoteBuffer,
        scratch: &mut Scratch,
        answer: &mut Answer,
    ) -> Judged {
        if buffer.bytes < total {
            return Err(RpcStatus::BatchTooLarge);
        }
        if !buffer.address.is_multiple_of(4) {
            return Err(RpcStatus::InvalidPayload);
        }
        let landed = RemoteBuffer { bytes: total, ..buffer };
        if !lane.has_windows() && self.get_in_place(lane, h, (table, row_bytes), scratch) {
            answer.landed = Some(landed);
            return Ok(());
        }
        let place = if lane.has_windows() {
            client_rows(lane, landed, Access::REMOTE_WRITE, &mut scratch.held)?
        } else if total <= lane.parts().geometry.response_payload_bytes {
            lane.response_payload(slot, total)
        } else {
            return Err(RpcStatus::BatchTooLarge);
        };
        self.gather(scratch, table, row_bytes, place, total)?;
        (answer.landed, answer.landed_from) = (Some(landed), place.cast_const());
        Ok(())
    }
}

/// Rows in memory of the client, with plain instructions. Its numbering is its own: that an address is a multiple of 4
/// there says nothing about the place here.
fn client_rows<F: Fabric>(
    lane: &ServerLane<F>,
    buffer: RemoteBuffer,
    access: Access,
    held: &mut Option<Loan>,
) -> Result<*mut u8, RpcStatus> {
    *held = lane.client_memory(buffer, access);
    let place = held.as_ref().map(|held| held.place().as_ptr()).filter(|place| place.addr().is_multiple_of(4));
    place.ok_or(RpcStatus::InvalidPayload)
}

/// A private copy of a small payload.
fn payload_copy<F: Fabric>(
    lane: &ServerLane<F>,
    slot: u32,
    h: &RequestHeader,
    most: u32,
) -> Result<Vec<u8>, RpcStatus> {
    if h.payload_bytes > most || h.key_count != 0 || h.flags & flags::REMOTE_BUFFER != 0 {
        return Err(RpcStatus::InvalidPayload);
    }
    let mut copy = vec![0_u8; h.payload_bytes as usize];
    // SAFETY: `payload_bytes` was found to fit the slot; the copy is ours.
    unsafe { core::ptr::copy_nonoverlapping(lane.request_payload(slot), copy.as_mut_ptr(), copy.len()) };
    Ok(copy)
}

#[cold]
fn report_panic(panic: &(dyn core::any::Any + Send), shard: u16, header: &RequestHeader) {
    let text = panic
        .downcast_ref::<&str>()
        .copied()
        .or_else(|| panic.downcast_ref::<String>().map(String::as_str))
        .unwrap_or("a panic without a message");
    crate::event!(
        crate::observe::Level::ERROR,
        crate::observe::events::HANDLER_EXCEPTION,
        shard,
        op = header.op,
        table = header.table,
        error = text
    );
}
