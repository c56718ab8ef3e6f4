//! What a simulated network does to those who use it. All chances are in millionths, all times in nanoseconds.

use super::packet::Body;

/// The habits of one network.
#[derive(Clone, Debug)]
pub struct Policy {
    /// Bytes of one write become visible in order, the last 8 last, in one piece.
    pub ordered_within_write: bool,
    /// An earlier write is visible before a later one.
    pub ordered_writes: bool,
    /// Bytes of a packet.
    pub mtu: u32,
    /// Shortest way of a packet.
    pub delay_ns_min: u64,
    /// Longest way of a packet that meets no trouble.
    pub delay_ns_max: u64,
    /// A packet takes this much longer now and then, and others overtake it.
    pub reorder: u32,
    /// How much longer.
    pub reorder_ns_max: u64,
    /// A packet is lost.
    pub drop: u32,
    /// A packet arrives twice.
    pub duplicate: u32,
    /// A packet's second copy arrives this much later: also after its connection has ended.
    pub duplicate_ns_max: u64,
    /// A write becomes visible in pieces.
    pub tear: u32,
    /// Longest time from the acknowledgement of a write until its last piece is visible.
    pub visible_ns_max: u64,
    /// Between two attempts to send what was not acknowledged.
    pub retry_ns: u64,
    /// Attempts after the first one.
    pub retries: u32,
    /// Pause after a receiver said that it was not ready.
    pub rnr_ns: u64,
    /// Attempts after that.
    pub rnr_retries: u32,
    /// Refusals can be lost, too; the requester then hears nothing, for the refuser answers no more.
    pub lose_refusals: bool,
    /// Completions of flushed work never come.
    pub lose_flush: u32,
    /// RESET removes completions from the queue; otherwise they stay, and polling leaves them out.
    pub purge_on_reset: bool,
    /// Numbers of destroyed queue pairs and keys of freed regions come back at once, unchanged.
    pub reuse_numbers: bool,
    /// A new connection's packet numbers start near where the last one's ended, so that packets of the old one can hit.
    pub psn_collisions: bool,
}

impl Policy {
    /// A network without trouble.
    #[must_use]
    pub fn calm() -> Policy {
        Policy {
            ordered_within_write: true,
            ordered_writes: true,
            mtu: 1024,
            delay_ns_min: 800,
            delay_ns_max: 1500,
            reorder: 0,
            reorder_ns_max: 10_000,
            drop: 0,
            duplicate: 0,
            duplicate_ns_max: 50_000,
            tear: 0,
            visible_ns_max: 300,
            retry_ns: 20_000,
            retries: 5,
            rnr_ns: 5_000,
            rnr_retries: 5,
            lose_refusals: false,
            lose_flush: 0,
            purge_on_reset: true,
            reuse_numbers: false,
            psn_collisions: false,
        }
    }

    pub(super) fn may_lose(&self, body: &Body) -> bool {
        self.lose_refusals || !matches!(body, Body::NakAccess)
    }

    /// Everything that the contract allows, often.
    #[must_use]
    pub fn rough(ordered: bool) -> Policy {
        Policy {
            ordered_within_write: ordered,
            ordered_writes: ordered,
            mtu: 256,
            delay_ns_max: 4000,
            reorder: 20_000,
            drop: 10_000,
            duplicate: 20_000,
            tear: 500_000,
            visible_ns_max: 4000,
            purge_on_reset: false,
            reuse_numbers: true,
            ..Policy::calm()
        }
    }
}
