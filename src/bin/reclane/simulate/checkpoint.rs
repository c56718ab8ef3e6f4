//! `reclane simulate --checkpoint`: checkpoints and restores in simulated deployments.

use super::Arguments;
use reclane::error::Result;
use reclane::simulate::checkpoint::{CheckpointCaught, CheckpointHunt, MISTAKE_SEEDS_MAX, Mistake, hunt, hunt_mistake};
use serde_json::json;

pub fn work(arguments: &Arguments) -> Result<bool> {
    let found = hunt(arguments.from, arguments.seeds)?;
    let wanted = !arguments.no_mutants && (arguments.mutants || arguments.json);
    let caught: Vec<CheckpointCaught> = if wanted {
        Mistake::ALL.iter().map(|mistake| hunt_mistake(*mistake, 0, MISTAKE_SEEDS_MAX)).collect::<Result<_>>()?
    } else {
        Vec::new()
    };
    if arguments.json {
        println!("{}", as_json(&found, &caught));
    } else {
        print(&found, &caught);
    }
    Ok(found.failures.is_empty() && caught.iter().all(|caught| caught.after.is_some()))
}

fn as_json(found: &CheckpointHunt, caught: &[CheckpointCaught]) -> serde_json::Value {
    let violations: Vec<_> = found
        .failures
        .iter()
        .map(|failure| {
            json!({
                "seed": failure.seed,
                "violations": failure.violations,
                "faults": failure.faults,
                "replay": failure.command(),
            })
        })
        .collect();
    let mutants: Vec<_> = caught
        .iter()
        .map(|one| json!({ "name": one.mistake.name(), "caught_after": one.after, "noticed": one.violation }))
        .collect();
    json!({
        "seeds": found.seeds,
        "violations": violations,
        "mutants": mutants,
        "mutant_seeds_max": MISTAKE_SEEDS_MAX,
        "faults": found.faults,
        "checkpoints": {
            "committed": found.taken.committed,
            "aborted": found.taken.aborted,
            "restored": found.taken.restored,
            "in_doubt": found.taken.in_doubt,
        },
        "requests": {
            "acknowledged": found.counts.acknowledged,
            "not_executed": found.counts.not_executed,
            "unknown": found.counts.unknown,
            "orphaned": found.counts.orphaned,
        },
        "hash": format!("{:016x}", found.hash),
    })
}

fn print(found: &CheckpointHunt, caught: &[CheckpointCaught]) {
    let (c, t) = (&found.counts, &found.taken);
    println!(
        "{} seeds, {} faults; checkpoints: {} committed, {} came to nothing, {} restored with {} requests in doubt",
        found.seeds, found.faults, t.committed, t.aborted, t.restored, t.in_doubt
    );
    println!(
        "requests: {} acknowledged, {} not executed, {} unknown, {} orphaned; hash {:016x}",
        c.acknowledged, c.not_executed, c.unknown, c.orphaned, found.hash
    );
    for failure in &found.failures {
        println!("seed {} breaks the rules:", failure.seed);
        failure.violations.iter().for_each(|violation| println!("  {violation}"));
        println!("  {} of its {} faults are needed:", failure.faults.len(), failure.faults_of_plan);
        failure.faults.iter().for_each(|fault| println!("    {fault}"));
        println!("  again: {}", failure.command());
    }
    for one in caught {
        match one.after {
            Some(seeds) => println!("mutant {}: noticed after {seeds} seeds ({})", one.mistake.name(), one.violation),
            None => println!("mutant {}: NOT noticed in {MISTAKE_SEEDS_MAX} seeds", one.mistake.name()),
        }
    }
}
