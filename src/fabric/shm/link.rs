//! A link: one socket between two processes, shared by all queue pairs between them, open as long as both live.

use super::memory::{FileId, Mapping, map_peer_memory, verify_peer_memory};
use super::message::{MESSAGE_BYTES, Message, Refusal};
use super::waker::{BELL_BYTES, Bell, next_link_number};
use super::{fence, socket, sys};
use crate::fabric::{Access, RegionAddress};
use crate::sync::{Arc, AtomicBool, AtomicU64, Condvar, Mutex, Ordering, Weak, lock};
use crate::time::Tick;
use std::collections::{HashMap, VecDeque};
use std::io;
use std::os::fd::{AsFd, AsRawFd, OwnedFd, RawFd};

/// Most messages that wait for a peer that does not read; then it counts as gone.
const OUTBOX_MAX: usize = 1 << 14;
/// Most bytes of one peer that are mapped: address space is ours to lose, and a file in memory of any length is free.
const PEER_BYTES_MAX: usize = 1 << 40;
/// As long as no more than this of a peer is mapped, small pieces get their pages at once.
const PEER_EAGER_BYTES_MAX: usize = 64 << 20;
/// Most regions of one queue pair.
pub(super) const REGIONS_MAX: usize = 1 << 10;

/// A message on its way, with the descriptors that travel with it.
pub(super) struct Parcel {
    bytes: [u8; MESSAGE_BYTES],
    fds: Vec<Arc<OwnedFd>>,
}

impl Parcel {
    /// `fds` are as many as the message says.
    pub(super) fn new(message: &Message, fds: Vec<Arc<OwnedFd>>) -> Parcel {
        debug_assert_eq!(message.descriptors(), fds.len());
        Parcel { bytes: message.encode(), fds }
    }
}

/// What came of sending what waits.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Flushed {
    /// Everything is on its way.
    All,
    /// The socket is full: its epoll says when to go on.
    Full,
    /// Too many descriptors are under way on this machine: go on a little later.
    Later,
    /// The connection is over.
    Broken,
}

/// A request that waits for its answer.
#[derive(Debug, Default)]
pub(super) struct Pending {
    answer: Mutex<Answer>,
    arrived: Condvar,
}

#[derive(Debug, Default)]
struct Answer {
    regions: Vec<(RegionAddress, OwnedFd)>,
    end: Option<End>,
}

/// How a request ended.
#[derive(Debug)]
pub(super) enum End {
    /// Accepted.
    Accepted,
    /// Attached, with the descriptors of bell and ring.
    Attached { bell: bool, barrier: bool, ring_entries: u32, fds: Vec<OwnedFd> },
    /// Refused.
    Refused(Refusal),
    /// The link closed.
    Closed,
}

impl Pending {
    /// Ends the wait; the first end counts.
    pub(super) fn finish(&self, end: End) {
        let mut answer = lock(&self.answer);
        if answer.end.is_none() {
            answer.end = Some(end);
        }
        self.arrived.notify_all();
    }

    /// Waits for the end of the answer; None when the time is over.
    pub(super) fn wait(&self, until: Tick) -> Option<(Vec<(RegionAddress, OwnedFd)>, End)> {
        let mut answer = lock(&self.answer);
        loop {
            if let Some(end) = answer.end.take() {
                return Some((core::mem::take(&mut answer.regions), end));
            }
            let left = until.remaining();
            if left.is_zero() {
                return None;
            }
            answer = self.arrived.wait_timeout(answer, left).unwrap_or_else(std::sync::PoisonError::into_inner).0;
        }
    }
}

/// Our end of a link.
#[derive(Debug)]
pub(super) struct Link {
    /// Number of the link in this process.
    pub(super) number: u64,
    /// Process at the other end, as the kernel names it.
    pub(super) pid: libc::pid_t,
    pub(super) socket: OwnedFd,
    /// Readable when that process ends: a child that it forked may hold its socket open.
    pub(super) process: Option<OwnedFd>,
    epoll: Arc<OwnedFd>,
    /// Memory of the peer may be reserved huge pages.
    huge: bool,
    /// Shared with the bells that were handed over this link: they end with it.
    pub(super) closed: Arc<AtomicBool>,
    /// Nobody here waits for the peer any more.
    given_up: AtomicBool,
    outbox: Mutex<VecDeque<Parcel>>,
    next_request: AtomicU64,
    pending: Mutex<HashMap<u64, Arc<Pending>>>,
    maps: Mutex<HashMap<(FileId, bool), Weak<Mapping>>>,
    /// Those of them that end with the peer.
    lent: Mutex<Vec<Weak<Mapping>>>,
    bells: Mutex<HashMap<FileId, Weak<Bell>>>,
}

