//! Asking for checkpoints: a letter to shard 0, and what it says in return.

use super::core::{Core, closed};
use crate::checkpoint::cut::{APP_BYTES_MAX as SECTION_BYTES_MAX, Message, Note, Request, State};
use crate::control::Peer;
use crate::error::{Error, Result, Status};
use crate::fabric::Fabric;
use crate::ids::ShardId;
use crate::sync::{AtomicU64, Condvar, Mutex, Ordering, lock};
use crate::time::{Tick, now};
use core::time::Duration;
use std::collections::BTreeMap;

/// Longest name of one.
pub const SECTION_NAME_BYTES_MAX: usize = 255;
/// Checkpoints that are remembered. Of more, the oldest that has ended is forgotten: somebody may wait for one under way.
const NOTES_MAX: usize = 64;
const MAIL_TIMEOUT: Duration = Duration::from_secs(5);
/// Longest silence of shard 0 before an asker looks whether it is still there.
const LOOK: Duration = Duration::from_secs(1);

/// How far a checkpoint is that this client asked for.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct CheckpointStatus {
    /// Its epoch; 0 while there is none.
    pub epoch: u64,
    /// How far it is.
    pub state: State,
    /// How long requests waited, at most; 0 until they go on.
    pub hold_ns: u64,
    /// From the first word until everything was durable; 0 until then.
    pub total_ns: u64,
    /// Bytes of state in it.
    pub state_bytes: u64,
    /// Bytes that were written for it.
    pub written_bytes: u64,
    /// Why it came to nothing; empty unless it did.
    pub why: String,
}

/// What was heard of the checkpoints that this client asked for.
#[derive(Debug, Default)]
pub(in crate::engine) struct Notes {
    known: Mutex<BTreeMap<u64, CheckpointStatus>>,
    changed: Condvar,
    last: AtomicU64,
}

impl Notes {
    /// Shard 0 wrote.
    pub(super) fn hear(&self, body: &[u8]) {
        if let Some(Message::Note(note)) = Message::decode(body) {
            self.take(note);
        }
    }

    /// The leader has told how far one is.
    pub(in crate::engine) fn take(&self, note: Note) {
        let mut known = lock(&self.known);
        let Note { number, epoch, state, hold_ns, total_ns, state_bytes, written_bytes, why } = note;
        // Letters may overtake each other.
        if let Some(status) = known.get_mut(&number).filter(|status| status.state <= state) {
            *status = CheckpointStatus { epoch, state, hold_ns, total_ns, state_bytes, written_bytes, why };
            self.changed.notify_all();
        }
    }

    /// This process itself has come so far with one.
    pub(in crate::engine) fn advance(&self, number: u64, epoch: u64, state: State, why: &str) {
        let mut known = lock(&self.known);
        if let Some(status) = known.get_mut(&number).filter(|status| status.state < state) {
            (status.epoch, status.state, status.why) = (epoch, state, why.to_owned());
            self.changed.notify_all();
        }
    }

    /// The leader is gone, and with it every checkpoint that is under way.
    pub(in crate::engine) fn leader_lost(&self, leader: &str) {
        for status in lock(&self.known).values_mut().filter(|status| status.state < State::Committed) {
            status.state = State::Aborted;
            status.why = format!("{leader} is gone; the checkpoint exists if its manifest does");
        }
        self.changed.notify_all();
    }

    pub(in crate::engine) fn begin(&self) -> u64 {
        let number = self.last.fetch_add(1, Ordering::Relaxed) + 1;
        let mut known = lock(&self.known);
        let status = CheckpointStatus {
            epoch: 0,
            state: State::Asked,
            hold_ns: 0,
            total_ns: 0,
            state_bytes: 0,
            written_bytes: 0,
            why: String::new(),
        };
        known.insert(number, status);
        while known.len() > NOTES_MAX {
            let ended = known.iter().find(|(_, status)| status.state >= State::Committed).map(|(number, _)| *number);
            let oldest = ended.or_else(|| known.keys().next().copied());
            oldest.and_then(|number| known.remove(&number));
        }
        number
    }

    pub(in crate::engine) fn forget(&self, number: u64) {
        lock(&self.known).remove(&number);
    }

