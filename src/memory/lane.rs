//! The posting side of a lane to one peer: checks, log, gate, post, completions.
//!
//! A lane lives as long as its rank; its [`Line`] is one connection of it. What is posted is numbered over all lines, so
//! that what the peer's evidence says of a former line can be applied after it is gone. Nothing here waits.

use super::explain::{Failure, not_posted, refusal, right, unregistered};
use super::gate::Gate;
use super::log::{Judgement, Kind, Known, Log, Record, Tally, judge};
use super::names::Entry;
use super::view::{PageOfPeer, View};
use crate::error::{Error, Outcome, Result, Status};
use crate::fabric::{
    Completion, Cq, Fabric, PostError, Qp, QpState, Region, RegionAddress, RemoteAddr, Sge, WcStatus, Work, WorkOp,
};
use crate::sync::{Arc, AtomicU64, Mutex, MutexGuard, Ordering, lock};
use std::collections::VecDeque;

/// Names the memory of the connection itself instead of a region: the place for marks, or the cells.
pub const CELLS_REGION: u32 = u32::MAX;
/// Longest single operation.
pub const OPERATION_BYTES_MAX: u32 = 1 << 30;
/// Bytes beside each place of the log: an atomic's old value, and what a mark is sent from.
pub const SCRATCH_STRIDE: usize = 16;
/// Operations of one chain.
const CHAIN: usize = 16;
/// Failures that are kept for those who ask later.
const FAILURES_MAX: usize = 32;
/// A completion with this bit is a mark's.
const MARK: u64 = 1 << 63;

/// One operation.
#[derive(Clone, Copy, Debug)]
pub struct Operation {
    /// What it does.
    pub kind: Kind,
    /// The peer's region, or [`CELLS_REGION`].
    pub region: u32,
    /// Byte offset in it.
    pub offset: u64,
    /// Length; 8 for an atomic.
    pub bytes: u32,
    /// A write's source, a read's target, where an atomic's old value goes (or null).
    pub local: *mut u8,
    /// What is added, or compared with.
    pub operand: u64,
    /// What is stored if equal.
    pub swap: u64,
}

/// Why nothing was posted.
#[derive(Debug)]
pub enum Stop {
    /// The gate is closed.
    Closed,
    /// There is no connection (any more).
    Unconnected,
    /// As much as can be is under way.
    Full,
    /// The peer has told of no such region.
    NoRegion(u32),
    /// The operation cannot be.
    Refused(Box<Error>),
}

/// One connection.
#[derive(Debug)]
pub struct Line<F: Fabric> {
    /// The end that posts.
    pub qp: F::Qp,
    /// Its completions and nobody else's.
    pub cq: Arc<F::Cq>,
    /// Local memory, [`SCRATCH_STRIDE`] for each place of the log.
    pub scratch: F::Region,
    /// Which connection of the lane.
    pub generation: u32,
    /// The peer's memory of this connection.
    pub cells: RegionAddress,
    /// The peer's table, if it can be read with plain loads.
    pub page: Option<PageOfPeer>,
    /// Whether each chain is followed by a mark, the evidence that it was executed.
    pub marks: bool,
    /// Whether posting is doing, as where the fabric has load and store: what failed was not executed.
    pub synchronous: bool,
}

/// What is known of an operation.
#[derive(Debug)]
pub enum Look {
    /// It is under way.
    UnderWay,
    /// It is done.
    Done,
    /// It failed; the error's outcome says whether it took effect.
    Failed(Box<Error>),
}

#[derive(Debug)]
struct Inner<F: Fabric> {
    line: Option<Line<F>>,
    log: Log,
    view: View,
    failures: VecDeque<Failure>,
    /// Up to which operation failures may have been forgotten.
    failures_forgotten: u64,
    /// The peer ended the last connection, or the fabric knows that its process is gone.
    peer_ended: bool,
    /// A failure that nobody was told of yet.
    untold: bool,
}

/// What a lane has done.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct LaneFacts {
    /// The peer.
    pub peer: u32,
    /// Its present connection; 0 when there is none.
    pub generation: u32,
    /// Operations that were posted.
    pub posted: u64,
    /// Operations that are settled.
    pub retired: u64,
}

/// A lane to one peer. Threads: any.
#[derive(Debug)]
pub struct Lane<F: Fabric> {
    peer: u32,
    inner: Mutex<Inner<F>>,
}

/// A work request with the piece of memory that it names.
#[derive(Clone, Copy)]
struct Slip {
    sge: Sge,
    wr_id: u64,
    op: WorkOp,
    remote: RemoteAddr,
}

