//! Lanes that are connected when requests need them.

use crate::rows::Table;
use crate::support::{Deployment, until};
use reclane::engine::{Client, ClientStats, LaneState, Request, Rows, Token};
use reclane::error::{Outcome, Status};
use std::time::Duration;

const WIDTH: usize = 16;

fn state(client: &Client, shard: u32, lane: u32) -> LaneState {
    client.lane(shard, lane).expect("a lane").state
}

/// One UPDATE that is under way, of rows that must not move.
fn submit(client: &Client, table: Table, keys: &[u64; 1], step: &[f32; WIDTH]) -> reclane::error::Result<Token> {
    let gradients = Rows::Flat { rows: step.as_ptr(), count: WIDTH };
    // SAFETY: the caller finishes the request before these go.
    unsafe { client.submit(&Request::UpdateFlat { table: table.tag, keys, gradients }) }
}

/// The first column is the key and stays so.
fn step() -> [f32; WIDTH] {
    core::array::from_fn(|column| if column == 0 { 0.0 } else { -1.0 })
}

fn deployment(shards: u32, changes: &[(&str, &str)]) -> Deployment {
    let lazy =
        [("qps-per-client-per-shard", "16"), ("slots-per-qp", "1"), ("qps-at-open", "0"), ("shared-reads", "off")];
    Deployment::start(shards, &[&lazy, changes].concat())
}

#[test]
fn a_client_has_the_lanes_that_it_uses_and_their_memory() {
    let deployment = deployment(2, &[]);
    let client = deployment.client();
    let table = Table::open(&client, "t", WIDTH);
    let at_open = client.stats();
    assert_eq!((at_open.lanes, at_open.slots, at_open.active_lanes), (32, 32, 4));
    // One request at a time needs no more.
    for key in 0..100 {
        table.put(&client, &[key], 0.0).expect("a PUT");
        table.update(&client, &[key], 1.0).expect("an UPDATE");
    }
    assert_eq!(client.stats(), at_open);
    let unused = client.lane(0, 15).expect("a lane");
    assert_eq!((unused.state, unused.generation, unused.queue_pair), (LaneState::Unconnected, 0, 0));
    assert_eq!(client.break_lane(0, 15).expect_err("there is nothing to break").status, Status::WrongState);
    // All slots of one shard at once, from one thread: each of them is had.
    let shard = client.shard_of(0);
    let keys: Vec<[u64; 1]> = (0..100).filter(|key| client.shard_of(*key) == shard).take(16).map(|key| [key]).collect();
    let before = table.versions(&keys.concat(), &table.get(&client, &keys.concat()).expect("a GET"));
    let step = step();
    let mut requests = Vec::new();
    for key in &keys {
        // The first attempt waits for its lane, but on a slow host.
        until("a slot", || submit(&client, table, key, &step).map(|token| requests.push(token)), Result::is_ok);
    }
    let full = submit(&client, table, &keys[0], &step).expect_err("there are 16 slots");
    assert_eq!((full.status, full.outcome), (Status::NoSlot, Outcome::NotExecuted));
    for request in requests {
        client.finish(request, Some(Duration::from_secs(60))).expect("executed");
    }
    assert!((0..16).all(|lane| state(&client, shard, lane) == LaneState::Active));
    // The other shard's are as they were, and memory is that of lanes and not of lanes times shards.
    let all = client.stats();
    assert!(all.active_lanes < 32, "{all:?}");
    let each = |stats: &ClientStats| stats.lane_bytes / u64::from(stats.active_lanes);
    // But for pages that are not full.
    assert!(each(&all).abs_diff(each(&at_open)) * 20 < each(&all), "{all:?} {at_open:?}");
    let after = table.versions(&keys.concat(), &table.get(&client, &keys.concat()).expect("a GET"));
    assert!(before.iter().zip(&after).all(|(before, after)| after - before == 1.0), "{before:?} {after:?}");
}

/// Batches and other threads make lanes, too; and every request counts once.
#[test]
fn lanes_grow_under_many_threads_and_batches() {
    let deployment = deployment(1, &[("max-kv-num-per-request", "8")]);
    let client = deployment.client();
    let table = Table::open(&client, "t", WIDTH);
    table.fill(&client);
    std::thread::scope(|scope| {
        for thread in 0..8_u64 {
            let client = &client;
            scope.spawn(move || {
                let keys: Vec<u64> = (thread * 64..(thread + 1) * 64).collect();
                (0..20).for_each(|_| table.update(client, &keys, 1.0).expect("a batch of eight parts"));
            });
        }
    });
    let keys: Vec<u64> = (0..512).collect();
    let versions = table.versions(&keys, &table.get(&client, &keys).expect("a GET"));
    assert!(versions.iter().all(|version| *version == 20.0));
    assert!(client.stats().active_lanes > 2, "{:?}", client.stats());
}

