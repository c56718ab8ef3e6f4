//! Servers and clients over shared memory, as a host program would use them.

use reclane::engine::{Client, Request, Rows, Server, Target};
use reclane::error::Status;
use reclane::ids::TableTag;
use reclane::options::{Options, Settings, Side};
use reclane::ps::{GetStats, RowsIn, Store, TableShape};
use reclane::wire::RpcStatus;
use reclane::wire::payload::{Command, TableSpec};
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Barrier, Condvar, Mutex};

#[path = "common/training.rs"]
#[allow(dead_code)] // shared: not every test uses all of it
mod training;
use training::{get, set_read_and_train, spec, table};

fn settings(side: Side, changes: &[(&str, &str)]) -> Settings {
    let mut options = Options::new();
    for (name, value) in changes {
        options.set(name, value).expect("a valid option");
    }
    options.settings(side).expect("valid options")
}

struct Deployment {
    servers: Vec<Server>,
    changes: Vec<(String, String)>,
}

impl Deployment {
    fn start(shards: u32, changes: &[(&str, &str)]) -> Deployment {
        Deployment::over(shards, changes, |settings| {
            Arc::new(reclane::engine::builtin_store(settings).expect("a store"))
        })
    }

    fn over(shards: u32, changes: &[(&str, &str)], store: impl Fn(&Settings) -> Arc<dyn Store>) -> Deployment {
        static NEXT: AtomicU32 = AtomicU32::new(0);
        let name = format!("test-{}-{}", std::process::id(), NEXT.fetch_add(1, Ordering::Relaxed));
        let mut all: Vec<(String, String)> = vec![
            ("rdma-namespace".into(), name),
            ("num-server-processes".into(), shards.to_string()),
            ("rdma-control-plane-port".into(), "0".into()),
        ];
        all.extend(changes.iter().map(|(n, v)| ((*n).to_owned(), (*v).to_owned())));
        let mut servers = Vec::new();
        for shard in 0..shards {
            let mut mine = all.clone();
            mine.push(("shard-id".into(), shard.to_string()));
            let pairs: Vec<(&str, &str)> = mine.iter().map(|(n, v)| (n.as_str(), v.as_str())).collect();
            let settings = settings(Side::Server, &pairs);
            let server = Server::start(&settings, store(&settings)).expect("a server");
            if let Some(port) = server.control_plane_port() {
                all[2].1 = port.to_string();
            }
            servers.push(server);
        }
        Deployment { servers, changes: all }
    }

    fn client(&self) -> Client {
        let pairs: Vec<(&str, &str)> = self.changes.iter().map(|(n, v)| (n.as_str(), v.as_str())).collect();
        Client::open(&settings(Side::Client, &pairs)).expect("a client")
    }
}

fn round_trip(shards: u32, changes: &[(&str, &str)]) {
    for reads in ["auto", "off"] {
        let changes: Vec<(&str, &str)> = changes.iter().copied().chain([("shared-reads", reads)]).collect();
        round_trip_so(shards, &changes);
    }
}

fn round_trip_so(shards: u32, changes: &[(&str, &str)]) {
    let deployment = Deployment::start(shards, changes);
    let client = deployment.client();
    let dim = 16;
    set_read_and_train(&client, table(&client, "t", dim), dim, 1000);
    client.shutdown(std::time::Duration::from_secs(1)).expect("nothing under way");
    assert_eq!(deployment.servers.len(), shards as usize);
}

#[test]
fn one_shard_single() {
    round_trip(1, &[("commit-scheme", "single")]);
}

#[test]
fn one_shard_crc() {
    round_trip(1, &[("commit-scheme", "crc")]);
}

#[test]
fn one_shard_imm() {
    round_trip(1, &[("commit-scheme", "imm")]);
}

#[test]
fn three_shards_with_checksums() {
    round_trip(3, &[("integrity", "crc32c")]);
}

