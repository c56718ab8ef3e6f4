//! What members published for each other to connect their lanes.

#![forbid(unsafe_code)]

use super::limits::{OFFER_BYTES_MAX, OFFERS_BYTES_MAX, OFFERS_PER_MEMBER_MAX};
use super::refusal::{Reason, Refusal};
use super::types::Peer;
use crate::error::Status;
use crate::ids::Incarnation;
use std::collections::BTreeMap;

/// One published offer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Offer {
    /// The publisher's life.
    pub(super) incarnation: Incarnation,
    /// Counted by the publisher.
    pub(super) version: u64,
    /// The receiver's life for which it was made; none: any.
    pub(super) for_incarnation: Option<Incarnation>,
    /// Opaque to the control plane.
    pub(super) bytes: Vec<u8>,
}

/// All offers, by (from, to).
#[derive(Debug, Default)]
pub(super) struct Offers {
    by_pair: BTreeMap<(Peer, Peer), Offer>,
    per_publisher: BTreeMap<Peer, usize>,
    bytes: usize,
}

impl Offers {
    /// Stores an offer. False: an equal or newer version of the same life was here already, and nothing changed.
    pub(super) fn publish(&mut self, from: Peer, to: Peer, offer: Offer) -> Result<bool, Refusal> {
        if offer.bytes.len() > OFFER_BYTES_MAX {
            let message = format!(
                "the lane offer of {from} for {to} has {} bytes; at most {OFFER_BYTES_MAX} are allowed",
                offer.bytes.len()
            );
            return Err(Refusal::new(Status::InvalidArgument, Reason::TooLarge, message));
        }
        let old = self.by_pair.get(&(from, to));
        if old.is_some_and(|old| old.incarnation == offer.incarnation && old.version >= offer.version) {
            return Ok(false);
        }
        let old_bytes = old.map_or(0, |old| old.bytes.len());
        let count = self.per_publisher.get(&from).copied().unwrap_or(0);
        if old.is_none() && count >= OFFERS_PER_MEMBER_MAX {
            let message = format!("{from} has published {count} lane offers already; that is the most it may");
            return Err(Refusal::new(Status::ResourceLimit, Reason::TooMany, message));
        }
        let bytes = self.bytes - old_bytes + offer.bytes.len();
        if bytes > OFFERS_BYTES_MAX {
            let message =
                format!("lane offers of all members would have {bytes} bytes; at most {OFFERS_BYTES_MAX} fit");
            return Err(Refusal::new(Status::ResourceLimit, Reason::TooMany, message));
        }
        self.bytes = bytes;
        if self.by_pair.insert((from, to), offer).is_none() {
            *self.per_publisher.entry(from).or_default() += 1;
        }
        Ok(true)
    }

    pub(super) fn get(&self, from: Peer, to: Peer) -> Option<&Offer> {
        self.by_pair.get(&(from, to))
    }

    /// Everything published for `to`.
    pub(super) fn all_for(&self, to: Peer) -> impl Iterator<Item = (Peer, &Offer)> {
        self.by_pair.iter().filter(move |((_, receiver), _)| *receiver == to).map(|((from, _), offer)| (*from, offer))
    }

    /// Drops what a member that is gone published, and what was published for its life.
    pub(super) fn forget(&mut self, peer: Peer) {
        self.drop_where(|from, to, _| from == peer || to == peer);
    }

    /// Drops what was made for another life of `peer` than the one that has just joined.
    pub(super) fn keep_for(&mut self, peer: Peer, incarnation: Incarnation) {
        self.drop_where(|_, to, offer| to == peer && offer.for_incarnation.is_some_and(|life| life != incarnation));
    }

    fn drop_where(&mut self, mut condition: impl FnMut(Peer, Peer, &Offer) -> bool) {
        let (bytes, per_publisher) = (&mut self.bytes, &mut self.per_publisher);
        self.by_pair.retain(|(from, to), offer| {
            if !condition(*from, *to, offer) {
                return true;
            }
            *bytes -= offer.bytes.len();
            let count = per_publisher.get_mut(from).map(|count| {
                *count -= 1;
                *count
            });
            if count == Some(0) {
                per_publisher.remove(from);
            }
            false
        });
    }

    /// The sums agree with the entries.
    #[cfg(test)]
    pub(super) fn check(&self) {
        assert_eq!(self.bytes, self.by_pair.values().map(|offer| offer.bytes.len()).sum::<usize>());
        assert_eq!(self.by_pair.len(), self.per_publisher.values().sum::<usize>());
        assert!(self.per_publisher.values().all(|count| *count > 0));
    }

    /// Whose offers are here.
    #[cfg(test)]
    pub(super) fn pairs(&self) -> impl Iterator<Item = (Peer, Peer)> {
        self.by_pair.keys().copied()
    }
}
