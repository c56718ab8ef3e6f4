//! Where a rank's program and its checkpoint thread meet: the program says that it rests, the thread takes its section.

use crate::error::{Error, Result, Status};
use crate::sync::{Arc, Condvar, Mutex, lock};
use core::time::Duration;

/// A named piece of the program's own state.
pub type Section = (String, Vec<u8>);

/// What a program does when a checkpoint is taken that it has not asked for at this moment. Called on the rank's
/// checkpoint thread, one at a time, in the order hold, sections, resume.
pub trait Hooks: Send + Sync {
    /// Brings the program to rest: from its return until [`Hooks::resume`] nothing of it touches its regions. Operations
    /// that are under way may end.
    ///
    /// # Errors
    /// Why it cannot within the time; the checkpoint is given up then.
    fn hold(&self, within: Duration) -> core::result::Result<(), String>;
    /// The program's own state, as it rests.
    fn sections(&self) -> Vec<Section>;
    /// The program goes on. `copied`: it is in the checkpoint, if that is committed.
    fn resume(&self, copied: bool);
}

/// The program waits in a call.
#[derive(Debug)]
struct Joined {
    number: u64,
    sections: Vec<Section>,
}

#[derive(Default)]
struct Inner {
    joined: Option<Joined>,
    /// A checkpoint holds the program: it must not leave its call before it is let go.
    engaged: bool,
    hooks: Option<Arc<dyn Hooks>>,
}

/// The meeting place. Threads: any.
#[derive(Default)]
pub(in crate::engine::rank) struct Desk {
    inner: Mutex<Inner>,
    changed: Condvar,
}

impl core::fmt::Debug for Desk {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.write_str("Desk")
    }
}

/// Why a program may be copied.
pub(super) enum Consent {
    /// It waits in the call of this number.
    Joined(u64),
    /// Its hooks hold it.
    Hooks(Arc<dyn Hooks>),
}

impl core::fmt::Debug for Consent {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        match self {
            Consent::Joined(number) => write!(f, "Joined({number})"),
            Consent::Hooks(_) => f.write_str("Hooks"),
        }
    }
}

impl Desk {
    pub(super) fn set_hooks(&self, hooks: Option<Arc<dyn Hooks>>) {
        lock(&self.inner).hooks = hooks;
    }

    /// The program comes to rest in a call.
    pub(super) fn join(&self, number: u64, sections: Vec<Section>) -> Result<()> {
        let mut inner = lock(&self.inner);
        if inner.joined.is_some() {
            return Err(Error::new(Status::Busy, "another thread of this rank is in a checkpoint already"));
        }
        inner.joined = Some(Joined { number, sections });
        Ok(())
    }

    /// The program leaves its call, as soon as no checkpoint holds it: the gate's deadlines bound that.
    pub(super) fn leave(&self) {
        let mut inner = lock(&self.inner);
        while inner.engaged {
            inner = self.changed.wait(inner).unwrap_or_else(std::sync::PoisonError::into_inner);
        }
        inner.joined = None;
    }

    /// A checkpoint begins: takes hold of a program that rests in its call. None: it does not; its hooks have to do.
    pub(super) fn engage(&self) -> Option<Consent> {
        let mut inner = lock(&self.inner);
        if let Some(joined) = &inner.joined {
            let number = joined.number;
            inner.engaged = true;
            return Some(Consent::Joined(number));
        }
        inner.hooks.clone().map(Consent::Hooks)
    }

    /// The sections that the program brought to its call.
    pub(super) fn take_sections(&self) -> Vec<Section> {
        lock(&self.inner).joined.as_mut().map(|joined| core::mem::take(&mut joined.sections)).unwrap_or_default()
    }

    /// The program may leave.
    pub(super) fn disengage(&self) {
        lock(&self.inner).engaged = false;
        self.changed.notify_all();
    }
}
