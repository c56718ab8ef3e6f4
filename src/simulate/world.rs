//! One history: all processes of a deployment on one network, stepped in the order of their next moments.

use super::client::{Client, Common};
use super::history::History;
use super::ledger::Ledger;
use super::member::Membership;
use super::plan::{Actor, Plan, calm};
use super::plane::PlaneProcess;
use super::shard::Shard;
use super::wires::Wires;
use crate::control::{Identity, Peer, Secret};
use crate::error::Result;
use crate::fabric::sim::{Net, Rng, Sim};
use crate::ids::{ClientId, Epoch, Incarnation, ShardId};
use crate::options::{Options, Settings, Side};
use crate::sync::Arc;
use crate::time::{Tick, set_virtual};
use core::time::Duration;
use std::collections::{BTreeMap, BTreeSet};

/// Between two steps of a process that has something to do.
const STEP_NS: (u64, u64) = (25_000, 60_000);
/// The longest pause of one that has not.
const IDLE_NS: u64 = 300_000;

/// One process's place.
#[derive(Debug)]
pub(super) struct Place<T> {
    pub(super) process: Option<T>,
    pub(super) next: u64,
    pub(super) stopped_until: u64,
    pub(super) restart_at: u64,
    pub(super) idle: u32,
    pub(super) slow: u64,
    pub(super) slow_until: u64,
    pub(super) skew: u64,
    /// How many lives it has had.
    pub(super) lives: u32,
}

impl<T> Place<T> {
    fn new() -> Place<T> {
        Place {
            process: None,
            next: 0,
            stopped_until: 0,
            restart_at: 0,
            idle: 0,
            slow: 1,
            slow_until: 0,
            skew: 0,
            lives: 0,
        }
    }

    fn schedule(&mut self, now: u64, busy: bool, rng: &mut Rng) {
        self.idle = if busy { 0 } else { (self.idle + 1).min(4) };
        if now >= self.slow_until {
            self.slow = 1;
        }
        let pause = (rng.between(STEP_NS.0, STEP_NS.1) << self.idle).min(IDLE_NS) * self.slow;
        self.next = (now + pause).max(self.stopped_until);
    }

    fn due(&self) -> u64 {
        if self.process.is_some() { self.next.max(self.stopped_until) } else { self.restart_at }
    }
}

/// A way that is blocked, and until when.
#[derive(Debug)]
pub(super) struct Blocked {
    pub(super) from: Actor,
    pub(super) to: Actor,
    pub(super) until: u64,
}

/// A deployment under way.
#[derive(Debug)]
pub(super) struct World {
    pub(super) plan: Plan,
    pub(super) now: u64,
    pub(super) net: Arc<Net>,
    pub(super) wires: Wires,
    pub(super) plane: Place<PlaneProcess>,
    pub(super) plane_host: Sim,
    pub(super) shards: Vec<Place<Shard>>,
    pub(super) clients: Vec<Place<Client>>,
    pub(super) common: Common,
    pub(super) history: Arc<History>,
    /// All lives of all shards' stores.
    pub(super) ledgers: Vec<Arc<Ledger>>,
    pub(super) blocked: Vec<Blocked>,
    pub(super) dead_hosts: BTreeSet<u32>,
    identity: Identity,
    settings: Settings,
    rng: Rng,
    next_fault: usize,
    calmed: bool,
    steps: u64,
}

