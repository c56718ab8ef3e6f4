//! What was asked, what came of it, and what must never be.

use crate::error::Outcome;
use crate::fabric::sim::mix;
use crate::sync::{Mutex, lock};
use std::collections::BTreeMap;

/// What a request is.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Kind {
    Get,
    /// A GET whose rows the shard writes to a buffer of the client.
    GetInto,
    Put,
    Update,
    /// INIT_TABLE.
    Init,
}

impl Kind {
    /// Whether it changes rows, and is applied once.
    pub(super) fn writes(self) -> bool {
        matches!(self, Kind::Put | Kind::Update)
    }
}

/// How a request ended.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum End {
    Acknowledged,
    Failed(Outcome),
    /// Its client died first.
    Orphaned,
}

/// One request.
#[derive(Clone, Debug)]
pub(super) struct Asked {
    pub(super) kind: Kind,
    pub(super) keys: Vec<u64>,
    pub(super) end: Option<End>,
    /// What was told of each key when it failed; empty: of the whole.
    outcomes: Vec<Outcome>,
}

impl Asked {
    /// Whether what was told of an update that failed is true: it was applied so many times to its key at this place.
    pub(super) fn promise_kept(&self, end: End, place: usize, applied: u32) -> bool {
        let End::Failed(whole) = end else { return true };
        match self.outcomes.get(place).copied().unwrap_or(whole) {
            Outcome::NotExecuted => applied == 0,
            Outcome::Executed => applied == 1,
            Outcome::Unknown => true,
        }
    }

    /// Whether it was told of this update that it was not applied to its key at this place.
    pub(super) fn is_called_undone(&self, end: End, place: usize) -> bool {
        let End::Failed(whole) = end else { return false };
        self.outcomes.get(place).copied().unwrap_or(whole) == Outcome::NotExecuted
    }

    /// A batch of which a key was executed, or may have been, was not called undone as a whole.
    pub(super) fn whole_is_honest(&self, end: End) -> bool {
        end != End::Failed(Outcome::NotExecuted) || self.outcomes.iter().all(|outcome| *outcome == Outcome::NotExecuted)
    }
}

/// Numbers of one history.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counts {
    /// Requests that were acknowledged.
    pub acknowledged: u64,
    /// Requests that failed and were certainly not executed.
    pub not_executed: u64,
    /// Requests that failed and may have been executed.
    pub unknown: u64,
    /// Requests whose client died.
    pub orphaned: u64,
}

#[derive(Debug, Default)]
struct Inner {
    asked: BTreeMap<u64, Asked>,
    violations: Vec<String>,
    counts: Counts,
    hash: u64,
}

/// A history: written by clients and stores, read by the checker.
#[derive(Debug, Default)]
pub(super) struct History(Mutex<Inner>);

/// More are not kept: one tells as much as many.
const VIOLATIONS_MAX: usize = 16;

impl History {
    /// A new request; its number.
    pub(super) fn ask(&self, kind: Kind, keys: &[u64]) -> u64 {
        let mut inner = lock(&self.0);
        let number = inner.asked.len() as u64 + 1;
        inner.asked.insert(number, Asked { kind, keys: keys.to_vec(), end: None, outcomes: Vec::new() });
        inner.hash = mix(inner.hash ^ number ^ (keys.len() as u64) << 32);
        number
    }

    /// A request ended.
    pub(super) fn end(&self, number: u64, end: End) {
        let mut inner = lock(&self.0);
        match end {
            End::Acknowledged => inner.counts.acknowledged += 1,
            End::Failed(Outcome::NotExecuted) => inner.counts.not_executed += 1,
            End::Failed(_) => inner.counts.unknown += 1,
            End::Orphaned => inner.counts.orphaned += 1,
        }
        let code = match end {
            End::Acknowledged => 1,
            End::Failed(outcome) => 2 + outcome as u64,
            End::Orphaned => 7,
        };
        inner.hash = mix(inner.hash ^ number << 8 ^ code);
        if let Some(asked) = inner.asked.get_mut(&number) {
            asked.end = Some(end);
        }
    }

    /// A request failed, or some of its keys did.
    pub(super) fn failed(&self, number: u64, outcome: Outcome, outcomes: Vec<Outcome>) {
        if let Some(asked) = lock(&self.0).asked.get_mut(&number) {
            asked.outcomes = outcomes;
        }
        self.end(number, End::Failed(outcome));
    }

    /// Whether such a PUT or UPDATE was sent.
    pub(super) fn was_sent(&self, number: u64, key: u64) -> bool {
        let inner = lock(&self.0);
        inner.asked.get(&number).is_some_and(|asked| asked.kind.writes() && asked.keys.contains(&key))
    }

    /// How many requests there were: the number of the last one.
    pub(super) fn count(&self) -> u64 {
        lock(&self.0).asked.len() as u64
    }

    /// All requests.
    pub(super) fn all(&self) -> Vec<(u64, Asked)> {
        lock(&self.0).asked.iter().map(|(number, asked)| (*number, asked.clone())).collect()
    }

    /// Something happened that must not.
    pub(super) fn violation(&self, what: String) {
        let mut inner = lock(&self.0);
        if inner.violations.len() < VIOLATIONS_MAX && !inner.violations.contains(&what) {
            inner.violations.push(what);
        }
    }

    pub(super) fn has_violation(&self) -> bool {
        !lock(&self.0).violations.is_empty()
    }

    pub(super) fn violations(&self) -> Vec<String> {
        lock(&self.0).violations.clone()
    }

    pub(super) fn counts(&self) -> Counts {
        lock(&self.0).counts
    }

    pub(super) fn hash(&self) -> u64 {
        lock(&self.0).hash
    }
}
