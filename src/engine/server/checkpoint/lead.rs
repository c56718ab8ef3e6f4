//! Shard 0 leads: it begins checkpoints, hears what the members say, and writes the manifest.

use super::{Item, Letters, Post, Tally, catalog, job, random};
use crate::checkpoint::cut::{Act, Command, Coordinator, Done, Message, Note, Order, Phase, Report, Request, State};
use crate::checkpoint::disk::RealDisk;
use crate::checkpoint::format::{CHUNK_BYTES_MAX, Superblock};
use crate::checkpoint::manifest::Timing;
use crate::checkpoint::writer::{Task, Unfinished};
use crate::checkpoint::{
    Catalog, ChunkSource, Manifest, Member, Role, SectionKind, SectionPlan, Written, steps, write_container,
};
use crate::control::Peer;
use crate::error::{Error, Result, Status};
use crate::ids::{Incarnation, ShardId};
use crate::options::{HashMethod, Settings};
use crate::sync::Arc;
use crate::time::{Tick, now, unix_us};
use core::time::Duration;
use std::collections::{BTreeMap, BTreeSet, VecDeque};

const LOOK: Duration = Duration::from_millis(500);

/// The thread's state.
#[derive(Debug)]
pub(in crate::engine) struct Lead {
    settings: Settings,
    incarnation: Incarnation,
    post: Post,
    letters: Arc<Letters>,
    catalog: Catalog,
    machine: Coordinator,
    /// What its members are.
    role: Role,
    /// The world that the members are of, if the directory knows worlds.
    world: Option<u64>,
    /// Members that want one as soon as all do.
    gathering: BTreeMap<u32, Request>,
    /// Who asked for the one that is under way.
    askers: Vec<(Peer, Request)>,
    told: Option<State>,
    epoch: u64,
    /// The last one that was committed in this process's life; 0: none.
    last: u64,
    since_full: u32,
    next: Option<Tick>,
    /// Epochs that were found damaged: they do not count as kept.
    damaged: BTreeSet<u64>,
    /// What this shard counts of checkpoints.
    tally: Arc<Tally>,
}

/// The application's bytes as the one chunk of a section.
struct Application<'a>(&'a [u8]);

impl ChunkSource for Application<'_> {
    fn chunk(&self, _section: usize, _index: u32, out: &mut Vec<u8>) {
        out.extend_from_slice(self.0);
    }
}

impl Lead {
    /// None: the deployment has no checkpoints, or this shard does not lead.
    pub(in crate::engine) fn new(
        settings: &Settings,
        incarnation: Incarnation,
        post: Post,
        damaged: BTreeSet<u64>,
        tally: Arc<Tally>,
    ) -> Option<Lead> {
        let letters = Arc::clone(post.leader.as_ref()?);
        let catalog = catalog(settings)?;
        let interval = Duration::from_millis(settings.checkpoint_interval_ms);
        Some(Lead {
            machine: Coordinator::new(settings.num_shards),
            next: (!interval.is_zero()).then(|| now().after(interval)),
            settings: settings.clone(),
            incarnation,
            post,
            letters,
            catalog,
            role: Role::Shard,
            world: None,
            gathering: BTreeMap::new(),
            askers: Vec::new(),
            told: None,
            epoch: 0,
            last: 0,
            since_full: 0,
            damaged,
            tally,
        })
    }

    /// Of ranks, in this world.
    pub(in crate::engine) fn of_ranks(mut self, world: u64) -> Lead {
        self.machine = Coordinator::new(self.settings.num_shards).of("rank");
        (self.role, self.world) = (Role::Rank, Some(world));
        self
    }

    /// Until the shard stops.
    pub(in crate::engine) fn run(mut self) {
        while !self.letters.is_closed() {
            let deadlines = [Some(now().after(LOOK)), self.machine.deadline(), self.next];
            let until = deadlines.into_iter().flatten().min().unwrap_or(Tick(0));
            let acts = match self.letters.next(until) {
                Some(Item::Letter(from, message)) => self.hear(from, message),
                Some(Item::Left(shard)) => {
                    self.scatter(&format!("{} {shard} is gone", self.role.name()));
                    self.machine.left(shard)
                }
                None => self.machine.tick(now()),
            };
            self.perform(acts);
            if self.next.is_some_and(|next| next <= now()) {
                self.next = Some(now().after(Duration::from_millis(self.settings.checkpoint_interval_ms)));
                if self.machine.under_way().is_none() {
                    let acts = self.begin(Vec::new());
                    self.perform(acts);
                }
            }
        }
        let why = format!("{} 0 stops", self.role.name());
        self.scatter(&why);
        let acts = self.machine.stop(&why);
        self.perform(acts);
    }

