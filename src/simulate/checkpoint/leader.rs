//! The simulated shard that leads: what the engine's thread of that name does, one step at a time.

use super::member::JOB;
use super::mistake::Mistake;
use super::plan::{HOLD_MS, KEEP, WRITE_MS};
use crate::checkpoint::cut::{Act, Command, Coordinator, Done, Order, Report};
use crate::checkpoint::manifest::Timing;
use crate::checkpoint::model::ModelDisk;
use crate::checkpoint::{Catalog, Manifest, Member, Role};
use crate::error::Result;
use crate::fabric::sim::Rng;
use crate::time::Tick;
use std::collections::{BTreeMap, BTreeSet, VecDeque};

/// What a leader stands on.
pub(super) struct Ground<'a> {
    pub(super) now: u64,
    pub(super) disk: &'a ModelDisk,
    pub(super) catalog: &'a Catalog,
    pub(super) rng: &'a mut Rng,
    pub(super) shards: u32,
    pub(super) full_every: u32,
    pub(super) mistake: Option<Mistake>,
    /// To whom it says what, about which epoch.
    pub(super) said: Vec<(u32, u64, Command)>,
    /// What became of attempts.
    pub(super) over: Vec<(u64, core::result::Result<(), String>)>,
}

/// One life of the leader.
#[derive(Debug)]
pub(super) struct Leader {
    machine: Coordinator,
    /// Of which world.
    pub(super) line: u32,
    epoch: u64,
    last: u64,
    since_full: u32,
    damaged: BTreeSet<u64>,
    /// The manifest is about to be written.
    commit: Option<(u64, Done)>,
    inbox: VecDeque<(u32, u64, Report)>,
    gone: VecDeque<u32>,
    pub(super) begin_at: u64,
}

impl Leader {
    pub(super) fn new(shards: u32, line: u32, damaged: BTreeSet<u64>, begin_at: u64) -> Leader {
        Leader {
            machine: Coordinator::new(shards),
            line,
            epoch: 0,
            last: 0,
            since_full: 0,
            damaged,
            commit: None,
            inbox: VecDeque::new(),
            gone: VecDeque::new(),
            begin_at,
        }
    }

    pub(super) fn next_ns(&self) -> Option<u64> {
        if let Some((at, _)) = &self.commit {
            return Some(*at);
        }
        if !self.inbox.is_empty() || !self.gone.is_empty() {
            return Some(0);
        }
        let begin = self.machine.under_way().is_none().then_some(self.begin_at);
        [begin, self.machine.deadline().map(|at| at.0)].into_iter().flatten().min()
    }

    pub(super) fn is_idle(&self) -> bool {
        self.machine.under_way().is_none() && self.commit.is_none()
    }

    /// Everything is durable, and the manifest is not there yet.
    pub(super) fn is_committing(&self) -> bool {
        self.commit.is_some()
    }

    pub(super) fn hear(&mut self, shard: u32, epoch: u64, report: Report) {
        self.inbox.push_back((shard, epoch, report));
    }

    pub(super) fn left(&mut self, shard: u32) {
        self.gone.push_back(shard);
    }

    pub(super) fn step(&mut self, ground: &mut Ground<'_>, may_begin: bool) {
        let now = Tick(ground.now);
        loop {
            let acts = match &self.commit {
                Some((at, _)) if *at > ground.now => return,
                Some(_) => {
                    let written = self.write_manifest(ground);
                    self.machine.committed(written.map_err(|error| error.message))
                }
                None => {
                    if let Some(shard) = self.gone.pop_front() {
                        self.machine.left(shard)
                    } else if let Some((shard, epoch, report)) = self.inbox.pop_front() {
                        self.heard(now, shard, epoch, report, ground.mistake)
                    } else if self.machine.deadline().is_some_and(|at| at <= now) {
                        self.machine.tick(now)
                    } else if may_begin && self.machine.under_way().is_none() && self.begin_at <= ground.now {
                        self.begin(ground)
                    } else {
                        return;
                    }
                }
            };
            self.perform(acts, ground);
        }
    }

