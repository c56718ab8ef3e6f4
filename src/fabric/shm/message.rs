//! What two processes say to each other over their link. Every message has the same size, and one encoding.

use crate::fabric::RegionAddress;

/// Length of every message.
pub(super) const MESSAGE_BYTES: usize = 64;
/// Most descriptors that travel with one message.
pub(super) const DESCRIPTORS_MAX: usize = 3;
/// Name and version of this language.
const MAGIC: u32 = u32::from_le_bytes(*b"rls1");

/// One life of one queue pair: the secret makes sure that only those who were given its address can ask for it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct QpLife {
    pub(super) number: u32,
    pub(super) nonce: u64,
}

/// Why a request was refused.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(u32)]
pub(super) enum Refusal {
    /// No queue pair with this number and nonce: never was, closed, or reset since.
    Unknown = 1,
    /// It is in ERR.
    Failed = 2,
    /// It is connected to somebody else.
    Taken = 3,
    /// The two ends have different generations.
    Generation = 4,
    /// The peer ran out of memory or descriptors.
    Resources = 5,
    /// The memory handed over is not what it was said to be.
    BadMemory = 6,
}

impl Refusal {
    fn from_code(code: u32) -> Option<Refusal> {
        Some(match code {
            1 => Refusal::Unknown,
            2 => Refusal::Failed,
            3 => Refusal::Taken,
            4 => Refusal::Generation,
            5 => Refusal::Resources,
            6 => Refusal::BadMemory,
            _ => return None,
        })
    }

    /// In words.
    pub(super) fn text(self) -> &'static str {
        match self {
            Refusal::Unknown => "the peer has no such queue pair any more: its address is stale",
            Refusal::Failed => "the peer's queue pair is in ERR",
            Refusal::Taken => "the peer's queue pair is connected to another one",
            Refusal::Generation => "the peer's queue pair has another generation",
            Refusal::Resources => "the peer is out of memory or descriptors",
            Refusal::BadMemory => "the memory handed over is not sealed, too small or already known under this key",
        }
    }
}

/// One message. `id` is the asker's own number of its request and comes back in the answer.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Message {
    /// Asks for everything that `from` may reach of `target`. Answer: regions, then `Attached`; or `Refused`.
    Fetch { id: u64, target: QpLife, from: QpLife, generation: u32 },
    /// A region of the answer to `Fetch`. One descriptor.
    Region { id: u64, region: RegionAddress },
    /// End of the answer to `Fetch`. Descriptors: with `bell` the bell's page and socket, with entries the ring.
    Attached { id: u64, bell: bool, barrier: bool, ring_entries: u32 },
    /// No.
    Refused { id: u64, why: Refusal },
    /// One region more for a peer that has fetched. One descriptor. Answer: `Accepted` or `Refused`.
    Expose { id: u64, target: QpLife, region: RegionAddress },
    /// The region with this key is not exposed to `target` any more.
    Unexpose { target: QpLife, rkey: u32 },
    /// Yes.
    Accepted { id: u64 },
    /// The other end of `target` went to ERR with this completion status.
    Failed { target: QpLife, status: u32 },
}

const NOBODY: QpLife = QpLife { number: 0, nonce: 0 };

impl Message {
    /// How many descriptors come with it.
    pub(super) fn descriptors(&self) -> usize {
        match self {
            Message::Region { .. } | Message::Expose { .. } => 1,
            Message::Attached { bell, ring_entries, .. } => usize::from(*bell) * 2 + usize::from(*ring_entries != 0),
            _ => 0,
        }
    }

