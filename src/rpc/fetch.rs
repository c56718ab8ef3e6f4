//! Reads of a client's memory that a server waits for, on fabrics where completions come through a queue.
//!
//! Lanes share a completion queue, and whoever polls it takes what is there, for all of them. So a read has a number of
//! its own, its outcome is kept here by whoever polls it, and who waits looks here.

use crate::fabric::{Completion, Cq, Fabric, WcStatus};
use crate::sync::{AtomicU64, Mutex, Ordering, lock};

/// Tells reads from other work of a lane, whose `wr_id` has the lane's generation in its upper half.
const FETCH_BIT: u64 = 1 << 63;

/// Reads under way in this process: a few at a time, one per executing thread.
static UNDER_WAY: Mutex<Vec<(u64, Option<WcStatus>)>> = Mutex::new(Vec::new());

/// A read that somebody waits for.
#[derive(Debug)]
pub(super) struct Fetch(u64);

impl Fetch {
    /// One more, before it is posted with [`Fetch::wr_id`].
    pub(super) fn begin() -> Fetch {
        static NEXT: AtomicU64 = AtomicU64::new(0);
        let id = NEXT.fetch_add(1, Ordering::Relaxed) | FETCH_BIT;
        lock(&UNDER_WAY).push((id, None));
        Fetch(id)
    }

    pub(super) fn wr_id(&self) -> u64 {
        self.0
    }

    /// How it ended, once it has.
    pub(super) fn outcome(&self) -> Option<WcStatus> {
        lock(&UNDER_WAY).iter().find(|(id, _)| *id == self.0).and_then(|(_, outcome)| *outcome)
    }
}

impl Drop for Fetch {
    fn drop(&mut self) {
        lock(&UNDER_WAY).retain(|(id, _)| *id != self.0);
    }
}

/// Takes all completions of a server's own work, so that the queue keeps its room, failures show in the queue pairs, and
/// reads are known to have ended.
pub fn take_completions<F: Fabric>(cq: &F::Cq) {
    let mut completions = [Completion::EMPTY; 16];
    loop {
        let count = cq.poll(&mut completions);
        for completion in completions[..count].iter().filter(|completion| completion.wr_id & FETCH_BIT != 0) {
            let mut under_way = lock(&UNDER_WAY);
            if let Some(fetch) = under_way.iter_mut().find(|(id, _)| *id == completion.wr_id) {
                fetch.1 = Some(completion.status);
            }
        }
        if count < completions.len() {
            return;
        }
    }
}
