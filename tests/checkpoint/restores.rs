//! What is restored is what was there, bit for bit, on as many shards as one likes.

use crate::support::{PATIENCE, Process, until, with};
use crate::world::{Directory, KEYS, Model, checkpoint, deployment, kill_all, start_all};
use reclane::checkpoint::Role;
use reclane::engine::{CheckpointState, RestorePlan};
use reclane::error::Status;
use std::collections::BTreeSet;

/// Rows, and optimizer state by what further training makes of it.
#[test]
fn all_are_killed_and_restored_bit_for_bit_and_train_on_as_if_nothing_had_happened() {
    let directory = Directory::new();
    let mut deployment = deployment(2, &directory, &[]);
    let client = deployment.client();
    let model = Model::open(&client);
    (0..60).for_each(|step| model.step(&client, step).expect("an UPDATE"));
    let status = checkpoint(&client, false).expect("a checkpoint");
    assert_eq!((status.state, status.epoch), (CheckpointState::Committed, 1));
    assert!(status.state_bytes > KEYS && status.written_bytes == status.state_bytes, "{status:?}");
    let then = model.bits(&client);
    (60..80).for_each(|step| model.step(&client, step).expect("an UPDATE"));
    let later = model.bits(&client);
    assert_ne!(then, later);
    // What comes after a checkpoint is in the next one, which has what has changed.
    let second = checkpoint(&client, false).expect("a checkpoint");
    assert_eq!(second.epoch, 2);
    assert!(second.written_bytes <= second.state_bytes);
    for (epoch, wanted, steps) in [("1", &then, 60..80), ("2", &later, 80..80)] {
        kill_all(&mut deployment);
        deployment.changes = with(&deployment.changes, "checkpoint-restore-epoch", epoch);
        start_all(&mut deployment, 2);
        let client = deployment.client();
        assert_eq!(Model::open(&client).tags(), model.tags());
        assert!(model.bits(&client) == *wanted, "epoch {epoch}");
        steps.for_each(|step| model.step(&client, step).expect("an UPDATE"));
        assert!(model.bits(&client) == later, "epoch {epoch}: training goes on as it did");
    }
}

#[test]
fn fewer_and_more_shards_have_the_same_rows() {
    let directory = Directory::new();
    let mut deployment = deployment(2, &directory, &[]);
    let client = deployment.client();
    let model = Model::open(&client);
    (0..40).for_each(|step| model.step(&client, step).expect("an UPDATE"));
    checkpoint(&client, false).expect("a checkpoint");
    let then = model.bits(&client);
    (40..50).for_each(|step| model.step(&client, step).expect("an UPDATE"));
    let later = model.bits(&client);
    drop(client);
    for shards in [3, 1, 5, 2] {
        kill_all(&mut deployment);
        start_all(&mut deployment, shards);
        let client = deployment.client();
        assert_eq!(Model::open(&client).tags(), model.tags());
        assert!(model.bits(&client) == then, "{shards} shards");
        // State goes with its row.
        (40..50).for_each(|step| model.step(&client, step).expect("an UPDATE"));
        assert!(model.bits(&client) == later, "{shards} shards");
        // And the next one starts from a checkpoint of this many.
        drop(client);
        kill_all(&mut deployment);
        start_all(&mut deployment, shards);
        let client = deployment.client();
        assert_eq!(Model::open(&client).tags(), model.tags());
        assert!(model.bits(&client) == then, "{shards} shards");
        checkpoint(&client, false).expect("a checkpoint of this many shards");
    }
}

