//! Pollers that sleep.

use super::pair::{End, Open, PATIENCE, Pair, until};
use crate::fabric::{Access, Fabric, Qp, Waker};
use crate::sync::{AtomicU64, Ordering};
use core::time::Duration;

const ROUNDS: u64 = 5_000;

/// Sleeps until the word of our own memory has this value. Fails if it has to be told by the clock.
fn sleep_until<F: Fabric>(end: &End<F>, value: u64) {
    // Acquire. Partner: the peer's Release store through its window.
    let there = || end.word(0).load(Ordering::Acquire) == value;
    while !there() {
        end.waker.arm();
        if !there() {
            assert!(end.waker.wait(PATIENCE), "a ring was lost before {value}");
        }
        end.waker.disarm();
    }
}

pub fn a_ring_is_never_lost<F: Fabric>(open: &impl Open<F>) {
    let pair = Pair::connected(open);
    if !pair.a.fabric.capabilities().load_store {
        return;
    }
    let say = |from: &End<F>, to: &End<F>, value| {
        let place = from.qp.window(to.at(0), 8, Access::REMOTE_WRITE).expect("window");
        // SAFETY: aligned and inside the window.
        let word = unsafe { AtomicU64::from_ptr(place.as_ptr().cast()) };
        // Release. Partner: Acquire in `sleep_until`.
        word.store(value, Ordering::Release);
        from.qp.doorbell();
    };
    std::thread::scope(|scope| {
        scope.spawn(|| {
            for round in 1..=ROUNDS {
                sleep_until(&pair.b, round);
                // Now and then the other side is given time to fall asleep in different places.
                for _ in 0..round % 64 {
                    core::hint::spin_loop();
                }
                say(&pair.b, &pair.a, round);
            }
        });
        for round in 1..=ROUNDS {
            say(&pair.a, &pair.b, round);
            sleep_until(&pair.a, round);
        }
    });
}

pub fn a_notice_wakes_and_silence_times_out<F: Fabric>(open: &impl Open<F>) {
    let pair = Pair::connected(open);
    let waker = &pair.a.waker;
    // Connecting may have left a notice; afterwards it is silent.
    until("silence", || (!waker.wait(Duration::ZERO)).then_some(()));
    assert!(!waker.wait(Duration::from_millis(1)));
    waker.notify();
    assert!(waker.wait(PATIENCE));
    waker.arm();
    std::thread::scope(|scope| {
        scope.spawn(|| waker.notify());
        // A sleeper that peers cannot ring comes back early to look for itself.
        until("the notice", || waker.wait(PATIENCE).then_some(()));
    });
    waker.disarm();
}
