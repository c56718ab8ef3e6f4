//! What a server's end of a lane posts to a device: answers, rows where they lie, and reads of a client's memory.

use super::Scheme;
use super::fetch::{Posted, take_completions};
use super::raw::{checksum_foreign, store_header};
use super::server_lane::{Answer, ServerLane, header_of};
use crate::fabric::{Fabric, PostError, Qp, Region, RemoteAddr, Sge, Work, WorkOp};
use crate::wire::{Geometry, HEADER_BYTES, RemoteBuffer, RequestHeader, RpcStatus, response_checksum};

/// Most writes of one answer.
const WRITES_MAX: usize = 64;
/// Most pieces of one answer: what one list holds.
pub const PIECES_MAX: usize = 1024;

impl<F: Fabric> ServerLane<F> {
    #[cold]
    pub(super) fn post_answer(&self, slot: u32, answer: &Answer, in_slot: bool) {
        let parts = &self.parts;
        let header_at = parts.there.geometry.response_header(parts.there.place, slot);
        let distance =
            if in_slot && !self.has_windows() { Geometry::response_payload_distance(answer.bytes) } else { 0 };
        let lkey = parts.staging.as_ref().map_or(0, Region::lkey);
        let bytes = u32::try_from(distance + HEADER_BYTES).unwrap_or(u32::MAX);
        let address = self.slots[slot as usize].response_header.wrapping_sub(distance).cast_const();
        let whole = [Sge { address, bytes, lkey }];
        let rows = [Sge { address: answer.landed_from, bytes: answer.bytes, lkey }];
        let landed = answer.landed.unwrap_or_default();
        let signaled = self.signals.next(parts.qp.send_depth());
        let wr_id = (u64::from(parts.generation) << 32) | u64::from(parts.lane);
        let op = self.header_op(slot);
        let remote = RemoteAddr { address: parts.remote.iova + (header_at - distance) as u64, rkey: parts.remote.rkey };
        let chain = [
            Work {
                wr_id,
                op: WorkOp::Write,
                local: &rows,
                remote: RemoteAddr { address: landed.address, rkey: landed.rkey },
                signaled: false,
            },
            Work { wr_id, op, local: &whole, remote, signaled },
        ];
        let skip = usize::from(answer.landed.is_none() || self.has_windows());
        self.post(&chain[skip..]);
    }

