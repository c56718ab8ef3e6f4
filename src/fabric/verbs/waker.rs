//! What an idle poller sleeps on.
//!
//! A plain write of the peer is no event: nothing in the system notices it. Only a write with immediate completes here,
//! and a completion can ring through its queue's channel. So a poller whose lanes all commit by `imm` sleeps until it is
//! rung, and any other one takes naps: short ones first, longer ones while nothing comes, so that a server in use is
//! looked at often and an idle one costs next to nothing. Asking for a ring beside each write would cost every request
//! a second message; the first request after a silence pays the rest of a nap instead.

use super::cq::VerbsCq;
use super::device::ring;
use super::qp::QpCore;
use crate::fabric::Waker;
use crate::sync::{Arc, Mutex, lock};
use crate::time::{Tick, now};
use core::time::Duration;
use std::io;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};

/// Naps grow from the first to the second by doubling.
const NAP_MIN: Duration = Duration::from_micros(50);
const NAP_MAX: Duration = Duration::from_millis(1);
/// A sleeper that was away for so many naps had work: it starts with short ones again.
const AWAY_NAPS: u32 = 4;

/// Waker of the verbs provider.
#[derive(Debug)]
pub struct VerbsWaker {
    bell: OwnedFd,
    state: Mutex<State>,
}

#[derive(Debug)]
struct State {
    /// Queue pairs whose peers write to this poller, each with the queue that its immediates complete on.
    lanes: Vec<(Arc<QpCore>, Arc<VerbsCq>)>,
    nap: Duration,
    last: Tick,
}

impl VerbsWaker {
    pub(super) fn new() -> io::Result<VerbsWaker> {
        // SAFETY: no pointers.
        let bell = unsafe { libc::eventfd(0, libc::EFD_CLOEXEC | libc::EFD_NONBLOCK) };
        if bell < 0 {
            return Err(io::Error::last_os_error());
        }
        // SAFETY: the descriptor is new and nobody else's.
        let bell = unsafe { OwnedFd::from_raw_fd(bell) };
        Ok(VerbsWaker { bell, state: Mutex::new(State { lanes: Vec::new(), nap: NAP_MIN, last: now() }) })
    }

    pub(super) fn attach(&self, qp: &Arc<QpCore>, recv_cq: &Arc<VerbsCq>) {
        lock(&self.state).lanes.push((Arc::clone(qp), Arc::clone(recv_cq)));
    }

    pub(super) fn detach(&self, qp: &Arc<QpCore>) {
        lock(&self.state).lanes.retain(|(lane, _)| !Arc::ptr_eq(lane, qp));
    }

    /// Whether everything that can come rings, and the queues that ring.
    fn ringing(&self) -> (bool, Vec<Arc<VerbsCq>>) {
        let state = lock(&self.state);
        let mut cqs: Vec<Arc<VerbsCq>> = Vec::new();
        for (_, cq) in &state.lanes {
            if !cqs.iter().any(|known| Arc::ptr_eq(known, cq)) {
                cqs.push(Arc::clone(cq));
            }
        }
        (state.lanes.iter().all(|(qp, _)| qp.receives.any()), cqs)
    }

    /// How long to sleep when nothing rings.
    fn nap(&self, timeout: Duration) -> Duration {
        let mut state = lock(&self.state);
        let away = Duration::from_nanos(now().since_ns(state.last));
        state.nap = if away > state.nap * AWAY_NAPS { NAP_MIN } else { (state.nap * 2).min(NAP_MAX) };
        state.nap.min(timeout)
    }
}

impl Waker for VerbsWaker {
    fn arm(&self) {
        for cq in self.ringing().1 {
            // A queue that cannot be asked does not ring: what comes is seen when the sleep ends.
            let _ = cq.ask();
        }
    }

    fn wait(&self, timeout: Duration) -> bool {
        let (all_ring, cqs) = self.ringing();
        let timeout = if all_ring { timeout } else { self.nap(timeout) };
        let mut fds = vec![libc::pollfd { fd: self.bell.as_raw_fd(), events: libc::POLLIN, revents: 0 }];
        fds.extend(cqs.iter().map(|cq| libc::pollfd { fd: cq.fd(), events: libc::POLLIN, revents: 0 }));
        let span = libc::timespec {
            tv_sec: libc::time_t::try_from(timeout.as_secs()).unwrap_or(libc::time_t::MAX),
            tv_nsec: libc::c_long::from(timeout.subsec_nanos().cast_signed()),
        };
        // SAFETY: `fds` has as many entries as told; no signal mask is given.
        let ready =
            unsafe { libc::ppoll(fds.as_mut_ptr(), fds.len() as libc::nfds_t, &raw const span, core::ptr::null()) };
        // What is taken off was seen: a ring that comes after the look stays for the next one.
        for (cq, fd) in cqs.iter().zip(&fds[1..]) {
            if fd.revents != 0 {
                cq.take_events();
            }
        }
        if fds[0].revents != 0 {
            let mut count = [0_u8; 8];
            // SAFETY: 8 writable bytes; the counter does not wait.
            let _ = unsafe { libc::read(self.bell.as_raw_fd(), count.as_mut_ptr().cast(), count.len()) };
        }
        lock(&self.state).last = now();
        ready > 0
    }

    fn disarm(&self) {}

    fn notify(&self) {
        ring(&self.bell);
    }
}
