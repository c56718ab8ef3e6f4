//! From settings to connected channels.

use super::super::connect::{EndOf, decode_offer, expect};
use super::super::{fresh_incarnation, host_name, identity};
use super::mend::{ShardMend, policy};
use super::offered::Offered;
use crate::control::{ControlClient, Member, Peer, Role};
use crate::error::{Error, Layer, Result, Status};
use crate::fabric::Fabric;
use crate::ids::{ClientId, Incarnation, ShardId};
use crate::lane::LaneOffer;
use crate::options::{GetResponseMode, PutTransferMode, RequestRetry, Settings};
use crate::ps::client::{INDEX_MAX, PsClientOptions, Record, SHARDS_MAX};
use crate::ps::routing::Router;
use crate::rpc::{Bell, Channel, PacePolicy};
use crate::sync::Arc;
use crate::time::{Tick, now, pause};
use crate::wire::flags;
use core::time::Duration;

/// How long to wait before asking again for an answer that was meant for an earlier process of our number.
const ASK_AGAIN: Duration = Duration::from_millis(5);

/// How long submitting may wait for a lane that is connected for the first time, before it answers `NoSlot`: many times
/// what that takes on a busy host.
const GROWTH: Duration = Duration::from_secs(1);

pub(super) fn router(settings: &Settings) -> Router {
    Router::new(settings.hash_method, settings.num_shards)
}

pub(super) fn ps_options(settings: &Settings, incarnation: Incarnation) -> PsClientOptions {
    PsClientOptions {
        keys_max: settings.max_kv_num_per_request,
        get_flags: match settings.get_response_mode {
            GetResponseMode::Auto => flags::DIRECT | flags::COPY_ALLOWED,
            GetResponseMode::DirectSg => flags::DIRECT,
            GetResponseMode::StagingCopy => flags::COPY_ALLOWED,
        },
        put_read: settings.put_v2_transfer_mode == PutTransferMode::Read,
        pace: PacePolicy {
            spins: settings.wait_spin_iterations,
            yields: if settings.wait_sleep_us == 0 { u32::MAX } else { settings.wait_yield_iterations },
            sleep: Duration::from_micros(u64::from(settings.wait_sleep_us)),
        },
        growth: GROWTH,
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
pub(super) type Connected<F> = (Vec<Channel<F, Record>>, Vec<ShardMend<F>>);

/// Offers lanes to every shard, then connects each to the shard's answer, and echoes what was answered.
pub(super) fn channels<F: Fabric>(
    fabric: &F,
    settings: &Settings,
    control: &ControlClient,
    incarnation: Incarnation,
    bell: &Arc<Bell>,
    deadline: Tick,
) -> Result<Connected<F>> {
    let mut made = Vec::new();
    expect(fabric, settings, EndOf::Client, settings.num_shards, settings.lanes_at_open());
    for shard in 0..settings.num_shards {
        let offered = Offered::make(fabric, settings, incarnation)?;
        control.publish_lanes(Peer::Server(ShardId(shard)), offered.encode())?;
        made.push(offered);
    }
    let (mut channels, mut shards) = (Vec::new(), Vec::new());
    for (shard, offered) in (0..).zip(made) {
        let named = |error: Box<Error>| error.at_shard(shard).in_layer(Layer::Node);
        let answer = answer_of(control, settings, shard, incarnation, deadline).map_err(named)?;
        let met = offered.connect(fabric, shard, settings, &answer, bell, deadline).map_err(named)?;
        control.publish_lanes(Peer::Server(ShardId(shard)), met.echo)?;
        channels.push(met.channel);
        shards.push(met.mend);
    }
    Ok((channels, shards))
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
