//! The threads of a client: one hears the control plane's verdicts, one looks after lanes.

use super::core::Shared;
use super::mend::{Board, Mender, News};
use crate::control::{ControlClient, Event, Health, Peer};
use crate::engine::metrics::Source;
use crate::engine::metrics::figures::figures;
use crate::error::Result;
use crate::fabric::Fabric;
use crate::ids::{Incarnation, ShardId};
use crate::lane::DirtyReason;
use crate::rpc::Channel;
use crate::sync::{Ordering, lock};
use crate::time::now;
use core::time::Duration;

/// How often the event thread looks whether it should end; `wake` makes it look at once.
const EVENT_WAIT: Duration = Duration::from_millis(500);
/// How long it may take to tell the control plane this client's numbers.
const REPORT_TIMEOUT: Duration = Duration::from_millis(500);
/// Longest sleep of the thread that looks after lanes.
const IDLE: Duration = Duration::from_secs(1);

/// Hears the control plane's verdicts. Its own end is no verdict on anybody.
pub(super) fn listen<F: Fabric>(shared: &Shared<F>, control: &ControlClient, numbers: &dyn Source) {
    while !shared.closing.load(Ordering::Relaxed) {
        let event = control.next_event(EVENT_WAIT);
        for shard in shared.ps.take_concerns() {
            ask_about(shared, control, shard);
        }
        match event {
            // The answer is a courtesy to people who look: one that does not arrive is asked for again.
            Some(Event::ReportWanted) => drop(control.report(&figures(numbers), REPORT_TIMEOUT)),
            Some(event) => hear(shared, event),
            None => {}
        }
    }
}

fn hear<F: Fabric>(shared: &Shared<F>, event: Event) {
    match event {
        Event::MemberLeft { peer: Peer::Server(shard), incarnation, died } => {
            if shard == ShardId(0) {
                shared.notes.leader_lost("shard 0");
            }
            note_health(shared, shard, Health::Dead);
            tell(shared, News::Down(shard.0));
            fail(shared, shard, incarnation, if died { DirtyReason::PeerGone } else { DirtyReason::PeerLeft });
        }
        Event::ServerHealth { shard, incarnation, health } => {
            note_health(shared, shard, health);
            crate::event!(
                crate::observe::Level::INFO,
                crate::observe::events::SHARD_HEALTH,
                shard = shard.0,
                incarnation = %incarnation,
                health = health.name()
            );
            if shared.settings.health_push {
                match health {
                    Health::Dead => {
                        tell(shared, News::Down(shard.0));
                        fail(shared, shard, incarnation, DirtyReason::NodeVerdict);
                    }
                    Health::Serving => tell(shared, News::Heard(shard.0)),
                    Health::Suspect => {}
                }
            }
        }
        Event::ServerDraining(shard) => {
            crate::event!(crate::observe::Level::INFO, crate::observe::events::SHARD_DRAINING, shard = shard.0);
        }
        Event::ServerReady(shard) => tell(shared, News::Up(shard.0)),
        Event::LanesPublished { from: Peer::Server(shard), .. } => tell(shared, News::Answered(shard.0)),
        Event::Mail { from: Peer::Server(ShardId(0)), body, .. } => shared.notes.hear(&body),
        // Reported where they are noticed; data traffic is not concerned.
        Event::ControlPlaneLost => {
            // It is in the process of shard 0.
            shared.notes.leader_lost("shard 0");
            note_plane(shared, false);
        }
        Event::ControlPlaneBack => note_plane(shared, true),
        Event::MemberLeft { .. } | Event::LanesPublished { .. } | Event::Mail { .. } | Event::ReportWanted => {}
    }
}

fn note_plane<F: Fabric>(shared: &Shared<F>, is_up: bool) {
    shared.plane_up.store(is_up, Ordering::Relaxed);
    tell(shared, News::Board(is_up));
}

fn note_health<F: Fabric>(shared: &Shared<F>, shard: ShardId, health: Health) {
    if let Some(noted) = shared.health.get(shard.0 as usize) {
        noted.store(health as u32, Ordering::Relaxed);
    }
}

fn tell<F: Fabric>(shared: &Shared<F>, news: News) {
    lock(&shared.news).push(news);
    shared.bell.ring();
}

/// Ends the lanes to one process of a shard.
fn fail<F: Fabric>(shared: &Shared<F>, shard: ShardId, incarnation: Incarnation, reason: DirtyReason) {
    if let Some(channel) = shared.ps.channels().get(shard.0 as usize) {
        channel.lanes().iter().for_each(|lane| lane.fail_peer(incarnation, reason));
    }
}

/// A request has waited long for this shard: asks the control plane about it. No answer is no verdict.
fn ask_about<F: Fabric>(shared: &Shared<F>, control: &ControlClient, shard: u32) {
    let timeout = Duration::from_millis(shared.settings.health_probe_timeout_ms);
    let Ok(report) = control.server_health(ShardId(shard), timeout) else { return };
    if report.known && report.health == Health::Dead {
        fail(shared, ShardId(shard), report.incarnation, DirtyReason::NodeVerdict);
    }
}

struct ControlBoard<'a> {
    control: &'a ControlClient,
    timeout: Duration,
}

impl Board for ControlBoard<'_> {
    fn publish(&self, shard: u32, offer: Vec<u8>) -> Result<()> {
        self.control.publish_lanes_within(Peer::Server(ShardId(shard)), offer, self.timeout)
    }

    fn read(&self, shard: u32) -> Result<Vec<u8>> {
        self.control.get_lanes(Peer::Server(ShardId(shard)), self.timeout)
    }
}

/// Steps the mender until the client is closed.
pub(super) fn look_after<F: Fabric>(shared: &Shared<F>, control: &ControlClient, mut mender: Mender<F>) {
    let timeout = Duration::from_millis(shared.settings.lane_rebuild_wait_ms);
    let board = ControlBoard { control, timeout };
    let channels: &[Channel<F, _>] = shared.ps.channels();
    while !shared.closing.load(Ordering::Relaxed) {
        let news = core::mem::take(&mut *lock(&shared.news));
        let at = now();
        news.into_iter().for_each(|news| mender.hear(at, news, channels));
        let next = mender.step(at, &shared.fabric, &board, channels, &shared.buffers);
        shared.bell.sleep(next.map_or(IDLE, |at| at.remaining().min(IDLE)));
    }
    mender.close(channels);
}
