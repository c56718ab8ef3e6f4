//! The store against a model that does the documented arithmetic one element at a time.

mod saved;
mod shared;
mod stress;

use super::*;
use proptest::prelude::*;
use std::collections::BTreeMap;

fn options() -> StoreOptions {
    StoreOptions {
        shard: 0,
        num_shards: 1,
        hash_method: HashMethod::SimpleMod,
        workers: 1,
        value_size: 16,
        huge_pages: HugePages::Auto,
        numa_id: None,
        dense_bytes_max: 0,
        checkpoint_directory: None,
        shared: false,
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

type Answer<T> = core::result::Result<T, RpcStatus>;

/// Of rows that nobody changes meanwhile: both ways to GET must agree.
fn get(store: &BuiltinStore, worker: u32, tag: TableTag, keys: &[u64]) -> Answer<(Vec<f32>, u32)> {
    let got = get_once(store, worker, tag, keys);
    let dim = store.shape(tag).map_or(0, |shape| shape.dim as usize);
    let (each, missing) = get_each(store, worker, tag, keys, dim);
    let same = |(out, _): &(Vec<f32>, u32)| out.iter().zip(&each).all(|(a, b)| a.to_bits() == b.to_bits());
    assert_eq!(missing, got.as_ref().ok().map(|(_, missing)| *missing), "the two ways to GET do not agree");
    assert!(got.as_ref().ok().is_none_or(same), "the two ways to GET do not agree");
    got
}

fn get_once(store: &BuiltinStore, worker: u32, tag: TableTag, keys: &[u64]) -> Answer<(Vec<f32>, u32)> {
    let dim = store.shape(tag).ok_or(RpcStatus::UnknownTable)?.dim as usize;
    // A guard behind the last row shows writes beyond it.
    let mut out = vec![f32::NAN; keys.len() * dim + 1];
    // SAFETY: `out` has room for all rows.
    let stats = unsafe { store.get(worker, tag, keys, keys, out.as_mut_ptr().cast()) };
    assert!(out.pop().is_some_and(f32::is_nan));
    Ok((out, stats?.missing_rows))
}

/// The same rows asked for one by one, but together; last ones first, as places need not be in order.
fn get_each(store: &BuiltinStore, worker: u32, tag: TableTag, keys: &[u64], dim: usize) -> (Vec<f32>, Option<u32>) {
    let mut out = vec![f32::NAN; keys.len() * dim];
    let first = out.as_mut_ptr();
    let (mut asked, mut outs) = (keys.to_vec(), Vec::new());
    asked.reverse();
    outs.extend((0..keys.len()).rev().map(|row| first.wrapping_add(row * dim).cast::<u8>()));
    // SAFETY: each place has room for a row.
    let stats = unsafe { store.get_each(worker, tag, &asked, &outs) };
    (out, stats.map(|stats| stats.missing_rows))
}

fn rows_in(rows: &[f32], dim: usize) -> RowsIn {
    RowsIn { first: rows.as_ptr().cast(), stride: dim * 4, row_bytes: dim as u32 * 4 }
}

fn put(store: &BuiltinStore, worker: u32, tag: TableTag, keys: &[u64], rows: &[f32]) -> Answer<()> {
    // SAFETY: the rows live during the call.
    unsafe { store.put(worker, tag, keys, rows_in(rows, rows.len() / keys.len().max(1))) }
}

fn update(store: &BuiltinStore, worker: u32, tag: TableTag, keys: &[u64], rows: &[f32]) -> Answer<()> {
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
            let mut sums = [0.0; 16];
            gradient.iter().enumerate().for_each(|(i, g)| sums[i % 16] += g * g);
            for half in [8, 4, 2, 1] {
                (0..half).for_each(|i| sums[i] += sums[i + half]);
            }
            accumulators[0] += sums[0] / gradient.len() as f32;
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
fn numbers(count: usize, seed: u32) -> Vec<f32> {
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

#[test]
fn a_proposed_tag_is_given_or_refused_and_a_table_can_have_several() {
    let store = BuiltinStore::new(options()).unwrap();
    let [users, items] = ["users", "items"].map(|name| spec(name, 4, 0, Optimizer::Add));
    assert_eq!(store.init_table_as(0, &users, TableTag(500)), Ok(Some(TableTag(500))));
    assert_eq!(store.init_table_as(0, &items, TableTag(500)), Ok(None), "it is another's");
    assert_eq!(store.shape(TableTag(1)), None, "nothing was made");
    assert_eq!(store.init_table_as(0, &items, TableTag(501)), Ok(Some(TableTag(501))));
    assert_eq!(store.init_table_as(0, &users, TableTag(501)), Ok(None));
    assert_eq!(store.init_table_as(0, &users, TableTag(9)), Ok(Some(TableTag(9))));
    assert_eq!(
        store.init_table_as(0, &spec("users", 8, 0, Optimizer::Add), TableTag(9)),
        Err(RpcStatus::InvalidPayload)
    );
    assert_eq!(store.init_table_as(0, &users, TableTag(0)), Ok(None), "the default table's");
    put(&store, 0, TableTag(9), &[1], &[2.0; 4]).unwrap();
    assert_eq!(get(&store, 0, TableTag(500), &[1]).unwrap(), (vec![2.0; 4], 0));
    assert_eq!(store.all_tables().count(), 3);
    assert_eq!(store.init_table(0, &spec("third", 4, 0, Optimizer::Add)), Ok(TableTag(1)), "the lowest that is free");
}

#[test]
fn tables_are_found_again_and_a_different_spec_is_refused() {
    let store = BuiltinStore::new(options()).unwrap();
    let users = spec("users", 8, 10, Optimizer::Sgd);
    assert_eq!(store.init_table(0, &users), Ok(TableTag(1)));
    assert_eq!(store.init_table(0, &spec("items", 4, 0, Optimizer::Adagrad)), Ok(TableTag(2)));
    assert_eq!(store.init_table(0, &users), Ok(TableTag(1)));
    let other = TableSpec { learning_rate: 0.06, ..users.clone() };
    assert_eq!(store.init_table(0, &other), Err(RpcStatus::InvalidPayload));
    assert_eq!(store.init_table(0, &TableSpec { dim: 0, ..users }), Err(RpcStatus::InvalidPayload));
    assert_eq!(store.shape(TableTag(2)), Some(TableShape { dim: 4 }));
    assert_eq!(store.shape(TableTag(3)), None);
    assert_eq!(get(&store, 0, TableTag(u16::MAX), &[1]), Err(RpcStatus::UnknownTable));
}

#[test]
fn wrong_width_foreign_keys_and_unannounced_workers_are_refused_and_change_nothing() {
    for workers in [1, 2] {
        let store = BuiltinStore::new(StoreOptions { num_shards: 2, workers, ..options() }).unwrap();
        let tag = TableTag(0);
        assert_eq!(put(&store, 0, tag, &[2], &[1.0; 3]), Err(RpcStatus::ValueSizeMismatch));
        assert_eq!(put(&store, 0, tag, &[2, 4, 3], &[1.0; 12]), Err(RpcStatus::WrongShard));
        assert_eq!(update(&store, 0, tag, &[2, 3], &[1.0; 8]), Err(RpcStatus::WrongShard));
        assert_eq!(get(&store, 0, tag, &[3]), Err(RpcStatus::WrongShard));
        assert_eq!(put(&store, workers, tag, &[2], &[1.0; 4]), Err(RpcStatus::InternalError));
        assert_eq!(get(&store, 0, tag, &[2, 4]), Ok((vec![0.0; 8], 2)));
    }
}

#[test]
fn a_table_of_any_expected_size_costs_little_until_it_is_written() {
    for (method, num_shards) in [(HashMethod::SimpleMod, 1), (HashMethod::SimpleMod, 3), (HashMethod::CityHash, 3)] {
        let store = BuiltinStore::new(StoreOptions { hash_method: method, num_shards, ..options() }).unwrap();
        let router = Router::new(method, num_shards);
        for (i, expected) in [1 << 24, 1 << 40, u64::MAX].into_iter().enumerate() {
            let tag = store.init_table(0, &spec(&format!("t{i}"), 16, expected, Optimizer::Sgd)).unwrap();
            let key = (0..expected).rev().find(|key| router.shard_of(*key) == 0).unwrap();
            put(&store, 0, tag, &[key], &[7.0; 16]).unwrap();
            assert_eq!(get(&store, 0, tag, &[key]), Ok((vec![7.0; 16], 0)));
        }
    }
}

#[test]
fn rows_stay_where_they_are_while_the_table_grows() {
    let store = BuiltinStore::new(options()).unwrap();
    put(&store, 0, TableTag(0), &[1, 2], &[1.0; 8]).unwrap();
    let mut before = Vec::new();
    let token = store.pin(0, TableTag(0), &[1, 2, 3], &mut before).unwrap();
    store.unpin(0, token);
    assert!(before[2].address.is_null());
    let keys: Vec<u64> = (100..100_100).collect();
    put(&store, 0, TableTag(0), &keys, &vec![2.0; keys.len() * 4]).unwrap();
    let mut after = Vec::new();
    let token = store.pin(0, TableTag(0), &[1, 2, 100, 100_099], &mut after).unwrap();
    for (row, expected) in after.iter().zip([1.0_f32, 1.0, 2.0, 2.0]) {
        // SAFETY: the row is pinned and 16 bytes long.
        assert_eq!(unsafe { row.address.cast::<[f32; 4]>().read() }, [expected; 4]);
    }
    assert_eq!((before[0].address, before[1].address), (after[0].address, after[1].address));
    store.unpin(0, token);
}

#[test]
fn a_worker_with_pins_is_refused_at_pinned_rows_only() {
    for workers in [1, 2] {
        let store = BuiltinStore::new(StoreOptions { workers, value_size: 256, ..options() }).unwrap();
        let tag = TableTag(0);
        put(&store, 0, tag, &[1, 2], &[1.0; 128]).unwrap();
        let mut rows = Vec::new();
        let token = store.pin(0, tag, &[1, 1], &mut rows).unwrap();
        assert_eq!(rows.len(), 2);
        assert_eq!(put(&store, 0, tag, &[1], &[2.0; 64]), Err(RpcStatus::InternalError));
        assert_eq!(update(&store, 0, tag, &[1], &[2.0; 64]), Err(RpcStatus::InternalError));
        assert_eq!(put(&store, 0, tag, &[2], &[2.0; 64]), Ok(()));
        assert_eq!(store.command(0, &Command::Clear), Err(RpcStatus::InternalError));
        assert_eq!(get(&store, 0, tag, &[1]), Ok((vec![1.0; 64], 0)));
        store.unpin(0, token);
        // A token is good once: a second return takes nothing of a later pin.
        let later = store.pin(0, tag, &[1], &mut rows).unwrap();
        store.unpin(0, token);
        assert_eq!(put(&store, 0, tag, &[1], &[2.0; 64]), Err(RpcStatus::InternalError));
        store.unpin(0, later);
        assert_eq!(put(&store, 0, tag, &[1], &[2.0; 64]), Ok(()));
        assert_eq!(store.command(0, &Command::Clear), Ok(()));
        assert_eq!(get(&store, 0, tag, &[1]), Ok((vec![0.0; 64], 1)));
    }
}

#[test]
fn sgd_is_a_product_and_a_difference_each_rounded() {
    // The row is the rounded product itself: a fused multiply-add would leave the rounding error instead of zero.
    let (lr, g) = (0.1_f32, 0.3_f32);
    let w = lr * g;
    assert_ne!((-lr).mul_add(g, w).to_bits(), (w - lr * g).to_bits());
    let store = BuiltinStore::new(options()).unwrap();
    let spec = TableSpec { learning_rate: lr, ..spec("t", 37, 4, Optimizer::Sgd) };
    let tag = store.init_table(0, &spec).unwrap();
    put(&store, 0, tag, &[3], &[w; 37]).unwrap();
    update(&store, 0, tag, &[3], &[g; 37]).unwrap();
    assert_eq!(get(&store, 0, tag, &[3]), Ok((vec![w - lr * g; 37], 0)));
}

#[test]
fn options_out_of_bounds_are_named() {
    let message = |options| BuiltinStore::new(options).err().map(|error| error.message).unwrap_or_default();
    assert!(message(StoreOptions { shard: 1, ..options() }).contains("shard 1"));
    assert!(message(StoreOptions { workers: 0, ..options() }).contains("workers 0"));
    assert!(message(StoreOptions { value_size: 6, ..options() }).contains("value_size 6"));
    let none = BuiltinStore::new(StoreOptions { value_size: 0, ..options() }).unwrap();
    assert_eq!(none.shape(TableTag(0)), None);
}
