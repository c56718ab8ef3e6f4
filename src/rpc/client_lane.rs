//! The client's end of one lane: its life, and the connection that it has now.

use super::ClientLaneParts;
use super::bell::Bell;
use super::connection::{Connection, NotPosted};
use crate::error::{Error, Outcome, Result, Status};
use crate::fabric::{Fabric, Qp};
use crate::ids::Incarnation;
use crate::lane::{DirtyReason, LaneState, Lifecycle, RebuildPolicy, Want};
use crate::sync::{Arc, AtomicBool, AtomicU32, AtomicU64, Mutex, Ordering, lock};
use crate::time::{Tick, now};
use core::time::Duration;

/// After connecting a lane for the first time has failed it is left alone for so long.
const COOLDOWN: Duration = Duration::from_secs(1);

/// The client's end of one lane. Slots are handed out by the [`Channel`](super::Channel).
#[derive(Debug)]
pub struct ClientLane<F: Fabric> {
    shard: u32,
    lane: u32,
    /// Generation of the present connection while the lane is Active, else 0: all that the hot path reads of it.
    active: AtomicU32,
    life: Mutex<Lifecycle>,
    /// None until it is connected for the first time.
    current: Mutex<Option<Arc<Connection<F>>>>,
    /// Never connected: requests use the others as long as these have slots.
    fresh: AtomicBool,
    /// Somebody looked for a slot and found this lane down, or all others busy.
    wanted: AtomicBool,
    /// Until when a fresh lane is not needed again, after an attempt that failed, as a tick's number.
    cooling: AtomicU64,
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
            current: Mutex::new(Some(Arc::new(Connection::new(parts)))),
            fresh: AtomicBool::new(false),
            wanted: AtomicBool::new(false),
            cooling: AtomicU64::new(0),
            bell,
        }
    }

    /// A lane that is connected when it is needed.
    #[must_use]
    pub fn unconnected(shard: u32, lane: u32, bell: Arc<Bell>) -> ClientLane<F> {
        ClientLane {
            shard,
            lane,
            active: AtomicU32::new(0),
            life: Mutex::new(Lifecycle::unconnected()),
            current: Mutex::new(None),
            fresh: AtomicBool::new(true),
            wanted: AtomicBool::new(false),
            cooling: AtomicU64::new(0),
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

    /// The connection that it has now, or had last; None as long as it is fresh.
    #[must_use]
    pub fn connection(&self) -> Option<Arc<Connection<F>>> {
        lock(&self.current).clone()
    }

    /// Whether it has never been connected.
    #[must_use]
    pub fn is_fresh(&self) -> bool {
        self.fresh.load(Ordering::Relaxed)
    }

    /// Ends connection `generation`, if it is the present one. The queue pair goes to ERR, so that nothing more arrives
    /// from either side.
    #[cold]
    pub fn fail(&self, generation: u32, reason: DirtyReason) {
        let mut life = lock(&self.life);
        let first = life.failed(now(), generation, reason);
        let Some(connection) = self.connection().filter(|_| first) else {
            return;
        };
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
        if let Some(connection) = self.connection()
            && connection.parts().witness.incarnation == incarnation
        {
            self.fail(connection.parts().generation, reason);
        }
    }

    /// The client is closed.
    #[cold]
    pub fn close(&self) {
        self.fail(self.life().generation(), DirtyReason::Closed);
    }

    /// Looks at the slow signs. Err when the lane is not Active.
    ///
    /// # Errors
    /// What ended its last connection, with shard, lane and generation; `LaneDown` for one that was never connected.
    #[cold]
    pub fn check(&self) -> Result<()> {
        match self.connection() {
            Some(connection) => self.check_connection(&connection),
            None => {
                let message = format!("lane {} to shard {} is not connected yet", self.lane, self.shard);
                Err(Error::new(Status::LaneDown, message).at_shard(self.shard))
            }
        }
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
        if !self.is_fresh() {
            self.need();
        }
    }

    /// It is to be connected, whether it ever was or not.
    #[cold]
    pub(crate) fn need(&self) {
        if !self.wanted.load(Ordering::Relaxed) && !self.wanted.swap(true, Ordering::Relaxed) {
            self.bell.ring();
        }
    }

    /// Whether somebody has looked for a slot since it went down, or needs it for the first time.
    #[must_use]
    pub fn is_wanted(&self) -> bool {
        self.wanted.load(Ordering::Relaxed)
    }

    /// Whether connecting it for the first time has just failed: requests do not wait for the next attempt.
    pub(super) fn is_cooling(&self) -> bool {
        self.cooling.load(Ordering::Relaxed) > now().0
    }

    /// Whether requests may wait for it: it is connected, or somebody sees to that.
    #[must_use]
    pub fn has_hope(&self, policy: &RebuildPolicy) -> bool {
        self.life().has_hope(policy) || (self.is_fresh() && self.is_wanted())
    }

    /// What its life wants; a begun attempt is marked as such.
    #[must_use]
    pub fn next_step(&self, at: Tick, policy: &RebuildPolicy) -> Want {
        lock(&self.life).want(at, policy)
    }

    /// The attempt is over without success. False: it was already.
    pub fn attempt_failed(&self, generation: u32) -> bool {
        let first = lock(&self.life).attempt_failed(generation);
        if first && self.is_fresh() {
            self.cooling.store(now().after(COOLDOWN).0, Ordering::Relaxed);
            self.wanted.store(false, Ordering::Relaxed);
        }
        first
    }

    /// The peer is another process.
    pub fn peer_is_back(&self, policy: &RebuildPolicy) {
        lock(&self.life).peer_is_back(policy);
        self.cooling.store(0, Ordering::Relaxed);
    }

    /// The peer's process is heard of again.
    pub fn peer_is_heard(&self, policy: &RebuildPolicy) {
        lock(&self.life).peer_is_heard(policy);
        self.cooling.store(0, Ordering::Relaxed);
    }

    /// Takes a new connection into use. False: the attempt was given up meanwhile.
    pub fn connected(&self, connection: Connection<F>) -> bool {
        let generation = connection.parts().generation;
        let mut life = lock(&self.life);
        if !life.connected(generation) {
            return false;
        }
        *lock(&self.current) = Some(Arc::new(connection));
        self.fresh.store(false, Ordering::Relaxed);
        self.wanted.store(false, Ordering::Relaxed);
        // Release: pairs with the Acquire in `active`.
        self.active.store(generation, Ordering::Release);
        true
    }
}
