//! A deployment as somebody sees it who looks from outside: members, what they last said of themselves, what happened.

#![forbid(unsafe_code)]

use super::health::Health;
use super::identity::check_observer;
use super::limits::{FIGURE_NAME_BYTES_MAX, FIGURES_MAX};
use super::messages::{Answer, Notice, SessionId, Ticket};
use super::refusal::{Reason, Refusal};
use super::secret::Secret;
use super::session::{Plane, State};
use super::types::Peer;
use crate::error::Status;
use crate::ids::Incarnation;
use crate::observe::recent::{RECENT_MAX, RECENT_TEXT_BYTES_MAX, Recent};
use crate::observe::{Level, events};
use crate::time::Tick;

/// Who looks.
#[derive(Clone, Debug)]
pub struct Observer {
    /// The deployment that it means.
    pub deployment_id: String,
    /// Its namespace.
    pub namespace: String,
    /// The deployment's secret.
    pub secret: Secret,
}

/// How far a member has come.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Stage {
    /// It is here.
    Joined,
    /// It serves.
    Ready,
    /// It is about to leave.
    Draining,
}

impl Stage {
    /// Its word.
    #[must_use]
    pub fn word(self) -> &'static str {
        match self {
            Stage::Joined => "joined",
            Stage::Ready => "ready",
            Stage::Draining => "draining",
        }
    }
}

/// What a member said of itself.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Report {
    /// How long ago.
    pub age_ms: u64,
    /// Names and numbers.
    pub figures: Vec<(String, u64)>,
}

/// A member.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Seen {
    /// Its name.
    pub peer: Peer,
    /// Its life.
    pub incarnation: Incarnation,
    /// Its process.
    pub pid: u32,
    /// Where that runs.
    pub host: String,
    /// How far it has come.
    pub stage: Stage,
    /// Of a shard that was heard of: what is thought of it.
    pub health: Option<Health>,
    /// Since it was heard of.
    pub idle_ms: u64,
    /// What it said last.
    pub report: Option<Report>,
}

/// What a member says of itself when it is asked.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct SelfReport {
    /// Names and numbers.
    pub figures: Vec<(String, u64)>,
    /// What happened lately in its process.
    pub events: Vec<Recent>,
}

/// Something that happened.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Happened {
    /// Counts from 1.
    pub number: u64,
    /// How long ago.
    pub age_ms: u64,
    /// To whom.
    pub peer: Peer,
    /// joined, left, died, ready, draining, serving, suspect or dead; or the event in the words of the member.
    pub what: String,
    /// The member said so; else the control plane saw it.
    pub is_said: bool,
}

/// A deployment.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Overview {
    /// Its epoch.
    pub epoch: u64,
    /// Its shards, whether they are here or not.
    pub num_shards: u32,
    /// The control plane's life.
    pub life: Incarnation,
    /// Its members.
    pub members: Vec<Seen>,
    /// What happened lately, in order.
    pub events: Vec<Happened>,
}

/// Who comes and goes is an event of the control plane's process.
fn report(about: Peer, notice: &Notice) {
    match notice {
        Notice::MemberJoined { incarnation, .. } => {
            crate::event!(Level::INFO, events::MEMBER_JOINED, member = %about, incarnation = %incarnation);
        }
        Notice::MemberLeft { incarnation, died: false, .. } => {
            crate::event!(Level::INFO, events::MEMBER_LEFT, member = %about, incarnation = %incarnation, died = false);
        }
        Notice::MemberLeft { incarnation, died: true, .. } => {
            crate::event!(Level::WARN, events::MEMBER_LEFT, member = %about, incarnation = %incarnation, died = true);
        }
        _ => {}
    }
}

fn ms_since(now: Tick, then: Tick) -> u64 {
    now.since_ns(then) / 1_000_000
}

