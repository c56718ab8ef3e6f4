//! A participant's machine.

#![forbid(unsafe_code)]

use super::message::{Command, Order, Report, WrittenFile};
use crate::time::Tick;
use core::time::Duration;

/// What to do.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Deed {
    /// Shut the gate until then at most; [`Participant::gate_shut`] when nothing is under way any more.
    ShutGate(Order, Tick),
    /// Copy; then [`Participant::captured`].
    Capture,
    /// Let work go on.
    OpenGate,
    /// Write what was copied; then [`Participant::written`].
    Write(Order),
    /// Throw away what was copied and written.
    Discard,
    /// It exists: what was written is what the next one builds on.
    Keep,
    /// Tell the coordinator.
    Say(u64, Report),
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum State {
    Run,
    Shutting,
    Held,
    Capturing,
    Captured,
    Writing,
    Durable,
}

/// The machine.
#[derive(Debug)]
pub struct Participant {
    state: State,
    order: Order,
    /// Highest epoch that was ever followed.
    highest: u64,
    deadline: Tick,
}

const NONE: Order = Order { epoch: 0, checkpoint: 0, parent: 0, hold_ms: 0, write_ms: 0 };

impl Participant {
    /// Working, having followed nobody. `highest` fences epochs up to it.
    #[must_use]
    pub fn new(highest: u64) -> Participant {
        Participant { state: State::Run, order: NONE, highest, deadline: Tick(u64::MAX) }
    }

    /// Whether the gate is shut, or shutting.
    #[must_use]
    pub fn is_held(&self) -> bool {
        matches!(self.state, State::Shutting | State::Held | State::Capturing | State::Captured)
    }

    /// When [`Participant::tick`] has something to do.
    #[must_use]
    pub fn deadline(&self) -> Option<Tick> {
        (self.state != State::Run).then_some(self.deadline)
    }

    /// The coordinator has spoken.
    pub fn heard(&mut self, now: Tick, epoch: u64, command: &Command) -> Vec<Deed> {
        if let Command::Prepare(order) = command {
            return self.prepare(now, *order);
        }
        if epoch != self.order.epoch || self.state == State::Run {
            return Vec::new();
        }
        match (command, self.state) {
            (Command::Cut, State::Held) => {
                self.state = State::Capturing;
                vec![Deed::Capture]
            }
            (Command::Resume, State::Captured) => {
                self.state = State::Writing;
                self.deadline = now.after(Duration::from_millis(self.order.write_ms));
                vec![Deed::OpenGate, Deed::Write(self.order)]
            }
            (Command::Commit, State::Durable) => {
                self.state = State::Run;
                vec![Deed::Keep]
            }
            (Command::Abort(_), _) => self.give_up(None),
            _ => Vec::new(),
        }
    }

    fn prepare(&mut self, now: Tick, order: Order) -> Vec<Deed> {
        if order.epoch <= self.highest {
            // An old coordinator, or the same word twice.
            if order.epoch == self.order.epoch && self.state != State::Run {
                return Vec::new();
            }
            let why = format!("epoch {} is fenced: epoch {} was followed already", order.epoch, self.highest);
            return vec![Deed::Say(order.epoch, Report::Failed(why))];
        }
        let mut deeds = if self.state == State::Run { Vec::new() } else { self.give_up(None) };
        self.highest = order.epoch;
        self.order = order;
        self.state = State::Shutting;
        self.deadline = now.after(Duration::from_millis(order.hold_ms));
        deeds.push(Deed::ShutGate(order, self.deadline));
        deeds
    }

    /// The gate is shut and nothing is under way; or that could not be had.
    pub fn gate_shut(&mut self, result: Result<(), String>) -> Vec<Deed> {
        match (self.state, result) {
            (State::Shutting, Ok(())) => {
                self.state = State::Held;
                vec![Deed::Say(self.order.epoch, Report::Held)]
            }
            (State::Shutting, Err(why)) => self.give_up(Some(why)),
            _ => Vec::new(),
        }
    }

    /// Everything was copied, within so many nanoseconds; or not.
    pub fn captured(&mut self, result: Result<u64, String>) -> Vec<Deed> {
        match (self.state, result) {
            (State::Capturing, Ok(ns)) => {
                self.state = State::Captured;
                vec![Deed::Say(self.order.epoch, Report::Captured(ns))]
            }
            (State::Capturing, Err(why)) => self.give_up(Some(why)),
            _ => Vec::new(),
        }
    }

    /// The file is durable; or not.
    pub fn written(&mut self, result: Result<WrittenFile, String>) -> Vec<Deed> {
        match (self.state, result) {
            (State::Writing, Ok(file)) => {
                self.state = State::Durable;
                vec![Deed::Say(self.order.epoch, Report::Durable(file))]
            }
            (State::Writing, Err(why)) => self.give_up(Some(why)),
            _ => Vec::new(),
        }
    }

    /// The coordinator's process is gone: nobody will say CUT or RESUME. What is being written may be committed yet.
    pub fn coordinator_lost(&mut self) -> Vec<Deed> {
        if !self.is_held() {
            return Vec::new();
        }
        self.give_up(Some("the coordinator is gone".to_owned()))
    }

    /// The time has come.
    pub fn tick(&mut self, now: Tick) -> Vec<Deed> {
        if self.deadline().is_none_or(|deadline| now < deadline) {
            return Vec::new();
        }
        let why = if self.is_held() {
            "the gate was shut for checkpoint-hold-timeout-ms and the coordinator was silent"
        } else {
            "no COMMIT came within checkpoint-write-timeout-ms"
        };
        self.give_up(Some(why.to_owned()))
    }

    /// Back to work; the coordinator is told when there is something to tell.
    fn give_up(&mut self, why: Option<String>) -> Vec<Deed> {
        let mut deeds = Vec::new();
        if self.is_held() {
            deeds.push(Deed::OpenGate);
        }
        deeds.push(Deed::Discard);
        deeds.extend(why.map(|why| Deed::Say(self.order.epoch, Report::Failed(why))));
        self.state = State::Run;
        deeds
    }
}
