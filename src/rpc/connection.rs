//! One connection of a lane on the client's side: queue pair, memory, and where slots lie. A lane that is rebuilt gets
//! another one; whoever holds a slot of the old one keeps its memory until it gives the slot back.

use super::Scheme;
use super::raw::{checksum_foreign, copy_header, load_acquire, store_header};
use super::signals::Signals;
use super::window::Window;
use crate::error::{Error, Layer, Outcome, Result, Status, Verdict};
use crate::fabric::{
    Access, Completion, Cq, Fabric, Loan, Mutant, PostError, Qp, QpState, Region, RegionAddress, RemoteAddr, Sge,
    WcStatus, Work, WorkOp, mutated,
};
use crate::ids::Incarnation;
use crate::lane::DirtyReason;
use crate::sync::{Arc, OnceLock};
use crate::wire::{
    Geometry, HEADER_BYTES, Op, RequestHeader, ResponseHeader, Word, Words, flags, request_checksum, response_offsets,
};
use core::ptr::NonNull;

/// Identity of probes: no slot has it.
const PROBE_SEQUENCE: u64 = 0;

/// Where a lane's slots lie in a region: which place of how many.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Placement {
    /// The lane's place.
    pub place: u32,
    /// Layout of the region; `lanes` counts its places.
    pub geometry: Geometry,
}

/// Whose memory of executed requests is behind a connection. As long as it is the same, a request that is sent again is
/// executed once.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Witness {
    /// The shard's process.
    pub incarnation: Incarnation,
    /// Its window for this client.
    pub window: u64,
}

impl Witness {
    /// A window that outlives its process, in a checkpoint, has a number that says so and is unique among all processes:
    /// it is the same witness, whoever holds it.
    #[must_use]
    pub fn new(incarnation: Incarnation, window: u64) -> Witness {
        let lasting = window & Window::LASTING != 0;
        Witness { incarnation: if lasting { Incarnation(0) } else { incarnation }, window }
    }
}

/// What a connection is made of.
#[derive(Debug)]
pub struct ClientLaneParts<F: Fabric> {
    /// The shard it leads to.
    pub shard: u32,
    /// The lane's number within the client and shard.
    pub lane: u32,
    /// Which connection of this lane it is.
    pub generation: u32,
    /// How it commits.
    pub scheme: Scheme,
    /// Where slots lie in the region that answers arrive in.
    pub here: Placement,
    /// Where slots lie in the server's region.
    pub there: Placement,
    /// Connected.
    pub qp: F::Qp,
    /// Completions of this side's work; shared by the lanes of a channel.
    pub send_cq: Arc<F::Cq>,
    /// Immediates of the peer; shared by the lanes of a channel.
    pub recv_cq: Arc<F::Cq>,
    /// The region that answers arrive in.
    pub responses: F::Region,
    /// Memory that requests are posted from, laid out as a server's region with the places of `here`; None where windows
    /// are used.
    pub staging: Option<F::Region>,
    /// The server's region.
    pub remote: RegionAddress,
    /// Who remembers what was executed.
    pub witness: Witness,
    /// Memory of the server that this side may read.
    pub rows: Option<RegionAddress>,
}

impl<F: Fabric> ClientLaneParts<F> {
    /// Bytes of registered memory on this side: the lane's part of what was made with it.
    pub(crate) fn bytes(&self) -> u64 {
        let all = self.responses.bytes() + self.staging.as_ref().map_or(0, Region::bytes);
        (all / self.here.geometry.lanes.max(1) as usize) as u64
    }
}

/// The server's rows, as a connection maps them.
#[derive(Clone, Copy, Debug)]
pub struct MappedRows {
    /// Where: valid for reads as long as the connection lives.
    pub base: NonNull<u8>,
    /// How many bytes.
    pub bytes: usize,
    /// Which connection of which lane: no other one of this client has the same.
    pub connection: u64,
}

