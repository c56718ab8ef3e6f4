//! Peers that break the rules: strangers on our socket, and endpoints that answer with nonsense.

use super::super::address::Address;
use super::super::link::REGIONS_MAX;
use super::super::memory::sealed_memory;
use super::super::message::{MESSAGE_BYTES, Message, QpLife, Refusal};
use super::super::socket::{self, EndpointName};
use super::super::waker::BELL_BYTES;
use super::super::{Shm, sys};
use super::open;
use crate::error::{Error, Status};
use crate::fabric::conformance::pair::{End, PATIENCE, Pair, until};
use crate::fabric::{Access, Qp, QpAddress, QpState, RegionAddress};
use crate::sync::Arc;
use core::time::Duration;
use std::os::fd::{AsFd, AsRawFd, OwnedFd, RawFd};

/// The same numbers in every run.
struct Dice(u64);

impl Dice {
    fn roll(&mut self) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0
    }

    fn below(&mut self, bound: usize) -> usize {
        usize::try_from(self.roll() % bound as u64).expect("small")
    }
}

fn endpoint_of(address: &QpAddress) -> Address {
    Address::decode(address).expect("an address of this provider")
}

/// Whether the other end has hung up; takes what it said before.
fn hung_up(socket: &OwnedFd) -> Option<()> {
    let mut buffer = [0; MESSAGE_BYTES];
    match socket::receive(socket.as_fd(), &mut buffer) {
        Ok(received) if received.bytes == 0 => Some(()),
        Ok(_) => None,
        Err(error) if error.kind() == std::io::ErrorKind::WouldBlock => None,
        Err(_) => Some(()),
    }
}

fn hear(socket: &OwnedFd) -> Message {
    let mut buffer = [0; MESSAGE_BYTES];
    until("a message", || socket::receive(socket.as_fd(), &mut buffer).ok());
    Message::decode(&buffer).expect("a message")
}

fn say(socket: &OwnedFd, message: &Message, fds: &[RawFd]) {
    socket::send(socket.as_fd(), &message.encode(), fds).expect("send");
}

#[test]
fn garbage_ends_its_own_link_and_no_other() {
    let pair = Pair::connected(&open);
    let endpoint = endpoint_of(&pair.b.qp.address()).endpoint;
    let event = sys::event().expect("event");
    let good = Message::Accepted { id: 1 }.encode();
    let mut wrong_magic = good;
    wrong_magic[0] ^= 1;
    let fd = event.as_raw_fd();
    let garbage: [(&[u8], &[RawFd]); 7] = [
        (b"x", &[]),
        (&good[..MESSAGE_BYTES - 1], &[]),
        (&[good.as_slice(), &[0]].concat(), &[]),
        (&wrong_magic, &[]),
        (&[0xff; MESSAGE_BYTES], &[]),
        (&[0; 100_000], &[]),
        // A good message with a descriptor that does not belong to it.
        (&good, &[fd]),
    ];
    for (bytes, fds) in garbage {
        let stranger = socket::dial(endpoint).expect("dial");
        socket::send(stranger.as_fd(), bytes, fds).expect("send");
        until("hanging up", || hung_up(&stranger));
        pair.works();
    }
    assert_eq!((pair.a.qp.cause(), pair.b.qp.cause()), (None, None));
}

#[test]
fn random_messages_crash_and_confuse_nobody() {
    const STRANGERS: usize = 200;
    const MESSAGES: usize = 50;
    let pair = Pair::connected(&open);
    let victim = endpoint_of(&pair.b.qp.address());
    let (memory, _mapping) = sealed_memory(4096, false, false).expect("memory");
    let event = sys::event().expect("event");
    let mut dice = Dice(0x9e37_79b9_7f4a_7c15);
    for _ in 0..STRANGERS {
        let stranger = socket::dial(victim.endpoint).expect("dial");
        for _ in 0..MESSAGES {
            // The number of a real queue pair, but never its secret.
            let target = QpLife { number: victim.qp.number, nonce: victim.qp.nonce ^ (1 << dice.below(64)) };
            let region =
                RegionAddress { iova: dice.roll() >> 1, bytes: dice.roll() >> 40, rkey: 1, access: Access::ALL };
            let message = match dice.below(7) {
                0 => Message::Fetch { id: dice.roll(), target, from: target, generation: 1 },
                1 => Message::Region { id: dice.roll() % 8, region },
                2 => Message::Attached { id: dice.roll() % 8, bell: true, barrier: true, ring_entries: u32::MAX },
                3 => Message::Refused { id: dice.roll() % 8, why: Refusal::Taken },
                4 => Message::Expose { id: dice.roll(), target, region },
                5 => Message::Accepted { id: dice.roll() % 8 },
                _ => Message::Failed { target, status: 10 },
            };
            let mut bytes = message.encode();
            if dice.below(4) == 0 {
                let bit = dice.below(MESSAGE_BYTES * 8);
                bytes[bit / 8] ^= 1 << (bit % 8);
                // A flipped bit must not happen to mend the secret.
                bytes[24..32].copy_from_slice(&target.nonce.to_le_bytes());
            }
            let fds =
                vec![if dice.below(2) == 0 { memory.as_raw_fd() } else { event.as_raw_fd() }; message.descriptors()];
            if socket::send(stranger.as_fd(), &bytes, &fds).is_err() {
                break;
            }
        }
        pair.works();
    }
    assert_eq!((pair.a.qp.cause(), pair.b.qp.cause()), (None, None));
}

