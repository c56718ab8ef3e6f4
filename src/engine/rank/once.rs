//! Atomics that the owner executes, exactly once: asking for them, and serving them.

use super::core::{Core, Shared};
use super::operate::pace;
use crate::error::{Error, Outcome, Result, Status};
use crate::fabric::{Fabric, Waker, sleep};
use crate::memory::{Asked, Asker, Look, Purpose, Stop};
use crate::rpc::Turn;
use crate::sync::{Arc, Ordering, lock};
use crate::thread::start;
use crate::time::{Tick, now};
use crate::wire::region::AtomicRequest;
use core::time::Duration;

/// Longest sleep of the serving thread; it is rung before.
const NAP: Duration = Duration::from_millis(100);

impl<F: Fabric> Core<F> {
    /// Fetch-add (1) or compare-swap (2) by the region's owner. The old value.
    pub(super) fn atomic(&self, peer: u32, request: AtomicRequest) -> Result<u64> {
        let (shared, other) = (&self.shared, self.other(peer)?);
        let deadline = now().after(self.timeout());
        let asker = match other.asker.get() {
            Some(asker) => asker,
            None => {
                let made = Asker::new(&shared.fabric)?;
                other.asker.get_or_init(|| made)
            }
        };
        let mut waiting = pace(shared, self.timeout());
        let asked = loop {
            if let Some(asked) = asker.begin(&shared.gate, request) {
                break asked;
            }
            shared.gate.wait(deadline)?;
            if waiting.turn() == Turn::Expired {
                return Err(Error::new(
                    Status::NoSlot,
                    format!("rank {peer}, region {}: all cells for atomics are taken", request.region),
                ));
            }
        };
        let outcome = self.ask_until(peer, asker, asked, deadline);
        if outcome.as_ref().is_err_and(|error| error.outcome == Outcome::Unknown) {
            // Before the cell is used again: the next connection has fresh cells, and ends this one first.
            other.cells.cut("a request for an atomic was given up", false);
        }
        asker.end(asked);
        outcome.map_err(|mut error| {
            let rest = error.message.strip_prefix(&format!("rank {peer}: ")).unwrap_or(&error.message).to_owned();
            error.message = format!("rank {peer}, region {}: {rest}", request.region);
            error.at_shard(peer)
        })
    }

    /// Sends the request, again over each new connection, until it is answered.
    fn ask_until(&self, peer: u32, asker: &Asker<F>, asked: Asked, deadline: Tick) -> Result<u64> {
        let (shared, other, control) = (&self.shared, self.other(peer)?, self.control()?);
        let mut sent_to = None;
        let mut waiting = pace(shared, deadline.remaining());
        let unknown = |mut error: Box<Error>, sent: bool| {
            error.outcome = if sent { Outcome::Unknown } else { Outcome::NotExecuted };
            error
        };
        let mut send = true;
        loop {
            let (both, one) = (asker.send(asked), [asker.read(asked)]);
            let operations: &[_] = if send { &both } else { &one };
            // SAFETY: the operations name the desk alone, which lives as long as the rank.
            let posted = unsafe { other.cells.post(&shared.open, operations, |_, _| Some(asker.key())) };
            match posted {
                Ok(sequence) => {
                    if send {
                        sent_to = other.incarnation();
                    }
                    send = !self.arrived_whole(peer, sequence, deadline)?;
                    if let Some(answer) = asker.answer(asked).filter(|_| !send) {
                        return answer;
                    }
                }
                Err(Stop::Unconnected) => {
                    let connected = shared.connect(&control, other, Purpose::Atomics, deadline);
                    connected.map_err(|error| unknown(error, sent_to.is_some()))?;
                    send = true;
                    if sent_to.is_some() && sent_to != other.incarnation() {
                        let why = format!("rank {peer}: its process was replaced before it answered");
                        return Err(unknown(Error::new(Status::ShardUnreachable, why), true));
                    }
                }
                Err(Stop::Refused(error)) => return Err(unknown(error, sent_to.is_some())),
                Err(_) => drop(other.cells.facts()),
            }
            if waiting.turn() == Turn::Expired {
                let why = format!("rank {peer}: no answer to an atomic within the time");
                return Err(unknown(Error::new(Status::WaitTimeout, why), sent_to.is_some()));
            }
        }
    }

    /// Waits for the read. False: its connection failed, and all is to be sent again.
    fn arrived_whole(&self, peer: u32, sequence: u64, deadline: Tick) -> Result<bool> {
        let other = self.other(peer)?;
        let mut waiting = pace(&self.shared, deadline.remaining());
        loop {
            match other.cells.look(sequence) {
                Look::Done => return Ok(true),
                Look::Failed(_) => return Ok(false),
                Look::UnderWay if waiting.turn() == Turn::Expired => return Ok(false),
                Look::UnderWay => {}
            }
        }
    }
}

impl<F: Fabric> Shared<F> {
    /// Starts the thread that executes atomics for peers, with the first of them.
    pub(super) fn start_serving(self: &Arc<Self>) -> Result<()> {
        let mut server = lock(&self.server);
        if server.is_none() {
            let waker = lock(&self.waker).clone();
            let waker = waker.ok_or_else(|| Error::new(Status::WrongState, "this rank is suspended"))?;
            let shared = Arc::clone(self);
            *server = Some(start("reclane-atomics", move || serve(&shared, &*waker))?);
        }
        Ok(())
    }

    fn round(&self) -> usize {
        let mailboxes = lock(&self.mailboxes);
        mailboxes.iter().map(|mailbox| lock(mailbox).serve(&self.home, &self.dedupe)).sum()
    }
}

/// Executes what peers ask for until the rank closes.
fn serve<F: Fabric>(shared: &Arc<Shared<F>>, waker: &F::Waker) {
    let mut idle = 0_u32;
    let (spins, yields) = (shared.settings.poll_spin_iterations, shared.settings.poll_yield_iterations);
    let ends = || shared.ended.load(Ordering::Relaxed) || shared.rest.load(Ordering::Relaxed);
    while !ends() {
        let served = shared.round();
        if served > 0 {
            shared.served.fetch_add(served as u64, Ordering::Relaxed);
            idle = 0;
            continue;
        }
        idle = idle.saturating_add(1);
        if idle <= spins {
            core::hint::spin_loop();
        } else if idle <= spins.saturating_add(yields) {
            std::thread::yield_now();
        } else {
            waker.arm();
            let mut served = shared.round();
            if served == 0 && !ends() {
                sleep(waker, NAP, || {
                    served = shared.round();
                    served > 0 || ends()
                });
            }
            shared.served.fetch_add(served as u64, Ordering::Relaxed);
            waker.disarm();
            idle = spins;
        }
    }
}
