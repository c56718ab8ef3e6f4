//! Requests of a client, and the round that every fabric must get right: rows that are set, read and trained.

use reclane::engine::{Client, Request, Rows, Target};
use reclane::ids::TableTag;
use reclane::wire::payload::{Optimizer, TableSpec};

pub fn spec(name: &str, dim: usize) -> TableSpec {
    TableSpec {
        name: name.to_owned(),
        num_embeddings: 10_000,
        dim: u32::try_from(dim).expect("small"),
        optimizer: Optimizer::Sgd,
        learning_rate: 0.5,
        epsilon: 0.0,
        initial_accumulator: 0.0,
    }
}

pub fn table(client: &Client, name: &str, dim: usize) -> TableTag {
    client.init_table(&spec(name, dim)).expect("a table")
}

pub fn get(client: &Client, table: TableTag, keys: &[u64], dim: usize) -> Vec<f32> {
    let mut rows = vec![-1.0_f32; keys.len() * dim];
    let target = Target::Memory { rows: rows.as_mut_ptr(), capacity: rows.len() };
    // SAFETY: what the request points to outlives the call, which returns when it is over.
    unsafe { client.call(&Request::Get { table, keys, target }) }.expect("a GET");
    rows
}

pub fn put(client: &Client, table: TableTag, keys: &[u64], rows: &[f32]) {
    let rows = Rows::Flat { rows: rows.as_ptr(), count: rows.len() };
    // SAFETY: what the request points to outlives the call, which returns when it is over.
    unsafe { client.call(&Request::Put { table, keys, rows }) }.expect("a PUT");
}

pub fn value(key: u64, column: usize) -> f32 {
    (key * 31 + column as u64) as f32
}

pub fn rows_of(keys: &[u64], dim: usize) -> Vec<f32> {
    keys.iter().flat_map(|key| (0..dim).map(|column| value(*key, column))).collect()
}

/// Sets rows of so many keys in a new table, reads them, and trains them twice. The keys, and what their rows are now.
pub fn set_read_and_train(client: &Client, table: TableTag, dim: usize, count: u64) -> (Vec<u64>, Vec<f32>) {
    let keys: Vec<u64> = (0..count).map(|i| i * 7 % 5000).collect();
    let rows = rows_of(&keys, dim);
    put(client, table, &keys, &rows);
    assert_eq!(get(client, table, &keys, dim), rows);
    for key in [0_u64, 1, 7, 4999, 123_456_789_000] {
        let expected = if keys.contains(&key) { rows_of(&[key], dim) } else { vec![0.0; dim] };
        assert_eq!(get(client, table, &[key], dim), expected, "key {key}");
    }
    let gradients = vec![2.0_f32; keys.len() * dim];
    let flat = Rows::Flat { rows: gradients.as_ptr(), count: gradients.len() };
    // SAFETY: what the request points to outlives the call, which returns when it is over.
    unsafe { client.call(&Request::UpdateFlat { table, keys: &keys, gradients: flat }) }.expect("UPDATE_FLAT");
    let pointers: Vec<*const f32> = gradients.chunks(dim).map(<[f32]>::as_ptr).collect();
    let scattered = Rows::Scattered(&pointers);
    // SAFETY: as above.
    unsafe { client.call(&Request::Update { table, keys: &keys, gradients: scattered }) }.expect("UPDATE");
    let expected: Vec<f32> = rows.iter().map(|row| row - 0.5 * 2.0 - 0.5 * 2.0).collect();
    assert_eq!(get(client, table, &keys, dim), expected);
    (keys, expected)
}