/// One connection.
#[derive(Debug)]
pub struct Connection<F: Fabric> {
    pub(super) parts: ClientLaneParts<F>,
    signals: Signals,
    /// Where the server's rows are mapped, and how many bytes; none: nowhere.
    rows: Option<(Loan, usize)>,
    /// Nonce of the probe that slot 0 has carried.
    probed: Option<u64>,
    /// Why it ended.
    ended: OnceLock<DirtyReason>,
}

/// Where one slot of the lane lies.
#[derive(Clone, Copy, Debug)]
pub(super) struct SlotPlaces {
    /// Where a request's header is put together: the server's memory, or staging.
    pub(super) request_header: *mut u8,
    /// Where its payload is put together.
    pub(super) request_payload: *mut u8,
    /// The answer's header.
    pub(super) response_header: *const u8,
}

impl<F: Fabric> Connection<F> {
    /// Over connected parts.
    #[must_use]
    pub fn new(parts: ClientLaneParts<F>) -> Connection<F> {
        let rows = parts.rows.and_then(|rows| {
            let bytes = usize::try_from(rows.bytes).ok()?;
            let whole = RemoteAddr { address: rows.iova, rkey: rows.rkey };
            Some((parts.qp.hold(whole, bytes, Access::REMOTE_READ)?, bytes))
        });
        Connection { parts, signals: Signals::default(), rows, probed: None, ended: OnceLock::new() }
    }

    /// Over parts that have just been connected and carry no request yet: sends a probe with this nonce through slot 0.
    ///
    /// # Errors
    /// The queue pair is down already, or the server's region does not hold the slots.
    pub fn probe(parts: ClientLaneParts<F>, nonce: u64) -> Result<Connection<F>> {
        let mut connection = Connection::new(parts);
        connection.probed = Some(nonce);
        let parts = &connection.parts;
        let slots = parts.here.geometry.slots;
        let (lane, shard) = (parts.lane, parts.shard);
        let lied = || {
            let message = format!("the region of shard {shard} does not hold the slots that it offered");
            Error::new(Status::DeploymentMismatch, message)
        };
        let places = connection.places(0).ok_or_else(lied)?;
        if parts.scheme == Scheme::Imm && !connection.replenish(slots) {
            let message = format!("lane {lane} to shard {shard}: {slots} receives for immediates could not be posted");
            return Err(Error::new(Status::PostFailed, message));
        }
        let mut header = RequestHeader {
            op: Op::Probe as u8,
            flags: 0,
            table: 0,
            key_count: 0,
            sequence: PROBE_SEQUENCE,
            payload_bytes: 0,
            checksum: 0,
            response_bytes: 0,
            shard: u16::try_from(parts.shard).unwrap_or(u16::MAX),
            reserved: 0,
            inline: [nonce, 0, 0],
            commit: connection.first_word(0),
        };
        if parts.scheme == Scheme::Crc {
            header.flags |= flags::CHECKSUM;
            header.checksum = request_checksum(&header.to_words());
        }
        // SAFETY: the places are slot 0's, which nobody else uses yet; there is no payload.
        let sent = unsafe { connection.commit(&places, 0, &header.to_words(), 0) };
        match sent {
            Ok(()) => Ok(connection),
            Err(failure) => Err(Error::new(
                Status::PostFailed,
                format!("the probe of lane {lane} to shard {shard} could not be sent: {}", failure.reason.name()),
            )),
        }
    }

    /// Whether the probe has come back; Some(false): something else did, or the connection is down.
    #[must_use]
    pub fn probe_came_back(&self) -> Option<bool> {
        let (nonce, places) = (self.probed?, self.places(0)?);
        // SAFETY: the places are this connection's, and slot 0 is not used by anyone else yet.
        if !unsafe { self.is_answered(&places, self.first_word(0)) } {
            return self.symptom().map(|_| false);
        }
        // SAFETY: as above.
        let header = ResponseHeader::from_words(&unsafe { copy_header(places.response_header) });
        let came = header.status == 0 && header.sequence == PROBE_SEQUENCE && header.inline[0] == nonce;
        Some(came)
    }

