//! The `reclane` command.

mod bench;
mod checkpoint;
mod deployment;
mod doctor;
mod flags;
mod launch;
mod look;
mod options;
mod simulate;

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
    /// List all options of servers and clients, or show one in full: names, bounds, defaults, meaning.
    Options(options::Arguments),
    Launch(Box<launch::Arguments>),
    Deployment(deployment::Arguments),
    Doctor(doctor::Arguments),
    Status(look::StatusArguments),
    Top(look::TopArguments),
    /// Measure requests beside what this machine can do at best, as ratios taken in one run.
    Bench(bench::report::Arguments),
    Simulate(simulate::Arguments),
    Checkpoint(checkpoint::Arguments),
    /// What `bench` starts its other processes as.
    #[command(name = bench::CHILD_COMMAND, hide = true)]
    Child {
        role: String,
        cpu: String,
        rest: Vec<String>,
    },
    /// Print the version.
    Version,
}

fn main() -> ExitCode {
    match Command::parse().action {
        Action::Options(arguments) => options::run(&arguments),
        Action::Launch(arguments) => launch::run(&arguments),
        Action::Deployment(arguments) => deployment::run(&arguments),
        Action::Doctor(arguments) => doctor::run(&arguments),
        Action::Status(arguments) => look::status(&arguments),
        Action::Top(arguments) => look::top(&arguments),
        Action::Bench(arguments) => finish(bench::report::run(&arguments)),
        Action::Simulate(arguments) => simulate::run(&arguments),
        Action::Checkpoint(arguments) => checkpoint::run(&arguments),
        Action::Child { role, cpu, rest } => finish(bench::child(&role, cpu.parse().ok(), &rest)),
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
