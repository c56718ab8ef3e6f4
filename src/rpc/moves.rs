//! Slots move from a lane's old connection to its new one.

use super::channel::Channel;
use super::connection::Connection;
use super::slot::Held;
use crate::fabric::{Fabric, WcStatus};
use crate::lane::DirtyReason;
use crate::sync::{Arc, Ordering};

impl<F: Fabric, R> Channel<F, R> {
    /// Moves a slot that the caller holds to the present connection of its own lane. False: the lane is down, or its
    /// server has no place for the slot.
    #[cold]
    pub(super) fn move_home(&self, held: Held) -> bool {
        let slot = &self.slots[held.index as usize];
        let lane = self.lane_of(slot);
        let Some(connection) = lane.connection() else {
            return false;
        };
        let generation = connection.parts().generation;
        if connection.ended().is_some() {
            return false;
        }
        let Some(places) = connection.places(slot.slot) else {
            // Its offer lied about the geometry.
            lane.fail(generation, DirtyReason::Completion(WcStatus::RemInvReq));
            return false;
        };
        // SAFETY: the holder has `own` to itself.
        let own = unsafe { &mut *slot.own.get() };
        own.word = connection.word_before_first(slot.slot);
        own.places = places;
        own.is_plain = connection.is_plain(self.checksum);
        own.connection = connection;
        own.at = slot.slot;
        own.via = held.index;
        slot.arrived.store(0, Ordering::Relaxed);
        slot.answer_hint.store(places.response_header.cast_mut(), Ordering::Relaxed);
        slot.request_hint.store(places.request_header, Ordering::Relaxed);
        slot.generation.store(generation, Ordering::Relaxed);
        true
    }

    /// Moves slots of a rebuilt lane that nobody holds to its new connection, so that the old one's memory goes. What is
    /// held moves when it is taken next. Slots of lanes that are not connected yet wait there, too.
    pub fn move_idle_slots(&self, lane: u32) {
        let present = self.lanes[lane as usize].connection();
        for (index, slot) in self.slots.iter().enumerate() {
            if slot.lane == lane
                && let Some(held) = self.try_take(index)
            {
                self.release(held);
            } else if self.lane_of(slot).is_fresh()
                && let Some(connection) = &present
            {
                self.wait_at(index, connection);
            }
        }
    }

    /// Lets a slot of a lane that is not connected yet wait at this connection.
    fn wait_at(&self, index: usize, connection: &Arc<Connection<F>>) {
        let slot = &self.slots[index];
        let state = slot.state.load(Ordering::Relaxed);
        // Acquire: as in `try_take`. Held: its lane was connected just now.
        let taken = state & 1 == 0
            && slot.state.compare_exchange(state, state | 1, Ordering::Acquire, Ordering::Relaxed).is_ok();
        if !taken {
            return;
        }
        if let Some(places) = connection.places(slot.slot) {
            // SAFETY: the holder has `own` to itself.
            let own = unsafe { &mut *slot.own.get() };
            own.places = places;
            own.connection = Arc::clone(connection);
            slot.generation.store(0, Ordering::Relaxed);
            slot.answer_hint.store(places.response_header.cast_mut(), Ordering::Relaxed);
            slot.request_hint.store(places.request_header, Ordering::Relaxed);
        }
        // Release: pairs with the Acquire of `try_take`.
        slot.state.store(state, Ordering::Release);
    }
}
