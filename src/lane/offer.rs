//! What one end of a group of lanes tells the other before they are connected, as bytes for the control plane.

use crate::fabric::{QpAddress, RegionAddress};
use crate::ids::Incarnation;
use crate::wire::Geometry;

/// Most lanes that one offer may carry.
pub const LANES_PER_OFFER_MAX: u32 = 1024;

/// One end's half of a group of lanes.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct LaneOffer {
    /// The process that offers.
    pub incarnation: Incarnation,
    /// The incarnation this answers; zero in a first offer. A client only takes an answer to itself.
    pub answers: Incarnation,
    /// Generation of all lanes of the group.
    pub generation: u32,
    /// The commit scheme: code of the option. An offer asks, the answer decides.
    pub scheme: u8,
    /// Whether checksums are on.
    pub integrity: u8,
    /// How slots lie.
    pub geometry: Geometry,
    /// The region with this end's slots.
    pub region: RegionAddress,
    /// One queue pair per lane.
    pub queue_pairs: Vec<QpAddress>,
}

const MAGIC: u32 = 0x314f_4c52;
const FIXED_BYTES: usize = 4 + 16 + 16 + 4 + 4 + 16 + RegionAddress::ENCODED_BYTES;

impl LaneOffer {
    /// Encodes: magic u32, incarnation u128, answers u128, generation u32, scheme u8, integrity u8, reserved u16,
    /// lanes, slots, request and response payload bytes u32 each, region (24 bytes), then for each lane a u16 length
    /// and its address.
    #[must_use]
    pub fn encode(&self) -> Vec<u8> {
        let mut out = Vec::with_capacity(FIXED_BYTES + self.queue_pairs.iter().map(|q| q.0.len() + 2).sum::<usize>());
        out.extend_from_slice(&MAGIC.to_le_bytes());
        out.extend_from_slice(&self.incarnation.0.to_le_bytes());
        out.extend_from_slice(&self.answers.0.to_le_bytes());
        out.extend_from_slice(&self.generation.to_le_bytes());
        out.extend_from_slice(&[self.scheme, self.integrity, 0, 0]);
        let g = &self.geometry;
        for field in [g.lanes, g.slots, g.request_payload_bytes, g.response_payload_bytes] {
            out.extend_from_slice(&field.to_le_bytes());
        }
        out.extend_from_slice(&self.region.encode());
        for address in &self.queue_pairs {
            out.extend_from_slice(&u16::try_from(address.0.len()).unwrap_or(u16::MAX).to_le_bytes());
            out.extend_from_slice(&address.0);
        }
        out
    }

    /// Decodes what a peer sent.
    ///
    /// # Errors
    /// In words, what is wrong with it.
    pub fn decode(bytes: &[u8]) -> Result<LaneOffer, &'static str> {
        let mut reader = Reader { rest: bytes };
        if reader.u32()? != MAGIC {
            return Err("not a lane offer");
        }
        let incarnation = Incarnation(reader.u128()?);
        let answers = Incarnation(reader.u128()?);
        let generation = reader.u32()?;
        let [scheme, integrity, zero, null] = reader.array::<4>()?;
        if generation == 0 || zero != 0 || null != 0 {
            return Err("a lane offer with a zero generation or set reserved bytes");
        }
        let geometry = Geometry {
            lanes: reader.u32()?,
            slots: reader.u32()?,
            request_payload_bytes: reader.u32()?,
            response_payload_bytes: reader.u32()?,
        };
        if geometry.lanes == 0 || geometry.lanes > LANES_PER_OFFER_MAX {
            return Err("a lane offer with no lane or too many");
        }
        let region = RegionAddress::decode(&reader.array::<{ RegionAddress::ENCODED_BYTES }>()?)
            .ok_or("a lane offer with a malformed region")?;
        let mut queue_pairs = Vec::with_capacity(geometry.lanes as usize);
        for _ in 0..geometry.lanes {
            let length = usize::from(u16::from_le_bytes(reader.array::<2>()?));
            if length > QpAddress::BYTES_MAX {
                return Err("a lane offer with an oversized address");
            }
            queue_pairs.push(QpAddress(reader.take(length)?.to_vec()));
        }
        if !reader.rest.is_empty() {
            return Err("a lane offer with bytes behind its end");
        }
        Ok(LaneOffer { incarnation, answers, generation, scheme, integrity, geometry, region, queue_pairs })
    }
}

struct Reader<'a> {
    rest: &'a [u8],
}

impl<'a> Reader<'a> {
    fn take(&mut self, count: usize) -> Result<&'a [u8], &'static str> {
        let (head, rest) = self.rest.split_at_checked(count).ok_or("a truncated lane offer")?;
        self.rest = rest;
        Ok(head)
    }

    fn array<const N: usize>(&mut self) -> Result<[u8; N], &'static str> {
        let (head, rest) = self.rest.split_first_chunk::<N>().ok_or("a truncated lane offer")?;
        self.rest = rest;
        Ok(*head)
    }

    fn u32(&mut self) -> Result<u32, &'static str> {
        Ok(u32::from_le_bytes(self.array()?))
    }

    fn u128(&mut self) -> Result<u128, &'static str> {
        Ok(u128::from_le_bytes(self.array()?))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fabric::Access;
    use proptest::prelude::*;

    fn offer() -> LaneOffer {
        LaneOffer {
            incarnation: Incarnation(7),
            answers: Incarnation(0),
            generation: 1,
            scheme: 1,
            integrity: 0,
            geometry: Geometry { lanes: 2, slots: 4, request_payload_bytes: 4096, response_payload_bytes: 8192 },
            region: RegionAddress { iova: 4096, bytes: 65536, rkey: 77, access: Access::REMOTE_WRITE },
            queue_pairs: vec![QpAddress(vec![1, 2, 3]), QpAddress(vec![])],
        }
    }

    #[test]
    fn round_trip() {
        assert_eq!(LaneOffer::decode(&offer().encode()), Ok(offer()));
    }

    proptest! {
        #[test]
        fn garbage_and_truncation_are_refused_without_a_panic(cut in 0_usize..200, at in 0_usize..200, byte in any::<u8>()) {
            let mut bytes = offer().encode();
            if let Some(place) = bytes.get_mut(at) {
                *place = byte;
            }
            let whole = bytes.len();
            bytes.truncate(cut);
            if let Ok(decoded) = LaneOffer::decode(&bytes) {
                prop_assert!(cut >= whole);
                prop_assert_eq!(decoded.encode(), bytes);
            }
        }
    }
}
