//! What each kind of work does, and how the queues are counted.

use super::pair::{DEPTH, End, Open, PATIENCE, Pair, until};
use crate::fabric::{
    Access, Completion, Fabric, PostError, Qp, QpState, Region, RemoteAddr, Sge, WcOpcode, WcStatus, Work, WorkOp,
};
use crate::sync::Ordering;

pub fn writes_and_reads_move_bytes<F: Fabric>(open: &impl Open<F>) {
    let pair = Pair::connected(open);
    let (a, b) = (&pair.a, &pair.b);
    // All lengths around a word and a line, at all places within a word.
    for bytes in [1, 2, 7, 8, 9, 15, 16, 17, 63, 64, 65, 4096] {
        for shift in 0..8 {
            for index in 0..bytes {
                // SAFETY: inside the staging memory, which only this thread uses now.
                unsafe { a.staging.base().as_ptr().add(index).write((index * 7 + shift + bytes) as u8) };
            }
            b.word(1024 - 8).store(0, Ordering::Relaxed);
            a.run(WorkOp::Write, bytes, b.at(1024 + shift));
            for index in 0..bytes {
                // SAFETY: inside the memory; the write has completed and nobody else writes.
                let byte = unsafe { b.memory.base().as_ptr().add(1024 + shift + index).read() };
                assert_eq!(byte, (index * 7 + shift + bytes) as u8, "byte {index} of {bytes} at {shift}");
            }
            assert_eq!(b.word(1024 - 8).load(Ordering::Relaxed), 0);
            let back = [a.piece(16384 + 3, bytes)];
            let read = Work { wr_id: 5, op: WorkOp::Read, local: &back, remote: b.at(1024 + shift), signaled: true };
            a.post(&[read]).expect("read");
            assert_eq!((a.next().status, a.drain().len()), (WcStatus::Success, 0));
            for index in 0..bytes {
                // SAFETY: inside the staging memory; the read has completed.
                let byte = unsafe { a.staging.base().as_ptr().add(16384 + 3 + index).read() };
                assert_eq!(byte, (index * 7 + shift + bytes) as u8);
            }
        }
    }
}

pub fn pieces_are_gathered_and_scattered<F: Fabric>(open: &impl Open<F>) {
    let pair = Pair::connected(open);
    let (a, b) = (&pair.a, &pair.b);
    let count = a.fabric.capabilities().max_sge.min(4) as usize;
    for piece in 0..count as u64 {
        a.staged(piece as usize * 512).store(piece + 1, Ordering::Relaxed);
    }
    let pieces: Vec<Sge> = (0..count).map(|piece| a.piece(piece * 512, 8)).collect();
    let write = Work { wr_id: 1, op: WorkOp::Write, local: &pieces, remote: b.at(0), signaled: true };
    a.post(&[write]).expect("gather");
    assert_eq!(a.next().status, WcStatus::Success);
    let back: Vec<Sge> = (0..count).map(|piece| a.piece(32768 + piece * 64, 8)).collect();
    a.post(&[Work { wr_id: 2, op: WorkOp::Read, local: &back, ..write }]).expect("scatter");
    assert_eq!(a.next().opcode, WcOpcode::Read);
    for piece in 0..count {
        assert_eq!(b.word(piece * 8).load(Ordering::Acquire), piece as u64 + 1);
        assert_eq!(a.staged(32768 + piece * 64).load(Ordering::Relaxed), piece as u64 + 1);
    }
}

pub fn atomics_return_the_old_value<F: Fabric>(open: &impl Open<F>) {
    let pair = Pair::connected(open);
    let (a, b) = (&pair.a, &pair.b);
    b.word(8).store(u64::MAX, Ordering::Relaxed);
    let steps = [
        (WorkOp::FetchAdd(3), WcOpcode::FetchAdd, u64::MAX, 2),
        (WorkOp::CompareSwap { expect: 1, swap: 9 }, WcOpcode::CompareSwap, 2, 2),
        (WorkOp::CompareSwap { expect: 2, swap: 9 }, WcOpcode::CompareSwap, 2, 9),
        (WorkOp::FetchAdd(0), WcOpcode::FetchAdd, 9, 9),
    ];
    for (op, opcode, old, new) in steps {
        a.post_one(1, op, 8, b.at(8)).expect("atomic");
        let done = a.next();
        assert_eq!((done.status, done.opcode), (WcStatus::Success, opcode));
        assert_eq!((a.staged(0).load(Ordering::Relaxed), b.word(8).load(Ordering::Acquire)), (old, new));
    }
}

