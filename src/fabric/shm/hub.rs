//! What all queue pairs of one opened fabric share: its endpoint, its links, and the thread that serves them.

use super::link::{End, Flushed, Link, Parcel};
use super::message::{MESSAGE_BYTES, Message, QpLife, Refusal};
use super::qp::{QpCore, unreachable};
use super::socket::{self, EndpointName};
use super::sys;
use super::waker::ShmWaker;
use crate::error::{Error, Result, Status};
use crate::sync::{Arc, AtomicBool, AtomicU32, Mutex, Ordering, Weak, lock};
use crate::time::{Tick, pause};
use core::time::Duration;
use std::collections::HashMap;
use std::io;
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::thread::JoinHandle;

const TOKEN_WAKE: u64 = 0;
const TOKEN_LISTEN: u64 = 1;
/// Most messages taken from one link before the others have their turn.
const TURN_MESSAGES: usize = 64;
/// How long the thread waits before it tries again what failed for want of descriptors.
const RETRY_MS: i32 = 20;

/// Shared state.
#[derive(Debug)]
pub(super) struct Hub {
    pub(super) name: EndpointName,
    listener: OwnedFd,
    epoll: Arc<OwnedFd>,
    wake: OwnedFd,
    huge: bool,
    stop: AtomicBool,
    next_qp: AtomicU32,
    qps: Mutex<HashMap<u32, Weak<QpCore>>>,
    wakers: Mutex<Vec<Weak<ShmWaker>>>,
    links: Mutex<Links>,
}

#[derive(Debug, Default)]
struct Links {
    all: HashMap<u64, Arc<Link>>,
    dialed: HashMap<EndpointName, Arc<Link>>,
    /// No new ones: this side is about to end.
    given_up: bool,
}

/// The hub and its thread. The last handle to it, always on a thread of the caller, ends the thread.
#[derive(Debug)]
pub(super) struct Core {
    pub(super) hub: Arc<Hub>,
    thread: Option<JoinHandle<()>>,
}

impl Core {
    /// Starts to listen. `huge`: reserved huge pages of peers are taken.
    pub(super) fn start(huge: bool) -> io::Result<Core> {
        let name = EndpointName(sys::random()?);
        let (listener, epoll, wake) = (socket::listen(name)?, sys::epoll()?, sys::event()?);
        sys::epoll_add(epoll.as_fd(), wake.as_raw_fd(), libc::EPOLLIN, TOKEN_WAKE)?;
        sys::epoll_add(epoll.as_fd(), listener.as_raw_fd(), libc::EPOLLIN, TOKEN_LISTEN)?;
        let hub = Arc::new(Hub {
            name,
            listener,
            epoll: Arc::new(epoll),
            wake,
            huge,
            stop: AtomicBool::new(false),
            next_qp: AtomicU32::new(u32::from_le_bytes(sys::random()?)),
            qps: Mutex::new(HashMap::new()),
            wakers: Mutex::default(),
            links: Mutex::new(Links::default()),
        });
        let served = Arc::clone(&hub);
        let thread = crate::thread::deaf(|| {
            std::thread::Builder::new().name("reclane-shm".to_owned()).spawn(move || served.serve())
        })?;
        Ok(Core { hub, thread: Some(thread) })
    }
}

impl Drop for Core {
    fn drop(&mut self) {
        // Release. Partner: Acquire in `serve`.
        self.hub.stop.store(true, Ordering::Release);
        sys::event_signal(self.hub.wake.as_fd());
        if let Some(thread) = self.thread.take() {
            // The thread cannot have been the one that drops the core: it holds only the hub.
            let _ = thread.join();
        }
    }
}

impl Links {
    fn may_dial(&self) -> Result<()> {
        if self.given_up { Err(unreachable("shm: this side is about to end")) } else { Ok(()) }
    }
}

impl Hub {
    /// Makes a queue pair known under a number that no other living one has.
    pub(super) fn enter(&self, make: impl FnOnce(u32) -> Result<Arc<QpCore>>) -> Result<Arc<QpCore>> {
        let mut qps = lock(&self.qps);
        let number = loop {
            let number = self.next_qp.fetch_add(1, Ordering::Relaxed);
            if number != 0 && !qps.contains_key(&number) {
                break number;
            }
        };
        let qp = make(number)?;
        qps.insert(number, Arc::downgrade(&qp));
        Ok(qp)
    }

    /// Makes a waker known: bells that it gave out end with their links.
    pub(super) fn keep(&self, waker: &Arc<ShmWaker>) {
        let mut wakers = lock(&self.wakers);
        wakers.retain(|waker| waker.strong_count() > 0);
        wakers.push(Arc::downgrade(waker));
    }

