//! The roles that another process of a test can have. It does what its parent writes to it, and ends when the parent
//! closes that or dies.

use crate::rows::Table;
use crate::support::{Changes, PATIENCE, commands, open_client, role, say, settings, start_server};
use crate::traffic::{KINDS, keys_of, work};
use reclane::engine::Client;
use reclane::options::Side;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

/// Plays the role that the environment names; without one, nothing.
pub fn play() {
    let Some((role, changes)) = role() else { return };
    match role.as_str() {
        "server" => server(&changes),
        "worker" => worker(&changes),
        "joiner" => joiner(&changes),
        "home" => home(&changes),
        "server that is refused" => {
            let error = start_server(&changes).expect_err("refused");
            say(format_args!("{} {error}", error.status as i32));
        }
        other => panic!("no such role: {other}"),
    }
}

/// A shard.
fn server(changes: &Changes) {
    let server = start_server(changes).expect("a server");
    say(server.control_plane_port().unwrap_or(0));
    for command in commands() {
        match command.as_str() {
            "lanes" => say(server.stats().lanes),
            "lane bytes" => say(server.stats().lane_bytes),
            "sleeps" => say(server.stats().sleeps),
            "handled" => {
                let handled = server.stats().handled;
                say(handled.gets + handled.puts + handled.updates);
            }
            "cpu" => say(cpu_us()),
            "stop" => say(server.stop(PATIENCE).map_or_else(|error| error.to_string(), |()| "stopped".to_owned())),
            other => panic!("no such command: {other}"),
        }
    }
}

/// CPU time of this process in microseconds.
fn cpu_us() -> i64 {
    // SAFETY: the struct is ours, and all zeros is a value of it.
    let usage = unsafe {
        let mut usage = core::mem::zeroed::<libc::rusage>();
        assert_eq!(libc::getrusage(libc::RUSAGE_SELF, &raw mut usage), 0);
        usage
    };
    let time = |t: libc::timeval| t.tv_sec * 1_000_000 + t.tv_usec;
    time(usage.ru_utime) + time(usage.ru_stime)
}

/// A client with callers of every kind.
fn worker(changes: &Changes) {
    let client = open_client(changes);
    let table = Table::open(&client, "t", 16);
    let keys = keys_of(&client, None);
    let (stop, done) = (AtomicBool::new(false), AtomicU64::new(0));
    std::thread::scope(|scope| {
        let callers: Vec<_> = KINDS
            .into_iter()
            .map(|kind| {
                let (client, keys, stop, done) = (&client, &keys, &stop, &done);
                scope.spawn(move || work(client, table, kind, keys, stop, done))
            })
            .collect();
        while done.load(Ordering::Relaxed) < 20 {
            assert!(callers.iter().all(|caller| !caller.is_finished()), "a caller met an error");
            std::thread::yield_now();
        }
        say("at work");
        for command in commands() {
            match command.as_str() {
                "done" => say(done.load(Ordering::Relaxed)),
                other => panic!("no such command: {other}"),
            }
        }
        stop.store(true, Ordering::Relaxed);
    });
}

/// Joins and leaves over and over, and says so before each time.
fn joiner(changes: &Changes) {
    loop {
        say("joining");
        let opened = Client::open(&settings(Side::Client, changes));
        drop(opened.expect("a client"));
    }
}

/// Opens, uses and closes clients, as many as it is told, two at a time.
fn home(changes: &Changes) {
    let life = || {
        let client = open_client(changes);
        let table = Table::open(&client, "t", 16);
        table.put(&client, &[4], 4.0).expect("a PUT");
        let buffer = client.allocate_buffer(4096).expect("a buffer");
        table.versions(&[4], &table.get(&client, &[4]).expect("a GET"));
        drop(client);
        drop(buffer);
    };
    for command in commands() {
        let Some(count) = command.strip_prefix("live ").and_then(|count| count.parse::<u32>().ok()) else {
            panic!("no such command: {command}")
        };
        std::thread::scope(|scope| {
            for _ in 0..2 {
                scope.spawn(|| (0..count / 2).for_each(|_| life()));
            }
        });
        say("lived");
    }
}
