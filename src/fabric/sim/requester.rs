//! The asking side of a connection: sends, waits for acknowledgements, sends again, gives up.

use super::net::{Core, Entry, Event};
use super::packet::{Body, PSN_MASK, Packet, Place, QpKey, psn_after, psn_ahead};
use super::qp::QpCore;
use crate::fabric::{Cause, Completion, QpState, RemoteAddr, Sge, WcOpcode, WcStatus, Work, WorkOp};

/// A piece of local memory, by its address.
#[derive(Clone, Copy, Debug)]
struct Piece {
    address: usize,
    bytes: u32,
    lkey: u32,
}

/// One work request under way.
#[derive(Debug)]
pub(super) struct Wqe {
    wr_id: u64,
    op: WorkOp,
    local: Vec<Piece>,
    bytes: u32,
    remote: RemoteAddr,
    signaled: bool,
    /// Number of its first packet.
    psn: u32,
    packets: u32,
}

impl Wqe {
    fn last_psn(&self) -> u32 {
        psn_after(self.psn, self.packets - 1)
    }

    fn is_write(&self) -> bool {
        matches!(self.op, WorkOp::Write | WorkOp::WriteImm(_))
    }

    fn opcode(&self) -> WcOpcode {
        match self.op {
            WorkOp::Write | WorkOp::WriteImm(_) => WcOpcode::Write,
            WorkOp::Read => WcOpcode::Read,
            WorkOp::FetchAdd(_) => WcOpcode::FetchAdd,
            WorkOp::CompareSwap { .. } => WcOpcode::CompareSwap,
        }
    }

    fn place(&self) -> Place {
        Place { address: self.remote.address, rkey: self.remote.rkey, bytes: self.bytes }
    }
}