    fn first_word(&self, slot: u32) -> Word {
        let word = Word::new(self.parts.generation, 0);
        if slot == 0 && self.probed.is_some() { word.next() } else { word }
    }

    /// The word before the first request of a slot.
    pub(super) fn word_before_first(&self, slot: u32) -> Word {
        self.first_word(slot)
    }

    /// What it is made of.
    #[must_use]
    pub fn parts(&self) -> &ClientLaneParts<F> {
        &self.parts
    }

    /// Where the server's rows are mapped, if they are.
    #[must_use]
    #[inline(always)]
    pub fn rows(&self) -> Option<MappedRows> {
        let (rows, bytes) = self.rows.as_ref()?;
        let connection = u64::from(self.parts.lane) << 32 | u64::from(self.parts.generation);
        Some(MappedRows { base: rows.place(), bytes: *bytes, connection })
    }

    /// Whether it is in use, as far as is known: two loads.
    #[must_use]
    #[inline(always)]
    pub fn is_up(&self) -> bool {
        self.ended.get().is_none() && self.parts.qp.state() == QpState::Rts
    }

    /// Why it ended, if it has.
    #[must_use]
    pub fn ended(&self) -> Option<DirtyReason> {
        self.ended.get().copied()
    }

    /// It is over: the queue pair goes to ERR, so that nothing more arrives from either side. True: that was refused.
    pub(super) fn end(&self, reason: DirtyReason) -> bool {
        // The first reason counts.
        let _ = self.ended.set(reason);
        self.parts.qp.modify(QpState::Err).is_err()
    }

    /// What the slow signs say: the first completion with an error, or a queue pair in ERR.
    pub(super) fn symptom(&self) -> Option<DirtyReason> {
        let mut completions = [Completion::EMPTY; 16];
        let count = self.parts.send_cq.poll(&mut completions);
        let number = self.parts.qp.number();
        let failed = completions[..count].iter().find(|c| c.status != WcStatus::Success && c.qp == number);
        if let Some(completion) = failed {
            return Some(DirtyReason::Completion(completion.status));
        }
        if self.parts.qp.state() != QpState::Err {
            return None;
        }
        Some(match self.parts.qp.cause() {
            Some(cause) if cause.peer_gone => DirtyReason::PeerGone,
            Some(cause) if cause.peer_closed => DirtyReason::PeerLeft,
            Some(cause) => DirtyReason::Completion(cause.status),
            None => DirtyReason::Completion(WcStatus::WrFlush),
        })
    }

    /// The error that describes why this connection is not usable.
    #[must_use]
    #[cold]
    pub fn error(&self) -> Box<Error> {
        let reason = self.ended().unwrap_or(DirtyReason::Closed);
        let cause = self.parts.qp.cause();
        let detail = cause.as_ref().map_or(String::new(), |cause| format!(": {}", cause.detail));
        let (status, layer, verdict) = match reason {
            DirtyReason::PeerGone | DirtyReason::NodeVerdict => (Status::ShardUnreachable, Layer::Node, Verdict::Dead),
            DirtyReason::ProbeTimeout => (Status::ShardUnreachable, Layer::Node, Verdict::Suspect),
            DirtyReason::PeerLeft => (Status::Draining, Layer::Node, Verdict::Dead),
            DirtyReason::PostFailed => (Status::PostFailed, Layer::Post, Verdict::Unknown),
            DirtyReason::Completion(_) => (Status::CompletionError, Layer::Device, Verdict::Unknown),
            DirtyReason::CompletionTimeout => (Status::CompletionTimeout, Layer::TrackedWrite, Verdict::Unknown),
            DirtyReason::WaitTimeout => (Status::WaitTimeout, Layer::Wait, Verdict::Unknown),
            DirtyReason::Closed => (Status::LaneDown, Layer::Usage, Verdict::Unknown),
        };
        let parts = &self.parts;
        let mut error = Error::new(
            status,
            format!("lane {} to shard {} is down ({}){detail}", parts.lane, parts.shard, reason.name()),
        )
        .at_shard(parts.shard)
        .at_lane(parts.lane, parts.generation)
        .in_layer(layer);
        error.verdict = verdict;
        error.outcome = Outcome::Unknown;
        if let Some(cause) = cause {
            error.completion = cause.status.0;
            error.vendor_error = cause.vendor_error;
        }
        error
    }

