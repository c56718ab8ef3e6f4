//! One table of one shard: keys, rows, and how the two meet.

use super::arena::RowMemory;
use super::index::{HashIndex, Presence, Zeroed, fetch_line, fetch_row};
use super::optimizer::{make_fresh, state_bytes};
use super::rows::{Rows, Spot, first_shift, stride_of};
use super::shared::{Entry, Index, More, SharedRows};
use crate::error::{Error, Result, Status};
use crate::ids::TableTag;
use crate::ps::routing::{HashMethod, Router};
use crate::sync::{Arc, AtomicU32, Mutex, Ordering, lock};
use crate::wire::RpcStatus;
use crate::wire::payload::TableSpec;
use core::cell::UnsafeCell;

/// Stands for "no row".
pub(super) const ABSENT: u32 = u32::MAX;
/// Rows of a table at most.
const ROWS_MAX: u32 = u32::MAX - 1;
/// Rows of a table by key number: more would not leave numbers for other keys.
const DENSE_ROWS_MAX: u64 = 1 << 31;
/// Most bytes of an index by key number that others read: to look into it takes memory, whether a key is there or not.
const SHARED_INDEX_BYTES_MAX: u64 = 256 << 20;

/// How keys below `dense_keys` find their rows.
enum Keying {
    /// The key's number inside the shard is its row.
    Direct(Presence),
    /// By an array: row plus one for each key; 0: none yet.
    Mapped(Zeroed<AtomicU32>),
    /// Not at all: every key is hashed.
    Hashed,
}

/// What all tables of a store share.
pub(super) struct Place<'a> {
    pub router: Router,
    pub shard: u32,
    pub memory: &'a Arc<dyn RowMemory>,
    /// Where rows found by number lie, if clients may read them there.
    pub shared: Option<&'a Arc<SharedRows>>,
    pub dense_bytes_max: u64,
    pub seed: u64,
    /// Whether large indexes ask for huge pages.
    pub huge_pages: bool,
}

pub(super) struct Table {
    pub spec: TableSpec,
    pub tag: TableTag,
    pub row_bytes: usize,
    pub state_bytes: usize,
    router: Router,
    shard: u32,
    dense_keys: u64,
    keying: Keying,
    hash: UnsafeCell<HashIndex>,
    pub rows: Rows,
    /// Number of the next row that is made for a key; also the lock of insertions.
    next_row: Mutex<u32>,
    first_free_row: u32,
    /// Where all of it lies, and what is told of it.
    shared: Option<More>,
}

// SAFETY: `hash` is replaced only by `grow` and `clear`, whose callers are alone in the store (gate, or a single
// worker); everything else in it is atomic.
unsafe impl Sync for Table {}

