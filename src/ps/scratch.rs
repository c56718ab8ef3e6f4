//! What a thread that executes requests keeps between them.

use super::aside::{Arrived, Aside, Fetching, InPlace, RowKeys, Sending};
use super::counts::HandlerCounts;
use crate::fabric::Loan;
use crate::sync::Arc;

/// What one executing thread keeps between requests.
#[derive(Debug, Default)]
pub struct Scratch {
    /// The worker index that the store sees.
    pub worker: u32,
    pub(super) keys: Vec<u64>,
    /// Numbers of rows within a client's buffer.
    pub(super) numbers: Vec<u32>,
    pub(super) staging: Vec<u64>,
    /// Memory of the client that the request under way uses, beside its slot.
    pub(super) held: Option<Loan>,
    /// What the request under way leaves for later.
    pub(super) aside: Aside,
    pub(super) fetching: Option<Fetching>,
    /// Where the rows of the request under way have arrived.
    pub(super) fetched: Option<Arrived>,
    /// Where there is a device that sends rows.
    pub(super) in_place: Option<InPlace>,
    /// What was done, for profiles.
    pub counts: HandlerCounts,
}

impl Scratch {
    /// For the thread with this worker index.
    #[must_use]
    pub fn new(worker: u32) -> Scratch {
        Scratch { worker, ..Scratch::default() }
    }

    /// From now on rows may be sent from where they lie; what was sent so is taken by [`Scratch::take_sending`] after each
    /// request.
    pub fn send_in_place(&mut self, keys: Arc<dyn RowKeys>) {
        self.in_place = Some(InPlace::new(keys));
    }

    /// Whether rows are copied for now, because others wait to write them.
    pub fn hold_back(&mut self, held_back: bool) {
        if let Some(in_place) = &mut self.in_place {
            in_place.held_back = held_back;
        }
    }

    /// What the last request sent from pinned rows.
    #[must_use]
    pub fn take_sending(&mut self) -> Option<Sending> {
        self.in_place.as_mut().and_then(|in_place| in_place.sent.take())
    }

    /// The last request's rows, if it waits for them.
    #[must_use]
    pub fn take_fetching(&mut self) -> Option<Fetching> {
        self.fetching.take()
    }
}
