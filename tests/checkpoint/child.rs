//! The roles that another process of a test can have.

use crate::rows::Table;
use crate::support::{Changes, PATIENCE, commands, open_client, role, say, start_server};
use reclane::checkpoint::steps;
use std::sync::atomic::{AtomicU64, Ordering};

/// Plays the role that the environment names; without one, nothing.
pub fn play() {
    let Some((role, changes)) = role() else { return };
    if let Some(step) = role.strip_prefix("server that dies at ") {
        let (label, times) = step.split_once(' ').expect("a label and how often it is passed before");
        die_at(label.to_owned(), times.parse().expect("a number"));
    } else if role == "server that is refused" {
        let error = start_server(&changes).expect_err("refused");
        return say(format_args!("{} {}", error.status as i32, error.message.replace('\n', " ")));
    }
    if let Some(key) = role.strip_prefix("client that raises ") {
        return raise(key.parse().expect("a key"), &changes);
    }
    let server = start_server(&changes).expect("a server");
    say(server.control_plane_port().unwrap_or(0));
    for command in commands() {
        match command.as_str() {
            "updates" => say(server.stats().handled.updates),
            "repeated" => say(server.stats().handled.repeated),
            "small files" => {
                limit_files(20_000);
                say("limited");
            }
            "stop" => say(server.stop(PATIENCE).map_or_else(|error| error.to_string(), |()| "stopped".to_owned())),
            other => panic!("no such command: {other}"),
        }
    }
}

/// Raises a row for ever. Says the first time that it has, and whenever it could not.
fn raise(key: u64, changes: &Changes) {
    let client = open_client(changes);
    let table = Table::open(&client, "t", 16);
    let mut raised = false;
    loop {
        match table.update(&client, &[key], 1.0) {
            Ok(()) if !core::mem::replace(&mut raised, true) => say("raised"),
            Ok(()) => {}
            Err(error) => say(format_args!("{:?} {}", error.outcome, error.message.replace('\n', " "))),
        }
    }
}

/// kill -9 of this process when it passes a step, after it has passed it so many times.
fn die_at(label: String, times: u64) {
    let passed = AtomicU64::new(0);
    let hook = move |step: &'static str| {
        if step == label && passed.fetch_add(1, Ordering::Relaxed) == times {
            // SAFETY: a plain system call.
            unsafe { libc::kill(libc::getpid(), libc::SIGKILL) };
        }
    };
    assert!(steps::set_hook(hook));
}

/// A file of this process cannot grow beyond so many bytes: writing fails with EFBIG, as a full disk with ENOSPC.
fn limit_files(bytes: u64) {
    let limit = libc::rlimit { rlim_cur: bytes, rlim_max: bytes };
    // SAFETY: plain system calls; the struct is ours.
    unsafe {
        libc::signal(libc::SIGXFSZ, libc::SIG_IGN);
        assert_eq!(libc::setrlimit(libc::RLIMIT_FSIZE, &raw const limit), 0);
    }
}
