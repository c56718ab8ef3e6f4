//! What a request may not do: allocate, take a lock, call the system, read the clock. docs/architecture.md ("The hot path") says so,
//! with the exceptions; this counts, at the client's thread and at the server's poll thread.
//!
//! Allocations by a global allocator, clock reads by a `clock_gettime` of our own that is linked before the C library's,
//! both by the name of the thread they happen on. Locks by a hook that debug builds have in `sync`, the only door to
//! them. System calls by strace, between two marks. Each counter is shown to count by something that does what it counts.

#[path = "common/c_client.rs"]
mod c_client;

use c_client::{Client, Kind};
use reclane::engine::{Server, builtin_store};
use reclane::options::{Options, Side};
use reclane::sync::{Arc, AtomicBool, AtomicU64, AtomicUsize, Mutex, Ordering, lock};
use std::alloc::{GlobalAlloc, Layout, System};
use std::process::{Command, Stdio};
use std::time::Duration;

const REQUESTS: u64 = 250;
const WARM_UP: u64 = 50;
/// What is not a matter of requests: a list of the poll thread that grows when a slot comes into use, a lock that two
/// threads want at the same moment on a machine that has too much to do, a wait so long that the control plane is asked.
const RARE: u64 = REQUESTS / 50;

// --- counters -------------------------------------------------------------------------------------------------------

static IS_COUNTING: AtomicBool = AtomicBool::new(false);
/// Set while the client's thread does something of the test's own.
static IS_CLIENT_ASIDE: AtomicBool = AtomicBool::new(false);
static ALLOCATIONS: Counter = Counter::new();
static CLOCK_READS: Counter = Counter::new();
static LOCKS: Counter = Counter::new();
/// The counters belong to the whole process.
static ALONE: Mutex<()> = Mutex::new(());

/// The client's thread in these tests.
const CLIENT_THREAD: &[u8] = b"frugal-client";
const POLL_THREAD: &[u8] = b"reclane-poll-";

struct Counter {
    client: AtomicU64,
    poll: AtomicU64,
}

impl Counter {
    const fn new() -> Counter {
        Counter { client: AtomicU64::new(0), poll: AtomicU64::new(0) }
    }

    /// Counts one for the calling thread, if it is one of the two.
    fn count(&self) {
        if !IS_COUNTING.load(Ordering::Relaxed) {
            return;
        }
        let mut name = [0_u8; 16];
        // SAFETY: writes at most 16 bytes to a place of 16.
        unsafe { libc::prctl(libc::PR_GET_NAME, name.as_mut_ptr()) };
        if name.starts_with(CLIENT_THREAD) && !IS_CLIENT_ASIDE.load(Ordering::Relaxed) {
            self.client.fetch_add(1, Ordering::Relaxed);
        } else if name.starts_with(POLL_THREAD) {
            self.poll.fetch_add(1, Ordering::Relaxed);
        }
    }

    fn take(&self) -> (u64, u64) {
        (self.client.swap(0, Ordering::Relaxed), self.poll.swap(0, Ordering::Relaxed))
    }
}

struct Counting;

#[global_allocator]
static ALLOCATOR: Counting = Counting;

// SAFETY: all is the system allocator's; counting allocates nothing.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        ALLOCATIONS.count();
        // SAFETY: as the caller promises.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, place: *mut u8, layout: Layout) {
        // SAFETY: as the caller promises.
        unsafe { System.dealloc(place, layout) }
    }

    unsafe fn realloc(&self, place: *mut u8, layout: Layout, bytes: usize) -> *mut u8 {
        ALLOCATIONS.count();
        // SAFETY: as the caller promises.
        unsafe { System.realloc(place, layout, bytes) }
    }
}

type ClockGettime = unsafe extern "C" fn(libc::clockid_t, *mut libc::timespec) -> libc::c_int;

