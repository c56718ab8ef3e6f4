//! The server's end of one lane.

use super::raw::{checksum_foreign, fetch_to_read, fetch_to_write, store_header, store_release};
use super::signals::Signals;
use super::{Placement, Scheme, Window};
use crate::fabric::{Access, Fabric, Loan, Qp, QpState, Region, RegionAddress, RemoteAddr};
use crate::ids::{ClientId, Incarnation};
use crate::sync::{Arc, AtomicBool, Ordering};
use crate::wire::{
    Geometry, HEADER_BYTES, INLINE_BYTES, InlineWords, Progress, RemoteBuffer, RequestHeader, ResponseHeader,
    RpcStatus, Words, response_checksum, response_offsets,
};

/// What a lane is made of.
#[derive(Debug)]
pub struct ServerLaneParts<F: Fabric> {
    /// The client it comes from.
    pub client: ClientId,
    /// That client's process.
    pub incarnation: Incarnation,
    /// Its number within the client and shard.
    pub lane: u32,
    /// Which connection of this lane it is.
    pub generation: u32,
    /// How it commits.
    pub scheme: Scheme,
    /// Sizes of the slots; `lanes` counts all lanes of the client.
    pub geometry: Geometry,
    /// Where slots lie in the region that requests arrive in.
    pub here: Placement,
    /// Where slots lie in the client's region.
    pub there: Placement,
    /// What was executed for the client, over whichever lane.
    pub window: Arc<Window>,
    /// Connected.
    pub qp: F::Qp,
    /// Completions of this side's work; shared by the lanes of a poller.
    pub send_cq: Arc<F::Cq>,
    /// The region that requests arrive in.
    pub requests: F::Region,
    /// Memory that answers are posted from, laid out as a client's region with the places of `here`; None where windows
    /// are used.
    pub staging: Option<F::Region>,
    /// The client's region.
    pub remote: RegionAddress,
}

/// The server's end of one lane. Scanned by one poller; answered by it or by its workers.
#[derive(Debug)]
pub struct ServerLane<F: Fabric> {
    pub(super) parts: ServerLaneParts<F>,
    pub(super) slots: Box<[SlotPlaces]>,
    failed: AtomicBool,
    /// See [`ServerLane::is_scanned`].
    scanned: AtomicBool,
    pub(super) signals: Signals,
    /// Requests and answers are plain stores and loads, and the last word says all: windows under `single`.
    is_plain: bool,
}

#[derive(Debug)]
pub(super) struct SlotPlaces {
    request_header: *const u8,
    request_payload: *const u8,
    /// Where an answer's header is put together: the client's memory, or staging.
    pub(super) response_header: *mut u8,
    /// A request of this slot was handed out and is not answered yet. A client that commits the next one all the same
    /// waits: so a slot has one executor, and what waits for workers is bounded by the number of slots.
    busy: AtomicBool,
}

// SAFETY: the raw places point into regions and windows that `parts` keeps alive and that may be used from any thread;
// a slot's answer is written by the one thread that executes its request.
unsafe impl<F: Fabric> Send for ServerLane<F> {}
// SAFETY: as above.
unsafe impl<F: Fabric> Sync for ServerLane<F> {}

/// Of a large answer only so much is asked for ahead: the rest comes in order, which the processor sees by itself.
const FETCHED_ANSWER_BYTES: u32 = 256;
/// The same of a payload.
const FETCHED_PAYLOAD_BYTES: u32 = 256;

/// What the server says to one request.
#[derive(Clone, Copy, Debug)]
pub struct Answer {
    /// An [`RpcStatus`] code.
    pub status: i32,
    /// Length of the answer; its bytes are in `inline`, in the slot, or in the remote buffer.
    pub bytes: u32,
    /// INIT_TABLE: the tag.
    pub aux: u32,
    /// The answer when it fits and no remote buffer was named.
    pub inline: InlineWords,
    /// Where the rows went when a remote buffer was named.
    pub landed: Option<RemoteBuffer>,
    /// Where those rows lie here.
    pub landed_from: *const u8,
}