pub fn atomics_of_both_sides_lose_nothing<F: Fabric>(open: &impl Open<F>) {
    const ADDS: u64 = 2_000;
    let pair = Pair::connected(open);
    // One counter at each side; each side adds to the other's.
    std::thread::scope(|scope| {
        for (from, to) in [(&pair.a, &pair.b), (&pair.b, &pair.a)] {
            scope.spawn(move || {
                for _ in 0..ADDS {
                    from.run(WorkOp::FetchAdd(2), 8, to.at(0));
                    from.run(WorkOp::FetchAdd(1), 8, to.at(8));
                }
            });
        }
    });
    for end in [&pair.a, &pair.b] {
        assert_eq!(end.word(0).load(Ordering::Acquire), 2 * ADDS);
        assert_eq!(end.word(8).load(Ordering::Acquire), ADDS);
    }
}

pub fn immediates_complete_receives_in_order<F: Fabric>(open: &impl Open<F>) {
    let pair = Pair::connected(open);
    let (a, b) = (&pair.a, &pair.b);
    for round in 0..5u32 {
        b.qp.post_receives(DEPTH).expect("receives");
        for number in 0..DEPTH {
            a.staged(0).store(u64::from(number), Ordering::Relaxed);
            a.run(WorkOp::WriteImm(round << 8 | number), 8, b.at(number as usize * 8));
        }
        for number in 0..DEPTH {
            let got = b.next();
            let expected = Completion {
                qp: b.qp.number(),
                opcode: WcOpcode::ReceiveImm,
                imm: round << 8 | number,
                ..Completion::EMPTY
            };
            assert_eq!(got, expected);
            assert_eq!(b.word(number as usize * 8).load(Ordering::Relaxed), u64::from(number));
        }
        assert!(b.drain().is_empty());
    }
}

pub fn an_immediate_without_a_receive_fails<F: Fabric>(open: &impl Open<F>) {
    let pair = Pair::connected(open);
    let (a, b) = (&pair.a, &pair.b);
    b.qp.post_receives(1).expect("receive");
    a.run(WorkOp::WriteImm(1), 8, b.at(0));
    a.post_one(2, WorkOp::WriteImm(2), 8, b.at(0)).expect("post");
    let failed = a.next();
    assert_eq!((failed.wr_id, failed.status), (2, WcStatus::RnrRetryExc));
    assert_eq!(a.qp.state(), QpState::Err);
    assert_eq!(a.qp.cause().map(|cause| (cause.status, cause.peer_gone)), Some((WcStatus::RnrRetryExc, false)));
    assert_eq!(b.next().imm, 1);
}

pub fn only_signaled_work_completes<F: Fabric>(open: &impl Open<F>) {
    let pair = Pair::connected(open);
    let (a, b) = (&pair.a, &pair.b);
    let local = [a.piece(0, 8)];
    let work = |wr_id, signaled| Work { wr_id, op: WorkOp::Write, local: &local, remote: b.at(0), signaled };
    // Far more unsignaled work than the queue holds: each signaled one that is polled gives it all back.
    for round in 0..50 {
        a.post(&[work(round, false), work(round, false), work(1000 + round, true)]).expect("post");
        assert_eq!(a.next().wr_id, 1000 + round);
    }
    assert!(a.drain().is_empty());
}

pub fn a_full_send_queue_takes_nothing<F: Fabric>(open: &impl Open<F>) {
    let pair = Pair::connected(open);
    let (a, b) = (&pair.a, &pair.b);
    let local = [a.piece(0, 8)];
    let work = |wr_id| Work { wr_id, op: WorkOp::FetchAdd(1), local: &local, remote: b.at(0), signaled: true };
    for wr_id in 0..u64::from(DEPTH) - 1 {
        a.post(&[work(wr_id)]).expect("room");
    }
    // One place is left: a chain of two is refused whole.
    assert_eq!(a.post(&[work(90), work(91)]), Err(PostError::QueueFull));
    a.post(&[work(u64::from(DEPTH) - 1)]).expect("the last place");
    assert_eq!(a.post(&[work(92)]), Err(PostError::QueueFull));
    for wr_id in 0..u64::from(DEPTH) {
        let done = a.next();
        assert_eq!((done.wr_id, done.status), (wr_id, WcStatus::Success));
    }
    assert!(a.drain().is_empty());
    assert_eq!(b.word(0).load(Ordering::Acquire), u64::from(DEPTH));
    // Polling gave all places back.
    let chain: Vec<Work<'_>> = (0..u64::from(DEPTH)).map(work).collect();
    a.post(&chain).expect("a full chain");
    for wr_id in 0..u64::from(DEPTH) {
        assert_eq!(a.next().wr_id, wr_id);
    }
    assert_eq!(a.qp.state(), QpState::Rts);
}

