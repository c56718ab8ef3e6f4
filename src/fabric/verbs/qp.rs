//! Queue pairs: states, connecting, and what completions and events make of them.
//!
//! The state that callers see is kept here, because a device tells of a failure by a completion only. Work carries the
//! number of its connection (*epoch*, process-wide, never used twice), so that a completion of an earlier connection is
//! told apart, whether a device forgets it on RESET or not, and whatever queue pair number it has.

use super::address::Address;
use super::choose::fits;
use super::cq::VerbsCq;
use super::device::{Device, exhausted};
use super::info::{Context, GidKind, gid_text, mtu_bytes};
use super::memory::VerbsRegion;
use super::path::Path;
use super::post::{Receives, Ring, SendQueue};
use super::sys::{self, Library, code, ibv_qp, ibv_qp_attr, ibv_qp_init_attr, ibv_wc};
use super::waker::VerbsWaker;
use super::{SGES, SGES_MAX};
use crate::error::{Error, Result, Status};
use crate::fabric::{Cause, Completion, QpAddress, QpConfig, QpState, WcOpcode, WcStatus};
use crate::sync::{Arc, AtomicU8, AtomicU32, Mutex, Ordering, lock};
use core::ptr::NonNull;
use std::io;

/// Work carries the epoch in its upper half; the highest bit tells receives.
pub(super) const EPOCH_MASK: u32 = 0x7fff_ffff;
pub(super) const RECEIVE_BIT: u32 = 0x8000_0000;

/// What completions and events reach of a queue pair.
#[derive(Debug)]
pub(super) struct QpCore {
    pub(super) raw: NonNull<ibv_qp>,
    pub(super) number: u32,
    pub(super) path: Path,
    library: &'static Library,
    state: AtomicU8,
    epoch: AtomicU32,
    cause: Mutex<Option<Cause>>,
    pub(super) ring: Ring,
    pub(super) send: Mutex<SendQueue>,
    pub(super) receives: Receives,
    control: Mutex<Control>,
    cqs: [usize; 2],
}

// SAFETY: verbs calls on a queue pair may come from any thread; what needs an order has its lock.
unsafe impl Send for QpCore {}
// SAFETY: as above.
unsafe impl Sync for QpCore {}

/// What changes with a connection.
#[derive(Debug)]
struct Control {
    psn: u32,
    nonce: u64,
    /// The device's own state is RESET, whatever is shown.
    device_in_reset: bool,
    /// Nothing may be asked of the device any more.
    gone: bool,
}

/// Queue pair of the verbs provider.
#[derive(Debug)]
pub struct VerbsQp {
    pub(super) core: Arc<QpCore>,
    exposed: Mutex<Vec<VerbsRegion>>,
    waker: Option<Arc<VerbsWaker>>,
    send_cq: Arc<VerbsCq>,
    recv_cq: Arc<VerbsCq>,
    /// Last, so that the queue pair goes first.
    device: Arc<Device>,
}

fn next_epoch() -> u32 {
    static NEXT: AtomicU32 = AtomicU32::new(1);
    NEXT.fetch_add(1, Ordering::Relaxed) & EPOCH_MASK
}

/// PSN and nonce of a connection, from the system's random numbers.
fn fresh() -> Result<(u32, u64)> {
    let mut bytes = [0_u8; 12];
    getrandom::fill(&mut bytes)
        .map_err(|error| Error::new(Status::OsError, format!("verbs: no random bytes for a connection: {error}")))?;
    let psn = u32::from_le_bytes([bytes[0], bytes[1], bytes[2], 0]);
    Ok((psn, bytes[4..].iter().fold(0, |nonce, byte| nonce << 8 | u64::from(*byte))))
}

