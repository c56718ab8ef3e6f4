//! The work, the plain table and the clock: the same as in `rows.h`.

use crate::Failure;
use std::time::{Duration, Instant};

pub const SERVER_CPU: usize = 1;
pub const CLIENT_CPU: usize = 0;
pub const SHAPES: [Shape; 3] =
    [Shape { rows: 1, row_bytes: 64 }, Shape { rows: 32, row_bytes: 512 }, Shape { rows: 512, row_bytes: 128 }];
pub const DEPTHS: [usize; 3] = [1, 8, 32];
/// Largest request: keys, rows and the header.
pub const MESSAGE_MAX: usize = 8 + 512 * (8 + 128);

#[derive(Clone, Copy)]
pub struct Shape {
    pub rows: usize,
    pub row_bytes: usize,
}

#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Op {
    Get,
    Put,
    Update,
}

pub const OPS: [(Op, &str); 3] = [(Op::Get, "get"), (Op::Put, "put"), (Op::Update, "update")];

/// One way of carrying requests. Slots are used in turn, and answers come in the order of the requests.
pub trait Peer {
    fn begin(&mut self, slot: usize, op: Op, shape: Shape, keys: &[u64]) -> Result<(), Failure>;
    fn finish(&mut self, slot: usize, op: Op, shape: Shape) -> Result<(), Failure>;
}

/// Of all windows in which something was measured: their length, what was spent in them, and our own part of it.
#[derive(Default)]
struct Windows {
    ns: u64,
    busy_ns: u64,
    own_ns: u64,
}

pub struct Work {
    pub ms: f64,
    pub table_bytes: usize,
    only: String,
}

impl Work {
    pub fn take(words: &[String]) -> Result<(Work, Vec<String>), Failure> {
        let mut work = Work { ms: 30.0, table_bytes: 64 << 20, only: String::new() };
        let (mut rest, mut words) = (Vec::new(), words.iter());
        while let Some(word) = words.next() {
            let mut value = || words.next().ok_or(format!("{word} wants a value"));
            match word.as_str() {
                "--ms" => work.ms = value()?.parse()?,
                "--table-mib" => work.table_bytes = value()?.parse::<usize>()? << 20,
                "--only" => work.only = value()?.clone(),
                _ => rest.push(word.clone()),
            }
        }
        Ok((work, rest))
    }

    pub fn cells(&self, peer: &mut dyn Peer, server: u32) -> Result<(), Failure> {
        let mut samples = vec![1_u32; 1 << 22];
        let mut windows = Windows::default();
        for (op, op_name) in OPS {
            for shape in SHAPES {
                for depth in DEPTHS {
                    let name = format!("{op_name}_{}x{}_d{depth}", shape.rows, shape.row_bytes);
                    let wanted = match self.only.strip_suffix('$') {
                        Some(end) => name.ends_with(end),
                        None => name.contains(&self.only),
                    };
                    if wanted {
                        let line = self.cell(peer, server, (op, shape, depth), &mut samples, &mut windows)?;
                        println!("{{\"op\":\"{op_name}\",{line}}}");
                    }
                }
            }
        }
        let foreign = windows.busy_ns.saturating_sub(windows.own_ns);
        println!("{{\"foreign\":{:.3}}}", foreign as f64 / (2 * windows.ns).max(1) as f64);
        Ok(())
    }

    fn cell(
        &self,
        peer: &mut dyn Peer,
        server: u32,
        (op, shape, depth): (Op, Shape, usize),
        samples: &mut [u32],
        windows: &mut Windows,
    ) -> Result<String, Failure> {
        let keys = draw_keys((self.table_bytes / shape.row_bytes) as u64);
        let ns = ns_per_tick();
        let ticks_of = |ms: f64| (ms * 1e6 / ns) as u64;
        let slice = ticks_of(if self.ms < 24.0 { self.ms / 3.0 } else { 8.0 });
        let from = ticks() + ticks_of(self.ms / 8.0);
        let end = from + ticks_of(self.ms);
        let (mut begun, mut next) = ([0_u64; 32], 0);
        let (mut total, mut before, mut count, mut in_slice) = (0_usize, 0, 0, 0_u64);
        let (mut slice_start, mut cpu, mut rates) = (0, (0, 0), Vec::with_capacity(4096));
        let mut window = (Instant::now(), 0);
        loop {
            let slot = total % depth;
            if total >= depth {
                peer.finish(slot, op, shape)?;
                in_slice += 1;
                let now = if begun[slot] == UNTIMED { 0 } else { ticks() };
                if now >= from && slice_start == 0 {
                    window = (Instant::now(), busy_ns());
                    cpu = (cpu_ns(0), cpu_ns(server));
                    (before, in_slice, slice_start) = (total, 0, ticks());
                } else if now >= from {
                    if count < samples.len() {
                        samples[count] = ((now - begun[slot]) as f64 * ns) as u32;
                        count += 1;
                    }
                    if now >= slice_start + slice && rates.len() < rates.capacity() {
                        rates.push(in_slice as f64 / ((now - slice_start) as f64 * ns) * 1e9);
                        (slice_start, in_slice) = (now, 0);
                    }
                    if now >= end {
                        break;
                    }
                }
            }
            if next + shape.rows > keys.len() {
                next = 0;
            }
            let is_timed = depth == 1 || total % TIMED_EVERY == 0;
            begun[slot] = if is_timed { ticks() } else { UNTIMED };
            peer.begin(slot, op, shape, &keys[next..next + shape.rows])?;
            next += shape.rows;
            total += 1;
        }
        let requests = total - before;
        let cpu = (cpu_ns(0) - cpu.0, cpu_ns(server) - cpu.1);
        windows.ns += window.0.elapsed().as_nanos() as u64;
        windows.busy_ns += busy_ns() - window.1;
        windows.own_ns += cpu.0 + cpu.1;
        for request in total + 1 - depth..total {
            peer.finish(request % depth, op, shape)?;
        }
        let figures = Figures { samples: &mut samples[..count], rates, cpu, requests };
        Ok(figures.line(shape, depth))
    }
}

