//! What is known of operations whose connection failed, on a network whose failures are chosen.

use super::bed::{Bed, REGION, To};
use crate::error::Outcome;
use crate::fabric::sim::{Net, Policy, Rng, Sim};
use crate::memory::{Kind, Known, Operation};
use crate::sync::{Arc, Ordering};

fn bed(seed: u64, policy: Policy) -> (Arc<Net>, Bed<Sim>) {
    let net = Net::new(seed, policy, false);
    let (near, far) = (Sim::open(&net), Sim::open(&net));
    let driven = Arc::clone(&net);
    let pump = move || {
        if let Some(next) = driven.next_ns() {
            driven.advance(next);
        }
    };
    let bed = Bed::new(near, far, pump);
    (net, bed)
}

#[test]
fn what_was_executed_and_not_acknowledged_is_proved_by_the_owner() {
    let (net, mut bed) = bed(1, Policy::calm());
    bed.connect(To::Regions);
    bed.near_word(0).store(9, Ordering::Relaxed);
    bed.run(&[bed.operation(Kind::Write, 0, 0)]).expect("write");
    // Everything arrives there, nothing comes back.
    net.block(bed.far.host(), bed.near.host(), true);
    bed.near_word(0).store(10, Ordering::Relaxed);
    let batch =
        [bed.operation(Kind::Write, 0, 0), bed.operation(Kind::FetchAdd, 1, 1), bed.operation(Kind::Read, 2, 0)];
    let last = bed.post(&batch).expect("posted");
    let error = bed.settle(last - 2).expect_err("the retries ran out");
    assert_eq!(error.outcome, Outcome::Unknown, "{error}");
    let known = |bed: &Bed<Sim>| [last - 2, last - 1, last].map(|number| bed.lane.known(number).expect("kept"));
    assert_eq!(known(&bed), [Known::Ambiguous, Known::Ambiguous, Known::NotDone]);
    assert_eq!((bed.far_word(0).load(Ordering::Acquire), bed.far_word(1).load(Ordering::Acquire)), (10, 1));
    net.block(bed.far.host(), bed.near.host(), false);
    bed.connect(To::Regions);
    assert_eq!(known(&bed), [Known::Done, Known::ResultLost, Known::NotDone]);
    bed.run(&[bed.operation(Kind::Read, 2, 1)]).expect("read");
    assert_eq!(bed.near_word(2).load(Ordering::Acquire), 1);
}

#[test]
fn what_never_arrived_stays_unknown_and_never_arrives_later() {
    let (net, mut bed) = bed(2, Policy { duplicate: 500_000, duplicate_ns_max: 500_000, ..Policy::calm() });
    bed.connect(To::Regions);
    net.block(bed.near.host(), bed.far.host(), true);
    let last = bed.post(&[bed.operation(Kind::FetchAdd, 0, 0)]).expect("posted");
    assert!(bed.settle(last).is_err());
    net.block(bed.near.host(), bed.far.host(), false);
    bed.connect(To::Regions);
    // Absence proves nothing in general, so it is not called undone.
    assert_eq!(bed.lane.known(last), Some(Known::Ambiguous));
    bed.run(&[bed.operation(Kind::Read, 1, 0)]).expect("read");
    assert_eq!(bed.far_word(0).load(Ordering::Acquire), 0);
}

/// Adds to counters on a network that breaks connections at any moment, from a seed, and holds the counters against what
/// the log says of each add.
fn hunt(seed: u64) -> (u32, u32) {
    let policy = Policy { retries: 3, ..Policy::rough(seed.is_multiple_of(2)) };
    let (net, mut bed) = bed(seed, policy);
    let mut rng = Rng::new(seed ^ 0xabcd);
    bed.connect(To::Regions);
    let (mut done, mut unknown, mut failures, mut proved) = (0_u64, 0_u64, 0, 0);
    for _ in 0..60 {
        let count = 1 + rng.index(5);
        let add: Operation = Operation { region: REGION, ..bed.operation(Kind::FetchAdd, 0, 0) };
        let batch = vec![add; count];
        let Ok(last) = bed.post(&batch) else {
            bed.connect(To::Regions);
            continue;
        };
        let breaks = rng.chance(200_000).then(|| rng.below(6000));
        if let Some(after_ns) = breaks {
            let at = net.next_ns().unwrap_or(0) + after_ns;
            net.advance(at);
            let host = if rng.chance(500_000) { bed.near.host() } else { bed.far.host() };
            net.break_connection(host, 0);
        }
        let failed = bed.settle(last).is_err();
        if failed {
            failures += 1;
            bed.connect(To::Regions);
        }
        for number in last - count as u64 + 1..=last {
            match bed.lane.known(number).expect("kept") {
                Known::Done => done += 1,
                Known::ResultLost => (done, proved) = (done + 1, proved + 1),
                Known::NotDone => {}
                Known::Ambiguous => unknown += 1,
                Known::UnderWay => panic!("seed {seed}: operation {number} is not settled"),
            }
        }
        let found = bed.far_word(0).load(Ordering::Acquire);
        assert!((done..=done + unknown).contains(&found), "seed {seed}: {found} adds, {done} done, {unknown} unknown");
    }
    (failures, proved)
}

#[test]
fn the_log_never_lies_about_an_atomic() {
    let (mut failures, mut proved) = (0, 0);
    for seed in 0..40 {
        let (failed, by_mark) = hunt(seed);
        (failures, proved) = (failures + failed, proved + by_mark);
    }
    assert!(
        failures > 20 && proved > 0,
        "{failures} failures, {proved} operations proved by a mark: too few to show it"
    );
}
