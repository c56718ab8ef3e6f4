//! What a member says of itself when somebody looks at the deployment: few numbers, under short names.

use super::{Source, numbers};
use crate::observe::sample::lookup;

/// Names in a report, and the numbers that they stand for. What a member does not have is left out.
const FIGURES: &[(&str, &str)] = &[
    ("requests", "reclane_client_slot_uses_total"),
    ("gets", "reclane_client_requests_total{op=\"get\"}"),
    ("puts", "reclane_client_requests_total{op=\"put\"}"),
    ("updates", "reclane_client_requests_total{op=\"update\"}"),
    ("failed", "reclane_client_failed_total"),
    ("timeouts", "reclane_client_timeouts_total"),
    ("retries", "reclane_client_retries_total"),
    ("no_slot", "reclane_client_no_slot_total"),
    ("slots", "reclane_client_slots"),
    ("slots_held", "reclane_client_slots_held"),
    ("lanes_connecting", "reclane_client_lanes{state=\"connecting\"}"),
    ("lanes_active", "reclane_client_lanes{state=\"active\"}"),
    ("lanes_dirty", "reclane_client_lanes{state=\"dirty\"}"),
    ("lanes_rebuilding", "reclane_client_lanes{state=\"rebuilding\"}"),
    ("lanes_dead", "reclane_client_lanes{state=\"dead\"}"),
    ("rebuilds", "reclane_client_lane_rebuilds_total"),
    ("lane_bytes", "reclane_client_lane_bytes"),
    ("get_p50_ns", "reclane_client_latency_seconds{op=\"get\"}.p50"),
    ("get_p99_ns", "reclane_client_latency_seconds{op=\"get\"}.p99"),
    ("put_p50_ns", "reclane_client_latency_seconds{op=\"put\"}.p50"),
    ("put_p99_ns", "reclane_client_latency_seconds{op=\"put\"}.p99"),
    ("update_p50_ns", "reclane_client_latency_seconds{op=\"update\"}.p50"),
    ("update_p99_ns", "reclane_client_latency_seconds{op=\"update\"}.p99"),
    ("gets", "reclane_server_requests_total{op=\"get\"}"),
    ("puts", "reclane_server_requests_total{op=\"put\"}"),
    ("updates", "reclane_server_requests_total{op=\"update\"}"),
    ("refused", "reclane_server_refused_total"),
    ("failed", "reclane_server_internal_errors_total"),
    ("repeated", "reclane_server_repeated_total"),
    ("rounds", "reclane_server_thread_rounds_total"),
    ("empty_rounds", "reclane_server_thread_empty_rounds_total"),
    ("sleeps", "reclane_server_thread_sleeps_total"),
    ("lanes", "reclane_server_lanes"),
    ("lane_bytes", "reclane_server_lane_bytes"),
    ("clients", "reclane_server_clients"),
    ("slots", "reclane_server_slots"),
    ("queued", "reclane_server_queued_requests"),
    ("checkpoints", "reclane_server_checkpoints_total{stage=\"written\"}"),
    ("checkpoint_epoch", "reclane_server_checkpoint_epoch"),
    ("get_p50_ns", "reclane_server_service_seconds{op=\"get\"}.p50"),
    ("get_p99_ns", "reclane_server_service_seconds{op=\"get\"}.p99"),
    ("update_p50_ns", "reclane_server_service_seconds{op=\"update\"}.p50"),
    ("update_p99_ns", "reclane_server_service_seconds{op=\"update\"}.p99"),
    ("operations", "reclane_rank_operations_total"),
    ("operations_failed", "reclane_rank_failed_operations_total"),
    ("operation_bytes", "reclane_rank_operation_bytes_total"),
    ("under_way", "reclane_rank_operations_under_way"),
    ("lanes_connected", "reclane_rank_lanes{state=\"connected\"}"),
    ("lanes_idle", "reclane_rank_lanes{state=\"idle\"}"),
    ("lanes_gone", "reclane_rank_lanes{state=\"gone\"}"),
    ("connections", "reclane_rank_lane_connections_total"),
    ("guest_lanes", "reclane_rank_guest_lanes"),
    ("peers", "reclane_rank_peers"),
    ("regions", "reclane_rank_regions"),
    ("region_bytes", "reclane_rank_region_bytes"),
    ("atomics_executed", "reclane_rank_atomics_executed_total"),
    ("held", "reclane_rank_held"),
    ("errors", "reclane_events_total{level=\"error\"}"),
    ("warnings", "reclane_events_total{level=\"warn\"}"),
];

/// The figures of a member.
pub(in crate::engine) fn figures(source: &dyn Source) -> Vec<(String, u64)> {
    of(&numbers(source))
}

/// The same from numbers that were read elsewhere, as from the file of a process that does not answer.
#[must_use]
pub fn of(samples: &[crate::observe::sample::Sample]) -> Vec<(String, u64)> {
    let known = |wanted: &str| {
        let (name, _) = wanted.split_once(['{', '.']).unwrap_or((wanted, ""));
        samples.iter().any(|sample| sample.name == name)
    };
    let read = |(name, wanted): &(&str, &str)| {
        let number = if known(wanted) { lookup(samples, wanted).ok() } else { None };
        number.map(|number| ((*name).to_owned(), number))
    };
    FIGURES.iter().filter_map(read).collect()
}
