//! Who belongs to the deployment: the control plane as a state machine.
//!
//! It is handed events and the time, and returns actions. It knows no clock, socket or thread, and all its tables are
//! ordered, so the same inputs give the same actions.
//!
//! Invariants: a name has one holder; a session has one name; offers belong to members that are here; a call is answered
//! once. The property tests check them after every step.

#![forbid(unsafe_code)]

use super::barriers::Barriers;
use super::health::{Beats, Change, Thresholds};
use super::history::History;
use super::identity::check_member;
use super::limits::{CLIENTS_MAX, CONTENDERS_MAX, DUPLICATE_GRACE};
use super::messages::{Action, Answer, Input, Notice, SessionId, Ticket};
use super::offers::Offers;
use super::refusal::{Reason, Refusal};
use super::requests::Call;
use super::secret::Proof;
use super::types::{Identity, Member, Peer, Role};
use super::waits::{Key, Wait, Waits, Want};
use crate::error::Status;
use crate::ids::{ClientId, Incarnation};
use crate::time::Tick;
use std::collections::BTreeMap;

/// How far a server has come. Clients stay at the first.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum State {
    Joined,
    Ready,
    Draining,
}

/// A live member.
#[derive(Clone, Debug)]
pub(super) struct Entry {
    pub(super) peer: Peer,
    pub(super) incarnation: Incarnation,
    proof: Proof,
    pub(super) pid: u32,
    pub(super) host: String,
    pub(super) state: State,
    /// What it said of itself, and when.
    pub(super) report: Option<(Tick, Vec<(String, u64)>)>,
    /// It was asked to, and has not answered.
    pub(super) is_asked: bool,
}

/// The control plane of one deployment.
#[derive(Debug)]
pub struct Plane {
    pub(super) identity: Identity,
    first_number: u32,
    next_session: u64,
    session_key: Option<[u8; 32]>,
    pub(super) sessions: BTreeMap<SessionId, Entry>,
    pub(super) names: BTreeMap<Peer, SessionId>,
    pub(super) offers: Offers,
    pub(super) barriers: Barriers,
    pub(super) waits: Waits,
    pub(super) beats: Beats,
    pub(super) history: History,
    /// The time of the event that is being handled.
    pub(super) now: Tick,
    pub(super) out: Vec<Action>,
}

impl Plane {
    /// An empty control plane. `life` is random and tells this life of the control plane from its others.
    ///
    /// Numbers that are given out begin at a place that depends on `life`. So a restarted control plane, which does not
    /// know yet who is still there, does not give a newcomer the number of a client that has not joined again so far.
    #[must_use]
    pub fn new(identity: Identity, life: Incarnation) -> Plane {
        // 65535 pages of CLIENTS_MAX numbers; the page of 0 is left to numbers that were chosen by hand.
        let page = u32::try_from(life.0 % 0xffff).unwrap_or(0) + 1;
        Plane {
            identity,
            first_number: page * CLIENTS_MAX,
            next_session: 1,
            session_key: None,
            sessions: BTreeMap::new(),
            names: BTreeMap::new(),
            offers: Offers::default(),
            barriers: Barriers::default(),
            waits: Waits::default(),
            beats: Beats::default(),
            history: History::default(),
            now: Tick::default(),
            out: Vec::new(),
        }
    }

    /// After how long a silence a server is suspect, and dead.
    #[must_use]
    pub fn with_thresholds(mut self, thresholds: Thresholds) -> Plane {
        self.beats.set_thresholds(thresholds);
        self
    }

    /// Numbers its sessions by a random key, so that none can be told from another.
    #[must_use]
    pub fn with_session_key(mut self, key: [u8; 32]) -> Plane {
        self.session_key = Some(key);
        self
    }

    /// Tells everybody what has become of servers' health.
    pub(super) fn tell_health(&mut self, changes: impl IntoIterator<Item = Change>) {
        for (shard, incarnation, health) in changes {
            self.tell_others(Peer::Server(shard), Notice::ServerHealth { shard, incarnation, health });
        }
    }

    /// Takes one event.
    pub fn handle(&mut self, now: Tick, input: Input) -> Vec<Action> {
        self.now = now;
        // An end goes before the deadlines that it may make void.
        if let Input::Gone(session) = input {
            self.remove(now, session, true);
        }
        self.expire(now);
        match input {
            Input::Join { ticket, identity, member, proof } => self.join(now, ticket, (identity, member, proof)),
            Input::Ask { ticket, session, incarnation, ask, deadline } => {
                match self.sessions.get(&session).filter(|entry| entry.incarnation == incarnation) {
                    Some(entry) => {
                        let me = entry.peer;
                        self.ask(Call { now, ticket, session, me, deadline }, ask);
                    }
                    None => self.refuse(ticket, Refusal::unknown_session()),
                }
            }
            Input::Observe { ticket, observer } => self.observe(now, ticket, &observer),
            Input::Cancel(ticket) => {
                self.drop_wait(ticket);
            }
            Input::Gone(_) => {}
        }
        core::mem::take(&mut self.out)
    }

