//! The life of a queue pair: states, connection, and what the link tells about the other end.
//!
//! Lock order: sender, control, then any of peer regions, completion queue, ring, waker, link. The agent thread takes
//! `control` and below, never `sender`: a long copy does not hold it up.

use super::address::Address;
use super::attach::{Attachment, PeerRegion, attach};
use super::cq::ShmCq;
use super::hub::Hub;
use super::link::{End, Link, Parcel, Pending, REGIONS_MAX};
use super::memory::{Mapping, ShmRegion};
use super::message::{Message, QpLife, Refusal};
use super::post::Sender;
use super::ring::{RING_ENTRIES_MAX, ReceiveRing};
use super::waker::{Bell, ShmWaker};
use super::{fence, sys};
use crate::error::{Error, Result, Status};
use crate::fabric::{Cause, PostError, QpAddress, QpConfig, QpState, Region, RegionAddress, Waker, WcStatus};
use crate::sync::{Arc, AtomicPtr, AtomicU8, Mutex, MutexGuard, Ordering, RwLock, lock};
use crate::time::Tick;
use std::os::fd::OwnedFd;

/// Who fetched us, and over which link.
#[derive(Debug)]
struct Fetched {
    link: Arc<Link>,
    by: QpLife,
}

/// Everything that changes rarely.
#[derive(Debug)]
pub(super) struct Control {
    nonce: u64,
    exposed: Vec<ShmRegion>,
    lasting: usize, // so many of them the queue pair was made with
    /// Whom we connect to, and over which link.
    target: Option<QpLife>,
    out: Option<Arc<Link>>,
    fetched: Option<Fetched>,
    ring: Option<Arc<ReceiveRing>>,
    cause: Option<Cause>,
    /// What happened to the peer while `connect` was under way.
    lost: Option<Cause>,
    /// Counts calls of `connect`: one that was overtaken by ERR and RESET changes nothing any more.
    attempt: u64,
    /// What `connect` waits for.
    waiting: Option<Arc<Pending>>,
    /// What pointers were handed out into: stays until the queue pair is dropped, through ERR and RESET.
    kept_mappings: Vec<Arc<Mapping>>,
    kept_bells: Vec<Arc<Bell>>,
}

/// A queue pair without its handle.
#[derive(Debug)]
pub(super) struct QpCore {
    pub(super) number: u32,
    pub(super) config: QpConfig,
    hub: Arc<Hub>,
    pub(super) send_cq: Arc<ShmCq>,
    recv_cq: Arc<ShmCq>,
    waker: Option<Arc<ShmWaker>>,
    state: AtomicU8,
    /// Points into `kept_bells`, or is null.
    bell: AtomicPtr<Bell>,
    pub(super) sender: Mutex<Sender>,
    control: Mutex<Control>,
    peer_regions: RwLock<Vec<PeerRegion>>,
}

/// What a peer is told of a queue pair that is closed in order; any other status means a failure.
const CLOSED: WcStatus = WcStatus::WrFlush;

fn nonce() -> Result<u64> {
    Ok(u64::from_le_bytes(sys::random().map_err(|error| Error::os("shm: no random numbers", &error))?))
}

pub(super) fn unreachable(text: impl Into<String>) -> Box<Error> {
    Error::new(Status::ShardUnreachable, text)
}

