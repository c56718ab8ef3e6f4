//! One coordinator after another, participants that die, letters that are late, lost or told twice.

use super::message::{Command, Message, Note, Order, Report, Request, State, WrittenFile};
use super::{Act, Coordinator, Deed, Done, Participant};
use crate::time::Tick;
use std::collections::{BTreeMap, BTreeSet, VecDeque};

const SHARDS: u32 = 3;

fn order(epoch: u64) -> Order {
    Order { epoch, checkpoint: u128::from(epoch), parent: 0, hold_ms: 50, write_ms: 500 }
}

fn file(epoch: u64, shard: u32) -> WrittenFile {
    WrittenFile { bytes: epoch, state_bytes: u64::from(shard), own_bytes: 0, digest: [7; 32], needs: vec![epoch - 1] }
}

struct Random(u64);

impl Random {
    fn below(&mut self, most: u64) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        (self.0 >> 11) % most
    }
}

/// A world: time in milliseconds, letters with their time of arrival.
struct World {
    random: Random,
    now: u64,
    coordinators: Vec<Coordinator>,
    /// None: dead.
    shards: Vec<Option<Participant>>,
    post: VecDeque<(u64, Letter)>,
    /// By epoch: who was captured, and whether anybody's gate was open then.
    captured: BTreeMap<u64, BTreeSet<u32>>,
    /// Gates that are shut, with the epoch.
    shut: BTreeMap<u32, u64>,
    /// Epoch for which somebody's gate was opened again by RESUME.
    resumed: BTreeSet<u64>,
    committed: Vec<u64>,
    over: Vec<(u64, bool)>,
    next_epoch: u64,
}

#[derive(Clone, Debug)]
enum Letter {
    ToShard(u32, u64, Command),
    ToCoordinator(usize, u32, u64, Report),
    Happens(u32, u64, Happening),
    Manifest(usize, bool),
}

#[derive(Clone, Copy, Debug)]
enum Happening {
    Shut,
    Captured,
    Written,
}

impl World {
    fn new(seed: u64) -> World {
        World {
            random: Random(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1),
            now: 0,
            coordinators: vec![Coordinator::new(SHARDS), Coordinator::new(SHARDS)],
            shards: (0..SHARDS).map(|_| Some(Participant::new(0))).collect(),
            post: VecDeque::new(),
            captured: BTreeMap::new(),
            shut: BTreeMap::new(),
            resumed: BTreeSet::new(),
            committed: Vec::new(),
            over: Vec::new(),
            next_epoch: 1,
        }
    }

    fn tick(&self) -> Tick {
        Tick(self.now * 1_000_000)
    }

    fn mail(&mut self, letter: Letter) {
        let copies = match self.random.below(20) {
            0 => 0,
            1 => 2,
            _ => 1,
        };
        let local = matches!(letter, Letter::Happens(..) | Letter::Manifest(..));
        for _ in 0..if local { 1 } else { copies } {
            let at = self.now + self.random.below(if self.random.0.is_multiple_of(9) { 80 } else { 6 });
            self.post.push_back((at, letter.clone()));
        }
    }

    fn begin(&mut self, who: usize) {
        let order = order(self.next_epoch);
        self.next_epoch += 1;
        let now = self.tick();
        let acts = self.coordinators[who].begin(now, order);
        self.act(who, acts);
    }

    fn act(&mut self, who: usize, acts: Vec<Act>) {
        for act in acts {
            match act {
                Act::Say(shard, command) => {
                    let epoch = match &command {
                        Command::Prepare(order) => order.epoch,
                        _ => self.epoch_of(who),
                    };
                    self.mail(Letter::ToShard(shard, epoch, command));
                }
                Act::Commit(done) => {
                    self.check_commit(&done);
                    let good = self.random.below(10) != 0;
                    self.mail(Letter::Manifest(who, good));
                }
                Act::Over(epoch, result) => {
                    if result.is_ok() {
                        self.committed.push(epoch);
                    }
                    self.over.push((epoch, result.is_ok()));
                }
            }
        }
    }

