//! States, connecting, addresses.

use super::pair::{CONFIG, End, Open, PATIENCE, Pair};
use crate::error::Status;
use crate::fabric::{Fabric, PostError, Qp, QpAddress, QpState, WorkOp};
use crate::sync::Arc;
use core::time::Duration;

const ALL: [QpState; 7] =
    [QpState::Reset, QpState::Init, QpState::Rtr, QpState::Rts, QpState::Sqd, QpState::Sqe, QpState::Err];

pub fn a_new_queue_pair_is_in_reset_and_takes_no_work<F: Fabric>(open: &impl Open<F>) {
    let pair = Pair::new(open);
    assert_eq!(pair.a.qp.state(), QpState::Reset);
    assert_eq!(pair.a.qp.cause(), None);
    let refused = pair.a.post_one(1, WorkOp::Write, 8, pair.b.at(0));
    assert_eq!(refused, Err(PostError::NotConnected(QpState::Reset)));
    assert!(pair.a.drain().is_empty());
    assert_ne!(pair.a.qp.address(), pair.b.qp.address());
    assert!(pair.a.qp.address().0.len() <= QpAddress::BYTES_MAX);
    pair.a.qp.doorbell();
}

pub fn both_ends_connect_in_any_order<F: Fabric>(open: &impl Open<F>) {
    for first_is_a in [true, false] {
        let pair = Pair::new(open);
        let (first, second) = if first_is_a { (&pair.a, &pair.b) } else { (&pair.b, &pair.a) };
        let (to_first, to_second) = (first.qp.address(), second.qp.address());
        first.qp.connect(&to_second, PATIENCE).expect("first");
        second.qp.connect(&to_first, PATIENCE).expect("second");
        pair.works();
    }
}

pub fn both_ends_connect_at_the_same_time<F: Fabric>(open: &impl Open<F>) {
    for _ in 0..50 {
        let pair = Pair::new(open);
        let (to_a, to_b) = (pair.a.qp.address(), pair.b.qp.address());
        std::thread::scope(|scope| {
            let other = scope.spawn(|| pair.a.qp.connect(&to_b, PATIENCE));
            pair.b.qp.connect(&to_a, PATIENCE).expect("b");
            other.join().expect("thread").expect("a");
        });
        pair.works();
    }
}

pub fn many_pairs_connect_at_the_same_time<F: Fabric>(open: &impl Open<F>) {
    let (left, right) = (Arc::new(open()), Arc::new(open()));
    let pairs: Vec<Pair<F>> =
        (0..16).map(|_| Pair { a: End::new(Arc::clone(&left)), b: End::new(Arc::clone(&right)) }).collect();
    std::thread::scope(|scope| {
        for pair in &pairs {
            let (to_a, to_b) = (pair.a.qp.address(), pair.b.qp.address());
            scope.spawn(move || pair.a.qp.connect(&to_b, PATIENCE).expect("a"));
            scope.spawn(move || pair.b.qp.connect(&to_a, PATIENCE).expect("b"));
        }
    });
    for pair in &pairs {
        pair.works();
    }
}

pub fn connect_needs_reset<F: Fabric>(open: &impl Open<F>) {
    let pair = Pair::connected(open);
    let again = pair.a.qp.connect(&pair.b.qp.address(), PATIENCE).unwrap_err();
    assert_eq!(again.status, Status::WrongState);
    pair.works();
    pair.a.qp.modify(QpState::Err).expect("err");
    let in_err = pair.a.qp.connect(&pair.b.qp.address(), PATIENCE).unwrap_err();
    assert_eq!(in_err.status, Status::WrongState);
    assert_eq!(pair.a.qp.state(), QpState::Err);
}

pub fn a_refused_modify_changes_nothing<F: Fabric>(open: &impl Open<F>) {
    let pair = Pair::new(open);
    let refused = |qp: &F::Qp, to| {
        let (state, address) = (qp.state(), qp.address());
        assert_eq!(qp.modify(to).unwrap_err().status, Status::WrongState, "{state:?} to {to:?}");
        assert_eq!((qp.state(), qp.address()), (state, address));
    };
    for to in ALL.into_iter().filter(|to| *to != QpState::Err) {
        refused(&pair.a.qp, to);
    }
    pair.connect();
    for to in ALL.into_iter().filter(|to| *to != QpState::Err) {
        refused(&pair.a.qp, to);
    }
    pair.works();
    pair.a.qp.modify(QpState::Err).expect("err");
    for to in ALL.into_iter().filter(|to| !matches!(to, QpState::Err | QpState::Reset)) {
        refused(&pair.a.qp, to);
    }
}