/// Makes a queue pair at the device; `inline`, then `sges`, are reduced until the device grants them. Returns what was
/// granted: pieces, and inline bytes.
pub(super) fn create(
    device: &Device,
    (send_cq, recv_cq): (&VerbsCq, &VerbsCq),
    config: &QpConfig,
    (mut sges, mut inline): (u32, u32),
) -> Result<(NonNull<ibv_qp>, u32, u32)> {
    loop {
        // SAFETY: plain numbers and pointers, for which zero is a value.
        let mut attr: ibv_qp_init_attr = unsafe { core::mem::zeroed() };
        attr.send_cq = send_cq.raw.as_ptr();
        attr.recv_cq = recv_cq.raw.as_ptr();
        attr.cap.max_send_wr = config.max_send_wr.max(1);
        attr.cap.max_recv_wr = config.max_recv_wr.max(1);
        attr.cap.max_send_sge = sges;
        attr.cap.max_recv_sge = 1;
        attr.cap.max_inline_data = inline;
        attr.qp_type = code::QP_TYPE_RC;
        // SAFETY: domain and queues are alive; `attr` is ours.
        let raw = unsafe { (device.context.library.create_qp)(device.pd.as_ptr(), &raw mut attr) };
        let error = io::Error::last_os_error();
        match NonNull::new(raw) {
            Some(raw) => return Ok((raw, attr.cap.max_send_sge.min(sges), attr.cap.max_inline_data)),
            None if inline > 0 => inline /= 2,
            None if sges > SGES => sges = (sges / 2).max(SGES),
            None => {
                let what = format!(
                    "a queue pair with max-send-wr={} and {} receives",
                    config.max_send_wr.max(1),
                    config.max_recv_wr.max(1)
                );
                let cure = format!(
                    "the device has {} queue pairs of up to {} work requests; lower max-send-wr, qps-per-client-per-shard \
                     or slots-per-qp",
                    device.limits.qps, device.limits.qp_wrs
                );
                return Err(exhausted(device, &what, &error, &cure));
            }
        }
    }
}

impl QpCore {
    /// Present state.
    #[inline]
    pub(super) fn state(&self) -> QpState {
        QpState::from_code(self.state.load(Ordering::Relaxed))
    }

    pub(super) fn epoch(&self) -> u32 {
        self.epoch.load(Ordering::Relaxed)
    }

    fn show(&self, state: QpState) {
        self.state.store(state as u8, Ordering::Relaxed);
    }

    pub(super) fn cause(&self) -> Option<Cause> {
        lock(&self.cause).clone()
    }

    pub(super) fn uses_cq(&self, address: usize) -> bool {
        self.cqs.contains(&address)
    }

    /// Takes note of a failure that nobody asked for. The first one counts.
    fn failed(&self, status: WcStatus, vendor_error: u32, detail: impl FnOnce() -> String) -> bool {
        let mut cause = lock(&self.cause);
        let connected = QpState::Rts as u8;
        let first =
            self.state.compare_exchange(connected, QpState::Err as u8, Ordering::Relaxed, Ordering::Relaxed).is_ok();
        if first {
            let detail = detail();
            *cause = Some(Cause { status, vendor_error, peer_gone: false, peer_closed: false, detail });
        }
        first
    }

    /// Ends the connection from this side, with a cause: what the device or its port reported.
    pub(super) fn break_off(&self, status: WcStatus, detail: String) {
        let control = lock(&self.control);
        if self.failed(status, 0, || detail) && !control.gone {
            // A refusal means that it is in ERR or being reset already.
            let _ = self.modify_device(QpState::Err, |_| {}, code::MASK_STATE);
        }
    }

    fn modify_device(&self, to: QpState, fill: impl FnOnce(&mut ibv_qp_attr), mask: i32) -> io::Result<()> {
        // SAFETY: plain numbers, for which zero is a value.
        let mut attr: ibv_qp_attr = unsafe { core::mem::zeroed() };
        attr.qp_state = u32::from(to as u8);
        fill(&mut attr);
        // SAFETY: `gone` was looked at under the control lock, so the queue pair is alive; `attr` is ours.
        sys::checked(unsafe { (self.library.modify_qp)(self.raw.as_ptr(), &raw mut attr, mask) })
    }