#[allow(clippy::cast_possible_truncation)] // numbers of rows and dense keys are bounded by DENSE_ROWS_MAX; 64-bit only
impl Table {
    pub fn new(tag: TableTag, spec: TableSpec, place: &Place<'_>) -> Result<Table> {
        let row_bytes = spec.dim as usize * 4;
        let state_stride = state_bytes(&spec);
        let shards = u64::from(place.router.shards());
        let direct = shards == 1 || place.router.method() == HashMethod::SimpleMod;
        // A hashing router spreads keys unevenly by chance: a little room beyond the mean, the rest goes to chunks.
        let share = spec.num_embeddings.div_ceil(shards);
        let rows = if direct { share } else { share + share / 16 };
        let bytes = rows.saturating_mul((stride_of(row_bytes) + state_stride) as u64);
        let index_bytes = if direct { 0 } else { spec.num_embeddings.saturating_mul(4) };
        let dense = rows <= DENSE_ROWS_MAX && bytes.saturating_add(index_bytes) <= place.dense_bytes_max;
        let wanted = if dense { rows as u32 } else { 0 };
        let made = |memory: &dyn RowMemory, wanted| Rows::new(place.memory, memory, row_bytes, state_stride, wanted);
        let lies_in = |rows: &SharedRows| {
            // SAFETY: the table keeps what its rows lie in.
            let keying = unsafe {
                if wanted == 0 {
                    Keying::Hashed
                } else if direct {
                    Keying::Direct(Presence::within(wanted, rows)?)
                } else {
                    Keying::Mapped(Zeroed::within(spec.num_embeddings as usize, rows)?)
                }
            };
            Ok::<_, Box<Error>>((made(rows, wanted)?, keying))
        };
        let looked_into = if direct { u64::from(wanted) / 8 } else { index_bytes };
        // Where there is no room for all of it, none of it is shared.
        let shared = place.shared.filter(|_| wanted == 0 || looked_into <= SHARED_INDEX_BYTES_MAX).and_then(|rows| {
            let more = rows.more(first_shift(stride_of(row_bytes))).ok()?;
            Some((lies_in(rows).ok()?, more))
        });
        let (rows, dense_rows, keying, shared) = if let Some(((mut rows, keying), more)) = shared {
            rows.share(more.clone());
            (rows, wanted, Some(keying), Some(more))
        } else {
            match made(&**place.memory, wanted) {
                // Tables before this one took the room: its rows come one by one then.
                Err(error) if error.status == Status::ResourceLimit && wanted != 0 => {
                    (made(&**place.memory, 0)?, 0, None, None)
                }
                made => (made?, wanted, None, None),
            }
        };
        let dense_keys = if dense_rows == 0 { 0 } else { spec.num_embeddings };
        let keying = match (keying, dense_keys, direct) {
            (Some(keying), ..) => keying,
            (None, 0, _) => Keying::Hashed,
            (None, _, true) => Keying::Direct(Presence::new(dense_rows, place.huge_pages)?),
            (None, _, false) => Keying::Mapped(Zeroed::new(dense_keys as usize, place.huge_pages)?),
        };
        let first_free_row = if direct { dense_rows } else { 0 };
        Ok(Table {
            rows,
            spec,
            tag,
            row_bytes,
            state_bytes: state_stride,
            router: place.router,
            shard: place.shard,
            dense_keys,
            keying,
            hash: UnsafeCell::new(HashIndex::new(place.seed, place.huge_pages, shared.clone())),
            next_row: Mutex::new(first_free_row),
            first_free_row,
            shared,
        })
    }

    /// What readers of other processes need to know of it, if they can read it.
    pub fn entry(&self) -> Option<Entry> {
        let more = self.shared.clone()?;
        let index = match &self.keying {
            Keying::Direct(presence) => Index::Bits(presence.words().as_ptr()),
            Keying::Mapped(numbers) => Index::Numbers(numbers.as_ptr()),
            Keying::Hashed => Index::Nothing,
        };
        let (rows, first_row) = self.rows.dense();
        let (row_bytes, stride) = (u32::try_from(self.row_bytes).ok()?, u32::try_from(self.rows.stride()).ok()?);
        Some(Entry { row_bytes, stride, keys: self.dense_keys, rows, first_row, index, more })
    }

    /// A row is about to be made: asks for huge pages where it and its state lie.
    pub fn warm(&self, row: u32, spot: Spot) {
        let Some(shared) = &self.shared else { return };
        shared.rows().warm(spot.row, self.row_bytes);
        shared.rows().warm(spot.state, self.state_bytes);
        if let Keying::Direct(presence) = &self.keying
            && row < self.rows.dense().0
        {
            shared.rows().warm(core::ptr::from_ref(&presence.words()[row as usize / 64]).cast(), 8);
        }
    }

    #[inline]
    fn hash(&self) -> &HashIndex {
        // SAFETY: shared access; see `impl Sync`.
        unsafe { &*self.hash.get() }
    }

    /// Whether every key that the table expects is its own row number: the fast kind.
    #[inline]
    pub fn is_direct(&self) -> bool {
        matches!(self.keying, Keying::Direct(_))
    }

