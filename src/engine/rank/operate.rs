//! Operations: posted, waited for, made again where that is certain to be right.

use super::board::Other;
use super::core::{Core, Shared};
use crate::error::{Error, Outcome, Result, Status};
use crate::fabric::Fabric;
use crate::memory::{CELLS_REGION, Entry, Gate, Kind, Known, Look, Operation, Purpose, Stop, was_refused};
use crate::rpc::{Pace, PacePolicy, Turn};
use crate::time::{Tick, now};
use core::time::Duration;

/// Bits of a ticket that count a lane's operations; the rank is above them.
const SEQUENCE_BITS: u32 = 48;
/// How long evidence about an operation whose fate is unknown is looked for.
const EVIDENCE_TIMEOUT: Duration = Duration::from_secs(5);

/// Which operations: a peer, and the number of the last one.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Ticket(pub u64);

impl Ticket {
    fn new(peer: u32, sequence: u64) -> Ticket {
        Ticket((u64::from(peer) + 1) << SEQUENCE_BITS | sequence)
    }

    fn parts(self) -> (u64, u64) {
        ((self.0 >> SEQUENCE_BITS).wrapping_sub(1), self.0 & ((1 << SEQUENCE_BITS) - 1))
    }
}

/// How waiters of this rank spend their time.
pub(super) fn pace<F: Fabric>(shared: &Shared<F>, timeout: Duration) -> Pace {
    let s = &shared.settings;
    let policy = PacePolicy {
        spins: s.wait_spin_iterations,
        yields: if s.wait_sleep_us == 0 { u32::MAX } else { s.wait_yield_iterations },
        sleep: Duration::from_micros(u64::from(s.wait_sleep_us)),
    };
    Pace::new(policy, timeout)
}

fn late(peer: u32, what: &str, outcome: Outcome) -> Box<Error> {
    let mut error = Error::new(Status::WaitTimeout, format!("rank {peer}: {what} within the time")).at_shard(peer);
    error.outcome = outcome;
    error
}

fn region_named(mut error: Box<Error>, peer: u32, region: u32) -> Box<Error> {
    if region != CELLS_REGION {
        let rest = error.message.strip_prefix(&format!("rank {peer}: ")).unwrap_or(&error.message).to_owned();
        error.message = format!("rank {peer}, region {region}: {rest}");
    }
    error
}

impl<F: Fabric> Shared<F> {
    /// The local key of memory that operations name.
    pub(super) fn key_of(&self, piece: *const u8, bytes: usize) -> Option<u32> {
        if self.load_store { Some(0) } else { self.home.key_of(piece, bytes) }
    }

    /// Waits until an operation is settled.
    pub(super) fn settle(&self, other: &Other<F>, sequence: u64, timeout: Duration) -> Result<()> {
        match other.data.look(sequence) {
            Look::Done => Ok(()),
            Look::Failed(error) => Err(error),
            Look::UnderWay => self.settle_slowly(other, sequence, timeout),
        }
    }

    fn settle_slowly(&self, other: &Other<F>, sequence: u64, timeout: Duration) -> Result<()> {
        let mut waiting = pace(self, timeout);
        loop {
            if waiting.turn() == Turn::Expired {
                return Err(late(other.number, "an operation did not complete", Outcome::Unknown));
            }
            match other.data.look(sequence) {
                Look::Done => return Ok(()),
                Look::Failed(error) => return Err(error),
                Look::UnderWay => {}
            }
        }
    }

    pub(super) fn flush_by(&self, other: &Other<F>, gate: &Gate, deadline: Tick) -> Result<()> {
        let (last, untold) = other.data.last();
        if let Some(error) = untold {
            return Err(error);
        }
        if last == 0 {
            return Ok(());
        }
        let mut target = last;
        if !self.load_store && other.data.is_connected() {
            // A read that follows the writes shows them, on the fabric's own terms.
            loop {
                match other.data.post_flush(gate) {
                    Ok(sequence) => {
                        target = sequence;
                        break;
                    }
                    Err(Stop::Closed) => gate.wait(deadline)?,
                    Err(Stop::Full) => drop(other.data.facts()),
                    Err(_) => break,
                }
            }
        }
        let settled = self.settle(other, target, deadline.remaining());
        let (_, untold) = other.data.last();
        untold.map_or(settled, Err)
    }
}

