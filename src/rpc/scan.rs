//! How a poll thread finds committed requests.

use super::raw::{checksum_foreign, copy_header, load_acquire};
use super::{Scheme, ServerLane};
use crate::fabric::{Completion, Cq, Fabric, Qp, WcOpcode, WcStatus};
use crate::sync::Arc;
use crate::wire::{HEADER_BYTES, RequestHeader, Word, request_checksum};
use std::collections::HashMap;

/// Most requests that one call of [`Scanner::scan`] hands out: enough to overlap their cache misses, few enough that
/// the first one does not wait for the last.
pub const READY_MAX: usize = 16;

const WORD_AT: usize = HEADER_BYTES - 8;

/// A committed request. The header is a private copy; nothing of it has been judged.
#[derive(Clone, Copy, Debug)]
pub struct Ready {
    /// Index for [`Scanner::lane`], valid until the lanes change.
    pub lane: u32,
    /// The slot.
    pub slot: u32,
    /// The request.
    pub header: RequestHeader,
}

#[derive(Debug)]
struct Entry {
    header: *const u8,
    expected: Word,
    lane: u32,
    slot: u32,
}

/// The slots of one poll thread.
#[derive(Debug)]
pub struct Scanner<F: Fabric> {
    lanes: Vec<Arc<ServerLane<F>>>,
    entries: Vec<Entry>,
    /// Where the next round begins, so that a full batch does not favour the first slots.
    cursor: usize,
    has_crc: bool,
    imm_cq: Option<Arc<F::Cq>>,
}

// SAFETY: the raw header pointers point into regions that `lanes` keeps alive and that may be read from any thread.
unsafe impl<F: Fabric> Send for Scanner<F> {}

impl<F: Fabric> Scanner<F> {
    /// Without lanes. `recv_cq` is where immediates of this thread's lanes arrive.
    #[must_use]
    pub fn new(recv_cq: Arc<F::Cq>) -> Scanner<F> {
        Scanner { lanes: Vec::new(), entries: Vec::new(), cursor: 0, has_crc: false, imm_cq: Some(recv_cq) }
    }

    /// Number of lanes.
    #[must_use]
    pub fn lane_count(&self) -> usize {
        self.lanes.len()
    }

    /// The lane of a [`Ready`].
    #[inline]
    #[must_use]
    pub fn lane(&self, index: u32) -> &Arc<ServerLane<F>> {
        &self.lanes[index as usize]
    }

    /// Begins to scan a lane.
    pub fn add(&mut self, lane: Arc<ServerLane<F>>) {
        if lane.parts().scheme == Scheme::Imm {
            lane.replenish(lane.parts().geometry.slots);
        }
        self.lanes.push(lane);
        self.rebuild();
    }

    /// Drops every lane for which `keep` is false; returns how many.
    pub fn retain(&mut self, keep: impl FnMut(&Arc<ServerLane<F>>) -> bool) -> usize {
        let before = self.lanes.len();
        self.lanes.retain(keep);
        if self.lanes.len() != before {
            self.rebuild();
        }
        before - self.lanes.len()
    }

    /// Makes the dense list anew; slots known before keep what they expect.
    fn rebuild(&mut self) {
        let known: HashMap<*const u8, Word> =
            core::mem::take(&mut self.entries).into_iter().map(|entry| (entry.header, entry.expected)).collect();
        for (index, lane) in self.lanes.iter().enumerate() {
            let lane_index = u32::try_from(index).unwrap_or(u32::MAX);
            for slot in 0..lane.parts().geometry.slots {
                let header = lane.request_header(slot);
                let first = Word::new(lane.parts().generation, 1);
                let expected = known.get(&header).copied().unwrap_or(first);
                self.entries.push(Entry { header, expected, lane: lane_index, slot });
            }
        }
        self.has_crc = self.lanes.iter().any(|lane| lane.parts().scheme == Scheme::Crc);
        self.cursor = 0;
    }