const NO_SLIP: Slip = Slip {
    sge: Sge { address: core::ptr::null(), bytes: 0, lkey: 0 },
    wr_id: 0,
    op: WorkOp::Write,
    remote: RemoteAddr { address: 0, rkey: 0 },
};

impl<F: Fabric> Lane<F> {
    /// A lane without a connection, whose log has this many places (a power of two).
    #[must_use]
    pub fn new(peer: u32, places: usize) -> Lane<F> {
        let inner = Inner {
            line: None,
            log: Log::new(places),
            view: View::default(),
            failures: VecDeque::new(),
            failures_forgotten: 0,
            peer_ended: false,
            untold: false,
        };
        Lane { peer, inner: Mutex::new(inner) }
    }

    fn lock(&self) -> MutexGuard<'_, Inner<F>> {
        lock(&self.inner)
    }

    /// Takes a new connection. `evidence`: up to which operation the peer knows that the former one was executed.
    pub fn attach(&self, line: Line<F>, evidence: u64) {
        let mut inner = self.lock();
        inner.log.proved(evidence);
        let former = inner.line.replace(line);
        drop(inner);
        drop(former);
    }

    /// The peer's regions are these.
    pub fn told(&self, regions: &[(u32, Entry)]) {
        self.lock().view.told(regions);
    }

    /// A peer's region as it is known here.
    pub fn region(&self, region: u32) -> Option<Entry> {
        let mut inner = self.lock();
        let page = inner.line.as_ref().and_then(|line| line.page).map(|page| page.0);
        inner.view.get(page, region)
    }

    /// Posts operations, all of them or none, in one chain as far as they fit one. The number of the last; they have
    /// successive ones.
    ///
    /// # Safety
    /// What the operations name here stays valid until they are settled.
    ///
    /// # Errors
    /// [`Stop`]; nothing was posted.
    #[inline]
    pub unsafe fn post(
        &self,
        gate: &Gate,
        operations: &[Operation],
        key_of: impl Fn(*const u8, usize) -> Option<u32>,
    ) -> core::result::Result<u64, Stop> {
        let mut inner = self.lock();
        if gate.is_closed() {
            return Err(Stop::Closed);
        }
        // SAFETY: the caller's promise.
        unsafe {
            match operations {
                [_] => inner.post::<2>(self.peer, operations, &key_of),
                _ => inner.post::<{ CHAIN + 1 }>(self.peer, operations, &key_of),
            }
        }
    }

    /// Looks for completions, then at this operation.
    pub fn look(&self, sequence: u64) -> Look {
        let mut inner = self.lock();
        inner.harvest();
        inner.look(self.peer, sequence)
    }

    /// What is known of an operation, for who asks afterwards; none when it is too long ago.
    pub fn known(&self, sequence: u64) -> Option<Known> {
        self.lock().log.get(sequence).map(|record| record.known)
    }

    /// Which registration of its region an operation was posted with.
    pub fn entry_used(&self, sequence: u64) -> Option<u32> {
        self.lock().log.get(sequence).map(|record| record.n)
    }

    /// Posts a read behind everything that was posted: when it is done, the peer's processor sees those writes. Its number.
    ///
    /// # Errors
    /// As [`Lane::post`].
    pub fn post_flush(&self, gate: &Gate) -> core::result::Result<u64, Stop> {
        let mut inner = self.lock();
        if gate.is_closed() {
            return Err(Stop::Closed);
        }
        let place = inner.log.place(inner.log.posted() + 1);
        let Some(line) = &inner.line else { return Err(Stop::Unconnected) };
        let key = line.scratch.lkey();
        let local = line.scratch.base().as_ptr().wrapping_add(place * SCRATCH_STRIDE);
        let operation =
            Operation { kind: Kind::Read, region: CELLS_REGION, offset: 0, bytes: 8, local, operand: 0, swap: 0 };
        // SAFETY: the scratch memory lives as long as the line.
        unsafe { inner.post::<2>(self.peer, &[operation], &|_, _| Some(key)) }
    }

    /// Number of the operation posted last, and whether a failure was not told to anybody yet: told now.
    pub fn last(&self) -> (u64, Option<Box<Error>>) {
        let mut inner = self.lock();
        inner.harvest();
        let failure = if core::mem::take(&mut inner.untold) { inner.failures.back().cloned() } else { None };
        let last = inner.log.posted();
        (last, failure.map(|failure| failure.error(self.peer, failure.first, inner.log.get(failure.first))))
    }

    /// What it has done; looks for completions first.
    pub fn facts(&self) -> LaneFacts {
        let mut inner = self.lock();
        inner.harvest();
        let generation = inner.line.as_ref().map_or(0, |line| line.generation);
        LaneFacts { peer: self.peer, generation, posted: inner.log.posted(), retired: inner.log.retired() }
    }

    /// What it has posted and lost, in numbers.
    pub fn tally(&self) -> Tally {
        self.lock().log.tally()
    }

    /// The newest operations in words, oldest first, for a report.
    pub fn newest(&self, most: usize) -> Vec<(u64, Record)> {
        self.lock().log.newest(most).map(|(number, record)| (number, *record)).collect()
    }

    /// Whether there is a connection that works, as far as can be seen without waiting.
    pub fn is_connected(&self) -> bool {
        let mut inner = self.lock();
        inner.harvest();
        inner.line.is_some()
    }

    /// Whether the peer has ended a connection or its process is gone, as the fabric tells, since this was last asked.
    pub fn was_ended(&self) -> bool {
        core::mem::take(&mut self.lock().peer_ended)
    }

    /// The peer is gone, or the connection is to end: everything under way is settled by what is known. False: there was
    /// no connection.
    pub fn cut(&self, detail: &str, gone: bool) -> bool {
        let mut inner = self.lock();
        inner.harvest();
        let had = inner.line.is_some();
        if had {
            inner.fail(WcStatus::RetryExc, 0, Some((detail.to_owned(), gone)));
        }
        had
    }
}