    fn hear(&mut self, from: Peer, message: Message) -> Vec<Act> {
        match (from, message) {
            (Peer::Server(shard), Message::Report(epoch, report)) => {
                if let Report::Durable(file) = &report {
                    crate::event!(
                        crate::observe::Level::DEBUG,
                        crate::observe::events::CHECKPOINT_FILE,
                        shard = shard.0,
                        epoch,
                        bytes = file.bytes,
                        written = file.own_bytes
                    );
                }
                self.machine.heard(now(), shard.0, epoch, report)
            }
            (_, Message::Ask(request)) => {
                if let Some((epoch, _)) = self.machine.under_way() {
                    let why = format!("checkpoint {epoch} is under way; ask again when it is over");
                    self.tell(from, &request, State::Aborted, None, why);
                    return Vec::new();
                }
                self.begin(vec![(from, request)])
            }
            (Peer::Server(member), Message::Together(request)) => self.gather(member.0, request),
            (_, Message::Stop(number)) => {
                if let Peer::Server(member) = from
                    && self.gathering.get(&member.0).is_some_and(|request| request.number == number)
                {
                    self.scatter(&format!("{} {} gave it up", self.role.name(), member.0));
                }
                let own = self.askers.iter().any(|(asker, request)| *asker == from && request.number == number);
                if own { self.machine.stop("who asked for it gave it up") } else { Vec::new() }
            }
            _ => Vec::new(),
        }
    }

    /// A member waits for the others; the last one begins.
    fn gather(&mut self, member: u32, request: Request) -> Vec<Act> {
        self.gathering.insert(member, request);
        if self.gathering.len() < self.settings.num_shards as usize {
            return Vec::new();
        }
        if let Some((epoch, _)) = self.machine.under_way() {
            self.scatter(&format!("checkpoint {epoch} is under way; ask again when it is over"));
            return Vec::new();
        }
        let all = core::mem::take(&mut self.gathering);
        self.begin(all.into_iter().map(|(member, request)| (Peer::Server(ShardId(member)), request)).collect())
    }

    /// Members that waited for each other go on without.
    fn scatter(&mut self, why: &str) {
        for (member, request) in core::mem::take(&mut self.gathering) {
            self.tell(Peer::Server(ShardId(member)), &request, State::Aborted, None, why.to_owned());
        }
    }

    /// Refuses what a world that is over would do to the files of the next one.
    fn check_world(&self) -> Result<()> {
        self.world.map_or(Ok(()), |world| self.catalog.check_world(&RealDisk, world))
    }

    fn begin(&mut self, askers: Vec<(Peer, Request)>) -> Vec<Act> {
        let full = askers.iter().any(|(_, request)| request.full);
        let full = full || self.last == 0 || self.since_full + 1 >= self.settings.checkpoint_full_every;
        (self.askers, self.told) = (askers, None);
        let promised = self
            .check_world()
            .and_then(|()| random())
            .and_then(|nonce| Ok((self.catalog.promise(&RealDisk, nonce)?, random()?)));
        let (epoch, checkpoint) = match promised {
            Ok(promised) => promised,
            Err(error) => {
                self.epoch = 0;
                return vec![Act::Over(0, Err(error.message))];
            }
        };
        self.epoch = epoch;
        let order = Order {
            epoch,
            checkpoint,
            parent: if full { 0 } else { self.last },
            hold_ms: self.settings.checkpoint_hold_timeout_ms,
            write_ms: self.settings.checkpoint_write_timeout_ms,
        };
        self.machine.begin(now(), order)
    }

    fn perform(&mut self, acts: Vec<Act>) {
        let mut queue = VecDeque::from(acts);
        while let Some(act) = queue.pop_front() {
            match act {
                Act::Say(shard, command) => {
                    let epoch = if let Command::Prepare(order) = &command { order.epoch } else { self.epoch };
                    self.post.send(Peer::Server(ShardId(shard)), Message::Command(epoch, command));
                }
                Act::Commit(done) => {
                    let written = self.commit(&done).map_err(|error| error.message);
                    queue.extend(self.machine.committed(written));
                }
                Act::Over(epoch, result) => self.over(epoch, result),
            }
        }
        let state = match self.machine.under_way() {
            Some((_, Phase::Holding)) => State::Holding,
            Some((_, Phase::Capturing)) => State::Capturing,
            Some((_, Phase::Writing | Phase::Committing)) => State::Writing,
            None => return,
        };
        if self.told != Some(state) {
            self.told = Some(state);
            for (asker, request) in &self.askers {
                self.tell(*asker, request, state, None, String::new());
            }
        }
    }

    fn tell(&self, asker: Peer, request: &Request, state: State, done: Option<&Done>, why: String) {
        let sum =
            |of: fn(&crate::checkpoint::cut::WrittenFile) -> u64| done.map_or(0, |d| d.files.values().map(of).sum());
        let note = Note {
            number: request.number,
            epoch: self.epoch,
            state,
            hold_ns: done.map_or(self.machine.hold_ns(), |done| done.hold_ns),
            total_ns: done.map_or(0, |done| done.total_ns),
            state_bytes: sum(|file| file.state_bytes),
            written_bytes: sum(|file| file.own_bytes),
            why,
        };
        self.post.send(asker, Message::Note(note));
    }

