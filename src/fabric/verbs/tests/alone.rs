//! What changes the host or counts what it has: run one by one (`--test-threads=1`).

use super::super::Verbs;
use super::{devices, options};
use crate::error::Status;
use crate::fabric::conformance::pair::{End, Pair, until};
use crate::fabric::{Access, Fabric, Qp, QpState, WorkOp};
use crate::sync::Arc;
use std::os::unix::process::CommandExt;
use std::process::Command;

const ROLE: &str = "RECLANE_TEST_VERBS_ROLE";

/// A command of the environment, which knows this host's network; None: this host is not to be changed.
fn host_command(variable: &str) -> Option<String> {
    let command = std::env::var(variable).ok().filter(|command| !command.is_empty());
    if command.is_none() {
        println!("skipped: {variable} is not set, so the host's links and files are left alone");
    }
    command
}

fn shell(command: &str) {
    assert!(Command::new("sh").args(["-c", command]).status().expect("sh").success(), "{command}");
}

fn fresh_pair() -> Pair<Verbs> {
    let all = devices();
    let end = |device: &String| End::new(Arc::new(Verbs::open(&options(device)).expect("verbs opens")));
    let pair = Pair { a: end(&all[0]), b: end(&all[all.len() - 1]) };
    pair.connect();
    pair
}

#[test]
fn a_link_that_goes_down_is_a_cause_and_one_that_comes_up_carries_again() {
    let (Some(down), Some(up)) = (host_command("RECLANE_TEST_LINK_DOWN"), host_command("RECLANE_TEST_LINK_UP")) else {
        return;
    };
    let pair = fresh_pair();
    pair.works();
    let start = crate::time::now();
    shell(&down);
    until("both ends in ERR", || {
        pair.a.drain();
        pair.b.drain();
        (pair.a.qp.state() == QpState::Err && pair.b.qp.state() == QpState::Err).then_some(())
    });
    println!("both ends in ERR {} ms after the command", crate::time::now().since_ns(start) / 1_000_000);
    let causes = [pair.a.qp.cause().expect("a cause"), pair.b.qp.cause().expect("a cause")];
    causes.iter().for_each(|cause| assert!(cause.detail.contains("went down"), "{cause:?}"));
    let refused = Verbs::open(&options(&devices()[0])).expect_err("the port is down");
    assert!(refused.message.contains("not ACTIVE") && refused.message.contains("ip link set"), "{refused}");
    shell(&up);
    until("an active port", || Verbs::open(&options(&devices()[0])).ok());
    // The same queue pairs, connected anew.
    for end in [&pair.a, &pair.b] {
        end.qp.modify(QpState::Reset).expect("reset");
    }
    until("a way", || {
        let (to_a, to_b) = (pair.a.qp.address(), pair.b.qp.address());
        let patience = crate::fabric::conformance::pair::PATIENCE;
        let both = pair.a.qp.connect(&to_b, patience).and_then(|()| pair.b.qp.connect(&to_a, patience));
        if both.is_ok() {
            return Some(());
        }
        for end in [&pair.a, &pair.b] {
            let _ = end.qp.modify(QpState::Err);
            end.qp.modify(QpState::Reset).expect("reset");
        }
        None
    });
    pair.works();
}

/// What the kernel counts of a device, as `rdma resource` tells it.
fn resources(device: &str) -> String {
    let output = Command::new("rdma").args(["resource", "show", device]).output().expect("the tool rdma (iproute2)");
    assert!(output.status.success());
    String::from_utf8(output.stdout).expect("text")
}

fn descriptors() -> usize {
    std::fs::read_dir("/proc/self/fd").expect("/proc").count()
}

