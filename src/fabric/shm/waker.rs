//! Bells: what an idle poller sleeps on, and how peers find out that it sleeps.
//!
//! Every (waker, link) pair has a page with one word and a socket of its own. So a process that writes nonsense to its
//! page or floods, drains or shuts its socket causes wake-ups for nothing or loses its own; the others keep theirs. The
//! ringer hands no time to the sleeper either: it sends without waiting, whatever the other end did to the socket.
//! See `fence` for why no ring is lost.

use super::fence;
use super::memory::{Mapping, sealed_memory};
use super::{socket, sys};
use crate::fabric::Waker;
use crate::sync::{Arc, AtomicBool, AtomicU32, AtomicU64, Mutex, Ordering, lock};
use crate::time::now;
use core::time::Duration;
use std::io;
use std::os::fd::{AsFd, AsRawFd, OwnedFd};

/// Length of the page with the word.
pub(super) const BELL_BYTES: usize = 4096;
/// The epoll token of the waker's own event.
const OWN: u64 = 0;

/// What one poller of the shared-memory provider sleeps on.
#[derive(Debug)]
pub struct ShmWaker {
    epoll: OwnedFd,
    own: OwnedFd,
    state: Mutex<State>,
}

#[derive(Debug)]
struct State {
    armed: bool,
    next_token: u64,
    bells: Vec<Arc<HouseBell>>,
}

/// The sleeper's end of a bell. Lives until its link closes or its waker is dropped.
#[derive(Debug)]
pub(super) struct HouseBell {
    link: u64,
    link_closed: Arc<AtomicBool>,
    token: u64,
    page: Mapping,
    listen: OwnedFd,
    /// What the peer gets: the page and the sending end. We keep the sending end open, so its loss is no event.
    pub(super) page_fd: Arc<OwnedFd>,
    pub(super) ring_fd: Arc<OwnedFd>,
}

impl HouseBell {
    fn is_over(&self) -> bool {
        // Relaxed: a bell that is dropped a little late does no harm.
        self.link_closed.load(Ordering::Relaxed)
    }

    fn set(&self, sleeping: bool) {
        // SAFETY: the page is mapped as long as `self`, aligned, and only touched atomically.
        let word = unsafe { AtomicU32::from_ptr(self.page.base().as_ptr().cast()) };
        // Relaxed: `fence::heavy` orders the store that matters.
        word.store(u32::from(sleeping), Ordering::Relaxed);
    }
}

impl ShmWaker {
    pub(super) fn new() -> io::Result<ShmWaker> {
        let (epoll, own) = (sys::epoll()?, sys::event()?);
        sys::epoll_add(epoll.as_fd(), own.as_raw_fd(), libc::EPOLLIN, OWN)?;
        Ok(ShmWaker { epoll, own, state: Mutex::new(State { armed: false, next_token: OWN + 1, bells: Vec::new() }) })
    }

    /// The bell for the peer at the other end of a link.
    pub(super) fn bell_for(&self, link: u64, closed: &Arc<AtomicBool>) -> io::Result<Arc<HouseBell>> {
        let mut state = lock(&self.state);
        if let Some(bell) = state.bells.iter().find(|bell| bell.link == link) {
            return Ok(Arc::clone(bell));
        }
        state.bells.retain(|bell| !bell.is_over());
        let (page_fd, page) = sealed_memory(BELL_BYTES, false, true)?;
        let (ring, listen) = socket::pair()?;
        let token = state.next_token;
        state.next_token += 1;
        sys::epoll_add(self.epoll.as_fd(), listen.as_raw_fd(), libc::EPOLLIN, token)?;
        let bell = Arc::new(HouseBell {
            link,
            link_closed: Arc::clone(closed),
            token,
            page,
            listen,
            page_fd: Arc::new(page_fd),
            ring_fd: Arc::new(ring),
        });
        // A waker that sleeps already is rung by peers that come later, too.
        bell.set(state.armed);
        state.bells.push(Arc::clone(&bell));
        Ok(bell)
    }

    fn set_all(&self, armed: bool) {
        let mut state = lock(&self.state);
        state.armed = armed;
        state.bells.retain(|bell| !bell.is_over());
        for bell in &state.bells {
            bell.set(armed);
        }
    }

    /// Drops the bells of links that have closed.
    pub(super) fn forget_closed(&self) {
        lock(&self.state).bells.retain(|bell| !bell.is_over());
    }

