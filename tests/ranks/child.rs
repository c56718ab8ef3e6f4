//! A rank in a process of its own. It does what its parent writes to it, and ends with it.

use crate::support::{ALL, PATIENCE, at, commands, role, say, settings, word, write};
use reclane::checkpoint::steps;
use reclane::engine::{CheckpointState, Rank};
use reclane::error::Result;
use reclane::options::Settings;
use std::sync::atomic::Ordering;
use std::time::Duration;

/// Plays the role that the environment names; without one, nothing.
pub fn play() {
    let Some((role, changes)) = role() else { return };
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
    for command in commands() {
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
            "suspend" => say(rank.suspend(PATIENCE).map_or_else(|error| error.to_string(), |()| "ok".into())),
            "suspend-alone" => {
                let alone = rank.suspend(Duration::from_millis(100));
                say(alone.map_or_else(|error| error.to_string(), |()| "ok".into()));
            }
            "resume-alone" => {
                let alone = rank.resume(Duration::from_millis(100));
                say(alone.map_or_else(|error| error.to_string(), |()| "ok".into()));
            }
            "resume" => say(rank.resume(PATIENCE).map_or_else(|error| error.to_string(), |()| "ok".into())),
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

/// Words of the job's region: own number, two inboxes by parity, two counters, and what each rank has done.
const INBOX: usize = 8;
const ONCE: usize = 16;
const TOGETHER: usize = 17;
const DONE: usize = 32;

fn place(rank: u32, index: usize) -> reclane::engine::Place {
    at(rank, 1, index as u64 * 8)
}

/// Until all have done so many rounds. Asks those that have not whether they are there at all.
fn wait_for_all(rank: &Rank, region: &reclane::engine::OwnRegion, ranks: u32, rounds: u64) -> Result<()> {
    for peer in 0..ranks {
        let mut looks = 0_u32;
        while word(region, DONE + peer as usize).load(Ordering::Acquire) < rounds {
            looks += 1;
            if looks.is_multiple_of(256) {
                crate::support::read(rank, place(peer, 0), 8)?;
            }
            std::thread::yield_now();
        }
    }
    Ok(())
}

fn rounds(rank: &Rank) -> Result<u64> {
    let (number, ranks) = (rank.number(), u32::try_from(rank.lanes().len()).expect("few"));
    let region = rank.open_region(1, 1 << 16, ALL)?;
    let begun = rank.restored_section("round").map(|bytes| u64::from_le_bytes(bytes.try_into().expect("eight bytes")));
    for peer in 0..ranks {
        rank.find_region(peer, 1, PATIENCE)?;
    }
    let right = (number + 1) % ranks;
    for round in begun.unwrap_or(0)..ROUNDS {
        let (own, parity) = (word(&region, 0), usize::from(round % 2 == 1));
        let last = word(&region, INBOX + parity).load(Ordering::Acquire);
        let mixed = (own.load(Ordering::Acquire) ^ last.rotate_left(7)).wrapping_mul(0x9e37_79b9_7f4a_7c15);
        let next = mixed.wrapping_add(u64::from(number));
        own.store(next, Ordering::Release);
        write(rank, place(right, INBOX + 1 - parity), &next.to_le_bytes())?;
        rank.fetch_add_once(place(right, ONCE), next >> 32)?;
        rank.fetch_add(place(0, TOGETHER), 1)?;
        for peer in 0..ranks {
            write(rank, place(peer, DONE + number as usize), &(round + 1).to_le_bytes())?;
        }
        wait_for_all(rank, &region, ranks, round + 1)?;
        say(format_args!("round {round}"));
        if round % CHECKPOINT_EVERY == CHECKPOINT_EVERY - 1 {
            let section = ("round".to_owned(), (round + 1).to_le_bytes().to_vec());
            // Without one it goes on as well.
            let _ = rank.checkpoint(false, vec![section], PATIENCE);
        }
    }
    let of = |index| word(&region, index).load(Ordering::Acquire);
    let sum = of(0) ^ of(ONCE).rotate_left(1) ^ of(TOGETHER);
    // Nobody leaves before all have what they need of the others.
    rank.barrier("end", PATIENCE).map(|()| sum)
}
