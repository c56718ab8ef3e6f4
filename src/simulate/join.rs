//! How the lanes of a simulated client and a simulated shard come to be, and come to be again: the product's own offers,
//! ends, machines and checks, one step at a time. The client's side is the engine's mender, the shard's side the engine's
//! answer to an offer; only the threads around them are not there.

use super::wires::Wires;
use crate::control::{Event, Health, Peer};
use crate::engine::client::mend::{Board, Mender, News, ShardMend};
use crate::engine::connect::{
    Completions, End, EndOf, FIRST_GENERATION, blank_offer, decode_offer, geometry, placement, scheme,
};
use crate::engine::server::guests::GuestLanes;
use crate::engine::server::respond;
use crate::error::{Error, Result, Status};
use crate::fabric::sim::{Sim, SimCq};
use crate::fabric::{Fabric, Qp};
use crate::ids::{ClientId, Incarnation, ShardId};
use crate::lane::{DirtyReason, LaneOffer};
use crate::options::{Integrity, Settings};
use crate::ps::client::{PsClient, Record};
use crate::rpc::{Bell, Channel, ClientLaneParts, Placement, Scheme, ServerLane, Window, Witness};
use crate::sync::Arc;
use crate::time::{Tick, now};
use core::cell::RefCell;
use core::time::Duration;
use std::collections::BTreeMap;

fn soon() -> Duration {
    Duration::from_secs(1)
}

/// One client's end of its lanes to one shard, offered and not answered yet.
#[derive(Debug)]
pub(super) struct Offered {
    end: End<Sim>,
    own: LaneOffer,
    cqs: (Arc<SimCq>, Arc<SimCq>),
}

impl Offered {
    /// For the control plane.
    pub(super) fn encode(&self) -> Vec<u8> {
        self.own.encode()
    }
}

/// A channel, what rebuilds it, and the echo of the answer for the control plane.
pub(super) type Connected = (Channel<Sim, Record>, ShardMend<Sim>, Vec<u8>);

/// Makes a client's end and the offer of it.
pub(super) fn offer(fabric: &Sim, settings: &Settings, incarnation: Incarnation) -> Result<Offered> {
    let asked = scheme(fabric, settings)?;
    let lanes: Vec<(u32, u32)> = (0..settings.qps_per_client_per_shard).map(|lane| (lane, FIRST_GENERATION)).collect();
    let (send, recv) = (fabric.create_cq(settings.cq_depth)?, fabric.create_cq(settings.cq_depth)?);
    let end = End::make(fabric, settings, EndOf::Client, &lanes, &[], |_| Completions {
        send: Arc::clone(&send),
        recv: Arc::clone(&recv),
        waker: None,
    })?;
    let mut own = blank_offer(settings, asked, incarnation);
    own.ends = (0..lanes.len()).filter_map(|place| end.describe(place, FIRST_GENERATION, 0)).collect();
    Ok(Offered { end, own, cqs: (send, recv) })
}

/// Whether an answer is meant for this process.
pub(super) fn is_answer_to(bytes: &[u8], settings: &Settings, incarnation: Incarnation) -> Result<bool> {
    Ok(decode_offer(bytes, settings, EndOf::Server)?.answers == incarnation)
}

/// Connects to a shard's answer.
pub(super) fn connect(
    shard: u32,
    offered: Offered,
    settings: &Settings,
    incarnation: Incarnation,
    bytes: &[u8],
    bell: &Arc<Bell>,
) -> Result<Connected> {
    let answer = decode_offer(bytes, settings, EndOf::Server)?;
    let refuse = |what: &str| Error::new(Status::DeploymentMismatch, what.to_owned());
    let scheme = Scheme::from_code(answer.scheme).ok_or_else(|| refuse("an unknown commit scheme"))?;
    let Offered { end: End { lanes, slots, staging, geometry }, mut own, cqs } = offered;
    let mut parts = Vec::new();
    for (place, (lane, generation, qp)) in (0..).zip(lanes) {
        let theirs =
            answer.answer_to(incarnation, lane, generation).ok_or_else(|| refuse("the answer leaves a lane out"))?;
        qp.connect(&theirs.queue_pair, soon())?;
        parts.push(ClientLaneParts {
            shard,
            lane,
            generation,
            scheme,
            here: Placement { place, geometry },
            there: placement(&answer, theirs),
            qp,
            send_cq: Arc::clone(&cqs.0),
            recv_cq: Arc::clone(&cqs.1),
            responses: slots.clone(),
            staging: staging.clone(),
            remote: theirs.region,
            witness: Witness { incarnation: answer.incarnation, window: answer.window },
        });
    }
    own.answers = answer.incarnation;
    for end in &mut own.ends {
        end.answers = answer.answer_to(incarnation, end.lane, end.generation).map_or(0, |theirs| theirs.generation);
    }
    let echo = own.encode();
    let channel = Channel::new(shard, settings.integrity == Integrity::Crc32c, parts, bell)?;
    Ok((channel, ShardMend::new(own, cqs, answer.incarnation), echo))
}

/// What keeps a client's lanes whole.
#[derive(Debug)]
pub(super) struct Care {
    mender: Mender<Sim>,
    enabled: bool,
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
            enabled: settings.lane_rebuild_enabled || settings.lane_probe_idle_ms > 0,
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
                Health::Serving => self.tell(News::Up(shard.0), ps),
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
    pub(super) fn step(&mut self, fabric: &Sim, ps: &PsClient<Sim>) -> Vec<(u32, Vec<u8>)> {
        if self.enabled {
            self.mender.step(now(), fabric, &self.board, ps.channels(), &[]);
        }
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
    window: Arc<Window>,
    lanes: GuestLanes<Sim>,
    /// When it vanished.
    pub(super) gone: Option<Tick>,
}

impl Guest {
    pub(super) fn new(number: u64, settings: &Settings) -> Guest {
        let g = geometry(settings);
        Guest {
            window: Arc::new(Window::new(number, g.lanes * g.slots)),
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
    };
    let completions = |_| Completions { send: Arc::clone(host.cqs.0), recv: Arc::clone(host.cqs.1), waker: None };
    let mut made = Vec::new();
    let times = (now(), now().after(soon()));
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
