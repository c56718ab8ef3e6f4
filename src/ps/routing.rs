//! Which shard owns a key, and how a batch is split by shard.

pub use crate::options::HashMethod;

// CityHash v1.1 (Google, MIT licence; Pike and Alakuijala) names these constants k2 and, for an input of 8 bytes,
// k2 + 2 * 8. Only its rule for inputs of 8 to 16 bytes is needed here.
const CITY_K2: u64 = 0x9ae1_6a3b_2f90_404f;
const CITY_MUL: u64 = CITY_K2.wrapping_add(16);

/// CityHash64 (v1.1) of the 8 little-endian bytes of `key`.
#[inline]
#[must_use]
pub fn city_hash64(key: u64) -> u64 {
    // For 8 bytes, the first and the last 8 bytes are the same word.
    let a = key.wrapping_add(CITY_K2);
    let c = key.rotate_right(37).wrapping_mul(CITY_MUL).wrapping_add(a);
    let d = a.rotate_right(25).wrapping_add(key).wrapping_mul(CITY_MUL);
    let fold = |x: u64| x ^ (x >> 47);
    let first = fold((c ^ d).wrapping_mul(CITY_MUL));
    fold((d ^ first).wrapping_mul(CITY_MUL)).wrapping_mul(CITY_MUL)
}

/// Division by a number that stays the same: a multiplication where the dividend has 32 bits, as table keys mostly do.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Divider {
    divisor: u32,
    /// `ceil(2^64 / divisor)`: with it, `(n * magic) >> 64` is exact for every 32-bit `n` and `divisor > 1`.
    magic: u64,
}

impl Divider {
    pub(crate) fn new(divisor: u32) -> Divider {
        let divisor = divisor.max(1);
        let magic = if divisor == 1 { 0 } else { (u64::MAX / u64::from(divisor)).wrapping_add(1) };
        Divider { divisor, magic }
    }

    /// Quotient and remainder.
    #[allow(clippy::cast_possible_truncation)] // the high half and a remainder are what is meant
    #[inline]
    pub(crate) fn split(self, n: u64) -> (u64, u32) {
        if self.divisor == 1 {
            return (n, 0);
        }
        let divisor = u64::from(self.divisor);
        let quotient = if n <= u64::from(u32::MAX) {
            ((u128::from(n) * u128::from(self.magic)) >> 64) as u64
        } else {
            n / divisor
        };
        (quotient, (n - quotient * divisor) as u32)
    }
}

/// Finds the shard of a key.
#[derive(Clone, Copy, Debug)]
pub struct Router {
    method: HashMethod,
    divider: Divider,
}

impl Router {
    /// A router for `shards` shards; 0 is taken for 1.
    #[must_use]
    pub fn new(method: HashMethod, shards: u32) -> Router {
        Router { method, divider: Divider::new(shards) }
    }

    /// How keys are hashed.
    #[must_use]
    pub fn method(&self) -> HashMethod {
        self.method
    }

    /// How many shards there are.
    #[must_use]
    pub fn shards(&self) -> u32 {
        self.divider.divisor
    }

    /// The shard that owns `key`.
    #[inline]
    #[must_use]
    pub fn shard_of(&self, key: u64) -> u32 {
        if self.divider.divisor == 1 {
            return 0;
        }
        match self.method {
            HashMethod::CityHash => self.divider.split(city_hash64(key)).1,
            HashMethod::SimpleMod => self.divider.split(key).1,
        }
    }

    /// The key's number inside `shard`, or None when another shard owns it: with simple_mod (or one shard) a shard's
    /// keys are numbered without holes; with city_hash the number is the key itself.
    #[inline(always)]
    pub(crate) fn local(&self, key: u64, shard: u32) -> Option<u64> {
        if self.divider.divisor == 1 {
            return Some(key);
        }
        let (number, owner) = match self.method {
            HashMethod::CityHash => (key, self.divider.split(city_hash64(key)).1),
            HashMethod::SimpleMod => self.divider.split(key),
        };
        (owner == shard).then_some(number)
    }
}

/// A batch split by shard. Kept between calls, so that splitting allocates nothing once the largest batch was seen.
#[derive(Debug, Default)]
pub struct Partition {
    /// Shard of each key of the batch.
    shards: Vec<u32>,
    /// Where each shard's part begins in `keys` and `positions`; one entry more than there are shards.
    starts: Vec<u32>,
    keys: Vec<u64>,
    positions: Vec<u32>,
}

impl Partition {
    /// An empty partition.
    #[must_use]
    pub fn new() -> Partition {
        Partition::default()
    }

    /// Splits `keys`. Inside a shard's part the order of the batch is kept.
    ///
    /// # Panics
    /// If the batch has 2^32 keys or more; callers bound it far below.
    #[allow(clippy::cast_possible_truncation)] // asserted
    pub fn split(&mut self, router: &Router, keys: &[u64]) {
        assert!(u32::try_from(keys.len()).is_ok(), "a batch of {} keys cannot be split", keys.len());
        let shards = router.shards() as usize;
        self.starts.clear();
        self.starts.resize(shards + 1, 0);
        self.keys.clear();
        self.positions.clear();
        if shards == 1 {
            self.keys.extend_from_slice(keys);
            self.positions.extend(0..keys.len() as u32);
            self.starts[1] = keys.len() as u32;
            return;
        }
        self.shards.clear();
        self.shards.extend(keys.iter().map(|key| router.shard_of(*key)));
        for shard in &self.shards {
            self.starts[*shard as usize] += 1;
        }
        let mut sum = 0;
        for start in &mut self.starts {
            sum += core::mem::replace(start, sum);
        }
        self.keys.resize(keys.len(), 0);
        self.positions.resize(keys.len(), 0);
        for (position, (key, shard)) in keys.iter().zip(&self.shards).enumerate() {
            let next = &mut self.starts[*shard as usize];
            self.keys[*next as usize] = *key;
            self.positions[*next as usize] = position as u32;
            *next += 1;
        }
        // Each start has moved to its part's end, which is the start of the next one.
        self.starts.copy_within(0..shards, 1);
        self.starts[0] = 0;
    }

