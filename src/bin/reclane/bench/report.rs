//! The figures: rounds in which every yardstick and every workload has its turn, medians over the rounds, and ratios.

use super::checkpoint;
use super::clock::Clock;
use super::gather::{FEW_LARGE, Gather, MANY_SMALL, Table as Gathered};
use super::host::{on_cpu, two_cpus};
use super::recovery;
use super::service::{Changes, Shard};
use super::workload::{Kind, Run, Table, Workload};
use super::yardstick::{HandOff, Lines, PingPong};
use crate::doctor::available_bytes;
use reclane::engine::Client;
use reclane::error::{Error, Result, Status};
use serde_json::{Map, Value, json};
use std::time::Duration;

/// Measure requests beside what this machine can do at best.
#[derive(clap::Args, Debug)]
#[command(args_conflicts_with_subcommands = true)]
pub struct Arguments {
    /// What carries the requests: `shm` beside yardsticks of memory, or `verbs` beside perftest on the same devices.
    #[arg(long, default_value = "shm", value_parser = ["shm", "verbs"])]
    fabric: String,
    #[command(subcommand)]
    other: Option<Other>,
    /// Size of the tables in MiB. Ratios are told for 64, which fits the caches of a server; larger ones are bound by
    /// memory.
    #[arg(long, default_value_t = 64)]
    table_mib: u64,
    /// Rounds; figures are medians over them, and so are ratios.
    #[arg(long, default_value_t = 15)]
    pub(super) rounds: usize,
    /// Only workloads whose name contains this.
    #[arg(long)]
    only: Option<String>,
    /// Lanes of the client to the shard.
    #[arg(long, default_value_t = 4)]
    lanes: u32,
    /// Slots of each lane.
    #[arg(long, default_value_t = 8)]
    slots: u32,
    /// Further options of both ends, name=value.
    #[arg(long = "set")]
    pub(super) set: Vec<String>,
    /// Requests of one turn of a workload, to profile a process for longer than the usual turn. It makes ratios worse: a
    /// yardstick and its workload are then far apart in time.
    #[arg(long)]
    turn_requests: Option<usize>,
    /// Print one JSON object.
    #[arg(long)]
    pub(super) json: bool,
}

/// Other things to measure.
#[derive(clap::Subcommand, Debug)]
enum Other {
    Recovery(recovery::Arguments),
    Checkpoint(checkpoint::Arguments),
}

/// A workload with the names its figures have in the JSON object.
struct Case {
    name: &'static str,
    workload: Workload,
    /// By a client that reads no rows by itself: every GET is a request.
    asks: bool,
}

const fn case(name: &'static str, kind: Kind, rows: usize, row_bytes: usize, depth: usize) -> Case {
    Case { name, workload: Workload { kind, rows, row_bytes, depth }, asks: false }
}

const fn asked(name: &'static str, rows: usize, row_bytes: usize, depth: usize) -> Case {
    Case { name, workload: Workload { kind: Kind::Get, rows, row_bytes, depth }, asks: true }
}

const CASES: &[Case] = &[
    case("get_1x64_d1", Kind::Get, 1, 64, 1),
    case("get_1x64_d32", Kind::Get, 1, 64, 32),
    case("get_32x512_d1", Kind::Get, 32, 512, 1),
    case("get_32x512_d8", Kind::Get, 32, 512, 8),
    case("get_512x128_d1", Kind::Get, 512, 128, 1),
    case("get_512x128_d32", Kind::Get, 512, 128, 32),
    asked("asked_1x64_d1", 1, 64, 1),
    asked("asked_1x64_d32", 1, 64, 32),
    asked("asked_32x512_d8", 32, 512, 8),
    asked("asked_512x128_d1", 512, 128, 1),
    case("put_1x64_d1", Kind::Put, 1, 64, 1),
    case("put_1x64_d32", Kind::Put, 1, 64, 32),
    case("put_512x128_d1", Kind::Put, 512, 128, 1),
    case("update_1x64_d1", Kind::Update, 1, 64, 1),
    case("update_1x64_d32", Kind::Update, 1, 64, 32),
    case("update_512x128_d1", Kind::Update, 512, 128, 1),
];

