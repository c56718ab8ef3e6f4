//! A member's side of the control plane: the real view of the others, with letters instead of gRPC.

use super::control_tick;
use super::wires::{Letter, Wire, Wires};
use crate::control::messages::{Answer, Ask, SessionId};
use crate::control::view::View;
use crate::control::{Event, HealthReport, Identity, Member, Peer, Role};
use crate::ids::{Incarnation, ShardId};
use crate::sync::Arc;
use std::collections::{BTreeMap, VecDeque};

/// What an answer is to.
#[derive(Clone, Copy, Debug)]
enum Asked {
    Join,
    Publish(Peer, u64),
    Lanes(Peer, Incarnation),
    Ready,
    Health,
    Other,
}

/// One member's connection and knowledge.
#[derive(Debug)]
pub(super) struct Membership {
    pub(super) me: Peer,
    pub(super) incarnation: Incarnation,
    host: u32,
    identity: Identity,
    view: View,
    pub(super) wire: Option<Wire>,
    session: Option<SessionId>,
    joined_before: bool,
    next_try: u64,
    asks: BTreeMap<u64, Asked>,
    next_ask: u64,
    /// Letters that the process has not looked at yet.
    inbox: VecDeque<Letter>,
    /// What happened, for the process.
    pub(super) events: VecDeque<Event>,
    /// Offers that were asked for, with the life that they were asked of.
    pub(super) offers: VecDeque<(Peer, Incarnation, Vec<u8>)>,
    /// What was asked about the health of shards.
    pub(super) reports: VecDeque<HealthReport>,
    /// Every shard is ready.
    pub(super) all_ready: bool,
    /// Waiting for the deployment was refused: opening a client fails.
    pub(super) is_refused: bool,
}

const TRY_AGAIN_NS: u64 = 1_000_000;

impl Membership {
    pub(super) fn new(me: Peer, incarnation: Incarnation, host: u32, identity: Identity) -> Membership {
        Membership {
            me,
            incarnation,
            host,
            identity,
            view: View::default(),
            wire: None,
            session: None,
            joined_before: false,
            next_try: 0,
            asks: BTreeMap::new(),
            next_ask: 1,
            inbox: VecDeque::new(),
            events: VecDeque::new(),
            offers: VecDeque::new(),
            reports: VecDeque::new(),
            all_ready: false,
            is_refused: false,
        }
    }

    pub(super) fn is_joined(&self) -> bool {
        self.session.is_some()
    }

    pub(super) fn deliver(&mut self, letter: Letter) {
        self.inbox.push_back(letter);
    }

    /// Joins when it is not, and reads its letters. `plane` is the host of the control plane while it lives.
    pub(super) fn step(&mut self, now: u64, plane: Option<u32>, wires: &mut Wires) {
        while let Some(letter) = self.inbox.pop_front() {
            self.read(now, letter, wires);
        }
        self.events.extend(self.view.tick(control_tick(now)));
        if self.wire.is_none()
            && now >= self.next_try
            && let Some(plane) = plane
        {
            let wire = wires.open(self.host, plane);
            self.wire = Some(wire);
            let role = match self.me {
                Peer::Server(shard) => Role::Server(shard),
                Peer::Client(client) => Role::Client(Some(client)),
            };
            let member = Member { role, incarnation: self.incarnation, pid: self.host, host: "simulated".to_owned() };
            let ask = self.note(Asked::Join);
            let letter = Letter::Join { ask, identity: Box::new(self.identity.clone()), member: Box::new(member) };
            wires.send(now, wire, true, letter);
        }
    }

    fn note(&mut self, asked: Asked) -> u64 {
        let ask = self.next_ask;
        self.next_ask += 1;
        self.asks.insert(ask, asked);
        ask
    }

    fn ask(&mut self, now: u64, asked: Asked, what: Ask, wires: &mut Wires) {
        let (Some(wire), Some(session)) = (self.wire, self.session) else { return };
        let ask = self.note(asked);
        wires.send(now, wire, true, Letter::Ask { ask, session, incarnation: self.incarnation, what });
    }

