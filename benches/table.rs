//! The built-in store beside a bare gather of the same rows: what keys, presence and prefetch cost, and what a reader of
//! shared rows pays.
//!
//! First a table of ratios, each taken in one run from interleaved rounds; then the usual benchmarks.
#![allow(clippy::cast_possible_truncation)] // small tables
#![allow(missing_docs)] // what divan generates

use divan::Bencher;
use reclane::ids::TableTag;
use reclane::ps::table::{BuiltinStore, Calm, HugePages, MappedMemory, RowMemory, Serving, StoreOptions, View, Wanted};
use reclane::ps::{HashMethod, Router, RowsIn, Store};
use reclane::time::now;
use reclane::wire::payload::{Optimizer, TableSpec};

const TABLE_BYTES: usize = 64 << 20;
/// Keys that are asked for before the first one comes again: far more rows than the second-level cache holds.
const KEYS: usize = 1 << 18;
const ROUNDS: usize = 2000;

/// Rows in a request and bytes of a row.
#[derive(Clone, Copy, Debug)]
struct Shape(usize, usize);

const SHAPES: [Shape; 3] = [Shape(1, 64), Shape(32, 512), Shape(512, 128)];

fn random(state: &mut u64) -> u64 {
    *state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
    *state >> 20
}

fn keys(row_bytes: usize) -> Vec<u64> {
    let (mut state, all) = (7, (TABLE_BYTES / row_bytes) as u64);
    (0..KEYS).map(|_| random(&mut state) % all).collect()
}

struct Setup {
    store: BuiltinStore,
    tag: TableTag,
    keys: Vec<u64>,
    bare: *const u8,
    _bare_memory: MappedMemory,
    out: Vec<u64>,
    gradients: Vec<f32>,
    shape: Shape,
    router: Router,
    /// How another process sees the rows.
    view: Option<(View, Serving)>,
    calm: Calm,
}

impl Setup {
    fn new(shape: Shape, direct: bool, workers: u32, optimizer: Optimizer) -> Setup {
        Self::open(shape, direct, workers, optimizer, false)
    }

    /// Its rows lie where other processes can read them.
    fn shared(shape: Shape, direct: bool) -> Setup {
        Self::open(shape, direct, 1, Optimizer::Sgd, true)
    }

    fn open(shape: Shape, direct: bool, workers: u32, optimizer: Optimizer, shared: bool) -> Setup {
        let Shape(rows, row_bytes) = shape;
        let all = TABLE_BYTES / row_bytes;
        let store = BuiltinStore::new(StoreOptions {
            shard: 0,
            num_shards: 1,
            hash_method: HashMethod::SimpleMod,
            workers,
            value_size: 0,
            huge_pages: HugePages::Auto,
            numa_id: None,
            dense_bytes_max: 0,
            checkpoint_directory: None,
            shared,
        })
        .unwrap();
        let spec = TableSpec {
            name: "bench".to_owned(),
            num_embeddings: if direct { all as u64 } else { 0 },
            dim: row_bytes as u32 / 4,
            optimizer,
            learning_rate: 0.01,
            epsilon: 1e-8,
            initial_accumulator: 0.0,
        };
        let tag = store.init_table(0, &spec).unwrap();
        let everything: Vec<u64> = (0..all as u64).collect();
        let ones = vec![1.0_f32; TABLE_BYTES / 4];
        let rows_in = RowsIn { first: ones.as_ptr().cast(), stride: row_bytes, row_bytes: row_bytes as u32 };
        // SAFETY: `ones` has a row for each key.
        unsafe { store.put(0, tag, &everything, rows_in).unwrap() };
        let bare_memory = MappedMemory::new(HugePages::Auto).unwrap();
        let bare = bare_memory.allocate(TABLE_BYTES).unwrap().base.as_ptr();
        // SAFETY: the segment is TABLE_BYTES long.
        unsafe { core::ptr::copy_nonoverlapping(ones.as_ptr().cast(), bare, TABLE_BYTES) };
        let out = vec![0; rows * row_bytes / 8];
        let gradients = vec![0.001; rows * row_bytes / 4];
        let view = shared.then(|| {
            let rows = store.shared().expect("shared rows");
            let serving = rows.serve().expect("nobody else serves them");
            // SAFETY: mapped as long as the store, which lives as long as the setup.
            (unsafe { View::new(rows.file().base().as_ptr(), rows.file().bytes()) }.unwrap(), serving)
        });
        let router = Router::new(HashMethod::SimpleMod, 1);
        let keys = keys(row_bytes);
        Setup {
            store,
            tag,
            keys,
            bare,
            _bare_memory: bare_memory,
            out,
            gradients,
            shape,
            router,
            view,
            calm: Calm::default(),
        }
    }

