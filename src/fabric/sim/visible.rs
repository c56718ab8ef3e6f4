//! When acknowledged bytes can be seen.

use super::memory::Memory;
use super::net::{Core, Event, Pending};
use super::packet::QpKey;
use crate::sync::Arc;

/// Most pieces of one torn write.
const PIECES_MAX: u64 = 4;

impl Core {
    /// Lets `data` become visible at `offset`, as the policy likes it.
    pub(super) fn store_later(&mut self, qp: QpKey, memory: &Arc<Memory>, offset: usize, data: Vec<u8>) {
        let most = self.policy.visible_ns_max;
        let mut pieces = if self.rng.chance(self.policy.tear) && data.len() > 8 {
            self.counts.torn += 1;
            self.tear(offset, data)
        } else {
            vec![(offset, data)]
        };
        if !self.policy.ordered_within_write && self.rng.chance(500_000) {
            pieces.reverse();
        }
        let step = most / pieces.len().max(1) as u64;
        let mut at = self.now;
        for (offset, data) in pieces {
            at += self.rng.below(step.max(1));
            let mut when = at;
            if self.policy.ordered_writes {
                if let Some(core) = self.qps.get_mut(&qp) {
                    when = when.max(core.visible_at);
                    core.visible_at = when;
                }
            } else if !self.policy.ordered_within_write {
                when = self.now + self.rng.below(most.max(1));
            }
            let number = self.unique();
            self.pending.insert(number, Pending { qp, memory: Arc::clone(memory), offset, data });
            self.at(when, Event::Visible(number));
        }
    }

    /// Cuts at multiples of 8, so that words stay whole: no fabric tears those.
    fn tear(&mut self, offset: usize, data: Vec<u8>) -> Vec<(usize, Vec<u8>)> {
        let first_cut = offset.next_multiple_of(8) - offset;
        let cuts = data.len().saturating_sub(first_cut + 1) / 8;
        let mut places: Vec<usize> = (0..self.rng.between(1, PIECES_MAX - 1))
            .map(|_| first_cut + 8 * (1 + self.rng.index(cuts.max(1))))
            .filter(|cut| *cut < data.len())
            .collect();
        // The last word is what readers wait for: it comes alone now and then.
        if self.rng.chance(500_000) && data.len() > 8 {
            places.push((offset + data.len() - 1) / 8 * 8 - offset);
        }
        places.sort_unstable();
        places.dedup();
        let mut pieces = Vec::new();
        let mut from = 0;
        for cut in places.into_iter().chain([data.len()]) {
            if cut > from {
                pieces.push((offset + from, data[from..cut].to_vec()));
                from = cut;
            }
        }
        pieces
    }

    pub(super) fn show(&mut self, number: u64) {
        if let Some(pending) = self.pending.remove(&number) {
            self.note(pending.offset as u64 ^ (pending.data.len() as u64) << 40);
            pending.memory.store(pending.offset, &pending.data);
        }
    }

    /// Everything that this connection wrote becomes visible: reads, atomics and immediates follow earlier writes.
    pub(super) fn show_all(&mut self, qp: QpKey) {
        let due: Vec<u64> = self.pending.iter().filter(|(_, p)| p.qp == qp).map(|(number, _)| *number).collect();
        due.into_iter().for_each(|number| self.show(number));
    }
}
