//! A rank's part in checkpoints: holds the program and the lanes, copies, lets both go on, writes.

use super::contents::{Contents, Spare, make_room};
use super::desk::Consent;
use crate::checkpoint::cut::{Deed, Message, Order, Participant, State, WrittenFile};
use crate::checkpoint::disk::RealDisk;
use crate::checkpoint::format::FileRef;
use crate::checkpoint::writer::{Known, Unfinished};
use crate::checkpoint::{Catalog, Role, Written, steps};
use crate::control::Peer;
use crate::engine::rank::core::Shared;
use crate::engine::server::checkpoint::{Filing, Item, LEADER, Post, catalog, random};
use crate::error::{Error, Result, Status};
use crate::fabric::Fabric;
use crate::memory::HoldId;
use crate::sync::{Arc, lock};
use crate::time::{Tick, now};
use core::time::Duration;
use std::collections::VecDeque;

/// Longest time between two looks whether the rank closes.
const LOOK: Duration = Duration::from_millis(500);
/// Bytes of a container beyond its regions, about.
const OVERHEAD_BYTES: u64 = 1 << 20;
/// The machine's deadline ends a hold; the gate's own is for a rank whose checkpoint thread is stuck. Who copies beyond
/// it finds the gate open, and gives the checkpoint up.
const LAPSE_AFTER: Duration = Duration::from_secs(60);

/// An attempt that this rank takes part in.
#[derive(Debug)]
struct Attempt {
    unfinished: Option<Unfinished>,
    contents: Contents,
    written: Option<(FileRef, Written)>,
}

/// The thread's state.
#[derive(Debug)]
pub(in crate::engine::rank) struct Member<F: Fabric> {
    shared: Arc<Shared<F>>,
    post: Post,
    catalog: Catalog,
    machine: Participant,
    attempt: Option<Attempt>,
    /// What holds the program, and the gate, while they are held.
    consent: Option<Consent>,
    hold: Option<HoldId>,
    /// The gate had opened by itself before it was to: what was copied may be mixed.
    mixed: bool,
    /// What the next one may build on.
    known: Option<(u64, Known)>,
    spare: Spare,
}

impl<F: Fabric> Member<F> {
    /// None: the job has no checkpoints.
    pub(in crate::engine::rank) fn new(shared: &Arc<Shared<F>>, post: Post) -> Option<Member<F>> {
        Some(Member {
            catalog: catalog(&shared.settings)?,
            shared: Arc::clone(shared),
            post,
            machine: Participant::new(0),
            attempt: None,
            consent: None,
            hold: None,
            mixed: false,
            known: None,
            spare: Spare::new(),
        })
    }

    /// Until the rank closes.
    pub(in crate::engine::rank) fn run(mut self) {
        let letters = Arc::clone(&self.post.member);
        while !letters.is_closed() {
            let until = now().after(LOOK).min(self.machine.deadline().unwrap_or(Tick(u64::MAX)));
            let deeds = match letters.next(until) {
                Some(Item::Letter(Peer::Server(LEADER), Message::Command(epoch, command))) => {
                    self.machine.heard(now(), epoch, &command)
                }
                Some(Item::Left(_)) => self.machine.coordinator_lost(),
                Some(_) => Vec::new(),
                None => self.machine.tick(now()),
            };
            let mut queue = VecDeque::from(deeds);
            while let Some(deed) = queue.pop_front() {
                queue.extend(self.perform(deed));
            }
        }
        self.open_gate();
        self.let_go(0, Err("this rank was closed"));
    }

    fn perform(&mut self, deed: Deed) -> Vec<Deed> {
        match deed {
            Deed::ShutGate(order, deadline) => {
                let shut = self.shut(&order, deadline).map_err(|error| error.message);
                self.machine.gate_shut(shut)
            }
            Deed::Capture => {
                let copied = self.capture().map_err(|error| error.message);
                self.machine.captured(copied)
            }
            Deed::OpenGate => {
                self.open_gate();
                steps::at("resumed");
                Vec::new()
            }
            Deed::Write(order) => {
                self.let_go(order.epoch, Ok(()));
                let written = self.write(&order).map_err(|error| error.message);
                if let Err(why) = &written {
                    crate::event!(
                        crate::observe::Level::ERROR,
                        crate::observe::events::CHECKPOINT_FAILED,
                        rank = self.shared.rank,
                        epoch = order.epoch,
                        error = why
                    );
                }
                steps::at("durable");
                self.machine.written(written)
            }
            Deed::Discard => {
                self.let_go(0, Err("it was given up before all ranks had copied"));
                if let Some(attempt) = self.attempt.take() {
                    attempt.unfinished.into_iter().for_each(|file| file.discard(&RealDisk));
                    self.spare.extend(attempt.contents.into_spare());
                }
                Vec::new()
            }
            Deed::Keep => {
                if let Some(attempt) = self.attempt.take() {
                    self.known = attempt.written.map(|(file, written)| (file.epoch, Known::of(file, &written.toc)));
                    self.spare = attempt.contents.into_spare();
                }
                Vec::new()
            }
            Deed::Say(epoch, report) => {
                self.post.send(Peer::Server(LEADER), Message::Report(epoch, report));
                Vec::new()
            }
        }
    }

