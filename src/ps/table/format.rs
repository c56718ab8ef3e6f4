//! The file of SAVE and LOAD: one shard's tables with rows and optimizer state.
//!
//! All numbers little-endian; every byte is under a CRC32C.
//!
//! - File head, 64 bytes: magic `RECLTBL\n`, version u32, shard u32, num_shards u32, hash method u32 (0 city_hash,
//!   1 simple_mod), tables u32, zero u32, file bytes u64, zeros, CRC u32 of the 60 bytes before it.
//! - For each table, by tag: head, 128 bytes: tag u32, spec bytes u32, rows u64, state bytes of a row u32, zero u32, the
//!   spec as INIT_TABLE carries it, zeros, CRC u32 of the 124 bytes before it.
//! - Then the table's rows in blocks: keys u64\[n\], rows, states, CRC u32 of all that; n is [`block_rows`] until the
//!   last block, which has what is left.

use super::optimizer::state_bytes;
use crate::ids::TableTag;
use crate::ps::routing::HashMethod;
use crate::wire::payload::TableSpec;

pub(super) const HEAD_BYTES: usize = 64;
pub(super) const TABLE_HEAD_BYTES: usize = 128;
const MAGIC: [u8; 8] = *b"RECLTBL\n";
const VERSION: u32 = 1;
const BLOCK_BYTES: usize = 1 << 20;
const SPEC_AT: usize = 24;

/// What the file says of itself.
#[derive(Clone, PartialEq, Debug)]
pub(super) struct Head {
    pub shard: u32,
    pub num_shards: u32,
    pub hash_method: HashMethod,
    pub tables: u32,
    pub file_bytes: u64,
}

/// What the file says of a table.
#[derive(Clone, PartialEq, Debug)]
pub(super) struct TableHead {
    pub tag: TableTag,
    pub rows: u64,
    pub spec: TableSpec,
}

fn u32_at(bytes: &[u8], at: usize) -> u32 {
    u32::from_le_bytes([bytes[at], bytes[at + 1], bytes[at + 2], bytes[at + 3]])
}

fn u64_at(bytes: &[u8], at: usize) -> u64 {
    u64::from(u32_at(bytes, at)) | u64::from(u32_at(bytes, at + 4)) << 32
}

/// Puts the CRC of all bytes before the last four into the last four.
pub(super) fn seal(bytes: &mut [u8]) {
    let (body, crc) = bytes.split_at_mut(bytes.len() - 4);
    crc.copy_from_slice(&crc32c::crc32c(body).to_le_bytes());
}

/// Whether the last four bytes are the CRC of those before.
pub(super) fn is_sealed(bytes: &[u8]) -> bool {
    bytes.len() >= 4 && u32_at(bytes, bytes.len() - 4) == crc32c::crc32c(&bytes[..bytes.len() - 4])
}

/// Bytes of one key with row and state.
pub(super) fn entry_bytes(spec: &TableSpec) -> usize {
    8 + spec.dim as usize * 4 + state_bytes(spec)
}

/// Rows of a full block.
pub(super) fn block_rows(spec: &TableSpec) -> u64 {
    (BLOCK_BYTES / entry_bytes(spec)).max(1) as u64
}

impl Head {
    pub fn encode(&self) -> [u8; HEAD_BYTES] {
        let mut out = [0; HEAD_BYTES];
        out[..8].copy_from_slice(&MAGIC);
        let method = u32::from(self.hash_method == HashMethod::SimpleMod);
        for (i, word) in [VERSION, self.shard, self.num_shards, method, self.tables].iter().enumerate() {
            out[8 + i * 4..12 + i * 4].copy_from_slice(&word.to_le_bytes());
        }
        out[32..40].copy_from_slice(&self.file_bytes.to_le_bytes());
        seal(&mut out);
        out
    }

