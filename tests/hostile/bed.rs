//! The test bed: a real server, a well-behaved client beside the attacker, and seeded dice.

use reclane::engine::{Client, Request, Rows, Server, Target};
use reclane::ids::TableTag;
use reclane::options::{Options, Settings, Side};
use reclane::ps::Store;
use reclane::time::{Tick, now};
use reclane::wire::payload::{Optimizer, TableSpec};
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;
use std::time::Duration;

/// Only tells a hang from slowness.
pub const PATIENCE: Duration = Duration::from_secs(120);

/// Tests that count what the process holds run one after the other.
pub fn alone() -> MutexGuard<'static, ()> {
    static LOCK: Mutex<()> = Mutex::new(());
    LOCK.lock().unwrap_or_else(PoisonError::into_inner)
}

/// A number from the environment, or the default.
pub fn number(name: &str, default: u64) -> u64 {
    std::env::var(name).ok().and_then(|text| text.parse().ok()).unwrap_or(default)
}

/// The same numbers for the same seed.
pub struct Dice(u64);

impl Dice {
    pub fn new(seed: u64) -> Dice {
        Dice(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1)
    }

    pub fn roll(&mut self) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0.wrapping_mul(0x2545_f491_4f6c_dd1d)
    }

    pub fn small(&mut self) -> u32 {
        (self.roll() >> 32) as u32
    }

    pub fn below(&mut self, bound: usize) -> usize {
        (self.roll() >> 33) as usize % bound
    }

    pub fn one_in(&mut self, count: usize) -> bool {
        self.below(count) == 0
    }

    pub fn fill(&mut self, bytes: &mut [u8]) {
        bytes.chunks_mut(8).for_each(|chunk| chunk.copy_from_slice(&self.roll().to_le_bytes()[..chunk.len()]));
    }

    /// One of the numbers around which mistakes are made, or any.
    pub fn edge(&mut self, around: u32) -> u32 {
        let edges =
            [0, 1, 7, 8, around / 2, around.wrapping_sub(1), around + 1, around * 2, 1 << 31, u32::MAX, u32::MAX - 7];
        if self.one_in(4) { self.small() } else { edges[self.below(edges.len())] }
    }
}

/// Waits for something that must come.
pub fn until<T>(what: &str, mut look: impl FnMut() -> Option<T>) -> T {
    let deadline = now().after(PATIENCE);
    loop {
        if let Some(found) = look() {
            return found;
        }
        assert!(now() < deadline, "hang: no {what} within {PATIENCE:?}");
        std::thread::yield_now();
    }
}

pub struct Bed {
    pub server: Server,
    changes: Vec<(String, String)>,
}

impl Bed {
    pub fn start(changes: &[(&str, &str)]) -> Bed {
        Bed::with_store(changes, |settings| Arc::new(reclane::engine::builtin_store(settings).expect("a store")))
    }

    /// What a shard is started with: a name of its own, small slots.
    pub fn options(changes: &[(&str, &str)]) -> Vec<(String, String)> {
        static NEXT: AtomicU32 = AtomicU32::new(0);
        let name = format!("hostile-{}-{}", std::process::id(), NEXT.fetch_add(1, Ordering::Relaxed));
        [
            ("rdma-namespace", name.as_str()),
            ("rdma-control-plane-port", "0"),
            ("qps-per-client-per-shard", "3"),
            ("qps-at-open", "3"),
            ("slots-per-qp", "4"),
            ("rdma-rc-request-slot-bytes", "8192"),
            ("rdma-rc-response-slot-bytes", "16384"),
            ("rdma-wait-timeout-ms", "120000"),
        ]
        .iter()
        .chain(changes)
        .map(|(n, v)| ((*n).to_owned(), (*v).to_owned()))
        .collect()
    }

    pub fn with_store(changes: &[(&str, &str)], store: impl FnOnce(&Settings) -> Arc<dyn Store>) -> Bed {
        let mut all = Bed::options(changes);
        let settings = settings_of(Side::Server, &all);
        let server = Server::start(&settings, store(&settings)).expect("a server");
        all[1].1 = server.control_plane_port().expect("shard 0 has the control plane").to_string();
        Bed { server, changes: all }
    }

    /// What clients need to find it.
    pub fn changes(&self) -> &[(String, String)] {
        &self.changes
    }

    pub fn client_settings(&self) -> Settings {
        settings_of(Side::Client, &self.changes)
    }

    pub fn client(&self) -> Client {
        Client::open(&self.client_settings()).expect("a client")
    }

    /// Waits until the server scans this many lanes.
    pub fn settle(&self, lanes: u64) {
        until("the server's lanes to settle", || (self.server.stats().lanes == lanes).then_some(()));
    }
}

