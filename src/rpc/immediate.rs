//! Answers that are announced by an immediate: scheme `imm`.

use super::channel::Channel;
use super::slot::Own;
use crate::fabric::{Completion, Cq, Fabric, WcOpcode, WcStatus};
use crate::lane::DirtyReason;
use crate::sync::Ordering;

impl<F: Fabric, R> Channel<F, R> {
    /// Whether the immediate of a request's answer has come.
    #[cold]
    pub(super) fn immediate_arrived(&self, own: &Own<F, R>) -> bool {
        let slot = &self.slots[own.via as usize];
        // Acquire: pairs with the Release below, by whichever thread took the completion.
        if slot.arrived.swap(0, Ordering::Acquire) != 0 {
            return true;
        }
        let mut completions = [Completion::EMPTY; 16];
        let count = own.connection.parts().recv_cq.poll(&mut completions);
        for completion in &completions[..count] {
            let known = self.slots.get(completion.imm as usize);
            match known {
                Some(arrived)
                    if completion.status == WcStatus::Success && completion.opcode == WcOpcode::ReceiveImm =>
                {
                    let lane = self.lane_of(arrived);
                    let Some(connection) = lane.connection() else { continue };
                    if !connection.replenish(1) {
                        // A queue pair that fell to ERR knows better why than the refused receive does.
                        let reason = connection.symptom().unwrap_or(DirtyReason::PostFailed);
                        lane.fail(connection.parts().generation, reason);
                    }
                    // Release: pairs with the Acquire above.
                    arrived.arrived.store(1, Ordering::Release);
                }
                _ => {}
            }
        }
        // Acquire: as above.
        slot.arrived.swap(0, Ordering::Acquire) != 0
    }
}