impl core::fmt::Debug for Parcel {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.debug_struct("Parcel").field("fds", &self.fds.len()).finish_non_exhaustive()
    }
}

/// Whether a process of this user may connect: only our own may.
pub(super) fn may_connect(peer: libc::uid_t, ours: libc::uid_t) -> bool {
    peer == ours
}

/// The epoll token of a link's socket.
pub(super) fn socket_token(link: u64) -> u64 {
    link * 2
}

/// The epoll token of a link's process.
pub(super) fn process_token(link: u64) -> u64 {
    link * 2 + 1
}

impl Link {
    /// Takes over a connected socket, after a look at who is at the other end.
    pub(super) fn new(socket: OwnedFd, epoll: &Arc<OwnedFd>, huge: bool) -> io::Result<Link> {
        let (pid, uid) = socket::peer_of(socket.as_fd())?;
        let ours = sys::user();
        if !may_connect(uid, ours) {
            let text = format!("process {pid} belongs to user {uid}; only processes of user {ours} may connect");
            return Err(io::Error::new(io::ErrorKind::PermissionDenied, text));
        }
        Ok(Link {
            number: next_link_number(),
            pid,
            socket,
            process: sys::process_watch(pid),
            epoll: Arc::clone(epoll),
            huge,
            closed: Arc::new(AtomicBool::new(false)),
            given_up: AtomicBool::new(false),
            outbox: Mutex::new(VecDeque::new()),
            next_request: AtomicU64::new(1),
            pending: Mutex::new(HashMap::new()),
            maps: Mutex::new(HashMap::new()),
            lent: Mutex::default(),
            bells: Mutex::new(HashMap::new()),
        })
    }

    /// Starts to hear of messages and of the end.
    pub(super) fn watch(&self) -> io::Result<()> {
        if let Some(process) = &self.process {
            let token = process_token(self.number);
            sys::epoll_add(self.epoll.as_fd(), process.as_raw_fd(), libc::EPOLLIN, token)?;
        }
        sys::epoll_add(self.epoll.as_fd(), self.socket.as_raw_fd(), libc::EPOLLIN, socket_token(self.number))
    }

    /// Whether it is over.
    pub(super) fn is_closed(&self) -> bool {
        // SeqCst. Partner: `close`, see there.
        self.closed.load(Ordering::SeqCst)
    }

    /// Ends it; true for the first caller. Every waiting request ends, and so does every later one.
    pub(super) fn close(&self) -> bool {
        // SeqCst: whoever puts itself on the link looks at the flag afterwards, the closer looks for those on the link
        // afterwards; one of them sees the other. Partner: `is_closed`. (Both also pass through the same locks.)
        let first = !self.closed.swap(true, Ordering::SeqCst);
        if first {
            sys::epoll_remove(self.epoll.as_fd(), self.socket.as_raw_fd());
            if let Some(process) = &self.process {
                sys::epoll_remove(self.epoll.as_fd(), process.as_raw_fd());
            }
            socket::shut(self.socket.as_fd());
            lock(&self.outbox).clear();
            lock(&self.lent).drain(..).filter_map(|lent| lent.upgrade()).for_each(|lent| lent.vacate());
            for (_, pending) in lock(&self.pending).drain() {
                pending.finish(End::Closed);
            }
        }
        first
    }

    /// Sends, now or as soon as the socket has room. A peer that reads nothing at all loses the link.
    pub(super) fn send(&self, parcel: Parcel) {
        let mut outbox = lock(&self.outbox);
        if self.is_closed() {
            return;
        }
        if outbox.len() >= OUTBOX_MAX {
            // The agent sees the end of the socket and closes the link in order.
            socket::shut(self.socket.as_fd());
            return;
        }
        outbox.push_back(parcel);
        if outbox.len() == 1 && self.flush_locked(&mut outbox) != Flushed::All {
            self.watch_room(true);
        }
    }

    /// Goes on sending what waits.
    pub(super) fn flush(&self) -> Flushed {
        let mut outbox = lock(&self.outbox);
        let result = self.flush_locked(&mut outbox);
        if result == Flushed::All {
            self.watch_room(false);
        }
        result
    }

