//! Many seeds, and the shortest story of one that fails.

use super::check::{CheckpointReport, run};
use super::deployment::Taken;
use super::mistake::Mistake;
use super::plan::CheckpointPlan;
use crate::error::Result;
use crate::fabric::sim::mix;
use crate::simulate::history::Counts;

/// A seed that failed.
#[derive(Clone, Debug)]
pub struct CheckpointFailure {
    /// Which.
    pub seed: u64,
    /// What must not be.
    pub violations: Vec<String>,
    /// What had to go wrong for it, in words.
    pub faults: Vec<String>,
    /// How much goes wrong in the whole plan.
    pub faults_of_plan: usize,
}

impl CheckpointFailure {
    /// The command that runs it again.
    #[must_use]
    pub fn command(&self) -> String {
        format!("reclane simulate --checkpoint --seeds 1 --from {}", self.seed)
    }
}

/// What came of many seeds.
#[derive(Clone, Debug, Default)]
pub struct CheckpointHunt {
    /// How many ran.
    pub seeds: u64,
    /// Those that failed.
    pub failures: Vec<CheckpointFailure>,
    /// How requests ended, of all.
    pub counts: Counts,
    /// What became of checkpoints, of all.
    pub taken: Taken,
    /// What went wrong by plan.
    pub faults: u64,
    /// Over all histories: differs when one does.
    pub hash: u64,
}

/// A mistake, and how long it lived.
#[derive(Clone, Debug)]
pub struct CheckpointCaught {
    /// Which.
    pub mistake: Mistake,
    /// Seeds until it was noticed; None: it was not.
    pub after: Option<u64>,
    /// What was noticed.
    pub violation: String,
}

/// Every mistake must be noticed within so many seeds from 0 on.
pub const MISTAKE_SEEDS_MAX: u64 = 500;
const FAILURES_MAX: usize = 5;

/// Runs `seeds` seeds from `from` on.
///
/// # Errors
/// As [`run`].
pub fn hunt(from: u64, seeds: u64) -> Result<CheckpointHunt> {
    let mut hunt = CheckpointHunt::default();
    for seed in from..from.saturating_add(seeds) {
        let plan = CheckpointPlan::of(seed);
        let report = run(&plan)?;
        hunt.seeds += 1;
        hunt.faults += (plan.woes.len() + plan.base.faults.len()) as u64;
        hunt.hash = mix(hunt.hash ^ report.hash);
        add(&mut hunt, &report);
        if !report.violations.is_empty() {
            hunt.failures.push(failure(&plan, report)?);
            if hunt.failures.len() >= FAILURES_MAX {
                break;
            }
        }
    }
    Ok(hunt)
}

fn add(hunt: &mut CheckpointHunt, report: &CheckpointReport) {
    let (all, one) = (&mut hunt.counts, &report.counts);
    all.acknowledged += one.acknowledged;
    all.not_executed += one.not_executed;
    all.unknown += one.unknown;
    all.orphaned += one.orphaned;
    let (all, one) = (&mut hunt.taken, &report.taken);
    all.committed += one.committed;
    all.aborted += one.aborted;
    all.restored += one.restored;
    all.in_doubt += one.in_doubt;
}

/// Takes away whatever the plan fails without.
fn failure(plan: &CheckpointPlan, report: CheckpointReport) -> Result<CheckpointFailure> {
    let mut best = plan.clone();
    let mut index = 0;
    while index < best.woes.len() + best.base.faults.len() {
        let mut shorter = best.clone();
        match index.checked_sub(best.woes.len()) {
            None => drop(shorter.woes.remove(index)),
            Some(index) => drop(shorter.base.faults.remove(index)),
        }
        if run(&shorter)?.violations.is_empty() {
            index += 1;
        } else {
            best = shorter;
        }
    }
    let woes = best.woes.iter().map(|(at, woe)| format!("at {} us: {woe}", at / 1000));
    Ok(CheckpointFailure {
        seed: plan.seed,
        violations: report.violations,
        faults: woes.chain(best.base.faults.iter().map(ToString::to_string)).collect(),
        faults_of_plan: plan.woes.len() + plan.base.faults.len(),
    })
}

/// How many seeds a mistake survives.
///
/// # Errors
/// As [`run`].
pub fn hunt_mistake(mistake: Mistake, from: u64, seeds: u64) -> Result<CheckpointCaught> {
    for seed in from..from.saturating_add(seeds) {
        let plan = CheckpointPlan { mistake: Some(mistake), ..CheckpointPlan::of(seed) };
        let report = run(&plan)?;
        if let Some(violation) = report.violations.first() {
            return Ok(CheckpointCaught { mistake, after: Some(seed - from + 1), violation: violation.clone() });
        }
    }
    Ok(CheckpointCaught { mistake, after: None, violation: String::new() })
}
