//! Which shard owns a key, and how a batch is split by shard.

/// How a key finds its shard.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum HashMethod {
    /// CityHash64 of the key's 8 little-endian bytes, modulo the number of shards.
    CityHash,
    /// The key itself, modulo the number of shards.
    SimpleMod,
}

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
