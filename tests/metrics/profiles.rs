//! Profile lines have the fields that operators of such servers parse.

use crate::Folder;
use crate::support::{Deployment, Process, until, with};
use std::collections::BTreeMap;

/// What each line has, in the order in which it is printed.
const CLIENT: &str = "component shard client_id submit_count wait_count revoke_count acquire_qp_count acquire_qp_failures \
    submit_avg_ns wait_status_avg_ns copy_response_avg_ns copied_bytes revoke_avg_ns pending_rpc_peak pending_rpc_avg \
    pending_rpc_last";
const SERVER: &str = "component shard threads scan_rounds scanned_slots ready_slots not_ready_slots zero_seq_ready \
    duplicate_seq_ready inflight_seq_ready empty_scan_rounds scan_hit_pct ready_round_pct avg_ready_per_round \
    max_ready_per_round handled_get handled_put handled_update handled_init invalid_descriptor wrong_shard \
    handle_get_avg_ns get_batch_get_avg_ns get_index_lookup_avg_ns get_zero_fill_avg_ns get_row_copy_avg_ns get_rows \
    get_value_bytes get_missing_rows get_direct_sg get_direct_sg_fallback get_direct_sg_avg_ns get_direct_sg_wr \
    handle_put_avg_ns handle_update_avg_ns handle_init_avg_ns complete_response_avg_ns poll_loop_avg_ns poller_active \
    poller_total_get poller_min_get poller_min_get_thread poller_max_get poller_max_get_thread";
const TRANSPORT: &str = "component role shard client_id submit_count submit_descriptor_writes submit_commit_writes \
    submit_avg_ns drain_submit_count drain_submit_avg_ns complete_count response_payload_writes \
    response_payload_sg_writes response_payload_sg_wrs response_status_writes response_payload_bytes complete_avg_ns \
    drain_response_count drain_response_avg_ns";

type Fields = BTreeMap<String, String>;

/// The lines of a component so far, each as its fields; their names are checked.
fn lines(file: &std::path::Path, component: &str, names: &str) -> Vec<Fields> {
    let text = std::fs::read_to_string(file).unwrap_or_default();
    let mut found = Vec::new();
    // The last line may be half written.
    let whole = text.rsplit_once('\n').map_or("", |(whole, _)| whole);
    for line in whole.lines().filter(|line| line.starts_with(&format!("component={component} "))) {
        let pairs: Vec<(&str, &str)> = line.split(' ').filter_map(|pair| pair.split_once('=')).collect();
        let has: Vec<&str> = pairs.iter().map(|(name, _)| *name).collect();
        let wanted: Vec<&str> =
            names.split_whitespace().filter(|name| *name != "client_id" || has.contains(name)).collect();
        assert_eq!(has, wanted, "{line}");
        found.push(pairs.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect());
    }
    found
}

fn sum(lines: &[Fields], name: &str) -> u64 {
    lines.iter().map(|line| line[name].parse::<u64>().expect("a number")).sum()
}

fn largest(lines: &[Fields], name: &str) -> u64 {
    lines.iter().map(|line| line[name].parse::<u64>().expect("a number")).max().unwrap_or(0)
}

#[test]
fn lines_are_written_with_all_fields_and_tell_of_the_time_since_the_last() {
    let folder = Folder::new();
    let (here, there) = (folder.0.join("client.log"), folder.0.join("server.log"));
    let options = [
        ("rdma-rc-profile-interval-ms", "50"),
        ("metrics-sample-every", "1"),
        ("shared-reads", "off"),
        ("log-file", there.to_str().expect("a path")),
    ];
    let mut deployment = Deployment::start(1, &options);
    let changes = with(&deployment.changes, "log-file", here.to_str().expect("a path"));
    let mut client = Process::start("client", &changes);
    client.hear();
    // Half of the keys have no row.
    assert_eq!(
        (client.ask("put 4 100"), client.ask("get 30 200"), client.ask("update 6 3")),
        ("done".into(), "done".into(), "done".into())
    );
    let mine = || lines(&here, "rdma_rc_client_profile", CLIENT);
    until("all requests", || sum(&mine(), "revoke_count"), |count| *count == 41);
    let all = mine();
    assert_eq!(
        (sum(&all, "submit_count"), sum(&all, "wait_count"), sum(&all, "copied_bytes")),
        (41, 41, 30 * 200 * 64)
    );
    for name in ["submit_avg_ns", "wait_status_avg_ns", "copy_response_avg_ns", "pending_rpc_peak"] {
        assert!(largest(&all, name) > 0, "{name}");
    }
    let theirs = || lines(&there, "rdma_rc_server_profile", SERVER);
    until("all GETs", || sum(&theirs(), "handled_get"), |count| *count == 30);
    let all = theirs();
    assert_eq!((sum(&all, "handled_put"), sum(&all, "handled_update"), sum(&all, "handled_init")), (4, 6, 1));
    assert_eq!((sum(&all, "get_rows"), sum(&all, "get_missing_rows")), (30 * 200, 30 * 100));
    for name in [
        "handle_get_avg_ns",
        "get_index_lookup_avg_ns",
        "get_zero_fill_avg_ns",
        "get_row_copy_avg_ns",
        "complete_response_avg_ns",
        "scanned_slots",
        "poll_loop_avg_ns",
    ] {
        assert!(largest(&all, name) > 0, "{name}");
    }
    let transport = lines(&there, "rdma_rc_transport_profile", TRANSPORT);
    assert_eq!(sum(&transport, "response_payload_writes"), 30);
    assert!(transport.iter().all(|line| line["role"] == "server"));
    let mine = lines(&here, "rdma_rc_transport_profile", TRANSPORT);
    assert_eq!((sum(&mine, "submit_commit_writes"), sum(&mine, "response_payload_bytes")), (41, 30 * 200 * 64));

    // The same by name.
    assert_eq!(client.number("metric rdma_rc_client_profile/submit_count"), 41);
    assert!(client.number("metric rdma_rc_client_profile/submit_request_ns") > 0);
    assert!(client.number("metric rdma_rc_client_profile/submit_avg_ns") > 0);
    assert_eq!(deployment.servers[0].number("metric rdma_rc_server_profile/handled_get"), 30);
    assert!(client.ask("metric rdma_rc_client_profile/nothing").contains("names no field"));
}
