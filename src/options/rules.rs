//! What holds between options.

use super::bag::Options;
use super::choices::{RecoveryPreset, RequestRetry, Side};
use super::subnet::Subnet;
use super::table::Settings;
use super::value::Value;
use crate::error::{Error, Result, Status};

/// Fills in what one option says about another: the process's number, and the name of an unnamed namespace.
pub(super) fn complete(settings: &mut Settings, options: &Options, side: Side) -> Result<()> {
    if settings.namespace.is_empty() {
        settings.namespace = "default".to_owned();
    }
    if settings.recovery_preset == RecoveryPreset::Resilient {
        resilient(settings, options);
    }
    let Some(global) = settings.global_id else { return Ok(()) };
    match side {
        Side::Server => {
            if options.given("shard_id").is_some() && settings.shard_id != global {
                return conflict(options, "both number this server", &["global_id", "shard_id"], settings);
            }
            settings.shard_id = global;
        }
        Side::Client => {
            let Some(index) = global.checked_sub(settings.num_shards) else {
                let why = "numbers below num-server-processes are the servers'";
                return conflict(options, why, &["global_id", "num_shards"], settings);
            };
            if settings.client_id.is_some_and(|client| client != index) {
                let why = "a client's global-id is num-server-processes plus its client-id";
                return conflict(options, why, &["global_id", "client_id", "num_shards"], settings);
            }
            settings.client_id = Some(index);
        }
        Side::Both => {}
    }
    Ok(())
}

/// What recovery-preset=resilient says about options that were not given.
fn resilient(s: &mut Settings, options: &Options) {
    let free = |field: &str| options.given(field).is_none();
    for (field, flag) in [("lane_rebuild_enabled", &mut s.lane_rebuild_enabled), ("health_push", &mut s.health_push)] {
        *flag |= free(field);
    }
    if free("request_retry") {
        s.request_retry = RequestRetry::ExactlyOnce;
    }
    for (field, value, preset) in [
        ("heartbeat_interval_ms", &mut s.heartbeat_interval_ms, 50),
        ("health_stale_ms", &mut s.health_stale_ms, 150),
        ("health_dead_ms", &mut s.health_dead_ms, 300),
        ("health_probe_after_ms", &mut s.health_probe_after_ms, 100),
        ("health_probe_interval_ms", &mut s.health_probe_interval_ms, 100),
        ("health_probe_timeout_ms", &mut s.health_probe_timeout_ms, 300),
        ("lane_probe_idle_ms", &mut s.lane_probe_idle_ms, 100),
        ("lane_rebuild_sweep_ms", &mut s.lane_rebuild_sweep_ms, 50),
        ("lane_rebuild_refill_ms", &mut s.lane_rebuild_refill_ms, 500),
        ("lane_rebuild_cooldown_ms", &mut s.lane_rebuild_cooldown_ms, 20),
        ("lane_rebuild_wait_ms", &mut s.lane_rebuild_wait_ms, 1000),
    ] {
        if free(field) {
            *value = preset;
        }
    }
}

/// A rule: whether it is broken, the options it names (those to change first), and why it exists.
struct Rule {
    broken: bool,
    fields: &'static [&'static str],
    why: &'static str,
}

/// Checks all rules; the first broken one is the answer.
pub(super) fn check(settings: &Settings, options: &Options, side: Side) -> Result<()> {
    let mut rules = common(settings);
    match side {
        Side::Server => rules.extend(server(settings)),
        Side::Client => rules.extend(client(settings, options)),
        Side::Both => {}
    }
    match rules.iter().find(|rule| rule.broken) {
        Some(rule) => conflict(options, rule.why, rule.fields, settings),
        None => Ok(()),
    }
}

