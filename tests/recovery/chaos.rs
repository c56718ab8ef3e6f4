//! Everything at once, at random, from a seed that is printed: shards are stopped, killed and started again, clients are
//! killed and started again, lanes are broken, while clients add to rows. What was acknowledged is there, once.
//!
//! `RECLANE_CHAOS_SEED` and `RECLANE_CHAOS_ROUNDS` choose the run. scripts/chaos.sh does the like with trainers, and with
//! shard 0 among those that are killed.

// The numbers here are small.
#![allow(clippy::cast_possible_truncation, clippy::cast_sign_loss)]

use crate::child::say;
use crate::rows::Table;
use crate::support::{Changes, Deployment, PATIENCE, Process, open_client, until};
use reclane::engine::Client;
use reclane::time::{now, pause};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

const SHARDS: u32 = 3;
const ADDERS: u64 = 3;
/// Keys of one adder, spread over all shards.
const KEYS_EACH: u64 = 40;

/// Random numbers that a seed gives again.
struct Dice(u64);

impl Dice {
    fn roll(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    fn below(&mut self, bound: u64) -> u64 {
        self.roll() % bound
    }
}

fn number(name: &str, default: u64) -> u64 {
    std::env::var(name).ok().and_then(|text| text.parse().ok()).unwrap_or(default)
}

/// Makes the table known again and sets its own rows to 0, however often it takes.
fn begin(client: &Client, keys: &[u64]) -> Table {
    let start = now();
    loop {
        let spec = crate::rows::spec("chaos", 16);
        let outcome = client.init_table(&spec).and_then(|tag| {
            let table = Table { tag, dim: 16 };
            table.put(client, keys, 0.0).map(|()| table)
        });
        match outcome {
            Ok(table) => return table,
            Err(error) => assert!(Duration::from_nanos(now().since_ns(start)) < PATIENCE, "{error}"),
        }
    }
}

/// A client that adds to keys of its own, and breaks a lane of its own now and then.
pub fn adder(changes: &Changes, commands: impl Iterator<Item = String>) {
    let client = open_client(changes);
    say("open");
    let mut keys: Vec<u64> = Vec::new();
    let mut table = None;
    let (stop, added, failed) = (AtomicBool::new(false), AtomicU64::new(0), AtomicU64::new(0));
    std::thread::scope(|scope| {
        let mut caller = None;
        for command in commands {
            let (word, rest) = command.split_once(' ').unwrap_or((&command, ""));
            match word {
                "begin" => {
                    let first: u64 = rest.parse().expect("a number");
                    keys = (first..first + KEYS_EACH).collect();
                    table = Some(begin(&client, &keys));
                    added.store(0, Ordering::Relaxed);
                    failed.store(0, Ordering::Relaxed);
                    say("ready");
                }
                "go" => {
                    let mut dice = Dice(rest.parse().expect("a seed"));
                    stop.store(false, Ordering::Relaxed);
                    let (client, stop, added, failed) = (&client, &stop, &added, &failed);
                    let (keys, table) = (keys.clone(), table.expect("begun"));
                    caller = Some(scope.spawn(move || {
                        while !stop.load(Ordering::Relaxed) {
                            let outcome = table.update(client, &keys, 1.0);
                            let count = if outcome.is_ok() { added } else { failed };
                            if let Err(error) = outcome {
                                eprintln!("adder {}: {error}", std::process::id());
                            }
                            count.fetch_add(1, Ordering::Relaxed);
                            if dice.below(40) == 0 {
                                let (shard, lane) = (dice.below(u64::from(SHARDS)), dice.below(3));
                                client.break_lane(shard as u32, lane as u32).expect("a lane");
                            }
                        }
                    }));
                    say("going");
                }
                "added" => say(added.load(Ordering::Relaxed)),
                "halt" => {
                    stop.store(true, Ordering::Relaxed);
                    let caller: Option<std::thread::ScopedJoinHandle<'_, ()>> = caller.take();
                    if let Some(caller) = caller {
                        caller.join().expect("no panic");
                    }
                    say(format_args!("{} {}", added.load(Ordering::Relaxed), failed.load(Ordering::Relaxed)));
                }
                "sum" => {
                    let table = table.expect("begun");
                    let seen = table.versions(&keys, &table.get(&client, &keys).expect("a GET"));
                    let (least, most) = seen.iter().fold((f32::MAX, f32::MIN), |(l, m), v| (l.min(*v), m.max(*v)));
                    say(format_args!("{least} {most}"));
                }
                other => panic!("no such command: {other}"),
            }
        }
        stop.store(true, Ordering::Relaxed);
    });
}

fn pair(text: &str) -> (f64, f64) {
    let (one, other) = text.split_once(' ').expect("two numbers");
    (one.parse().expect("a number"), other.parse().expect("a number"))
}

struct Chaos {
    deployment: Deployment,
    adders: Vec<Process>,
    dice: Dice,
    faults: [u64; 4],
}

impl Chaos {
    fn adder(&self) -> Process {
        let mut adder = Process::start("adder", &self.deployment.changes);
        assert_eq!(adder.hear(), "open");
        adder
    }

