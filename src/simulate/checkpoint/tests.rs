//! Seeds, and the mistakes that they must notice.

use super::{CheckpointPlan, Mistake, hunt, hunt_mistake, run};

fn clean(from: u64, seeds: u64) {
    let (hunt, taken) = hunt(from, seeds).expect("plans run");
    for failure in &hunt.failures {
        failure.violations.iter().for_each(|violation| println!("seed {}: {violation}", failure.seed));
        println!("{} ({} of {} faults matter)", failure.command(), failure.faults.len(), failure.faults_of_plan);
        failure.faults.iter().for_each(|fault| println!("  {fault}"));
    }
    println!("{taken:?} {:?}", hunt.counts);
    assert!(hunt.failures.is_empty());
    assert!(taken.committed > 2 * seeds && taken.restored > seeds && taken.aborted > 0);
}

#[test]
fn seeds_from_0_keep_the_rules() {
    clean(0, 30);
}

#[test]
fn seeds_from_1000_keep_the_rules() {
    clean(1000, 30);
}

#[test]
fn one_seed_has_one_history() {
    for seed in [2, 31] {
        let plan = CheckpointPlan::of(seed);
        let (first, second) = (run(&plan).expect("runs"), run(&plan).expect("runs"));
        assert_eq!(
            (first.hash, first.counts, first.taken, first.net),
            (second.hash, second.counts, second.taken, second.net)
        );
        assert_ne!(first.hash, run(&CheckpointPlan::of(seed + 1)).expect("runs").hash);
    }
}

/// Those that are noticed soon; `reclane simulate --checkpoint --mutants` hunts all.
const SOON: &[Mistake] = &[
    Mistake::DataNotSynced,
    Mistake::CommitWithoutAll,
    Mistake::GateOpensBeforeCopy,
    Mistake::GateIgnored,
    Mistake::CutsAlone,
    Mistake::WaitsForSilentLeader,
    Mistake::WindowsNotSaved,
    Mistake::ZombieClientLetIn,
];
const SEEDS: u64 = 60;

#[test]
fn mistakes_are_noticed() {
    for mistake in SOON {
        let caught = hunt_mistake(*mistake, 0, SEEDS).expect("plans run");
        println!("{}: {:?} {}", mistake.name(), caught.after, caught.violation);
        assert!(caught.after.is_some(), "{} lives after {SEEDS} seeds", mistake.name());
    }
}
