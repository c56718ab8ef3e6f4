//! Hostile peers: a client that writes garbage into every byte it can reach, offers that lie, and a server that does.
//!
//! The well-behaved client beside the attacker must be served correctly all the time. `RECLANE_HOSTILE_SEED` and
//! `RECLANE_HOSTILE_MUTATIONS` set the dice and the length.
#![allow(clippy::cast_possible_truncation)] // dice

mod attack;
mod attacker;
mod bed;
mod cases;
mod false_server;
mod floods;
mod handshake;
#[path = "../common/process.rs"]
#[allow(dead_code)] // shared: not every test uses all of it
mod process;
mod stops;

/// The other processes of a test.
#[test]
fn child() {
    let Some((role, changes)) = process::role() else { return };
    match role.as_str() {
        "half a client" => stops::play(&changes),
        "a shard with few descriptors" => floods::play(&changes),
        other => panic!("no such role: {other}"),
    }
}
