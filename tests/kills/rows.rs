//! Rows that tell whose they are: the key in the first column, one version in all others. A torn row has two versions, a
//! foreign one another key.

use reclane::engine::{Client, Request, Rows, Target};
use reclane::error::Result;
use reclane::ids::TableTag;
use reclane::wire::payload::{Optimizer, TableSpec};

/// Every GET of these keys finds a row; `f32` holds them exactly.
pub const KEYS: u64 = 4096;

pub fn spec(name: &str, dim: usize) -> TableSpec {
    TableSpec {
        name: name.to_owned(),
        num_embeddings: KEYS,
        dim: u32::try_from(dim).expect("a width"),
        optimizer: Optimizer::Sgd,
        learning_rate: 1.0,
        epsilon: 0.0,
        initial_accumulator: 0.0,
    }
}

/// A table and its width.
#[derive(Clone, Copy)]
pub struct Table {
    pub tag: TableTag,
    pub dim: usize,
}

impl Table {
    /// Creates or finds the table.
    pub fn open(client: &Client, name: &str, dim: usize) -> Table {
        Table { tag: client.init_table(&spec(name, dim)).expect("a table"), dim }
    }

    /// Every key gets version 0.
    pub fn fill(self, client: &Client) {
        let keys: Vec<u64> = (0..KEYS).collect();
        self.put(client, &keys, 0.0).expect("a PUT");
    }

    pub fn rows(self, keys: &[u64], version: f32) -> Vec<f32> {
        let column = |key: u64, column: usize| if column == 0 { key as f32 } else { version };
        keys.iter().flat_map(|key| (0..self.dim).map(move |c| column(*key, c))).collect()
    }

    pub fn put(self, client: &Client, keys: &[u64], version: f32) -> Result<()> {
        let rows = self.rows(keys, version);
        let rows = Rows::Flat { rows: rows.as_ptr(), count: rows.len() };
        // SAFETY: keys and rows outlive the call, which returns when the request is over.
        unsafe { client.call(&Request::Put { table: self.tag, keys, rows }) }
    }

    /// Raises the version of each key by `step`, from rows that lie apart.
    pub fn update(self, client: &Client, keys: &[u64], step: f32) -> Result<()> {
        let gradient: Vec<f32> = (0..self.dim).map(|c| if c == 0 { 0.0 } else { -step }).collect();
        let copies = vec![gradient; keys.len()];
        let pointers: Vec<*const f32> = copies.iter().map(|row| row.as_ptr()).collect();
        let gradients = Rows::Scattered(&pointers);
        // SAFETY: as in `put`.
        unsafe { client.call(&Request::Update { table: self.tag, keys, gradients }) }
    }

    pub fn get(self, client: &Client, keys: &[u64]) -> Result<Vec<f32>> {
        let mut rows = vec![f32::NAN; keys.len() * self.dim];
        let target = Target::Memory { rows: rows.as_mut_ptr(), capacity: rows.len() };
        // SAFETY: as in `put`.
        unsafe { client.call(&Request::Get { table: self.tag, keys, target }) }?;
        Ok(rows)
    }

    /// The version of each row, after a look at whether it is whole and belongs to its key.
    pub fn versions(self, keys: &[u64], rows: &[f32]) -> Vec<f32> {
        assert_eq!(rows.len(), keys.len() * self.dim);
        let check = |(key, row): (&u64, &[f32])| {
            assert_eq!(row[0], *key as f32, "a foreign row for key {key}: {row:?}");
            assert!(row[1..].iter().all(|c| *c == row[1]), "a torn row for key {key}: {row:?}");
            row[1]
        };
        keys.iter().zip(rows.chunks(self.dim)).map(check).collect()
    }
}