/// With several requests under way one of so many is timed, as by rows.h.
const TIMED_EVERY: usize = 7;
/// The beginning of one that is not.
const UNTIMED: u64 = 0;

/// What was measured in one cell.
struct Figures<'a> {
    samples: &'a mut [u32],
    rates: Vec<f64>,
    cpu: (u64, u64),
    requests: usize,
}

impl Figures<'_> {
    fn line(mut self, shape: Shape, depth: usize) -> String {
        self.samples.sort_unstable();
        self.rates.sort_by(f64::total_cmp);
        let at = |part: usize| self.samples.get(self.samples.len() * part / 100).copied().unwrap_or(0);
        format!(
            "\"rows\":{},\"row_bytes\":{},\"depth\":{depth},\"p50_ns\":{},\"p99_ns\":{},\"per_s\":{:.0},\
             \"cpu_client_ns\":{},\"cpu_server_ns\":{},\"requests\":{}",
            shape.rows,
            shape.row_bytes,
            at(50),
            at(99),
            self.rates.get(self.rates.len() / 2).copied().unwrap_or(0.0),
            self.cpu.0,
            self.cpu.1,
            self.requests
        )
    }
}

fn draw_keys(below: u64) -> Vec<u64> {
    let mut state = 42_u64;
    let draw = |_| {
        state = state.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = state;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^= z >> 31;
        ((u128::from(z) * u128::from(below)) >> 64) as u64
    };
    (0..1 << 20).map(draw).collect()
}

fn ticks() -> u64 {
    // SAFETY: every x86-64 processor has the instruction; it touches no memory.
    unsafe { core::arch::x86_64::_rdtsc() }
}

fn ns_per_tick() -> f64 {
    static KNOWN: std::sync::OnceLock<f64> = std::sync::OnceLock::new();
    *KNOWN.get_or_init(|| {
        let (start, first) = (Instant::now(), ticks());
        while start.elapsed() < Duration::from_millis(20) {}
        start.elapsed().as_nanos() as f64 / (ticks() - first) as f64
    })
}

fn cpu_ns(process: u32) -> u64 {
    let clock = if process == 0 { libc::CLOCK_PROCESS_CPUTIME_ID } else { ((!process << 3) | 2) as libc::clockid_t };
    let mut time = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: the place is ours.
    if unsafe { libc::clock_gettime(clock, &raw mut time) } != 0 {
        return 0;
    }
    time.tv_sec as u64 * 1_000_000_000 + time.tv_nsec as u64
}

/// CPU time that anybody has spent on the two processors so far.
fn busy_ns() -> u64 {
    let text = std::fs::read_to_string("/proc/stat").unwrap_or_default();
    let ours = text.lines().filter(|line| line.starts_with("cpu0 ") || line.starts_with("cpu1 "));
    let busy = |line: &str| -> u64 {
        let numbers = line.split_whitespace().skip(1).take(8).map(|word| word.parse::<u64>().unwrap_or(0));
        numbers.enumerate().filter(|(i, _)| *i != 3 && *i != 4).map(|(_, ticks)| ticks).sum()
    };
    // SAFETY: takes no pointer.
    let ticks_per_second = unsafe { libc::sysconf(libc::_SC_CLK_TCK) }.max(1) as u64;
    ours.map(busy).sum::<u64>() * 1_000_000_000 / ticks_per_second
}

