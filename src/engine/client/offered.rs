//! This side's half of the lanes to one shard: offered, and connected to the shard's answer. Each is one step that waits
//! for nobody, so that real threads and simulated worlds take the same.

use super::mend::ShardMend;
use crate::engine::connect::{Completions, End, EndOf, FIRST_GENERATION, blank_offer, placement, scheme};
use crate::error::{Error, Result, Status};
use crate::fabric::{Fabric, Qp};
use crate::ids::Incarnation;
use crate::lane::LaneOffer;
use crate::options::{Integrity, Settings, SharedReads};
use crate::ps::client::Record;
use crate::rpc::{Bell, Channel, ClientLaneParts, Placement, Scheme, Witness};
use crate::sync::Arc;
use crate::time::Tick;

/// Lanes that were offered and not answered yet.
#[derive(Debug)]
pub(crate) struct Offered<F: Fabric> {
    end: End<F>,
    own: LaneOffer,
    cqs: (Arc<F::Cq>, Arc<F::Cq>),
}

/// Lanes that are connected.
#[derive(Debug)]
pub(crate) struct Met<F: Fabric> {
    pub(crate) channel: Channel<F, Record>,
    /// What it takes to rebuild them.
    pub(crate) mend: ShardMend<F>,
    /// Tells the shard what was answered.
    pub(crate) echo: Vec<u8>,
}

impl<F: Fabric> Offered<F> {
    /// Makes this side's end, and the offer of it.
    pub(crate) fn make(fabric: &F, settings: &Settings, incarnation: Incarnation) -> Result<Offered<F>> {
        let asked = scheme(fabric, settings)?;
        let lanes: Vec<(u32, u32)> = (0..settings.lanes_at_open()).map(|lane| (lane, FIRST_GENERATION)).collect();
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

    /// The offer, for the control plane.
    pub(crate) fn encode(&self) -> Vec<u8> {
        self.own.encode()
    }

    /// Connects every lane of the offer to the shard's end of it.
    ///
    /// # Errors
    /// `DeploymentMismatch` when the answer cannot be this offer's; what connecting fails with.
    pub(crate) fn connect(
        self,
        fabric: &F,
        shard: u32,
        settings: &Settings,
        answer: &LaneOffer,
        bell: &Arc<Bell>,
        deadline: Tick,
    ) -> Result<Met<F>> {
        let refuse = |what: String| Error::new(Status::DeploymentMismatch, what);
        let scheme = Scheme::from_code(answer.scheme).filter(|s| s.fits(&fabric.capabilities())).ok_or_else(|| {
            refuse(format!("shard {shard} answered commit scheme {}, which this fabric cannot carry", answer.scheme))
        })?;
        let Offered { end: End { lanes, slots, staging, geometry }, mut own, cqs } = self;
        let incarnation = own.incarnation;
        let mut parts = Vec::with_capacity(lanes.len());
        for (place, (lane, generation, qp)) in (0..).zip(lanes) {
            let theirs = answer
                .answer_to(incarnation, lane, generation)
                .ok_or_else(|| refuse(format!("shard {shard} left lane {lane} out of its answer")))?;
            qp.connect(&theirs.queue_pair, deadline.remaining())?;
            parts.push(ClientLaneParts {
                shard,
                lane,
                generation,
                scheme,
                here: Placement { place, geometry },
                there: placement(answer, theirs),
                qp,
                send_cq: Arc::clone(&cqs.0),
                recv_cq: Arc::clone(&cqs.1),
                responses: slots.clone(),
                staging: staging.clone(),
                remote: theirs.region,
                witness: Witness::new(answer.incarnation, answer.window),
                rows: answer.rows.filter(|_| settings.shared_reads == SharedReads::Auto),
            });
        }
        own.answers = answer.incarnation;
        for end in &mut own.ends {
            end.answers = answer.answer_to(incarnation, end.lane, end.generation).map_or(0, |theirs| theirs.generation);
        }
        let echo = own.encode();
        let checksum = settings.integrity == Integrity::Crc32c;
        let channel = Channel::new(shard, checksum, settings.qps_per_client_per_shard, parts, bell)?;
        Ok(Met { channel, mend: ShardMend::new(own, cqs, answer.incarnation), echo })
    }
}
