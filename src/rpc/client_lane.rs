//! The client's end of one lane: its life, and the connection that it has now.

use super::ClientLaneParts;
use super::bell::Bell;
use super::connection::{Connection, NotPosted};
use crate::error::{Error, Outcome, Result};
use crate::fabric::{Fabric, Qp};
use crate::ids::Incarnation;
use crate::lane::{DirtyReason, LaneState, Lifecycle, RebuildPolicy, Want};
use crate::sync::{Arc, AtomicBool, AtomicU32, Mutex, Ordering, lock};
use crate::time::{Tick, now};

/// The client's end of one lane. Slots are handed out by the [`Channel`](super::Channel).
#[derive(Debug)]
pub struct ClientLane<F: Fabric> {
    shard: u32,
    lane: u32,
    /// Generation of the present connection while the lane is Active, else 0: all that the hot path reads of it.
    active: AtomicU32,
    life: Mutex<Lifecycle>,
    current: Mutex<Arc<Connection<F>>>,
    /// Somebody looked for a slot and found this lane down.
    wanted: AtomicBool,
    bell: Arc<Bell>,
}

impl<F: Fabric> ClientLane<F> {
    /// A lane over connected parts: Active. Whoever looks after it sleeps on `bell`.
    #[must_use]
    pub fn new(parts: ClientLaneParts<F>, bell: Arc<Bell>) -> ClientLane<F> {
        let (shard, lane, generation) = (parts.shard, parts.lane, parts.generation);
        let mut life = Lifecycle::new(generation);
        life.connected(generation);
        ClientLane {
            shard,
            lane,
            active: AtomicU32::new(generation),
            life: Mutex::new(life),
            current: Mutex::new(Arc::new(Connection::new(parts))),
            wanted: AtomicBool::new(false),
            bell,
        }
    }

    /// The shard it leads to.
    #[must_use]
    pub fn shard(&self) -> u32 {
        self.shard
    }

    /// Its number within client and shard.
    #[must_use]
    pub fn number(&self) -> u32 {
        self.lane
    }

    /// Generation of the present connection while the lane is Active, else 0.
    #[inline]
    #[must_use]
    pub fn active(&self) -> u32 {
        // Acquire: who sees the generation sees the connection. Pairs with the Release in `connected`. A plain load on
        // x86.
        self.active.load(Ordering::Acquire)
    }

    /// Present state.
    #[must_use]
    pub fn state(&self) -> LaneState {
        lock(&self.life).state()
    }

    /// Its life at this moment.
    #[must_use]
    pub fn life(&self) -> Lifecycle {
        *lock(&self.life)
    }

    /// The connection that it has now, or had last.
    #[must_use]
    pub fn connection(&self) -> Arc<Connection<F>> {
        Arc::clone(&lock(&self.current))
    }

    /// Ends connection `generation`, if it is the present one. The queue pair goes to ERR, so that nothing more arrives
    /// from either side.
    #[cold]
    pub fn fail(&self, generation: u32, reason: DirtyReason) {
        let mut life = lock(&self.life);
        let first = life.failed(now(), generation, reason);
        let connection = self.connection();
        if !first {
            return;
        }
        self.active.store(0, Ordering::Relaxed);
        let refused = connection.end(reason);
        let rebuildable = life.state() == LaneState::Dirty;
        drop(life);
        if reason != DirtyReason::Closed {
            crate::event!(
                crate::observe::Level::WARN,
                crate::observe::events::LANE_DIRTY,
                shard = self.shard,
                lane = self.lane,
                generation,
                reason = reason.name(),
                verdict = reason.verdict(),
                rebuildable,
                qp = connection.parts().qp.number(),
                modify_refused = refused,
            );
        }
        self.bell.ring();
    }

    /// Ends the present connection if it leads to that process.
    #[cold]
    pub fn fail_peer(&self, incarnation: Incarnation, reason: DirtyReason) {
        let connection = self.connection();
        if connection.parts().witness.incarnation == incarnation {
            self.fail(connection.parts().generation, reason);
        }
    }

    /// The client is closed.
    #[cold]
    pub fn close(&self) {
        self.fail(self.connection().parts().generation, DirtyReason::Closed);
    }

    /// Looks at the slow signs. Err when the lane is not Active any more.
    ///
    /// # Errors
    /// What ended its last connection, with shard, lane and generation.
    #[cold]
    pub fn check(&self) -> Result<()> {
        self.check_connection(&self.connection())
    }

    /// The same for a connection that a request went out on: Err also when the lane has another one by now.
    #[cold]
    pub(super) fn check_connection(&self, connection: &Connection<F>) -> Result<()> {
        if connection.ended().is_none()
            && let Some(reason) = connection.symptom()
        {
            self.fail(connection.parts().generation, reason);
        }
        if connection.ended().is_some() { Err(connection.error()) } else { Ok(()) }
    }

    /// A post was refused: ends the connection.
    #[cold]
    pub(super) fn post_failed(&self, connection: &Connection<F>, failure: NotPosted) -> Box<Error> {
        self.fail(connection.parts().generation, failure.reason);
        let mut error = connection.error();
        error.outcome = Outcome::NotExecuted;
        error.os_error = failure.os_error;
        error
    }

    /// Somebody looks for a slot and finds this lane down: if that is a reason to connect anew, it is known now.
    #[cold]
    pub(super) fn want(&self) {
        if !self.wanted.load(Ordering::Relaxed) && !self.wanted.swap(true, Ordering::Relaxed) {
            self.bell.ring();
        }
    }

    /// Whether somebody has looked for a slot since it went down.
    #[must_use]
    pub fn is_wanted(&self) -> bool {
        self.wanted.load(Ordering::Relaxed)
    }

    /// What its life wants; a begun attempt is marked as such.
    #[must_use]
    pub fn next_step(&self, at: Tick, policy: &RebuildPolicy) -> Want {
        lock(&self.life).want(at, policy)
    }

    /// The attempt is over without success. False: it was already.
    pub fn attempt_failed(&self, generation: u32) -> bool {
        lock(&self.life).attempt_failed(generation)
    }

    /// The peer is another process.
    pub fn peer_is_back(&self, policy: &RebuildPolicy) {
        lock(&self.life).peer_is_back(policy);
    }

    /// The peer's process is heard of again.
    pub fn peer_is_heard(&self, policy: &RebuildPolicy) {
        lock(&self.life).peer_is_heard(policy);
    }

    /// Takes a new connection into use. False: the attempt was given up meanwhile.
    pub fn connected(&self, connection: Connection<F>) -> bool {
        let generation = connection.parts().generation;
        let mut life = lock(&self.life);
        if !life.connected(generation) {
            return false;
        }
        *lock(&self.current) = Arc::new(connection);
        self.wanted.store(false, Ordering::Relaxed);
        // Release: pairs with the Acquire in `active`.
        self.active.store(generation, Ordering::Release);
        true
    }
}