pub fn settings_of(side: Side, changes: &[(String, String)]) -> Settings {
    let mut options = Options::new();
    for (name, value) in changes {
        options.set(name, value).expect("a valid option");
    }
    options.settings(side).expect("valid options")
}

pub fn spec(name: &str, dim: u32) -> TableSpec {
    TableSpec {
        name: name.to_owned(),
        num_embeddings: 1000,
        dim,
        optimizer: Optimizer::Sgd,
        learning_rate: 0.5,
        epsilon: 0.0,
        initial_accumulator: 0.0,
    }
}

const VICTIM_DIM: usize = 16;
const VICTIM_KEYS: u64 = 256;

fn value(key: u64, round: u64) -> Vec<f32> {
    (0..VICTIM_DIM as u64).map(|column| (key * 64 + column + round % 1000 * 7) as f32).collect()
}

/// A well-behaved client on a thread of its own: writes rows and finds them exactly as written, again and again.
pub struct Victim {
    pub table: TableTag,
    stop: Arc<AtomicBool>,
    rounds: Arc<AtomicU64>,
    thread: Option<JoinHandle<()>>,
}

impl Victim {
    pub fn start(client: Client) -> Victim {
        let table = client.init_table(&spec("victim", VICTIM_DIM as u32)).expect("a table");
        let (stop, rounds) = (Arc::new(AtomicBool::new(false)), Arc::new(AtomicU64::new(0)));
        let (asked, counted) = (Arc::clone(&stop), Arc::clone(&rounds));
        let thread = std::thread::spawn(move || {
            let mut round = 0;
            while round == 0 || !asked.load(Ordering::Relaxed) {
                serve_round(&client, table, round);
                round += 1;
                counted.store(round, Ordering::Relaxed);
            }
            client.shutdown(PATIENCE).expect("nothing under way");
        });
        Victim { table, stop, rounds, thread: Some(thread) }
    }

    pub fn rounds(&self) -> u64 {
        self.rounds.load(Ordering::Relaxed)
    }

    /// Waits for a whole round that began after this call.
    pub fn is_served(&self) {
        let before = self.rounds();
        until("service for the other client", || {
            let over = self.thread.as_ref().is_none_or(JoinHandle::is_finished);
            assert!(!over, "the well-behaved client failed");
            (self.rounds() >= before + 2).then_some(())
        });
    }

    pub fn finish(mut self) -> u64 {
        self.stop.store(true, Ordering::Relaxed);
        self.thread.take().expect("once").join().expect("the well-behaved client was served well");
        self.rounds()
    }
}

fn serve_round(client: &Client, table: TableTag, round: u64) {
    let keys: Vec<u64> = (0..VICTIM_KEYS).collect();
    let expected = |last: u64| -> Vec<f32> { keys.iter().flat_map(|key| value(*key, last)).collect() };
    if round > 0 {
        assert_eq!(get(client, table, &keys), expected(round - 1), "rows changed between rounds");
    }
    let rows = expected(round);
    put(client, table, &keys, &rows);
    assert_eq!(get(client, table, &keys), rows);
    let key = round % VICTIM_KEYS;
    assert_eq!(get(client, table, &[key]), value(key, round));
    put(client, table, &[key], &value(key, round));
}

fn get(client: &Client, table: TableTag, keys: &[u64]) -> Vec<f32> {
    let mut rows = vec![-1.0_f32; keys.len() * VICTIM_DIM];
    let target = Target::Memory { rows: rows.as_mut_ptr(), capacity: rows.len() };
    // SAFETY: what the request points to outlives the call, which returns when it is over.
    unsafe { client.call(&Request::Get { table, keys, target }) }.expect("a GET");
    rows
}

fn put(client: &Client, table: TableTag, keys: &[u64], rows: &[f32]) {
    let rows = Rows::Flat { rows: rows.as_ptr(), count: rows.len() };
    // SAFETY: what the request points to outlives the call, which returns when it is over.
    unsafe { client.call(&Request::Put { table, keys, rows }) }.expect("a PUT");
}

/// What the process holds: descriptors and threads.
pub fn holdings() -> (usize, usize) {
    let entries = |path: &str| std::fs::read_dir(path).expect("procfs").count();
    (entries("/proc/self/fd"), entries("/proc/self/task"))
}

/// Waits until the process holds no more than before.
pub fn holdings_settle(before: (usize, usize)) {
    let deadline: Tick = now().after(PATIENCE);
    let more = |now: (usize, usize)| now.0 > before.0 || now.1 > before.1;
    while more(holdings()) {
        assert!(now() < deadline, "leak: descriptors and threads {before:?} became {:?}", holdings());
        std::thread::yield_now();
    }
}