    pub(in crate::engine) fn get(&self, number: u64) -> Result<CheckpointStatus> {
        lock(&self.known).get(&number).cloned().ok_or_else(|| unknown(number))
    }

    /// Waits until one is so far.
    ///
    /// # Errors
    /// `CheckpointAborted` with the reason; `Busy` at the deadline; `InvalidArgument` for one that is not known.
    pub(in crate::engine) fn wait(&self, number: u64, least: State, deadline: Tick) -> Result<CheckpointStatus> {
        let status = self.wait_for(number, least, deadline)?;
        if status.state == State::Aborted {
            let message = format!("the checkpoint came to nothing: {}", status.why);
            return Err(Error::new(Status::CheckpointAborted, message));
        }
        Ok(status)
    }

    fn wait_for(&self, number: u64, least: State, deadline: Tick) -> Result<CheckpointStatus> {
        let mut known = lock(&self.known);
        loop {
            let status = known.get(&number).ok_or_else(|| unknown(number))?;
            if status.state >= least {
                return Ok(status.clone());
            }
            let left = deadline.remaining();
            if left.is_zero() {
                let message = format!(
                    "checkpoint request {number} is {} and not yet {}: ask again, or wait longer",
                    status.state.name(),
                    least.name()
                );
                return Err(Error::new(Status::Busy, message));
            }
            let changed = self.changed.wait_timeout(known, left.min(LOOK));
            known = changed.unwrap_or_else(std::sync::PoisonError::into_inner).0;
        }
    }
}

fn unknown(number: u64) -> Box<Error> {
    let message = format!("{number} is no checkpoint request of this client, or one of long ago");
    Error::new(Status::InvalidArgument, message)
}

impl<F: Fabric> Core<F> {
    fn write_to_leader(&self, message: &Message) -> Result<()> {
        let control = self.control().ok_or_else(closed)?;
        let here = control.mail(Peer::Server(ShardId(0)), &message.encode(), MAIL_TIMEOUT)?;
        if here {
            return Ok(());
        }
        Err(Error::new(Status::ShardUnreachable, "shard 0, which leads checkpoints, is not here").at_shard(0))
    }

    pub(super) fn checkpoint_begin(&self, full: bool, section: Option<(String, Vec<u8>)>) -> Result<u64> {
        if let Some((name, bytes)) = &section
            && (bytes.len() > SECTION_BYTES_MAX || name.len() > SECTION_NAME_BYTES_MAX)
        {
            let message = format!(
                "a section of {} bytes with a name of {}: at most {SECTION_BYTES_MAX} and {SECTION_NAME_BYTES_MAX} go",
                bytes.len(),
                name.len()
            );
            return Err(Error::new(Status::InvalidArgument, message));
        }
        let notes = self.notes();
        let number = notes.begin();
        self.write_to_leader(&Message::Ask(Request { number, full, section })).inspect_err(|_| notes.forget(number))?;
        Ok(number)
    }

    pub(super) fn checkpoint_status(&self, number: u64) -> Result<CheckpointStatus> {
        self.notes().get(number)
    }

    pub(super) fn checkpoint_wait(&self, number: u64, least: State, timeout: Duration) -> Result<CheckpointStatus> {
        self.notes().wait(number, least, now().after(timeout))
    }

    pub(super) fn checkpoint_abort(&self, number: u64) -> Result<()> {
        self.notes().get(number)?;
        self.write_to_leader(&Message::Stop(number))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn those_that_ended_are_forgotten_first_and_the_number_is_bounded() {
        let notes = Notes::default();
        let waited = notes.begin();
        for _ in 0..3 * NOTES_MAX {
            let number = notes.begin();
            notes.advance(number, 0, State::Aborted, "given up");
        }
        assert_eq!(notes.get(waited).expect("under way").state, State::Asked);
        assert_eq!(lock(&notes.known).len(), NOTES_MAX);
        for _ in 0..NOTES_MAX {
            notes.begin();
        }
        assert!(notes.get(waited).is_err());
        assert_eq!(lock(&notes.known).len(), NOTES_MAX);
    }
}
