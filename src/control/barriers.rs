//! Barriers with real participants: each member counts once, however often it calls.
//!
//! A participant that goes while it waits fails the barrier for all. Those who have not come yet are told when they
//! come: the failed barrier is kept until all were told, or until the deadline of the last that waited.

#![forbid(unsafe_code)]

use super::limits::{BARRIERS_MAX, BARRIERS_PER_MEMBER_MAX, RELEASED_CALLS_MAX};
use super::refusal::{Reason, Refusal};
use super::types::Peer;
use crate::error::Status;
use crate::ids::Incarnation;
use crate::time::Tick;
use std::collections::{BTreeMap, BTreeSet, VecDeque};

#[derive(Debug)]
struct Barrier {
    participants: u32,
    /// Who waits, with how many calls.
    arrived: BTreeMap<Peer, u32>,
    /// The latest deadline of a call that waited here.
    until: Tick,
    failed: Option<Failed>,
}

#[derive(Debug)]
struct Failed {
    why: Refusal,
    told: BTreeSet<Peer>,
}

/// What a call that came to a barrier does.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Arrival {
    /// It waits.
    Wait,
    /// It was the last: everybody who waits on this name goes on.
    Release,
}

/// All barriers under way.
#[derive(Debug, Default)]
pub(super) struct Barriers {
    by_name: BTreeMap<String, Barrier>,
    released: BTreeSet<(u128, u64)>,
    released_in_order: VecDeque<(u128, u64)>,
}

impl Barriers {
    /// A member comes.
    pub(super) fn arrive(
        &mut self,
        now: Tick,
        name: &str,
        participants: u32,
        peer: Peer,
        deadline: Tick,
    ) -> Result<Arrival, Refusal> {
        self.settle_failed(now, name, peer)?;
        if !self.by_name.contains_key(name) {
            self.make_room(now, name, peer)?;
        }
        let barrier = self.by_name.entry(name.to_string()).or_insert_with(|| Barrier {
            participants,
            arrived: BTreeMap::new(),
            until: deadline,
            failed: None,
        });
        if barrier.participants != participants {
            let message = format!(
                "barrier '{name}' was started with {} participants; {peer} comes with {participants}",
                barrier.participants
            );
            return Err(Refusal::new(Status::InvalidArgument, Reason::Malformed, message));
        }
        barrier.until = barrier.until.max(deadline);
        *barrier.arrived.entry(peer).or_default() += 1;
        if barrier.arrived.len() < participants as usize {
            return Ok(Arrival::Wait);
        }
        self.by_name.remove(name);
        Ok(Arrival::Release)
    }

    /// Room for one more that `peer` begins. Failed ones are kept as a courtesy: where room is short, those go first that
    /// nobody may come to any more, then all.
    fn make_room(&mut self, now: Tick, name: &str, peer: Peer) -> Result<(), Refusal> {
        let full = |message: String| Err(Refusal::new(Status::ResourceLimit, Reason::TooMany, message));
        let own = self.by_name.values().filter(|barrier| barrier.arrived.contains_key(&peer)).count();
        if own >= BARRIERS_PER_MEMBER_MAX {
            return full(format!("barrier '{name}' cannot start: {peer} waits at {BARRIERS_PER_MEMBER_MAX} already"));
        }
        if self.by_name.len() >= BARRIERS_MAX {
            self.by_name.retain(|_, barrier| barrier.failed.is_none() || barrier.until > now);
        }
        if self.by_name.len() >= BARRIERS_MAX {
            self.by_name.retain(|_, barrier| barrier.failed.is_none());
        }
        if self.by_name.len() >= BARRIERS_MAX {
            return full(format!("barrier '{name}' cannot start: {BARRIERS_MAX} barriers are under way already"));
        }
        Ok(())
    }

    /// Tells a failed barrier's participant why, once; a second call of the same member begins a new round.
    fn settle_failed(&mut self, now: Tick, name: &str, peer: Peer) -> Result<(), Refusal> {
        let Some(barrier) = self.by_name.get_mut(name) else { return Ok(()) };
        let Some(failed) = &mut barrier.failed else { return Ok(()) };
        let fresh = barrier.until > now && failed.told.insert(peer);
        let why = failed.why.clone();
        if !fresh || failed.told.len() >= barrier.participants as usize {
            self.by_name.remove(name);
        }
        if fresh { Err(why) } else { Ok(()) }
    }

    /// One waiting call of a member ended before the barrier did.
    pub(super) fn withdraw(&mut self, name: &str, peer: Peer) {
        let Some(barrier) = self.by_name.get_mut(name) else { return };
        if let Some(calls) = barrier.arrived.get_mut(&peer) {
            *calls -= 1;
            if *calls == 0 {
                barrier.arrived.remove(&peer);
            }
        }
        if barrier.arrived.is_empty() && barrier.failed.is_none() {
            self.by_name.remove(name);
        }
    }

    /// A member is gone: every barrier where it waited fails. Returns their names, and what to tell those who wait.
    pub(super) fn fail(&mut self, peer: Peer, how: &str) -> Vec<(String, Refusal)> {
        let mut failed = Vec::new();
        for (name, barrier) in &mut self.by_name {
            if barrier.failed.is_some() || !barrier.arrived.contains_key(&peer) {
                continue;
            }
            let message = format!("barrier '{name}' of {} participants failed: {peer} {how}", barrier.participants);
            let why = Refusal::new(Status::ShardUnreachable, Reason::BarrierFailed, message);
            let told = core::mem::take(&mut barrier.arrived).into_keys().collect();
            barrier.failed = Some(Failed { why: why.clone(), told });
            failed.push((name.clone(), why));
        }
        self.by_name.retain(|_, barrier| {
            barrier.failed.as_ref().is_none_or(|failed| failed.told.len() < barrier.participants as usize)
        });
        failed
    }

    /// Who waits at a barrier, and how many it needs.
    pub(super) fn present(&self, name: &str) -> (Vec<Peer>, u32) {
        self.by_name
            .get(name)
            .map(|barrier| (barrier.arrived.keys().copied().collect(), barrier.participants))
            .unwrap_or_default()
    }

    /// Remembers that this call was released.
    pub(super) fn remember(&mut self, incarnation: Incarnation, call: u64) {
        if self.released.insert((incarnation.0, call)) {
            self.released_in_order.push_back((incarnation.0, call));
        }
        if self.released_in_order.len() > RELEASED_CALLS_MAX
            && let Some(oldest) = self.released_in_order.pop_front()
        {
            self.released.remove(&oldest);
        }
    }

    /// Whether this call was released before: its answer was lost and it comes again.
    pub(super) fn was_released(&self, incarnation: Incarnation, call: u64) -> bool {
        self.released.contains(&(incarnation.0, call))
    }

    /// Who waits where, with how many calls.
    #[cfg(test)]
    pub(super) fn waiting(&self) -> BTreeMap<(&str, Peer), u32> {
        self.by_name
            .iter()
            .flat_map(|(name, barrier)| {
                barrier.arrived.iter().map(move |(peer, calls)| ((name.as_str(), *peer), *calls))
            })
            .collect()
    }

    /// No barrier is complete, empty, or without a participant who can still come.
    #[cfg(test)]
    pub(super) fn check(&self) {
        for (name, barrier) in &self.by_name {
            assert!(barrier.arrived.len() < barrier.participants as usize, "{name} should have been released");
            assert!(barrier.failed.is_some() || !barrier.arrived.is_empty(), "{name} is empty");
        }
    }
}
