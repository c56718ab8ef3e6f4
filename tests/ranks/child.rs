//! A rank in a process of its own. It does what its parent writes to it, and ends with it.

use crate::support::{ALL, Changes, MARK, OPTIONS, PATIENCE, ROLE, at, settings, word, write};
use reclane::checkpoint::steps;
use reclane::engine::{CheckpointState, Rank};
use reclane::error::Result;
use reclane::options::Settings;
use std::io::BufRead;
use std::sync::atomic::Ordering;
use std::time::Duration;

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
    if let Some(label) = role.strip_prefix("saver that dies at ") {
        die_at(label.to_owned());
    }
    if role == "worker" {
        return work(&settings(&changes));
    }
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
    for command in std::io::stdin().lock().lines().map_while(core::result::Result::ok) {
        let (verb, number) = command.split_once(' ').unwrap_or((&command, "0"));
        let number: u32 = number.parse().expect("a number");
        match verb {
            "word" => say(word(&region, number as usize).load(Ordering::Acquire)),
            "write" => {
                say(write(&rank, at(number, 1, 8), &[1]).map_or_else(|error| error.to_string(), |()| "ok".into()))
            }
            "set" => {
                word(&region, 0).store(number.into(), Ordering::Release);
                say("set");
            }
            "add" => say(rank.fetch_add_once(at(number, 1, 16), 1).map_or_else(|e| e.to_string(), |_| "ok".into())),
            "checkpoint" => {
                let taken = rank.checkpoint(false, Vec::new(), Duration::from_secs(10)).and_then(|number| {
                    rank.checkpoint_wait(number, CheckpointState::Committed, Duration::from_secs(10))
                });
                say(taken.map_or_else(|error| error.to_string(), |status| format!("epoch {}", status.epoch)));
            }
            "barrier" => say(rank.barrier("end", PATIENCE).map_or_else(|error| error.to_string(), |()| "ok".into())),
            other => panic!("no such command: {other}"),
        }
    }
    drop(region);
}

/// kill -9 of this process when it passes a step.
fn die_at(label: String) {
    let hook = move |step: &'static str| {
        if step == label {
            // SAFETY: a plain system call.
            unsafe { libc::kill(libc::getpid(), libc::SIGKILL) };
        }
    };
    assert!(steps::set_hook(hook));
}

const ROUNDS: u64 = 60;
const CHECKPOINT_EVERY: u64 = 4;

/// A job in which every number depends on all before it, of all ranks: what is lost or done twice shows at the end.
fn work(settings: &Settings) {
    match Rank::open(settings).and_then(|rank| {
        say(rank.control_plane_port());
        rounds(&rank)
    }) {
        Ok(sum) => say(format_args!("end {sum:x}")),
        Err(error) => say(format_args!("lost {error}")),
    }
}

fn rounds(rank: &Rank) -> Result<u64> {
    let (number, ranks) = (rank.number(), u32::try_from(rank.lanes().len()).expect("few"));
    let region = rank.open_region(1, 1 << 16, ALL)?;
    let (own, left, count) = (word(&region, 0), [word(&region, 8), word(&region, 9)], word(&region, 16));
    let begun = rank.restored_section("round").map(|bytes| u64::from_le_bytes(bytes.try_into().expect("eight bytes")));
    rank.barrier("regions are open", PATIENCE)?;
    for round in begun.unwrap_or(0)..ROUNDS {
        let last = left[usize::from(round % 2 == 1)].load(Ordering::Acquire);
        let next =
            (own.load(Ordering::Acquire) ^ last.rotate_left(7)).wrapping_mul(0x9e37_79b9_7f4a_7c15) + u64::from(number);
        own.store(next, Ordering::Release);
        let right = (number + 1) % ranks;
        write(rank, at(right, 1, 64 + 8 * ((round + 1) % 2)), &next.to_le_bytes())?;
        rank.fetch_add_once(at(right, 1, 128), next >> 32)?;
        rank.fetch_add(at(0, 1, 136), 1)?;
        rank.barrier(if round % 2 == 0 { "even" } else { "odd" }, PATIENCE)?;
        say(format_args!("round {round}"));
        if round % CHECKPOINT_EVERY == CHECKPOINT_EVERY - 1 {
            let section = ("round".to_owned(), (round + 1).to_le_bytes().to_vec());
            // Without one it goes on as well.
            let _ = rank.checkpoint(false, vec![section], PATIENCE);
        }
    }
    Ok(own.load(Ordering::Acquire)
        ^ count.load(Ordering::Acquire).rotate_left(1)
        ^ word(&region, 17).load(Ordering::Acquire))
}
