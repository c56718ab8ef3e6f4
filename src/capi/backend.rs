//! Placeholder for the engine's interface on this branch.
#![allow(missing_docs, unused_variables, dead_code, clippy::needless_pass_by_value)]

use std::time::Duration;

use crate::error::{Error, Result, Status};
use crate::ids::TableTag;
use crate::ps::Store;
use crate::sync::Arc;
use crate::wire::payload::{Command, TableSpec};

fn no<T>() -> Result<T> {
    Err(Error::new(Status::Unsupported, "not in this build"))
}

#[derive(Clone, Debug, Default)]
pub struct Options(Vec<(String, String)>);
#[derive(Clone, Debug)]
pub struct Settings {
    pub control_plane_timeout_ms: u64,
}
pub enum Side {
    Server,
    Client,
}

impl Options {
    pub fn new() -> Options {
        Options(Vec::new())
    }
    pub fn from_environment() -> Result<Options> {
        no()
    }
    pub fn set(&mut self, name: &str, value: &str) -> Result<()> {
        self.0.push((name.to_owned(), value.to_owned()));
        Ok(())
    }
    pub fn get(&self, name: &str) -> Result<String> {
        let found = self.0.iter().rev().find(|(n, _)| n == name);
        found.map(|(_, v)| v.clone()).ok_or_else(|| Error::new(Status::UnknownOption, format!("no option {name}")))
    }
    pub fn settings(&self, side: Side) -> Result<Settings> {
        Ok(Settings { control_plane_timeout_ms: 30_000 })
    }
}

#[derive(Clone, Copy, Debug)]
pub struct Token(pub u64);
#[derive(Debug)]
pub struct Buffer;
impl Buffer {
    pub fn data(&self) -> *mut u8 {
        core::ptr::null_mut()
    }
    pub fn bytes(&self) -> usize {
        0
    }
}
pub struct Borrowed {
    pub rows: *const u8,
    pub rows_ready: u32,
    pub rows_total: u32,
}
pub enum Target<'a> {
    Memory { rows: *mut f32, capacity: usize },
    InPlace,
    Buffer { buffer: &'a Buffer, offset_bytes: usize },
}
pub enum Rows<'a> {
    Flat { rows: *const f32, count: usize },
    Scattered(&'a [*const f32]),
    Buffer { buffer: &'a Buffer, offset_bytes: usize },
}
pub enum Request<'a> {
    Get { table: TableTag, keys: &'a [u64], target: Target<'a> },
    Put { table: TableTag, keys: &'a [u64], rows: Rows<'a> },
    Update { table: TableTag, keys: &'a [u64], gradients: Rows<'a> },
    UpdateFlat { table: TableTag, keys: &'a [u64], gradients: Rows<'a> },
}
#[derive(Default)]
pub struct LaneInfo {
    pub state: u32,
    pub generation: u32,
    pub slots: u32,
    pub slots_in_use: u32,
    pub commit_scheme: u32,
}
#[derive(Default)]
pub struct ClientStats;
#[derive(Default)]
pub struct ServerStats;

#[derive(Debug)]
pub struct Client;
impl Client {
    pub fn open(settings: &Settings) -> Result<Client> {
        no()
    }
    pub fn num_shards(&self) -> u32 {
        0
    }
    pub fn shard_of(&self, key: u64) -> u32 {
        0
    }
    pub fn client_id(&self) -> u32 {
        0
    }
    pub fn init_table(&self, spec: &TableSpec) -> Result<TableTag> {
        no()
    }
    pub unsafe fn submit(&self, request: &Request<'_>) -> Result<Token> {
        no()
    }
    pub fn query(&self, t: Token) -> Result<bool> {
        no()
    }
    pub fn wait(&self, t: Token, timeout: Option<Duration>) -> Result<()> {
        no()
    }
    pub fn borrow(&self, t: Token) -> Result<Borrowed> {
        no()
    }
    pub fn revoke(&self, t: Token) -> Result<()> {
        no()
    }
    pub fn command(&self, c: &Command) -> Result<()> {
        no()
    }
    pub fn barrier(&self, name: &str, participants: u32, timeout: Duration) -> Result<()> {
        no()
    }
    pub fn allocate_buffer(&self, bytes: usize) -> Result<Buffer> {
        no()
    }
    pub fn lane(&self, shard: u32, lane: u32) -> Result<LaneInfo> {
        no()
    }
    pub fn stats(&self) -> ClientStats {
        ClientStats
    }
    pub fn shutdown(&self, timeout: Duration) -> Result<()> {
        no()
    }
}

#[derive(Debug)]
pub struct Server;
impl Server {
    pub fn start(settings: &Settings, store: Arc<dyn Store>) -> Result<Server> {
        no()
    }
    pub fn start_with_table(settings: &Settings) -> Result<Server> {
        no()
    }
    pub fn stop(&self, timeout: Duration) -> Result<()> {
        no()
    }
    pub fn stats(&self) -> ServerStats {
        ServerStats
    }
    pub fn control_plane_port(&self) -> Option<u16> {
        None
    }
}