    /// Turns what the device says into a completion of the contract. None: nobody asked for it.
    pub(super) fn completed(&self, wc: &ibv_wc) -> Option<Completion> {
        let status = WcStatus(wc.status);
        if status != WcStatus::Success {
            let at = gid_text(self.path.gid);
            self.failed(status, wc.vendor_err, || {
                format!("{} on queue pair {} of {at}{}", status.name(), self.number, meaning(status))
            });
        }
        let upper = u32::try_from(wc.wr_id >> 32).unwrap_or(0);
        let mut completion = Completion { qp: self.number, status, ..Completion::EMPTY };
        if status != WcStatus::Success {
            completion.vendor_error = wc.vendor_err;
        }
        if upper & RECEIVE_BIT != 0 {
            self.receives.completed();
            completion.opcode = WcOpcode::ReceiveImm;
            if status == WcStatus::Success {
                // SAFETY: a receive with immediate has one.
                completion.imm = u32::from_be(unsafe { wc.imm_data_invalidated_rkey_union.imm_data });
            }
            return Some(completion);
        }
        #[allow(clippy::cast_possible_truncation)] // the lower half
        let (wr_id, wanted) = self.ring.completed(wc.wr_id as u32);
        completion.wr_id = wr_id;
        completion.opcode = match wc.opcode {
            code::WC_READ => WcOpcode::Read,
            code::WC_FETCH_ADD => WcOpcode::FetchAdd,
            code::WC_CMP_SWP => WcOpcode::CompareSwap,
            _ => WcOpcode::Write,
        };
        (wanted || status != WcStatus::Success).then_some(completion)
    }
}

/// What a status most likely means, and what to do, for whoever reads the message.
fn meaning(status: WcStatus) -> &'static str {
    match status {
        WcStatus::RetryExc => {
            " (the peer does not acknowledge: it is gone, or the way to it is cut; see that its process runs, and the \
             cable, switch and route between)"
        }
        WcStatus::RnrRetryExc => {
            " (the peer has no receive posted; see whether its process is stopped, or raise rdma-rnr-retry)"
        }
        WcStatus::RemAccess => {
            " (the peer refuses: no such key, bounds or right; see whether its process started anew, and report it if it \
             recurs)"
        }
        WcStatus::RemInvReq | WcStatus::RemOp | WcStatus::BadResp => {
            " (the peer's device refuses the request, or answers what is none; see the kernel's log at both ends, and that \
             both ends have one version of this library)"
        }
        WcStatus::LocLen | WcStatus::LocQpOp | WcStatus::LocProt | WcStatus::LocAccess => {
            " (this device refuses its own work; see the kernel's log here, and report it)"
        }
        WcStatus::WrFlush => " (the connection ended before; see the first failure of this lane in the log)",
        _ => " (the device or its driver failed; see the kernel's log here)",
    }
}

impl VerbsQp {
    pub(super) fn new(
        device: &Arc<Device>,
        path: Path,
        config: &QpConfig,
        exposed: &[VerbsRegion],
        (send_cq, recv_cq): (&Arc<VerbsCq>, &Arc<VerbsCq>),
        waker: Option<&Arc<VerbsWaker>>,
    ) -> Result<VerbsQp> {
        exposed.iter().try_for_each(|region| may_expose(device, region))?;
        let (psn, nonce) = fresh()?;
        let asked = match config.max_send_sge {
            0 => path.sges,
            more => more.clamp(1, SGES_MAX).min(u32::try_from(device.limits.sges).unwrap_or(1)).max(path.sges),
        };
        let (raw, sges, _) = create(device, (send_cq, recv_cq), config, (asked, path.inline))?;
        let path = Path { sges: sges.max(1), ..path };
        // SAFETY: just made.
        let number = unsafe { (*raw.as_ptr()).qp_num };
        let core = Arc::new(QpCore {
            raw,
            number,
            path,
            library: device.context.library,
            state: AtomicU8::new(QpState::Reset as u8),
            epoch: AtomicU32::new(next_epoch()),
            cause: Mutex::new(None),
            ring: Ring::new(config.max_send_wr.max(1)),
            send: Mutex::new(SendQueue::default()),
            receives: Receives::new(config.max_recv_wr.max(1)),
            control: Mutex::new(Control { psn, nonce, device_in_reset: true, gone: false }),
            cqs: [send_cq.raw.addr().get(), recv_cq.raw.addr().get()],
        });
        let qp = VerbsQp {
            core,
            exposed: Mutex::new(exposed.to_vec()),
            waker: waker.cloned(),
            send_cq: Arc::clone(send_cq),
            recv_cq: Arc::clone(recv_cq),
            device: Arc::clone(device),
        };
        qp.attach();
        device.events.watch(number, &qp.core);
        if let Some(waker) = waker {
            waker.attach(&qp.core, recv_cq);
        }
        Ok(qp)
    }