pub fn err_is_reached_from_any_state_and_left_by_reset_only<F: Fabric>(open: &impl Open<F>) {
    let pair = Pair::new(open);
    pair.a.qp.modify(QpState::Err).expect("from RESET");
    pair.a.qp.modify(QpState::Err).expect("from ERR");
    assert_eq!(pair.a.qp.state(), QpState::Err);
    pair.a.qp.modify(QpState::Reset).expect("reset");
    assert_eq!(pair.a.qp.state(), QpState::Reset);
    pair.connect();
    pair.a.qp.modify(QpState::Err).expect("from RTS");
    // It was asked for, so there is no cause.
    assert_eq!(pair.a.qp.cause(), None);
    let refused = pair.a.post_one(1, WorkOp::Write, 8, pair.b.at(0));
    assert_eq!(refused, Err(PostError::NotConnected(QpState::Err)));
    assert_eq!(pair.a.qp.post_receives(1), Err(PostError::NotConnected(QpState::Err)));
}

pub fn a_reset_queue_pair_connects_again_under_a_fresh_address<F: Fabric>(open: &impl Open<F>) {
    let pair = Pair::connected(open);
    let mut seen = vec![pair.a.qp.address(), pair.b.qp.address()];
    for _ in 0..20 {
        pair.works();
        for end in [&pair.a, &pair.b] {
            end.qp.modify(QpState::Err).expect("err");
            end.qp.modify(QpState::Reset).expect("reset");
            assert_eq!(end.qp.cause(), None);
            assert!(!seen.contains(&end.qp.address()));
            seen.push(end.qp.address());
        }
        pair.connect();
    }
    pair.works();
}

pub fn a_stale_address_is_refused<F: Fabric>(open: &impl Open<F>) {
    let pair = Pair::new(open);
    let old = pair.b.qp.address();
    pair.b.qp.modify(QpState::Err).expect("err");
    if Pair::<F>::is_local_only(&pair) {
        return;
    }
    let in_err = pair.a.qp.connect(&old, PATIENCE).unwrap_err();
    assert_eq!((in_err.status, pair.a.qp.state()), (Status::ShardUnreachable, QpState::Reset));
    pair.b.qp.modify(QpState::Reset).expect("reset");
    let stale = pair.a.qp.connect(&old, PATIENCE).unwrap_err();
    assert_eq!((stale.status, pair.a.qp.state()), (Status::ShardUnreachable, QpState::Reset));
    // The refusals changed nothing.
    pair.connect();
    pair.works();
}

pub fn garbage_is_no_address<F: Fabric>(open: &impl Open<F>) {
    let pair = Pair::new(open);
    let real = pair.b.qp.address().0;
    let mut garbage = vec![Vec::new(), vec![0; real.len()], vec![0xff; real.len()], vec![7; QpAddress::BYTES_MAX]];
    garbage.push(real[..real.len() - 1].to_vec());
    garbage.push([real.as_slice(), &[0]].concat());
    for bytes in garbage {
        let refused = pair.a.qp.connect(&QpAddress(bytes), PATIENCE).unwrap_err();
        assert_eq!((refused.status, pair.a.qp.state()), (Status::ShardUnreachable, QpState::Reset));
    }
    pair.connect();
    pair.works();
}

pub fn a_peer_without_a_process_is_refused<F: Fabric>(open: &impl Open<F>) {
    let pair = Pair::new(open);
    if Pair::<F>::is_local_only(&pair) {
        return;
    }
    let gone = {
        let end = End::<F>::new(Arc::new(open()));
        end.qp.address()
    };
    let refused = pair.a.qp.connect(&gone, PATIENCE).unwrap_err();
    assert_eq!((refused.status, pair.a.qp.state()), (Status::ShardUnreachable, QpState::Reset));
    // A queue pair that is closed while its process lives is refused, too.
    let closed = {
        let cq = pair.b.fabric.create_cq(16).expect("completion queue");
        pair.b.fabric.create_qp(&CONFIG, &[], &cq, &cq, None).expect("queue pair").address()
    };
    let refused = pair.a.qp.connect(&closed, Duration::from_secs(30)).unwrap_err();
    assert_eq!((refused.status, pair.a.qp.state()), (Status::ShardUnreachable, QpState::Reset));
    pair.connect();
    pair.works();
}

impl<F: Fabric> Pair<F> {
    /// Whether connecting is a local act of each side, as on real devices, so that it cannot see the peer's state.
    fn is_local_only(pair: &Pair<F>) -> bool {
        !pair.a.fabric.capabilities().load_store
    }
}
