//! What moves bytes between processes: the contract that `verbs`, `shm` and `sim` keep.
//!
//! The contract is shaped like RDMA verbs, because that is the provider with the least freedom. A provider is chosen at
//! start-up and dispatched statically: everything above is generic over [`Fabric`].
//!
//! # What every provider promises
//!
//! - **States.** A queue pair goes RESET → INIT → RTR → RTS by [`Qp::connect`], to ERR by itself or by
//!   [`Qp::modify`], and back to RESET by [`Qp::modify`]. Any other transition is refused and changes nothing.
//! - **Order.** Bytes of an earlier write of the same queue pair are visible before bytes of a later one where
//!   [`Capabilities::ordered_writes`] says so; within one write, the last 8 bytes (8-aligned) become visible last and in
//!   one piece where [`Capabilities::ordered_within_write`] says so. The reader loads them with Acquire.
//! - **Protection.** The responder's key, bounds and access are enforced: a violation completes with
//!   [`WcStatus::RemAccess`] on the requester, and both ends go to ERR. The responder's end may show it with its next
//!   own work only.
//! - **Vanished peer.** Work to a vanished peer completes with [`WcStatus::RetryExc`] within the provider's budget;
//!   work behind it completes with [`WcStatus::WrFlush`]; each exactly once. `shm` knows at once.
//! - **Accounting.** A full send queue is [`PostError::QueueFull`] before anything was posted, never an overflow.
//! - **Generations.** A connection attempt names its generation; completions of an older generation are never
//!   delivered after [`Qp::modify`] to RESET.
//!
//! The suite in `conformance` checks this on every provider.

mod address;
#[cfg(test)]
pub mod conformance;
pub mod shm;
pub mod sim;
mod types;
#[cfg(feature = "verbs")]
pub mod verbs;

pub use address::{QpAddress, RegionAddress};
pub use shm::SharedFile;
pub use sim::{Mutant, mutated};
pub use types::{
    Access, Capabilities, Cause, Completion, PostError, QpConfig, QpState, RemoteAddr, Sge, WcOpcode, WcStatus, Work,
    WorkOp,
};

use crate::error::{Error, Result, Status};
use crate::sync::Arc;
use core::fmt::Debug;
use core::ptr::NonNull;
use core::time::Duration;

/// One provider, opened. Threads: any.
pub trait Fabric: Debug + Send + Sync + Sized + 'static {
    /// Registered memory.
    type Region: Region;
    /// Completion queue; one per poller.
    type Cq: Cq;
    /// Queue pair.
    type Qp: Qp<Region = Self::Region>;
    /// What an idle poller sleeps on.
    type Waker: Waker;

    /// The provider's name in options, logs and the deployment digest.
    const NAME: &'static str;
    /// Whether a peer reaches only what was exposed to it. Where not, it reaches every region of the process with remote
    /// rights whose key it knows.
    const EXPOSES_PER_QP: bool = true;

    /// Whether it is a simulation, whose worlds may ask for deliberate mistakes ([`mutated`]).
    const SIMULATED: bool = false;

    /// Whether everything of the device can be given back in place ([`Fabric::suspend`], [`Region::suspend`]).
    const SUSPENDS: bool = false;

    /// What this instance can do.
    fn capabilities(&self) -> Capabilities;

    /// Allocates zeroed memory and registers it. The address peers use ([`RegionAddress::iova`]) never changes.
    ///
    /// # Errors
    /// `OsError` or `ResourceLimit` when the memory cannot be had or locked.
    fn allocate(&self, bytes: usize, access: Access) -> Result<Self::Region> {
        self.allocate_at(bytes, access, None)
    }

    /// The same under an address of the caller's choice, a multiple of 4096 that no other region of the process has:
    /// memory of another life, or at another place, can so have the address that peers know it by.
    ///
    /// # Errors
    /// As [`Fabric::allocate`]; `Unsupported` when the provider cannot choose.
    fn allocate_at(&self, bytes: usize, access: Access, iova: Option<u64>) -> Result<Self::Region>;

    /// As [`Fabric::allocate`], for the memory of lanes: may share a registration, and its key, with other memory of the
    /// same rights.
    ///
    /// # Errors
    /// As [`Fabric::allocate`].
    fn allocate_slots(&self, bytes: usize, access: Access) -> Result<Self::Region> {
        self.allocate(bytes, access)
    }

    /// Says that so many bytes will be asked of [`Fabric::allocate_slots`], in however many pieces.
    fn expect_slots(&self, bytes: usize, access: Access) {
        let _ = (bytes, access);
    }

    /// Registers memory that is there already, for local work only: rows of a table, say.
    ///
    /// # Safety
    /// The memory is readable and stays so until the last clone of the region is dropped.
    ///
    /// # Errors
    /// `Unsupported` where local memory need not or cannot be registered; as [`Fabric::allocate`].
    unsafe fn register(&self, memory: NonNull<u8>, bytes: usize) -> Result<Self::Region> {
        let _ = (memory, bytes);
        Err(Error::new(Status::Unsupported, format!("{}: memory of others is not registered", Self::NAME)))
    }

    /// Registers memory that lies in a file of this process, for peers to read and not to write.
    ///
    /// # Errors
    /// `Unsupported` where peers do not map memory; as [`Fabric::allocate`].
    fn lend(&self, file: &SharedFile) -> Result<Self::Region> {
        let _ = file;
        Err(Error::new(Status::Unsupported, format!("{}: peers do not map memory", Self::NAME)))
    }

    /// Makes a completion queue with room for `depth` completions.
    ///
    /// # Errors
    /// `OsError` or `ResourceLimit`.
    fn create_cq(&self, depth: u32) -> Result<Arc<Self::Cq>>;

    /// Makes what one poller sleeps on.
    ///
    /// # Errors
    /// `OsError`.
    fn create_waker(&self) -> Result<Arc<Self::Waker>>;

    /// Makes a queue pair in RESET.
    ///
    /// `config.exposed` are the regions the peer may reach through it. `waker` is rung by the peer's
    /// [`Qp::doorbell`], if the provider can.
    ///
    /// # Errors
    /// `OsError` or `ResourceLimit`.
    fn create_qp(
        &self,
        config: &QpConfig,
        exposed: &[Self::Region],
        send_cq: &Arc<Self::Cq>,
        recv_cq: &Arc<Self::Cq>,
        waker: Option<&Arc<Self::Waker>>,
    ) -> Result<Self::Qp>;

    /// This instance is about to end: whatever waits for a peer in [`Qp::connect`] or [`Qp::expose`] fails at once with
    /// `ShardUnreachable`, and so does what would wait later. What is connected goes on. There is nothing to do for a
    /// provider that waits for nobody.
    fn give_up(&self) {}

    /// Gives back what this instance has of the device: descriptors, threads, mappings. Its queue pairs, completion queues
    /// and wakers are gone before, and its regions [suspended](Region::suspend). It makes nothing until [`Fabric::resume`].
    ///
    /// # Errors
    /// `Busy` when something of it is still there; `Unsupported` when the provider cannot.
    fn suspend(&self) -> Result<()> {
        Err(cannot_suspend(Self::NAME))
    }

    /// Takes the device again. Does nothing when it was not given back.
    ///
    /// # Errors
    /// As when the provider is opened.
    fn resume(&self) -> Result<()> {
        Err(cannot_suspend(Self::NAME))
    }
}

