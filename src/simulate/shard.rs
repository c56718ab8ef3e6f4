//! A shard's process: what its event thread, poll thread and workers do, one step at a time.

use super::join::{self, Guest, Host};
use super::ledger::Ledger;
use super::member::Membership;
use super::wires::Wires;
use crate::control::{Event, Peer};
use crate::fabric::Fabric;
use crate::fabric::sim::{Mutant, Rng, Sim, SimCq, mutated};
use crate::ids::{ClientId, Incarnation};
use crate::options::Settings;
use crate::ps::{Fetching, Handler, Scratch};
use crate::rpc::{Ready, Scanner, ServerLane, take_completions};
use crate::sync::Arc;
use crate::wire::RequestHeader;
use core::time::Duration;
use std::collections::{BTreeMap, VecDeque};

/// A request that waits for a worker.
#[derive(Debug)]
struct Job {
    lane: Arc<ServerLane<Sim>>,
    slot: u32,
    header: RequestHeader,
    /// Its rows are being read from the client.
    fetching: Option<Fetching>,
    /// A handler that takes long is not done before.
    not_before: u64,
}

/// One request in a hundred takes long.
const LONG_MILLIONTHS: u32 = 10_000;
const LONG_NS: (u64, u64) = (500_000, 6_000_000);

/// One life of one shard.
#[derive(Debug)]
pub(super) struct Shard {
    pub(super) member: Membership,
    handler: Handler,
    scratch: Scratch,
    scanner: Scanner<Sim>,
    jobs: VecDeque<Job>,
    ready: Vec<Ready>,
    /// Who is in, or is being let in.
    pub(super) guests: BTreeMap<(ClientId, Incarnation), Guest>,
    /// Its gate is shut: requests stay where they are.
    pub(super) held: bool,
    /// Clients that lived through a restore are not let in.
    pub(super) refuses_survivors: bool,
    /// Until then handlers may take long.
    pub(super) rough_until: u64,
    pub(super) next_window: u64,
    next_care: u64,
    rounds: u64,
    /// When it is to be started again after it has left.
    leaving: Option<u64>,
    said_ready: bool,
    settings: Settings,
    pub(super) send: Arc<SimCq>,
    pub(super) recv: Arc<SimCq>,
    /// Last, so that lanes go before the fabric that made them.
    pub(super) fabric: Sim,
}

const CARE_EVERY_ROUNDS: u64 = 16;
const CARE_EVERY_NS: u64 = 1_000_000;

impl Shard {
    pub(super) fn new(
        fabric: Sim,
        settings: &Settings,
        member: Membership,
        ledger: &Arc<Ledger>,
        shard: u32,
    ) -> crate::error::Result<Shard> {
        let (send, recv) = (fabric.create_cq(settings.cq_depth)?, fabric.create_cq(settings.cq_depth)?);
        let store: Arc<Ledger> = Arc::clone(ledger);
        Ok(Shard {
            member,
            handler: Handler::new(store, shard as u16, settings.max_kv_num_per_request),
            scratch: Scratch::new(0),
            scanner: Scanner::new(Arc::clone(&recv)),
            jobs: VecDeque::new(),
            ready: Vec::new(),
            guests: BTreeMap::new(),
            held: false,
            refuses_survivors: false,
            rough_until: 0,
            next_window: 0,
            next_care: 0,
            rounds: 0,
            leaving: None,
            said_ready: false,
            settings: settings.clone(),
            send,
            recv,
            fabric,
        })
    }

    /// Takes nothing new any more, ends what it has, and goes; to be started again at `restart_at`.
    pub(super) fn leave(&mut self, now: u64, restart_at: u64, wires: &mut Wires) {
        if self.leaving.is_none() {
            self.leaving = Some(restart_at);
            self.member.draining(now, wires);
        }
    }

    /// It is done, and when to start it again.
    pub(super) fn has_left(&self) -> Option<u64> {
        self.leaving.filter(|_| self.jobs.is_empty())
    }

    /// True if there was something to do.
    pub(super) fn step(&mut self, now: u64, plane: Option<u32>, wires: &mut Wires, rng: &mut Rng) -> bool {
        self.member.step(now, plane, wires);
        if self.member.is_joined() && !self.said_ready {
            self.said_ready = true;
            self.member.ready(now, wires);
        }
        while let Some(event) = self.member.events.pop_front() {
            self.hear(now, event, wires);
        }
        while let Some((from, incarnation, bytes)) = self.member.offers.pop_front() {
            self.let_in(now, from, incarnation, &bytes, wires);
        }
        self.care(now, wires);
        !self.held && self.serve(now, rng)
    }

    fn hear(&mut self, now: u64, event: Event, wires: &mut Wires) {
        match event {
            Event::LanesPublished { from: Peer::Client(client), incarnation } => {
                self.knock(now, client, incarnation, wires);
            }
            Event::MemberLeft { peer: Peer::Client(client), incarnation, died } => {
                match self.guests.get_mut(&(client, incarnation)) {
                    Some(guest) if died => guest.vanish(),
                    _ => drop(self.guests.remove(&(client, incarnation))),
                }
                if !mutated::<Sim>(Mutant::LanesOfTheDeadStay) {
                    self.retain(|lane| (lane.parts().client, lane.parts().incarnation) != (client, incarnation));
                }
            }
            _ => {}
        }
    }