    /// Answers the calls whose deadline has passed.
    pub fn tick(&mut self, now: Tick) -> Vec<Action> {
        self.now = now;
        self.expire(now);
        core::mem::take(&mut self.out)
    }

    /// When [`tick`](Plane::tick) has something to do next.
    #[must_use]
    pub fn next_deadline(&self) -> Option<Tick> {
        [self.waits.next_deadline(), self.beats.next_deadline()].into_iter().flatten().min()
    }

    fn join(&mut self, now: Tick, ticket: Ticket, (identity, member, proof): (Identity, Member, Proof)) {
        if let Err(refusal) = check_member(&self.identity, &identity, &member) {
            return self.refuse(ticket, refusal);
        }
        let peer = match member.role {
            Role::Server(shard) => Peer::Server(shard),
            Role::Client(Some(client)) => Peer::Client(client),
            Role::Client(None) => match self.free_number() {
                Some(client) => Peer::Client(client),
                None => return self.refuse(ticket, too_many_clients()),
            },
        };
        let Some(holder) = self.names.get(&peer).copied() else {
            return self.admit(ticket, peer, member, proof);
        };
        // Everybody knows its incarnation; that it is the same process, only the process itself can show.
        let is_same = |entry: &Entry| entry.incarnation == member.incarnation && entry.proof == proof;
        if self.sessions.get(&holder).is_some_and(is_same) {
            return self.replace(ticket, peer, holder);
        }
        let deadline = now.after(DUPLICATE_GRACE);
        let want = Want::Join(Box::new((identity, member, proof)));
        let key = Key::Name(peer);
        if self.waits.joins() >= CONTENDERS_MAX {
            let refusal = self.duplicate(peer);
            return self.refuse(ticket, refusal);
        }
        self.waits.add(ticket, Wait { session: None, since: now, deadline, key, want });
    }

    fn free_number(&self) -> Option<ClientId> {
        (0..CLIENTS_MAX)
            .map(|k| ClientId(self.first_number + k))
            .find(|client| !self.names.contains_key(&Peer::Client(*client)))
    }

    fn admit(&mut self, ticket: Ticket, peer: Peer, member: Member, proof: Proof) {
        let clients = self.names.range(Peer::Client(ClientId(0))..).count();
        if matches!(peer, Peer::Client(_)) && clients >= CLIENTS_MAX as usize {
            return self.refuse(ticket, too_many_clients());
        }
        let incarnation = member.incarnation;
        let (pid, host, state) = (member.pid, member.host, State::Joined);
        let entry = Entry { peer, incarnation, proof, pid, host, state, report: None, is_asked: false };
        self.offers.keep_for(peer, incarnation);
        self.tell_others(peer, Notice::MemberJoined { peer, incarnation });
        self.open(ticket, entry);
    }

    /// The same process joins again while its old stream has not broken yet: it goes on where it was.
    fn replace(&mut self, ticket: Ticket, peer: Peer, holder: SessionId) {
        for waiting in self.waits.of(holder) {
            self.drop_wait(waiting);
            self.refuse(waiting, Refusal::unknown_session());
        }
        if let Some(mut entry) = self.sessions.remove(&holder) {
            // What the old stream was asked is lost with it.
            entry.is_asked = false;
            assert_eq!(entry.peer, peer, "a name's holder has that name");
            self.out.push(Action::End(holder));
            self.open(ticket, entry);
        }
    }

    /// A number that no other session has had; with a key, one that nobody can guess.
    fn fresh_session(&mut self) -> SessionId {
        loop {
            let number = self.next_session;
            self.next_session += 1;
            let keyed = self.session_key.map(|key| blake3::keyed_hash(&key, &number.to_le_bytes()));
            let first = keyed.and_then(|hash| hash.as_bytes().first_chunk().copied());
            let session = SessionId(first.map_or(number, u64::from_le_bytes));
            if !self.sessions.contains_key(&session) {
                return session;
            }
        }
    }

    /// Opens a session and tells it all there is.
    fn open(&mut self, ticket: Ticket, entry: Entry) {
        let (session, me) = (self.fresh_session(), entry.peer);
        self.answer(ticket, Answer::Joined { session, me });
        for other in self.sessions.values() {
            let (peer, incarnation) = (other.peer, other.incarnation);
            self.out.push(Action::Tell(session, Notice::MemberJoined { peer, incarnation }));
            match (other.state, other.peer) {
                (State::Ready, Peer::Server(shard)) => {
                    self.out.push(Action::Tell(session, Notice::ServerReady(shard)));
                }
                (State::Draining, Peer::Server(shard)) => {
                    self.out.push(Action::Tell(session, Notice::ServerDraining(shard)));
                }
                _ => {}
            }
        }
        for (from, offer) in self.offers.all_for(me) {
            let notice = Notice::LanesPublished { from, incarnation: offer.incarnation, version: offer.version };
            self.out.push(Action::Tell(session, notice));
        }
        for (shard, incarnation, health) in self.beats.all() {
            self.out.push(Action::Tell(session, Notice::ServerHealth { shard, incarnation, health }));
        }
        self.out.push(Action::Tell(session, Notice::CaughtUp));
        self.names.insert(me, session);
        self.sessions.insert(session, entry);
    }

