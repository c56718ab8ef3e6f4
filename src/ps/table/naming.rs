//! How tables get their tags, and several tags one table.

use super::one::Table;
use super::{BuiltinStore, TABLES_MAX};
use crate::error::Result;
use crate::ids::TableTag;
use crate::sync::{Ordering, lock};
use crate::wire::RpcStatus;
use crate::wire::payload::TableSpec;
use std::collections::HashMap;
use std::collections::hash_map::Entry;

impl BuiltinStore {
    /// The table of this spec under `wanted`, made if there is none; without a wish, under the lowest tag that is free. A
    /// table that has another tag already gets this one too, so that shards that disagree come to agree. None: the tag is
    /// another table's.
    pub(super) fn name_table(
        &self,
        spec: &TableSpec,
        wanted: Option<TableTag>,
    ) -> core::result::Result<Option<TableTag>, RpcStatus> {
        if let Some(problem) = spec.problem() {
            crate::event!(
                crate::observe::Level::WARN,
                crate::observe::events::STORE_REFUSED,
                shard = self.options.shard,
                "INIT_TABLE refused: {problem}"
            );
            return Err(RpcStatus::InvalidPayload);
        }
        let mut names = lock(&self.names);
        if let Some(tag) = names.get(&spec.name) {
            if self.table(*tag)?.spec != *spec {
                return Err(RpcStatus::InvalidPayload);
            }
            return Ok(self.also_name(*tag, wanted.unwrap_or(*tag)));
        }
        let tag = match wanted {
            Some(tag) if self.table(tag).is_ok() => return Ok(None),
            Some(tag) => tag,
            None => self.free_tag().ok_or(RpcStatus::BatchTooLarge)?,
        };
        self.make_named(&mut names, tag, spec).map(|()| Some(tag)).map_err(|error| {
            crate::event!(
                crate::observe::Level::ERROR,
                crate::observe::events::STORE_REFUSED,
                shard = self.options.shard,
                table = spec.name,
                "INIT_TABLE failed: {error}"
            );
            RpcStatus::InternalError
        })
    }

    /// Lets `tag`'s table be found under `other` as well.
    pub(super) fn also_name(&self, tag: TableTag, other: TableTag) -> Option<TableTag> {
        let table = self.tables[usize::from(tag.0)].load(Ordering::Relaxed);
        let place = &self.tables[usize::from(other.0)];
        // The names are locked, so nobody else sets a place meanwhile.
        let known = place.load(Ordering::Relaxed);
        if known.is_null() {
            // Release: pairs with `table`.
            place.store(table, Ordering::Release);
            if let Ok(table) = self.table(other) {
                self.show(other, table);
            }
        }
        (known.is_null() || known == table).then_some(other)
    }

    /// The lowest tag without a table. Tag 0 is the default table's, whether there is one or not.
    #[allow(clippy::cast_possible_truncation)] // there are TABLES_MAX
    fn free_tag(&self) -> Option<TableTag> {
        (1..TABLES_MAX).map(|tag| TableTag(tag as u16)).find(|tag| self.table(*tag).is_err())
    }

    fn make_named(&self, names: &mut HashMap<String, TableTag>, tag: TableTag, spec: &TableSpec) -> Result<()> {
        if let Entry::Vacant(place) = names.entry(spec.name.clone()) {
            self.add_table(tag, spec.clone())?;
            place.insert(tag);
        }
        Ok(())
    }

    /// Makes a table that a file has and the store has not: under the file's tag if that is free.
    pub(super) fn make_loaded(&self, tag: TableTag, spec: &TableSpec) -> Result<()> {
        let mut names = lock(&self.names);
        let tag = if self.table(tag).is_err() { Some(tag) } else { self.free_tag() };
        let full = || {
            let message = format!("table '{}' cannot be made: all {TABLES_MAX} tags are taken", spec.name);
            crate::error::Error::new(crate::error::Status::ResourceLimit, message).at_shard(self.options.shard)
        };
        self.make_named(&mut names, tag.ok_or_else(full)?, spec)
    }

    /// The store's table that a file means: by name, for its tag may have been another.
    pub(super) fn meant(&self, tag: TableTag, name: &str) -> Option<&Table> {
        let tag = if tag == TableTag(0) { Some(tag) } else { lock(&self.names).get(name).copied() };
        self.table(tag?).ok()
    }
}