    fn flush_locked(&self, outbox: &mut VecDeque<Parcel>) -> Flushed {
        while let Some(parcel) = outbox.front() {
            let fds: Vec<RawFd> = parcel.fds.iter().map(|fd| fd.as_raw_fd()).collect();
            match socket::send(self.socket.as_fd(), &parcel.bytes, &fds) {
                Ok(()) => {
                    outbox.pop_front();
                }
                Err(error) => {
                    return match error.raw_os_error() {
                        Some(libc::EAGAIN) => Flushed::Full,
                        Some(libc::ETOOMANYREFS | libc::ENOBUFS | libc::ENOMEM | libc::EINTR) => Flushed::Later,
                        _ => Flushed::Broken,
                    };
                }
            }
        }
        Flushed::All
    }

    fn watch_room(&self, room: bool) {
        if self.is_closed() {
            return;
        }
        let events = libc::EPOLLIN | if room { libc::EPOLLOUT } else { 0 };
        let token = socket_token(self.number);
        // It fails only when the link is being closed, which ends the outbox too.
        let _ = sys::epoll_change(self.epoll.as_fd(), self.socket.as_raw_fd(), events, token);
    }

    /// Sends a request; `build` gets its number. The answer comes to the returned place.
    pub(super) fn request(&self, fds: Vec<Arc<OwnedFd>>, build: impl FnOnce(u64) -> Message) -> (u64, Arc<Pending>) {
        let id = self.next_request.fetch_add(1, Ordering::Relaxed);
        let pending = Arc::new(Pending::default());
        lock(&self.pending).insert(id, Arc::clone(&pending));
        self.send(Parcel::new(&build(id), fds));
        // A link that closed before the insertion did not see this request. Relaxed: `give_up` sets its flag before it
        // takes the lock under which the insertion was made.
        if self.is_closed() || self.given_up.load(Ordering::Relaxed) {
            self.forget(id);
            pending.finish(End::Closed);
        }
        (id, pending)
    }

    /// Ends every request that waits, and every later one: this side is about to end.
    pub(super) fn give_up(&self) {
        // Relaxed: see `request`.
        self.given_up.store(true, Ordering::Relaxed);
        for (_, pending) in lock(&self.pending).drain() {
            pending.finish(End::Closed);
        }
    }

    /// Gives a request up.
    pub(super) fn forget(&self, id: u64) {
        lock(&self.pending).remove(&id);
    }

    /// A region of an answer. False: the peer breaks the rules.
    pub(super) fn region_arrived(&self, id: u64, region: RegionAddress, fd: OwnedFd) -> bool {
        let pending = lock(&self.pending);
        // An answer that nobody waits for any more is late, not wrong.
        let Some(request) = pending.get(&id) else { return true };
        let mut answer = lock(&request.answer);
        answer.regions.push((region, fd));
        answer.regions.len() <= REGIONS_MAX
    }

    /// The end of an answer.
    pub(super) fn answer_arrived(&self, id: u64, end: End) {
        let request = lock(&self.pending).remove(&id);
        if let Some(request) = request {
            request.finish(end);
        }
    }

    /// Maps memory of this link's peer; the same file with the same rights is mapped once.
    pub(super) fn map(&self, fd: &OwnedFd, bytes: usize, writable: bool) -> Result<Arc<Mapping>, String> {
        let file = verify_peer_memory(fd.as_fd(), bytes, self.huge)?;
        let mut maps = lock(&self.maps);
        if let Some(known) = maps.get(&(file, writable)).and_then(Weak::upgrade)
            && known.bytes() >= bytes
        {
            return Ok(known);
        }
        maps.retain(|_, mapping| mapping.strong_count() > 0);
        let bytes_of = |wanted: &dyn Fn(bool) -> bool| -> usize {
            let those = maps.iter().filter(|((_, writable), _)| wanted(*writable));
            those.filter_map(|(_, mapping)| mapping.upgrade()).map(|mapping| mapping.bytes()).sum()
        };
        let mapped = bytes_of(&|_| true);
        if bytes > PEER_BYTES_MAX - mapped.min(PEER_BYTES_MAX) {
            return Err(format!("{bytes} bytes beside {mapped} are more than the {PEER_BYTES_MAX} of one process"));
        }
        // What is only read may be large, and is not touched as a whole.
        let eager = bytes_of(&|writable| writable) + bytes <= PEER_EAGER_BYTES_MAX;
        let mapping = map_peer_memory(fd.as_fd(), bytes, writable, eager)
            .map_err(|error| format!("{bytes} bytes of the peer's memory cannot be mapped: {error}"))?;
        let mapping = Arc::new(mapping);
        maps.insert((file, writable), Arc::downgrade(&mapping));
        Ok(mapping)
    }