fn settings(plan: &Plan) -> Result<Settings> {
    let mut options = Options::new();
    let numbers = [
        ("num-server-processes", plan.shards),
        ("qps-per-client-per-shard", plan.lanes),
        ("slots-per-qp", plan.slots),
        ("request-slot-bytes", 1024),
        ("response-slot-bytes", 512),
        ("value-size", 64),
        ("max-send-wr", plan.send_depth),
        ("cq-depth", 256),
    ];
    for (name, value) in numbers {
        options.set(name, &value.to_string())?;
    }
    if plan.heals {
        options.set("recovery-preset", "resilient")?;
        for (name, ms) in [
            ("rdma-heartbeat-interval-ms", 400),
            ("rdma-health-stale-ms", 1600),
            ("rdma-health-dead-ms", 4000),
            ("rdma-health-probe-after-ms", 2),
            ("rdma-health-probe-interval-ms", 2),
            ("rdma-health-probe-timeout-ms", 3),
            ("rdma-lane-rebuild-wait-ms", 2),
            ("rdma-lane-rebuild-cooldown-ms", 1),
            ("rdma-lane-rebuild-sweep-ms", 1),
            ("rdma-lane-rebuild-refill-ms", 2),
            ("rdma-lane-probe-idle-ms", plan.probe_idle_ms),
            ("request-window-lease-ms", plan.lease_ms),
        ] {
            options.set(name, &ms.to_string())?;
        }
    }
    options.set("commit-scheme", plan.scheme)?;
    options.set("integrity", plan.integrity)?;
    options.settings(Side::Both)
}

impl World {
    pub(super) fn new(plan: &Plan) -> Result<World> {
        let mut rng = Rng::new(plan.seed ^ 0x0077_6f72_6c64);
        let settings = settings(plan)?;
        let net = Net::new(rng.word(), plan.policy.clone(), false);
        let plane_host = Sim::open(&net);
        let history = Arc::new(History::default());
        let identity = Identity {
            deployment_id: "simulated".to_owned(),
            epoch: Epoch(1),
            namespace: "default".to_owned(),
            num_shards: plan.shards,
            layout: settings.layout(),
            secret: Secret::default(),
        };
        let common = Common {
            history: Arc::clone(&history),
            settings: settings.clone(),
            ledgers: Vec::new(),
            acknowledged: BTreeMap::new(),
            keys: plan.keys,
            wait_timeout: Duration::from_nanos(plan.wait_ns),
            strict: false,
            closing: false,
            deadline_ns: 60_000_000,
        };
        let mut world = World {
            plan: plan.clone(),
            now: 0,
            wires: Wires::new(rng.fork()),
            plane: Place::new(),
            plane_host,
            shards: (0..plan.shards).map(|_| Place::new()).collect(),
            clients: (0..plan.clients).map(|_| Place::new()).collect(),
            common,
            history,
            ledgers: Vec::new(),
            blocked: Vec::new(),
            dead_hosts: BTreeSet::new(),
            identity,
            settings,
            rng,
            next_fault: 0,
            calmed: false,
            steps: 0,
            net,
        };
        for shard in 0..plan.shards {
            let ledger = Arc::new(Ledger::new(shard, 0, &world.history));
            world.common.ledgers.push(ledger);
        }
        Ok(world)
    }

    fn incarnation(&mut self) -> Incarnation {
        Incarnation(u128::from(self.rng.word()) << 64 | u128::from(self.rng.word()) | 1)
    }

    /// Lets time pass until this moment, or until something was found that must not be.
    pub(super) fn run_until(&mut self, until: u64) -> Result<()> {
        while !self.history.has_violation() {
            let next = self.next_ns().max(self.now);
            if next > until {
                self.now = until;
                self.net.advance(until);
                return Ok(());
            }
            self.now = next;
            self.net.advance(next);
            self.deliver();
            self.begin_faults();
            self.end_faults();
            self.steps_due()?;
        }
        Ok(())
    }

    pub(super) fn next_ns(&self) -> u64 {
        let actors = self.shards.iter().map(Place::due).chain(self.clients.iter().map(Place::due));
        let fault = self.plan.faults.get(self.next_fault).map(|fault| fault.at_ns);
        let calm = (!self.calmed).then_some(self.plan.faults_end_ns);
        let plane = match &self.plane.process {
            Some(plane) => plane.next_ns().map(|at| at.max(self.plane.stopped_until)),
            None => Some(self.plane.restart_at),
        };
        let unblock = self.blocked.iter().map(|blocked| blocked.until);
        actors
            .chain(unblock)
            .chain([self.net.next_ns(), self.wires.next_ns(), fault, calm, plane].into_iter().flatten())
            .min()
            .unwrap_or(self.now)
    }

