//! Profiles and metrics count over a device what they count over shared memory.

use crate::support::{Deployment, get, put, rows_of, settings, table};
use reclane::engine::Client;
use reclane::options::Side;
use reclane::time::now;
use std::time::Duration;

const PATIENCE: Duration = Duration::from_secs(60);

/// Lines of a component in a log, which has those of all members of this process.
fn lines(path: &std::path::Path, component: &str) -> Vec<String> {
    let text = std::fs::read_to_string(path).unwrap_or_default();
    let ours = |line: &&str| line.starts_with(&format!("component={component} "));
    text.lines().filter(ours).map(str::to_owned).collect()
}

fn sum(lines: &[String], field: &str) -> u64 {
    let value = |line: &String| {
        let (_, rest) = line.split_once(&format!(" {field}="))?;
        rest.split(' ').next()?.parse::<u64>().ok()
    };
    lines.iter().filter_map(value).sum()
}

#[test]
fn requests_over_a_device_are_profiled_at_both_ends() {
    let path = |what: &str| std::env::temp_dir().join(format!("reclane-verbs-{}-{what}.log", std::process::id()));
    let (here, there) = (path("client"), path("server"));
    let there_text = there.display().to_string();
    let options = [
        ("rdma-rc-profile-interval-ms", "50"),
        ("metrics-sample-every", "1"),
        ("log-file", there_text.as_str()),
        ("log-level", "error"),
    ];
    let deployment = Deployment::start(1, &options);
    let mut changes = deployment.changes.clone();
    changes.push(("log-file".into(), here.display().to_string()));
    let client = Client::open(&settings(&changes, Side::Client)).expect("a client");
    let dim = 16;
    let table = table(&client, "t", dim);
    let keys: Vec<u64> = (0..100).collect();
    let rows = rows_of(&keys, dim);
    for _ in 0..5 {
        put(&client, table, &keys, &rows);
    }
    for _ in 0..30 {
        assert_eq!(get(&client, table, &keys, dim), rows);
    }
    let number = |name: &str| client.metric(name).unwrap_or_else(|error| panic!("{name}: {error}"));
    assert_eq!(number("rdma_rc_client_profile/submit_count"), 36, "INIT_TABLE, 5 PUTs, 30 GETs");
    assert_eq!(number("rdma_rc_client_profile/copied_bytes"), 30 * 100 * 64);
    for name in ["submit_avg_ns", "wait_status_avg_ns", "copy_response_avg_ns"] {
        assert!(number(&format!("rdma_rc_client_profile/{name}")) > 0, "{name}");
    }
    assert!(number("reclane_client_latency_seconds{op=\"get\"}.p99") > 0);
    assert!(client.metrics_text().contains("fabric=\"verbs\""));
    let began = now();
    let server = &deployment.servers[0];
    let shard = |name: &str| server.metric(name).unwrap_or_else(|error| panic!("{name}: {error}"));
    while shard("rdma_rc_server_profile/handled_get") < 30 {
        assert!(
            now() < began.after(PATIENCE),
            "the shard told of {} GETs",
            shard("rdma_rc_server_profile/handled_get")
        );
        std::thread::yield_now();
    }
    assert_eq!(shard("rdma_rc_server_profile/get_rows"), 3000);
    assert!(shard("rdma_rc_server_profile/handle_get_avg_ns") > 0);
    assert_eq!(shard("rdma_rc_transport_profile/response_payload_writes"), 30);
    loop {
        let told = [
            sum(&lines(&here, "rdma_rc_client_profile"), "revoke_count"),
            sum(&lines(&here, "rdma_rc_transport_profile role=client"), "submit_commit_writes"),
            sum(&lines(&there, "rdma_rc_server_profile"), "handled_get"),
            sum(&lines(&there, "rdma_rc_transport_profile role=server"), "response_payload_writes"),
        ];
        if told == [36, 36, 30, 30] {
            break;
        }
        assert!(now() < began.after(PATIENCE), "lines told of {told:?}");
        std::thread::yield_now();
    }
    drop(client);
    drop(deployment);
    let _ = std::fs::remove_file(&here);
    let _ = std::fs::remove_file(&there);
}