    fn over(&mut self, epoch: u64, result: core::result::Result<Done, String>) {
        let askers = core::mem::take(&mut self.askers);
        self.tally.ended(result.is_ok());
        match &result {
            Ok(done) => {
                self.since_full = if done.order.parent == 0 { 0 } else { self.since_full + 1 };
                self.last = epoch;
                let (state, written) =
                    done.files.values().fold((0, 0), |(s, w), f| (s + f.state_bytes, w + f.own_bytes));
                crate::event!(
                    crate::observe::Level::INFO,
                    crate::observe::events::CHECKPOINT_COMMITTED,
                    epoch,
                    parent = done.order.parent,
                    hold_us = done.hold_ns / 1000,
                    capture_us = done.capture_ns / 1000,
                    total_ms = done.total_ns / 1_000_000,
                    state_bytes = state,
                    written_bytes = written
                );
            }
            Err(why) => {
                crate::event!(
                    crate::observe::Level::ERROR,
                    crate::observe::events::CHECKPOINT_ABORTED,
                    epoch,
                    error = why
                );
            }
        }
        for (peer, request) in &askers {
            let (state, why) = match &result {
                Ok(_) => (State::Committed, String::new()),
                Err(why) => (State::Aborted, why.clone()),
            };
            self.tell(*peer, request, state, result.as_ref().ok(), why);
        }
        if result.is_ok() {
            self.collect(epoch);
        }
    }

    /// What nobody needs any more goes; nothing depends on it.
    fn collect(&self, epoch: u64) {
        let keep = self.settings.checkpoint_keep as usize;
        match self.catalog.collect(&RealDisk, job(&self.settings).0, keep, epoch, &self.damaged) {
            Ok(gone) if gone.is_empty() => {}
            Ok(gone) => crate::event!(crate::observe::Level::DEBUG, crate::observe::events::CHECKPOINT_COLLECTED,
                epochs = ?gone, kept = keep),
            Err(error) => crate::event!(crate::observe::Level::WARN, crate::observe::events::CHECKPOINT_COLLECTED,
                error = %error),
        }
    }

    fn commit(&mut self, done: &Done) -> Result<()> {
        let order = &done.order;
        let (job, job_name) = job(&self.settings);
        let world = self.settings.num_shards;
        let mut members: Vec<Member> = done
            .files
            .iter()
            .map(|(rank, file)| {
                let (bytes, digest, state_bytes) = (file.bytes, file.digest, file.state_bytes);
                Member { role: self.role, rank: *rank, world, bytes, digest, state_bytes }
            })
            .collect();
        if let [(_, Request { section: Some((name, bytes)), .. })] = &self.askers[..] {
            members.push(self.write_section(order, job, name, bytes)?);
        }
        let needs: BTreeSet<u64> = done.files.values().flat_map(|file| file.needs.iter().copied()).collect();
        let hash_method = u32::from(self.settings.hash_method == HashMethod::SimpleMod);
        let manifest = Manifest {
            checkpoint: order.checkpoint,
            job,
            job_name,
            epoch: order.epoch,
            parent: order.parent,
            unix_us: unix_us(),
            hash_method,
            timing: Timing { hold_ns: done.hold_ns, capture_ns: done.capture_ns, total_ns: done.total_ns },
            members,
            needs: needs.into_iter().collect(),
        };
        self.check_world()?;
        self.catalog.commit(&RealDisk, &manifest, random()?)?;
        steps::at("committed");
        Ok(())
    }

    fn write_section(&self, order: &Order, job: u128, name: &str, bytes: &[u8]) -> Result<Member> {
        if bytes.len() > CHUNK_BYTES_MAX {
            return Err(Error::new(
                Status::InvalidArgument,
                format!("a section of {} bytes is too large", bytes.len()),
            ));
        }
        let block = Superblock {
            minor: 0,
            required: 0,
            optional: 0,
            checkpoint: order.checkpoint,
            job,
            epoch: order.epoch,
            role: Role::App as u32,
            rank: 0,
            world: 1,
            instance: self.incarnation.0,
            unix_us: unix_us(),
        };
        let file = Role::App.file_name(0, 1);
        let directory = self.catalog.directory_of(order.epoch);
        let unfinished = Unfinished::create(&RealDisk, &directory, &file, random()?, 0)?;
        let plan = SectionPlan {
            kind: SectionKind::App,
            id: 0,
            name: name.to_owned(),
            version: 1,
            optional: false,
            chunks: 1,
        };
        let source = Application(bytes);
        let task = Task { name: &file, block: &block, plans: &[plan], source: &source, known: None, threads: 1 };
        let Written { bytes, digest, state_bytes, .. } = write_container(&RealDisk, unfinished, &task)?;
        Ok(Member { role: Role::App, rank: 0, world: 1, bytes, digest, state_bytes })
    }
}
