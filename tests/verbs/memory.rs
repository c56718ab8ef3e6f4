//! What a process has registered, by the device's own count: run alone, for the count is of all processes.

use crate::processes::{child, given};
use crate::support::{Changes, Deployment, devices, settings, table};
use reclane::engine::{Client, Request, Rows, Token};
use reclane::error::Status;
use reclane::options::Side;
use std::process::Command;

const SHARDS: u32 = 4;
const LANES: usize = 16;
const SLOT: usize = 65536;
const DIM: usize = 16;
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

/// A client that has many requests under way at one of four shards has lanes to that one.
fn grows_with_the_lanes_in_use(changes: &Changes) {
    let mut changes = changes.clone();
    changes.push(("qps-at-open".to_owned(), "0".to_owned()));
    let client = Client::open(&settings(&changes, Side::Client)).expect("a client");
    let at_open = 2 * SHARDS as usize;
    holds(registered(), at_open, 2, 0);
    let table = table(&client, "lazy", DIM);
    let keys: Vec<[u64; 1]> = (0..4096).filter(|key| client.shard_of(*key) == 2).take(LANES).map(|key| [key]).collect();
    let rows = [0.5_f32; DIM];
    let submit = |keys: &[u64; 1]| loop {
        let rows = Rows::Flat { rows: rows.as_ptr(), count: DIM };
        // SAFETY: keys and rows outlive the requests, which are finished below.
        match unsafe { client.submit(&Request::Put { table, keys, rows }) } {
            Ok(token) => break token,
            // A slow guest: the lane is on its way still.
            Err(error) => assert_eq!(error.status, Status::NoSlot, "{error}"),
        }
    };
    let requests: Vec<Token> = keys.iter().map(submit).collect();
    requests.into_iter().for_each(|request| client.finish(request, None).expect("executed"));
    // Each time that a registration is full, a quarter of all is registered anew, or what is asked for.
    let lanes = at_open - 2 + LANES;
    assert_eq!(client.stats().active_lanes as usize, lanes);
    holds(registered(), lanes, 10, 30);
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
    grows_with_the_lanes_in_use(changes);
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
