//! One end of a group of lanes: made, offered to the peer, connected to the peer's answer.

use crate::error::{Error, Result, Status};
use crate::fabric::{Access, Fabric, Qp, QpConfig, Region};
use crate::ids::Incarnation;
use crate::lane::{LaneEnd, LaneOffer};
use crate::options::{CommitScheme, GetResponseMode, Integrity, Settings};
use crate::rpc::{Placement, Scheme};
use crate::sync::Arc;
use crate::wire::Geometry;

/// The first connection of a lane. Rebuilt lanes count on from here.
pub(crate) const FIRST_GENERATION: u32 = 1;

/// Pieces per work request that a server asks for, to send rows from where they lie; devices grant up to 30 or so.
const SGES_OF_ROWS: u32 = 30;

/// Queue pairs and memory of one side of lanes that are connected together.
#[derive(Debug)]
pub(crate) struct End<F: Fabric> {
    /// One per lane: its number, the generation of both ends' words, and its queue pair; in the order of their places.
    pub(crate) lanes: Vec<(u32, u32, F::Qp)>,
    /// This end's slots, which the peer writes.
    pub(crate) slots: F::Region,
    /// Memory that writes are posted from, laid out as the other side would with the same places; None where windows
    /// are used.
    pub(crate) staging: Option<F::Region>,
    /// Layout of `slots`: as many places as lanes.
    pub(crate) geometry: Geometry,
}

/// Which side of a lane this process is.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum EndOf {
    Client,
    Server,
}

impl EndOf {
    /// Bytes of this side's region, and of the other's.
    pub(crate) fn bytes(self, geometry: &Geometry) -> (usize, usize) {
        let (client, server) = (geometry.client_region_bytes(), geometry.server_region_bytes());
        if self == EndOf::Client { (client, server) } else { (server, client) }
    }
}

/// How slots lie, as this process's options say.
pub(crate) fn geometry(settings: &Settings) -> Geometry {
    Geometry {
        lanes: settings.qps_per_client_per_shard,
        slots: settings.slots_per_qp,
        request_payload_bytes: settings.request_slot_bytes,
        response_payload_bytes: settings.response_slot_bytes,
    }
}

/// Tells the fabric of the memory that so many groups of so many lanes, each between a client and a shard, will take.
pub(crate) fn expect<F: Fabric>(fabric: &F, settings: &Settings, side: EndOf, groups: u32, lanes: u32) {
    let (ours, theirs) = side.bytes(&Geometry { lanes, ..geometry(settings) });
    let all = |bytes: usize| bytes.next_multiple_of(4096).saturating_mul(groups as usize);
    fabric.expect_slots(all(ours), Access::REMOTE_WRITE);
    fabric.expect_slots(all(theirs), Access::LOCAL);
}

/// The scheme of this process's options on this fabric.
///
/// # Errors
/// `OptionConflict` when the fabric cannot carry it.
pub(crate) fn scheme<F: Fabric>(fabric: &F, settings: &Settings) -> Result<Scheme> {
    let capabilities = fabric.capabilities();
    let scheme = match settings.commit_scheme {
        CommitScheme::Auto => Scheme::pick(&capabilities),
        CommitScheme::Single => Scheme::Single,
        CommitScheme::Crc => Scheme::Crc,
        CommitScheme::Imm => Scheme::Imm,
    };
    if scheme.fits(&capabilities) {
        return Ok(scheme);
    }
    Err(Error::new(
        Status::OptionConflict,
        format!(
            "commit-scheme={} needs ordered writes, which fabric {} does not promise; use auto, or vouch for the device \
             with rdma-data-in-order=yes",
            scheme.name(),
            F::NAME
        ),
    ))
}

