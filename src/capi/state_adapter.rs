//! The callbacks of a [`reclane_state`] as the engine's [`HostState`].

use core::ffi::{c_int, c_void};

use super::callback::Inside;
use super::state::reclane_state;
use super::structs;
use crate::engine::{HostState, Piece};
use crate::error::{Error, Result, Status};

/// State of the host, behind its callbacks.
#[derive(Debug)]
pub(super) struct CallbackState(reclane_state);

// SAFETY: the header says that the callbacks run on a thread of the server, with `user_data` as it is.
unsafe impl Send for CallbackState {}
// SAFETY: as above; they are called one at a time.
unsafe impl Sync for CallbackState {}

fn answer(name: &str, code: c_int) -> Result<()> {
    if code == 0 {
        return Ok(());
    }
    Err(Error::new(Status::InternalError, format!("reclane_state.{name} answered {code}")))
}

impl CallbackState {
    /// Checks and copies the host's struct.
    ///
    /// # Safety
    /// `from` is NULL or points to as many readable bytes as its `struct_size` says, and what it names lives until the
    /// server is closed.
    pub(super) unsafe fn from_c(from: *const reclane_state) -> Result<CallbackState> {
        // SAFETY: the caller's word.
        let state = unsafe { structs::read(from) }?;
        if state.reserved != 0 {
            return Err(Error::new(Status::InvalidArgument, "reclane_state.reserved must be 0"));
        }
        let set = [
            ("freeze", state.freeze.is_some()),
            ("save", state.save.is_some()),
            ("release", state.release.is_some()),
            ("load", state.load.is_some()),
        ];
        match set.iter().find(|(_, set)| !set) {
            Some((name, _)) => {
                Err(Error::new(Status::NullPointer, format!("reclane_state.{name} is required but NULL")))
            }
            None => Ok(CallbackState(state)),
        }
    }
}

fn missing() -> Box<Error> {
    Error::new(Status::Bug, "a callback of reclane_state that was checked is NULL")
}

impl HostState for CallbackState {
    fn freeze(&self, epoch: u64) -> Result<u64> {
        let freeze = self.0.freeze.ok_or_else(missing)?;
        let mut bytes = 0;
        let _inside = Inside::enter();
        // SAFETY: the host's function with its own data; `bytes` lives during the call.
        answer("freeze", unsafe { freeze(self.0.user_data, epoch, &raw mut bytes) })?;
        Ok(bytes)
    }

    fn save(&self, offset: u64, out: &mut [u8]) -> Result<()> {
        let save = self.0.save.ok_or_else(missing)?;
        let _inside = Inside::enter();
        // SAFETY: the host's function with its own data; the buffer is as long as said.
        answer("save", unsafe { save(self.0.user_data, offset, out.as_mut_ptr().cast::<c_void>(), out.len()) })
    }

    fn release(&self, epoch: u64, committed: bool) {
        if let Some(release) = self.0.release {
            let _inside = Inside::enter();
            // SAFETY: the host's function with its own data.
            unsafe { release(self.0.user_data, epoch, c_int::from(committed)) };
        }
    }

    fn load(&self, piece: &Piece<'_>) -> Result<()> {
        let load = self.0.load.ok_or_else(missing)?;
        let Piece { shard, shards, total, offset, bytes } = *piece;
        let _inside = Inside::enter();
        let from = bytes.as_ptr().cast::<c_void>();
        // SAFETY: the host's function with its own data; the buffer is as long as said.
        answer("load", unsafe { load(self.0.user_data, shard, shards, total, offset, from, bytes.len()) })
    }
}