#[test]
fn the_secret_alone_is_not_enough_to_break_a_connection() {
    let pair = Pair::connected(&open);
    let victim = endpoint_of(&pair.b.qp.address());
    let stranger = socket::dial(victim.endpoint).expect("dial");
    // It knows everything, but this is not the link of that connection.
    say(&stranger, &Message::Failed { target: victim.qp, status: 10 }, &[]);
    let from = QpLife { number: 1, nonce: 2 };
    say(&stranger, &Message::Fetch { id: 9, target: victim.qp, from, generation: 1 }, &[]);
    assert_eq!(hear(&stranger), Message::Refused { id: 9, why: Refusal::Taken });
    let (memory, _mapping) = sealed_memory(4096, false, false).expect("memory");
    let region = RegionAddress { iova: 4096, bytes: 4096, rkey: 3, access: Access::ALL };
    say(&stranger, &Message::Expose { id: 10, target: victim.qp, region }, &[memory.as_raw_fd()]);
    assert_eq!(hear(&stranger), Message::Refused { id: 10, why: Refusal::Unknown });
    pair.works();
    assert_eq!(pair.b.qp.cause(), None);
}

/// Lets `end` connect to a peer that answers by hand; what came of it.
fn trap(end: &End<Shm>, timeout: Duration, answer: impl FnOnce(&OwnedFd, u64)) -> Box<Error> {
    let endpoint = EndpointName(sys::random().expect("random"));
    let listener = socket::listen(endpoint).expect("listen");
    let asked = QpLife { number: 5, nonce: 6 };
    let address = Address { endpoint, qp: asked }.encode();
    std::thread::scope(|scope| {
        let victim = scope.spawn(|| end.qp.connect(&address, timeout));
        let socket = until("a connection", || socket::accept(listener.as_fd()).ok());
        let Message::Fetch { id, target, .. } = hear(&socket) else { panic!("not a fetch") };
        assert_eq!(target, asked);
        answer(&socket, id);
        let error = victim.join().expect("thread").expect_err("an impostor");
        assert_eq!((error.status, end.qp.state()), (Status::ShardUnreachable, QpState::Reset));
        error
    })
}

fn attached(id: u64, ring_entries: u32, bell: bool) -> Message {
    Message::Attached { id, bell, barrier: true, ring_entries }
}

#[test]
fn memory_that_could_fault_is_never_mapped() {
    let end = End::<Shm>::new(Arc::new(open()));
    // SAFETY: the name is a NUL-terminated string.
    let unsealed =
        sys::owned(unsafe { libc::memfd_create(c"t".as_ptr(), libc::MFD_ALLOW_SEALING | libc::MFD_CLOEXEC) })
            .expect("memory");
    // SAFETY: no pointers.
    sys::checked(unsafe { libc::ftruncate(unsealed.as_raw_fd(), 1 << 20) }).expect("size");
    let (small, _small) = sealed_memory(4096, false, false).expect("memory");
    let event = sys::event().expect("event");
    let file = OwnedFd::from(std::fs::File::open("/proc/self/exe").expect("own program"));
    // A machine without reserved huge pages has no memory of this kind.
    let huge = sealed_memory(4096, true, false).ok();
    let huge = huge.as_ref().map(|(fd, _)| (fd, 4096));
    for (fd, bytes) in huge.into_iter().chain([
        (&unsealed, 4096),
        (&small, 4097),
        (&small, 0),
        (&small, u64::MAX >> 1),
        (&event, 8),
        (&file, 8),
    ]) {
        let region = RegionAddress { iova: 4096, bytes, rkey: 3, access: Access::ALL };
        trap(&end, PATIENCE, |socket, id| {
            say(socket, &Message::Region { id, region }, &[fd.as_raw_fd()]);
            say(socket, &attached(id, 0, false), &[]);
        });
        // A ring and a bell's page are checked in the same way.
        trap(&end, PATIENCE, |socket, id| say(socket, &attached(id, 512, false), &[unsealed.as_raw_fd()]));
        trap(&end, PATIENCE, |socket, id| say(socket, &attached(id, 1024, false), &[small.as_raw_fd()]));
        let (bell, _far) = socket::pair().expect("pair");
        let fds = [unsealed.as_raw_fd(), bell.as_raw_fd()];
        trap(&end, PATIENCE, |socket, id| say(socket, &attached(id, 0, true), &fds));
    }
    let end_after = Pair { a: end, b: End::new(Arc::new(open())) };
    end_after.connect();
    end_after.works();
}

