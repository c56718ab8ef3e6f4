//! `reclane bench recovery`: how long it takes to notice and to heal, what is lost, and what the safety costs.

use super::CHILD_COMMAND;
use super::host::end_with_parent;
use super::service::{Changes, settings};
use reclane::engine::{Client, LaneState, Request, Rows, Server, Target, builtin_store};
use reclane::error::{Error, Result, Status};
use reclane::ids::TableTag;
use reclane::options::Side;
use reclane::sync::{Arc, AtomicBool, AtomicU64, Ordering};
use reclane::time::{Tick, now, pause};
use reclane::wire::payload::{Optimizer, TableSpec};
use std::io::{BufRead, BufReader, Read, Write};
use std::process::{Child, Command, Stdio};
use std::time::Duration;

/// The role of the other process.
pub const ROLE: &str = "recovery-shard";

/// How long it takes to notice and to heal, what is lost, and what the safety costs.
#[derive(clap::Args, Debug)]
pub struct Arguments {
    /// Rounds; figures are medians over them.
    #[arg(long, default_value_t = 7)]
    rounds: usize,
    /// Clients that must all notice.
    #[arg(long, default_value_t = 4)]
    clients: usize,
    /// Print one JSON object.
    #[arg(long)]
    json: bool,
}

/// Longest that anything here is waited for.
const PATIENCE: Duration = Duration::from_secs(60);
const LOOK: Duration = Duration::from_micros(100);
const DIM: usize = 16;
/// Requests of one turn when costs are compared.
const TURN: usize = 5_000;

/// A shard in a process of its own.
struct Shard(Child);

impl Shard {
    fn start(changes: &Changes, shard: u32) -> Result<(Shard, String)> {
        let program = std::env::current_exe().map_err(|e| Error::os("finding this program's own file", &e))?;
        let mut command = Command::new(program);
        command.args([CHILD_COMMAND, ROLE, "-", &format!("shard-id={shard}")]);
        command.args(changes.iter().map(|(name, value)| format!("{name}={value}")));
        command.stdin(Stdio::piped()).stdout(Stdio::piped());
        let mut child = command.spawn().map_err(|e| Error::os("starting a shard's process", &e))?;
        let mut line = String::new();
        if let Some(output) = child.stdout.take() {
            // A line that does not come is told apart below.
            let _ = BufReader::new(output).read_line(&mut line);
        }
        match line.trim().strip_prefix("port ") {
            Some(port) => Ok((Shard(child), port.to_owned())),
            None => Err(Error::new(Status::WrongState, "the shard's process ended before it was ready")),
        }
    }

    fn signal(&self, signal: libc::c_int) -> Tick {
        let at = now();
        if let Ok(pid) = libc::pid_t::try_from(self.0.id()) {
            // SAFETY: takes no pointer; the child is not reaped before drop, so the number is not another process's.
            unsafe { libc::kill(pid, signal) };
        }
        at
    }
}

impl Drop for Shard {
    fn drop(&mut self) {
        self.signal(libc::SIGKILL);
        // It was just killed.
        let _ = self.0.wait();
    }
}

/// The other process: serves until its input ends.
///
/// # Errors
/// What the options or the server refuse.
pub fn child(arguments: &[String]) -> Result<()> {
    end_with_parent();
    let split = |pair: &String| pair.split_once('=').map(|(name, value)| (name.to_owned(), value.to_owned()));
    let settings = settings(&arguments.iter().filter_map(split).collect(), Side::Server)?;
    let server = Server::start(&settings, Arc::new(builtin_store(&settings)?))?;
    let told = writeln!(std::io::stdout(), "port {}", server.control_plane_port().unwrap_or(0))
        .and_then(|()| std::io::stdout().flush());
    told.map_err(|e| Error::os("telling the port", &e))?;
    let mut rest = Vec::new();
    // The end of the input is the end of the work.
    let _ = std::io::stdin().read_to_end(&mut rest);
    server.stop(Duration::from_secs(5))
}

/// Two shards and what their clients must know.
struct Deployment {
    shards: Vec<Shard>,
    changes: Changes,
}

