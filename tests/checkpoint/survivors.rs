//! Clients that live while all shards are killed and restored.

use crate::rows::Table;
use crate::support::{Deployment, until};
use crate::world::{Directory, checkpoint, deployment};
use reclane::engine::{LaneState, Request, Rows};
use reclane::error::Outcome;

const RESILIENT: [(&str, &str); 2] = [("recovery-preset", "resilient"), ("rdma-lane-rebuild-max-attempts", "1000")];

/// kill -9 of all shards; they come back under the same port.
fn restart(deployment: &mut Deployment) {
    deployment.servers.iter().for_each(|server| server.signal(libc::SIGKILL));
    deployment.servers.clear();
    for shard in 0..2 {
        let server = deployment.server(shard);
        deployment.servers.push(server);
    }
}

/// Three requests meet the end of their shard: one that was executed before the cut and whose answer was lost, one that was
/// not executed, and one after which nothing is in doubt. The client sends the first two again.
#[test]
fn requests_that_are_sent_again_to_a_restored_shard_are_answered_as_the_checkpoint_remembers() {
    let directory = Directory::new();
    let changes: Vec<(&str, &str)> = RESILIENT.into_iter().chain([("checkpoint-survivors", "resume")]).collect();
    let mut deployment = deployment(2, &directory, &changes);
    let client = deployment.client();
    let table = Table::open(&client, "t", 16);
    table.fill(&client);
    let keys: Vec<u64> = (0..4096).filter(|key| client.shard_of(*key) == 1).take(2).collect();
    let gradient = [-1.0_f32; 16];
    let update = |key: usize| {
        let gradients = Rows::Flat { rows: gradient.as_ptr(), count: gradient.len() };
        let update = Request::UpdateFlat { table: table.tag, keys: &keys[key..=key], gradients };
        // SAFETY: keys and gradient outlive the requests.
        unsafe { client.submit(&update) }.expect("the lane is up")
    };
    let version = |key: usize| table.get(&client, &keys[key..=key]).expect("a GET")[1];
    let count = deployment.servers[1].number("updates");
    // Executed before the cut; this caller has not taken the answer.
    let executed = update(0);
    until("it was executed", || deployment.servers[1].number("updates"), |now| *now == count + 1);
    let asker = deployment.client();
    checkpoint(&asker, false).expect("a checkpoint");
    drop(asker);
    // Not executed: the shard stands still when it is sent.
    deployment.servers[1].freeze();
    let lost = update(1);
    restart(&mut deployment);
    client.wait(lost, None).expect("it is sent again and executed");
    client.wait(executed, None).expect("it was answered, or is answered from the window");
    client.revoke(lost).expect("once");
    client.revoke(executed).expect("once");
    assert_eq!((version(0), version(1)), (1.0, 1.0), "each was executed once");
    until(
        "all lanes",
        || (0..6).filter(|l| client.lane(l / 3, l % 3).expect("a lane").state == LaneState::Active).count(),
        |active| *active == 6,
    );
    table.update(&client, &keys, 1.0).expect("it goes on");
    assert_eq!((version(0), version(1)), (2.0, 2.0));
}

/// By default a client that has seen what came after the checkpoint is not let in again.
#[test]
fn a_client_of_the_world_before_is_refused_unless_it_is_told_to_resume() {
    let directory = Directory::new();
    let mut deployment = deployment(2, &directory, &RESILIENT);
    let client = deployment.client();
    let table = Table::open(&client, "t", 16);
    table.fill(&client);
    checkpoint(&client, false).expect("a checkpoint");
    let key: Vec<u64> = (0..4096).filter(|key| client.shard_of(*key) == 1).take(1).collect();
    table.update(&client, &key, 1.0).expect("acknowledged, and undone by the restore");
    deployment.servers[1].freeze();
    let gradient = [-1.0_f32; 16];
    let gradients = Rows::Flat { rows: gradient.as_ptr(), count: gradient.len() };
    let update = Request::UpdateFlat { table: table.tag, keys: &key, gradients };
    // SAFETY: key and gradient outlive the request.
    let token = unsafe { client.submit(&update) }.expect("the lane is up");
    restart(&mut deployment);
    // Shorter than the patience of the test; every rebuild is refused until then.
    let error =
        client.wait(token, Some(std::time::Duration::from_secs(3))).expect_err("it is of a world that is undone");
    assert_ne!(error.outcome, Outcome::Executed, "{error}");
    let again = deployment.client();
    assert_eq!(Table::open(&again, "t", 16).tag, table.tag);
    assert_eq!(table.get(&again, &key).expect("a GET")[1], 0.0, "the checkpoint's row");
    table.update(&again, &key, 5.0).expect("who opens again is let in");
    assert_eq!(table.get(&again, &key).expect("a GET")[1], 5.0);
}
