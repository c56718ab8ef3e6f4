//! What one rank tells another through the control plane: its life, its regions, lanes it asks for, lanes it has let in.
//!
//! Everything in one message, so that a newer one takes the older one's place whole. Pure. A message comes from a peer:
//! counts and lengths are checked before anything is kept.

#![forbid(unsafe_code)]

use super::names::Entry;
use crate::fabric::{QpAddress, RegionAddress};
use crate::ids::{Epoch, Incarnation};
use crate::wire::region::REGIONS_MAX;
use core::fmt;

/// "rlN" and the version of this message.
const MAGIC: u32 = 0x4e6c_7201;

/// What a lane is for.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum Purpose {
    /// Reads, writes and the fabric's atomics.
    Data,
    /// Atomics that the owner executes.
    Atomics,
}

impl Purpose {
    /// Both, in the order of their numbers.
    pub const ALL: [Purpose; 2] = [Purpose::Data, Purpose::Atomics];
}

/// A lane that the sender asks for, as the side that posts.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Ask {
    /// What for.
    pub purpose: Purpose,
    /// Counts the connections of this lane, from 1.
    pub generation: u32,
    /// Its queue pair.
    pub queue_pair: QpAddress,
}

/// The sender has let the receiver's lane in.
#[derive(Clone, PartialEq, Eq)]
pub struct Answer {
    /// The ask's.
    pub purpose: Purpose,
    /// The ask's.
    pub generation: u32,
    /// Whom it was let in for: an answer to an earlier life is none.
    pub answers: Incarnation,
    /// Up to which operation the sender has evidence that the lane's former connection was executed. It can execute
    /// nothing more of it.
    pub evidence: u64,
    /// Its queue pair.
    pub queue_pair: QpAddress,
    /// Memory of this connection alone: the place for marks, or the cells for atomics.
    pub cells: RegionAddress,
}

impl fmt::Debug for Answer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Answer")
            .field("purpose", &self.purpose)
            .field("generation", &self.generation)
            .field("evidence", &self.evidence)
            .finish_non_exhaustive()
    }
}

/// The message.
#[derive(Clone, Debug, PartialEq)]
pub struct Notice {
    /// The sender's life.
    pub incarnation: Incarnation,
    /// Its epoch.
    pub epoch: Epoch,
    /// Counts its messages; a smaller number is older.
    pub serial: u64,
    /// Its table in memory, for peers of the same host.
    pub table: Option<TableAddress>,
    /// Its regions.
    pub regions: Vec<(u32, Entry)>,
    /// Lanes it asks for.
    pub asks: Vec<Ask>,
    /// Lanes it has let in.
    pub answers: Vec<Answer>,
}

/// Where a table is; as with every region, its key is not shown.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct TableAddress(pub RegionAddress);

impl fmt::Debug for TableAddress {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("TableAddress")
    }
}

fn put_queue_pair(out: &mut Vec<u8>, address: &QpAddress) {
    // A provider's address is a few dozen bytes; QpAddress::BYTES_MAX is what a reader takes.
    out.extend_from_slice(&u32::try_from(address.0.len()).unwrap_or(u32::MAX).to_le_bytes());
    out.extend_from_slice(&address.0);
}

impl Notice {
    /// As bytes.
    #[must_use]
    pub fn encode(&self) -> Vec<u8> {
        let mut out = Vec::with_capacity(256 + self.regions.len() * 32);
        let number = |count: usize| u32::try_from(count).unwrap_or(u32::MAX).to_le_bytes();
        out.extend_from_slice(&MAGIC.to_le_bytes());
        out.extend_from_slice(&self.incarnation.0.to_le_bytes());
        out.extend_from_slice(&self.epoch.0.to_le_bytes());
        out.extend_from_slice(&self.serial.to_le_bytes());
        out.push(u8::from(self.table.is_some()));
        out.extend(self.table.iter().flat_map(|table| table.0.encode()));
        out.extend_from_slice(&number(self.regions.len()));
        for (id, entry) in &self.regions {
            out.extend_from_slice(&id.to_le_bytes());
            out.extend_from_slice(&entry.n.to_le_bytes());
            out.extend_from_slice(&entry.address.encode());
        }
        out.push(u8::try_from(self.asks.len()).unwrap_or(u8::MAX));
        for ask in &self.asks {
            out.push(ask.purpose as u8);
            out.extend_from_slice(&ask.generation.to_le_bytes());
            put_queue_pair(&mut out, &ask.queue_pair);
        }
        out.push(u8::try_from(self.answers.len()).unwrap_or(u8::MAX));
        for answer in &self.answers {
            out.push(answer.purpose as u8);
            out.extend_from_slice(&answer.generation.to_le_bytes());
            out.extend_from_slice(&answer.answers.0.to_le_bytes());
            out.extend_from_slice(&answer.evidence.to_le_bytes());
            out.extend_from_slice(&answer.cells.encode());
            put_queue_pair(&mut out, &answer.queue_pair);
        }
        out
    }