#[test]
fn three_shards_city_hash_small_requests() {
    round_trip(3, &[("hash-method", "city_hash"), ("max-kv-num-per-request", "7"), ("slots-per-qp", "2")]);
}

#[test]
fn threads_workers_and_scanners() {
    round_trip(
        2,
        &[
            ("server-rdma-threads", "2"),
            ("rdma-rc-server-get-workers", "2"),
            ("rdma-rc-server-coroutines-per-thread", "3"),
            ("rdma-get-response-mode", "staging_copy"),
        ],
    );
}

#[test]
fn a_token_is_stale_after_revoke() {
    let deployment = Deployment::start(1, &[("value-size", "64")]);
    let client = deployment.client();
    // SAFETY: what the request points to lives until the wait below has returned.
    let token = unsafe {
        client.submit(&Request::Get { table: TableTag(0), keys: &[1, 2, 3], target: Target::InPlace }).expect("a GET")
    };
    client.wait(token, None).expect("an answer");
    let borrowed = client.borrow(token, |rows| rows).expect("rows");
    assert_eq!((borrowed.rows_ready, borrowed.rows_total), (3, 3));
    client.revoke(token).expect("once");
    assert_eq!(client.revoke(token).expect_err("twice").status, Status::StaleToken);
}

/// Rows wider than a request slot: they can only have come by being read from the buffer.
#[test]
fn rows_of_a_buffer_are_read_by_each_shard_from_where_they_lie() {
    let changes = [
        ("rdma-put-v2-transfer-mode", "read"),
        ("rdma-rc-request-slot-bytes", "1024"),
        ("rdma-rc-response-slot-bytes", "65536"),
        ("integrity", "crc32c"),
    ];
    for shards in [1, 3] {
        let deployment = Deployment::start(shards, &changes);
        let client = deployment.client();
        let dim = 1024_usize;
        let table = client.init_table(&spec("wide", 1024)).expect("a table");
        // More keys than one request carries.
        let keys: Vec<u64> = (0..300).map(|i| i * 13).collect();
        let buffer = client.allocate_buffer(4096 + keys.len() * dim * 4).expect("a buffer");
        let rows: Vec<f32> = (0..keys.len() * dim).map(|i| (i % 10_007) as f32).collect();
        let fill = |rows: &[f32]| {
            // SAFETY: the buffer has room for the rows behind its first page, and no request names it now.
            unsafe { buffer.data().add(4096).cast::<f32>().copy_from_nonoverlapping(rows.as_ptr(), rows.len()) };
        };
        let named = || Rows::Buffer { region: &buffer, offset_bytes: 4096 };
        let call = |request: &Request<'_>| {
            // SAFETY: what the request points to outlives the call, which returns when it is over.
            unsafe { client.call(request) }.expect("executed");
        };
        fill(&rows);
        call(&Request::Put { table, keys: &keys, rows: named() });
        let mut expected = rows.clone();
        let check = |expected: &[f32]| assert!(get(&client, table, &keys, dim) == expected);
        check(&expected);
        fill(&vec![2.0; rows.len()]);
        call(&Request::UpdateFlat { table, keys: &keys, gradients: named() });
        call(&Request::Update { table, keys: &keys, gradients: named() });
        expected.iter_mut().for_each(|w| *w -= 2.0);
        check(&expected);
    }
}

/// A store in which nothing ends before what it is made of returns.
struct Waiting<W>(W);

/// One whose calls end when as many as the barrier counts are there: of all shards, or the test's own.
fn meeting(barrier: &Arc<Barrier>) -> Arc<dyn Store> {
    let barrier = Arc::clone(barrier);
    Arc::new(Waiting(move || {
        barrier.wait();
    }))
}

