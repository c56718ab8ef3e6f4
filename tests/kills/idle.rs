//! A server with nothing to do, and that it wakes for the next request.

use crate::rows::Table;
use crate::support::{Deployment, open_client, options, start_server, with};
use crate::traffic::keys_of;
use reclane::time::{now, pause};
use std::time::Duration;

/// How long the idle server is watched.
const WATCH: Duration = Duration::from_secs(3);
const ALTERNATIONS: u64 = 10_000;
/// A request that took this long was most likely found by the sleeper's own time-out and not by its bell.
const SUSPECT_NS: u64 = 190_000_000;

#[test]
fn an_idle_server_takes_little_cpu() {
    let mut deployment = Deployment::start(1, &[("server-rdma-threads", "2"), ("rdma-rc-server-get-workers", "1")]);
    let client = deployment.client();
    let table = Table::open(&client, "t", 16);
    table.fill(&client);
    let server = &mut deployment.servers[0];
    crate::support::until("sleep", || server.number("sleeps"), |sleeps| *sleeps > 0);
    let (before, start) = (server.number("cpu"), now());
    pause(WATCH);
    let (after, took) = (server.number("cpu"), now().since_ns(start));
    let fraction = (after - before) as f64 * 1e3 / took as f64;
    println!(
        "idle: 2 poll threads, 1 worker, 1 client: {:.2} % of a core over {:.1} s",
        fraction * 100.0,
        took as f64 / 1e9
    );
    table.get(&client, &[1]).expect("it wakes");
}

fn alternate(changes: &[(&str, &str)]) {
    let mut all = vec![
        ("poll-spin-iterations", "1"),
        ("poll-yield-iterations", "0"),
        ("qps-per-client-per-shard", "1"),
        // A GET that needs no request would wake nobody.
        ("shared-reads", "off"),
    ];
    all.extend(changes);
    let changes = options(1, &all);
    let server = start_server(&changes).expect("a server");
    let port = server.control_plane_port().expect("shard 0 hosts it").to_string();
    let client = open_client(&with(&changes, "rdma-control-plane-port", &port));
    let table = Table::open(&client, "t", 16);
    table.fill(&client);
    let keys = keys_of(&client, None);
    let (mut suspects, mut longest) = (0, 0);
    for turn in 0..ALTERNATIONS {
        let slept = server.stats().sleeps;
        let key = &keys[(turn % 1000) as usize..][..1];
        let start = now();
        table.versions(key, &table.get(&client, key).expect("it wakes"));
        let took = now().since_ns(start);
        longest = longest.max(took);
        suspects += u64::from(took >= SUSPECT_NS);
        while server.stats().sleeps == slept {
            std::thread::yield_now();
        }
        // At once, when the thread is about to sleep, and a little later, when it sleeps.
        for _ in 0..(turn % 64) * 50 {
            core::hint::spin_loop();
        }
    }
    println!(
        "idle: {ALTERNATIONS} requests to a sleeping server {all:?}: slowest {:.2} ms, {suspects} suspects",
        longest as f64 / 1e6
    );
    assert!(suspects * 100 < ALTERNATIONS, "{suspects} of {ALTERNATIONS} requests did not wake the server");
}

#[test]
fn every_request_wakes_a_sleeping_server() {
    alternate(&[]);
}

#[test]
fn every_immediate_wakes_a_sleeping_server() {
    alternate(&[("commit-scheme", "imm")]);
}