impl QpCore {
    /// Everything in RESET.
    pub(super) fn new(
        number: u32,
        hub: &Arc<Hub>,
        config: &QpConfig,
        exposed: &[ShmRegion],
        cqs: (&Arc<ShmCq>, &Arc<ShmCq>),
        waker: Option<&Arc<ShmWaker>>,
    ) -> Result<QpCore> {
        if config.max_recv_wr > RING_ENTRIES_MAX {
            let text = format!("shm: max_recv_wr {} is above {RING_ENTRIES_MAX}", config.max_recv_wr);
            return Err(Error::new(Status::InvalidArgument, text));
        }
        if exposed.len() > REGIONS_MAX {
            let text = format!("shm: {} regions are more than the {REGIONS_MAX} of a queue pair", exposed.len());
            return Err(Error::new(Status::InvalidArgument, text));
        }
        exposed.iter().try_for_each(|region| check_exposable(region).map(|_| ()))?;
        let control = Control {
            nonce: nonce()?,
            exposed: exposed.to_vec(),
            lasting: exposed.len(),
            target: None,
            out: None,
            fetched: None,
            ring: new_ring(number, config.max_recv_wr)?,
            cause: None,
            lost: None,
            attempt: 0,
            waiting: None,
            kept_mappings: Vec::new(),
            kept_bells: Vec::new(),
        };
        Ok(QpCore {
            number,
            config: *config,
            hub: Arc::clone(hub),
            send_cq: Arc::clone(cqs.0),
            recv_cq: Arc::clone(cqs.1),
            waker: waker.cloned(),
            state: AtomicU8::new(QpState::Reset as u8),
            bell: AtomicPtr::new(core::ptr::null_mut()),
            sender: Mutex::new(Sender::default()),
            control: Mutex::new(control),
            peer_regions: RwLock::new(Vec::new()),
        })
    }

    /// Present state.
    #[inline]
    pub(super) fn state(&self) -> QpState {
        // Acquire. Partner: Release in `set_state`.
        QpState::from_code(self.state.load(Ordering::Acquire))
    }

    /// The caller holds `control`.
    fn set_state(&self, _control: &mut Control, state: QpState) {
        // Release: who sees RTS sees the connection. Partner: Acquire in `state`.
        self.state.store(state as u8, Ordering::Release);
    }

    pub(super) fn cause(&self) -> Option<Cause> {
        lock(&self.control).cause.clone()
    }

    pub(super) fn address(&self) -> QpAddress {
        let qp = QpLife { number: self.number, nonce: lock(&self.control).nonce };
        Address { endpoint: self.hub.name, qp }.encode()
    }

    /// Whether this is a poll thread's end.
    pub(super) fn has_waker(&self) -> bool {
        self.waker.is_some()
    }

    /// Rings the peer's waker if it sleeps.
    #[inline]
    pub(super) fn ring_bell(&self) {
        // Acquire: the bell's contents. Partner: Release in `finish_connect`.
        let bell = self.bell.load(Ordering::Acquire);
        // SAFETY: null, or a bell that `kept_bells` holds until the queue pair is dropped.
        if let Some(bell) = unsafe { bell.as_ref() } {
            bell.ring();
        }
    }

    /// Looks a region of the peer up.
    pub(super) fn find_region<T>(&self, rkey: u32, found: impl FnOnce(&PeerRegion) -> T) -> Option<T> {
        let regions = self.peer_regions.read().unwrap_or_else(std::sync::PoisonError::into_inner);
        regions.iter().find(|region| region.address.rkey == rkey).map(found)
    }

    /// RESET to RTS.
    pub(super) fn connect(&self, peer: &QpAddress, until: Tick) -> Result<()> {
        let address =
            Address::decode(peer).ok_or_else(|| unreachable("shm: the peer's address is not one of the shm fabric"))?;
        let attempt = {
            let mut control = lock(&self.control);
            let state = self.state();
            if state != QpState::Reset {
                let text = format!("shm: connect needs a queue pair in RESET; number {} is in {state:?}", self.number);
                return Err(Error::new(Status::WrongState, text));
            }
            if control.fetched.as_ref().is_some_and(|fetched| fetched.by != address.qp) {
                return Err(unreachable("shm: another queue pair than this one has already connected to us"));
            }
            control.target = Some(address.qp);
            control.lost = None;
            control.attempt += 1;
            self.set_state(&mut control, QpState::Init);
            control.attempt
        };
        let result =
            self.fetch(&address, attempt, until).and_then(|attachment| self.finish_connect(attachment, attempt));
        if result.is_err() {
            let mut control = lock(&self.control);
            if self.state() == QpState::Init && control.attempt == attempt {
                control.target = None;
                control.out = None;
                self.clear_peer();
                self.set_state(&mut control, QpState::Reset);
            }
        }
        result
    }

