//! Overviews on the wire.

use super::codec::{self, malformed, proto};
use super::health::Health;
use super::overview::{Happened, Observer, Overview, Report, Seen, SelfReport, Stage};
use super::refusal::Refusal;
use super::secret::Secret;
use crate::ids::Incarnation;
use crate::observe::recent::Recent;

const STAGES: [Stage; 3] = [Stage::Joined, Stage::Ready, Stage::Draining];

pub(super) fn figures_message(figures: &[(String, u64)]) -> Vec<proto::Figure> {
    figures.iter().map(|(name, value)| proto::Figure { name: name.clone(), value: *value }).collect()
}

fn figures(message: Vec<proto::Figure>) -> Vec<(String, u64)> {
    message.into_iter().map(|figure| (figure.name, figure.value)).collect()
}

pub(super) fn occurrences(events: &[Recent]) -> Vec<proto::Occurrence> {
    let one = |event: &Recent| {
        let Recent { number, age_ms, text } = event.clone();
        proto::Occurrence { number, age_ms, text }
    };
    events.iter().map(one).collect()
}

pub(super) fn report(message: Vec<proto::Figure>, events: Vec<proto::Occurrence>) -> SelfReport {
    let one = |event: proto::Occurrence| Recent { number: event.number, age_ms: event.age_ms, text: event.text };
    SelfReport { figures: figures(message), events: events.into_iter().map(one).collect() }
}

pub(super) fn observer_message(observer: &Observer) -> proto::ObserveRequest {
    proto::ObserveRequest {
        deployment_id: observer.deployment_id.clone(),
        namespace: observer.namespace.clone(),
        token: observer.secret.bytes(),
    }
}

pub(super) fn observer(message: proto::ObserveRequest) -> Result<Observer, Refusal> {
    let secret = Secret::received(message.token).ok_or_else(|| malformed("the token is too long"))?;
    Ok(Observer { deployment_id: message.deployment_id, namespace: message.namespace, secret })
}

pub(super) fn overview_message(overview: &Overview, life: Incarnation) -> proto::ObserveReply {
    let members = overview.members.iter().map(|seen| proto::MemberState {
        peer: Some(codec::peer_message(seen.peer)),
        incarnation: codec::incarnation_bytes(seen.incarnation),
        pid: seen.pid,
        host: seen.host.clone(),
        state: (1..).zip(STAGES).find(|(_, stage)| *stage == seen.stage).map_or(0, |(code, _)| code),
        health: seen.health.map_or(0, |health| health as u32),
        idle_ms: seen.idle_ms,
        has_report: seen.report.is_some(),
        report_age_ms: seen.report.as_ref().map_or(0, |report| report.age_ms),
        figures: seen.report.as_ref().map(|report| figures_message(&report.figures)).unwrap_or_default(),
    });
    let events = overview.events.iter().map(|event| proto::Told {
        number: event.number,
        age_ms: event.age_ms,
        peer: Some(codec::peer_message(event.peer)),
        what: event.what.clone(),
        is_said: event.is_said,
    });
    proto::ObserveReply {
        epoch: overview.epoch,
        num_shards: overview.num_shards,
        life: codec::incarnation_bytes(life),
        members: members.collect(),
        events: events.collect(),
    }
}

pub(super) fn overview(message: proto::ObserveReply) -> Result<Overview, Refusal> {
    let member = |state: proto::MemberState| {
        let report = Report { age_ms: state.report_age_ms, figures: figures(state.figures) };
        Ok(Seen {
            peer: codec::peer(state.peer)?,
            incarnation: codec::incarnation(&state.incarnation)?,
            pid: state.pid,
            host: state.host.chars().filter(|c| !c.is_control()).collect(),
            stage: (state.state as usize)
                .checked_sub(1)
                .and_then(|at| STAGES.get(at))
                .copied()
                .unwrap_or(Stage::Joined),
            health: Health::from_code(state.health),
            idle_ms: state.idle_ms,
            report: state.has_report.then_some(report),
        })
    };
    let event = |told: proto::Told| {
        let what = told.what.chars().filter(|c| !c.is_control()).collect();
        Ok(Happened {
            number: told.number,
            age_ms: told.age_ms,
            peer: codec::peer(told.peer)?,
            what,
            is_said: told.is_said,
        })
    };
    Ok(Overview {
        epoch: message.epoch,
        num_shards: message.num_shards,
        life: codec::incarnation(&message.life)?,
        members: message.members.into_iter().map(member).collect::<Result<_, Refusal>>()?,
        events: message.events.into_iter().map(event).collect::<Result<_, Refusal>>()?,
    })
}
