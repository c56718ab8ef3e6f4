//! Seeds by the hundred, and the mistakes that they must notice.

use super::{MUTANT_SEEDS_MAX, Plan, hunt, hunt_mutant, run};
use crate::fabric::sim::Mutant;

fn clean(from: u64, seeds: u64) {
    let hunt = hunt(from, seeds).expect("plans run");
    for failure in &hunt.failures {
        for violation in &failure.violations {
            println!("seed {}: {violation}", failure.seed);
        }
        println!("{} ({} of {} faults matter)", failure.command(), failure.faults.len(), failure.faults_of_plan);
        failure.faults.iter().for_each(|fault| println!("  {fault}"));
    }
    assert!(hunt.failures.is_empty());
    assert!(hunt.counts.acknowledged > seeds, "{:?}", hunt.counts);
}

#[test]
fn seeds_from_0_keep_the_rules() {
    clean(0, 250);
}

#[test]
fn seeds_from_1000_keep_the_rules() {
    clean(1000, 250);
}

#[test]
fn seeds_from_2000_keep_the_rules() {
    clean(2000, 250);
}

#[test]
fn seeds_from_3000_keep_the_rules() {
    clean(3000, 250);
}

#[test]
fn one_seed_has_one_history() {
    for seed in [1, 17, 4711] {
        let plan = Plan::of(seed);
        let (first, second) = (run(&plan).expect("runs"), run(&plan).expect("runs"));
        assert_eq!((first.hash, first.counts, first.net), (second.hash, second.counts, second.net));
        assert_ne!(first.hash, run(&Plan::of(seed + 1)).expect("runs").hash);
    }
}

#[test]
fn every_mutant_is_noticed() {
    for mutant in Mutant::ALL {
        let caught = hunt_mutant(*mutant, 0, MUTANT_SEEDS_MAX).expect("plans run");
        println!("{}: {:?} {}", mutant.name(), caught.after, caught.violation);
        assert!(caught.after.is_some(), "{} lives after {MUTANT_SEEDS_MAX} seeds", mutant.name());
    }
}
