//! `reclane bench --fabric verbs`: GETs over RDMA devices, beside what perftest measures on the same devices in the same
//! run. Times mean something for the host they were taken on; the ratio is what can be compared.

use super::clock::Clock;
use super::report::{Arguments, Series};
use super::service::{Changes, Shard};
use super::workload::{Kind, Run, Table, Workload};
use reclane::engine::Client;
use reclane::error::{Error, Result, Status};
use reclane::fabric::verbs::{GidKind, PortInfo, devices};
use serde_json::{Map, Value, json};
use std::process::{Command, Stdio};

/// GETs of one turn, and of the turn in which packets are counted.
const TURN_REQUESTS: usize = 2_000;
/// Iterations of perftest's tools.
const WRITES: &str = "1000";
/// Bytes of the table: this is about the way, not about memory.
const TABLE_BYTES: u64 = 1 << 20;
/// The kernel keeps counters of devices for some time before it reads them again.
const COUNTER_AGE: core::time::Duration = core::time::Duration::from_millis(50);

/// One end: a device and the place of its address.
#[derive(Clone, Debug)]
struct Side {
    device: String,
    gid_index: u32,
}

/// The first and the last device with an active port; the same one when there is one.
fn sides() -> Result<[Side; 2]> {
    let active: Vec<Side> = devices()?
        .into_iter()
        .filter_map(|device| {
            let port = device.ports.ok()?.into_iter().find(PortInfo::is_active)?;
            let is_four = |gid: &[u8; 16]| gid[..12] == [0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xff, 0xff];
            let of_kind = |gid: &&reclane::fabric::verbs::GidInfo| gid.kind == Some(GidKind::RoceV2);
            let gid = port.gids.iter().filter(of_kind).min_by_key(|gid| (!is_four(&gid.gid), gid.index));
            Some(Side { device: device.name, gid_index: gid.or(port.gids.first())?.index })
        })
        .collect();
    match (active.first(), active.last()) {
        (Some(first), Some(last)) => Ok([first.clone(), last.clone()]),
        _ => Err(Error::new(Status::FabricUnavailable, "bench --fabric verbs: no device has an active port")),
    }
}

/// Packets that a device has sent; None where it does not count them.
fn packets_sent(device: &str) -> Option<u64> {
    let folder = format!("/sys/class/infiniband/{device}/ports/1");
    ["hw_counters/sent_pkts", "counters/port_xmit_packets"]
        .iter()
        .find_map(|name| std::fs::read_to_string(format!("{folder}/{name}")).ok()?.trim().parse().ok())
}

/// A tool of perftest between the two sides: the number at `column` of its last line of figures.
fn perftest(tool: &str, sides: &[Side; 2], bytes: &str, column: usize) -> Option<f64> {
    let port = (20_000 + std::process::id() % 20_000).to_string();
    let command = |side: &Side| {
        let mut command = Command::new(tool);
        command.args([
            "-F",
            "-d",
            &side.device,
            "-x",
            &side.gid_index.to_string(),
            "-s",
            bytes,
            "-n",
            WRITES,
            "-p",
            &port,
        ]);
        command.stdin(Stdio::null()).stderr(Stdio::null());
        command
    };
    let mut server = command(&sides[0]).stdout(Stdio::null()).spawn().ok()?;
    let mut figure = None;
    // The server listens some time after it was started.
    for _ in 0..50 {
        reclane::time::pause(core::time::Duration::from_millis(200));
        let output = command(&sides[1]).arg("127.0.0.1").output().ok()?;
        let text = String::from_utf8_lossy(&output.stdout).into_owned();
        let figures = |line: &&str| line.split_whitespace().next() == Some(bytes);
        let line = text.lines().rfind(figures).unwrap_or("");
        figure = line.split_whitespace().nth(column).and_then(|number| number.parse().ok());
        if figure.is_some() {
            break;
        }
    }
    if figure.is_none() {
        // It waits for ever for a client that failed.
        let _ = server.kill();
    }
    let _ = server.wait();
    figure
}

/// Options of a shard and its clients; `scheme` comes with what it needs.
fn changes(arguments: &Arguments, sides: &[Side; 2], scheme: &[(&str, &str)]) -> Changes {
    let fixed = [
        ("fabric", "verbs"),
        ("rdma-device", sides[0].device.as_str()),
        ("qps-per-client-per-shard", "1"),
        ("slots-per-qp", "4"),
        ("request-slot-bytes", "131072"),
        ("response-slot-bytes", "131072"),
        ("max-kv-num-per-request", "1024"),
        // Enough for requests that follow each other; while perftest runs, the shard naps. It is not stopped for that
        // time, which may be longer than its control plane and its client wait for each other.
        ("poll-spin-iterations", "20000"),
        ("rdma-rc-wait-spin-iterations", "100000000"),
    ];
    let given = arguments.set.iter().filter_map(|pair| pair.split_once('='));
    fixed.iter().chain(scheme).copied().chain(given).map(|(name, value)| (name.to_owned(), value.to_owned())).collect()
}

/// Scheme `single`, whatever the device promises. Where it promises nothing, answers may be torn, and then a request
/// fails: Soft-RoCE of kernels from 6.4 on copies some writes backwards on processors without fast short `rep movsb`.
const VOUCHED: [(&str, &str); 2] = [("commit-scheme", "single"), ("rdma-data-in-order", "yes")];
/// Turns that may meet a torn answer before the count is given up.
const TURNS_MAX: u32 = 20;