/// Stands before the C library's for everything in this program, and passes on to it.
///
/// # Safety
/// As for the C library's: `time` is NULL or can be written.
#[unsafe(no_mangle)]
unsafe extern "C" fn clock_gettime(clock: libc::clockid_t, time: *mut libc::timespec) -> libc::c_int {
    static NEXT: AtomicUsize = AtomicUsize::new(0);
    CLOCK_READS.count();
    let mut next = NEXT.load(Ordering::Relaxed);
    if next == 0 {
        // SAFETY: the name is a C string.
        next = unsafe { libc::dlsym(libc::RTLD_NEXT, c"clock_gettime".as_ptr()) as usize };
        NEXT.store(next, Ordering::Relaxed);
    }
    // SAFETY: it is the C library's function of this name and type, and the rest is as the caller promises.
    unsafe { core::mem::transmute::<usize, ClockGettime>(next)(clock, time) }
}

/// Allocations, clock reads and locks of (client, poll thread) while `work` runs.
fn counted(work: impl FnOnce()) -> [(u64, u64); 3] {
    [&ALLOCATIONS, &CLOCK_READS, &LOCKS].into_iter().for_each(|counter| {
        counter.take();
    });
    IS_COUNTING.store(true, Ordering::SeqCst);
    work();
    IS_COUNTING.store(false, Ordering::SeqCst);
    [&ALLOCATIONS, &CLOCK_READS, &LOCKS].map(Counter::take)
}

// --- what is counted ------------------------------------------------------------------------------------------------

#[derive(Clone, Copy, Debug)]
struct Case {
    kind: Kind,
    keys: usize,
    dim: usize,
}

const ONE_SLOT: [Case; 6] = [
    Case { kind: Kind::Get, keys: 1, dim: 16 },
    Case { kind: Kind::Put, keys: 1, dim: 16 },
    Case { kind: Kind::Update, keys: 1, dim: 16 },
    Case { kind: Kind::Get, keys: 32, dim: 128 },
    Case { kind: Kind::Update, keys: 32, dim: 128 },
    Case { kind: Kind::Get, keys: 200, dim: 32 },
];
/// Several slots each: memory grows to the largest batch seen, then stays.
const BATCHES: [Case; 2] =
    [Case { kind: Kind::Get, keys: 1200, dim: 16 }, Case { kind: Kind::Update, keys: 1200, dim: 16 }];
const KEYS_PER_REQUEST: &str = "500";

/// Neither side ever stops spinning, however slow the machine is.
const TIRELESS: &str = "1073741824";

struct Bed {
    client: Client,
    tables: Vec<(usize, u32)>,
    /// Requests that the server has been sent.
    sent: AtomicU64,
    /// After the client, which leaves first.
    server: Server,
}

impl Bed {
    /// Every request reaches the server.
    fn new(spins: &str) -> Bed {
        Bed::reading(spins, "off")
    }

    /// `reads`: whether GETs need no request.
    fn reading(spins: &str, reads: &str) -> Bed {
        let mut options = vec![
            ("rdma-namespace", format!("frugal-{}-{spins}-{reads}", std::process::id())),
            ("shared-reads", reads.to_owned()),
            ("rdma-control-plane-port", "0".to_owned()),
            ("poll-spin-iterations", spins.to_owned()),
            ("poll-yield-iterations", "1".to_owned()),
            ("rdma-rc-wait-spin-iterations", spins.to_owned()),
            ("max-kv-num-per-request", KEYS_PER_REQUEST.to_owned()),
        ];
        let mut bag = Options::new();
        for (name, value) in &options {
            bag.set(name, value).expect("a valid option");
        }
        let ours = bag.settings(Side::Server).expect("valid options");
        let server = Server::start(&ours, Arc::new(builtin_store(&ours).expect("a store"))).expect("a server");
        options[2].1 = server.control_plane_port().expect("shard 0 has it").to_string();
        let client = Client::open(&options);
        let tables = [16, 32, 128].map(|dim| (dim, client.init_table(dim))).to_vec();
        Bed { client, tables, sent: AtomicU64::new(0), server }
    }