/// Bytes of rows that one turn of a workload moves at most, unless more requests were asked for: some ten milliseconds.
/// Where virtual processors are moved between cores of the host, what two of them can do together changes from one
/// second to the next, so a workload and its yardstick must be close in time.
const TURN_BYTES: usize = 32 << 20;
const TURN_REQUESTS: usize = 20_000;
/// The same with many requests under way, of which so many take as long.
const TURN_REQUESTS_DEEP: usize = 80_000;

/// Rows that a workload of many touches before it is timed.
const PASS_ROWS: usize = 1 << 19;

/// One figure per round.
#[derive(Default)]
pub(super) struct Series(pub(super) Vec<f64>);

impl Series {
    pub(super) fn median(&self) -> f64 {
        let mut sorted = self.0.clone();
        sorted.sort_by(f64::total_cmp);
        sorted.get(sorted.len() / 2).copied().unwrap_or(f64::NAN)
    }
}

#[derive(Default)]
struct Measured {
    p50: Series,
    p99: Series,
    rate: Series,
    /// To the yardstick of the same turn.
    ratio: Series,
    /// To the other ping-pongs of the same turn: paused, and of two lines.
    others: [Series; 2],
}

struct Yardsticks<'a> {
    one: PingPong,
    one_paused: PingPong,
    two: PingPong,
    hand_off: HandOff,
    many_small: Gather<'a>,
    few_large: Gather<'a>,
    series: [Measured; 6],
}