#[test]
fn a_damaged_checkpoint_is_passed_over_and_one_that_is_alone_is_not_replaced_by_nothing() {
    let directory = Directory::new();
    let mut deployment = deployment(2, &directory, &[("checkpoint-full-every", "1")]);
    let client = deployment.client();
    let model = Model::open(&client);
    model.step(&client, 1).expect("an UPDATE");
    checkpoint(&client, false).expect("a checkpoint");
    let then = model.bits(&client);
    model.step(&client, 2).expect("an UPDATE");
    checkpoint(&client, false).expect("a checkpoint");
    kill_all(&mut deployment);
    let damage = |epoch| {
        let path = directory.catalog().directory_of(epoch).join(Role::Shard.file_name(1, 2));
        let mut bytes = std::fs::read(&path).expect("a container");
        let middle = bytes.len() / 2;
        bytes[middle] ^= 16;
        std::fs::write(&path, bytes).expect("a container");
    };
    damage(2);
    let plan = RestorePlan::open(directory.path(), None).expect("a plan");
    assert_eq!((plan.manifest().epoch, plan.refused()[0].0), (1, 2));
    assert!(plan.refused()[0].1.contains("shard-1-of-2.rck"), "{:?}", plan.refused());
    assert_eq!(plan.section("position").expect("readable").as_deref(), Some(&b"here"[..]));
    assert_eq!(plan.section("other").expect("readable"), None);
    start_all(&mut deployment, 2);
    let client = deployment.client();
    assert_eq!(Model::open(&client).tags(), model.tags());
    assert!(model.bits(&client) == then);
    // The damaged one does not count among those that are kept.
    checkpoint(&client, false).expect("a checkpoint");
    // Epoch 3 fences the world before.
    until("the damaged one is removed", || directory.committed(), |committed| *committed == [4, 1]);
    kill_all(&mut deployment);
    damage(1);
    damage(4);
    let changes = with(&with(&deployment.changes, "shard-id", "0"), "rdma-control-plane-port", "0");
    let refusal = Process::start("server that is refused", &changes).hear();
    assert!(refusal.contains("no checkpoint of") && refusal.contains("checksum"), "{refusal}");
}

#[test]
fn a_shard_that_is_started_again_alone_is_told_that_all_restore_or_none() {
    let directory = Directory::new();
    let mut deployment = deployment(2, &directory, &[]);
    let client = deployment.client();
    let model = Model::open(&client);
    model.step(&client, 1).expect("an UPDATE");
    checkpoint(&client, false).expect("a checkpoint");
    deployment.servers[1].kill();
    let refusal = Process::start("server that is refused", &with(&deployment.changes, "shard-id", "1")).hear();
    assert!(refusal.starts_with(&(Status::WrongState as i32).to_string()), "{refusal}");
    assert!(refusal.contains("the other shards run"), "{refusal}");
}

#[test]
fn many_checkpoints_leave_no_more_than_are_kept_and_nothing_in_the_process() {
    let directory = Directory::new();
    let deployment = deployment(2, &directory, &[("checkpoint-keep", "3"), ("checkpoint-full-every", "4")]);
    let client = deployment.client();
    let model = Model::open(&client);
    model.step(&client, 0).expect("an UPDATE");
    let mut before = None;
    for round in 1..=40 {
        model.step(&client, round).expect("an UPDATE");
        let status = checkpoint(&client, false).expect("a checkpoint");
        assert_eq!(status.epoch, round);
        if round == 8 {
            before = Some(deployment.servers.iter().map(crate::support::settled).collect::<Vec<_>>());
        }
    }
    for (server, before) in deployment.servers.iter().zip(before.expect("counted")) {
        crate::support::holds_again(server, &before);
    }
    // Three, and the full one that the oldest of them builds on.
    until("the rest is removed", || directory.committed().len(), |count| *count <= 6);
    let epochs: BTreeSet<u64> = directory.committed().into_iter().collect();
    assert!([38, 39, 40].iter().all(|epoch| epochs.contains(epoch)), "{epochs:?}");
}

#[test]
fn servers_take_them_by_themselves_while_clients_train() {
    let directory = Directory::new();
    let mut deployment = deployment(2, &directory, &[("checkpoint-interval-ms", "20")]);
    let client = deployment.client();
    let model = Model::open(&client);
    let mut step = 0;
    until(
        "some checkpoints",
        || {
            model.step(&client, step).expect("an UPDATE");
            step += 1;
            directory.committed().first().copied().unwrap_or(0)
        },
        |newest| *newest >= 10,
    );
    kill_all(&mut deployment);
    deployment.changes = with(&deployment.changes, "checkpoint-restore", "require");
    start_all(&mut deployment, 2);
    Model::open(&deployment.client());
    let nobody = deployment.client();
    let number = nobody.checkpoint_begin(true, None).expect("asked");
    let status = nobody.checkpoint_wait(number, CheckpointState::Writing, PATIENCE);
    // One of their own may be under way.
    assert!(status.is_ok() || status.is_err_and(|error| error.status == Status::CheckpointAborted));
}
