//! What names a request under way: an index and the use of it, so that a stale token is told from a live one.

/// Names one request of one client. Never 0.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct Token(pub u64);

/// Bits of the use count that a token carries: it takes hours of nothing but this slot before a stale token could be
/// mistaken for a live one.
const USE_BITS: u32 = 36;
/// Mask of those bits.
pub(super) const USE_MASK: u64 = (1 << USE_BITS) - 1;
const INDEX_BITS: u32 = 16;
const SHARD_BITS: u32 = 10;
/// Most slots of one shard, and most batches, that tokens can name.
pub const INDEX_MAX: usize = 1 << INDEX_BITS;
/// Most shards that tokens can name.
pub const SHARDS_MAX: usize = 1 << SHARD_BITS;

const SINGLE: u64 = 1 << 62;
const BATCH: u64 = 1 << 63;

/// A token taken apart.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Named {
    /// A request that took one slot.
    Single { shard: usize, index: u32, use_low: u64 },
    /// A request of several parts.
    Batch { index: usize, use_low: u64 },
}

impl Token {
    #[inline(always)]
    pub(super) fn single(shard: usize, index: u32, use_count: u64) -> Token {
        let place = ((shard as u64) << INDEX_BITS) | u64::from(index);
        Token(SINGLE | (place << USE_BITS) | (use_count & USE_MASK))
    }

    pub(super) fn batch(index: usize, use_count: u64) -> Token {
        Token(BATCH | ((index as u64) << USE_BITS) | (use_count & USE_MASK))
    }

    /// None for a number that no call ever gave out.
    #[inline(always)]
    #[allow(clippy::cast_possible_truncation)] // masked to the field's width
    pub(super) fn named(self) -> Option<Named> {
        let use_low = self.0 & USE_MASK;
        let place = (self.0 & (SINGLE - 1)) >> USE_BITS;
        let index = place & ((1 << INDEX_BITS) - 1);
        match (self.0 & SINGLE != 0, self.0 & BATCH != 0) {
            (true, false) => {
                Some(Named::Single { shard: (place >> INDEX_BITS) as usize, index: index as u32, use_low })
            }
            (false, true) if place >> INDEX_BITS == 0 => Some(Named::Batch { index: index as usize, use_low }),
            _ => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_goes_in_comes_out() {
        for (shard, index, use_count) in [(0, 0, 0), (SHARDS_MAX - 1, 65_535, USE_MASK), (3, 17, 1 << 20)] {
            let token = Token::single(shard, index, use_count);
            assert_ne!(token.0, 0);
            assert_eq!(token.named(), Some(Named::Single { shard, index, use_low: use_count }));
        }
        assert_eq!(Token::batch(9, 5).named(), Some(Named::Batch { index: 9, use_low: 5 }));
        assert_eq!(Token(0).named(), None);
        assert_eq!(Token(u64::MAX).named(), None);
    }
}
