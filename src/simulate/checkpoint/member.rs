//! A simulated shard's part in checkpoints: what the engine's thread of that name does, one step at a time.

use super::image::{State, windows};
use super::mistake::Mistake;
use crate::checkpoint::cut::{Command, Deed, Order, Participant, Report, WrittenFile};
use crate::checkpoint::format::{FileRef, Superblock};
use crate::checkpoint::model::ModelDisk;
use crate::checkpoint::writer::{Known, Task, Unfinished};
use crate::checkpoint::{Catalog, Disk, Role, Written, write_container};
use crate::error::{Error, Result, Status};
use crate::fabric::sim::Rng;
use crate::simulate::ledger::Ledger;
use crate::simulate::shard::Shard;
use crate::time::Tick;
use std::collections::VecDeque;

/// The job of every simulated checkpoint.
pub(super) const JOB: u128 = 7;

/// What a member stands on.
pub(super) struct Ground<'a> {
    pub(super) now: u64,
    pub(super) disk: &'a ModelDisk,
    pub(super) catalog: &'a Catalog,
    pub(super) rng: &'a mut Rng,
    pub(super) shard: &'a mut Shard,
    pub(super) ledger: &'a Ledger,
    pub(super) rank: u32,
    pub(super) shards: u32,
    pub(super) keys: u64,
    pub(super) mistake: Option<Mistake>,
    /// What it has to say.
    pub(super) said: Vec<(u64, Report)>,
}

/// What takes time.
#[derive(Clone, Copy, Debug)]
enum Work {
    Rest,
    Copy,
    Write(Order),
}

/// One shard's member.
#[derive(Debug)]
pub(super) struct Member {
    machine: Participant,
    /// What it does at present, and until when. Letters wait meanwhile, as for a thread.
    work: Option<(u64, Work)>,
    inbox: VecDeque<(u64, Command)>,
    unfinished: Option<Unfinished>,
    copy: State,
    written: Option<(FileRef, Written)>,
    known: Option<(u64, Known)>,
    /// Since when its gate is shut.
    pub(super) held_since: Option<u64>,
}

impl Member {
    pub(super) fn new() -> Member {
        Member {
            machine: Participant::new(0),
            work: None,
            inbox: VecDeque::new(),
            unfinished: None,
            copy: State::default(),
            written: None,
            known: None,
            held_since: None,
        }
    }

    pub(super) fn next_ns(&self) -> Option<u64> {
        match self.work {
            Some((until, _)) => Some(until),
            None if !self.inbox.is_empty() => Some(0),
            None => self.machine.deadline().map(|at| at.0),
        }
    }

    pub(super) fn is_idle(&self) -> bool {
        self.work.is_none() && self.machine.deadline().is_none() && self.inbox.is_empty()
    }

    /// Whether it is putting a file on the disk.
    pub(super) fn is_writing(&self) -> bool {
        matches!(self.work, Some((_, Work::Write(_))))
    }

    pub(super) fn hear(&mut self, epoch: u64, command: Command) {
        self.inbox.push_back((epoch, command));
    }

    pub(super) fn step(&mut self, ground: &mut Ground<'_>) {
        let now = Tick(ground.now);
        loop {
            let deeds = match self.work {
                Some((until, _)) if until > ground.now => return,
                Some((_, work)) => {
                    self.work = None;
                    self.finish(work, ground)
                }
                None => match self.inbox.pop_front() {
                    Some((epoch, command)) => self.machine.heard(now, epoch, &command),
                    None if ground.mistake == Some(Mistake::WaitsForSilentLeader) && self.machine.is_held() => return,
                    None if self.machine.deadline().is_some_and(|at| at <= now) => self.machine.tick(now),
                    None => return,
                },
            };
            let mut queue = VecDeque::from(deeds);
            while let Some(deed) = queue.pop_front() {
                queue.extend(self.perform(deed, ground));
            }
        }
    }

    /// The process dies in the middle of what it is writing: only so many operations get through.
    pub(super) fn tear(&mut self, operations: u32, ground: &mut Ground<'_>) {
        if let Some((_, Work::Write(order))) = self.work.take() {
            ground.disk.die_after(operations as usize);
            let _ = self.write(&order, ground);
            ground.disk.revive();
        }
    }

