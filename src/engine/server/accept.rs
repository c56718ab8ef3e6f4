//! Connecting a client's lanes: the first time, and each time that the client has rebuilt one.

use super::core::Shared;
use super::guests::{Guest, Guests};
use super::respond::{Host, Response, respond};
use crate::control::{ControlClient, Peer};
use crate::engine::connect::{Completions, EndOf, decode_offer};
use crate::error::{Error, Result, Status};
use crate::fabric::Fabric;
use crate::options::CheckpointSurvivors;
use crate::rpc::Scheme;
use crate::sync::{Arc, Ordering, lock};
use crate::time::{now, pause};
use core::time::Duration;

/// How long connecting one client's lanes may take. A client that is stopped meanwhile holds up nobody: each is let in
/// on a thread of its own.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(10);
/// A connection that the client has not taken by then is given up. Several times what its attempt may take.
pub(super) const FORSAKEN_AFTER: Duration = Duration::from_secs(30);

/// Between two looks whether lanes are scanned that were handed to a poll thread.
const SCAN_LOOK: Duration = Duration::from_micros(200);

/// Between two attempts to read the first offer of a client while the control plane does not answer.
const ASK_AGAIN: Duration = Duration::from_millis(200);

/// Handshakes with a client until there is nothing new, then with the next that waits for a thread.
pub(super) fn serve<F: Fabric>(shared: &Shared<F>, control: &ControlClient, first: Arc<Guest<F>>) {
    let mut next = Some(first);
    while let Some(guest) = next {
        loop {
            if let Err(error) = handshake(shared, control, &guest) {
                crate::event!(crate::observe::Level::WARN, crate::observe::events::CLIENT_REFUSED,
                    shard = shared.settings.shard_id, client = guest.client.0, error = %error);
                // What the client offers lies there still, and nobody tells of it a second time.
                let unheard = error.status == Status::ControlPlaneUnreachable && !lock(&guest.lanes).admitted;
                if unheard && shared.guests.is_here(&guest) && !shared.closing.load(Ordering::Relaxed) {
                    pause(ASK_AGAIN);
                    continue;
                }
            }
            if !Guests::more(&guest) || shared.closing.load(Ordering::Relaxed) {
                break;
            }
        }
        // Whoever leaves goes from the guests first and is dropped then: so one of the two looks last.
        if !shared.guests.is_here(&guest) {
            shared.mailboxes.iter().for_each(|mailbox| mailbox.drop_client(guest.client, guest.incarnation));
        }
        // Whoever waits for a thread now is not let in any more.
        next = if shared.closing.load(Ordering::Relaxed) { None } else { shared.guests.next() };
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
    let survivor = offer.answers.0 != 0 && offer.answers != shared.incarnation;
    if survivor && shared.restored != 0 && shared.settings.checkpoint_survivors == CheckpointSurvivors::Refuse {
        let message = format!(
            "this shard was restored from checkpoint {}, and the client has seen what came after it: it must open again, or \
             the server allow checkpoint-survivors=resume",
            shared.restored
        );
        return Err(Error::new(Status::StaleEpoch, message));
    }
    let host = Host {
        fabric: &shared.fabric,
        settings: &shared.settings,
        incarnation: shared.incarnation,
        client: guest.client,
        guest: guest.incarnation,
        window: &guest.window,
        rows: shared.rows.as_ref(),
    };
    let completions = |lane| {
        let (thread, station) = shared.home(guest.client, lane);
        let mailbox = &shared.mailboxes[thread];
        let station = &mailbox.stations[station];
        Completions {
            send: Arc::clone(&station.send),
            recv: Arc::clone(&station.recv),
            waker: Some(Arc::clone(&mailbox.waker)),
        }
    };
    let mut lanes = lock(&guest.lanes);
    let mut announced = Vec::new();
    let response = respond(&host, &mut lanes, &offer, (now(), deadline), completions, |lane| {
        let (thread, station) = shared.home(guest.client, lane.parts().lane);
        if lane.parts().scheme == Scheme::Imm {
            announced.push(Arc::clone(&lane));
        }
        shared.mailboxes[thread].add(station, lane);
    })?;
    drop(lanes);
    let waits = || !shared.closing.load(Ordering::Relaxed) && shared.guests.is_here(guest);
    while !announced.iter().all(|lane| lane.is_scanned()) && now() < deadline && waits() {
        pause(SCAN_LOOK);
    }
    if let Some(answer) = &response.answer {
        control.publish_lanes(Peer::Client(guest.client), answer.encode())?;
    }
    report(shared, guest, &response);
    response.failure.map_or(Ok(()), Err)
}

fn report<F: Fabric>(shared: &Shared<F>, guest: &Guest<F>, response: &Response) {
    let (shard, client) = (shared.settings.shard_id, guest.client.0);
    for (lane, generation) in &response.skipped {
        crate::event!(
            crate::observe::Level::WARN,
            crate::observe::events::LANE_REBUILD_SKIPPED,
            shard,
            client,
            lane,
            generation,
            reason = "disabled_at_server",
        );
    }
    if response.first {
        let scheme = response.answer.as_ref().and_then(|answer| Scheme::from_code(answer.scheme));
        crate::event!(crate::observe::Level::INFO, crate::observe::events::CLIENT_ADMITTED,
            shard,
            client,
            incarnation = %guest.incarnation,
            lanes = response.connected.len(),
            scheme = scheme.map_or("?", Scheme::name),
        );
        return;
    }
    for (lane, generation, own) in &response.connected {
        if *own == 1 {
            crate::event!(
                crate::observe::Level::DEBUG,
                crate::observe::events::LANE_CONNECTED,
                shard,
                client,
                lane,
                generation,
                side = "server"
            );
            continue;
        }
        crate::event!(
            crate::observe::Level::INFO,
            crate::observe::events::LANE_RECOVERED,
            shard,
            client,
            lane,
            generation,
            attempts = own - 1,
            side = "server"
        );
    }
}
