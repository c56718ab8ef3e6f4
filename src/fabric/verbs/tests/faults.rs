//! Faults and link layers that only a stand-in for libibverbs shows (ctests/stand_in): each in a process of its own, which
//! is told of its fault by the environment.

use super::super::{Verbs, VerbsOptions, locked};
use super::{devices, options};
use crate::error::Status;
use crate::fabric::conformance::pair::{CONFIG, End, Pair, until};
use crate::fabric::{Access, Fabric, PostError, Qp, QpConfig, QpState, WcStatus, WorkOp};
use crate::observe::recent;
use crate::options::RdmaMode;
use crate::sync::Arc;
use std::process::Command;

/// Runs the test again with this fault; false: this is that process.
fn elsewhere(test: &str, fault: &str) -> bool {
    if std::env::var("RECLANE_STAND_IN").is_ok_and(|own| own == fault) {
        return false;
    }
    if std::env::var("RECLANE_TEST_STAND_IN").is_err() {
        println!("skipped: this is a real device, which has no such fault");
        return true;
    }
    let name = format!("fabric::verbs::tests::faults::{test}");
    let mut again = Command::new(std::env::current_exe().expect("own program"));
    again.args(["--exact", &name, "--nocapture"]).env("RECLANE_STAND_IN", fault);
    let output = again.output().expect("a second process");
    let text = String::from_utf8_lossy(&output.stdout).into_owned() + &String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success() && text.contains("1 passed"), "{text}");
    true
}

fn with(change: impl Fn(&mut VerbsOptions)) -> [VerbsOptions; 2] {
    let all = devices();
    [&all[0], &all[all.len() - 1]].map(|device| {
        let mut options = options(device);
        change(&mut options);
        options
    })
}

fn ends(options: &[VerbsOptions; 2]) -> Pair<Verbs> {
    let end = |options: &VerbsOptions| End::new(Arc::new(Verbs::open(options).expect("verbs opens")));
    Pair { a: end(&options[0]), b: end(&options[1]) }
}

fn connected(change: impl Fn(&mut VerbsOptions)) -> Pair<Verbs> {
    let pair = ends(&with(change));
    pair.connect();
    pair
}

/// This process has a limit of locked memory from here on, unless it may lock all that there is.
fn limit_locked_memory() {
    let limit = libc::rlimit { rlim_cur: 4 << 20, rlim_max: 4 << 20 };
    // SAFETY: `limit` is ours. A higher limit than before is refused, and then there is one already.
    let _ = unsafe { libc::setrlimit(libc::RLIMIT_MEMLOCK, &raw const limit) };
}

fn refused(options: &VerbsOptions, words: &[&str]) {
    let error = Verbs::open(options).expect_err("it is not there");
    assert_eq!(error.status, Status::FabricUnavailable, "{error}");
    words.iter().for_each(|word| assert!(error.message.contains(word), "'{word}' is not in: {error}"));
}

#[test]
fn infiniband_goes_by_lid_and_other_modes_are_refused() {
    if elsewhere("infiniband_goes_by_lid_and_other_modes_are_refused", "ib") {
        return;
    }
    connected(|options| options.mode = RdmaMode::Ib).works();
    for mode in [RdmaMode::RoceV1, RdmaMode::RoceV2] {
        refused(&with(|options| options.mode = mode)[0], &["rdma-mode=", "InfiniBand"]);
    }
}

#[test]
fn an_address_of_the_other_type_is_not_taken() {
    if elsewhere("an_address_of_the_other_type_is_not_taken", "v1") {
        return;
    }
    connected(|options| options.mode = RdmaMode::RoceV1).works();
    refused(&with(|options| options.mode = RdmaMode::RoceV2)[0], &["has no address of type RoCE v2"]);
    refused(&with(|options| options.mode = RdmaMode::Ib)[0], &["rdma-mode=ib", "Ethernet"]);
}