    fn attach(&self) {
        let epoch = self.core.epoch();
        self.send_cq.attach(epoch, &self.core);
        self.recv_cq.attach(epoch, &self.core);
    }

    fn detach(&self) {
        let epoch = self.core.epoch();
        self.send_cq.detach(epoch);
        self.recv_cq.detach(epoch);
    }

    fn own_address(&self, control: &Control) -> Address {
        let path = &self.core.path;
        Address {
            mode: path.mode as u8,
            link_layer: path.link_layer,
            mtu: path.mtu,
            reads_max: self.device.limits.reads_in,
            lid: path.lid,
            qp: self.core.number,
            psn: control.psn,
            gid: path.gid,
            nonce: control.nonce,
        }
    }

    pub(super) fn address(&self) -> QpAddress {
        self.own_address(&lock(&self.core.control)).encode()
    }

    pub(super) fn connect_to(&self, peer: &QpAddress) -> Result<()> {
        let mut control = lock(&self.core.control);
        if self.core.state() != QpState::Reset {
            let what = format!("connecting queue pair {} in state {:?}", self.core.number, self.core.state());
            return Err(Error::new(Status::WrongState, what));
        }
        let unreachable = |what: String| Error::new(Status::ShardUnreachable, what);
        let peer = Address::decode(peer)
            .ok_or_else(|| unreachable("verbs: what the peer published is not a queue pair's address".to_owned()))?;
        let own = self.own_address(&control);
        if let Some(why) = own.refusal(&peer) {
            return Err(unreachable(format!("verbs: {why}")));
        }
        self.tell_mtu(&own, &peer);
        let outcome = self.walk(&own, &peer);
        control.device_in_reset = false;
        if let Err((step, error)) = outcome {
            // Back to where it was; a device that refuses even this refuses the next attempt as well.
            control.device_in_reset = self.core.modify_device(QpState::Reset, |_| {}, code::MASK_STATE).is_ok();
            let mut refused = Error::os(
                format_args!(
                    "verbs: {} port {}, queue pair {} to {} of {} at {step}",
                    self.device.name(),
                    self.core.path.port,
                    self.core.number,
                    peer.qp,
                    gid_text(peer.gid)
                ),
                &error,
            );
            refused.status = Status::ShardUnreachable;
            refused.message = format!("{}; {}", refused.message, cure(&error));
            return Err(refused);
        }
        self.core.show(QpState::Rts);
        Ok(())
    }

    /// Packets are as large as the smaller end takes, which works; that the ends differ is often a switch or an interface
    /// that was forgotten. Said once for each device.
    fn tell_mtu(&self, own: &Address, peer: &Address) {
        // Relaxed: said once, whoever is first.
        if own.mtu == peer.mtu || self.device.mtu_told.swap(true, Ordering::Relaxed) {
            return;
        }
        crate::event!(
            crate::observe::Level::WARN,
            crate::observe::events::MTU_DIFFERS,
            device = self.device.name(),
            port = self.core.path.port,
            here_bytes = mtu_bytes(own.mtu),
            peer_bytes = mtu_bytes(peer.mtu),
            peer = gid_text(peer.gid),
            cure = "set the MTU of both interfaces, and of what is between, alike; or rdma-path-mtu on both ends"
        );
    }

