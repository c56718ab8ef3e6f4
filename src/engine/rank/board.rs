//! What a rank and one peer have told each other, and the lanes between them.

use super::core::Shared;
use crate::control::{ControlClient, Peer};
use crate::error::{Error, Result, Status, Verdict};
use crate::fabric::Fabric;
use crate::ids::{Incarnation, ShardId};
use crate::memory::{Answer, Ask, Asker, Lane, Notice, Purpose, TableAddress};
use crate::sync::{Condvar, Mutex, MutexGuard, OnceLock, lock};
use crate::time::Tick;
use core::time::Duration;

/// The words of one peer and ours to it.
#[derive(Debug, Default)]
pub(super) struct Words {
    /// Counts our messages to it.
    serial: u64,
    /// Lanes that we ask it for.
    pub(super) asks: Vec<Ask>,
    /// Lanes of its that we have let in.
    pub(super) answers: Vec<Answer>,
    /// What it told us last.
    pub(super) theirs: Option<Notice>,
    /// Why it cannot be reached for good, as far as is known.
    pub(super) gone: Option<String>,
    /// It has heard of us, so it is told of changes.
    pub(super) contact: bool,
    /// Connections of each lane so far.
    pub(super) generations: [u32; 2],
    /// A thread is letting it in; it has news again.
    pub(super) working: bool,
    pub(super) again: bool,
}

/// One peer.
#[derive(Debug)]
pub(super) struct Other<F: Fabric> {
    pub(super) number: u32,
    /// Reads, writes, atomics of the fabric.
    pub(super) data: Lane<F>,
    /// What carries requests for atomics.
    pub(super) cells: Lane<F>,
    pub(super) asker: OnceLock<Asker<F>>,
    words: Mutex<Words>,
    pub(super) changed: Condvar,
    /// One connection is made at a time.
    pub(super) connecting: Mutex<()>,
    /// Messages leave in the order of their numbers.
    publishing: Mutex<()>,
}

impl<F: Fabric> Other<F> {
    pub(super) fn new(number: u32, places: usize) -> Other<F> {
        Other {
            number,
            data: Lane::new(number, places),
            cells: Lane::new(number, places.min(64)),
            asker: OnceLock::new(),
            words: Mutex::default(),
            changed: Condvar::new(),
            connecting: Mutex::new(()),
            publishing: Mutex::new(()),
        }
    }

    pub(super) fn words(&self) -> MutexGuard<'_, Words> {
        lock(&self.words)
    }

    pub(super) fn lane(&self, purpose: Purpose) -> &Lane<F> {
        match purpose {
            Purpose::Data => &self.data,
            Purpose::Atomics => &self.cells,
        }
    }

    /// Waits for a change of the words, at the longest until then.
    pub(super) fn wait<'a>(&self, words: MutexGuard<'a, Words>, until: Tick) -> MutexGuard<'a, Words> {
        let left = until.remaining();
        self.changed.wait_timeout(words, left).unwrap_or_else(std::sync::PoisonError::into_inner).0
    }

    /// Its life, as far as it has told.
    pub(super) fn incarnation(&self) -> Option<Incarnation> {
        self.words().theirs.as_ref().map(|notice| notice.incarnation)
    }
}

/// Nobody answers there any more.
pub(super) fn gone(peer: u32, why: &str) -> Box<Error> {
    let mut error = Error::new(Status::ShardUnreachable, format!("rank {peer}: {why}")).at_shard(peer);
    error.verdict = Verdict::Dead;
    error.outcome = crate::error::Outcome::NotExecuted;
    error
}

impl<F: Fabric> Shared<F> {
    /// Tells a peer everything that it should know of us.
    pub(super) fn publish(&self, control: &ControlClient, other: &Other<F>, timeout: Duration) -> Result<()> {
        let _turn = lock(&other.publishing);
        let notice = {
            let mut words = other.words();
            words.serial += 1;
            words.contact = true;
            Notice {
                incarnation: self.incarnation,
                epoch: self.epoch,
                serial: words.serial,
                table: Some(TableAddress(crate::fabric::Region::address(self.home.table()))),
                regions: self.home.entries(),
                asks: words.asks.clone(),
                answers: words.answers.clone(),
            }
        };
        control.publish_lanes_within(Peer::Server(ShardId(other.number)), notice.encode(), timeout)
    }

    /// Tells all peers that know us that our regions have changed. Those that cannot be told find out when they ask.
    pub(super) fn publish_regions(&self, control: &ControlClient, timeout: Duration) -> Result<()> {
        for other in &self.others {
            let told = {
                let words = other.words();
                words.contact && words.gone.is_none()
            };
            if told {
                self.publish(control, other, timeout)?;
            }
        }
        Ok(())
    }

    /// Asks the control plane what a peer has told us last.
    pub(super) fn refresh(&self, control: &ControlClient, other: &Other<F>, timeout: Duration) -> Result<()> {
        let bytes = control.get_lanes(Peer::Server(ShardId(other.number)), timeout)?;
        let notice = Notice::decode(&bytes).map_err(|what| {
            Error::new(Status::DeploymentMismatch, format!("rank {} published {what}", other.number))
                .at_shard(other.number)
        })?;
        self.take(other, notice);
        Ok(())
    }

    /// Takes over what a peer told, unless it is older than what is known.
    fn take(&self, other: &Other<F>, notice: Notice) {
        let mut words = other.words();
        let same_life = words.theirs.as_ref().map(|known| (known.incarnation == notice.incarnation, known.serial));
        match same_life {
            Some((true, serial)) if serial >= notice.serial => return,
            Some((false, _)) => {
                words.answers.clear();
                words.gone = None;
            }
            _ => {}
        }
        let replaced = matches!(same_life, Some((false, _)));
        other.data.told(&notice.regions);
        words.theirs = Some(notice);
        drop(words);
        if replaced {
            other.data.cut("its process was replaced by another one", true);
            other.cells.cut("its process was replaced by another one", true);
        }
        other.changed.notify_all();
    }

    /// A peer's process is gone: its lanes end, whoever waits for it is told.
    pub(super) fn lose(&self, other: &Other<F>, incarnation: Incarnation, died: bool) {
        let mut words = other.words();
        if words.theirs.as_ref().is_some_and(|known| known.incarnation != incarnation) {
            return;
        }
        let why = if died { "its process died" } else { "it has left" };
        words.gone = Some(why.to_owned());
        words.answers.clear();
        drop(words);
        other.data.cut(why, true);
        other.cells.cut(why, true);
        self.dismiss(other.number, Some(incarnation));
        other.changed.notify_all();
    }

    /// A process serves as this rank (again).
    pub(super) fn arrived(&self, other: &Other<F>) {
        other.words().gone = None;
        other.changed.notify_all();
    }
}
