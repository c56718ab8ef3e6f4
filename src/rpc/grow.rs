//! Lanes that are connected when requests need them, so that a client's memory grows with the lanes that it uses.
//!
//! A channel knows all its lanes from the beginning, and their slots; the first of them are connected. When all slots of
//! these are held, as many more lanes are asked for as there are already: so a client with a hundred requests under way
//! has its lanes after a few rounds, and one that works on one request at a time never has more than the first. They are
//! connected by whoever looks after lanes, as rebuilt ones are.

use super::channel::{AcquireError, Channel};
use super::down::all_down;
use crate::fabric::Fabric;
use crate::sync::Ordering;

impl<F: Fabric, R> Channel<F, R> {
    /// Why there is no slot: says first which lanes are needed. `probes` is their count from before the look at the slots.
    #[cold]
    pub(super) fn why_none(&self, probes: u32) -> AcquireError {
        let active = self.lanes.iter().filter(|lane| lane.check().is_ok()).count();
        if active > 0 {
            // One was under way at some time since then: it may have been its slot that was missing.
            // Acquire: pairs with the Release of who begins and ends it, and comes after the look at the slots.
            let is_probed = probes % 2 == 1 || self.probes.load(Ordering::Acquire) != probes;
            let is_soon = self.grow(active) || is_probed;
            return if is_soon { AcquireError::Soon } else { AcquireError::NoSlot };
        }
        let ended = || self.lanes.iter().filter_map(super::ClientLane::connection);
        // Lanes that were never connected are no way to a process that is gone.
        if !ended().any(|connection| connection.ended().is_some_and(|reason| reason.verdict() == "dead")) {
            self.grow(1);
        }
        AcquireError::Down(all_down(self.shard(), ended().map(|connection| connection.error())))
    }

    /// Needs so many lanes that were never connected, unless some are on their way already. False: there is none.
    fn grow(&self, lanes: usize) -> bool {
        let fresh = || self.lanes.iter().filter(|lane| lane.is_fresh());
        if fresh().any(super::ClientLane::is_wanted) {
            return true;
        }
        fresh().filter(|lane| !lane.is_cooling()).take(lanes).map(super::ClientLane::need).count() > 0
    }

    /// Needs another lane when all but one of those that were connected are lost, so that the next loss does not leave
    /// requests without any. For channels whose lanes do not come back by themselves.
    #[cold]
    pub fn keep_spare(&self) {
        let (mut active, mut lost) = (0, false);
        for lane in self.lanes.iter().filter(|lane| !lane.is_fresh()) {
            active += usize::from(lane.active() != 0);
            lost |= lane.active() == 0;
        }
        if lost && active == 1 {
            self.grow(1);
        }
    }
}