    fn clear(&self, token: u64) {
        if token == OWN {
            sys::event_clear(self.own.as_fd());
            return;
        }
        let state = lock(&self.state);
        let Some(bell) = state.bells.iter().find(|bell| bell.token == token) else { return };
        if !socket::drain(bell.listen.as_fd()) {
            crate::event!(
                crate::observe::Level::WARN,
                crate::observe::events::SHM_BELL_SHUT,
                link = bell.link,
                "a peer shut its bell and is no longer heard"
            );
            sys::epoll_remove(self.epoll.as_fd(), bell.listen.as_raw_fd());
        }
    }
}

impl Waker for ShmWaker {
    fn arm(&self) {
        self.set_all(true);
        fence::heavy();
    }

    fn wait(&self, timeout: Duration) -> bool {
        if !sys::wait_readable(self.epoll.as_fd(), now().after(timeout)) {
            return false;
        }
        let mut events = [sys::NO_EVENT; 16];
        let count = sys::epoll_wait(self.epoll.as_fd(), &mut events, 0).unwrap_or(0);
        for event in &events[..count] {
            self.clear(event.u64);
        }
        count > 0
    }

    fn disarm(&self) {
        self.set_all(false);
    }

    fn notify(&self) {
        sys::event_signal(self.own.as_fd());
    }
}

/// The ringer's end of a bell.
#[derive(Debug)]
pub(super) struct Bell {
    page: Arc<Mapping>,
    ring: OwnedFd,
    light: bool,
}

impl Bell {
    /// `light`: both processes take part in barriers.
    pub(super) fn new(page: Arc<Mapping>, ring: OwnedFd, light: bool) -> Bell {
        Bell { page, ring, light }
    }

    /// Rings if the peer sleeps.
    #[inline]
    pub(super) fn ring(&self) {
        if self.light {
            fence::light();
        } else {
            fence::full();
        }
        // SAFETY: the page is mapped as long as `self`, aligned, and only touched atomically.
        let word = unsafe { AtomicU32::from_ptr(self.page.base().as_ptr().cast()) };
        if word.load(Ordering::Relaxed) != 0 {
            self.send();
        }
    }

    #[cold]
    fn send(&self) {
        socket::ring(self.ring.as_fd());
    }
}

