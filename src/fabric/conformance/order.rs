//! What becomes visible when: one side writes, the other looks, both as fast as they can.

use super::pair::{End, Open, Pair, until};
use crate::fabric::{Fabric, PostError, Qp, WcOpcode, WcStatus, Work, WorkOp};
use crate::sync::{AtomicU32, Ordering};

/// Devices are tested where a round costs a thousand times what it does in memory.
const ROUNDS: u64 = if cfg!(feature = "device-tests") { 3_000 } else { 30_000 };
const LINE_BYTES: usize = 256;

/// Posts, taking completions while the queue is full.
fn post<F: Fabric>(end: &End<F>, work: Work<'_>) {
    until("room in the send queue", || {
        end.drain();
        match end.post(&[work]) {
            Ok(()) => Some(()),
            Err(PostError::QueueFull) => None,
            Err(error) => panic!("{error:?}"),
        }
    });
}

fn fill<F: Fabric>(end: &End<F>, place: usize, value: u64) {
    for word in (0..LINE_BYTES).step_by(8) {
        end.staged(place + word).store(value, Ordering::Relaxed);
    }
}

pub fn the_last_word_of_a_write_comes_last<F: Fabric>(open: &impl Open<F>) {
    let pair = Pair::connected(open);
    if !pair.a.fabric.capabilities().ordered_within_write {
        return;
    }
    let (a, b) = (&pair.a, &pair.b);
    std::thread::scope(|scope| {
        scope.spawn(move || {
            let mut seen = 0;
            until("the last round", || {
                // Acquire. Partner: the provider's write.
                let commit = b.word(LINE_BYTES - 8).load(Ordering::Acquire);
                for word in (0..LINE_BYTES - 8).step_by(8) {
                    let value = b.word(word).load(Ordering::Relaxed);
                    assert!(value >= commit, "word {word} is {value} under the commit word {commit}");
                }
                assert!(commit >= seen);
                seen = commit;
                (commit == ROUNDS).then_some(())
            });
        });
        for round in 1..=ROUNDS {
            let place = usize::try_from(round % 64).expect("small") * LINE_BYTES;
            fill(a, place, round);
            // In one piece and in two, cut anywhere.
            let cut = usize::try_from(round).expect("small") % LINE_BYTES;
            let pieces = [a.piece(place, cut), a.piece(place + cut, LINE_BYTES - cut)];
            post(a, Work { wr_id: 0, op: WorkOp::Write, local: &pieces, remote: b.at(0), signaled: true });
        }
    });
}

pub fn an_earlier_write_is_visible_before_a_later_one<F: Fabric>(open: &impl Open<F>) {
    const FIRST: usize = 0;
    // Not on a multiple of 8 at its end, so nothing of the first write is a commit word.
    const FIRST_BYTES: usize = LINE_BYTES - 3;
    const SECOND: usize = 8192;
    let pair = Pair::connected(open);
    if !pair.a.fabric.capabilities().ordered_writes {
        return;
    }
    let (a, b) = (&pair.a, &pair.b);
    std::thread::scope(|scope| {
        scope.spawn(move || {
            until("the last round", || {
                // Acquire. Partner: the provider's write.
                let commit = b.word(SECOND).load(Ordering::Acquire);
                for word in (0..FIRST_BYTES - 8).step_by(8) {
                    let value = b.word(FIRST + word).load(Ordering::Relaxed);
                    assert!(value >= commit, "word {word} is {value} after {commit} was committed");
                }
                (commit == ROUNDS).then_some(())
            });
        });
        for round in 1..=ROUNDS {
            let place = usize::try_from(round % 64).expect("small") * LINE_BYTES;
            fill(a, place, round);
            let (data, commit) = ([a.piece(place, FIRST_BYTES)], [a.piece(place, 8)]);
            let work = Work { wr_id: 0, op: WorkOp::Write, local: &data, remote: b.at(FIRST), signaled: false };
            if round % 2 == 0 {
                post(a, work);
                post(a, Work { local: &commit, remote: b.at(SECOND), signaled: true, ..work });
            } else {
                until("room in the send queue", || {
                    a.drain();
                    a.post(&[work, Work { local: &commit, remote: b.at(SECOND), signaled: true, ..work }]).ok()
                });
            }
        }
    });
}

pub fn an_immediate_follows_its_data<F: Fabric>(open: &impl Open<F>) {
    const IMMEDIATES: u32 = 3_000;
    const RECEIVES: u32 = 4;
    let pair = Pair::connected(open);
    let (a, b) = (&pair.a, &pair.b);
    b.qp.post_receives(RECEIVES).expect("receives");
    // The sender stays within the receives, so nothing here depends on how long it would wait for one.
    let taken = AtomicU32::new(0);
    let taken = &taken;
    std::thread::scope(|scope| {
        scope.spawn(move || {
            for number in 1..=IMMEDIATES {
                let got = b.next();
                assert_eq!((got.status, got.opcode, got.imm), (WcStatus::Success, WcOpcode::ReceiveImm, number));
                let place = number as usize % 8 * LINE_BYTES;
                for word in (0..LINE_BYTES).step_by(8) {
                    assert_eq!(b.word(place + word).load(Ordering::Relaxed), u64::from(number));
                }
                b.qp.post_receives(1).expect("receive");
                // Release. Partner: the sender's Acquire.
                taken.store(number, Ordering::Release);
            }
        });
        for number in 1..=IMMEDIATES {
            // Acquire. Partner: the receiver's Release.
            until("a receive", || (number <= taken.load(Ordering::Acquire) + RECEIVES).then_some(()));
            let place = number as usize % 8 * LINE_BYTES;
            fill(a, place, u64::from(number));
            let pieces = [a.piece(place, LINE_BYTES)];
            let op = WorkOp::WriteImm(number);
            post(a, Work { wr_id: 0, op, local: &pieces, remote: b.at(place), signaled: true });
        }
    });
}
