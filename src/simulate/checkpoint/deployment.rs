//! A simulated deployment that takes checkpoints: the world of lanes and requests, and beside it members, a leader, their
//! letters and a disk, stepped in the order of their next moments.

use super::image::State;
use super::leader::{self, Leader};
use super::member::{self, Member};
use super::mistake::Mistake;
use super::plan::{CheckpointPlan, HOLD_MS, Woe};
use super::truth::{Line, Truths};
use crate::checkpoint::Catalog;
use crate::checkpoint::cut::{Command, Report};
use crate::checkpoint::model::ModelDisk;
use crate::error::Result;
use crate::fabric::sim::Rng;
use crate::simulate::plan::Actor;
use crate::simulate::world::World;
use std::collections::BTreeMap;

/// What travels between leader and members.
#[derive(Clone, Debug)]
enum Letter {
    ToMember(u32, u64, Command),
    ToLeader(u32, u64, Report),
    Left(u32),
}

/// How long a letter takes.
const MAIL_NS: (u64, u64) = (20_000, 250_000);
/// Beyond its deadline a gate may stay shut for what cannot be interrupted: a copy.
const SLACK_NS: u64 = 600_000;

/// Numbers of one history.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Taken {
    /// Checkpoints that were committed.
    pub committed: u64,
    /// Attempts that came to nothing.
    pub aborted: u64,
    /// Worlds that were restored from one.
    pub restored: u64,
    /// Requests that were under way when their servers died.
    pub in_doubt: u64,
}

/// A leader of a world that is over, which only sleeps.
#[derive(Debug)]
pub(super) struct Sleeper {
    pub(super) wakes_at: u64,
    pub(super) leader: Leader,
}

/// A deployment under way.
#[derive(Debug)]
pub(super) struct Deployment {
    pub(super) world: World,
    pub(super) plan: CheckpointPlan,
    pub(super) rng: Rng,
    pub(super) disk: ModelDisk,
    pub(super) catalog: Catalog,
    pub(super) members: Vec<Option<Member>>,
    pub(super) leader: Option<Leader>,
    pub(super) sleepers: Vec<Sleeper>,
    mail: BTreeMap<(u64, u64), Letter>,
    order: u64,
    pub(super) truths: Truths,
    pub(super) line: Line,
    /// Servers are down until then.
    pub(super) start_at: Option<u64>,
    /// When clients are ended that must open again.
    pub(super) client_ends: Vec<(u64, u32)>,
    /// An end that waits for its moment, and until when.
    pub(super) waiting: Option<(u64, super::plan::End)>,
    /// The rest of the servers is ended then.
    pub(super) end_rest: Option<(u64, super::plan::End)>,
    next_woe: usize,
    /// Nothing goes wrong any more.
    pub(super) calm: bool,
    /// No further checkpoint is begun.
    pub(super) finishing: bool,
    pub(super) taken: Taken,
}

impl Deployment {
    pub(super) fn new(plan: &CheckpointPlan) -> Result<Deployment> {
        let mut world = World::new(&plan.base)?;
        let shards = plan.base.shards as usize;
        world.shards.iter_mut().for_each(|place| place.restart_at = u64::MAX);
        let mut deployment = Deployment {
            world,
            rng: Rng::new(plan.seed ^ 0x0064_6570_6c6f_7900),
            disk: ModelDisk::default(),
            catalog: Catalog::new("/checkpoints"),
            members: (0..shards).map(|_| None).collect(),
            leader: None,
            sleepers: Vec::new(),
            mail: BTreeMap::new(),
            order: 0,
            truths: Truths::default(),
            line: Line::default(),
            start_at: None,
            client_ends: Vec::new(),
            waiting: None,
            end_rest: None,
            next_woe: 0,
            calm: false,
            finishing: false,
            taken: Taken::default(),
            plan: plan.clone(),
        };
        deployment.start()?;
        Ok(deployment)
    }

    /// Lets time pass until this moment, or until something was found that must not be.
    pub(super) fn run_until(&mut self, until: u64) -> Result<()> {
        while self.world.now < until && !self.world.history.has_violation() {
            let next = self.world.next_ns().min(self.next_ns()).min(until).max(self.world.now);
            self.world.run_until(next)?;
            self.step()?;
        }
        Ok(())
    }

