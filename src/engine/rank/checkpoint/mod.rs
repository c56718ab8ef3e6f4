//! Checkpoints of ranks: regions, what was executed exactly once, and the programs' own sections, of all ranks at one
//! moment. docs/checkpoint.md is the manual.
//!
//! The cut, the files and the leader are those of the parameter server; what is here is a rank's part in them: the program
//! comes to rest (`desk`), lanes are drained by the gate of `engine::rank::hold`, regions are copied (`contents`, `member`),
//! and a new life gets them back (`world`, `restore`).

mod contents;
mod desk;
mod member;
mod restore;
mod world;

pub(super) use desk::Desk;
pub use desk::{Hooks, Section};
pub(super) use member::Member;
pub(super) use restore::{Saved, look};
pub(super) use world::{Entry, begin, join};

use super::core::{Core, closed};
use crate::checkpoint::cut::{Message, Request, State};
use crate::control::Peer;
use crate::engine::client::checkpoint::{CheckpointStatus, SECTION_NAME_BYTES_MAX};
use crate::engine::server::checkpoint::LEADER;
use crate::error::{Error, Result, Status};
use crate::fabric::Fabric;
use crate::sync::{Arc, lock};
use crate::time::now;
use core::time::Duration;
use restore::SECTION_BYTES_MAX;

fn check(sections: &[Section]) -> Result<()> {
    for (at, (name, bytes)) in sections.iter().enumerate() {
        let twice = sections[..at].iter().any(|(other, _)| other == name);
        if twice || name.len() > SECTION_NAME_BYTES_MAX || bytes.len() as u64 > SECTION_BYTES_MAX {
            let message = format!(
                "section '{name}' of {} bytes: at most {SECTION_BYTES_MAX} go, in a name of {SECTION_NAME_BYTES_MAX} that \
                 no other section has",
                bytes.len()
            );
            return Err(Error::new(Status::InvalidArgument, message));
        }
    }
    Ok(())
}

impl<F: Fabric> Core<F> {
    fn write_to_leader(&self, message: Message) -> Result<()> {
        if self.shared.settings.checkpoint_directory.is_empty() {
            let message = "this job has no checkpoint-directory: set the option on all ranks";
            return Err(Error::new(Status::WrongState, message));
        }
        self.letters().ok_or_else(closed)?.send(Peer::Server(LEADER), message);
        Ok(())
    }

    /// All ranks come to rest in this call, are copied, and go on: see [`Rank::checkpoint`](super::Rank::checkpoint).
    pub(super) fn checkpoint(&self, full: bool, sections: Vec<Section>, timeout: Duration) -> Result<u64> {
        check(&sections)?;
        let shared = &self.shared;
        let (deadline, number) = (now().after(timeout), shared.notes.begin());
        shared.desk.join(number, sections).inspect_err(|_| shared.notes.forget(number))?;
        let asked = self.write_to_leader(Message::Together(Request { number, full, section: None }));
        let copied = asked.and_then(|()| shared.notes.wait(number, State::Writing, deadline));
        if copied.is_err() {
            // The others wait for this rank no longer. Too late for one that holds it already, and then it is let go.
            let _ = self.write_to_leader(Message::Stop(number));
            // The caller does not learn the number.
            shared.notes.forget(number);
        }
        shared.desk.leave();
        copied.map(|_| number)
    }

    /// Asks for a checkpoint at a moment that the programs' hooks choose.
    pub(super) fn checkpoint_begin(&self, full: bool) -> Result<u64> {
        let number = self.shared.notes.begin();
        let asked = self.write_to_leader(Message::Ask(Request { number, full, section: None }));
        asked.inspect_err(|_| self.shared.notes.forget(number))?;
        Ok(number)
    }

    pub(super) fn set_hooks(&self, hooks: Option<Arc<dyn Hooks>>) {
        self.shared.desk.set_hooks(hooks);
    }

    pub(super) fn checkpoint_status(&self, number: u64) -> Result<CheckpointStatus> {
        self.shared.notes.get(number)
    }

    pub(super) fn checkpoint_wait(&self, number: u64, least: State, timeout: Duration) -> Result<CheckpointStatus> {
        self.shared.notes.wait(number, least, now().after(timeout))
    }

    pub(super) fn checkpoint_abort(&self, number: u64) -> Result<()> {
        self.shared.notes.get(number)?;
        self.write_to_leader(Message::Stop(number))
    }

    /// Epoch of the checkpoint that this rank started from; 0: none.
    pub(super) fn restored(&self) -> u64 {
        self.shared.restored
    }

    /// A section of the checkpoint that this rank started from.
    pub(super) fn section(&self, name: &str) -> Option<Vec<u8>> {
        lock(&self.shared.sections).iter().find(|(known, _)| known == name).map(|(_, bytes)| bytes.clone())
    }
}
