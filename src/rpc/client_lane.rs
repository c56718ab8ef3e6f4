//! The client's end of one lane.

use super::Scheme;
use super::raw::{checksum_foreign, load_acquire, store_header};
use super::signals::Signals;
use crate::error::{Error, Layer, Outcome, Result, Status, Verdict};
use crate::fabric::{
    Access, Cq, Fabric, PostError, Qp, QpState, Region, RegionAddress, RemoteAddr, Sge, WcStatus, Work, WorkOp,
};
use crate::lane::{DirtyReason, LaneState, Lifecycle};
use crate::sync::{Arc, AtomicU8, Mutex, Ordering, lock};
use crate::wire::{Geometry, HEADER_BYTES, ResponseHeader, Word, Words, response_offsets};

/// What a lane is made of.
#[derive(Debug)]
pub struct ClientLaneParts<F: Fabric> {
    /// The shard it leads to.
    pub shard: u32,
    /// Its number within the client and shard.
    pub lane: u32,
    /// Which connection of this lane it is.
    pub generation: u32,
    /// How it commits.
    pub scheme: Scheme,
    /// How slots lie in both regions.
    pub geometry: Geometry,
    /// Connected.
    pub qp: F::Qp,
    /// Completions of this side's work; shared by the lanes of a channel.
    pub send_cq: Arc<F::Cq>,
    /// Immediates of the peer; shared by the lanes of a channel.
    pub recv_cq: Arc<F::Cq>,
    /// The region that answers arrive in.
    pub responses: F::Region,
    /// Memory that requests are posted from, laid out as the server's region; None where windows are used.
    pub staging: Option<F::Region>,
    /// The server's region.
    pub remote: RegionAddress,
}

/// The client's end of one lane. Slots are handed out by the [`Channel`](super::Channel).
#[derive(Debug)]
pub struct ClientLane<F: Fabric> {
    pub(super) parts: ClientLaneParts<F>,
    /// Copy of the life's state, read on the hot path.
    state: AtomicU8,
    life: Mutex<Lifecycle>,
    signals: Signals,
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

impl<F: Fabric> ClientLane<F> {
    /// A lane over connected parts: Active.
    #[must_use]
    pub fn new(parts: ClientLaneParts<F>) -> ClientLane<F> {
        let mut life = Lifecycle::new();
        life.connected();
        ClientLane {
            parts,
            state: AtomicU8::new(LaneState::Active as u8),
            life: Mutex::new(life),
            signals: Signals::default(),
        }
    }

    /// Present state.
    #[inline]
    #[must_use]
    pub fn state(&self) -> LaneState {
        LaneState::from_code(self.state.load(Ordering::Relaxed))
    }

    /// Why it is not Active.
    #[must_use]
    pub fn reason(&self) -> Option<DirtyReason> {
        lock(&self.life).reason()
    }

    /// What it is made of.
    #[must_use]
    pub fn parts(&self) -> &ClientLaneParts<F> {
        &self.parts
    }

    /// Ends Active. The queue pair goes to ERR, so that nothing more arrives from either side.
    #[cold]
    pub fn fail(&self, reason: DirtyReason) {
        let mut life = lock(&self.life);
        let first = life.failed(reason);
        self.state.store(life.state() as u8, Ordering::Relaxed);
        drop(life);
        if !first {
            return;
        }
        let refused = self.parts.qp.modify(QpState::Err);
        if reason != DirtyReason::Closed {
            crate::event!(
                crate::observe::Level::WARN,
                crate::observe::events::LANE_DIRTY,
                shard = self.parts.shard,
                lane = self.parts.lane,
                generation = self.parts.generation,
                reason = reason.name(),
                rebuildable = reason.rebuildable(),
                qp = self.parts.qp.number(),
                modify_refused = refused.is_err(),
            );
        }
    }

    /// Looks at the slow signs. Err when the lane is not Active any more.
    ///
    /// # Errors
    /// What ended it, with shard, lane and generation.
    #[cold]
    pub fn check(&self) -> Result<()> {
        self.harvest();
        if self.parts.qp.state() == QpState::Err && self.state() == LaneState::Active {
            let reason = match self.parts.qp.cause() {
                Some(cause) if cause.peer_gone => DirtyReason::PeerGone,
                Some(cause) if cause.peer_closed => DirtyReason::PeerLeft,
                Some(cause) => DirtyReason::Completion(cause.status),
                None => DirtyReason::Completion(WcStatus::WrFlush),
            };
            self.fail(reason);
        }
        if self.state() == LaneState::Active { Ok(()) } else { Err(self.error()) }
    }

    /// Takes completions of this side's work; errors end the lane that they belong to.
    fn harvest(&self) {
        let mut completions = [crate::fabric::Completion::EMPTY; 16];
        let count = self.parts.send_cq.poll(&mut completions);
        for completion in &completions[..count] {
            if completion.status != WcStatus::Success && completion.qp == self.parts.qp.number() {
                self.fail(DirtyReason::Completion(completion.status));
            }
        }
    }

