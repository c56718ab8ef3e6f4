//! What breaks a connection, what both sides hear of it, and what does not break.

use super::pair::{BYTES, CONFIG, DEPTH, End, Open, PATIENCE, Pair, until};
use crate::error::Status;
use crate::fabric::{Access, Fabric, PostError, Qp, QpState, Region, RemoteAddr, WcOpcode, WcStatus, Work, WorkOp};
use crate::sync::{Arc, Ordering};

const OPS: [WorkOp; 5] =
    [WorkOp::Write, WorkOp::WriteImm(1), WorkOp::Read, WorkOp::FetchAdd(1), WorkOp::CompareSwap { expect: 0, swap: 1 }];

fn is_atomic(op: WorkOp) -> bool {
    matches!(op, WorkOp::FetchAdd(_) | WorkOp::CompareSwap { .. })
}

/// One request that the responder must refuse; both sides must end in ERR and the memory must stay as it is.
fn refused<F: Fabric>(pair: &Pair<F>, op: WorkOp, bytes: usize, remote: RemoteAddr) {
    let (a, b) = (&pair.a, &pair.b);
    b.qp.post_receives(1).expect("receive");
    a.staged(0).store(u64::MAX, Ordering::Relaxed);
    a.post_one(31, op, bytes, remote).expect("post");
    let failed = a.next();
    assert_eq!((failed.wr_id, failed.status), (31, WcStatus::RemAccess), "{op:?} {bytes} {remote:?}");
    assert_eq!(a.qp.state(), QpState::Err);
    assert_eq!(a.qp.cause().map(|cause| (cause.status, cause.peer_gone)), Some((WcStatus::RemAccess, false)));
    b.wait_for_err(a.at(0));
    assert!(b.qp.cause().is_some_and(|cause| !cause.peer_gone));
    for word in (0..b.memory.bytes() - 7).step_by(8) {
        assert_eq!(b.word(word).load(Ordering::Acquire), 0, "word {word} after {op:?}");
    }
}

/// Resets both and connects them again.
fn renew<F: Fabric>(pair: &Pair<F>) {
    for end in [&pair.a, &pair.b] {
        end.qp.modify(QpState::Err).expect("err");
    }
    for end in [&pair.a, &pair.b] {
        end.qp.modify(QpState::Reset).expect("reset");
        assert!(end.drain().is_empty());
    }
    pair.connect();
}

pub fn bounds_are_exact<F: Fabric>(open: &impl Open<F>) {
    let pair = Pair::connected(open);
    let (a, b) = (&pair.a, &pair.b);
    let start = b.at(0);
    for op in OPS {
        let bytes = if is_atomic(op) { 8 } else { 24 };
        // The first and the last place are allowed.
        a.staged(0).store(0, Ordering::Relaxed);
        a.staged(8).store(0, Ordering::Relaxed);
        a.staged(16).store(0, Ordering::Relaxed);
        for place in [0, BYTES - bytes] {
            b.qp.post_receives(1).expect("receive");
            a.run(if is_atomic(op) { WorkOp::FetchAdd(0) } else { op }, bytes, b.at(place));
        }
        renew(&pair);
        // One step further is not.
        let step = if is_atomic(op) { 8 } else { 1 };
        for address in [
            start.address - step,
            start.address + (BYTES - bytes) as u64 + step,
            start.address + BYTES as u64,
            0,
            u64::MAX - 7,
        ] {
            refused(&pair, op, bytes, RemoteAddr { address, ..start });
            renew(&pair);
        }
    }
    pair.works();
}

pub fn every_violation_ends_both_sides<F: Fabric>(open: &impl Open<F>) {
    let pair = Pair::connected(open);
    // A region that its owner has, but did not expose here, is as unknown as one that does not exist.
    let hidden = pair.b.fabric.allocate(4096, Access::ALL).expect("region").address();
    for op in OPS {
        for remote in [
            RemoteAddr { rkey: pair.b.at(0).rkey.wrapping_add(1), ..pair.b.at(0) },
            RemoteAddr { address: hidden.iova, rkey: pair.b.at(0).rkey },
            RemoteAddr { address: hidden.iova, rkey: hidden.rkey },
        ] {
            if remote.rkey == hidden.rkey && !F::EXPOSES_PER_QP {
                continue;
            }
            refused(&pair, op, 8, remote);
            renew(&pair);
        }
    }
    pair.works();
}

