//! Queue pairs: states, addresses, posts.

use super::memory::SimRegion;
use super::net::{Core, Net};
use super::packet::{PSN_MASK, QpKey};
use super::requester::Wqe;
use super::responder::Begun;
use super::rng::mix;
use super::waker::SimWaker;
use crate::error::{Error, Result, Status};
use crate::fabric::{Access, Cause, PostError, Qp, QpAddress, QpConfig, QpState, Region, RemoteAddr, Work, WorkOp};
use crate::sync::Arc;
use core::ptr::NonNull;
use core::time::Duration;
use std::collections::VecDeque;

/// Most pieces of one work request.
pub(super) const MAX_SGE: u32 = 8;

/// What the network knows of a queue pair.
#[derive(Debug)]
pub(super) struct QpCore {
    pub(super) key: QpKey,
    pub(super) config: QpConfig,
    pub(super) state: QpState,
    pub(super) cause: Option<Cause>,
    pub(super) peer: Option<QpKey>,
    /// Unique over all connections of all queue pairs.
    pub(super) connection: u64,
    pub(super) send_cq: u32,
    pub(super) recv_cq: u32,
    pub(super) exposed: Vec<u32>,
    /// Number of this side's first packet; part of the address.
    first_psn: u32,
    pub(super) sq: VecDeque<Wqe>,
    /// Places of the send queue that are taken.
    pub(super) used: u32,
    /// Done and not yet given back.
    pub(super) unsignaled: u32,
    pub(super) next_psn: u32,
    /// First packet of the head that was not acknowledged, when it is not the head's first.
    pub(super) una: u32,
    pub(super) una_set: bool,
    pub(super) retries: u32,
    pub(super) not_ready: u32,
    pub(super) waits_for_receiver: bool,
    pub(super) timer: u64,
    pub(super) expected: u32,
    pub(super) said_sequence: bool,
    pub(super) receives: u32,
    pub(super) begun: Option<Begun>,
    pub(super) replies: VecDeque<(u32, u64)>,
    pub(super) visible_at: u64,
    pub(super) last_arrival: u64,
}

impl QpCore {
    /// Whether a packet from this host belongs here, as far as a device can tell.
    pub(super) fn receives_from(&self, host: u32) -> bool {
        self.state == QpState::Rts && self.peer.is_some_and(|peer| peer.host == host)
    }

    fn begin(&mut self, first_psn: u32, connection: u64) {
        self.state = QpState::Reset;
        self.cause = None;
        self.peer = None;
        self.connection = connection;
        self.first_psn = first_psn;
        self.sq.clear();
        (self.used, self.unsignaled, self.next_psn) = (0, 0, first_psn);
        (self.una_set, self.retries, self.not_ready, self.waits_for_receiver) = (false, 0, 0, false);
        (self.timer, self.said_sequence, self.receives) = (0, false, 0);
        (self.begun, self.last_arrival) = (None, 0);
        self.replies.clear();
    }

    /// Magic, host, number, first packet number, connection, check: 4 bytes each but the 8 of the connection.
    fn address(&self) -> QpAddress {
        let mut out = Vec::with_capacity(ADDRESS_BYTES);
        for field in [MAGIC, self.key.host, self.key.number, self.first_psn] {
            out.extend_from_slice(&field.to_le_bytes());
        }
        out.extend_from_slice(&self.connection.to_le_bytes());
        out.extend_from_slice(&check(&out).to_le_bytes());
        QpAddress(out)
    }
}

const MAGIC: u32 = 0x6d69_7351;
const ADDRESS_BYTES: usize = 28;

pub(super) fn check(bytes: &[u8]) -> u32 {
    bytes.iter().fold(MAGIC, |sum, byte| mix(u64::from(sum) << 8 | u64::from(*byte)) as u32)
}

