//! Rows that the device sends from where they lie in the table.

use crate::support::{Deployment, get, put, rows_of, table};
use reclane::engine::{Client, Request, Rows, Target};
use reclane::ids::TableTag;
use reclane::ps::HandlerCounts;
use reclane::sync::{AtomicBool, Ordering};
use std::time::Duration;

const DIRECT: (&str, &str) = ("rdma-get-response-mode", "direct_sg");

fn counts(deployment: &Deployment) -> HandlerCounts {
    let mut sum = HandlerCounts::default();
    deployment.servers.iter().for_each(|server| sum.add(&server.stats().handled));
    sum
}

/// Waits until the server's threads have told what they counted.
fn counted(deployment: &Deployment, gets: u64) -> HandlerCounts {
    loop {
        let counts = counts(deployment);
        if counts.gets >= gets {
            return counts;
        }
        std::thread::yield_now();
    }
}

/// Rows of many widths and places: neighbours, far apart, missing, the same twice, one.
fn all_shapes(changes: &[(&str, &str)]) {
    let deployment = Deployment::start(1, changes);
    let client = deployment.client();
    let mut gets = 0;
    for dim in [7_usize, 16, 100, 600] {
        let table = table(&client, &format!("t{dim}"), dim);
        let keys: Vec<u64> = (0..400).filter(|key| key % 5 != 3).collect();
        put(&client, table, &keys, &rows_of(&keys, dim));
        let far: Vec<u64> = (0..25).map(|i| i * 17 % 400).collect();
        for asked in [&keys[..25], &far[..], &[3, 8, 13, 7, 7], &[7]] {
            let expected: Vec<f32> = asked
                .iter()
                .flat_map(|key| if key % 5 == 3 { vec![0.0; dim] } else { rows_of(&[*key], dim) })
                .collect();
            assert_eq!(get(&client, table, asked, dim), expected, "dim {dim}, {asked:?}");
            gets += 1;
        }
        into_buffer(&client, table, dim, &far);
        gets += 1;
    }
    let counts = counted(&deployment, gets);
    assert_eq!((counts.gets, counts.sent_in_place, counts.staged), (gets, gets, 0));
}

/// Rows that go into registered memory of the client: not one processor copies them.
fn into_buffer(client: &Client, table: TableTag, dim: usize, keys: &[u64]) {
    let buffer = client.allocate_buffer(keys.len() * dim * 4 + 64).expect("a buffer");
    let target = Target::Buffer { region: &buffer, offset_bytes: 64 };
    // SAFETY: keys and buffer outlive the call.
    unsafe { client.call(&Request::Get { table, keys, target }) }.expect("a GET into a buffer");
    // SAFETY: the rows lie there, 4-aligned, and no request is under way.
    let got = unsafe { std::slice::from_raw_parts(buffer.data().add(64).cast::<f32>(), keys.len() * dim) };
    let expected: Vec<f32> =
        keys.iter().flat_map(|key| if key % 5 == 3 { vec![0.0; dim] } else { rows_of(&[*key], dim) }).collect();
    assert_eq!(got, expected);
}

#[test]
fn rows_are_sent_from_the_table_with_checksums() {
    all_shapes(&[DIRECT, ("commit-scheme", "crc")]);
}

#[test]
fn rows_are_sent_from_the_table_in_order() {
    all_shapes(&[DIRECT, ("rdma-data-in-order", "yes"), ("commit-scheme", "single")]);
}

#[test]
fn rows_are_sent_from_the_table_with_immediates() {
    all_shapes(&[DIRECT, ("commit-scheme", "imm")]);
}

#[test]
fn auto_copies_short_rows_and_sends_long_ones() {
    let deployment = Deployment::start(1, &[]);
    let client = deployment.client();
    let keys: Vec<u64> = (0..20).collect();
    for (dim, gets, in_place) in [(16, 1, 0), (600, 2, 1)] {
        let table = table(&client, &format!("t{dim}"), dim);
        put(&client, table, &keys, &rows_of(&keys, dim));
        assert_eq!(get(&client, table, &keys, dim), rows_of(&keys, dim));
        let counts = counted(&deployment, gets);
        assert_eq!((counts.gets, counts.sent_in_place), (gets, in_place));
    }
}