impl<F: Fabric> Core<F> {
    pub(super) fn other(&self, peer: u32) -> Result<&Other<F>> {
        self.shared.others.get(peer as usize).ok_or_else(|| {
            let ranks = self.shared.others.len();
            Error::new(Status::InvalidArgument, format!("there is no rank {peer}; this world has {ranks} ranks"))
        })
    }

    pub(super) fn timeout(&self) -> Duration {
        Duration::from_millis(self.shared.settings.wait_timeout_ms)
    }

    /// Posts, connecting the lane first where needed.
    ///
    /// # Safety
    /// What the operations name here stays valid until they are settled.
    #[inline]
    pub(super) unsafe fn post(&self, other: &Other<F>, operations: &[Operation], timeout: Duration) -> Result<u64> {
        let shared = &self.shared;
        // SAFETY: the caller's promise.
        let posted = unsafe { other.data.post(&shared.gate, operations, |piece, bytes| shared.key_of(piece, bytes)) };
        match posted {
            Ok(sequence) => Ok(sequence),
            // SAFETY: the caller's promise.
            Err(stop) => unsafe { self.post_slowly(other, operations, timeout, stop) },
        }
    }

    /// # Safety
    /// As [`Core::post`].
    #[cold]
    unsafe fn post_slowly(
        &self,
        other: &Other<F>,
        operations: &[Operation],
        timeout: Duration,
        mut stop: Stop,
    ) -> Result<u64> {
        let shared = &self.shared;
        let region = operations.first().map_or(CELLS_REGION, |operation| operation.region);
        if operations.len() > shared.places / 2 {
            let most = shared.places / 2;
            let why = format!(
                "{} operations in one batch; at most {most}, half of the places of the send queue (max-send-wr)",
                operations.len()
            );
            return Err(Error::new(Status::InvalidArgument, why));
        }
        let (control, deadline) = (self.control()?, now().after(timeout));
        let mut waiting = pace(shared, timeout);
        let mut refreshed = false;
        loop {
            match stop {
                Stop::Closed => shared.gate.wait(deadline)?,
                Stop::Unconnected => {
                    let connected = shared.connect(&control, other, Purpose::Data, deadline);
                    connected.map_err(|error| region_named(error, other.number, region))?;
                }
                Stop::Full => {
                    other.data.facts();
                    if waiting.turn() == Turn::Expired {
                        return Err(late(other.number, "no place of the send queue became free", Outcome::NotExecuted));
                    }
                }
                Stop::NoRegion(region) if refreshed => return Err(no_region(other.number, region)),
                Stop::NoRegion(_) => {
                    refreshed = true;
                    shared.refresh(&control, other, deadline.remaining())?;
                }
                Stop::Refused(error) => return Err(error),
            }
            // SAFETY: the caller's promise.
            let posted =
                unsafe { other.data.post(&shared.gate, operations, |piece, bytes| shared.key_of(piece, bytes)) };
            match posted {
                Ok(sequence) => return Ok(sequence),
                Err(next) => stop = next,
            }
        }
    }

    /// One operation, from post to settled.
    ///
    /// # Safety
    /// What it names here is valid during the call.
    pub(super) unsafe fn run(&self, peer: u32, operation: &Operation) -> Result<()> {
        let (other, timeout) = (self.other(peer)?, self.timeout());
        let mut again = true;
        loop {
            // SAFETY: the caller's promise; a call that does not see the operation settled ends its connection first.
            let sequence = unsafe { self.post(other, core::slice::from_ref(operation), timeout) }?;
            let Err(error) = self.shared.settle(other, sequence, timeout) else { return Ok(()) };
            if error.status == Status::WaitTimeout {
                other.data.cut("an operation did not complete in time", false);
                return Err(region_named(error, peer, operation.region));
            }
            if !again || error.status == Status::ShardUnreachable {
                return Err(error);
            }
            again = false;
            let used = other.data.entry_used(sequence);
            match self.verdict(other, operation, sequence, used, error) {
                Fate::Done => return Ok(()),
                Fate::Again => {}
                Fate::Failed(error) => return Err(error),
            }
        }
    }