#[test]
fn the_smaller_mtu_of_two_ports_is_taken() {
    if elsewhere("the_smaller_mtu_of_two_ports_is_taken", "mtu=3") {
        return;
    }
    let kept = recent::keep();
    // The stand-in refuses a way with larger packets than its port has.
    let pair = connected(|_| {});
    pair.works();
    let told: Vec<String> = recent::recent().into_iter().map(|event| event.text).collect();
    let told = told.iter().filter(|text| text.contains("mtu_differs")).cloned().collect::<Vec<_>>();
    // Each end's device says it once.
    assert_eq!(told.len(), 2, "{told:?}");
    for words in ["here_bytes=4096 peer_bytes=1024", "here_bytes=1024 peer_bytes=4096"] {
        assert!(
            told.iter().any(|text| text.starts_with("warn") && text.contains(words)),
            "'{words}' is not in {told:?}"
        );
    }
    connected(|_| {}).works();
    let again = recent::recent().iter().filter(|event| event.text.contains("mtu_differs")).count();
    assert_eq!(again, 2, "it is said once");
    drop((pair, kept));
    refused(&with(|options| options.path_mtu = 4096)[1], &["rdma-path-mtu=4096", "has an MTU of 1024 bytes"]);
}

#[test]
fn queue_pairs_run_out_in_words() {
    if elsewhere("queue_pairs_run_out_in_words", "qps=3") {
        return;
    }
    limit_locked_memory();
    let pair = ends(&with(|_| {}));
    let _region = pair.a.fabric.allocate(8192, Access::ALL).expect("a region");
    let more = || pair.a.fabric.create_qp(&CONFIG, &[], &pair.a.cq, &pair.a.cq, None);
    let third = more().expect("the third");
    let error = more().expect_err("the fourth");
    assert_eq!(error.status, Status::ResourceLimit, "{error}");
    for word in ["the device has 3 queue pairs", "qps-per-client-per-shard"] {
        assert!(error.message.contains(word), "'{word}' is not in: {error}");
    }
    // Who may lock all that there is has no limit to look at.
    let expected = locked::limit().map(|limit| format!("it is {limit} bytes, and {} are registered", locked::bytes()));
    assert!(locked::bytes() >= 8192);
    match expected {
        Some(words) => assert!(error.message.contains(&words), "'{words}' is not in: {error}"),
        None => assert!(!error.message.contains("locked memory"), "{error}"),
    }
    drop(third);
    more().expect("there is room again");
}

#[test]
fn completion_queues_run_out_in_words() {
    if elsewhere("completion_queues_run_out_in_words", "cqs=4") {
        return;
    }
    limit_locked_memory();
    let fabric = Verbs::open(&with(|_| {})[0]).expect("verbs opens");
    let queues: Vec<_> = (0..8).map(|_| fabric.create_cq(64)).collect();
    assert!(queues[0].is_ok(), "{queues:?}");
    let error = queues.into_iter().find_map(Result::err).expect("there are not eight");
    assert_eq!(error.status, Status::ResourceLimit, "{error}");
    assert!(error.message.contains("use fewer lanes or poll threads"), "{error}");
    assert_eq!(error.message.contains("or it is the limit of locked memory"), locked::limit().is_some(), "{error}");
}

#[test]
fn regions_run_out_in_words() {
    if elsewhere("regions_run_out_in_words", "mrs=3") {
        return;
    }
    let fabric = Verbs::open(&with(|_| {})[0]).expect("verbs opens");
    let regions: Vec<_> = (0..3).map(|_| fabric.allocate(4096, Access::ALL).expect("a region")).collect();
    let error = fabric.allocate(4096, Access::ALL).expect_err("the fourth");
    assert_eq!(error.status, Status::ResourceLimit, "{error}");
    assert!(error.message.contains("the device takes 3 regions"), "{error}");
    drop(regions);
    // Lanes that were announced share one registration.
    fabric.expect_slots(100 * 4096, Access::REMOTE_WRITE);
    let lanes: Vec<_> = (0..100).map(|_| fabric.allocate_slots(4096, Access::REMOTE_WRITE).expect("a share")).collect();
    drop(fabric.allocate(4096, Access::ALL).expect("it was one registration"));
    drop(lanes);
}

