//! Jobs of ranks, in one process or in several.

use reclane::engine::{OwnRegion, Place, Rank};
use reclane::fabric::Access;
use reclane::options::{Options, Settings, Side};
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use std::time::Duration;

#[path = "../common/directory.rs"]
mod directory;
#[path = "../common/fabric.rs"]
mod fabric;
#[path = "../common/process.rs"]
#[allow(dead_code)] // shared: not every test uses all of it
mod process;
pub use directory::Directory;
pub use process::*;

/// A test that waits this long for something hangs.
pub const PATIENCE: Duration = Duration::from_secs(60);

/// A job's options: a name of its own.
pub fn options(ranks: u32) -> Changes {
    static NEXT: AtomicU32 = AtomicU32::new(0);
    let name = format!("ranks-{}-{}", std::process::id(), NEXT.fetch_add(1, Ordering::Relaxed));
    vec![
        ("rdma-namespace".into(), name),
        ("num-server-processes".into(), ranks.to_string()),
        ("rdma-control-plane-port".into(), "0".into()),
        // Few cores: who finds nothing to do should let the others run.
        ("poll-spin-iterations".into(), "50".into()),
    ]
}

pub fn settings(changes: &[(String, String)]) -> Settings {
    let mut options = Options::new();
    let rank = changes.iter().rev().find(|(name, _)| name == "shard-id");
    fabric::set_given(&mut options, rank.and_then(|(_, rank)| rank.parse().ok()).unwrap_or(0));
    for (name, value) in changes {
        options.set(name, value).expect("a valid option");
    }
    options.settings(Side::Server).expect("valid options")
}

/// All ranks of a job in this process; the last is dropped first, for rank 0 stays until the others have left.
pub fn job(changes: &[(String, String)], ranks: u32) -> Vec<Rank> {
    let first = Rank::open(&settings(changes)).expect("rank 0");
    let joined = with(changes, "rdma-control-plane-port", first.control_plane_port());
    let mut all = vec![first];
    for rank in 1..ranks {
        all.push(Rank::open(&settings(&with(&joined, "shard-id", rank))).expect("a rank"));
    }
    all
}

pub fn end(mut ranks: Vec<Rank>) {
    while ranks.pop().is_some() {}
}

pub fn at(rank: u32, region: u32, offset: u64) -> Place {
    Place { rank, region, offset }
}

/// A word of a region that peers may change.
pub fn word(region: &OwnRegion, index: usize) -> &AtomicU64 {
    assert!((index + 1) * 8 <= region.bytes());
    // SAFETY: aligned and inside the region, which the borrow keeps; shared memory is touched atomically.
    unsafe { AtomicU64::from_ptr(region.data().cast::<u64>().add(index)) }
}

pub fn write(rank: &Rank, to: Place, bytes: &[u8]) -> reclane::error::Result<()> {
    // SAFETY: the slice lives during the call.
    unsafe { rank.write(to, bytes.as_ptr(), u32::try_from(bytes.len()).expect("short")) }
}

pub fn read(rank: &Rank, from: Place, bytes: usize) -> reclane::error::Result<Vec<u8>> {
    let mut into = vec![0; bytes];
    // SAFETY: the vector lives during the call.
    unsafe { rank.read(from, into.as_mut_ptr(), u32::try_from(bytes).expect("short")) }?;
    Ok(into)
}

pub const ALL: Access = Access::ALL;

/// Descriptors and threads that only the fabric makes.
pub fn of_the_fabric(process: &Process) -> Vec<String> {
    let of = format!("/proc/{}", process.pid());
    let entries = |what: &str| std::fs::read_dir(format!("{of}/{what}")).expect("its entries").flatten();
    let links = entries("fd").filter_map(|entry| std::fs::read_link(entry.path()).ok());
    let links = links.map(|link| link.display().to_string()).filter(|link| link.contains("memfd:reclane"));
    let threads = entries("task").filter_map(|task| std::fs::read_to_string(task.path().join("comm")).ok());
    let threads = threads.filter(|name| name.starts_with("reclane-shm") || name.starts_with("reclane-atomics"));
    // Names of sockets are in the kernel's list, with the inode that the descriptor shows.
    let unix = std::fs::read_to_string(format!("{of}/net/unix")).unwrap_or_default();
    let inodes: Vec<String> = entries("fd")
        .filter_map(|entry| std::fs::read_link(entry.path()).ok()?.to_str().map(str::to_owned))
        .filter_map(|link| link.strip_prefix("socket:[").map(|rest| rest.trim_end_matches(']').to_owned()))
        .collect();
    let named = unix.lines().filter(|line| line.contains('@') && line.contains("reclane"));
    let named = named.filter(|line| line.split_whitespace().nth(6).is_some_and(|i| inodes.iter().any(|x| x == i)));
    links.chain(threads.map(|name| name.trim().to_owned())).chain(named.map(str::to_owned)).collect()
}

/// Whether a process holds about as much as before; some things of the last one go moments later.
pub fn hardly_more(before: &Holdings, after: &Holdings) -> bool {
    after.descriptors <= before.descriptors + 2 && after.shared_mappings <= before.shared_mappings + 2
}
