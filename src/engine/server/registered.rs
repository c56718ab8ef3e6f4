//! The store's rows as memory that the device knows: registered piece by piece when a row there is first sent from where
//! it lies.

use super::core::Shared;
use crate::error::Result;
use crate::fabric::{Access, Fabric, Region, Sge};
use crate::options::GetResponseMode;
use crate::ps::{RowKeys, Store};
use crate::sync::{Arc, Mutex, lock};
use crate::wire::payload::DIM_MAX;
use core::ptr::NonNull;
use std::collections::BTreeMap;

type Pieces<R> = BTreeMap<usize, (usize, Option<R>)>;

/// Registered pieces of the rows' memory.
#[derive(Debug)]
pub(super) struct Registered<F: Fabric> {
    zeros: F::Region,
    /// By start: where each piece ends, and its registration; None: it was refused.
    pieces: Mutex<Pieces<F::Region>>,
    shared: Arc<Shared<F>>,
    /// After the registrations: it keeps the memory.
    store: StoreOf,
}

struct StoreOf(Arc<dyn Store>);

impl core::fmt::Debug for StoreOf {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.write_str("Store")
    }
}

impl<F: Fabric> Registered<F> {
    /// None: rows are copied, the store pins none, this fabric needs no registrations, or several threads share the store.
    /// Then one would wait, inside the store's gate, for rows that another has pinned, and that one could wait at the gate
    /// and so never see that its rows were sent. A single thread lays writes aside while it has pins, and never waits.
    pub(super) fn of(shared: &Arc<Shared<F>>, store: &Arc<dyn Store>) -> Result<Option<Arc<dyn RowKeys>>> {
        let settings = &shared.settings;
        let is_shared = settings.server_threads > 1 || settings.get_workers > 0;
        let copied = settings.get_response_mode == GetResponseMode::StagingCopy || is_shared;
        if copied || shared.fabric.capabilities().load_store || store.row_memory().is_none() {
            return Ok(None);
        }
        let zeros = shared.fabric.allocate(DIM_MAX as usize * 4, Access::LOCAL)?;
        let (shared, store) = (Arc::clone(shared), StoreOf(Arc::clone(store)));
        Ok(Some(Arc::new(Registered { zeros, pieces: Mutex::default(), shared, store })))
    }

    /// The piece of the store's memory that holds these bytes, if they lie in one.
    fn piece(&self, address: usize, bytes: usize) -> Option<(*const u8, usize)> {
        let memory = self.store.0.row_memory()?;
        let (base, length) = memory.into_iter().find(|(base, length)| {
            address >= base.addr() && address.checked_add(bytes).is_some_and(|end| end <= base.addr() + length)
        })?;
        // Pages that were never touched are pinned as well, so not all of a large table at once.
        let most = usize::try_from(self.shared.settings.region_bytes).unwrap_or(usize::MAX);
        let first = (address - base.addr()) / most * most;
        let length = (length - first).min(most);
        // A row across two pieces is copied.
        (address - base.addr() + bytes <= first + length).then(|| (base.wrapping_add(first), length))
    }

    fn register(&self, base: *const u8, bytes: usize) -> Option<F::Region> {
        let memory = NonNull::new(base.cast_mut())?;
        // SAFETY: the store's memory is readable and lives as long as the store, which this value keeps beyond the region.
        let registered = unsafe { self.shared.fabric.register(memory, bytes) };
        let shard = self.shared.settings.shard_id;
        match registered {
            Ok(region) => {
                crate::event!(
                    crate::observe::Level::INFO,
                    crate::observe::events::VALUE_REGION_REGISTERED,
                    shard,
                    bytes
                );
                Some(region)
            }
            Err(error) => {
                crate::event!(
                    crate::observe::Level::WARN,
                    crate::observe::events::VALUE_REGION_UNAVAILABLE,
                    shard,
                    bytes,
                    error = %error
                );
                None
            }
        }
    }
}

impl<F: Fabric> RowKeys for Registered<F> {
    fn find(&self, address: usize, bytes: usize) -> Option<(usize, usize, u32)> {
        let mut pieces = lock(&self.pieces);
        let known = pieces.range(..=address).next_back().filter(|(_, (end, _))| address + bytes <= *end);
        if let Some((start, (end, region))) = known {
            return region.as_ref().map(|region| (*start, *end, region.lkey()));
        }
        let (base, length) = self.piece(address, bytes)?;
        let region = self.register(base, length);
        let found = region.as_ref().map(|region| (base.addr(), base.addr() + length, region.lkey()));
        pieces.insert(base.addr(), (base.addr() + length, region));
        found
    }

    fn zeros(&self) -> Sge {
        let bytes = u32::try_from(self.zeros.bytes()).unwrap_or(u32::MAX);
        Sge { address: self.zeros.base().as_ptr().cast_const(), bytes, lkey: self.zeros.lkey() }
    }
}
