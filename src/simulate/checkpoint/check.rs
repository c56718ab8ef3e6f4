//! Runs one plan, and reads its history when it is over.

use super::deployment::{Deployment, Taken};
use super::plan::{CheckpointPlan, End};
use crate::error::Result;
use crate::fabric::sim::{NetCounts, mix};
use crate::simulate::check::{become_quiet, is_whole, leaks};
use crate::simulate::history::{Counts, Kind};
use crate::time::set_virtual;

/// What became of a plan.
#[derive(Clone, Debug)]
pub struct CheckpointReport {
    /// The same for the same plan, on every host.
    pub hash: u64,
    /// What must not be, in words.
    pub violations: Vec<String>,
    /// How requests ended.
    pub counts: Counts,
    /// What became of checkpoints.
    pub taken: Taken,
    /// What the network did.
    pub net: NetCounts,
}

/// A whole deployment has a checkpoint within this time.
const ONE_MORE_NS: u64 = 60_000_000;
const LOOK_NS: u64 = 500_000;
const STRICT_NS: u64 = 3_000_000;

/// Runs one plan on this thread.
///
/// # Errors
/// The plan cannot be set up.
pub fn run(plan: &CheckpointPlan) -> Result<CheckpointReport> {
    let outcome = play(plan);
    set_virtual(None);
    outcome
}

fn play(plan: &CheckpointPlan) -> Result<CheckpointReport> {
    let mut it = Deployment::new(plan)?;
    it.run_until(plan.base.faults_end_ns)?;
    it.calm = true;
    wait(&mut it, Deployment::is_up, "the servers did not start again")?;
    it.disk.revive();
    let before = it.taken.committed;
    wait(&mut it, |it| it.taken.committed > before, "no checkpoint was committed though everything was whole")?;
    // One more end, from which all comes back.
    it.end(End { for_ns: 1_000_000, ..End::default() });
    wait(&mut it, Deployment::is_up, "the servers did not start again")?;
    it.finishing = true;
    // Clients notice what has become of their lanes when they use them.
    let next = it.world.now + plan.base.calm_ns;
    it.run_until(next)?;
    let met = |it: &Deployment| is_whole(&it.world) && it.is_idle() && it.line.survivors.is_empty();
    wait(&mut it, met, "capacity did not come back after the last restore")?;
    become_quiet(&mut it.world)?;
    if !it.world.history.has_violation() && is_whole(&it.world) {
        it.world.common.strict = true;
        it.world.common.closing = false;
        let next = it.world.now + STRICT_NS;
        it.run_until(next)?;
        become_quiet(&mut it.world)?;
    }
    if !it.world.history.has_violation() {
        it.line.judge(&it.world.history);
        requests(&it);
        leaks(&it.world);
    }
    let history = &it.world.history;
    let counted = [it.taken.committed, it.taken.aborted, it.taken.restored, it.world.steps()];
    let hash =
        counted.iter().fold(it.world.net.trace() ^ history.hash().rotate_left(17), |hash, count| mix(hash ^ count));
    let (counts, taken, net) = (history.counts(), it.taken, it.world.net.counts());
    Ok(CheckpointReport { hash, violations: history.violations(), counts, taken, net })
}

/// Lets time pass until it is so.
fn wait(it: &mut Deployment, so: impl Fn(&Deployment) -> bool, else_what: &str) -> Result<()> {
    let end = it.world.now + ONE_MORE_NS;
    while !so(it) {
        if it.world.history.has_violation() {
            return Ok(());
        }
        if it.world.now >= end {
            it.world.history.violation(else_what.to_owned());
            return Ok(());
        }
        let next = it.world.now + LOOK_NS;
        it.run_until(next)?;
    }
    Ok(())
}

/// What each request's end promised. That nothing was applied twice is the stores' own look-out: what a shard was
/// restored with counts.
fn requests(it: &Deployment) {
    let history = &it.world.history;
    for (number, asked) in history.all() {
        let Some(end) = asked.end else {
            history.violation(format!("request {number} is not over long after the last one was sent"));
            continue;
        };
        if asked.kind != Kind::Update {
            continue;
        }
        for (place, key) in asked.keys.iter().enumerate() {
            let applied: u32 = it.world.ledgers.iter().map(|ledger| ledger.applied(number, *key)).sum();
            if asked.is_called_undone(end, place) && applied != 0 {
                history.violation(format!("update {number} failed as not executed, and was applied to key {key}"));
            }
        }
    }
}

impl Deployment {
    fn is_up(&self) -> bool {
        self.start_at.is_none() && self.end_rest.is_none() && self.waiting.is_none() && self.leader.is_some()
    }
}
