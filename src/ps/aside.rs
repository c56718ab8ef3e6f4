//! Requests that are not over when their handler returns: rows that a device fetches from the client first, and rows that
//! a device sends from where they lie. Both only where there is a device.

use super::handler::{EMPTY, Handler};
use super::scratch::Scratch;
use super::store::RowRef;
use crate::fabric::{Fabric, Sge, WcStatus};
use crate::ids::TableTag;
use crate::rpc::{Answer, Posted, ServerLane};
use crate::sync::Arc;
use crate::wire::{Op, RemoteBuffer, RequestHeader, RpcStatus, flags};

/// From rows of so many bytes on, a client that leaves the choice to the server (`auto`) gets them from where they lie: a
/// piece of a list costs a device about what copying one or two kilobytes costs a processor.
const ROW_BYTES_IN_PLACE: u32 = 2048;

/// Knows which registered memory a row lies in.
pub trait RowKeys: Send + Sync + core::fmt::Debug {
    /// Start, end and local key of registered memory that holds these bytes; registers it if it can.
    fn find(&self, address: usize, bytes: usize) -> Option<(usize, usize, u32)>;

    /// Registered zeros, enough for any row.
    fn zeros(&self) -> Sge;
}

/// What a handler has left for later.
#[derive(Debug, Default)]
pub(super) enum Aside {
    #[default]
    Nothing,
    /// The request's rows are on their way here.
    Fetching(Fetching),
    /// The answer's rows are pinned, and go out from where they lie.
    Pinned(u64),
}

/// A request whose rows are being read from the client. It is handed to [`Handler::end_fetch`] or [`Handler::give_up`].
#[derive(Debug)]
pub struct Fetching {
    posted: Posted,
    place: Arrived,
}

/// Where rows arrive: in the slot's own memory.
#[derive(Clone, Copy, Debug)]
pub(super) struct Arrived(*const u8);

// SAFETY: the slot's memory belongs to whoever executes its request.
unsafe impl Send for Arrived {}

impl Fetching {
    pub(super) fn new((posted, place): (Posted, *const u8)) -> Fetching {
        Fetching { posted, place: Arrived(place) }
    }

    /// How the reading ended, once it has.
    #[must_use]
    pub fn outcome(&self) -> Option<WcStatus> {
        self.posted.outcome()
    }
}

/// An answer that is being sent from pinned rows: after [`Posted::outcome`], or when the queue pair is gone, the pin goes
/// back to the store.
#[derive(Debug)]
pub struct Sending {
    /// The answer's last write.
    pub posted: Posted,
    /// What [`Store::unpin`](super::Store::unpin) takes.
    pub pin: u64,
}

/// What a thread needs to send rows from where they lie.
#[derive(Debug)]
pub(super) struct InPlace {
    keys: Arc<dyn RowKeys>,
    /// Registered memory that was used before: start, end, local key.
    known: Vec<(usize, usize, u32)>,
    rows: Vec<RowRef>,
    pieces: Vec<Sge>,
    /// Rows that wait to be written go first: no new pins.
    pub(super) held_back: bool,
    pub(super) sent: Option<Sending>,
}

// SAFETY: the pointers in the lists are those of pinned rows, used by the thread that has this.
unsafe impl Send for InPlace {}

impl InPlace {
    pub(super) fn new(keys: Arc<dyn RowKeys>) -> InPlace {
        InPlace { keys, known: Vec::new(), rows: Vec::new(), pieces: Vec::new(), held_back: false, sent: None }
    }

    fn key_of(&mut self, address: usize, bytes: usize) -> Option<u32> {
        let holds = |(start, end, _): &(usize, usize, u32)| address >= *start && address + bytes <= *end;
        if let Some(at) = self.known.iter().position(holds) {
            // What was used last is looked at first.
            self.known.swap(0, at);
            return Some(self.known[0].2);
        }
        let found = self.keys.find(address, bytes)?;
        self.known.push(found);
        Some(found.2)
    }

    /// Makes the list of pieces; rows that follow each other are one. False: some row cannot be reached, or there are more
    /// than `most` pieces.
    fn list(&mut self, most: usize) -> bool {
        self.pieces.clear();
        let zeros = self.keys.zeros();
        let rows = core::mem::take(&mut self.rows);
        let fits = rows.iter().all(|row| {
            let piece = if row.address.is_null() {
                Sge { bytes: row.bytes, ..zeros }
            } else {
                match self.key_of(row.address.addr(), row.bytes as usize) {
                    Some(lkey) => Sge { address: row.address, bytes: row.bytes, lkey },
                    None => return false,
                }
            };
            let follows = |last: &Sge| {
                last.lkey == piece.lkey
                    && !row.address.is_null()
                    && last.address.addr() + last.bytes as usize == piece.address.addr()
            };
            match self.pieces.last_mut().filter(|last| follows(last)) {
                Some(last) => last.bytes += piece.bytes,
                None => self.pieces.push(piece),
            }
            self.pieces.len() <= most
        });
        self.rows = rows;
        fits
    }
}