/// Writers and readers of the same few rows: every row that arrives is of one write.
fn never_torn(threads: &str) -> HandlerCounts {
    const DIM: usize = 1024;
    let deployment = Deployment::start(1, &[DIRECT, ("server-rdma-threads", threads)]);
    let client = deployment.client();
    let table = table(&client, "t", DIM);
    let keys: Vec<u64> = (0..6).collect();
    put(&client, table, &keys, &vec![1.0; keys.len() * DIM]);
    let done = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let (client, keys, done) = (&client, &keys, &done);
        for writer in 0..2 {
            scope.spawn(move || {
                for round in 0..60 {
                    put(client, table, keys, &vec![(2 * round + writer) as f32; keys.len() * DIM]);
                }
                done.store(true, Ordering::Relaxed);
            });
        }
        for _ in 0..2 {
            scope.spawn(move || {
                while !done.load(Ordering::Relaxed) {
                    for row in get(client, table, keys, DIM).chunks(DIM) {
                        assert!(row.iter().all(|value| value.to_bits() == row[0].to_bits()), "a torn row");
                    }
                }
            });
        }
    });
    client.shutdown(Duration::from_secs(5)).expect("nothing under way");
    let counts = counts(&deployment);
    println!("{threads} poll threads: {} GETs, {} from where rows lie", counts.gets, counts.sent_in_place);
    assert_eq!(counts.internal_errors, 0);
    counts
}

#[test]
fn a_row_is_never_torn() {
    let counts = never_torn("1");
    assert!(counts.sent_in_place > 0, "{counts:?}");
}

#[test]
fn threads_that_share_a_table_copy_its_rows() {
    assert_eq!(never_torn("2").sent_in_place, 0);
}

#[test]
fn updates_meet_rows_that_are_being_sent() {
    const DIM: usize = 600;
    let deployment = Deployment::start(2, &[DIRECT, ("rdma-put-v2-transfer-mode", "read")]);
    let client = deployment.client();
    let table = table(&client, "t", DIM);
    let keys: Vec<u64> = (0..10).collect();
    put(&client, table, &keys, &rows_of(&keys, DIM));
    let buffer = client.allocate_buffer(keys.len() * DIM * 4).expect("a buffer");
    // SAFETY: the buffer is ours, and no request is under way.
    unsafe { std::slice::from_raw_parts_mut(buffer.data().cast::<f32>(), keys.len() * DIM) }.fill(2.0);
    for round in 1..=20 {
        let gradients = Rows::Buffer { region: &buffer, offset_bytes: 0 };
        // SAFETY: keys and buffer outlive the call.
        unsafe { client.call(&Request::UpdateFlat { table, keys: &keys, gradients }) }.expect("UPDATE_FLAT");
        let expected: Vec<f32> = rows_of(&keys, DIM).iter().map(|value| value - round as f32).collect();
        assert_eq!(get(&client, table, &keys, DIM), expected);
    }
}

/// Rows of one buffer that belong to two shards: each shard reads all of them, behind keys and numbers in the request's
/// slot, for the answer's has no room, and takes its own by their numbers.
#[test]
fn rows_of_two_shards_are_read_behind_their_numbers() {
    const DIM: usize = 200;
    let more = [("rdma-put-v2-transfer-mode", "read"), ("response-slot-bytes", "16384"), ("hash-method", "simple_mod")];
    let deployment = Deployment::start(2, &more);
    let client = deployment.client();
    let table = table(&client, "t", DIM);
    let keys: Vec<u64> = (0..48).map(|i| i * 3 % 50).collect();
    let buffer = client.allocate_buffer(keys.len() * DIM * 4).expect("a buffer");
    // SAFETY: the buffer is ours, and no request is under way.
    let rows = unsafe { std::slice::from_raw_parts_mut(buffer.data().cast::<f32>(), keys.len() * DIM) };
    rows.copy_from_slice(&rows_of(&keys, DIM));
    let rows = Rows::Buffer { region: &buffer, offset_bytes: 0 };
    // SAFETY: keys and buffer outlive the call.
    unsafe { client.call(&Request::Put { table, keys: &keys, rows }) }.expect("a PUT");
    for asked in keys.chunks(10) {
        assert_eq!(get(&client, table, asked, DIM), rows_of(asked, DIM));
    }
}
