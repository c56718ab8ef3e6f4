//! Processes of a world that is undone, and that only slept.

use crate::rows::Table;
use crate::support::{Process, until, with};
use crate::world::{Directory, checkpoint, deployment};
use reclane::checkpoint::disk::RealDisk;
use reclane::engine::Client;
use reclane::error::Status;

/// A client is stopped, its servers are killed and restored, and it goes on: nothing of what it asks for is done, neither
/// what it had under way nor anything new.
#[test]
fn a_client_that_slept_through_a_restore_changes_nothing() {
    let directory = Directory::new();
    let changes = [("recovery-preset", "resilient"), ("rdma-lane-rebuild-max-attempts", "1000")];
    let mut deployment = deployment(2, &directory, &changes);
    let client = deployment.client();
    let table = Table::open(&client, "t", 16);
    table.fill(&client);
    let key = (0..4096).find(|key| client.shard_of(*key) == 1).expect("a key of shard 1");
    let version = |client: &Client| table.get(client, &[key]).expect("a GET")[1];
    // Each of its three failures below takes that long.
    let impatient = with(&deployment.changes, "rdma-wait-timeout-ms", 2000);
    let mut zombie = Process::start(&format!("client that raises {key}"), &impatient);
    assert_eq!(zombie.hear(), "raised");
    until("some updates", || version(&client), |version| *version > 10.0);
    checkpoint(&client, false).expect("a checkpoint");
    drop(client);
    zombie.freeze();
    deployment.servers.iter().for_each(|server| server.signal(libc::SIGKILL));
    deployment.servers.clear();
    for shard in 0..2 {
        let server = deployment.server(shard);
        deployment.servers.push(server);
    }
    let client = deployment.client();
    assert_eq!(Table::open(&client, "t", 16).tag, table.tag);
    let restored = version(&client);
    assert!(restored > 10.0);
    zombie.thaw();
    // It is told so again and again; the last word may be about a request that it had sent before.
    for _ in 0..3 {
        let failed = zombie.hear();
        assert!(!failed.starts_with("Executed"), "{failed}");
    }
    assert!(version(&client) == restored, "{} is not {restored}", version(&client));
    table.update(&client, &[key], 1.0).expect("others go on");
    assert!(version(&client) == restored + 1.0);
}

/// A leader that slept between its last word and the manifest finds the directory taken over.
#[test]
fn a_leader_that_slept_through_a_restore_commits_nothing() {
    let directory = Directory::new();
    let mut deployment = deployment(1, &directory, &[("checkpoint-full-every", "1")]);
    let client = deployment.client();
    let table = Table::open(&client, "t", 16);
    table.fill(&client);
    checkpoint(&client, false).expect("a checkpoint");
    let catalog = directory.catalog();
    let found = catalog.list(&RealDisk).expect("a list").remove(0);
    let mut late = found.manifest.expect("readable").expect("committed");
    // What it was about to write.
    late.epoch = catalog.promise(&RealDisk, 1).expect("an epoch");
    late.checkpoint ^= 1;
    std::fs::create_dir(catalog.directory_of(late.epoch)).expect("a directory");
    drop(client);
    deployment.servers.clear();
    let server = deployment.server(0);
    deployment.servers.push(server);
    let error = catalog.commit(&RealDisk, &late, 2).expect_err("it is of a world that is undone");
    assert_eq!(error.status, Status::StaleEpoch);
    assert!(error.message.contains(&format!("epoch {} was given up", late.epoch)), "{error}");
    assert_eq!(directory.committed(), [1]);
    let client = deployment.client();
    assert_eq!(Table::open(&client, "t", 16).tag, table.tag);
    let next = checkpoint(&client, false).expect("the restored world has its own");
    assert!(next.epoch > late.epoch);
}