impl<W: Fn() + Send + Sync + 'static> Store for Waiting<W> {
    fn init_table(&self, _worker: u32, _spec: &TableSpec) -> Result<TableTag, RpcStatus> {
        (self.0)();
        Ok(TableTag(77))
    }

    fn shape(&self, _table: TableTag) -> Option<TableShape> {
        Some(TableShape { dim: 32 })
    }

    unsafe fn get(&self, _: u32, _: TableTag, _: &[u64], _: &[u64], _: *mut u8) -> Result<GetStats, RpcStatus> {
        (self.0)();
        Err(RpcStatus::InternalError)
    }

    unsafe fn put(&self, _: u32, _: TableTag, _: &[u64], _: RowsIn) -> Result<(), RpcStatus> {
        Err(RpcStatus::InternalError)
    }

    unsafe fn update(&self, _: u32, _: TableTag, _: &[u64], _: RowsIn, _: bool) -> Result<(), RpcStatus> {
        Err(RpcStatus::InternalError)
    }

    fn command(&self, _worker: u32, _command: &Command) -> Result<(), RpcStatus> {
        (self.0)();
        Err(RpcStatus::InternalError)
    }
}

/// One after the other, the first shard would wait for the second for ever: the wait timeout would end that.
#[test]
fn init_table_and_command_go_to_all_shards_at_once() {
    let store = meeting(&Arc::new(Barrier::new(2)));
    let deployment = Deployment::over(2, &[("rdma-wait-timeout-ms", "10000")], |_| Arc::clone(&store));
    let client = deployment.client();
    assert_eq!(client.init_table(&spec("t", 4)).expect("a table"), TableTag(77));
    let error = client.command(&Command::Clear).expect_err("both fail");
    assert!(error.message.contains("2 of 2 shards (0, 1)"), "{error}");
}

/// One thread waits for a request that is not answered; another one is told so, whatever it asks.
#[test]
fn a_request_that_a_thread_waits_for_is_busy_for_others() {
    let barrier = Arc::new(Barrier::new(2));
    let store = meeting(&barrier);
    let deployment = Deployment::over(1, &[], |_| Arc::clone(&store));
    let client = deployment.client();
    // SAFETY: the rows are read in place.
    let token = unsafe {
        client.submit(&Request::Get { table: TableTag(0), keys: &[1, 2], target: Target::InPlace }).expect("a GET")
    };
    std::thread::scope(|scope| {
        let waiter = scope.spawn(|| {
            loop {
                // The other one may be at it this moment.
                match client.wait(token, None) {
                    Err(error) if error.status == Status::Busy => {}
                    ended => break ended,
                }
            }
        });
        while client.query(token).is_ok() {
            std::thread::yield_now();
        }
        for busy in
            [client.query(token).map(|_| ()), client.borrow(token, |rows| rows).map(|_| ()), client.revoke(token)]
        {
            assert_eq!(busy.expect_err("another thread waits for it").status, Status::Busy);
        }
        barrier.wait();
        assert_eq!(waiter.join().expect("no panic").expect_err("the store fails").status, Status::InternalError);
    });
    client.revoke(token).expect("nobody waits any more");
}

/// Both slots are held by single requests whenever somebody looks, and each is taken again as soon as it is free.
#[test]
fn a_batch_gets_its_slots_beside_a_program_that_takes_each_one_again() {
    let changes = [
        ("shared-reads", "off"),
        ("qps-per-client-per-shard", "1"),
        ("slots-per-qp", "2"),
        ("max-kv-num-per-request", "1"),
    ];
    let deployment = Deployment::start(1, &changes);
    let client = deployment.client();
    let (table, dim) = (table(&client, "t", 16), 16);
    let keys = [1, 2, 3, 4, 5];
    training::put(&client, table, &keys, &training::rows_of(&keys, dim));
    let get = |keys: &'static [u64]| {
        // SAFETY: the keys live for ever; rows are read in place.
        unsafe { client.submit(&Request::Get { table, keys, target: Target::InPlace }) }
    };
    let mut singles = std::collections::VecDeque::from([get(&[1]).expect("a slot"), get(&[2]).expect("a slot")]);
    let batch = get(&[1, 2, 3, 4, 5]).expect("its parts wait");
    let is_done = (0..100_000).any(|_| {
        if let Some(oldest) = singles.pop_front() {
            client.finish(oldest, None).expect("an answer");
        }
        while singles.len() < 2 {
            match get(&[3]) {
                Ok(single) => singles.push_back(single),
                // The batch has it.
                Err(error) => {
                    assert_eq!(error.status, Status::NoSlot, "{error}");
                    break;
                }
            }
        }
        // Where single requests hold both slots, this sends nothing.
        client.query(batch).expect("a request")
    });
    assert!(is_done, "the batch never got a slot");
    let rows = client.borrow(batch, |rows| (rows.rows_ready, rows.rows_total)).expect("rows");
    assert_eq!(rows, (5, 5));
    for token in singles.into_iter().chain([batch]) {
        client.revoke(token).expect("once");
    }
}

