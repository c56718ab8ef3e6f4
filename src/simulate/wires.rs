//! Connections between members and the control plane: in order, late, and broken when one end goes or nothing gets
//! through for long.

use crate::control::messages::{Answer, Ask, Notice, SessionId};
use crate::control::{Identity, Member};
use crate::fabric::sim::Rng;
use crate::ids::Incarnation;
use std::collections::{BTreeMap, BTreeSet};

/// A connection by its number; never reused.
pub(super) type Wire = u64;

/// What travels.
#[derive(Clone, Debug)]
pub(super) enum Letter {
    Join {
        ask: u64,
        identity: Box<Identity>,
        member: Box<Member>,
    },
    Ask {
        ask: u64,
        session: SessionId,
        incarnation: Incarnation,
        what: Ask,
    },
    Answer {
        ask: u64,
        answer: Answer,
        life: Incarnation,
    },
    Notice(Notice),
    /// The other end is gone.
    Broken,
}

#[derive(Debug)]
struct Ends {
    member: u32,
    plane: u32,
    to_plane_at: u64,
    to_member_at: u64,
}

#[derive(Debug)]
struct Posted {
    wire: Wire,
    to_plane: bool,
    letter: Letter,
    first_try: u64,
    /// Said by a timer of the end itself.
    local: bool,
}

/// A letter that has arrived.
#[derive(Debug)]
pub(super) struct Arrived {
    pub(super) wire: Wire,
    pub(super) to_plane: bool,
    pub(super) letter: Letter,
}

/// All connections.
#[derive(Debug)]
pub(super) struct Wires {
    ends: BTreeMap<Wire, Ends>,
    mail: BTreeMap<(u64, u64), Posted>,
    next_wire: Wire,
    order: u64,
    rng: Rng,
    /// Blocked ways between hosts, as the network has them.
    pub(super) blocked: BTreeSet<(u32, u32)>,
}

const DELAY_NS: (u64, u64) = (20_000, 120_000);
const AGAIN_NS: u64 = 200_000;
/// Nothing got through for so long: both ends hear that the connection broke.
const PATIENCE_NS: u64 = 4_000_000;

impl Wires {
    pub(super) fn new(rng: Rng) -> Wires {
        Wires { ends: BTreeMap::new(), mail: BTreeMap::new(), next_wire: 1, order: 0, rng, blocked: BTreeSet::new() }
    }

    pub(super) fn open(&mut self, member: u32, plane: u32) -> Wire {
        let wire = self.next_wire;
        self.next_wire += 1;
        self.ends.insert(wire, Ends { member, plane, to_plane_at: 0, to_member_at: 0 });
        wire
    }

    pub(super) fn send(&mut self, now: u64, wire: Wire, to_plane: bool, letter: Letter) {
        let Some(ends) = self.ends.get_mut(&wire) else { return };
        let last = if to_plane { &mut ends.to_plane_at } else { &mut ends.to_member_at };
        let at = (now + self.rng.between(DELAY_NS.0, DELAY_NS.1)).max(*last);
        *last = at;
        self.order += 1;
        self.mail.insert((at, self.order), Posted { wire, to_plane, letter, first_try: at, local: false });
    }

    /// One end is gone, or says goodbye: what is under way still arrives, then the other end hears of it.
    pub(super) fn close(&mut self, now: u64, wire: Wire, by_plane: bool) {
        self.send(now, wire, !by_plane, Letter::Broken);
    }

    /// The control plane's process is gone: every member hears of it, and nothing under way to it arrives.
    pub(super) fn plane_died(&mut self, now: u64) {
        self.mail.retain(|_, posted| !posted.to_plane);
        let all: Vec<Wire> = self.ends.keys().copied().collect();
        all.into_iter().for_each(|wire| self.close(now, wire, true));
    }

    pub(super) fn next_ns(&self) -> Option<u64> {
        self.mail.keys().next().map(|(at, _)| *at)
    }

    /// The next letter that is due.
    pub(super) fn take(&mut self, now: u64) -> Option<Arrived> {
        loop {
            let entry = self.mail.first_entry().filter(|entry| entry.key().0 <= now)?;
            let (at, order) = *entry.key();
            let posted = entry.remove();
            if posted.local {
                return Some(Arrived { wire: posted.wire, to_plane: posted.to_plane, letter: posted.letter });
            }
            let Some(ends) = self.ends.get_mut(&posted.wire) else { continue };
            let way = if posted.to_plane { (ends.member, ends.plane) } else { (ends.plane, ends.member) };
            if self.blocked.contains(&way) {
                if now.saturating_sub(posted.first_try) > PATIENCE_NS {
                    self.give_up(now, posted.wire);
                    continue;
                }
                // Everything behind it waits as well.
                let last = if posted.to_plane { &mut ends.to_plane_at } else { &mut ends.to_member_at };
                *last = (*last).max(at + AGAIN_NS);
                self.delay(posted.wire, posted.to_plane, at + AGAIN_NS);
                self.mail.insert((at + AGAIN_NS, order), posted);
                continue;
            }
            if matches!(posted.letter, Letter::Broken) {
                self.ends.remove(&posted.wire);
            }
            return Some(Arrived { wire: posted.wire, to_plane: posted.to_plane, letter: posted.letter });
        }
    }

    /// Letters of one way of a connection arrive no earlier than this, in their order.
    fn delay(&mut self, wire: Wire, to_plane: bool, until: u64) {
        let early: Vec<(u64, u64)> = self
            .mail
            .iter()
            .take_while(|((at, _), _)| *at < until)
            .filter(|(_, posted)| posted.wire == wire && posted.to_plane == to_plane)
            .map(|(key, _)| *key)
            .collect();
        for key in early {
            if let Some(posted) = self.mail.remove(&key) {
                self.mail.insert((until, key.1), posted);
            }
        }
    }

    /// Both ends hear that it broke, each by itself.
    fn give_up(&mut self, now: u64, wire: Wire) {
        self.ends.remove(&wire);
        self.mail.retain(|_, posted| posted.wire != wire);
        for to_plane in [true, false] {
            self.order += 1;
            let posted = Posted { wire, to_plane, letter: Letter::Broken, first_try: now, local: true };
            self.mail.insert((now, self.order), posted);
        }
    }
}
