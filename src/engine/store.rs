//! The built-in store, made as the settings say.

use super::Server;
use super::client::hash_method;
use crate::error::Result;
use crate::options::{HugePages as Asked, Settings};
use crate::ps::table::HugePages;
use crate::ps::{BuiltinStore, StoreOptions};

/// The built-in store of the shard that the settings name.
///
/// # Errors
/// `OsError` when no address space can be had; `OptionBounds` for a shard or value size out of range.
pub fn builtin_store(settings: &Settings) -> Result<BuiltinStore> {
    BuiltinStore::new(StoreOptions {
        shard: settings.shard_id,
        num_shards: settings.num_shards,
        hash_method: hash_method(settings.hash_method),
        workers: Server::workers(settings),
        value_size: settings.value_size,
        huge_pages: match settings.huge_pages {
            Asked::Auto => HugePages::Auto,
            Asked::On => HugePages::On,
            Asked::Off => HugePages::Off,
        },
        dense_bytes_max: 0,
        checkpoint_directory: Some(&settings.checkpoint_directory)
            .filter(|directory| !directory.is_empty())
            .map(Into::into),
    })
}
