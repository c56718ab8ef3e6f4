//! Many seeds, and the shortest story of one that fails.

use super::check::{Report, run};
use super::history::Counts;
use super::plan::Plan;
use crate::error::Result;
use crate::fabric::sim::{Mutant, mix};

/// A plan, as a hunt sees it.
pub(super) trait Story: Clone {
    /// What became of it.
    type Report;
    /// The command that runs such plans.
    const COMMAND: &'static str;

    /// The plan of a seed.
    fn of(seed: u64) -> Self;
    fn seed(&self) -> u64;
    /// What goes wrong in it, in words.
    fn faults(&self) -> Vec<String>;
    /// The same plan without one of those.
    fn without(&self, fault: usize) -> Self;

    /// # Errors
    /// The plan cannot be set up.
    fn run(&self) -> Result<Self::Report>;
    /// Hash, violations and requests of a report.
    fn read(report: &Self::Report) -> (u64, &[String], &Counts);
}

impl Story for Plan {
    type Report = Report;
    const COMMAND: &'static str = "reclane simulate";

    fn of(seed: u64) -> Plan {
        Plan::of(seed)
    }

    fn seed(&self) -> u64 {
        self.seed
    }

    fn faults(&self) -> Vec<String> {
        self.faults.iter().map(ToString::to_string).collect()
    }

    fn without(&self, fault: usize) -> Plan {
        let mut shorter = self.clone();
        shorter.faults.remove(fault);
        shorter
    }

    fn run(&self) -> Result<Report> {
        run(self)
    }

    fn read(report: &Report) -> (u64, &[String], &Counts) {
        (report.hash, &report.violations, &report.counts)
    }
}

/// A seed that failed.
#[derive(Clone, Debug)]
pub struct Failure {
    /// Which.
    pub seed: u64,
    /// What must not be.
    pub violations: Vec<String>,
    /// The faults without which it does not happen, in words.
    pub faults: Vec<String>,
    /// Faults of the whole plan.
    pub faults_of_plan: usize,
    runs: &'static str,
}

impl Failure {
    /// The command that runs it again.
    #[must_use]
    pub fn command(&self) -> String {
        format!("{} --seeds 1 --from {}", self.runs, self.seed)
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

/// A deliberate mistake, and how long it lived.
#[derive(Clone, Debug)]
pub struct Caught {
    /// Which.
    pub name: &'static str,
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
    hunt_for::<Plan>(from, seeds, |_| {})
}

/// The same for any kind of plan; `each` sees every report.
pub(super) fn hunt_for<S: Story>(from: u64, seeds: u64, mut each: impl FnMut(&S::Report)) -> Result<Hunt> {
    let mut hunt = Hunt::default();
    for seed in from..from.saturating_add(seeds) {
        let plan = S::of(seed);
        let report = plan.run()?;
        let (hash, violations, counts) = S::read(&report);
        hunt.seeds += 1;
        hunt.faults += plan.faults().len() as u64;
        hunt.hash = mix(hunt.hash ^ hash);
        hunt.counts.acknowledged += counts.acknowledged;
        hunt.counts.not_executed += counts.not_executed;
        hunt.counts.unknown += counts.unknown;
        hunt.counts.orphaned += counts.orphaned;
        each(&report);
        if !violations.is_empty() {
            hunt.failures.push(failure(&plan, violations)?);
            if hunt.failures.len() >= FAILURES_MAX {
                break;
            }
        }
    }
    Ok(hunt)
}

fn failure<S: Story>(plan: &S, violations: &[String]) -> Result<Failure> {
    Ok(Failure {
        seed: plan.seed(),
        violations: violations.to_vec(),
        faults: shrink(plan)?.faults(),
        faults_of_plan: plan.faults().len(),
        runs: S::COMMAND,
    })
}

/// Takes away whatever a failing plan fails without.
fn shrink<S: Story>(plan: &S) -> Result<S> {
    let mut best = plan.clone();
    let mut index = 0;
    while index < best.faults().len() {
        let shorter = best.without(index);
        if S::read(&shorter.run()?).1.is_empty() {
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
    hunt_mistaken(mutant.name(), from, seeds, |plan| Plan { mutant: Some(mutant), ..plan })
}

/// How many seeds a mistake survives that `spoil` makes.
pub(super) fn hunt_mistaken<S: Story>(
    name: &'static str,
    from: u64,
    seeds: u64,
    spoil: impl Fn(S) -> S,
) -> Result<Caught> {
    for seed in from..from.saturating_add(seeds) {
        let report = spoil(S::of(seed)).run()?;
        if let Some(violation) = S::read(&report).1.first() {
            return Ok(Caught { name, after: Some(seed - from + 1), violation: violation.clone() });
        }
    }
    Ok(Caught { name, after: None, violation: String::new() })
}
