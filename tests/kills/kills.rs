//! SIGKILL and SIGSTOP in the middle of everything.

use crate::rows::Table;
use crate::support::{Deployment, PATIENCE, Process, holds_again, milliseconds, settled, until, with};
use crate::traffic::{Ended, KINDS, Kind, keys_of, work};
use reclane::engine::{Client, LaneState, Request, Target};
use reclane::error::{Error, Outcome, Status};
use reclane::time::{Tick, now};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

/// It must name the shard.
fn assert_unreachable(error: &Error, shard: u32, what: &str) {
    assert_eq!((error.status, error.shard), (Status::ShardUnreachable, Some(shard)), "{what}: {error}");
    assert!(error.message.contains(&format!("shard {shard}")), "{what}: {error}");
}

/// What `kill_a_shard` saw.
struct Seen {
    killed: Tick,
    ended: Vec<Ended>,
}

/// Kills one of two shards while callers of every kind work with it and one works with the other.
fn kill_a_shard(victim: u32, changes: &[(&str, &str)]) {
    let mut deployment = Deployment::start(2, changes);
    let client = deployment.client();
    let table = Table::open(&client, "t", 16);
    table.fill(&client);
    let survivor = 1 - victim;
    let (doomed, safe, all) =
        (keys_of(&client, Some(victim)), keys_of(&client, Some(survivor)), keys_of(&client, None));
    let (stop, doomed_done, safe_done) = (AtomicBool::new(false), AtomicU64::new(0), AtomicU64::new(0));
    let seen = std::thread::scope(|scope| {
        let (client, stop, doomed_done, safe_done) = (&client, &stop, &doomed_done, &safe_done);
        let (doomed, safe, all) = (&doomed, &safe, &all);
        let callers: Vec<_> = KINDS
            .into_iter()
            .map(|kind| {
                let keys = if kind == Kind::Batch { all } else { doomed };
                scope.spawn(move || work(client, table, kind, keys, stop, doomed_done))
            })
            .collect();
        let safe_caller = scope.spawn(move || work(client, table, Kind::GetOne, safe, stop, safe_done));
        until("traffic", || doomed_done.load(Ordering::Relaxed), |done| *done > 200);
        let killed = deployment.servers[victim as usize].kill();
        let ended = callers.into_iter().map(|caller| caller.join().expect("no panic")).collect();
        let before = safe_done.load(Ordering::Relaxed);
        until("the other shard", || safe_done.load(Ordering::Relaxed), |done| *done > before + 1000);
        stop.store(true, Ordering::Relaxed);
        assert!(safe_caller.join().expect("no panic").errors.is_empty());
        Seen { killed, ended }
    });
    let mut longest = 0;
    for Ended { kind, errors, at } in &seen.ended {
        assert!(!errors.is_empty(), "{kind:?} met no error");
        errors.iter().for_each(|error| assert_unreachable(error, victim, &format!("{kind:?}")));
        longest = longest.max(at.since_ns(seen.killed));
    }
    println!(
        "detection: shard {victim} killed, {changes:?}: the last of {} callers knew after {:.2} ms",
        seen.ended.len(),
        longest as f64 / 1e6
    );
    afterwards(&client, table, victim, &doomed, &safe, &all);
}

