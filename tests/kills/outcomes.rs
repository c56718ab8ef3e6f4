//! What a batch says of its parts when one of its shards is killed: which keys to send again, and which not.

use crate::rows::Table;
use crate::support::{Deployment, until};
use crate::traffic::keys_of;
use reclane::engine::{Client, Request, Rows, ShardResult};
use reclane::error::{Error, Outcome, Status};
use std::sync::atomic::{AtomicU64, Ordering};

const VICTIM: u32 = 1;

/// How one UPDATE of all keys ended.
struct Ended {
    error: Option<Box<Error>>,
    outcomes: Vec<Outcome>,
    shards: [ShardResult; 2],
}

fn update(client: &Client, table: Table, keys: &[u64]) -> Ended {
    let gradient: Vec<f32> = (0..table.dim).map(|column| if column == 0 { 0.0 } else { -1.0 }).collect();
    let pointers = vec![gradient.as_ptr(); keys.len()];
    let request = Request::Update { table: table.tag, keys, gradients: Rows::Scattered(&pointers) };
    // SAFETY: keys and rows outlive the request, which is over when this returns.
    let token = unsafe { client.submit(&request) }.expect("a batch begins");
    let error = client.wait(token, None).err();
    let mut outcomes = vec![Outcome::Unknown; keys.len()];
    client.key_outcomes(token, &mut outcomes).expect("it has ended");
    let few = client.key_outcomes(token, &mut outcomes[1..]).expect_err("a key has no place");
    assert_eq!(few.status, Status::BufferTooSmall);
    let shards = [0, 1].map(|shard| client.shard_result(token, shard).expect("it has ended"));
    assert_eq!(client.shard_result(token, 2).expect_err("no such shard").status, Status::InvalidArgument);
    client.revoke(token).expect("once");
    assert_eq!(client.shard_result(token, 0).expect_err("revoked").status, Status::StaleToken);
    Ended { error, outcomes, shards }
}

/// The two reports say the same.
fn agree(client: &Client, keys: &[u64], ended: &Ended) {
    for result in &ended.shards {
        let of = |wanted: Outcome| {
            let mine = keys.iter().zip(&ended.outcomes).filter(|(key, _)| client.shard_of(**key) == result.shard);
            mine.filter(|(_, outcome)| **outcome == wanted).count() as u64
        };
        assert_eq!((result.executed, result.not_executed), (of(Outcome::Executed), of(Outcome::NotExecuted)));
        assert_eq!(result.keys, keys_of(client, Some(result.shard)).len() as u64);
    }
}

#[test]
fn a_batch_tells_of_each_key_whether_a_killed_shard_took_it() {
    let mut deployment = Deployment::start(2, &[("max-kv-num-per-request", "64")]);
    let client = deployment.client();
    let table = Table::open(&client, "outcomes", 16);
    table.fill(&client);
    let (keys, safe) = (keys_of(&client, None), keys_of(&client, Some(0)));
    let good = AtomicU64::new(0);
    let broken = std::thread::scope(|scope| {
        let caller = scope.spawn(|| {
            loop {
                let ended = update(&client, table, &keys);
                agree(&client, &keys, &ended);
                if ended.error.is_some() {
                    return ended;
                }
                assert!(ended.outcomes.iter().all(|outcome| *outcome == Outcome::Executed));
                good.fetch_add(1, Ordering::Relaxed);
            }
        });
        until("some batches", || good.load(Ordering::Relaxed), |count| *count > 3);
        deployment.servers[VICTIM as usize].kill();
        caller.join().expect("no panic")
    });
    let error = broken.error.as_ref().expect("a shard was killed");
    assert_eq!((error.status, error.outcome), (Status::ShardUnreachable, Outcome::Unknown), "{error}");
    let [kept, lost] = broken.shards;
    assert_eq!((kept.status, kept.outcome(), kept.executed), (Status::Ok, Outcome::Executed, kept.keys));
    assert_eq!(lost.status, Status::ShardUnreachable);
    assert!(lost.executed < lost.keys, "{lost:?}");
    // From now on nothing goes there at all, and a batch is not called undone because of that.
    let later = update(&client, table, &keys);
    agree(&client, &keys, &later);
    let [kept, lost] = later.shards;
    assert_eq!((kept.outcome(), lost.outcome()), (Outcome::Executed, Outcome::NotExecuted));
    assert_eq!(later.error.expect("half of it failed").outcome, Outcome::Unknown);
    let count = good.load(Ordering::Relaxed) as f32 + 2.0;
    let rows = table.get(&client, &safe).expect("the other shard serves");
    assert!(table.versions(&safe, &rows).iter().all(|version| *version == count), "{count} UPDATEs");
}
