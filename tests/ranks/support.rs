//! Jobs of ranks, in one process or in several.

use reclane::checkpoint::Catalog;
use reclane::checkpoint::disk::RealDisk;
use reclane::engine::{OwnRegion, Place, Rank};
use reclane::fabric::Access;
use reclane::options::{Options, Settings, Side};
use std::io::{BufRead, BufReader, Lines, Write};
use std::path::PathBuf;
use std::process::{ChildStdin, ChildStdout, Command, Stdio};
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use std::time::Duration;

/// A test that waits this long for something hangs.
pub const PATIENCE: Duration = Duration::from_secs(60);
pub const ROLE: &str = "RECLANE_TEST_ROLE";
pub const OPTIONS: &str = "RECLANE_TEST_OPTIONS";
/// Begins each line that a child means for its parent: the test harness writes lines too.
pub const MARK: &str = "@ ";

pub type Changes = Vec<(String, String)>;

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

pub fn with(changes: &[(String, String)], name: &str, value: impl ToString) -> Changes {
    let mut all: Changes = changes.iter().filter(|(known, _)| known != name).cloned().collect();
    all.push((name.to_owned(), value.to_string()));
    all
}

pub fn settings(changes: &[(String, String)]) -> Settings {
    let mut options = Options::new();
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

/// A directory of this test; gone afterwards.
pub struct Directory(PathBuf);

impl Directory {
    pub fn new() -> Directory {
        static NEXT: AtomicU32 = AtomicU32::new(0);
        let number = NEXT.fetch_add(1, Ordering::Relaxed);
        let path = std::env::temp_dir().join(format!("reclane-ranks-{}-{number}", std::process::id()));
        std::fs::create_dir_all(&path).expect("a directory");
        Directory(path)
    }

    pub fn path(&self) -> &str {
        self.0.to_str().expect("UTF-8")
    }

    pub fn catalog(&self) -> Catalog {
        Catalog::new(self.path())
    }

    /// Epochs that are committed, newest first.
    pub fn committed(&self) -> Vec<u64> {
        let all = self.catalog().list(&RealDisk).expect("a list");
        all.iter().filter(|found| matches!(found.manifest, Ok(Some(_)))).map(|found| found.epoch).collect()
    }
}

impl Drop for Directory {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

/// Another process of the test; killed when dropped.
pub struct Process {
    child: std::process::Child,
    input: ChildStdin,
    output: Lines<BufReader<ChildStdout>>,
}

impl Process {
    pub fn start(role: &str, changes: &[(String, String)]) -> Process {
        let lines: Vec<String> = changes.iter().map(|(name, value)| format!("{name}={value}")).collect();
        let mut child = Command::new(std::env::current_exe().expect("own program"))
            .args(["child", "--exact", "--nocapture"])
            .env(ROLE, role)
            .env(OPTIONS, lines.join("\n"))
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .expect("a process");
        let input = child.stdin.take().expect("stdin");
        let output = BufReader::new(child.stdout.take().expect("stdout")).lines();
        Process { child, input, output }
    }

    /// What the child says next.
    pub fn hear(&mut self) -> String {
        let mut said = self.output.by_ref().map_while(Result::ok);
        said.find_map(|line| line.strip_prefix(MARK).map(str::to_owned)).expect("the child says something")
    }

    /// What the child says next; none when it has ended.
    pub fn try_hear(&mut self) -> Option<String> {
        let mut said = self.output.by_ref().map_while(Result::ok);
        said.find_map(|line| line.strip_prefix(MARK).map(str::to_owned))
    }

    /// Everything that it says until it ends.
    pub fn last_words(&mut self) -> Vec<String> {
        core::iter::from_fn(|| self.try_hear()).collect()
    }

    /// As `tell`, to one that may have ended.
    pub fn try_tell(&mut self, what: &str) {
        let _ = writeln!(self.input, "{what}");
    }

    /// Tells it something, and hears the answer.
    pub fn ask(&mut self, what: &str) -> String {
        self.tell(what);
        self.hear()
    }

    pub fn tell(&mut self, what: &str) {
        writeln!(self.input, "{what}").expect("the child listens");
    }

    /// Descriptors, and mappings of the library's memory.
    pub fn holdings(&self) -> (usize, usize) {
        let of = format!("/proc/{}", self.child.id());
        let files = std::fs::read_dir(format!("{of}/fd")).expect("its descriptors").count();
        let maps = std::fs::read_to_string(format!("{of}/maps")).expect("its mappings");
        (files, maps.matches("memfd:reclane").count())
    }

    /// Descriptors and threads that only the fabric makes.
    pub fn of_the_fabric(&self) -> Vec<String> {
        let of = format!("/proc/{}", self.child.id());
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

    fn signal(&self, signal: i32) {
        let pid = libc::pid_t::try_from(self.child.id()).expect("a pid");
        // SAFETY: a plain system call; the process is our child and was not waited for yet.
        assert_eq!(unsafe { libc::kill(pid, signal) }, 0);
    }

    /// SIGSTOP; returns when all of its threads stand still.
    pub fn freeze(&self) {
        self.signal(libc::SIGSTOP);
        let (pid, mut status) = (libc::pid_t::try_from(self.child.id()).expect("a pid"), 0);
        // SAFETY: a plain system call; the process is our child and was not waited for yet.
        let seen = unsafe { libc::waitpid(pid, &raw mut status, libc::WUNTRACED) };
        assert!(seen == pid && libc::WIFSTOPPED(status), "process {pid} ended");
    }

    pub fn thaw(&self) {
        self.signal(libc::SIGCONT);
    }

    pub fn kill(&mut self) {
        self.child.kill().expect("kill");
        self.child.wait().expect("wait");
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
