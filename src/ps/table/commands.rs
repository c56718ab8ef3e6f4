//! CLEAR, SAVE, LOAD and pins: what touches the store as a whole.

use super::locks::{Alone, Gate, Stripes, relax};
use super::one::ABSENT;
use super::{BuiltinStore, persist};
use crate::error::{Error, Result, Status};
use crate::ids::TableTag;
use crate::ps::store::RowRef;
use crate::time;
use crate::wire::RpcStatus;
use crate::wire::payload::Command;
use core::time::Duration;

/// Longest a command waits for pins of other workers.
const PIN_WAIT: Duration = Duration::from_secs(2);

impl BuiltinStore {
    /// Waits until no row is pinned and nobody else is inside, and keeps it so.
    fn alone(&self, worker: u32) -> Result<Option<Alone<'_>>> {
        let deadline = time::now().after(PIN_WAIT);
        let mut turn = 0;
        loop {
            if self.pins.has(worker) {
                let message = format!("worker {worker} must take its own pins back before this command");
                return Err(Error::new(Status::WrongState, message).at_shard(self.options.shard));
            }
            self.pins.stop(true);
            while self.pins.any() {
                if time::now() > deadline {
                    self.pins.stop(false);
                    let message = format!("rows stayed pinned for {} s, nothing was changed", PIN_WAIT.as_secs());
                    return Err(Error::new(Status::Busy, message).at_shard(self.options.shard));
                }
                relax(&mut turn);
            }
            let alone = self.gate.as_ref().map(Gate::enter_alone);
            // Pins are taken inside the gate only: none now means none as long as we are alone.
            if !self.pins.any() {
                self.pins.stop(false);
                return Ok(alone);
            }
        }
    }

    /// Forgets all rows of all tables; tables stay, and memory is kept for rows to come.
    ///
    /// # Errors
    /// `Busy` when rows stayed pinned, `WrongState` when the caller itself has pins; nothing was changed then.
    pub fn clear(&self, worker: u32) -> Result<()> {
        let _alone = self.alone(worker)?;
        let _changing = self.shared.as_ref().map(|shared| shared.change_all());
        // SAFETY: everybody else is outside, or this is the only worker.
        unsafe { self.clear_tables() };
        Ok(())
    }

    /// # Safety
    /// Nobody else is in the store.
    unsafe fn clear_tables(&self) {
        for table in self.all_tables() {
            // SAFETY: the caller's promise.
            unsafe { table.clear() };
        }
    }

    /// Saves all tables, with specs, learning rates and optimizer state, as `name` below the checkpoint directory. The
    /// file appears when it is complete. Requests wait meanwhile.
    ///
    /// # Errors
    /// `Unsupported` without a checkpoint directory, `InvalidArgument` for a name that leads out of it, `OsError`.
    pub fn save(&self, name: &str) -> Result<()> {
        let path = persist::path_of(&self.options, name)?;
        let _alone = self.gate.as_ref().map(Gate::enter_alone);
        persist::save(self, &path)
    }

    /// Puts what was saved as `name` in the place of all rows; tables that the file has and the store has not are
    /// made, tables that only the store has become empty.
    ///
    /// # Errors
    /// As for [`BuiltinStore::save`] and [`BuiltinStore::clear`]; `InvalidArgument` for a damaged or foreign file, or one
    /// whose tables contradict those of this store. Nothing was changed then. Only when the file could be read once and
    /// not a second time, or memory ran out, is the store left empty, and the message says so.
    pub fn load(&self, worker: u32, name: &str) -> Result<()> {
        let path = persist::path_of(&self.options, name)?;
        let mut checked = persist::check(&self.options, &path)?;
        let _alone = self.alone(worker)?;
        persist::agreement(self, &checked)?;
        let _changing = self.shared.as_ref().map(|shared| shared.change_all());
        for head in checked.tables() {
            if self.meant(head.tag, &head.spec.name).is_none() {
                self.make_loaded(head.tag, &head.spec)?;
            }
        }
        // SAFETY: everybody else is outside, or this is the only worker.
        unsafe { self.clear_tables() };
        persist::fill(self, &mut checked).map_err(|mut error| {
            // SAFETY: as above.
            unsafe { self.clear_tables() };
            error.message.push_str("; the store is empty now");
            error
        })
    }

    pub(super) fn run_command(&self, worker: u32, command: &Command) -> Result<()> {
        match (command, &self.hook) {
            (Command::Clear, _) => self.clear(worker),
            (_, Some(hook)) => hook(self, command),
            (Command::Save(name), None) => self.save(name),
            (Command::Load(name), None) => self.load(worker, name),
        }
    }

    pub(super) fn pin_rows(
        &self,
        worker: u32,
        tag: TableTag,
        keys: &[u64],
        rows: &mut Vec<RowRef>,
    ) -> core::result::Result<u64, RpcStatus> {
        let table = self.table(tag)?;
        table.check_owner(keys)?;
        let _inside = self.enter(worker)?;
        let before = rows.len();
        let bytes = table.spec.dim * 4;
        let token = self.pins.take(worker, &self.stripes, |stripes| {
            for key in keys {
                let row = table.find(*key).unwrap_or(ABSENT);
                if row == ABSENT {
                    rows.push(RowRef { address: core::ptr::null(), bytes, lkey: 0 });
                } else {
                    let address = table.rows.address(row).cast_const();
                    rows.push(RowRef { address, bytes, lkey: table.rows.lkey(row) });
                    stripes.push(Stripes::index_of(address));
                }
            }
        });
        token.ok_or_else(|| {
            rows.truncate(before);
            RpcStatus::InternalError
        })
    }
}
