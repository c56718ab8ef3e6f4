//! Shards that are killed and started again under their numbers: clients reach them without being restarted.

use crate::rows::Table;
use crate::support::{Deployment, milliseconds, until};
use reclane::engine::{LaneState, Request, Rows};
use reclane::error::{Layer, Outcome, Status};
use reclane::ids::TableTag;
use reclane::time::now;
use std::time::Duration;

const RESILIENT: &[(&str, &str)] = &[("recovery-preset", "resilient")];

/// Kills a shard and starts it again, twice; a call that begins meanwhile is answered by the new process.
fn restart(victim: u32) {
    let mut deployment = Deployment::start(2, RESILIENT);
    let client = deployment.client();
    let table = Table::open(&client, "t", 16);
    table.fill(&client);
    let keys: Vec<u64> = (0..200).filter(|key| client.shard_of(*key) == victim).collect();
    let others: Vec<u64> = (0..200).filter(|key| client.shard_of(*key) != victim).collect();
    for round in 0..2 {
        deployment.servers[victim as usize].kill();
        std::thread::scope(|scope| {
            // It waits for the shard, which is not there yet.
            let caller = scope.spawn(|| Table::open(&client, "t", 16));
            table.get(&client, &others[..20]).expect("the other shard serves");
            let started = now();
            let server = deployment.server(victim);
            deployment.servers[victim as usize] = server;
            let again = caller.join().expect("it was answered");
            let taken = milliseconds(Duration::from_nanos(now().since_ns(started)));
            println!("restart of shard {victim}, round {round}: {taken:.1} ms from its start to the first success");
            assert_eq!(again.tag, table.tag);
        });
        table.put(&client, &keys, 1.0).expect("the new process serves");
        table.update(&client, &keys, 1.0).expect("the new process serves");
        let seen = table.versions(&keys, &table.get(&client, &keys).expect("a GET"));
        assert!(seen.iter().all(|version| *version == 2.0), "{seen:?}");
        until(
            "all lanes",
            || (0..6).filter(|l| client.lane(l / 3, l % 3).expect("a lane").state == LaneState::Active).count(),
            |active| *active == 6,
        );
    }
    client.shutdown(crate::support::PATIENCE).expect("nothing is under way");
}

#[test]
fn shard_1_is_reached_again() {
    restart(1);
}

#[test]
fn shard_0_is_reached_again_and_the_control_plane_with_it() {
    restart(0);
}

#[test]
fn an_update_whose_answer_was_lost_with_its_shard_is_unknown() {
    let mut deployment = Deployment::start(2, RESILIENT);
    let client = deployment.client();
    let table = Table::open(&client, "t", 16);
    table.fill(&client);
    let key: Vec<u64> = (0..50).filter(|key| client.shard_of(*key) == 1).take(1).collect();
    let gradient = vec![-1.0_f32; table.dim];
    deployment.servers[1].freeze();
    let rows = Rows::Flat { rows: gradient.as_ptr(), count: gradient.len() };
    let update = Request::UpdateFlat { table: table.tag, keys: &key, gradients: rows };
    // SAFETY: key and gradient outlive the request.
    let token = unsafe { client.submit(&update) }.expect("the lane is up");
    deployment.servers[1].kill();
    let server = deployment.server(1);
    deployment.servers[1] = server;
    let error = client.wait(token, None).expect_err("nobody knows");
    assert_eq!((error.outcome, error.shard), (Outcome::Unknown, Some(1)), "{error}");
    assert!(error.message.contains("lost its memory"), "{error}");
    client.revoke(token).expect("once");
    // A GET may be asked twice, and gets the new process's answer: it has no such table.
    let error = table.get(&client, &key).expect_err("no table there yet");
    assert_eq!((error.status, error.layer), (Status::UnknownTable, Layer::Server), "{error}");
    assert!(error.message.contains(&format!("shard 1 does not know table {}", table.tag.0)), "{error}");
    // One that nobody made here is the caller's mistake, and nothing is waited for.
    let error = client.dim(TableTag(9)).expect_err("no such table here");
    let mistake = (Status::UnknownTable, Layer::Usage, Outcome::NotExecuted);
    assert_eq!((error.status, error.layer, error.outcome), mistake, "{error}");
    assert_eq!(Table::open(&client, "t", 16).tag, table.tag);
    assert_eq!(table.get(&client, &key).expect("a GET").len(), table.dim);
}