/// A number that no other link of this process has.
pub(super) fn next_link_number() -> u64 {
    static NEXT: AtomicU64 = AtomicU64::new(1);
    NEXT.fetch_add(1, Ordering::Relaxed)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fabric::conformance::pair::PATIENCE;
    use crate::sync::CachePadded;

    fn open() -> Arc<AtomicBool> {
        Arc::new(AtomicBool::new(false))
    }

    fn outside(bell: &HouseBell) -> Bell {
        let page = Mapping::shared(bell.page_fd.as_fd(), BELL_BYTES, false, false).expect("page");
        Bell::new(Arc::new(page), bell.ring_fd.try_clone().expect("socket"), fence::available())
    }

    #[test]
    fn a_bell_is_heard_only_while_its_waker_is_armed() {
        let waker = ShmWaker::new().expect("waker");
        let house = waker.bell_for(1, &open()).expect("bell");
        let bell = outside(&house);
        bell.ring();
        assert!(!waker.wait(Duration::ZERO));
        waker.arm();
        bell.ring();
        assert!(waker.wait(Duration::ZERO));
        assert!(!waker.wait(Duration::ZERO));
        let late = outside(&waker.bell_for(2, &open()).expect("bell"));
        late.ring();
        waker.disarm();
        bell.ring();
    }

    #[test]
    fn a_bell_ends_with_its_link() {
        let waker = ShmWaker::new().expect("waker");
        let closed = open();
        let first = waker.bell_for(1, &closed).expect("bell");
        assert!(Arc::ptr_eq(&first, &waker.bell_for(1, &closed).expect("bell")));
        assert_eq!(Arc::strong_count(&first), 2);
        closed.store(true, Ordering::Relaxed);
        waker.forget_closed();
        assert_eq!(Arc::strong_count(&first), 1);
    }

    #[test]
    fn a_peer_that_shuts_its_bell_silences_itself_alone() {
        let waker = ShmWaker::new().expect("waker");
        let (bad, good) = (waker.bell_for(1, &open()).expect("bell"), waker.bell_for(2, &open()).expect("bell"));
        let good_outside = outside(&good);
        waker.arm();
        socket::shut(bad.ring_fd.as_fd());
        assert!(waker.wait(Duration::ZERO));
        assert!(!waker.wait(Duration::ZERO));
        good_outside.ring();
        assert!(waker.wait(Duration::ZERO));
    }

    #[test]
    fn a_notice_is_heard_once() {
        let waker = ShmWaker::new().expect("waker");
        waker.notify();
        waker.notify();
        assert!(waker.wait(Duration::ZERO));
        assert!(!waker.wait(Duration::ZERO));
    }

    /// Keeps the calling thread, and those it starts, on the last core that it may use.
    fn stay_on_the_last_core() {
        // SAFETY: all-zero is a valid set; the sets outlive the calls, whose size is theirs.
        unsafe {
            let (mut allowed, mut one) = core::mem::zeroed::<(libc::cpu_set_t, libc::cpu_set_t)>();
            libc::sched_getaffinity(0, size_of::<libc::cpu_set_t>(), &raw mut allowed);
            let last = (0..8 * size_of::<libc::cpu_set_t>()).rev().find(|core| libc::CPU_ISSET(*core, &allowed));
            libc::CPU_SET(last.expect("a core"), &mut one);
            libc::sched_setaffinity(0, size_of::<libc::cpu_set_t>(), &raw const one);
        }
    }

    /// Store buffering, made likely: before the ringer stores its word, it stores to lines that the sleeper has, so the
    /// word stays in its store buffer for as long as those take to come, while its look at the bell is made at once.
    /// Without the barrier in `arm`, sleeper and ringer then miss each other within some thousand rounds, and the sleeper
    /// sleeps for ever. So they do, with the kernel's barrier for all processes alone, while threads end beside them.
    #[test]
    fn a_ring_is_never_lost_however_late_the_word_becomes_visible() {
        const ROUNDS: u32 = 60_000;
        const LINES: usize = 48;
        let waker = ShmWaker::new().expect("waker");
        let bell = outside(&waker.bell_for(1, &open()).expect("bell"));
        let lines: Vec<CachePadded<AtomicU32>> = (0..LINES).map(|_| CachePadded(AtomicU32::new(0))).collect();
        let (turn, word) = (CachePadded(AtomicU32::new(0)), CachePadded(AtomicU32::new(0)));
        let over = AtomicBool::new(false);
        let spin = |count: u32| (0..count).for_each(|_| core::hint::spin_loop());
        std::thread::scope(|scope| {
            scope.spawn(|| {
                stay_on_the_last_core();
                while !over.load(Ordering::Relaxed) {
                    std::thread::spawn(std::thread::yield_now).join().expect("a thread that ends");
                    // Leaves the core to the ringer.
                    crate::time::pause(Duration::from_micros(200));
                }
            });
            scope.spawn(|| {
                stay_on_the_last_core();
                for round in 1..=ROUNDS {
                    while turn.0.load(Ordering::Relaxed) != round {
                        if over.load(Ordering::Relaxed) {
                            return;
                        }
                        core::hint::spin_loop();
                    }
                    // Its look at the bell is to be quicker than the stores: the bell's line comes here first.
                    bell.ring();
                    spin(round % 7);
                    for line in &lines {
                        line.0.store(round, Ordering::Relaxed);
                    }
                    // Release. Partner: Acquire in the sleeper's look.
                    word.0.store(round, Ordering::Release);
                    bell.ring();
                }
            });
            for round in 1..=ROUNDS {
                // Takes the lines over here.
                lines.iter().for_each(|line| line.0.store(0, Ordering::Relaxed));
                turn.0.store(round, Ordering::Relaxed);
                spin(round % 97);
                waker.arm();
                // Acquire. Partner: Release at the ringer. A ring of an earlier round, which saw the word by itself, may be
                // heard now: then it looks again.
                while word.0.load(Ordering::Acquire) != round {
                    if waker.wait(PATIENCE) {
                        continue;
                    }
                    // A machine that stood still kept the ringer from both; a word that came without its ring is the fault.
                    let lost = word.0.load(Ordering::Acquire) == round && !waker.wait(PATIENCE);
                    over.store(lost, Ordering::Relaxed);
                    assert!(!lost, "round {round}: the ring was lost");
                }
                waker.disarm();
            }
            over.store(true, Ordering::Relaxed);
        });
    }
}
