//! Work: the posting thread does it at once, in the peer's memory.

use super::attach::PeerRegion;
use super::cq::{Entry, SendAccount};
use super::qp::QpCore;
use super::ring::SendRing;
use crate::fabric::{
    Access, Cause, Completion, Loan, PostError, QpState, RemoteAddr, Sge, WcOpcode, WcStatus, Work, WorkOp,
};
use crate::sync::{Arc, AtomicU64, Ordering, fence, lock};
use crate::time::now;
use core::ptr::NonNull;
use core::time::Duration;

/// Most pieces of one work request.
pub(super) const SGE_MAX: u32 = 32;
/// How long a write-with-immediate waits for a receive of the peer before it gives up.
const RECEIVE_WAIT: Duration = Duration::from_secs(2);
const WORD_BYTES: usize = 8;

/// The posting side. One chain at a time.
#[derive(Debug, Default)]
pub(super) struct Sender {
    /// Work that was posted and not yet given back.
    account: Arc<SendAccount>,
    /// Work since the last completion: it is given back with the next one, as on a real device.
    uncompleted: u32,
    ring: Option<SendRing>,
    entries: Vec<Entry>,
}

impl Sender {
    /// A new connection.
    pub(super) fn attach(&mut self, ring: Option<SendRing>) {
        self.ring = ring;
    }

    fn complete(&mut self, qp: u32, work: &Work<'_>, status: WcStatus) {
        self.uncompleted += 1;
        if !work.signaled && status == WcStatus::Success {
            return;
        }
        let opcode = match work.op {
            WorkOp::Write | WorkOp::WriteImm(_) => WcOpcode::Write,
            WorkOp::Read => WcOpcode::Read,
            WorkOp::FetchAdd(_) => WcOpcode::FetchAdd,
            WorkOp::CompareSwap { .. } => WcOpcode::CompareSwap,
        };
        let completion = Completion { wr_id: work.wr_id, qp, status, opcode, ..Completion::EMPTY };
        self.entries.push(Entry::work(completion, &self.account, self.uncompleted));
        self.uncompleted = 0;
    }
}

/// Checks what the peer has no say in.
fn check(work: &Work<'_>) -> Result<(), PostError> {
    if work.local.len() > SGE_MAX as usize {
        return Err(PostError::Invalid("more local pieces than max_sge"));
    }
    if work.local.iter().any(|piece| piece.bytes != 0 && piece.address.is_null()) {
        return Err(PostError::Invalid("a local piece at address 0"));
    }
    if matches!(work.op, WorkOp::FetchAdd(_) | WorkOp::CompareSwap { .. }) {
        if work.local.len() != 1 || length(work.local) != WORD_BYTES as u64 {
            return Err(PostError::Invalid("an atomic needs one local piece of 8 bytes"));
        }
        if !work.remote.address.is_multiple_of(WORD_BYTES as u64) {
            return Err(PostError::Invalid("an atomic needs a remote address that is a multiple of 8"));
        }
    }
    if length(work.local) > u64::from(u32::MAX) {
        return Err(PostError::Invalid("more than 4 GiB in one work request"));
    }
    Ok(())
}

fn length(pieces: &[Sge]) -> u64 {
    pieces.iter().map(|piece| u64::from(piece.bytes)).sum()
}

/// Copies the pieces to `to`: all but the last word, then, if it lies on a multiple of 8, that word in one store.
///
/// # Safety
/// The pieces are readable and `to` is writable for all their bytes.
unsafe fn write(to: NonNull<u8>, pieces: &[Sge], bytes: usize) {
    // Release: bytes of earlier writes are visible before bytes of this one. Partner: the reader's Acquire load.
    fence(Ordering::Release);
    let to = to.as_ptr();
    let in_one = bytes >= WORD_BYTES && (to as usize + bytes).is_multiple_of(WORD_BYTES);
    let body = if in_one { bytes - WORD_BYTES } else { bytes };
    let mut last = [0u8; WORD_BYTES];
    let mut done = 0;
    for piece in pieces {
        let length = piece.bytes as usize;
        let early = length.min(body.saturating_sub(done));
        // SAFETY: `early` bytes lie inside the piece and, from `done`, inside `to`. The two may overlap when a process
        // is its own peer. The rest of the piece, if any, lies in the last word, which `last` has room for.
        unsafe {
            core::ptr::copy(piece.address, to.add(done), early);
            if early < length {
                let at = done + early - body;
                core::ptr::copy_nonoverlapping(piece.address.add(early), last.as_mut_ptr().add(at), length - early);
            }
        }
        done += length;
    }
    if in_one {
        // SAFETY: the last 8 bytes of `to` are writable, aligned, and read by others atomically.
        let word = unsafe { AtomicU64::from_ptr(to.add(body).cast()) };
        // Release: the rest of this write is visible before its last word. Partner: the reader's Acquire load.
        word.store(u64::from_ne_bytes(last), Ordering::Release);
    }
}