    /// What becomes of an operation whose connection failed.
    fn verdict(
        &self,
        other: &Other<F>,
        operation: &Operation,
        sequence: u64,
        used: Option<u32>,
        error: Box<Error>,
    ) -> Fate {
        let Ok(control) = self.control() else { return Fate::Failed(error) };
        let deadline = now().after(EVIDENCE_TIMEOUT.min(self.timeout()));
        // The new connection brings the peer's evidence, and its table.
        if self.shared.connect(&control, other, Purpose::Data, deadline).is_err() {
            return Fate::Failed(error);
        }
        if was_refused(&error) {
            // Once: its owner may have registered the region anew. The same key is never tried twice.
            let _ = self.shared.refresh(&control, other, deadline.remaining());
            let known: Option<Entry> = other.data.region(operation.region);
            return match known {
                Some(entry) if Some(entry.n) != used => Fate::Again,
                Some(_) => Fate::Failed(error),
                None => Fate::Failed(no_region(other.number, operation.region)),
            };
        }
        match other.data.known(sequence) {
            Some(Known::Done) => Fate::Done,
            Some(Known::NotDone) if operation.kind == Kind::Read => Fate::Again,
            _ => match other.data.look(sequence) {
                Look::Failed(better) => Fate::Failed(better),
                Look::Done => Fate::Done,
                Look::UnderWay => Fate::Failed(error),
            },
        }
    }

    /// Posts a batch without waiting for it.
    ///
    /// # Safety
    /// What the operations name here stays valid until they are settled.
    pub(super) unsafe fn batch(&self, peer: u32, operations: &[Operation]) -> Result<Ticket> {
        let other = self.other(peer)?;
        if operations.is_empty() {
            return Err(Error::new(Status::InvalidArgument, "a batch without an operation"));
        }
        // SAFETY: the caller's promise.
        let sequence = unsafe { self.post(other, operations, self.timeout()) }?;
        Ok(Ticket::new(peer, sequence))
    }

    fn of(&self, ticket: Ticket) -> Result<(&Other<F>, u64)> {
        let (peer, sequence) = ticket.parts();
        let other = usize::try_from(peer).ok().and_then(|peer| self.shared.others.get(peer));
        match other {
            Some(other) if sequence != 0 => Ok((other, sequence)),
            _ => Err(Error::new(Status::StaleToken, format!("{:#x} is no ticket of this rank", ticket.0))),
        }
    }

    pub(super) fn wait(&self, ticket: Ticket, timeout: Duration) -> Result<()> {
        let (other, sequence) = self.of(ticket)?;
        self.shared.settle(other, sequence, timeout)
    }

    /// What is known of the `count` operations that end with the ticket's.
    pub(super) fn outcomes(&self, ticket: Ticket, out: &mut [Known]) -> Result<()> {
        let (other, last) = self.of(ticket)?;
        let count = out.len() as u64;
        other.data.facts();
        for (index, place) in (1..).zip(out) {
            let sequence = (last + index).checked_sub(count).filter(|sequence| *sequence != 0);
            let known = sequence.and_then(|sequence| other.data.known(sequence));
            *place = known.ok_or_else(|| {
                Error::new(Status::StaleToken, format!("rank {}: that is too long ago", other.number))
            })?;
        }
        Ok(())
    }

    /// Everything posted to a peer so far is settled and visible in its memory. Tells a failure that nobody was told of.
    pub(super) fn flush(&self, peer: u32, timeout: Duration) -> Result<()> {
        let other = self.other(peer)?;
        self.shared.flush_by(other, &self.shared.gate, now().after(timeout))
    }

    /// Waits until a peer has told of a region. Its length and rights.
    pub(super) fn find(&self, peer: u32, region: u32, timeout: Duration) -> Result<Entry> {
        let other = self.other(peer)?;
        let (control, deadline) = (self.control()?, now().after(timeout));
        let mut waiting = pace(&self.shared, timeout);
        loop {
            if !other.data.is_connected() {
                let connected = self.shared.connect(&control, other, Purpose::Data, deadline);
                connected.map_err(|error| region_named(error, peer, region))?;
            }
            if let Some(entry) = other.data.region(region) {
                return Ok(entry);
            }
            if waiting.turn() == Turn::Expired {
                return Err(no_region(peer, region));
            }
        }
    }
}

enum Fate {
    Done,
    Again,
    Failed(Box<Error>),
}

#[cold]
fn no_region(peer: u32, region: u32) -> Box<Error> {
    let why = format!("rank {peer} has no region {region} open");
    Error::new(Status::InvalidArgument, why).at_shard(peer)
}
