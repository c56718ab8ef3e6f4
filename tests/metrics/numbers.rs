//! Numbers agree with what was sent.

use crate::Folder;
use crate::rows::Table;
use crate::support::{Deployment, PATIENCE, open_client, until};
use reclane::engine::CheckpointState;
use std::sync::atomic::{AtomicU64, Ordering};

#[test]
fn counters_of_client_and_shards_are_what_was_sent() {
    let mut deployment =
        Deployment::start(2, &[("metrics", "true"), ("metrics-sample-every", "1"), ("shared-reads", "off")]);
    let client = deployment.client();
    let table = Table::open(&client, "t", 16);
    table.fill(&client);
    let keys: Vec<u64> = (0..4000).filter(|key| client.shard_of(*key) == 1).take(50).collect();
    let read = |name: &str| client.metric(name).expect(name);
    let before = read("reclane_client_requests_total{shard=\"1\",op=\"get\"}");
    for _ in 0..37 {
        table.get(&client, &keys[..1]).expect("a GET");
    }
    for _ in 0..5 {
        table.get(&client, &keys).expect("a GET");
        table.update(&client, &keys[..3], 1.0).expect("an UPDATE");
    }
    assert_eq!(read("reclane_client_requests_total{shard=\"1\",op=\"get\"}") - before, 42);
    assert_eq!(read("reclane_client_requests_total{shard=\"1\",op=\"update\"}"), 5);
    assert_eq!(read("reclane_client_requests_total{op=\"other\"}"), 2, "one INIT_TABLE for each shard");
    assert_eq!(read("reclane_client_answer_bytes_total{shard=\"1\"}"), (37 + 5 * 50) * 64);
    assert_eq!(read("reclane_client_failed_total"), 0);
    // Every request but the first of each slot is timed.
    let timed = read("reclane_client_latency_seconds{op=\"get\"}.count");
    assert!((30..=42).contains(&timed), "{timed}");
    let (p50, max) = (read("reclane_client_latency_seconds.p50"), read("reclane_client_latency_seconds.max"));
    assert!(p50 > 0 && p50 <= max, "{p50} {max}");
    let uses: u64 = read("reclane_client_slot_uses_total");
    assert_eq!(uses, read("reclane_client_requests_total"));
    assert_eq!((read("reclane_client_lanes{state=\"active\"}"), read("reclane_client_slots")), (6, 12));

    let server = &mut deployment.servers[1];
    until(
        "the shard's own count",
        || server.number("metric reclane_server_requests_total{op=\"get\"}"),
        |gets| *gets == 42,
    );
    assert_eq!(server.number("metric reclane_server_keys_total{op=\"get\"}"), 37 + 5 * 50);
    assert_eq!(server.number("metric reclane_server_answer_bytes_total"), (37 + 5 * 50) * 64);
    assert_eq!(server.number("metric reclane_server_requests_total{op=\"update\"}"), 5);
    assert!(server.number("metric reclane_server_service_seconds{op=\"get\"}.count") > 0);
    assert!(server.ask("metric nonsense").contains("names no number"));
}

#[test]
fn gets_that_a_client_reads_by_itself_are_counted_there_and_not_at_the_shard() {
    let mut deployment = Deployment::start(1, &[("metrics", "true"), ("metrics-sample-every", "4")]);
    let client = open_client(&deployment.changes);
    let table = Table::open(&client, "t", 16);
    table.fill(&client);
    let read = |name: &str| client.metric(name).expect(name);
    let before = read("reclane_client_requests_total{op=\"get\"}");
    for _ in 0..30 {
        table.get(&client, &[1]).expect("a GET");
        table.get(&client, &[1, 2, 3, 4, 5]).expect("a GET");
    }
    let gets = read("reclane_client_requests_total{op=\"get\"}");
    assert_eq!((gets - before, read("reclane_client_own_reads_total")), (60, gets));
    assert!(read("reclane_client_latency_seconds{op=\"get\"}.count") > 0, "some were timed");
    assert_eq!(read("reclane_client_slot_uses_total"), read("reclane_client_requests_total"));
    let server = &mut deployment.servers[0];
    until(
        "the shard's own count",
        || server.number("metric reclane_server_requests_total{op=\"put\"}"),
        |puts| *puts > 0,
    );
    assert_eq!(server.number("metric reclane_server_requests_total{op=\"get\"}"), 0);
}

