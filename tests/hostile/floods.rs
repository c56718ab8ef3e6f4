//! A shard whose descriptors are used up, and connections that never come to the point.

use super::bed::{Bed, PATIENCE, Victim, alone, settings_of, until};
use super::process::{Process, commands, say, with};
use reclane::engine::{Client, Server};
use reclane::error::Status;
use reclane::options::Side;
use std::io::Write;
use std::net::TcpStream;
use std::sync::Arc;

/// Descriptors that the shard may have.
const DESCRIPTORS: usize = 200;

/// A shard in a process of its own that may have few descriptors.
pub fn play(changes: &[(String, String)]) {
    let few = libc::rlimit { rlim_cur: DESCRIPTORS as u64, rlim_max: DESCRIPTORS as u64 };
    // SAFETY: a plain system call; the struct is ours.
    assert_eq!(unsafe { libc::setrlimit(libc::RLIMIT_NOFILE, &raw const few) }, 0);
    let settings = settings_of(Side::Server, changes);
    let store = reclane::engine::builtin_store(&settings).expect("a store");
    let server = Server::start(&settings, Arc::new(store)).expect("a server");
    say(server.control_plane_port().expect("shard 0 has the control plane"));
    for _ in commands() {
        say(server.stop(PATIENCE).map_or_else(|error| error.to_string(), |()| "stopped".to_owned()));
    }
}

#[test]
fn a_shard_without_descriptors_serves_on_and_lets_clients_in_again_afterwards() {
    let _alone = alone();
    let changes = Bed::options(&[]);
    let mut shard = Process::start("a shard with few descriptors", &changes);
    let port = shard.hear();
    let changes = with(&changes, "rdma-control-plane-port", &port);
    let open = |changes: &[(String, String)]| Client::open(&settings_of(Side::Client, changes));
    let victim = Victim::start(open(&changes).expect("a client"));
    victim.is_served();
    let before = shard.holdings().descriptors;
    // Each says enough not to be closed for silence, and nothing that makes sense.
    let mut strangers = Vec::new();
    until("a shard that has no descriptor left", || {
        if strangers.len() < 2 * DESCRIPTORS {
            let mut stranger = TcpStream::connect(format!("127.0.0.1:{port}")).expect("the backlog has room");
            stranger.write_all(b"PRI * HTTP/2.0\r\n").expect("sent");
            strangers.push(stranger);
        }
        (shard.holdings().descriptors >= DESCRIPTORS).then_some(())
    });
    victim.is_served();
    let refused = open(&with(&changes, "rdma-control-plane-timeout-ms", "500")).expect_err("no way in");
    assert!(matches!(refused.status, Status::ControlPlaneUnreachable | Status::StartupTimeout), "{refused}");
    victim.is_served();
    drop(strangers);
    drop(open(&changes).expect("a client"));
    until("the shard's descriptors", || (shard.holdings().descriptors <= before).then_some(()));
    victim.finish();
    assert_eq!(shard.ask("stop"), "stopped");
}