    /// # Errors
    /// What is wrong, in words that continue "file ...".
    pub fn decode(bytes: &[u8; HEAD_BYTES]) -> Result<Head, String> {
        if bytes[..8] != MAGIC {
            return Err("is not a saved reclane table: it begins otherwise".to_owned());
        }
        if u32_at(bytes, 8) != VERSION {
            return Err(format!("has version {}, this library reads version {VERSION}", u32_at(bytes, 8)));
        }
        if !is_sealed(bytes) {
            return Err("is damaged: the checksum of its head does not match".to_owned());
        }
        let hash_method = match u32_at(bytes, 20) {
            0 => HashMethod::CityHash,
            1 => HashMethod::SimpleMod,
            other => return Err(format!("names hash method {other}, which is unknown")),
        };
        let head = Head {
            shard: u32_at(bytes, 12),
            num_shards: u32_at(bytes, 16),
            hash_method,
            tables: u32_at(bytes, 24),
            file_bytes: u64_at(bytes, 32),
        };
        if head.encode() != *bytes {
            return Err("has a head with bytes that must be zero and are not".to_owned());
        }
        Ok(head)
    }
}

impl TableHead {
    #[allow(clippy::cast_possible_truncation)] // a spec is short and a row's state no longer than a row
    pub fn encode(&self) -> [u8; TABLE_HEAD_BYTES] {
        let mut out = [0; TABLE_HEAD_BYTES];
        let spec = self.spec.encode();
        out[..4].copy_from_slice(&u32::from(self.tag.0).to_le_bytes());
        out[4..8].copy_from_slice(&(spec.len() as u32).to_le_bytes());
        out[8..16].copy_from_slice(&self.rows.to_le_bytes());
        out[16..20].copy_from_slice(&(state_bytes(&self.spec) as u32).to_le_bytes());
        out[SPEC_AT..SPEC_AT + spec.len()].copy_from_slice(&spec);
        seal(&mut out);
        out
    }

    /// # Errors
    /// What is wrong, in words that continue "file ...".
    pub fn decode(bytes: &[u8; TABLE_HEAD_BYTES]) -> Result<TableHead, String> {
        if !is_sealed(bytes) {
            return Err("is damaged: the checksum of a table's head does not match".to_owned());
        }
        let head = || {
            let spec_bytes = u32_at(bytes, 4) as usize;
            let spec = bytes[..TABLE_HEAD_BYTES - 4].get(SPEC_AT..SPEC_AT + spec_bytes)?;
            let tag = TableTag(u16::try_from(u32_at(bytes, 0)).ok()?);
            Some(TableHead { tag, rows: u64_at(bytes, 8), spec: TableSpec::decode(spec).ok()? })
        };
        head().filter(|head| head.encode() == *bytes).ok_or_else(|| "has a table head that makes no sense".to_owned())
    }

    /// Bytes of the head and all blocks; None beyond what a file can have.
    pub fn bytes(&self) -> Option<u64> {
        let blocks = self.rows.div_ceil(block_rows(&self.spec));
        let entries = self.rows.checked_mul(entry_bytes(&self.spec) as u64)?;
        entries.checked_add(blocks.checked_mul(4)?)?.checked_add(TABLE_HEAD_BYTES as u64)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::wire::payload::Optimizer;

    #[test]
    fn heads_round_trip_and_refuse_every_flipped_bit() {
        let head = Head { shard: 3, num_shards: 7, hash_method: HashMethod::CityHash, tables: 2, file_bytes: 1 << 40 };
        let bytes = head.encode();
        assert_eq!(Head::decode(&bytes), Ok(head));
        let table = TableHead {
            tag: TableTag(9),
            rows: 1 << 33,
            spec: super::super::tests::spec(&"n".repeat(63), 7, 1 << 40, Optimizer::Adagrad),
        };
        let table_bytes = table.encode();
        assert_eq!(TableHead::decode(&table_bytes), Ok(table));
        for bit in 0..HEAD_BYTES * 8 {
            let mut other = bytes;
            other[bit / 8] ^= 1 << (bit % 8);
            assert!(Head::decode(&other).is_err(), "bit {bit}");
        }
        for bit in 0..TABLE_HEAD_BYTES * 8 {
            let mut other = table_bytes;
            other[bit / 8] ^= 1 << (bit % 8);
            assert!(TableHead::decode(&other).is_err(), "bit {bit}");
        }
    }
}