    /// The last epoch that the coordinator spoke of; aborts and commits are said after it was let go.
    fn epoch_of(&self, who: usize) -> u64 {
        self.coordinators[who].under_way().map_or(self.next_epoch - 1, |(epoch, _)| epoch)
    }

    fn check_commit(&mut self, done: &Done) {
        let everybody: BTreeSet<u32> = (0..SHARDS).collect();
        assert_eq!(self.captured.get(&done.order.epoch), Some(&everybody), "all were copied");
        assert_eq!(done.files.keys().copied().collect::<BTreeSet<_>>(), everybody, "all files are there");
        assert!(done.files.iter().all(|(shard, f)| *f == file(done.order.epoch, *shard)));
    }

    fn perform(&mut self, shard: u32, deeds: Vec<Deed>) {
        for deed in deeds {
            match deed {
                Deed::ShutGate(order, deadline) => {
                    assert!(deadline > self.tick());
                    self.shut.insert(shard, order.epoch);
                    self.mail(Letter::Happens(shard, order.epoch, Happening::Shut));
                }
                Deed::Capture => {
                    let epoch = self.shut[&shard];
                    // The cut: while anybody copies, nobody who belongs to it works.
                    assert!(!self.resumed.contains(&epoch), "epoch {epoch}: somebody went on before all had copied");
                    let all_shut = (0..SHARDS).all(|one| {
                        self.shards[one as usize].is_none() || self.shut.get(&one).is_some_and(|other| *other == epoch)
                    });
                    let doomed = self.shards.iter().any(Option::is_none)
                        || (0..SHARDS).any(|one| self.shut.get(&one).is_none_or(|other| *other != epoch));
                    assert!(all_shut || doomed);
                    if all_shut {
                        self.captured.entry(epoch).or_default().insert(shard);
                    }
                    self.mail(Letter::Happens(shard, epoch, Happening::Captured));
                }
                Deed::OpenGate => {
                    self.shut.remove(&shard);
                }
                Deed::Write(order) => {
                    self.resumed.insert(order.epoch);
                    self.mail(Letter::Happens(shard, order.epoch, Happening::Written));
                }
                Deed::Discard | Deed::Keep => {}
                Deed::Say(epoch, report) => {
                    for who in 0..self.coordinators.len() {
                        self.mail(Letter::ToCoordinator(who, shard, epoch, report.clone()));
                    }
                }
            }
        }
    }

    fn deliver(&mut self, letter: Letter) {
        let now = self.tick();
        match letter {
            Letter::ToShard(shard, epoch, command) => {
                if let Some(one) = &mut self.shards[shard as usize] {
                    let deeds = one.heard(now, epoch, &command);
                    self.perform(shard, deeds);
                }
            }
            Letter::ToCoordinator(who, shard, epoch, report) => {
                let acts = self.coordinators[who].heard(now, shard, epoch, report);
                self.act(who, acts);
            }
            Letter::Happens(shard, epoch, happening) => {
                let stale =
                    matches!(happening, Happening::Shut | Happening::Captured) && self.shut.get(&shard) != Some(&epoch);
                if let Some(one) = self.shards[shard as usize].as_mut().filter(|_| !stale) {
                    let deeds = match happening {
                        Happening::Shut => one.gate_shut(Ok(())),
                        Happening::Captured => one.captured(Ok(5)),
                        Happening::Written => one.written(Ok(file(epoch, shard))),
                    };
                    self.perform(shard, deeds);
                }
            }
            Letter::Manifest(who, good) => {
                let acts = self.coordinators[who].committed(if good { Ok(()) } else { Err("disk".to_owned()) });
                self.act(who, acts);
            }
        }
    }