/// The queue pair and first packet number of an address.
fn parse(address: &QpAddress) -> Option<(QpKey, u32)> {
    let (body, sum) = address.0.split_last_chunk::<4>()?;
    if address.0.len() != ADDRESS_BYTES || u32::from_le_bytes(*sum) != check(body) {
        return None;
    }
    let field = |at: usize| body.get(at..at + 4).and_then(|b| b.try_into().ok()).map(u32::from_le_bytes);
    (field(0)? == MAGIC).then_some((QpKey { host: field(4)?, number: field(8)? }, field(12)? & PSN_MASK))
}

/// A queue pair of one simulated process.
#[derive(Debug)]
pub struct SimQp {
    net: Arc<Net>,
    key: QpKey,
    depth: u32,
    /// What its owner's poller would sleep on.
    _waker: Option<Arc<SimWaker>>,
}

impl SimQp {
    pub(super) fn new(
        net: &Arc<Net>,
        host: u32,
        config: &QpConfig,
        exposed: &[SimRegion],
        (send_cq, recv_cq): (u32, u32),
        waker: Option<&Arc<SimWaker>>,
    ) -> Result<SimQp> {
        for region in exposed {
            exposable(region, host)?;
        }
        let mut core = net.lock();
        let key = QpKey { host, number: core.new_number() };
        let mut qp = QpCore {
            key,
            config: *config,
            state: QpState::Reset,
            cause: None,
            peer: None,
            connection: 0,
            send_cq,
            recv_cq,
            exposed: exposed.iter().map(Region::lkey).collect(),
            first_psn: 0,
            sq: VecDeque::new(),
            used: 0,
            unsignaled: 0,
            next_psn: 0,
            una: 0,
            una_set: false,
            retries: 0,
            not_ready: 0,
            waits_for_receiver: false,
            timer: 0,
            expected: 0,
            said_sequence: false,
            receives: 0,
            begun: None,
            replies: VecDeque::new(),
            visible_at: 0,
            last_arrival: 0,
        };
        let (psn, connection) = fresh(&mut core);
        qp.begin(psn, connection);
        core.qps.insert(key, qp);
        drop(core);
        Ok(SimQp { net: Arc::clone(net), key, depth: config.max_send_wr, _waker: waker.cloned() })
    }
}

fn exposable(region: &SimRegion, host: u32) -> Result<()> {
    if region.owner() == host && region.address().access != Access::LOCAL {
        return Ok(());
    }
    Err(Error::new(
        Status::InvalidArgument,
        "memory without remote rights, or of another process, cannot be exposed".to_owned(),
    ))
}

fn fresh(core: &mut Core) -> (u32, u64) {
    let connection = core.unique();
    let psn = if core.policy.psn_collisions {
        core.last_psn.wrapping_sub(core.rng.below(6) as u32) & PSN_MASK
    } else {
        core.rng.below(u64::from(PSN_MASK) + 1) as u32
    };
    (psn, connection)
}

fn wrong_state(what: &str, state: QpState) -> Box<Error> {
    Error::new(Status::WrongState, format!("a simulated queue pair in {state:?} cannot {what}"))
}