    fn clear_peer(&self) {
        self.peer_regions.write().unwrap_or_else(std::sync::PoisonError::into_inner).clear();
        // Relaxed: a late ring through the old bell is harmless.
        self.bell.store(core::ptr::null_mut(), Ordering::Relaxed);
    }

    /// ERR or RESET came between.
    fn overtaken(&self) -> Box<Error> {
        let text = format!("shm: queue pair {} went to ERR while it connected", self.number);
        Error::new(Status::WrongState, text)
    }

    fn fetch(&self, address: &Address, attempt: u64, until: Tick) -> Result<Attachment> {
        let link = self.hub.link_to(address.endpoint, until)?;
        let from = {
            let mut control = lock(&self.control);
            if self.state() != QpState::Init || control.attempt != attempt {
                return Err(self.overtaken());
            }
            control.out = Some(Arc::clone(&link));
            QpLife { number: self.number, nonce: control.nonce }
        };
        let (target, generation) = (address.qp, self.config.generation);
        let (id, pending) = link.request(Vec::new(), |id| Message::Fetch { id, target, from, generation });
        self.wait_here(&pending, attempt)?;
        let Some((regions, end)) = pending.wait(until) else {
            link.forget(id);
            return Err(unreachable(format!("shm: process {} did not answer within the timeout", link.pid)));
        };
        match end {
            End::Attached { bell, barrier, ring_entries, fds } => {
                attach(link, regions, bell.then_some(barrier), ring_entries, fds).map_err(unreachable)
            }
            End::Refused(why) => Err(unreachable(format!("shm: process {} refused: {}", link.pid, why.text()))),
            End::Accepted => Err(unreachable(format!("shm: process {} answered out of turn", link.pid))),
            End::Closed => Err(unreachable(format!("shm: process {} did not answer before the link ended", link.pid))),
        }
    }

    /// Lets ERR end the wait of `connect`.
    fn wait_here(&self, pending: &Arc<Pending>, attempt: u64) -> Result<()> {
        let mut control = lock(&self.control);
        if self.state() != QpState::Init || control.attempt != attempt {
            return Err(self.overtaken());
        }
        control.waiting = Some(Arc::clone(pending));
        Ok(())
    }

    fn finish_connect(&self, attachment: Attachment, attempt: u64) -> Result<()> {
        let mut sender = lock(&self.sender);
        let mut control = lock(&self.control);
        if self.state() != QpState::Init || control.attempt != attempt {
            return Err(self.overtaken());
        }
        if let Some(lost) = control.lost.take() {
            return Err(unreachable(format!("shm: {}", lost.detail)));
        }
        if attachment.link.is_closed() {
            return Err(unreachable(format!("shm: process {} is gone", attachment.link.pid)));
        }
        sender.attach(attachment.ring);
        control.waiting = None;
        for region in attachment.regions {
            self.add_region(&mut control, region);
        }
        if let Some(bell) = attachment.bell {
            let place = Arc::as_ptr(&bell).cast_mut();
            if !control.kept_bells.iter().any(|kept| Arc::ptr_eq(kept, &bell)) {
                control.kept_bells.push(bell);
            }
            // Release. Partner: Acquire in `ring_bell`.
            self.bell.store(place, Ordering::Release);
        }
        self.set_state(&mut control, QpState::Rts);
        Ok(())
    }

    fn add_region(&self, control: &mut Control, region: PeerRegion) {
        if !control.kept_mappings.iter().any(|kept| Arc::ptr_eq(kept, &region.mapping)) {
            control.kept_mappings.push(Arc::clone(&region.mapping));
        }
        let mut regions = self.peer_regions.write().unwrap_or_else(std::sync::PoisonError::into_inner);
        // The first one with a key stays: pointers into it were handed out.
        if !regions.iter().any(|known| known.address.rkey == region.address.rkey) {
            regions.push(region);
        }
    }

