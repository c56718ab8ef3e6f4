//! The `reclane` command.

mod bench;

use bench::gather::{FEW_LARGE, Gather, MANY_SMALL, Table};
use bench::histogram::Histogram;
use bench::yardstick::{HandOff, Lines, PingPong, child};
use std::process::ExitCode;

fn line(name: &str, chunks: &[Histogram]) {
    let mut whole = Histogram::new();
    chunks.iter().for_each(|c| whole.merge(c));
    let best = chunks.iter().map(|c| c.quantile(0.5)).min().unwrap_or(0);
    let (p50, p99) = (whole.quantile(0.5), whole.quantile(0.99));
    println!(
        "{name}: p50 {p50} ns, p99 {p99} ns, min {} ns, max {} ns, best chunk p50 {best} ns",
        whole.min(),
        whole.max()
    );
}

/// The yardsticks, interleaved: what the machine does changes from one second to the next.
fn yardsticks(table_mib: usize) -> reclane::error::Result<()> {
    let mut one = PingPong::start(Lines::One)?;
    let mut two = PingPong::start(Lines::Two)?;
    let mut hand_off = HandOff::start()?;
    let table = Table::new(table_mib << 20)?;
    let mut many_small = Gather::new(&table, MANY_SMALL)?;
    let mut few_large = Gather::new(&table, FEW_LARGE)?;
    let mut chunks: [Vec<Histogram>; 4] = Default::default();
    let mut rates = Vec::new();
    for _ in 0..20 {
        chunks[0].push(one.chunk(50_000)?);
        chunks[1].push(two.chunk(50_000)?);
        chunks[2].push(many_small.chunk(2_000)?);
        chunks[3].push(few_large.chunk(5_000)?);
        rates.extend(hand_off.slices(5)?);
    }
    rates.sort_by(f64::total_cmp);
    line("pingpong, one line", &chunks[0]);
    line("pingpong, two lines", &chunks[1]);
    println!("handoff: median {:.0}/s, best {:.0}/s", rates[rates.len() / 2], rates[rates.len() - 1]);
    line("gather 512x128", &chunks[2]);
    line("gather 32x512", &chunks[3]);
    Ok(())
}

fn work(which: &[String]) -> reclane::error::Result<()> {
    use bench::workload::{Kind, Run, Table, Workload};
    let (client_cpu, server_cpu) = bench::host::two_cpus();
    let changes = vec![
        ("qps-per-client-per-shard".to_owned(), "4".to_owned()),
        ("slots-per-qp".to_owned(), "8".to_owned()),
        ("max-kv-num-per-request".to_owned(), "1024".to_owned()),
        ("hash-method".to_owned(), "simple_mod".to_owned()),
    ];
    let shard = bench::service::Shard::start(changes, server_cpu)?;
    bench::host::on_cpu(client_cpu, || {
        let client = shard.client()?;
        let clock = bench::clock::Clock::calibrate();
        for (rows, row_bytes) in [(1, 64), (32, 512), (512, 128)] {
            let table = Table::fill(&client, row_bytes, 64 << 20)?;
            for kind in [Kind::Get, Kind::Put, Kind::Update] {
                for depth in [1, 8, 32] {
                    let name = format!("{kind:?} {rows}x{row_bytes} d{depth}");
                    if !which.is_empty() && !which.iter().any(|w| name.contains(w.as_str())) {
                        continue;
                    }
                    let workload = Workload { kind, rows, row_bytes, depth };
                    let mut run = Run::new(&client, &table, workload, clock);
                    let count = 200_000 / rows.max(1) * 2;
                    run.chunk(count / 4)?;
                    let mut rates = Vec::new();
                    let mut all = Histogram::new();
                    for _ in 0..9 {
                        let (latencies, rate) = run.chunk(count)?;
                        all.merge(&latencies);
                        rates.push(rate);
                    }
                    rates.sort_by(f64::total_cmp);
                    println!("{name}: p50 {} p99 {} ns, median {:.0}/s best {:.0}/s", all.quantile(0.5), all.quantile(0.99), rates[4], rates[8]);
                    if kind != Kind::Get { Table::fill(&client, row_bytes, 64 << 20)?; }
                }
            }
        }
        Ok(())
    })
}

fn run(arguments: &[String]) -> reclane::error::Result<()> {
    match arguments {
        [command, role, cpu, rest @ ..] if command == bench::CHILD_COMMAND && role == bench::service::ROLE => {
            bench::service::child(cpu.parse().ok(), rest)
        }
        [command, role, rest @ ..] if command == bench::CHILD_COMMAND => {
            child(role, rest.first().and_then(|cpu| cpu.parse().ok()))
        }
        [command, which @ ..] if command == "work" => work(which),
        _ => yardsticks(arguments.first().and_then(|m| m.parse().ok()).unwrap_or(64)),
    }
}

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    match run(&arguments) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("reclane: {error}");
            ExitCode::FAILURE
        }
    }
}