    /// Hands over the letters that have come. A process that stands still finds them later.
    fn deliver(&mut self) {
        while let Some(arrived) = self.wires.take(self.now) {
            if arrived.to_plane {
                let Some(plane) = self.plane.process.as_mut() else {
                    self.wires.close(self.now, arrived.wire, true);
                    continue;
                };
                plane.receive(self.now.max(self.plane.stopped_until), arrived.wire, arrived.letter, &mut self.wires);
                continue;
            }
            let shards = self.shards.iter_mut().filter_map(|place| place.process.as_mut()).map(|p| &mut p.member);
            let clients = self.clients.iter_mut().filter_map(|place| place.process.as_mut()).map(|p| &mut p.member);
            if let Some(member) = shards.chain(clients).find(|member| member.wire == Some(arrived.wire)) {
                member.deliver(arrived.letter);
            }
        }
    }

    /// Where the control plane can be reached, if it can.
    fn plane_address(&self) -> Option<u32> {
        self.plane.process.as_ref().map(|_| self.plane_host.host())
    }

    fn steps_due(&mut self) -> Result<()> {
        let (now, address) = (self.now, self.plane_address());
        if self.plane.process.is_none() && now >= self.plane.restart_at {
            let life = self.incarnation();
            self.plane.process = Some(PlaneProcess::new(self.identity.clone(), life, &self.settings));
        }
        if let Some(plane) = self.plane.process.as_mut().filter(|_| now >= self.plane.stopped_until)
            && plane.next_ns().is_some_and(|at| at <= now)
        {
            plane.tick(now, &mut self.wires);
        }
        for index in 0..self.shards.len() {
            if self.shards[index].due() > now {
                continue;
            }
            if self.shards[index].process.is_none() {
                self.start_shard(index)?;
            }
            let place = &mut self.shards[index];
            set_virtual(Some(Tick(now + place.skew)));
            let busy = place.process.as_mut().is_some_and(|p| p.step(now, address, &mut self.wires, &mut self.rng));
            place.schedule(now, busy, &mut self.rng);
            self.let_go(index);
        }
        for index in 0..self.clients.len() {
            if self.clients[index].due() > now {
                continue;
            }
            if self.clients[index].process.is_none() {
                self.start_client(index);
            }
            let place = &mut self.clients[index];
            set_virtual(Some(Tick(now + place.skew)));
            let (wires, rng) = (&mut self.wires, &mut self.rng);
            let busy = place.process.as_mut().is_some_and(|p| p.step(now, address, wires, rng, &mut self.common));
            place.schedule(now, busy, &mut self.rng);
            if self.clients[index].process.as_ref().is_some_and(Client::failed) {
                self.kill(Actor::Client(index as u32), now + 500_000);
            }
        }
        self.steps += 1;
        Ok(())
    }

    pub(super) fn start_shard(&mut self, index: usize) -> Result<()> {
        let incarnation = self.incarnation();
        let fabric = Sim::open(&self.net);
        let shard = index as u32;
        let place = &mut self.shards[index];
        place.lives += 1;
        let ledger = Arc::new(Ledger::new(shard, place.lives, &self.history));
        self.ledgers.push(Arc::clone(&ledger));
        self.common.ledgers[index] = Arc::clone(&ledger);
        let router = crate::ps::Router::new(crate::options::HashMethod::CityHash, self.plan.shards);
        self.common.acknowledged.retain(|key, _| router.shard_of(*key) != shard);
        let me = Peer::Server(ShardId(shard));
        let member = Membership::new(me, incarnation, fabric.host(), self.identity.clone());
        let mut process = Shard::new(fabric, &self.settings, member, &ledger, shard)?;
        process.rough_until = self.plan.faults_end_ns;
        place.process = Some(process);
        self.apply_blocks();
        Ok(())
    }

    fn start_client(&mut self, index: usize) {
        let incarnation = self.incarnation();
        let fabric = Sim::open(&self.net);
        let me = Peer::Client(ClientId(index as u32));
        let member = Membership::new(me, incarnation, fabric.host(), self.identity.clone());
        let place = &mut self.clients[index];
        place.lives += 1;
        place.process = Some(Client::new(fabric, member, self.plan.depth as usize));
        self.apply_blocks();
    }

