//! One end of a group of lanes: made, offered to the peer, connected to the peer's answer.

use crate::error::{Error, Result, Status};
use crate::fabric::{Access, Fabric, Qp, QpConfig, Region};
use crate::ids::Incarnation;
use crate::lane::LaneOffer;
use crate::options::{CommitScheme, Integrity, Settings};
use crate::rpc::Scheme;
use crate::sync::Arc;
use crate::time::Tick;
use crate::wire::Geometry;

/// The first connection of a lane. Rebuilt lanes count on from here.
pub(super) const FIRST_GENERATION: u32 = 1;

/// Queue pairs and memory of this end.
pub(super) struct End<F: Fabric> {
    pub(super) queue_pairs: Vec<F::Qp>,
    /// This end's slots, which the peer writes.
    pub(super) slots: F::Region,
    /// Memory that writes are posted from, laid out as the peer's region; None where windows are used.
    pub(super) staging: Option<F::Region>,
}

/// How slots lie, as this process's options say.
pub(super) fn geometry(settings: &Settings) -> Geometry {
    Geometry {
        lanes: settings.qps_per_client_per_shard,
        slots: settings.slots_per_qp,
        request_payload_bytes: settings.request_slot_bytes,
        response_payload_bytes: settings.response_slot_bytes,
    }
}

/// The scheme of this process's options on this fabric.
///
/// # Errors
/// `OptionConflict` when the fabric cannot carry it.
pub(super) fn scheme<F: Fabric>(fabric: &F, settings: &Settings) -> Result<Scheme> {
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
    /// Makes this end: `ours` and `theirs` are the bytes of the two regions; `cqs` gives each lane its queues and waker.
    pub(super) fn make(
        fabric: &F,
        settings: &Settings,
        lanes: u32,
        (ours, theirs): (usize, usize),
        mut cqs: impl FnMut(u32) -> Completions<F>,
    ) -> Result<End<F>> {
        let slots = fabric.allocate(ours, Access::REMOTE_WRITE)?;
        let staging =
            if fabric.capabilities().load_store { None } else { Some(fabric.allocate(theirs, Access::LOCAL)?) };
        let config = QpConfig {
            max_send_wr: settings.max_send_wr,
            max_recv_wr: settings.slots_per_qp.max(1) * 2,
            generation: FIRST_GENERATION,
        };
        let exposed = [slots.clone()];
        let queue_pairs = (0..lanes)
            .map(|lane| {
                let c = cqs(lane);
                fabric.create_qp(&config, &exposed, &c.send, &c.recv, c.waker.as_ref())
            })
            .collect::<Result<Vec<_>>>()?;
        Ok(End { queue_pairs, slots, staging })
    }

    /// What the peer must know of this end.
    pub(super) fn offer(
        &self,
        geometry: Geometry,
        scheme: Scheme,
        integrity: Integrity,
        incarnation: Incarnation,
        answers: Incarnation,
    ) -> LaneOffer {
        LaneOffer {
            incarnation,
            answers,
            generation: FIRST_GENERATION,
            scheme: scheme as u8,
            integrity: u8::from(integrity == Integrity::Crc32c),
            geometry,
            region: self.slots.address(),
            queue_pairs: self.queue_pairs.iter().map(Qp::address).collect(),
        }
    }

    /// Connects every lane to the peer's end.
    pub(super) fn connect(&self, peer: &LaneOffer, deadline: Tick) -> Result<()> {
        for (qp, address) in self.queue_pairs.iter().zip(&peer.queue_pairs) {
            qp.connect(address, deadline.remaining())?;
        }
        Ok(())
    }
}

/// Where a lane's completions go, and what its peer rings.
pub(super) struct Completions<F: Fabric> {
    pub(super) send: Arc<F::Cq>,
    pub(super) recv: Arc<F::Cq>,
    pub(super) waker: Option<Arc<F::Waker>>,
}

/// Decodes what the peer published, and checks it against this process's own options: the deployment digest has done so
/// at the control plane already, so a difference here means a peer that does not keep to it.
///
/// `least` is what the slots of the peer's side take.
pub(super) fn decode_offer(bytes: &[u8], ours: Geometry, least: usize, integrity: Integrity) -> Result<LaneOffer> {
    let refuse = |what: String| Error::new(Status::DeploymentMismatch, what);
    let offer = LaneOffer::decode(bytes).map_err(|what| refuse(format!("the peer published {what}")))?;
    if offer.geometry != ours {
        return Err(refuse(format!("slots lie differently: here {ours:?}, at the peer {:?}", offer.geometry)));
    }
    if offer.integrity != u8::from(integrity == Integrity::Crc32c) {
        return Err(refuse(format!("integrity is {} here and {} at the peer", integrity.word(), offer.integrity)));
    }
    if offer.generation != FIRST_GENERATION {
        return Err(refuse(format!("the peer offers generation {}, expected {FIRST_GENERATION}", offer.generation)));
    }
    if offer.region.bytes < least as u64 || !offer.region.access.allows(Access::REMOTE_WRITE) {
        return Err(refuse(format!("the peer's region {:?} does not hold slots of {least} bytes", offer.region)));
    }
    Ok(offer)
}