impl<F: Fabric> ServerLane<F> {
    /// A lane over connected parts. None when the client's region does not hold the slots of the geometry, or begins in
    /// the middle of a line.
    #[must_use]
    pub fn new(parts: ServerLaneParts<F>) -> Option<ServerLane<F>> {
        let (here, there) = (parts.here, parts.there);
        let g = parts.geometry;
        let base = parts.requests.base().as_ptr();
        let mut slots = Vec::with_capacity(g.slots as usize);
        for slot in 0..g.slots {
            let header_at = there.geometry.response_header(there.place, slot);
            let response_header = if let Some(staging) = &parts.staging {
                let staged_at = here.geometry.response_header(here.place, slot);
                // SAFETY: staging was allocated with the client's size of this side's geometry.
                unsafe { staging.base().as_ptr().add(staged_at) }
            } else {
                let distance = Geometry::response_payload_distance(g.response_payload_bytes);
                let first = parts.remote.iova.checked_add((header_at - distance) as u64)?;
                let place = RemoteAddr { address: first, rkey: parts.remote.rkey };
                let window = parts.qp.window(place, distance + HEADER_BYTES, Access::REMOTE_WRITE)?;
                // SAFETY: the window covers payload and header of the slot.
                unsafe { window.as_ptr().add(distance) }
            };
            // Where the client says that its slots begin is its own word; a header is stored in words of 8 bytes.
            if !response_header.addr().is_multiple_of(HEADER_BYTES) {
                return None;
            }
            slots.push(SlotPlaces {
                // SAFETY: the request region was allocated with the server's size of this geometry.
                request_header: unsafe { base.add(here.geometry.request_header(here.place, slot)) },
                // SAFETY: as above.
                request_payload: unsafe { base.add(here.geometry.request_payload(here.place, slot)) },
                response_header,
                busy: AtomicBool::new(false),
            });
        }
        let is_plain = parts.staging.is_none() && parts.scheme == Scheme::Single;
        Some(ServerLane {
            is_plain,
            parts,
            slots: slots.into_boxed_slice(),
            failed: AtomicBool::new(false),
            scanned: AtomicBool::new(false),
            signals: Signals::default(),
        })
    }

    /// It is scanned from now on, and has receives for the client's immediates.
    pub(super) fn begin_scan(&self) {
        if self.parts.scheme == Scheme::Imm {
            self.replenish(self.parts.geometry.slots);
        }
        // Release: pairs with the Acquire in `is_scanned`; receives come first.
        self.scanned.store(true, Ordering::Release);
    }

    /// Whether a client may commit requests with an immediate: one that comes before there are receives is refused, as
    /// often as the client's device tries, and one for a lane that nobody scans is lost.
    #[must_use]
    pub fn is_scanned(&self) -> bool {
        // Acquire: as above.
        self.scanned.load(Ordering::Acquire)
    }

    /// What it is made of.
    #[must_use]
    pub fn parts(&self) -> &ServerLaneParts<F> {
        &self.parts
    }

    /// Its share of the memory that this side registered for the client's lanes.
    #[must_use]
    pub fn registered_bytes(&self) -> usize {
        let parts = &self.parts;
        let bytes = parts.requests.bytes() + parts.staging.as_ref().map_or(0, Region::bytes);
        bytes / parts.here.geometry.lanes.max(1) as usize
    }

    /// Whether it can still carry answers.
    #[inline]
    #[must_use]
    pub fn is_usable(&self) -> bool {
        !self.failed.load(Ordering::Relaxed) && self.parts.qp.state() == QpState::Rts
    }

    /// Gives it up: nothing is sent on it any more.
    #[cold]
    pub fn fail(&self) {
        if !self.failed.swap(true, Ordering::Relaxed) {
            // A refusal means that it is in ERR already.
            let _ = self.parts.qp.modify(QpState::Err);
        }
    }

    pub(super) fn request_header(&self, slot: u32) -> *const u8 {
        self.slots[slot as usize].request_header
    }

    /// Whether a request of this slot is handed out and not answered yet.
    #[inline(always)]
    pub(super) fn is_busy(&self, slot: u32) -> bool {
        // Acquire: the executor is done with the slot. Pairs with the Release in `answer`.
        self.slots[slot as usize].busy.load(Ordering::Acquire)
    }

    /// A request of this slot is handed out. Its poller alone does this.
    #[inline(always)]
    pub(super) fn take(&self, slot: u32) {
        self.slots[slot as usize].busy.store(true, Ordering::Relaxed);
    }

    /// Where a request's payload lies: valid for the geometry's request payload bytes; the client may be changing it.
    #[inline]
    #[must_use]
    pub fn request_payload(&self, slot: u32) -> *const u8 {
        self.slots[slot as usize].request_payload
    }

    /// Asks for the lines that a small answer will be stored to, so that their way here overlaps with the look-up of the
    /// rows.
    #[inline(always)]
    pub fn fetch_for_answer(&self, slot: u32, bytes: u32) {
        let header = self.slots[slot as usize].response_header.cast_const();
        fetch_to_write(header);
        let lines = Geometry::response_payload_distance(bytes.min(FETCHED_ANSWER_BYTES)) / HEADER_BYTES;
        for line in 1..=lines {
            fetch_to_write(header.wrapping_sub(line * HEADER_BYTES));
        }
    }

