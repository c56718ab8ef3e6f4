//! What one seed stands for: a deployment, the habits of its network, and what will go wrong when.

use crate::fabric::sim::{Mutant, Policy, Rng};
use core::fmt;

/// One process of a deployment.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum Actor {
    /// The control plane.
    Plane,
    /// A shard.
    Shard(u32),
    /// A client.
    Client(u32),
}

/// Something that goes wrong.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Trouble {
    /// The process dies and is started again later, under the same name.
    Kill(Actor),
    /// The shard leaves in order, and is started again later.
    Leave(Actor),
    /// The process stands still for the time.
    Stop(Actor),
    /// Nothing gets from the first to the second; and, when the last is true, nothing gets back.
    Block(Actor, Actor, bool),
    /// Everything that the process sends and does takes so many times as long.
    Slow(Actor, u32),
    /// The device gives up one of the process's connections: which one, counted on.
    Break(Actor, u32),
    /// The process's clock jumps ahead by the duration, and stays there.
    Skew(Actor),
}

/// Trouble at a time.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Fault {
    /// When it begins.
    pub at_ns: u64,
    /// How long it lasts.
    pub for_ns: u64,
    /// What it is.
    pub trouble: Trouble,
}

impl fmt::Display for Actor {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Actor::Plane => write!(f, "control plane"),
            Actor::Shard(number) => write!(f, "shard {number}"),
            Actor::Client(number) => write!(f, "client {number}"),
        }
    }
}

impl fmt::Display for Fault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "at {} us for {} us: ", self.at_ns / 1000, self.for_ns / 1000)?;
        match self.trouble {
            Trouble::Kill(actor) => write!(f, "{actor} is dead, then started again"),
            Trouble::Leave(actor) => write!(f, "{actor} leaves in order, then is started again"),
            Trouble::Stop(actor) => write!(f, "{actor} stands still"),
            Trouble::Block(from, to, true) => write!(f, "nothing gets from {from} to {to}, nor back"),
            Trouble::Block(from, to, false) => write!(f, "nothing gets from {from} to {to}"),
            Trouble::Slow(actor, times) => write!(f, "{actor} is {times} times slower"),
            Trouble::Break(actor, pick) => write!(f, "connection {pick} of {actor} breaks"),
            Trouble::Skew(actor) => write!(f, "the clock of {actor} jumps ahead"),
        }
    }
}

/// A deployment and its fate.
#[derive(Clone, Debug)]
pub struct Plan {
    /// Where all of it, and all chance in it, comes from.
    pub seed: u64,
    /// Shards.
    pub shards: u32,
    /// Clients.
    pub clients: u32,
    /// Lanes of each client to each shard.
    pub lanes: u32,
    /// Slots of each lane.
    pub slots: u32,
    /// Send queue depth.
    pub send_depth: u32,
    /// Requests that a client has under way at most.
    pub depth: u32,
    /// Keys there are.
    pub keys: u64,
    /// The option commit-scheme.
    pub scheme: &'static str,
    /// The option integrity.
    pub integrity: &'static str,
    /// The network's habits until the faults end.
    pub policy: Policy,
    /// What goes wrong.
    pub faults: Vec<Fault>,
    /// When the faults have ended.
    pub faults_end_ns: u64,
    /// How long clients go on after that.
    pub calm_ns: u64,
    /// How long a request waits for its answer.
    pub wait_ns: u64,
    /// Whether lanes are rebuilt and requests sent again.
    pub heals: bool,
    /// The option rdma-lane-probe-idle-ms.
    pub probe_idle_ms: u32,
    /// The option request-window-lease-ms.
    pub lease_ms: u32,
    /// A deliberate mistake.
    pub mutant: Option<Mutant>,
}

const FAULTS_MAX: u64 = 7;

