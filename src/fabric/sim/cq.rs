//! Completion queues.

use super::net::Net;
use crate::fabric::{Completion, Cq};
use crate::sync::Arc;

/// A completion queue of one simulated process.
#[derive(Debug)]
pub struct SimCq {
    pub(super) net: Arc<Net>,
    pub(super) id: u32,
}

impl Cq for SimCq {
    fn poll(&self, out: &mut [Completion]) -> usize {
        let mut core = self.net.enter();
        let mut count = 0;
        while count < out.len() {
            let Some(entry) = core.cqs.get_mut(&self.id).and_then(|cq| cq.entries.pop_front()) else { break };
            let leak = core.leak_stale_completions;
            match core.qps.get_mut(&entry.qp) {
                Some(qp) if qp.connection == entry.connection => qp.used = qp.used.saturating_sub(entry.frees),
                _ if leak => {}
                _ => {
                    // Of a connection that was reset, or a queue pair that is gone.
                    core.counts.fenced += 1;
                    continue;
                }
            }
            out[count] = entry.completion;
            count += 1;
        }
        count
    }
}

impl Drop for SimCq {
    fn drop(&mut self) {
        self.net.lock().cqs.remove(&self.id);
    }
}
