//! Many threads on one handle, each row of each GET looked at; and requests that do not get what they wait for.

use crate::rows::{KEYS, Table};
use crate::support::{Deployment, until};
use reclane::engine::{Buffer, Client, Request, Rows, Target, Token};
use reclane::error::Status;
use std::time::Duration;

const THREADS: u64 = 8;
const TURNS: usize = 120;
const WIDE: usize = 300;

/// Keys that one thread alone changes: it knows their version exactly.
fn own_keys(thread: u64) -> Vec<u64> {
    (0..KEYS).filter(|key| key % THREADS == thread).collect()
}

fn some(keys: &[u64], turn: usize, count: usize) -> Vec<u64> {
    (0..count).map(|i| keys[(turn * 53 + i * 7) % keys.len()]).collect()
}

/// Distinct keys, so that an UPDATE raises each once.
fn distinct(keys: &[u64], turn: usize, count: usize) -> Vec<u64> {
    let at = turn * 29 % (keys.len() - count);
    keys[at..at + count].to_vec()
}

fn assert_versions(table: Table, keys: &[u64], rows: &[f32], version: f32) {
    assert!(table.versions(keys, rows).iter().all(|seen| *seen == version), "not version {version} of {keys:?}");
}

/// Submits, and tries again while every slot is taken.
fn submit(client: &Client, request: &Request<'_>) -> Token {
    loop {
        // SAFETY: the callers below keep what the request points to until they have waited for it.
        match unsafe { client.submit(request) } {
            Ok(token) => return token,
            Err(error) => assert_eq!(error.status, Status::NoSlot, "{error}"),
        }
        std::thread::yield_now();
    }
}

fn finish(client: &Client, token: Token) {
    client.wait(token, None).expect("an answer");
    client.revoke(token).expect("once");
}

fn get_in_place(client: &Client, table: Table, keys: &[u64]) -> Token {
    submit(client, &Request::Get { table: table.tag, keys, target: Target::InPlace })
}

/// The rows that can be read already, and whether these are all.
fn borrowed(client: &Client, token: Token, dim: usize) -> (&[f32], bool) {
    let borrowed = client.borrow(token, |rows| rows).expect("rows");
    // SAFETY: that many rows are readable until the request is revoked, which the callers do afterwards.
    let rows = unsafe { core::slice::from_raw_parts(borrowed.rows, borrowed.rows_ready * dim) };
    (rows, borrowed.rows_ready == borrowed.rows_total)
}

fn sync_calls(client: &Client, table: Table, keys: &[u64], count: usize) {
    for turn in 0..TURNS {
        let keys = distinct(keys, turn, count);
        let version = (turn * 3) as f32;
        table.put(client, &keys, version).expect("a PUT");
        assert_versions(table, &keys, &table.get(client, &keys).expect("a GET"), version);
        table.update(client, &keys, 2.0).expect("an UPDATE");
        assert_versions(table, &keys, &table.get(client, &keys).expect("a GET"), version + 2.0);
    }
}

/// Several GETs under way, of other threads' keys too, ended in another order than begun.
fn ring(client: &Client, table: Table, seed: usize) {
    let all: Vec<u64> = (0..KEYS).collect();
    for turn in 0..TURNS {
        let keys: Vec<Vec<u64>> = (0..4).map(|i| some(&all, turn * 4 + i + seed, 1 + i * i * 20)).collect();
        let tokens: Vec<Token> = keys.iter().map(|keys| get_in_place(client, table, keys)).collect();
        for (index, (keys, token)) in keys.iter().zip(&tokens).enumerate().rev() {
            if index % 2 == 0 {
                while !client.query(*token).expect("alive") {
                    std::thread::yield_now();
                }
            }
            client.wait(*token, None).expect("an answer");
            let (rows, complete) = borrowed(client, *token, table.dim);
            assert!(complete);
            table.versions(keys, rows);
            client.revoke(*token).expect("once");
            assert_eq!(client.revoke(*token).expect_err("twice").status, Status::StaleToken);
        }
    }
}

/// Large answers, read while they grow.
fn growing(client: &Client, table: Table) {
    let all: Vec<u64> = (0..KEYS).collect();
    for turn in 0..TURNS {
        let keys = some(&all, turn, 1 + turn % 50);
        let one_shard: Vec<u64> =
            keys.iter().copied().filter(|k| client.shard_of(*k) == client.shard_of(keys[0])).collect();
        let token = get_in_place(client, table, &one_shard[..1 + turn % one_shard.len()]);
        let keys = &one_shard[..1 + turn % one_shard.len()];
        let mut ready = 0;
        loop {
            let done = client.query(token).expect("alive");
            let (rows, complete) = borrowed(client, token, table.dim);
            assert!(rows.len() >= ready, "{ready} floats were ready, and now {} are", rows.len());
            ready = rows.len();
            table.versions(&keys[..rows.len() / table.dim], rows);
            if done {
                assert!(complete);
                break;
            }
        }
        finish(client, token);
    }
}

