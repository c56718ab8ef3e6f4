//! What one end of the lanes between a client and a shard tells the other, as bytes for the control plane.
//!
//! An offer is the whole present state of one side, never a change: a later one takes the place of an earlier one that
//! was not read, and one that is told again says nothing new. Each lane's end says which connection of its own it
//! describes and which connection of the peer it answers, and the offer says which process speaks to which: so an answer
//! to an earlier connection, or from or to an earlier process of the same name, is never taken for the present one.

use crate::fabric::{QpAddress, RegionAddress};
use crate::ids::Incarnation;
use crate::wire::Geometry;

/// Most lanes that one offer may carry.
pub const LANES_PER_OFFER_MAX: u32 = 1024;

/// One lane's end.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct LaneEnd {
    /// The lane's number within client and shard.
    pub lane: u32,
    /// Which connection of this side it is, from 1.
    pub generation: u32,
    /// The peer's connection that it is meant for; 0 in a client's offer that no answer has come to.
    pub answers: u32,
    /// The lane's place in the region, and how many places that has: lanes that were connected together share one.
    pub place: u32,
    /// See `place`.
    pub places: u32,
    /// The region with this end's slots.
    pub region: RegionAddress,
    /// The queue pair.
    pub queue_pair: QpAddress,
}

/// One side's ends of all lanes between a client and a shard.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct LaneOffer {
    /// The process that offers.
    pub incarnation: Incarnation,
    /// The process that it speaks to; zero in a client's offer to a shard that it has not heard of yet. A client only
    /// takes an answer to itself.
    pub answers: Incarnation,
    /// A shard's memory of what it executed for this client; another number means that the memory was lost. 0 in a
    /// client's offer.
    pub window: u64,
    /// The commit scheme: code of the option. An offer asks, the answer decides.
    pub scheme: u8,
    /// Whether checksums are on.
    pub integrity: u8,
    /// How slots lie; `lanes` counts all lanes between the two.
    pub geometry: Geometry,
    /// Rows that the other side may read where they lie; None in a client's offer.
    pub rows: Option<RegionAddress>,
    /// The ends. A shard's answer may leave lanes out.
    pub ends: Vec<LaneEnd>,
}

const MAGIC: u32 = 0x334f_4c52;
const FIXED_BYTES: usize = 4 + 16 + 16 + 8 + 4 + 16 + RegionAddress::ENCODED_BYTES + 4;
const END_BYTES: usize = 20 + RegionAddress::ENCODED_BYTES + 2;