/// Two requests, of one key and of several, to two shards that say nothing. Who waits for the first one has waited for
/// all: their time is over when its is.
#[test]
fn requests_to_silent_shards_end_together_not_one_after_the_other() {
    const TIMEOUT_NS: u64 = 60_000_000_000;
    let speaks = Arc::new((Mutex::new(false), Condvar::new()));
    let heard = Arc::clone(&speaks);
    let store: Arc<dyn Store> = Arc::new(Waiting(move || {
        let speaks = heard.0.lock().expect("no panic");
        drop(heard.1.wait_while(speaks, |speaks| !*speaks).expect("no panic"));
    }));
    let deployment =
        Deployment::over(2, &[("rdma-wait-timeout-ms", "60000"), ("qps-at-open", "16")], |_| Arc::clone(&store));
    let client = deployment.client();
    let get = |keys: &'static [u64]| {
        // SAFETY: the keys live for ever; rows are read in place.
        unsafe { client.submit(&Request::Get { table: TableTag(0), keys, target: Target::InPlace }).expect("a GET") }
    };
    let tokens = [get(&[1]), get(&[2]), get(&[3]), get(&[1, 2, 3, 4, 5, 6])];
    // Far more often than it takes until a query looks at the clock.
    let query = |token| (0..1000).any(|_| client.query(token).expect("a request"));
    // This thread's clock stands still unless it is moved.
    let begun = reclane::time::now();
    reclane::time::set_virtual(Some(begun));
    assert!(!query(tokens[0]), "nobody has answered");
    let late = get(&[4]);
    reclane::time::set_virtual(Some(reclane::time::Tick(begun.0 + TIMEOUT_NS + 2000)));
    assert!(!query(late), "it was submitted when the others were known to be slow, and has time");
    for token in tokens {
        assert!(query(token), "its time is over");
        let error = client.wait(token, None).expect_err("nobody has answered");
        assert_eq!((error.status, error.elapsed_ns / 1_000_000_000), (Status::WaitTimeout, 60));
    }
    reclane::time::set_virtual(None);
    *speaks.0.lock().expect("no panic") = true;
    speaks.1.notify_all();
    for token in tokens.into_iter().chain([late]) {
        client.revoke(token).expect("once");
    }
}

