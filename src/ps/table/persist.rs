//! SAVE and LOAD.

use super::format::{HEAD_BYTES, Head, TABLE_HEAD_BYTES, TableHead, block_rows, entry_bytes, is_sealed, seal};
use super::one::Table;
use super::{BuiltinStore, StoreOptions};
use crate::error::{Error, Result, Status};
use crate::ids::TableTag;
use crate::ps::routing::Router;
use std::collections::HashSet;
use std::fs::{self, File};
use std::io::{self, BufReader, Read, Seek, SeekFrom, Write};
use std::path::{Component, Path, PathBuf};

/// The file of this shard under a name of SAVE or LOAD.
///
/// # Errors
/// `Unsupported` when no directory was configured; `InvalidArgument` for a name that leads out of it.
pub(super) fn path_of(options: &StoreOptions, name: &str) -> Result<PathBuf> {
    let Some(directory) = &options.checkpoint_directory else {
        let message = format!("SAVE or LOAD of '{name}': this server has no checkpoint directory");
        return Err(Error::new(Status::Unsupported, message));
    };
    let inside = Path::new(name).components().all(|part| matches!(part, Component::Normal(_)));
    if name.is_empty() || name.ends_with('/') || name.contains('\0') || !inside {
        let message = format!("'{name}' must be a relative path without '..' below the checkpoint directory");
        return Err(Error::new(Status::InvalidArgument, message));
    }
    let mut path = directory.join(name).into_os_string();
    path.push(format!(".{}-of-{}", options.shard, options.num_shards));
    Ok(path.into())
}

fn failed(doing: &str, path: &Path, error: &io::Error) -> Box<Error> {
    Error::os(format_args!("cannot {doing} {}", path.display()), error)
}

fn bad(path: &Path, what: impl core::fmt::Display) -> Box<Error> {
    Error::new(Status::InvalidArgument, format!("file {} {what}; nothing was loaded", path.display()))
}

/// Writes all tables to a new file, which takes its name when it is complete and on disk.
///
/// The caller keeps everybody else out of the store.
pub(super) fn save(store: &BuiltinStore, path: &Path) -> Result<()> {
    if let Some(parent) = path.parent() {
        fs::create_dir_all(parent).map_err(|error| failed("create directory", parent, &error))?;
    }
    let mut unfinished = path.as_os_str().to_owned();
    unfinished.push(format!(".unfinished-{}", std::process::id()));
    let unfinished = PathBuf::from(unfinished);
    let written = write_file(store, &unfinished).and_then(|()| {
        fs::rename(&unfinished, path)?;
        // The new name itself must reach the disk too.
        path.parent().map_or(Ok(()), |parent| File::open(parent)?.sync_all())
    });
    written.map_err(|error| {
        let _ = fs::remove_file(&unfinished);
        failed("save", path, &error)
    })
}

#[allow(clippy::cast_possible_truncation)] // a store has at most 65536 tables
fn write_file(store: &BuiltinStore, path: &Path) -> io::Result<()> {
    let tables: Vec<(&Table, TableHead)> = store
        .all_tables()
        .map(|table| {
            let rows = table.entries().count() as u64;
            (table, TableHead { tag: table.tag, rows, spec: table.spec.clone() })
        })
        .collect();
    let bytes: Option<u64> = tables.iter().map(|(_, head)| head.bytes()).sum();
    let head = Head {
        shard: store.options.shard,
        num_shards: store.options.num_shards,
        hash_method: store.options.hash_method,
        tables: tables.len() as u32,
        file_bytes: bytes.unwrap_or(u64::MAX).saturating_add(HEAD_BYTES as u64),
    };
    let mut file = File::create(path)?;
    file.write_all(&head.encode())?;
    for (table, head) in &tables {
        file.write_all(&head.encode())?;
        write_rows(&mut file, table)?;
    }
    file.sync_all()
}