    /// Maps a region of this link's peer with the rights it gives.
    pub(super) fn map_region(&self, fd: &OwnedFd, region: &RegionAddress) -> Result<Arc<Mapping>, String> {
        let bytes = usize::try_from(region.bytes).map_err(|_| "the region is larger than the address space")?;
        let writable = region.access.0 & (Access::REMOTE_WRITE.0 | Access::REMOTE_ATOMIC.0) != 0;
        let mapping = self.map(fd, bytes, writable)?;
        if region.access == Access::LENT {
            lock(&self.lent).push(Arc::downgrade(&mapping));
            // The peer may have gone before it was on the list.
            if self.is_closed() {
                mapping.vacate();
            }
        }
        Ok(mapping)
    }

    /// The bell of a waker of this link's peer; one per waker, however many queue pairs it serves.
    pub(super) fn bell(&self, page: &OwnedFd, ring: OwnedFd, barrier: bool) -> Result<Arc<Bell>, String> {
        if !socket::is_bell(ring.as_fd()) {
            return Err("the bell's descriptor is not a socket of the expected kind".to_owned());
        }
        let file = verify_peer_memory(page.as_fd(), BELL_BYTES, self.huge)?;
        if let Some(known) = lock(&self.bells).get(&file).and_then(Weak::upgrade) {
            return Ok(known);
        }
        let mapping = self.map(page, BELL_BYTES, false)?;
        let bell = Arc::new(Bell::new(mapping, ring, barrier && fence::available()));
        let mut bells = lock(&self.bells);
        bells.retain(|_, bell| bell.strong_count() > 0);
        bells.insert(file, Arc::downgrade(&bell));
        Ok(bell)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_our_own_user_may_connect() {
        assert!(may_connect(1000, 1000));
        assert!(!may_connect(1001, 1000));
        // Root is not us either, unless we are root.
        assert!(!may_connect(0, 1000));
        assert!(!may_connect(libc::uid_t::MAX, 0));
    }

    #[test]
    fn a_peer_cannot_use_up_our_address_space() {
        let (ours, theirs) = socket::pair().expect("pair");
        let epoll = Arc::new(sys::epoll().expect("epoll"));
        let link = Link::new(ours, &epoll, false).expect("link");
        let mut kept = Vec::new();
        for _ in 0..4 {
            let bytes = PEER_BYTES_MAX / 4;
            let (fd, _unmapped_at_once) = super::super::memory::sealed_memory(bytes, false, false).expect("memory");
            kept.push(link.map(&fd, bytes, true).expect("within the bounds"));
        }
        let (fd, _mapping) = super::super::memory::sealed_memory(4096, false, false).expect("memory");
        assert!(link.map(&fd, 4096, true).expect_err("beyond them").contains("are more than"));
        kept.pop();
        assert!(link.map(&fd, 4096, true).is_ok());
        drop(theirs);
    }

    #[test]
    fn a_closed_link_ends_requests_before_and_after() {
        let (ours, theirs) = socket::pair().expect("pair");
        let epoll = Arc::new(sys::epoll().expect("epoll"));
        let link = Link::new(ours, &epoll, false).expect("link");
        link.watch().expect("watch");
        let ask = |id| Message::Accepted { id };
        let (_, before) = link.request(Vec::new(), ask);
        assert!(link.close());
        assert!(!link.close());
        let (_, after) = link.request(Vec::new(), ask);
        for pending in [before, after] {
            let (_, end) = pending.wait(Tick(0)).expect("ended");
            assert!(matches!(end, End::Closed));
        }
        drop(theirs);
    }

    #[test]
    fn a_peer_that_never_reads_loses_the_link_instead_of_our_memory() {
        let (ours, theirs) = socket::pair().expect("pair");
        let epoll = Arc::new(sys::epoll().expect("epoll"));
        let link = Link::new(ours, &epoll, false).expect("link");
        link.watch().expect("watch");
        for id in 0..2 * OUTBOX_MAX as u64 {
            link.send(Parcel::new(&Message::Accepted { id }, Vec::new()));
        }
        assert!(lock(&link.outbox).len() <= OUTBOX_MAX);
        assert_eq!(link.flush(), Flushed::Broken);
        drop(theirs);
    }
}
