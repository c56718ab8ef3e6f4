//! A copy of all tables for a checkpoint, and its blocks.
//!
//! Copying is all that happens while work stands still: rows go in runs, as they lie. What a file holds is made of the
//! copy afterwards. A block has the rows of so many neighbouring row numbers. Rows keep their numbers, so a block whose
//! rows did not change has the same bytes again.

use super::BuiltinStore;
use super::one::Table;
use super::optimizer::state_bytes;
use crate::error::{Error, Result, Status};
use crate::ids::TableTag;
use crate::sync::Ordering;
use crate::wire::payload::TableSpec;

/// Bytes of a block that is full, about.
const BLOCK_BYTES: usize = 1 << 20;
/// Bytes before a block's keys.
const BLOCK_HEAD_BYTES: usize = 8;
/// Rows more than now that room is made for before work stops.
const SLACK: usize = 16;

/// One table's copy.
#[derive(Debug, Default)]
pub struct TableImage {
    tag: Option<TableTag>,
    spec: Option<TableSpec>,
    /// Other tags of the same table.
    aliases: Vec<TableTag>,
    row_bytes: usize,
    stride: usize,
    state_bytes: usize,
    /// Numbers of the rows, ascending.
    rows: Vec<u32>,
    /// Keys of those that do not follow from their numbers, by row.
    keys: Vec<(u32, u64)>,
    /// Rows below this: key = row * shards + shard.
    direct_rows: u32,
    shards: (u64, u64),
    row_data: Vec<u8>,
    state_data: Vec<u8>,
}

/// All tables' copies. Its memory is used again by the next one.
#[derive(Debug, Default)]
pub struct StoreImage {
    tables: Vec<TableImage>,
}

fn block_rows(spec: &TableSpec) -> usize {
    (BLOCK_BYTES / (8 + spec.dim as usize * 4 + state_bytes(spec))).max(1)
}

impl TableImage {
    fn make_room(&mut self, rows: usize, table: &Table) {
        let rows = rows + rows / SLACK + 1;
        grow(&mut self.row_data, rows * table.rows.stride());
        grow(&mut self.state_data, rows * table.state_bytes);
        self.rows.reserve(rows.saturating_sub(self.rows.len()));
        if !table.is_direct() {
            self.keys.reserve(rows.saturating_sub(self.keys.len()));
        }
    }

    /// # Safety
    /// Nobody changes the table meanwhile.
    unsafe fn copy(&mut self, store: &BuiltinStore, table: &Table) {
        self.tag = Some(table.tag);
        self.spec = Some(table.spec.clone());
        self.aliases = store.aliases_of(table);
        (self.row_bytes, self.state_bytes, self.stride) = (table.row_bytes, table.state_bytes, table.rows.stride());
        self.rows.clear();
        table.row_numbers(&mut self.rows);
        self.direct_rows = table.direct_rows();
        self.shards = (u64::from(store.options.num_shards), u64::from(store.options.shard));
        self.keys.clear();
        self.keys.extend(table.indexed_entries().map(|(key, row)| (row, key)));
        grow(&mut self.row_data, self.rows.len() * self.stride);
        grow(&mut self.state_data, self.rows.len() * self.state_bytes);
        let mut at = 0;
        while at < self.rows.len() {
            let first = self.rows[at];
            let run = table.rows.run_from(first);
            let same =
                |place: usize| self.rows.get(at + place).is_some_and(|row| *row as usize == first as usize + place);
            let mut count = 1;
            while count < run && same(count) {
                count += 1;
            }
            let spot = table.rows.spot(first);
            let (row_at, state_at) = (at * self.stride, at * self.state_bytes);
            // SAFETY: `count` rows lie one after the other at `spot`, and so do their states; both buffers have room for
            // all rows, and nobody changes these meanwhile.
            unsafe {
                let (rows, states) = (self.row_data[row_at..].as_mut_ptr(), self.state_data[state_at..].as_mut_ptr());
                core::ptr::copy_nonoverlapping(spot.row, rows, count * self.stride);
                core::ptr::copy_nonoverlapping(spot.state, states, count * self.state_bytes);
            }
            at += count;
        }
    }

    /// After work goes on: what blocks need to be made quickly.
    fn settle(&mut self) {
        self.keys.sort_unstable();
    }

    fn spec(&self) -> &TableSpec {
        self.spec.as_ref().expect("a copied table has a spec")
    }

    /// Its tag.
    #[must_use]
    pub fn tag(&self) -> TableTag {
        self.tag.unwrap_or(TableTag(0))
    }

    /// Its name.
    #[must_use]
    pub fn name(&self) -> &str {
        &self.spec().name
    }

    /// How many rows it has.
    #[must_use]
    pub fn row_count(&self) -> usize {
        self.rows.len()
    }

