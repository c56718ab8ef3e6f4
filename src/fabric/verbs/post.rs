//! Posting: checks, accounting, and the chain that the device gets with one doorbell.
//!
//! A send queue has as many places as it was made with. Each posted request takes one; a completion gives back its own
//! and those of everything before it, because an RC queue pair completes in order. So work without a completion of its
//! own is given back by a later one that has one. Should nobody ask for one within half a queue, the provider does, and
//! keeps that completion to itself.

use super::qp::{QpCore, RECEIVE_BIT};
use super::sys::{self, code, ibv_recv_wr, ibv_send_wr, ibv_sge};
use crate::fabric::{PostError, QpState, WcStatus, Work, WorkOp};
use crate::sync::{AtomicBool, AtomicU32, AtomicU64, Ordering, lock};

/// Receives posted with one doorbell.
const RECEIVES_AT_A_TIME: usize = 64;

/// What is under way: by place, the poster's number and whether it wants to hear of success. Places are written by the
/// poster, under the lock of [`SendQueue`], and read by the poller.
#[derive(Debug)]
pub(super) struct Ring {
    places: Box<[Place]>,
    /// Work that has completed, counted since the connection began.
    completed: AtomicU32,
}

#[derive(Debug, Default)]
struct Place {
    wr_id: AtomicU64,
    wanted: AtomicBool,
}

/// The poster's side.
#[derive(Default)]
pub(super) struct SendQueue {
    /// Work that was posted, counted since the connection began.
    posted: u32,
    /// How many of the last ones complete silently.
    silent: u32,
    requests: Vec<ibv_send_wr>,
    pieces: Vec<ibv_sge>,
}

impl core::fmt::Debug for SendQueue {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.debug_struct("SendQueue").field("posted", &self.posted).finish_non_exhaustive()
    }
}

// SAFETY: the pointers in the lists are made anew with each post, under the lock.
unsafe impl Send for SendQueue {}

impl SendQueue {
    pub(super) fn reset(&mut self) {
        (self.posted, self.silent) = (0, 0);
    }
}

impl Ring {
    pub(super) fn new(places: u32) -> Ring {
        let places = (0..places).map(|_| Place::default()).collect();
        Ring { places, completed: AtomicU32::new(0) }
    }

    /// Places in all.
    #[inline]
    pub(super) fn depth(&self) -> u32 {
        u32::try_from(self.places.len()).unwrap_or(u32::MAX)
    }

    fn place(&self, number: u32) -> &Place {
        &self.places[number as usize % self.places.len()]
    }

    fn room(&self, posted: u32) -> usize {
        // Acquire: pairs with the Release in `completed`: the poller has read the places that are given back.
        let under_way = posted.wrapping_sub(self.completed.load(Ordering::Acquire));
        self.places.len().saturating_sub(under_way as usize)
    }

    /// The device has completed this request, and so everything before it. Returns the poster's number, and whether it
    /// wants to hear of it.
    pub(super) fn completed(&self, number: u32) -> (u64, bool) {
        let place = self.place(number);
        // Relaxed: written before the post, which the device's completion follows.
        let known = (place.wr_id.load(Ordering::Relaxed), place.wanted.load(Ordering::Relaxed));
        // Release: pairs with the Acquire in `room`.
        self.completed.store(number.wrapping_add(1), Ordering::Release);
        known
    }

    pub(super) fn reset(&self) {
        // Relaxed: under the send queue's lock, with no poller on this connection.
        self.completed.store(0, Ordering::Relaxed);
    }
}

/// Receives without memory.
#[derive(Debug)]
pub(super) struct Receives {
    most: u32,
    posted: AtomicU32,
}

impl Receives {
    pub(super) fn new(most: u32) -> Receives {
        Receives { most, posted: AtomicU32::new(0) }
    }

    /// Whether the peer's immediates can complete here.
    pub(super) fn any(&self) -> bool {
        self.posted.load(Ordering::Relaxed) > 0
    }

