//! A shard's answer to what a client offers: which of its connections are new, and this side's ends of them.
//!
//! [`respond`] is one step: it is handed the offer and the time, and blocks only as long as the fabric's own connecting
//! does. Where the offer came from, where the answer goes, and who scans the new lanes is the caller's affair.

use super::guests::GuestLanes;
use crate::engine::connect::{Completions, End, EndOf, blank_offer, geometry, placement, scheme};
use crate::error::{Error, Result, Status};
use crate::fabric::{Fabric, Qp, Region};
use crate::ids::{ClientId, Incarnation};
use crate::lane::{GuestLane, GuestStep, LaneEnd, LaneOffer};
use crate::options::Settings;
use crate::rpc::{Placement, Scheme, ServerLane, ServerLaneParts, Window};
use crate::sync::Arc;
use crate::time::Tick;

/// Who answers whom.
#[derive(Debug)]
pub(crate) struct Host<'a, F: Fabric> {
    pub(crate) fabric: &'a F,
    pub(crate) settings: &'a Settings,
    /// This process.
    pub(crate) incarnation: Incarnation,
    /// The client, and its process.
    pub(crate) client: ClientId,
    pub(crate) guest: Incarnation,
    /// What was executed for it.
    pub(crate) window: &'a Arc<Window>,
    /// Rows that it may read where they lie.
    pub(crate) rows: Option<&'a F::Region>,
}

/// What came of an offer.
#[derive(Debug)]
pub(crate) struct Response {
    /// What the client should see now; None: what it was told last still holds.
    pub(crate) answer: Option<LaneOffer>,
    /// New connections of the client that were answered: lane, its generation, our count.
    pub(crate) connected: Vec<(u32, u32, u32)>,
    /// New ones that were not, because rebuilding is off here.
    pub(crate) skipped: Vec<(u32, u32)>,
    /// The client was let in just now.
    pub(crate) first: bool,
    /// Why a lane could not be connected, where others could.
    pub(crate) failure: Option<Box<Error>>,
}

/// Answers an offer. New lanes go to `scan`, each in the place of its former connection.
pub(crate) fn respond<F: Fabric>(
    host: &Host<'_, F>,
    lanes: &mut GuestLanes<F>,
    offer: &LaneOffer,
    (at, deadline): (Tick, Tick),
    completions: impl FnMut(u32) -> Completions<F>,
    mut scan: impl FnMut(Arc<ServerLane<F>>),
) -> Result<Response> {
    let answered = agree(host, offer.scheme)?;
    let mut response =
        Response { answer: None, connected: Vec::new(), skipped: Vec::new(), first: false, failure: None };
    let mut wanted = Vec::new();
    for end in &offer.ends {
        let known = lanes.known.entry(end.lane).or_default();
        match known.heard(end) {
            // An echo counts only when it is meant for this process.
            GuestStep::Confirmed if offer.answers == host.incarnation => known.confirm(),
            GuestStep::Confirmed | GuestStep::Nothing => {}
            GuestStep::Connect { own } => wanted.push((end, own)),
        }
    }
    if !host.settings.lane_rebuild_enabled {
        // A lane that the client has never used is not rebuilt, but connected at last.
        let used = |lane: &u32| lanes.known.get(lane).is_some_and(GuestLane::is_confirmed);
        let (again, first) = wanted.into_iter().partition::<Vec<_>, _>(|(end, _)| used(&end.lane));
        response.skipped = again.iter().map(|(end, _)| (end.lane, end.generation)).collect();
        wanted = first;
    }
    if wanted.is_empty() {
        return Ok(response);
    }
    let (made, failure) = connect(host, offer, &wanted, answered, deadline, completions)?;
    // A client is let in with all its lanes or not at all; later, each lane is its own affair.
    response.failure = failure;
    if let Some(error) = response.failure.take_if(|_| made.is_empty() || !lanes.admitted) {
        return Err(error);
    }
    for (lane, own, described) in made {
        let (number, generation) = (lane.parts().lane, lane.parts().generation);
        lanes.live.insert(number, Arc::downgrade(&lane));
        lanes.known.entry(number).or_default().answered(at, generation, own);
        lanes.ends.extend(described.map(|end| (number, end)));
        response.connected.push((number, generation, own));
        scan(lane);
    }
    response.first = !core::mem::replace(&mut lanes.admitted, true);
    let mut answer = blank_offer(host.settings, answered, host.incarnation);
    answer.answers = host.guest;
    answer.window = host.window.number();
    answer.rows = host.rows.map(Region::address);
    answer.ends = lanes.ends.values().cloned().collect();
    response.answer = Some(answer);
    Ok(response)
}

