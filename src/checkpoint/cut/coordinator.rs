//! The coordinator's machine: one checkpoint at a time.

#![forbid(unsafe_code)]

use super::message::{Command, Order, Report, WrittenFile};
use crate::time::Tick;
use core::time::Duration;
use std::collections::{BTreeMap, BTreeSet};

/// Where a checkpoint stands.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum Phase {
    /// Gates are shutting.
    Holding,
    /// Everybody copies.
    Capturing,
    /// Everybody works and writes.
    Writing,
    /// The manifest is being written.
    Committing,
}

/// What to do.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Act {
    /// Say something to a participant.
    Say(u32, Command),
    /// Write the manifest; then [`Coordinator::committed`].
    Commit(Done),
    /// It is over: what became of it.
    Over(u64, Result<Done, String>),
}

/// What all participants have written.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Done {
    /// The attempt.
    pub order: Order,
    /// Files by participant.
    pub files: BTreeMap<u32, WrittenFile>,
    /// From PREPARE to the last CAPTURED: at least as long as any gate was shut.
    pub hold_ns: u64,
    /// Longest capture.
    pub capture_ns: u64,
    /// From PREPARE to the last DURABLE.
    pub total_ns: u64,
}

#[derive(Debug)]
struct Attempt {
    order: Order,
    phase: Phase,
    started: Tick,
    deadline: Tick,
    /// Participants that have not reported in this phase.
    missing: BTreeSet<u32>,
    files: BTreeMap<u32, WrittenFile>,
    hold_ns: u64,
    capture_ns: u64,
    total_ns: u64,
}

/// The machine.
#[derive(Debug)]
pub struct Coordinator {
    participants: u32,
    /// What a participant is called.
    noun: &'static str,
    attempt: Option<Attempt>,
}

impl Coordinator {
    /// For participants `0..participants`.
    #[must_use]
    pub fn new(participants: u32) -> Coordinator {
        Coordinator { participants, noun: "shard", attempt: None }
    }

    /// What reasons call a participant, instead of "shard".
    #[must_use]
    pub fn of(mut self, noun: &'static str) -> Coordinator {
        self.noun = noun;
        self
    }

    /// The attempt that is under way, and where it stands.
    #[must_use]
    pub fn under_way(&self) -> Option<(u64, Phase)> {
        self.attempt.as_ref().map(|attempt| (attempt.order.epoch, attempt.phase))
    }

    /// How long gates were shut, once they are open again.
    #[must_use]
    pub fn hold_ns(&self) -> u64 {
        self.attempt.as_ref().map_or(0, |attempt| attempt.hold_ns)
    }

    fn everybody(&self) -> BTreeSet<u32> {
        (0..self.participants).collect()
    }

    fn say_all(&self, command: &Command) -> Vec<Act> {
        (0..self.participants).map(|one| Act::Say(one, command.clone())).collect()
    }

    /// Begins, with an epoch that is durably promised. The caller has seen that nothing is under way.
    pub fn begin(&mut self, now: Tick, order: Order) -> Vec<Act> {
        let mut acts = self.abort("another checkpoint was begun");
        self.attempt = Some(Attempt {
            order,
            phase: Phase::Holding,
            started: now,
            deadline: now.after(Duration::from_millis(order.hold_ms)),
            missing: self.everybody(),
            files: BTreeMap::new(),
            hold_ns: 0,
            capture_ns: 0,
            total_ns: 0,
        });
        acts.extend(self.say_all(&Command::Prepare(order)));
        acts
    }

    /// A participant has reported.
    pub fn heard(&mut self, now: Tick, from: u32, epoch: u64, report: Report) -> Vec<Act> {
        let Some(attempt) = self.attempt.as_mut().filter(|attempt| attempt.order.epoch == epoch) else {
            return Vec::new();
        };
        match (attempt.phase, report) {
            (Phase::Committing, _) => return Vec::new(),
            (_, Report::Failed(why)) => {
                let why = format!("{} {from}: {why}", self.noun);
                return self.abort(&why);
            }
            (Phase::Holding, Report::Held) => {}
            (Phase::Capturing, Report::Captured(ns)) => attempt.capture_ns = attempt.capture_ns.max(ns),
            (Phase::Writing, Report::Durable(file)) => {
                attempt.files.insert(from, file);
            }
            // Told twice, or late.
            _ => return Vec::new(),
        }
        if !attempt.missing.remove(&from) || !attempt.missing.is_empty() {
            return Vec::new();
        }
        self.next(now)
    }