    /// Everything that can be done before work stops; then the program rests, and then the lanes.
    fn shut(&mut self, order: &Order, deadline: Tick) -> Result<()> {
        let settings = &self.shared.settings;
        let regions = self.shared.home.facts();
        let name = Role::Rank.file_name(settings.shard_id, settings.num_shards);
        let directory = self.catalog.directory_of(order.epoch);
        let state: u64 = regions.iter().map(|region| region.bytes as u64).sum();
        // An incremental one takes less, nobody knows how much: it finds out when it writes.
        let bytes = if order.parent == 0 { state + OVERHEAD_BYTES } else { 0 };
        let unfinished = Unfinished::create(&RealDisk, &directory, &name, random()?, bytes)?;
        make_room(&mut self.spare, &regions);
        self.mixed = false;
        self.attempt = Some(Attempt { unfinished: Some(unfinished), contents: Contents::default(), written: None });
        steps::at("prepared");
        let consent = self.shared.desk.engage().ok_or_else(|| {
            let message = "its program does not rest: it is not in the call that takes a checkpoint, and has no hooks";
            Error::new(Status::Busy, message)
        })?;
        if let Consent::Hooks(hooks) = &consent {
            let held = hooks.hold(deadline.remaining());
            held.map_err(|why| Error::new(Status::Busy, format!("its hook 'hold' says: {why}")))?;
        }
        self.consent = Some(consent);
        let left = deadline.remaining();
        if left.is_zero() {
            let message = "coming to rest took longer than checkpoint-hold-timeout-ms allows";
            return Err(Error::new(Status::Busy, message));
        }
        self.hold = Some(self.shared.hold(left, left + LAPSE_AFTER)?);
        steps::at("held");
        Ok(())
    }

    fn open_gate(&mut self) {
        if let Some(id) = self.hold.take()
            && !self.shared.gate.open(id)
        {
            self.mixed = true;
        }
    }

    /// The program goes on: it was copied, or why it was not.
    fn let_go(&mut self, epoch: u64, copied: core::result::Result<(), &str>) {
        match self.consent.take() {
            Some(Consent::Joined(number)) => {
                let (state, why) = copied.map_or_else(|why| (State::Aborted, why), |()| (State::Writing, ""));
                self.shared.notes.advance(number, epoch, state, why);
            }
            Some(Consent::Hooks(hooks)) => hooks.resume(copied.is_ok()),
            // It may have been taken hold of without that this thread came to keep its word.
            None => {}
        }
        self.shared.desk.disengage();
    }

    fn capture(&mut self) -> Result<u64> {
        steps::at("cut");
        let started = now();
        let shared = &self.shared;
        let Some(attempt) = &mut self.attempt else {
            return Err(Error::new(Status::Bug, "a cut without a preparation"));
        };
        let lanes = shared.lanes();
        if let Some(lane) = lanes.iter().find(|lane| lane.posted != lane.retired) {
            let message = format!("rank {}: something was posted while this rank was held", lane.peer);
            return Err(Error::new(Status::Bug, message));
        }
        let contents = &mut attempt.contents;
        // SAFETY: every rank's gate is shut and everything posted is settled, and the program rests by its own word.
        unsafe { contents.copy::<F>(&shared.home.held(), &mut self.spare) };
        contents.lanes = lanes;
        contents.executed = lock(&shared.dedupe).export();
        contents.sections = match &self.consent {
            Some(Consent::Joined(_)) => shared.desk.take_sections(),
            Some(Consent::Hooks(hooks)) => hooks.sections(),
            None => return Err(Error::new(Status::Bug, "a cut of a program that was not held")),
        };
        let ns = now().since_ns(started);
        steps::at("captured");
        if self.hold.is_none_or(|id| !shared.gate.holds(id)) {
            return Err(Error::new(Status::Busy, "the gate opened by itself before everything was copied"));
        }
        Ok(ns)
    }

    fn write(&mut self, order: &Order) -> Result<WrittenFile> {
        if self.mixed {
            return Err(Error::new(Status::Busy, "the gate opened by itself before all ranks had copied"));
        }
        let settings = &self.shared.settings;
        let Some(attempt) = &mut self.attempt else {
            return Err(Error::new(Status::Bug, "a file without a copy"));
        };
        let Some(unfinished) = attempt.unfinished.take() else {
            return Err(Error::new(Status::Bug, "a file that was written already"));
        };
        attempt.contents.host =
            format!("host={}\npid={}\nfabric={}\n", crate::engine::host_name(), std::process::id(), F::NAME);
        attempt.contents.lay_out();
        let plans = attempt.contents.plans();
        let (role, incarnation) = (Role::Rank, self.shared.incarnation);
        let filing = Filing { settings, catalog: &self.catalog, role, incarnation };
        let filed = filing.write(order, unfinished, (&plans, &attempt.contents), self.known.as_ref());
        let (file, written, report) = filed?;
        attempt.written = Some((file, written));
        Ok(report)
    }
}