pub fn rights_are_those_of_the_region<F: Fabric>(open: &impl Open<F>) {
    let rights = [
        Access::REMOTE_READ,
        Access::REMOTE_WRITE,
        Access::REMOTE_ATOMIC,
        Access::REMOTE_READ.with(Access::REMOTE_WRITE),
    ];
    for access in rights {
        for op in OPS {
            let needed = match op {
                WorkOp::Write | WorkOp::WriteImm(_) => Access::REMOTE_WRITE,
                WorkOp::Read => Access::REMOTE_READ,
                _ => Access::REMOTE_ATOMIC,
            };
            let fabric = Arc::new(open());
            let memory = fabric.allocate(4096, access).expect("region");
            assert_eq!(memory.address().access, access);
            let pair = Pair { a: End::new(Arc::new(open())), b: End::exposing(fabric, memory) };
            pair.connect();
            if access.allows(needed) {
                pair.b.qp.post_receives(1).expect("receive");
                pair.a.run(op, 8, pair.b.at(0));
            } else {
                refused(&pair, op, 8, pair.b.at(0));
            }
        }
    }
    // Memory without remote rights cannot be exposed at all.
    let fabric = open();
    let local = fabric.allocate(4096, Access::LOCAL).expect("region");
    let cq = fabric.create_cq(16).expect("completion queue");
    let made = fabric.create_qp(&CONFIG, &[local], &cq, &cq, None);
    assert_eq!(made.err().map(|error| error.status), Some(Status::InvalidArgument));
}

pub fn everything_behind_an_error_is_flushed_once<F: Fabric>(open: &impl Open<F>) {
    let pair = Pair::connected(open);
    let (a, b) = (&pair.a, &pair.b);
    let local = [a.piece(0, 8)];
    let good = |wr_id, signaled| Work { wr_id, op: WorkOp::FetchAdd(1), local: &local, remote: b.at(0), signaled };
    let bad = RemoteAddr { rkey: b.at(0).rkey ^ 1, ..b.at(0) };
    // Answers of atomics and reads can be lost on their way, and nobody gives them again once the peer is in ERR: these
    // have arrived before the error. That of the write is also in the refusal behind it.
    a.post(&[good(1, true), good(2, false), good(3, true)]).expect("post");
    let got: Vec<(u64, WcStatus)> = (0..2).map(|_| a.next()).map(|done| (done.wr_id, done.status)).collect();
    assert_eq!(got, [(1, WcStatus::Success), (3, WcStatus::Success)]);
    let chain = [
        Work { op: WorkOp::Write, remote: b.at(64), ..good(4, false) },
        Work { remote: bad, ..good(5, false) },
        good(6, true),
        good(7, false),
        good(8, true),
    ];
    a.post(&chain).expect("post");
    let got: Vec<(u64, WcStatus)> = (0..4).map(|_| a.next()).map(|done| (done.wr_id, done.status)).collect();
    let flush = WcStatus::WrFlush;
    // Errors complete whether asked for or not, and the unsignaled success before them does not.
    let expected = [(5, WcStatus::RemAccess), (6, flush), (7, flush), (8, flush)];
    assert_eq!(got, expected);
    a.wait_for_err(b.at(0));
    b.wait_for_err(a.at(0));
    assert_eq!(b.word(0).load(Ordering::Acquire), 3);
    assert!(a.drain().is_empty());
    assert_eq!(a.post(&[good(7, true)]), Err(PostError::NotConnected(QpState::Err)));
    assert!(a.drain().is_empty());
}

pub fn posted_receives_are_flushed_once<F: Fabric>(open: &impl Open<F>) {
    let pair = Pair::connected(open);
    let (a, b) = (&pair.a, &pair.b);
    b.qp.post_receives(5).expect("receives");
    a.run(WorkOp::WriteImm(42), 8, b.at(0));
    b.qp.modify(QpState::Err).expect("err");
    let got: Vec<_> = (0..5).map(|_| b.next()).collect();
    assert_eq!((got[0].status, got[0].opcode, got[0].imm), (WcStatus::Success, WcOpcode::ReceiveImm, 42));
    for flushed in &got[1..] {
        assert_eq!((flushed.status, flushed.qp), (WcStatus::WrFlush, b.qp.number()));
    }
    b.qp.modify(QpState::Err).expect("err again");
    assert!(b.drain().is_empty());
}