impl<'a> Yardsticks<'a> {
    fn new(gathered: &'a Gathered) -> Result<Yardsticks<'a>> {
        Ok(Yardsticks {
            one: PingPong::start(Lines::One)?,
            one_paused: PingPong::start(Lines::OnePaused)?,
            two: PingPong::start(Lines::Two)?,
            hand_off: HandOff::start()?,
            many_small: Gather::new(gathered, MANY_SMALL)?,
            few_large: Gather::new(gathered, FEW_LARGE)?,
            series: Default::default(),
        })
    }

    /// One turn of the yardstick that a workload is told against.
    #[allow(clippy::cast_precision_loss)] // nanoseconds
    fn turn(&mut self, workload: Workload) -> Result<()> {
        if workload.depth > 1 && workload.rows == 1 {
            self.series[4].rate.0.extend(self.hand_off.slices(1)?);
            return Ok(());
        }
        let (index, histogram) = match workload.rows {
            1 => {
                let two = self.two.chunk(10_000)?;
                self.series[1].p50.0.push(two.quantile(0.5) as f64);
                let paused = self.one_paused.chunk(10_000)?;
                self.series[5].p50.0.push(paused.quantile(0.5) as f64);
                (0, self.one.chunk(10_000)?)
            }
            32 => (3, self.few_large.chunk(2_000)?),
            _ => (2, self.many_small.chunk(400)?),
        };
        self.series[index].p50.0.push(histogram.quantile(0.5) as f64);
        Ok(())
    }

    /// What the last turn of the yardstick of this workload gave.
    fn last(&self, workload: Workload) -> f64 {
        let series = match workload.rows {
            1 if workload.depth > 1 => &self.series[4].rate,
            1 => &self.series[0].p50,
            32 => &self.series[3].p50,
            _ => &self.series[2].p50,
        };
        series.0.last().copied().unwrap_or(f64::NAN)
    }
}

/// Measures and prints.
///
/// # Errors
/// What a process, an option or a request fails with.
pub fn run(arguments: &Arguments) -> Result<()> {
    if arguments.fabric == "verbs" {
        #[cfg(feature = "verbs")]
        return super::device::run(arguments);
        #[cfg(not(feature = "verbs"))]
        return Err(Error::new(Status::FabricUnavailable, "bench --fabric verbs: this build has no verbs feature"));
    }
    if let Some(Other::Checkpoint(other)) = &arguments.other {
        return checkpoint::run(other);
    }
    if let Some(Other::Recovery(other)) = &arguments.other {
        return recovery::run(other);
    }
    let mut figures = Map::new();
    idle_and_start_up(arguments, &mut figures)?;
    have_memory(arguments.table_mib)?;
    let gathered = Gathered::new(usize::try_from(arguments.table_mib << 20).unwrap_or(usize::MAX))?;
    let mut yardsticks = Yardsticks::new(&gathered)?;
    let (client_cpu, server_cpu) = two_cpus();
    let mut measured: Vec<Measured> = CASES.iter().map(|_| Measured::default()).collect();
    for row_bytes in [64, 512, 128] {
        let cases = || CASES.iter().filter(|case| case.workload.row_bytes == row_bytes && wanted(arguments, case));
        if cases().next().is_none() {
            continue;
        }
        // A shard for each width of rows: large tables do not fit in memory beside each other.
        let shard = Shard::start(changes(arguments, arguments.lanes), server_cpu)?;
        on_cpu(client_cpu, || {
            let client = shard.client()?;
            let asking = shard.client_with(&[("shared-reads", "off")])?;
            let table = |name| Table::fill(&client, name, row_bytes, arguments.table_mib << 20);
            // What PUT writes is not what GET expects: it has a table of its own.
            let puts = cases().any(|case| case.workload.kind == Kind::Put);
            let written = if puts { Some(table("written")?) } else { None };
            let read = table("read")?;
            read.find(&asking)?;
            let clients = [&client, &asking];
            let bench = Bench { shard: &shard, clients, read, written, clock: Clock::calibrate() };
            for _ in 0..arguments.rounds.max(1) {
                bench.round(arguments, row_bytes, &mut yardsticks, &mut measured)?;
            }
            Ok(())
        })?;
    }
    collect(&yardsticks.series, &measured, arguments, &mut figures);
    if arguments.json {
        println!("{}", Value::Object(figures));
    } else {
        print(&figures);
    }
    Ok(())
}

fn wanted(arguments: &Arguments, case: &Case) -> bool {
    arguments.only.as_ref().is_none_or(|part| case.name.contains(part.as_str()))
}

/// Refuses tables for which there is no memory, before the system ends a process for them.
fn have_memory(table_mib: u64) -> Result<()> {
    /// Two tables at a time and the yardstick's, and what an index adds to the narrowest rows.
    const TABLES: u64 = 4;
    let Some(free_bytes) = available_bytes() else { return Ok(()) };
    let (needed_mib, free_mib) = (table_mib.saturating_mul(TABLES), free_bytes >> 20);
    if needed_mib <= free_mib {
        return Ok(());
    }
    let message = format!("--table-mib {table_mib} needs about {needed_mib} MiB of memory, and {free_mib} are free");
    Err(Error::new(Status::InvalidArgument, message))
}

struct Bench<'a> {
    shard: &'a Shard,
    /// One that reads rows by itself where it can, and one that asks.
    clients: [&'a Client; 2],
    read: Table,
    /// Where PUTs go, if there are any.
    written: Option<Table>,
    clock: Clock,
}

impl Bench<'_> {
    /// One turn of every workload of this width, each right after its yardstick.
    #[allow(clippy::cast_precision_loss)] // nanoseconds
    fn round(
        &self,
        arguments: &Arguments,
        row_bytes: usize,
        yardsticks: &mut Yardsticks<'_>,
        measured: &mut [Measured],
    ) -> Result<()> {
        for (case, series) in CASES.iter().zip(measured) {
            let workload = case.workload;
            if workload.row_bytes != row_bytes || !wanted(arguments, case) {
                continue;
            }
            let table = if workload.kind == Kind::Put { self.written.as_ref() } else { Some(&self.read) };
            let Some(table) = table else { continue };
            self.shard.hold();
            yardsticks.turn(workload)?;
            self.shard.resume();
            let client = self.clients[usize::from(case.asks)];
            let mut run = Run::new(client, table, workload, self.clock);
            let most = if workload.depth > 1 { TURN_REQUESTS_DEEP } else { TURN_REQUESTS };
            let usual = most.min(TURN_BYTES / (workload.rows * workload.row_bytes));
            let count = arguments.turn_requests.unwrap_or(usual);
            // A yardstick that gathers begins with a pass over as many rows.
            let pass = if workload.rows > 1 { PASS_ROWS / workload.rows } else { 0 };
            run.chunk(pass.max(count / 8))?;
            let (latencies, rate) = run.chunk(count)?;
            let p50 = latencies.quantile(0.5) as f64;
            series.p50.0.push(p50);
            series.p99.0.push(latencies.quantile(0.99) as f64);
            series.rate.0.push(rate);
            let told = if workload.depth > 1 && workload.rows == 1 { rate } else { p50 };
            series.ratio.0.push(told / yardsticks.last(workload));
            for (ratio, yardstick) in series.others.iter_mut().zip([5, 1]) {
                ratio.0.push(p50 / yardsticks.series[yardstick].p50.0.last().copied().unwrap_or(f64::NAN));
            }
        }
        Ok(())
    }
}

