//! Rows that clients on the same host read where they lie, without a request.
//!
//! Tables lie in one file in memory, which clients map and cannot write. The file begins with a directory: who serves it,
//! an epoch, the sequence locks of all rows, and an entry for each table. Keys that are numbers find their rows by an
//! array; others by the table's hash index, whose place and that of later rows is in a second part of the entry.
//!
//! # Why a row that was read so is right
//!
//! - **Whole.** Every writer holds the lock of the row's stripe, as with several workers; a reader that saw a writer's
//!   bytes sees the lock taken, or a later version, and reads again. A batch does with less at first: every writer also
//!   marks when he begins and ends, and if all marks are as they were, and none says "at work", nobody wrote to any of its
//!   rows; if not, it is read again under the locks. What touches all rows at once (CLEAR, LOAD), or puts
//!   a larger hash index in the place of another, makes the epoch odd before and even after: a reader whose epoch was odd,
//!   or has changed, has read nothing.
//! - **Recent.** A write is answered after its rows were written, so whoever was told of it, or has it from somebody who
//!   was, finds it here.
//! - **Of the shard that serves.** The thread that serves the file holds a robust mutex in it. The kernel marks that when
//!   the thread ends, before anybody else can hear that the process is gone and another one take its place. A reader looks
//!   after it has read: if nobody holds the mutex then, it has read nothing.
//!
//! A reader waits for nobody: whatever keeps it from reading at once sends it the way of a request, which knows how to
//! wait, to fail, and to be sent again. It trusts nothing in the file: every place is checked against the file's length,
//! and the file cannot become shorter.

mod host;
mod sight;
mod view;

pub(super) use host::{Entry, Index, More};
pub use host::{Serving, SharedRows};
pub use sight::{Sight, Spot};
pub use view::{Calm, View, Wanted};

use super::arena::HUGE_BYTES;
use super::locks::STRIPES;
use super::{HugePages, TABLES_MAX};

/// What the file begins with, so that nothing else is taken for it; says which arrangement this is.
const MAGIC: u64 = u64::from_le_bytes(*b"RLROWS02");

// What every read looks at is one line.
/// The mutex; its first word is the kernel's: who holds it, and whether he died.
const OWNER_AT: usize = 0;
const OWNER_BYTES_MAX: usize = EPOCH_AT;
/// Odd while all rows may change; with [`WITHDRAWN`] nobody reads them any more.
const EPOCH_AT: usize = 56;
const WITHDRAWN: u64 = 1 << 63;
const MAGIC_AT: usize = 64;
/// The file's address in the serving process: stripes go by it.
const BASE_AT: usize = 72;
/// How many writers there are, 0: more than there is room for.
const WRITERS_AT: usize = 80;
/// A line for each writer, whose first word is odd while he is at work, and even and another one afterwards.
const WRITER_LINES_AT: usize = 128;
const WRITERS_MAX: usize = (STRIPES_AT - WRITER_LINES_AT) / 64;
const STRIPES_AT: usize = 4096;
/// A line for each tag.
const ENTRIES_AT: usize = STRIPES_AT + STRIPES * 8;
const ENTRY_BYTES: usize = 64;
/// Where rows begin.
const ROWS_AT: usize = (ENTRIES_AT + TABLES_MAX * ENTRY_BYTES).next_multiple_of(HUGE_BYTES);

/// Words of a table's entry. The first is written last.
mod word {
    /// 0 none, or how keys find rows.
    pub const KEYING: usize = 0;
    /// Bytes of a row, and from one row to the next in the upper half.
    pub const ROW: usize = 1;
    /// Keys below this are found by number.
    pub const KEYS: usize = 2;
    /// Rows of the piece.
    pub const ROWS: usize = 3;
    /// Where the piece begins in the file.
    pub const ROWS_AT: usize = 4;
    /// Where the index begins: a bit for each row, or a number for each key.
    pub const INDEX_AT: usize = 5;
    /// Where the second part is.
    pub const MORE_AT: usize = 6;
}

/// Words of the second part of a table's entry.
mod more {
    /// Where the slots of the hash index begin; 0: it is not in the file.
    pub const SLOTS_AT: usize = 0;
    /// How many there are: a power of two.
    pub const SLOTS: usize = 1;
    /// What keys are mixed with.
    pub const SEED: usize = 2;
    /// log2 of the rows of the first chunk.
    pub const FIRST_SHIFT: usize = 3;
    /// Where each chunk begins; 0: it is not there, or not in the file.
    pub const CHUNKS_AT: usize = 4;
    /// All of them.
    pub const WORDS: usize = CHUNKS_AT + super::super::rows::CHUNKS;
}

/// Keys are row numbers within the shard; the index says which rows are there.
const DIRECT: u64 = 1;
/// The index has row plus one for each key; 0: none.
const MAPPED: u64 = 2;
/// No key finds its row by number.
const HASHED: u64 = 3;