#[allow(clippy::cast_possible_truncation)] // a block has a MiB
fn write_rows(file: &mut File, table: &Table) -> io::Result<()> {
    let (row_bytes, state) = (table.row_bytes, table.state_bytes);
    let mut entries = table.entries();
    loop {
        let part: Vec<(u64, u32)> = entries.by_ref().take(block_rows(&table.spec) as usize).collect();
        if part.is_empty() {
            return Ok(());
        }
        let mut block = Vec::with_capacity(part.len() * entry_bytes(&table.spec) + 4);
        part.iter().for_each(|(key, _)| block.extend_from_slice(&key.to_le_bytes()));
        for (_, row) in &part {
            // SAFETY: the row exists, and nobody changes it while the caller is alone.
            block.extend_from_slice(unsafe { core::slice::from_raw_parts(table.rows.spot(*row).row, row_bytes) });
        }
        for (_, row) in &part {
            // SAFETY: as above; the state lies beside its row.
            block.extend_from_slice(unsafe { core::slice::from_raw_parts(table.rows.spot(*row).state, state) });
        }
        block.extend_from_slice(&[0; 4]);
        seal(&mut block);
        file.write_all(&block)?;
    }
}

/// A saved file, read and found good from the first byte to the last.
pub(super) struct Checked {
    path: PathBuf,
    file: File,
    tables: Vec<TableHead>,
}

impl Checked {
    /// The tables in the file, by tag.
    pub fn tables(&self) -> &[TableHead] {
        &self.tables
    }
}

/// Reads a whole file and judges it; changes nothing.
///
/// # Errors
/// `OsError` when it cannot be read; `InvalidArgument` saying what is wrong with it.
pub(super) fn check(options: &StoreOptions, path: &Path) -> Result<Checked> {
    let mut file = File::open(path).map_err(|error| failed("load", path, &error))?;
    let length = file.metadata().map_err(|error| failed("load", path, &error))?.len();
    let mut head = [0; HEAD_BYTES];
    if length < HEAD_BYTES as u64 {
        return Err(bad(path, format_args!("is not a saved reclane table: it has {length} bytes only")));
    }
    file.read_exact(&mut head).map_err(|error| failed("load", path, &error))?;
    let head = Head::decode(&head).map_err(|what| bad(path, what))?;
    if (head.shard, head.num_shards, head.hash_method) != (options.shard, options.num_shards, options.hash_method) {
        let theirs = format!("shard {} of {} by {:?}", head.shard, head.num_shards, head.hash_method);
        let ours = format!("shard {} of {} by {:?}", options.shard, options.num_shards, options.hash_method);
        return Err(bad(path, format_args!("was saved by {theirs}, this is {ours}")));
    }
    if head.file_bytes != length {
        return Err(bad(path, format_args!("has {length} bytes and was written with {}", head.file_bytes)));
    }
    let router = Router::new(options.hash_method, options.num_shards);
    let mut left = length - HEAD_BYTES as u64;
    let mut tables: Vec<TableHead> = Vec::new();
    for _ in 0..head.tables {
        let table = read_table(&mut file, path, &mut left, &mut |_, keys, _| {
            let ours = keys.iter().all(|key| router.shard_of(*key) == options.shard);
            if ours { Ok(()) } else { Err(bad(path, "has a key that another shard owns")) }
        })?;
        if tables.last().is_some_and(|last| last.tag >= table.tag) {
            return Err(bad(path, "names its tables out of order"));
        }
        tables.push(table);
    }
    if left != 0 {
        return Err(bad(path, format_args!("has {left} bytes behind its last table")));
    }
    Ok(Checked { path: path.to_owned(), file, tables })
}

/// What is done with each block: the table, the keys, and rows followed by states.
type Visit<'a> = &'a mut dyn FnMut(&TableHead, &[u64], &[u8]) -> Result<()>;

