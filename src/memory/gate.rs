//! The gate at the posting path: while it is closed nothing new is posted.
//!
//! Whoever posts holds a lane's lock and looks at the gate once inside. Whoever closes it sets the flag and then takes
//! and leaves each lane's lock: after that every post either was there before, and is in that lane's account, or has seen
//! the flag. So an open gate costs a load of a line that nobody writes. A hold has a deadline: when its holder is gone,
//! the first one that waits beyond it opens the gate again.

use crate::error::{Error, Result, Status};
use crate::sync::{AtomicBool, Condvar, Mutex, Ordering, lock};
use crate::time::{Tick, now};

/// Which closing of the gate: the key to open it with.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct HoldId(u64);

impl HoldId {
    /// As a number, for who keeps it outside.
    #[must_use]
    pub fn number(self) -> u64 {
        self.0
    }

    /// Of such a number.
    #[must_use]
    pub fn from_number(number: u64) -> HoldId {
        HoldId(number)
    }
}

#[derive(Debug, Default)]
struct Holder {
    /// Counts closings.
    count: u64,
    /// When the present one lapses; none when open.
    until: Option<Tick>,
}

/// One gate of a rank.
#[derive(Debug, Default)]
pub struct Gate {
    closed: AtomicBool,
    holder: Mutex<Holder>,
    opened: Condvar,
}

impl Gate {
    /// Whether nothing may be posted. To be asked under a lane's lock.
    #[inline]
    pub fn is_closed(&self) -> bool {
        // Relaxed: the lane's lock, which the closer takes after its store, orders it.
        self.closed.load(Ordering::Relaxed)
    }

    /// Closes it until [`Gate::open`], at the longest until `until`.
    ///
    /// # Errors
    /// `Busy` when it is closed already.
    pub fn close(&self, until: Tick) -> Result<HoldId> {
        let mut holder = lock(&self.holder);
        if holder.until.is_some_and(|lapses| lapses > now()) {
            return Err(Error::new(Status::Busy, "the gate is closed already: another hold is under way"));
        }
        holder.count += 1;
        holder.until = Some(until);
        self.closed.store(true, Ordering::Relaxed);
        Ok(HoldId(holder.count))
    }

    /// Opens it, if this hold still has it. True: nothing was posted since the close.
    pub fn open(&self, id: HoldId) -> bool {
        let mut holder = lock(&self.holder);
        let ours = holder.count == id.0 && holder.until.is_some();
        if ours {
            self.release(&mut holder);
        }
        ours
    }

    /// Whether this hold has it still.
    #[must_use]
    pub fn holds(&self, id: HoldId) -> bool {
        let holder = lock(&self.holder);
        holder.count == id.0 && holder.until.is_some()
    }

    fn release(&self, holder: &mut Holder) {
        holder.until = None;
        self.closed.store(false, Ordering::Relaxed);
        self.opened.notify_all();
    }

    /// Waits until it is open; a hold that has lapsed is ended here.
    ///
    /// # Errors
    /// `Busy` when it is closed still at `deadline`: nothing was posted.
    pub fn wait(&self, deadline: Tick) -> Result<()> {
        let mut holder = lock(&self.holder);
        while let Some(lapses) = holder.until {
            let at = now();
            if lapses <= at {
                self.release(&mut holder);
                return Ok(());
            }
            if deadline <= at {
                return Err(Error::new(Status::Busy, "the gate is closed: a checkpoint holds this rank; try again"));
            }
            let left = lapses.min(deadline).remaining();
            holder = self.opened.wait_timeout(holder, left).unwrap_or_else(std::sync::PoisonError::into_inner).0;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use core::time::Duration;

    const LONG: Duration = Duration::from_secs(60);

    #[test]
    fn a_closed_gate_lets_nobody_by_until_its_own_key_opens_it() {
        let gate = Gate::default();
        assert!(!gate.is_closed() && gate.wait(now()).is_ok());
        let id = gate.close(now().after(LONG)).expect("close");
        assert!(gate.is_closed() && gate.holds(id));
        assert_eq!(gate.close(now().after(LONG)).map(|_| ()).unwrap_err().status, Status::Busy);
        assert_eq!(gate.wait(now()).unwrap_err().status, Status::Busy);
        std::thread::scope(|scope| {
            let waiter = scope.spawn(|| gate.wait(now().after(LONG)));
            assert!(gate.open(id) && !gate.open(id));
            assert!(waiter.join().expect("a waiter").is_ok());
        });
        let next = gate.close(now().after(LONG)).expect("close");
        assert!(!gate.open(id) && gate.is_closed() && gate.open(next));
    }

    #[test]
    fn a_hold_whose_holder_is_gone_lapses() {
        let gate = Gate::default();
        let id = gate.close(now()).expect("close");
        assert!(gate.is_closed());
        assert!(gate.wait(now().after(LONG)).is_ok());
        assert!(!gate.is_closed() && !gate.holds(id) && !gate.open(id));
    }
}