    /// Reads a peer's.
    ///
    /// # Errors
    /// In words, what it is not.
    pub fn decode(bytes: &[u8]) -> Result<Notice, &'static str> {
        let mut from = Reader(bytes);
        if from.u32()? != MAGIC {
            return Err("a message that is not one of this version's ranks");
        }
        let incarnation = Incarnation(from.u128()?);
        let (epoch, serial) = (Epoch(from.u64()?), from.u64()?);
        let table = match from.byte()? {
            0 => None,
            _ => Some(TableAddress(from.region()?)),
        };
        let count = from.u32()? as usize;
        if count > REGIONS_MAX {
            return Err("more regions than a rank can have");
        }
        let mut regions = Vec::with_capacity(count);
        for _ in 0..count {
            let (id, n) = (from.u32()?, from.u32()?);
            if id as usize >= REGIONS_MAX {
                return Err("a region whose id is beyond the last");
            }
            regions.push((id, Entry { n, address: from.region()? }));
        }
        let asks = from.some(|from| {
            Ok(Ask { purpose: from.purpose()?, generation: from.u32()?, queue_pair: from.queue_pair()? })
        })?;
        let answers = from.some(|from| {
            Ok(Answer {
                purpose: from.purpose()?,
                generation: from.u32()?,
                answers: Incarnation(from.u128()?),
                evidence: from.u64()?,
                cells: from.region()?,
                queue_pair: from.queue_pair()?,
            })
        })?;
        if !from.0.is_empty() {
            return Err("a message with bytes behind its end");
        }
        Ok(Notice { incarnation, epoch, serial, table, regions, asks, answers })
    }
}

struct Reader<'a>(&'a [u8]);

const SHORT: &str = "a message that is cut off";

impl Reader<'_> {
    fn array<const N: usize>(&mut self) -> Result<[u8; N], &'static str> {
        let (head, rest) = self.0.split_first_chunk::<N>().ok_or(SHORT)?;
        self.0 = rest;
        Ok(*head)
    }

    fn byte(&mut self) -> Result<u8, &'static str> {
        Ok(self.array::<1>()?[0])
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

    fn region(&mut self) -> Result<RegionAddress, &'static str> {
        let bytes = self.array::<{ RegionAddress::ENCODED_BYTES }>()?;
        RegionAddress::decode(&bytes).ok_or("a region whose address cannot be")
    }

    fn purpose(&mut self) -> Result<Purpose, &'static str> {
        let number = self.byte()?;
        Purpose::ALL.get(usize::from(number)).copied().ok_or("a lane for an unknown purpose")
    }

    fn queue_pair(&mut self) -> Result<QpAddress, &'static str> {
        let bytes = self.u32()? as usize;
        if bytes > QpAddress::BYTES_MAX {
            return Err("a queue pair's address that is too long");
        }
        let (head, rest) = self.0.split_at_checked(bytes).ok_or(SHORT)?;
        self.0 = rest;
        Ok(QpAddress(head.to_vec()))
    }

    /// A list of at most one per purpose.
    fn some<T>(&mut self, one: impl Fn(&mut Self) -> Result<T, &'static str>) -> Result<Vec<T>, &'static str> {
        let count = usize::from(self.byte()?);
        if count > Purpose::ALL.len() {
            return Err("more lanes than there are purposes");
        }
        (0..count).map(|_| one(self)).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fabric::Access;
    use proptest::prelude::*;

    fn sample() -> Notice {
        let address = RegionAddress { iova: 1 << 40, bytes: 4096, rkey: 77, access: Access::ALL };
        let queue_pair = QpAddress(vec![1, 2, 3]);
        Notice {
            incarnation: Incarnation(5),
            epoch: Epoch(2),
            serial: 9,
            table: Some(TableAddress(address)),
            regions: vec![(0, Entry { n: 1, address }), (511, Entry { n: 4, address })],
            asks: vec![Ask { purpose: Purpose::Data, generation: 1, queue_pair: queue_pair.clone() }],
            answers: vec![Answer {
                purpose: Purpose::Atomics,
                generation: 3,
                answers: Incarnation(6),
                evidence: 12,
                queue_pair,
                cells: address,
            }],
        }
    }

    #[test]
    fn it_comes_back_and_every_cut_is_refused() {
        let bytes = sample().encode();
        assert_eq!(Notice::decode(&bytes), Ok(sample()));
        for length in 0..bytes.len() {
            assert!(Notice::decode(&bytes[..length]).is_err(), "{length}");
        }
        let mut longer = bytes;
        longer.push(0);
        assert!(Notice::decode(&longer).is_err());
    }

    #[test]
    fn a_key_is_not_shown() {
        assert!(!format!("{:?}", sample()).contains("77"));
    }

    proptest! {
        #[test]
        fn any_bytes_are_read_or_refused(change in prop::collection::vec((0_usize..300, any::<u8>()), 0..6)) {
            let mut bytes = sample().encode();
            for (at, value) in change {
                let length = bytes.len();
                bytes[at % length] = value;
            }
            if let Ok(notice) = Notice::decode(&bytes) {
                prop_assert!(notice.regions.len() <= REGIONS_MAX);
                prop_assert_eq!(Notice::decode(&notice.encode()), Ok(notice));
            }
        }
    }
}