    /// The error that describes why this lane is not Active.
    #[must_use]
    #[cold]
    pub fn error(&self) -> Box<Error> {
        let reason = self.reason().unwrap_or(DirtyReason::Closed);
        let detail = self.parts.qp.cause().map_or(String::new(), |cause| format!(": {}", cause.detail));
        let (status, layer, verdict) = match reason {
            DirtyReason::PeerGone => (Status::ShardUnreachable, Layer::Node, Verdict::Dead),
            DirtyReason::PeerLeft => (Status::Draining, Layer::Node, Verdict::Dead),
            DirtyReason::PostFailed => (Status::PostFailed, Layer::Post, Verdict::Unknown),
            DirtyReason::Completion(_) => (Status::CompletionError, Layer::Device, Verdict::Unknown),
            DirtyReason::CompletionTimeout => (Status::CompletionTimeout, Layer::TrackedWrite, Verdict::Unknown),
            DirtyReason::WaitTimeout => (Status::WaitTimeout, Layer::Wait, Verdict::Unknown),
            DirtyReason::Closed => (Status::LaneDown, Layer::Usage, Verdict::Unknown),
        };
        let mut error = Error::new(
            status,
            format!("lane {} to shard {} is down ({}){detail}", self.parts.lane, self.parts.shard, reason.name()),
        )
        .at_shard(self.parts.shard)
        .at_lane(self.parts.lane, self.parts.generation)
        .in_layer(layer);
        error.verdict = verdict;
        error.outcome = Outcome::Unknown;
        if let Some(cause) = self.parts.qp.cause() {
            error.completion = cause.status.0;
            error.vendor_error = cause.vendor_error;
        }
        error
    }

    /// Where a slot lies. None when the peer's region has no such place: its offer lied about the geometry.
    pub(super) fn places(&self, slot: u32) -> Option<SlotPlaces> {
        let parts = &self.parts;
        let (g, lane) = (&parts.geometry, parts.lane);
        let payload_bytes = g.request_payload_bytes as usize;
        let (request_header, request_payload) = if let Some(staging) = &parts.staging {
            let base = staging.base().as_ptr();
            // SAFETY: staging has the size of the server's region, which covers every slot of the geometry.
            unsafe { (base.add(g.request_header(lane, slot)), base.add(g.request_payload(lane, slot))) }
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
        let response_header = unsafe { parts.responses.base().as_ptr().add(g.response_header(lane, slot)) };
        Some(SlotPlaces { request_header, request_payload, response_header })
    }

    /// Commits a request whose payload lies in place.
    ///
    /// # Safety
    /// `places` are the places of `slot`, held by the caller, and the payload bytes are written.
    #[inline(always)]
    pub(super) unsafe fn commit(
        &self,
        places: &SlotPlaces,
        slot: u32,
        header: &Words,
        payload_bytes: u32,
    ) -> Result<()> {
        // SAFETY: the header place belongs to the held slot.
        unsafe { store_header(places.request_header, header) };
        if self.parts.staging.is_none() && self.parts.scheme != Scheme::Imm {
            self.parts.qp.doorbell();
            return Ok(());
        }
        self.post_request(places, slot, payload_bytes)
    }

    #[cold]
    fn post_request(&self, places: &SlotPlaces, slot: u32, payload_bytes: u32) -> Result<()> {
        let parts = &self.parts;
        let (g, lane) = (&parts.geometry, parts.lane);
        let lkey = parts.staging.as_ref().map_or(0, Region::lkey);
        let at = |offset: usize| RemoteAddr { address: parts.remote.iova + offset as u64, rkey: parts.remote.rkey };
        let payload = [Sge { address: places.request_payload, bytes: payload_bytes, lkey }];
        let header = [Sge { address: places.request_header, bytes: 64, lkey }];
        let signaled = self.signals.next();
        let wr_id = (u64::from(parts.generation) << 32) | u64::from(lane);
        let op = if parts.scheme == Scheme::Imm { WorkOp::WriteImm(lane * g.slots + slot) } else { WorkOp::Write };
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
        // In a window the payload is there already.
        let skip = usize::from(payload_bytes == 0 || parts.staging.is_none());
        self.post(&chain[skip..])
    }

    fn post(&self, chain: &[Work<'_>]) -> Result<()> {
        for _ in 0..2 {
            // SAFETY: local memory is the lane's staging, which lives as long as the queue pair and is not changed
            // before the answer to this request has arrived.
            match unsafe { self.parts.qp.post(chain) } {
                Ok(()) => return Ok(()),
                Err(PostError::QueueFull) => self.harvest(),
                Err(error) => {
                    // A queue pair that fell to ERR knows better why than the refused post does.
                    if self.check().is_ok() {
                        self.fail(DirtyReason::PostFailed);
                    }
                    let mut described = self.error();
                    described.outcome = Outcome::NotExecuted;
                    if let PostError::Os(number) = error {
                        described.os_error = number;
                    }
                    return Err(described);
                }
            }
        }
        self.fail(DirtyReason::CompletionTimeout);
        Err(self.error())
    }

    /// Whether the answer that ends with `expected` is there.
    ///
    /// # Safety
    /// `places` are those of a slot held by the caller.
    #[inline(always)]
    pub(super) unsafe fn is_answered(&self, places: &SlotPlaces, expected: Word) -> bool {
        // SAFETY: the response header lies in the lane's own region.
        unsafe { load_acquire(places.response_header, response_offsets::WORD) == expected.0 }
    }

    /// Whether an answer's checksum agrees with its bytes, which lie at `landing`, or in the slot when that is null.
    pub(super) fn agrees(&self, places: &SlotPlaces, landing: *const u8, decoded: &ResponseHeader) -> bool {
        let sum = crate::wire::response_checksum(&decoded.to_bytes());
        let bytes = decoded.response_bytes;
        if bytes as usize <= crate::wire::INLINE_BYTES && landing.is_null() {
            return sum == decoded.checksum;
        }
        if landing.is_null() && bytes > self.parts.geometry.response_payload_bytes {
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

    /// Gives receives for immediates back.
    pub(super) fn replenish(&self, count: u32) {
        if self.parts.qp.post_receives(count).is_err() {
            self.fail(DirtyReason::PostFailed);
        }
    }
}
