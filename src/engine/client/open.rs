//! From settings to connected channels.

use super::super::connect::{Completions, End, decode_offer, geometry, scheme};
use super::super::{fresh_incarnation, host_name, identity};
use crate::control::{ControlClient, Member, Peer, Role};
use crate::error::{Error, Layer, Result, Status};
use crate::fabric::Fabric;
use crate::ids::{ClientId, Incarnation, ShardId};
use crate::lane::LaneOffer;
use crate::options::{GetResponseMode, Integrity, PutTransferMode, Settings};
use crate::ps::client::{INDEX_MAX, PsClientOptions, Record, SHARDS_MAX};
use crate::ps::routing::Router;
use crate::rpc::{Channel, ClientLaneParts, PacePolicy, Scheme};
use crate::sync::Arc;
use crate::time::{Tick, now, pause};
use core::time::Duration;

/// How long to wait before asking again for an answer that was meant for an earlier process of our number.
const ASK_AGAIN: Duration = Duration::from_millis(5);

pub(super) fn router(settings: &Settings) -> Router {
    Router::new(settings.hash_method, settings.num_shards)
}

pub(super) fn ps_options(settings: &Settings) -> PsClientOptions {
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

/// Offers lanes to every shard, then connects each to the shard's answer.
pub(super) fn channels<F: Fabric>(
    fabric: &F,
    settings: &Settings,
    control: &ControlClient,
    incarnation: Incarnation,
    deadline: Tick,
) -> Result<(Vec<Channel<F, Record>>, u64)> {
    let asked = scheme(fabric, settings)?;
    let geometry = geometry(settings);
    let mut ends = Vec::new();
    for shard in 0..settings.num_shards {
        let (send, recv) = (fabric.create_cq(settings.cq_depth)?, fabric.create_cq(settings.cq_depth)?);
        let bytes = (geometry.client_region_bytes(), geometry.server_region_bytes());
        let end = End::make(fabric, settings, geometry.lanes, bytes, |_| Completions {
            send: Arc::clone(&send),
            recv: Arc::clone(&recv),
            waker: None,
        })?;
        let offer = end.offer(geometry, asked, settings.integrity, incarnation, Incarnation(0));
        control.publish_lanes(Peer::Server(ShardId(shard)), offer.encode())?;
        ends.push((end, send, recv));
    }
    let mut channels = Vec::new();
    let mut bytes = 0;
    for (shard, (end, send, recv)) in (0..settings.num_shards).zip(ends) {
        let named = |error: Box<Error>| error.at_shard(shard).in_layer(Layer::Node);
        let answer = answer_of(control, settings, shard, incarnation, deadline).map_err(named)?;
        let scheme = Scheme::from_code(answer.scheme).filter(|s| s.fits(&fabric.capabilities())).ok_or_else(|| {
            named(Error::new(
                Status::DeploymentMismatch,
                format!("shard {shard} answered commit scheme {}, which this fabric cannot carry", answer.scheme),
            ))
        })?;
        end.connect(&answer, deadline).map_err(named)?;
        bytes += (geometry.client_region_bytes() + end.staging.as_ref().map_or(0, |_| geometry.server_region_bytes()))
            as u64;
        let lanes = (0..geometry.lanes)
            .zip(end.queue_pairs)
            .map(|(lane, qp)| ClientLaneParts {
                shard,
                lane,
                generation: answer.generation,
                scheme,
                geometry,
                qp,
                send_cq: Arc::clone(&send),
                recv_cq: Arc::clone(&recv),
                responses: end.slots.clone(),
                staging: end.staging.clone(),
                remote: answer.region,
            })
            .collect();
        channels.push(Channel::new(shard, settings.integrity == Integrity::Crc32c, lanes).map_err(named)?);
    }
    Ok((channels, bytes))
}

/// The shard's answer to this incarnation's offer.
fn answer_of(
    control: &ControlClient,
    settings: &Settings,
    shard: u32,
    incarnation: Incarnation,
    deadline: Tick,
) -> Result<LaneOffer> {
    let ours = geometry(settings);
    loop {
        let bytes = control.get_lanes(Peer::Server(ShardId(shard)), deadline.remaining())?;
        let answer = decode_offer(&bytes, ours, ours.server_region_bytes(), settings.integrity)?;
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