    /// RESET → INIT → RTR → RTS.
    fn walk(&self, own: &Address, peer: &Address) -> core::result::Result<(), (&'static str, io::Error)> {
        let (core, path, limits) = (&self.core, &self.core.path, &self.device.limits);
        let gid_index = path.find_gid(&self.device.context).map_err(|error| ("INIT", error))?;
        let atomics = if limits.has_atomics { code::ACCESS_REMOTE_ATOMIC } else { 0 };
        let init = |attr: &mut ibv_qp_attr| {
            attr.port_num = path.port;
            attr.qp_access_flags = code::ACCESS_REMOTE_WRITE | code::ACCESS_REMOTE_READ | atomics;
        };
        core.modify_device(QpState::Init, init, code::MASK_INIT).map_err(|error| ("INIT", error))?;
        let rtr = |attr: &mut ibv_qp_attr| {
            attr.path_mtu = u32::from(own.mtu.min(peer.mtu));
            attr.dest_qp_num = peer.qp;
            attr.rq_psn = peer.psn;
            attr.max_dest_rd_atomic = limits.reads_in;
            attr.min_rnr_timer = path.min_rnr_timer;
            path.fill(&mut attr.ah_attr, peer, gid_index);
        };
        core.modify_device(QpState::Rtr, rtr, code::MASK_RTR).map_err(|error| ("RTR", error))?;
        let rts = |attr: &mut ibv_qp_attr| {
            attr.sq_psn = own.psn;
            attr.timeout = path.ack_timeout;
            attr.retry_cnt = path.retry_cnt;
            attr.rnr_retry = path.rnr_retry;
            attr.max_rd_atomic = limits.reads_out.min(peer.reads_max);
        };
        core.modify_device(QpState::Rts, rts, code::MASK_RTS).map_err(|error| ("RTS", error))
    }

    pub(super) fn modify(&self, to: QpState) -> Result<()> {
        let core = &self.core;
        let mut control = lock(&core.control);
        match (core.state(), to) {
            (QpState::Err, QpState::Err) => Ok(()),
            (_, QpState::Err) => {
                // No post comes between the state that is shown and the device's own.
                let _posts = lock(&core.send);
                core.show(QpState::Err);
                if control.device_in_reset {
                    return Ok(());
                }
                // A refusal means that it is in ERR already.
                let _ = core.modify_device(QpState::Err, |_| {}, code::MASK_STATE);
                Ok(())
            }
            (QpState::Err, QpState::Reset) => self.reset(&mut control),
            (from, to) => {
                let what = format!("queue pair {} from {from:?} to {to:?}", core.number);
                Err(Error::new(Status::WrongState, what))
            }
        }
    }

    fn reset(&self, control: &mut Control) -> Result<()> {
        let core = &self.core;
        let (psn, nonce) = fresh()?;
        let mut posts = lock(&core.send);
        if !control.device_in_reset {
            core.modify_device(QpState::Reset, |_| {}, code::MASK_STATE).map_err(|error| {
                Error::os(format_args!("{}: queue pair {} to RESET", self.device.name(), core.number), &error)
            })?;
        }
        // What the device has completed of the old connection stays in the queue on some, and is nobody's from here on.
        self.detach();
        control.device_in_reset = true;
        (control.psn, control.nonce) = (psn, nonce);
        posts.reset();
        core.ring.reset();
        core.receives.reset();
        *lock(&core.cause) = None;
        core.epoch.store(next_epoch(), Ordering::Relaxed);
        core.show(QpState::Reset);
        self.attach();
        Ok(())
    }

    pub(super) fn also_expose(&self, region: &VerbsRegion) -> Result<()> {
        may_expose(&self.device, region)?;
        if self.core.state() == QpState::Err {
            let what = format!("queue pair {} has lost its peer", self.core.number);
            return Err(Error::new(Status::ShardUnreachable, what));
        }
        lock(&self.exposed).push(region.clone());
        Ok(())
    }
}