    fn heard(&mut self, now: Tick, shard: u32, epoch: u64, report: Report, mistake: Option<Mistake>) -> Vec<Act> {
        let durable = matches!(report, Report::Durable(_));
        let acts = self.machine.heard(now, shard, epoch, report.clone());
        if mistake == Some(Mistake::CommitWithoutAll) && durable && acts.is_empty() {
            // As if the others had said the same.
            let others = (0..8).filter(|other| *other != shard);
            return others.flat_map(|other| self.machine.heard(now, other, epoch, report.clone())).collect();
        }
        acts
    }

    fn begin(&mut self, ground: &mut Ground<'_>) -> Vec<Act> {
        self.begin_at = ground.now + 500_000;
        let full = self.last == 0 || self.since_full + 1 >= ground.full_every;
        let (nonce, name) = (u128::from(ground.rng.word()), u128::from(ground.rng.word()) | 1);
        self.epoch = 0;
        let epoch = match ground.catalog.promise(ground.disk, nonce) {
            Ok(epoch) => epoch,
            Err(error) => return vec![Act::Over(0, Err(error.message))],
        };
        self.epoch = epoch;
        let parent = if full { 0 } else { self.last };
        let order = Order { epoch, checkpoint: name, parent, hold_ms: HOLD_MS, write_ms: WRITE_MS };
        self.machine.begin(Tick(ground.now), order)
    }

    fn perform(&mut self, acts: Vec<Act>, ground: &mut Ground<'_>) {
        for act in acts {
            match act {
                Act::Say(shard, command) => {
                    let epoch = if let Command::Prepare(order) = &command { order.epoch } else { self.epoch };
                    ground.said.push((shard, epoch, command));
                }
                Act::Commit(done) => self.commit = Some((ground.now + ground.rng.between(10_000, 400_000), done)),
                Act::Over(epoch, result) => self.over(epoch, result, ground),
            }
        }
    }

    fn over(&mut self, epoch: u64, result: core::result::Result<Done, String>, ground: &mut Ground<'_>) {
        if let Ok(done) = &result {
            self.since_full = if done.order.parent == 0 { 0 } else { self.since_full + 1 };
            self.last = epoch;
            let keep = if ground.mistake == Some(Mistake::KeepsOne) { 1 } else { KEEP };
            // What cannot be removed now is removed later.
            let _ = ground.catalog.collect(ground.disk, JOB, keep, epoch, &self.damaged);
        }
        ground.over.push((epoch, result.map(|_| ())));
    }

    /// The process dies while it writes the manifest: only so many operations get through.
    pub(super) fn tear(&mut self, operations: u32, ground: &mut Ground<'_>) {
        if self.commit.is_some() {
            ground.disk.die_after(operations as usize);
            let _ = self.write_manifest(ground);
            ground.disk.revive();
        }
    }

    fn write_manifest(&mut self, ground: &mut Ground<'_>) -> Result<()> {
        let Some((_, done)) = self.commit.take() else { return Ok(()) };
        let files: BTreeMap<_, _> = done.files.iter().filter(|(rank, _)| **rank < ground.shards).collect();
        let members = files
            .iter()
            .map(|(rank, file)| {
                let (bytes, digest, state_bytes) = (file.bytes, file.digest, file.state_bytes);
                Member { role: Role::Shard, rank: **rank, world: ground.shards, bytes, digest, state_bytes }
            })
            .collect();
        let needs: BTreeSet<u64> = files.values().flat_map(|file| file.needs.iter().copied()).collect();
        let manifest = Manifest {
            checkpoint: done.order.checkpoint,
            job: JOB,
            job_name: "simulated".to_owned(),
            epoch: done.order.epoch,
            parent: done.order.parent,
            unix_us: 0,
            hash_method: 0,
            timing: Timing::default(),
            members,
            needs: needs.into_iter().collect(),
        };
        ground.catalog.commit(ground.disk, &manifest, u128::from(ground.rng.word()))
    }
}
