//! `reclane bench checkpoint`: how long requests wait for one, and how close copying, writing and restoring come to what
//! this machine's memory and this directory's file system do at best, in the same run.

use super::report::Series;
use reclane::checkpoint::disk::RealDisk;
use reclane::checkpoint::{Catalog, Manifest};
use reclane::engine::{CheckpointState, CheckpointStatus, Client, Request, Rows, Server, builtin_store};
use reclane::error::{Error, Result, Status};
use reclane::ids::TableTag;
use reclane::options::{Options, Settings, Side};
use reclane::sync::Arc;
use reclane::time::now;
use reclane::wire::payload::{Optimizer, TableSpec};
use serde_json::json;
use std::fs::File;
use std::os::fd::AsRawFd;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::time::Duration;

/// Checkpoints of one shard in this process: pause, capture beside memcpy, writing and restoring beside plain files.
#[derive(clap::Args, Debug)]
pub struct Arguments {
    /// Size of the table in MiB.
    #[arg(long, default_value_t = 256)]
    table_mib: u64,
    /// Rounds; figures are medians over them.
    #[arg(long, default_value_t = 7)]
    rounds: usize,
    /// Where checkpoints are written; a directory of this run is made in it and removed.
    #[arg(long, default_value = ".")]
    directory: PathBuf,
    /// Print one JSON object.
    #[arg(long)]
    json: bool,
}

const ROW_BYTES: u64 = 256;
const PIECE: usize = 1 << 20;

#[derive(Default)]
struct Figures {
    pause_ms: Series,
    capture: Series,
    write: Series,
    restore: Series,
    changed: Series,
    memcpy_gbs: Series,
    disk_write_gbs: Series,
    disk_read_gbs: Series,
}

fn settings(side: Side, directory: &Path, port: u16, restore: &str) -> Result<Settings> {
    let mut options = Options::new();
    let namespace = format!("bench-checkpoint-{}", std::process::id());
    let directory = directory.to_str().unwrap_or_default();
    for (name, value) in [
        ("rdma-namespace", namespace.as_str()),
        ("rdma-control-plane-port", &port.to_string()),
        ("checkpoint-directory", directory),
        ("checkpoint-restore", restore),
        ("checkpoint-full-every", "1000"),
        ("checkpoint-writers", "2"),
        ("qps-per-client-per-shard", "2"),
        ("poll-spin-iterations", "0"),
        ("rdma-rc-wait-spin-iterations", "0"),
    ] {
        options.set(name, value)?;
    }
    options.settings(side)
}

fn io(error: &std::io::Error) -> Box<Error> {
    Error::new(Status::OsError, format!("the yardstick of the disk: {error}"))
}

fn seconds<T>(work: impl FnOnce() -> Result<T>) -> Result<(f64, T)> {
    let started = now();
    let value = work()?;
    Ok((now().since_ns(started) as f64 / 1e9, value))
}

/// Plain writing in pieces with one sync, then plain reading of what is not in the cache any more; bytes per second.
fn disk(directory: &Path, bytes: u64) -> Result<(f64, f64)> {
    let path = directory.join("yardstick");
    // Not zeros, which some file systems do not write.
    let piece: Vec<u8> = (0..PIECE).map(|i| ((i * 31) >> 3).to_le_bytes()[0] | 1).collect();
    let pieces = bytes / PIECE as u64;
    let (write, file) = seconds(|| {
        let file =
            File::options().read(true).write(true).create(true).truncate(true).open(&path).map_err(|e| io(&e))?;
        for at in 0..pieces {
            file.write_all_at(&piece, at * PIECE as u64).map_err(|e| io(&e))?;
        }
        file.sync_data().map_err(|e| io(&e))?;
        Ok(file)
    })?;
    forget(&file);
    let mut into = vec![1; PIECE];
    let (read, ()) = seconds(|| {
        (0..pieces).try_for_each(|at| file.read_exact_at(&mut into, at * PIECE as u64)).map_err(|e| io(&e))
    })?;
    std::fs::remove_file(&path).map_err(|e| io(&e))?;
    Ok((bytes as f64 / write, bytes as f64 / read))
}

/// Asks the system to drop a file from its cache.
fn forget(file: &File) {
    // SAFETY: the descriptor is open; advice changes no contents.
    unsafe { libc::posix_fadvise(file.as_raw_fd(), 0, 0, libc::POSIX_FADV_DONTNEED) };
}

/// One thread, between two buffers that were touched before; bytes per second.
fn memcpy(from: &[u8], to: &mut [u8]) -> Result<f64> {
    let (taken, ()) = seconds(|| {
        to.copy_from_slice(from);
        std::hint::black_box(&to);
        Ok(())
    })?;
    Ok(from.len() as f64 / taken)
}

fn put(client: &Client, table: TableTag, keys: &[u64], value: f32) -> Result<()> {
    let dim = usize::try_from(ROW_BYTES / 4).unwrap_or(64);
    for part in keys.chunks(256) {
        let rows: Vec<f32> =
            part.iter().flat_map(|key| (0..dim).map(move |i| value + *key as f32 + i as f32)).collect();
        let rows = Rows::Flat { rows: rows.as_ptr(), count: rows.len() };
        // SAFETY: keys and rows outlive the call.
        unsafe { client.call(&Request::Put { table, keys: part, rows }) }?;
    }
    Ok(())
}

fn take(client: &Client, full: bool) -> Result<CheckpointStatus> {
    let number = client.checkpoint_begin(full, None)?;
    client.checkpoint_wait(number, CheckpointState::Committed, Duration::from_secs(600))
}

