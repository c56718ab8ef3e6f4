//! The control plane's process: the real state machine, with letters instead of gRPC.

use super::control_tick;
use super::wires::{Letter, Wire, Wires};
use crate::control::messages::{Action, Answer, Input, SessionId, Ticket};
use crate::control::{Identity, Plane, Proof, Thresholds};
use crate::ids::Incarnation;
use crate::options::Settings;
use core::time::Duration;
use std::collections::BTreeMap;

/// One life of the control plane.
#[derive(Debug)]
pub(super) struct PlaneProcess {
    plane: Plane,
    life: Incarnation,
    calls: BTreeMap<Ticket, (Wire, u64)>,
    wires: BTreeMap<SessionId, Wire>,
    next_ticket: u64,
}

/// How long a call may wait, on the control plane's clock.
const WAIT_NS: u64 = 60_000_000_000;

impl PlaneProcess {
    pub(super) fn new(identity: Identity, life: Incarnation, settings: &Settings) -> PlaneProcess {
        let thresholds = Thresholds {
            stale: Duration::from_millis(settings.health_stale_ms),
            dead: Duration::from_millis(settings.health_dead_ms),
        };
        PlaneProcess {
            plane: Plane::new(identity, life).with_thresholds(thresholds),
            life,
            calls: BTreeMap::new(),
            wires: BTreeMap::new(),
            next_ticket: 1,
        }
    }

    pub(super) fn next_ns(&self) -> Option<u64> {
        self.plane.next_deadline().map(|at| at.0.div_ceil(super::CONTROL_SPEED))
    }

    pub(super) fn tick(&mut self, now: u64, wires: &mut Wires) {
        let actions = self.plane.tick(control_tick(now));
        self.act(now, actions, wires);
    }

    pub(super) fn receive(&mut self, now: u64, wire: Wire, letter: Letter, wires: &mut Wires) {
        let ticket = Ticket(self.next_ticket);
        let input = match letter {
            Letter::Join { ask, identity, member } => {
                self.next_ticket += 1;
                self.calls.insert(ticket, (wire, ask));
                Input::Join { ticket, identity: *identity, member: *member, proof: Proof::default() }
            }
            Letter::Ask { ask, session, incarnation, what } => {
                self.next_ticket += 1;
                self.calls.insert(ticket, (wire, ask));
                let mut deadline = control_tick(now);
                deadline.0 += WAIT_NS;
                Input::Ask { ticket, session, incarnation, ask: what, deadline }
            }
            Letter::Broken => {
                let waiting: Vec<Ticket> =
                    self.calls.iter().filter(|(_, call)| call.0 == wire).map(|(ticket, _)| *ticket).collect();
                for ticket in waiting {
                    self.calls.remove(&ticket);
                    let actions = self.plane.handle(control_tick(now), Input::Cancel(ticket));
                    self.act(now, actions, wires);
                }
                let Some(session) = self.wires.iter().find(|(_, w)| **w == wire).map(|(session, _)| *session) else {
                    return;
                };
                self.wires.remove(&session);
                Input::Gone(session)
            }
            Letter::Answer { .. } | Letter::Notice(_) => return,
        };
        let actions = self.plane.handle(control_tick(now), input);
        self.act(now, actions, wires);
    }

    fn act(&mut self, now: u64, actions: Vec<Action>, wires: &mut Wires) {
        for action in actions {
            match action {
                Action::Answer(ticket, answer) => {
                    let Some((wire, ask)) = self.calls.remove(&ticket) else { continue };
                    if let Answer::Joined { session, .. } = answer {
                        self.wires.insert(session, wire);
                    }
                    wires.send(now, wire, false, Letter::Answer { ask, answer, life: self.life });
                }
                Action::Tell(session, notice) => {
                    if let Some(wire) = self.wires.get(&session) {
                        wires.send(now, *wire, false, Letter::Notice(notice));
                    }
                }
                Action::End(session) => {
                    if let Some(wire) = self.wires.remove(&session) {
                        wires.close(now, wire, true);
                    }
                }
            }
        }
    }
}
