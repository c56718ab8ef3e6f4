//! What real drivers do at the edges.

use super::super::Verbs;
use super::super::address::Address;
use super::{devices, open, options};
use crate::error::Status;
use crate::fabric::conformance::pair::{BYTES, CONFIG, End, PATIENCE, Pair, until};
use crate::fabric::{
    Access, Completion, Cq, Fabric, Qp, QpState, Region, RemoteAddr, Waker, WcOpcode, WcStatus, Work, WorkOp,
};
use crate::options::{DataInOrder, RdmaMode};
use crate::sync::{Arc, Ordering};
use crate::time::now;
use core::time::Duration;

/// Two ends on the first and the last device, with changed options.
fn pair(change: impl Fn(&mut super::VerbsOptions)) -> Pair<Verbs> {
    let all = devices();
    let end = |device: &String| {
        let mut options = options(device);
        change(&mut options);
        End::new(Arc::new(Verbs::open(&options).expect("verbs opens")))
    };
    let pair = Pair { a: end(&all[0]), b: end(&all[all.len() - 1]) };
    pair.connect();
    pair
}

#[test]
fn a_region_deregistered_under_traffic_ends_the_connection_and_nothing_else() {
    let Pair { a, b } = pair(|_| {});
    let victim = b.fabric.allocate(BYTES, Access::ALL).expect("region");
    let place = RemoteAddr { address: victim.address().iova, rkey: victim.address().rkey };
    let local = [a.piece(0, 4096)];
    let work = Work { wr_id: 7, op: WorkOp::Write, local: &local, remote: place, signaled: true };
    let mut last = WcStatus::Success;
    let mut victim = Some(victim);
    let mut done = 0;
    until("a refusal", || {
        let _ = a.post(&[work]);
        for completion in a.drain() {
            done += 1;
            if last == WcStatus::Success {
                last = completion.status;
            }
        }
        if done > 20 {
            victim = None;
        }
        (last != WcStatus::Success).then_some(())
    });
    assert_eq!(last, WcStatus::RemAccess);
    assert_eq!(a.qp.cause().map(|cause| cause.status), Some(WcStatus::RemAccess));
    // The rest of the process goes on.
    let again = Pair { a: End::new(Arc::clone(&a.fabric)), b: End::new(Arc::clone(&b.fabric)) };
    again.connect();
    again.works();
}

#[test]
fn with_retries_for_ever_a_write_waits_for_its_receive() {
    let Pair { a, b } = pair(|options| options.rnr_retry = 7);
    a.post_one(3, WorkOp::WriteImm(5), 8, b.at(0)).expect("post");
    let start = now();
    while now().since_ns(start) < 300_000_000 {
        assert!(a.drain().is_empty(), "it completed without a receive");
        std::thread::yield_now();
    }
    b.qp.post_receives(1).expect("receive");
    assert_eq!((a.next().status, b.next().imm), (WcStatus::Success, 5));
}

#[test]
fn a_silent_peer_is_given_up_within_the_budget_of_retries() {
    let Pair { a, b } = pair(|options| {
        options.ack_timeout = 14;
        options.retry_cnt = 2;
    });
    let place = b.at(0);
    drop(b);
    let start = now();
    a.post_one(9, WorkOp::Write, 8, place).expect("post");
    let failed = a.next();
    let took = Duration::from_nanos(now().since_ns(start));
    println!("RETRY_EXC after {} ms with rdma-ack-timeout=14 and rdma-retry-cnt=2", took.as_millis());
    assert_eq!((failed.wr_id, failed.status), (9, WcStatus::RetryExc));
    let cause = a.qp.cause().expect("a cause");
    assert!(
        cause.detail.contains("RETRY_EXC_ERR") && cause.detail.contains("gone, or the way to it is cut"),
        "{cause:?}"
    );
}

#[test]
fn a_poller_with_immediates_only_sleeps_until_it_is_rung() {
    let Pair { a, b } = pair(|_| {});
    b.qp.post_receives(4).expect("receives");
    for number in 0..4 {
        std::thread::scope(|scope| {
            b.waker.arm();
            let mut none = [Completion::EMPTY];
            assert_eq!(b.cq.poll(&mut none), 0);
            scope.spawn(|| a.run(WorkOp::WriteImm(number), 8, b.at(0)));
            assert!(b.waker.wait(PATIENCE), "not rung");
        });
        b.waker.disarm();
        let got = b.next();
        assert_eq!((got.opcode, got.imm), (WcOpcode::ReceiveImm, number));
    }
}

#[test]
fn a_poller_that_no_device_rings_takes_naps() {
    let Pair { a: _a, b } = pair(|_| {});
    b.waker.arm();
    until("silence", || (!b.waker.wait(Duration::ZERO)).then_some(()));
    // Without a receive posted, nothing of the peer could ring: it must not sleep as long as it may.
    let start = now();
    assert!(!b.waker.wait(PATIENCE));
    assert!(now().since_ns(start) < u64::try_from(PATIENCE.as_nanos()).expect("a minute"));
}

#[test]
fn silent_work_gives_its_places_back() {
    let Pair { a, b } = pair(|_| {});
    let local = [a.piece(0, 8)];
    let work = Work { wr_id: 1, op: WorkOp::Write, local: &local, remote: b.at(0), signaled: false };
    for _ in 0..20 * CONFIG.max_send_wr {
        until("room", || {
            assert!(a.drain().is_empty(), "nobody asked for a completion");
            a.post(&[work]).ok()
        });
    }
    until("room for one that asks", || {
        assert!(a.drain().is_empty(), "nobody asked for a completion");
        a.post_one(77, WorkOp::Write, 8, b.at(0)).ok()
    });
    assert_eq!((a.next().wr_id, a.qp.state()), (77, QpState::Rts));
}