    fn batch(&self, round: usize) -> &[u64] {
        let rows = self.shape.0;
        &self.keys[round % (KEYS / rows) * rows..][..rows]
    }

    fn get(&mut self, round: usize) {
        let out = self.out.as_mut_ptr().cast();
        // SAFETY: `out` has room for the rows.
        unsafe { self.store.get(0, self.tag, self.batch(round), &[], out).unwrap() };
    }

    /// What a process does that has mapped the rows.
    fn read(&mut self, round: usize) {
        let out = self.out.as_mut_ptr().cast();
        let Some((view, _)) = &self.view else { return };
        let (router, row_bytes, mut calm) = (&self.router, self.shape.1, self.calm);
        let keys = self.batch(round);
        let wanted = Wanted { router, shard: 0, table: self.tag, keys, row_bytes, out, positions: None };
        // SAFETY: `out` has room for the rows.
        assert!(unsafe { view.read(&wanted, &mut calm) });
        self.calm = calm;
    }

    fn gradients(&self) -> RowsIn {
        let row_bytes = self.shape.1;
        RowsIn { first: self.gradients.as_ptr().cast(), stride: row_bytes, row_bytes: row_bytes as u32 }
    }

    fn put(&mut self, round: usize) {
        // SAFETY: there is a row for each key.
        unsafe { self.store.put(0, self.tag, self.batch(round), self.gradients()).unwrap() };
    }

    fn update(&mut self, round: usize) {
        // SAFETY: there is a row for each key.
        unsafe { self.store.update(0, self.tag, self.batch(round), self.gradients(), true).unwrap() };
    }

    fn gather(&mut self, round: usize) {
        let out = self.out.as_mut_ptr().cast();
        let keys = self.batch(round);
        // SAFETY: row numbers are below the table's length and `out` has room.
        unsafe {
            match self.shape.1 {
                64 => gather::<64>(self.bare, keys, out),
                128 => gather::<128>(self.bare, keys, out),
                _ => gather::<512>(self.bare, keys, out),
            }
        }
    }

    fn gather_prefetched(&mut self, round: usize) {
        let out = self.out.as_mut_ptr().cast();
        let keys = self.batch(round);
        // SAFETY: row numbers are below the table's length and `out` has room.
        unsafe {
            match self.shape.1 {
                64 => gather_prefetched::<64>(self.bare, keys, out),
                128 => gather_prefetched::<128>(self.bare, keys, out),
                _ => gather_prefetched::<512>(self.bare, keys, out),
            }
        }
    }
}

/// The yardstick: rows with known numbers, nothing else.
#[inline(never)]
unsafe fn gather<const ROW: usize>(table: *const u8, rows: &[u64], out: *mut u8) {
    for (i, row) in rows.iter().enumerate() {
        // SAFETY: the caller's promise.
        unsafe { core::ptr::copy_nonoverlapping(table.add(*row as usize * ROW), out.add(i * ROW), ROW) };
    }
}

/// The yardstick with rows asked for 24 ahead, as the store does.
#[inline(never)]
unsafe fn gather_prefetched<const ROW: usize>(table: *const u8, rows: &[u64], out: *mut u8) {
    for (i, row) in rows.iter().enumerate() {
        #[cfg(target_arch = "x86_64")]
        if let Some(ahead) = rows.get(i + 24) {
            for line in 0..ROW / 64 {
                let at = table.wrapping_add(*ahead as usize * ROW + line * 64);
                // SAFETY: a prefetch never faults.
                unsafe { core::arch::x86_64::_mm_prefetch::<{ core::arch::x86_64::_MM_HINT_T0 }>(at.cast()) };
            }
        }
        // SAFETY: the caller's promise.
        unsafe { core::ptr::copy_nonoverlapping(table.add(*row as usize * ROW), out.add(i * ROW), ROW) };
    }
}

