//! The two 64-byte headers.

use super::geometry::{HEADER_BYTES, INLINE_BYTES};
use super::{Op, Progress, Word};

/// Bits of [`RequestHeader::flags`].
pub mod flags {
    /// GET: the client would like rows sent straight from the table's registered memory.
    pub const DIRECT: u8 = 1 << 0;
    /// GET: the server may copy instead when it cannot send directly.
    pub const COPY_ALLOWED: u8 = 1 << 1;
    /// The inline area starts with a [`RemoteBuffer`](super::RemoteBuffer): GET answers go there, PUT and UPDATE rows
    /// are read from there.
    pub const REMOTE_BUFFER: u8 = 1 << 2;
    /// The checksum field is filled, and the answer's must be too.
    pub const CHECKSUM: u8 = 1 << 3;
    /// GET: the client reads the answer in place while it grows; publish progress.
    pub const PROGRESS: u8 = 1 << 4;
    /// With [`REMOTE_BUFFER`], PUT and UPDATE: the rows do not follow each other there; their numbers within the buffer
    /// follow the keys.
    pub const INDEXED: u8 = 1 << 6;
    /// The server executes this identity at most once, and answers a repetition with what it answered before.
    pub const ONCE: u8 = 1 << 5;
    /// All bits that have a meaning.
    pub const KNOWN: u8 = DIRECT | COPY_ALLOWED | REMOTE_BUFFER | CHECKSUM | PROGRESS | ONCE | INDEXED;
}

/// Memory of the client that the server may write (GET) or read (PUT-v2 `read`), named by key and address.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct RemoteBuffer {
    /// Address in the owner's numbering (iova).
    pub address: u64,
    /// Remote key.
    pub rkey: u32,
    /// Length in bytes.
    pub bytes: u32,
}

impl RemoteBuffer {
    /// Bytes it takes in the inline area.
    pub const BYTES: usize = 16;
}

/// A request, as it lies in the server's memory.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct RequestHeader {
    /// An [`Op`] code; unchecked when decoded.
    pub op: u8,
    /// Bits of [`flags`].
    pub flags: u8,
    /// Tag of the table.
    pub table: u16,
    /// Number of keys; 0 for INIT_TABLE and COMMAND.
    pub key_count: u32,
    /// The request's identity within the client's incarnation, the same on a retry: see [`RequestHeader::identity`].
    pub sequence: u64,
    /// Bytes in the slot's payload area.
    pub payload_bytes: u32,
    /// CRC32C over header and payload when [`flags::CHECKSUM`] is set, else 0.
    pub checksum: u32,
    /// GET: bytes of the dense answer that the client expects, `key_count * row_bytes`. Otherwise the most it takes.
    pub response_bytes: u32,
    /// The shard that the client means.
    pub shard: u16,
    /// Zero.
    pub reserved: u16,
    /// Keys when they fit, after the remote buffer if there is one.
    pub inline: InlineWords,
    /// The word that commits the request. Written last.
    pub commit: Word,
}

/// An answer, as it lies in the client's memory.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct ResponseHeader {
    /// An [`RpcStatus`](super::RpcStatus) code; unchecked when decoded.
    pub status: i32,
    /// Bytes of the answer: inline when they fit, else right-aligned before this header (or in the remote buffer).
    pub response_bytes: u32,
    /// Echo of the request's number.
    pub sequence: u64,
    /// CRC32C over header and payload when the request asked for it, else 0.
    pub checksum: u32,
    /// INIT_TABLE: the tag. Otherwise 0.
    pub aux: u32,
    /// The answer when it fits: its bytes in memory order, eight to a little-endian word.
    pub inline: InlineWords,
    /// Rows readable so far.
    pub progress: Progress,
    /// The word that completes the answer. Written last.
    pub word: Word,
}

/// Offsets of the response header's live fields, for those who poll it in place.
pub mod response_offsets {
    /// The [`Progress`](super::Progress) word.
    pub const PROGRESS: usize = 48;
    /// The [`Word`](super::Word).
    pub const WORD: usize = 56;
}

/// A header as the eight words that it is moved in.
///
/// Headers are built and taken apart in whole words, in registers. A field that is stored by itself and loaded as part of
/// a word a moment later would wait for the store to reach the cache, behind everything that is still on its way to the
/// peer's lines: that was half of the client's time per request.
pub type Words = [u64; HEADER_BYTES / 8];