impl Deployment {
    fn start(more: &[(&str, &str)]) -> Result<Deployment> {
        let mut changes: Changes = vec![
            ("rdma-namespace".to_owned(), format!("recovery-{}-{}", std::process::id(), now().0)),
            ("num-server-processes".to_owned(), "2".to_owned()),
            ("recovery-preset".to_owned(), "resilient".to_owned()),
            ("qps-per-client-per-shard".to_owned(), "4".to_owned()),
            ("qps-at-open".to_owned(), "4".to_owned()),
            ("slots-per-qp".to_owned(), "4".to_owned()),
            ("rdma-rc-request-slot-bytes".to_owned(), "4096".to_owned()),
            ("rdma-rc-response-slot-bytes".to_owned(), "4096".to_owned()),
        ];
        changes.extend(more.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())));
        let mut first = changes.clone();
        first.push(("rdma-control-plane-port".to_owned(), "0".to_owned()));
        let (shard, port) = Shard::start(&first, 0)?;
        changes.push(("rdma-control-plane-port".to_owned(), port));
        let (other, _) = Shard::start(&changes, 1)?;
        Ok(Deployment { shards: vec![shard, other], changes })
    }

    fn client(&self, more: &[(&str, &str)]) -> Result<Client> {
        let mut changes = self.changes.clone();
        changes.extend(more.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())));
        Client::open(&settings(&changes, Side::Client)?)
    }
}

fn table(client: &Client) -> Result<TableTag> {
    client.init_table(&TableSpec {
        name: "recovery".to_owned(),
        num_embeddings: 4096,
        dim: u32::try_from(DIM).unwrap_or(0),
        optimizer: Optimizer::Sgd,
        learning_rate: 1.0,
        epsilon: 0.0,
        initial_accumulator: 0.0,
    })
}

fn get(client: &Client, tag: TableTag, key: u64) -> Result<()> {
    let mut row = [0.0_f32; DIM];
    let target = Target::Memory { rows: row.as_mut_ptr(), capacity: DIM };
    // SAFETY: key and row outlive the call, which returns when the request is over.
    unsafe { client.call(&Request::Get { table: tag, keys: &[key], target }) }
}

fn update(client: &Client, tag: TableTag, key: u64) -> Result<()> {
    let row = [1.0_f32; DIM];
    let gradients = Rows::Flat { rows: row.as_ptr(), count: DIM };
    // SAFETY: as in `get`.
    unsafe { client.call(&Request::UpdateFlat { table: tag, keys: &[key], gradients }) }
}

fn key_of(client: &Client, shard: u32) -> u64 {
    (0..).find(|key| client.shard_of(*key) == shard).unwrap_or(0)
}

fn until(what: &str, mut done: impl FnMut() -> bool) -> Result<Tick> {
    let start = now();
    while !done() {
        if now() >= start.after(PATIENCE) {
            return Err(Error::new(Status::WaitTimeout, format!("{what} did not happen within {PATIENCE:?}")));
        }
        pause(LOOK);
    }
    Ok(now())
}

fn ms(from: Tick, to: Tick) -> f64 {
    Duration::from_nanos(to.since_ns(from)).as_secs_f64() * 1e3
}

fn median(mut values: Vec<f64>) -> f64 {
    values.sort_by(f64::total_cmp);
    values.get(values.len() / 2).copied().unwrap_or(f64::NAN)
}

/// From the signal to the last client's error.
fn detection(deployment: &Deployment, clients: &[(Client, TableTag)], signal: libc::c_int) -> Result<f64> {
    let key = key_of(&clients[0].0, 1);
    let (warm, stop) = (AtomicU64::new(0), AtomicBool::new(false));
    let work = |(client, tag): &(Client, TableTag)| {
        let mut first = true;
        while !stop.load(Ordering::Relaxed) && get(client, *tag, key).is_ok() {
            warm.fetch_add(u64::from(core::mem::take(&mut first)), Ordering::Relaxed);
        }
        now()
    };
    std::thread::scope(|scope| {
        let callers: Vec<_> = clients.iter().map(|client| scope.spawn(|| work(client))).collect();
        let warmed = until("traffic", || warm.load(Ordering::Relaxed) == clients.len() as u64);
        let at = deployment.shards[1].signal(signal);
        stop.store(warmed.is_err(), Ordering::Relaxed);
        let last = callers.into_iter().filter_map(|caller| caller.join().ok()).max().unwrap_or(at);
        warmed.map(|_| ms(at, last))
    })
}

fn whole(client: &Client) -> bool {
    (0..8).all(|lane| client.lane(lane / 4, lane % 4).is_ok_and(|info| info.state == LaneState::Active))
}