impl<F: Fabric> Inner<F> {
    /// # Safety
    /// As [`Lane::post`].
    unsafe fn post<const N: usize>(
        &mut self,
        peer: u32,
        operations: &[Operation],
        key_of: &impl Fn(*const u8, usize) -> Option<u32>,
    ) -> core::result::Result<u64, Stop> {
        if self.line.as_ref().is_none_or(|line| line.qp.state() != QpState::Rts) {
            self.harvest();
            return Err(Stop::Unconnected);
        }
        if self.log.room() < operations.len() {
            self.harvest();
            if self.log.room() < operations.len() {
                return Err(Stop::Full);
            }
        }
        // Only a batch that takes several chains is looked through before: a single chain is made whole, then posted.
        if operations.len() >= N {
            for operation in operations {
                self.resolve(peer, operation, key_of)?;
            }
        }
        for chunk in operations.chunks(N - 1) {
            // SAFETY: the caller's promise.
            unsafe { self.chain::<N>(peer, chunk, key_of) }?;
        }
        Ok(self.log.posted())
    }

    /// Which registration an operation meets, and the local key of its memory.
    #[inline]
    fn resolve(
        &mut self,
        peer: u32,
        operation: &Operation,
        key_of: &impl Fn(*const u8, usize) -> Option<u32>,
    ) -> core::result::Result<(Entry, u32), Stop> {
        let Some(line) = &self.line else { return Err(Stop::Unconnected) };
        let entry = if operation.region == CELLS_REGION {
            Entry { n: 0, address: line.cells }
        } else {
            let page = line.page.map(|page| page.0);
            self.view.get(page, operation.region).ok_or(Stop::NoRegion(operation.region))?
        };
        let address = &entry.address;
        let bytes = u64::from(operation.bytes);
        let fits = operation.offset.checked_add(bytes).is_some_and(|end| end <= address.bytes);
        let atomic = matches!(operation.kind, Kind::FetchAdd | Kind::CompareSwap);
        let sound = if atomic {
            operation.bytes == 8 && operation.offset.is_multiple_of(8)
        } else {
            operation.bytes <= OPERATION_BYTES_MAX && (operation.bytes == 0 || !operation.local.is_null())
        };
        if !(fits && sound && address.access.allows(right(operation.kind))) {
            return Err(Stop::Refused(refusal(peer, operation, &entry)));
        }
        if atomic || operation.bytes == 0 {
            return Ok((entry, line.scratch.lkey()));
        }
        match key_of(operation.local, operation.bytes as usize) {
            Some(key) => Ok((entry, key)),
            None => Err(Stop::Refused(unregistered(peer, operation))),
        }
    }