fn common(s: &Settings) -> Vec<Rule> {
    let capacity = u64::from(s.qps_per_client_per_shard) * u64::from(s.slots_per_qp);
    vec![
        Rule {
            broken: u64::from(s.async_depth) > capacity,
            fields: &["async_depth", "qps_per_client_per_shard", "slots_per_qp"],
            why: "async-depth may be at most qps-per-client-per-shard * slots-per-qp",
        },
        Rule {
            broken: !s.value_size.is_multiple_of(4),
            fields: &["value_size"],
            why: "rows are made of 4-byte floats, so value-size is a multiple of 4",
        },
        Rule {
            broken: s.response_slot_bytes < s.value_size,
            fields: &["response_slot_bytes", "value_size"],
            why: "a response slot holds at least one row",
        },
        Rule {
            broken: s.request_slot_bytes < s.value_size.saturating_add(8),
            fields: &["request_slot_bytes", "value_size"],
            why: "a request slot holds at least one key (8 bytes) and its row",
        },
        Rule {
            broken: s.heartbeat_interval_ms >= s.health_stale_ms,
            fields: &["heartbeat_interval_ms", "health_stale_ms"],
            why: "a healthy shard would be suspect between two heartbeats; the interval must be the shorter one",
        },
        Rule {
            broken: s.health_stale_ms >= s.health_dead_ms,
            fields: &["health_stale_ms", "health_dead_ms"],
            why: "a shard is suspect before it is dead; health-stale-ms must be the shorter one",
        },
        Rule {
            broken: s.lane_rebuild_poll_ms > s.lane_rebuild_poll_max_ms,
            fields: &["lane_rebuild_poll_ms", "lane_rebuild_poll_max_ms"],
            why: "the interval grows up to poll-max-ms, so it cannot start above it",
        },
        Rule {
            broken: u64::from(s.slots_per_qp) * 4 > u64::from(s.max_send_wr),
            fields: &["slots_per_qp", "max_send_wr"],
            why: "each slot needs four places of its lane's send queue: a request takes two, and as many wait for a completion",
        },
        Rule {
            broken: !s.gid_subnet.is_empty() && s.gid_subnet.parse::<Subnet>().is_err(),
            fields: &["gid_subnet"],
            why: "a subnet is an address, a slash and a number of bits, as 10.77.0.0/24 or fd00::/64",
        },
        Rule {
            broken: !s.gid_subnet.is_empty() && s.gid_index.is_some(),
            fields: &["gid_index", "gid_subnet"],
            why: "an address is looked for in a subnet only when rdma-gid-index is auto",
        },
        Rule {
            broken: s.path_mtu != 0 && !(s.path_mtu >= 256 && s.path_mtu.is_power_of_two()),
            fields: &["path_mtu"],
            why: "packets carry 256, 512, 1024, 2048 or 4096 bytes; 0 takes what the port has",
        },
        Rule {
            broken: s.cq_depth < s.max_send_wr,
            fields: &["cq_depth", "max_send_wr"],
            why: "a completion queue has room for one lane's send queue at least",
        },
    ]
}

fn server(s: &Settings) -> Vec<Rule> {
    vec![
        Rule {
            broken: s.shard_id >= s.num_shards,
            fields: &["shard_id", "num_shards"],
            why: "shards are numbered from 0 to num-server-processes - 1",
        },
        Rule {
            broken: s.control_plane_port == 0 && s.shard_id != 0,
            fields: &["control_plane_port", "shard_id"],
            why: "only shard 0, which serves the control plane, may take any port; the others must know it",
        },
    ]
}

fn client(s: &Settings, options: &Options) -> Vec<Rule> {
    let counted = options.given("num_client_processes").is_some();
    vec![
        Rule {
            broken: counted && s.client_id.is_some_and(|client| client >= s.num_client_processes),
            fields: &["client_id", "num_client_processes"],
            why: "clients are numbered from 0 to num-client-processes - 1",
        },
        Rule {
            broken: s.control_plane_port == 0,
            fields: &["control_plane_port"],
            why: "a client must know the port of the control plane",
        },
    ]
}

fn conflict<T>(options: &Options, why: &str, fields: &[&str], settings: &Settings) -> Result<T> {
    let values = settings.to_values();
    let mut parts: Vec<String> = Vec::new();
    for (spec, value) in super::TABLE.iter().zip(&values).filter(|(spec, _)| fields.contains(&spec.field)) {
        let origin = match options.given(spec.field) {
            Some(given) => given.origin.as_str(),
            None if spec.field == "shard_id" && *value != Value::Number(0) => "from global-id",
            None if spec.field == "client_id" && *value != Value::Auto => "from global-id",
            None => "default",
        };
        parts.push(format!("{} = {value} ({origin})", spec.name));
    }
    let status = if fields.len() == 1 { Status::OptionBounds } else { Status::OptionConflict };
    Err(Error::new(status, format!("{}: {why}", parts.join(", "))))
}
