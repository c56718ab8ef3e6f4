//! The attack on a connected lane: more than a million broken requests, while another client is served.

use super::attacker::Attacker;
use super::bed::{Bed, Dice, Victim, alone, holdings, holdings_settle, number, spec, until};
use super::cases::{Case, NARROW_DIM, Tables, Verdict, WIDE_DIM, good, mutated};
use reclane::fabric::Region;
use reclane::ids::TableTag;
use reclane::rpc::Scheme;
use reclane::wire::{HEADER_BYTES, Op, ResponseHeader, RpcStatus, Word, flags};
use std::sync::atomic::{AtomicBool, Ordering};

/// Mutations of all runs together.
const MUTATIONS: u64 = 1_050_000;
const RUNS: u64 = 6;

fn seed() -> u64 {
    number("RECLANE_HOSTILE_SEED", 20_261_129)
}

fn tables(attacker: &mut Attacker, victim: TableTag) -> Tables {
    let mut make = |name: &str, dim: usize| {
        let payload = spec(name, u32::try_from(dim).expect("small")).encode();
        let answer = attacker.ask(0, super::attacker::blank(Op::InitTable as u8, 0, 0), &payload);
        assert_eq!(answer.status, 0);
        TableTag(u16::try_from(answer.aux).expect("a tag"))
    };
    Tables { narrow: make("nrw", NARROW_DIM), wide: make("wide", WIDE_DIM), victim }
}

struct Attack<'a> {
    attacker: Attacker,
    dice: Dice,
    tables: Tables,
    victim: &'a Victim,
    mutations: u64,
    refused: u64,
}