pub fn a_full_receive_queue_takes_nothing<F: Fabric>(open: &impl Open<F>) {
    let pair = Pair::connected(open);
    let b = &pair.b;
    b.qp.post_receives(DEPTH - 1).expect("receives");
    assert_eq!(b.qp.post_receives(2), Err(PostError::QueueFull));
    b.qp.post_receives(1).expect("the last place");
    assert_eq!(b.qp.post_receives(1), Err(PostError::QueueFull));
    pair.a.run(WorkOp::WriteImm(7), 8, b.at(0));
    assert_eq!(b.next().imm, 7);
    b.qp.post_receives(1).expect("given back");
}

pub fn malformed_work_is_refused_and_nothing_is_posted<F: Fabric>(open: &impl Open<F>) {
    let pair = Pair::connected(open);
    let (a, b) = (&pair.a, &pair.b);
    let invalid = |work: Work<'_>| {
        let good = [a.piece(0, 8)];
        let good = Work { wr_id: 1, op: WorkOp::FetchAdd(1), local: &good, remote: b.at(0), signaled: true };
        let refused = a.post(&[good, work]);
        assert!(matches!(refused, Err(PostError::Invalid(_))), "{refused:?}");
    };
    let many = vec![a.piece(0, 1); a.fabric.capabilities().max_sge as usize + 1];
    let (short, word, two) = ([a.piece(0, 7)], [a.piece(0, 8)], [a.piece(0, 8), a.piece(8, 8)]);
    let base = Work { wr_id: 2, op: WorkOp::Write, local: &word, remote: b.at(0), signaled: true };
    invalid(Work { local: &many, ..base });
    for op in [WorkOp::FetchAdd(1), WorkOp::CompareSwap { expect: 0, swap: 1 }] {
        invalid(Work { op, local: &short, ..base });
        invalid(Work { op, local: &two, ..base });
        invalid(Work { op, local: &[], ..base });
        invalid(Work { op, remote: b.at(4), ..base });
    }
    assert!(a.drain().is_empty());
    assert_eq!(b.word(0).load(Ordering::Acquire), 0);
    pair.works();
}

pub fn a_region_exposed_later_can_be_used<F: Fabric>(open: &impl Open<F>) {
    let pair = Pair::new(open);
    let (a, b) = (&pair.a, &pair.b);
    let before = b.fabric.allocate(4096, Access::ALL).expect("region");
    b.qp.expose(&before, PATIENCE).expect("before connecting");
    pair.connect();
    let after = b.fabric.allocate(4096, Access::ALL).expect("region");
    b.qp.expose(&after, PATIENCE).expect("after connecting");
    b.qp.expose(&after, PATIENCE).expect("twice");
    for (value, region) in [(11, &before), (12, &after)] {
        a.staged(0).store(value, Ordering::Relaxed);
        let address = region.address();
        a.run(WorkOp::Write, 8, RemoteAddr { address: address.iova + 4088, rkey: address.rkey });
        assert_eq!(End::<F>::word_of(region, 4088).load(Ordering::Acquire), value);
    }
}

pub fn a_region_that_was_taken_back_is_gone_and_makes_room<F: Fabric>(open: &impl Open<F>) {
    let pair = Pair::connected(open);
    let (a, b) = (&pair.a, &pair.b);
    // More than a queue pair may expose at a time.
    let rounds = if a.fabric.capabilities().load_store { 1500 } else { 8 };
    for value in 1..=rounds {
        let region = b.fabric.allocate(4096, Access::ALL).expect("region");
        b.qp.expose(&region, PATIENCE).expect("room for one more");
        let address = region.address();
        let place = RemoteAddr { address: address.iova + 4088, rkey: address.rkey };
        a.staged(0).store(value, Ordering::Relaxed);
        a.run(WorkOp::Write, 8, place);
        assert_eq!(End::<F>::word_of(&region, 4088).load(Ordering::Acquire), value);
        let held = a.qp.hold(place, 8, Access::REMOTE_WRITE);
        assert_eq!(held.is_some(), a.fabric.capabilities().load_store);
        b.qp.unexpose(&region);
        b.qp.unexpose(&region);
        // What comes behind it on the same way has been heard later.
        let fence = b.fabric.allocate(4096, Access::ALL).expect("region");
        b.qp.expose(&fence, PATIENCE).expect("room for one more");
        b.qp.unexpose(&fence);
        if a.fabric.capabilities().load_store {
            assert!(a.qp.hold(place, 8, Access::REMOTE_WRITE).is_none(), "it was taken back");
            let held = held.expect("held before");
            // SAFETY: aligned, and mapped as long as it is held: until the end of this scope.
            let word = unsafe { crate::sync::AtomicU64::from_ptr(held.place().as_ptr().cast()) };
            word.store(value + 1, Ordering::Relaxed);
            assert_eq!(End::<F>::word_of(&region, 4088).load(Ordering::Relaxed), value + 1);
        }
    }
    // What the queue pair was made with stays.
    b.qp.unexpose(&b.memory);
    pair.works();
}