    pub(super) fn host_of(&self, actor: Actor) -> Option<u32> {
        match actor {
            Actor::Plane => Some(self.plane_host.host()),
            Actor::Shard(n) => self.shards[n as usize].process.as_ref().map(|p| p.fabric.host()),
            Actor::Client(n) => self.clients[n as usize].process.as_ref().map(|p| p.fabric.host()),
        }
    }

    /// Ends a process at once, as SIGKILL does. It is started again at `restart_at`.
    pub(super) fn kill(&mut self, actor: Actor, restart_at: u64) {
        let now = self.now;
        match actor {
            Actor::Plane => {
                self.plane.process = None;
                self.wires.plane_died(now);
                self.plane.restart_at = restart_at;
            }
            Actor::Shard(n) => {
                let place = &mut self.shards[n as usize];
                place.restart_at = restart_at;
                if let Some(shard) = place.process.take() {
                    self.bury(shard.fabric.host(), shard.member.wire);
                }
            }
            Actor::Client(n) => {
                let place = &mut self.clients[n as usize];
                place.restart_at = restart_at;
                if let Some(mut client) = place.process.take() {
                    self.bury(client.fabric.host(), client.member.wire);
                    client.orphan(&self.history);
                }
            }
        }
    }

    /// A shard begins to leave in order.
    pub(super) fn leave(&mut self, actor: Actor, restart_at: u64) {
        let Actor::Shard(n) = actor else { return };
        if let Some(shard) = self.shards[n as usize].process.as_mut() {
            shard.leave(self.now, restart_at, &mut self.wires);
        }
    }

    /// Ends the process of a shard that has done what it had to do.
    fn let_go(&mut self, index: usize) {
        let process = self.shards[index].process.as_mut();
        if let Some((shard, restart_at)) = process.and_then(|shard| shard.has_left().map(|at| (shard, at))) {
            shard.member.leave(self.now, &mut self.wires);
            let restart_at = restart_at.max(self.now + 100_000);
            self.kill(Actor::Shard(index as u32), restart_at);
        }
    }

    fn bury(&mut self, host: u32, wire: Option<u64>) {
        self.net.kill(host);
        self.dead_hosts.insert(host);
        if let Some(wire) = wire {
            self.wires.close(self.now, wire, false);
        }
    }

    fn begin_faults(&mut self) {
        while let Some(fault) = self.plan.faults.get(self.next_fault).copied().filter(|f| f.at_ns <= self.now) {
            self.next_fault += 1;
            super::trouble::begin(self, &fault);
        }
    }

    fn end_faults(&mut self) {
        let now = self.now;
        let before = self.blocked.len();
        self.blocked.retain(|blocked| blocked.until > now);
        if self.blocked.len() != before {
            self.apply_blocks();
        }
        if !self.calmed && now >= self.plan.faults_end_ns {
            self.calmed = true;
            self.blocked.clear();
            self.apply_blocks();
            self.net.set_policy(calm(&self.plan.policy));
            for host in self.shards.iter().filter_map(|p| p.process.as_ref()).map(|p| p.fabric.host()) {
                self.net.slow_down(host, 1);
            }
            for host in self.clients.iter().filter_map(|p| p.process.as_ref()).map(|p| p.fabric.host()) {
                self.net.slow_down(host, 1);
            }
        }
    }

    /// Tells network and wires which ways are blocked, by the hosts of the present processes.
    pub(super) fn apply_blocks(&mut self) {
        let ways: BTreeSet<(u32, u32)> =
            self.blocked.iter().filter_map(|b| Some((self.host_of(b.from)?, self.host_of(b.to)?))).collect();
        for (from, to) in self.wires.blocked.difference(&ways) {
            self.net.block(*from, *to, false);
        }
        for (from, to) in &ways {
            self.net.block(*from, *to, true);
        }
        self.wires.blocked = ways;
    }

    pub(super) fn steps(&self) -> u64 {
        self.steps
    }
}
