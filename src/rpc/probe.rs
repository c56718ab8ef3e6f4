//! Looking whether an idle lane still works from end to end.

use super::channel::Channel;
use super::slot::Held;
use crate::fabric::Fabric;
use crate::lane::DirtyReason;
use crate::sync::Ordering;
use crate::wire::{Op, RequestHeader, Word};

/// A probe under way: it holds a slot.
#[derive(Debug)]
pub struct Probe {
    held: Held,
    lane: u32,
    generation: u32,
}

impl<F: Fabric, R> Channel<F, R> {
    /// Sends a probe over a lane, if it is Active and one of its slots is free.
    #[must_use]
    pub fn probe_lane(&self, lane: u32) -> Option<Probe> {
        let index = (0..self.slots.len()).find(|index| self.slots[*index].lane == lane)?;
        // Before it takes a slot, so that who finds none knows of it.
        // Acquire and Release: neither what comes before nor what comes after passes it.
        self.probes.fetch_add(1, Ordering::AcqRel);
        let probe = self.send_probe(lane, index);
        if probe.is_none() {
            // Release: the slot is free by then.
            self.probes.fetch_add(1, Ordering::Release);
        }
        probe
    }

    fn send_probe(&self, lane: u32, index: usize) -> Option<Probe> {
        let held = self.try_take(index)?;
        let header = RequestHeader {
            op: Op::Probe as u8,
            flags: 0,
            table: 0,
            key_count: 0,
            sequence: 0,
            payload_bytes: 0,
            checksum: 0,
            response_bytes: 0,
            shard: 0,
            reserved: 0,
            inline: [0; 3],
            commit: Word::ZERO,
        };
        let generation = self.slots[index].generation.load(Ordering::Relaxed);
        // SAFETY: the slot is held, and there is no payload.
        if unsafe { self.send(held, header, core::ptr::null()) }.is_err() {
            self.release(held);
            return None;
        }
        Some(Probe { held, lane, generation })
    }

    /// Whether the probe is over: its answer came, or its lane went down. Its slot is free then.
    #[must_use]
    pub fn probe_over(&self, probe: &Probe) -> bool {
        // SAFETY: the probe holds the slot, and one thread looks after probes.
        let answered = unsafe { self.is_answered(probe.held, 0) };
        let over = answered || self.check(probe.held).is_err();
        if over {
            self.end_probe(probe);
        }
        over
    }

    /// The answer did not come: ends the lane.
    pub fn probe_failed(&self, probe: &Probe) {
        if let Some(lane) = self.lanes().get(probe.lane as usize) {
            lane.fail(probe.generation, DirtyReason::ProbeTimeout);
        }
        self.end_probe(probe);
    }

    fn end_probe(&self, probe: &Probe) {
        self.release(probe.held);
        // Release: as above.
        self.probes.fetch_add(1, Ordering::Release);
    }

    /// Gives a probe up without a verdict: its lane cannot be used again before the answer, so it ends too.
    pub fn probe_dropped(&self, probe: &Probe) {
        if !self.probe_over(probe) {
            self.probe_failed(probe);
        }
    }
}