/// The inline area of a header.
pub type InlineWords = [u64; INLINE_BYTES / 8];

/// The words that bytes in memory order hold.
#[inline]
fn words_of<const BYTES: usize, const WORDS: usize>(bytes: &[u8; BYTES]) -> [u64; WORDS] {
    const { assert!(BYTES == WORDS * 8) };
    let mut words = [0; WORDS];
    for (word, chunk) in words.iter_mut().zip(bytes.chunks_exact(8)) {
        *word = u64::from_le_bytes(chunk.try_into().unwrap_or([0; 8]));
    }
    words
}

/// The reverse of [`words_of`].
#[inline]
fn bytes_of<const WORDS: usize, const BYTES: usize>(words: &[u64; WORDS]) -> [u8; BYTES] {
    const { assert!(BYTES == WORDS * 8) };
    let mut bytes = [0; BYTES];
    for (chunk, word) in bytes.chunks_exact_mut(8).zip(words) {
        chunk.copy_from_slice(&word.to_le_bytes());
    }
    bytes
}

#[inline]
fn pair(low: u32, high: u32) -> u64 {
    u64::from(low) | (u64::from(high) << 32)
}

#[inline]
#[allow(clippy::cast_possible_truncation)] // the low half is what is meant
fn low(word: u64) -> u32 {
    word as u32
}

#[inline]
fn high(word: u64) -> u32 {
    (word >> 32) as u32
}

impl RequestHeader {
    /// Decodes; every bit pattern is a value, nothing is judged here.
    #[inline(always)]
    #[must_use]
    #[allow(clippy::cast_possible_truncation)] // fields of a word
    pub fn from_words(words: &Words) -> RequestHeader {
        RequestHeader {
            op: words[0] as u8,
            flags: (words[0] >> 8) as u8,
            table: (words[0] >> 16) as u16,
            key_count: high(words[0]),
            sequence: words[1],
            payload_bytes: low(words[2]),
            checksum: high(words[2]),
            response_bytes: low(words[3]),
            shard: (words[3] >> 32) as u16,
            reserved: (words[3] >> 48) as u16,
            inline: [words[4], words[5], words[6]],
            commit: Word(words[7]),
        }
    }

    /// Encodes.
    #[inline(always)]
    #[must_use]
    pub fn to_words(&self) -> Words {
        let [a, b, c] = self.inline;
        let what = u32::from(self.op) | (u32::from(self.flags) << 8) | (u32::from(self.table) << 16);
        let whom = u32::from(self.shard) | (u32::from(self.reserved) << 16);
        [
            pair(what, self.key_count),
            self.sequence,
            pair(self.payload_bytes, self.checksum),
            pair(self.response_bytes, whom),
            a,
            b,
            c,
            self.commit.0,
        ]
    }

    /// Decodes from memory order.
    #[must_use]
    pub fn from_bytes(bytes: &[u8; HEADER_BYTES]) -> RequestHeader {
        RequestHeader::from_words(&words_of(bytes))
    }

    /// Encodes to memory order.
    #[must_use]
    pub fn to_bytes(&self) -> [u8; HEADER_BYTES] {
        bytes_of(&self.to_words())
    }

    /// The remote buffer named in the inline area, if the flag says so.
    #[inline]
    #[must_use]
    pub fn remote_buffer(&self) -> Option<RemoteBuffer> {
        if self.flags & flags::REMOTE_BUFFER == 0 {
            return None;
        }
        let [address, rest, _] = self.inline;
        Some(RemoteBuffer { address, rkey: low(rest), bytes: high(rest) })
    }

    /// Names a remote buffer in the inline area.
    #[inline]
    pub fn set_remote_buffer(&mut self, buffer: RemoteBuffer) {
        self.flags |= flags::REMOTE_BUFFER;
        self.inline[0] = buffer.address;
        self.inline[1] = pair(buffer.rkey, buffer.bytes);
    }

    /// The identity of the `use_count`-th request of a logical slot; never 0.
    ///
    /// A client cannot use a logical slot again before its request is settled, so a request also acknowledges every
    /// earlier one of the same slot, and what a server must remember for exactly-once is one entry per logical slot.
    #[inline]
    #[must_use]
    pub fn identity(logical_slot: u32, use_count: u64) -> u64 {
        ((u64::from(logical_slot) + 1) << Self::USE_BITS) | (use_count & ((1 << Self::USE_BITS) - 1))
    }

