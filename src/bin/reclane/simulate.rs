//! `reclane simulate`: whole deployments in one thread, from seeds.

mod checkpoint;

use clap::Args;
use reclane::error::Result;
use reclane::fabric::sim::Mutant;
use reclane::simulate::{Caught, Hunt, MUTANT_SEEDS_MAX, hunt, hunt_mutant};
use serde_json::json;
use std::process::ExitCode;

/// Run whole deployments on a simulated network: faults by seed, and a checker that reads the history.
#[derive(Args)]
pub struct Arguments {
    /// How many seeds.
    #[arg(long, default_value_t = 1000)]
    seeds: u64,
    /// The first seed.
    #[arg(long, default_value_t = 0)]
    from: u64,
    /// Also run every deliberate mistake until it is noticed; with --json this is done in any case.
    #[arg(long)]
    mutants: bool,
    /// Do not run the deliberate mistakes.
    #[arg(long, conflicts_with = "mutants")]
    no_mutants: bool,
    /// Deployments that take checkpoints, whose servers die and are restored, and the deliberate mistakes around that.
    #[arg(long)]
    checkpoint: bool,
    /// One JSON object instead of text.
    #[arg(long)]
    json: bool,
}

pub fn run(arguments: &Arguments) -> ExitCode {
    let worked = if arguments.checkpoint { checkpoint::work(arguments) } else { work(arguments) };
    match worked {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::FAILURE,
        Err(error) => {
            eprintln!("reclane: {error}");
            ExitCode::FAILURE
        }
    }
}

fn work(arguments: &Arguments) -> Result<bool> {
    let found = hunt(arguments.from, arguments.seeds)?;
    let wanted = !arguments.no_mutants && (arguments.mutants || arguments.json);
    let mutants: Vec<Caught> = if wanted {
        Mutant::ALL.iter().map(|mutant| hunt_mutant(*mutant, 0, MUTANT_SEEDS_MAX)).collect::<Result<_>>()?
    } else {
        Vec::new()
    };
    if arguments.json {
        println!("{}", as_json(&found, &mutants));
    } else {
        print(&found, &mutants);
    }
    Ok(found.failures.is_empty() && mutants.iter().all(|caught| caught.after.is_some()))
}

fn as_json(found: &Hunt, mutants: &[Caught]) -> serde_json::Value {
    let violations: Vec<_> = found
        .failures
        .iter()
        .map(|failure| {
            json!({
                "seed": failure.seed,
                "violations": failure.violations,
                "faults": failure.faults.iter().map(ToString::to_string).collect::<Vec<_>>(),
                "replay": failure.command(),
            })
        })
        .collect();
    let mutants: Vec<_> = mutants
        .iter()
        .map(
            |caught| json!({ "name": caught.mutant.name(), "caught_after": caught.after, "noticed": caught.violation }),
        )
        .collect();
    json!({
        "seeds": found.seeds,
        "violations": violations,
        "mutants": mutants,
        "mutant_seeds_max": MUTANT_SEEDS_MAX,
        "faults": found.faults,
        "requests": {
            "acknowledged": found.counts.acknowledged,
            "not_executed": found.counts.not_executed,
            "unknown": found.counts.unknown,
            "orphaned": found.counts.orphaned,
        },
        "hash": format!("{:016x}", found.hash),
    })
}

fn print(found: &Hunt, mutants: &[Caught]) {
    let c = &found.counts;
    println!(
        "{} seeds, {} faults; requests: {} acknowledged, {} not executed, {} unknown, {} orphaned; hash {:016x}",
        found.seeds, found.faults, c.acknowledged, c.not_executed, c.unknown, c.orphaned, found.hash
    );
    for failure in &found.failures {
        println!("seed {} breaks the rules:", failure.seed);
        failure.violations.iter().for_each(|violation| println!("  {violation}"));
        println!("  {} of its {} faults are needed:", failure.faults.len(), failure.faults_of_plan);
        failure.faults.iter().for_each(|fault| println!("    {fault}"));
        println!("  again: {}", failure.command());
    }
    for caught in mutants {
        match caught.after {
            Some(seeds) => {
                println!("mutant {}: noticed after {seeds} seeds ({})", caught.mutant.name(), caught.violation)
            }
            None => println!("mutant {}: NOT noticed in {MUTANT_SEEDS_MAX} seeds", caught.mutant.name()),
        }
    }
}