    /// Posts up to N - 1 operations, and a mark if the line has marks.
    ///
    /// # Safety
    /// As [`Lane::post`].
    unsafe fn chain<const N: usize>(
        &mut self,
        peer: u32,
        operations: &[Operation],
        key_of: &impl Fn(*const u8, usize) -> Option<u32>,
    ) -> core::result::Result<(), Stop> {
        let mut slips = [NO_SLIP; N];
        let mut records = [None; N];
        let mut sequence = self.log.posted();
        for ((operation, slip), record) in operations.iter().zip(&mut slips).zip(&mut records) {
            let (entry, key) = self.resolve(peer, operation, key_of)?;
            sequence += 1;
            *slip = self.slip(operation, &entry, key, sequence);
            *record = Some(noted(operation, &entry));
        }
        let Some(line) = &self.line else { return Err(Stop::Unconnected) };
        let mut count = operations.len();
        if line.marks && count < N {
            slips[count] = mark(line, self.log.place(sequence), sequence);
            count += 1;
        }
        let works: [Work<'_>; N] = core::array::from_fn(|at| {
            let Slip { ref sge, wr_id, op, remote } = slips[at];
            Work { wr_id, op, local: core::slice::from_ref(sge), remote, signaled: at + 1 == count }
        });
        // SAFETY: the caller's promise for what operations name; scratch memory lives as long as the line.
        let posted = unsafe { line.qp.post(&works[..count]) };
        match posted {
            Ok(()) => {
                for record in records.iter().take(operations.len()).flatten() {
                    self.log.push(*record);
                }
                Ok(())
            }
            Err(PostError::QueueFull) => Err(Stop::Full),
            Err(PostError::NotConnected(_)) => {
                self.harvest();
                Err(Stop::Unconnected)
            }
            Err(why) => Err(Stop::Refused(not_posted(peer, operations, &why))),
        }
    }

    #[inline]
    fn slip(&self, operation: &Operation, entry: &Entry, key: u32, sequence: u64) -> Slip {
        let remote = RemoteAddr { address: entry.address.iova + operation.offset, rkey: entry.address.rkey };
        let op = match operation.kind {
            Kind::Write => WorkOp::Write,
            Kind::Read => WorkOp::Read,
            Kind::FetchAdd => WorkOp::FetchAdd(operation.operand),
            Kind::CompareSwap => WorkOp::CompareSwap { expect: operation.operand, swap: operation.swap },
        };
        let address: *const u8 = match (operation.kind, &self.line) {
            (Kind::FetchAdd | Kind::CompareSwap, Some(line)) => {
                line.scratch.base().as_ptr().wrapping_add(self.log.place(sequence) * SCRATCH_STRIDE)
            }
            _ => operation.local,
        };
        Slip { sge: Sge { address, bytes: operation.bytes, lkey: key }, wr_id: sequence, op, remote }
    }

    /// Takes completions; notices a connection that has ended.
    fn harvest(&mut self) {
        loop {
            let Some(line) = &self.line else { return };
            // Before the completions: those of a connection that is in ERR now are all in the queue, or never come.
            let ended = line.qp.state() != QpState::Rts;
            let mut out = [Completion::EMPTY; 8];
            let count = line.cq.poll(&mut out);
            for completion in &out[..count] {
                let sequence = completion.wr_id & !MARK;
                if completion.status == WcStatus::Success {
                    self.done(sequence);
                    continue;
                }
                // A connection completes in order: everything before the first error was executed.
                let before = if completion.wr_id & MARK == 0 { sequence.saturating_sub(1) } else { sequence };
                self.done(before);
                return self.fail(completion.status, completion.vendor_error, None);
            }
            if count < out.len() {
                if ended {
                    self.fail(WcStatus::WrFlush, 0, None);
                }
                return;
            }
        }
    }

    fn done(&mut self, sequence: u64) {
        let Some(line) = &self.line else { return };
        let base = line.scratch.base();
        self.log.done(sequence, |place, record| {
            // SAFETY: inside the scratch memory, aligned; the device has written it before it completed.
            let word = unsafe { AtomicU64::from_ptr(base.as_ptr().add(place * SCRATCH_STRIDE).cast()) };
            let old = word.load(Ordering::Relaxed);
            let result = core::ptr::with_exposed_provenance_mut::<u64>(usize::try_from(record.result).unwrap_or(0));
            // SAFETY: the poster promised that it stays writable until the operation is settled, which is now.
            unsafe { result.write_unaligned(old) };
        });
    }

    /// Ends the connection and settles what is under way.
    fn fail(&mut self, status: WcStatus, vendor_error: u32, said: Option<(String, bool)>) {
        let Some(line) = self.line.take() else { return };
        let cause = line.qp.cause();
        let judgement = if line.synchronous { Judgement::NOTHING } else { judge(status) };
        // A flush is a consequence; the queue pair knows the cause.
        let (mut named, mut gone, mut detail) = (status, false, String::new());
        if let Some(cause) = cause {
            if status == WcStatus::WrFlush {
                named = cause.status;
            }
            (gone, detail) = (cause.peer_gone || cause.peer_closed, cause.detail);
            self.peer_ended |= gone;
        }
        if let Some((text, is_gone)) = said {
            (detail, gone) = (text, gone || is_gone);
        }
        let generation = line.generation;
        // Destroyed first: from here on the device touches nothing that an operation named.
        drop(line);
        if let Some((first, last)) = self.log.fail(judgement) {
            if self.failures.len() == FAILURES_MAX
                && let Some(oldest) = self.failures.pop_front()
            {
                self.failures_forgotten = oldest.last;
            }
            let failure = Failure { first, last, status: named, vendor_error, generation, gone, detail };
            self.failures.push_back(failure);
            self.untold = true;
        }
    }

    /// An operation that later ones have pushed out of the log: it is settled, and done unless it was among the failed.
    #[cold]
    fn look_back(&self, peer: u32, sequence: u64) -> Look {
        if sequence == 0 || sequence > self.log.retired() || sequence <= self.failures_forgotten {
            let what = format!("rank {peer}: operation {sequence} is not known any more, or never was");
            return Look::Failed(Error::new(Status::StaleToken, what).at_shard(peer));
        }
        match self.failures.iter().find(|f| (f.first..=f.last).contains(&sequence)) {
            Some(failure) => Look::Failed(failure.error(peer, sequence, None)),
            None => Look::Done,
        }
    }

    fn look(&mut self, peer: u32, sequence: u64) -> Look {
        let Some(record) = self.log.get(sequence) else { return self.look_back(peer, sequence) };
        match record.known {
            Known::UnderWay => Look::UnderWay,
            Known::Done => Look::Done,
            _ => {
                let found = self.failures.iter().find(|f| (f.first..=f.last).contains(&sequence)).cloned();
                let unknown = || Failure {
                    first: sequence,
                    last: sequence,
                    status: WcStatus::General,
                    vendor_error: 0,
                    generation: 0,
                    gone: false,
                    detail: "its connection failed some time ago".to_owned(),
                };
                let failure = found.unwrap_or_else(unknown);
                if failure.first == failure.last {
                    self.untold = false;
                }
                Look::Failed(failure.error(peer, sequence, self.log.get(sequence)))
            }
        }
    }
}