    fn post(&self, chain: &[Work<'_>]) {
        for _ in 0..2 {
            // SAFETY: local memory is the lane's staging; a slot's staging is not changed before its next request,
            // which the client sends only after this answer has arrived. Rows in place are pinned by whoever sends them,
            // until the completion.
            match unsafe { self.parts.qp.post(chain) } {
                Ok(()) => return,
                Err(PostError::QueueFull) => self.harvest(),
                Err(_) => break,
            }
        }
        self.fail();
    }

    fn harvest(&self) {
        take_completions::<F>(&self.parts.send_cq);
    }

    fn header_op(&self, slot: u32) -> WorkOp {
        let parts = &self.parts;
        match parts.scheme {
            Scheme::Imm => WorkOp::WriteImm(parts.lane * parts.geometry.slots + slot),
            _ => WorkOp::Write,
        }
    }

    /// How many pieces of memory an answer can be sent from, so that answers of all slots have room in the send queue
    /// twice.
    #[must_use]
    pub fn pieces_max(&self) -> usize {
        let depth = self.parts.qp.send_depth() / (2 * self.parts.geometry.slots.max(1));
        let writes = (depth as usize).min(WRITES_MAX).saturating_sub(1);
        // One is the header's, one the gap's before it.
        (writes * self.parts.qp.send_pieces() as usize).min(PIECES_MAX).saturating_sub(2)
    }

    /// As [`ServerLane::answer`], with rows that are sent from where they lie: `pieces` are `answer.bytes` bytes, in order,
    /// and stay as they are until [`Posted::outcome`] says that they were sent, or the queue pair is gone. `zeros` are 64
    /// bytes of registered zeros. Room for one piece more than [`ServerLane::pieces_max`] is in `pieces`. Only without
    /// windows.
    ///
    /// # Safety
    /// Every piece is valid for reads until then.
    pub unsafe fn answer_from(
        &self,
        slot: u32,
        request: &RequestHeader,
        summed: bool,
        answer: &Answer,
        (pieces, zeros): (&mut Vec<Sge>, Sge),
    ) -> Posted {
        let parts = &self.parts;
        let mut header = header_of(request, answer);
        if summed {
            let sum = |sum, piece: &Sge| {
                // SAFETY: the caller's promise.
                unsafe { checksum_foreign(sum, piece.address, piece.bytes as usize) }
            };
            header.checksum = pieces.iter().fold(response_checksum(&header.to_words()), sum);
        }
        let place = self.slots[slot as usize].response_header;
        // SAFETY: the header place belongs to this slot.
        unsafe { store_header(place, &header.to_words()) };
        let header_at = parts.there.geometry.response_header(parts.there.place, slot);
        let at = |offset: usize| RemoteAddr { address: parts.remote.iova + offset as u64, rkey: parts.remote.rkey };
        let lkey = parts.staging.as_ref().map_or(0, Region::lkey);
        let last = Sge { address: place, bytes: u32::try_from(HEADER_BYTES).unwrap_or(0), lkey };
        let posted = Posted::begin();
        let first = match answer.landed {
            Some(landed) => RemoteAddr { address: landed.address, rkey: landed.rkey },
            None => {
                let distance = Geometry::response_payload_distance(answer.bytes);
                // The header's line follows the rows in one go: what is between them is zeros.
                let gap = u32::try_from(distance).unwrap_or(0) - answer.bytes;
                pieces.extend([Sge { bytes: gap, ..zeros }].iter().filter(|gap| gap.bytes > 0));
                pieces.push(last);
                at(header_at - distance)
            }
        };
        let alone = answer.landed.map(|_| (core::slice::from_ref(&last), at(header_at)));
        self.post_pieces(pieces, first, alone, self.header_op(slot), &posted);
        self.release(slot);
        posted
    }

    /// Posts lists of pieces, as many as a request takes in each, and the header at the end: the last piece, or alone.
    fn post_pieces(
        &self,
        pieces: &[Sge],
        first: RemoteAddr,
        alone: Option<(&[Sge], RemoteAddr)>,
        op: WorkOp,
        posted: &Posted,
    ) {
        let each = (self.parts.qp.send_pieces() as usize).max(1);
        let blank = Work { wr_id: posted.wr_id(), op: WorkOp::Write, local: &[], remote: first, signaled: false };
        let mut chain = [blank; WRITES_MAX];
        let (mut count, mut address) = (0, first.address);
        for local in pieces.chunks(each).take(WRITES_MAX - 1) {
            chain[count] = Work { local, remote: RemoteAddr { address, ..first }, ..blank };
            address += local.iter().map(|piece| u64::from(piece.bytes)).sum::<u64>();
            count += 1;
        }
        if let Some((local, remote)) = alone {
            chain[count] = Work { local, remote, ..blank };
            count += 1;
        }
        if let Some(end) = chain[..count].last_mut() {
            (end.op, end.signaled) = (op, true);
        }
        self.post(&chain[..count]);
    }

    /// Begins to read memory of the client that a request names: to where the slot's answer is put together, for an answer
    /// to rows has none itself; or behind the first `used` bytes of the request's payload where that has more room. The
    /// rows are there when [`Posted::outcome`] is success; should it never have one, the lane is over. Only without
    /// windows.
    ///
    /// # Errors
    /// `BatchTooLarge` when it fits neither place.
    #[cold]
    pub fn fetch(&self, slot: u32, buffer: RemoteBuffer, used: u32) -> Result<(Posted, *const u8), RpcStatus> {
        let g = &self.parts.geometry;
        let (place, region) = if buffer.bytes <= g.response_payload_bytes {
            (self.response_payload(slot, buffer.bytes).cast_const(), self.parts.staging.as_ref())
        } else if buffer.bytes <= g.request_payload_bytes.saturating_sub(used) {
            (self.request_payload(slot).wrapping_add(used as usize), Some(&self.parts.requests))
        } else {
            return Err(RpcStatus::BatchTooLarge);
        };
        let local = [Sge { address: place, bytes: buffer.bytes, lkey: region.map_or(0, Region::lkey) }];
        let remote = RemoteAddr { address: buffer.address, rkey: buffer.rkey };
        let posted = Posted::begin();
        self.post(&[Work { wr_id: posted.wr_id(), op: WorkOp::Read, local: &local, remote, signaled: true }]);
        Ok((posted, place))
    }
}
