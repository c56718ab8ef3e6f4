//! A disk that is full: the checkpoint comes to nothing, and work goes on.

use crate::support::{Deployment, Process, with};
use crate::world::{Directory, Model, checkpoint, deployment, kill_all, start_all};
use reclane::error::Status;

fn small(deployment: &mut Deployment, bytes: u64) {
    kill_all(deployment);
    deployment.changes = with(&deployment.changes, "rdma-control-plane-port", "0");
    for shard in 0..2 {
        let changes = with(&deployment.changes, "shard-id", &shard.to_string());
        let role = if shard == 1 { format!("server with small files {bytes}") } else { "server".to_owned() };
        let mut server = Process::start(&role, &changes);
        let port = server.hear();
        if shard == 0 {
            deployment.changes = with(&deployment.changes, "rdma-control-plane-port", &port);
        }
        deployment.servers.push(server);
    }
}

#[test]
fn a_file_that_cannot_grow_fails_the_attempt_before_work_stops_and_the_one_before_is_restored() {
    let directory = Directory::new();
    let mut deployment = deployment(2, &directory, &[]);
    let client = deployment.client();
    let model = Model::open(&client);
    (0..30).for_each(|step| model.step(&client, step).expect("an UPDATE"));
    checkpoint(&client, false).expect("a checkpoint");
    let then = model.bits(&client);
    drop(client);
    small(&mut deployment, 20_000);
    let client = deployment.client();
    assert!(model.bits(&client) == then);
    for round in 30..33 {
        model.step(&client, round).expect("work goes on");
        let error = checkpoint(&client, true).expect_err("no room");
        assert_eq!(error.status, Status::CheckpointAborted, "{error}");
        assert!(error.message.contains("shard 1") && error.message.contains("set"), "{error}");
        model.step(&client, round).expect("work goes on");
    }
    drop(client);
    assert_eq!(directory.committed(), [1]);
    kill_all(&mut deployment);
    start_all(&mut deployment, 2);
    let client = deployment.client();
    assert!(model.bits(&client) == then);
    let status = checkpoint(&client, false).expect("there is room again");
    assert_eq!(status.epoch, 5, "an epoch is never used twice");
    assert_eq!(directory.committed(), [5, 1]);
}
