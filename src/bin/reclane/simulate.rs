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
    let mutants = arguments.hunted(Mutant::ALL, |mutant| hunt_mutant(*mutant, 0, MUTANT_SEEDS_MAX))?;
    if arguments.json {
        println!("{}", serde_json::Value::Object(as_json(&found, &mutants, MUTANT_SEEDS_MAX)));
    } else {
        println!("{} seeds, {} faults; {}", found.seeds, found.faults, requests(&found));
        print(&found, &mutants, MUTANT_SEEDS_MAX);
    }
    Ok(is_good(&found, &mutants))
}

impl Arguments {
    /// Hunts every deliberate mistake, if that is wanted.
    fn hunted<M>(&self, all: &[M], hunt: impl Fn(&M) -> Result<Caught>) -> Result<Vec<Caught>> {
        let wanted = !self.no_mutants && (self.mutants || self.json);
        if wanted { all.iter().map(hunt).collect() } else { Ok(Vec::new()) }
    }
}

fn is_good(found: &Hunt, mutants: &[Caught]) -> bool {
    found.failures.is_empty() && mutants.iter().all(|caught| caught.after.is_some())
}

fn as_json(found: &Hunt, mutants: &[Caught], seeds_max: u64) -> serde_json::Map<String, serde_json::Value> {
    let violations = found.failures.iter().map(|failure| {
        json!({
            "seed": failure.seed,
            "violations": failure.violations,
            "faults": failure.faults,
            "replay": failure.command(),
        })
    });
    let mutants = mutants
        .iter()
        .map(|caught| json!({ "name": caught.name, "caught_after": caught.after, "noticed": caught.violation }));
    let fields = [
        ("seeds", json!(found.seeds)),
        ("violations", violations.collect()),
        ("mutants", mutants.collect()),
        ("mutant_seeds_max", json!(seeds_max)),
        ("faults", json!(found.faults)),
        (
            "requests",
            json!({
                "acknowledged": found.counts.acknowledged,
                "not_executed": found.counts.not_executed,
                "unknown": found.counts.unknown,
                "orphaned": found.counts.orphaned,
            }),
        ),
        ("hash", json!(format!("{:016x}", found.hash))),
    ];
    fields.into_iter().map(|(name, value)| (name.to_owned(), value)).collect()
}

fn requests(found: &Hunt) -> String {
    let c = &found.counts;
    format!(
        "requests: {} acknowledged, {} not executed, {} unknown, {} orphaned; hash {:016x}",
        c.acknowledged, c.not_executed, c.unknown, c.orphaned, found.hash
    )
}

fn print(found: &Hunt, mutants: &[Caught], seeds_max: u64) {
    for failure in &found.failures {
        println!("seed {} breaks the rules:", failure.seed);
        failure.violations.iter().for_each(|violation| println!("  {violation}"));
        println!("  {} of its {} faults are needed:", failure.faults.len(), failure.faults_of_plan);
        failure.faults.iter().for_each(|fault| println!("    {fault}"));
        println!("  again: {}", failure.command());
    }
    for caught in mutants {
        match caught.after {
            Some(seeds) => println!("mutant {}: noticed after {seeds} seeds ({})", caught.name, caught.violation),
            None => println!("mutant {}: NOT noticed in {seeds_max} seeds", caught.name),
        }
    }
}