    fn begin_and_go(&mut self) {
        for index in 0..ADDERS {
            let adder = &mut self.adders[index as usize];
            assert_eq!(adder.ask(&format!("begin {}", index * KEYS_EACH)), "ready");
        }
        for adder in &mut self.adders {
            assert_eq!(adder.ask(&format!("go {}", self.dice.roll())), "going");
        }
    }

    /// Every adder has added something since.
    fn progress(&mut self) {
        for adder in &mut self.adders {
            let before = adder.number("added");
            until("an adder goes on", || adder.number("added"), |added| *added > before);
        }
    }

    /// Shards stand still, clients die; no acknowledged UPDATE is lost, none is applied twice, none fails.
    fn gentle_round(&mut self) {
        self.begin_and_go();
        for _ in 0..4 {
            match self.dice.below(3) {
                0 => {
                    let shard = self.dice.below(u64::from(SHARDS)) as usize;
                    self.deployment.servers[shard].freeze();
                    pause(Duration::from_millis(self.dice.below(700)));
                    self.deployment.servers[shard].thaw();
                    self.faults[0] += 1;
                }
                1 => {
                    let index = self.dice.below(ADDERS) as usize;
                    self.adders[index].kill();
                    self.adders[index] = self.adder();
                    let begin = format!("begin {}", index as u64 * KEYS_EACH);
                    assert_eq!(self.adders[index].ask(&begin), "ready");
                    assert_eq!(self.adders[index].ask(&format!("go {}", self.dice.roll())), "going");
                    self.faults[1] += 1;
                }
                _ => pause(Duration::from_millis(self.dice.below(100))),
            }
            self.progress();
        }
        for adder in &mut self.adders {
            let (added, failed) = pair(&adder.ask("halt"));
            let (least, most) = pair(&adder.ask("sum"));
            assert_eq!((least, most, failed), (added, added, 0.0), "{added} UPDATEs acknowledged");
            self.faults[3] += added as u64;
        }
    }

    /// A shard is killed, and its rows with it: requests may fail, and everything works again afterwards.
    fn hard_round(&mut self) {
        self.begin_and_go();
        self.progress();
        let shard = self.dice.below(u64::from(SHARDS)) as u32;
        self.deployment.servers[shard as usize].kill();
        pause(Duration::from_millis(self.dice.below(300)));
        let server = self.deployment.server(shard);
        self.deployment.servers[shard as usize] = server;
        self.faults[2] += 1;
        for adder in &mut self.adders {
            pair(&adder.ask("halt"));
        }
    }
}

#[test]
fn what_was_acknowledged_is_there_once() {
    let seed = number("RECLANE_CHAOS_SEED", 20_261_129);
    let rounds = number("RECLANE_CHAOS_ROUNDS", 3);
    println!("RECLANE_CHAOS_SEED={seed} RECLANE_CHAOS_ROUNDS={rounds} gives this run again");
    let deployment = Deployment::start(SHARDS, &[("recovery-preset", "resilient"), ("server-rdma-threads", "2")]);
    let mut chaos = Chaos { deployment, adders: Vec::new(), dice: Dice(seed), faults: [0; 4] };
    chaos.adders = (0..ADDERS).map(|_| chaos.adder()).collect();
    for round in 0..rounds {
        chaos.gentle_round();
        chaos.hard_round();
        println!("round {round}: {:?}", chaos.faults);
    }
    chaos.gentle_round();
    let [stops, client_kills, shard_kills, added] = chaos.faults;
    println!("{stops} stops, {client_kills} clients and {shard_kills} shards killed, {added} UPDATEs checked");
}
