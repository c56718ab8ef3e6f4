//! What one member knows of the others, and what it has to tell the control plane again after a loss.
//!
//! Pure: handed what the stream says and the time, it returns events. It makes a restart of the control plane invisible:
//! news that the engine has had already are not repeated, and members that do not come back are reported as dead.

#![forbid(unsafe_code)]

use super::limits::RESETTLE;
use super::messages::Notice;
use super::types::{Event, Peer};
use crate::ids::Incarnation;
use crate::sync::Arc;
use crate::time::Tick;
use std::collections::BTreeMap;

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Stage {
    Joined,
    Ready,
    Draining,
}

#[derive(Debug)]
struct Seen {
    incarnation: Incarnation,
    stage: Stage,
    /// Newest publication the engine was told of; 0 when none.
    version: u64,
    /// Told by the present session, so certainly alive.
    confirmed: bool,
}

/// What this member published for one other.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct OwnOffer {
    /// Counted over all publications of this member.
    pub version: u64,
    /// The receiver's life at the time, if it was here.
    pub for_incarnation: Option<Incarnation>,
    /// The offer.
    pub bytes: Arc<[u8]>,
}

/// A member's knowledge.
#[derive(Debug, Default)]
pub struct View {
    life: Option<Incarnation>,
    /// The present life of the control plane has had the time to learn of everybody.
    settled: bool,
    up: bool,
    known: BTreeMap<Peer, Seen>,
    resettle: Option<Tick>,
    own: BTreeMap<Peer, OwnOffer>,
    ready: bool,
    draining: bool,
    last_version: u64,
}

impl View {
    /// The session broke.
    pub fn lost(&mut self) -> Option<Event> {
        self.resettle = None;
        core::mem::take(&mut self.up).then_some(Event::ControlPlaneLost)
    }

    /// A new session began, with this life of the control plane. Returns whether it knows everybody who is alive: it
    /// does not when it was restarted a short while ago.
    pub fn joined(&mut self, life: Incarnation) -> bool {
        for seen in self.known.values_mut() {
            seen.confirmed = false;
        }
        match self.life.replace(life) {
            Some(before) if before != life => self.settled = false,
            Some(_) => {}
            // Whom we know we know from it.
            None => self.settled = true,
        }
        self.settled
    }

    /// Everything was told to the control plane again. None at the first time: nothing was lost before it.
    pub fn back(&mut self, first: bool) -> Option<Event> {
        self.up = true;
        (!first).then_some(Event::ControlPlaneBack)
    }

    /// The stream said something.
    pub fn notice(&mut self, now: Tick, notice: Notice) -> Vec<Event> {
        let mut events = Vec::new();
        match notice {
            Notice::MemberJoined { peer, incarnation } => {
                self.meet(peer, incarnation, &mut events);
            }
            Notice::MemberLeft { peer, incarnation, died } => {
                if self.known.get(&peer).is_some_and(|seen| seen.incarnation == incarnation) {
                    self.forget(peer, died, &mut events);
                }
            }
            Notice::LanesPublished { from, incarnation, version } => {
                let seen = self.meet(from, incarnation, &mut events);
                if version > seen.version {
                    seen.version = version;
                    events.push(Event::LanesPublished { from, incarnation });
                }
            }
            Notice::ServerReady(shard) => {
                if self.advance(Peer::Server(shard), Stage::Ready) {
                    events.push(Event::ServerReady(shard));
                }
            }
            Notice::ServerDraining(shard) => {
                if self.advance(Peer::Server(shard), Stage::Draining) {
                    events.push(Event::ServerDraining(shard));
                }
            }
            Notice::ServerHealth { shard, incarnation, health } => {
                events.push(Event::ServerHealth { shard, incarnation, health });
            }
            Notice::Mail { from, incarnation, body } => events.push(Event::Mail { from, incarnation, body }),
            Notice::ReportWanted => events.push(Event::ReportWanted),
            // A control plane that was there all the time has told of everybody who is alive; a restarted one learns
            // of them as they come back.
            Notice::CaughtUp if self.settled => self.bury(&mut events),
            Notice::CaughtUp => self.resettle = Some(now.after(RESETTLE)),
        }
        events
    }

    /// Reports the members that did not come back after a restart of the control plane.
    pub fn tick(&mut self, now: Tick) -> Vec<Event> {
        let mut events = Vec::new();
        if self.resettle.is_some_and(|at| at <= now) {
            self.resettle = None;
            self.settled = true;
            self.bury(&mut events);
        }
        events
    }

    /// When [`tick`](View::tick) has something to do.
    #[must_use]
    pub fn next_deadline(&self) -> Option<Tick> {
        self.resettle
    }

    /// Keeps a new offer, to publish it now and after every loss.
    pub fn offer(&mut self, to: Peer, bytes: Arc<[u8]>) -> OwnOffer {
        self.last_version += 1;
        let for_incarnation = self.known.get(&to).map(|seen| seen.incarnation);
        let offer = OwnOffer { version: self.last_version, for_incarnation, bytes };
        self.own.insert(to, offer.clone());
        offer
    }

    /// The control plane stored this offer while the receiver lived this life.
    pub fn offered(&mut self, to: Peer, version: u64, receiver: Option<Incarnation>) {
        if let Some(offer) = self.own.get_mut(&to).filter(|offer| offer.version == version)
            && offer.for_incarnation.is_none()
        {
            offer.for_incarnation = receiver;
        }
    }

    /// The control plane refused this offer.
    pub fn unoffer(&mut self, to: Peer, version: u64) {
        if self.own.get(&to).is_some_and(|offer| offer.version == version) {
            self.own.remove(&to);
        }
    }

    /// This member is ready.
    pub fn set_ready(&mut self) {
        self.ready = true;
    }

    /// This member is draining.
    pub fn set_draining(&mut self) {
        self.draining = true;
    }

    /// What to tell the control plane after joining again: offers, whether ready, whether draining.
    #[must_use]
    pub fn soft_state(&self) -> (Vec<(Peer, OwnOffer)>, bool, bool) {
        (self.own.iter().map(|(to, offer)| (*to, offer.clone())).collect(), self.ready, self.draining)
    }

    fn meet(&mut self, peer: Peer, incarnation: Incarnation, events: &mut Vec<Event>) -> &mut Seen {
        if self.known.get(&peer).is_some_and(|seen| seen.incarnation != incarnation) {
            self.forget(peer, true, events);
        }
        let fresh = || Seen { incarnation, stage: Stage::Joined, version: 0, confirmed: true };
        let seen = self.known.entry(peer).or_insert_with(fresh);
        seen.confirmed = true;
        seen
    }

    fn advance(&mut self, peer: Peer, stage: Stage) -> bool {
        self.known.get_mut(&peer).is_some_and(|seen| {
            let news = stage > seen.stage;
            seen.stage = seen.stage.max(stage);
            news
        })
    }

    fn forget(&mut self, peer: Peer, died: bool, events: &mut Vec<Event>) {
        if let Some(seen) = self.known.remove(&peer) {
            // What was made for that life is of no use to another.
            if self.own.get(&peer).is_some_and(|offer| offer.for_incarnation == Some(seen.incarnation)) {
                self.own.remove(&peer);
            }
            events.push(Event::MemberLeft { peer, incarnation: seen.incarnation, died });
        }
    }

    fn bury(&mut self, events: &mut Vec<Event>) {
        let gone: Vec<Peer> = self.known.iter().filter(|(_, seen)| !seen.confirmed).map(|(peer, _)| *peer).collect();
        for peer in gone {
            self.forget(peer, true, events);
        }
    }
}