    /// Forgets a queue pair.
    pub(super) fn leave(&self, number: u32) {
        lock(&self.qps).remove(&number);
    }

    fn find(&self, number: u32) -> Option<Arc<QpCore>> {
        lock(&self.qps).get(&number).and_then(Weak::upgrade)
    }

    /// The link to another endpoint, made if there is none.
    pub(super) fn link_to(&self, name: EndpointName, until: Tick) -> Result<Arc<Link>> {
        let known = {
            let links = lock(&self.links);
            links.may_dial()?;
            links.dialed.get(&name).cloned()
        };
        if let Some(link) = known.filter(|link| !link.is_closed()) {
            return Ok(link);
        }
        let failed = |error: &io::Error| {
            let mut report = Error::os("shm: cannot reach the peer's endpoint", error);
            report.status = Status::ShardUnreachable;
            report
        };
        let socket = loop {
            match socket::dial(name) {
                Ok(socket) => break socket,
                Err(error) if matches!(error.raw_os_error(), Some(libc::EAGAIN | libc::EINTR)) => {
                    if until.remaining().is_zero() {
                        return Err(failed(&error));
                    }
                    pause(Duration::from_millis(1));
                    lock(&self.links).may_dial()?;
                }
                Err(error) => return Err(failed(&error)),
            }
        };
        let link = Arc::new(Link::new(socket, &self.epoll, self.huge).map_err(|error| failed(&error))?);
        let mut links = lock(&self.links);
        links.may_dial()?;
        // Another thread may have been faster: then its link serves both, and ours closes with its last reference.
        if let Some(first) = links.dialed.get(&name).filter(|first| !first.is_closed()) {
            return Ok(Arc::clone(first));
        }
        links.all.insert(link.number, Arc::clone(&link));
        links.dialed.insert(name, Arc::clone(&link));
        if let Err(error) = link.watch() {
            links.all.remove(&link.number);
            links.dialed.remove(&name);
            link.close();
            return Err(failed(&error));
        }
        Ok(link)
    }

    /// Ends what waits for a peer, here and later; what is connected goes on.
    pub(super) fn give_up(&self) {
        let mut links = lock(&self.links);
        links.given_up = true;
        links.all.values().for_each(|link| link.give_up());
    }

    fn serve(&self) {
        let mut events = [sys::NO_EVENT; 64];
        let mut retry = false;
        while let Ok(count) = sys::epoll_wait(self.epoll.as_fd(), &mut events, if retry { RETRY_MS } else { -1 }) {
            // Acquire. Partner: Release in the drop of `Core`.
            if self.stop.load(Ordering::Acquire) {
                break;
            }
            if retry {
                retry = !self.listen_again();
            }
            for event in &events[..count] {
                match event.u64 {
                    TOKEN_WAKE => sys::event_clear(self.wake.as_fd()),
                    TOKEN_LISTEN => retry |= !self.accept_all(),
                    token => self.serve_link(token, event.events.cast_signed()),
                }
            }
        }
        let links: Vec<Arc<Link>> = lock(&self.links).all.values().cloned().collect();
        for link in links {
            self.close(&link, "this side closes");
        }
    }

    fn listen_again(&self) -> bool {
        sys::epoll_change(self.epoll.as_fd(), self.listener.as_raw_fd(), libc::EPOLLIN, TOKEN_LISTEN).is_ok()
    }

    /// False when there are no descriptors for the next connection: it waits, and so do we.
    fn accept_all(&self) -> bool {
        for _ in 0..TURN_MESSAGES {
            let socket = match socket::accept(self.listener.as_fd()) {
                Ok(socket) => socket,
                Err(error) => match error.raw_os_error() {
                    Some(libc::EMFILE | libc::ENFILE | libc::ENOBUFS | libc::ENOMEM) => {
                        crate::event!(crate::observe::Level::WARN, crate::observe::events::SHM_ACCEPT_FAILED, %error);
                        let fd = self.listener.as_raw_fd();
                        return sys::epoll_change(self.epoll.as_fd(), fd, 0, TOKEN_LISTEN).is_err();
                    }
                    _ => return true,
                },
            };
            match Link::new(socket, &self.epoll, self.huge) {
                Ok(link) => {
                    let link = Arc::new(link);
                    lock(&self.links).all.insert(link.number, Arc::clone(&link));
                    if let Err(error) = link.watch() {
                        self.close(&link, &error.to_string());
                    }
                }
                Err(error) => {
                    crate::event!(crate::observe::Level::WARN, crate::observe::events::SHM_PEER_REFUSED, %error)
                }
            }
        }
        true
    }