fn changes(arguments: &Arguments, lanes: u32) -> Changes {
    let fixed = [
        ("qps-per-client-per-shard", lanes.to_string()),
        // What lanes cost is measured on lanes that are there.
        ("qps-at-open", "1024".to_owned()),
        ("slots-per-qp", arguments.slots.to_string()),
        ("max-kv-num-per-request", "1024".to_owned()),
        ("hash-method", "simple_mod".to_owned()),
    ];
    let given = arguments.set.iter().filter_map(|pair| pair.split_once('='));
    let given = given.map(|(name, value)| (name.to_owned(), value.to_owned()));
    fixed.into_iter().map(|(name, value)| (name.to_owned(), value)).chain(given).collect()
}

/// What a shard without traffic costs, and what lanes cost before any traffic.
#[allow(clippy::cast_precision_loss)] // a few ticks and megabytes
fn idle_and_start_up(arguments: &Arguments, figures: &mut Map<String, Value>) -> Result<()> {
    let mut start_up = Vec::new();
    for lanes in [1, 4, 16, 64] {
        let shard = Shard::start(changes(arguments, lanes), None)?;
        let start = reclane::time::now();
        let client = shard.client()?;
        let open_ms = reclane::time::now().since_ns(start) as f64 / 1e6;
        let bytes = client.stats().lane_bytes as f64 / f64::from(lanes);
        let resident = shard.resident_bytes().unwrap_or(0) as f64;
        start_up.push(json!({
            "lanes": lanes,
            "client_open_ms": (open_ms * 10.0).round() / 10.0,
            "client_mapped_bytes_per_lane": bytes,
            "server_resident_bytes": resident,
        }));
        if lanes == 4 {
            // SAFETY: takes no pointer.
            let ticks_per_second = unsafe { libc::sysconf(libc::_SC_CLK_TCK) }.max(1) as f64;
            reclane::time::pause(Duration::from_millis(500));
            let before = (shard.cpu_ticks().unwrap_or(0), reclane::time::now());
            reclane::time::pause(Duration::from_secs(4));
            let used = shard.cpu_ticks().unwrap_or(0) - before.0;
            let elapsed_s = reclane::time::now().since_ns(before.1) as f64 / 1e9;
            figures.insert("idle_server_cpu_fraction".into(), json!(used as f64 / ticks_per_second / elapsed_s));
        }
    }
    figures.insert("start_up".into(), Value::Array(start_up));
    Ok(())
}