    /// So many requests, one after the other, over keys that were there before.
    fn run(&self, case: Case, memory: &mut Memory, requests: u64) {
        let table = self.tables.iter().find(|(dim, _)| *dim == case.dim).expect("a table of this width").1;
        for _ in 0..requests {
            let (keys, rows) = (&memory.keys[..case.keys], &mut memory.rows[..case.keys * case.dim]);
            self.client.finish(self.client.submit(table, case.kind, keys, rows));
            self.sent.fetch_add(parts_of(case), Ordering::Relaxed);
        }
    }

    /// One request whose answer is there before anybody waits for it: a client that waits reads the clock every 128
    /// turns, and how many turns an answer takes is the machine's affair.
    fn run_answered(&self, case: Case, memory: &mut Memory) {
        let handled = || {
            let handled = self.server.stats().handled;
            handled.gets + handled.puts + handled.updates
        };
        let table = self.tables.iter().find(|(dim, _)| *dim == case.dim).expect("a table of this width").1;
        let (keys, rows) = (&memory.keys[..case.keys], &mut memory.rows[..case.keys * case.dim]);
        self.sent.fetch_add(parts_of(case), Ordering::Relaxed);
        let request = self.client.submit(table, case.kind, keys, rows);
        aside(|| {
            while handled() < self.sent.load(Ordering::Relaxed) {
                std::thread::yield_now();
            }
        });
        self.client.finish(request);
    }

    fn warm_up(&self, memory: &mut Memory) {
        for case in BATCHES.iter().chain(&ONE_SLOT) {
            let put = Case { kind: Kind::Put, ..*case };
            self.run(put, memory, 1);
            self.run(*case, memory, WARM_UP);
        }
    }

    fn stop(self) {
        drop(self.client);
        self.server.stop(Duration::from_secs(60)).expect("an idle server stops");
    }
}

/// Requests of one slot that it becomes.
fn parts_of(case: Case) -> u64 {
    case.keys.div_ceil(KEYS_PER_REQUEST.parse().expect("a number")) as u64
}

struct Memory {
    keys: Vec<u64>,
    rows: Vec<f32>,
}

impl Memory {
    fn new() -> Memory {
        Memory { keys: (0..1200).collect(), rows: vec![1.0; 1200 * 128] }
    }
}

/// Whether locks can be counted: the hook is in debug builds.
fn watch_locks() -> bool {
    #[cfg(debug_assertions)]
    reclane::sync::watch_locks(|| LOCKS.count());
    cfg!(debug_assertions)
}

/// A poll thread publishes its counters once in so many rounds, under a lock.
const PUBLISHED_EVERY: u64 = 1024;

#[test]
fn the_counter_of_locks_counts() {
    let _alone = lock(&ALONE);
    if !watch_locks() {
        println!("skipped: locks per request: the hook that counts them is in debug builds only");
        return;
    }
    as_client(|| {
        let (mutex, shared) = (Mutex::new(0), reclane::sync::RwLock::new(0));
        let [_, _, locks] = counted(|| {
            *lock(&mutex) += 1;
            drop(shared.read());
            drop(shared.write());
        });
        assert_eq!(locks, (3, 0));
        // Every table of the store is in a list behind a lock.
        let bed = Bed::new("0");
        let [_, _, locks] = counted(|| {
            bed.client.init_table(48);
        });
        assert!(locks.1 > 0, "INIT_TABLE took {locks:?} locks");
        bed.stop();
    });
}

/// Something that is not the client's.
fn aside<T>(work: impl FnOnce() -> T) -> T {
    IS_CLIENT_ASIDE.store(true, Ordering::SeqCst);
    let result = work();
    IS_CLIENT_ASIDE.store(false, Ordering::SeqCst);
    result
}

/// On a thread with the client's name.
fn as_client<T: Send + 'static>(work: impl FnOnce() -> T + Send + 'static) -> T {
    let name = String::from_utf8(CLIENT_THREAD.to_vec()).expect("a name");
    let thread = std::thread::Builder::new().name(name).spawn(work).expect("a thread");
    thread.join().expect("the client's thread")
}