impl<F: Fabric> End<F> {
    /// Makes this side's end of `lanes` (number and generation), in fresh memory. `exposed` are the regions beside it
    /// that the peer may reach; `cqs` gives each lane its queues and waker.
    pub(crate) fn make(
        fabric: &F,
        settings: &Settings,
        side: EndOf,
        lanes: &[(u32, u32)],
        exposed: &[F::Region],
        mut cqs: impl FnMut(u32) -> Completions<F>,
    ) -> Result<End<F>> {
        let geometry = Geometry { lanes: u32::try_from(lanes.len()).unwrap_or(u32::MAX), ..geometry(settings) };
        let (ours, theirs) = side.bytes(&geometry);
        let slots = fabric.allocate_slots(ours, Access::REMOTE_WRITE)?;
        let staging =
            if fabric.capabilities().load_store { None } else { Some(fabric.allocate_slots(theirs, Access::LOCAL)?) };
        let reachable: Vec<F::Region> = core::iter::once(&slots).chain(exposed).cloned().collect();
        let make = |(lane, generation): &(u32, u32)| {
            let config = QpConfig {
                max_send_wr: settings.max_send_wr,
                max_recv_wr: settings.slots_per_qp.max(1) * 2,
                max_send_sge: if side == EndOf::Server && settings.get_response_mode != GetResponseMode::StagingCopy {
                    SGES_OF_ROWS
                } else {
                    0
                },
                generation: *generation,
            };
            let c = cqs(*lane);
            let qp = fabric.create_qp(&config, &reachable, &c.send, &c.recv, c.waker.as_ref())?;
            Ok((*lane, *generation, qp))
        };
        let lanes = lanes.iter().map(make).collect::<Result<Vec<_>>>()?;
        Ok(End { lanes, slots, staging, geometry })
    }

    /// What the peer must know of the end at `place`. `own` is the number of this side's connection, `answers` that of
    /// the peer's.
    pub(crate) fn describe(&self, place: usize, own: u32, answers: u32) -> Option<LaneEnd> {
        let (lane, _, qp) = self.lanes.get(place)?;
        Some(LaneEnd {
            lane: *lane,
            generation: own,
            answers,
            place: u32::try_from(place).ok()?,
            places: self.geometry.lanes,
            region: self.slots.address(),
            queue_pair: qp.address(),
        })
    }
}

/// An offer of this process, without ends.
pub(crate) fn blank_offer(settings: &Settings, scheme: Scheme, incarnation: Incarnation) -> LaneOffer {
    LaneOffer {
        incarnation,
        answers: Incarnation(0),
        window: 0,
        scheme: scheme as u8,
        integrity: u8::from(settings.integrity == Integrity::Crc32c),
        geometry: geometry(settings),
        rows: None,
        ends: Vec::new(),
    }
}

/// Where the slots of a peer's end lie.
pub(crate) fn placement(offer: &LaneOffer, end: &LaneEnd) -> Placement {
    Placement { place: end.place, geometry: Geometry { lanes: end.places, ..offer.geometry } }
}

/// Where a lane's completions go, and what its peer rings.
pub(crate) struct Completions<F: Fabric> {
    pub(crate) send: Arc<F::Cq>,
    pub(crate) recv: Arc<F::Cq>,
    pub(crate) waker: Option<Arc<F::Waker>>,
}

/// Decodes what the peer published, and checks it against this process's own options: the deployment digest has done so
/// at the control plane already, so a difference here means a peer that does not keep to it.
pub(crate) fn decode_offer(bytes: &[u8], settings: &Settings, peer: EndOf) -> Result<LaneOffer> {
    let refuse = |what: String| Error::new(Status::DeploymentMismatch, what);
    let ours = geometry(settings);
    let offer = LaneOffer::decode(bytes).map_err(|what| refuse(format!("the peer published {what}")))?;
    if offer.geometry != ours {
        return Err(refuse(format!("slots lie differently: here {ours:?}, at the peer {:?}", offer.geometry)));
    }
    if offer.integrity != u8::from(settings.integrity == Integrity::Crc32c) {
        let here = settings.integrity.word();
        return Err(refuse(format!("integrity is {here} here and {} at the peer", offer.integrity)));
    }
    for end in &offer.ends {
        let (least, _) = peer.bytes(&placement(&offer, end).geometry);
        if end.region.bytes < least as u64 || !end.region.access.allows(Access::REMOTE_WRITE) {
            let what = format!("the peer's region {:?} does not hold slots of {least} bytes", end.region);
            return Err(refuse(what));
        }
    }
    Ok(offer)
}