    /// To ERR from any state, or to RESET from ERR.
    pub(super) fn modify(&self, to: QpState) -> Result<()> {
        match to {
            QpState::Err => {
                let control = lock(&self.control);
                if self.state() != QpState::Err {
                    self.enter_error(control, None, Some(WcStatus::RetryExc));
                }
                Ok(())
            }
            QpState::Reset => self.reset(),
            other => {
                let text = format!("shm: modify reaches ERR and RESET only, not {other:?}; connect reaches RTS");
                Err(Error::new(Status::WrongState, text))
            }
        }
    }

    fn reset(&self) -> Result<()> {
        let mut sender = lock(&self.sender);
        let mut control = lock(&self.control);
        let state = self.state();
        if state != QpState::Err {
            let text = format!("shm: only a queue pair in ERR can be reset; number {} is in {state:?}", self.number);
            return Err(Error::new(Status::WrongState, text));
        }
        // What can fail comes first: a refused modify changes nothing.
        let (nonce, ring) = (nonce()?, new_ring(self.number, self.config.max_recv_wr)?);
        control.nonce = nonce;
        control.ring = ring;
        control.target = None;
        control.out = None;
        control.fetched = None;
        control.cause = None;
        control.lost = None;
        self.clear_peer();
        *sender = Sender::default();
        self.send_cq.purge(self.number);
        self.recv_cq.purge(self.number);
        self.set_state(&mut control, QpState::Reset);
        Ok(())
    }

    /// To ERR by itself; the first cause counts.
    pub(super) fn fail(&self, cause: Cause) {
        let control = lock(&self.control);
        if self.state() == QpState::Rts {
            let told = cause.status;
            self.enter_error(control, Some(cause), Some(told));
        }
    }

    /// `tell`: what the peer is told, unless it is the one who told us.
    fn enter_error(&self, mut control: MutexGuard<'_, Control>, cause: Option<Cause>, tell: Option<WcStatus>) {
        control.cause = cause;
        self.set_state(&mut control, QpState::Err);
        if let Some(ring) = &control.ring {
            self.recv_cq.stop_listening(ring);
        }
        if let Some(waiting) = control.waiting.take() {
            waiting.finish(End::Closed);
        }
        let (fetched, out) = (control.fetched.take(), control.out.take());
        if let Some(status) = tell {
            // Over the link on which our answer went: so it cannot overtake the answer.
            let route = match (&fetched, &out, control.target) {
                (Some(fetched), _, _) => Some((&fetched.link, fetched.by)),
                (None, Some(link), Some(target)) => Some((link, target)),
                _ => None,
            };
            if let Some((link, target)) = route {
                link.send(Parcel::new(&Message::Failed { target, status: status.0 }, Vec::new()));
            }
        }
        drop(control);
        if let Some(waker) = &self.waker {
            waker.forget_closed();
            Waker::notify(&**waker);
        }
    }

    /// The handle is dropped.
    pub(super) fn close(&self) {
        self.hub.leave(self.number);
        let control = lock(&self.control);
        if self.state() != QpState::Err {
            self.enter_error(control, None, Some(CLOSED));
        }
        self.send_cq.purge(self.number);
        self.recv_cq.purge(self.number);
    }

    /// Lets the peer reach one region more.
    pub(super) fn expose(&self, region: &ShmRegion, until: Tick) -> Result<()> {
        let fd = check_exposable(region)?;
        let (link, target) = {
            let mut control = lock(&self.control);
            if self.state() == QpState::Err {
                return Err(unreachable(format!("shm: queue pair {} is in ERR", self.number)));
            }
            if !control.exposed.iter().any(|known| known.address() == region.address()) {
                if control.exposed.len() >= REGIONS_MAX {
                    let text = format!("shm: queue pair {} already exposes {REGIONS_MAX} regions", self.number);
                    return Err(Error::new(Status::ResourceLimit, text));
                }
                control.exposed.push(region.clone());
            }
            match &control.fetched {
                Some(fetched) => (Arc::clone(&fetched.link), fetched.by),
                // The peer has not fetched yet: it will get this region with the others.
                None => return Ok(()),
            }
        };
        let region = region.address();
        let (id, pending) = link.request(vec![fd], |id| Message::Expose { id, target, region });
        match pending.wait(until) {
            Some((_, End::Accepted)) => Ok(()),
            Some((_, End::Refused(why))) => {
                Err(unreachable(format!("shm: process {} refused a region: {}", link.pid, why.text())))
            }
            Some(_) => Err(unreachable(format!("shm: process {} is gone", link.pid))),
            None => {
                link.forget(id);
                Err(unreachable(format!("shm: process {} did not take a region within the timeout", link.pid)))
            }
        }
    }

