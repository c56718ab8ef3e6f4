//! Letting a client's lanes in.

use super::core::Shared;
use crate::control::{ControlClient, Peer};
use crate::engine::connect::{Completions, End, decode_offer, geometry, scheme};
use crate::error::{Error, Result, Status};
use crate::fabric::Fabric;
use crate::ids::{ClientId, Incarnation};
use crate::options::Settings;
use crate::rpc::{Scheme, ServerLane, ServerLaneParts};
use crate::sync::{Arc, Mutex, lock};
use crate::time::now;
use core::time::Duration;
use std::collections::HashSet;

/// How long connecting one client's lanes may take. A client that is stopped meanwhile holds up nobody: each is let in
/// on a thread of its own.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(10);

/// Who is being let in, or is in. A client is let in once: what it publishes beside that costs this shard nothing.
#[derive(Debug, Default)]
pub(super) struct Guests(Mutex<HashSet<(ClientId, Incarnation)>>);

impl Guests {
    /// False: it is here already.
    pub(super) fn enter(&self, client: ClientId, incarnation: Incarnation) -> bool {
        lock(&self.0).insert((client, incarnation))
    }

    /// It left, or could not be let in.
    pub(super) fn leave(&self, client: ClientId, incarnation: Incarnation) {
        lock(&self.0).remove(&(client, incarnation));
    }

    fn is_here(&self, client: ClientId, incarnation: Incarnation) -> bool {
        lock(&self.0).contains(&(client, incarnation))
    }
}

/// Lets a client in that has just [entered](Guests::enter). One that left meanwhile leaves nothing behind.
pub(super) fn admit<F: Fabric>(
    shared: &Shared<F>,
    control: &ControlClient,
    client: ClientId,
    incarnation: Incarnation,
) -> Result<()> {
    let outcome = let_in(shared, control, client, incarnation);
    if outcome.is_err() {
        shared.guests.leave(client, incarnation);
    }
    // Whoever leaves goes from the guests first and is dropped then: so one of the two looks last.
    if !shared.guests.is_here(client, incarnation) {
        shared.mailboxes.iter().for_each(|mailbox| mailbox.drop_client(client, incarnation));
    }
    outcome
}

/// Builds this end for the lanes a client offered, tells the client, and gives them to the poll threads.
fn let_in<F: Fabric>(
    shared: &Shared<F>,
    control: &ControlClient,
    client: ClientId,
    incarnation: Incarnation,
) -> Result<()> {
    let deadline = now().after(CONNECT_TIMEOUT);
    let settings = &shared.settings;
    let geometry = geometry(settings);
    let bytes = control.get_lanes(Peer::Client(client), deadline.remaining())?;
    let offer = decode_offer(&bytes, geometry, geometry.client_region_bytes(), settings.integrity)?;
    if offer.incarnation != incarnation {
        // Another process took the number over; its own event follows.
        return Err(Error::new(Status::DeploymentMismatch, "the offer is not of the process that published it"));
    }
    let answered = agree(shared, settings, offer.scheme)?;
    let regions = (geometry.server_region_bytes(), geometry.client_region_bytes());
    let end = End::make(&shared.fabric, settings, geometry.lanes, regions, |lane| {
        let (thread, station) = shared.home(client, lane);
        let mailbox = &shared.mailboxes[thread];
        Completions {
            send: Arc::clone(&mailbox.stations[station].send),
            recv: Arc::clone(&mailbox.stations[station].recv),
            waker: Some(Arc::clone(&mailbox.waker)),
        }
    })?;
    let answer = end.offer(geometry, answered, settings.integrity, shared.incarnation, incarnation);
    end.connect(&offer, deadline)?;
    let End { queue_pairs, slots, staging } = end;
    let mut lanes = Vec::new();
    for (lane, qp) in (0..geometry.lanes).zip(queue_pairs) {
        let (thread, station) = shared.home(client, lane);
        let parts = ServerLaneParts {
            client,
            incarnation,
            lane,
            generation: offer.generation,
            scheme: answered,
            geometry,
            qp,
            send_cq: Arc::clone(&shared.mailboxes[thread].stations[station].send),
            requests: slots.clone(),
            staging: staging.clone(),
            remote: offer.region,
        };
        let lane = ServerLane::new(parts).ok_or_else(|| {
            Error::new(Status::DeploymentMismatch, format!("client {client} offers less memory than its slots need"))
        })?;
        lanes.push((thread, station, Arc::new(lane)));
    }
    for (thread, station, lane) in lanes {
        shared.mailboxes[thread].add(station, lane);
    }
    control.publish_lanes(Peer::Client(client), answer.encode())?;
    crate::event!(crate::observe::Level::INFO, crate::observe::events::CLIENT_ADMITTED,
        shard = settings.shard_id,
        client = client.0,
        incarnation = %incarnation,
        lanes = geometry.lanes,
        scheme = answered.name(),
    );
    Ok(())
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