    /// A member goes. Its calls are over, what it published is gone, its barriers fail, its name is free.
    pub(super) fn remove(&mut self, now: Tick, session: SessionId, died: bool) {
        let Some(entry) = self.sessions.remove(&session) else { return };
        let (peer, incarnation) = (entry.peer, entry.incarnation);
        self.names.remove(&peer);
        self.out.push(Action::End(session));
        self.offers.forget(peer);
        if let Peer::Server(shard) = peer {
            self.beats.forget(shard);
        }
        let how = if died { "died" } else { "left" };
        for (name, why) in self.barriers.fail(peer, &format!("(pid {} on {}) {how}", entry.pid, entry.host)) {
            for waiting in self.waits.on(&Key::Barrier(name)) {
                self.waits.remove(waiting);
                self.refuse(waiting, why.clone());
            }
        }
        for waiting in self.waits.of(session) {
            self.waits.remove(waiting);
            self.refuse(waiting, Refusal::unknown_session());
        }
        self.tell_others(peer, Notice::MemberLeft { peer, incarnation, died });
        if let Some(contender) = self.waits.on(&Key::Name(peer)).first().copied()
            && let Some(Wait { want: Want::Join(join), .. }) = self.waits.remove(contender)
        {
            self.join(now, contender, *join);
        }
    }

    /// Forgets a waiting call.
    pub(super) fn drop_wait(&mut self, ticket: Ticket) -> Option<Wait> {
        let wait = self.waits.remove(ticket)?;
        if let (Want::Barrier(name, _), Some(entry)) =
            (&wait.want, wait.session.and_then(|session| self.sessions.get(&session)))
        {
            self.barriers.withdraw(name, entry.peer);
        }
        Some(wait)
    }

    fn expire(&mut self, now: Tick) {
        while let Some(ticket) = self.waits.overdue(now) {
            let refusal = self.waits.get(ticket).map(|wait| self.late(wait));
            self.drop_wait(ticket);
            if let Some(refusal) = refusal {
                self.refuse(ticket, refusal);
            }
        }
        let changes = self.beats.tick(now);
        self.tell_health(changes);
    }

    /// Says who holds a name.
    pub(super) fn duplicate(&self, peer: Peer) -> Refusal {
        let holder = self.names.get(&peer).and_then(|session| self.sessions.get(session));
        let by = holder.map_or_else(String::new, |entry| {
            format!(" by pid {} on {} (incarnation {})", entry.pid, entry.host, entry.incarnation)
        });
        let option = if matches!(peer, Peer::Server(_)) { "shard-id" } else { "client-id" };
        let message = format!("{peer} is held{by}, which is alive; stop it or choose another {option}");
        Refusal::new(Status::DuplicateId, Reason::Duplicate, message)
    }

    pub(super) fn tell_others(&mut self, about: Peer, notice: Notice) {
        self.note(about, &notice);
        for (session, entry) in &self.sessions {
            if entry.peer != about {
                self.out.push(Action::Tell(*session, notice.clone()));
            }
        }
    }

    pub(super) fn tell(&mut self, session: SessionId, notice: Notice) {
        self.out.push(Action::Tell(session, notice));
    }

    pub(super) fn answer(&mut self, ticket: Ticket, answer: Answer) {
        self.out.push(Action::Answer(ticket, answer));
    }

    pub(super) fn refuse(&mut self, ticket: Ticket, refusal: Refusal) {
        self.answer(ticket, Answer::Refused(refusal));
    }

    /// The invariants of the module's head.
    #[cfg(test)]
    pub(super) fn check(&self) {
        assert_eq!(self.names.len(), self.sessions.len());
        for (peer, session) in &self.names {
            assert_eq!(self.sessions[session].peer, *peer, "a name's holder has that name");
        }
        for (from, _) in self.offers.pairs() {
            assert!(self.names.contains_key(&from), "{from} is gone but its offer is here");
        }
        let mut at_barriers = BTreeMap::<(&str, Peer), u32>::new();
        for (_, wait) in self.waits.all() {
            let peer = wait.session.map(|session| self.sessions[&session].peer);
            match (&wait.want, peer) {
                (Want::Barrier(name, _), Some(peer)) => *at_barriers.entry((name, peer)).or_default() += 1,
                (Want::Join(_), None) => {
                    assert!(matches!(wait.key, Key::Name(peer) if self.names.contains_key(&peer)));
                }
                (_, peer) => assert!(peer.is_some(), "only a join waits without a session"),
            }
        }
        assert_eq!(at_barriers, self.barriers.waiting(), "who is at a barrier waits, and the other way round");
        self.offers.check();
        self.barriers.check();
        self.waits.check();
    }
}

fn too_many_clients() -> Refusal {
    let message = format!("{CLIENTS_MAX} clients are here already; that is the most this control plane takes");
    Refusal::new(Status::ResourceLimit, Reason::TooMany, message)
}
