//! The answering side of a connection: executes each packet once, in order, and says so.

use super::Sim;
use super::memory::Registered;
use super::mutant::{Mutant, mutated};
use super::net::{Core, Entry};
use super::packet::{Body, PSN_MASK, Packet, Place, QpKey, psn_after, psn_ahead};
use crate::fabric::{Access, Completion, WcOpcode, WcStatus};
use crate::sync::Ordering;

/// Answers of atomics that are kept, in case one is asked for again.
const REPLIES_KEPT: usize = 16;

/// A write of several packets that has begun.
#[derive(Clone, Debug)]
pub(super) struct Begun {
    region: Registered,
    offset: usize,
}

impl Core {
    /// A request packet came.
    pub(super) fn asked(&mut self, packet: Packet) {
        let key = packet.to;
        let Some(qp) = self.qps.get_mut(&key) else { return };
        let ahead = psn_ahead(packet.psn, qp.expected);
        let again = ahead < 0 && mutated::<Sim>(Mutant::DuplicatesExecuted);
        let ahead = if again || mutated::<Sim>(Mutant::GapsAccepted) { 0 } else { ahead };
        if ahead < 0 {
            self.asked_again(&packet);
            return;
        }
        if ahead > 0 {
            if !core::mem::replace(&mut qp.said_sequence, true) {
                let expected = qp.expected;
                self.reply(key, expected, Body::NakSequence);
            }
            return;
        }
        qp.said_sequence = false;
        match packet.body {
            Body::Write { place, data, last, imm } => self.write(key, packet.psn, place, data, last, imm),
            Body::Read(place) => self.read(key, packet.psn, place, true),
            Body::Atomic { address, rkey, expect, value } => {
                self.atomic(key, packet.psn, Place { address, rkey, bytes: 8 }, expect, value);
            }
            _ => {}
        }
    }

    /// What was executed already is not executed again, but answered again.
    fn asked_again(&mut self, packet: &Packet) {
        let key = packet.to;
        let Some(qp) = self.qps.get(&key) else { return };
        match &packet.body {
            Body::Write { .. } => {
                let newest = qp.expected.wrapping_sub(1) & PSN_MASK;
                self.reply(key, newest, Body::Ack);
            }
            Body::Read(place) => self.read(key, packet.psn, *place, false),
            _ => {
                let kept = qp.replies.iter().find(|(psn, _)| *psn == packet.psn).map(|(_, old)| *old);
                if let Some(old) = kept {
                    self.reply(key, packet.psn, Body::AtomicReply(old));
                }
            }
        }
    }

    fn reply(&mut self, key: QpKey, psn: u32, body: Body) {
        if let Some(peer) = self.qps.get(&key).and_then(|qp| qp.peer) {
            self.send(Packet { from: key, to: peer, psn, body });
        }
    }

    /// The memory that a request means, if this connection's peer may do that to it.
    fn allowed(&self, key: QpKey, place: Place, needed: Access) -> Option<Begun> {
        let qp = self.qps.get(&key).filter(|qp| qp.exposed.contains(&place.rkey))?;
        let region = self.regions.get(&(qp.key.host, place.rkey)).filter(|r| r.access.allows(needed))?;
        let offset = usize::try_from(place.address.checked_sub(region.iova)?).ok()?;
        let end = offset.checked_add(place.bytes as usize)?;
        (end <= region.bytes).then(|| Begun { region: region.clone(), offset })
    }

    fn refuse(&mut self, key: QpKey, psn: u32) {
        self.reply(key, psn, Body::NakAccess);
        self.fail(key, WcStatus::RemAccess, "the peer asked for what it may not have".to_owned());
    }

    fn write(&mut self, key: QpKey, psn: u32, place: Option<Place>, data: Vec<u8>, last: bool, imm: Option<u32>) {
        if let Some(place) = place {
            let begun = self.allowed(key, place, Access::REMOTE_WRITE);
            if begun.is_none() && (place.bytes > 0 || imm.is_some()) {
                return self.refuse(key, psn);
            }
            if let Some(qp) = self.qps.get_mut(&key) {
                qp.begun = begun;
            }
        }
        let Some(qp) = self.qps.get_mut(&key) else { return };
        if imm.is_some() && qp.receives == 0 {
            self.reply(key, psn, Body::NakNotReady);
            return;
        }
        qp.expected = psn_after(psn, 1);
        if let Some(begun) = &mut qp.begun {
            let (memory, offset) = (begun.region.memory.clone(), begun.offset);
            begun.offset += data.len();
            self.store_later(key, &memory, offset, data);
        }
        if let Some(imm) = imm {
            self.show_all(key);
            self.receive(key, imm);
        }
        if last {
            self.reply(key, psn, Body::Ack);
        }
    }

    fn receive(&mut self, key: QpKey, imm: u32) {
        let Some(qp) = self.qps.get_mut(&key) else { return };
        qp.receives = qp.receives.saturating_sub(1);
        let completion = Completion {
            wr_id: 0,
            qp: key.number,
            status: WcStatus::Success,
            opcode: WcOpcode::ReceiveImm,
            imm,
            vendor_error: 0,
        };
        let (cq, connection) = (qp.recv_cq, qp.connection);
        self.complete(cq, Entry { completion, qp: key, connection, frees: 0 });
    }

    fn read(&mut self, key: QpKey, psn: u32, place: Place, first: bool) {
        self.show_all(key);
        let Some(begun) = self.allowed(key, place, Access::REMOTE_READ) else {
            return if first {
                self.refuse(key, psn)
            };
        };
        let mut data = Vec::new();
        begun.region.memory.load(begun.offset, place.bytes as usize, &mut data);
        if let Some(qp) = self.qps.get_mut(&key).filter(|_| first) {
            qp.expected = psn_after(psn, 1);
        }
        self.reply(key, psn, Body::ReadReply(data));
    }

    fn atomic(&mut self, key: QpKey, psn: u32, place: Place, expect: Option<u64>, value: u64) {
        self.show_all(key);
        let begun = self.allowed(key, place, Access::REMOTE_ATOMIC);
        let Some(word) = begun.as_ref().and_then(|b| b.region.memory.word(b.offset)) else {
            return self.refuse(key, psn);
        };
        // AcqRel: pairs with owners of the memory that read and write the word.
        let old = match expect {
            None => word.fetch_add(value, Ordering::AcqRel),
            Some(expect) => word
                // Acquire on failure: the value is an answer, too.
                .compare_exchange(expect, value, Ordering::AcqRel, Ordering::Acquire)
                .unwrap_or_else(|found| found),
        };
        if let Some(qp) = self.qps.get_mut(&key) {
            qp.expected = psn_after(psn, 1);
            qp.replies.push_back((psn, old));
            if qp.replies.len() > REPLIES_KEPT {
                qp.replies.pop_front();
            }
        }
        self.reply(key, psn, Body::AtomicReply(old));
    }
}