impl Core {
    /// Takes a chain that was found well-formed and to fit.
    pub(super) fn enqueue(&mut self, key: QpKey, chain: &[Work<'_>]) {
        let mtu = self.policy.mtu.max(8);
        let Some(qp) = self.qps.get_mut(&key) else { return };
        let first = qp.next_psn;
        for work in chain {
            let bytes = work.local.iter().map(|piece| piece.bytes).sum();
            let wqe = Wqe {
                wr_id: work.wr_id,
                op: work.op,
                local: work.local.iter().map(piece).collect(),
                bytes,
                remote: work.remote,
                signaled: work.signaled,
                psn: qp.next_psn,
                packets: if matches!(work.op, WorkOp::Write | WorkOp::WriteImm(_)) {
                    bytes.div_ceil(mtu).max(1)
                } else {
                    1
                },
            };
            qp.next_psn = psn_after(qp.next_psn, wqe.packets);
            qp.used += 1;
            qp.sq.push_back(wqe);
        }
        if !qp.waits_for_receiver {
            self.transmit(key, first);
        }
        if self.qps.get(&key).is_some_and(|qp| qp.timer == 0 && !qp.sq.is_empty()) {
            self.arm(key, self.policy.retry_ns);
        }
    }

    fn arm(&mut self, key: QpKey, after_ns: u64) {
        let timer = self.unique();
        let when = self.now + after_ns;
        if let Some(qp) = self.qps.get_mut(&key) {
            qp.timer = timer;
            self.at(when, Event::Retry { qp: key, timer });
        }
    }

    /// Sends every packet from this number on. Local memory is read now, as a device does each time it sends.
    fn transmit(&mut self, key: QpKey, from: u32) {
        let mut failed = None;
        let mut packets = Vec::new();
        let mtu = self.policy.mtu.max(8) as usize;
        if let Some(qp) = self.qps.get(&key) {
            let Some(peer) = qp.peer else { return };
            for (index, wqe) in qp.sq.iter().enumerate().filter(|(_, wqe)| psn_ahead(wqe.last_psn(), from) >= 0) {
                let Some(data) = self.gather(key.host, wqe) else {
                    failed = Some(index);
                    break;
                };
                for number in 0..wqe.packets {
                    let psn = psn_after(wqe.psn, number);
                    if psn_ahead(psn, from) >= 0 {
                        packets.push(Packet { from: key, to: peer, psn, body: body(wqe, number, &data, mtu) });
                    }
                }
            }
        }
        packets.into_iter().for_each(|packet| self.send(packet));
        if failed == Some(0) {
            // What stands before a bad request is still awaited; at the head it fails.
            self.fail(key, WcStatus::LocProt, "local memory of a work request is not registered".to_owned());
        }
    }

    fn gather(&self, host: u32, wqe: &Wqe) -> Option<Vec<u8>> {
        let mut data = Vec::new();
        for piece in &wqe.local {
            let region = self.regions.get(&(host, piece.lkey));
            let bytes = piece.bytes as usize;
            if bytes == 0 {
                continue;
            }
            let region = region?;
            let offset = region.memory.offset_of(piece.address, bytes)?;
            if wqe.is_write() {
                region.memory.load(offset, bytes, &mut data);
            }
        }
        Some(data)
    }

    /// An answer came.
    pub(super) fn answered(&mut self, packet: Packet) {
        let key = packet.to;
        let Some(qp) = self.qps.get(&key) else { return };
        let una = qp.sq.front().map_or(qp.next_psn, |head| if qp.una_set { qp.una } else { head.psn });
        let inside = psn_ahead(packet.psn, una) >= 0 && psn_ahead(packet.psn, qp.next_psn) < 0;
        if qp.sq.is_empty() || !inside {
            return;
        }
        let before = packet.psn.wrapping_sub(1) & PSN_MASK;
        match packet.body {
            Body::Ack => self.acknowledge(key, packet.psn, None),
            Body::ReadReply(data) => self.acknowledge(key, packet.psn, Some(data)),
            Body::AtomicReply(old) => self.acknowledge(key, packet.psn, Some(old.to_le_bytes().to_vec())),
            Body::NakSequence => {
                self.acknowledge(key, before, None);
                self.again(key, packet.psn);
            }
            Body::NakNotReady => {
                self.acknowledge(key, before, None);
                self.not_ready(key);
            }
            Body::NakAccess => {
                self.acknowledge(key, before, None);
                let refused = |wqe: &Wqe| psn_ahead(packet.psn, wqe.last_psn()) <= 0;
                if self.qps.get(&key).and_then(|qp| qp.sq.front()).is_some_and(refused) {
                    self.fail(key, WcStatus::RemAccess, "the peer refused key, bounds or access".to_owned());
                } else {
                    // The answer to an earlier read or atomic was lost. A device asks for it again, of a peer that is in
                    // ERR and says nothing more.
                    self.fail(key, WcStatus::RetryExc, "an answer was lost, and the peer is in ERR".to_owned());
                }
            }
            Body::Write { .. } | Body::Read(_) | Body::Atomic { .. } => {}
        }
    }

    /// Everything up to `psn` was executed. `reply` is for the request of just that number.
    fn acknowledge(&mut self, key: QpKey, psn: u32, mut reply: Option<Vec<u8>>) {
        let mut progress = false;
        loop {
            let Some(qp) = self.qps.get_mut(&key) else { return };
            let Some(head) = qp.sq.front() else { break };
            if psn_ahead(head.last_psn(), psn) > 0 {
                if psn_ahead(psn, head.psn) >= 0 {
                    (qp.una, qp.una_set, progress) = (psn_after(psn, 1), true, true);
                }
                break;
            }
            if !head.is_write() && (head.psn != psn || reply.is_none()) {
                // Its answer was lost: it is asked for again.
                break;
            }
            progress = true;
            qp.una_set = false;
            qp.unsignaled += 1;
            let Some(done) = qp.sq.pop_front() else { break };
            if let Some(data) = reply.take_if(|_| !done.is_write()) {
                self.scatter(key.host, &done, &data);
            }
            if done.signaled {
                self.done(key, &done, WcStatus::Success);
            }
        }
        if progress && let Some(qp) = self.qps.get_mut(&key) {
            (qp.retries, qp.not_ready) = (0, 0);
            qp.timer = 0;
            if !qp.sq.is_empty() {
                self.arm(key, self.policy.retry_ns);
            }
        }
    }

    fn scatter(&mut self, host: u32, wqe: &Wqe, mut data: &[u8]) {
        for piece in &wqe.local {
            let take = (piece.bytes as usize).min(data.len());
            let region = self.regions.get(&(host, piece.lkey));
            if let Some((region, offset)) = region.and_then(|r| Some((r, r.memory.offset_of(piece.address, take)?))) {
                region.memory.store(offset, &data[..take]);
            }
            data = &data[take..];
        }
    }

    /// A completion of the send queue; it gives back its own place and those of unsignaled ones before it.
    fn done(&mut self, key: QpKey, wqe: &Wqe, status: WcStatus) {
        let Some(qp) = self.qps.get_mut(&key) else { return };
        let frees = core::mem::take(&mut qp.unsignaled);
        let completion = Completion {
            wr_id: wqe.wr_id,
            qp: key.number,
            status,
            opcode: wqe.opcode(),
            imm: 0,
            vendor_error: if status == WcStatus::Success { 0 } else { 0x51 },
        };
        let entry = Entry { completion, qp: key, connection: qp.connection, frees };
        let cq = qp.send_cq;
        self.complete(cq, entry);
    }

    fn again(&mut self, key: QpKey, from: u32) {
        let Some(qp) = self.qps.get(&key) else { return };
        if qp.state != QpState::Rts || qp.sq.is_empty() {
            return;
        }
        self.counts.resent += 1;
        self.transmit(key, from);
        self.arm(key, self.policy.retry_ns);
    }

    fn not_ready(&mut self, key: QpKey) {
        let most = self.policy.rnr_retries;
        let Some(qp) = self.qps.get_mut(&key) else { return };
        qp.not_ready += 1;
        if qp.not_ready > most {
            self.fail(key, WcStatus::RnrRetryExc, "the peer has no receive posted".to_owned());
            return;
        }
        qp.waits_for_receiver = true;
        self.arm(key, self.policy.rnr_ns);
    }

    /// The retry timer went off.
    pub(super) fn retry(&mut self, key: QpKey, timer: u64) {
        let most = self.policy.retries;
        let Some(qp) = self.qps.get_mut(&key).filter(|qp| qp.timer == timer) else { return };
        qp.timer = 0;
        let Some(head) = qp.sq.front() else { return };
        let from = if qp.una_set { qp.una } else { head.psn };
        if !core::mem::take(&mut qp.waits_for_receiver) {
            qp.retries += 1;
            if qp.retries > most {
                self.fail(key, WcStatus::RetryExc, "the peer does not acknowledge".to_owned());
                return;
            }
        }
        self.note(0xae51);
        self.again(key, from);
    }

    /// The connection ends by itself: the head fails with `status`, all else is flushed.
    pub(super) fn fail(&mut self, key: QpKey, status: WcStatus, detail: String) {
        let Some(qp) = self.qps.get_mut(&key) else { return };
        if qp.state == QpState::Err {
            return;
        }
        qp.cause = Some(Cause { status, vendor_error: 0x51, peer_gone: false, peer_closed: false, detail });
        self.counts.broken += 1;
        self.end(key, Some(status));
    }

    /// To ERR: everything posted is flushed, each once.
    pub(super) fn end(&mut self, key: QpKey, head: Option<WcStatus>) {
        let Some(qp) = self.qps.get_mut(&key) else { return };
        if qp.state == QpState::Err {
            return;
        }
        qp.state = QpState::Err;
        (qp.timer, qp.waits_for_receiver, qp.una_set) = (0, false, false);
        let work = core::mem::take(&mut qp.sq);
        let receives = core::mem::take(&mut qp.receives);
        let (number, connection, recv_cq) = (key.number, qp.connection, qp.recv_cq);
        self.note(0xe44 ^ u64::from(number));
        let lost = self.rng.chance(self.policy.lose_flush);
        for (index, wqe) in work.iter().enumerate() {
            let status = head.filter(|_| index == 0).unwrap_or(WcStatus::WrFlush);
            if let Some(qp) = self.qps.get_mut(&key) {
                qp.unsignaled += 1;
            }
            if !lost || status != WcStatus::WrFlush {
                self.done(key, wqe, status);
            }
        }
        for _ in 0..receives {
            if lost {
                break;
            }
            let completion = Completion {
                wr_id: 0,
                qp: number,
                status: WcStatus::WrFlush,
                opcode: WcOpcode::ReceiveImm,
                imm: 0,
                vendor_error: 0,
            };
            self.complete(recv_cq, Entry { completion, qp: key, connection, frees: 0 });
        }
    }

    pub(super) fn break_one(&mut self, host: u32, pick: usize) -> bool {
        let works = |(key, qp): &(&QpKey, &QpCore)| key.host == host && qp.state == QpState::Rts;
        let keys: Vec<QpKey> = self.qps.iter().filter(works).map(|(key, _)| *key).collect();
        let Some(key) = (!keys.is_empty()).then(|| keys[pick % keys.len()]) else { return false };
        self.fail(key, WcStatus::RetryExc, "the device gave the connection up".to_owned());
        true
    }
}

fn piece(from: &Sge) -> Piece {
    Piece { address: from.address.addr(), bytes: from.bytes, lkey: from.lkey }
}

/// What packet `number` of a work request carries.
fn body(wqe: &Wqe, number: u32, data: &[u8], mtu: usize) -> Body {
    match wqe.op {
        WorkOp::Read => Body::Read(wqe.place()),
        WorkOp::FetchAdd(value) => {
            Body::Atomic { address: wqe.remote.address, rkey: wqe.remote.rkey, expect: None, value }
        }
        WorkOp::CompareSwap { expect, swap } => {
            Body::Atomic { address: wqe.remote.address, rkey: wqe.remote.rkey, expect: Some(expect), value: swap }
        }
        WorkOp::Write | WorkOp::WriteImm(_) => {
            let from = (number as usize * mtu).min(data.len());
            let to = (from + mtu).min(data.len());
            let last = number + 1 == wqe.packets;
            Body::Write {
                place: (number == 0).then(|| wqe.place()),
                data: data[from..to].to_vec(),
                last,
                imm: match wqe.op {
                    WorkOp::WriteImm(imm) if last => Some(imm),
                    _ => None,
                },
            }
        }
    }
}
