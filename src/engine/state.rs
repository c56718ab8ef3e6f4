//! State of the host program that goes with a shard's checkpoints: bytes that the library does not look into.

use crate::error::Result;

/// A piece of saved state.
#[derive(Clone, Copy, Debug)]
pub struct Piece<'a> {
    /// The shard that it was saved by.
    pub shard: u32,
    /// How many shards there were then.
    pub shards: u32,
    /// Bytes of that shard's whole state.
    pub total: u64,
    /// Where the piece begins in it.
    pub offset: u64,
    /// The piece; empty only when the whole state is.
    pub bytes: &'a [u8],
}

/// State of the host program that is saved and restored with a shard. Threads: one call at a time.
pub trait HostState: Send + Sync + core::fmt::Debug + 'static {
    /// No request is being executed, GETs excepted that another thread has begun: keeps the state as it is now for
    /// [`HostState::save`], and says how many bytes it takes. Requests wait until this returns.
    ///
    /// # Errors
    /// Any: the checkpoint comes to nothing.
    fn freeze(&self, epoch: u64) -> Result<u64>;

    /// Writes a part of the frozen state, in any order of parts, while requests go on.
    ///
    /// # Errors
    /// Any: the checkpoint comes to nothing.
    fn save(&self, offset: u64, out: &mut [u8]) -> Result<()>;

    /// What was frozen is not needed any more. Once after each [`HostState::freeze`] that succeeded.
    fn release(&self, epoch: u64, committed: bool);

    /// Takes a piece back, before the shard serves: pieces of one shard in order, of each shard whose rows may be this
    /// one's now.
    ///
    /// # Errors
    /// Any: the shard does not start.
    fn load(&self, piece: &Piece<'_>) -> Result<()>;
}