impl Attack<'_> {
    fn judge(&mut self, case: &Case, answer: &ResponseHeader) {
        let context = || format!("{case:?} was answered {answer:?}; seed {}", seed());
        assert!((-6..=0).contains(&answer.status), "{}", context());
        match case.verdict {
            Verdict::Good => assert_eq!(answer.status, 0, "{}", context()),
            Verdict::Bad => assert_ne!(answer.status, 0, "{}", context()),
            Verdict::Refused(status) => assert_eq!(answer.status, status as i32, "{}", context()),
            Verdict::Open => {}
        }
        assert_eq!(answer.sequence, case.header.sequence, "{}", context());
        if case.header.op == Op::Get as u8 && answer.status == 0 {
            assert_eq!(answer.response_bytes, case.header.response_bytes, "{}", context());
        }
        self.refused += u64::from(answer.status != 0);
    }

    /// Broken requests in all slots at once.
    fn volley(&mut self) {
        let mut cases = Vec::new();
        for index in 0..self.attacker.places.len() {
            let mut case = mutated(&self.attacker, &mut self.dice, &self.tables);
            self.attacker.write_payload(index, &case.payload);
            self.attacker.seal(index, &mut case.header, case.summed);
            self.attacker.commit(index, &case.header);
            cases.push(case);
        }
        for (index, case) in cases.iter().enumerate() {
            let answer = self.attacker.answer(index);
            self.judge(case, &answer);
        }
        self.mutations += cases.len() as u64;
    }

    /// Words that commit nothing: other generations, other uses, torn ones. Then the right one.
    fn words(&mut self) {
        let index = self.dice.below(self.attacker.places.len());
        let mut case = good(&self.attacker, &mut self.dice, &self.tables);
        self.attacker.write_payload(index, &case.payload);
        let now = self.attacker.places[index].word;
        let next = now.next();
        let wrong = [
            Word::ZERO,
            now,
            next.next(),
            Word::new(next.generation() + 1, next.slot_sequence()),
            Word::new(0, next.slot_sequence()),
            Word::new(next.slot_sequence(), next.generation() + 7),
            Word(next.0 ^ (1 << (32 + self.dice.below(32)))),
            Word(u64::MAX),
        ];
        for word in wrong {
            self.attacker.seal(index, &mut case.header, false);
            case.header.commit = word;
            self.attacker.store(index, &case.header);
            self.mutations += 1;
        }
        self.attacker.seal(index, &mut case.header, case.summed);
        self.attacker.commit(index, &case.header);
        let answer = self.attacker.answer(index);
        self.judge(&case, &answer);
        // The same word again is an old one.
        self.attacker.store(index, &case.header);
        self.mutations += 1;
    }

    /// The next request over the one under way. Each is executed once, or never when it was covered in time.
    fn overtake(&mut self) {
        let index = self.dice.below(self.attacker.places.len());
        let (mut first, mut second) = (self.small_get(index), self.small_get(index));
        let before = self.attacker.places[index].word;
        let (one, two) = (before.next(), before.next().next());
        self.attacker.write_payload(index, &first.payload);
        self.attacker.seal(index, &mut first.header, first.summed);
        self.attacker.places[index].word = one;
        self.attacker.seal(index, &mut second.header, second.summed);
        self.attacker.store(index, &first.header);
        self.attacker.store(index, &second.header);
        for (word, header) in [(one, &first.header), (two, &second.header)] {
            let mut looks = 0_u32;
            until("answer to a request that was covered", || {
                let seen = self.attacker.response_word(index);
                if seen == word.0 || seen == two.0 {
                    return Some(());
                }
                looks += 1;
                if looks.is_multiple_of(64) {
                    self.attacker.store(index, header);
                }
                None
            });
        }
        // Takes both immediates, where answers have such, and finds exactly two.
        for word in [two, two] {
            self.attacker.places[index].word = word;
            if self.attacker.scheme == Scheme::Imm || word == two {
                assert_eq!(self.attacker.answer(index).status, 0);
            }
        }
        self.mutations += 2;
    }

    fn small_get(&mut self, index: usize) -> Case {
        let mut header = super::attacker::blank(Op::Get as u8, self.tables.narrow.0, 1);
        header.response_bytes = 64;
        header.sequence = index as u64;
        let summed = self.attacker.scheme == Scheme::Crc;
        Case { name: "overtaking", header, payload: Vec::new(), verdict: Verdict::Good, summed }
    }

    /// Bytes that come late: under `crc` a request counts once sum and bytes agree, whatever lay there before.
    fn late(&mut self) {
        let index = self.dice.below(self.attacker.places.len());
        let mut case = good(&self.attacker, &mut self.dice, &self.tables);
        if self.attacker.scheme != Scheme::Crc || case.payload.is_empty() {
            return;
        }
        self.attacker.write_payload(index, &case.payload);
        self.attacker.seal(index, &mut case.header, true);
        let mut torn = case.payload.clone();
        let at = self.dice.below(torn.len());
        torn[at] ^= 1 << self.dice.below(8);
        self.attacker.write_payload(index, &torn);
        self.attacker.commit(index, &case.header);
        assert_ne!(self.attacker.response_word(index), self.attacker.places[index].word.0, "torn bytes were taken");
        self.attacker.write_payload(index, &case.payload);
        let answer = self.attacker.answer(index);
        self.judge(&case, &answer);
        self.mutations += 1;
    }

    /// Random bytes over all the memory there is, but for the words that commit: they would commit garbage by chance
    /// and leave this test without knowledge of what the server expects.
    fn scribble(&mut self) {
        let headers = self.attacker.places.len() * HEADER_BYTES;
        let mut bytes = [0; 64];
        for _ in 0..16 {
            self.dice.fill(&mut bytes);
            let to_header = self.dice.one_in(2);
            let (at, count) = if to_header {
                (self.dice.below(headers / HEADER_BYTES) * HEADER_BYTES, HEADER_BYTES - 8)
            } else {
                (headers + self.dice.below(self.attacker.window_bytes - headers - 64), 64)
            };
            // SAFETY: within the window.
            unsafe { core::ptr::copy_nonoverlapping(bytes.as_ptr(), self.attacker.window.add(at), count) };
            let region = if self.dice.one_in(2) { &self.attacker.half.responses } else { &self.attacker.half.extra };
            let at = self.dice.below(region.bytes() - 64);
            // SAFETY: within the region.
            unsafe { core::ptr::copy_nonoverlapping(bytes.as_ptr(), region.base().as_ptr().add(at), 64) };
            self.mutations += 2;
        }
    }

    /// Good and broken requests whose payloads another thread changes while they are executed.
    fn shake(&mut self, volleys: usize) {
        let (stop, started) = (AtomicBool::new(false), AtomicBool::new(false));
        let places: Vec<_> = self.attacker.places.clone();
        let extra = (self.attacker.half.extra.clone(), self.attacker.payload_max());
        let mut dice = Dice::new(self.dice.roll());
        std::thread::scope(|scope| {
            let (stop, started, places, extra) = (&stop, &started, SharedPlaces(places), extra);
            let flipper = scope.spawn(move || {
                let (places, (extra, payload_max)) = (places, extra);
                let mut flips = 0_u64;
                while !stop.load(Ordering::Relaxed) {
                    let place = places.get(dice.below(places.0.len()));
                    let at = if dice.one_in(2) { dice.below(64) } else { dice.below(payload_max) };
                    // SAFETY: within the payload's place, and within the region.
                    unsafe {
                        place.payload.add(at).write_volatile(dice.small() as u8);
                        extra.base().as_ptr().add(dice.below(extra.bytes())).write_volatile(dice.small() as u8);
                    }
                    flips += 2;
                    started.store(true, Ordering::Relaxed);
                    if flips.is_multiple_of(256) {
                        std::thread::yield_now();
                    }
                }
                flips
            });
            until("flips", || started.load(Ordering::Relaxed).then_some(()));
            let ends = Stops(stop);
            for _ in 0..volleys {
                self.shaken_volley();
            }
            drop(ends);
            assert!(flipper.join().expect("flips") > 0);
        });
    }

    fn shaken_volley(&mut self) {
        let mut cases = Vec::new();
        for index in 0..self.attacker.places.len() {
            let mut case = if self.dice.one_in(3) {
                mutated(&self.attacker, &mut self.dice, &self.tables)
            } else {
                good(&self.attacker, &mut self.dice, &self.tables)
            };
            if case.verdict == Verdict::Good {
                let by_payload = case.header.flags & (flags::CHECKSUM | flags::INDEXED) != 0
                    || case.header.op == Op::InitTable as u8;
                case.verdict = if by_payload { Verdict::Open } else { Verdict::Good };
            }
            // The flips break the checksum, which is judged before what the operation needs.
            let late = [RpcStatus::ValueSizeMismatch, RpcStatus::UnknownTable].map(Verdict::Refused);
            if late.contains(&case.verdict) && case.header.flags & flags::CHECKSUM != 0 {
                case.verdict = Verdict::Bad;
            }
            self.attacker.write_payload(index, &case.payload);
            self.attacker.seal(index, &mut case.header, case.summed);
            self.attacker.commit(index, &case.header);
            cases.push(case);
        }
        for (index, case) in cases.iter().enumerate() {
            let answer = self.attacker.answer(index);
            self.judge(case, &answer);
        }
        self.mutations += cases.len() as u64;
    }

    fn run(&mut self, mutations: u64) {
        while self.mutations < mutations {
            for _ in 0..64 {
                self.volley();
            }
            for _ in 0..8 {
                self.words();
                self.overtake();
                self.late();
            }
            self.scribble();
            if self.attacker.scheme != Scheme::Crc && self.dice.one_in(4) {
                self.shake(6);
            }
            if self.dice.one_in(16) {
                self.victim.is_served();
            }
        }
    }
}