impl Plane {
    /// Keeps what everybody is told.
    pub(super) fn note(&mut self, about: Peer, notice: &Notice) {
        report(about, notice);
        let what = match notice {
            Notice::MemberJoined { .. } => "joined",
            Notice::MemberLeft { died: false, .. } => "left",
            Notice::MemberLeft { died: true, .. } => "died",
            Notice::ServerReady(_) => "ready",
            Notice::ServerDraining(_) => "draining",
            Notice::ServerHealth { health, .. } => health.name(),
            Notice::LanesPublished { .. } | Notice::CaughtUp | Notice::ReportWanted | Notice::Mail { .. } => return,
        };
        let now = self.now;
        self.history.note(now, about, what);
    }

    /// Tells an observer what is known now, and asks the members for what they know themselves.
    pub(super) fn observe(&mut self, now: Tick, ticket: Ticket, observer: &Observer) {
        if let Err(refusal) = check_observer(&self.identity, observer) {
            return self.refuse(ticket, refusal);
        }
        let members = self.sessions.values().map(|entry| {
            let health = match entry.peer {
                Peer::Server(shard) => Some(self.beats.report(now, shard)).filter(|report| report.known),
                Peer::Client(_) => None,
            };
            let report = entry.report.as_ref();
            Seen {
                peer: entry.peer,
                incarnation: entry.incarnation,
                pid: entry.pid,
                host: entry.host.clone(),
                stage: match entry.state {
                    State::Joined => Stage::Joined,
                    State::Ready => Stage::Ready,
                    State::Draining => Stage::Draining,
                },
                health: health.map(|report| report.health),
                idle_ms: health.map_or(0, |report| report.idle_ms),
                report: report.map(|(at, figures)| Report { age_ms: ms_since(now, *at), figures: figures.clone() }),
            }
        });
        let overview = Overview {
            epoch: self.identity.epoch.0,
            num_shards: self.identity.num_shards,
            life: Incarnation(0),
            members: members.collect(),
            events: self.history.all(now),
        };
        self.answer(ticket, Answer::Deployment(Box::new(overview)));
        // A member that has not answered the last question is not asked again: its stream must not fill up.
        let asked: Vec<SessionId> = self
            .sessions
            .iter_mut()
            .filter_map(|(session, entry)| (!core::mem::replace(&mut entry.is_asked, true)).then_some(*session))
            .collect();
        asked.into_iter().for_each(|session| self.tell(session, Notice::ReportWanted));
    }

