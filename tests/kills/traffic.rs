//! Callers of many kinds, each on a thread of its own, until they are told to stop or meet an error.

use crate::rows::{KEYS, Table};
use reclane::engine::{Client, Request, Target, Token};
use reclane::error::{Error, Result, Status};
use reclane::time::{Tick, now};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

/// What a caller does over and over.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    GetOne,
    PutOne,
    UpdateSome,
    /// Several GETs under way at once.
    Ring,
    /// GETs of keys of all shards.
    Batch,
}

pub const KINDS: [Kind; 5] = [Kind::GetOne, Kind::PutOne, Kind::UpdateSome, Kind::Ring, Kind::Batch];

/// One caller's end.
pub struct Ended {
    pub kind: Kind,
    /// The errors that ended it, all of one moment: more than one when several requests were under way.
    pub errors: Vec<Error>,
    pub at: Tick,
}

const RING: usize = 3;

/// Keys of one shard, or all.
pub fn keys_of(client: &Client, shard: Option<u32>) -> Vec<u64> {
    (0..KEYS).filter(|key| shard.is_none_or(|shard| client.shard_of(*key) == shard)).collect()
}

/// Works with `keys` until `stop`, or until an error. Counts what went well.
pub fn work(client: &Client, table: Table, kind: Kind, keys: &[u64], stop: &AtomicBool, done: &AtomicU64) -> Ended {
    let mut turn = 0_usize;
    let mut errors = Vec::new();
    while errors.is_empty() && !stop.load(Ordering::Relaxed) {
        turn += 1;
        let at = turn * 37 % (keys.len() - 64);
        let (one, some) = (&keys[at..=at], &keys[at..at + 20]);
        let outcome = match kind {
            Kind::GetOne => table.get(client, one).map(|rows| drop(table.versions(one, &rows))),
            Kind::PutOne => table.put(client, one, (turn % 1000) as f32),
            Kind::UpdateSome => table.update(client, some, 1.0),
            Kind::Ring => {
                errors = ring(client, table, &keys[at..at + RING]);
                Ok(())
            }
            Kind::Batch => table.get(client, keys).map(|rows| drop(table.versions(keys, &rows))),
        };
        errors.extend(outcome.err().map(|error| *error));
        done.fetch_add(u64::from(errors.is_empty()), Ordering::Relaxed);
    }
    Ended { kind, errors, at: now() }
}

/// A GET for each key, all under way at once. Every error of them; `NoSlot` is none.
fn ring(client: &Client, table: Table, keys: &[u64]) -> Vec<Error> {
    let submit = |key: &u64| -> Result<Token> {
        let request = Request::Get { table: table.tag, keys: core::slice::from_ref(key), target: Target::InPlace };
        // SAFETY: nothing of the caller's is written, and the key outlives the request.
        unsafe { client.submit(&request) }
    };
    let tokens: Vec<Result<Token>> = keys.iter().map(submit).collect();
    let mut errors = Vec::new();
    for (key, token) in keys.iter().zip(tokens) {
        let outcome = token.and_then(|token| {
            let outcome = client.wait(token, None).and_then(|()| client.borrow(token, |rows| rows)).map(|borrowed| {
                assert_eq!((borrowed.rows_ready, borrowed.rows_total), (1, 1));
                // SAFETY: the row is readable until the request is revoked.
                let row = unsafe { core::slice::from_raw_parts(borrowed.rows, table.dim) };
                table.versions(&[*key], row);
            });
            client.revoke(token).expect("it was not revoked yet");
            outcome
        });
        errors.extend(outcome.err().map(|error| *error).filter(|error| error.status != Status::NoSlot));
    }
    errors
}
