//! From settings to connected channels.

use super::super::connect::{Completions, End, EndOf, FIRST_GENERATION, blank_offer, decode_offer, placement, scheme};
use super::super::{fresh_incarnation, host_name, identity};
use super::mend::{ShardMend, policy};
use crate::control::{ControlClient, Member, Peer, Role};
use crate::error::{Error, Layer, Result, Status};
use crate::fabric::{Fabric, Qp};
use crate::ids::{ClientId, Incarnation, ShardId};
use crate::lane::LaneOffer;
use crate::options::{GetResponseMode, Integrity, PutTransferMode, RequestRetry, Settings};
use crate::ps::client::{INDEX_MAX, PsClientOptions, Record, SHARDS_MAX};
use crate::ps::routing::Router;
use crate::rpc::{Bell, Channel, ClientLaneParts, PacePolicy, Placement, Scheme, Witness};
use crate::sync::Arc;
use crate::time::{Tick, now, pause};
use core::time::Duration;

/// How long to wait before asking again for an answer that was meant for an earlier process of our number.
const ASK_AGAIN: Duration = Duration::from_millis(5);

pub(super) fn router(settings: &Settings) -> Router {
    Router::new(settings.hash_method, settings.num_shards)
}

pub(super) fn ps_options(settings: &Settings, incarnation: Incarnation) -> PsClientOptions {
    PsClientOptions {
        keys_max: settings.max_kv_num_per_request,
        direct: settings.get_response_mode != GetResponseMode::StagingCopy,
        put_read: settings.put_v2_transfer_mode == PutTransferMode::Read,
        pace: PacePolicy {
            spins: settings.wait_spin_iterations,
            yields: if settings.wait_sleep_us == 0 { u32::MAX } else { settings.wait_yield_iterations },
            sleep: Duration::from_micros(u64::from(settings.wait_sleep_us)),
        },
        wait_timeout: Duration::from_millis(settings.wait_timeout_ms),
        default_dim: settings.value_size / 4,
        retry: settings.request_retry == RequestRetry::ExactlyOnce,
        rebuild: policy(settings, incarnation),
        health_after: Duration::from_millis(settings.health_probe_after_ms),
        health_every: Duration::from_millis(settings.health_probe_interval_ms),
    }
}

/// Joins the control plane and waits for the shards.
pub(super) fn join(settings: &Settings, deadline: Tick) -> Result<(ControlClient, Incarnation)> {
    let slots = u64::from(settings.qps_per_client_per_shard) * u64::from(settings.slots_per_qp);
    if settings.num_shards as usize > SHARDS_MAX || slots > INDEX_MAX as u64 {
        return Err(Error::new(
            Status::OptionBounds,
            format!(
                "num-server-processes={} must be at most {SHARDS_MAX}, and qps-per-client-per-shard * slots-per-qp = \
                 {slots} at most {INDEX_MAX}",
                settings.num_shards
            ),
        ));
    }
    let incarnation = fresh_incarnation()?;
    let member = Member {
        role: Role::Client(settings.client_id.map(ClientId)),
        incarnation,
        pid: std::process::id(),
        host: host_name(),
    };
    let control = ControlClient::join(
        &settings.control_plane_host,
        settings.control_plane_port,
        deadline.remaining(),
        &identity(settings)?,
        &member,
    )?;
    control.wait_servers_ready(deadline.remaining())?;
    Ok((control, incarnation))
}

/// Channels to all shards, and what it takes to rebuild their lanes.
pub(super) type Connected<F> = (Vec<Channel<F, Record>>, Vec<ShardMend<F>>, u64);

/// Offers lanes to every shard, then connects each to the shard's answer, and echoes what was answered.
pub(super) fn channels<F: Fabric>(
    fabric: &F,
    settings: &Settings,
    control: &ControlClient,
    incarnation: Incarnation,
    bell: &Arc<Bell>,
    deadline: Tick,
) -> Result<Connected<F>> {
    let asked = scheme(fabric, settings)?;
    let lanes: Vec<(u32, u32)> = (0..settings.qps_per_client_per_shard).map(|lane| (lane, FIRST_GENERATION)).collect();
    let mut made = Vec::new();
    for shard in 0..settings.num_shards {
        let (send, recv) = (fabric.create_cq(settings.cq_depth)?, fabric.create_cq(settings.cq_depth)?);
        let end = End::make(fabric, settings, EndOf::Client, &lanes, &[], |_| Completions {
            send: Arc::clone(&send),
            recv: Arc::clone(&recv),
            waker: None,
        })?;
        let mut own = blank_offer(settings, asked, incarnation);
        own.ends = (0..lanes.len()).filter_map(|place| end.describe(place, FIRST_GENERATION, 0)).collect();
        control.publish_lanes(Peer::Server(ShardId(shard)), own.encode())?;
        made.push((end, own, (send, recv)));
    }
    let (mut channels, mut shards, mut bytes) = (Vec::new(), Vec::new(), 0);
    for (shard, (end, mut own, cqs)) in (0..).zip(made) {
        let named = |error: Box<Error>| error.at_shard(shard).in_layer(Layer::Node);
        let answer = answer_of(control, settings, shard, incarnation, deadline).map_err(named)?;
        bytes += end.bytes();
        let parts = connect_all(fabric, shard, end, &answer, &cqs, incarnation, deadline).map_err(named)?;
        own.answers = answer.incarnation;
        for end in &mut own.ends {
            end.answers = answer.answer_to(incarnation, end.lane, end.generation).map_or(0, |theirs| theirs.generation);
        }
        control.publish_lanes(Peer::Server(ShardId(shard)), own.encode())?;
        channels.push(Channel::new(shard, settings.integrity == Integrity::Crc32c, parts, bell).map_err(named)?);
        shards.push(ShardMend::new(own, cqs, answer.incarnation));
    }
    Ok((channels, shards, bytes))
}

/// Connects every lane to the shard's end of it.
fn connect_all<F: Fabric>(
    fabric: &F,
    shard: u32,
    end: End<F>,
    answer: &LaneOffer,
    cqs: &(Arc<F::Cq>, Arc<F::Cq>),
    incarnation: Incarnation,
    deadline: Tick,
) -> Result<Vec<ClientLaneParts<F>>> {
    let refuse = |what: String| Error::new(Status::DeploymentMismatch, what);
    let scheme = Scheme::from_code(answer.scheme).filter(|s| s.fits(&fabric.capabilities())).ok_or_else(|| {
        refuse(format!("shard {shard} answered commit scheme {}, which this fabric cannot carry", answer.scheme))
    })?;
    let End { lanes, slots, staging, geometry } = end;
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
            witness: Witness { incarnation: answer.incarnation, window: answer.window },
        });
    }
    Ok(parts)
}

/// The shard's answer to this incarnation's offer.
fn answer_of(
    control: &ControlClient,
    settings: &Settings,
    shard: u32,
    incarnation: Incarnation,
    deadline: Tick,
) -> Result<LaneOffer> {
    loop {
        let bytes = control.get_lanes(Peer::Server(ShardId(shard)), deadline.remaining())?;
        let answer = decode_offer(&bytes, settings, EndOf::Server)?;
        if answer.answers == incarnation {
            return Ok(answer);
        }
        if now() >= deadline {
            return Err(Error::new(
                Status::StartupTimeout,
                format!(
                    "shard {shard} did not answer this client's lanes within {} ms",
                    settings.control_plane_timeout_ms
                ),
            ));
        }
        pause(ASK_AGAIN);
    }
}
