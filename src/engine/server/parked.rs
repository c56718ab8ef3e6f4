//! What a poll thread has under way at a device: requests whose rows are being read from clients, and answers that are
//! being sent from pinned rows. The thread serves others meanwhile; a client that never answers costs nobody but itself.

use super::queue::Job;
use crate::fabric::{Fabric, WcStatus};
use crate::ps::{Fetching, Handler, Scratch, Sending};
use crate::rpc::ServerLane;
use crate::sync::Arc;
use crate::time::{Patience, now};
use core::time::Duration;

/// How long a client's device may leave an answer from pinned rows unacknowledged. Who wants to write rows waits, so the
/// lane is given up then; a device's own verdict takes about as long.
const PIN_PATIENCE: Duration = Duration::from_secs(2);
/// Turns between two readings of the clock.
const CLOCK_EVERY: u32 = 256;
/// How long a thread that ends waits for its last answers to be sent.
const LAST_WAIT: Duration = Duration::from_secs(1);

/// An answer under way from pinned rows.
#[derive(Debug)]
struct Pinned<F: Fabric> {
    lane: Arc<ServerLane<F>>,
    sending: Sending,
    /// Since this was first looked at with the clock.
    patience: Option<Patience>,
}

/// All that one poll thread has under way.
#[derive(Debug)]
pub(super) struct Parked<F: Fabric> {
    fetching: Vec<(Job<F>, Fetching)>,
    pinned: Vec<Pinned<F>>,
    /// Rows have arrived that cannot be written before the pins are gone.
    arrived: bool,
    turns: u32,
}

impl<F: Fabric> Parked<F> {
    pub(super) fn new() -> Parked<F> {
        Parked { fetching: Vec::new(), pinned: Vec::new(), arrived: false, turns: 0 }
    }

    pub(super) fn is_empty(&self) -> bool {
        self.fetching.is_empty() && self.pinned.is_empty()
    }

    /// Whether rows are pinned by this thread: it must not write any then.
    pub(super) fn has_pins(&self) -> bool {
        !self.pinned.is_empty()
    }

    /// Whether new pins would keep others from writing.
    pub(super) fn wants_no_pins(&self) -> bool {
        self.arrived
    }

    pub(super) fn fetch(&mut self, job: Job<F>, fetching: Fetching) {
        self.fetching.push((job, fetching));
    }

    pub(super) fn send(&mut self, lane: &Arc<ServerLane<F>>, sending: Sending) {
        self.pinned.push(Pinned { lane: Arc::clone(lane), sending, patience: None });
    }

    /// Ends what has ended, after completions were taken.
    pub(super) fn turn(&mut self, handler: &Handler, scratch: &mut Scratch) {
        self.let_go(handler, scratch.worker);
        let has_pins = !self.pinned.is_empty();
        let mut arrived = false;
        self.fetching.retain(|(job, fetching)| {
            let outcome = fetching.outcome();
            // Rows of this thread's own are pinned, and these would be written.
            if has_pins && outcome == Some(WcStatus::Success) {
                arrived = true;
                return true;
            }
            !handler.end_fetch(&job.lane, job.slot, &job.header, scratch, fetching, outcome)
        });
        self.arrived = arrived;
        self.turns = self.turns.wrapping_add(1);
        if self.turns.is_multiple_of(CLOCK_EVERY) {
            self.lose_patience();
        }
    }

    fn let_go(&mut self, handler: &Handler, worker: u32) {
        let mut at = 0;
        while let Some(pinned) = self.pinned.get(at) {
            // Of a lane that is down a completion may get lost; what was posted ends with the queue pair, which goes with
            // the last holder of the lane.
            let orphan = !pinned.lane.is_usable() && Arc::strong_count(&pinned.lane) == 1;
            if pinned.sending.posted.outcome().is_none() && !orphan {
                at += 1;
                continue;
            }
            let Pinned { lane, sending, .. } = self.pinned.swap_remove(at);
            drop(lane);
            handler.store().unpin(worker, sending.pin);
        }
    }

    fn lose_patience(&mut self) {
        let at = now();
        for pinned in &mut self.pinned {
            if pinned.patience.get_or_insert_with(|| Patience::from(at)).look(at) > PIN_PATIENCE {
                pinned.lane.fail();
            }
        }
    }

    /// The thread ends: what is on its way may arrive, and every pin goes back.
    pub(super) fn end(&mut self, handler: &Handler, worker: u32, take: impl Fn()) {
        for (job, _) in self.fetching.drain(..) {
            Handler::give_up(&job.lane, &job.header);
        }
        let deadline = now().after(LAST_WAIT);
        while !self.pinned.is_empty() && now() < deadline {
            take();
            self.let_go(handler, worker);
        }
        for Pinned { lane, sending, .. } in self.pinned.drain(..) {
            lane.fail();
            drop(lane);
            handler.store().unpin(worker, sending.pin);
        }
    }
}