/// Every later request ends in the same way, nothing stays behind, and the other shard serves.
fn afterwards(client: &Client, table: Table, victim: u32, doomed: &[u64], safe: &[u64], all: &[u64]) {
    for count in [1, 20, doomed.len()] {
        let keys = &doomed[..count];
        assert_unreachable(&table.get(client, keys).expect_err("dead"), victim, "a later GET");
        assert_unreachable(&table.put(client, keys, 1.0).expect_err("dead"), victim, "a later PUT");
        assert_unreachable(&table.update(client, keys, 1.0).expect_err("dead"), victim, "a later UPDATE");
    }
    let request = Request::Get { table: table.tag, keys: all, target: Target::InPlace };
    // SAFETY: nothing of the caller's is written, and the keys outlive the request.
    let token = unsafe { client.submit(&request) }.expect("a batch begins");
    assert_unreachable(&client.wait(token, None).expect_err("dead"), victim, "a batch");
    assert_unreachable(&client.borrow(token, |rows| rows).expect_err("dead"), victim, "a borrow");
    client.revoke(token).expect("once");
    let error = client.init_table(&crate::rows::spec("late", 8)).expect_err("dead");
    assert_unreachable(&error, victim, "INIT_TABLE");
    let buffer = client.allocate_buffer(4096).expect("the other shard can reach it");
    assert_eq!(buffer.bytes(), 4096);
    let key = &safe[..1];
    let target = Target::Buffer { region: &buffer, offset_bytes: 64 };
    // SAFETY: the buffer outlives the call.
    unsafe { client.call(&Request::Get { table: table.tag, keys: key, target }) }.expect("the other shard serves");
    // SAFETY: the row was just written there.
    let row = unsafe { core::slice::from_raw_parts(buffer.data().add(64).cast::<f32>(), table.dim) };
    table.versions(key, row);
    let rows = table.get(client, safe).expect("the other shard serves");
    table.versions(safe, &rows);
    for lane in 0..3 {
        assert_eq!(client.lane(victim, lane).expect("a lane").state, LaneState::Dirty);
        assert_eq!(client.lane(1 - victim, lane).expect("a lane").state, LaneState::Active);
    }
    assert_eq!(client.stats().held_slots, 0);
    client.shutdown(PATIENCE).expect("nothing is under way");
}

#[test]
fn a_killed_shard_is_named_by_every_request_single() {
    kill_a_shard(1, &[("commit-scheme", "single")]);
}

#[test]
fn a_killed_shard_is_named_by_every_request_crc() {
    kill_a_shard(1, &[("commit-scheme", "crc")]);
}

#[test]
fn a_killed_shard_is_named_by_every_request_imm() {
    kill_a_shard(1, &[("commit-scheme", "imm")]);
}

#[test]
fn a_killed_shard_with_workers_is_named_by_every_request() {
    kill_a_shard(1, &[("server-rdma-threads", "2"), ("rdma-rc-server-get-workers", "2"), ("integrity", "crc32c")]);
}

#[test]
fn without_the_control_plane_the_other_shards_serve() {
    kill_a_shard(0, &[]);
}

/// With the control plane gone nobody else says it: the first request that notices speaks for all lanes of that process.
#[test]
fn after_one_request_met_a_dead_shard_no_other_is_in_doubt() {
    let mut deployment = Deployment::start(1, &[("qps-per-client-per-shard", "8"), ("shared-reads", "off")]);
    let client = deployment.client();
    let table = Table::open(&client, "t", 16);
    let keys = keys_of(&client, None);
    table.put(&client, &keys, 1.0).expect("the shard serves");
    deployment.servers[0].kill();
    assert_unreachable(&table.get(&client, &keys[..1]).expect_err("dead"), 0, "a GET");
    for key in &keys[..20] {
        let error = table.update(&client, &[*key], 1.0).expect_err("dead");
        assert_unreachable(&error, 0, "a later UPDATE");
        assert_eq!(error.outcome, Outcome::NotExecuted, "{error}");
    }
}

#[test]
fn killed_clients_leave_nothing_behind() {
    let mut deployment = Deployment::start(1, &[("rdma-rc-server-get-workers", "1"), ("server-rdma-threads", "2")]);
    let client = deployment.client();
    let table = Table::open(&client, "t", 16);
    table.fill(&client);
    let keys = keys_of(&client, None);
    let (stop, done) = (AtomicBool::new(false), AtomicU64::new(0));
    std::thread::scope(|scope| {
        let caller = scope.spawn(|| work(&client, table, Kind::UpdateSome, &keys, &stop, &done));
        let (lanes, bytes) = (deployment.servers[0].number("lanes"), deployment.servers[0].number("lane bytes"));
        assert_eq!(lanes, 3);
        let mut start = None;
        let mut longest = Duration::ZERO;
        for round in 0..21 {
            // The same number again and again, and numbers that the control plane gives.
            let changes: &[(&str, &str)] = if round % 2 == 0 { &[("client-id", "77")] } else { &[] };
            let mut worker = deployment.worker(changes);
            let killed = worker.kill();
            let server = &mut deployment.servers[0];
            until("lanes", || server.number("lanes"), |seen| *seen == lanes);
            longest = longest.max(Duration::from_nanos(now().since_ns(killed)));
            until("lane bytes", || server.number("lane bytes"), |seen| *seen == bytes);
            // The first life pays for what is made once.
            match &start {
                Some(before) => holds_again(server, before),
                None => start = Some(settled(server)),
            }
        }
        println!(
            "detection: client killed: the server had freed its lanes after at most {:.2} ms",
            milliseconds(longest)
        );
        let before = done.load(Ordering::Relaxed);
        until("the other client", || done.load(Ordering::Relaxed), |seen| *seen > before + 100);
        stop.store(true, Ordering::Relaxed);
        let ended = caller.join().expect("no panic");
        assert!(ended.errors.is_empty(), "{:?}", ended.errors);
    });
}