impl LaneOffer {
    /// Encodes: magic u32, incarnation u128, answers u128, window u64, scheme u8, integrity u8, reserved u16, lanes,
    /// slots, request and response payload bytes u32 each, rows (24 bytes, zeros: none), number of ends u32; then for
    /// each end lane, generation, answers, place, places u32 each, region (24 bytes), a u16 length and the queue pair's
    /// address.
    #[must_use]
    pub fn encode(&self) -> Vec<u8> {
        let addresses: usize = self.ends.iter().map(|end| end.queue_pair.0.len()).sum();
        let mut out = Vec::with_capacity(FIXED_BYTES + self.ends.len() * END_BYTES + addresses);
        out.extend_from_slice(&MAGIC.to_le_bytes());
        out.extend_from_slice(&self.incarnation.0.to_le_bytes());
        out.extend_from_slice(&self.answers.0.to_le_bytes());
        out.extend_from_slice(&self.window.to_le_bytes());
        out.extend_from_slice(&[self.scheme, self.integrity, 0, 0]);
        let g = &self.geometry;
        let ends = u32::try_from(self.ends.len()).unwrap_or(u32::MAX);
        for field in [g.lanes, g.slots, g.request_payload_bytes, g.response_payload_bytes] {
            out.extend_from_slice(&field.to_le_bytes());
        }
        out.extend_from_slice(&self.rows.map_or([0; RegionAddress::ENCODED_BYTES], |rows| rows.encode()));
        out.extend_from_slice(&ends.to_le_bytes());
        for end in &self.ends {
            for field in [end.lane, end.generation, end.answers, end.place, end.places] {
                out.extend_from_slice(&field.to_le_bytes());
            }
            out.extend_from_slice(&end.region.encode());
            let address = &end.queue_pair.0;
            out.extend_from_slice(&u16::try_from(address.len()).unwrap_or(u16::MAX).to_le_bytes());
            out.extend_from_slice(address);
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
        let window = reader.u64()?;
        let [scheme, integrity, zero, null] = reader.array::<4>()?;
        if zero != 0 || null != 0 {
            return Err("a lane offer with set reserved bytes");
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
        let rows = reader.array::<{ RegionAddress::ENCODED_BYTES }>()?;
        let rows = if rows.iter().all(|byte| *byte == 0) {
            None
        } else {
            Some(RegionAddress::decode(&rows).ok_or("a lane offer with malformed rows")?)
        };
        let count = reader.u32()?;
        if count > geometry.lanes {
            return Err("a lane offer with more ends than lanes");
        }
        let mut ends: Vec<LaneEnd> = Vec::with_capacity(count as usize);
        for _ in 0..count {
            let end = reader.end(&geometry)?;
            if ends.last().is_some_and(|last| last.lane >= end.lane) {
                return Err("a lane offer whose lanes are not in order");
            }
            ends.push(end);
        }
        if !reader.rest.is_empty() {
            return Err("a lane offer with bytes behind its end");
        }
        Ok(LaneOffer { incarnation, answers, window, scheme, integrity, geometry, rows, ends })
    }

    /// The end that answers connection `generation` of lane `lane` of the process `me`: both sides have seen each
    /// other's present connection and process.
    #[must_use]
    pub fn answer_to(&self, me: Incarnation, lane: u32, generation: u32) -> Option<&LaneEnd> {
        if self.answers != me {
            return None;
        }
        self.ends.iter().find(|end| end.lane == lane && end.answers == generation)
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

    fn u64(&mut self) -> Result<u64, &'static str> {
        Ok(u64::from_le_bytes(self.array()?))
    }

    fn u128(&mut self) -> Result<u128, &'static str> {
        Ok(u128::from_le_bytes(self.array()?))
    }

    fn end(&mut self, geometry: &Geometry) -> Result<LaneEnd, &'static str> {
        let (lane, generation, answers) = (self.u32()?, self.u32()?, self.u32()?);
        let (place, places) = (self.u32()?, self.u32()?);
        if lane >= geometry.lanes || generation == 0 {
            return Err("a lane offer with an unknown lane or generation 0");
        }
        if places == 0 || places > geometry.lanes || place >= places {
            return Err("a lane offer with a lane outside its region");
        }
        let region = RegionAddress::decode(&self.array::<{ RegionAddress::ENCODED_BYTES }>()?)
            .ok_or("a lane offer with a malformed region")?;
        let length = usize::from(u16::from_le_bytes(self.array::<2>()?));
        if length > QpAddress::BYTES_MAX {
            return Err("a lane offer with an oversized address");
        }
        let queue_pair = QpAddress(self.take(length)?.to_vec());
        Ok(LaneEnd { lane, generation, answers, place, places, region, queue_pair })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fabric::Access;
    use proptest::prelude::*;

    fn end(lane: u32, generation: u32, answers: u32) -> LaneEnd {
        let region = RegionAddress { iova: 4096, bytes: 65536, rkey: 77, access: Access::REMOTE_WRITE };
        LaneEnd { lane, generation, answers, place: 0, places: 1, region, queue_pair: QpAddress(vec![1, 2, 3]) }
    }

    fn offer() -> LaneOffer {
        LaneOffer {
            incarnation: Incarnation(7),
            answers: Incarnation(9),
            window: 3,
            scheme: 1,
            integrity: 0,
            geometry: Geometry { lanes: 3, slots: 4, request_payload_bytes: 4096, response_payload_bytes: 8192 },
            rows: Some(RegionAddress { iova: 8192, bytes: 1 << 20, rkey: 9, access: Access::REMOTE_READ }),
            ends: vec![end(0, 1, 5), end(2, 2, 6)],
        }
    }

    #[test]
    fn round_trip() {
        assert_eq!(LaneOffer::decode(&offer().encode()), Ok(offer()));
        let without = LaneOffer { rows: None, ..offer() };
        assert_eq!(LaneOffer::decode(&without.encode()), Ok(without));
    }

    #[test]
    fn an_answer_is_taken_only_by_the_connection_and_the_process_it_is_meant_for() {
        let answer = offer();
        assert_eq!(answer.answer_to(Incarnation(9), 2, 6), Some(&answer.ends[1]));
        assert_eq!(answer.answer_to(Incarnation(9), 2, 7), None);
        assert_eq!(answer.answer_to(Incarnation(9), 1, 6), None);
        assert_eq!(answer.answer_to(Incarnation(8), 2, 6), None);
    }

    #[test]
    fn lanes_out_of_order_and_places_outside_the_region_are_refused() {
        let mut twice = offer();
        twice.ends[1].lane = 0;
        assert!(LaneOffer::decode(&twice.encode()).is_err());
        let mut outside = offer();
        outside.ends[1].place = 1;
        assert!(LaneOffer::decode(&outside.encode()).is_err());
    }

    proptest! {
        #[test]
        fn garbage_and_truncation_are_refused_without_a_panic(cut in 0_usize..300, at in 0_usize..300, byte in any::<u8>()) {
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
