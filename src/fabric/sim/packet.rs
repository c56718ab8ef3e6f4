//! What travels between two simulated queue pairs.

/// A queue pair by its host and number.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(super) struct QpKey {
    pub(super) host: u32,
    pub(super) number: u32,
}

/// Packet numbers have 24 bits.
pub(super) const PSN_MASK: u32 = (1 << 24) - 1;

/// How far `a` is ahead of `b`, on the circle of packet numbers.
pub(super) fn psn_ahead(a: u32, b: u32) -> i32 {
    let distance = a.wrapping_sub(b) & PSN_MASK;
    let signed = i32::try_from(distance).unwrap_or(0);
    if signed >= 1 << 23 { signed - (1 << 24) } else { signed }
}

/// `psn + step`, on the circle.
pub(super) fn psn_after(psn: u32, step: u32) -> u32 {
    psn.wrapping_add(step) & PSN_MASK
}

/// One packet.
#[derive(Clone, Debug)]
pub(super) struct Packet {
    pub(super) from: QpKey,
    pub(super) to: QpKey,
    pub(super) psn: u32,
    pub(super) body: Body,
}

/// Where a write goes: in its first packet only, as on the wire.
#[derive(Clone, Copy, Debug)]
pub(super) struct Place {
    pub(super) address: u64,
    pub(super) rkey: u32,
    pub(super) bytes: u32,
}

#[derive(Clone, Debug)]
pub(super) enum Body {
    /// A piece of a write. `last` ends it, with an immediate if there is one.
    Write { place: Option<Place>, data: Vec<u8>, last: bool, imm: Option<u32> },
    /// Asks for bytes.
    Read(Place),
    /// Asks for one atomic operation; `None` in the first: an addition of the second.
    Atomic { address: u64, rkey: u32, expect: Option<u64>, value: u64 },
    /// Everything up to this number has been executed.
    Ack,
    /// This number was expected, and another came.
    NakSequence,
    /// Refused: key, bounds, or access.
    NakAccess,
    /// No receive was posted.
    NakNotReady,
    /// The bytes that were asked for.
    ReadReply(Vec<u8>),
    /// The value before.
    AtomicReply(u64),
}

impl Body {
    /// Whether it belongs to the answering side.
    pub(super) fn is_answer(&self) -> bool {
        !matches!(self, Body::Write { .. } | Body::Read(_) | Body::Atomic { .. })
    }

    /// For the trace.
    pub(super) fn code(&self) -> u64 {
        match self {
            Body::Write { last, .. } => 1 + u64::from(*last),
            Body::Read(_) => 3,
            Body::Atomic { .. } => 4,
            Body::Ack => 5,
            Body::NakSequence => 6,
            Body::NakAccess => 7,
            Body::NakNotReady => 8,
            Body::ReadReply(_) => 9,
            Body::AtomicReply(_) => 10,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn packet_numbers_wrap() {
        assert_eq!(psn_ahead(0, PSN_MASK), 1);
        assert_eq!(psn_ahead(PSN_MASK, 0), -1);
        assert_eq!(psn_after(PSN_MASK, 2), 1);
        assert_eq!(psn_ahead(5, 5), 0);
    }
}
