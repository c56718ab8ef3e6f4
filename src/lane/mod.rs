//! One RC queue pair, or its software equal, with its slots and its own life: what decides about it, and what both ends
//! tell each other before it lives. Pure: no clock, thread, socket, random source or `unsafe`.

#![forbid(unsafe_code)]

mod guest;
mod offer;
mod rebuild;
mod state;

pub use guest::{GuestLane, GuestStep};
pub use offer::{LANES_PER_OFFER_MAX, LaneEnd, LaneOffer};
pub use rebuild::{Lifecycle, RebuildPolicy, Want};
pub use state::{CompletionClass, DirtyReason, LaneState};
