//! What a process has registered, by the device's own count: run alone, for the count is of all processes.

use crate::processes::{child, given};
use crate::support::{Changes, Deployment, devices, settings};
use reclane::engine::Client;
use reclane::options::Side;
use std::process::Command;

const SHARDS: u32 = 4;
const LANES: usize = 16;
const SLOT: usize = 65536;
/// What one lane needs at one end: a slot for each direction, each with a header and an odd number of lines.
const LANE_BYTES: usize = 2 * (SLOT + 256);

/// Registrations with the clients' device: how many, and their bytes.
fn registered() -> (usize, usize) {
    let output = Command::new("rdma").args(["resource", "show", "mr"]).output().expect("the tool rdma (iproute2)");
    assert!(output.status.success());
    let text = String::from_utf8(output.stdout).expect("text");
    let own = format!("dev {} ", devices().pop().expect("a device"));
    let lines = text.lines().filter(|line| line.starts_with(&own));
    let bytes = lines.map(|line| {
        let (_, rest) = line.split_once("mrlen ").expect("a length");
        rest.split_whitespace().next().expect("a number").parse::<usize>().expect("a number")
    });
    bytes.fold((0, 0), |(count, sum), bytes| (count + 1, sum + bytes))
}

/// Lanes' memory and no more, within so many parts of it that are to spare.
fn holds(found: (usize, usize), lanes: usize, registrations: usize, spare_percent: usize) {
    let needed = lanes * 2 * SLOT;
    let most = lanes * LANE_BYTES * (100 + spare_percent) / 100 + (64 << 10);
    println!("{lanes} lanes: {} registrations, {} KiB", found.0, found.1 >> 10);
    assert!((needed..=most).contains(&found.1), "{found:?}: between {needed} and {most}");
    assert!(found.0 <= registrations, "{found:?}");
}

#[test]
fn lanes_of_all_shards_and_clients_share_few_registrations() {
    const SELF: &str = "memory::lanes_of_all_shards_and_clients_share_few_registrations";
    if let Some((_, changes)) = given() {
        return clients(&changes);
    }
    if devices().len() < 2 {
        println!("skipped: servers and clients share one device, which counts for both");
        return;
    }
    let lanes = LANES.to_string();
    let deployment = Deployment::start(SHARDS, &[("qps-per-client-per-shard", &lanes)]);
    let process = child("clients", SELF, &deployment.changes);
    let output = process.wait_with_output().expect("its end");
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    assert!(output.status.success(), "{text}");
    text.lines().filter(|line| line.contains(" lanes: ")).for_each(|line| println!("{line}"));
}

fn clients(changes: &Changes) {
    let open = || Client::open(&settings(changes, Side::Client)).expect("a client");
    let each = SHARDS as usize * LANES;
    assert_eq!(registered(), (0, 0));
    let first = open();
    // One for what peers write, one for what is sent.
    holds(registered(), each, 2, 0);
    let second = open();
    holds(registered(), 2 * each, 4, 0);
    let third = open();
    holds(registered(), 3 * each, 6, 40);
    drop(second);
    // What was given back is used again.
    let before = registered();
    let fourth = open();
    assert!(registered().1 <= before.1.max(3 * each * LANE_BYTES * 14 / 10), "{before:?} {:?}", registered());
    drop((first, third, fourth));
    assert_eq!(registered(), (0, 0));
}