    fn serve_link(&self, token: u64, events: libc::c_int) {
        let Some(link) = lock(&self.links).all.get(&(token / 2)).cloned() else { return };
        if token % 2 == 1 {
            self.close(&link, "the process ended");
            return;
        }
        if events & (libc::EPOLLIN | libc::EPOLLHUP | libc::EPOLLERR) != 0
            && let Err(why) = self.receive_turn(&link)
        {
            self.close(&link, &why);
            return;
        }
        if events & libc::EPOLLOUT != 0 {
            match link.flush() {
                Flushed::All | Flushed::Full => {}
                Flushed::Later => pause(Duration::from_millis(1)),
                Flushed::Broken => self.close(&link, "the socket broke"),
            }
        }
    }

    fn receive_turn(&self, link: &Arc<Link>) -> core::result::Result<(), String> {
        let mut buffer = [0; MESSAGE_BYTES];
        for _ in 0..TURN_MESSAGES {
            let received = match socket::receive(link.socket.as_fd(), &mut buffer) {
                Ok(received) => received,
                Err(error) if matches!(error.raw_os_error(), Some(libc::EAGAIN | libc::EINTR)) => return Ok(()),
                Err(error) => return Err(error.to_string()),
            };
            if received.bytes == 0 {
                return Err("the peer closed its socket".to_owned());
            }
            let message = Message::decode(&buffer[..received.bytes]).filter(|_| !received.truncated);
            match message {
                Some(message) if message.descriptors() == received.fds.len() => {
                    self.handle(link, message, received.fds)?;
                }
                _ => return Err("the peer sent something that is no message of this protocol".to_owned()),
            }
        }
        Ok(())
    }

    fn handle(&self, link: &Arc<Link>, message: Message, fds: Vec<OwnedFd>) -> core::result::Result<(), String> {
        match message {
            Message::Fetch { id, target, from, generation } => self.answer_fetch(link, id, target, from, generation),
            Message::Region { id, region } => {
                for fd in fds {
                    if !link.region_arrived(id, region, fd) {
                        return Err("the peer exposes more regions than a queue pair may have".to_owned());
                    }
                }
            }
            Message::Attached { id, bell, barrier, ring_entries } => {
                link.answer_arrived(id, End::Attached { bell, barrier, ring_entries, fds });
            }
            Message::Refused { id, why } => link.answer_arrived(id, End::Refused(why)),
            Message::Accepted { id } => link.answer_arrived(id, End::Accepted),
            Message::Expose { id, target, region } => {
                let qp = self.find(target.number);
                let added = match (qp, fds.first()) {
                    (Some(qp), Some(fd)) => qp.region_exposed(link, target.nonce, &region, fd),
                    _ => Err(Refusal::Unknown),
                };
                let answer = match added {
                    Ok(()) => Message::Accepted { id },
                    Err(why) => Message::Refused { id, why },
                };
                link.send(Parcel::new(&answer, Vec::new()));
            }
            Message::Unexpose { target, rkey } => {
                if let Some(qp) = self.find(target.number) {
                    qp.region_taken_back(link, target.nonce, rkey);
                }
            }
            Message::Failed { target, status } => {
                if let Some(qp) = self.find(target.number) {
                    qp.peer_failed(link, target.nonce, status);
                }
            }
        }
        Ok(())
    }

    fn answer_fetch(&self, link: &Arc<Link>, id: u64, target: QpLife, from: QpLife, generation: u32) {
        let answer = match self.find(target.number) {
            Some(qp) => qp.answer_fetch(link, id, target.nonce, from, generation),
            None => Err(Refusal::Unknown),
        };
        if let Err(why) = answer {
            link.send(Parcel::new(&Message::Refused { id, why }, Vec::new()));
        }
    }

    fn close(&self, link: &Arc<Link>, why: &str) {
        if !link.close() {
            return;
        }
        {
            let mut links = lock(&self.links);
            links.all.remove(&link.number);
            links.dialed.retain(|_, dialed| dialed.number != link.number);
        }
        crate::event!(
            crate::observe::Level::DEBUG,
            crate::observe::events::SHM_LINK_CLOSED,
            link = link.number,
            pid = link.pid,
            why
        );
        let qps: Vec<Arc<QpCore>> = lock(&self.qps).values().filter_map(Weak::upgrade).collect();
        for qp in qps {
            qp.link_closed(link, why);
        }
        // The queue pairs may have been told before that their peers closed, or be gone.
        let wakers: Vec<Arc<ShmWaker>> = lock(&self.wakers).iter().filter_map(Weak::upgrade).collect();
        wakers.iter().for_each(|waker| waker.forget_closed());
    }
}
