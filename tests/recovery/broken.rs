//! Lanes that are broken under load: nothing is lost, nothing happens twice, and all of them come back.

use crate::rows::Table;
use crate::support::{Deployment, until};
use reclane::engine::{Client, LaneState};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

/// Adds 1 to its own keys over and over until told to stop; how often.
fn add(client: &Client, table: Table, keys: &[u64], stop: &AtomicBool, done: &AtomicU64) -> u64 {
    let mut added = 0;
    while !stop.load(Ordering::Relaxed) {
        table.update(client, keys, 1.0).expect("an UPDATE");
        added += 1;
        done.fetch_add(1, Ordering::Relaxed);
        let seen = table.versions(keys, &table.get(client, keys).expect("a GET"));
        assert!(seen.iter().all(|version| *version == added as f32), "{added} added, {seen:?} there");
    }
    added
}

fn whole(client: &Client, shards: u32, lanes: u32) -> bool {
    (0..shards).all(|shard| (0..lanes).all(|lane| client.lane(shard, lane).expect("a lane").state == LaneState::Active))
}

fn break_lanes(changes: &[(&str, &str)]) {
    let mut deployment = Deployment::start(2, changes);
    let client = deployment.client();
    let table = Table::open(&client, "t", 16);
    table.fill(&client);
    let (stop, done) = (AtomicBool::new(false), AtomicU64::new(0));
    let mut broken = 0;
    std::thread::scope(|scope| {
        let callers: Vec<_> = (0..4_u64)
            .map(|caller| {
                // Keys of both shards, one and several to a request.
                let keys: Vec<u64> = (0..1 + caller * 5).map(|key| caller * 100 + key).collect();
                let (client, stop, done) = (&client, &stop, &done);
                scope.spawn(move || add(client, table, &keys, stop, done))
            })
            .collect();
        let mut seen = 0;
        for round in 0..60_u32 {
            until("traffic", || done.load(Ordering::Relaxed), |now| *now > seen + 20);
            seen = done.load(Ordering::Relaxed);
            // One lane, all lanes of a shard, or all.
            for lane in 0..6 {
                if lane == round % 6 || (round % 7 == 3 && lane / 3 == round % 2) || round % 11 == 5 {
                    client.break_lane(lane / 3, lane % 3).expect("a lane");
                    broken += 1;
                }
            }
        }
        stop.store(true, Ordering::Relaxed);
        for caller in callers {
            caller.join().expect("every UPDATE counted once");
        }
    });
    until("all lanes", || whole(&client, 2, 3), |whole| *whole);
    let repeated: u64 = deployment.servers.iter_mut().map(|server| server.number("repeated")).sum();
    println!("{broken} lanes broken under {} UPDATEs, {repeated} answered from memory", done.load(Ordering::Relaxed));
    let generations: u32 = (0..6).map(|lane| client.lane(lane / 3, lane % 3).expect("a lane").generation).sum();
    assert!(generations > 6 + 20, "{generations}");
    for server in &mut deployment.servers {
        until("lanes of the server", || server.number("lanes"), |lanes| *lanes == 3);
    }
}

#[test]
fn broken_lanes_lose_nothing_and_come_back_single() {
    break_lanes(&[("recovery-preset", "resilient"), ("commit-scheme", "single")]);
}

#[test]
fn broken_lanes_lose_nothing_and_come_back_crc_with_workers() {
    break_lanes(&[
        ("recovery-preset", "resilient"),
        ("commit-scheme", "crc"),
        ("rdma-rc-server-get-workers", "2"),
        ("server-rdma-threads", "2"),
    ]);
}

#[test]
fn broken_lanes_lose_nothing_and_come_back_imm() {
    break_lanes(&[("recovery-preset", "resilient"), ("commit-scheme", "imm"), ("integrity", "crc32c")]);
}

#[test]
fn a_slot_that_nobody_gives_back_does_not_hold_up_its_lane() {
    let deployment = Deployment::start(1, &[("recovery-preset", "resilient"), ("qps-per-client-per-shard", "1")]);
    let client = deployment.client();
    let table = Table::open(&client, "t", 16);
    table.fill(&client);
    let key = [7];
    let request =
        reclane::engine::Request::Get { table: table.tag, keys: &key, target: reclane::engine::Target::InPlace };
    // SAFETY: nothing of the caller's is written, and the key outlives the request.
    let token = unsafe { client.submit(&request) }.expect("a slot");
    client.wait(token, None).expect("an answer");
    let before = client.borrow(token, |rows| rows).expect("a row");
    for _ in 0..5 {
        client.break_lane(0, 0).expect("a lane");
        // The only lane has two slots; one of them is held all the time.
        table.update(&client, &key, 1.0).expect("an UPDATE");
    }
    // What was borrowed is still what it was.
    // SAFETY: the row is readable until the request is revoked.
    let row = unsafe { core::slice::from_raw_parts(before.rows, table.dim) };
    assert_eq!(table.versions(&key, row), [0.0]);
    client.revoke(token).expect("held until now");
    assert_eq!(table.versions(&key, &table.get(&client, &key).expect("a GET")), [5.0]);
    let info = client.lane(0, 0).expect("a lane");
    assert!(info.generation >= 6, "{info:?}");
}

#[test]
fn a_buffer_is_reachable_over_a_rebuilt_lane() {
    let deployment = Deployment::start(
        1,
        &[("recovery-preset", "resilient"), ("qps-per-client-per-shard", "1"), ("rdma-put-v2-transfer-mode", "read")],
    );
    let client = deployment.client();
    let table = Table::open(&client, "t", 16);
    table.fill(&client);
    let buffer = client.allocate_buffer(4096).expect("a buffer");
    for round in 1..4_u8 {
        client.break_lane(0, 0).expect("a lane");
        let keys = [3];
        let rows = table.rows(&keys, f32::from(round));
        // SAFETY: the buffer is large enough and nobody else uses it.
        unsafe { core::ptr::copy_nonoverlapping(rows.as_ptr().cast::<u8>(), buffer.data(), rows.len() * 4) };
        let rows = reclane::engine::Rows::Buffer { region: &buffer, offset_bytes: 0 };
        let put = reclane::engine::Request::Put { table: table.tag, keys: &keys, rows };
        // SAFETY: keys and buffer outlive the call.
        unsafe { client.call(&put) }.expect("a PUT that the shard reads");
        assert_eq!(table.versions(&keys, &table.get(&client, &keys).expect("a GET")), [f32::from(round)]);
    }
}