fn malformed(work: &Work<'_>) -> Option<&'static str> {
    if work.local.len() > MAX_SGE as usize {
        return Some("more pieces than max_sge");
    }
    if matches!(work.op, WorkOp::FetchAdd(_) | WorkOp::CompareSwap { .. }) {
        if work.local.len() != 1 || work.local[0].bytes != 8 {
            return Some("an atomic needs one piece of 8 bytes");
        }
        if !work.remote.address.is_multiple_of(8) {
            return Some("an atomic needs an address that is a multiple of 8");
        }
    }
    None
}

impl Qp for SimQp {
    type Region = SimRegion;

    fn number(&self) -> u32 {
        self.key.number
    }

    fn send_depth(&self) -> u32 {
        self.depth
    }

    fn address(&self) -> QpAddress {
        self.net.lock().qps.get(&self.key).map_or_else(|| QpAddress(Vec::new()), QpCore::address)
    }

    /// A local act, as on a device: nothing is asked of the peer.
    fn connect(&self, peer: &QpAddress, _timeout: Duration) -> Result<()> {
        let mut core = self.net.enter();
        let Some(qp) = core.qps.get_mut(&self.key) else { return Err(wrong_state("connect", QpState::Err)) };
        if qp.state != QpState::Reset {
            return Err(wrong_state("connect", qp.state));
        }
        let Some((key, psn)) = parse(peer) else {
            return Err(Error::new(
                Status::ShardUnreachable,
                "that is no address of a simulated queue pair".to_owned(),
            ));
        };
        (qp.peer, qp.expected, qp.state) = (Some(key), psn, QpState::Rts);
        Ok(())
    }

    fn state(&self) -> QpState {
        self.net.enter().qps.get(&self.key).map_or(QpState::Err, |qp| qp.state)
    }

    fn cause(&self) -> Option<Cause> {
        self.net.enter().qps.get(&self.key).and_then(|qp| qp.cause.clone())
    }

    fn modify(&self, to: QpState) -> Result<()> {
        let mut core = self.net.enter();
        let state = core.qps.get(&self.key).map_or(QpState::Err, |qp| qp.state);
        match (state, to) {
            (_, QpState::Err) => core.end(self.key, None),
            (QpState::Err, QpState::Reset) => {
                if core.policy.purge_on_reset {
                    let key = self.key;
                    core.cqs.values_mut().for_each(|cq| cq.entries.retain(|entry| entry.qp != key));
                }
                let (psn, connection) = fresh(&mut core);
                if let Some(qp) = core.qps.get_mut(&self.key) {
                    let last = qp.next_psn;
                    qp.begin(psn, connection);
                    core.last_psn = last;
                }
            }
            _ => return Err(wrong_state(&format!("go to {to:?}"), state)),
        }
        Ok(())
    }

    fn expose(&self, region: &SimRegion, _timeout: Duration) -> Result<()> {
        exposable(region, self.key.host)?;
        let mut core = self.net.enter();
        let Some(qp) = core.qps.get_mut(&self.key).filter(|qp| qp.state != QpState::Err) else {
            return Err(Error::new(Status::ShardUnreachable, "the connection has ended".to_owned()));
        };
        if !qp.exposed.contains(&region.lkey()) {
            qp.exposed.push(region.lkey());
        }
        Ok(())
    }

    fn window(&self, _remote: RemoteAddr, _bytes: usize, _access: Access) -> Option<NonNull<u8>> {
        None
    }

    fn doorbell(&self) {}

    unsafe fn post(&self, chain: &[Work<'_>]) -> core::result::Result<(), PostError> {
        let mut core = self.net.enter();
        let Some(qp) = core.qps.get(&self.key) else { return Err(PostError::NotConnected(QpState::Err)) };
        if qp.state != QpState::Rts {
            return Err(PostError::NotConnected(qp.state));
        }
        if let Some(why) = chain.iter().find_map(malformed) {
            return Err(PostError::Invalid(why));
        }
        if qp.used as usize + chain.len() > qp.config.max_send_wr as usize {
            return Err(PostError::QueueFull);
        }
        core.enqueue(self.key, chain);
        self.net.settle(&mut core);
        Ok(())
    }

    fn post_receives(&self, count: u32) -> core::result::Result<(), PostError> {
        let mut core = self.net.enter();
        let Some(qp) = core.qps.get_mut(&self.key) else { return Err(PostError::NotConnected(QpState::Err)) };
        // In RESET receives may be posted ahead on no provider; connecting comes first.
        if qp.state != QpState::Rts {
            return Err(PostError::NotConnected(qp.state));
        }
        if qp.receives.saturating_add(count) > qp.config.max_recv_wr {
            return Err(PostError::QueueFull);
        }
        qp.receives += count;
        Ok(())
    }
}

impl Drop for SimQp {
    fn drop(&mut self) {
        let mut core = self.net.lock();
        if let Some(qp) = core.qps.remove(&self.key) {
            core.last_psn = qp.next_psn;
        }
        core.free_number(self.key.number);
    }
}
