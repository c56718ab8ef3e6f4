//! A rank in a process of its own. It does what its parent writes to it, and ends with it.

use crate::support::{ALL, Changes, MARK, OPTIONS, PATIENCE, ROLE, at, settings, word, write};
use reclane::engine::Rank;
use std::io::BufRead;
use std::sync::atomic::Ordering;

fn say(what: impl core::fmt::Display) {
    println!("\n{MARK}{what}");
}

/// Plays the role that the environment names; without one, nothing.
pub fn play() {
    let Ok(role) = std::env::var(ROLE) else { return };
    // SAFETY: a plain system call.
    assert_eq!(unsafe { libc::prctl(libc::PR_SET_PDEATHSIG, libc::SIGKILL) }, 0);
    let options = std::env::var(OPTIONS).expect("options");
    let split = |line: &str| line.split_once('=').map(|(name, value)| (name.to_owned(), value.to_owned()));
    let changes: Changes = options.lines().map(|line| split(line).expect("name=value")).collect();
    let rank = Rank::open(&settings(&changes)).expect("a rank");
    let region = rank.open_region(1, 1 << 16, ALL).expect("a region");
    say(rank.control_plane_port());
    if role == "writer" {
        // Until it is killed in the middle.
        let bytes = vec![7; 4096];
        loop {
            for peer in [0, 1] {
                write(&rank, at(peer, 1, 0), &bytes).expect("write");
                rank.fetch_add_once(at(peer, 1, 8192), 1).expect("add");
            }
        }
    }
    for command in std::io::stdin().lock().lines().map_while(Result::ok) {
        let (verb, number) = command.split_once(' ').unwrap_or((&command, "0"));
        let number: u32 = number.parse().expect("a number");
        match verb {
            "word" => say(word(&region, number as usize).load(Ordering::Acquire)),
            "write" => {
                say(write(&rank, at(number, 1, 0), &[1]).map_or_else(|error| error.to_string(), |()| "ok".into()))
            }
            "barrier" => say(rank.barrier("end", PATIENCE).map_or_else(|error| error.to_string(), |()| "ok".into())),
            other => panic!("no such command: {other}"),
        }
    }
    drop(region);
}