/// From a lane's error under load to all lanes, and the requests that failed meanwhile.
fn lane_error(client: &Client, tag: TableTag, round: usize) -> Result<(f64, u64)> {
    let (stop, lost, done) = (AtomicBool::new(false), AtomicU64::new(0), AtomicU64::new(0));
    let key = key_of(client, 0);
    let taken = std::thread::scope(|scope| {
        for caller in 0..2_u64 {
            let (stop, lost, done) = (&stop, &lost, &done);
            scope.spawn(move || {
                while !stop.load(Ordering::Relaxed) {
                    lost.fetch_add(u64::from(update(client, tag, key + caller).is_err()), Ordering::Relaxed);
                    done.fetch_add(1, Ordering::Relaxed);
                }
            });
        }
        let measured = until("traffic", || done.load(Ordering::Relaxed) > 100).and_then(|_| {
            let at = now();
            client.break_lane(0, u32::try_from(round % 4).unwrap_or(0))?;
            Ok(ms(at, until("all lanes", || whole(client))?))
        });
        stop.store(true, Ordering::Relaxed);
        measured
    })?;
    Ok((taken, lost.load(Ordering::Relaxed)))
}

/// Median time of one request in nanoseconds.
fn turn(client: &Client, tag: TableTag, request: fn(&Client, TableTag, u64) -> Result<()>) -> Result<f64> {
    let key = key_of(client, 0);
    let mut times = Vec::with_capacity(TURN);
    for _ in 0..TURN {
        let start = now();
        request(client, tag, key)?;
        times.push(now().since_ns(start) as f64);
    }
    Ok(median(times))
}

/// How much slower a GET and an UPDATE of one row are at `one` than at `other`: medians of ratios of neighbouring turns.
fn overhead(one: &Client, other: &Client, rounds: usize) -> Result<f64> {
    let tags = (table(one)?, table(other)?);
    let mut ratios = [Vec::new(), Vec::new()];
    for _ in 0..rounds {
        for (ratios, request) in ratios.iter_mut().zip([get as fn(&Client, TableTag, u64) -> Result<()>, update]) {
            ratios.push(turn(one, tags.0, request)? / turn(other, tags.1, request)?);
        }
    }
    let [gets, updates] = ratios;
    Ok(median(gets).max(median(updates)))
}

/// Measures and prints.
///
/// # Errors
/// What cannot be started, or does not happen in a minute.
pub fn run(arguments: &Arguments) -> Result<()> {
    let rounds = arguments.rounds.max(1);
    let (mut kills, mut stops, mut restarts, mut lanes, mut lost) = (vec![], vec![], vec![], vec![], 0);
    let mut deployment = Deployment::start(&[])?;
    let healing = deployment.client(&[])?;
    let tag = table(&healing)?;
    let failing = (0..arguments.clients.max(1))
        .map(|_| {
            let client = deployment.client(&[("request-retry", "off")])?;
            let tag = table(&client)?;
            Ok((client, tag))
        })
        .collect::<Result<Vec<_>>>()?;
    for round in 0..rounds {
        let (taken, errors) = lane_error(&healing, tag, round)?;
        lanes.push(taken);
        lost += errors;
        stops.push(detection(&deployment, &failing, libc::SIGSTOP)?);
        deployment.shards[1].signal(libc::SIGCONT);
        until("all lanes", || failing.iter().all(|(client, _)| whole(client)))?;
        kills.push(detection(&deployment, &failing, libc::SIGKILL)?);
        let started = now();
        let changes = deployment.changes.clone();
        let success = std::thread::scope(|scope| {
            let caller = scope.spawn(|| table(&healing).map(|_| now()));
            deployment.shards[1] = Shard::start(&changes, 1)?.0;
            caller.join().unwrap_or_else(|_| Err(Error::new(Status::Bug, "the caller panicked")))
        })?;
        restarts.push(ms(started, success));
        until("all lanes", || whole(&healing) && failing.iter().all(|(client, _)| whole(client)))?;
        failing.iter().try_for_each(|(client, _)| table(client).map(drop))?;
    }
    let once = overhead(&healing, &failing[0].0, rounds)?;
    let checked = Deployment::start(&[("integrity", "crc32c")])?;
    let crc = overhead(&checked.client(&[("request-retry", "off")])?, &failing[0].0, rounds)?;
    let figures = [
        ("sigkill_detect_p50_ms", median(kills)),
        ("sigstop_detect_p50_ms", median(stops)),
        ("restart_to_success_p50_ms", median(restarts)),
        ("lane_error_to_full_capacity_p50_ms", median(lanes)),
        ("requests_lost", lost as f64),
        ("exactly_once_overhead_ratio", once),
        ("crc_overhead_ratio", crc),
    ];
    if arguments.json {
        let object: serde_json::Map<String, serde_json::Value> =
            figures.iter().map(|(name, value)| ((*name).to_owned(), serde_json::json!(value))).collect();
        println!("{}", serde_json::Value::Object(object));
    } else {
        figures.iter().for_each(|(name, value)| println!("{name:36} {value:10.3}"));
    }
    Ok(())
}
