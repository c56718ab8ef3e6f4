//! Sinks seen from outside. Sinks are the process's, and tests run side by side: each looks for its own marker.

use super::*;
use crate::options::LogLevel;
use crate::sync::{Arc, Condvar, Mutex, lock};
use std::path::PathBuf;

struct TempFile(PathBuf);

impl TempFile {
    fn new(name: &str) -> TempFile {
        TempFile(std::env::temp_dir().join(format!("reclane-observe-{}-{name}.log", std::process::id())))
    }

    fn lines_with(&self, marker: &str) -> Vec<String> {
        let text = std::fs::read_to_string(&self.0).unwrap();
        text.lines().filter(|line| line.contains(marker)).map(str::to_owned).collect()
    }
}

impl Drop for TempFile {
    fn drop(&mut self) {
        let _ = std::fs::remove_file(&self.0);
    }
}

#[test]
fn a_file_gets_lines_of_its_level_and_all_of_them_once_the_guard_is_gone() {
    let file = TempFile::new("levels");
    let guard = install(Sink::File(file.0.clone()), LogLevel::Info).unwrap();
    for lane in 0..1000 {
        crate::event!(
            Level::WARN,
            events::LANE_DIRTY,
            marker = "levels_test",
            shard = 0,
            lane,
            reason = "wait timeout"
        );
    }
    crate::event!(Level::DEBUG, events::FABRIC_READY, marker = "levels_test");
    drop(guard);
    crate::event!(Level::WARN, events::LANE_DIRTY, marker = "levels_test", lane = 1000);
    let lines = file.lines_with("marker=levels_test");
    assert_eq!(lines.len(), 1000);
    let tail = " level=warn event=lane_dirty marker=levels_test shard=0 lane=999 reason=\"wait timeout\"";
    assert!(lines[999].starts_with("time=") && lines[999].ends_with(tail), "{}", lines[999]);
}

#[test]
fn two_sinks_each_get_what_they_asked_for() {
    let (quiet, verbose) = (TempFile::new("quiet"), TempFile::new("verbose"));
    let quiet_guard = install(Sink::File(quiet.0.clone()), LogLevel::Error).unwrap();
    let verbose_guard = install(Sink::File(verbose.0.clone()), LogLevel::Trace).unwrap();
    crate::event!(Level::ERROR, events::BUG, marker = "two_sinks");
    crate::event!(Level::TRACE, events::SHUTDOWN, marker = "two_sinks");
    drop((quiet_guard, verbose_guard));
    assert_eq!((quiet.lines_with("two_sinks").len(), verbose.lines_with("two_sinks").len()), (1, 2));
}

#[test]
fn the_callback_gets_fields_from_one_named_thread() {
    let seen = Arc::new(Mutex::new(Vec::new()));
    let theirs = Arc::clone(&seen);
    let callback = move |event: &EventRecord| {
        let thread = std::thread::current().name().unwrap_or_default().to_owned();
        lock(&theirs).push((thread, event.clone()));
    };
    let guard = install(Sink::Callback(Box::new(callback)), LogLevel::Info).unwrap();
    crate::event!(Level::INFO, events::LANE_RECOVERED, marker = "callback_test", attempts = 2_u64, why = %"a b");
    assert_eq!(guard.dropped_events(), 0);
    drop(guard);
    let seen = lock(&seen);
    let is_mine = |event: &EventRecord| event.fields.contains(&("marker", "callback_test".to_owned()));
    let mine: Vec<_> = seen.iter().filter(|(_, event)| is_mine(event)).collect();
    assert_eq!(mine.len(), 1);
    let (thread, event) = mine[0];
    assert_eq!((thread.as_str(), event.name.as_str(), event.level), ("reclane-events", "lane_recovered", Level::INFO));
    assert_eq!(event.fields[1..], [("attempts", "2".to_owned()), ("why", "a b".to_owned())]);
}

