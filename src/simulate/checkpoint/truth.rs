//! What the checker knows: how all shards were at each cut, what was committed, and which world is the present one.

use super::deployment::Deployment;
use super::image::{State, read};
use super::member::JOB;
use super::plan::KEEP;
use crate::checkpoint::Manifest;
use crate::checkpoint::verify::{Depth, open_member, verify};
use crate::engine::server::checkpoint::windows::Exported;
use crate::simulate::history::History;
use crate::simulate::ledger::{Image, Ledger};
use crate::simulate::world::World;
use crate::sync::Arc;
use std::collections::{BTreeMap, BTreeSet};

/// One cut.
#[derive(Clone, Debug)]
pub(super) struct Truth {
    /// In which world.
    pub(super) line: u32,
    pub(super) shards: Vec<State>,
}

/// All cuts.
#[derive(Clone, Debug, Default)]
pub(super) struct Truths {
    cuts: BTreeMap<u64, Truth>,
    /// Those of which the leader was told that they exist.
    pub(super) exist: BTreeSet<u64>,
    /// Those that a bit was flipped in.
    pub(super) damaged: BTreeSet<u64>,
    /// Those that may build on a damaged one.
    pub(super) doubtful: BTreeSet<u64>,
}

impl Truths {
    /// All are held, says the leader: so this is the cut.
    pub(super) fn note(&mut self, epoch: u64, line: u32, world: &World) {
        self.cuts.insert(epoch, Truth { line, shards: Deployment::states(world) });
    }

    pub(super) fn cut(&self, epoch: u64) -> Option<&Truth> {
        self.cuts.get(&epoch)
    }

    /// The newest that must be whole.
    pub(super) fn newest(&self) -> Option<u64> {
        let good = |epoch: &&u64| !self.damaged.contains(epoch) && !self.doubtful.contains(epoch);
        self.exist.iter().rev().find(good).copied()
    }
}

impl Deployment {
    fn violation(&self, what: String) {
        self.world.history.violation(what);
    }

    /// The leader says that a checkpoint exists: it must be there, whole, and be the cut.
    pub(super) fn committed(&mut self, epoch: u64, line: u32) {
        if line != self.line.number {
            self.violation(format!("checkpoint {epoch} was committed by the leader of a world that is undone"));
            return;
        }
        self.truths.exist.insert(epoch);
        let found = match self.catalog.list(&self.disk) {
            Ok(found) => found,
            Err(error) => return self.violation(format!("the directory of checkpoints cannot be read: {error}")),
        };
        let manifests: Vec<&Manifest> =
            found.iter().filter_map(|found| found.manifest.as_ref().ok()?.as_ref()).collect();
        let Some(manifest) = manifests.iter().find(|manifest| manifest.epoch == epoch) else {
            return self.violation(format!("checkpoint {epoch} was committed and is not there"));
        };
        self.compare(manifest);
        let whole = |manifest: &&&Manifest| verify(&self.disk, &self.catalog, manifest, Depth::Whole).is_ok();
        let good = manifests.iter().filter(whole).count();
        let damaged = self.truths.damaged.len() + self.truths.doubtful.len();
        let wanted = KEEP.min(self.truths.exist.len().saturating_sub(damaged));
        if good < wanted {
            self.violation(format!(
                "{good} whole checkpoints are left after {epoch} was committed, {wanted} should be"
            ));
        }
    }

    /// What is in the files is what was there at the cut.
    fn compare(&self, manifest: &Manifest) {
        let epoch = manifest.epoch;
        let Some(truth) = self.truths.cut(epoch) else {
            return self.violation(format!("checkpoint {epoch} was committed without a cut"));
        };
        if manifest.members.len() != truth.shards.len() {
            return self.violation(format!("checkpoint {epoch} has files of {} shards", manifest.members.len()));
        }
        for (member, then) in manifest.members.iter().zip(&truth.shards) {
            let read = open_member(&self.disk, &self.catalog, manifest, member).and_then(|container| read(&container));
            match read {
                Ok((state, _)) => differences(&self.world.history, epoch, member.rank, &state, then),
                Err(error) => self.violation(format!("checkpoint {epoch} was committed and is damaged: {error}")),
            }
        }
    }

