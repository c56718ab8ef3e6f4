//! Holding a rank still, for a checkpoint: the gate is closed, everything under way is settled.

use super::core::{Core, Shared};
use super::operate::pace;
use crate::error::{Error, Result, Status};
use crate::fabric::Fabric;
use crate::memory::{Asker, Executed, HoldId, LaneFacts};
use crate::rpc::Turn;
use crate::sync::lock;
use crate::time::now;
use core::time::Duration;

impl<F: Fabric> Shared<F> {
    /// Closes the gate and waits until this rank has nothing under way. On failure the gate is open again.
    ///
    /// After it returned, nothing of this rank changes memory of another one; what others have under way towards this one
    /// ends when they hold too. So a cut holds all ranks first, has a barrier, and copies then.
    pub(super) fn hold(&self, drain: Duration, lapse: Duration) -> Result<HoldId> {
        let deadline = now().after(drain);
        let id = self.gate.close(now().after(lapse.max(drain)))?;
        let drained = self.drained(drain).and_then(|()| {
            let connected = self.others.iter().filter(|other| !self.load_store && other.data.is_connected());
            for other in connected {
                self.flush_by(other, &self.open, deadline)?;
            }
            Ok(())
        });
        if let Err(error) = drained {
            self.gate.open(id);
            return Err(error);
        }
        Ok(id)
    }

    fn drained(&self, timeout: Duration) -> Result<()> {
        let mut waiting = pace(self, timeout);
        loop {
            // Each look takes the lane's lock: whoever was inside before the gate closed has posted or gone by then.
            let busy = self.others.iter().find_map(|other| {
                let facts = other.data.facts();
                let asked = other.asker.get().map_or(0, Asker::under_way) as u64;
                let under_way = facts.posted - facts.retired + asked;
                (under_way > 0).then_some((other.number, under_way))
            });
            let Some((peer, under_way)) = busy else { return Ok(()) };
            if waiting.turn() == Turn::Expired {
                let why = format!("rank {peer}: {under_way} operations are under way still; the gate is open again");
                return Err(Error::new(Status::WaitTimeout, why).at_shard(peer));
            }
        }
    }

    pub(super) fn lanes(&self) -> Vec<LaneFacts> {
        self.others.iter().map(|other| other.data.facts()).collect()
    }
}

impl<F: Fabric> Core<F> {
    pub(super) fn hold(&self, drain: Duration, lapse: Duration) -> Result<HoldId> {
        self.shared.hold(drain, lapse)
    }

    pub(super) fn release(&self, id: HoldId) -> bool {
        self.shared.gate.open(id)
    }

    pub(super) fn is_held(&self, id: HoldId) -> bool {
        self.shared.gate.holds(id)
    }

    pub(super) fn lanes(&self) -> Vec<LaneFacts> {
        self.shared.lanes()
    }

    pub(super) fn break_lanes(&self, peer: u32) -> Result<()> {
        let other = self.other(peer)?;
        other.data.cut("it was ended on purpose", false);
        other.cells.cut("it was ended on purpose", false);
        Ok(())
    }

    pub(super) fn executed(&self) -> Vec<Executed> {
        lock(&self.shared.dedupe).export()
    }

    pub(super) fn restore_executed(&self, executed: &[Executed]) {
        lock(&self.shared.dedupe).import(executed);
    }
}