/// Ends the flipping, also when a check fails: the scope waits for it.
struct Stops<'a>(&'a AtomicBool);

impl Drop for Stops<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

struct SharedPlaces(Vec<super::attacker::Place>);

impl SharedPlaces {
    fn get(&self, index: usize) -> &super::attacker::Place {
        &self.0[index]
    }
}

// SAFETY: the places are touched by raw copies only.
unsafe impl Send for SharedPlaces {}

fn attack(salt: u64, scheme: Scheme, changes: &[(&str, &str)]) {
    let _alone = alone();
    let share = number("RECLANE_HOSTILE_MUTATIONS", MUTATIONS) / RUNS;
    println!("RECLANE_HOSTILE_SEED={} gives this run again", seed());
    let bed = Bed::start(changes);
    let victim = Victim::start(bed.client());
    victim.is_served();
    let lanes = bed.server.stats().lanes;
    let before = holdings();
    let mut attacker = Attacker::connect(&bed, scheme);
    assert_eq!(attacker.scheme, scheme);
    let tables = tables(&mut attacker, victim.table);
    let dice = Dice::new(seed() ^ (salt << 32));
    let mut attack = Attack { attacker, dice, tables, victim: &victim, mutations: 0, refused: 0 };
    attack.run(share);
    victim.is_served();
    let (mutations, refused) = (attack.mutations, attack.refused);
    drop(attack);
    bed.settle(lanes);
    holdings_settle(before);
    let stats = bed.server.stats();
    let rounds = victim.finish();
    println!("{mutations} mutations, {refused} refused, {rounds} rounds of the other client; {:?}", stats.handled);
    assert!(stats.handled.refused >= refused / 2 && rounds > 2);
}

#[test]
fn single() {
    attack(1, Scheme::Single, &[("commit-scheme", "single")]);
}

#[test]
fn crc() {
    attack(2, Scheme::Crc, &[("commit-scheme", "crc")]);
}

#[test]
fn imm() {
    attack(3, Scheme::Imm, &[("commit-scheme", "imm")]);
}

#[test]
fn with_checksums() {
    attack(4, Scheme::Single, &[("commit-scheme", "single"), ("integrity", "crc32c")]);
}

#[test]
fn with_workers_and_scanners() {
    let changes = [
        ("commit-scheme", "single"),
        ("server-rdma-threads", "2"),
        ("rdma-rc-server-get-workers", "2"),
        ("rdma-rc-server-coroutines-per-thread", "2"),
    ];
    attack(5, Scheme::Single, &changes);
}

#[test]
fn crc_lanes_beside_immediates() {
    attack(6, Scheme::Crc, &[("commit-scheme", "imm"), ("integrity", "crc32c")]);
}