impl Handler {
    /// Pins the rows of a GET, for the answer to be sent from where they lie. False: they are to be copied.
    #[cold]
    pub(super) fn get_in_place<F: Fabric>(
        &self,
        lane: &ServerLane<F>,
        h: &RequestHeader,
        (table, row_bytes): (TableTag, u32),
        scratch: &mut Scratch,
    ) -> bool {
        let worker = scratch.worker;
        let Some(in_place) = scratch.in_place.as_mut() else { return false };
        let too_small = h.flags & flags::COPY_ALLOWED != 0 && row_bytes < ROW_BYTES_IN_PLACE;
        if in_place.held_back || h.flags & flags::DIRECT == 0 || too_small {
            return false;
        }
        in_place.rows.clear();
        let Ok(pin) = self.store().pin(worker, table, &scratch.keys, &mut in_place.rows) else { return false };
        let whole = in_place.rows.len() == scratch.keys.len();
        if !whole || !in_place.list(lane.pieces_max()) {
            self.store().unpin(worker, pin);
            return false;
        }
        scratch.counts.missing_rows += in_place.rows.iter().filter(|row| row.address.is_null()).count() as u64;
        scratch.counts.sent_in_place += 1;
        scratch.aside = Aside::Pinned(pin);
        true
    }

    /// What a request's rows are read from, where they are not here yet: the client's memory, by the device. The request's
    /// own payload stays: it is judged again when they are here.
    #[cold]
    pub(super) fn rows_from_afar<F: Fabric>(
        lane: &ServerLane<F>,
        slot: u32,
        buffer: RemoteBuffer,
        payload_bytes: u32,
        scratch: &mut Scratch,
    ) -> Result<*const u8, RpcStatus> {
        if let Some(Arrived(place)) = scratch.fetched.take() {
            return Ok(place);
        }
        scratch.aside = Aside::Fetching(Fetching::new(lane.fetch(slot, buffer, payload_bytes)?));
        // Nobody sees this status: the request is judged again when the rows are here.
        Err(RpcStatus::InternalError)
    }

    /// Ends or parks a request that was not simply answered; what [`Handler::execute`] says.
    #[cold]
    pub(super) fn set_aside<F: Fabric>(
        &self,
        lane: &ServerLane<F>,
        slot: u32,
        header: &RequestHeader,
        answer: &Answer,
        scratch: &mut Scratch,
    ) -> bool {
        match core::mem::take(&mut scratch.aside) {
            Aside::Nothing => true,
            Aside::Fetching(fetching) => {
                scratch.fetching = Some(fetching);
                false
            }
            Aside::Pinned(pin) => {
                if let Some(in_place) = &mut scratch.in_place {
                    let zeros = in_place.keys.zeros();
                    let summed = header.flags & flags::CHECKSUM != 0;
                    // SAFETY: the rows are pinned until the poller has seen the outcome and gives the pin back, and lie in
                    // memory that stays registered as long as the store.
                    let posted =
                        unsafe { lane.answer_from(slot, header, summed, answer, (&mut in_place.pieces, zeros)) };
                    in_place.sent = Some(Sending { posted, pin });
                }
                true
            }
        }
    }

    /// Ends a request by how the reading of its rows ended. False: it goes on.
    pub fn end_fetch<F: Fabric>(
        &self,
        lane: &ServerLane<F>,
        slot: u32,
        header: &RequestHeader,
        scratch: &mut Scratch,
        fetching: &Fetching,
        outcome: Option<WcStatus>,
    ) -> bool {
        match outcome {
            Some(WcStatus::Success) => self.resume(lane, slot, header, scratch, fetching),
            Some(WcStatus::RemAccess) => Handler::refuse_fetch(lane, header),
            None if lane.is_usable() => return false,
            Some(_) | None => Handler::give_up(lane, header),
        }
        true
    }

    /// Executes a request whose rows have arrived, and answers it.
    fn resume<F: Fabric>(
        &self,
        lane: &ServerLane<F>,
        slot: u32,
        header: &RequestHeader,
        scratch: &mut Scratch,
        fetching: &Fetching,
    ) {
        scratch.fetched = Some(fetching.place);
        let mut answer = EMPTY;
        self.run(lane, slot, header, scratch, &mut answer);
        scratch.fetched = None;
        self.conclude(lane, slot, header, &answer);
    }

    /// Lets a request go whose rows will not arrive: its lane is over. Sent again over another one, it is executed.
    pub fn give_up<F: Fabric>(lane: &ServerLane<F>, header: &RequestHeader) {
        lane.fail();
        if header.flags & flags::ONCE != 0 {
            lane.parts().window.release(header.sequence);
        }
    }

    /// The same for one whose rows the client's device refuses to give: that is an answer, which a repetition gets too.
    fn refuse_fetch<F: Fabric>(lane: &ServerLane<F>, header: &RequestHeader) {
        lane.fail();
        if header.flags & flags::ONCE != 0 {
            lane.parts().window.settle(header.sequence, RpcStatus::InvalidPayload as i32, 0);
        }
    }
}

/// Whether a request may change rows, and so must not meet pins of its own thread.
#[must_use]
pub fn changes_rows(header: &RequestHeader) -> bool {
    !matches!(Op::from_code(header.op), Some(Op::Get | Op::InitTable | Op::Probe) | None)
}
