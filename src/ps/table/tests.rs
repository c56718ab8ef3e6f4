//! The store against a model that does the documented arithmetic one element at a time.

use super::*;
use proptest::prelude::*;
use std::collections::BTreeMap;

pub(super) fn options() -> StoreOptions {
    StoreOptions {
        shard: 0,
        num_shards: 1,
        hash_method: HashMethod::SimpleMod,
        workers: 1,
        value_size: 16,
        huge_pages: HugePages::Auto,
        dense_bytes_max: 0,
    }
}

pub(super) fn spec(name: &str, dim: u32, num_embeddings: u64, optimizer: Optimizer) -> TableSpec {
    TableSpec {
        name: name.to_owned(),
        num_embeddings,
        dim,
        optimizer,
        learning_rate: 0.05,
        epsilon: 1e-8,
        initial_accumulator: 0.1,
    }
}

pub(super) type Answer<T> = core::result::Result<T, RpcStatus>;

pub(super) fn get(store: &BuiltinStore, worker: u32, tag: TableTag, keys: &[u64]) -> Answer<(Vec<f32>, u32)> {
    let dim = store.shape(tag).ok_or(RpcStatus::UnknownTable)?.dim as usize;
    // A guard behind the last row shows writes beyond it.
    let mut out = vec![f32::NAN; keys.len() * dim + 1];
    // SAFETY: `out` has room for all rows.
    let stats = unsafe { store.get(worker, tag, keys, keys, out.as_mut_ptr().cast())? };
    assert!(out.pop().is_some_and(f32::is_nan));
    Ok((out, stats.missing_rows))
}

pub(super) fn rows_in(rows: &[f32], dim: usize) -> RowsIn {
    RowsIn { first: rows.as_ptr().cast(), stride: dim * 4, row_bytes: dim as u32 * 4 }
}

pub(super) fn put(store: &BuiltinStore, worker: u32, tag: TableTag, keys: &[u64], rows: &[f32]) -> Answer<()> {
    // SAFETY: the rows live during the call.
    unsafe { store.put(worker, tag, keys, rows_in(rows, rows.len() / keys.len().max(1))) }
}

pub(super) fn update(store: &BuiltinStore, worker: u32, tag: TableTag, keys: &[u64], rows: &[f32]) -> Answer<()> {
    // SAFETY: the rows live during the call.
    unsafe { store.update(worker, tag, keys, rows_in(rows, rows.len() / keys.len().max(1)), true) }
}

/// What a store must hold: for each key, the row and the accumulators.
#[derive(Default)]
struct Model(BTreeMap<u64, (Vec<f32>, Vec<f32>)>);

impl Model {
    fn row(&mut self, spec: &TableSpec, key: u64) -> &mut (Vec<f32>, Vec<f32>) {
        let dim = spec.dim as usize;
        self.0.entry(key).or_insert_with(|| (vec![0.0; dim], vec![spec.initial_accumulator; dim]))
    }

    fn update(&mut self, spec: &TableSpec, key: u64, gradient: &[f32]) {
        let (lr, eps) = (spec.learning_rate, spec.epsilon);
        let (row, accumulators) = self.row(spec, key);
        if spec.optimizer == Optimizer::RowwiseAdagrad {
            let mut sum = 0.0;
            gradient.iter().for_each(|g| sum += g * g);
            accumulators[0] += sum / gradient.len() as f32;
        }
        for (i, g) in gradient.iter().enumerate() {
            row[i] = match spec.optimizer {
                Optimizer::Add => row[i] + g,
                Optimizer::Sgd => row[i] - lr * g,
                Optimizer::RowwiseAdagrad => row[i] - (lr * g) / (accumulators[0].sqrt() + eps),
                Optimizer::Adagrad => {
                    accumulators[i] += g * g;
                    row[i] - (lr * g) / (accumulators[i].sqrt() + eps)
                }
            };
        }
    }
}

#[derive(Clone, Debug)]
enum Step {
    Put(usize, Vec<u64>, u32),
    Update(usize, Vec<u64>, u32),
    Get(usize, Vec<u64>),
    Clear,
}

fn keys() -> impl Strategy<Value = Vec<u64>> {
    let key = prop_oneof![6 => 0_u64..40, 2 => 40_u64..400, 1 => any::<u64>(), 1 => Just(u64::MAX)];
    proptest::collection::vec(key, 0..80)
}

fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        3 => (0_usize..5, keys(), any::<u32>()).prop_map(|(t, k, s)| Step::Put(t, k, s)),
        5 => (0_usize..5, keys(), any::<u32>()).prop_map(|(t, k, s)| Step::Update(t, k, s)),
        5 => (0_usize..5, keys()).prop_map(|(t, k)| Step::Get(t, k)),
        1 => Just(Step::Clear),
    ]
}

/// Numbers of every sign and many sizes, the same for the same seed.
pub(super) fn numbers(count: usize, seed: u32) -> Vec<f32> {
    let mut x = u64::from(seed) | 1;
    (0..count)
        .map(|_| {
            x = x.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            ((x >> 40) as f32 - 8_388_608.0) / 1_000_000.0
        })
        .collect()
}

/// Runs the steps on a store and on the model; every GET must agree to the bit.
fn agree(options: StoreOptions, steps: &[Step]) {
    let router = Router::new(options.hash_method, options.num_shards);
    let (shard, worker) = (options.shard, options.workers - 1);
    let store = BuiltinStore::new(options).unwrap();
    let mut specs = vec![store.default_spec()];
    for (i, optimizer) in
        [Optimizer::Sgd, Optimizer::Adagrad, Optimizer::RowwiseAdagrad, Optimizer::Add].into_iter().enumerate()
    {
        let (dim, expected) = ([16, 19, 33, 1][i], [64, 1 << 40, 100, 0][i]);
        let spec = spec(&format!("table {i}"), dim, expected, optimizer);
        assert_eq!(store.init_table(worker, &spec), Ok(TableTag(i as u16 + 1)));
        specs.push(spec);
    }
    let mut models: Vec<Model> = specs.iter().map(|_| Model::default()).collect();
    let owned = |keys: &[u64]| keys.iter().copied().filter(|key| router.shard_of(*key) == shard).collect::<Vec<_>>();
    for step in steps {
        match step {
            Step::Put(table, keys, seed) => {
                let (keys, dim) = (owned(keys), specs[*table].dim as usize);
                let rows = numbers(keys.len().max(1) * dim, *seed);
                put(&store, worker, TableTag(*table as u16), &keys, &rows).unwrap();
                for (key, row) in keys.iter().zip(rows.chunks(dim)) {
                    models[*table].row(&specs[*table], *key).0.copy_from_slice(row);
                }
            }
            Step::Update(table, keys, seed) => {
                let (keys, dim) = (owned(keys), specs[*table].dim as usize);
                let rows = numbers(keys.len().max(1) * dim, *seed);
                update(&store, worker, TableTag(*table as u16), &keys, &rows).unwrap();
                for (key, row) in keys.iter().zip(rows.chunks(dim)) {
                    models[*table].update(&specs[*table], *key, row);
                }
            }
            Step::Get(table, keys) => {
                let (keys, dim) = (owned(keys), specs[*table].dim as usize);
                let (rows, missing) = get(&store, worker, TableTag(*table as u16), &keys).unwrap();
                let model = &models[*table].0;
                assert_eq!(missing as usize, keys.iter().filter(|key| !model.contains_key(key)).count());
                for (key, row) in keys.iter().zip(rows.chunks(dim)) {
                    let zero = vec![0.0; dim];
                    let expected = model.get(key).map_or(&zero, |(row, _)| row);
                    let bits = |row: &[f32]| row.iter().map(|x| x.to_bits()).collect::<Vec<_>>();
                    assert_eq!(bits(row), bits(expected), "table {table} key {key}");
                }
            }
            Step::Clear => {
                store.command(worker, &Command::Clear).unwrap();
                models.iter_mut().for_each(|model| model.0.clear());
            }
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 48, ..ProptestConfig::default() })]

    #[test]
    fn every_read_agrees_with_the_model(
        steps in proptest::collection::vec(step(), 1..30),
        shards in prop_oneof![Just((0_u32, 1_u32)), Just((1, 2)), Just((2, 3))],
        city in any::<bool>(),
        workers in prop_oneof![Just(1_u32), Just(3)],
        dense_bytes_max in prop_oneof![Just(0_u64), Just(1)],
    ) {
        let hash_method = if city { HashMethod::CityHash } else { HashMethod::SimpleMod };
        let (shard, num_shards) = shards;
        agree(StoreOptions { shard, num_shards, hash_method, workers, dense_bytes_max, ..options() }, &steps);
    }
}