/// Copies from `from` to the pieces.
///
/// # Safety
/// `from` is readable and the pieces are writable for all their bytes.
unsafe fn read(from: NonNull<u8>, pieces: &[Sge]) {
    let mut done = 0;
    for piece in pieces {
        let length = piece.bytes as usize;
        // SAFETY: `length` bytes lie inside the piece and, from `done`, inside `from`.
        unsafe { core::ptr::copy(from.as_ptr().add(done), piece.address.cast_mut(), length) };
        done += length;
    }
    // Acquire: what is read later is not older than what was read here. Partner: Release stores of whoever wrote it.
    fence(Ordering::Acquire);
}

/// The place of a peer's address in one of its regions, if bounds and access allow it.
fn place_in(region: &PeerRegion, remote: RemoteAddr, bytes: usize, access: Access) -> Option<NonNull<u8>> {
    let offset = remote.address.checked_sub(region.address.iova)?;
    let end = offset.checked_add(bytes as u64)?;
    if end > region.address.bytes || !region.address.access.allows(access) {
        return None;
    }
    let offset = usize::try_from(offset).ok()?;
    // SAFETY: offset + bytes <= the region's length <= the mapping's length.
    Some(unsafe { region.mapping.base().add(offset) })
}

impl QpCore {
    /// The mapped place of a peer's address, if key, bounds and access allow it.
    pub(super) fn window(&self, remote: RemoteAddr, bytes: usize, access: Access) -> Option<NonNull<u8>> {
        self.find_region(remote.rkey, |region| {
            let place = place_in(region, remote, bytes, access)?;
            // Relaxed: the lock on the regions orders it.
            region.windowed.store(true, Ordering::Relaxed);
            Some(place)
        })?
    }

    /// The same, mapped as long as it is held.
    pub(super) fn hold(&self, remote: RemoteAddr, bytes: usize, access: Access) -> Option<Loan> {
        self.find_region(remote.rkey, |region| {
            let place = place_in(region, remote, bytes, access)?;
            // Memory that came with the connection stays by itself.
            let keeper = region.lent.then(|| Arc::clone(&region.mapping) as Arc<dyn core::any::Any + Send + Sync>);
            Some(Loan::new(place, keeper))
        })?
    }

