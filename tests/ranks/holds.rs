//! Holding a rank still, and lanes that fail under those who use them.

use crate::support::{ALL, PATIENCE, Process, at, end, job, options, with, word, write};
use reclane::error::{Outcome, Status};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

#[test]
fn while_a_rank_is_held_nothing_of_it_changes_another_ones_memory() {
    let ranks = job(&options(2), 2);
    let region = ranks[1].open_region(0, 4096, ALL).expect("a region");
    let stop = AtomicBool::new(false);
    std::thread::scope(|scope| {
        for slot in 0..3_u64 {
            let (rank, stop) = (&ranks[0], &stop);
            scope.spawn(move || {
                while !stop.load(Ordering::Relaxed) {
                    match slot {
                        0 => write(rank, at(1, 0, 0), &[1; 8]).expect("write"),
                        1 => drop(rank.fetch_add(at(1, 0, 8), 1).expect("add")),
                        _ => drop(rank.fetch_add_once(at(1, 0, 16), 1).expect("add")),
                    }
                }
            });
        }
        let sum = || word(&region, 1).load(Ordering::Acquire) + word(&region, 2).load(Ordering::Acquire);
        for _ in 0..50 {
            let before = sum();
            while sum() < before + 50 {
                std::thread::yield_now();
            }
            let id = ranks[0].hold(PATIENCE, PATIENCE).expect("held");
            let (still, lanes) = (sum(), ranks[0].lanes());
            assert!(lanes.iter().all(|lane| lane.posted == lane.retired));
            for _ in 0..200 {
                std::thread::yield_now();
            }
            assert_eq!((sum(), ranks[0].lanes()), (still, lanes));
            assert!(ranks[0].is_held(id) && ranks[0].release(id) && !ranks[0].release(id));
        }
        stop.store(true, Ordering::Relaxed);
    });
    drop(region);
    end(ranks);
}

#[test]
fn a_hold_that_cannot_be_drained_names_the_rank_and_opens_the_gate_again() {
    let changes = options(2);
    let rank = job(&changes, 1).remove(0);
    let joined = with(&with(&changes, "rdma-control-plane-port", rank.control_plane_port()), "shard-id", 1);
    let mut peer = Process::start("rank", &joined);
    peer.hear();
    assert_eq!(rank.fetch_add_once(at(1, 1, 0), 1).expect("add"), 0);
    peer.freeze();
    std::thread::scope(|scope| {
        let asked = scope.spawn(|| rank.fetch_add_once(at(1, 1, 0), 1));
        // Until the request is under way no hold fails.
        let error = loop {
            match rank.hold(Duration::from_millis(50), PATIENCE) {
                Ok(id) => assert!(rank.release(id)),
                Err(error) => break error,
            }
        };
        assert_eq!((error.status, error.shard), (Status::WaitTimeout, Some(1)), "{error}");
        assert!(error.message.contains("rank 1: 1 operations are under way"), "{error}");
        peer.thaw();
        assert_eq!(asked.join().expect("a thread").expect("answered"), 1);
        write(&rank, at(1, 1, 64), &[1]).expect("the gate is open");
    });
}

#[test]
fn an_operation_waits_for_a_hold_to_end_or_lapse_and_not_beyond_its_own_time() {
    let ranks = job(&with(&options(1), "rdma-wait-timeout-ms", 100), 1);
    let _region = ranks[0].open_region(0, 64, ALL).expect("a region");
    // Connecting may take longer than the operations below may.
    ranks[0].find_region(0, 0, PATIENCE).expect("to itself");
    write(&ranks[0], at(0, 0, 0), &[1]).expect("to itself");
    let id = ranks[0].hold(PATIENCE, PATIENCE).expect("held");
    let error = write(&ranks[0], at(0, 0, 0), &[2]).expect_err("held");
    assert_eq!((error.status, error.outcome), (Status::Busy, Outcome::NotExecuted), "{error}");
    assert_eq!(ranks[0].hold(PATIENCE, PATIENCE).map(drop).expect_err("held").status, Status::Busy);
    assert!(ranks[0].release(id));
    let lapsing = Duration::from_millis(1);
    let id = ranks[0].hold(lapsing, lapsing).expect("held");
    write(&ranks[0], at(0, 0, 0), &[3]).expect("it has lapsed");
    assert!(!ranks[0].is_held(id) && !ranks[0].release(id));
    end(ranks);
}

#[test]
fn atomics_are_executed_once_while_lanes_fail_under_them() {
    const ADDS: u64 = 100;
    let ranks = job(&options(2), 2);
    let region = ranks[0].open_region(0, 4096, ALL).expect("a region");
    let done = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let adders: Vec<_> = (0..2)
            .map(|_| {
                scope.spawn(|| {
                    for _ in 0..ADDS {
                        ranks[1].fetch_add_once(at(0, 0, 0), 1).expect("once");
                        // Over shm what fails was not executed, and is said to be so.
                        while let Err(error) = ranks[1].fetch_add(at(0, 0, 8), 1) {
                            assert_eq!(error.outcome, Outcome::NotExecuted, "{error}");
                        }
                    }
                })
            })
            .collect();
        scope.spawn(|| {
            let mut next = 3;
            while !done.load(Ordering::Relaxed) {
                if word(&region, 0).load(Ordering::Acquire) >= next {
                    ranks[1].break_lanes(0).expect("a rank");
                    next = word(&region, 0).load(Ordering::Acquire) + 3;
                }
                std::thread::yield_now();
            }
        });
        adders.into_iter().for_each(|adder| adder.join().expect("an adder"));
        done.store(true, Ordering::Relaxed);
    });
    assert_eq!(word(&region, 0).load(Ordering::Acquire), 2 * ADDS);
    assert_eq!(word(&region, 1).load(Ordering::Acquire), 2 * ADDS);
    drop(region);
    end(ranks);
}
