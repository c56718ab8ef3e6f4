//! The thread of a shard that hears who comes and goes, and looks after its clients' lanes.

use super::accept::{FORSAKEN_AFTER, serve};
use super::checkpoint::{LEADER, Post, refuse_lone_restart, supersedes};
use super::core::Shared;
use crate::control::{ControlClient, Event, Peer};
use crate::engine::connect::geometry;
use crate::engine::metrics::Source;
use crate::engine::metrics::figures::figures;
use crate::fabric::Fabric;
use crate::ids::{ClientId, Incarnation};
use crate::options::CheckpointRestore;
use crate::sync::{Arc, Ordering};
use crate::thread::start;
use crate::time::{Tick, now};
use core::time::Duration;
use std::thread::JoinHandle;

/// How long it may take to tell the control plane this shard's numbers.
const REPORT_TIMEOUT: Duration = Duration::from_millis(500);
/// Longest wait for an event.
const EVENT_WAIT: Duration = Duration::from_millis(500);

/// When to look for lanes that clients have rebuilt without our hearing of it: soon after a lane was lost, then at
/// intervals that double.
#[derive(Debug)]
struct Look {
    least: Duration,
    most: Duration,
    interval: Duration,
    next: Tick,
}

impl Look {
    fn took(&mut self, found: bool) {
        self.interval = if found { self.least } else { self.interval.saturating_mul(2).min(self.most) };
        self.next = now().after(self.interval);
    }
}

/// Until the shard stops.
pub(super) fn listen<F: Fabric>(
    shared: &Arc<Shared<F>>,
    control: &Arc<ControlClient>,
    post: &Post,
    numbers: &dyn Source,
) {
    let mut admissions: Vec<JoinHandle<()>> = Vec::new();
    let settings = &shared.settings;
    let (least, most) = (settings.lane_rebuild_poll_ms, settings.lane_rebuild_poll_max_ms);
    let (least, most) = (Duration::from_millis(least), Duration::from_millis(most));
    let mut look = Look { least, most, interval: least, next: now() };
    while !shared.closing.load(Ordering::Relaxed) {
        admissions.retain(|thread| !thread.is_finished());
        let rebuilds = settings.lane_rebuild_enabled;
        let wait = if rebuilds { look.next.remaining().min(EVENT_WAIT) } else { EVENT_WAIT };
        match control.next_event(wait) {
            Some(Event::LanesPublished { from: Peer::Client(client), incarnation }) => {
                knock(shared, control, client, incarnation, &mut admissions);
            }
            Some(Event::MemberLeft { peer: Peer::Client(client), incarnation, died }) => {
                shared.guests.leave(client, incarnation, died.then(now));
                shared.mailboxes.iter().for_each(|mailbox| mailbox.drop_client(client, incarnation));
            }
            Some(Event::LanesPublished { from: Peer::Server(LEADER), .. }) => supersede(shared, control),
            Some(Event::Mail { from, body, .. }) => post.deliver(from, &body),
            Some(Event::MemberLeft { peer: Peer::Server(shard), .. }) => {
                post.left(shard);
                if settings.shard_id == LEADER.0 && !settings.checkpoint_directory.is_empty() {
                    refuse_lone_restart(control, shard);
                }
            }
            // The answer is a courtesy to people who look: one that does not arrive is asked for again.
            Some(Event::ReportWanted) => drop(control.report(&figures(numbers), REPORT_TIMEOUT)),
            Some(Event::ControlPlaneLost) => shared.plane_lost.store(true, Ordering::Relaxed),
            Some(Event::ControlPlaneBack) => shared.plane_lost.store(false, Ordering::Relaxed),
            Some(_) | None => {}
        }
        if look.next <= now() {
            let found = rebuilds && care(shared, control, &mut admissions);
            look.took(found);
            shared.guests.forget(now(), Duration::from_millis(settings.request_window_lease_ms));
        }
    }
    for thread in admissions {
        // A panic of a thread was reported by its own hook; there is nothing left to save here.
        let _ = thread.join();
    }
}

/// Shard 0 says which checkpoint is restored. It says so to shards that start; one that runs is of the world before.
fn supersede<F: Fabric>(shared: &Shared<F>, control: &ControlClient) {
    let settings = &shared.settings;
    if settings.checkpoint_restore != CheckpointRestore::Off && shared.told.swap(false, Ordering::Relaxed) {
        // The word that this shard itself has started by.
        return;
    }
    if supersedes(control) && !shared.superseded.swap(true, Ordering::Relaxed) {
        crate::event!(
            crate::observe::Level::ERROR,
            crate::observe::events::CHECKPOINT_SUPERSEDED,
            shard = settings.shard_id
        );
        if let Some(rows) = &shared.shown {
            rows.withdraw();
        }
        for guest in shared.guests.present() {
            shared.mailboxes.iter().for_each(|mailbox| mailbox.drop_client(guest.client, guest.incarnation));
        }
    }
}

/// Handshakes with a client on a thread of its own, so that a stopped one holds up nobody.
fn knock<F: Fabric>(
    shared: &Arc<Shared<F>>,
    control: &Arc<ControlClient>,
    client: ClientId,
    incarnation: Incarnation,
    admissions: &mut Vec<JoinHandle<()>>,
) {
    if shared.superseded.load(Ordering::Relaxed) {
        return;
    }
    let g = geometry(&shared.settings);
    let Some(guest) = shared.guests.knock(client, incarnation, g.lanes.saturating_mul(g.slots)) else {
        return;
    };
    let (host, speaker) = (Arc::clone(shared), Arc::clone(control));
    match start("reclane-admit", move || serve(&host, &speaker, guest)) {
        Ok(thread) => admissions.push(thread),
        Err(error) => {
            crate::event!(crate::observe::Level::ERROR, crate::observe::events::CLIENT_REFUSED, client = client.0, error = %error);
            shared.guests.leave(client, incarnation, None);
            shared.guests.abandon();
        }
    }
}

/// Looks at clients that are here and have lost a lane: their news may have been missed. Gives up connections that
/// nobody took. True if there was such a client.
fn care<F: Fabric>(
    shared: &Arc<Shared<F>>,
    control: &Arc<ControlClient>,
    admissions: &mut Vec<JoinHandle<()>>,
) -> bool {
    let mut found = false;
    let at = now();
    for guest in shared.guests.present() {
        // A handshake is under way: it sees for itself.
        let Ok(mut lanes) = guest.lanes.try_lock() else { continue };
        let lost = lanes.live.values().any(|lane| lane.upgrade().is_none_or(|lane| !lane.is_usable()));
        let forsaken: Vec<u32> =
            lanes.known.iter().filter(|(_, known)| known.forsaken(at, FORSAKEN_AFTER)).map(|(lane, _)| *lane).collect();
        for lane in forsaken {
            lanes.ends.remove(&lane);
            let generation = lanes.known.get(&lane).map_or(0, |known| known.connection().0);
            if lanes.live.remove(&lane).is_some() {
                let (thread, _) = shared.home(guest.client, lane);
                shared.mailboxes[thread].drop_lane(guest.client, guest.incarnation, lane, generation);
            }
        }
        drop(lanes);
        if lost && !shared.plane_lost.load(Ordering::Relaxed) {
            found = true;
            knock(shared, control, guest.client, guest.incarnation, admissions);
        }
    }
    found
}
