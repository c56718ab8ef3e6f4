//! A deployment with a directory of checkpoints, and tables whose every bit can be compared.

use crate::rows::Table;
use crate::support::{Deployment, PATIENCE, Process, with};
use reclane::engine::{CheckpointState, CheckpointStatus, Client, Request, Rows};
use reclane::error::Result;
use reclane::ids::TableTag;
use reclane::wire::payload::{Optimizer, TableSpec};

#[path = "../common/directory.rs"]
mod directory;
pub use directory::Directory;

/// A deployment of so many shards with checkpoints.
pub fn deployment(shards: u32, directory: &Directory, changes: &[(&str, &str)]) -> Deployment {
    let mut all = vec![("checkpoint-directory", directory.path()), ("checkpoint-restore", "latest")];
    all.extend_from_slice(changes);
    Deployment::start(shards, &all)
}

/// kill -9 of everybody.
pub fn kill_all(deployment: &mut Deployment) {
    deployment.servers.iter().for_each(|server| server.signal(libc::SIGKILL));
    deployment.servers.clear();
}

/// Starts all shards again, so many as `shards` says.
pub fn start_all(deployment: &mut Deployment, shards: u32) {
    deployment.changes = with(&deployment.changes, "num-server-processes", shards);
    deployment.changes = with(&deployment.changes, "rdma-control-plane-port", "0");
    for shard in 0..shards {
        let server = deployment.server(shard);
        deployment.servers.push(server);
    }
}

/// Starts one shard that dies at a step.
pub fn doomed(deployment: &mut Deployment, shard: u32, label: &str, times: u64) -> Process {
    let changes = with(&deployment.changes, "shard-id", shard);
    Process::start(&format!("server that dies at {label} {times}"), &changes)
}

pub fn checkpoint(client: &Client, full: bool) -> Result<CheckpointStatus> {
    let number = client.checkpoint_begin(full, Some(("position".to_owned(), b"here".to_vec())))?;
    client.checkpoint_wait(number, CheckpointState::Committed, PATIENCE)
}

pub const KEYS: u64 = 3000;
pub const DIM: usize = 12;

/// Three tables, one of each kind of optimizer state, and a default one.
#[derive(Clone, Copy)]
pub struct Model {
    pub plain: Table,
    pub adagrad: TableTag,
    pub rowwise: TableTag,
    pub hashed: TableTag,
}

fn spec(name: &str, keys: u64, optimizer: Optimizer) -> TableSpec {
    TableSpec {
        name: name.to_owned(),
        num_embeddings: keys,
        dim: u32::try_from(DIM).expect("small"),
        optimizer,
        learning_rate: 0.37,
        epsilon: 1e-3,
        initial_accumulator: 0.25,
    }
}

impl Model {
    pub fn open(client: &Client) -> Model {
        let table = |name, keys, optimizer| client.init_table(&spec(name, keys, optimizer)).expect("a table");
        Model {
            plain: Table::open(client, "plain", DIM),
            adagrad: table("adagrad", KEYS, Optimizer::Adagrad),
            rowwise: table("rowwise", KEYS, Optimizer::RowwiseAdagrad),
            // Beyond what the table expects: these keys are hashed.
            hashed: table("hashed", 10, Optimizer::Adagrad),
        }
    }

    pub fn tags(&self) -> [TableTag; 4] {
        [self.plain.tag, self.adagrad, self.rowwise, self.hashed]
    }

    /// One step of training: which keys and gradients follows from its number.
    pub fn step(&self, client: &Client, number: u64) -> Result<()> {
        for tag in self.tags() {
            let keys: Vec<u64> = (0..60).map(|i| (number * 7919 + i * 104_729) % KEYS).collect();
            let value = |i: usize| ((number.wrapping_mul(31) + i as u64) % 17) as f32 * 0.11 - 0.7;
            let gradients: Vec<f32> = (0..keys.len() * DIM).map(value).collect();
            let gradients = Rows::Flat { rows: gradients.as_ptr(), count: gradients.len() };
            // SAFETY: keys and rows outlive the call.
            unsafe { client.call(&Request::UpdateFlat { table: tag, keys: &keys, gradients }) }?;
        }
        Ok(())
    }

    /// Every bit of every row.
    pub fn bits(&self, client: &Client) -> Vec<u32> {
        let keys: Vec<u64> = (0..KEYS).collect();
        let mut all = Vec::new();
        for tag in self.tags() {
            let rows = Table { tag, dim: DIM }.get(client, &keys).expect("a GET");
            all.extend(rows.iter().map(|value| value.to_bits()));
        }
        all
    }
}
