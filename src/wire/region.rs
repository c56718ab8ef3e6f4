//! What ranks share beside the bytes of their regions: the table of regions, and the cells through which one rank asks
//! another to execute an atomic.

/// Regions that one rank may have open at a time; their ids are below it.
pub const REGIONS_MAX: usize = 512;
/// Bytes of an entry of the table, and of its head.
pub const ENTRY_BYTES: usize = 64;
/// Words of an entry behind its sequence.
pub const ENTRY_WORDS: usize = 7;
/// Bytes of the whole table.
pub const TABLE_BYTES: usize = ENTRY_BYTES * (1 + REGIONS_MAX);
/// First word of the head: the table's kind and version.
pub const TABLE_MAGIC: u64 = 0x7265_6c61_6e54_0001;

/// Requests for atomics that one rank may have under way at another.
pub const CELLS: usize = 16;
/// Bytes of a cell's request, and of its answer, which lies behind it.
pub const RECORD_BYTES: usize = 64;
/// Bytes of all cells.
pub const MAILBOX_BYTES: usize = CELLS * 2 * RECORD_BYTES;

/// Where a cell's request lies in the mailbox.
#[must_use]
pub const fn request_offset(cell: usize) -> usize {
    cell * 2 * RECORD_BYTES
}

/// Where a cell's answer lies in the mailbox.
#[must_use]
pub const fn answer_offset(cell: usize) -> usize {
    request_offset(cell) + RECORD_BYTES
}

/// An atomic that the owner of the memory executes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct AtomicRequest {
    /// Counts the asking rank's requests to this one, from 1.
    pub sequence: u64,
    /// 1 fetch-add, 2 compare-swap.
    pub op: u32,
    /// Region.
    pub region: u32,
    /// Byte offset in it, a multiple of 8.
    pub offset: u64,
    /// What is added, or compared with.
    pub operand: u64,
    /// What is stored if equal.
    pub swap: u64,
}

/// What came of it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct AtomicAnswer {
    /// The request's.
    pub sequence: u64,
    /// 0, or why it was refused: 1 no such region, 2 out of its bounds, 3 no right, 4 no such operation, 5 older than what
    /// is remembered.
    pub status: u32,
    /// The old value.
    pub value: u64,
}

/// Eight words; the last is CRC32C of the first seven in its low half, and the sequence's low half above it. So a record
/// that has not arrived whole, or is a former one, is told from a new one on any fabric.
type Words = [u64; RECORD_BYTES / 8];

fn seal(mut words: Words) -> Words {
    let mut bytes = [0; RECORD_BYTES - 8];
    for (to, word) in bytes.chunks_exact_mut(8).zip(words) {
        to.copy_from_slice(&word.to_le_bytes());
    }
    words[7] = (words[0] << 32) | u64::from(crc32c::crc32c(&bytes));
    words
}

/// The halves of a word, the high one first.
fn halves(word: u64) -> (u32, u32) {
    let [a, b, c, d, e, f, g, h] = word.to_be_bytes();
    (u32::from_be_bytes([a, b, c, d]), u32::from_be_bytes([e, f, g, h]))
}

fn intact(words: &Words) -> bool {
    words[0] != 0 && seal(*words) == *words
}

impl AtomicRequest {
    /// As it lies in memory.
    #[must_use]
    pub fn encode(&self) -> Words {
        let kind = u64::from(self.op) << 32 | u64::from(self.region);
        seal([self.sequence, kind, self.offset, self.operand, self.swap, 0, 0, 0])
    }

    /// None: not whole yet, or nothing.
    #[must_use]
    pub fn decode(words: &Words) -> Option<AtomicRequest> {
        let (op, region) = halves(words[1]);
        intact(words).then_some(AtomicRequest {
            sequence: words[0],
            op,
            region,
            offset: words[2],
            operand: words[3],
            swap: words[4],
        })
    }
}

impl AtomicAnswer {
    /// As it lies in memory.
    #[must_use]
    pub fn encode(&self) -> Words {
        seal([self.sequence, u64::from(self.status), self.value, 0, 0, 0, 0, 0])
    }

    /// None: not whole yet, or nothing.
    #[must_use]
    pub fn decode(words: &Words) -> Option<AtomicAnswer> {
        intact(words).then_some(AtomicAnswer { sequence: words[0], status: halves(words[1]).1, value: words[2] })
    }
}

const _: () = assert!(TABLE_BYTES == 32_832 && MAILBOX_BYTES == 2048);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn records_come_back_and_torn_ones_do_not() {
        let request = AtomicRequest { sequence: 9, op: 1, region: 3, offset: 16, operand: u64::MAX, swap: 5 };
        let whole = request.encode();
        assert_eq!(AtomicRequest::decode(&whole), Some(request));
        let before = AtomicRequest { sequence: 8, operand: 1, ..request }.encode();
        for first in 0..8 {
            for last in first + 1..=8 {
                let mut torn = before;
                torn[first..last].copy_from_slice(&whole[first..last]);
                let found = AtomicRequest::decode(&torn);
                let is_one = torn == whole || torn == before;
                assert_eq!(found.is_some(), is_one, "words {first}..{last}");
            }
        }
        assert_eq!(AtomicRequest::decode(&[0; 8]), None);
        let answer = AtomicAnswer { sequence: 9, status: 2, value: 77 };
        assert_eq!(AtomicAnswer::decode(&answer.encode()), Some(answer));
    }
}
