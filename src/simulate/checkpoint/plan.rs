//! What one seed stands for: a deployment with its network and faults, and what befalls its checkpoints.

use super::mistake::Mistake;
use crate::fabric::sim::Rng;
use crate::simulate::plan::{Actor, Plan, Trouble};
use core::fmt;

/// How a world ends: all its servers die, and start again from a checkpoint.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct End {
    /// The one shard that dies first; the others are ended when somebody has noticed. None: all at once.
    pub alone: Option<u32>,
    /// It waits until the leader is about to commit, for so long at most.
    pub at_commit_ns: u64,
    /// The leader does not die: it only sleeps, and goes on where it was while the restored world runs.
    pub leader_sleeps: bool,
    /// Whoever is writing gets so many operations through before it dies.
    pub torn_after: Option<u32>,
    /// The machine with the files loses its power.
    pub power: bool,
    /// A bit of the newest checkpoint flips: which one, counted on.
    pub damage: Option<u64>,
    /// How long nobody is there.
    pub for_ns: u64,
}

/// Something that befalls checkpoints.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Woe {
    /// The servers die.
    End(End),
    /// The disk fails, with this error, at the operation that comes after so many others.
    Disk(u32, i32),
    /// The disk is full until the next world.
    Full,
}

impl fmt::Display for Woe {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Woe::End(end) => write!(f, "{end:?}"),
            Woe::Disk(after, errno) => write!(f, "the disk fails with error {errno} after {after} operations"),
            Woe::Full => write!(f, "the disk is full"),
        }
    }
}

/// A deployment and its fate.
#[derive(Clone, Debug)]
pub struct CheckpointPlan {
    /// Where all of it comes from.
    pub seed: u64,
    /// The deployment, its network, and the faults of processes and lanes.
    pub base: Plan,
    /// Clients that live through a restore are let in with what was executed for them.
    pub resume: bool,
    /// From one checkpoint's end to the next one's beginning.
    pub every_ns: u64,
    /// The option checkpoint-full-every.
    pub full_every: u32,
    /// Letters about checkpoints that are lost, in a million.
    pub lost: u32,
    /// When, and what.
    pub woes: Vec<(u64, Woe)>,
    /// A deliberate mistake.
    pub mistake: Option<Mistake>,
}

/// The option checkpoint-hold-timeout-ms.
pub(super) const HOLD_MS: u64 = 2;
/// The option checkpoint-write-timeout-ms.
pub(super) const WRITE_MS: u64 = 8;
/// The option checkpoint-keep.
pub(super) const KEEP: usize = 2;
const ENDS_MAX: u64 = 3;

fn actors(trouble: Trouble) -> [Actor; 2] {
    match trouble {
        Trouble::Block(from, to, _) => [from, to],
        Trouble::Kill(one)
        | Trouble::Leave(one)
        | Trouble::Stop(one)
        | Trouble::Slow(one, _)
        | Trouble::Break(one, _)
        | Trouble::Skew(one) => [one, one],
    }
}

fn is_there(actor: Actor, shards: u32) -> bool {
    if let Actor::Shard(shard) = actor { shard < shards } else { true }
}

impl CheckpointPlan {
    /// The plan of a seed.
    #[must_use]
    pub fn of(seed: u64) -> CheckpointPlan {
        let mut rng = Rng::new(seed ^ 0x0063_6b70_7400);
        let mut base = Plan::of(seed);
        base.shards = rng.between(1, 3) as u32;
        base.heals = true;
        base.faults_end_ns = rng.between(15_000_000, 30_000_000);
        base.lease_ms = if rng.chance(100_000) { 3 } else { 60_000 };
        // The ends of servers are the business of this plan: they end a world.
        base.faults.retain(|fault| {
            !matches!(fault.trouble, Trouble::Kill(Actor::Shard(_) | Actor::Plane) | Trouble::Leave(_))
        });
        let shards = base.shards;
        base.faults.retain(|fault| actors(fault.trouble).iter().all(|actor| is_there(*actor, shards)));
        let mut plan = CheckpointPlan {
            seed,
            resume: rng.chance(600_000),
            every_ns: rng.between(200_000, 2_500_000),
            full_every: rng.between(1, 4) as u32,
            lost: [0, 10_000, 60_000][rng.index(3)],
            woes: Vec::new(),
            mistake: None,
            base,
        };
        for _ in 0..rng.between(1, ENDS_MAX) {
            let at = rng.between(2_000_000, plan.base.faults_end_ns);
            let end = plan.end(&mut rng);
            plan.woes.push((at, Woe::End(end)));
        }
        for _ in 0..rng.below(3) {
            let at = rng.below(plan.base.faults_end_ns);
            let errno = [libc::EIO, libc::ENOSPC, libc::EROFS][rng.index(3)];
            let woe = if rng.chance(200_000) { Woe::Full } else { Woe::Disk(rng.below(12) as u32, errno) };
            plan.woes.push((at, woe));
        }
        plan.woes.sort_by_key(|(at, _)| *at);
        plan
    }

    fn end(&self, rng: &mut Rng) -> End {
        let power = rng.chance(350_000);
        let at_commit = rng.chance(350_000);
        End {
            alone: rng.chance(300_000).then(|| rng.below(u64::from(self.base.shards)) as u32),
            at_commit_ns: if at_commit { 5_000_000 } else { 0 },
            leader_sleeps: !power && rng.chance(400_000),
            torn_after: rng.chance(400_000).then(|| rng.below(10) as u32),
            power,
            damage: rng.chance(250_000).then(|| rng.word()),
            for_ns: rng.between(300_000, 3_000_000),
        }
    }
}
