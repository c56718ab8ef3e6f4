//! The built-in store, made as the settings say.

use super::Server;
use crate::error::Result;
use crate::options::{FabricKind, Settings, SharedReads};
use crate::ps::{BuiltinStore, StoreOptions};
use std::path::PathBuf;

/// The built-in store of the shard that the settings name.
///
/// # Errors
/// `OsError` when no address space can be had; `OptionBounds` for a shard or value size out of range.
pub fn builtin_store(settings: &Settings) -> Result<BuiltinStore> {
    let directory = PathBuf::from(&settings.checkpoint_directory);
    BuiltinStore::new(StoreOptions {
        shard: settings.shard_id,
        num_shards: settings.num_shards,
        hash_method: settings.hash_method,
        workers: Server::workers(settings),
        value_size: settings.value_size,
        huge_pages: settings.huge_pages,
        numa_id: settings.numa_id,
        dense_bytes_max: 0,
        checkpoint_directory: Some(directory).filter(|path| !path.as_os_str().is_empty()),
        shared: settings.fabric == FabricKind::Shm && settings.shared_reads == SharedReads::Auto,
    })
}
