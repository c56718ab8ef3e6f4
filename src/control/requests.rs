//! What members ask of the control plane: offers, readiness, barriers.

#![forbid(unsafe_code)]

use super::barriers::Arrival;
use super::identity::check_name;
use super::limits::{CLIENTS_MAX, MAIL_BYTES_MAX, WAITS_PER_MEMBER_MAX};
use super::messages::{Answer, Ask, Notice, SessionId, Ticket};
use super::offers::Offer;
use super::refusal::{Reason, Refusal};
use super::session::{Entry, Plane, State};
use super::types::Peer;
use super::waits::{Key, Wait, Want};
use crate::error::Status;
use crate::ids::{Incarnation, ShardId};
use crate::sync::Arc;
use crate::time::Tick;

/// Names in one message; the rest is counted.
const NAMES_MAX: usize = 16;

/// One call of a member that is here.
#[derive(Clone, Copy)]
pub(super) struct Call {
    pub(super) now: Tick,
    pub(super) ticket: Ticket,
    pub(super) session: SessionId,
    pub(super) me: Peer,
    pub(super) deadline: Tick,
}

/// An answer, or none because the call waits.
type Outcome = Result<Option<Answer>, Refusal>;

impl Plane {
    pub(super) fn ask(&mut self, call: Call, ask: Ask) {
        let outcome = match ask {
            Ask::Publish { to, version, for_incarnation, offer } => {
                self.publish(call, to, version, for_incarnation, offer)
            }
            Ask::Lanes { from } => self.lanes(call, from),
            Ask::Ready => self.ready(call),
            Ask::Draining => self.draining(call),
            Ask::WaitReady(shard) => self.wait_ready(call, shard),
            Ask::Barrier { name, participants, call: number } => self.barrier(call, name, participants, number),
            Ask::Mail { to, body } => self.mail(call, to, body),
            Ask::Beat => self.beat(call),
            Ask::Health(shard) => {
                self.check_peer(Peer::Server(shard)).map(|()| Some(Answer::Health(self.beats.report(call.now, shard))))
            }
            Ask::Report(report) => self.report(call.now, call.session, report),
            Ask::Leave => {
                self.answer(call.ticket, Answer::Done);
                return self.remove(call.now, call.session, false);
            }
        };
        match outcome {
            Ok(Some(answer)) => self.answer(call.ticket, answer),
            Ok(None) => {}
            Err(refusal) => self.refuse(call.ticket, refusal),
        }
    }

    fn wait(&mut self, call: Call, key: Key, want: Want) -> Outcome {
        let Call { now: since, ticket, session, deadline, .. } = call;
        let count = self.waits.count_of(session);
        if count >= WAITS_PER_MEMBER_MAX {
            let message = format!("{count} calls of {} wait already; that is the most it may have", call.me);
            return Err(Refusal::new(Status::ResourceLimit, Reason::TooMany, message));
        }
        if deadline <= since {
            let wait = Wait { session: Some(session), since, deadline, key, want };
            return Err(self.late(&wait));
        }
        self.waits.add(ticket, Wait { session: Some(session), since, deadline, key, want });
        Ok(None)
    }

    fn entry(&self, peer: Peer) -> Option<&Entry> {
        self.names.get(&peer).and_then(|session| self.sessions.get(session))
    }

    fn publish(
        &mut self,
        call: Call,
        to: Peer,
        version: u64,
        for_incarnation: Option<Incarnation>,
        bytes: Vec<u8>,
    ) -> Outcome {
        self.check_peer(to)?;
        let from = call.me;
        let Some(incarnation) = self.entry(from).map(|entry| entry.incarnation) else {
            return Err(Refusal::unknown_session());
        };
        let receiver = self.entry(to).map(|entry| entry.incarnation);
        // Made for an earlier life of the receiver: it would only mislead the present one.
        let obsolete = for_incarnation.is_some_and(|life| receiver.is_some_and(|now| now != life));
        if obsolete || !self.offers.publish(from, to, Offer { incarnation, version, for_incarnation, bytes })? {
            return Ok(Some(Answer::Published(receiver)));
        }
        if let Some(session) = self.names.get(&to).copied() {
            self.tell(session, Notice::LanesPublished { from, incarnation, version });
        }
        let bytes = self.offers.get(from, to).map(|offer| offer.bytes.clone()).unwrap_or_default();
        for waiting in self.waits.on(&Key::Lanes(from, to)) {
            self.waits.remove(waiting);
            self.answer(waiting, Answer::Offer(bytes.clone()));
        }
        Ok(Some(Answer::Published(receiver)))
    }