    /// Bits of an identity that count uses of its slot.
    pub const USE_BITS: u32 = 40;

    /// Logical slot and use count of an identity; None when no slot has it.
    #[inline]
    #[must_use]
    pub fn parts_of_identity(identity: u64) -> Option<(u32, u64)> {
        let slot = (identity >> Self::USE_BITS).checked_sub(1)?;
        Some((u32::try_from(slot).ok()?, identity & ((1 << Self::USE_BITS) - 1)))
    }

    /// Where the keys begin in the inline area: they lie there when `key_count * 8` bytes fit behind this offset, else
    /// at the start of the payload.
    #[inline]
    #[must_use]
    pub fn inline_keys_at(flags: u8) -> usize {
        if flags & flags::REMOTE_BUFFER == 0 { 0 } else { RemoteBuffer::BYTES }
    }

    /// Puts keys that fit into the inline area, behind the remote buffer if there is one.
    #[inline(always)]
    pub fn set_inline_keys(&mut self, keys: &[u64]) {
        let key = |index: usize| keys.get(index).copied().unwrap_or(0);
        if self.flags & flags::REMOTE_BUFFER == 0 {
            self.inline = [key(0), key(1), key(2)];
        } else {
            self.inline[2] = key(0);
        }
    }

    /// The keys of the inline area, as many as `key_count` says; None when they lie in the payload.
    #[inline]
    #[must_use]
    pub fn inline_keys(&self) -> Option<&[u64]> {
        let at = RequestHeader::inline_keys_at(self.flags) / 8;
        RequestHeader::keys_are_inline(self.flags, self.key_count)
            .then(|| &self.inline[at..at + self.key_count as usize])
    }

    /// Whether the keys travel in the header.
    #[inline]
    #[must_use]
    pub fn keys_are_inline(flags: u8, key_count: u32) -> bool {
        key_count as usize * 8 + RequestHeader::inline_keys_at(flags) <= INLINE_BYTES
    }
}

/// A GET of one row whose key travels in the header and whose row goes into the slot: what such requests have in common,
/// for a comparison in whole words.
#[derive(Clone, Copy, Debug)]
pub struct SmallGet {
    what: u64,
    whom: u64,
}

impl SmallGet {
    /// Those of a table of this shard.
    #[inline(always)]
    #[must_use]
    pub fn of(table: u16, shard: u16, row_bytes: u32) -> SmallGet {
        let flags = flags::COPY_ALLOWED | flags::DIRECT;
        let what = u32::from(Op::Get as u8) | (u32::from(flags) << 8) | (u32::from(table) << 16);
        SmallGet { what: pair(what, 1), whom: pair(row_bytes, u32::from(shard)) }
    }

    /// Whether a request is one of them: it has no payload, and nothing that is judged differs.
    #[inline(always)]
    #[must_use]
    pub fn has(&self, words: &Words) -> bool {
        words[0] == self.what && low(words[2]) == 0 && words[3] == self.whom
    }

    /// The key of one.
    #[inline(always)]
    #[must_use]
    pub fn key(words: &Words) -> u64 {
        words[4]
    }
}

impl ResponseHeader {
    /// Decodes; every bit pattern is a value, nothing is judged here.
    #[inline(always)]
    #[must_use]
    pub fn from_words(words: &Words) -> ResponseHeader {
        ResponseHeader {
            status: low(words[0]).cast_signed(),
            response_bytes: high(words[0]),
            sequence: words[1],
            checksum: low(words[2]),
            aux: high(words[2]),
            inline: [words[3], words[4], words[5]],
            progress: Progress(words[response_offsets::PROGRESS / 8]),
            word: Word(words[response_offsets::WORD / 8]),
        }
    }

    /// Encodes.
    #[inline(always)]
    #[must_use]
    pub fn to_words(&self) -> Words {
        let [a, b, c] = self.inline;
        [
            pair(self.status.cast_unsigned(), self.response_bytes),
            self.sequence,
            pair(self.checksum, self.aux),
            a,
            b,
            c,
            self.progress.0,
            self.word.0,
        ]
    }