    /// Takes back what [`QpCore::expose`] gave.
    pub(super) fn unexpose(&self, region: &ShmRegion) {
        let route = {
            let mut control = lock(&self.control);
            let found = control.exposed.iter().position(|known| known.address() == region.address());
            let Some(place) = found.filter(|place| *place >= control.lasting) else { return };
            control.exposed.remove(place);
            control.fetched.as_ref().map(|fetched| (Arc::clone(&fetched.link), fetched.by))
        };
        if let Some((link, target)) = route {
            link.send(Parcel::new(&Message::Unexpose { target, rkey: region.address().rkey }, Vec::new()));
        }
    }

    /// Lets `count` more immediates in.
    pub(super) fn post_receives(&self, count: u32) -> core::result::Result<(), PostError> {
        let control = lock(&self.control);
        let state = self.state();
        if state != QpState::Rts {
            return Err(PostError::NotConnected(state));
        }
        match &control.ring {
            _ if count == 0 => Ok(()),
            Some(ring) if ring.post(count, self.config.max_recv_wr) => {
                self.recv_cq.listen(ring);
                Ok(())
            }
            _ => Err(PostError::QueueFull),
        }
    }
}

// What the agent thread calls.
impl QpCore {
    /// A peer that knows our nonce asks for everything.
    pub(super) fn answer_fetch(
        &self,
        link: &Arc<Link>,
        id: u64,
        asked: u64,
        from: QpLife,
        generation: u32,
    ) -> core::result::Result<(), Refusal> {
        let mut control = lock(&self.control);
        if control.nonce != asked {
            return Err(Refusal::Unknown);
        }
        if self.state() == QpState::Err {
            return Err(Refusal::Failed);
        }
        if self.config.generation != generation {
            return Err(Refusal::Generation);
        }
        let known = control.fetched.as_ref().map(|fetched| fetched.by).or(control.target);
        if known.is_some_and(|known| known != from) {
            return Err(Refusal::Taken);
        }
        let bell = match &self.waker {
            Some(waker) => Some(waker.bell_for(link.number, &link.closed).map_err(|_| Refusal::Resources)?),
            None => None,
        };
        for region in &control.exposed {
            let fds: Vec<Arc<OwnedFd>> = region.shared().into_iter().collect();
            link.send(Parcel::new(&Message::Region { id, region: region.address() }, fds));
        }
        let mut fds = Vec::new();
        if let Some(bell) = &bell {
            fds.extend([Arc::clone(&bell.page_fd), Arc::clone(&bell.ring_fd)]);
        }
        let ring_entries = control.ring.as_ref().map_or(0, |ring| ring.entries);
        fds.extend(control.ring.as_ref().map(|ring| Arc::clone(&ring.fd)));
        let end = Message::Attached { id, bell: bell.is_some(), barrier: fence::available(), ring_entries };
        link.send(Parcel::new(&end, fds));
        control.fetched = Some(Fetched { link: Arc::clone(link), by: from });
        Ok(())
    }