/// A lane that was connected, our count of its connections, and its end as the client is to see it.
type Made<F> = (Arc<ServerLane<F>>, u32, Option<LaneEnd>);

/// With the lanes that could be connected, the first error of one that could not.
type Connected<F> = (Vec<Made<F>>, Option<Box<Error>>);

/// Builds this side's end of the lanes that the client has newly connected, in fresh memory, and connects each.
fn connect<F: Fabric>(
    host: &Host<'_, F>,
    offer: &LaneOffer,
    wanted: &[(&LaneEnd, u32)],
    answered: Scheme,
    deadline: Tick,
    mut completions: impl FnMut(u32) -> Completions<F>,
) -> Result<Connected<F>> {
    let numbers: Vec<(u32, u32)> = wanted.iter().map(|(end, _)| (end.lane, end.generation)).collect();
    let mut queues = Vec::with_capacity(numbers.len());
    let exposed: Vec<F::Region> = host.rows.into_iter().cloned().collect();
    let end = End::make(host.fabric, host.settings, EndOf::Server, &numbers, &exposed, |lane| {
        let made = completions(lane);
        queues.push(Arc::clone(&made.send));
        made
    })?;
    let described: Vec<Option<LaneEnd>> =
        wanted.iter().enumerate().map(|(place, (theirs, own))| end.describe(place, *own, theirs.generation)).collect();
    let End { lanes: ours, slots, staging, geometry: here } = end;
    let (mut made, mut failure) = (Vec::with_capacity(ours.len()), None);
    let ours = (0..).zip(ours).zip(queues);
    for (((place, (lane, generation, qp)), send_cq), ((theirs, own), described)) in
        ours.zip(wanted.iter().zip(described))
    {
        if let Err(error) = qp.connect(&theirs.queue_pair, deadline.remaining()) {
            failure.get_or_insert(error);
            continue;
        }
        let parts = ServerLaneParts {
            client: host.client,
            incarnation: host.guest,
            lane,
            generation,
            scheme: answered,
            geometry: geometry(host.settings),
            here: Placement { place, geometry: here },
            there: placement(offer, theirs),
            window: Arc::clone(host.window),
            qp,
            send_cq,
            requests: slots.clone(),
            staging: staging.clone(),
            remote: theirs.region,
        };
        match ServerLane::new(parts) {
            Some(lane) => made.push((Arc::new(lane), *own, described)),
            None => {
                let what = format!("client {} offers less memory than its slots need", host.client);
                failure.get_or_insert(Error::new(Status::DeploymentMismatch, what));
            }
        }
    }
    Ok((made, failure))
}

/// The scheme that both ends can carry.
fn agree<F: Fabric>(host: &Host<'_, F>, asked: u8) -> Result<Scheme> {
    let ours = scheme(host.fabric, host.settings)?;
    let theirs = Scheme::from_code(asked).ok_or_else(|| {
        Error::new(Status::DeploymentMismatch, format!("the client asks for commit scheme {asked}, which is unknown"))
    })?;
    // `auto` may pick differently on two hosts: what needs no order works for both.
    Ok(if ours == theirs { ours } else { Scheme::Crc })
}