    /// The row of a key, or [`ABSENT`].
    #[inline(always)]
    pub fn find(&self, key: u64) -> core::result::Result<u32, RpcStatus> {
        let Some(local) = self.router.local(key, self.shard) else {
            return Err(RpcStatus::WrongShard);
        };
        if key < self.dense_keys {
            match &self.keying {
                Keying::Direct(presence) => {
                    return Ok(if presence.has(local as u32) { local as u32 } else { ABSENT });
                }
                // Acquire: pairs with `make_row`: the row's first contents are there. 0 wraps to ABSENT.
                Keying::Mapped(rows) => return Ok(rows[local as usize].load(Ordering::Acquire).wrapping_sub(1)),
                Keying::Hashed => {}
            }
        }
        Ok(self.hash().find(key).unwrap_or(ABSENT))
    }

    /// Asks for what `find` of this key will read first.
    #[inline]
    pub fn fetch_index(&self, key: u64) {
        match &self.keying {
            Keying::Direct(presence) if key < self.dense_keys => {
                if let Some(local) = self.router.local(key, self.shard) {
                    presence.fetch(local as u32);
                }
            }
            Keying::Mapped(rows) if key < self.dense_keys => {
                fetch_line(core::ptr::from_ref(&rows[key as usize]).cast());
            }
            _ => self.hash().fetch(key),
        }
    }

    /// Asks for the row of a key that has one by its number. Safe beside growth: such rows and their array stay.
    #[inline]
    pub fn hint(&self, key: u64) {
        let row = match &self.keying {
            _ if key >= self.dense_keys => return,
            Keying::Direct(_) => self.router.local(key, self.shard).map(|local| local as u32),
            // Acquire: pairs with `make_row`, so that the row has an address.
            Keying::Mapped(rows) => rows[key as usize].load(Ordering::Acquire).checked_sub(1),
            Keying::Hashed => None,
        };
        if let Some(row) = row {
            fetch_row(self.rows.address(row), self.row_bytes);
        }
    }

    /// That this shard owns all keys.
    ///
    /// # Errors
    /// `WrongShard`.
    pub fn check_owner(&self, keys: &[u64]) -> core::result::Result<(), RpcStatus> {
        if self.router.shards() > 1 && !keys.iter().all(|key| self.router.shard_of(*key) == self.shard) {
            return Err(RpcStatus::WrongShard);
        }
        Ok(())
    }

    /// The row number that an absent key has by itself when the table is direct, and the bits that say which rows are there.
    #[inline]
    pub fn direct_row(&self, key: u64) -> Option<(u32, &Presence)> {
        match &self.keying {
            Keying::Direct(presence) if key < self.dense_keys => {
                self.router.local(key, self.shard).map(|local| (local as u32, presence))
            }
            _ => None,
        }
    }

    /// The row of a key, made if need be, fresh. Not for keys that have a [`Table::direct_row`].
    pub fn make_row(&self, key: u64) -> Result<u32> {
        let mut next = lock(&self.next_row);
        if let Ok(row) = self.find(key)
            && row != ABSENT
        {
            return Ok(row);
        }
        let row = *next;
        if row >= ROWS_MAX {
            return Err(Error::new(
                Status::ResourceLimit,
                format!("table '{}' has {row} rows already", self.spec.name),
            ));
        }
        self.rows.ensure(row)?;
        let spot = self.rows.spot(row);
        self.warm(row, spot);
        // SAFETY: nobody knows this row before it is published below.
        unsafe { make_fresh(spot, &self.spec) };
        match &self.keying {
            Keying::Mapped(rows) if key < self.dense_keys => {
                if let Some(shared) = &self.shared {
                    shared.rows().warm(core::ptr::from_ref(&rows[key as usize]).cast(), 4);
                }
                // Release: pairs with `find`.
                rows[key as usize].store(row + 1, Ordering::Release);
            }
            _ => self.hash().insert(key, row),
        }
        *next += 1;
        Ok(row)
    }