    /// A client has something to say, or may have.
    fn knock(&mut self, now: u64, client: ClientId, incarnation: Incarnation, wires: &mut Wires) {
        let (next, settings) = (&mut self.next_window, &self.settings);
        let guest = self.guests.entry((client, incarnation)).or_insert_with(|| {
            *next += 1;
            Guest::new(*next, settings)
        });
        guest.gone = None;
        self.member.ask_lanes(now, Peer::Client(client), incarnation, wires);
    }

    fn let_in(&mut self, now: u64, from: Peer, incarnation: Incarnation, bytes: &[u8], wires: &mut Wires) {
        let Peer::Client(client) = from else { return };
        if self.refuses_survivors && join::is_survivor(bytes, &self.settings, self.member.incarnation) {
            return;
        }
        let Some(guest) = self.guests.get_mut(&(client, incarnation)) else {
            return;
        };
        let host = Host {
            fabric: &self.fabric,
            settings: &self.settings,
            incarnation: self.member.incarnation,
            cqs: (&self.send, &self.recv),
        };
        if let Ok((lanes, answer)) = join::handshake(&host, guest, (client, incarnation), bytes) {
            for lane in lanes {
                let number = lane.parts().lane;
                // A rebuilt lane takes the place of its former connection.
                self.retain(|old| {
                    let old = old.parts();
                    (old.client, old.incarnation, old.lane) != (client, incarnation, number)
                });
                self.scanner.add(lane);
            }
            if let Some(answer) = answer {
                self.member.publish(now, from, answer, wires);
            }
        }
        // It may have gone since it was asked.
        if self.guests.get(&(client, incarnation)).is_none_or(|guest| guest.gone.is_some())
            && !mutated::<Sim>(Mutant::LanesOfTheDeadStay)
        {
            self.retain(|lane| (lane.parts().client, lane.parts().incarnation) != (client, incarnation));
        }
    }

    fn retain(&mut self, keep: impl Fn(&ServerLane<Sim>) -> bool) {
        self.scanner.retain(|lane| {
            let kept = keep(lane);
            if !kept {
                lane.fail();
            }
            kept
        });
    }

    /// Looks after clients that have lost lanes, tells the control plane that it lives, forgets who is long gone.
    fn care(&mut self, now: u64, wires: &mut Wires) {
        if now < self.next_care {
            return;
        }
        self.next_care = now + CARE_EVERY_NS;
        self.member.beat(now, wires);
        let at = crate::time::now();
        let lease = Duration::from_millis(self.settings.request_window_lease_ms);
        self.guests.retain(|_, guest| guest.gone.is_none_or(|gone| gone.after(lease) > at));
        let lost: Vec<(ClientId, Incarnation)> = self
            .guests
            .iter()
            .filter(|(_, guest)| guest.gone.is_none() && self.settings.lane_rebuild_enabled && guest.has_lost())
            .map(|(name, _)| *name)
            .collect();
        for (client, incarnation) in lost {
            self.member.ask_lanes(now, Peer::Client(client), incarnation, wires);
        }
    }

    fn serve(&mut self, now: u64, rng: &mut Rng) -> bool {
        self.rounds += 1;
        if self.rounds.is_multiple_of(CARE_EVERY_ROUNDS) && !mutated::<Sim>(Mutant::LanesOfTheDeadStay) {
            self.retain(ServerLane::is_usable);
        }
        self.ready.clear();
        if self.leaving.is_none() {
            self.scanner.scan(&mut self.ready);
        }
        for ready in core::mem::take(&mut self.ready) {
            let lane = Arc::clone(self.scanner.lane(ready.lane));
            let long = now < self.rough_until && rng.chance(LONG_MILLIONTHS);
            let not_before = if long { now + rng.between(LONG_NS.0, LONG_NS.1) } else { 0 };
            self.jobs.push_back(Job { lane, slot: ready.slot, header: ready.header(), fetching: None, not_before });
        }
        let worked = !self.jobs.is_empty();
        // Workers take what they take, in any order.
        for _ in 0..self.jobs.len() {
            if rng.chance(300_000) {
                continue;
            }
            let at = rng.index(self.jobs.len());
            if self.jobs[at].not_before > now {
                continue;
            }
            let Some(job) = self.jobs.remove(at) else { break };
            self.execute(job);
        }
        worked
    }

    fn execute(&mut self, mut job: Job) {
        let Some(fetching) = job.fetching.take() else {
            if !self.handler.execute(&job.lane, job.slot, &job.header, &mut self.scratch) {
                // A repetition of what another worker is executing, or it waits for its rows.
                job.fetching = self.scratch.take_fetching();
                if job.fetching.is_some() || job.lane.is_usable() {
                    self.jobs.push_back(job);
                }
            }
            return;
        };
        take_completions::<Sim>(&self.send);
        let (outcome, scratch) = (fetching.outcome(), &mut self.scratch);
        if !self.handler.end_fetch(&job.lane, job.slot, &job.header, scratch, &fetching, outcome) {
            self.jobs.push_back(Job { fetching: Some(fetching), ..job });
        }
    }

    /// Lanes that are scanned, requests that wait.
    pub(super) fn holds(&self) -> (usize, usize) {
        (self.scanner.lanes().count(), self.jobs.len())
    }
}
