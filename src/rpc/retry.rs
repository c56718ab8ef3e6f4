//! Sending a request again whose connection ended before its answer came: over the rebuilt lane, or over another one.
//!
//! What was sent lies where it was put together (the old connection's window, or staging), which stays mapped as long as
//! the slot is held. It keeps its identity, so a server that has executed it already answers from its memory; a server
//! that has lost that memory must not get it again.

use super::Witness;
use super::channel::{AcquireError, Channel};
use super::raw::copy_header;
use super::slot::{Held, Own};
use crate::fabric::{Fabric, Mutant, mutated};
use crate::sync::{Arc, Ordering};
use crate::wire::{RequestHeader, Word, flags};

/// What became of an attempt to send a request again.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Resend {
    /// It is under way again.
    Sent,
    /// There is no lane or slot for it now.
    NotNow,
    /// It cannot be sent again; why.
    Never(&'static str),
}

impl<F: Fabric, R> Channel<F, R> {
    /// The request of a held slot as it was sent. None: the server, which could write there too, has changed it.
    ///
    /// # Safety
    /// The caller holds the slot and is the only thread working on this request, which was sent.
    #[cold]
    pub unsafe fn sent(&self, held: Held) -> Option<RequestHeader> {
        // SAFETY: the holder has `own` to itself.
        let own = unsafe { &*self.slots[held.index as usize].own.get() };
        // SAFETY: the header lies in memory that the connection keeps mapped.
        let header = RequestHeader::from_words(&unsafe { copy_header(own.places.request_header) });
        let unchanged = header.sequence == RequestHeader::identity(held.index, held.use_count)
            && header.commit == own.word
            && header.payload_bytes <= self.payload_bytes_max();
        unchanged.then_some(header)
    }

    /// Sends the request of a held slot again, over any lane of this shard that is Active.
    ///
    /// # Safety
    /// The caller holds the slot and is the only thread working on this request, which was sent and whose connection has
    /// ended. What it names outside the slot is still valid.
    #[cold]
    pub unsafe fn resend(&self, held: Held) -> Resend {
        // SAFETY: the caller's promise.
        let Some(header) = (unsafe { self.sent(held) }) else {
            return Resend::Never("what was sent is not there any more");
        };
        let slot = &self.slots[held.index as usize];
        // SAFETY: the holder has `own` to itself.
        let own = unsafe { &mut *slot.own.get() };
        let before = (Arc::clone(&own.connection), own.places.request_payload);
        let home = self.lane_of(slot).active();
        let once = header.flags & flags::ONCE != 0 && !mutated::<F>(Mutant::WitnessIgnored);
        let borrowed = if home != 0 && home != slot.generation.load(Ordering::Relaxed) {
            let present = self.lane_of(slot).connection();
            if once && present.is_none_or(|present| present.parts().witness != before.0.parts().witness) {
                return FORGOTTEN;
            }
            None
        } else {
            match self.acquire() {
                Ok(other) => Some(other),
                Err(AcquireError::NoSlot | AcquireError::Soon | AcquireError::Down(_)) => return Resend::NotNow,
            }
        };
        if own.via != held.index {
            self.give_back(own.via);
            own.via = held.index;
        }
        match borrowed {
            None if self.move_home(held) => own.word = own.word.next(),
            None => return Resend::NotNow,
            Some(other) if !self.borrow(own, other, once.then_some(before.0.parts().witness)) => {
                self.release(other);
                return FORGOTTEN;
            }
            // Taken next, this slot moves home.
            Some(_) => slot.generation.store(0, Ordering::Relaxed),
        }
        // SAFETY: both places hold the payload bytes of a slot, which `payload_bytes` does not exceed; they belong to
        // different slots or connections; the old one is kept mapped by `before`.
        unsafe {
            core::ptr::copy_nonoverlapping(before.1, own.places.request_payload, header.payload_bytes as usize);
        }
        let renewed = RequestHeader { sequence: RequestHeader::identity(held.index, held.use_count + 1), ..header };
        let header = if mutated::<F>(Mutant::RepetitionHasNewIdentity) { renewed } else { header };
        match self.commit(own, header) {
            Ok(()) => Resend::Sent,
            Err(failure) => {
                let connection = Arc::clone(&own.connection);
                let _ = self.lanes[connection.parts().lane as usize].post_failed(&connection, failure);
                // It lies in its slot, sent or not: the next attempt goes out from there.
                Resend::Sent
            }
        }
    }

    /// Lets a request use the places of another slot, which this thread has just taken. False: its shard does not
    /// remember what that witness does.
    fn borrow(&self, own: &mut Own<F, R>, other: Held, witness: Option<Witness>) -> bool {
        // SAFETY: this thread holds that slot, and so has its `own` to itself.
        let theirs = unsafe { &mut *self.slots[other.index as usize].own.get() };
        if witness.is_some_and(|witness| theirs.connection.parts().witness != witness) {
            return false;
        }
        theirs.word = theirs.word.next();
        own.word = theirs.word;
        own.places = theirs.places;
        own.is_plain = theirs.is_plain;
        own.connection = Arc::clone(&theirs.connection);
        own.at = theirs.at;
        own.via = other.index;
        true
    }

    /// Whether the process that a request was sent to is known to have ended.
    #[cold]
    #[must_use]
    pub fn peer_is_gone(&self, held: Held) -> bool {
        self.where_is(held).0.ended() == Some(crate::lane::DirtyReason::PeerGone)
    }

    /// Whether an attempt to reach this shard will be made: a request may wait for it.
    #[cold]
    #[must_use]
    pub fn has_hope(&self, policy: &crate::lane::RebuildPolicy) -> bool {
        self.lanes.iter().any(|lane| lane.has_hope(policy))
    }

    /// Gives back the other slot that a request was sent over.
    #[cold]
    pub(super) fn give_back_borrowed(&self, held: Held) {
        let slot = &self.slots[held.index as usize];
        // SAFETY: the caller holds the slot, and the holder has `own` to itself.
        let own = unsafe { &mut *slot.own.get() };
        self.give_back(own.via);
        own.via = held.index;
        own.word = Word::ZERO;
        slot.generation.store(0, Ordering::Relaxed);
    }

    fn give_back(&self, index: u32) {
        let state = self.slots[index as usize].state.load(Ordering::Relaxed);
        self.release(Held { index, use_count: state >> 1 });
    }
}

const FORGOTTEN: Resend = Resend::Never("the shard has lost its memory of what it executed");