    /// Tag, other tags and spec: what a restore makes the table from.
    #[must_use]
    pub fn describe(&self) -> Vec<u8> {
        let mut out = u32::from(self.tag().0).to_le_bytes().to_vec();
        out.extend_from_slice(&u32::try_from(self.aliases.len()).unwrap_or(0).to_le_bytes());
        self.aliases.iter().for_each(|tag| out.extend_from_slice(&u32::from(tag.0).to_le_bytes()));
        out.extend_from_slice(&self.spec().encode());
        out
    }

    /// How many blocks it has.
    #[must_use]
    pub fn blocks(&self) -> u32 {
        let numbers = self.rows.last().map_or(0, |last| *last as usize + 1);
        u32::try_from(numbers.div_ceil(block_rows(self.spec()))).unwrap_or(u32::MAX)
    }

    /// Puts a block into `out`: count u32, 0 u32, keys, rows, optimizer states.
    pub fn block(&self, index: u32, out: &mut Vec<u8>) {
        let each = block_rows(self.spec());
        let first = index as usize * each;
        let from = self.rows.partition_point(|row| (*row as usize) < first);
        let end = self.rows.partition_point(|row| (*row as usize) < first + each);
        let range = || from..end;
        out.reserve(BLOCK_HEAD_BYTES + range().len() * (8 + self.row_bytes + self.state_bytes));
        out.extend_from_slice(&u32::try_from(range().len()).unwrap_or(0).to_le_bytes());
        out.extend_from_slice(&[0; 4]);
        for row in &self.rows[range()] {
            out.extend_from_slice(&self.key_of(*row).to_le_bytes());
        }
        if self.stride == self.row_bytes {
            out.extend_from_slice(&self.row_data[from * self.stride..end * self.stride]);
        } else {
            let rows = self.row_data[from * self.stride..end * self.stride].chunks_exact(self.stride.max(1));
            rows.for_each(|row| out.extend_from_slice(&row[..self.row_bytes]));
        }
        out.extend_from_slice(&self.state_data[from * self.state_bytes..end * self.state_bytes]);
    }

    fn key_of(&self, row: u32) -> u64 {
        if row < self.direct_rows {
            return u64::from(row) * self.shards.0 + self.shards.1;
        }
        let found = self.keys.binary_search_by_key(&row, |(row, _)| *row);
        found.map_or(u64::MAX, |at| self.keys[at].1)
    }
}

/// Makes a buffer this long at least; its pages are touched here and not when rows are copied.
fn grow(buffer: &mut Vec<u8>, bytes: usize) {
    if buffer.len() < bytes {
        buffer.clear();
        buffer.resize(bytes, 1);
    }
}

impl StoreImage {
    /// Its tables, by tag.
    #[must_use]
    pub fn tables(&self) -> &[TableImage] {
        &self.tables
    }

    /// Puts keys in order, when work goes on again and before blocks are made.
    pub fn settle(&mut self) {
        self.tables.iter_mut().for_each(TableImage::settle);
    }
}

impl BuiltinStore {
    /// Bytes that a copy of all rows and states takes now, about.
    #[must_use]
    pub fn state_bytes(&self) -> u64 {
        let of = |table: &Table| (table.row_count() * (8 + table.row_bytes + table.state_bytes)) as u64;
        self.all_tables().map(of).sum()
    }

    /// Makes room for a copy, in what an earlier one leaves behind. Work goes on meanwhile.
    #[must_use]
    pub fn prepare_image(&self, mut image: StoreImage) -> StoreImage {
        let tables: Vec<&Table> = self.all_tables().collect();
        image.tables.resize_with(tables.len(), TableImage::default);
        for (copy, table) in image.tables.iter_mut().zip(tables) {
            copy.make_room(table.row_count(), table);
        }
        image
    }

    /// Copies everything.
    ///
    /// # Safety
    /// Nobody changes the store meanwhile; GETs may go on.
    pub unsafe fn capture(&self, image: &mut StoreImage) {
        let tables: Vec<&Table> = self.all_tables().collect();
        image.tables.resize_with(tables.len(), TableImage::default);
        for (copy, table) in image.tables.iter_mut().zip(tables) {
            // SAFETY: the caller's promise.
            unsafe { copy.copy(self, table) };
        }
    }

    fn aliases_of(&self, table: &Table) -> Vec<TableTag> {
        let same = |tag: &u16| {
            let place = self.tables[usize::from(*tag)].load(Ordering::Relaxed);
            core::ptr::eq(place, table) && *tag != table.tag.0
        };
        (0..=u16::MAX).filter(same).map(TableTag).collect()
    }