/// Rows that GETs of every kind bring, and how many GETs the shards saw.
fn gets_of_every_kind(changes: &[(&str, &str)]) -> u64 {
    let deployment = Deployment::start(2, changes);
    let client = deployment.client();
    let (dim, keys) = (16, (0..500).map(|i| i * 13 % 4000).collect::<Vec<u64>>());
    let table = table(&client, "t", dim);
    let rows = training::rows_of(&keys, dim);
    training::put(&client, table, &keys, &rows);
    assert_eq!(get(&client, table, &keys, dim), rows);
    let buffer = client.allocate_buffer(dim * 4).expect("a buffer");
    let mut places = vec![[0.0_f32; 16]; keys.len()];
    for (few, places) in keys.chunks(8).zip(places.chunks_mut(8)) {
        let targets = places.iter_mut().map(|row| Target::Memory { rows: row.as_mut_ptr(), capacity: dim });
        // SAFETY: the rows outlive the requests, which are over at the end of this turn; each has its own.
        let submit = |(key, target)| unsafe { client.submit(&Request::Get { table, keys: key, target }) };
        let tokens: Vec<_> = few.chunks(1).zip(targets).map(|pair| submit(pair).expect("a GET")).collect();
        // In another order than they were submitted in, each in another way.
        for (index, token) in tokens.iter().enumerate().rev() {
            if index % 3 == 0 {
                while !client.query(*token).expect("a request") {}
                client.revoke(*token).expect("once");
            } else if index % 3 == 1 {
                client.wait(*token, None).expect("an answer");
                assert_eq!(client.shard_result(*token, client.shard_of(few[index])).expect("it has ended").executed, 1);
                client.revoke(*token).expect("once");
            } else {
                client.finish(*token, None).expect("an answer");
            }
            assert_eq!(client.query(*token).expect_err("it was given back").status, Status::StaleToken);
        }
    }
    assert_eq!(places.concat(), rows);
    for key in keys.chunks(1) {
        let into = Target::Buffer { region: &buffer, offset_bytes: 0 };
        // SAFETY: what the request points to outlives the call, which returns when it is over.
        unsafe { client.call(&Request::Get { table, keys: key, target: into }) }.expect("a GET");
        // SAFETY: the row is there, and no request names the buffer now.
        let row = unsafe { std::slice::from_raw_parts(buffer.data().cast::<f32>(), dim) };
        assert_eq!(row, training::rows_of(key, dim));
        // SAFETY: the keys outlive the request.
        let token = unsafe { client.submit(&Request::Get { table, keys: key, target: Target::InPlace }) };
        let token = token.expect("a GET");
        while client.borrow(token, |rows| rows.rows_ready).expect("a GET in place") == 0 {}
        // SAFETY: borrowed rows stay until the request is given back.
        let row = client.borrow(token, |rows| unsafe { std::slice::from_raw_parts(rows.rows, dim) }.to_vec());
        assert_eq!(row.expect("rows"), training::rows_of(key, dim));
        client.revoke(token).expect("once");
    }
    // One that nobody looks at.
    // SAFETY: the key outlives the request.
    let token = unsafe { client.submit(&Request::Get { table, keys: &keys[..1], target: Target::InPlace }) };
    client.revoke(token.expect("a GET")).expect("once");
    client.shutdown(std::time::Duration::from_secs(1)).expect("nothing under way");
    drop(client);
    let stop = |server: &Server| {
        // It has executed everything then.
        server.stop(std::time::Duration::from_secs(60)).expect("an idle server stops");
        server.stats().handled.gets
    };
    deployment.servers.iter().rev().map(stop).sum()
}

#[test]
fn gets_of_keys_that_are_numbers_need_no_request_unless_somebody_wants_them_to() {
    for method in ["simple_mod", "city_hash"] {
        assert_eq!(gets_of_every_kind(&[("hash-method", method)]), 0, "{method}");
        assert!(gets_of_every_kind(&[("hash-method", method), ("shared-reads", "off")]) > 1500, "{method}");
    }
}

#[test]
fn a_shard_that_has_stopped_lets_nobody_read_its_rows() {
    let deployment = Deployment::start(1, &[]);
    let client = deployment.client();
    let table = table(&client, "t", 16);
    training::put(&client, table, &[1], &training::rows_of(&[1], 16));
    assert_eq!(get(&client, table, &[1], 16), training::rows_of(&[1], 16));
    deployment.servers[0].stop(std::time::Duration::from_secs(60)).expect("an idle server stops");
    let mut rows = [0.0_f32; 16];
    let target = Target::Memory { rows: rows.as_mut_ptr(), capacity: 16 };
    // SAFETY: what the request points to outlives the call, which returns when it is over.
    let error = unsafe { client.call(&Request::Get { table, keys: &[1], target }) }.expect_err("nobody is there");
    assert_eq!(error.shard, Some(0), "{error}");
}