    /// The checkpoint that a restore has chosen is one that may be chosen.
    pub(super) fn judge_choice(&self, chosen: Option<u64>) {
        let newest = self.truths.newest();
        if chosen < newest {
            self.violation(format!("checkpoint {newest:?} was committed, and {chosen:?} is restored"));
        }
        let Some(epoch) = chosen else { return };
        if self.truths.damaged.contains(&epoch) {
            self.violation(format!("checkpoint {epoch} is damaged, and is restored"));
        }
        let line = self.truths.cut(epoch).map_or(u32::MAX, |truth| truth.line);
        if line != self.line.number && epoch > self.line.restored_from {
            self.violation(format!("checkpoint {epoch} is of a world that was undone, and is restored"));
        }
    }

    /// What a shard was filled with is what it was at the cut.
    pub(super) fn judge_state(&self, epoch: u64, shard: u32, state: &State) {
        if let Some(then) = self.truths.cut(epoch).and_then(|truth| truth.shards.get(shard as usize)) {
            differences(&self.world.history, epoch, shard, state, then);
        }
    }

    pub(super) fn job() -> u128 {
        JOB
    }
}

fn differences(history: &History, epoch: u64, shard: u32, state: &State, then: &State) {
    if state.image != then.image {
        history.violation(format!("checkpoint {epoch} has other rows of shard {shard} than it had at the cut"));
    }
    // Clients come and go also while shards are held; for those who have come nothing was executed.
    let other = |one: &&Exported| {
        let same = |then: &&Exported| (then.client, then.incarnation) == (one.client, one.incarnation);
        then.windows.iter().find(same).map_or(!one.entries.is_empty(), |then| then != *one)
    };
    if let Some(window) = state.windows.iter().find(other) {
        let client = window.client;
        history.violation(format!(
            "checkpoint {epoch} has another window of client {client} at shard {shard} than it had at the cut"
        ));
    }
}

/// One world: from a start of all servers to the end of all.
#[derive(Debug, Default)]
pub(super) struct Line {
    /// Counts worlds.
    pub(super) number: u32,
    /// The checkpoint that it started from; 0: none.
    pub(super) restored_from: u64,
    /// What each shard started with.
    pub(super) began: Vec<(Arc<Ledger>, Image)>,
    /// Requests up to this one were asked before it began.
    before: u64,
    /// Clients that must open again, and have not: by number and host.
    pub(super) survivors: BTreeMap<u32, u32>,
    /// What those have asked.
    fenced: BTreeSet<u64>,
    refuses: bool,
}

impl Line {
    pub(super) fn new(number: u32, restored_from: u64, before: u64, refuses: bool) -> Line {
        Line { number, restored_from, before, refuses, ..Line::default() }
    }

    /// Notes what is asked by clients of the world before.
    pub(super) fn watch(&mut self, world: &World) {
        if self.survivors.is_empty() {
            return;
        }
        let (survivors, fenced) = (&mut self.survivors, &mut self.fenced);
        survivors.retain(|client, host| {
            let process = world.clients[*client as usize].process.as_ref().filter(|p| p.fabric.host() == *host);
            process.map(|process| fenced.extend(process.numbers())).is_some()
        });
    }

    /// The world ends: nothing was executed in it for clients that should have opened again.
    pub(super) fn judge(&self, history: &History) {
        if !self.refuses {
            return;
        }
        for (ledger, began) in &self.began {
            for ((op, key), times) in ledger.image().applied {
                let of_before = op <= self.before || self.fenced.contains(&op);
                if of_before && began.applied.get(&(op, key)).copied().unwrap_or(0) != times {
                    history.violation(format!("update {op} of a client of the world before was applied to key {key}"));
                }
            }
        }
    }
}