fn median(mut samples: Vec<u64>) -> u64 {
    samples.sort_unstable();
    samples[samples.len() / 2]
}

/// What is measured: its name and what one round does.
type Turn = (&'static str, fn(&mut Setup, usize));

/// Median of a round of each turn, in hundredths of a nanosecond, taken in turns. Each turn is at other keys than the
/// one before, so that none finds its rows in a near cache.
fn interleaved(setup: &mut Setup, turns: &[Turn]) -> Vec<u64> {
    let rows = setup.shape.0;
    let repeats = (2048 / rows).max(1);
    let mut samples = vec![Vec::with_capacity(ROUNDS); turns.len()];
    for round in 0..ROUNDS {
        for (i, (samples, (_, turn))) in samples.iter_mut().zip(turns).enumerate() {
            let first = round * repeats + i * KEYS / rows / turns.len();
            let start = now();
            for repeat in 0..repeats {
                turn(setup, first + repeat);
            }
            samples.push(now().since_ns(start) * 100 / repeats as u64);
        }
    }
    samples.into_iter().map(median).collect()
}

fn report(what: &str, mut setup: Setup, turns: &[Turn]) {
    let times = interleaved(&mut setup, turns);
    for ((name, _), time) in turns.iter().zip(&times) {
        let Shape(rows, row_bytes) = setup.shape;
        let (ns, ratio) = (*time as f64 / 100.0, *time as f64 / times[0] as f64);
        println!("  {rows:>4} x {row_bytes:<4} {what:<20} {name:<12} {ns:>9.1} ns {ratio:>6.2}");
    }
}

fn ratios() {
    println!("table of 64 MiB, one shard; the last column is the ratio to the bare gather of the same run");
    let near: [Turn; 4] = [
        ("bare gather", Setup::gather),
        ("prefetched", Setup::gather_prefetched),
        ("get", Setup::get),
        ("read", Setup::read),
    ];
    let all: [Turn; 5] = [
        ("bare gather", Setup::gather),
        ("prefetched", Setup::gather_prefetched),
        ("get", Setup::get),
        ("put", Setup::put),
        ("update", Setup::update),
    ];
    for shape in SHAPES {
        report("direct, shared", Setup::shared(shape, true), &near);
        report("hashed, shared", Setup::shared(shape, false), &near);
        report("direct, SGD", Setup::new(shape, true, 1, Optimizer::Sgd), &all);
        report("direct, 2 workers", Setup::new(shape, true, 2, Optimizer::Sgd), &all);
        report("hashed, SGD", Setup::new(shape, false, 1, Optimizer::Sgd), &all);
        report("direct, Adagrad", Setup::new(shape, true, 1, Optimizer::Adagrad), &all);
        report("direct, row-wise", Setup::new(shape, true, 1, Optimizer::RowwiseAdagrad), &all);
    }
}

#[divan::bench(args = SHAPES)]
fn bare_gather(bencher: Bencher<'_, '_>, shape: Shape) {
    let (mut setup, mut round) = (Setup::new(shape, true, 1, Optimizer::Sgd), 0);
    bencher.bench_local(|| {
        round += 1;
        setup.gather(round);
    });
}

#[divan::bench(args = SHAPES)]
fn get_direct(bencher: Bencher<'_, '_>, shape: Shape) {
    let (mut setup, mut round) = (Setup::new(shape, true, 1, Optimizer::Sgd), 0);
    bencher.bench_local(|| {
        round += 1;
        setup.get(round);
    });
}

#[divan::bench(args = SHAPES)]
fn get_hashed(bencher: Bencher<'_, '_>, shape: Shape) {
    let (mut setup, mut round) = (Setup::new(shape, false, 1, Optimizer::Sgd), 0);
    bencher.bench_local(|| {
        round += 1;
        setup.get(round);
    });
}

fn main() {
    // With a filter, only what it names.
    if std::env::args().skip(1).all(|argument| argument == "--bench" || argument == "--test") {
        ratios();
    }
    divan::main();
}