    /// Letters have a server at one end: clients do not write to each other.
    fn mail(&mut self, call: Call, to: Peer, body: Arc<[u8]>) -> Outcome {
        self.check_peer(to)?;
        let from = call.me;
        if body.len() > MAIL_BYTES_MAX {
            let message = format!("a letter of {from} has {} bytes; at most {MAIL_BYTES_MAX} are allowed", body.len());
            return Err(Refusal::new(Status::InvalidArgument, Reason::TooLarge, message));
        }
        if !matches!((from, to), (Peer::Server(_), _) | (_, Peer::Server(_))) {
            let message = format!("{from} cannot write to {to}: one of the two must be a shard");
            return Err(Refusal::new(Status::InvalidArgument, Reason::WrongState, message));
        }
        let Some(incarnation) = self.entry(from).map(|entry| entry.incarnation) else {
            return Err(Refusal::unknown_session());
        };
        let receiver = self.entry(to).map(|entry| entry.incarnation);
        if let Some(session) = self.names.get(&to).copied() {
            self.tell(session, Notice::Mail { from, incarnation, body });
        }
        Ok(Some(Answer::Published(receiver)))
    }

    fn check_peer(&self, peer: Peer) -> Result<(), Refusal> {
        match peer {
            Peer::Server(shard) if shard.0 >= self.identity.num_shards => {
                let message = format!("there is no shard {shard}: num-shards is {}", self.identity.num_shards);
                Err(Refusal::new(Status::InvalidArgument, Reason::ShardOutOfRange, message))
            }
            _ => Ok(()),
        }
    }

    fn lanes(&mut self, call: Call, from: Peer) -> Outcome {
        self.check_peer(from)?;
        if self.entry(from).is_some_and(|entry| entry.state == State::Draining) {
            return Err(is_draining(from));
        }
        if let Some(offer) = self.offers.get(from, call.me) {
            return Ok(Some(Answer::Offer(offer.bytes.clone())));
        }
        self.wait(call, Key::Lanes(from, call.me), Want::Lanes(from, call.me))
    }

    fn beat(&mut self, call: Call) -> Outcome {
        let shard = Self::server_of(call, "heard of")?;
        let Some(entry) = self.sessions.get(&call.session) else { return Err(Refusal::unknown_session()) };
        let change = self.beats.beat(call.now, shard, entry.incarnation);
        self.tell_health(change);
        Ok(Some(Answer::Done))
    }

    fn server_of(call: Call, what: &str) -> Result<ShardId, Refusal> {
        match call.me {
            Peer::Server(shard) => Ok(shard),
            Peer::Client(_) => {
                let message = format!("{} is no server: only servers can be {what}", call.me);
                Err(Refusal::new(Status::WrongState, Reason::WrongState, message))
            }
        }
    }

    fn ready(&mut self, call: Call) -> Outcome {
        let shard = Self::server_of(call, "ready")?;
        let Some(entry) = self.sessions.get_mut(&call.session) else { return Err(Refusal::unknown_session()) };
        match entry.state {
            State::Ready => return Ok(Some(Answer::Done)),
            State::Draining => {
                let message = format!("{} is draining; it cannot become ready again, only a new process can", call.me);
                return Err(Refusal::new(Status::Draining, Reason::WrongState, message));
            }
            State::Joined => entry.state = State::Ready,
        }
        self.tell_others(call.me, Notice::ServerReady(shard));
        self.wake_ready_waiters();
        Ok(Some(Answer::Done))
    }

    fn draining(&mut self, call: Call) -> Outcome {
        let shard = Self::server_of(call, "draining")?;
        let Some(entry) = self.sessions.get_mut(&call.session) else { return Err(Refusal::unknown_session()) };
        match entry.state {
            State::Draining => return Ok(Some(Answer::Done)),
            State::Joined => {
                let message = format!("{} cannot drain: it was never ready", call.me);
                return Err(Refusal::new(Status::WrongState, Reason::WrongState, message));
            }
            State::Ready => entry.state = State::Draining,
        }
        self.tell_others(call.me, Notice::ServerDraining(shard));
        self.wake_ready_waiters();
        for waiting in self.waits.on_lanes_from(call.me) {
            self.waits.remove(waiting);
            self.refuse(waiting, is_draining(call.me));
        }
        Ok(Some(Answer::Done))
    }

    fn wake_ready_waiters(&mut self) {
        for waiting in self.waits.on(&Key::Servers) {
            let Some(Wait { want: Want::Ready(shard), .. }) = self.waits.get(waiting) else { continue };
            match self.readiness(*shard) {
                Ok(false) => {}
                Ok(true) => {
                    self.waits.remove(waiting);
                    self.answer(waiting, Answer::Done);
                }
                Err(refusal) => {
                    self.waits.remove(waiting);
                    self.refuse(waiting, refusal);
                }
            }
        }
    }

    fn wait_ready(&mut self, call: Call, shard: Option<ShardId>) -> Outcome {
        if let Some(shard) = shard {
            self.check_peer(Peer::Server(shard))?;
        }
        if self.readiness(shard)? {
            return Ok(Some(Answer::Done));
        }
        self.wait(call, Key::Servers, Want::Ready(shard))
    }

