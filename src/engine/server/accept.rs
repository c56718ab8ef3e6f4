//! Connecting a client's lanes: the first time, and each time that the client has rebuilt one.

use super::core::Shared;
use super::guests::{Guest, GuestLanes, Guests};
use crate::control::{ControlClient, Peer};
use crate::engine::connect::{Completions, End, EndOf, blank_offer, decode_offer, geometry, placement, scheme};
use crate::error::{Error, Result, Status};
use crate::fabric::{Fabric, Qp};
use crate::lane::{GuestLane, GuestStep, LaneEnd, LaneOffer};
use crate::options::Settings;
use crate::rpc::{Placement, Scheme, ServerLane, ServerLaneParts};
use crate::sync::{Arc, lock};
use crate::time::{Tick, now};
use core::time::Duration;

/// How long connecting one client's lanes may take. A client that is stopped meanwhile holds up nobody: each is let in
/// on a thread of its own.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(10);
/// A connection that the client has not taken by then is given up. Several times what its attempt may take.
pub(super) const FORSAKEN_AFTER: Duration = Duration::from_secs(30);

/// Handshakes with a client until there is nothing new, then with the next that waits for a thread.
pub(super) fn serve<F: Fabric>(shared: &Shared<F>, control: &ControlClient, first: Arc<Guest<F>>) {
    let mut next = Some(first);
    while let Some(guest) = next {
        loop {
            if let Err(error) = handshake(shared, control, &guest) {
                crate::event!(crate::observe::Level::WARN, crate::observe::events::CLIENT_REFUSED,
                    shard = shared.settings.shard_id, client = guest.client.0, error = %error);
            }
            if !Guests::more(&guest) {
                break;
            }
        }
        // Whoever leaves goes from the guests first and is dropped then: so one of the two looks last.
        if !shared.guests.is_here(&guest) {
            shared.mailboxes.iter().for_each(|mailbox| mailbox.drop_client(guest.client, guest.incarnation));
        }
        next = shared.guests.next();
    }
}

/// Reads what the client offers, connects what is new in it, and answers.
fn handshake<F: Fabric>(shared: &Shared<F>, control: &ControlClient, guest: &Guest<F>) -> Result<()> {
    let deadline = now().after(CONNECT_TIMEOUT);
    let admitted = lock(&guest.lanes).admitted;
    let patience = Duration::from_millis(shared.settings.lane_rebuild_poll_timeout_ms);
    let bytes = control.get_lanes(Peer::Client(guest.client), if admitted { patience } else { CONNECT_TIMEOUT })?;
    let offer = decode_offer(&bytes, &shared.settings, EndOf::Client)?;
    if offer.incarnation != guest.incarnation {
        // Another process took the number over; its own event follows.
        return Err(Error::new(Status::DeploymentMismatch, "the offer is not of the process that published it"));
    }
    let answered = agree(shared, &shared.settings, offer.scheme)?;
    let mut lanes = lock(&guest.lanes);
    let mut wanted = Vec::new();
    for end in &offer.ends {
        let known = lanes.known.entry(end.lane).or_default();
        match known.heard(end) {
            GuestStep::Nothing => {}
            // An echo counts only when it is meant for this process.
            GuestStep::Confirmed if offer.answers == shared.incarnation => known.confirm(),
            GuestStep::Confirmed => {}
            GuestStep::Connect { own } => wanted.push((end, own)),
        }
    }
    if lanes.admitted && !shared.settings.lane_rebuild_enabled && !wanted.is_empty() {
        skipped(shared, guest, &wanted);
        return Ok(());
    }
    if wanted.is_empty() {
        return Ok(());
    }
    let failure = connect(shared, guest, &mut lanes, &offer, &wanted, answered, deadline)?;
    let ends: Vec<LaneEnd> = lanes.ends.values().cloned().collect();
    let first = !core::mem::replace(&mut lanes.admitted, true);
    drop(lanes);
    let mut answer = blank_offer(&shared.settings, answered, shared.incarnation);
    answer.answers = guest.incarnation;
    answer.window = guest.window.number();
    answer.ends = ends;
    control.publish_lanes(Peer::Client(guest.client), answer.encode())?;
    report(shared, guest, &wanted, answered, first);
    failure.map_or(Ok(()), Err)
}

