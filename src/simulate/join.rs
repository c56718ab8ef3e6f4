//! How the lanes of a simulated client and a simulated shard come to be, and come to be again: the product's own offers,
//! ends, machines and checks, one step at a time. The client's side is the engine's mender, the shard's side the engine's
//! answer to an offer; only the threads around them are not there.

use super::wires::Wires;
use crate::control::{Event, Health, Peer};
use crate::engine::client::mend::{Board, Mender, News, ShardMend};
use crate::engine::client::reach::Buffers;
use crate::engine::connect::{Completions, EndOf, decode_offer, geometry};
use crate::engine::server::guests::GuestLanes;
use crate::engine::server::respond;
use crate::error::{Error, Result, Status};
use crate::fabric::sim::{Sim, SimCq};
use crate::ids::{ClientId, Incarnation, ShardId};
use crate::lane::{DirtyReason, LaneOffer};
use crate::options::Settings;
use crate::ps::client::PsClient;
use crate::rpc::{ServerLane, Window};
use crate::sync::Arc;
use crate::time::{Tick, now};
use core::cell::RefCell;
use core::time::Duration;
use std::collections::BTreeMap;

/// When a step of joining must be over.
pub(super) fn soon() -> Tick {
    now().after(Duration::from_secs(1))
}

/// The answer in these bytes, if it is meant for this process.
pub(super) fn answer_in(bytes: &[u8], settings: &Settings, incarnation: Incarnation) -> Option<LaneOffer> {
    decode_offer(bytes, settings, EndOf::Server).ok().filter(|answer| answer.answers == incarnation)
}

/// What keeps a client's lanes whole.
#[derive(Debug)]
pub(super) struct Care {
    mender: Mender<Sim>,
    push: bool,
    board: Letters,
}

/// The board of a simulated client: what was published is sent with the next letters, what was asked for is kept.
#[derive(Debug, Default)]
struct Letters {
    published: RefCell<Vec<(u32, Vec<u8>)>>,
    answers: BTreeMap<u32, Vec<u8>>,
}

impl Board for Letters {
    fn publish(&self, shard: u32, offer: Vec<u8>) -> Result<()> {
        self.published.borrow_mut().push((shard, offer));
        Ok(())
    }

    fn read(&self, shard: u32) -> Result<Vec<u8>> {
        let found = self.answers.get(&shard).cloned();
        found.ok_or_else(|| Error::new(Status::StartupTimeout, format!("shard {shard} has published nothing")))
    }
}

impl Care {
    pub(super) fn new(settings: &Settings, incarnation: Incarnation, shards: Vec<ShardMend<Sim>>) -> Care {
        Care {
            mender: Mender::new(settings, incarnation, shards),
            push: settings.health_push,
            board: Letters::default(),
        }
    }

    /// As the engine's event thread.
    pub(super) fn hear(&mut self, event: Event, ps: &PsClient<Sim>) {
        match event {
            Event::MemberLeft { peer: Peer::Server(shard), incarnation, died } => {
                self.tell(News::Down(shard.0), ps);
                fail(ps, shard, incarnation, if died { DirtyReason::PeerGone } else { DirtyReason::PeerLeft });
            }
            Event::ServerHealth { shard, incarnation, health } if self.push => match health {
                Health::Dead => {
                    self.tell(News::Down(shard.0), ps);
                    fail(ps, shard, incarnation, DirtyReason::NodeVerdict);
                }
                Health::Serving => self.tell(News::Heard(shard.0), ps),
                Health::Suspect => {}
            },
            Event::ServerReady(shard) => self.tell(News::Up(shard.0), ps),
            Event::ControlPlaneLost => self.tell(News::Board(false), ps),
            Event::ControlPlaneBack => self.tell(News::Board(true), ps),
            _ => {}
        }
    }

    fn tell(&mut self, news: News, ps: &PsClient<Sim>) {
        self.mender.hear(now(), news, ps.channels());
    }

    /// A shard's offer was fetched.
    pub(super) fn fetched(&mut self, shard: u32, bytes: Vec<u8>, ps: &PsClient<Sim>) {
        self.board.answers.insert(shard, bytes);
        self.tell(News::Answered(shard), ps);
    }