#[cold]
fn cannot_suspend(what: &str) -> Box<Error> {
    Error::new(Status::Unsupported, format!("the fabric {what} cannot be suspended; fabric=shm can"))
}

/// Registered memory. Clones name the same memory, which lives until the last one is dropped.
///
/// Peers change it at any time: it is touched through raw pointers and atomics only, never through `&mut`.
pub trait Region: Debug + Clone + Send + Sync + 'static {
    /// Where it is mapped here. Page-aligned.
    fn base(&self) -> NonNull<u8>;
    /// Length in bytes.
    fn bytes(&self) -> usize;
    /// Key for local work.
    fn lkey(&self) -> u32;
    /// What a peer needs to reach it. Another one after each [`Region::resume`].
    fn address(&self) -> RegionAddress;

    /// Takes the memory back from the device: it stays where it is, with its contents, as private memory of this process.
    /// Nobody else may use it, or write to it, at the time. Does nothing when it was taken back already.
    ///
    /// # Errors
    /// `OsError`, `ResourceLimit`: nothing has changed; `Unsupported` when the provider cannot.
    fn suspend(&self) -> Result<()> {
        Err(cannot_suspend("of this region"))
    }

    /// Registers the memory again, under the same address for peers and with a new key. Does nothing when it is registered.
    ///
    /// # Errors
    /// As [`Region::suspend`].
    fn resume(&self) -> Result<()> {
        Err(cannot_suspend("of this region"))
    }
}

/// Completion queue. Threads: one poller at a time may call `poll`; others wait.
pub trait Cq: Debug + Send + Sync + 'static {
    /// Takes up to `out.len()` completions, oldest first; returns how many. Never blocks.
    fn poll(&self, out: &mut [Completion]) -> usize;
}