#[test]
fn requests_neither_allocate_nor_lock_nor_read_the_clock() {
    let _alone = lock(&ALONE);
    watch_locks();
    as_client(|| {
        let (bed, mut memory) = (Bed::new(TIRELESS), Memory::new());
        bed.warm_up(&mut memory);
        let rounds = || bed.server.stats().scan_rounds;
        for case in ONE_SLOT.iter().chain(&BATCHES) {
            let before = rounds();
            let [allocations, clock_reads, locks] = counted(|| {
                for _ in 0..REQUESTS {
                    bed.run_answered(*case, &mut memory);
                }
            });
            let published = (rounds() - before) / PUBLISHED_EVERY + 2;
            assert_eq!(locks.0, 0, "{case:?}: locks of {REQUESTS} requests at the client");
            assert!(
                locks.1 <= published + RARE,
                "{case:?}: {} locks of the poll thread, {published} to publish",
                locks.1
            );
            assert_eq!(allocations.0, 0, "{case:?}: allocations of {REQUESTS} requests at the client");
            assert!(allocations.1 <= RARE, "{case:?}: {} allocations of the poll thread", allocations.1);
            assert_eq!(clock_reads, (0, 0), "{case:?}: clock reads of {REQUESTS} requests (client, poll thread)");
        }
        bed.stop();
    });
}

#[test]
fn gets_without_a_request_neither_allocate_nor_lock_nor_read_the_clock() {
    let _alone = lock(&ALONE);
    watch_locks();
    as_client(|| {
        let (bed, mut memory) = (Bed::reading(TIRELESS, "auto"), Memory::new());
        bed.warm_up(&mut memory);
        let before = bed.server.stats().handled.gets;
        for case in ONE_SLOT.iter().chain(&BATCHES).filter(|case| case.kind == Kind::Get) {
            let [allocations, clock_reads, locks] = counted(|| bed.run(*case, &mut memory, REQUESTS));
            assert_eq!((allocations.0, clock_reads.0, locks.0), (0, 0, 0), "{case:?}: {REQUESTS} GETs at the client");
        }
        assert_eq!(bed.server.stats().handled.gets, before);
        bed.stop();
    });
}

#[test]
fn the_counters_count() {
    let _alone = lock(&ALONE);
    as_client(|| {
        let [allocations, clock_reads, _] = counted(|| drop(std::hint::black_box(Box::new(7))));
        assert_eq!((allocations, clock_reads), ((1, 0), (0, 0)));
        // The first reading sets the clock's origin.
        let _ = reclane::time::now();
        let [allocations, clock_reads, _] = counted(|| {
            std::hint::black_box(reclane::time::now());
        });
        assert_eq!((allocations, clock_reads), ((0, 0), (1, 0)));
        // Who does not spin reads the clock while waiting; the poll thread allocates where an INIT_TABLE says so.
        let (bed, mut memory) = (Bed::new("0"), Memory::new());
        bed.warm_up(&mut memory);
        let [_, clock_reads, _] = counted(|| bed.run(ONE_SLOT[0], &mut memory, REQUESTS));
        assert!(clock_reads.0 > 0, "a client that does not spin read no clock");
        let [allocations, _, _] = counted(|| {
            bed.client.init_table(48);
        });
        assert!(allocations.0 > 0 && allocations.1 > 0, "INIT_TABLE allocated {allocations:?}");
        bed.stop();
    });
}

// --- system calls ---------------------------------------------------------------------------------------------------

const SPINS: &str = "RECLANE_FRUGAL_SPINS";
const MARK: &str = "frugal-mark";

/// A system call that fails, and that strace shows with its text.
fn mark(what: &str) {
    let text = format!("{MARK}-{what}");
    // SAFETY: no such descriptor; the bytes are ours.
    unsafe { libc::write(-1, text.as_ptr().cast(), text.len()) };
}

