//! Work of a server whose end matters to somebody, on fabrics where completions come through a queue: reads of a
//! client's memory, and answers that are sent from memory which must not change until they are.
//!
//! Lanes share a completion queue, and whoever polls it takes what is there, for all of them. So such work has a number
//! of its own, its outcome is kept here by whoever polls, and who waits looks here. Nobody waits in the sense of doing
//! nothing else.

use crate::fabric::{Completion, Cq, Fabric, WcStatus};
use crate::sync::{AtomicU64, Mutex, Ordering, lock};

/// Tells such work from other work of a lane, whose `wr_id` has the lane's generation in its upper half.
const POSTED_BIT: u64 = 1 << 63;

/// What is under way in this process: at most one per slot and direction.
static UNDER_WAY: Mutex<Vec<(u64, Option<WcStatus>)>> = Mutex::new(Vec::new());

/// Work that somebody wants to see the end of.
#[derive(Debug)]
pub struct Posted(u64);

impl Posted {
    /// One more, before it is posted with [`Posted::wr_id`].
    pub(super) fn begin() -> Posted {
        static NEXT: AtomicU64 = AtomicU64::new(0);
        let id = NEXT.fetch_add(1, Ordering::Relaxed) | POSTED_BIT;
        lock(&UNDER_WAY).push((id, None));
        Posted(id)
    }

    pub(super) fn wr_id(&self) -> u64 {
        self.0
    }

    /// How it ended, once it has and its completion was taken off the queue.
    #[must_use]
    pub fn outcome(&self) -> Option<WcStatus> {
        lock(&UNDER_WAY).iter().find(|(id, _)| *id == self.0).and_then(|(_, outcome)| *outcome)
    }
}

impl Drop for Posted {
    fn drop(&mut self) {
        lock(&UNDER_WAY).retain(|(id, _)| *id != self.0);
    }
}

/// Takes all completions of a server's own work, so that the queue keeps its room, failures show in the queue pairs, and
/// it is known what has ended.
pub fn take_completions<F: Fabric>(cq: &F::Cq) {
    let mut completions = [Completion::EMPTY; 16];
    loop {
        let count = cq.poll(&mut completions);
        for completion in completions[..count].iter().filter(|completion| completion.wr_id & POSTED_BIT != 0) {
            let mut under_way = lock(&UNDER_WAY);
            if let Some(posted) = under_way.iter_mut().find(|(id, _)| *id == completion.wr_id) {
                posted.1 = Some(completion.status);
            }
        }
        if count < completions.len() {
            return;
        }
    }
}
