//! How a poll thread finds committed requests.

use super::raw::{checksum_foreign, copy_header, fetch_to_read, load_acquire};
use super::{Scheme, ServerLane};
use crate::fabric::{Completion, Cq, Fabric, Mutant, Qp, WcOpcode, WcStatus, mutated};
use crate::sync::Arc;
use crate::wire::{HEADER_BYTES, RequestHeader, Word, Words, request_checksum};
use std::collections::HashMap;

/// Most requests that one call of [`Scanner::scan`] hands out: enough to overlap their cache misses, few enough that
/// the first one does not wait for the last.
pub const READY_MAX: usize = 16;

const WORD_AT: usize = HEADER_BYTES - 8;

/// A committed request.
#[derive(Clone, Copy, Debug)]
pub struct Ready {
    /// Index for [`Scanner::lane`], valid until the lanes change.
    pub lane: u32,
    /// The slot.
    pub slot: u32,
    /// A private copy of the header, as it came; nothing of it has been judged.
    pub words: Words,
}

impl Ready {
    /// The request.
    #[inline(always)]
    #[must_use]
    pub fn header(&self) -> RequestHeader {
        RequestHeader::from_words(&self.words)
    }
}

#[derive(Debug)]
struct Entry {
    header: *const u8,
    expected: Word,
    /// Where the next request's payload will begin, if the last one had some of up to a line; else null.
    payload: *const u8,
    lane: u32,
    slot: u32,
    /// The round in which it was last found committed.
    last_round: u64,
    is_hot: bool,
}

/// Slots that were used lately are hot, and a client takes its slots in turn. So a round looks at the hot slot after the
/// one found last, and goes on from there for as long as it finds requests: a look at a slot that its client is about to
/// write takes the line away from it, and the client would wait for it to come back. Every [`TURNS`]th round looks at all
/// hot slots. The cold ones are looked at in turn, so many in every [`TURNS`]th round: a round costs by the slots in use
/// and not by all there are, and a slot that comes into use is found within `slots / 4` rounds of some nanoseconds.
const COLD_PER_TURN: usize = 16;
/// Rounds without a request after which a slot is cold again, and how often this is looked after.
const COOLS_AFTER_ROUNDS: u64 = 1 << 14;

/// Hot slots whose headers are asked for ahead.
const FETCHED_AHEAD: usize = 4;
/// Every so many rounds some cold slots are looked at, before the hot ones; in another one of them all hot ones are.
const TURNS: u64 = 4;

/// The slots of one poll thread.
#[derive(Debug)]
pub struct Scanner<F: Fabric> {
    lanes: Vec<Arc<ServerLane<F>>>,
    entries: Vec<Entry>,
    /// Indices of hot entries.
    hot: Vec<u32>,
    /// Where the next round begins among the hot, so that a full batch does not favour the first slots.
    hot_cursor: usize,
    /// Where the next round begins among all.
    cold_cursor: usize,
    rounds: u64,
    has_imm: bool,
    imm_cq: Arc<F::Cq>,
}

// SAFETY: the raw header pointers point into regions that `lanes` keeps alive and that may be read from any thread.
unsafe impl<F: Fabric> Send for Scanner<F> {}

impl<F: Fabric> Scanner<F> {
    /// Without lanes. `recv_cq` is where immediates of this thread's lanes arrive.
    #[must_use]
    pub fn new(recv_cq: Arc<F::Cq>) -> Scanner<F> {
        Scanner {
            lanes: Vec::new(),
            entries: Vec::new(),
            hot: Vec::new(),
            hot_cursor: 0,
            cold_cursor: 0,
            rounds: 0,
            has_imm: false,
            imm_cq: recv_cq,
        }
    }

    /// The lanes.
    pub fn lanes(&self) -> impl Iterator<Item = &Arc<ServerLane<F>>> {
        self.lanes.iter()
    }

    /// Number of slots of all lanes.
    #[must_use]
    pub fn slot_count(&self) -> usize {
        self.entries.len()
    }

    /// About how many slots so many rounds look at.
    #[must_use]
    pub fn looks(&self, rounds: u64) -> u64 {
        let (hot, cold) = (self.hot.len() as u64, COLD_PER_TURN.min(self.entries.len()) as u64);
        rounds / TURNS * (hot + cold) + (rounds - rounds / TURNS) * hot.min(1)
    }

