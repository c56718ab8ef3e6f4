//! A server that dies: who notices first, and after how long.

use crate::processes::{child, given};
use crate::support::{Changes, get, put, rows_of, settings, table};
use reclane::engine::{Client, Request, Server, Target};
use reclane::error::Status;
use reclane::options::Side;
use reclane::sync::Arc;
use std::io::{BufRead, BufReader, Read, Write};

const MARK: &str = "port:";
const DIM: usize = 4;

/// A shard in a process of its own: tells its control plane's port, and serves until its input ends.
fn serve(changes: &Changes) {
    let settings = settings(changes, Side::Server);
    let store = reclane::engine::builtin_store(&settings).expect("a store");
    let server = Server::start(&settings, Arc::new(store)).expect("a server");
    println!("\n{MARK}{}", server.control_plane_port().unwrap_or(0));
    std::io::stdout().flush().expect("output");
    let _ = std::io::stdin().read_to_end(&mut Vec::new());
}

/// The port that a shard tells, and the rest of its output, which stays open: it goes on to write.
fn port_of(child: &mut std::process::Child) -> (String, impl Iterator<Item = String> + use<>) {
    let lines = BufReader::new(child.stdout.take().expect("output")).lines();
    let mut lines = lines.map_while(Result::ok);
    let line = lines.by_ref().find_map(|line| line.find(MARK).map(|at| line[at + MARK.len()..].to_owned()));
    (line.expect("the port"), lines)
}

/// Kills shard 1 of two under traffic; returns the status of the first request that failed.
fn kill(test: &str, more: &[(&str, &str)]) -> Option<Status> {
    if let Some((_, changes)) = given() {
        serve(&changes);
        return None;
    }
    let mut changes: Changes = [
        ("fabric", "verbs"),
        ("num-server-processes", "2"),
        ("qps-per-client-per-shard", "2"),
        ("request-slot-bytes", "4096"),
        ("response-slot-bytes", "4096"),
        ("hash-method", "simple_mod"),
        ("rdma-control-plane-port", "0"),
    ]
    .iter()
    .chain(more)
    .map(|(name, value)| ((*name).to_owned(), (*value).to_owned()))
    .collect();
    let with_shard = |changes: &Changes, shard: &str| {
        let mut all = changes.clone();
        all.push(("shard-id".to_owned(), shard.to_owned()));
        all
    };
    let mut first = child("0", test, &with_shard(&changes, "0"));
    let (port, _first_output) = port_of(&mut first);
    changes.push(("rdma-control-plane-port".to_owned(), port));
    let mut second = child("1", test, &with_shard(&changes, "1"));
    let (_, _second_output) = port_of(&mut second);
    let client = Client::open(&settings(&changes, Side::Client)).expect("a client");
    let table = table(&client, "t", DIM);
    let keys: Vec<u64> = (0..20).collect();
    let rows = rows_of(&keys, DIM);
    put(&client, table, &keys, &rows);
    assert_eq!(get(&client, table, &keys, DIM), rows);
    second.kill().expect("kill");
    let killed = reclane::time::now();
    second.wait().expect("its end");
    let mut answer = vec![0.0_f32; DIM];
    let error = loop {
        let target = Target::Memory { rows: answer.as_mut_ptr(), capacity: DIM };
        // SAFETY: keys and answer outlive the call.
        if let Err(error) = unsafe { client.call(&Request::Get { table, keys: &[1], target }) } {
            break error;
        }
    };
    println!("the request failed {} ms after the kill: {error}", reclane::time::now().since_ns(killed) / 1_000_000);
    // The other shard does not mind.
    assert_eq!(get(&client, table, &[0, 2, 4], DIM), rows_of(&[0, 2, 4], DIM));
    drop(client);
    drop(first.stdin.take());
    first.wait().expect("its end");
    Some(error.status)
}

#[test]
fn with_retries_for_ever_the_control_plane_tells() {
    let status = kill("deaths::with_retries_for_ever_the_control_plane_tells", &[("rdma-retry-cnt", "7")]);
    // Soft-RoCE takes seven for ever; a device that counts to seven may be the first one all the same.
    let mut known = vec![Status::ShardUnreachable];
    if std::env::var("RECLANE_VM").as_deref() != Ok("1") {
        known.push(Status::CompletionError);
    }
    assert!(status.is_none_or(|status| known.contains(&status)), "{status:?}");
}

#[test]
fn with_few_retries_whoever_is_first_tells() {
    let few = [("rdma-retry-cnt", "1"), ("rdma-ack-timeout", "12")];
    let status = kill("deaths::with_few_retries_whoever_is_first_tells", &few);
    let known = [Status::ShardUnreachable, Status::CompletionError];
    assert!(status.is_none_or(|status| known.contains(&status)), "{status:?}");
}
