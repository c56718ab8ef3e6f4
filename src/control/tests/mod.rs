//! The control plane over real sockets.

use super::*;
use crate::error::{Error, Status};
use crate::ids::{ClientId, Epoch, Incarnation, ShardId};
use crate::sync::{AtomicU64, Ordering};
use core::time::Duration;

mod machine;
mod members;
mod outside;
mod processes;
mod restart;
mod view;

/// Long enough for any machine; a test that needs it has failed.
const LONG: Duration = Duration::from_secs(60);
const HOST: &str = "127.0.0.1";

fn identity(num_shards: u32) -> Identity {
    Identity {
        deployment_id: "test".to_string(),
        epoch: Epoch(7),
        namespace: "run-1".to_string(),
        num_shards,
        layout: "fabric=shm\nslots-per-qp=32\n".to_string(),
        secret: Secret::default(),
    }
}

fn fresh_incarnation() -> Incarnation {
    static NEXT: AtomicU64 = AtomicU64::new(1);
    Incarnation(u128::from(NEXT.fetch_add(1, Ordering::Relaxed)) << 64 | u128::from(std::process::id()))
}

fn member(role: Role) -> Member {
    Member { role, incarnation: fresh_incarnation(), pid: std::process::id(), host: "here".to_string() }
}

fn server(shard: u32) -> Member {
    member(Role::Server(ShardId(shard)))
}

fn client(id: u32) -> Member {
    member(Role::Client(Some(ClientId(id))))
}

fn plane(num_shards: u32) -> ControlPlane {
    ControlPlane::serve(HOST, 0, &identity(num_shards)).unwrap()
}

fn join(plane: &ControlPlane, num_shards: u32, member: &Member) -> ControlClient {
    ControlClient::join(HOST, plane.port(), LONG, &identity(num_shards), member).unwrap()
}

fn refused(plane: &ControlPlane, identity: &Identity, member: &Member) -> Box<Error> {
    ControlClient::join(HOST, plane.port(), LONG, identity, member).unwrap_err()
}

/// Waits for one event, skipping others.
fn await_event(client: &ControlClient, wanted: Event) {
    while let Some(event) = client.next_event(LONG) {
        if event == wanted {
            return;
        }
    }
    panic!("{wanted:?} did not come");
}

#[track_caller]
fn assert_error<T: core::fmt::Debug>(outcome: crate::error::Result<T>, status: Status, words: &[&str]) {
    let error = outcome.unwrap_err();
    assert_eq!(error.status, status, "{error}");
    for word in words {
        assert!(error.message.contains(word), "'{word}' is missing in: {error}");
    }
}