impl Plan {
    /// The plan of a seed.
    #[must_use]
    pub fn of(seed: u64) -> Plan {
        let mut rng = Rng::new(seed);
        let ordered = rng.chance(500_000);
        let policy = policy(&mut rng, ordered);
        let scheme = match rng.below(8) {
            0 | 1 => "imm",
            2 | 3 => "crc",
            _ => "auto",
        };
        let mut plan = Plan {
            seed,
            shards: rng.between(1, 2) as u32,
            clients: rng.between(1, 3) as u32,
            lanes: rng.between(1, 2) as u32,
            slots: rng.between(1, 3) as u32,
            send_depth: if rng.chance(300_000) { 16 } else { 128 },
            depth: rng.between(1, 4) as u32,
            keys: rng.between(2, 12),
            scheme,
            integrity: if rng.chance(250_000) { "crc32c" } else { "off" },
            policy,
            faults: Vec::new(),
            faults_end_ns: rng.between(10_000_000, 25_000_000),
            calm_ns: 12_000_000,
            wait_ns: [3_000_000, 9_000_000][rng.index(2)],
            heals: rng.chance(800_000),
            probe_idle_ms: [0, 1, 5][rng.index(3)],
            lease_ms: [3, 60_000][rng.index(2)],
            mutant: None,
        };
        let faults = rng.below(FAULTS_MAX + 1);
        for _ in 0..faults {
            let fault = plan.fault(&mut rng);
            plan.faults.push(fault);
        }
        plan.faults.sort_by_key(|fault| fault.at_ns);
        plan
    }

    fn actor(&self, rng: &mut Rng) -> Actor {
        match rng.below(u64::from(self.shards + self.clients) + 1) as u32 {
            0 => Actor::Plane,
            n if n <= self.shards => Actor::Shard(n - 1),
            n => Actor::Client(n - self.shards - 1),
        }
    }

    fn fault(&self, rng: &mut Rng) -> Fault {
        let actor = self.actor(rng);
        let trouble = match rng.below(9) {
            0 | 1 => Trouble::Kill(actor),
            8 => Trouble::Leave(Actor::Shard(rng.below(u64::from(self.shards)) as u32)),
            2 => Trouble::Stop(actor),
            3 => Trouble::Block(actor, self.actor(rng), rng.chance(500_000)),
            4 => Trouble::Slow(actor, rng.between(2, 10) as u32),
            5 => Trouble::Skew(actor),
            _ => Trouble::Break(actor, rng.below(8) as u32),
        };
        let longest = self.faults_end_ns / 2;
        let at_ns = rng.below(self.faults_end_ns * 3 / 4);
        // A process that is started again at once meets what its former life left behind.
        let longest = if rng.chance(500_000) { 1_000_000 } else { longest };
        let for_ns = rng.between(100_000, longest).min(self.faults_end_ns - at_ns);
        Fault { at_ns, for_ns, trouble }
    }
}

fn policy(rng: &mut Rng, ordered: bool) -> Policy {
    let some = |rng: &mut Rng, rates: [u32; 3]| rates[rng.index(3)];
    let reuse_numbers = rng.chance(500_000);
    Policy {
        ordered_within_write: ordered,
        ordered_writes: ordered,
        mtu: [128, 256, 1024][rng.index(3)],
        delay_ns_min: 10_000,
        delay_ns_max: rng.between(15_000, 80_000),
        reorder: some(rng, [0, 5_000, 30_000]),
        reorder_ns_max: 300_000,
        drop: some(rng, [0, 2_000, 20_000]),
        duplicate: some(rng, [0, 5_000, 30_000]),
        duplicate_ns_max: 3_000_000,
        tear: some(rng, [0, 200_000, 800_000]),
        visible_ns_max: rng.between(1_000, 150_000),
        retry_ns: 400_000,
        retries: 5,
        rnr_ns: 100_000,
        rnr_retries: 5,
        lose_refusals: rng.chance(500_000),
        lose_flush: some(rng, [0, 500_000, 1_000_000]),
        purge_on_reset: rng.chance(500_000),
        reuse_numbers,
        // A packet of an old connection that hits a new one's next number takes the place of what belongs there. Only
        // a checksum can tell then, so this is for ways that have one.
        psn_collisions: !ordered && reuse_numbers && rng.chance(500_000),
    }
}

/// The network after the faults.
pub(super) fn calm(policy: &Policy) -> Policy {
    Policy { reorder: 0, drop: 0, duplicate: 0, lose_flush: 0, lose_refusals: false, ..policy.clone() }
}
