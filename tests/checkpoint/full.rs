//! A disk that is full: the checkpoint comes to nothing, and work goes on.

use crate::world::{Directory, Model, checkpoint, deployment, kill_all, start_all};
use reclane::error::Status;

#[test]
fn a_file_that_cannot_grow_fails_the_attempt_before_work_stops_and_the_one_before_is_restored() {
    let directory = Directory::new();
    let mut deployment = deployment(2, &directory, &[]);
    let client = deployment.client();
    let model = Model::open(&client);
    (0..30).for_each(|step| model.step(&client, step).expect("an UPDATE"));
    checkpoint(&client, false).expect("a checkpoint");
    let then = model.bits(&client);
    // From now on its files are small ones.
    assert_eq!(deployment.servers[1].ask("small files"), "limited");
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
    assert_eq!(Model::open(&client).tags(), model.tags());
    assert!(model.bits(&client) == then);
    let status = checkpoint(&client, false).expect("there is room again");
    // Three came to nothing, and one fences the world before.
    assert_eq!(status.epoch, 6, "an epoch is never used twice");
    assert_eq!(directory.committed(), [6, 1]);
}