    /// Does a chain of work.
    ///
    /// # Safety
    /// As [`crate::fabric::Qp::post`].
    pub(super) unsafe fn post(&self, chain: &[Work<'_>]) -> Result<(), PostError> {
        chain.iter().try_for_each(check)?;
        let mut sender = lock(&self.sender);
        let state = self.state();
        if state != QpState::Rts {
            return Err(PostError::NotConnected(state));
        }
        // Relaxed: only this lock's holder adds; a poller that subtracts late makes the queue look fuller, not emptier.
        let outstanding = sender.account.load(Ordering::Relaxed) as usize;
        if outstanding + chain.len() > self.config.max_send_wr as usize {
            return Err(PostError::QueueFull);
        }
        // Fits: it is at most max_send_wr.
        sender.account.fetch_add(u32::try_from(chain.len()).unwrap_or(u32::MAX), Ordering::Relaxed);
        let mut rang = false;
        for work in chain {
            // An error, here or elsewhere, flushes the rest of the chain.
            let status = match self.state() {
                // SAFETY: the caller's promise.
                QpState::Rts => unsafe { self.execute(&mut sender, work) },
                _ => WcStatus::WrFlush,
            };
            rang |= status == WcStatus::Success && !matches!(work.op, WorkOp::Read);
            sender.complete(self.number, work, status);
            if status != WcStatus::Success && status != WcStatus::WrFlush {
                let detail = match status {
                    WcStatus::RemAccess => "a work request broke the rules of the peer's memory",
                    _ => "the peer posted no receive for a write-with-immediate",
                };
                self.fail(Cause {
                    status,
                    vendor_error: 0,
                    peer_gone: false,
                    peer_closed: false,
                    detail: detail.to_owned(),
                });
            }
        }
        if rang {
            self.ring_bell();
        }
        if !sender.entries.is_empty() {
            self.send_cq.push(sender.entries.drain(..));
        }
        Ok(())
    }

    /// # Safety
    /// Local pieces are as [`crate::fabric::Qp::post`] asks.
    unsafe fn execute(&self, sender: &mut Sender, work: &Work<'_>) -> WcStatus {
        let bytes = length(work.local);
        let needed = match work.op {
            WorkOp::Write | WorkOp::WriteImm(_) => Access::REMOTE_WRITE,
            WorkOp::Read => Access::REMOTE_READ,
            WorkOp::FetchAdd(_) | WorkOp::CompareSwap { .. } => Access::REMOTE_ATOMIC,
        };
        // `check` saw that it fits in 32 bits.
        let bytes = usize::try_from(bytes).unwrap_or(usize::MAX);
        // As on a real device, no bytes at all need no place.
        let nowhere = || Loan::new(NonNull::dangling(), None);
        let held = if bytes == 0 { Some(nowhere()) } else { self.hold(work.remote, bytes, needed) };
        let Some(held) = held else { return WcStatus::RemAccess };
        let place = held.place();
        match work.op {
            // SAFETY: local pieces by the caller's promise, the remote place by the window.
            WorkOp::Write => unsafe { write(place, work.local, bytes) },
            WorkOp::WriteImm(imm) => {
                // SAFETY: as above. Without a receive the bytes are there all the same, as with RC.
                unsafe { write(place, work.local, bytes) };
                return self.push_immediate(sender, imm);
            }
            // SAFETY: as above.
            WorkOp::Read => unsafe { read(place, work.local) },
            WorkOp::FetchAdd(_) | WorkOp::CompareSwap { .. } => {
                // The region's start is page-aligned here and the address is a multiple of 8 in the peer's numbering.
                if !(place.as_ptr() as usize).is_multiple_of(WORD_BYTES) {
                    return WcStatus::RemInvReq;
                }
                // SAFETY: 8 bytes, aligned, inside the window, and shared only through atomics.
                let word = unsafe { AtomicU64::from_ptr(place.as_ptr().cast()) };
                // AcqRel: an atomic is ordered with what its user wrote before and reads after. Partner: the same here.
                let old = match work.op {
                    WorkOp::FetchAdd(add) => word.fetch_add(add, Ordering::AcqRel),
                    WorkOp::CompareSwap { expect, swap } => {
                        // Acquire on failure for the same reason.
                        word.compare_exchange(expect, swap, Ordering::AcqRel, Ordering::Acquire)
                            .unwrap_or_else(|old| old)
                    }
                    _ => 0,
                };
                for piece in work.local {
                    // SAFETY: `check` saw one piece of 8 bytes; writable by the caller's promise.
                    unsafe { piece.address.cast_mut().cast::<u64>().write_unaligned(old) };
                }
            }
        }
        WcStatus::Success
    }

    /// Waits a little for a receive of the peer, as a real device does.
    fn push_immediate(&self, sender: &mut Sender, imm: u32) -> WcStatus {
        let Some(ring) = &mut sender.ring else { return WcStatus::RnrRetryExc };
        if ring.push(imm) {
            return WcStatus::Success;
        }
        // A poll thread serves many peers: it does not wait for one that breaks the rule that every immediate under way
        // has a receive posted.
        if self.has_waker() {
            return WcStatus::RnrRetryExc;
        }
        // The peer may sleep: what was written so far may be what it waits for before it posts a receive.
        self.ring_bell();
        let until = now().after(RECEIVE_WAIT);
        loop {
            std::thread::yield_now();
            if ring.push(imm) {
                return WcStatus::Success;
            }
            if self.state() != QpState::Rts {
                return WcStatus::WrFlush;
            }
            if until.remaining().is_zero() {
                return WcStatus::RnrRetryExc;
            }
        }
    }
}
