//! What a shard makes of the connections that a client offers for one lane.

use super::LaneEnd;
use crate::time::Tick;
use core::time::Duration;

/// What follows from an offer.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum GuestStep {
    /// Nothing new.
    Nothing,
    /// The client has a new connection: let the old one go, and answer with this connection of our own.
    Connect {
        /// Number of our connection.
        own: u32,
    },
    /// The client has seen our answer: both ends have echoed each other.
    Confirmed,
}

/// The shard's side of one lane of one client process. A connection of the client is answered once; an older one than
/// was answered is never looked at again.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct GuestLane {
    /// The client's connection that was answered last; 0 none.
    theirs: u32,
    /// Our connections so far.
    own: u32,
    confirmed: bool,
    since: Option<Tick>,
}

impl GuestLane {
    /// What to do about an end that the client offers.
    #[must_use]
    pub fn heard(&self, end: &LaneEnd) -> GuestStep {
        if end.generation > self.theirs {
            GuestStep::Connect { own: self.own + 1 }
        } else if end.generation == self.theirs && end.answers == self.own && !self.confirmed {
            GuestStep::Confirmed
        } else {
            GuestStep::Nothing
        }
    }

    /// Our end for the client's connection `theirs` is made and answered.
    pub fn answered(&mut self, now: Tick, theirs: u32, own: u32) {
        *self = GuestLane { theirs, own, confirmed: false, since: Some(now) };
    }

    /// The client has echoed our connection.
    pub fn confirm(&mut self) {
        self.confirmed = true;
    }

    /// Whether the client uses our present connection, or has used it.
    #[must_use]
    pub fn is_confirmed(&self) -> bool {
        self.confirmed
    }

    /// The client's connection that our end answers, and our own number.
    #[must_use]
    pub fn connection(&self) -> (u32, u32) {
        (self.theirs, self.own)
    }

    /// Whether the client never took what it was answered `limit` ago.
    #[must_use]
    pub fn forsaken(&self, now: Tick, limit: Duration) -> bool {
        !self.confirmed && self.since.is_some_and(|since| since.after(limit) <= now)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fabric::{Access, QpAddress, RegionAddress};

    fn end(generation: u32, answers: u32) -> LaneEnd {
        let region = RegionAddress { iova: 4096, bytes: 65536, rkey: 77, access: Access::REMOTE_WRITE };
        LaneEnd { lane: 0, generation, answers, place: 0, places: 1, region, queue_pair: QpAddress(vec![]) }
    }

    #[test]
    fn each_connection_is_answered_once_and_old_ones_never() {
        let mut lane = GuestLane::default();
        assert_eq!(lane.heard(&end(4, 0)), GuestStep::Connect { own: 1 });
        lane.answered(Tick(0), 4, 1);
        assert_eq!(lane.heard(&end(4, 0)), GuestStep::Nothing);
        assert_eq!(lane.heard(&end(3, 1)), GuestStep::Nothing);
        assert_eq!(lane.heard(&end(4, 1)), GuestStep::Confirmed);
        lane.confirm();
        assert_eq!(lane.heard(&end(4, 1)), GuestStep::Nothing);
        assert_eq!(lane.heard(&end(5, 1)), GuestStep::Connect { own: 2 });
    }

    #[test]
    fn a_connection_that_nobody_takes_is_given_up() {
        let mut lane = GuestLane::default();
        let limit = Duration::from_nanos(10);
        assert!(!lane.forsaken(Tick(100), limit));
        lane.answered(Tick(5), 1, 1);
        assert!(!lane.forsaken(Tick(14), limit));
        assert!(lane.forsaken(Tick(15), limit));
        lane.confirm();
        assert!(!lane.forsaken(Tick(99), limit));
    }
}