#[test]
fn what_is_locked_counts_for_the_process_and_twice_under_another_address() {
    if elsewhere("what_is_locked_counts_for_the_process_and_twice_under_another_address", "mrs=3") {
        return;
    }
    let [one, other] = with(|_| {}).map(|options| Verbs::open(&options).expect("verbs opens"));
    let before = locked::bytes();
    let first = one.allocate(4096, Access::ALL).expect("a region");
    let second = other.allocate_at(8192, Access::ALL, Some(1 << 40)).expect("a region under a chosen address");
    assert_eq!(locked::bytes() - before, 4096 + 2 * 8192);
    let error = other.allocate_at(4096, Access::ALL, Some(1 << 41)).expect_err("no second registration is left");
    let words = format!("registering 4096 bytes, with {} registered before", locked::bytes());
    assert!(error.message.contains(&words), "'{words}' is not in: {error}");
    drop((first, second));
    assert_eq!(locked::bytes(), before);
}

#[test]
fn pieces_and_inline_bytes_are_what_is_granted() {
    if elsewhere("pieces_and_inline_bytes_are_what_is_granted", "sges=8 inline=16") {
        return;
    }
    let pair = ends(&with(|_| {}));
    let config = QpConfig { max_send_sge: 30, ..CONFIG };
    let qp = pair.a.fabric.create_qp(&config, &[], &pair.a.cq, &pair.a.cq, None).expect("a queue pair");
    assert_eq!((qp.send_pieces(), pair.a.fabric.capabilities().max_inline), (7, 16));
    pair.connect();
    pair.works();
}

#[test]
fn half_a_chain_ends_the_connection() {
    if elsewhere("half_a_chain_ends_the_connection", "post=4") {
        return;
    }
    let pair = connected(|_| {});
    let local = [pair.a.piece(0, 8)];
    let write =
        crate::fabric::Work { wr_id: 1, op: WorkOp::Write, local: &local, remote: pair.b.at(0), signaled: true };
    assert_eq!(pair.a.post(&[write, write]), Ok(()));
    assert_eq!(pair.a.post(&[write, write]), Err(PostError::Os(libc::ENOMEM)));
    assert_eq!(pair.a.qp.state(), QpState::Err);
    let cause = pair.a.qp.cause().expect("a cause");
    assert!(cause.detail.contains("took 1 of 2 requests"), "{cause:?}");
}

#[test]
fn a_queue_that_overran_is_told() {
    if elsewhere("a_queue_that_overran_is_told", "overrun=5") {
        return;
    }
    told_after_five("completions were lost");
}

#[test]
fn a_device_that_failed_is_told() {
    if elsewhere("a_device_that_failed_is_told", "fatal=5") {
        return;
    }
    told_after_five("the device failed");
}

fn told_after_five(words: &str) {
    let pair = connected(|_| {});
    until("the event", || {
        let _ = pair.a.post_one(1, WorkOp::Write, 8, pair.b.at(0));
        pair.a.drain();
        (pair.a.qp.state() == QpState::Err).then_some(())
    });
    let cause = pair.a.qp.cause().expect("a cause");
    assert_eq!(cause.status, WcStatus::Fatal, "{cause:?}");
    assert!(cause.detail.contains(words), "{cause:?}");
}

#[test]
fn lost_completions_of_flushed_work_keep_nothing_from_ending() {
    if elsewhere("lost_completions_of_flushed_work_keep_nothing_from_ending", "deaf lost") {
        return;
    }
    let pair = connected(|_| {});
    for number in 0..4 {
        pair.a.post_one(number, WorkOp::Write, 8, pair.b.at(0)).expect("post");
    }
    pair.a.qp.modify(QpState::Err).expect("to ERR");
    assert!(pair.a.drain().is_empty(), "they were lost");
    // Places come back with the next connection.
    for end in [&pair.a, &pair.b] {
        let _ = end.qp.modify(QpState::Err);
        end.qp.modify(QpState::Reset).expect("reset");
    }
    pair.connect();
    for number in 0..CONFIG.max_send_wr {
        pair.a.post_one(u64::from(number), WorkOp::Write, 8, pair.b.at(0)).expect("a place");
    }
    assert_eq!(pair.a.post_one(0, WorkOp::Write, 8, pair.b.at(0)), Err(PostError::QueueFull));
}
