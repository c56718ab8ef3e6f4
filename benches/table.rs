//! The built-in store beside a bare gather of the same rows: what keys, presence and prefetch cost.
//!
//! First a table of ratios, each taken in one run from interleaved rounds; then the usual benchmarks.

use divan::Bencher;
use reclane::ids::TableTag;
use reclane::ps::table::{BuiltinStore, HugePages, MappedMemory, RowMemory, StoreOptions};
use reclane::ps::{HashMethod, RowsIn, Store};
use reclane::time::now;
use reclane::wire::payload::{Optimizer, TableSpec};

const TABLE_BYTES: usize = 64 << 20;
const BATCHES: usize = 512;
const ROUNDS: usize = 4000;

/// Rows in a request and bytes of a row.
#[derive(Clone, Copy, Debug)]
struct Shape(usize, usize);

const SHAPES: [Shape; 3] = [Shape(1, 64), Shape(32, 512), Shape(512, 128)];

fn random(state: &mut u64) -> u64 {
    *state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
    *state >> 20
}

fn batches(Shape(rows, row_bytes): Shape) -> Vec<Vec<u64>> {
    let (mut state, all) = (7, (TABLE_BYTES / row_bytes) as u64);
    (0..BATCHES).map(|_| (0..rows).map(|_| random(&mut state) % all).collect()).collect()
}

struct Setup {
    store: BuiltinStore,
    tag: TableTag,
    batches: Vec<Vec<u64>>,
    bare: *const u8,
    _bare_memory: MappedMemory,
    out: Vec<u64>,
    gradients: Vec<f32>,
    shape: Shape,
}

impl Setup {
    fn new(shape: Shape, direct: bool, workers: u32, optimizer: Optimizer) -> Setup {
        let Shape(rows, row_bytes) = shape;
        let all = TABLE_BYTES / row_bytes;
        let store = BuiltinStore::new(StoreOptions {
            shard: 0,
            num_shards: 1,
            hash_method: HashMethod::SimpleMod,
            workers,
            value_size: 0,
            huge_pages: HugePages::Auto,
            dense_bytes_max: 0,
            checkpoint_directory: None,
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
        let keys: Vec<u64> = (0..all as u64).collect();
        let ones = vec![1.0_f32; TABLE_BYTES / 4];
        let rows_in = RowsIn { first: ones.as_ptr().cast(), stride: row_bytes, row_bytes: row_bytes as u32 };
        // SAFETY: `ones` has a row for each key.
        unsafe { store.put(0, tag, &keys, rows_in).unwrap() };
        let bare_memory = MappedMemory::new(HugePages::Auto).unwrap();
        let bare = bare_memory.allocate(TABLE_BYTES).unwrap().base.as_ptr();
        // SAFETY: the segment is TABLE_BYTES long.
        unsafe { core::ptr::copy_nonoverlapping(ones.as_ptr().cast(), bare, TABLE_BYTES) };
        let out = vec![0; rows * row_bytes / 8];
        let gradients = vec![0.001; rows * row_bytes / 4];
        Setup { store, tag, batches: batches(shape), bare, _bare_memory: bare_memory, out, gradients, shape }
    }

    fn get(&mut self, round: usize) {
        let keys = &self.batches[round % BATCHES];
        // SAFETY: `out` has room for the rows.
        unsafe { self.store.get(0, self.tag, keys, &[], self.out.as_mut_ptr().cast()).unwrap() };
    }

    fn gradients(&self) -> RowsIn {
        let row_bytes = self.shape.1;
        RowsIn { first: self.gradients.as_ptr().cast(), stride: row_bytes, row_bytes: row_bytes as u32 }
    }

    fn put(&mut self, round: usize) {
        // SAFETY: there is a row for each key.
        unsafe { self.store.put(0, self.tag, &self.batches[round % BATCHES], self.gradients()).unwrap() };
    }

    fn update(&mut self, round: usize) {
        // SAFETY: there is a row for each key.
        unsafe { self.store.update(0, self.tag, &self.batches[round % BATCHES], self.gradients(), true).unwrap() };
    }

    fn gather(&mut self, round: usize) {
        let keys = &self.batches[round % BATCHES];
        let out = self.out.as_mut_ptr().cast();
        // SAFETY: row numbers are below the table's length and `out` has room.
        unsafe {
            match self.shape.1 {
                64 => gather::<64>(self.bare, keys, out),
                128 => gather::<128>(self.bare, keys, out),
                _ => gather::<512>(self.bare, keys, out),
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

fn median(mut samples: Vec<u64>) -> u64 {
    samples.sort_unstable();
    samples[samples.len() / 2]
}

/// Median nanoseconds of each of the given things, taken in turns.
fn interleaved(setups: &mut [Setup], turns: &[(usize, fn(&mut Setup, usize))]) -> Vec<u64> {
    let repeats = (4096 / setups[0].shape.0).clamp(1, 256);
    let mut samples = vec![Vec::with_capacity(ROUNDS); turns.len()];
    let rounds = ROUNDS / repeats.min(8);
    for round in 0..rounds {
        for (samples, (setup, turn)) in samples.iter_mut().zip(turns) {
            let start = now();
            for repeat in 0..repeats {
                turn(&mut setups[*setup], round * repeats + repeat);
            }
            samples.push(now().since_ns(start) * 100 / repeats as u64);
        }
    }
    samples.into_iter().map(median).collect()
}

fn ratios() {
    println!("table of 64 MiB, 1 shard; hundredths of a microsecond are noise; ratios to the bare gather");
    for shape in SHAPES {
        let mut setups = [
            Setup::new(shape, true, 1, Optimizer::Sgd),
            Setup::new(shape, true, 2, Optimizer::Sgd),
            Setup::new(shape, false, 1, Optimizer::Sgd),
            Setup::new(shape, true, 1, Optimizer::Adagrad),
        ];
        println!("{shape:?} {:?}", setups[0].store.memory());
        let turns: [(usize, fn(&mut Setup, usize)); 8] = [
            (0, Setup::gather),
            (0, Setup::get),
            (1, Setup::get),
            (2, Setup::get),
            (0, Setup::put),
            (0, Setup::update),
            (1, Setup::update),
            (3, Setup::update),
        ];
        let names = [
            "bare gather",
            "get, direct",
            "get, direct, 2 workers",
            "get, hashed",
            "put, direct",
            "update SGD, direct",
            "update SGD, direct, 2 workers",
            "update Adagrad, direct",
        ];
        let times = interleaved(&mut setups, &turns);
        for (name, time) in names.iter().zip(&times) {
            println!("  {name:<32} {:>9.1} ns  {:>5.2}", *time as f64 / 100.0, *time as f64 / times[0] as f64);
        }
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
    ratios();
    divan::main();
}
