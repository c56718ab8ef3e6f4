//! kill -9 at every labelled step, of either shard, while a client works.

use crate::support::{Deployment, PATIENCE, with};
use crate::world::{Directory, Model, checkpoint, deployment, doomed, kill_all, start_all};
use reclane::checkpoint::steps::LABELS;
use reclane::engine::CheckpointState;
use std::time::Duration;

/// Steps that only shard 0 passes.
const LEADERS: &[&str] =
    &["epoch-promised", "manifest-written", "manifest-renamed", "committed", "collected", "restore-verified"];

/// All shards anew, one of them doomed.
fn start_with_doomed(deployment: &mut Deployment, victim: u32, label: &str, times: u64) {
    deployment.changes = with(&deployment.changes, "rdma-control-plane-port", "0");
    for shard in 0..2 {
        let mut server =
            if shard == victim { doomed(deployment, shard, label, times) } else { deployment.server(shard) };
        if shard == victim {
            let port = server.hear();
            if shard == 0 {
                deployment.changes = with(&deployment.changes, "rdma-control-plane-port", &port);
            }
        }
        deployment.servers.push(server);
    }
}

/// A first checkpoint is there; while the second is taken, a shard dies at the step. Afterwards the first or the second is
/// restored, whole, and the second if anybody was told that it is committed.
fn die_at(label: &'static str, victim: u32) {
    let directory = Directory::new();
    let mut deployment = deployment(2, &directory, &[("checkpoint-hold-timeout-ms", "5000")]);
    let client = deployment.client();
    let model = Model::open(&client);
    (0..10).for_each(|step| model.step(&client, step).expect("an UPDATE"));
    checkpoint(&client, false).expect("a checkpoint");
    let first = model.bits(&client);
    drop(client);
    kill_all(&mut deployment);
    start_with_doomed(&mut deployment, victim, label, 0);
    let client = deployment.client();
    assert_eq!(Model::open(&client).tags(), model.tags());
    (10..20).for_each(|step| model.step(&client, step).expect("an UPDATE"));
    let second = model.bits(&client);
    let told = client
        .checkpoint_begin(true, None)
        .and_then(|number| client.checkpoint_wait(number, CheckpointState::Committed, Duration::from_secs(10)));
    // Whoever lives is not held up: shard 0 lives unless it was the victim.
    if victim == 1 && label != "collected" {
        let key: Vec<u64> = (0..100).filter(|key| client.shard_of(*key) == 0).take(1).collect();
        model.plain.get(&client, &key).expect("the other shard serves");
    }
    let told = told.is_ok();
    drop(client);
    kill_all(&mut deployment);
    start_all(&mut deployment, 2);
    let client = deployment.client();
    assert_eq!(Model::open(&client).tags(), model.tags());
    let found = model.bits(&client);
    let which = if found == second { 2 } else { 1 };
    assert!(found == second || found == first, "{label}, shard {victim}: neither the one nor the other");
    assert!(which == 2 || !told, "{label}, shard {victim}: it was said to be committed");
    if ["committed", "collected", "manifest-renamed"].contains(&label) {
        assert_eq!(which, 2, "{label}");
    } else if label != "durable" && victim == 0 {
        assert_eq!(which, 1, "{label}, shard {victim}");
    }
    let status = checkpoint(&client, false).expect("the next one");
    assert!(status.epoch > 2 || label == "epoch-promised" && status.epoch >= 2, "{label}: {status:?}");
    client.shutdown(PATIENCE).expect("nothing is under way");
}

/// Steps of a checkpoint.
fn steps() -> impl Iterator<Item = &'static str> {
    LABELS.iter().copied().filter(|label| !label.starts_with("restore"))
}

#[test]
fn shard_0_dies_at_every_step() {
    steps().for_each(|label| die_at(label, 0));
}

#[test]
fn shard_1_dies_at_every_step() {
    steps().filter(|label| !LEADERS.contains(label)).for_each(|label| die_at(label, 1));
}

/// A restore that is interrupted is begun again.
#[test]
fn a_shard_dies_while_it_is_restored() {
    let directory = Directory::new();
    let mut deployment = deployment(2, &directory, &[]);
    let client = deployment.client();
    let model = Model::open(&client);
    (0..10).for_each(|step| model.step(&client, step).expect("an UPDATE"));
    checkpoint(&client, false).expect("a checkpoint");
    let then = model.bits(&client);
    drop(client);
    for (label, victim) in [
        ("restore-verified", 0),
        ("restore-fenced", 0),
        ("restore-chosen", 0),
        ("restore-filled", 0),
        ("restore-chosen", 1),
        ("restore-filled", 1),
    ] {
        kill_all(&mut deployment);
        deployment.changes = with(&deployment.changes, "rdma-control-plane-port", "0");
        for shard in 0..=victim {
            let server =
                if shard == victim { doomed(&mut deployment, shard, label, 0) } else { deployment.server(shard) };
            deployment.servers.push(server);
        }
        let gone = deployment.servers.pop().expect("the victim").ends();
        assert!(gone, "{label}: shard {victim} dies");
        kill_all(&mut deployment);
        start_all(&mut deployment, 2);
        let client = deployment.client();
        assert_eq!(Model::open(&client).tags(), model.tags());
        assert!(model.bits(&client) == then, "{label}, shard {victim}");
    }
}
