//! Many seeds of deployments that take checkpoints.

use super::check::{CheckpointReport, run};
use super::deployment::Taken;
use super::mistake::Mistake;
use super::plan::CheckpointPlan;
use crate::error::Result;
use crate::simulate::history::Counts;
use crate::simulate::hunt::{Caught, Hunt, Story, hunt_for, hunt_mistaken};

/// What goes wrong is first the woes of the plan, then the faults of the deployment under it.
impl Story for CheckpointPlan {
    type Report = CheckpointReport;
    const COMMAND: &'static str = "reclane simulate --checkpoint";

    fn of(seed: u64) -> CheckpointPlan {
        CheckpointPlan::of(seed)
    }

    fn seed(&self) -> u64 {
        self.seed
    }

    fn faults(&self) -> Vec<String> {
        let woes = self.woes.iter().map(|(at, woe)| format!("at {} us: {woe}", at / 1000));
        woes.chain(self.base.faults()).collect()
    }

    fn without(&self, fault: usize) -> CheckpointPlan {
        let mut shorter = self.clone();
        match fault.checked_sub(self.woes.len()) {
            None => drop(shorter.woes.remove(fault)),
            Some(fault) => drop(shorter.base.faults.remove(fault)),
        }
        shorter
    }

    fn run(&self) -> Result<CheckpointReport> {
        run(self)
    }

    fn read(report: &CheckpointReport) -> (u64, &[String], &Counts) {
        (report.hash, &report.violations, &report.counts)
    }
}

/// Every mistake must be noticed within so many seeds from 0 on.
pub const MISTAKE_SEEDS_MAX: u64 = 500;

/// Runs `seeds` seeds from `from` on; what became of checkpoints, of all, beside the rest.
///
/// # Errors
/// As [`run`].
pub fn hunt(from: u64, seeds: u64) -> Result<(Hunt, Taken)> {
    let mut all = Taken::default();
    let hunt = hunt_for::<CheckpointPlan>(from, seeds, |report| {
        let one = &report.taken;
        all.committed += one.committed;
        all.aborted += one.aborted;
        all.restored += one.restored;
        all.in_doubt += one.in_doubt;
    })?;
    Ok((hunt, all))
}

/// How many seeds a mistake survives.
///
/// # Errors
/// As [`run`].
pub fn hunt_mistake(mistake: Mistake, from: u64, seeds: u64) -> Result<Caught> {
    hunt_mistaken(mistake.name(), from, seeds, |plan| CheckpointPlan { mistake: Some(mistake), ..plan })
}
