//! A checkpoint is a cut: no effect is in it without its cause.

use crate::rows::Table;
use crate::support::with;
use crate::world::{Directory, checkpoint, deployment, kill_all, start_all};
use reclane::engine::Client;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

const CALLERS: usize = 4;

/// A key of each shard for a caller.
fn pair(client: &Client, caller: usize) -> [u64; 2] {
    let key = |shard| (0..4096).filter(|key| client.shard_of(*key) == shard).nth(caller).expect("there are many");
    [key(0), key(1)]
}

/// Each caller raises a row of shard 0 and, when that is acknowledged, one of shard 1, over and over, in two processes.
/// In every checkpoint the first is ahead by one at most, rows are whole, and nothing is there that was not asked for.
#[test]
fn under_load_no_update_is_in_a_checkpoint_without_the_one_before_it() {
    let directory = Directory::new();
    let mut deployment = deployment(2, &directory, &[("server-rdma-threads", "2"), ("checkpoint-keep", "64")]);
    let client = deployment.client();
    let table = Table::open(&client, "t", 16);
    table.fill(&client);
    let (stop, asked) = (AtomicBool::new(false), [const { AtomicU64::new(0) }; CALLERS]);
    let mut least = Vec::new();
    std::thread::scope(|scope| {
        for (caller, asked) in asked.iter().enumerate() {
            let (client, stop) = (&client, &stop);
            scope.spawn(move || {
                let keys = pair(client, caller);
                while !stop.load(Ordering::Relaxed) {
                    asked.fetch_add(1, Ordering::SeqCst);
                    keys.iter().for_each(|key| table.update(client, &[*key], 1.0).expect("an UPDATE"));
                }
            });
        }
        for round in 0..12 {
            // Before the request: at least so many pairs but one are done.
            let before: Vec<u64> = asked.iter().map(|count| count.load(Ordering::SeqCst)).collect();
            let status = checkpoint(&client, round == 5).expect("a checkpoint");
            let after: Vec<u64> = asked.iter().map(|count| count.load(Ordering::SeqCst)).collect();
            least.push((status.epoch, before, after));
        }
        stop.store(true, Ordering::Relaxed);
    });
    drop(client);
    for (epoch, before, after) in least {
        kill_all(&mut deployment);
        deployment.changes = with(&deployment.changes, "checkpoint-restore-epoch", epoch);
        start_all(&mut deployment, 2);
        let client = deployment.client();
        assert_eq!(Table::open(&client, "t", 16).tag, table.tag);
        for caller in 0..CALLERS {
            let keys = pair(&client, caller);
            let versions = table.versions(&keys, &table.get(&client, &keys).expect("a GET"));
            let (first, second) = (versions[0], versions[1]);
            assert!(first == second || first == second + 1.0, "epoch {epoch}, caller {caller}: {first} and {second}");
            let (low, high) = (before[caller].saturating_sub(1) as f32, after[caller] as f32);
            assert!(
                (low..=high).contains(&second) || second + 1.0 >= low,
                "epoch {epoch}: {low} <= {second} <= {high}"
            );
            assert!(first <= high, "epoch {epoch}: {first} of {high} that were asked for");
        }
    }
}