    /// One round over all slots, at most [`READY_MAX`] requests into `ready`. Every request is handed out exactly once.
    #[inline]
    pub fn scan(&mut self, ready: &mut Vec<Ready>) {
        self.scan_words(ready);
        if ready.is_empty() {
            self.scan_immediates(ready);
        }
    }

    #[inline]
    fn scan_words(&mut self, ready: &mut Vec<Ready>) {
        let count = self.entries.len();
        let start = self.cursor;
        for step in 0..count {
            let index = if start + step < count { start + step } else { start + step - count };
            let entry = &mut self.entries[index];
            // SAFETY: the header lies in the lane's own region.
            if unsafe { load_acquire(entry.header, WORD_AT) } != entry.expected.0 {
                continue;
            }
            // SAFETY: as above.
            let bytes = unsafe { copy_header(entry.header) };
            let lane = &self.lanes[entry.lane as usize];
            let scheme = lane.parts().scheme;
            if scheme == Scheme::Imm || (self.has_crc && scheme == Scheme::Crc && !agrees(lane, entry.slot, &bytes)) {
                continue;
            }
            let mut header = RequestHeader::from_bytes(&bytes);
            // What is answered is what was expected, whatever the client stores meanwhile.
            header.commit = entry.expected;
            entry.expected = entry.expected.next();
            ready.push(Ready { lane: entry.lane, slot: entry.slot, header });
            if ready.len() == READY_MAX {
                self.cursor = if index + 1 == count { 0 } else { index + 1 };
                return;
            }
        }
    }

    #[inline]
    fn scan_immediates(&mut self, ready: &mut Vec<Ready>) {
        let Some(cq) = self.imm_cq.as_ref().filter(|_| self.lanes.iter().any(|l| l.parts().scheme == Scheme::Imm))
        else {
            return;
        };
        let mut completions = [Completion::EMPTY; READY_MAX];
        let count = cq.poll(&mut completions);
        for completion in &completions[..count] {
            if completion.status != WcStatus::Success || completion.opcode != WcOpcode::ReceiveImm {
                continue;
            }
            let Some((index, lane)) =
                self.lanes.iter().enumerate().find(|(_, lane)| lane.parts().qp.number() == completion.qp)
            else {
                continue;
            };
            lane.replenish(1);
            let parts = lane.parts();
            let Some(slot) = completion.imm.checked_sub(parts.lane * parts.geometry.slots) else {
                continue;
            };
            let found = self.entries.iter_mut().find(|e| e.lane as usize == index && e.slot == slot);
            let Some(entry) = found else {
                continue;
            };
            // SAFETY: the header lies in the lane's own region.
            let bytes = unsafe { copy_header(entry.header) };
            let mut header = RequestHeader::from_bytes(&bytes);
            if header.commit != entry.expected {
                continue;
            }
            header.commit = entry.expected;
            entry.expected = entry.expected.next();
            ready.push(Ready { lane: entry.lane, slot, header });
        }
    }
}

/// Whether a request's checksum agrees with what lies in the slot. The sum covers no more payload than the slot has.
fn agrees<F: Fabric>(lane: &ServerLane<F>, slot: u32, bytes: &[u8; HEADER_BYTES]) -> bool {
    let header = RequestHeader::from_bytes(bytes);
    let covered = header.payload_bytes.min(lane.parts().geometry.request_payload_bytes);
    // SAFETY: `covered` is within the slot's payload.
    let sum = unsafe { checksum_foreign(request_checksum(bytes), lane.request_payload(slot), covered as usize) };
    sum == header.checksum
}

/// Whether a request that asked for a checksum agrees with it; for schemes that do not check before handing out.
pub(crate) fn request_agrees<F: Fabric>(lane: &ServerLane<F>, slot: u32, header: &RequestHeader) -> bool {
    agrees(lane, slot, &header.to_bytes())
}