    /// How many shards the last split was for.
    #[must_use]
    #[allow(clippy::cast_possible_truncation)] // a router has a u32 of shards
    pub fn shards(&self) -> u32 {
        self.starts.len().saturating_sub(1) as u32
    }

    /// Keys of one shard in the batch's order.
    #[must_use]
    pub fn keys(&self, shard: u32) -> &[u64] {
        &self.keys[self.range(shard)]
    }

    /// For each of [`Partition::keys`], its position in the batch.
    #[must_use]
    pub fn positions(&self, shard: u32) -> &[u32] {
        &self.positions[self.range(shard)]
    }

    fn range(&self, shard: u32) -> core::ops::Range<usize> {
        self.starts[shard as usize] as usize..self.starts[shard as usize + 1] as usize
    }
}

#[cfg(test)]
#[allow(clippy::cast_possible_truncation)] // small numbers
mod tests {
    use super::*;
    use proptest::prelude::*;

    // From the reference implementation of CityHash 1.1, over the key's 8 little-endian bytes.
    const KNOWN: [(u64, u64); 8] = [
        (0, 0x1439_7a23_417a_f284),
        (1, 0x523b_e90b_b03b_5a61),
        (2, 0x2e89_1e44_3779_4289),
        (42, 0xd860_6f79_9f58_34b6),
        (1 << 32, 0x5e71_5472_c207_10c2),
        (0x0123_4567_89ab_cdef, 0x5756_e430_0150_a3d1),
        (u64::MAX, 0x2fff_e7a4_1fb5_9155),
        (1_000_003, 0x8ccf_50b7_34f8_d026),
    ];

    #[test]
    fn hashes_are_those_of_the_reference() {
        for (key, hash) in KNOWN {
            assert_eq!(city_hash64(key), hash, "key {key:#x}");
            assert_eq!(Router::new(HashMethod::CityHash, 7).shard_of(key), (hash % 7) as u32);
        }
    }

    #[test]
    fn division_is_exact_at_the_borders() {
        for divisor in [1_u32, 2, 3, 7, 641, 1 << 16, (1 << 31) - 1, 1 << 31, u32::MAX] {
            let d = u64::from(divisor);
            for near in [0, d, d * 2, u64::from(u32::MAX) / d * d, u64::from(u32::MAX), 1 << 32, u64::MAX / d * d] {
                for n in [near.wrapping_sub(1), near, near.wrapping_add(1)] {
                    assert_eq!(Divider::new(divisor).split(n), (n / d, (n % d) as u32), "{n} / {d}");
                }
            }
        }
    }

    proptest! {
        #[test]
        fn division_is_exact(n in any::<u64>(), shift in 0_u32..64, divisor in 1_u32..) {
            let (n, d) = (n >> shift, u64::from(divisor));
            prop_assert_eq!(Divider::new(divisor).split(n), (n / d, (n % d) as u32));
        }

        #[test]
        fn a_key_is_local_to_its_shard_only_and_simple_mod_numbers_without_holes(
            key in any::<u64>(),
            shards in 1_u32..9,
            city in any::<bool>(),
        ) {
            let method = if city { HashMethod::CityHash } else { HashMethod::SimpleMod };
            let router = Router::new(method, shards);
            for shard in 0..shards {
                let local = router.local(key, shard);
                prop_assert_eq!(local.is_some(), router.shard_of(key) == shard);
                if let (Some(local), false) = (local, city) {
                    prop_assert_eq!(local * u64::from(shards) + u64::from(shard), key);
                }
            }
        }

        #[test]
        fn a_partition_holds_every_key_once_in_order(
            batches in proptest::collection::vec(proptest::collection::vec(any::<u64>(), 0..200), 1..4),
            shards in 1_u32..9,
            city in any::<bool>(),
        ) {
            let method = if city { HashMethod::CityHash } else { HashMethod::SimpleMod };
            let router = Router::new(method, shards);
            let mut partition = Partition::new();
            for batch in &batches {
                partition.split(&router, batch);
                prop_assert_eq!(partition.shards(), shards);
                let mut seen = vec![false; batch.len()];
                for shard in 0..shards {
                    let positions = partition.positions(shard);
                    prop_assert!(positions.is_sorted_by(|a, b| a < b));
                    prop_assert_eq!(positions.len(), partition.keys(shard).len());
                    for (key, position) in partition.keys(shard).iter().zip(positions) {
                        let position = *position as usize;
                        prop_assert_eq!(*key, batch[position]);
                        prop_assert_eq!(router.shard_of(*key), shard);
                        prop_assert!(!core::mem::replace(&mut seen[position], true));
                    }
                }
                prop_assert!(seen.iter().all(|seen| *seen));
            }
        }
    }
}
