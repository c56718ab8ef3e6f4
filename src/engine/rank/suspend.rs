//! Suspend and resume: a rank gives everything of the device back and keeps its memory where it is, so that a tool that
//! cannot deal with devices may act on the process; then it takes everything again.

use super::core::{Core, GUEST_CQ_DEPTH, Shared};
use crate::error::{Error, Result, Status};
use crate::fabric::{Fabric, Waker};
use crate::memory::HoldId;
use crate::sync::{Ordering, lock};
use crate::time::{Tick, now, pause};
use core::time::Duration;

/// Longer than anybody suspends a job: the gate does not lapse meanwhile.
const FOR_GOOD: Duration = Duration::from_secs(10 * 365 * 24 * 3600);
/// Between two looks whether lanes are still being let in.
const LOOK: Duration = Duration::from_millis(1);

fn state(message: &str) -> Box<Error> {
    Error::new(Status::WrongState, message)
}

impl<F: Fabric> Shared<F> {
    /// Refuses what needs the device while it was given back.
    pub(super) fn check_awake(&self) -> Result<()> {
        // Relaxed: whoever connects holds a lock that the suspending thread takes after its store.
        if self.asleep.load(Ordering::Relaxed) {
            return Err(state("this rank is suspended; resume it first"));
        }
        Ok(())
    }

    /// Ends all lanes, and what serves them.
    fn give_lanes_back(&self, deadline: Tick) -> Result<()> {
        for other in &self.others {
            // With the lock: who is connecting has come to its end, and others find that this rank is asleep.
            drop(lock(&other.connecting));
            while other.words().working {
                if deadline <= now() {
                    let message = format!("rank {}: its lane is still being let in", other.number);
                    return Err(Error::new(Status::WaitTimeout, message).at_shard(other.number));
                }
                pause(LOOK);
            }
        }
        for other in &self.others {
            other.data.cut("this rank was suspended", false);
            other.cells.cut("this rank was suspended", false);
            self.dismiss(other.number, None);
        }
        self.stop_serving();
        *lock(&self.waker) = None;
        *lock(&self.guest_cq) = None;
        Ok(())
    }

    fn stop_serving(&self) {
        let server = lock(&self.server).take();
        if let Some(server) = server {
            self.rest.store(true, Ordering::Relaxed);
            let waker = lock(&self.waker).clone();
            waker.iter().for_each(|waker| waker.notify());
            // A panic of the thread was reported by its own hook; there is nothing left to save here.
            let _ = server.join();
            self.rest.store(false, Ordering::Relaxed);
        }
    }

    /// Takes the device again. What was there already stays: after a failure it can be tried once more.
    fn take_device(&self) -> Result<()> {
        self.fabric.resume()?;
        if lock(&self.guest_cq).is_none() {
            *lock(&self.guest_cq) = Some(self.fabric.create_cq(GUEST_CQ_DEPTH)?);
        }
        if lock(&self.waker).is_none() {
            *lock(&self.waker) = Some(self.fabric.create_waker()?);
        }
        for asker in self.others.iter().filter_map(|other| other.asker.get()) {
            asker.resume()?;
        }
        self.home.resume()
    }

    fn give_device(&self) -> Result<()> {
        for asker in self.others.iter().filter_map(|other| other.asker.get()) {
            asker.suspend()?;
        }
        self.home.suspend()?;
        self.fabric.suspend()
    }
}

impl<F: Fabric> Core<F> {
    /// All ranks hold; then each gives its lanes, registrations and the fabric itself back. On failure it is awake.
    pub(super) fn suspend(&self, timeout: Duration) -> Result<()> {
        if !F::SUSPENDS {
            let message = format!("fabric={} cannot be suspended; fabric=shm can", F::NAME);
            return Err(Error::new(Status::Unsupported, message));
        }
        let (shared, deadline) = (&self.shared, now().after(timeout));
        let mut held = lock(&shared.slept);
        if held.is_some() {
            return Err(state("this rank is suspended already"));
        }
        let id = shared.hold(timeout, FOR_GOOD)?;
        let slept = self.barrier("reclane: suspend", deadline.remaining()).and_then(|()| {
            shared.asleep.store(true, Ordering::Relaxed);
            shared.give_lanes_back(deadline)?;
            shared.give_device()
        });
        match slept {
            Ok(()) => {
                *held = Some(id);
                Ok(())
            }
            Err(error) => {
                if shared.take_device().is_err() {
                    // Neither one nor the other: it can be resumed.
                    *held = Some(id);
                    return Err(error);
                }
                // Peers that cannot be told find out with their next operation.
                let _ = self.wake(id);
                Err(error)
            }
        }
    }

    /// Lets operations go on, and tells peers of the new keys.
    fn wake(&self, id: HoldId) -> Result<()> {
        let shared = &self.shared;
        shared.asleep.store(false, Ordering::Relaxed);
        let told = self.control().and_then(|control| shared.publish_regions(&control, self.timeout()));
        shared.gate.open(id);
        told
    }

    /// Takes the device again; operations go on when all ranks have.
    pub(super) fn resume(&self, timeout: Duration) -> Result<()> {
        let shared = &self.shared;
        let mut held = lock(&shared.slept);
        let Some(id) = *held else { return Err(state("this rank is not suspended")) };
        shared.take_device()?;
        // Who is let in from here on gets new addresses and keys; who still sleeps is waited for.
        shared.asleep.store(false, Ordering::Relaxed);
        self.barrier("reclane: resume", timeout)?;
        *held = None;
        self.wake(id)
    }
}