pub fn pin(cpu: usize) {
    // SAFETY: a cpu_set_t is a bit mask, and all zero is the empty one.
    let mut set: libc::cpu_set_t = unsafe { core::mem::zeroed() };
    // SAFETY: the number is small, and the set is ours.
    unsafe { libc::CPU_SET(cpu, &mut set) };
    // SAFETY: 0 is the calling thread; the set is ours.
    if unsafe { libc::sched_setaffinity(0, size_of::<libc::cpu_set_t>(), &raw const set) } != 0 {
        eprintln!("peers: cannot be bound to CPU {cpu}");
    }
}

pub fn end_with_parent() {
    // SAFETY: sets a flag of this process; takes no pointer.
    unsafe { libc::prctl(libc::PR_SET_PDEATHSIG, libc::SIGKILL) };
}

/// Reads a word of every line, as somebody who uses rows does.
pub fn consume(rows: &[u8]) {
    let sum = rows.iter().step_by(64).fold(0_u32, |sum, byte| sum.wrapping_add(u32::from(*byte)));
    std::hint::black_box(sum);
}

/// A request as bytes: operation, rows and row length, keys, rows.
pub fn write_request(place: &mut [u8], op: Op, shape: Shape, keys: &[u64], rows: &[u8]) {
    place[0] = op as u8;
    place[2..4].copy_from_slice(&(shape.rows as u16).to_le_bytes());
    place[4..6].copy_from_slice(&(shape.row_bytes as u16).to_le_bytes());
    for (place, key) in place[8..].chunks_exact_mut(8).zip(keys) {
        place.copy_from_slice(&key.to_le_bytes());
    }
    if op != Op::Get {
        let bytes = shape.rows * shape.row_bytes;
        place[8 + 8 * shape.rows..][..bytes].copy_from_slice(&rows[..bytes]);
    }
}

pub fn request_bytes(op: Op, shape: Shape) -> usize {
    8 + shape.rows * 8 + if op == Op::Get { 0 } else { shape.rows * shape.row_bytes }
}

/// Rows by number, one table for each length of a row.
pub struct Tables(Vec<(usize, Vec<f32>)>);

impl Tables {
    pub fn fill(work: &Work) -> Tables {
        let table = |shape: &Shape| {
            let floats = shape.row_bytes / 4;
            let mut table = Vec::<f32>::with_capacity(work.table_bytes / 4);
            // SAFETY: advice on memory of ours; its refusal costs only speed.
            unsafe { libc::madvise(table.as_mut_ptr().cast::<f32>().cast(), work.table_bytes, libc::MADV_HUGEPAGE) };
            table.extend(
                (0..work.table_bytes / shape.row_bytes)
                    .flat_map(|key| (0..floats).map(move |i| ((key & 0xff_ffff) + i) as f32)),
            );
            (shape.row_bytes, table)
        };
        Tables(SHAPES.iter().map(table).collect())
    }

    /// Length of the answer to a request.
    pub fn answer_bytes(request: &[u8]) -> usize {
        let (rows, row_bytes) = header(request);
        if request[0] == Op::Get as u8 { rows * row_bytes } else { 0 }
    }

    /// Executes it; rows go to `out`, which is as long as its answer.
    pub fn execute(&mut self, request: &[u8], out: &mut [u8]) {
        let (rows, row_bytes) = header(request);
        let Some((_, table)) = self.0.iter_mut().find(|table| table.0 == row_bytes) else { return };
        let floats = row_bytes / 4;
        let key = |i: usize| {
            let bytes = request[8 + 8 * i..][..8].try_into().expect("8 bytes");
            u64::from_le_bytes(bytes) as usize
        };
        for i in 0..rows {
            if i + 16 < rows {
                let row = table.as_ptr().wrapping_add(key(i + 16) * floats);
                for line in (0..floats).step_by(16) {
                    // SAFETY: a prefetch of any address faults nothing.
                    unsafe {
                        core::arch::x86_64::_mm_prefetch::<{ core::arch::x86_64::_MM_HINT_T0 }>(
                            row.wrapping_add(line).cast(),
                        );
                    }
                }
            }
            let row = &mut table[key(i) * floats..][..floats];
            // SAFETY: the same memory as bytes.
            let bytes = unsafe { core::slice::from_raw_parts_mut(row.as_mut_ptr().cast::<u8>(), row_bytes) };
            let given = || &request[8 + 8 * rows + i * row_bytes..][..row_bytes];
            match request[0] {
                0 => out[i * row_bytes..][..row_bytes].copy_from_slice(bytes),
                1 => bytes.copy_from_slice(given()),
                _ => {
                    for (value, gradient) in row.iter_mut().zip(given().chunks_exact(4)) {
                        *value -= f32::MIN_POSITIVE * f32::from_le_bytes(gradient.try_into().expect("4 bytes"));
                    }
                }
            }
        }
    }
}

fn header(request: &[u8]) -> (usize, usize) {
    let word = |at: usize| usize::from(u16::from_le_bytes([request[at], request[at + 1]]));
    (word(2), word(4))
}