    /// The peer that we fetched exposes one region more.
    pub(super) fn region_exposed(
        &self,
        link: &Arc<Link>,
        nonce: u64,
        region: &RegionAddress,
        fd: &OwnedFd,
    ) -> core::result::Result<(), Refusal> {
        let mut control = lock(&self.control);
        let ours = control.out.as_ref().is_some_and(|out| out.number == link.number);
        if control.nonce != nonce || !ours || !matches!(self.state(), QpState::Init | QpState::Rts) {
            return Err(Refusal::Unknown);
        }
        let mapping = link.map_region(fd, region).map_err(|_| Refusal::BadMemory)?;
        let known = self.find_region(region.rkey, |known| known.address == *region);
        match known {
            Some(true) => return Ok(()),
            Some(false) => return Err(Refusal::BadMemory),
            None => {}
        }
        if control.kept_mappings.len() >= 2 * REGIONS_MAX {
            return Err(Refusal::Resources);
        }
        self.add_region(&mut control, PeerRegion { lent: true, ..PeerRegion::lasting(*region, mapping) });
        Ok(())
    }

    /// The peer takes a region back that it exposed later.
    pub(super) fn region_taken_back(&self, link: &Arc<Link>, nonce: u64, rkey: u32) {
        let mut control = lock(&self.control);
        if control.nonce != nonce || control.out.as_ref().is_none_or(|out| out.number != link.number) {
            return;
        }
        let mut regions = self.peer_regions.write().unwrap_or_else(std::sync::PoisonError::into_inner);
        let Some(place) = regions.iter().position(|known| known.address.rkey == rkey && known.lent) else { return };
        let gone = regions.swap_remove(place);
        if !gone.windowed.load(Ordering::Relaxed)
            && !regions.iter().any(|known| Arc::ptr_eq(&known.mapping, &gone.mapping))
        {
            control.kept_mappings.retain(|kept| !Arc::ptr_eq(kept, &gone.mapping));
        }
    }

    /// The peer says that its end went to ERR.
    pub(super) fn peer_failed(&self, link: &Arc<Link>, nonce: u64, status: u32) {
        let control = lock(&self.control);
        if control.nonce != nonce {
            return;
        }
        let peer_closed = status == CLOSED.0;
        let (status, detail) = match WcStatus(status) {
            WcStatus::RemAccess => (WcStatus::RemAccess, "the peer broke the rules of this side's memory"),
            CLOSED => (WcStatus::RetryExc, "the peer closed its queue pair"),
            _ => (WcStatus::RetryExc, "the peer's queue pair went to ERR"),
        };
        let cause = Cause { status, vendor_error: 0, peer_gone: false, peer_closed, detail: detail.to_owned() };
        self.lose_peer(control, link, cause);
    }

    /// A link ended.
    pub(super) fn link_closed(&self, link: &Arc<Link>, why: &str) {
        let detail = format!("process {} is gone: {why}", link.pid);
        let cause = Cause { status: WcStatus::RetryExc, vendor_error: 0, peer_gone: true, peer_closed: false, detail };
        self.lose_peer(lock(&self.control), link, cause);
    }

    fn lose_peer(&self, mut control: MutexGuard<'_, Control>, link: &Arc<Link>, cause: Cause) {
        let out = control.out.as_ref().is_some_and(|out| out.number == link.number);
        let fetched = control.fetched.as_ref().is_some_and(|fetched| fetched.link.number == link.number);
        if !out && !fetched {
            return;
        }
        match self.state() {
            QpState::Rts => self.enter_error(control, Some(cause), None),
            QpState::Err => {}
            // Not connected yet: `connect` fails if it is under way, and another peer may come.
            _ => {
                control.fetched = None;
                control.lost = Some(cause);
            }
        }
    }
}

fn new_ring(qp: u32, receives: u32) -> Result<Option<Arc<ReceiveRing>>> {
    if receives == 0 {
        return Ok(None);
    }
    let ring = ReceiveRing::new(qp, receives)
        .map_err(|error| Error::os(format_args!("shm: no memory for a ring of {receives} receives"), &error))?;
    Ok(Some(Arc::new(ring)))
}

/// The descriptor that peers get of a region; an error for memory that no peer may reach.
fn check_exposable(region: &ShmRegion) -> Result<Arc<OwnedFd>> {
    region.shared().ok_or_else(|| {
        Error::new(Status::InvalidArgument, "shm: a region without remote access cannot be exposed to a peer")
    })
}