    /// Layout: magic u32, kind u32, id u64, target number u32, extra u32, target nonce u64, body of 24 bytes, 0 u64.
    pub(super) fn encode(&self) -> [u8; MESSAGE_BYTES] {
        let empty = [0u8; RegionAddress::ENCODED_BYTES];
        let (kind, id, target, extra, body) = match self {
            Message::Fetch { id, target, from, generation } => {
                let mut body = empty;
                body[0..4].copy_from_slice(&from.number.to_le_bytes());
                body[8..16].copy_from_slice(&from.nonce.to_le_bytes());
                (1u32, *id, *target, *generation, body)
            }
            Message::Region { id, region } => (2, *id, NOBODY, 0, region.encode()),
            Message::Attached { id, bell, barrier, ring_entries } => {
                let mut body = empty;
                body[0] = u8::from(*bell);
                body[1] = u8::from(*barrier);
                (3, *id, NOBODY, *ring_entries, body)
            }
            Message::Refused { id, why } => (4, *id, NOBODY, *why as u32, empty),
            Message::Expose { id, target, region } => (5, *id, *target, 0, region.encode()),
            Message::Accepted { id } => (6, *id, NOBODY, 0, empty),
            Message::Failed { target, status } => (7, 0, *target, *status, empty),
            Message::Unexpose { target, rkey } => (8, 0, *target, *rkey, empty),
        };
        let mut out = [0; MESSAGE_BYTES];
        out[0..4].copy_from_slice(&MAGIC.to_le_bytes());
        out[4..8].copy_from_slice(&kind.to_le_bytes());
        out[8..16].copy_from_slice(&id.to_le_bytes());
        out[16..20].copy_from_slice(&target.number.to_le_bytes());
        out[20..24].copy_from_slice(&extra.to_le_bytes());
        out[24..32].copy_from_slice(&target.nonce.to_le_bytes());
        out[32..56].copy_from_slice(&body);
        out
    }

    /// What the bytes say; None unless they are exactly the encoding of a message.
    pub(super) fn decode(bytes: &[u8]) -> Option<Message> {
        let bytes: &[u8; MESSAGE_BYTES] = bytes.try_into().ok()?;
        let u32_at = |at: usize| u32::from_le_bytes([bytes[at], bytes[at + 1], bytes[at + 2], bytes[at + 3]]);
        let u64_at = |at: usize| u64::from(u32_at(at)) | u64::from(u32_at(at + 4)) << 32;
        let (id, extra) = (u64_at(8), u32_at(20));
        let target = QpLife { number: u32_at(16), nonce: u64_at(24) };
        let message = match u32_at(4) {
            1 => {
                Message::Fetch { id, target, from: QpLife { number: u32_at(32), nonce: u64_at(40) }, generation: extra }
            }
            2 => Message::Region { id, region: RegionAddress::decode(&bytes[32..56])? },
            3 => Message::Attached { id, bell: bytes[32] == 1, barrier: bytes[33] == 1, ring_entries: extra },
            4 => Message::Refused { id, why: Refusal::from_code(extra)? },
            5 => Message::Expose { id, target, region: RegionAddress::decode(&bytes[32..56])? },
            6 => Message::Accepted { id },
            7 => Message::Failed { target, status: extra },
            8 => Message::Unexpose { target, rkey: extra },
            _ => return None,
        };
        (message.encode() == *bytes).then_some(message)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fabric::Access;

    fn samples() -> Vec<Message> {
        let region = RegionAddress { iova: 0x7f00_0000_1000, bytes: 4096, rkey: 77, access: Access::ALL };
        let target = QpLife { number: 3, nonce: u64::MAX - 1 };
        let from = QpLife { number: 4, nonce: 1 << 40 };
        vec![
            Message::Fetch { id: 1 << 33, target, from, generation: 9 },
            Message::Region { id: 2, region },
            Message::Attached { id: 3, bell: true, barrier: false, ring_entries: 64 },
            Message::Attached { id: 3, bell: false, barrier: true, ring_entries: 0 },
            Message::Refused { id: 4, why: Refusal::BadMemory },
            Message::Expose { id: 5, target, region },
            Message::Accepted { id: 6 },
            Message::Failed { target, status: 10 },
            Message::Unexpose { target, rkey: 77 },
        ]
    }

    #[test]
    fn every_message_survives_the_trip() {
        for message in samples() {
            assert_eq!(Message::decode(&message.encode()), Some(message));
            assert!(message.descriptors() <= DESCRIPTORS_MAX);
        }
    }

    #[test]
    fn a_message_has_one_encoding_only() {
        for message in samples() {
            let good = message.encode();
            assert_eq!(Message::decode(&good[..63]), None);
            for bit in 0..MESSAGE_BYTES * 8 {
                let mut bad = good;
                bad[bit / 8] ^= 1 << (bit % 8);
                // Either refused, or another message whose encoding is exactly these bytes.
                if let Some(other) = Message::decode(&bad) {
                    assert_ne!(other, message);
                    assert_eq!(other.encode(), bad);
                }
            }
        }
    }
}