    fn next_ns(&self) -> u64 {
        let members = self.members.iter().enumerate().filter_map(|(shard, member)| {
            Some(member.as_ref()?.next_ns()?.max(self.world.shards[shard].stopped_until))
        });
        let leader =
            self.leader.as_ref().and_then(Leader::next_ns).map(|at| at.max(self.world.shards[0].stopped_until));
        let mail = self.mail.keys().next().map(|(at, _)| *at);
        let woe = self.plan.woes.get(self.next_woe).filter(|_| !self.calm).map(|(at, _)| *at);
        let sleepers = self.sleepers.iter().map(|sleeper| sleeper.wakes_at);
        let waits = [self.waiting.map(|(at, _)| at), self.end_rest.map(|(at, _)| at), self.start_at];
        let ends = self.client_ends.iter().map(|(at, _)| *at);
        let all = members.chain(sleepers).chain(ends).chain([leader, mail, woe].into_iter().flatten());
        // What could be done now and is not, waits for the next moment of the world.
        all.chain(waits.into_iter().flatten()).filter(|at| *at > self.world.now).min().unwrap_or(u64::MAX)
    }

    fn step(&mut self) -> Result<()> {
        let now = self.world.now;
        while !self.calm && self.plan.woes.get(self.next_woe).is_some_and(|(at, _)| *at <= now) {
            let (_, woe) = self.plan.woes[self.next_woe];
            self.next_woe += 1;
            self.befall(woe);
        }
        self.deliver();
        self.step_leader();
        for shard in 0..self.members.len() {
            self.step_member(shard);
        }
        self.step_ends()?;
        self.line.watch(&self.world);
        Ok(())
    }

    fn befall(&mut self, woe: Woe) {
        match woe {
            // One at a time.
            Woe::End(end) if self.start_at.is_none() && self.end_rest.is_none() && self.waiting.is_none() => {
                self.waiting = Some((self.world.now + end.at_commit_ns, end));
            }
            Woe::End(_) => {}
            Woe::Disk(after, errno) => self.disk.fail_at(self.disk.steps() + after as usize, errno),
            Woe::Full => self.disk.leave_room(0),
        }
    }

    fn post(&mut self, letter: Letter) {
        let lost = if self.calm { 0 } else { self.plan.lost };
        let copies = if self.rng.chance(lost) { 0 } else { 1 + u32::from(self.rng.chance(lost)) };
        for _ in 0..copies {
            let at = self.world.now + self.rng.between(MAIL_NS.0, MAIL_NS.1);
            self.order += 1;
            self.mail.insert((at, self.order), letter.clone());
        }
    }

    fn deliver(&mut self) {
        while let Some(entry) = self.mail.first_entry().filter(|entry| entry.key().0 <= self.world.now) {
            match entry.remove() {
                Letter::ToMember(shard, epoch, command) => {
                    if let Some(Some(member)) = self.members.get_mut(shard as usize) {
                        member.hear(epoch, command);
                    }
                }
                Letter::ToLeader(shard, epoch, report) => {
                    self.leader.iter_mut().for_each(|leader| leader.hear(shard, epoch, report.clone()));
                }
                Letter::Left(shard) => self.leader.iter_mut().for_each(|leader| leader.left(shard)),
            }
        }
    }

    /// The leader hears that a shard's process is gone.
    pub(super) fn tell_of_death(&mut self, shard: u32) {
        self.order += 1;
        let at = self.world.now + self.rng.between(50_000, 600_000);
        self.mail.insert((at, self.order), Letter::Left(shard));
    }

    fn step_leader(&mut self) {
        if self.world.shards[0].stopped_until > self.world.now {
            return;
        }
        let may_begin = !self.finishing;
        if let Some(leader) = self.leader.take() {
            self.leader = Some(self.lead(leader, |leader, ground| leader.step(ground, may_begin)));
        }
    }

