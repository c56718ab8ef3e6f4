//! Counters files of processes that work, stand still, are killed, and of none at all.

use crate::Folder;
use crate::support::{Deployment, Process, until, with};
use reclane::error::Status;
use reclane::observe::directory::{Life, Report, clean, list, read};
use reclane::observe::layout::Role;
use reclane::observe::sample::lookup;
use std::io::Write;
use std::path::PathBuf;

fn of(folder: &Folder, role: Role) -> Vec<(PathBuf, Report)> {
    let all = list(&folder.0).expect("a directory");
    let all = all.into_iter().map(|(path, report)| (path, report.expect("a counters file")));
    all.filter(|(_, report)| report.head.role == role).collect()
}

fn gets(report: &Report, metric: &str) -> u64 {
    lookup(&report.samples, &format!("{metric}{{op=\"get\"}}")).expect("a number")
}

#[test]
fn a_stopped_process_is_read_and_a_killed_one_is_known_to_be_dead() {
    let folder = Folder::new();
    let mut deployment = Deployment::start(1, &[("metrics-directory", &folder.text()), ("shared-reads", "off")]);
    let mut client = Process::start("client", &deployment.changes);
    client.hear();
    assert_eq!((client.ask("put 3 100"), client.ask("get 21 100")), ("done".into(), "done".into()));
    let (path, report) = of(&folder, Role::Client).remove(0);
    assert_eq!((report.life, gets(&report, "reclane_client_requests_total")), (Life::Running, 21));

    // Both stand still: nobody can answer for them.
    client.freeze();
    deployment.servers[0].freeze();
    let (_, server) = of(&folder, Role::Server).remove(0);
    assert_eq!((server.life, gets(&server, "reclane_server_requests_total")), (Life::Stopped, 21));
    let stopped = read(&path).expect("readable");
    assert_eq!((stopped.life, gets(&stopped, "reclane_client_requests_total")), (Life::Stopped, 21));
    deployment.servers[0].thaw();
    client.thaw();
    assert_eq!(client.ask("get 1 1"), "done");

    client.kill();
    let dead = read(&path).expect("what a killed process leaves");
    assert_eq!((dead.life, gets(&dead, "reclane_client_requests_total")), (Life::Dead, 22));
    assert_eq!(clean(&folder.0).expect("a directory"), vec![path.clone()]);
    assert!(!path.exists());
    assert_eq!(of(&folder, Role::Server).len(), 1, "the living stay");
    assert_eq!(deployment.servers[0].ask("stop"), "stopped");
    let pid = deployment.servers[0].pid();
    let mine = |all: &Vec<(PathBuf, Report)>| all.iter().filter(|(_, report)| report.head.pid == pid).count();
    // The page goes with the handle, which the process still has.
    assert_eq!(mine(&of(&folder, Role::Server)), 1);
}

#[test]
fn an_orderly_end_leaves_no_file_and_only_the_last_dead_predecessor_is_kept() {
    let folder = Folder::new();
    let deployment = Deployment::start(1, &[]);
    let changes = with(&with(&deployment.changes, "metrics-directory", folder.text()), "client-id", "7");
    let mut pids = Vec::new();
    for _ in 0..3 {
        let mut client = Process::start("client", &changes);
        assert_eq!(client.hear(), "7");
        pids.push(client.pid());
        client.kill();
    }
    let left: Vec<u32> = of(&folder, Role::Client).iter().map(|(_, report)| report.head.pid).collect();
    assert_eq!(left.len(), 2, "the third one's, and of its predecessors the last: {left:?} of {pids:?}");
    assert!(left.contains(&pids[1]) && left.contains(&pids[2]), "{left:?} of {pids:?}");
    let before = left.len();
    let client = crate::support::open_client(&with(&changes, "client-id", "8"));
    assert_eq!(of(&folder, Role::Client).len(), before + 1);
    drop(client);
    assert_eq!(of(&folder, Role::Client).len(), before);
}

#[test]
fn garbage_is_refused_with_its_name_and_never_removed() {
    let folder = Folder::new();
    let mut good = {
        let _deployment = Deployment::start(1, &[("metrics-directory", &folder.text())]);
        let (path, _) = of(&folder, Role::Server).remove(0);
        std::fs::read(path).expect("a file")
    };
    let file = |name: &str, bytes: &[u8]| {
        let path = folder.0.join(format!("{name}.counters"));
        std::fs::File::create(&path).and_then(|mut file| file.write_all(bytes)).expect("a file");
        path
    };
    let refused = |path: &PathBuf, why: &str| {
        let error = read(path).expect_err("garbage");
        assert_eq!(error.status, Status::InvalidArgument, "{error}");
        assert!(error.message.contains(why) && error.message.contains(".counters"), "{}: {why}", error.message);
    };
    refused(&file("empty", b""), "no counters file");
    refused(&file("text", b"hello, this is no counters file."), "no counters file");
    refused(&file("odd", &good[..good.len() - 3]), "bytes");
    refused(&file("short", &good[..good.len() - 8]), "says that it has");
    good[8] = 9;
    refused(&file("newer", &good), "version 9");
    let pipe = folder.0.join("pipe.counters");
    let name = std::ffi::CString::new(pipe.display().to_string()).expect("a path");
    // SAFETY: a plain system call on a string that lives.
    assert_eq!(unsafe { libc::mkfifo(name.as_ptr(), 0o600) }, 0);
    refused(&pipe, "no file");
    std::os::unix::fs::symlink("/etc/passwd", folder.0.join("link.counters")).expect("a link");
    assert_eq!(read(&folder.0.join("link.counters")).expect_err("a link").status, Status::OsError);
    let before = list(&folder.0).expect("a directory").len();
    clean(&folder.0).expect("a directory");
    let garbage =
        ["empty", "text", "odd", "short", "newer", "pipe"].map(|name| folder.0.join(format!("{name}.counters")));
    assert!(garbage.iter().all(|path| path.exists()), "{before}");
}

#[test]
fn a_process_that_cannot_have_its_file_says_so() {
    let folder = Folder::new();
    std::fs::write(folder.0.join("file"), "").expect("a file");
    let deployment = Deployment::start(1, &[]);
    let changes = with(&deployment.changes, "metrics-directory", folder.0.join("file/below").display());
    let settings = crate::support::settings(reclane::options::Side::Client, &changes);
    let error = reclane::engine::Client::open(&settings).expect_err("no directory");
    assert!(error.status == Status::OsError && error.message.contains("metrics-directory"), "{error}");
    // It has left the deployment again.
    let mut other = Process::start("client", &deployment.changes);
    other.hear();
    until("its count", || other.number("metric reclane_client_slot_uses_total"), |uses| *uses == 1);
}
