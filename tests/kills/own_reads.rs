//! Clients that read a shard's rows by themselves, and what becomes of the shard meanwhile.

use crate::rows::Table;
use crate::support::{Deployment, open_client};
use reclane::engine::{Client, Request, Target, Token};
use std::sync::atomic::{AtomicBool, Ordering};

/// Shards that are killed in each test.
const LIVES: usize = 10;

fn reader(deployment: &Deployment) -> (Client, Table) {
    let client = open_client(&deployment.changes);
    let table = Table::open(&client, "t", 16);
    (client, table)
}

fn submit(client: &Client, table: Table, keys: &[u64]) -> Token {
    // SAFETY: the keys outlive the request, which is given back in the test.
    unsafe { client.submit(&Request::Get { table: table.tag, keys, target: Target::InPlace }) }.expect("a GET")
}

#[test]
fn rows_of_a_killed_shard_are_never_read_again() {
    for _ in 0..LIVES {
        let mut deployment = Deployment::start(1, &[("metrics", "true")]);
        let (client, table) = reader(&deployment);
        table.fill(&client);
        let many: Vec<u64> = (0..300).collect();
        for keys in [&many[..1], &many[..]] {
            table.versions(keys, &table.get(&client, keys).expect("rows"));
        }
        let own = client.metric("reclane_client_own_reads_total").expect("a number");
        assert_eq!(own, client.metric("reclane_client_requests_total{op=\"get\"}").expect("a number"));
        // Submitted to a living shard, and looked at when it is dead.
        let kept = submit(&client, table, &many[..1]);
        deployment.servers[0].kill();
        for keys in [&many[..1], &many[..]] {
            let error = table.get(&client, keys).expect_err("nobody has these rows");
            assert_eq!(error.shard, Some(0), "{error}");
        }
        assert_eq!(client.wait(kept, None).expect_err("nobody has this row").shard, Some(0));
        client.revoke(kept).expect("once");
        assert_eq!(client.metric("reclane_client_own_reads_total").expect("a number"), own);
        assert_eq!(client.stats().held_slots, 0);
    }
}

/// The shard dies while it writes the rows that are read: in the middle of one, some day.
#[test]
fn rows_are_whole_until_their_shard_is_dead() {
    for life in 0..LIVES {
        let mut deployment = Deployment::start(1, &[]);
        let (client, table) = reader(&deployment);
        let writer = deployment.client();
        let theirs = Table::open(&writer, "t", 16);
        theirs.fill(&writer);
        let keys: Vec<u64> = (0..64).collect();
        let is_read = AtomicBool::new(false);
        std::thread::scope(|scope| {
            let writing = scope.spawn(|| {
                let mut version = 1.0;
                while theirs.put(&writer, &keys, version).is_ok() {
                    version += 1.0;
                }
                version
            });
            let reading = scope.spawn(|| {
                let mut newest = 0.0_f32;
                while let Ok(rows) = table.get(&client, &keys) {
                    let versions = table.versions(&keys, &rows);
                    let oldest = versions.iter().copied().fold(f32::INFINITY, f32::min);
                    assert!(oldest >= newest, "a row of version {oldest} after one of {newest} was answered");
                    // What this thread has seen of every key stays so.
                    newest = oldest;
                    if newest > 3.0 {
                        is_read.store(true, Ordering::Relaxed);
                    }
                }
                newest
            });
            while !is_read.load(Ordering::Relaxed) {
                std::thread::yield_now();
            }
            (0..life * 1000).for_each(|_| core::hint::spin_loop());
            deployment.servers[0].kill();
            let (written, read) = (writing.join().expect("no panic"), reading.join().expect("whole rows"));
            assert!(read > 3.0 && read <= written, "{read} was read, {written} was not answered");
        });
    }
}