fn manifest(directory: &Path, epoch: u64) -> Result<Manifest> {
    let all = Catalog::new(directory).list(&RealDisk)?;
    all.into_iter()
        .find(|found| found.epoch == epoch)
        .and_then(|found| found.manifest.ok().flatten())
        .ok_or_else(|| Error::new(Status::Bug, format!("checkpoint {epoch} was committed and is not there")))
}

fn start(directory: &Path, restore: &str) -> Result<(Server, Client)> {
    let settings_of = settings(Side::Server, directory, 0, restore)?;
    let server = Server::start(&settings_of, Arc::new(builtin_store(&settings_of)?))?;
    let port = server.control_plane_port().unwrap_or(0);
    let client = Client::open(&settings(Side::Client, directory, port, "off")?)?;
    Ok((server, client))
}

pub fn run(arguments: &Arguments) -> Result<()> {
    let directory = arguments.directory.join(format!("reclane-bench-checkpoint-{}", std::process::id()));
    std::fs::create_dir_all(&directory).map_err(|e| io(&e))?;
    let done = measure(arguments, &directory);
    let _ = std::fs::remove_dir_all(&directory);
    report(arguments, &done?);
    Ok(())
}

fn measure(arguments: &Arguments, directory: &Path) -> Result<Figures> {
    let bytes = arguments.table_mib << 20;
    let keys: Vec<u64> = (0..bytes / ROW_BYTES).collect();
    let spec = TableSpec {
        name: "bench".to_owned(),
        num_embeddings: keys.len() as u64,
        dim: u32::try_from(ROW_BYTES / 4).unwrap_or(64),
        optimizer: Optimizer::Sgd,
        learning_rate: 1.0,
        epsilon: 0.0,
        initial_accumulator: 0.0,
    };
    let (server, client) = start(directory, "off")?;
    let table = client.init_table(&spec)?;
    put(&client, table, &keys, 0.0)?;
    let size = usize::try_from(bytes).unwrap_or(usize::MAX);
    let (from, mut to) = (vec![3_u8; size], vec![1_u8; size]);
    // The first one touches the memory of the copy.
    take(&client, true)?;
    let mut figures = Figures::default();
    for round in 0..arguments.rounds {
        let memory = memcpy(&from, &mut to)?;
        let (write, read) = disk(directory, bytes)?;
        let status = take(&client, true)?;
        let timing = manifest(directory, status.epoch)?.timing;
        figures.pause_ms.0.push(status.hold_ns as f64 / 1e6);
        figures.capture.0.push(bytes as f64 / (timing.capture_ns as f64 / 1e9) / memory);
        figures.write.0.push(status.state_bytes as f64 / ((status.total_ns - status.hold_ns) as f64 / 1e9) / write);
        figures.memcpy_gbs.0.push(memory / 1e9);
        figures.disk_write_gbs.0.push(write / 1e9);
        figures.disk_read_gbs.0.push(read / 1e9);
        // One row in a hundred, all in one place.
        put(&client, table, &keys[..keys.len() / 100], round as f32 + 1.0)?;
        let changed = take(&client, false)?;
        figures.changed.0.push(changed.written_bytes as f64 / changed.state_bytes as f64);
    }
    drop(client);
    server.stop(Duration::from_secs(60))?;
    for _ in 0..arguments.rounds.min(3) {
        let (_, read) = disk(directory, bytes)?;
        for file in walk(directory) {
            forget(&File::open(file).map_err(|e| io(&e))?);
        }
        let (taken, (server, client)) = seconds(|| start(directory, "require"))?;
        figures.restore.0.push(bytes as f64 / taken / read);
        drop(client);
        server.stop(Duration::from_secs(60))?;
    }
    Ok(figures)
}

/// All containers below a directory.
fn walk(directory: &Path) -> Vec<PathBuf> {
    let entries = |path: &Path| std::fs::read_dir(path).into_iter().flatten().flatten().map(|entry| entry.path());
    entries(directory).flat_map(|path| entries(&path).collect::<Vec<_>>()).filter(|path| path.is_file()).collect()
}

fn report(arguments: &Arguments, figures: &Figures) {
    let rows = [
        ("pause_p50_ms", &figures.pause_ms, "ms that requests wait for one, at most"),
        ("capture_fraction_of_memcpy", &figures.capture, "of what one thread copies"),
        ("write_fraction_of_disk", &figures.write, "of plain writing with one sync; hashing and checksums included"),
        ("restore_fraction_of_disk", &figures.restore, "of plain reading; start, both readings and filling included"),
        ("incremental_fraction_written", &figures.changed, "of the state, when one row in a hundred has changed"),
        ("memcpy_gbs", &figures.memcpy_gbs, "yardstick, GB/s"),
        ("disk_write_gbs", &figures.disk_write_gbs, "yardstick, GB/s"),
        ("disk_read_gbs", &figures.disk_read_gbs, "yardstick, GB/s"),
    ];
    if arguments.json {
        let mut value = json!({ "table_mib": arguments.table_mib, "rounds": arguments.rounds });
        for (name, series, _) in rows {
            value[name] = json!(series.median());
            let (low, high) = spread(series);
            value[format!("{name}_min")] = json!(low);
            value[format!("{name}_max")] = json!(high);
        }
        println!("{value}");
        return;
    }
    println!("one shard, {} MiB, {} rounds: median (least to most)", arguments.table_mib, arguments.rounds);
    for (name, series, meaning) in rows {
        let (low, high) = spread(series);
        println!("  {name:<30} {:>9.3}  ({low:.3} to {high:.3})  {meaning}", series.median());
    }
}

fn spread(series: &Series) -> (f64, f64) {
    series.0.iter().fold((f64::INFINITY, f64::NEG_INFINITY), |(low, high), value| (low.min(*value), high.max(*value)))
}