fn buffer_rows(buffer: &Buffer, offset: usize, table: Table, keys: usize) -> &[f32] {
    // SAFETY: the callers read what a finished GET wrote or what they wrote themselves; nobody writes meanwhile.
    unsafe { core::slice::from_raw_parts(buffer.data().add(offset).cast(), keys * table.dim) }
}

/// Rows land in and come from memory of the library.
fn buffers(client: &Client, table: Table, own: &[u64]) {
    let buffer = client.allocate_buffer(1 << 17).expect("a buffer");
    for turn in 0..TURNS {
        let count = [1, 40, 1, 200][turn % 4];
        let (offset, version) = (turn * 64, (turn + 5) as f32);
        let keys = distinct(own, turn, count);
        let rows = table.rows(&keys, version);
        // SAFETY: the buffer is large enough, and no request is under way with it.
        unsafe { core::ptr::copy_nonoverlapping(rows.as_ptr(), buffer.data().add(offset).cast(), rows.len()) };
        let from = || Rows::Buffer { region: &buffer, offset_bytes: offset };
        finish(client, submit(client, &Request::Put { table: table.tag, keys: &keys, rows: from() }));
        let gradients: Vec<f32> =
            rows.chunks(table.dim).flat_map(|row| core::iter::once(0.0).chain(row[1..].iter().map(|_| -1.0))).collect();
        // SAFETY: as above.
        unsafe { core::ptr::copy_nonoverlapping(gradients.as_ptr(), buffer.data().add(offset).cast(), rows.len()) };
        finish(client, submit(client, &Request::UpdateFlat { table: table.tag, keys: &keys, gradients: from() }));
        let target = Target::Buffer { region: &buffer, offset_bytes: offset + 4096 };
        finish(client, submit(client, &Request::Get { table: table.tag, keys: &keys, target }));
        assert_versions(table, &keys, buffer_rows(&buffer, offset + 4096, table, count), version + 1.0);
    }
}

/// PUTs and UPDATEs under way at once.
fn pipelined(client: &Client, table: Table, own: &[u64]) {
    for turn in 0..TURNS {
        let parts: Vec<&[u64]> = own.chunks(30).take(5).collect();
        let version = (turn * 2) as f32;
        let rows: Vec<Vec<f32>> = parts.iter().map(|keys| table.rows(keys, version)).collect();
        let puts = parts.iter().zip(&rows).map(|(keys, rows)| {
            let rows = Rows::Flat { rows: rows.as_ptr(), count: rows.len() };
            submit(client, &Request::Put { table: table.tag, keys, rows })
        });
        let tokens: Vec<Token> = puts.collect();
        tokens.into_iter().for_each(|token| finish(client, token));
        for keys in &parts {
            assert_versions(table, keys, &table.get(client, keys).expect("a GET"), version);
        }
    }
}

fn many_threads(changes: &[(&str, &str)]) {
    let deployment = Deployment::start(3, changes);
    let client = deployment.client();
    let (narrow, wide) = (Table::open(&client, "narrow", 16), Table::open(&client, "wide", WIDE));
    narrow.fill(&client);
    wide.fill(&client);
    let client = &client;
    std::thread::scope(|scope| {
        scope.spawn(|| sync_calls(client, narrow, &own_keys(0), 1));
        scope.spawn(|| sync_calls(client, narrow, &own_keys(1), 150));
        scope.spawn(|| sync_calls(client, wide, &own_keys(2), 40));
        scope.spawn(|| ring(client, narrow, 3));
        scope.spawn(|| growing(client, wide));
        scope.spawn(|| buffers(client, narrow, &own_keys(5)));
        scope.spawn(|| pipelined(client, narrow, &own_keys(6)));
        scope.spawn(|| ring(client, wide, 7));
    });
    assert_eq!(client.stats().held_slots, 0);
    assert_eq!(client.stats().active_lanes, client.stats().lanes);
}

#[test]
fn many_threads_single() {
    many_threads(&[("commit-scheme", "single")]);
}

#[test]
fn many_threads_crc_with_workers_and_read_puts() {
    many_threads(&[
        ("commit-scheme", "crc"),
        ("server-rdma-threads", "2"),
        ("rdma-rc-server-get-workers", "2"),
        ("rdma-put-v2-transfer-mode", "read"),
    ]);
}

#[test]
fn many_threads_imm_with_workers() {
    many_threads(&[("commit-scheme", "imm"), ("server-rdma-threads", "2"), ("rdma-rc-server-get-workers", "2")]);
}