    /// Keys of the batch that may need a place in the hash index.
    #[inline]
    fn hashed_keys(&self, keys: &[u64]) -> usize {
        keys.iter().filter(|key| **key >= self.dense_keys).count()
    }

    /// Whether the index must grow before these keys are written by each of `workers` at once.
    #[inline]
    pub fn is_short_of(&self, keys: &[u64], workers: usize) -> bool {
        let hashed = self.hashed_keys(keys);
        hashed != 0 && self.hash().is_short_of(hashed.max(keys.len()) * workers)
    }

    /// Makes room in the index for so many keys.
    ///
    /// # Errors
    /// `ResourceLimit`; nothing has changed then.
    ///
    /// # Safety
    /// Nobody else uses the table meanwhile.
    pub unsafe fn grow(&self, keys: usize, workers: usize) -> Result<()> {
        // SAFETY: the caller is alone.
        unsafe { (*self.hash.get()).grow(keys * workers) }
    }

    /// Forgets all rows; memory is kept.
    ///
    /// # Safety
    /// Nobody else uses the table meanwhile.
    pub unsafe fn clear(&self) {
        match &self.keying {
            Keying::Direct(presence) => presence.clear(),
            Keying::Mapped(rows) => rows.iter().filter(|row| row.load(Ordering::Relaxed) != 0).for_each(|row| {
                row.store(0, Ordering::Relaxed);
            }),
            Keying::Hashed => {}
        }
        // SAFETY: the caller is alone.
        unsafe { (*self.hash.get()).clear() };
        *lock(&self.next_row) = self.first_free_row;
    }

    /// Rows below this number have the key that follows from it.
    pub fn direct_rows(&self) -> u32 {
        if self.is_direct() { self.first_free_row } else { 0 }
    }

    /// How many rows there are, about.
    pub fn row_count(&self) -> usize {
        let direct = match &self.keying {
            Keying::Direct(presence) => presence.count(),
            Keying::Mapped(_) | Keying::Hashed => 0,
        };
        direct + (*lock(&self.next_row) - self.first_free_row) as usize
    }

    /// Numbers of all rows, ascending. The caller keeps writers out.
    pub fn row_numbers(&self, out: &mut Vec<u32>) {
        if let Keying::Direct(presence) = &self.keying {
            out.extend(presence.rows());
        }
        out.extend(self.first_free_row..*lock(&self.next_row));
    }

    /// Keys that do not follow from their rows' numbers, with these. The caller keeps writers out.
    pub fn indexed_entries(&self) -> impl Iterator<Item = (u64, u32)> {
        let mapped = match &self.keying {
            Keying::Mapped(rows) => Some(rows),
            Keying::Direct(_) | Keying::Hashed => None,
        };
        let mapped = mapped.into_iter().flat_map(|rows| rows.iter().enumerate()).filter_map(|(key, row)| {
            let row = row.load(Ordering::Relaxed);
            (row != 0).then(|| (key as u64, row - 1))
        });
        mapped.chain(self.hash().entries())
    }

    /// Keys with their rows. Meant for a caller who is alone; beside others it may miss the newest.
    pub fn entries(&self) -> impl Iterator<Item = (u64, u32)> {
        let shards = u64::from(self.router.shards());
        let dense: Box<dyn Iterator<Item = (u64, u32)>> = match &self.keying {
            Keying::Direct(presence) => {
                Box::new(presence.rows().map(move |row| (u64::from(row) * shards + u64::from(self.shard), row)))
            }
            Keying::Mapped(rows) => Box::new(rows.iter().enumerate().filter_map(|(key, row)| {
                let row = row.load(Ordering::Relaxed);
                (row != 0).then(|| (key as u64, row - 1))
            })),
            Keying::Hashed => Box::new(core::iter::empty()),
        };
        dense.chain(self.hash().entries())
    }
}