#[test]
fn clients_killed_while_they_join_leave_nothing_behind() {
    let mut deployment = Deployment::start(2, &[]);
    let client = deployment.client();
    let table = Table::open(&client, "t", 16);
    table.fill(&client);
    let killed_at = |deployment: &Deployment, spins: u64| {
        let mut joiner = Process::start("joiner", &with(&deployment.changes, "client-id", "5"));
        // The first time is slower than the others: kill in the second one as well.
        for _ in 0..1 + spins % 2 {
            assert_eq!(joiner.hear(), "joining");
        }
        let start = now();
        // Anywhere in the handshake, which takes some milliseconds.
        while now().since_ns(start) < spins * 700_000 {
            core::hint::spin_loop();
        }
        joiner.kill();
    };
    killed_at(&deployment, 30);
    for server in &mut deployment.servers {
        until("lanes", || server.number("lanes"), |seen| *seen == 3);
    }
    let before: Vec<_> = deployment.servers.iter().map(settled).collect();
    for round in 0..24 {
        killed_at(&deployment, round);
        table.get(&client, &[1, 2, 3]).expect("others are not disturbed");
    }
    for (server, before) in deployment.servers.iter_mut().zip(before) {
        until("lanes", || server.number("lanes"), |seen| *seen == 3);
        holds_again(server, &before);
    }
    let late = crate::support::open_client(&with(&deployment.changes, "client-id", "5"));
    assert_eq!(late.client_id(), 5);
    Table::open(&late, "t", 16).get(&late, &[9]).expect("it works");
}

#[test]
fn a_stopped_client_holds_up_nobody() {
    let mut deployment = Deployment::start(1, &[]);
    let client = deployment.client();
    let table = Table::open(&client, "t", 16);
    table.fill(&client);
    let mut worker = deployment.worker(&[]);
    worker.freeze();
    let mut joiners = Vec::new();
    for round in 0..4_u64 {
        let mut joiner = Process::start("joiner", &deployment.changes);
        assert_eq!(joiner.hear(), "joining");
        let start = now();
        while now().since_ns(start) < round * 2_000_000 {
            core::hint::spin_loop();
        }
        joiner.freeze();
        joiners.push(joiner);
        for key in 0..500 {
            table.versions(&[key], &table.get(&client, &[key]).expect("a GET"));
        }
        let late = deployment.client();
        Table::open(&late, "t", 16).put(&late, &[round], 3.0).expect("a PUT");
    }
    worker.thaw();
    let before = worker.number("done");
    until("the client that was stopped", || worker.number("done"), |done| *done > before + 20);
    drop((worker, joiners));
    let server = &mut deployment.servers[0];
    until("lanes", || server.number("lanes"), |seen| *seen == 3);
}

#[test]
fn a_dead_shard_does_not_keep_buffers_from_the_others() {
    let mut deployment = Deployment::start(2, &[]);
    let client = deployment.client();
    let table = Table::open(&client, "t", 16);
    table.fill(&client);
    // No request has met the dead shard yet, and the control plane died with it.
    deployment.servers[0].kill();
    until("a buffer", || client.allocate_buffer(4096).map(|_| ()), Result::is_ok);
}