/// Queue pair: one end of a lane's connection. Threads: any; posts of different threads do not mix within a chain.
pub trait Qp: Debug + Send + Sync + 'static {
    /// The provider's registered memory.
    type Region: Region;

    /// Its number on this host; appears in completions and logs.
    fn number(&self) -> u32;

    /// Places of its send queue. One load.
    fn send_depth(&self) -> u32;

    /// Pieces of memory that one work request takes. One load.
    fn send_pieces(&self) -> u32 {
        1
    }

    /// What the peer needs for [`Qp::connect`]. Fresh after each return to RESET.
    fn address(&self) -> QpAddress;

    /// RESET → RTS, connected to the peer whose [`Qp::address`] this is. Blocks until the peer's regions are reachable,
    /// at most `timeout`. On failure the queue pair is in RESET or ERR and nothing else has changed.
    ///
    /// # Errors
    /// `ShardUnreachable` when the peer cannot be reached or refuses; `WrongState` unless in RESET.
    fn connect(&self, peer: &QpAddress, timeout: Duration) -> Result<()>;

    /// Present state. One atomic load.
    fn state(&self) -> QpState;

    /// Why it went to ERR, if it did by itself.
    fn cause(&self) -> Option<Cause>;

    /// To ERR (from any state: outstanding work is flushed) or to RESET (from ERR: completions are purged or fenced).
    ///
    /// # Errors
    /// `WrongState` for any other transition.
    fn modify(&self, to: QpState) -> Result<()>;

    /// Lets the peer reach one region more. When it returns, the peer can use `region.address()`.
    ///
    /// # Errors
    /// `ShardUnreachable` when the peer is gone, `OsError` otherwise.
    fn expose(&self, region: &Self::Region, timeout: Duration) -> Result<()>;

    /// Takes back what [`Qp::expose`] gave, if anything: no work of the peer that begins once it has heard of this reaches
    /// the region, and the peer keeps nothing of it but what is [held](Qp::hold) or has a [window](Qp::window). Does not
    /// wait for the peer. A region that the queue pair was made with stays.
    ///
    /// Where keys belong to the process and not to the queue pair, dropping the last clone of the region does the same,
    /// and nothing is left to do here.
    fn unexpose(&self, region: &Self::Region) {
        let _ = region;
    }

    /// As [`Qp::window`], for as long as what it returns is kept: for memory that the peer may take back.
    fn hold(&self, remote: RemoteAddr, bytes: usize, access: Access) -> Option<Loan> {
        self.window(remote, bytes, access).map(|place| Loan::new(place, None))
    }

    /// Peer memory that can be written and read with plain instructions, where the provider has such (`shm`).
    ///
    /// The pointer stays mapped as long as this queue pair lives, even after ERR: a late store lands in memory that
    /// nobody reads. Commit by an 8-byte Release store, then [`Qp::doorbell`].
    ///
    /// None: not that kind of provider, or no such key, bounds or access.
    fn window(&self, remote: RemoteAddr, bytes: usize, access: Access) -> Option<NonNull<u8>>;

    /// Tells the peer's poller, if it sleeps, that a word was stored through a window. Cheap when it is awake.
    fn doorbell(&self);

    /// Posts a chain of work with one doorbell. All of it or none.
    ///
    /// # Safety
    /// Local memory named by the work stays valid until it completes (an unsignaled one: until a later signaled one of
    /// the same queue pair has).
    ///
    /// # Errors
    /// [`PostError`]; nothing was posted.
    unsafe fn post(&self, chain: &[Work<'_>]) -> core::result::Result<(), PostError>;

    /// Lets `count` more write-with-immediate of the peer complete here (receives without memory).
    ///
    /// # Errors
    /// [`PostError`]; nothing was posted.
    fn post_receives(&self, count: u32) -> core::result::Result<(), PostError>;
}

/// Memory of a peer that stays mapped as long as this lives, whatever the peer takes back.
#[derive(Debug)]
pub struct Loan {
    place: NonNull<u8>,
    _keeper: Option<Arc<dyn core::any::Any + Send + Sync>>,
}

impl Loan {
    fn new(place: NonNull<u8>, keeper: Option<Arc<dyn core::any::Any + Send + Sync>>) -> Loan {
        Loan { place, _keeper: keeper }
    }

    /// The first byte.
    #[must_use]
    pub fn place(&self) -> NonNull<u8> {
        self.place
    }
}

// SAFETY: an address of memory that peers share anyway; all access to it goes through raw pointers and atomics.
unsafe impl Send for Loan {}
// SAFETY: as above.
unsafe impl Sync for Loan {}

/// What an idle poller sleeps on. Protocol: `arm`, look at all memory once more, then `wait`, then `disarm`.
pub trait Waker: Debug + Send + Sync + 'static {
    /// Asks peers to ring. After it returns, every commit that is not yet visible here will ring.
    fn arm(&self);
    /// Sleeps until a ring or [`Waker::notify`], at most `timeout`. True if rung. Where peers cannot ring, it comes back
    /// early, with false, for the sleeper to look for itself.
    fn wait(&self, timeout: Duration) -> bool;
    /// Peers need not ring any more.
    fn disarm(&self);
    /// Rings from this process. Threads: any.
    fn notify(&self);
}

/// How long a sleeper trusts in being rung before it looks once more: longer than any store takes to become visible.
const DOUBT: Duration = Duration::from_millis(2);

/// What an armed poller that found nothing does: sleeps until rung, at most `longest`, and looks once more soon after it
/// went to sleep. A ring that the kernel's barrier missed (the shared-memory provider's `fence`) costs that moment instead
/// of the whole sleep.
pub fn sleep<W: Waker>(waker: &W, longest: Duration, found: impl FnOnce() -> bool) {
    if !waker.wait(DOUBT.min(longest)) && !found() {
        waker.wait(longest);
    }
}