    /// Asks for the first lines of a request's payload.
    #[inline(always)]
    pub fn fetch_payload(&self, slot: u32, bytes: u32) {
        let payload = self.slots[slot as usize].request_payload;
        let lines = (bytes.min(FETCHED_PAYLOAD_BYTES) as usize).div_ceil(HEADER_BYTES);
        for line in 0..lines {
            fetch_to_read(payload.wrapping_add(line * HEADER_BYTES));
        }
    }

    /// Where an answer of this length is put together. It must fit the geometry's response payload.
    #[inline(always)]
    #[must_use]
    pub fn response_payload(&self, slot: u32, bytes: u32) -> *mut u8 {
        debug_assert!(bytes <= self.parts.geometry.response_payload_bytes);
        self.slots[slot as usize].response_header.wrapping_sub(Geometry::response_payload_distance(bytes))
    }

    /// Memory of the client that a request names, where this fabric can reach it with plain instructions.
    #[must_use]
    pub fn client_memory(&self, buffer: RemoteBuffer, access: Access) -> Option<Loan> {
        let place = RemoteAddr { address: buffer.address, rkey: buffer.rkey };
        self.parts.qp.hold(place, buffer.bytes as usize, access)
    }

    /// Whether answers are stored straight into the client's memory.
    #[inline]
    #[must_use]
    pub fn has_windows(&self) -> bool {
        self.parts.staging.is_none()
    }

    /// Whether requests and answers are plain stores, whose last word says that all is there.
    #[inline(always)]
    #[must_use]
    pub fn is_plain(&self) -> bool {
        self.is_plain
    }

    /// Completes a request for rows that lie in place, on a lane that is plain. `words` is the request.
    #[inline(always)]
    pub fn answer_rows(&self, slot: u32, words: &Words, bytes: u32) {
        let request = RequestHeader::from_words(words);
        let header = ResponseHeader {
            status: RpcStatus::Ok as i32,
            response_bytes: bytes,
            sequence: request.sequence,
            checksum: 0,
            aux: 0,
            inline: [0; INLINE_BYTES / 8],
            progress: Progress(0),
            word: request.commit,
        };
        let slot = &self.slots[slot as usize];
        // SAFETY: the header place belongs to this slot.
        unsafe { store_header(slot.response_header, &header.to_words()) };
        // Release: pairs with the Acquire in `is_busy`.
        slot.busy.store(false, Ordering::Release);
    }

    /// Tells the client that the first `rows` rows of a growing answer are in place. Only with windows.
    #[inline]
    pub fn publish_progress(&self, slot: u32, slot_sequence: u32, rows: u32) {
        let header = self.slots[slot as usize].response_header;
        // SAFETY: the header lies in the window of this slot.
        unsafe { store_release(header, response_offsets::PROGRESS, Progress::new(slot_sequence, rows).0) };
    }

    /// Completes a request: everything of the answer but the header is in place.
    #[inline]
    pub fn answer(&self, slot: u32, request: &RequestHeader, summed: bool, answer: &Answer) {
        let mut header = header_of(request, answer);
        let in_slot = answer.landed.is_none() && answer.bytes as usize > INLINE_BYTES;
        if summed {
            let from =
                if in_slot { self.response_payload(slot, answer.bytes).cast_const() } else { answer.landed_from };
            let covered = if in_slot || answer.landed.is_some() { answer.bytes as usize } else { 0 };
            // SAFETY: `covered` bytes were put there by the executor of this request.
            header.checksum = unsafe { checksum_foreign(response_checksum(&header.to_words()), from, covered) };
        }
        let place = self.slots[slot as usize].response_header;
        // SAFETY: the header place belongs to this slot.
        unsafe { store_header(place, &header.to_words()) };
        if !self.has_windows() || self.parts.scheme == Scheme::Imm {
            self.post_answer(slot, answer, in_slot);
        }
        self.release(slot);
    }

    /// The slot's answer is on its way: its next request may be taken.
    #[inline(always)]
    pub(super) fn release(&self, slot: u32) {
        // Release: pairs with the Acquire in `is_busy`.
        self.slots[slot as usize].busy.store(false, Ordering::Release);
    }

    /// Gives receives for immediates back.
    pub(super) fn replenish(&self, count: u32) {
        if self.parts.qp.post_receives(count).is_err() {
            self.fail();
        }
    }
}

/// The header of an answer, without checksum and progress.
#[inline(always)]
pub(super) fn header_of(request: &RequestHeader, answer: &Answer) -> ResponseHeader {
    ResponseHeader {
        status: answer.status,
        response_bytes: answer.bytes,
        sequence: request.sequence,
        checksum: 0,
        aux: answer.aux,
        inline: answer.inline,
        progress: Progress(0),
        word: request.commit,
    }
}