    /// All have reported: the next phase.
    fn next(&mut self, now: Tick) -> Vec<Act> {
        let everybody = self.everybody();
        let Some(attempt) = self.attempt.as_mut() else { return Vec::new() };
        let since = now.since_ns(attempt.started);
        let command = match attempt.phase {
            Phase::Holding => {
                attempt.phase = Phase::Capturing;
                Command::Cut
            }
            Phase::Capturing => {
                attempt.hold_ns = since;
                attempt.phase = Phase::Writing;
                attempt.deadline = now.after(Duration::from_millis(attempt.order.write_ms));
                Command::Resume
            }
            Phase::Writing | Phase::Committing => {
                attempt.total_ns = since;
                attempt.phase = Phase::Committing;
                return vec![Act::Commit(attempt.done())];
            }
        };
        attempt.missing = everybody;
        self.say_all(&command)
    }

    /// The manifest is durable, or is not.
    pub fn committed(&mut self, result: Result<(), String>) -> Vec<Act> {
        if self.attempt.as_ref().is_none_or(|attempt| attempt.phase != Phase::Committing) {
            return Vec::new();
        }
        if let Err(why) = result {
            return self.abort(&why);
        }
        let mut acts = self.say_all(&Command::Commit);
        acts.extend(self.attempt.take().map(|attempt| Act::Over(attempt.order.epoch, Ok(attempt.done()))));
        acts
    }

    /// A participant is gone. Once the manifest is being written nobody is needed any more.
    pub fn left(&mut self, who: u32) -> Vec<Act> {
        match self.under_way() {
            Some((_, phase)) if phase < Phase::Committing && who < self.participants => {
                let why = format!("{} {who} is gone", self.noun);
                self.abort(&why)
            }
            _ => Vec::new(),
        }
    }

    /// Gives up, unless the manifest is being written already.
    pub fn stop(&mut self, why: &str) -> Vec<Act> {
        match self.under_way() {
            Some((_, phase)) if phase < Phase::Committing => self.abort(why),
            _ => Vec::new(),
        }
    }

    /// When [`Coordinator::tick`] has something to do.
    #[must_use]
    pub fn deadline(&self) -> Option<Tick> {
        self.attempt.as_ref().filter(|attempt| attempt.phase < Phase::Committing).map(|attempt| attempt.deadline)
    }

    /// The time has come.
    pub fn tick(&mut self, now: Tick) -> Vec<Act> {
        let Some(attempt) = self.attempt.as_ref().filter(|_| self.deadline().is_some_and(|deadline| deadline <= now))
        else {
            return Vec::new();
        };
        let missing: Vec<String> = attempt.missing.iter().take(8).map(u32::to_string).collect();
        let (missing, phase) = (missing.join(", "), attempt.phase);
        let noun = self.noun;
        let option = if phase == Phase::Writing { "checkpoint-write-timeout-ms" } else { "checkpoint-hold-timeout-ms" };
        self.abort(&format!("{phase:?} took longer than {option} allows; not heard of: {noun} {missing}"))
    }

    fn abort(&mut self, why: &str) -> Vec<Act> {
        let Some(attempt) = self.attempt.take() else { return Vec::new() };
        let mut acts = self.say_all(&Command::Abort(why.to_owned()));
        acts.push(Act::Over(attempt.order.epoch, Err(why.to_owned())));
        acts
    }
}

impl Attempt {
    fn done(&self) -> Done {
        Done {
            order: self.order,
            files: self.files.clone(),
            hold_ns: self.hold_ns,
            capture_ns: self.capture_ns,
            total_ns: self.total_ns,
        }
    }
}
