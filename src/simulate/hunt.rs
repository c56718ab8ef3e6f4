//! Many seeds, and the shortest story of one that fails.

use super::check::{Report, run};
use super::history::Counts;
use super::plan::{Fault, Plan};
use crate::error::Result;
use crate::fabric::sim::Mutant;

/// A seed that failed.
#[derive(Clone, Debug)]
pub struct Failure {
    /// Which.
    pub seed: u64,
    /// What must not be.
    pub violations: Vec<String>,
    /// The faults without which it does not happen.
    pub faults: Vec<Fault>,
    /// Faults of the whole plan.
    pub faults_of_plan: usize,
}

impl Failure {
    /// The command that runs it again.
    #[must_use]
    pub fn command(&self) -> String {
        format!("reclane simulate --seeds 1 --from {}", self.seed)
    }
}

/// What came of many seeds.
#[derive(Clone, Debug, Default)]
pub struct Hunt {
    /// How many ran.
    pub seeds: u64,
    /// Those that failed.
    pub failures: Vec<Failure>,
    /// How requests ended, of all.
    pub counts: Counts,
    /// Faults that were done.
    pub faults: u64,
    /// Over all histories: differs when one does.
    pub hash: u64,
}

/// A mutant, and how long it lived.
#[derive(Clone, Debug)]
pub struct Caught {
    /// Which.
    pub mutant: Mutant,
    /// Seeds until it was noticed; None: it was not.
    pub after: Option<u64>,
    /// What was noticed.
    pub violation: String,
}

/// Every mutant must be noticed within so many seeds from 0 on.
pub const MUTANT_SEEDS_MAX: u64 = 500;

/// Failures that are kept and shrunk.
const FAILURES_MAX: usize = 5;

/// Runs `seeds` seeds from `from` on.
///
/// # Errors
/// As [`run`].
pub fn hunt(from: u64, seeds: u64) -> Result<Hunt> {
    let mut hunt = Hunt::default();
    for seed in from..from.saturating_add(seeds) {
        let plan = Plan::of(seed);
        let report = run(&plan)?;
        hunt.seeds += 1;
        hunt.faults += plan.faults.len() as u64;
        hunt.hash = crate::fabric::sim::mix(hunt.hash ^ report.hash);
        hunt.counts.acknowledged += report.counts.acknowledged;
        hunt.counts.not_executed += report.counts.not_executed;
        hunt.counts.unknown += report.counts.unknown;
        hunt.counts.orphaned += report.counts.orphaned;
        if !report.violations.is_empty() {
            hunt.failures.push(failure(&plan, report)?);
            if hunt.failures.len() >= FAILURES_MAX {
                break;
            }
        }
    }
    Ok(hunt)
}

fn failure(plan: &Plan, report: Report) -> Result<Failure> {
    let shrunk = shrink(plan)?;
    Ok(Failure {
        seed: plan.seed,
        violations: report.violations,
        faults: shrunk.faults,
        faults_of_plan: plan.faults.len(),
    })
}

/// Takes away whatever a failing plan fails without.
///
/// # Errors
/// As [`run`].
pub fn shrink(plan: &Plan) -> Result<Plan> {
    let mut best = plan.clone();
    let mut index = 0;
    while index < best.faults.len() {
        let mut shorter = best.clone();
        shorter.faults.remove(index);
        if run(&shorter)?.violations.is_empty() {
            index += 1;
        } else {
            best = shorter;
        }
    }
    Ok(best)
}

/// How many seeds a mutant survives.
///
/// # Errors
/// As [`run`].
pub fn hunt_mutant(mutant: Mutant, from: u64, seeds: u64) -> Result<Caught> {
    for seed in from..from.saturating_add(seeds) {
        let plan = Plan { mutant: Some(mutant), ..Plan::of(seed) };
        let report = run(&plan)?;
        if let Some(violation) = report.violations.first() {
            return Ok(Caught { mutant, after: Some(seed - from + 1), violation: violation.clone() });
        }
    }
    Ok(Caught { mutant, after: None, violation: String::new() })
}