    /// Reserves places; false when there are not as many.
    fn take(&self, count: u32) -> bool {
        let more = |posted: u32| posted.checked_add(count).filter(|posted| *posted <= self.most);
        self.posted.fetch_update(Ordering::Relaxed, Ordering::Relaxed, more).is_ok()
    }

    fn give_back(&self, count: u32) {
        let less = |posted: u32| Some(posted.saturating_sub(count));
        // The closure never refuses.
        let _ = self.posted.fetch_update(Ordering::Relaxed, Ordering::Relaxed, less);
    }

    pub(super) fn completed(&self) {
        self.give_back(1);
    }

    pub(super) fn reset(&self) {
        self.posted.store(0, Ordering::Relaxed);
    }
}

/// What is wrong with a request, if anything.
fn check(work: &Work<'_>, sges: u32) -> Result<(), PostError> {
    if work.local.len() > sges as usize {
        return Err(PostError::Invalid("more pieces than a request takes"));
    }
    if matches!(work.op, WorkOp::FetchAdd(_) | WorkOp::CompareSwap { .. }) {
        if work.local.len() != 1 || work.local[0].bytes != 8 {
            return Err(PostError::Invalid("an atomic has one piece of 8 bytes"));
        }
        if !work.remote.address.is_multiple_of(8) {
            return Err(PostError::Invalid("an atomic's address is a multiple of 8"));
        }
    }
    Ok(())
}

/// A request as the device takes it; pieces and the next one are linked later.
fn request(work: &Work<'_>, wr_id: u64, signaled: bool, inline: u32) -> ibv_send_wr {
    // SAFETY: plain numbers and pointers, for which zero is a value.
    let mut wr: ibv_send_wr = unsafe { core::mem::zeroed() };
    wr.wr_id = wr_id;
    wr.num_sge = i32::try_from(work.local.len()).unwrap_or(0);
    wr.send_flags = if signaled { code::SEND_SIGNALED } else { 0 };
    wr.wr.rdma = sys_rdma(work);
    match work.op {
        WorkOp::Write => wr.opcode = code::WR_WRITE,
        WorkOp::WriteImm(number) => {
            wr.opcode = code::WR_WRITE_IMM;
            wr.imm_data_invalidated_rkey_union.imm_data = number.to_be();
        }
        WorkOp::Read => wr.opcode = code::WR_READ,
        WorkOp::FetchAdd(add) => {
            wr.opcode = code::WR_FETCH_ADD;
            // SAFETY: plain numbers, for which zero is a value.
            wr.wr.atomic = unsafe { core::mem::zeroed() };
            (wr.wr.atomic.remote_addr, wr.wr.atomic.rkey) = (work.remote.address, work.remote.rkey);
            wr.wr.atomic.compare_add = add;
        }
        WorkOp::CompareSwap { expect, swap } => {
            wr.opcode = code::WR_CMP_SWP;
            // SAFETY: as above.
            wr.wr.atomic = unsafe { core::mem::zeroed() };
            (wr.wr.atomic.remote_addr, wr.wr.atomic.rkey) = (work.remote.address, work.remote.rkey);
            (wr.wr.atomic.compare_add, wr.wr.atomic.swap) = (expect, swap);
        }
    }
    let bytes: u64 = work.local.iter().map(|piece| u64::from(piece.bytes)).sum();
    if matches!(work.op, WorkOp::Write | WorkOp::WriteImm(_)) && bytes <= u64::from(inline) {
        wr.send_flags |= code::SEND_INLINE;
    }
    wr
}

fn sys_rdma(work: &Work<'_>) -> sys::RemotePlace {
    sys::RemotePlace { remote_addr: work.remote.address, rkey: work.remote.rkey }
}