/// Reads one table, checking every checksum; `left` are the bytes that the file still has.
#[allow(clippy::cast_possible_truncation)] // a block has a MiB
fn read_table(file: &mut File, path: &Path, left: &mut u64, visit: Visit<'_>) -> Result<TableHead> {
    if *left < TABLE_HEAD_BYTES as u64 {
        return Err(bad(path, "ends inside a table's head"));
    }
    let mut file = BufReader::with_capacity(64 << 10, file);
    let mut head = [0; TABLE_HEAD_BYTES];
    file.read_exact(&mut head).map_err(|error| failed("load", path, &error))?;
    let head = TableHead::decode(&head).map_err(|what| bad(path, what))?;
    let name = &head.spec.name;
    *left = head
        .bytes()
        .and_then(|bytes| left.checked_sub(bytes))
        .ok_or_else(|| bad(path, format_args!("ends inside table '{name}' of {} rows", head.rows)))?;
    let mut rows_left = head.rows;
    let (mut block, mut keys) = (Vec::new(), Vec::new());
    while rows_left != 0 {
        let rows = rows_left.min(block_rows(&head.spec)) as usize;
        block.resize(rows * entry_bytes(&head.spec) + 4, 0);
        file.read_exact(&mut block).map_err(|error| failed("load", path, &error))?;
        if !is_sealed(&block) {
            return Err(bad(path, format_args!("is damaged: a checksum in table '{name}' does not match")));
        }
        let (key_bytes, rest) = block[..block.len() - 4].split_at(rows * 8);
        keys.clear();
        keys.extend(key_bytes.as_chunks::<8>().0.iter().map(|key| u64::from_le_bytes(*key)));
        visit(&head, &keys, rest)?;
        rows_left -= rows as u64;
    }
    // What was read ahead belongs to the next table.
    let unread = file.buffer().len() as i64;
    file.into_inner().seek(SeekFrom::Current(-unread)).map_err(|error| failed("load", path, &error))?;
    Ok(head)
}

/// Puts the rows of a checked file into the store's tables, which exist and are empty.
///
/// The caller keeps everybody else out of the store.
pub(super) fn fill(store: &BuiltinStore, checked: &mut Checked) -> Result<()> {
    let (path, mut left) = (checked.path.as_path(), u64::MAX);
    checked.file.seek(SeekFrom::Start(HEAD_BYTES as u64)).map_err(|error| failed("load", path, &error))?;
    for expected in &checked.tables {
        let mut fill_block = |head: &TableHead, keys: &[u64], bytes: &[u8]| {
            if head != expected {
                return Err(bad(path, "changed while it was read"));
            }
            let table = store.meant(head.tag, &head.spec.name).ok_or_else(|| bad(path, "lost its table meanwhile"))?;
            fill_rows(table, keys, bytes)
        };
        read_table(&mut checked.file, path, &mut left, &mut fill_block)?;
    }
    Ok(())
}

fn fill_rows(table: &Table, keys: &[u64], bytes: &[u8]) -> Result<()> {
    let (row_bytes, state) = (table.row_bytes, table.state_bytes);
    let (rows, states) = bytes.split_at(keys.len() * row_bytes);
    if table.is_short_of(keys, 1) {
        // SAFETY: `fill`'s caller is alone.
        unsafe { table.grow(keys.len(), 1)? };
    }
    for (i, key) in keys.iter().enumerate() {
        let row = match table.direct_row(*key) {
            Some((row, presence)) => {
                presence.set(row);
                row
            }
            None => table.make_row(*key)?,
        };
        let spot = table.rows.spot(row);
        table.warm(row, spot);
        // SAFETY: the row and its state exist and nobody else is in the store; the block has as many of both as keys.
        unsafe {
            core::ptr::copy_nonoverlapping(rows[i * row_bytes..].as_ptr(), spot.row, row_bytes);
            core::ptr::copy_nonoverlapping(states[i * state..].as_ptr(), spot.state, state);
        }
    }
    Ok(())
}

/// What a file and a store call the same has the same spec.
pub(super) fn agreement(store: &BuiltinStore, checked: &Checked) -> Result<()> {
    let path = checked.path.as_path();
    let mut names = HashSet::new();
    for TableHead { tag, spec, .. } in &checked.tables {
        let name = &spec.name;
        match store.meant(*tag, name) {
            Some(table) if table.spec != *spec => {
                let differs = spec.contrast(&table.spec.difference(spec), "there", "on this server");
                return Err(bad(path, format_args!("has table '{}': {}", spec.name, differs.unwrap_or_default())));
            }
            None if *tag == TableTag(0) => {
                let bytes = spec.dim * 4;
                return Err(bad(
                    path,
                    format_args!("has a default table with rows of {bytes} bytes, this server has none"),
                ));
            }
            _ => {}
        }
        if *tag != TableTag(0) && !names.insert(name.as_str()) {
            return Err(bad(path, format_args!("has two tables with the name '{name}'")));
        }
    }
    Ok(())
}
