//! The control thread of one member: reads the stream, and joins again when it breaks.

use super::codec::{self, proto};
use super::limits::{CONNECT_TIMEOUT, RETRY_LOST_MAX};
use super::link::{Failure, Joined, Link, Shared, Up, failure};
use super::types::{Peer, Role};
use crate::sync::{Ordering, lock};
use crate::time;
use core::time::Duration;

/// A report of a server that it lives may take this long at least before it is given up.
const BEAT_TIMEOUT_LEAST: Duration = Duration::from_secs(1);
/// Pause before a refill call is made again on the same session.
const REFILL_PAUSE: Duration = Duration::from_millis(50);
/// The longest sleep of the loop when nothing is due; it only looks at the clock again.
const NOTHING_DUE: Duration = Duration::from_secs(3600);

/// Keeps the member in the deployment, for ever.
pub(super) async fn keep(shared: &Shared, first: Joined) {
    let role = match first.me {
        Peer::Server(shard) => Role::Server(shard),
        Peer::Client(client) => Role::Client(Some(client)),
    };
    let mut session = Some(first);
    let mut is_first = true;
    loop {
        let joined = match session.take() {
            Some(joined) => joined,
            None => join_again(shared, role).await,
        };
        let why = attend(shared, joined, is_first).await;
        is_first = false;
        // Relaxed: only a hint that the end of the stream was asked for.
        if shared.leaving.load(Ordering::Relaxed) {
            return core::future::pending().await;
        }
        shared.link.send_replace(Link::Down(Failure::Unreachable(why.clone())));
        let event = lock(&shared.view).lost();
        if event.is_some() {
            crate::event!(
                crate::observe::Level::WARN,
                crate::observe::events::CONTROL_PLANE_LOST,
                address = shared.address,
                reason = why
            );
        }
        shared.events.push(event);
    }
}

async fn join_again(shared: &Shared, role: Role) -> Joined {
    let mut attempt = 0;
    loop {
        match tokio::time::timeout(CONNECT_TIMEOUT, shared.join(role)).await {
            Ok(Ok(joined)) => return joined,
            Err(_) => {
                shared.link.send_replace(Link::Down(Failure::Unreachable("it does not answer".to_string())));
            }
            Ok(Err(failure)) => {
                if attempt == 0
                    && let Failure::Refused(refusal) = &failure
                {
                    crate::event!(
                        crate::observe::Level::WARN,
                        crate::observe::events::CONTROL_PLANE_REFUSES,
                        address = shared.address,
                        reason = refusal.message
                    );
                }
                shared.link.send_replace(Link::Down(failure));
            }
        }
        tokio::time::sleep(shared.pause_before(attempt, RETRY_LOST_MAX)).await;
        attempt = attempt.saturating_add(1);
    }
}

/// Reads the stream until it breaks, and says why it did. At the same time the control plane is told again what it
/// should know of this member; then the session is open to callers.
async fn attend(shared: &Shared, joined: Joined, is_first: bool) -> String {
    let Joined { up, mut stream, life, .. } = joined;
    lock(&shared.view).joined(life);
    let refill = refill(shared, up.clone());
    tokio::pin!(refill);
    let beats = beat(shared, up.clone());
    tokio::pin!(beats);
    let mut filled = false;
    loop {
        let due = lock(&shared.view).next_deadline().map_or(NOTHING_DUE, |at| at.remaining());
        tokio::select! {
            message = stream.message() => {
                let message = match message {
                    Ok(Some(message)) => message,
                    Ok(None) => return "it closed the session".to_string(),
                    Err(status) => return status.message().to_string(),
                };
                match codec::notice(message) {
                    Ok(Some(notice)) => {
                        let events = lock(&shared.view).notice(time::now(), notice);
                        shared.events.push(events);
                    }
                    Ok(None) => {}
                    Err(refusal) => return refusal.message,
                }
            }
            () = &mut refill, if !filled => {
                filled = true;
                shared.link.send_replace(Link::Up(up.clone()));
                let event = lock(&shared.view).back(is_first);
                if event.is_some() {
                    crate::event!(crate::observe::Level::INFO, crate::observe::events::CONTROL_PLANE_BACK, address = shared.address);
                }
                shared.events.push(event);
            }
            // Never ends; what is wrong with the session shows on the stream.
            () = &mut beats => {}
            () = tokio::time::sleep(due) => {
                let events = lock(&shared.view).tick(time::now());
                shared.events.push(events);
            }
        }
    }
}

/// Tells the control plane what this member published and whether it is ready. Ends when all is told; the caller drops
/// it when the session breaks.
async fn refill(shared: &Shared, up: Up) {
    let (offers, ready, draining) = lock(&shared.view).soft_state();
    for (to, offer) in offers {
        let request = publish_message(&up.session, to, &offer);
        insist(shared, || {
            let (mut stub, request) = (up.stub.clone(), request.clone());
            async move { stub.publish_lanes(request).await.map(drop) }
        })
        .await;
    }
    if ready {
        insist(shared, || {
            let (mut stub, session) = (up.stub.clone(), Some(up.session.clone()));
            async move { stub.ready(proto::ReadyRequest { session }).await.map(drop) }
        })
        .await;
    }
    if draining {
        insist(shared, || {
            let (mut stub, session) = (up.stub.clone(), Some(up.session.clone()));
            async move { stub.draining(proto::DrainingRequest { session }).await.map(drop) }
        })
        .await;
    }
}

/// Reports that this server lives, as often as it was asked to, for ever. A report that is late is not sent twice.
async fn beat(shared: &Shared, up: Up) {
    let mut interval = shared.beat.subscribe();
    loop {
        let every = *interval.borrow_and_update();
        let Some(every) = every else {
            if interval.changed().await.is_err() {
                return core::future::pending().await;
            }
            continue;
        };
        let mut stub = up.stub.clone();
        let request = proto::HeartbeatRequest { session: Some(up.session.clone()) };
        // One that fails tells nothing that the stream does not tell as well.
        drop(tokio::time::timeout(every.max(BEAT_TIMEOUT_LEAST), stub.heartbeat(request)).await);
        tokio::time::sleep(every).await;
    }
}

async fn insist<F>(shared: &Shared, call: impl Fn() -> F)
where
    F: Future<Output = Result<(), tonic::Status>>,
{
    while let Err(status) = call().await {
        if let Failure::Refused(refusal) = failure(&status) {
            crate::event!(
                crate::observe::Level::WARN,
                crate::observe::events::CONTROL_REFILL_REFUSED,
                address = shared.address,
                reason = refusal.message
            );
            return;
        }
        tokio::time::sleep(REFILL_PAUSE).await;
    }
}

/// An offer as it is sent.
pub(super) fn publish_message(
    session: &proto::Session,
    to: Peer,
    offer: &super::view::OwnOffer,
) -> proto::PublishLanesRequest {
    proto::PublishLanesRequest {
        session: Some(session.clone()),
        to: Some(codec::peer_message(to)),
        version: offer.version,
        for_incarnation: offer.for_incarnation.map(codec::incarnation_bytes).unwrap_or_default(),
        offer: offer.bytes.to_vec(),
    }
}
