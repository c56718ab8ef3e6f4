//! Runs one plan, and reads the history when it is over.

use super::history::Counts;
use super::plan::Plan;
use super::world::World;
use crate::error::Result;
use crate::fabric::sim::{NetCounts, mix, set_mutant};
use crate::time::set_virtual;

/// What became of a plan.
#[derive(Clone, Debug)]
pub struct Report {
    /// The same for the same plan, on every host.
    pub hash: u64,
    /// What must not be, in words.
    pub violations: Vec<String>,
    /// How requests ended.
    pub counts: Counts,
    /// What the network did.
    pub net: NetCounts,
    /// Steps of all processes.
    pub steps: u64,
}

/// After the last request was sent, all must be over within this time.
const LAST_NS: u64 = 80_000_000;
const LOOK_NS: u64 = 1_000_000;
/// How long a whole deployment is asked without a failure.
const STRICT_NS: u64 = 4_000_000;

/// Runs one plan on this thread.
///
/// # Errors
/// The plan cannot be set up: its options conflict, or there is no memory.
pub fn run(plan: &Plan) -> Result<Report> {
    set_mutant(plan.mutant);
    let outcome = play(plan);
    set_mutant(None);
    set_virtual(None);
    outcome
}

fn play(plan: &Plan) -> Result<Report> {
    let mut world = World::new(plan)?;
    world.run_until(plan.faults_end_ns + plan.calm_ns)?;
    become_quiet(&mut world)?;
    if plan.heals && is_whole(&world) {
        world.common.strict = true;
        world.common.closing = false;
        let next = world.now + STRICT_NS;
        world.run_until(next)?;
        become_quiet(&mut world)?;
    }
    if !world.history.has_violation() {
        requests(&world);
        leaks(&world);
    }
    let (net, history, steps) = (world.net.clone(), world.history.clone(), world.steps());
    let hosts = hosts(&world);
    let hash = mix(net.trace() ^ history.hash().rotate_left(17) ^ steps);
    drop(world);
    for host in hosts {
        let left = net.holdings(host);
        if left != (0, 0) {
            history.violation(format!("process {host} is gone and left {} queue pairs and {} regions", left.0, left.1));
        }
    }
    Ok(Report { hash, violations: history.violations(), counts: history.counts(), net: net.counts(), steps })
}

/// Lets what is under way come to its end.
pub(super) fn become_quiet(world: &mut World) -> Result<()> {
    world.common.closing = true;
    let end = world.now + LAST_NS;
    while world.now < end && !world.history.has_violation() && !is_quiet(world) {
        let next = world.now + LOOK_NS;
        world.run_until(next)?;
    }
    Ok(())
}

pub(super) fn hosts(world: &World) -> Vec<u32> {
    let shards = world.shards.iter().filter_map(|place| place.process.as_ref()).map(|p| p.fabric.host());
    let clients = world.clients.iter().filter_map(|place| place.process.as_ref()).map(|p| p.fabric.host());
    shards.chain(clients).chain(world.dead_hosts.iter().copied()).collect()
}

fn is_quiet(world: &World) -> bool {
    let clients = world.clients.iter().filter_map(|place| place.process.as_ref());
    let shards = world.shards.iter().filter_map(|place| place.process.as_ref());
    clients.clone().all(|client| client.under_way() == 0 && client.slots_held() == 0)
        && shards.clone().all(|shard| shard.holds().1 == 0)
        && (!world.plan.heals || is_whole(world))
}

/// Every client is up with all its lanes.
pub(super) fn is_whole(world: &World) -> bool {
    world.clients.iter().all(|place| {
        let lanes = place.process.as_ref().map_or((0, 0), super::client::Client::lanes);
        lanes.0 == lanes.1 && lanes.1 == (world.plan.shards * world.plan.lanes) as usize
    })
}

/// What each request's end promised.
fn requests(world: &World) {
    let history = &world.history;
    for (number, asked) in history.all() {
        let Some(end) = asked.end else {
            history.violation(format!("request {number} is not over long after the last one was sent"));
            continue;
        };
        if !asked.kind.writes() {
            continue;
        }
        if !asked.whole_is_honest(end) {
            history.violation(format!("update {number} failed as not executed, and not all of its keys did"));
        }
        for (place, key) in asked.keys.iter().enumerate() {
            let applied = world.ledgers.iter().map(|ledger| ledger.applied(number, *key)).sum();
            if applied > 1 {
                history.violation(format!("update {number} was applied {applied} times to key {key}, by two lives"));
            }
            if !asked.promise_kept(end, place, applied) {
                history
                    .violation(format!("update {number} failed and was applied {applied} times to key {key}: a lie"));
            }
        }
    }
}

/// Slots, lanes, memory: nothing is left of what is over, and everything is there that should be.
pub(super) fn leaks(world: &World) {
    let history = &world.history;
    for (index, place) in world.clients.iter().enumerate() {
        let Some(client) = &place.process else { continue };
        let held = client.slots_held();
        if held != 0 {
            history.violation(format!("client {index} has nothing under way and holds {held} slots"));
        }
    }
    let per_client = world.plan.lanes as usize;
    let most = per_client * world.clients.len();
    for (index, place) in world.shards.iter().enumerate() {
        let Some(shard) = &place.process else { continue };
        let (lanes, jobs) = shard.holds();
        if lanes > most {
            history.violation(format!("shard {index} scans {lanes} lanes of {} clients", world.clients.len()));
        }
        if jobs != 0 {
            history.violation(format!("shard {index} did not answer {jobs} requests"));
        }
        let (qps, regions) = world.net.holdings(shard.fabric.host());
        if qps > most || regions > 2 * most {
            history.violation(format!("shard {index} has {qps} queue pairs and {regions} regions for {lanes} lanes"));
        }
    }
    if world.net.counts().cq_overruns > 0 {
        history.violation("a completion queue ran over".to_owned());
    }
    if world.plan.heals && !is_whole(world) {
        history.violation("capacity did not come back after the faults ended".to_owned());
    }
}
