//! Ranks that are killed, stopped, and started again.

use crate::support::{ALL, PATIENCE, Process, at, hardly_more, job, options, read, settings, with, write};
use reclane::engine::Rank;
use reclane::error::{Outcome, Status, Verdict};

#[test]
fn a_killed_rank_gives_typed_errors_and_a_new_one_takes_its_place() {
    let changes = options(2);
    let rank = job(&changes, 1).remove(0);
    let region = rank.open_region(1, 4096, ALL).expect("a region");
    let joined = with(&with(&changes, "rdma-control-plane-port", rank.control_plane_port()), "shard-id", 1);
    let mut peer = Process::start("rank", &joined);
    peer.hear();
    write(&rank, at(1, 1, 0), b"before").expect("write");
    rank.fetch_add_once(at(1, 1, 64), 5).expect("add");
    peer.kill();
    // Its memory is there until this process hears of its end.
    while write(&rank, at(1, 1, 0), b"after").is_ok() {}
    // The first may still meet the connection, later ones the verdict; all name rank, region and why.
    for _ in 0..3 {
        let error = write(&rank, at(1, 1, 0), b"after").expect_err("it is dead");
        assert_eq!((error.status, error.shard), (Status::ShardUnreachable, Some(1)), "{error}");
        assert!(error.message.contains("rank 1, region 1"), "{error}");
    }
    let error = rank.fetch_add(at(1, 1, 64), 1).expect_err("it is dead");
    assert_eq!((error.status, error.outcome), (Status::ShardUnreachable, Outcome::NotExecuted), "{error}");
    let error = rank.fetch_add_once(at(1, 1, 64), 1).expect_err("it is dead");
    assert_eq!((error.status, error.verdict), (Status::ShardUnreachable, Verdict::Dead), "{error}");
    assert!(error.message.contains("rank 1, region 1: its process died"), "{error}");
    // Another process takes its place; its memory is its own.
    let mut next = Process::start("rank", &joined);
    next.hear();
    let found = rank.find_region(1, 1, PATIENCE).expect("found");
    assert_eq!(found.address.bytes, 1 << 16);
    assert_eq!(read(&rank, at(1, 1, 0), 6).expect("read"), [0; 6]);
    assert_eq!(rank.fetch_add_once(at(1, 1, 64), 5).expect("add"), 0);
    drop(region);
    next.kill();
}

#[test]
fn nothing_is_left_of_ranks_that_were_killed_in_the_middle() {
    let changes = options(3);
    let mut first = Process::start("rank", &changes);
    let joined = with(&changes, "rdma-control-plane-port", first.hear());
    let mut second = Process::start("rank", &with(&joined, "shard-id", 1));
    second.hear();
    let mut adds = 0;
    let mut round = |first: &mut Process, second: &mut Process| {
        let mut writer = Process::start("writer", &with(&joined, "shard-id", 2));
        writer.hear();
        adds += 20;
        while second.ask("word 1024").parse::<u64>().expect("a number") < adds {}
        writer.kill();
        adds = second.ask("word 1024").parse().expect("a number");
        // Both know: an operation on it fails by verdict, not by timeout.
        for survivor in [first, second] {
            let said = survivor.ask("write 2");
            assert!(said.starts_with("SHARD_UNREACHABLE") && said.contains("rank 2, region 1"), "{said}");
        }
    };
    (0..2).for_each(|_| round(&mut first, &mut second));
    let settled = [first.holdings(), second.holdings()];
    (0..6).for_each(|_| round(&mut first, &mut second));
    // What the last one left goes within moments.
    let mut now = [first.holdings(), second.holdings()];
    for _ in 0..10_000 {
        if settled.iter().zip(&now).all(|(a, b)| hardly_more(a, b)) {
            break;
        }
        std::thread::yield_now();
        now = [first.holdings(), second.holdings()];
    }
    assert!(settled.iter().zip(&now).all(|(a, b)| hardly_more(a, b)), "{settled:?}, then {now:?}");
    assert_eq!(first.ask("word 0"), u64::from_le_bytes([7; 8]).to_string());
}

#[test]
fn losing_the_rank_with_the_control_plane_is_told_as_its_end() {
    let changes = options(2);
    let mut first = Process::start("rank", &changes);
    let joined = with(&with(&changes, "rdma-control-plane-port", first.hear()), "shard-id", 1);
    let rank = Rank::open(&settings(&joined)).expect("rank 1");
    write(&rank, at(0, 1, 0), b"before").expect("write");
    first.kill();
    while write(&rank, at(0, 1, 0), b"after").is_ok() {}
    for _ in 0..2 {
        let error = write(&rank, at(0, 1, 0), b"after").expect_err("it is dead");
        assert_eq!(error.status, Status::ShardUnreachable, "{error}");
        assert!(error.message.contains("rank 0, region 1: its process is gone"), "{error}");
    }
}

#[test]
fn a_barrier_counts_the_living_and_names_the_dead() {
    let changes = options(3);
    let rank = job(&changes, 1).remove(0);
    let joined = with(&changes, "rdma-control-plane-port", rank.control_plane_port());
    let mut peers: Vec<_> = (1..3).map(|n| Process::start("rank", &with(&joined, "shard-id", n))).collect();
    peers.iter_mut().for_each(|peer| drop(peer.hear()));
    std::thread::scope(|scope| {
        let ours = scope.spawn(|| rank.barrier("end", PATIENCE));
        peers.iter_mut().for_each(|peer| peer.tell("barrier"));
        ours.join().expect("a thread").expect("all came");
    });
    peers.iter_mut().for_each(|peer| assert_eq!(peer.hear(), "ok"));
    peers[0].tell("barrier");
    peers[1].kill();
    drop(peers.remove(1));
    let late = rank.barrier("other", std::time::Duration::from_millis(50)).expect_err("nobody else came");
    assert_eq!(late.status, Status::StartupTimeout, "{late}");
}