pub fn a_window_is_the_peers_memory<F: Fabric>(open: &impl Open<F>) {
    let pair = Pair::connected(open);
    let (a, b) = (&pair.a, &pair.b);
    let window = a.qp.window(b.at(0), b.memory.bytes(), Access::ALL);
    if !a.fabric.capabilities().load_store {
        assert!(window.is_none());
        return;
    }
    let window = window.expect("window");
    let bytes = b.memory.bytes();
    assert!(a.qp.window(b.at(8), bytes - 8, Access::REMOTE_READ).is_some());
    assert!(a.qp.window(b.at(0), bytes + 1, Access::REMOTE_READ).is_none());
    assert!(a.qp.window(b.at(1), bytes, Access::REMOTE_READ).is_none());
    assert!(a.qp.window(b.at(bytes), 1, Access::REMOTE_READ).is_none());
    assert!(a.qp.window(b.at(8), usize::MAX, Access::REMOTE_READ).is_none());
    let wrong_key = RemoteAddr { rkey: b.at(0).rkey ^ 1, ..b.at(0) };
    assert!(a.qp.window(wrong_key, 8, Access::REMOTE_READ).is_none());
    // SAFETY: aligned and inside the window, which lives as long as the queue pair.
    let word = unsafe { crate::sync::AtomicU64::from_ptr(window.as_ptr().cast()) };
    std::thread::scope(|scope| {
        // Acquire and Release are partners here, in two mappings of one memory.
        scope.spawn(|| until("the word", || (b.word(0).load(Ordering::Acquire) == 99).then_some(())));
        word.store(99, Ordering::Release);
        a.qp.doorbell();
    });
    // The window outlives the connection.
    b.qp.modify(QpState::Err).expect("err");
    a.wait_for_err(b.at(0));
    word.store(100, Ordering::Release);
}

pub fn a_region_has_the_address_that_was_chosen_for_it<F: Fabric>(open: &impl Open<F>) {
    const CHOSEN: u64 = 7 << 40;
    let (a, b) = (std::sync::Arc::new(open()), std::sync::Arc::new(open()));
    let memory = b.allocate_at(8192, Access::ALL, Some(CHOSEN)).expect("memory");
    assert_eq!((memory.address().iova, memory.address().bytes), (CHOSEN, 8192));
    let pair = Pair { a: End::new(a), b: End::exposing(b, memory) };
    pair.connect();
    pair.works();
    pair.a.staged(0).store(5, Ordering::Relaxed);
    pair.a.run(WorkOp::Write, 8, RemoteAddr { address: CHOSEN + 8184, rkey: pair.b.memory.address().rkey });
    // Acquire. Partner: the provider's write.
    assert_eq!(pair.b.word(8184).load(Ordering::Acquire), 5);
    // For work of its owner the memory is where it is, inline or not.
    for bytes in [8, 4096] {
        pair.b.word(0).store(bytes as u64, Ordering::Relaxed);
        let memory = &pair.b.memory;
        let local = [Sge { address: memory.base().as_ptr(), bytes: bytes as u32, lkey: memory.lkey() }];
        let write = Work { wr_id: 9, op: WorkOp::Write, local: &local, remote: pair.a.at(128), signaled: true };
        pair.b.post(&[write]).expect("post");
        assert_eq!(pair.b.next().status, WcStatus::Success);
        // Acquire. Partner: the provider's write.
        assert_eq!(pair.a.word(128).load(Ordering::Acquire), bytes as u64);
    }
    // The address of the memory itself is none that a peer can use.
    let own = pair.b.memory.base().as_ptr() as u64;
    let status = pair.a.outcome(WorkOp::Write, 8, RemoteAddr { address: own, rkey: pair.b.memory.address().rkey });
    assert_eq!(status, WcStatus::RemAccess);
}