/// Builds this end for the lanes that the client has newly connected, in fresh memory, and gives them to the poll
/// threads; those they replace go. The first error of a lane that could not be connected, if others could.
fn connect<F: Fabric>(
    shared: &Shared<F>,
    guest: &Guest<F>,
    lanes: &mut GuestLanes<F>,
    offer: &LaneOffer,
    wanted: &[(&LaneEnd, u32)],
    answered: Scheme,
    deadline: Tick,
) -> Result<Option<Box<Error>>> {
    let numbers: Vec<(u32, u32)> = wanted.iter().map(|(end, _)| (end.lane, end.generation)).collect();
    let end = End::make(&shared.fabric, &shared.settings, EndOf::Server, &numbers, &[], |lane| {
        let (thread, station) = shared.home(guest.client, lane);
        let mailbox = &shared.mailboxes[thread];
        Completions {
            send: Arc::clone(&mailbox.stations[station].send),
            recv: Arc::clone(&mailbox.stations[station].recv),
            waker: Some(Arc::clone(&mailbox.waker)),
        }
    })?;
    let described: Vec<Option<LaneEnd>> =
        wanted.iter().enumerate().map(|(place, (theirs, own))| end.describe(place, *own, theirs.generation)).collect();
    let End { lanes: ours, slots, staging, geometry: here } = end;
    let mut failure = None;
    let mut connected = Vec::new();
    for ((place, (lane, generation, qp)), ((theirs, own), described)) in
        (0..).zip(ours).zip(wanted.iter().zip(described))
    {
        if let Err(error) = qp.connect(&theirs.queue_pair, deadline.remaining()) {
            failure.get_or_insert(error);
            continue;
        }
        let (thread, station) = shared.home(guest.client, lane);
        let parts = ServerLaneParts {
            client: guest.client,
            incarnation: guest.incarnation,
            lane,
            generation,
            scheme: answered,
            geometry: geometry(&shared.settings),
            here: Placement { place, geometry: here },
            there: placement(offer, theirs),
            window: Arc::clone(&guest.window),
            qp,
            send_cq: Arc::clone(&shared.mailboxes[thread].stations[station].send),
            requests: slots.clone(),
            staging: staging.clone(),
            remote: theirs.region,
        };
        let Some(made) = ServerLane::new(parts).map(Arc::new) else {
            let client = guest.client;
            let what = format!("client {client} offers less memory than its slots need");
            failure.get_or_insert(Error::new(Status::DeploymentMismatch, what));
            continue;
        };
        connected.push((thread, station, made, *own, described));
    }
    // A client is let in with all its lanes or not at all; later, each lane is its own affair.
    if let Some(error) = failure.take_if(|_| connected.is_empty() || !lanes.admitted) {
        return Err(error);
    }
    for (thread, station, made, own, described) in connected {
        let (lane, generation) = (made.parts().lane, made.parts().generation);
        lanes.live.insert(lane, Arc::downgrade(&made));
        shared.mailboxes[thread].add(station, made);
        lanes.known.entry(lane).or_insert_with(GuestLane::default).answered(now(), generation, own);
        lanes.ends.extend(described.map(|end| (lane, end)));
    }
    Ok(failure)
}

fn report<F: Fabric>(shared: &Shared<F>, guest: &Guest<F>, wanted: &[(&LaneEnd, u32)], answered: Scheme, first: bool) {
    if first {
        crate::event!(crate::observe::Level::INFO, crate::observe::events::CLIENT_ADMITTED,
            shard = shared.settings.shard_id,
            client = guest.client.0,
            incarnation = %guest.incarnation,
            lanes = wanted.len(),
            scheme = answered.name(),
        );
        return;
    }
    for (end, own) in wanted {
        crate::event!(
            crate::observe::Level::INFO,
            crate::observe::events::LANE_RECOVERED,
            shard = shared.settings.shard_id,
            client = guest.client.0,
            lane = end.lane,
            generation = end.generation,
            attempts = *own - 1,
            side = "server"
        );
    }
}

fn skipped<F: Fabric>(shared: &Shared<F>, guest: &Guest<F>, wanted: &[(&LaneEnd, u32)]) {
    for (end, _) in wanted {
        crate::event!(
            crate::observe::Level::WARN,
            crate::observe::events::LANE_REBUILD_SKIPPED,
            shard = shared.settings.shard_id,
            client = guest.client.0,
            lane = end.lane,
            generation = end.generation,
            reason = "disabled_at_server",
        );
    }
}

/// The scheme that both ends can carry.
fn agree<F: Fabric>(shared: &Shared<F>, settings: &Settings, asked: u8) -> Result<Scheme> {
    let ours = scheme(&shared.fabric, settings)?;
    let theirs = Scheme::from_code(asked).ok_or_else(|| {
        Error::new(Status::DeploymentMismatch, format!("the client asks for commit scheme {asked}, which is unknown"))
    })?;
    // `auto` may pick differently on two hosts: what needs no order works for both.
    Ok(if ours == theirs { ours } else { Scheme::Crc })
}
