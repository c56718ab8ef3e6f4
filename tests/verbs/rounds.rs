//! Every operation, every way for rows to travel.

use crate::support::{Deployment, get, rows_of, set_read_and_train, table};
use reclane::engine::{Request, Rows, Target};
use reclane::wire::payload::Command;
use std::time::Duration;

fn round_trip(shards: u32, changes: &[(&str, &str)]) {
    let deployment = Deployment::start(shards, changes);
    let client = deployment.client();
    let dim = 16;
    let table = table(&client, "t", dim);
    let (keys, expected) = set_read_and_train(&client, table, dim, 700);
    in_place(&client, table, &keys[..40], &expected[..40 * dim]);
    buffers(&client, table, dim);
    client.command(&Command::Clear).expect("CLEAR");
    assert_eq!(get(&client, table, &keys[..5], dim), vec![0.0; 5 * dim]);
    client.shutdown(Duration::from_secs(5)).expect("nothing under way");
    let handled: u64 = deployment.servers.iter().map(|server| server.stats().handled.internal_errors).sum();
    assert_eq!(handled, 0);
}

fn in_place(client: &reclane::engine::Client, table: reclane::ids::TableTag, keys: &[u64], expected: &[f32]) {
    // SAFETY: the keys outlive the wait.
    let token = unsafe { client.submit(&Request::Get { table, keys, target: Target::InPlace }) }.expect("a GET");
    client.wait(token, None).expect("an answer");
    let borrowed = client.borrow(token, |rows| rows).expect("rows");
    assert_eq!((borrowed.rows_ready, borrowed.rows_total), (keys.len(), keys.len()));
    // SAFETY: that many rows are there until the revoke.
    let got = unsafe { std::slice::from_raw_parts(borrowed.rows, expected.len()) };
    assert_eq!(got, expected);
    client.revoke(token).expect("once");
}

/// Rows out of and into registered memory of the client.
fn buffers(client: &reclane::engine::Client, table: reclane::ids::TableTag, dim: usize) {
    let keys: Vec<u64> = (9000..9060).collect();
    let rows = rows_of(&keys, dim);
    let buffer = client.allocate_buffer(64 << 10).expect("a buffer");
    let bytes = rows.len() * 4;
    // SAFETY: the buffer holds them at this place, and no request is under way.
    unsafe { std::ptr::copy_nonoverlapping(rows.as_ptr().cast::<u8>(), buffer.data().add(64), bytes) };
    let from = Rows::Buffer { region: &buffer, offset_bytes: 64 };
    // SAFETY: keys and buffer outlive the call.
    unsafe { client.call(&Request::Put { table, keys: &keys, rows: from }) }.expect("a PUT from a buffer");
    assert_eq!(get(client, table, &keys, dim), rows);
    let target = Target::Buffer { region: &buffer, offset_bytes: 16384 };
    // SAFETY: as above.
    unsafe { client.call(&Request::Get { table, keys: &keys, target }) }.expect("a GET into a buffer");
    // SAFETY: the rows lie there, 4-aligned, and no request is under way.
    let got = unsafe { std::slice::from_raw_parts(buffer.data().add(16384).cast::<f32>(), rows.len()) };
    assert_eq!(got, rows);
    let gradients = Rows::Buffer { region: &buffer, offset_bytes: 64 };
    // SAFETY: as above.
    unsafe { client.call(&Request::UpdateFlat { table, keys: &keys, gradients }) }
        .expect("an UPDATE_FLAT from a buffer");
    let expected: Vec<f32> = rows.iter().map(|row| row - 0.5 * row).collect();
    assert_eq!(get(client, table, &keys, dim), expected);
}

const IN_ORDER: (&str, &str) = ("rdma-data-in-order", "yes");

#[test]
fn auto_is_what_the_device_promises() {
    round_trip(1, &[]);
}

#[test]
fn single_push_direct() {
    round_trip(1, &[IN_ORDER, ("commit-scheme", "single")]);
}

#[test]
fn single_read_staged() {
    let read = ("rdma-put-v2-transfer-mode", "read");
    round_trip(1, &[IN_ORDER, ("commit-scheme", "single"), read, ("rdma-get-response-mode", "staging_copy")]);
}

#[test]
fn crc_read_on_two_shards() {
    round_trip(2, &[("commit-scheme", "crc"), ("rdma-put-v2-transfer-mode", "read")]);
}

#[test]
fn imm_on_two_shards_with_checksums() {
    round_trip(2, &[("commit-scheme", "imm"), ("integrity", "crc32c"), ("slots-per-qp", "2")]);
}

#[test]
fn threads_workers_scanners_and_rows_that_do_not_fit_an_answer() {
    round_trip(
        2,
        &[
            ("server-rdma-threads", "2"),
            ("rdma-rc-server-get-workers", "2"),
            ("rdma-rc-server-coroutines-per-thread", "2"),
            ("response-slot-bytes", "2048"),
            ("rdma-put-v2-transfer-mode", "read"),
            ("rdma-get-response-mode", "direct_sg"),
        ],
    );
}

#[test]
fn single_without_a_promise_is_refused() {
    let deployment = Deployment::start(1, &[("rdma-data-in-order", "no")]);
    let mut changes = deployment.changes.clone();
    changes.push(("commit-scheme".into(), "single".into()));
    let settings = crate::support::settings(&changes, reclane::options::Side::Client);
    let error = reclane::engine::Client::open(&settings).expect_err("no promise");
    assert!(error.message.contains("commit-scheme"), "{error}");
}