#[test]
fn a_callback_that_blocks_stops_nobody_and_the_loss_is_counted() {
    let gate = Arc::new((Mutex::new(false), Condvar::new()));
    let theirs = Arc::clone(&gate);
    let callback = move |_: &EventRecord| {
        let mut open = lock(&theirs.0);
        while !*open {
            open = theirs.1.wait(open).unwrap();
        }
    };
    let guard = install(Sink::Callback(Box::new(callback)), LogLevel::Warn).unwrap();
    for round in 0..10_000 {
        crate::event!(Level::WARN, events::LANE_DIRTY, marker = "blocked_test", round);
    }
    let dropped = guard.dropped_events();
    *lock(&gate.0) = true;
    gate.1.notify_all();
    // One event may have left the queue: the one that the callback holds.
    assert!(dropped >= 10_000 - 8192 - 1, "{dropped}");
}

#[test]
fn a_callback_that_panics_gets_the_next_event_all_the_same() {
    let count = Arc::new(Mutex::new(0));
    let theirs = Arc::clone(&count);
    let callback = move |event: &EventRecord| {
        if event.fields.contains(&("marker", "panic_test".to_owned())) {
            *lock(&theirs) += 1;
            panic!("on purpose");
        }
    };
    let guard = install(Sink::Callback(Box::new(callback)), LogLevel::Warn).unwrap();
    crate::event!(Level::WARN, events::BUG, marker = "panic_test");
    crate::event!(Level::WARN, events::BUG, marker = "panic_test");
    drop(guard);
    assert_eq!(*lock(&count), 2);
}

#[test]
fn a_file_that_cannot_be_opened_is_named() {
    let error = install(Sink::from_text("/nonexistent-directory/x.log"), LogLevel::Info).err().unwrap();
    assert!(error.message.contains("/nonexistent-directory/x.log"), "{error}");
}

#[test]
fn profile_lines_go_to_the_log() {
    let file = TempFile::new("profile");
    let guard = install(Sink::File(file.0.clone()), LogLevel::Info).unwrap();
    profile::write("component=profile_test shard=0");
    drop(guard);
    assert_eq!(file.lines_with("profile_test"), ["component=profile_test shard=0"]);
}

#[test]
fn threads_of_sinks_are_deaf_to_signals() {
    let file = TempFile::new("deaf");
    let _lines = install(Sink::File(file.0.clone()), LogLevel::Info).unwrap();
    let called = Arc::new(Mutex::new(false));
    let theirs = Arc::clone(&called);
    let callback = move |_: &EventRecord| *lock(&theirs) = true;
    let _callback = install(Sink::Callback(Box::new(callback)), LogLevel::Info).unwrap();
    // A thread gives itself its name: both have it once they have done something.
    crate::event!(Level::INFO, events::SHUTDOWN, marker = "deaf_test");
    while !*lock(&called) || file.lines_with("deaf_test").is_empty() {
        std::thread::yield_now();
    }
    let mut found = std::collections::BTreeSet::new();
    for task in std::fs::read_dir("/proc/self/task").unwrap() {
        // A thread of another test may have ended meanwhile.
        let Ok(status) = std::fs::read_to_string(task.unwrap().path().join("status")) else { continue };
        let field = |name: &str| status.lines().find_map(|line| line.strip_prefix(name)).unwrap().trim();
        let name = field("Name:");
        if name == "reclane-log" || name == "reclane-events" {
            found.insert(name.to_string());
            let blocked = u64::from_str_radix(field("SigBlk:"), 16).unwrap();
            for signal in [libc::SIGINT, libc::SIGTERM, libc::SIGUSR1, libc::SIGCHLD, libc::SIGALRM] {
                assert_ne!(blocked & 1 << (signal - 1), 0, "{name} takes signal {signal}");
            }
        }
    }
    assert_eq!(found.len(), 2, "{found:?}");
}
