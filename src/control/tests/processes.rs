//! Deaths of whole processes, and what a process has left after many lives of its members. The test binary runs itself
//! again with one of the `child_` tests, which do nothing otherwise.

use super::*;
use crate::time::now;
use std::io::{BufRead, BufReader};
use std::process::{Child, Command, Stdio};

const PORT: &str = "RECLANE_TEST_CONTROL_PORT";

fn child(test: &str, port: u16) -> Child {
    let name = format!("{}::{test}", module_path!().split_once("::").unwrap().1);
    Command::new(std::env::current_exe().unwrap())
        .args([&name, "--exact", "--nocapture", "--test-threads=1"])
        .env(PORT, port.to_string())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap()
}

fn child_port() -> Option<u16> {
    Some(std::env::var(PORT).ok()?.parse().unwrap())
}

/// Waits until the child says it. What it says afterwards can still be read, so that it is not ended by saying it.
fn await_line(child: &mut Child, wanted: &str) -> impl Iterator<Item = String> + use<> {
    let output = child.stdout.take().unwrap();
    let mut lines = BufReader::new(output).lines().map(Result::unwrap);
    assert!(lines.any(|line| line.contains(wanted)), "the child ended without '{wanted}'");
    lines
}

#[test]
fn child_waits_in_a_barrier() {
    let Some(port) = child_port() else { return };
    let me = ControlClient::join(HOST, port, LONG, &identity(1), &client(1)).unwrap();
    me.publish_lanes(Peer::Server(ShardId(0)), b"mortal".to_vec()).unwrap();
    std::thread::scope(|scope| {
        scope.spawn(|| me.barrier("cut", 3, LONG));
        // Another count is refused once the barrier waits for three: then we are in it.
        while me.barrier("cut", 1, LONG).is_ok() {}
        println!("I wait");
    });
}

#[test]
fn a_killed_process_is_seen_at_once_and_leaves_nothing() {
    let plane = plane(1);
    let a = join(&plane, 1, &server(0));
    let mut doomed = child("child_waits_in_a_barrier", plane.port());
    let _output = await_line(&mut doomed, "I wait");
    let name = Peer::Client(ClientId(1));
    assert_eq!(a.get_lanes(name, LONG).unwrap(), b"mortal");
    let Some(Event::LanesPublished { incarnation, .. }) = a.next_event(LONG) else { panic!("it published") };
    std::thread::scope(|scope| {
        let waiting = scope.spawn(|| a.barrier("cut", 3, LONG));
        while a.barrier("cut", 1, LONG).is_ok() {}
        doomed.kill().unwrap();
        assert_eq!(a.next_event(LONG), Some(Event::MemberLeft { peer: name, incarnation, died: true }));
        assert_error(waiting.join().unwrap(), Status::ShardUnreachable, &["'cut'", "client 1", "died"]);
    });
    doomed.wait().unwrap();
    assert_error(a.get_lanes(name, Duration::ZERO), Status::StartupTimeout, &["has not joined"]);
    // The third participant comes late and is told too; the name of the dead one is free.
    let third = join(&plane, 1, &client(2));
    assert_error(third.barrier("cut", 3, LONG), Status::ShardUnreachable, &["'cut'", "client 1", "died"]);
    join(&plane, 1, &client(1)).barrier("cut", 1, LONG).unwrap();
}

#[test]
fn child_lives_many_lives() {
    if child_port().is_none() {
        return;
    }
    let count = |what: &str| std::fs::read_dir(format!("/proc/self/{what}")).unwrap().count();
    let cycle = || {
        let plane = plane(1);
        let a = join(&plane, 1, &server(0));
        let b = join(&plane, 1, &member(Role::Client(None)));
        a.ready().unwrap();
        b.wait_servers_ready(LONG).unwrap();
        b.publish_lanes(a.me(), vec![1]).unwrap();
        b.vanish();
        a.leave();
        plane.stop();
        // Nobody there: a join that fails leaves nothing either.
        let failed = ControlClient::join(HOST, 1, Duration::ZERO, &identity(1), &server(0));
        assert_error(failed, Status::ControlPlaneUnreachable, &[]);
    };
    cycle();
    // A thread that was joined is listed for a moment longer: there may be one too many in either count.
    let counts = || (count("fd"), count("task"));
    let mut before = counts();
    loop {
        (0..200).for_each(|_| cycle());
        let deadline = now().after(LONG);
        while counts().1 > before.1 && now() < deadline {
            std::thread::yield_now();
        }
        let after = counts();
        if after.1 >= before.1 {
            assert_eq!(after, before);
            break;
        }
        before = after;
    }
    println!("nothing is left");
}

#[test]
fn two_hundred_lives_leave_no_descriptor_and_no_thread() {
    let mut child = child("child_lives_many_lives", 0);
    await_line(&mut child, "nothing is left").for_each(drop);
    assert!(child.wait().unwrap().success());
}

#[test]
fn control_threads_are_deaf_to_signals() {
    let plane = plane(1);
    let _a = join(&plane, 1, &server(0));
    let mut found = std::collections::BTreeSet::new();
    for task in std::fs::read_dir("/proc/self/task").unwrap() {
        // A thread of another test may have ended meanwhile.
        let Ok(status) = std::fs::read_to_string(task.unwrap().path().join("status")) else { continue };
        let field = |name: &str| status.lines().find_map(|line| line.strip_prefix(name)).unwrap().trim();
        let name = field("Name:");
        if name == "reclane-control" || name == "reclane-plane" {
            found.insert(name.to_string());
            let blocked = u64::from_str_radix(field("SigBlk:"), 16).unwrap();
            for signal in [libc::SIGINT, libc::SIGTERM, libc::SIGUSR1, libc::SIGCHLD, libc::SIGPROF, libc::SIGALRM] {
                assert_ne!(blocked & 1 << (signal - 1), 0, "{name} takes signal {signal}");
            }
        }
    }
    assert_eq!(found.len(), 2, "{found:?}");
}