/// Counts the writes of one GET until a turn was not disturbed by a torn answer; `torn` counts those that were.
fn count_writes(mut run: Run<'_>, sides: &[Side; 2], torn: &mut u32) -> Result<Option<f64>> {
    for _ in 0..TURNS_MAX {
        match writes_per_get(&mut run, sides) {
            Err(error) if error.status == Status::CorruptResponse => *torn += 1,
            counted => return counted,
        }
    }
    Ok(None)
}

/// Writes per GET by the devices' own counters: every packet of either side is a write, as long as one fits a packet, or
/// its acknowledgement.
fn writes_per_get(run: &mut Run<'_>, sides: &[Side; 2]) -> Result<Option<f64>> {
    let total = || -> Option<u64> {
        reclane::time::pause(COUNTER_AGE);
        let (first, last) = (packets_sent(&sides[0].device)?, packets_sent(&sides[1].device)?);
        Some(if sides[0].device == sides[1].device { first } else { first + last })
    };
    let before = total();
    run.chunk(TURN_REQUESTS)?;
    #[allow(clippy::cast_precision_loss)] // some thousands
    let packets = before.zip(total()).map(|(before, after)| after.wrapping_sub(before) as f64);
    #[allow(clippy::cast_precision_loss)] // as above
    Ok(packets.map(|packets| (packets / 2.0 / TURN_REQUESTS as f64 * 100.0).round() / 100.0))
}

/// Measures and prints.
///
/// # Errors
/// What the devices, the shard or a request refuse.
#[allow(clippy::cast_precision_loss)] // nanoseconds
pub fn run(arguments: &Arguments) -> Result<()> {
    let sides = sides()?;
    let clock = Clock::calibrate();
    let mut figures = Map::new();
    let (mut get, mut ratio, mut write) = (Series::default(), Series::default(), Series::default());
    let mut put = |name: &str, value: Option<f64>| {
        figures.insert(name.into(), value.filter(|value| value.is_finite()).map_or(Value::Null, |value| json!(value)));
    };
    let get_of = |rows, row_bytes| Workload { kind: Kind::Get, rows, row_bytes, depth: 1 };
    {
        // Times with the scheme that a deployment on these devices gets.
        let (shard, client) = deployment(arguments, &sides, &[])?;
        let table = Table::fill(&client, "verbs", 64, TABLE_BYTES)?;
        let run = |workload| Run::new(&client, &table, workload, clock);
        for _ in 0..arguments.rounds.clamp(1, 3) {
            let lat_us = perftest("ib_write_lat", &sides, "64", 4);
            let (latencies, _) = run(get_of(1, 64)).chunk(TURN_REQUESTS)?;
            let p50 = latencies.quantile(0.5) as f64;
            get.0.push(p50);
            if let Some(us) = lat_us {
                write.0.push(us * 1000.0);
                ratio.0.push(p50 / (2.0 * us * 1000.0));
            }
        }
        put("verbs_get_1x64_d1_p50_ns", Some(get.median()));
        put("verbs_write_lat_64_ns", Some(write.median()));
        put("ratio_verbs_get_1x64_d1_to_two_writes", Some((ratio.median() * 1000.0).round() / 1000.0));
        let (latencies, rate) = run(get_of(100, 64)).chunk(TURN_REQUESTS / 4)?;
        put("verbs_get_100x64_d1_p50_ns", Some(latencies.quantile(0.5) as f64));
        put("verbs_get_100x64_d1_per_s", Some(rate.round()));
        put("verbs_write_bw_65536_mib_per_s", perftest("ib_write_bw", &sides, "65536", 3));
        drop((client, shard));
    }
    let (shard, client) = deployment(arguments, &sides, &VOUCHED)?;
    let mut torn = 0;
    let table = fill(&client, "verbs", 64, &mut torn)?;
    let narrow = fill(&client, "verbs-narrow", 16, &mut torn)?;
    let mut count = |table, workload| count_writes(Run::new(&client, table, workload, clock), &sides, &mut torn);
    put("verbs_writes_per_get", count(&narrow, get_of(1, 16))?);
    put("verbs_writes_per_get_1x64", count(&table, get_of(1, 64))?);
    // More keys than a header holds, and an answer of several lines in one packet.
    put("verbs_writes_per_get_8x64", count(&table, get_of(8, 64))?);
    put("verbs_single_torn_answers", Some(f64::from(torn)));
    drop((client, shard));
    figures.insert("verbs_devices".into(), json!([sides[0].device, sides[1].device]));
    if arguments.json {
        println!("{}", Value::Object(figures));
    } else {
        figures.iter().for_each(|(name, value)| println!("{name}: {value}"));
    }
    Ok(())
}

/// A filled table where answers may be torn.
fn fill(client: &Client, name: &str, row_bytes: usize, torn: &mut u32) -> Result<Table> {
    loop {
        match Table::fill(client, name, row_bytes, TABLE_BYTES) {
            Err(error) if error.status == Status::CorruptResponse && *torn < TURNS_MAX => *torn += 1,
            filled => return filled,
        }
    }
}

/// A shard on the first device and a client on the other one.
fn deployment(arguments: &Arguments, sides: &[Side; 2], scheme: &[(&str, &str)]) -> Result<(Shard, Client)> {
    let mut shard = Shard::start(changes(arguments, sides, scheme), None)?;
    shard.changes.push(("rdma-device".to_owned(), sides[1].device.clone()));
    let client = shard.client()?;
    Ok((shard, client))
}