    /// The lane of a [`Ready`].
    #[inline(always)]
    #[must_use]
    pub fn lane(&self, index: u32) -> &Arc<ServerLane<F>> {
        &self.lanes[index as usize]
    }

    /// Begins to scan a lane.
    pub fn add(&mut self, lane: Arc<ServerLane<F>>) {
        self.lanes.push(Arc::clone(&lane));
        self.rebuild();
        lane.begin_scan();
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
                self.entries.push(Entry {
                    header,
                    expected,
                    payload: core::ptr::null(),
                    lane: lane_index,
                    slot,
                    last_round: 0,
                    is_hot: false,
                });
            }
        }
        self.has_imm = self.lanes.iter().any(|lane| lane.parts().scheme == Scheme::Imm);
        self.hot.clear();
        (self.hot_cursor, self.cold_cursor) = (0, 0);
    }

    /// One round: all hot slots and some of the others. At most [`READY_MAX`] requests into `ready`; every request is
    /// handed out exactly once.
    #[inline]
    pub fn scan(&mut self, ready: &mut Vec<Ready>) {
        self.rounds += 1;
        if self.rounds.is_multiple_of(COOLS_AFTER_ROUNDS) {
            self.cool();
        }
        // Hot slots, cold ones and immediates come first in turn: a client whose slots are never empty would otherwise
        // keep the others waiting for ever.
        let turn = self.rounds % TURNS;
        if self.has_imm && turn == 1 {
            self.scan_immediates(ready);
        }
        if turn == 0 || self.hot.is_empty() {
            self.scan_cold(COLD_PER_TURN, ready);
        }
        self.scan_hot(turn == 2, ready);
        if self.has_imm && turn != 1 && ready.is_empty() {
            self.scan_immediates(ready);
        }
    }

    /// One round over every slot: before a thread goes to sleep.
    pub fn scan_all(&mut self, ready: &mut Vec<Ready>) {
        self.rounds += 1;
        self.scan_hot(true, ready);
        self.scan_cold(self.entries.len(), ready);
        if self.has_imm && ready.is_empty() {
            self.scan_immediates(ready);
        }
    }

    /// From the hot slot after the one found last: all of them, or until one is empty.
    #[inline]
    fn scan_hot(&mut self, all: bool, ready: &mut Vec<Ready>) {
        let count = self.hot.len();
        let mut place = self.hot_cursor;
        for _ in 0..count {
            if ready.len() >= READY_MAX {
                return;
            }
            let index = self.hot[place] as usize;
            place = if place + 1 == count { 0 } else { place + 1 };
            if self.take(index, ready) {
                self.hot_cursor = place;
                if let Some(next) = self.hot.get(place + FETCHED_AHEAD) {
                    fetch_to_read(self.entries[*next as usize].header);
                }
            } else if !all {
                return;
            }
        }
    }

    /// The next so many slots; hot ones among them are left to [`Scanner::scan_hot`].
    #[inline]
    fn scan_cold(&mut self, most: usize, ready: &mut Vec<Ready>) {
        let count = self.entries.len();
        for _ in 0..most.min(count) {
            if ready.len() >= READY_MAX {
                return;
            }
            let index = self.cold_cursor;
            self.cold_cursor = if index + 1 == count { 0 } else { index + 1 };
            if !self.entries[index].is_hot && self.take(index, ready) {
                self.entries[index].is_hot = true;
                self.hot.push(u32::try_from(index).unwrap_or(u32::MAX));
            }
        }
    }

    /// Slots that were not used for long leave the hot ones.
    #[cold]
    fn cool(&mut self) {
        let (entries, rounds) = (&mut self.entries, self.rounds);
        self.hot.retain(|index| {
            let entry = &mut entries[*index as usize];
            entry.is_hot = rounds - entry.last_round < COOLS_AFTER_ROUNDS;
            entry.is_hot
        });
        self.hot_cursor = 0;
    }

    /// Takes the request of one slot if it is committed.
    #[inline(always)]
    fn take(&mut self, index: usize, ready: &mut Vec<Ready>) -> bool {
        let entry = &mut self.entries[index];
        // SAFETY: the header lies in the lane's own region.
        let found = unsafe { load_acquire(entry.header, WORD_AT) };
        if found != entry.expected.0 && !mistaken::<F>(found, entry.expected) {
            if !entry.payload.is_null() {
                // It comes along with the header, not after.
                fetch_to_read(entry.payload);
            }
            return false;
        }
        let lane = &self.lanes[entry.lane as usize];
        if lane.is_busy(entry.slot) {
            return false;
        }
        // SAFETY: as above.
        let [a, b, c, d, e, f, g, _] = unsafe { copy_header(entry.header) };
        // What is answered is what was expected, whatever the client stores meanwhile.
        let word = entry.expected.0;
        if !lane.is_plain() && !arrived(lane, entry.slot, &[a, b, c, d, e, f, g, word]) {
            return false;
        }
        entry.expected = entry.expected.next();
        entry.last_round = self.rounds;
        let payload_bytes = RequestHeader::from_words(&[a, b, c, d, e, f, g, word]).payload_bytes as usize;
        let is_short = (1..=HEADER_BYTES).contains(&payload_bytes);
        entry.payload = if is_short { lane.request_payload(entry.slot) } else { core::ptr::null() };
        lane.take(entry.slot);
        // Not pushed whole: that is moved in larger pieces than it was put together in, and waits for those.
        ready.push(Ready { lane: entry.lane, slot: entry.slot, words: [0; HEADER_BYTES / 8] });
        if let Some(Ready { words: [w0, w1, w2, w3, w4, w5, w6, w7], .. }) = ready.last_mut() {
            (*w0, *w1, *w2, *w3, *w4, *w5, *w6, *w7) = (a, b, c, d, e, f, g, word);
        }
        true
    }

    #[inline]
    fn scan_immediates(&mut self, ready: &mut Vec<Ready>) {
        let mut completions = [Completion::EMPTY; READY_MAX];
        let count = self.imm_cq.poll(&mut completions);
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
            // The word comes first here too: with an immediate that came too early, the rest may be half stored.
            // SAFETY: the header lies in the lane's own region.
            if unsafe { load_acquire(entry.header, WORD_AT) } != entry.expected.0 || lane.is_busy(slot) {
                continue;
            }
            // SAFETY: as above.
            let mut words = unsafe { copy_header(entry.header) };
            words[WORD_AT / 8] = entry.expected.0;
            entry.expected = entry.expected.next();
            lane.take(slot);
            ready.push(Ready { lane: entry.lane, slot, words });
        }
    }
}