    /// One step of the thread that looks after lanes. What is to be published, by shard.
    pub(super) fn step(&mut self, fabric: &Sim, ps: &PsClient<Sim>, buffers: &Buffers<Sim>) -> Vec<(u32, Vec<u8>)> {
        self.mender.step(now(), fabric, &self.board, ps.channels(), buffers);
        self.board.published.take()
    }

    /// The process ends.
    pub(super) fn close(&mut self, ps: &PsClient<Sim>) {
        self.mender.close(ps.channels());
    }
}

/// Ends the lanes to one process of a shard.
pub(super) fn fail(ps: &PsClient<Sim>, shard: ShardId, incarnation: Incarnation, reason: DirtyReason) {
    if let Some(channel) = ps.channels().get(shard.0 as usize) {
        channel.lanes().iter().for_each(|lane| lane.fail_peer(incarnation, reason));
    }
}

/// One client's process, as a shard knows it.
#[derive(Debug)]
pub(super) struct Guest {
    pub(super) window: Arc<Window>,
    lanes: GuestLanes<Sim>,
    /// When it vanished.
    pub(super) gone: Option<Tick>,
}

impl Guest {
    pub(super) fn new(number: u64, settings: &Settings) -> Guest {
        let g = geometry(settings);
        Guest::of(Arc::new(Window::new(number, g.lanes * g.slots)))
    }

    /// One of whom this is remembered.
    pub(super) fn of(window: Arc<Window>) -> Guest {
        Guest {
            window,
            lanes: GuestLanes { known: BTreeMap::new(), ends: BTreeMap::new(), live: BTreeMap::new(), admitted: false },
            gone: None,
        }
    }

    /// It vanished: its lanes go, what was executed for it stays.
    pub(super) fn vanish(&mut self) {
        self.gone = Some(now());
        self.lanes.ends.clear();
        self.lanes.live.clear();
    }

    /// Whether a lane of it was lost, so that it may have offered another that was not heard of.
    pub(super) fn has_lost(&self) -> bool {
        self.lanes.live.values().any(|lane| lane.upgrade().is_none_or(|lane| !lane.is_usable()))
    }
}

/// Whether these bytes are the offer of a client that has been let in by another process of this shard.
pub(super) fn is_survivor(bytes: &[u8], settings: &Settings, incarnation: Incarnation) -> bool {
    let offer = decode_offer(bytes, settings, EndOf::Client);
    offer.is_ok_and(|offer| offer.answers.0 != 0 && offer.answers != incarnation)
}

/// Where a shard's lanes are made.
#[derive(Debug)]
pub(super) struct Host<'a> {
    pub(super) fabric: &'a Sim,
    pub(super) settings: &'a Settings,
    pub(super) incarnation: Incarnation,
    pub(super) cqs: (&'a Arc<SimCq>, &'a Arc<SimCq>),
}

/// New lanes, and the answer that says so, if there is something to say.
pub(super) type LetIn = (Vec<Arc<ServerLane<Sim>>>, Option<Vec<u8>>);

/// Reads what a client offers and answers it.
pub(super) fn handshake(
    host: &Host<'_>,
    guest: &mut Guest,
    (client, incarnation): (ClientId, Incarnation),
    bytes: &[u8],
) -> Result<LetIn> {
    let offer = decode_offer(bytes, host.settings, EndOf::Client)?;
    if offer.incarnation != incarnation {
        return Err(Error::new(Status::DeploymentMismatch, "the offer is not of the process that published it"));
    }
    let answering = respond::Host {
        fabric: host.fabric,
        settings: host.settings,
        incarnation: host.incarnation,
        client,
        guest: incarnation,
        window: &guest.window,
        rows: None,
    };
    let completions = |_| Completions { send: Arc::clone(host.cqs.0), recv: Arc::clone(host.cqs.1), waker: None };
    let mut made = Vec::new();
    let times = (now(), soon());
    let lanes = &mut guest.lanes;
    let response = respond::respond(&answering, lanes, &offer, times, completions, |lane| made.push(lane))?;
    Ok((made, response.answer.map(|answer| answer.encode())))
}

/// Publishes what a client's care has to say.
pub(super) fn publish(member: &mut super::member::Membership, at: u64, offers: Vec<(u32, Vec<u8>)>, wires: &mut Wires) {
    for (shard, offer) in offers {
        member.publish(at, Peer::Server(ShardId(shard)), offer, wires);
    }
}