/// What to do about a refused connection.
fn cure(error: &io::Error) -> &'static str {
    match error.raw_os_error() {
        Some(libc::ETIMEDOUT | libc::EHOSTUNREACH | libc::ENETUNREACH) => {
            "nobody answers at that address: check the route (ping it from this device's address), VLAN and switch"
        }
        Some(libc::EADDRNOTAVAIL) => "the port lost the address: see that its network interface is up and has it",
        Some(libc::EINVAL) => {
            "the device takes no such path: check rdma-path-mtu, rdma-gid-index, and that both ends can route to each other"
        }
        _ => "see the kernel's log",
    }
}

fn may_expose(device: &Arc<Device>, region: &VerbsRegion) -> Result<()> {
    if region.is_remote() && region.is_of(device) {
        return Ok(());
    }
    Err(Error::new(Status::InvalidArgument, "verbs: only memory of the same device with remote rights can be exposed"))
}

impl Drop for VerbsQp {
    fn drop(&mut self) {
        if let Some(waker) = &self.waker {
            waker.detach(&self.core);
        }
        self.device.events.forget(self.core.number);
        // Nobody polls for it any more, and events find it gone.
        self.detach();
        let mut control = lock(&self.core.control);
        control.gone = true;
        self.core.show(QpState::Err);
        // SAFETY: made by `create`, destroyed once. It waits for events that were not acknowledged yet, and the thread
        // that hears them acknowledges each before anything else.
        let _ = unsafe { (self.core.library.destroy_qp)(self.core.raw.as_ptr()) };
    }
}

impl Path {
    /// The place of our address now: it may have moved since the last connection.
    fn find_gid(&self, context: &Context) -> io::Result<u32> {
        let is_ours = |found: &super::info::GidInfo| found.gid == self.gid && fits(found.kind, self.mode);
        if context.gid(self.port, self.gid_index).filter(|found| is_ours(found)).is_some() {
            return Ok(self.gid_index);
        }
        let port = context.port(self.port)?;
        let moved = port.gids.iter().find(|found| is_ours(found)).map(|found| found.index);
        moved.ok_or_else(|| io::Error::from_raw_os_error(libc::EADDRNOTAVAIL))
    }

    /// Whether the port still has our address.
    pub(super) fn has_gid(&self, context: &Context) -> bool {
        self.find_gid(context).is_ok()
    }

    /// Whether an address is of InfiniBand.
    pub(super) fn kind(&self) -> GidKind {
        super::choose::kind_of(self.mode)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_failed_completion_says_what_to_do() {
        for (status, words) in [
            (WcStatus::RetryExc, ["does not acknowledge", "see that its process runs, and the cable"]),
            (WcStatus::RnrRetryExc, ["no receive posted", "raise rdma-rnr-retry"]),
            (WcStatus::RemAccess, ["no such key, bounds or right", "see whether its process started anew"]),
            (WcStatus::RemInvReq, ["the peer's device refuses", "the kernel's log at both ends"]),
            (WcStatus::RemOp, ["the peer's device refuses", "the kernel's log at both ends"]),
            (WcStatus::BadResp, ["answers what is none", "the kernel's log at both ends"]),
            (WcStatus::LocLen, ["refuses its own work", "report it"]),
            (WcStatus::LocQpOp, ["refuses its own work", "report it"]),
            (WcStatus::LocProt, ["refuses its own work", "report it"]),
            (WcStatus::LocAccess, ["refuses its own work", "report it"]),
            (WcStatus::WrFlush, ["the connection ended before", "see the first failure of this lane"]),
            (WcStatus::Fatal, ["the device or its driver failed", "see the kernel's log"]),
            (WcStatus(99), ["the device or its driver failed", "see the kernel's log"]),
        ] {
            let told = meaning(status);
            words.iter().for_each(|word| assert!(told.contains(word), "{status:?}: {word:?} is not in: {told}"));
        }
    }
}