    /// Keeps what a member says of itself.
    pub(super) fn report(
        &mut self,
        now: Tick,
        session: SessionId,
        report: SelfReport,
    ) -> Result<Option<Answer>, Refusal> {
        let legal = |name: &str| {
            let spelled = name.bytes().all(|b| b.is_ascii_lowercase() || b.is_ascii_digit() || b == b'_');
            spelled && (1..=FIGURE_NAME_BYTES_MAX).contains(&name.len())
        };
        let SelfReport { figures, events } = report;
        let told =
            |event: &Recent| event.text.len() <= RECENT_TEXT_BYTES_MAX && !event.text.chars().any(char::is_control);
        let few = figures.len() <= FIGURES_MAX && events.len() <= RECENT_MAX;
        if !few || !figures.iter().all(|(name, _)| legal(name)) || !events.iter().all(told) {
            let message = format!(
                "a report has at most {FIGURES_MAX} numbers with names of small letters and digits, and {RECENT_MAX} \
                 events of {RECENT_TEXT_BYTES_MAX} printable bytes"
            );
            return Err(Refusal::new(Status::InvalidArgument, Reason::TooLarge, message));
        }
        let Some(entry) = self.sessions.get_mut(&session) else { return Err(Refusal::unknown_session()) };
        entry.report = Some((now, figures));
        entry.is_asked = false;
        self.history.hear(now, entry.peer, &entry.host, entry.pid, events);
        Ok(Some(Answer::Done))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::control::messages::{Action, Ask, Input};
    use crate::control::secret::Proof;
    use crate::control::types::{Identity, Member, Role};
    use crate::ids::{Epoch, ShardId};

    const LIFE: Incarnation = Incarnation(7);

    fn plane() -> Plane {
        let identity = Identity {
            deployment_id: "d".into(),
            epoch: Epoch(3),
            namespace: "n".into(),
            num_shards: 2,
            layout: String::new(),
            secret: Secret::received(Vec::new()).expect("none"),
        };
        let mut plane = Plane::new(identity.clone(), Incarnation(1));
        let member = Member { role: Role::Server(ShardId(1)), incarnation: LIFE, pid: 4711, host: "h".into() };
        plane.handle(Tick(0), Input::Join { ticket: Ticket(1), identity, member, proof: Proof::default() });
        plane
    }

    fn look(plane: &mut Plane, at: Tick, deployment: &str) -> Vec<Action> {
        let secret = Secret::received(Vec::new()).expect("none");
        let observer = Observer { deployment_id: deployment.into(), namespace: "n".into(), secret };
        plane.handle(at, Input::Observe { ticket: Ticket(9), observer })
    }

    fn say(plane: &mut Plane, at: Tick, figures: Vec<(String, u64)>, events: Vec<Recent>) -> Vec<Action> {
        let (session, incarnation, deadline) = (SessionId(1), LIFE, at);
        let ask = Ask::Report(SelfReport { figures, events });
        plane.handle(at, Input::Ask { ticket: Ticket(2), session, incarnation, ask, deadline })
    }

    fn event(text: String) -> Recent {
        Recent { number: 9, age_ms: 2, text }
    }

    fn seen(actions: &[Action]) -> &Overview {
        match actions {
            [Action::Answer(_, Answer::Deployment(overview)), ..] => overview,
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn a_member_is_asked_once_until_it_answers_and_what_it_says_is_shown_with_its_age() {
        let mut plane = plane();
        let first = look(&mut plane, Tick(0), "d");
        let overview = seen(&first);
        assert_eq!((overview.epoch, overview.num_shards, overview.members.len()), (3, 2, 1));
        assert_eq!((overview.members[0].pid, overview.members[0].report.as_ref()), (4711, None));
        assert_eq!(overview.events[0].what, "joined");
        assert_eq!(first[1..], [Action::Tell(SessionId(1), Notice::ReportWanted)]);
        assert_eq!(look(&mut plane, Tick(0), "d").len(), 1, "it has not answered yet");
        say(&mut plane, Tick(1_000_000), vec![("gets".into(), 5)], vec![event("warn lane_dirty shard=0".into())]);
        let second = look(&mut plane, Tick(4_000_000), "d");
        let report = seen(&second).members[0].report.clone().expect("a report");
        assert_eq!(report, Report { age_ms: 3, figures: vec![("gets".into(), 5)] });
        assert_eq!(second.len(), 2);
        let said = seen(&second).events.iter().find(|event| event.is_said).expect("what it said happened");
        assert_eq!((said.what.as_str(), said.peer), ("warn lane_dirty shard=0", Peer::Server(ShardId(1))));
    }

    #[test]
    fn other_deployments_and_reports_without_bounds_are_refused() {
        let mut plane = plane();
        assert!(matches!(look(&mut plane, Tick(0), "x")[..], [Action::Answer(_, Answer::Refused(_))]));
        let many = vec![("a".to_owned(), 1); FIGURES_MAX + 1];
        for bad in [many, vec![("A\n".to_owned(), 1)], vec![(String::new(), 1)], vec![("a".repeat(100), 1)]] {
            let said = say(&mut plane, Tick(0), bad, Vec::new());
            assert!(matches!(said[..], [Action::Answer(_, Answer::Refused(_))]));
        }
        let many = vec![event(String::new()); RECENT_MAX + 1];
        for bad in [many, vec![event("a\x1b[31m".into())], vec![event("a".repeat(RECENT_TEXT_BYTES_MAX + 1))]] {
            let said = say(&mut plane, Tick(0), Vec::new(), bad);
            assert!(matches!(said[..], [Action::Answer(_, Answer::Refused(_))]));
        }
    }
}