#[test]
fn many_threads_checked_and_staged() {
    many_threads(&[
        ("integrity", "crc32c"),
        ("rdma-get-response-mode", "staging_copy"),
        ("rdma-put-v2-transfer-mode", "read"),
        ("max-kv-num-per-request", "17"),
    ]);
}

fn small(changes: &[(&str, &str)]) -> (Deployment, Client, Table) {
    // It is about requests that stay under way.
    let mut all = vec![("qps-per-client-per-shard", "2"), ("slots-per-qp", "1"), ("shared-reads", "off")];
    all.extend(changes);
    let deployment = Deployment::start(1, &all);
    let client = deployment.client();
    let table = Table::open(&client, "t", 16);
    table.fill(&client);
    (deployment, client, table)
}

#[test]
fn without_an_idle_slot_async_says_so_and_sync_waits() {
    let (_deployment, client, table) = small(&[("rdma-wait-timeout-ms", "20000")]);
    let tokens = [get_in_place(&client, table, &[1]), get_in_place(&client, table, &[2])];
    let request = Request::Get { table: table.tag, keys: &[3], target: Target::InPlace };
    // SAFETY: nothing of the caller's is written.
    let error = unsafe { client.submit(&request) }.expect_err("both are held");
    assert_eq!((error.status, error.shard), (Status::NoSlot, Some(0)), "{error}");
    assert!(error.message.contains("qps-per-client-per-shard"), "{error}");
    std::thread::scope(|scope| {
        let sync = scope.spawn(|| table.get(&client, &[3]));
        let many = scope.spawn(|| table.get(&client, &(0..1000).collect::<Vec<u64>>()));
        for _ in 0..1000 {
            for token in tokens {
                client.query(token).expect("alive");
            }
            std::thread::yield_now();
        }
        assert!(!sync.is_finished() && !many.is_finished(), "there is no slot for them");
        // Finished requests hold their slots until they are revoked, and their rows stay.
        for (key, token) in [1, 2].into_iter().zip(tokens) {
            client.wait(token, None).expect("an answer");
            table.versions(&[key], borrowed(&client, token, table.dim).0);
            client.revoke(token).expect("once");
        }
        table.versions(&[3], &sync.join().expect("no panic").expect("it waited"));
        many.join().expect("no panic").expect("it waited");
    });
    assert_eq!(client.stats().held_slots, 0);
}

#[test]
fn sync_calls_do_not_wait_for_a_slot_for_ever() {
    let (_deployment, client, table) = small(&[("rdma-wait-timeout-ms", "100")]);
    let tokens = [get_in_place(&client, table, &[1]), get_in_place(&client, table, &[2])];
    for keys in [&[3_u64][..], &(0..1000).collect::<Vec<u64>>()] {
        let error = table.get(&client, keys).expect_err("no slot");
        assert_eq!((error.status, error.shard), (Status::NoSlot, Some(0)), "{error}");
    }
    tokens.into_iter().for_each(|token| finish(&client, token));
    table.get(&client, &[3]).expect("the lanes are well");
}

/// Slots of parts that were answered must not be lost to those who wait for something else.
#[test]
fn batches_that_nobody_looks_at_do_not_keep_their_slots() {
    let (_deployment, client, table) = small(&[("rdma-wait-timeout-ms", "20000"), ("max-kv-num-per-request", "10")]);
    let keys: Vec<u64> = (0..200).collect();
    let first = get_in_place(&client, table, &keys);
    let second = get_in_place(&client, table, &keys[..150]);
    // Both slots are held by the first two parts of `first`.
    assert_eq!(client.stats().held_slots, 2);
    table.versions(&[3], &table.get(&client, &[3]).expect("a slot for a call"));
    let single = get_in_place(&client, table, &[4]);
    finish(&client, single);
    client.wait(second, None).expect("slots for another batch");
    while !client.query(first).expect("alive") {
        std::thread::yield_now();
    }
    for (token, keys) in [(first, &keys[..]), (second, &keys[..150])] {
        let (rows, complete) = borrowed(&client, token, table.dim);
        assert!(complete);
        table.versions(keys, rows);
        finish(&client, token);
    }
    assert_eq!(client.stats().held_slots, 0);
}