#[test]
fn a_thousand_connections_leave_nothing_behind() {
    const CYCLES: usize = 1_000;
    let all = devices();
    let (left, right) = (&all[0], &all[all.len() - 1]);
    let fabrics = [left, right].map(|device| Arc::new(Verbs::open(&options(device)).expect("verbs opens")));
    let cycle = || {
        let pair = Pair { a: End::new(Arc::clone(&fabrics[0])), b: End::new(Arc::clone(&fabrics[1])) };
        pair.connect();
        pair.a.run(WorkOp::Write, 8, pair.b.at(0));
    };
    cycle();
    let before = (resources(left), resources(right), descriptors());
    println!("{} {} descriptors {}", before.0.trim(), before.1.trim(), before.2);
    (0..CYCLES).for_each(|_| cycle());
    assert_eq!((resources(left), resources(right), descriptors()), before);
    // And nothing at all when the devices are closed.
    drop(fabrics);
    let threads = || std::fs::read_dir("/proc/self/task").expect("/proc").count();
    let opened = threads();
    let again = Verbs::open(&options(left)).expect("verbs opens");
    assert_eq!(threads(), opened + 1);
    drop(again);
    until("its thread has ended", || (threads() == opened).then_some(()));
}

/// This test program again, without rights that root has and with little memory to lock.
fn weak_child(role: &str, test: &str) -> (bool, String) {
    const CAP_DAC_OVERRIDE: libc::c_ulong = 1;
    const CAP_DAC_READ_SEARCH: libc::c_ulong = 2;
    const CAP_IPC_LOCK: libc::c_ulong = 14;
    let mut command = Command::new(std::env::current_exe().expect("own program"));
    command.args(["--exact", test, "--nocapture", "--test-threads=1"]).env(ROLE, role);
    // SAFETY: plain system calls, which are allowed between fork and exec. The child loses rights at its exec.
    unsafe {
        command.pre_exec(|| {
            let little = libc::rlimit { rlim_cur: 256 << 10, rlim_max: 256 << 10 };
            libc::setrlimit(libc::RLIMIT_MEMLOCK, &raw const little);
            for right in [CAP_DAC_OVERRIDE, CAP_DAC_READ_SEARCH, CAP_IPC_LOCK] {
                libc::prctl(libc::PR_CAPBSET_DROP, right, 0, 0, 0);
            }
            Ok(())
        });
    }
    let output = command.output().expect("a second process");
    let text = String::from_utf8_lossy(&output.stdout).into_owned() + &String::from_utf8_lossy(&output.stderr);
    (output.status.success(), text)
}

#[test]
fn a_small_limit_of_locked_memory_is_told_with_what_is_needed() {
    const SELF: &str = "fabric::verbs::tests::alone::a_small_limit_of_locked_memory_is_told_with_what_is_needed";
    if std::env::var(ROLE).is_ok() {
        let fabric = Verbs::open(&options(&devices()[0])).expect("verbs opens");
        let first = fabric.allocate(64 << 10, Access::ALL).expect("this much is allowed");
        let error = fabric.allocate(1 << 20, Access::ALL).expect_err("more than the limit");
        assert_eq!(error.status, Status::ResourceLimit, "{error}");
        for word in ["limit of locked memory is 262144 bytes", "1114112 are needed", "ulimit -l 1088"] {
            assert!(error.message.contains(word), "'{word}' is not in: {error}");
        }
        drop(first);
        return;
    }
    let (went_well, text) = weak_child("memlock", SELF);
    assert!(went_well, "{text}");
}

#[test]
fn a_device_file_without_permission_is_named() {
    const SELF: &str = "fabric::verbs::tests::alone::a_device_file_without_permission_is_named";
    if std::env::var(ROLE).is_ok() {
        let error = Verbs::open(&options(&devices()[0])).expect_err("no permission");
        assert_eq!(error.status, Status::FabricUnavailable, "{error}");
        assert!(error.message.contains("no permission on /dev/infiniband/uverbs"), "{error}");
        return;
    }
    if host_command("RECLANE_TEST_LINK_DOWN").is_none() {
        return;
    }
    shell("chmod 000 /dev/infiniband/uverbs*");
    let (went_well, text) = weak_child("permission", SELF);
    shell("chmod 666 /dev/infiniband/uverbs*");
    assert!(went_well, "{text}");
}
