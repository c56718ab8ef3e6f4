//! The `reclane` command.

mod bench;
mod launch;
mod options;

use bench::gather::{FEW_LARGE, Gather, MANY_SMALL, Table};
use bench::histogram::Histogram;
use bench::yardstick::{HandOff, Lines, PingPong, child};
use clap::{Parser, Subcommand};
use std::process::ExitCode;

/// RDMA transport for parameter servers: tools.
#[derive(Parser)]
#[command(name = "reclane", version, subcommand_required = true, arg_required_else_help = true)]
struct Command {
    #[command(subcommand)]
    action: Action,
}

#[derive(Subcommand)]
enum Action {
    /// List all options of servers and clients: names, bounds, defaults, meaning.
    Options(options::Arguments),
    Launch(Box<launch::Arguments>),
    /// Measure what this machine can do at best.
    Bench {
        /// Size of the table.
        #[arg(long, default_value_t = 64)]
        table_mib: usize,
    },
    /// What `bench` starts its other process as.
    #[command(name = bench::CHILD_COMMAND, hide = true)]
    Child {
        role: String,
        cpu: Option<usize>,
    },
    /// Print the version.
    Version,
}

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

fn main() -> ExitCode {
    match Command::parse().action {
        Action::Options(arguments) => options::run(&arguments),
        Action::Launch(arguments) => launch::run(&arguments),
        Action::Bench { table_mib } => finish(yardsticks(table_mib)),
        Action::Child { role, cpu } => finish(child(&role, cpu)),
        Action::Version => {
            println!("reclane {} wire {}", env!("CARGO_PKG_VERSION"), reclane::wire::WIRE_VERSION);
            ExitCode::SUCCESS
        }
    }
}

fn finish(result: reclane::error::Result<()>) -> ExitCode {
    match result {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("reclane: {error}");
            ExitCode::FAILURE
        }
    }
}