    /// Where a slot lies. None when the peer's region has no such place: its offer lied about the geometry.
    pub(super) fn places(&self, slot: u32) -> Option<SlotPlaces> {
        let parts = &self.parts;
        let (g, lane) = (&parts.there.geometry, parts.there.place);
        let payload_bytes = g.request_payload_bytes as usize;
        let (request_header, request_payload) = if let Some(staging) = &parts.staging {
            let (base, ours, place) = (staging.base().as_ptr(), &parts.here.geometry, parts.here.place);
            // SAFETY: staging was allocated with the server's size of this side's geometry.
            unsafe { (base.add(ours.request_header(place, slot)), base.add(ours.request_payload(place, slot))) }
        } else {
            let place = |offset: usize| RemoteAddr {
                address: parts.remote.iova.wrapping_add(offset as u64),
                rkey: parts.remote.rkey,
            };
            let header = parts.qp.window(place(g.request_header(lane, slot)), HEADER_BYTES, Access::REMOTE_WRITE)?;
            let payload = parts.qp.window(place(g.request_payload(lane, slot)), payload_bytes, Access::REMOTE_WRITE)?;
            // Where the server says that its slots begin is its own word; a header is stored in words of 8 bytes.
            if !header.addr().get().is_multiple_of(HEADER_BYTES) {
                return None;
            }
            (header.as_ptr(), payload.as_ptr())
        };
        // SAFETY: the response region was allocated with the client's size of this geometry.
        let response_header = unsafe {
            let at = parts.here.geometry.response_header(parts.here.place, slot);
            parts.responses.base().as_ptr().add(at)
        };
        Some(SlotPlaces { request_header, request_payload, response_header })
    }

    /// Whether requests and answers are plain stores and loads, and the last word says all: windows under `single`, and
    /// nothing is summed.
    pub(super) fn is_plain(&self, checksum: bool) -> bool {
        self.parts.staging.is_none() && self.parts.scheme == Scheme::Single && !checksum
    }

    /// Commits a request on a connection that is plain.
    ///
    /// # Safety
    /// As [`Connection::commit`].
    #[inline(always)]
    pub(super) unsafe fn commit_plain(&self, places: &SlotPlaces, header: &Words) {
        // SAFETY: the header place belongs to the held slot.
        unsafe { store_header(places.request_header, header) };
        self.parts.qp.doorbell();
    }

    /// Commits a request whose payload lies in place.
    ///
    /// # Safety
    /// `places` are the places of `slot`, held by the caller, and the payload bytes are written.
    pub(super) unsafe fn commit(
        &self,
        places: &SlotPlaces,
        slot: u32,
        header: &Words,
        payload_bytes: u32,
    ) -> core::result::Result<(), NotPosted> {
        // SAFETY: the header place belongs to the held slot.
        unsafe { store_header(places.request_header, header) };
        if self.parts.staging.is_none() && self.parts.scheme != Scheme::Imm {
            self.parts.qp.doorbell();
            return Ok(());
        }
        self.post_request(places, slot, payload_bytes)
    }