#[test]
fn tokens_that_name_nothing_are_told() {
    let (_deployment, client, table) = small(&[]);
    let single = get_in_place(&client, table, &[1]);
    let batch = get_in_place(&client, table, &(0..700).collect::<Vec<u64>>());
    finish(&client, single);
    finish(&client, batch);
    let again = get_in_place(&client, table, &[1]);
    let wrong =
        [single, batch, Token(0), Token(u64::MAX), Token(1 << 62), Token(again.0 ^ 1), Token(1 << 63 | 1 << 51)];
    for token in wrong {
        assert_ne!(token, again);
        let status = |result: reclane::error::Result<()>| result.expect_err("stale").status;
        assert_eq!(status(client.query(token).map(|_| ())), Status::StaleToken, "{token:?}");
        assert_eq!(status(client.wait(token, None)), Status::StaleToken, "{token:?}");
        assert_eq!(status(client.borrow(token, |rows| rows).map(|_| ())), Status::StaleToken, "{token:?}");
        assert_eq!(status(client.revoke(token)), Status::StaleToken, "{token:?}");
    }
    finish(&client, again);
    let rows = table.rows(&[5], 1.0);
    let rows = Rows::Flat { rows: rows.as_ptr(), count: rows.len() };
    let put = submit(&client, &Request::Put { table: table.tag, keys: &[5], rows });
    assert_eq!(client.borrow(put, |rows| rows).expect_err("a PUT has no rows").status, Status::WrongState);
    finish(&client, put);
}

#[test]
fn a_short_wait_leaves_the_request_as_it_is() {
    let (deployment, client, table) = small(&[]);
    let server = &deployment.servers[0];
    for keys in [vec![7_u64], (0..900).collect()] {
        server.freeze();
        let mut rows = vec![f32::NAN; keys.len() * table.dim];
        let target = Target::Memory { rows: rows.as_mut_ptr(), capacity: rows.len() };
        let token = submit(&client, &Request::Get { table: table.tag, keys: &keys, target });
        for wait in [Duration::ZERO, Duration::from_micros(10), Duration::from_millis(2)] {
            assert_eq!(client.wait(token, Some(wait)).expect_err("stopped").status, Status::Pending);
            assert!(!client.query(token).expect("alive"));
        }
        server.thaw();
        client.wait(token, None).expect("an answer");
        client.wait(token, Some(Duration::ZERO)).expect("it stays done");
        client.revoke(token).expect("once");
        table.versions(&keys, &rows);
    }
}

#[test]
fn a_server_that_does_not_answer_ends_requests_by_the_timeout() {
    let (mut deployment, client, table) = small(&[("rdma-wait-timeout-ms", "150"), ("slots-per-qp", "3")]);
    let buffer = client.allocate_buffer(4096).expect("a buffer");
    let keys: Vec<u64> = (0..900).collect();
    let mut rows = vec![7.0_f32; 900 * table.dim];
    deployment.servers[0].freeze();
    let whole = Target::Memory { rows: rows.as_mut_ptr(), capacity: rows.len() };
    let target = Target::Buffer { region: &buffer, offset_bytes: 0 };
    let tokens = [
        submit(&client, &Request::Get { table: table.tag, keys: &[1], target }),
        get_in_place(&client, table, &[2]),
        submit(&client, &Request::Get { table: table.tag, keys: &keys, target: whole }),
    ];
    let queried = get_in_place(&client, table, &[3]);
    while !client.query(queried).expect("alive") {
        std::thread::yield_now();
    }
    let mut told = Vec::new();
    for token in tokens.into_iter().chain([queried]) {
        let error = client.wait(token, None).expect_err("it does not answer");
        assert_eq!((error.status, error.shard), (Status::WaitTimeout, Some(0)), "{error}");
        client.revoke(token).expect("once");
        told.push(error.message);
    }
    // Those whose time was over say how long it was; those whose lane others ended say that.
    assert!(told.iter().any(|words| words.contains("no answer within rdma-wait-timeout-ms = 150")), "{told:#?}");
    // Every lane that carried one of them is gone, and its slots are used no more.
    let error = until_dead(&client, table);
    assert_eq!((error.status, error.shard), (Status::WaitTimeout, Some(0)), "{error}");
    assert_eq!(client.stats().held_slots, 0);
    // The memory is the caller's again, whatever the server does when it goes on.
    rows.fill(8.0);
    deployment.servers[0].thaw();
    let server = &mut deployment.servers[0];
    until("lanes", || server.number("lanes"), |lanes| *lanes == 0);
    assert!(rows.iter().all(|value| *value == 8.0));
    drop(buffer);
    let late = deployment.client();
    table.versions(&[1, 2, 3], &table.get_at(&late, &[1, 2, 3]));
}

/// Calls until no lane is left; returns the last error.
fn until_dead(client: &Client, table: Table) -> Box<reclane::error::Error> {
    while client.stats().active_lanes > 0 {
        table.get(client, &[4]).expect_err("it does not answer");
    }
    table.get(client, &[4]).expect_err("no lane is left")
}

impl Table {
    /// A GET by a client that has to find the table first.
    fn get_at(self, client: &Client, keys: &[u64]) -> Vec<f32> {
        Table::open(client, "t", self.dim).get(client, keys).expect("a GET")
    }
}