    fn step(&mut self) {
        self.now += 1;
        let due: Vec<Letter> = {
            let now = self.now;
            let (due, later): (VecDeque<_>, VecDeque<_>) = self.post.drain(..).partition(|(at, _)| *at <= now);
            self.post = later;
            due.into_iter().map(|(_, letter)| letter).collect()
        };
        due.into_iter().for_each(|letter| self.deliver(letter));
        let now = self.tick();
        for who in 0..self.coordinators.len() {
            let acts = self.coordinators[who].tick(now);
            self.act(who, acts);
        }
        for shard in 0..SHARDS {
            if let Some(one) = &mut self.shards[shard as usize] {
                let deeds = one.tick(now);
                self.perform(shard, deeds);
                let held = self.shards[shard as usize].as_ref().is_some_and(Participant::is_held);
                assert_eq!(held, self.shut.contains_key(&shard), "the gate is as the machine thinks");
            }
        }
    }
}

#[test]
fn without_trouble_a_checkpoint_is_committed_and_all_go_on() {
    let mut coordinator = Coordinator::new(2);
    let mut shards = [Participant::new(0), Participant::new(0)];
    let mut acts = VecDeque::from(coordinator.begin(Tick(0), order(1)));
    let (mut over, mut kept) = (None, 0);
    while let Some(act) = acts.pop_front() {
        match act {
            Act::Say(to, command) => {
                let mut deeds = VecDeque::from(shards[to as usize].heard(Tick(1), 1, &command));
                while let Some(deed) = deeds.pop_front() {
                    match deed {
                        Deed::ShutGate(..) => deeds.extend(shards[to as usize].gate_shut(Ok(()))),
                        Deed::Capture => deeds.extend(shards[to as usize].captured(Ok(9))),
                        Deed::Write(_) => deeds.extend(shards[to as usize].written(Ok(file(1, to)))),
                        Deed::Say(epoch, report) => acts.extend(coordinator.heard(Tick(2), to, epoch, report)),
                        Deed::Keep => kept += 1,
                        Deed::OpenGate => {}
                        Deed::Discard => panic!("nothing is thrown away"),
                    }
                }
            }
            Act::Commit(_) => acts.extend(coordinator.committed(Ok(()))),
            Act::Over(epoch, result) => over = Some((epoch, result)),
        }
    }
    let (epoch, done) = over.expect("it is over");
    assert_eq!((epoch, done.expect("committed").capture_ns, kept), (1, 9, 2));
    assert!(coordinator.under_way().is_none() && shards.iter().all(|shard| !shard.is_held()));
}

#[test]
fn whatever_is_lost_a_commit_is_a_cut_and_every_gate_opens() {
    let mut commits = 0;
    for seed in 0..3000 {
        let mut world = World::new(seed);
        let mut dead_at = None;
        for _ in 0..600 {
            let chance = world.random.below(1000);
            // The second coordinator is one that came after the first was thought dead: both may be at work.
            let who = usize::from(world.random.below(12) == 0);
            if chance < 12 && world.coordinators[who].under_way().is_none() {
                world.begin(who);
            }
            if chance == 999 && dead_at.is_none() {
                let shard = u32::try_from(world.random.below(u64::from(SHARDS))).unwrap();
                world.shards[shard as usize] = None;
                world.shut.remove(&shard);
                dead_at = Some(world.now);
                for who in 0..world.coordinators.len() {
                    let acts = world.coordinators[who].left(shard);
                    world.act(who, acts);
                }
            }
            world.step();
        }
        // Coordinators fall silent: gates open by themselves.
        world.coordinators.clear();
        world.post.retain(|(_, letter)| !matches!(letter, Letter::ToCoordinator(..) | Letter::Manifest(..)));
        for _ in 0..1200 {
            world.now += 1;
            let now = world.tick();
            for shard in 0..SHARDS {
                if let Some(one) = &mut world.shards[shard as usize] {
                    if one.tick(now).contains(&Deed::OpenGate) {
                        world.shut.remove(&shard);
                    }
                    assert!(one.deadline().is_none_or(|deadline| deadline > now));
                }
            }
        }
        assert!(world.shut.is_empty(), "seed {seed}: {:?}", world.shut);
        commits += world.committed.len();
        let mut unique = world.over.clone();
        unique.sort_unstable();
        unique.dedup_by_key(|(epoch, _)| *epoch);
        assert_eq!(unique.len(), world.over.len(), "seed {seed}: an epoch ends once");
    }
    assert!(commits > 500, "{commits}");
}

