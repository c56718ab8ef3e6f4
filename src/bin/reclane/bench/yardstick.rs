//! The cost of a cache line that goes from one process to another: nothing that crosses processes can be faster.

use super::clock::{Clock, ticks};
use super::histogram::Histogram;
use super::host::{Companion, Memory, end_with_parent, on_cpu, pin, two_cpus};
use reclane::error::{Error, Result, Status};
use reclane::sync::{AtomicU64, Ordering};
use reclane::time::{Tick, now};

/// How many cache lines a ping-pong uses, and how its ends wait.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Lines {
    /// One word in one line goes to and fro; both ends load it again and again, without a pause.
    One,
    /// The same, with the processor's pause between two loads: the line is left alone while the other end stores to it.
    /// On some hosts that makes no difference, on others a round trip takes half the time.
    OnePaused,
    /// A line for requests and a line for answers, as a commit word and a status word.
    Two,
}

/// Slots of the hand-off: messages in flight.
const SLOTS: u64 = 8;
const LINE_BYTES: usize = 64;
/// Places of the shared memory: each on its own pair of lines.
const PING_AT: usize = 0;
const PONG_AT: usize = 256;
const CREDIT_AT: usize = 512;
const SLOTS_AT: usize = 1024;
const SHARED_BYTES: usize = 4096;
/// A partner that says nothing for so long is dead.
const SILENCE_MAX_NS: u64 = 10_000_000_000;
/// Rounds after the companion was let loose that do not count.
const WARM_UP_ROUNDS: u64 = 2_000;
/// Length of a slice of the hand-off.
const SLICE_NS: u64 = 8_000_000;

fn word(memory: &Memory, at: usize) -> &AtomicU64 {
    assert!(at.is_multiple_of(8) && at + 8 <= memory.bytes());
    // SAFETY: aligned and inside the mapping, which outlives the borrow; both processes use atomics only.
    unsafe { AtomicU64::from_ptr(memory.start().add(at).cast()) }
}

/// How an end waits for the other.
#[derive(Clone, Copy, Debug)]
struct Waiting {
    /// Both ends have one core between them: it is given away.
    shares_core: bool,
    /// Between two loads.
    pauses: bool,
    /// The other end may die. The companion does not ask: it ends with its parent, and stands still between chunks.
    has_deadline: bool,
}

#[inline]
fn await_word(word: &AtomicU64, how: Waiting, done: impl Fn(u64) -> bool) -> Result<u64> {
    let mut spins = 0_u32;
    let mut deadline: Option<Tick> = None;
    loop {
        // Acquire: pairs with the Release of the partner's store, in the other process.
        let value = word.load(Ordering::Acquire);
        if done(value) {
            return Ok(value);
        }
        spins = spins.wrapping_add(1);
        if how.pauses {
            core::hint::spin_loop();
        }
        if how.shares_core && spins.is_multiple_of(64) {
            std::thread::yield_now();
        }
        if how.has_deadline && spins.is_multiple_of(1 << 16) {
            let time = now();
            if time > *deadline.get_or_insert(Tick(time.0 + SILENCE_MAX_NS)) {
                return Err(Error::new(Status::WaitTimeout, "the other process of a yardstick does not answer"));
            }
        }
    }
}

/// The two processes of a yardstick. The second one stands still except during a measurement, so that both ends of
/// other measurements can use the same two cores in between.
#[derive(Debug)]
struct Pair {
    memory: Memory,
    companion: Companion,
    here: Option<usize>,
}

impl Pair {
    fn start(role: &str) -> Result<Pair> {
        let (here, there) = two_cpus();
        let (memory, file) = Memory::shared(SHARED_BYTES)?;
        let companion = Companion::start(role, there, file)?;
        // Until its turn comes it takes no time from what else is measured on its core.
        companion.stop();
        Ok(Pair { memory, companion, here })
    }

    fn run<T: Send>(&self, work: impl FnOnce(&Memory, Waiting) -> Result<T> + Send) -> Result<T> {
        let how = Waiting { shares_core: self.here.is_none(), pauses: true, has_deadline: true };
        self.companion.resume();
        let result = on_cpu(self.here, || work(&self.memory, how));
        self.companion.stop();
        result
    }
}

/// A cache line that goes to and fro between two processes, each on its own core.
#[derive(Debug)]
pub struct PingPong {
    pair: Pair,
    lines: Lines,
    clock: Clock,
    sequence: u64,
}

impl PingPong {
    /// Starts the other process.
    ///
    /// # Errors
    /// `OsError` when memory or a process cannot be had.
    pub fn start(lines: Lines) -> Result<PingPong> {
        let role = match lines {
            Lines::One => "pong-one",
            Lines::OnePaused => "pong-one-paused",
            Lines::Two => "pong-two",
        };
        let pair = Pair::start(role)?;
        Ok(PingPong { pair, lines, clock: Clock::calibrate(), sequence: 1 })
    }