/// Deliberate mistakes of simulated worlds; false elsewhere.
#[inline(always)]
fn mistaken<F: Fabric>(found: u64, expected: Word) -> bool {
    let found = Word(found);
    mutated::<F>(Mutant::ServerIgnoresSequence) && found.generation() == expected.generation()
}

/// Whether a request whose word is there has arrived as a whole, on a lane that is not plain.
#[inline(never)]
fn arrived<F: Fabric>(lane: &ServerLane<F>, slot: u32, words: &Words) -> bool {
    match lane.parts().scheme {
        Scheme::Single => true,
        Scheme::Crc => {
            mutated::<F>(Mutant::ServerSkipsChecksum) || agrees(lane, slot, &RequestHeader::from_words(words))
        }
        // Those are told by their immediates.
        Scheme::Imm => false,
    }
}

/// Whether a request's checksum agrees with what lies in the slot. The sum covers no more payload than the slot has.
fn agrees<F: Fabric>(lane: &ServerLane<F>, slot: u32, header: &RequestHeader) -> bool {
    let covered = header.payload_bytes.min(lane.parts().geometry.request_payload_bytes) as usize;
    let begun = request_checksum(&header.to_words());
    // SAFETY: `covered` is within the slot's payload.
    let sum = unsafe { checksum_foreign(begun, lane.request_payload(slot), covered) };
    sum == header.checksum
}

/// Whether a request that asked for a checksum agrees with it; for schemes that do not check before handing out.
pub(crate) fn request_agrees<F: Fabric>(lane: &ServerLane<F>, slot: u32, header: &RequestHeader) -> bool {
    agrees(lane, slot, header)
}
