//! Two real processes: this test program starts itself again as the peer.

use super::super::{Shm, sys};
use super::open;
use crate::fabric::conformance::pair::{End, PATIENCE, until};
use crate::fabric::{Access, Qp, QpAddress, QpState, RegionAddress, RemoteAddr, Waker, WcStatus, WorkOp};
use crate::sync::{Arc, AtomicU64, Ordering};
use std::io::{BufRead, BufReader, Write};
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};

const ROLE: &str = "RECLANE_TEST_SHM_ROLE";
const SELF: &str = "fabric::shm::tests::process::peer";
/// Starts a line that is not the test harness's own.
const MARK: &str = "peer:";

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

fn unhex(text: &str) -> Vec<u8> {
    let digits = text.trim().as_bytes();
    let digit = |at: usize| char::from(digits[at]).to_digit(16).expect("a hexadecimal digit");
    (0..digits.len() / 2).map(|at| u8::try_from(digit(2 * at) << 4 | digit(2 * at + 1)).expect("a byte")).collect()
}

/// Where one end is: address and memory.
fn card(end: &End<Shm>) -> String {
    use crate::fabric::Region;
    format!("{MARK}{} {}", hex(&end.qp.address().0), hex(&end.memory.address().encode()))
}

fn read_card(line: &str) -> (QpAddress, RegionAddress) {
    let line = &line[line.find(MARK).expect("a card") + MARK.len()..];
    let (qp, region) = line.trim().split_once(' ').expect("two parts");
    (QpAddress(unhex(qp)), RegionAddress::decode(&unhex(region)).expect("a region"))
}

/// Not a test of its own: the peer of the others, when started as such.
#[test]
fn peer() {
    let Ok(role) = std::env::var(ROLE) else { return };
    let end = End::<Shm>::new(Arc::new(open()));
    println!("\n{}", card(&end));
    let mut line = String::new();
    std::io::stdin().read_line(&mut line).expect("a card");
    let (address, memory) = read_card(&line);
    end.qp.connect(&address, PATIENCE).expect("connect");
    if role == "fork" {
        // SAFETY: the child only reads its input and ends; both are allowed after a fork of a threaded program.
        unsafe {
            if libc::fork() == 0 {
                let mut byte = 0u8;
                while libc::read(0, (&raw mut byte).cast(), 1) > 0 {}
                libc::_exit(0);
            }
        }
    }
    println!("\n{MARK}connected");
    // Echo: whatever comes into the first word goes back, woken by the bell alone.
    let place = RemoteAddr { address: memory.iova, rkey: memory.rkey };
    let window = end.qp.window(place, 8, Access::REMOTE_WRITE).expect("window");
    // SAFETY: aligned and inside the window.
    let theirs = unsafe { AtomicU64::from_ptr(window.as_ptr().cast()) };
    let mut last = 0;
    while end.qp.state() == QpState::Rts {
        end.waker.arm();
        // Acquire and Release are partners of those in `echo`.
        let value = end.word(0).load(Ordering::Acquire);
        if value == last {
            end.waker.wait(PATIENCE);
        }
        end.waker.disarm();
        if value != last {
            last = value;
            theirs.store(value, Ordering::Release);
            end.qp.doorbell();
        }
    }
}

struct Peer {
    child: Child,
    input: ChildStdin,
    output: BufReader<ChildStdout>,
}

impl Peer {
    fn start(role: &str) -> Peer {
        let program = std::env::current_exe().expect("own program");
        let mut child = Command::new(program)
            .args(["--exact", SELF, "--nocapture", "--test-threads=1"])
            .env(ROLE, role)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .expect("a second process");
        let (input, output) = (child.stdin.take().expect("input"), child.stdout.take().expect("output"));
        Peer { child, input, output: BufReader::new(output) }
    }

    fn hear(&mut self) -> String {
        loop {
            let mut line = String::new();
            assert!(self.output.read_line(&mut line).expect("a line") > 0, "the peer ended");
            if line.contains(MARK) {
                return line;
            }
        }
    }

    /// Connects both; gives the peer's memory.
    fn meet(&mut self, end: &End<Shm>) -> RegionAddress {
        let (address, memory) = read_card(&self.hear());
        writeln!(self.input, "{}", card(end)).expect("the peer listens");
        end.qp.connect(&address, PATIENCE).expect("connect");
        assert!(self.hear().contains("connected"));
        memory
    }

    fn kill(&mut self) {
        self.child.kill().expect("kill");
        self.child.wait().expect("the end");
    }
}