pub fn reset_forgets_completions<F: Fabric>(open: &impl Open<F>) {
    let pair = Pair::connected(open);
    let (a, b) = (&pair.a, &pair.b);
    let local = [a.piece(0, 8)];
    b.qp.post_receives(3).expect("receives");
    for wr_id in 0..3 {
        a.post_one(wr_id, WorkOp::WriteImm(9), 8, b.at(0)).expect("post");
    }
    let bad = RemoteAddr { rkey: b.at(0).rkey ^ 1, ..b.at(0) };
    let _ = a.post(&[Work { wr_id: 4, op: WorkOp::Read, local: &local, remote: bad, signaled: true }]);
    // Nothing of it was polled.
    renew(&pair);
    assert!(a.drain().is_empty() && b.drain().is_empty());
    // The send queue is empty again, too.
    for wr_id in 100..100 + u64::from(DEPTH) {
        a.post_one(wr_id, WorkOp::Write, 8, b.at(0)).expect("post");
    }
    for wr_id in 100..100 + u64::from(DEPTH) {
        assert_eq!(a.next().wr_id, wr_id);
    }
    b.qp.post_receives(1).expect("receive");
    a.run(WorkOp::WriteImm(10), 8, b.at(0));
    assert_eq!(b.next().imm, 10);
}

pub fn a_closed_peer_is_noticed<F: Fabric>(open: &impl Open<F>) {
    let Pair { a, b } = Pair::connected(open);
    let place = b.at(0);
    drop(b);
    a.wait_for_err(place);
    assert_eq!(a.qp.cause().map(|cause| cause.status), Some(WcStatus::RetryExc));
    let region = a.fabric.allocate(4096, Access::ALL).expect("region");
    assert_eq!(a.qp.expose(&region, PATIENCE).unwrap_err().status, Status::ShardUnreachable);
    // The queue pair serves another peer afterwards. Soft-RoCE lets the retries of the former connection count against
    // the next one now and then, so a device may try again; lanes do not come to that, for they take new queue pairs.
    let mut tries = if F::NAME == "verbs" { 3 } else { 1 };
    let (mut a, mut worked) = (a, false);
    while !worked && tries > 0 {
        tries -= 1;
        a.qp.modify(QpState::Reset).expect("reset");
        let next = Pair { a, b: End::new(Arc::new(open())) };
        next.connect();
        worked = next.a.outcome(WorkOp::Write, 8, next.b.at(64)) == WcStatus::Success;
        if worked {
            next.works();
        }
        a = next.a;
    }
    assert!(worked, "a queue pair that was reset does not serve another peer");
}

pub fn one_broken_lane_leaves_the_others_alone<F: Fabric>(open: &impl Open<F>) {
    let (left, right) = (Arc::new(open()), Arc::new(open()));
    let make = || Pair { a: End::new(Arc::clone(&left)), b: End::new(Arc::clone(&right)) };
    let (broken, whole) = (make(), make());
    broken.connect();
    whole.connect();
    refused(&broken, WorkOp::Write, 8, RemoteAddr { address: 0, ..broken.b.at(0) });
    whole.works();
    drop(broken);
    whole.works();
    assert_eq!((whole.a.qp.cause(), whole.b.qp.cause()), (None, None));
}

pub fn work_races_with_err_and_completes_once<F: Fabric>(open: &impl Open<F>) {
    // On a device each round ends with a peer that is given up, which takes its time.
    for _ in 0..if cfg!(feature = "device-tests") { 8 } else { 100 } {
        let pair = Pair::connected(open);
        let (a, b) = (&pair.a, &pair.b);
        let local = [a.piece(0, 8)];
        let mut posted = Vec::new();
        std::thread::scope(|scope| {
            scope.spawn(|| {
                // Somewhere in the middle of the posts.
                until("first word", || (b.word(0).load(Ordering::Acquire) > 3).then_some(()));
                a.qp.modify(QpState::Err).expect("err");
            });
            let mut wr_id = 0;
            until("ERR", || {
                let work =
                    |wr_id| Work { wr_id, op: WorkOp::FetchAdd(1), local: &local, remote: b.at(0), signaled: true };
                match a.post(&[work(wr_id), work(wr_id + 1)]) {
                    Ok(()) => {
                        posted.extend([wr_id, wr_id + 1]);
                        wr_id += 2;
                        let _ = a.next();
                        let _ = a.next();
                        None
                    }
                    Err(PostError::QueueFull) => None,
                    Err(error) => {
                        assert_eq!(error, PostError::NotConnected(QpState::Err));
                        Some(())
                    }
                }
            });
        });
        // Every posted request gave exactly one completion: two were taken after each post and none is left.
        assert!(a.drain().is_empty());
        assert_eq!(a.qp.cause(), None);
        b.wait_for_err(a.at(0));
    }
}