    fn post_request(&self, places: &SlotPlaces, slot: u32, payload_bytes: u32) -> core::result::Result<(), NotPosted> {
        let parts = &self.parts;
        let (g, lane) = (&parts.there.geometry, parts.there.place);
        let lkey = parts.staging.as_ref().map_or(0, Region::lkey);
        let at = |offset: usize| RemoteAddr { address: parts.remote.iova + offset as u64, rkey: parts.remote.rkey };
        let payload = [Sge { address: places.request_payload, bytes: payload_bytes, lkey }];
        let header = [Sge { address: places.request_header, bytes: 64, lkey }];
        let signaled = self.signals.next(parts.qp.send_depth());
        let wr_id = (u64::from(parts.generation) << 32) | u64::from(parts.lane);
        let op =
            if parts.scheme == Scheme::Imm { WorkOp::WriteImm(parts.lane * g.slots + slot) } else { WorkOp::Write };
        let chain = [
            Work {
                wr_id,
                op: WorkOp::Write,
                local: &payload,
                remote: at(g.request_payload(lane, slot)),
                signaled: false,
            },
            Work { wr_id, op, local: &header, remote: at(g.request_header(lane, slot)), signaled },
        ];
        if payload_bytes > 0 && mutated::<F>(Mutant::CommitBeforePayload) {
            return self.post(&[chain[1], chain[0]]);
        }
        // In a window the payload is there already.
        let skip = usize::from(payload_bytes == 0 || parts.staging.is_none());
        self.post(&chain[skip..])
    }

    fn post(&self, chain: &[Work<'_>]) -> core::result::Result<(), NotPosted> {
        for _ in 0..2 {
            // SAFETY: local memory is the lane's staging, which lives as long as the queue pair and is not changed
            // before the answer to this request has arrived.
            match unsafe { self.parts.qp.post(chain) } {
                Ok(()) => return Ok(()),
                Err(PostError::QueueFull) => {
                    if let Some(reason) = self.symptom() {
                        return Err(NotPosted { reason, os_error: 0 });
                    }
                }
                Err(error) => {
                    // A queue pair that fell to ERR knows better why than the refused post does.
                    let reason = self.symptom().unwrap_or(DirtyReason::PostFailed);
                    let os_error = if let PostError::Os(number) = error { number } else { 0 };
                    return Err(NotPosted { reason, os_error });
                }
            }
        }
        Err(NotPosted { reason: DirtyReason::CompletionTimeout, os_error: 0 })
    }

    /// Whether the answer that ends with `expected` is there.
    ///
    /// # Safety
    /// `places` are those of a slot held by the caller.
    #[inline(always)]
    pub(super) unsafe fn is_answered(&self, places: &SlotPlaces, expected: Word) -> bool {
        // SAFETY: the response header lies in the lane's own region.
        let found = Word(unsafe { load_acquire(places.response_header, response_offsets::WORD) });
        let mistaken = mutated::<F>(Mutant::ClientIgnoresSequence) && found.generation() == expected.generation();
        found == expected || mistaken
    }

    /// Whether an answer's checksum agrees with its bytes, which lie at `landing`, or in the slot when that is null.
    pub(super) fn agrees(&self, places: &SlotPlaces, landing: *const u8, decoded: &ResponseHeader) -> bool {
        let sum = crate::wire::response_checksum(&decoded.to_words());
        let bytes = decoded.response_bytes;
        if bytes as usize <= crate::wire::INLINE_BYTES && landing.is_null() {
            return sum == decoded.checksum;
        }
        if landing.is_null() && bytes > self.parts.here.geometry.response_payload_bytes {
            return false;
        }
        // SAFETY: a landing place was sized for the expected answer, and the caller compared `bytes` with that; in the
        // slot, the payload ends at the header and was just found to fit.
        let sum = unsafe {
            let from = if landing.is_null() {
                places.response_header.sub(Geometry::response_payload_distance(bytes))
            } else {
                landing
            };
            checksum_foreign(sum, from, bytes as usize)
        };
        sum == decoded.checksum
    }

    /// Gives receives for immediates back. False: refused.
    pub(super) fn replenish(&self, count: u32) -> bool {
        self.parts.qp.post_receives(count).is_ok()
    }
}

/// A request that was not sent.
#[derive(Clone, Copy, Debug)]
pub(super) struct NotPosted {
    /// What that says of the lane.
    pub(super) reason: DirtyReason,
    /// The system's number, if it gave one.
    pub(super) os_error: i32,
}