/// Without rebuilding, lanes that were never used take the place of those that are lost.
#[test]
fn a_lane_that_is_lost_has_a_successor_as_long_as_there_are_any() {
    let deployment = deployment(1, &[("qps-per-client-per-shard", "6")]);
    let client = deployment.client();
    let table = Table::open(&client, "t", WIDTH);
    table.fill(&client);
    for lane in 0..5 {
        // The spare one goes on at once.
        client.break_lane(0, lane).expect("a lane");
        table.update(&client, &[u64::from(lane)], 1.0).expect("over the spare lane");
        if lane < 4 {
            until("a new spare lane", || state(&client, 0, lane + 2), |state| *state == LaneState::Active);
        }
    }
    client.break_lane(0, 5).expect("the last one");
    let error = table.update(&client, &[9], 1.0).expect_err("no lane is left");
    assert_eq!(error.outcome, Outcome::NotExecuted, "{error}");
}

/// Lanes that were never connected are no hope where the shard itself is gone, nor a way to the one that comes after it
/// where lanes are not rebuilt.
#[test]
fn nobody_waits_for_lanes_to_a_shard_that_is_gone() {
    let mut deployment = deployment(2, &[]);
    let client = deployment.client();
    let table = Table::open(&client, "t", WIDTH);
    table.fill(&client);
    let key = (0..4096).find(|key| client.shard_of(*key) == 1).expect("a key");
    deployment.servers[1].kill();
    until(
        "a typed error",
        || table.update(&client, &[key], 1.0),
        |result| result.as_ref().is_err_and(|error| error.status == Status::ShardUnreachable),
    );
    let server = deployment.server(1);
    deployment.servers[1] = server;
    for _ in 0..100 {
        let error = table.update(&client, &[key], 1.0).expect_err("rebuilding is off");
        assert_eq!((error.status, error.outcome), (Status::ShardUnreachable, Outcome::NotExecuted), "{error}");
    }
    assert_eq!(state(&client, 1, 9), LaneState::Unconnected);
}

/// With it, they are connected to whoever serves the shard when they are needed.
#[test]
fn lanes_grow_to_a_shard_that_was_started_again() {
    let mut deployment = deployment(2, &[("recovery-preset", "resilient")]);
    let client = deployment.client();
    let table = Table::open(&client, "t", WIDTH);
    table.fill(&client);
    let keys: Vec<[u64; 1]> = (0..4096).filter(|key| client.shard_of(*key) == 1).take(16).map(|key| [key]).collect();
    deployment.servers[1].kill();
    let server = deployment.server(1);
    deployment.servers[1] = server;
    until("an UPDATE that works", || Table::open(&client, "t", WIDTH).update(&client, &keys[0], 1.0), Result::is_ok);
    let step = step();
    let mut requests = Vec::new();
    for key in &keys {
        // A lane whose first attempt still went to the old process is refused for a while.
        until("a slot", || submit(&client, table, key, &step).map(|token| requests.push(token)), Result::is_ok);
    }
    requests.into_iter().for_each(|request| client.finish(request, Some(Duration::from_secs(60))).expect("executed"));
    assert!((0..16).all(|lane| state(&client, 1, lane) == LaneState::Active));
}

/// A probe of an idle lane takes a slot, which requests are not refused for.
#[test]
fn probes_take_no_slot_from_requests() {
    let changes =
        [("qps-per-client-per-shard", "1"), ("rdma-lane-probe-idle-ms", "1"), ("lane-rebuild-enabled", "true")];
    let deployment = deployment(1, &changes);
    let client = deployment.client();
    let table = Table::open(&client, "t", WIDTH);
    table.fill(&client);
    let step = step();
    for round in 0..400_u64 {
        // At a time of its own each round, so that some meet a probe.
        reclane::time::pause(Duration::from_micros(800 + round % 7 * 100));
        let request = submit(&client, table, &[round], &step).expect("the only slot");
        client.finish(request, Some(Duration::from_secs(60))).expect("executed");
    }
}