#[test]
fn the_order_of_bytes_is_not_promised_where_the_device_does_not() {
    let told = |order| {
        let options = super::VerbsOptions { data_in_order: order, ..options(&devices()[0]) };
        Verbs::open(&options).expect("verbs opens").capabilities()
    };
    let none = told(DataInOrder::No);
    assert!(!none.ordered_writes && !none.ordered_within_write && !none.load_store);
    assert!(told(DataInOrder::Yes).ordered_writes);
    let asked = told(DataInOrder::Auto);
    println!("the device promises order: {}; inline bytes granted: {}", asked.ordered_writes, asked.max_inline);
    assert_eq!(asked.ordered_writes, asked.ordered_within_write);
}

#[test]
fn what_is_not_there_is_refused_with_what_there_is() {
    let base = options(&devices()[0]);
    let refused = |options: super::VerbsOptions, words: &[&str]| {
        let error = Verbs::open(&options).expect_err("it is not there");
        assert_eq!(error.status, Status::FabricUnavailable, "{error}");
        words.iter().for_each(|word| assert!(error.message.contains(word), "'{word}' is not in: {error}"));
    };
    refused(super::VerbsOptions { device: "nosuch0".into(), ..base.clone() }, &["rdma-device=nosuch0", &devices()[0]]);
    refused(super::VerbsOptions { port: 200, ..base.clone() }, &["rdma-port=200"]);
    refused(super::VerbsOptions { gid_index: Some(200), ..base.clone() }, &["rdma-gid-index=200", "RoCE v2"]);
    refused(
        super::VerbsOptions { gid_subnet: "203.0.113.0/24".into(), ..base.clone() },
        &["rdma-gid-subnet", "ip addr"],
    );
    let wrong = if base.mode == RdmaMode::Ib { RdmaMode::RoceV2 } else { RdmaMode::Ib };
    refused(super::VerbsOptions { mode: wrong, ..base }, &["rdma-mode=", "link layer"]);
}

#[test]
fn more_than_the_device_has_is_refused_with_its_limit() {
    let fabric = open();
    let cq = fabric.create_cq(16).expect("completion queue");
    let error = fabric.create_cq(u32::MAX >> 1).expect_err("too deep");
    assert_eq!(error.status, Status::ResourceLimit);
    assert!(error.message.contains("entries per completion queue"), "{error}");
    let config = crate::fabric::QpConfig { max_send_wr: 1 << 24, ..CONFIG };
    let error = fabric.create_qp(&config, &[], &cq, &cq, None).expect_err("too deep");
    assert_eq!(error.status, Status::ResourceLimit, "{error}");
    assert!(error.message.contains("max-send-wr=16777216") && error.message.contains("lower max-send-wr"), "{error}");
}

#[test]
fn a_process_opens_a_device_once() {
    let device = devices().remove(0);
    let (first, second) =
        (Verbs::open(&options(&device)).expect("first"), Verbs::open(&options(&device)).expect("second"));
    assert!(Arc::ptr_eq(&first.device, &second.device));
    assert_eq!(first.device(), device);
    // Memory of one is good for the other.
    let end = End::new(Arc::new(first));
    let region = second.allocate(4096, Access::ALL).expect("region");
    end.qp.expose(&region, PATIENCE).expect("same device");
}

#[test]
fn a_megabyte_arrives_whole() {
    let Pair { a, b } = pair(|_| {});
    let big = |fabric: &Verbs| fabric.allocate(1 << 20, Access::ALL).expect("region");
    let (from, to) = (big(&a.fabric), big(&b.fabric));
    for at in (0..1 << 20).step_by(8) {
        End::<Verbs>::word_of(&from, at).store(at as u64 ^ 0x5bd1_e995, Ordering::Relaxed);
    }
    let local = [crate::fabric::Sge { address: from.base().as_ptr(), bytes: 1 << 20, lkey: from.lkey() }];
    let remote = RemoteAddr { address: to.address().iova, rkey: to.address().rkey };
    a.post(&[Work { wr_id: 1, op: WorkOp::Write, local: &local, remote, signaled: true }]).expect("post");
    assert_eq!(a.next().status, WcStatus::Success);
    for at in (0..1 << 20).step_by(8) {
        assert_eq!(End::<Verbs>::word_of(&to, at).load(Ordering::Acquire), at as u64 ^ 0x5bd1_e995);
    }
}

/// Each connection begins at a packet number of its own, also that of a queue pair that was reset: what an earlier one
/// still has on its way is not taken for the present one's. Of 24 random bits, sixteen are all different, but for one time
/// in 140,000.
#[test]
fn every_connection_begins_at_another_packet_number() {
    let Pair { a, b } = pair(|_| {});
    let mut seen = Vec::new();
    for _ in 0..8 {
        for end in [&a, &b] {
            end.qp.modify(QpState::Err).expect("to ERR");
            end.qp.modify(QpState::Reset).expect("to RESET");
            seen.push(Address::decode(&end.qp.address()).expect("an address").psn);
        }
    }
    seen.sort_unstable();
    seen.dedup();
    assert_eq!(seen.len(), 16, "{seen:?}");
    assert!(seen.iter().any(|psn| *psn > 1 << 20), "{seen:?}");
}
