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
mod handshake;