    /// Makes a table as [`TableImage::describe`] says, with all its tags, or finds it. Before anybody uses the store.
    ///
    /// # Errors
    /// `InvalidArgument` for bytes that describe no table, or one that contradicts a table that is here.
    pub fn restore_table(&self, described: &[u8]) -> Result<TableTag> {
        let (tag, aliases, spec) = decode_description(described)
            .ok_or_else(|| Error::new(Status::InvalidArgument, "a table's section in the checkpoint is malformed"))?;
        match self.meant(tag, &spec.name) {
            Some(table) if table.spec == spec => {}
            Some(table) => {
                let differs = spec.contrast(&table.spec.difference(&spec), "in the checkpoint", "on this server");
                let message = format!("table '{}': {}", spec.name, differs.unwrap_or_default());
                return Err(Error::new(Status::InvalidArgument, message));
            }
            None if tag == TableTag(0) => {
                let message =
                    format!("the checkpoint has a default table of {} values a row, this server has none", spec.dim);
                return Err(Error::new(Status::InvalidArgument, message));
            }
            None => self.make_loaded(tag, &spec)?,
        }
        let made = self
            .meant(tag, &spec.name)
            .ok_or_else(|| Error::new(Status::Bug, format!("table '{}' was made and is not there", spec.name)))?;
        for alias in aliases {
            if self.also_name(made.tag, alias).is_none() {
                let message = format!("tag {} of table '{}' is another table's", alias.0, spec.name);
                return Err(Error::new(Status::InvalidArgument, message));
            }
        }
        Ok(made.tag)
    }

    /// Puts the rows of a block that this shard owns into a table of [`BuiltinStore::restore_table`]. How many those were.
    /// Before anybody uses the store.
    ///
    /// # Errors
    /// `InvalidArgument` for a block that is none of this table; `ResourceLimit`.
    pub fn restore_block(&self, tag: TableTag, block: &[u8]) -> Result<usize> {
        let table = self
            .table(tag)
            .map_err(|_| Error::new(Status::InvalidArgument, format!("rows of table {}, which is not there", tag.0)))?;
        let (row_bytes, state) = (table.row_bytes, table.state_bytes);
        let malformed = || {
            let message = format!("a block of rows of table '{}' in the checkpoint is malformed", table.spec.name);
            Error::new(Status::InvalidArgument, message)
        };
        let (head, rest) = block.split_at_checked(BLOCK_HEAD_BYTES).ok_or_else(malformed)?;
        let count = u32::from_le_bytes([head[0], head[1], head[2], head[3]]) as usize;
        if count.checked_mul(8 + row_bytes + state) != Some(rest.len()) {
            return Err(malformed());
        }
        let (keys, rest) = rest.split_at(count * 8);
        let (rows, states) = rest.split_at(count * row_bytes);
        let mut mine = 0;
        for (i, key) in keys.as_chunks::<8>().0.iter().enumerate() {
            let key = u64::from_le_bytes(*key);
            if self.router.shard_of(key) != self.options.shard {
                continue;
            }
            let (row, own_state) = (&rows[i * row_bytes..][..row_bytes], &states[i * state..][..state]);
            restore_row(table, key, row, own_state)?;
            mine += 1;
        }
        Ok(mine)
    }
}

fn restore_row(table: &Table, key: u64, row: &[u8], state: &[u8]) -> Result<()> {
    if table.is_short_of(&[key], 1) {
        // Room for many at once, as each growth moves all keys.
        // SAFETY: nobody else uses the store yet.
        unsafe { table.grow(4096, 1)? };
    }
    let place = match table.direct_row(key) {
        Some((place, presence)) => {
            table.warm(place, table.rows.spot(place));
            presence.set(place);
            place
        }
        None => table.make_row(key)?,
    };
    let spot = table.rows.spot(place);
    // SAFETY: the row and its state exist, have these lengths, and nobody else uses the store yet.
    unsafe {
        core::ptr::copy_nonoverlapping(row.as_ptr(), spot.row, row.len());
        core::ptr::copy_nonoverlapping(state.as_ptr(), spot.state, state.len());
    }
    Ok(())
}

fn decode_description(bytes: &[u8]) -> Option<(TableTag, Vec<TableTag>, TableSpec)> {
    let (head, rest) = bytes.split_at_checked(8)?;
    let number = |at: usize| u32::from_le_bytes([head[at], head[at + 1], head[at + 2], head[at + 3]]);
    let tag = TableTag(u16::try_from(number(0)).ok()?);
    let (aliases, spec) = rest.split_at_checked((number(4) as usize).checked_mul(4)?)?;
    let alias = |bytes: &[u8; 4]| u16::try_from(u32::from_le_bytes(*bytes)).ok().map(TableTag);
    let aliases = aliases.as_chunks::<4>().0.iter().map(alias).collect::<Option<Vec<TableTag>>>()?;
    Some((tag, aliases, TableSpec::decode(spec).ok()?))
}
