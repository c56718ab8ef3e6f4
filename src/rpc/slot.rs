//! The slots of a channel: who holds one, and what belongs to its holder.

use super::connection::{Connection, SlotPlaces};
use crate::fabric::Fabric;
use crate::sync::{Arc, AtomicPtr, AtomicU32, AtomicU64};
use crate::wire::Word;
use core::cell::UnsafeCell;

/// A slot that the caller holds, by index and use: what a token is made of.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Held {
    /// Index within the channel.
    pub index: u32,
    /// Which use of the slot this is.
    pub use_count: u64,
}

/// One request slot. Everything but `state` belongs to its holder.
///
/// A slot belongs to a lane for good, and to a connection of it until the lane is rebuilt. Whoever takes it next moves it
/// to the new connection: a slot that somebody still holds keeps the old one's memory, and holds up nobody else.
#[derive(Debug)]
pub struct Slot<F: Fabric, R> {
    /// `use_count << 1 | held`.
    pub(super) state: AtomicU64,
    /// A thread is at work on the request: see [`Channel::enter`](super::Channel::enter).
    pub(super) working: AtomicU32,
    /// Since when its request is known to be slow: see [`Channel::mark_slow`](super::Channel::mark_slow).
    pub(super) slow: AtomicU64,
    /// Set by whoever takes this slot's immediate from the completion queue.
    pub(super) arrived: AtomicU32,
    /// The lane's connection that the slot was moved to; 0: to none of its own lane. Changed by the holder.
    pub(super) generation: AtomicU32,
    /// Where the answer's header lies, for those who fetch ahead: a hint.
    pub(super) answer_hint: AtomicPtr<u8>,
    /// The same of the request's header.
    pub(super) request_hint: AtomicPtr<u8>,
    pub(super) lane: u32,
    pub(super) slot: u32,
    pub(super) own: UnsafeCell<Own<F, R>>,
}

#[derive(Debug)]
pub(super) struct Own<F: Fabric, R> {
    /// The word of the request under way.
    pub(super) word: Word,
    /// Where rows land when not in the slot.
    pub(super) landing: *const u8,
    /// The request was its header and no more.
    pub(super) is_bare: bool,
    /// The connection stores and takes words and nothing else: see [`Connection::is_plain`].
    pub(super) is_plain: bool,
    pub(super) places: SlotPlaces,
    /// What `places` belong to.
    pub(super) connection: Arc<Connection<F>>,
    /// The slot's number within that connection.
    pub(super) at: u32,
    /// The slot whose places these are: another one when a request was sent again over another lane.
    pub(super) via: u32,
    pub(super) record: R,
}

// SAFETY: the raw places point into regions and windows that live as long as the connection beside them and may be used
// from any thread; `own` is reached only by the thread that holds the slot (see `Channel::record`).
unsafe impl<F: Fabric, R: Send> Sync for Slot<F, R> {}
// SAFETY: as above.
unsafe impl<F: Fabric, R: Send> Send for Slot<F, R> {}