    fn perform(&mut self, deed: Deed, ground: &mut Ground<'_>) -> Vec<Deed> {
        match deed {
            Deed::ShutGate(order, _) => {
                if let Err(error) = self.prepare(&order, ground) {
                    return self.machine.gate_shut(Err(error.message));
                }
                ground.shard.held = ground.mistake != Some(Mistake::GateIgnored);
                self.held_since = Some(ground.now);
                self.work = Some((ground.now + ground.rng.between(5_000, 250_000), Work::Rest));
            }
            Deed::Capture => {
                if ground.mistake == Some(Mistake::GateOpensBeforeCopy) {
                    ground.shard.held = false;
                }
                self.work = Some((ground.now + ground.rng.between(5_000, 250_000), Work::Copy));
            }
            Deed::OpenGate => {
                ground.shard.held = false;
                self.held_since = None;
            }
            Deed::Write(order) => {
                self.work = Some((ground.now + ground.rng.between(50_000, 2_000_000), Work::Write(order)));
            }
            Deed::Discard => {
                self.unfinished.take().into_iter().for_each(|file| file.discard(ground.disk));
                let written = self.written.take();
                if ground.mistake == Some(Mistake::BuildsOnAborted) && written.is_some() {
                    self.known = written.map(|(file, written)| (file.epoch, Known::of(file, &written.toc)));
                }
            }
            Deed::Keep => {
                let written = self.written.take();
                self.known = written.map(|(file, written)| (file.epoch, Known::of(file, &written.toc)));
            }
            Deed::Say(epoch, report) => ground.said.push((epoch, report)),
        }
        Vec::new()
    }

    fn finish(&mut self, work: Work, ground: &mut Ground<'_>) -> Vec<Deed> {
        match work {
            Work::Rest => {
                if ground.mistake == Some(Mistake::CutsAlone) {
                    self.copy_of(ground);
                    ground.shard.held = false;
                }
                self.machine.gate_shut(Ok(()))
            }
            Work::Copy => {
                if ground.mistake != Some(Mistake::CutsAlone) {
                    self.copy_of(ground);
                }
                self.machine.captured(Ok(1))
            }
            Work::Write(order) => {
                let written = self.write(&order, ground).map_err(|error| error.message);
                self.machine.written(written)
            }
        }
    }

    fn copy_of(&mut self, ground: &Ground<'_>) {
        let saves = ground.mistake != Some(Mistake::WindowsNotSaved);
        self.copy = State::new(ground.ledger.image(), windows(ground.shard, saves));
    }

    fn prepare(&mut self, order: &Order, ground: &mut Ground<'_>) -> Result<()> {
        let name = Role::Shard.file_name(ground.rank, ground.shards);
        let directory = ground.catalog.directory_of(order.epoch);
        let nonce = u128::from(ground.rng.word());
        self.written = None;
        self.unfinished = Some(Unfinished::create(ground.disk, &directory, &name, nonce, 4096)?);
        Ok(())
    }

    fn write(&mut self, order: &Order, ground: &mut Ground<'_>) -> Result<WrittenFile> {
        let unfinished = self.unfinished.take().ok_or_else(|| Error::new(Status::Bug, "a file without a beginning"))?;
        let block = Superblock {
            minor: 0,
            required: 0,
            optional: 0,
            checkpoint: order.checkpoint,
            job: JOB,
            epoch: order.epoch,
            role: Role::Shard as u32,
            rank: ground.rank,
            world: ground.shards,
            instance: ground.shard.member.incarnation.0,
            unix_us: 0,
        };
        let name = Role::Shard.file_name(block.rank, block.world);
        let careless = ground.mistake == Some(Mistake::BuildsOnAborted);
        let known = self.known.as_ref();
        let known = known.filter(|(epoch, _)| order.parent != 0 && (*epoch == order.parent || careless));
        let plans = self.copy.plans(ground.keys);
        let known = known.map(|(_, known)| known);
        let task = Task { name: &name, block: &block, plans: &plans, source: &self.copy, known, threads: 1 };
        ground.disk.lie(ground.mistake == Some(Mistake::DataNotSynced));
        let written = write_container(ground.disk, unfinished, &task);
        ground.disk.lie(false);
        let written = written?;
        let synced = ground.disk.sync_dir(ground.catalog.root());
        synced.map_err(|error| Error::os("cannot sync the directory of checkpoints", &error))?;
        let Superblock { epoch, checkpoint, rank, world, .. } = block;
        let (bytes, digest) = (written.bytes, written.digest);
        let report = WrittenFile {
            bytes,
            state_bytes: written.state_bytes,
            own_bytes: written.own_bytes,
            digest,
            needs: written.needs.clone(),
        };
        self.written = Some((FileRef { epoch, checkpoint, rank, world, bytes, digest }, written));
        Ok(report)
    }
}