    /// Whether the servers concerned are all ready. Refused as soon as one of them drains.
    fn readiness(&self, shard: Option<ShardId>) -> Result<bool, Refusal> {
        let first = Peer::Server(shard.unwrap_or(ShardId(0)));
        let last = Peer::Server(shard.unwrap_or(ShardId(u32::MAX)));
        let wanted = shard.map_or(self.identity.num_shards, |_| 1);
        let mut ready = 0;
        for session in self.names.range(first..=last).map(|(_, session)| session) {
            match self.sessions.get(session) {
                Some(entry) if entry.state == State::Draining => return Err(is_draining(entry.peer)),
                Some(entry) if entry.state == State::Ready => ready += 1,
                _ => {}
            }
        }
        Ok(ready == wanted)
    }

    fn barrier(&mut self, call: Call, name: String, participants: u32, number: u64) -> Outcome {
        check_name("the barrier's name", &name)?;
        let most = CLIENTS_MAX.saturating_add(self.identity.num_shards);
        if participants == 0 || participants > most {
            let message = format!("barrier '{name}': participants is {participants}; it must be 1 to {most}");
            return Err(Refusal::new(Status::InvalidArgument, Reason::Malformed, message));
        }
        let Some(incarnation) = self.entry(call.me).map(|entry| entry.incarnation) else {
            return Err(Refusal::unknown_session());
        };
        if self.barriers.was_released(incarnation, number) {
            return Ok(Some(Answer::Done));
        }
        match self.barriers.arrive(call.now, &name, participants, call.me, call.deadline)? {
            Arrival::Wait => {
                let (key, want) = (Key::Barrier(name.clone()), Want::Barrier(name.clone(), number));
                let outcome = self.wait(call, key, want);
                if outcome.is_err() {
                    self.barriers.withdraw(&name, call.me);
                }
                outcome
            }
            Arrival::Release => {
                self.barriers.remember(incarnation, number);
                self.release(&name);
                Ok(Some(Answer::Done))
            }
        }
    }

    fn release(&mut self, name: &str) {
        for waiting in self.waits.on(&Key::Barrier(name.to_string())) {
            let Some(Wait { session: Some(session), want: Want::Barrier(_, number), .. }) = self.waits.remove(waiting)
            else {
                continue;
            };
            if let Some(incarnation) = self.sessions.get(&session).map(|entry| entry.incarnation) {
                self.barriers.remember(incarnation, number);
            }
            self.answer(waiting, Answer::Done);
        }
    }

    /// What to say to a call whose deadline has passed: what was missing.
    pub(super) fn late(&self, wait: &Wait) -> Refusal {
        let waited_ms = wait.deadline.since_ns(wait.since).div_ceil(1_000_000);
        let message = match &wait.want {
            Want::Join(join) => {
                let (_, member, _) = &**join;
                let Key::Name(peer) = wait.key else { return Refusal::unknown_session() };
                let mut refusal = self.duplicate(peer);
                refusal.message.push_str(&format!(" (asked by pid {} on {})", member.pid, member.host));
                return refusal;
            }
            Want::Lanes(from, to) => {
                let why = self.entry(*from).map_or_else(
                    || format!("{from} has not joined"),
                    |entry| format!("pid {} on {} joined but has published nothing for {to}", entry.pid, entry.host),
                );
                format!("no lanes from {from} for {to} within {waited_ms} ms: {why}")
            }
            Want::Ready(shard) => format!("not ready within {waited_ms} ms: {}", self.missing(*shard)),
            Want::Barrier(name, _) => {
                let (present, participants) = self.barriers.present(name);
                let names: Vec<String> = present.iter().map(Peer::to_string).collect();
                format!(
                    "barrier '{name}': {} of {participants} participants came within {waited_ms} ms: {}",
                    present.len(),
                    listed(&names)
                )
            }
        };
        Refusal::new(Status::StartupTimeout, Reason::Deadline, message)
    }

    fn missing(&self, shard: Option<ShardId>) -> String {
        let shards = shard.map_or(0..self.identity.num_shards, |one| one.0..one.0.saturating_add(1));
        let names: Vec<String> = shards
            .filter_map(|number| match self.entry(Peer::Server(ShardId(number))) {
                None => Some(format!("shard {number} (not joined)")),
                Some(entry) if entry.state == State::Joined => {
                    Some(format!("shard {number} (joined as pid {} on {}, not ready)", entry.pid, entry.host))
                }
                Some(_) => None,
            })
            .collect();
        listed(&names)
    }
}

fn is_draining(peer: Peer) -> Refusal {
    Refusal::new(Status::Draining, Reason::Draining, format!("{peer} is draining: it is about to leave"))
}

fn listed(names: &[String]) -> String {
    let shown = names.iter().take(NAMES_MAX).cloned().collect::<Vec<_>>().join(", ");
    match names.len().saturating_sub(NAMES_MAX) {
        0 => shown,
        more => format!("{shown} and {more} more"),
    }
}