fn collect(yardsticks: &[Measured; 6], measured: &[Measured], arguments: &Arguments, figures: &mut Map<String, Value>) {
    let [one, two, many_small, few_large, hand_off, one_paused] = yardsticks;
    let mut put = |name: String, value: f64| {
        if value.is_finite() {
            figures.insert(name, json!(value));
        }
    };
    put("pingpong_rtt_p50_ns".into(), one.p50.median());
    put("pingpong_paused_rtt_p50_ns".into(), one_paused.p50.median());
    put("pingpong_two_lines_rtt_p50_ns".into(), two.p50.median());
    put("handoff_64_per_s".into(), hand_off.rate.median().round());
    put("gather_512x128_ns".into(), many_small.p50.median());
    put("gather_32x512_ns".into(), few_large.p50.median());
    put("table_mib".into(), f64::from(u32::try_from(arguments.table_mib).unwrap_or(u32::MAX)));
    for (case, series) in CASES.iter().zip(measured) {
        put(format!("{}_p50_ns", case.name), series.p50.median());
        put(format!("{}_p99_ns", case.name), series.p99.median());
        put(format!("{}_per_s", case.name), series.rate.median().round());
    }
    let find = |name: &str| CASES.iter().zip(measured).find(|(case, _)| case.name == name).map(|(_, m)| m);
    let mut ratio = |name: &str, value: f64| put(format!("ratio_{name}"), (value * 1000.0).round() / 1000.0);
    for (name, of) in [
        ("get_1x64_d1", "pingpong"),
        ("get_1x64_d32", "handoff"),
        ("get_32x512_d1", "gather"),
        ("get_512x128_d1", "gather"),
        ("asked_1x64_d1", "pingpong"),
        ("asked_1x64_d32", "handoff"),
        ("asked_512x128_d1", "gather"),
    ] {
        ratio(&format!("{name}_to_{of}"), find(name).map_or(f64::NAN, |m| m.ratio.median()));
    }
    for (index, of) in ["pingpong_paused", "pingpong_two_lines"].iter().enumerate() {
        ratio(&format!("asked_1x64_d1_to_{of}"), find("asked_1x64_d1").map_or(f64::NAN, |m| m.others[index].median()));
    }
    for (above, below) in
        [("put_1x64_d1", "get_1x64_d1"), ("put_1x64_d1", "asked_1x64_d1"), ("update_1x64_d1", "put_1x64_d1")]
    {
        if let (Some(above_of), Some(below_of)) = (find(above), find(below)) {
            // Of the same round: the two are taken within a few tens of milliseconds.
            let pairs = above_of.p50.0.iter().zip(&below_of.p50.0).map(|(a, b)| a / b).collect();
            ratio(&format!("{above}_to_{below}"), Series(pairs).median());
        }
    }
}

fn print(figures: &Map<String, Value>) {
    for (name, value) in figures {
        match value {
            Value::Array(rows) => rows.iter().for_each(|row| println!("{name}: {row}")),
            other => println!("{name}: {other}"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::Parser;

    #[derive(clap::Parser)]
    struct Line {
        #[command(flatten)]
        arguments: Arguments,
    }

    fn once() -> Measured {
        let one = || Series(vec![1.0]);
        Measured { p50: one(), p99: one(), rate: one(), ratio: one(), others: [one(), one()] }
    }

    /// `idle_server_cpu_fraction` is the only one that is not made here.
    #[test]
    fn the_object_has_the_figures_that_are_asked_for_and_no_others_when_only_some_ran() {
        let line = Line::parse_from(["bench", "--json"]);
        let all: Vec<Measured> = CASES.iter().map(|_| once()).collect();
        let mut figures = Map::new();
        collect(&core::array::from_fn(|_| once()), &all, &line.arguments, &mut figures);
        for name in [
            "pingpong_rtt_p50_ns",
            "handoff_64_per_s",
            "gather_512x128_ns",
            "get_1x64_d1_p50_ns",
            "get_1x64_d1_p99_ns",
            "get_1x64_d32_per_s",
            "get_32x512_d8_per_s",
            "get_512x128_d1_p50_ns",
            "put_1x64_d1_p50_ns",
            "update_1x64_d1_p50_ns",
            "update_512x128_d1_p50_ns",
        ] {
            assert_eq!(figures.get(name).and_then(Value::as_f64), Some(1.0), "{name}");
        }
        let none: Vec<Measured> = CASES.iter().map(|_| Measured::default()).collect();
        let mut figures = Map::new();
        collect(&Default::default(), &none, &line.arguments, &mut figures);
        assert_eq!(figures.keys().collect::<Vec<_>>(), ["table_mib"]);
    }
}