    /// Decodes from memory order.
    #[must_use]
    pub fn from_bytes(bytes: &[u8; HEADER_BYTES]) -> ResponseHeader {
        ResponseHeader::from_words(&words_of(bytes))
    }

    /// Encodes to memory order.
    #[must_use]
    pub fn to_bytes(&self) -> [u8; HEADER_BYTES] {
        bytes_of(&self.to_words())
    }
}

/// Bytes that begin at a word: what the sum is taken over. Elsewhere they would be summed one by one.
#[repr(align(8))]
struct Aligned([u8; HEADER_BYTES]);

/// Begins a request's CRC32C (Castagnoli, as in iSCSI, RFC 3720): the header with its checksum field zeroed. The payload
/// follows by [`checksum_append`]. The commit word is covered, so a checksum of another generation or use never fits.
///
/// In words, since a field that was zeroed in bytes would be loaded again as part of one.
#[inline]
#[must_use]
pub fn request_checksum(header: &Words) -> u32 {
    let [w0, w1, w2, w3, w4, w5, w6, w7] = *header;
    let covered = Aligned(bytes_of(&[w0, w1, u64::from(low(w2)), w3, w4, w5, w6, w7]));
    crc32c::crc32c(&covered.0)
}

/// The same for an answer; the progress word is not covered, for it changes while the answer grows.
#[inline]
#[must_use]
pub fn response_checksum(header: &Words) -> u32 {
    const { assert!(response_offsets::PROGRESS == 6 * 8) };
    let [w0, w1, w2, w3, w4, w5, _, w7] = *header;
    let covered = Aligned(bytes_of(&[w0, w1, pair(0, high(w2)), w3, w4, w5, 0, w7]));
    crc32c::crc32c(&covered.0)
}

/// Continues a checksum with payload bytes.
#[must_use]
pub fn checksum_append(sum: u32, payload: &[u8]) -> u32 {
    crc32c::crc32c_append(sum, payload)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn request_round_trip(bytes in proptest::array::uniform32(any::<u8>()), more in proptest::array::uniform32(any::<u8>())) {
            let mut whole = [0; HEADER_BYTES];
            whole[..32].copy_from_slice(&bytes);
            whole[32..].copy_from_slice(&more);
            prop_assert_eq!(RequestHeader::from_bytes(&whole).to_bytes(), whole);
            prop_assert_eq!(ResponseHeader::from_bytes(&whole).to_bytes(), whole);
        }

        #[test]
        fn one_flipped_bit_changes_the_checksum(bit in 0_usize..512, payload in proptest::collection::vec(any::<u8>(), 0..200)) {
            let header = RequestHeader::from_bytes(&[0x5a; HEADER_BYTES]).to_bytes();
            let sum = |header: &[u8; HEADER_BYTES]| {
                let (request, response) = (request_checksum(&words_of(header)), response_checksum(&words_of(header)));
                (checksum_append(request, &payload), checksum_append(response, &payload))
            };
            let mut torn = header;
            torn[bit / 8] ^= 1 << (bit % 8);
            let (before, after) = (sum(&header), sum(&torn));
            prop_assert_eq!(before.0 == after.0, (20..24).contains(&(bit / 8)));
            let progress = response_offsets::PROGRESS;
            let uncovered = (16..20).contains(&(bit / 8)) || (progress..progress + 8).contains(&(bit / 8));
            prop_assert_eq!(before.1 == after.1, uncovered);
        }
    }

    #[test]
    fn remote_buffer_and_inline_keys_share_the_inline_area() {
        let mut header = RequestHeader::from_bytes(&[0; HEADER_BYTES]);
        assert_eq!(header.remote_buffer(), None);
        let buffer = RemoteBuffer { address: 0x1122_3344_5566_7788, rkey: 0x99aa_bbcc, bytes: 4096 };
        header.set_remote_buffer(buffer);
        assert_eq!(header.remote_buffer(), Some(buffer));
        assert!(RequestHeader::keys_are_inline(0, 3) && !RequestHeader::keys_are_inline(0, 4));
        let with_buffer = flags::REMOTE_BUFFER;
        assert!(RequestHeader::keys_are_inline(with_buffer, 1) && !RequestHeader::keys_are_inline(with_buffer, 2));
    }
}