#[test]
fn a_bell_must_be_a_socket_that_cannot_block() {
    let end = End::<Shm>::new(Arc::new(open()));
    let (page, _mapping) = sealed_memory(BELL_BYTES, false, false).expect("memory");
    let event = sys::event().expect("event");
    let error = trap(&end, PATIENCE, |socket, id| {
        say(socket, &attached(id, 0, true), &[page.as_raw_fd(), event.as_raw_fd()]);
    });
    assert!(error.message.contains("bell"), "{error}");
}

#[test]
fn an_endpoint_that_does_not_answer_costs_the_timeout_only() {
    let end = End::<Shm>::new(Arc::new(open()));
    let error = trap(&end, Duration::from_millis(50), |socket, id| {
        // It says something, but never the end.
        let (memory, _mapping) = sealed_memory(4096, false, false).expect("memory");
        let region = RegionAddress { iova: 4096, bytes: 4096, rkey: 3, access: Access::ALL };
        say(socket, &Message::Region { id, region }, &[memory.as_raw_fd()]);
    });
    assert!(error.message.contains("timeout"), "{error}");
}

#[test]
fn err_ends_a_connect_that_waits() {
    let end = End::<Shm>::new(Arc::new(open()));
    let endpoint = EndpointName(sys::random().expect("random"));
    let listener = socket::listen(endpoint).expect("listen");
    let address = Address { endpoint, qp: QpLife { number: 5, nonce: 6 } }.encode();
    std::thread::scope(|scope| {
        let victim = scope.spawn(|| end.qp.connect(&address, Duration::MAX));
        let socket = until("a connection", || socket::accept(listener.as_fd()).ok());
        assert!(matches!(hear(&socket), Message::Fetch { .. }));
        assert_eq!(end.qp.state(), QpState::Init);
        end.qp.modify(QpState::Err).expect("err");
        victim.join().expect("thread").expect_err("nobody answered");
        // It stays where it was put.
        assert_eq!(end.qp.state(), QpState::Err);
    });
    end.qp.modify(QpState::Reset).expect("reset");
    let pair = Pair { a: end, b: End::new(Arc::new(open())) };
    pair.connect();
    pair.works();
}

#[test]
fn an_endpoint_that_hangs_up_or_talks_nonsense_is_refused_at_once() {
    let end = End::<Shm>::new(Arc::new(open()));
    trap(&end, PATIENCE, |socket, _| socket::shut(socket.as_fd()));
    trap(&end, PATIENCE, |socket, _| socket::send(socket.as_fd(), b"nonsense", &[]).expect("send"));
    trap(&end, PATIENCE, |socket, id| say(socket, &Message::Accepted { id }, &[]));
    trap(&end, PATIENCE, |socket, id| {
        socket::send(socket.as_fd(), &attached(id, 16, true).encode(), &[]).expect("send");
    });
    trap(&end, PATIENCE, |socket, id| {
        let (ring, _mapping) = sealed_memory(4096, false, false).expect("memory");
        say(socket, &attached(id, u32::MAX, false), &[ring.as_raw_fd()]);
    });
}

#[test]
fn an_endpoint_that_exposes_without_end_is_hung_up_on() {
    let end = End::<Shm>::new(Arc::new(open()));
    let (memory, _mapping) = sealed_memory(4096, false, false).expect("memory");
    trap(&end, PATIENCE, |socket, id| {
        for rkey in 0..=u32::try_from(REGIONS_MAX).expect("small") {
            let region = RegionAddress { iova: 4096, bytes: 4096, rkey, access: Access::ALL };
            until("room", || {
                socket::send(socket.as_fd(), &Message::Region { id, region }.encode(), &[memory.as_raw_fd()]).ok()
            });
        }
        until("hanging up", || hung_up(socket));
    });
}
