//! Calls that wait: found by what they wait for, by their deadline, and by themselves.

#![forbid(unsafe_code)]

use super::messages::{SessionId, Ticket};
use super::secret::Proof;
use super::types::{Identity, Member, Peer};
use crate::ids::{ClientId, ShardId};
use crate::time::Tick;
use std::collections::{BTreeMap, BTreeSet};

/// What wakes a waiting call.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Key {
    /// A publication of the first for the second.
    Lanes(Peer, Peer),
    /// A change of any server's state.
    Servers,
    /// A change in the barrier of this name.
    Barrier(String),
    /// The name becomes free.
    Name(Peer),
}

/// What a waiting call wants to know.
#[derive(Clone, Debug)]
pub(super) enum Want {
    /// The offer of the first for the second.
    Lanes(Peer, Peer),
    /// All servers, or one of them.
    Ready(Option<ShardId>),
    /// The other participants; the number is the caller's own number of the call.
    Barrier(String, u64),
    /// To join under a name that somebody else holds.
    Join(Box<(Identity, Member, Proof)>),
}

/// A waiting call.
#[derive(Clone, Debug)]
pub(super) struct Wait {
    /// None for a join, which has no session yet.
    pub(super) session: Option<SessionId>,
    pub(super) since: Tick,
    pub(super) deadline: Tick,
    pub(super) key: Key,
    pub(super) want: Want,
}

/// All waiting calls.
#[derive(Debug, Default)]
pub(super) struct Waits {
    by_ticket: BTreeMap<Ticket, Wait>,
    by_key: BTreeMap<Key, BTreeSet<Ticket>>,
    by_deadline: BTreeSet<(Tick, Ticket)>,
    by_session: BTreeMap<SessionId, BTreeSet<Ticket>>,
    joins: usize,
}

impl Waits {
    pub(super) fn add(&mut self, ticket: Ticket, wait: Wait) {
        self.by_key.entry(wait.key.clone()).or_default().insert(ticket);
        self.by_deadline.insert((wait.deadline, ticket));
        match wait.session {
            Some(session) => {
                self.by_session.entry(session).or_default().insert(ticket);
            }
            None => self.joins += 1,
        }
        let before = self.by_ticket.insert(ticket, wait);
        assert!(before.is_none(), "a ticket names one call");
    }

    pub(super) fn remove(&mut self, ticket: Ticket) -> Option<Wait> {
        let wait = self.by_ticket.remove(&ticket)?;
        self.by_deadline.remove(&(wait.deadline, ticket));
        take(&mut self.by_key, &wait.key, ticket);
        match wait.session {
            Some(session) => take(&mut self.by_session, &session, ticket),
            None => self.joins -= 1,
        }
        Some(wait)
    }

    pub(super) fn get(&self, ticket: Ticket) -> Option<&Wait> {
        self.by_ticket.get(&ticket)
    }

    /// The calls that wait for this, oldest first.
    pub(super) fn on(&self, key: &Key) -> Vec<Ticket> {
        self.by_key.get(key).map(|tickets| tickets.iter().copied().collect()).unwrap_or_default()
    }

    /// The calls that wait for a publication of this member.
    pub(super) fn on_lanes_from(&self, from: Peer) -> Vec<Ticket> {
        let first = Key::Lanes(from, Peer::Server(ShardId(0)));
        let last = Key::Lanes(from, Peer::Client(ClientId(u32::MAX)));
        self.by_key.range(first..=last).flat_map(|(_, tickets)| tickets.iter().copied()).collect()
    }

    pub(super) fn of(&self, session: SessionId) -> Vec<Ticket> {
        self.by_session.get(&session).map(|tickets| tickets.iter().copied().collect()).unwrap_or_default()
    }

    pub(super) fn count_of(&self, session: SessionId) -> usize {
        self.by_session.get(&session).map_or(0, BTreeSet::len)
    }

    /// Joins under way.
    pub(super) fn joins(&self) -> usize {
        self.joins
    }

    pub(super) fn next_deadline(&self) -> Option<Tick> {
        self.by_deadline.first().map(|(deadline, _)| *deadline)
    }

    /// The call whose deadline passed first, if any has.
    pub(super) fn overdue(&self, now: Tick) -> Option<Ticket> {
        self.by_deadline.first().filter(|(deadline, _)| *deadline <= now).map(|(_, ticket)| *ticket)
    }

    /// All views name the same calls.
    #[cfg(test)]
    pub(super) fn check(&self) {
        let keyed: usize = self.by_key.values().map(BTreeSet::len).sum();
        let owned: usize = self.by_session.values().map(BTreeSet::len).sum();
        assert_eq!(keyed, self.by_ticket.len());
        assert_eq!(self.by_deadline.len(), self.by_ticket.len());
        assert_eq!(owned + self.joins, self.by_ticket.len());
        assert!(self.by_key.values().chain(self.by_session.values()).all(|set| !set.is_empty()));
    }

    /// Every waiting call.
    #[cfg(test)]
    pub(super) fn all(&self) -> impl Iterator<Item = (&Ticket, &Wait)> {
        self.by_ticket.iter()
    }
}

fn take<K: Ord>(map: &mut BTreeMap<K, BTreeSet<Ticket>>, key: &K, ticket: Ticket) {
    if let Some(set) = map.get_mut(key) {
        set.remove(&ticket);
        if set.is_empty() {
            map.remove(key);
        }
    }
}