    pub(super) fn publish(&mut self, now: u64, to: Peer, offer: Vec<u8>, wires: &mut Wires) {
        let offer = self.view.offer(to, Arc::from(offer));
        let what = Ask::Publish {
            to,
            version: offer.version,
            for_incarnation: offer.for_incarnation,
            offer: offer.bytes.to_vec(),
        };
        self.ask(now, Asked::Publish(to, offer.version), what, wires);
    }

    pub(super) fn ask_lanes(&mut self, now: u64, from: Peer, life: Incarnation, wires: &mut Wires) {
        self.ask(now, Asked::Lanes(from, life), Ask::Lanes { from }, wires);
    }

    pub(super) fn ask_ready(&mut self, now: u64, wires: &mut Wires) {
        self.ask(now, Asked::Ready, Ask::WaitReady(None), wires);
    }

    pub(super) fn ready(&mut self, now: u64, wires: &mut Wires) {
        self.view.set_ready();
        self.ask(now, Asked::Other, Ask::Ready, wires);
    }

    /// Says that this shard is about to leave.
    pub(super) fn draining(&mut self, now: u64, wires: &mut Wires) {
        self.view.set_draining();
        self.ask(now, Asked::Other, Ask::Draining, wires);
    }

    /// Says goodbye: the others are told that this member left, and did not die.
    pub(super) fn leave(&mut self, now: u64, wires: &mut Wires) {
        self.ask(now, Asked::Other, Ask::Leave, wires);
    }

    pub(super) fn beat(&mut self, now: u64, wires: &mut Wires) {
        self.ask(now, Asked::Other, Ask::Beat, wires);
    }

    pub(super) fn ask_health(&mut self, now: u64, shard: ShardId, wires: &mut Wires) {
        self.ask(now, Asked::Health, Ask::Health(shard), wires);
    }

    fn read(&mut self, now: u64, letter: Letter, wires: &mut Wires) {
        match letter {
            Letter::Answer { ask, answer, life } => {
                let Some(asked) = self.asks.remove(&ask) else { return };
                self.answered(now, asked, answer, life, wires);
            }
            Letter::Notice(notice) => self.events.extend(self.view.notice(control_tick(now), notice)),
            Letter::Broken => {
                (self.wire, self.session) = (None, None);
                self.asks.clear();
                self.next_try = now + TRY_AGAIN_NS;
                self.events.extend(self.view.lost());
            }
            Letter::Join { .. } | Letter::Ask { .. } => {}
        }
    }

    fn answered(&mut self, now: u64, asked: Asked, answer: Answer, life: Incarnation, wires: &mut Wires) {
        match (asked, answer) {
            (Asked::Join, Answer::Joined { session, .. }) => {
                self.session = Some(session);
                self.view.joined(life);
                self.refill(now, wires);
                let first = !core::mem::replace(&mut self.joined_before, true);
                self.events.extend(self.view.back(first));
            }
            (Asked::Join, _) => {
                if let Some(wire) = self.wire.take() {
                    wires.close(now, wire, false);
                }
                self.next_try = now + TRY_AGAIN_NS;
            }
            (Asked::Publish(to, version), Answer::Published(receiver)) => self.view.offered(to, version, receiver),
            (Asked::Publish(to, version), Answer::Refused(_)) => self.view.unoffer(to, version),
            (Asked::Lanes(from, life), Answer::Offer(bytes)) => self.offers.push_back((from, life, bytes)),
            (Asked::Health, Answer::Health(report)) => self.reports.push_back(report),
            (Asked::Ready, Answer::Done) => self.all_ready = true,
            (Asked::Ready, Answer::Refused(_)) => self.is_refused = true,
            _ => {}
        }
    }

    /// Tells the control plane again what it should know of this member.
    fn refill(&mut self, now: u64, wires: &mut Wires) {
        let (offers, ready, _) = self.view.soft_state();
        for (to, offer) in offers {
            let what = Ask::Publish {
                to,
                version: offer.version,
                for_incarnation: offer.for_incarnation,
                offer: offer.bytes.to_vec(),
            };
            self.ask(now, Asked::Publish(to, offer.version), what, wires);
        }
        if ready {
            self.ask(now, Asked::Other, Ask::Ready, wires);
        }
    }
}
