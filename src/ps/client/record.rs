//! What a client keeps with a request, in its slot.

use super::Plan;
use super::tally::Times;
use crate::error::Error;
use crate::ids::TableTag;
use crate::ps::table::{Calm, Sight, Spot};
use crate::time::Tick;
use crate::wire::{INLINE_BYTES, Op};
use core::time::Duration;

/// Where a request stands.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(super) enum Stage {
    /// Sent; no answer yet.
    #[default]
    Waiting,
    /// Not sent: the rows lie where this side can read them, and are read when somebody asks for them.
    Unread,
    /// The same, and it is timed.
    Timed,
    /// Answered well.
    Done,
    /// The same, and it was timed.
    DoneTimed,
    /// Failed; the error is kept.
    Failed,
}

/// What the client keeps with a request in its slot.
#[derive(Debug, Default)]
pub struct Record {
    pub(super) stage: Stage,
    /// Of the operation.
    pub(super) op: u8,
    /// The next request of this slot is to be timed, or the last one left an error: what `begin` looks at for both.
    pub(super) is_unusual: bool,
    /// The server publishes progress.
    pub(super) grows: bool,
    /// The server writes rows to a registered buffer.
    pub(super) lands: bool,
    pub(super) keys: u32,
    pub(super) row_bytes: u32,
    /// Bytes of the answer that is expected.
    pub(super) total: u32,
    /// Rows copied to `rows` so far; of a GET that is read in place, rows found ready.
    pub(super) copied: u32,
    pub(super) queries: u32,
    /// Tag that INIT_TABLE answered.
    pub(super) aux: u32,
    /// The caller's memory, as an address; 0 when rows are read in place.
    pub(super) rows: usize,
    pub(super) first_slow: Option<Tick>,
    /// How long it must have waited before somebody asks about its shard again.
    pub(super) ask_at: Duration,
    pub(super) inline: [u64; INLINE_BYTES / 8],
    pub(super) near: Near,
    pub(super) times: Times,
    pub(super) error: Option<Box<Error>>,
}

/// A GET that is not sent.
#[derive(Debug)]
pub(super) struct Near {
    pub(super) table: TableTag,
    pub(super) key: u64,
    pub(super) spot: Spot,
    /// When it was found.
    pub(super) epoch: u64,
    /// What was known of the table that the slot had last, and over which connection.
    pub(super) sight: Option<(u64, Sight)>,
    /// Of several keys.
    pub(super) calm: Calm,
}

impl Default for Near {
    fn default() -> Near {
        Near { table: TableTag(0), key: 0, spot: Spot::NOWHERE, epoch: 0, sight: None, calm: Calm::default() }
    }
}

impl Record {
    #[inline(always)]
    pub(super) fn is_get(&self) -> bool {
        self.op == Op::Get as u8
    }

    /// Whether the server writes rows to a registered buffer.
    pub(super) fn lands(&self) -> bool {
        self.lands
    }

    /// It was sent again: what was read of a growing answer is void.
    pub(super) fn sent_again(&mut self) {
        self.copied = 0;
    }

    /// Begins a request in the record of a slot just taken. Field by field and in place: a record put together elsewhere
    /// and moved here would be loaded in larger pieces than it was stored in, and wait for those stores.
    #[inline(always)]
    #[allow(clippy::cast_possible_truncation)] // a part fits a slot, whose size is a u32
    pub(super) fn begin(&mut self, plan: &Plan<'_>, total: usize) {
        self.stage = Stage::Waiting;
        self.op = plan.op as u8;
        self.grows = false;
        self.lands = false;
        self.keys = plan.keys.len() as u32;
        self.row_bytes = plan.row_bytes as u32;
        self.total = total as u32;
        self.copied = 0;
        self.queries = 0;
        self.aux = 0;
        self.rows = 0;
        self.first_slow = None;
        self.ask_at = Duration::ZERO;
    }

    /// What comes before `begin` in a slot whose last request says so. True: the request is timed.
    #[cold]
    pub(super) fn begin_unusual(&mut self) -> bool {
        self.is_unusual = false;
        self.error = None;
        self.times.begin()
    }

    /// A request that is timed was sent.
    #[cold]
    pub(super) fn sent(&mut self) {
        self.stage = Stage::Timed;
        self.times.sent();
    }

    pub(super) fn fail(&mut self, error: Box<Error>) {
        self.error = Some(error);
        self.is_unusual = true;
        self.stage = Stage::Failed;
    }
}