fn noted(operation: &Operation, entry: &Entry) -> Record {
    let atomic = matches!(operation.kind, Kind::FetchAdd | Kind::CompareSwap);
    Record {
        offset: operation.offset,
        result: if atomic { operation.local.expose_provenance() as u64 } else { 0 },
        bytes: operation.bytes,
        region: operation.region,
        n: entry.n,
        kind: operation.kind,
        known: Known::UnderWay,
    }
}

/// The write that proves, when it is there, that everything before it was executed.
fn mark<F: Fabric>(line: &Line<F>, place: usize, sequence: u64) -> Slip {
    let from = line.scratch.base().as_ptr().wrapping_add(place * SCRATCH_STRIDE + 8);
    // SAFETY: inside the scratch memory, aligned; this place is not under way.
    unsafe { AtomicU64::from_ptr(from.cast()) }.store(sequence, Ordering::Relaxed);
    Slip {
        sge: Sge { address: from, bytes: 8, lkey: line.scratch.lkey() },
        wr_id: sequence | MARK,
        op: WorkOp::Write,
        remote: RemoteAddr { address: line.cells.iova, rkey: line.cells.rkey },
    }
}

/// Whether a connection's end was a refusal by the peer's memory: then the region may have been registered anew.
#[must_use]
pub fn was_refused(error: &Error) -> bool {
    error.completion == WcStatus::RemAccess.0 && error.outcome == Outcome::NotExecuted
}

/// The evidence in a connection's memory: up to which operation it was executed.
///
/// Meaningful once the connection can execute nothing more.
pub fn evidence<R: Region>(cells: &R) -> Result<u64> {
    if cells.bytes() < 8 {
        return Err(Error::new(Status::Bug, "a connection's memory has no place for marks"));
    }
    // SAFETY: the first eight bytes of the region, which is page-aligned; peers write them as one word.
    let word = unsafe { AtomicU64::from_ptr(cells.base().as_ptr().cast()) };
    // Acquire: what the marks prove is visible with them. Partner: the fabric's ordered write.
    Ok(word.load(Ordering::Acquire))
}