impl QpCore {
    /// As [`Qp::post`](crate::fabric::Qp::post).
    pub(super) unsafe fn post(&self, chain: &[Work<'_>]) -> Result<(), PostError> {
        let mut guard = lock(&self.send);
        let queue = &mut *guard;
        let state = self.state();
        if state != QpState::Rts {
            return Err(PostError::NotConnected(state));
        }
        if chain.is_empty() {
            return Ok(());
        }
        chain.iter().try_for_each(|work| check(work, self.path.sges))?;
        if chain.len() > self.ring.room(queue.posted) {
            return Err(PostError::QueueFull);
        }
        self.lay_out(queue, chain);
        let mut bad = core::ptr::null_mut();
        // SAFETY: `gone` is set by the owner's drop only, and this is a call on it; requests and pieces are linked within
        // two lists that stay in place during the call; memory is the caller's promise.
        let number = unsafe { sys::post_send(self.raw.as_ptr(), queue.requests.as_mut_ptr(), &raw mut bad) };
        if number == 0 {
            #[allow(clippy::cast_possible_truncation)] // at most as many as places
            {
                queue.posted = queue.posted.wrapping_add(chain.len() as u32);
            }
            return Ok(());
        }
        let number = if number > 0 { number } else { std::io::Error::last_os_error().raw_os_error().unwrap_or(0) };
        let taken = queue.requests.iter().position(|one| core::ptr::eq(one, bad)).unwrap_or(0);
        if taken > 0 {
            // Half a chain is with the device: nobody knows it any more, so the connection ends.
            #[allow(clippy::cast_possible_truncation)] // as above
            {
                queue.posted = queue.posted.wrapping_add(taken as u32);
            }
            drop(guard);
            self.break_off(WcStatus::LocQpOp, format!("the device took {taken} of {} requests", chain.len()));
        }
        Err(PostError::Os(number))
    }

    /// The chain in the form of the device, and in the ring.
    fn lay_out(&self, queue: &mut SendQueue, chain: &[Work<'_>]) {
        let epoch = u64::from(self.epoch()) << 32;
        let half = u32::try_from(self.ring.places.len() / 2).unwrap_or(1).max(1);
        queue.requests.clear();
        queue.pieces.clear();
        let mut number = queue.posted;
        for work in chain {
            queue.silent = if work.signaled { 0 } else { queue.silent + 1 };
            let own = queue.silent >= half;
            if own {
                queue.silent = 0;
            }
            let place = self.ring.place(number);
            // Relaxed: the post that follows hands them to the device, and its completion to the poller.
            place.wr_id.store(work.wr_id, Ordering::Relaxed);
            place.wanted.store(work.signaled, Ordering::Relaxed);
            let wr_id = epoch | u64::from(number);
            queue.requests.push(request(work, wr_id, work.signaled || own, self.path.inline));
            let pieces = work.local.iter().map(|piece| ibv_sge {
                addr: piece.address.addr() as u64,
                length: piece.bytes,
                lkey: piece.lkey,
            });
            queue.pieces.extend(pieces);
            number = number.wrapping_add(1);
        }
        let (first_request, first_piece) = (queue.requests.as_mut_ptr(), queue.pieces.as_mut_ptr());
        let mut piece = 0;
        for (at, work) in chain.iter().enumerate() {
            let next = if at + 1 < chain.len() { first_request.wrapping_add(at + 1) } else { core::ptr::null_mut() };
            let pieces = first_piece.wrapping_add(piece);
            // SAFETY: one request and its pieces per work were pushed above, and the lists do not grow any more.
            unsafe {
                (*first_request.add(at)).next = next;
                (*first_request.add(at)).sg_list = pieces;
            }
            piece += work.local.len();
        }
    }

    /// As [`Qp::post_receives`](crate::fabric::Qp::post_receives).
    pub(super) fn post_receives(&self, count: u32) -> Result<(), PostError> {
        let _posts = lock(&self.send);
        let state = self.state();
        if state != QpState::Rts {
            return Err(PostError::NotConnected(state));
        }
        if !self.receives.take(count) {
            return Err(PostError::QueueFull);
        }
        let mut left = count as usize;
        while left > 0 {
            let now = left.min(RECEIVES_AT_A_TIME);
            if let Err(number) = self.post_some_receives(now) {
                self.receives.give_back(u32::try_from(left).unwrap_or(0));
                return Err(PostError::Os(number));
            }
            left -= now;
        }
        Ok(())
    }

    fn post_some_receives(&self, count: usize) -> Result<(), i32> {
        let wr_id = u64::from(self.epoch() | RECEIVE_BIT) << 32;
        let blank = ibv_recv_wr { wr_id, next: core::ptr::null_mut(), sg_list: core::ptr::null_mut(), num_sge: 0 };
        let mut requests = [blank; RECEIVES_AT_A_TIME];
        let first = requests.as_mut_ptr();
        for at in 1..count {
            // SAFETY: within the array.
            unsafe { (*first.add(at - 1)).next = first.add(at) };
        }
        let mut bad = core::ptr::null_mut();
        // SAFETY: the queue pair lives, as for `post`; the chain lies in the array and has no memory.
        match unsafe { sys::post_recv(self.raw.as_ptr(), first, &raw mut bad) } {
            0 => Ok(()),
            number if number > 0 => Err(number),
            _ => Err(std::io::Error::last_os_error().raw_os_error().unwrap_or(0)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fabric::{RemoteAddr, Sge};

    #[test]
    fn a_completion_gives_back_everything_before_it() {
        let ring = Ring::new(4);
        assert_eq!(ring.room(3), 1);
        ring.place(2).wr_id.store(9, Ordering::Relaxed);
        ring.place(2).wanted.store(true, Ordering::Relaxed);
        assert_eq!(ring.completed(2), (9, true));
        assert_eq!(ring.room(3), 4);
        // The count wraps without losing a place.
        ring.completed.store(u32::MAX, Ordering::Relaxed);
        assert_eq!(ring.room(1), 2);
    }

    #[test]
    fn receives_have_places() {
        let receives = Receives::new(3);
        assert!(receives.take(2) && !receives.take(2) && receives.take(1) && receives.any());
        receives.completed();
        assert!(receives.take(1) && !receives.take(u32::MAX));
    }

    #[test]
    fn a_request_says_what_the_work_says() {
        let piece = [Sge { address: core::ptr::without_provenance(4096), bytes: 64, lkey: 5 }];
        let remote = RemoteAddr { address: 8192, rkey: 77 };
        let work = |op| Work { wr_id: 1, op, local: &piece, remote, signaled: false };
        let write = request(&work(WorkOp::WriteImm(0x0102_0304)), 3, true, 64);
        assert_eq!((write.opcode, write.send_flags), (code::WR_WRITE_IMM, code::SEND_SIGNALED | code::SEND_INLINE));
        // SAFETY: a write with immediate has these.
        let (rdma, imm) = unsafe { (write.wr.rdma, write.imm_data_invalidated_rkey_union.imm_data) };
        assert_eq!((rdma.remote_addr, rdma.rkey, imm), (8192, 77, 0x0102_0304_u32.to_be()));
        assert_eq!(request(&work(WorkOp::Write), 3, false, 63).send_flags, 0);
        assert_eq!(request(&work(WorkOp::Read), 3, false, 64).send_flags, 0);
        let swap = request(&work(WorkOp::CompareSwap { expect: 1, swap: 2 }), 3, false, 64);
        // SAFETY: an atomic has this.
        let atomic = unsafe { swap.wr.atomic };
        assert_eq!((atomic.remote_addr, atomic.rkey, atomic.compare_add, atomic.swap), (8192, 77, 1, 2));
        let short = [Sge { bytes: 7, ..piece[0] }];
        assert!(check(&Work { local: &short, ..work(WorkOp::FetchAdd(1)) }, 4).is_err());
        assert!(check(&work(WorkOp::Write), 0).is_err());
    }
}