impl Drop for Peer {
    fn drop(&mut self) {
        // A test that fails leaves no process behind either. One that was waited for already gives an error.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Sends a number and sleeps until it is back.
fn echo(end: &End<Shm>, memory: &RegionAddress, value: u64) {
    let place = RemoteAddr { address: memory.iova, rkey: memory.rkey };
    let window = end.qp.window(place, 8, Access::REMOTE_WRITE).expect("window");
    // SAFETY: aligned and inside the window.
    let theirs = unsafe { AtomicU64::from_ptr(window.as_ptr().cast()) };
    theirs.store(value, Ordering::Release);
    end.qp.doorbell();
    let there = || end.word(0).load(Ordering::Acquire) == value;
    while !there() {
        end.waker.arm();
        if !there() {
            assert!(end.waker.wait(PATIENCE), "a ring was lost at {value}");
        }
        end.waker.disarm();
        assert_eq!(end.qp.state(), QpState::Rts);
    }
}

#[test]
fn two_processes_wake_each_other() {
    let end = End::<Shm>::new(Arc::new(open()));
    let mut peer = Peer::start("echo");
    let memory = peer.meet(&end);
    for value in 1..=2_000 {
        echo(&end, &memory, value);
    }
    peer.kill();
}

fn killed_peer(role: &str) {
    let end = End::<Shm>::new(Arc::new(open()));
    let mut peer = Peer::start(role);
    let memory = peer.meet(&end);
    echo(&end, &memory, 1);
    until("silence", || (!end.waker.wait(core::time::Duration::ZERO)).then_some(()));
    peer.kill();
    // Nothing is posted: the end of the process is an event, and it wakes the poller.
    assert!(end.waker.wait(PATIENCE));
    until("ERR", || (end.qp.state() == QpState::Err).then_some(()));
    let cause = end.qp.cause().expect("a cause");
    assert_eq!((cause.status, cause.peer_gone), (WcStatus::RetryExc, true));
    assert!(cause.detail.contains(&peer.child.id().to_string()), "{}", cause.detail);
    let place = RemoteAddr { address: memory.iova, rkey: memory.rkey };
    // Its memory is still mapped: a late store hits an orphan, not a hole.
    let window = end.qp.window(place, 8, Access::REMOTE_WRITE).expect("window");
    // SAFETY: aligned and inside the window.
    unsafe { AtomicU64::from_ptr(window.as_ptr().cast()) }.store(9, Ordering::Release);
    assert!(end.post_one(1, WorkOp::Write, 8, place).is_err());
    // A new peer finds a place.
    end.qp.modify(QpState::Reset).expect("reset");
    let mut next = Peer::start("echo");
    let memory = next.meet(&end);
    end.word(0).store(0, Ordering::Relaxed);
    echo(&end, &memory, 77);
    next.kill();
}

#[test]
fn a_killed_process_is_noticed_at_once() {
    killed_peer("echo");
}

#[test]
fn a_killed_process_is_noticed_even_while_a_child_of_it_lives() {
    if sys::process_watch(std::process::id().cast_signed()).is_none() {
        // A kernel that cannot watch processes cannot tell.
        return;
    }
    killed_peer("fork");
}

#[test]
fn a_stopped_process_is_silent_but_not_gone() {
    let end = End::<Shm>::new(Arc::new(open()));
    let mut peer = Peer::start("echo");
    let memory = peer.meet(&end);
    let pid = peer.child.id().cast_signed();
    // SAFETY: our own child, which is not yet waited for.
    assert_eq!(unsafe { libc::kill(pid, libc::SIGSTOP) }, 0);
    let mut status = 0;
    // SAFETY: as above; `status` outlives the call, which returns when the process has stopped.
    assert_eq!(unsafe { libc::waitpid(pid, &raw mut status, libc::WUNTRACED) }, pid);
    assert!(libc::WIFSTOPPED(status));
    // Work in its memory still goes, as its memory needs no help from it.
    end.run(WorkOp::Write, 8, RemoteAddr { address: memory.iova + 64, rkey: memory.rkey });
    // What needs an answer ends with the timeout.
    let refused = {
        use crate::fabric::Fabric;
        let region = end.fabric.allocate(4096, Access::ALL).expect("region");
        end.qp.expose(&region, core::time::Duration::from_millis(20)).unwrap_err()
    };
    assert!(refused.message.contains("timeout"), "{refused}");
    assert_eq!(end.qp.state(), QpState::Rts);
    // SAFETY: as above.
    assert_eq!(unsafe { libc::kill(pid, libc::SIGCONT) }, 0);
    echo(&end, &memory, 5);
    peer.kill();
}
