//! One shard and one client in this process, over shared memory: what one request takes from call to return, at depth 1.
//! Ratios to what the machine can do are told by `reclane bench`, which puts the two into processes of their own.
#![allow(missing_docs)] // what divan generates

use divan::Bencher;
use reclane::engine::{Client, Request, Rows, Server, Target, builtin_store};
use reclane::ids::TableTag;
use reclane::options::{Options, Settings, Side};
use reclane::sync::{Arc, OnceLock};
use reclane::wire::payload::{Optimizer, TableSpec};

fn main() {
    divan::main();
}

struct Bed {
    /// Before the server, so that it is closed first.
    client: Client,
    _server: Server,
}

const KEYS: u64 = 1 << 18;

fn settings(side: Side, port: u16) -> Settings {
    let mut options = Options::new();
    let (port, name) = (port.to_string(), format!("hot-path-{}", std::process::id()));
    let given = [
        ("rdma-namespace", name.as_str()),
        ("rdma-control-plane-port", port.as_str()),
        ("max-kv-num-per-request", "1024"),
        ("hash-method", "simple_mod"),
    ];
    for (option, value) in given {
        options.set(option, value).expect("a valid option");
    }
    options.settings(side).expect("valid options")
}

fn bed() -> &'static Bed {
    static BED: OnceLock<Bed> = OnceLock::new();
    BED.get_or_init(|| {
        let ours = settings(Side::Server, 0);
        let store = builtin_store(&ours).expect("a store");
        let server = Server::start(&ours, Arc::new(store)).expect("a server");
        let port = server.control_plane_port().expect("shard 0 has it");
        let client = Client::open(&settings(Side::Client, port)).expect("a client");
        Bed { client, _server: server }
    })
}

fn table(dim: u32) -> TableTag {
    let spec = TableSpec {
        name: format!("bench-{dim}"),
        num_embeddings: KEYS,
        dim,
        optimizer: Optimizer::Sgd,
        learning_rate: 0.01,
        epsilon: 0.0,
        initial_accumulator: 0.0,
    };
    bed().client.init_table(&spec).expect("a table")
}

/// Keys that look random and are the same in every run.
fn keys(count: u64) -> Vec<u64> {
    (0..count).map(|i| i.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 46).collect()
}

const SHAPES: [(u64, u32); 3] = [(1, 16), (32, 128), (512, 32)];

#[divan::bench(args = SHAPES)]
fn get(bencher: Bencher<'_, '_>, (count, dim): (u64, u32)) {
    let (table, keys) = (table(dim), keys(count));
    let mut rows = vec![0.0_f32; keys.len() * dim as usize];
    bencher.bench_local(|| {
        let target = Target::Memory { rows: rows.as_mut_ptr(), capacity: rows.len() };
        // SAFETY: the rows live until the call returns.
        unsafe { bed().client.call(&Request::Get { table, keys: &keys, target }) }.expect("a GET");
    });
}

#[divan::bench(args = SHAPES)]
fn put(bencher: Bencher<'_, '_>, (count, dim): (u64, u32)) {
    let (table, keys) = (table(dim), keys(count));
    let rows = vec![1.0_f32; keys.len() * dim as usize];
    bencher.bench_local(|| {
        let rows = Rows::Flat { rows: rows.as_ptr(), count: rows.len() };
        // SAFETY: the rows live until the call returns.
        unsafe { bed().client.call(&Request::Put { table, keys: &keys, rows }) }.expect("a PUT");
    });
}

#[divan::bench(args = SHAPES)]
fn update(bencher: Bencher<'_, '_>, (count, dim): (u64, u32)) {
    let (table, keys) = (table(dim), keys(count));
    let gradients = vec![0.0_f32; keys.len() * dim as usize];
    bencher.bench_local(|| {
        let gradients = Rows::Flat { rows: gradients.as_ptr(), count: gradients.len() };
        // SAFETY: the gradients live until the call returns.
        unsafe { bed().client.call(&Request::UpdateFlat { table, keys: &keys, gradients }) }.expect("an UPDATE");
    });
}