#[test]
fn threads_that_share_a_client_lose_no_count() {
    let deployment = Deployment::start(1, &[("metrics", "true"), ("metrics-sample-every", "8")]);
    let client = deployment.client();
    let table = Table::open(&client, "t", 16);
    table.fill(&client);
    let before = client.metric("reclane_client_requests_total{op=\"get\"}").expect("a number");
    let sent = AtomicU64::new(0);
    std::thread::scope(|scope| {
        for thread in 0..4_u64 {
            let (client, sent) = (&client, &sent);
            scope.spawn(move || {
                for key in 0..20_000 {
                    table.get(client, &[(key + thread) % 4096]).expect("a GET");
                    sent.fetch_add(1, Ordering::Relaxed);
                }
            });
        }
    });
    let after = client.metric("reclane_client_requests_total{op=\"get\"}").expect("a number");
    assert_eq!(after - before, sent.load(Ordering::Relaxed));
}

#[test]
fn without_counting_only_what_is_free_is_there() {
    let deployment = Deployment::start(1, &[]);
    let client = deployment.client();
    let table = Table::open(&client, "t", 16);
    table.put(&client, &[1], 1.0).expect("a PUT");
    assert_eq!(client.metric("reclane_client_slot_uses_total").expect("free"), 2);
    assert!(client.metric("reclane_client_requests_total").expect_err("counted").message.contains("metrics=true"));
    assert_eq!(client.metrics_port(), None);
    let text = client.metrics_text();
    assert!(text.contains("reclane_client_lanes{shard=\"0\",state=\"active\"} 3\n"), "{text}");
    assert!(!text.contains("reclane_client_latency_seconds"));
}

#[test]
fn checkpoints_are_counted_by_every_shard_and_by_the_one_that_leads() {
    let folder = Folder::new();
    let mut deployment = Deployment::start(2, &[("checkpoint-directory", &folder.text())]);
    let client = deployment.client();
    let table = Table::open(&client, "t", 16);
    table.fill(&client);
    for round in 1..=2_u64 {
        let number = client.checkpoint_begin(true, None).expect("a checkpoint");
        client.checkpoint_wait(number, CheckpointState::Committed, PATIENCE).expect("it is committed");
        for (shard, server) in deployment.servers.iter_mut().enumerate() {
            let mut read = |name: &str| server.number(&format!("metric reclane_server_{name}"));
            let stages = ["begun", "written", "failed"].map(|s| read(&format!("checkpoints_total{{stage=\"{s}\"}}")));
            assert_eq!(stages, [round, round, 0], "shard {shard}");
            assert_eq!(read("checkpoint_epoch"), round);
            assert!(read("checkpoint_state_bytes_total") > 0 && read("checkpoint_written_bytes_total") > 0);
            let (held, longest) = (read("checkpoint_held_nanoseconds_total"), read("checkpoint_held_max_nanoseconds"));
            assert!(0 < longest && longest <= held, "{longest} {held}");
            assert!(read("checkpoint_writing_nanoseconds_total") > 0);
            let led = if shard == 0 { round } else { 0 };
            assert_eq!(read("checkpoints_led_total{result=\"committed\"}"), led);
            assert_eq!(read("checkpoints_led_total{result=\"aborted\"}"), 0);
            // 3 lanes of 2 slots.
            assert_eq!((read("slots"), read("queued_requests")), (6, 0));
        }
    }
}