    /// Times so many round trips.
    ///
    /// # Errors
    /// `WaitTimeout` when the other process died.
    pub fn chunk(&mut self, rounds: u64) -> Result<Histogram> {
        let (lines, clock, first) = (self.lines, self.clock, self.sequence);
        // After an error the words may be anything, but then the other process is gone as well.
        self.sequence += 2 * (rounds + WARM_UP_ROUNDS);
        self.pair.run(|memory, how| {
            let how = Waiting { pauses: lines != Lines::One, ..how };
            let ping = word(memory, PING_AT);
            let pong = word(memory, if lines == Lines::Two { PONG_AT } else { PING_AT });
            let mut latencies = Histogram::new();
            for number in 0..rounds + WARM_UP_ROUNDS {
                let sent = first + 2 * number;
                let start = ticks();
                // Release: pairs with the Acquire of the companion's await_word.
                ping.store(sent, Ordering::Release);
                await_word(pong, how, |value| value == sent + 1)?;
                let elapsed = ticks().wrapping_sub(start);
                if number >= WARM_UP_ROUNDS {
                    latencies.record(clock.ns(elapsed));
                }
            }
            Ok(latencies)
        })
    }
}

/// Lines of 64 bytes, the last 8 of them a sequence, one way, with 8 in flight.
#[derive(Debug)]
pub struct HandOff {
    pair: Pair,
    clock: Clock,
    sequence: u64,
}

impl HandOff {
    /// Starts the other process, which sends.
    ///
    /// # Errors
    /// `OsError` when memory or a process cannot be had.
    pub fn start() -> Result<HandOff> {
        Ok(HandOff { pair: Pair::start("produce")?, clock: Clock::calibrate(), sequence: 0 })
    }

    /// Messages per second of so many slices of 8 ms. Their median is the figure.
    ///
    /// # Errors
    /// `WaitTimeout` when the other process died.
    pub fn slices(&mut self, slices: usize) -> Result<Vec<f64>> {
        let (clock, first) = (self.clock, self.sequence);
        let (sequence, rates) = self.pair.run(|memory, how| consume(memory, how, clock, first, slices))?;
        self.sequence = sequence;
        Ok(rates)
    }
}

fn consume(memory: &Memory, how: Waiting, clock: Clock, mut sequence: u64, slices: usize) -> Result<(u64, Vec<f64>)> {
    let slice_ticks = clock.ticks_of(SLICE_NS);
    let credit = word(memory, CREDIT_AT);
    let mut rates = Vec::with_capacity(slices);
    let mut checked = 0_u64;
    // The first slice warms up.
    for counts in core::iter::once(false).chain(core::iter::repeat_n(true, slices)) {
        let (start, first) = (ticks(), sequence);
        let elapsed = loop {
            for _ in 0..64 {
                let at = slot(memory, sequence);
                sequence += 1;
                await_word(word(memory, at + LINE_BYTES - 8), how, |value| value == sequence)?;
                // All of the line is taken, as a reader of a request would.
                checked = (0..7).fold(checked, |sum, i| sum ^ word(memory, at + i * 8).load(Ordering::Relaxed));
                // Release: pairs with the Acquire of the producer's await_word; the slot may be written again.
                credit.store(sequence, Ordering::Release);
            }
            let elapsed = ticks().wrapping_sub(start);
            if elapsed >= slice_ticks {
                break elapsed;
            }
        };
        if counts {
            rates.push((sequence - first) as f64 * 1e9 / clock.ns(elapsed) as f64);
        }
    }
    core::hint::black_box(checked);
    Ok((sequence, rates))
}

fn slot(memory: &Memory, sequence: u64) -> usize {
    debug_assert!(SLOTS_AT + LINE_BYTES * 8 <= memory.bytes());
    SLOTS_AT + usize::try_from(sequence % SLOTS).unwrap_or(0) * LINE_BYTES
}

/// The other process of a yardstick: serves until it is killed or its parent ends.
///
/// # Errors
/// `InvalidArgument` for an unknown role; `OsError`.
pub fn child(role: &str, cpu: Option<usize>) -> Result<()> {
    end_with_parent();
    pin(cpu)?;
    let memory = Memory::inherited(SHARED_BYTES)?;
    let how = Waiting { shares_core: cpu.is_none(), pauses: true, has_deadline: false };
    match role {
        "pong-one" => pong(&memory, PING_AT, Waiting { pauses: false, ..how }),
        "pong-one-paused" => pong(&memory, PING_AT, how),
        "pong-two" => pong(&memory, PONG_AT, how),
        "produce" => produce(&memory, how),
        _ => Err(Error::new(Status::InvalidArgument, format!("no yardstick has a process with the role '{role}'"))),
    }
}

fn pong(memory: &Memory, answer_at: usize, how: Waiting) -> Result<()> {
    let (ping, pong) = (word(memory, PING_AT), word(memory, answer_at));
    let mut expected = 1;
    loop {
        await_word(ping, how, |value| value == expected)?;
        // Release: pairs with the Acquire of the first process's await_word.
        pong.store(expected + 1, Ordering::Release);
        expected += 2;
    }
}

fn produce(memory: &Memory, how: Waiting) -> Result<()> {
    let credit = word(memory, CREDIT_AT);
    let mut known = 0_u64;
    for sequence in 0_u64.. {
        if sequence >= known + SLOTS {
            known = await_word(credit, how, |value| value + SLOTS > sequence)?;
        }
        let at = slot(memory, sequence);
        for i in 0..7 {
            word(memory, at + i * 8).store(sequence ^ i as u64, Ordering::Relaxed);
        }
        // Release: pairs with the Acquire of the consumer's await_word; the seven words before it are there.
        word(memory, at + LINE_BYTES - 8).store(sequence + 1, Ordering::Release);
    }
    Ok(())
}