    /// Lets a leader do something, and carries out what it says.
    pub(super) fn lead(
        &mut self,
        mut leader: Leader,
        act: impl FnOnce(&mut Leader, &mut leader::Ground<'_>),
    ) -> Leader {
        let mut ground = leader::Ground {
            now: self.world.now,
            disk: &self.disk,
            catalog: &self.catalog,
            rng: &mut self.rng,
            shards: self.plan.base.shards,
            full_every: self.plan.full_every,
            mistake: self.plan.mistake,
            said: Vec::new(),
            over: Vec::new(),
        };
        act(&mut leader, &mut ground);
        let leader::Ground { said, over, .. } = ground;
        for (shard, epoch, command) in said {
            if command == Command::Cut && shard == 0 {
                self.truths.note(epoch, leader.line, &self.world);
            }
            let own = shard == 0 && leader.line == self.line.number;
            match &mut self.members[shard as usize] {
                // The thread next door.
                Some(member) if own => member.hear(epoch, command),
                _ => self.post(Letter::ToMember(shard, epoch, command)),
            }
        }
        for (epoch, result) in over {
            match result {
                Ok(()) => {
                    self.taken.committed += 1;
                    self.committed(epoch, leader.line);
                }
                Err(_) => self.taken.aborted += 1,
            }
            leader.begin_at = self.world.now + self.plan.every_ns;
        }
        leader
    }

    fn step_member(&mut self, shard: usize) {
        let now = self.world.now;
        let stopped = self.world.shards[shard].stopped_until > now;
        let Some(mut member) = self.members[shard].take() else { return };
        if stopped {
            member.held_since = member.held_since.map(|_| now);
        } else {
            self.with_member(shard, &mut member, Member::step);
            self.check_gate(shard, &member);
        }
        self.members[shard] = Some(member);
    }

    fn check_gate(&self, shard: usize, member: &Member) {
        let longest = HOLD_MS * 1_000_000 + SLACK_NS;
        if member.held_since.is_some_and(|since| self.world.now - since > longest) {
            self.world.history.violation(format!("the gate of shard {shard} stays shut beyond its deadline"));
        }
    }

    /// Lets a member do something, and sends what it says.
    pub(super) fn with_member(
        &mut self,
        shard: usize,
        member: &mut Member,
        act: impl FnOnce(&mut Member, &mut member::Ground<'_>),
    ) {
        let Some(process) = self.world.shards[shard].process.as_mut() else { return };
        let mut ground = member::Ground {
            now: self.world.now,
            disk: &self.disk,
            catalog: &self.catalog,
            rng: &mut self.rng,
            shard: process,
            ledger: &self.world.common.ledgers[shard],
            rank: shard as u32,
            shards: self.plan.base.shards,
            keys: self.plan.base.keys,
            mistake: self.plan.mistake,
            said: Vec::new(),
        };
        act(member, &mut ground);
        let said = ground.said;
        for (epoch, report) in said {
            match &mut self.leader {
                Some(leader) if shard == 0 => leader.hear(0, epoch, report),
                _ => self.post(Letter::ToLeader(shard as u32, epoch, report)),
            }
        }
    }

    /// Nothing of a checkpoint is under way.
    pub(super) fn is_idle(&self) -> bool {
        let still = self.waiting.is_none() && self.end_rest.is_none() && self.start_at.is_none();
        let members = self.members.iter().all(|member| member.as_ref().is_some_and(Member::is_idle));
        still && members && self.leader.as_ref().is_some_and(Leader::is_idle) && self.mail.is_empty()
    }

    pub(super) fn states(world: &World) -> Vec<State> {
        let shards = world.shards.iter().zip(&world.common.ledgers);
        shards.filter_map(|(place, ledger)| Some(State::of(place.process.as_ref()?, ledger))).collect()
    }

    pub(super) fn mistaken(&self, mistake: Mistake) -> bool {
        self.plan.mistake == Some(mistake)
    }

    pub(super) fn kill_client(&mut self, client: u32) {
        let again = self.world.now + self.rng.between(100_000, 1_000_000);
        if self.world.host_of(Actor::Client(client)).is_some() {
            self.world.kill(Actor::Client(client), again);
        }
    }
}