#[test]
fn a_lower_epoch_is_fenced() {
    let mut shard = Participant::new(6);
    let deeds = shard.heard(Tick(0), 5, &Command::Prepare(order(5)));
    assert!(matches!(&deeds[..], [Deed::Say(5, Report::Failed(why))] if why.contains("fenced")), "{deeds:?}");
    assert!(!shard.is_held());
    assert!(matches!(shard.heard(Tick(0), 7, &Command::Prepare(order(7)))[..], [Deed::ShutGate(..)]));
    // Another coordinator with a higher one: the first attempt ends here.
    shard.gate_shut(Ok(()));
    let deeds = shard.heard(Tick(0), 8, &Command::Prepare(order(8)));
    assert!(matches!(deeds[..], [Deed::OpenGate, Deed::Discard, Deed::ShutGate(..)]), "{deeds:?}");
    assert!(shard.heard(Tick(0), 7, &Command::Cut).is_empty());
}

#[test]
fn a_participant_whose_coordinator_is_gone_does_not_hold_for_it() {
    let mut shard = Participant::new(0);
    assert!(shard.coordinator_lost().is_empty());
    shard.heard(Tick(0), 5, &Command::Prepare(order(5)));
    shard.gate_shut(Ok(()));
    let deeds = shard.coordinator_lost();
    assert!(matches!(deeds[..], [Deed::OpenGate, Deed::Discard, Deed::Say(5, Report::Failed(_))]), "{deeds:?}");
    shard.heard(Tick(0), 6, &Command::Prepare(order(6)));
    shard.gate_shut(Ok(()));
    shard.heard(Tick(0), 6, &Command::Cut);
    shard.captured(Ok(1));
    shard.heard(Tick(0), 6, &Command::Resume);
    // Everybody has copied: it may be committed yet.
    assert!(shard.coordinator_lost().is_empty());
}

#[test]
fn letters_come_back_as_they_were_and_damaged_ones_do_not() {
    let note = Note {
        number: 1,
        epoch: 2,
        state: State::Aborted,
        hold_ns: 3,
        total_ns: 4,
        state_bytes: 5,
        written_bytes: 6,
        why: "x".repeat(10),
    };
    let letters = [
        Message::Command(9, Command::Prepare(order(9))),
        Message::Command(9, Command::Cut),
        Message::Command(9, Command::Resume),
        Message::Command(9, Command::Commit),
        Message::Command(9, Command::Abort("why not".to_owned())),
        Message::Report(9, Report::Held),
        Message::Report(9, Report::Captured(77)),
        Message::Report(9, Report::Durable(file(9, 1))),
        Message::Report(9, Report::Failed(String::new())),
        Message::Ask(Request { number: 4, full: true, section: Some(("trainer".to_owned(), vec![1, 2, 3])) }),
        Message::Ask(Request { number: 4, full: false, section: None }),
        Message::Together(Request { number: 5, full: true, section: None }),
        Message::Stop(4),
        Message::Note(note),
    ];
    for letter in letters {
        let bytes = letter.encode();
        assert_eq!(Message::decode(&bytes), Some(letter));
        for at in 0..bytes.len() {
            let mut damaged = bytes.clone();
            damaged[at] ^= 1;
            assert_eq!(Message::decode(&damaged), None, "{at}");
            assert_eq!(Message::decode(&bytes[..at]), None);
        }
    }
}