/// What is traced. By itself it does nothing.
#[test]
fn traced() {
    let Ok(spins) = std::env::var(SPINS) else { return };
    as_client(move || {
        let (bed, mut memory) = (Bed::new(&spins), Memory::new());
        bed.warm_up(&mut memory);
        // SAFETY: takes no pointer.
        let client = unsafe { libc::gettid() };
        println!("thread client {client}\nthread poll {}", poll_thread());
        for (number, case) in ONE_SLOT.iter().chain(&BATCHES).enumerate() {
            mark(&format!("begin-{number}"));
            bed.run(*case, &mut memory, REQUESTS);
            mark(&format!("end-{number}"));
        }
        bed.stop();
    });
}

fn poll_thread() -> String {
    let tasks = std::fs::read_dir("/proc/self/task").expect("procfs");
    let mut names = tasks.map(|task| task.expect("a thread").path());
    let ours =
        |path: &std::path::PathBuf| std::fs::read(path.join("comm")).is_ok_and(|name| name.starts_with(POLL_THREAD));
    let path = names.find(ours).expect("a server has a poll thread");
    path.file_name().expect("its number").to_string_lossy().into_owned()
}

/// Calls of client and poll thread in each case. None where strace cannot run.
fn trace(spins: &str) -> Option<Vec<(u64, u64)>> {
    let file = std::env::temp_dir().join(format!("frugal-{}-{spins}.strace", std::process::id()));
    let program = std::env::current_exe().expect("this program");
    let output = Command::new("strace")
        .args(["-f", "-qq", "-s", "64", "-o"])
        .arg(&file)
        .arg(program)
        .args(["--exact", "traced", "--nocapture", "--test-threads=1"])
        .env(SPINS, spins)
        .stdin(Stdio::null())
        .output();
    let output = match output {
        Ok(output) => output,
        Err(error) => {
            println!("skipped: system calls per request: strace cannot be started ({error})");
            return None;
        }
    };
    let (said, why) = (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    if why.contains("PTRACE") || why.contains("ptrace") {
        println!("skipped: system calls per request: this system lets nobody be traced ({})", why.trim());
        return None;
    }
    assert!(output.status.success(), "the traced program failed:\n{said}\n{why}");
    let thread = |which: &str| {
        let line = said.lines().find_map(|line| line.split_once(&format!("thread {which} ")));
        line.expect("it names its threads").1.trim().to_owned()
    };
    let (client, poll) = (thread("client"), thread("poll"));
    let trace = std::fs::read_to_string(&file).expect("a trace");
    std::fs::remove_file(&file).expect("a file of ours");
    Some(between_marks(&trace, &client, &poll))
}

fn between_marks(trace: &str, client: &str, poll: &str) -> Vec<(u64, u64)> {
    let mut counts = Vec::new();
    let mut inside = None;
    for line in trace.lines() {
        if line.contains(MARK) {
            counts.extend(inside.take());
            inside = line.contains("begin").then_some((0, 0));
            continue;
        }
        let thread = line.split_whitespace().next().unwrap_or("");
        if let Some((of_client, of_poll)) = &mut inside {
            *of_client += u64::from(thread == client);
            *of_poll += u64::from(thread == poll);
        }
    }
    counts
}

#[test]
fn requests_do_not_call_the_system() {
    let _alone = lock(&ALONE);
    let Some(counts) = trace(TIRELESS) else { return };
    let cases: Vec<&Case> = ONE_SLOT.iter().chain(&BATCHES).collect();
    assert_eq!(counts.len(), cases.len(), "marks of each case");
    for (case, count) in cases.iter().zip(&counts) {
        let few = count.0 <= RARE && count.1 <= RARE;
        assert!(few, "{case:?}: {count:?} system calls of {REQUESTS} requests (client, poll thread)");
    }
    // Who does not spin is seen to yield and to sleep.
    let counts = trace("0").expect("it ran a moment ago");
    assert!(counts.iter().all(|(client, _)| *client > 0), "clients that do not spin made no calls: {counts:?}");
    assert!(counts.iter().any(|(_, poll)| *poll > 0), "a poll thread that does not spin made no calls: {counts:?}");
}
