//! The shared-memory provider: processes of one host.
//!
//! Each opened [`Shm`] listens on an abstract Unix socket with a random name. To connect, a queue pair dials the
//! endpoint in its peer's address (one link for all queue pairs between two processes), proves by the nonce of that
//! address that it may, and is handed descriptors: the peer's exposed regions, its bell, its ring for immediates. From
//! then on the kernel is out of the way: the posting thread reads and writes the peer's memory itself.
//!
//! A link stays open as long as both processes live, so the end of a process is an event on its sockets: all queue pairs
//! on it go to ERR at once. Each direction of connecting has its own link, so two processes that connect to each other at
//! the same moment do not meet. One thread, `reclane-shm`, serves all links of an opened fabric and never blocks on a
//! peer.
//!
//! Abstract names belong to a network namespace: containers that are to meet share one.
//!
//! What a peer can do to us: only processes of our own user get a link; on it, only who knows a queue pair's nonce gets
//! anything, and then only what that queue pair exposes. Memory that we map of a peer is a sealed file in memory that
//! cannot shrink, so touching it cannot fault; what a peer may only read, it gets through a read-only descriptor. A
//! message out of form ends its link and nothing else. Not covered: a process of our own user can also attach a debugger
//! to us. With `huge-pages=on` reserved huge pages of peers are taken too: a peer can punch holes into such memory, use up
//! the pool, and so let our next touch fault. Without it they are refused.

mod address;
mod attach;
mod cq;
mod fence;
mod hub;
mod link;
mod memory;
mod message;
mod post;
mod qp;
mod ring;
mod socket;
mod sys;
#[cfg(test)]
mod tests;
mod waker;

pub use cq::ShmCq;
pub use memory::{SharedFile, ShmRegion};
pub use waker::ShmWaker;

use super::{
    Access, Capabilities, Cause, Fabric, Loan, PostError, Qp, QpAddress, QpConfig, QpState, Region, RemoteAddr, Work,
};
use crate::error::{Error, Result, Status};
use crate::numa;
use crate::options::HugePages;
use crate::sync::{Arc, Mutex, lock};
use crate::time::now;
use core::ptr::NonNull;
use core::time::Duration;
use hub::Core;
use qp::QpCore;

/// How to open the provider.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct ShmOptions {
    /// Whether regions use huge pages.
    pub huge_pages: HugePages,
    /// The NUMA node that regions come from, as far as it has room; None: wherever they are touched first.
    pub numa_id: Option<u32>,
}

impl Default for ShmOptions {
    fn default() -> ShmOptions {
        ShmOptions { huge_pages: HugePages::Auto, numa_id: None }
    }
}

/// The shared-memory provider, opened.
#[derive(Debug)]
pub struct Shm {
    options: ShmOptions,
    /// None while it is suspended.
    core: Mutex<Option<Arc<Core>>>,
}

impl Shm {
    /// Opens the provider: listens, and starts the thread that serves the links.
    ///
    /// # Errors
    /// `OptionBounds` for a NUMA node that is not there; `FabricUnavailable` when this system lacks sockets, sealed memory or threads for it.
    pub fn open(options: ShmOptions) -> Result<Shm> {
        numa::check(options.numa_id)?;
        // Registers this process for barriers before the first peer can rely on them.
        fence::available();
        Ok(Shm { core: Mutex::new(Some(start(&options)?)), options })
    }
}

fn start(options: &ShmOptions) -> Result<Arc<Core>> {
    let core = Core::start(options.huge_pages == HugePages::On).map_err(|error| {
        let mut report = Error::os("shm: the fabric cannot be opened", &error);
        report.status = Status::FabricUnavailable;
        report
    })?;
    Ok(Arc::new(core))
}

impl Shm {
    /// What runs while it is not suspended.
    fn running(&self) -> Result<Arc<Core>> {
        lock(&self.core).clone().ok_or_else(|| Error::new(Status::WrongState, "shm: the fabric is suspended"))
    }
}

impl Fabric for Shm {
    type Region = ShmRegion;
    type Cq = ShmCq;
    type Qp = ShmQp;
    type Waker = ShmWaker;

    const NAME: &'static str = "shm";
    const SUSPENDS: bool = true;

    fn capabilities(&self) -> Capabilities {
        Capabilities {
            ordered_within_write: true,
            ordered_writes: true,
            load_store: true,
            max_inline: u32::MAX,
            max_sge: post::SGE_MAX,
        }
    }

    fn allocate_at(&self, bytes: usize, access: Access, iova: Option<u64>) -> Result<ShmRegion> {
        let ShmOptions { huge_pages, numa_id } = self.options;
        let region = numa::on(numa_id, || ShmRegion::allocate(bytes, access, huge_pages, iova))?;
        // Large regions get their pages later.
        numa::prefer(numa_id, region.base(), region.bytes());
        Ok(region)
    }

    fn lend(&self, file: &SharedFile) -> Result<ShmRegion> {
        ShmRegion::lend(file)
    }

    fn create_cq(&self, depth: u32) -> Result<Arc<ShmCq>> {
        Ok(Arc::new(ShmCq::new(depth)))
    }

    fn create_waker(&self) -> Result<Arc<ShmWaker>> {
        let waker = ShmWaker::new().map_err(|error| Error::os("shm: a waker cannot be made", &error))?;
        let waker = Arc::new(waker);
        self.running()?.hub.keep(&waker);
        Ok(waker)
    }

    fn create_qp(
        &self,
        config: &QpConfig,
        exposed: &[ShmRegion],
        send_cq: &Arc<ShmCq>,
        recv_cq: &Arc<ShmCq>,
        waker: Option<&Arc<ShmWaker>>,
    ) -> Result<ShmQp> {
        let core = self.running()?;
        let hub = &core.hub;
        let qp =
            hub.enter(|number| Ok(Arc::new(QpCore::new(number, hub, config, exposed, (send_cq, recv_cq), waker)?)))?;
        Ok(ShmQp { qp, _core: core })
    }

    fn suspend(&self) -> Result<()> {
        let mut place = lock(&self.core);
        if let Some(core) = place.take() {
            if Arc::strong_count(&core) > 1 {
                *place = Some(core);
                return Err(Error::new(Status::Busy, "shm: a queue pair is still there; the fabric is not suspended"));
            }
            // Ends its thread, which closes what it serves.
            drop(core);
        }
        Ok(())
    }

    fn resume(&self) -> Result<()> {
        let mut place = lock(&self.core);
        if place.is_none() {
            *place = Some(start(&self.options)?);
        }
        Ok(())
    }

    fn give_up(&self) {
        if let Some(core) = lock(&self.core).as_ref() {
            core.hub.give_up();
        }
    }
}

/// Queue pair of the shared-memory provider.
#[derive(Debug)]
pub struct ShmQp {
    qp: Arc<QpCore>,
    /// Keeps the thread that hears of the peer, however early the fabric's own handle is dropped.
    _core: Arc<Core>,
}

impl Drop for ShmQp {
    fn drop(&mut self) {
        self.qp.close();
    }
}

impl Qp for ShmQp {
    type Region = ShmRegion;

    fn number(&self) -> u32 {
        self.qp.number
    }

    fn send_depth(&self) -> u32 {
        self.qp.config.max_send_wr
    }

    fn address(&self) -> QpAddress {
        self.qp.address()
    }

    fn connect(&self, peer: &QpAddress, timeout: Duration) -> Result<()> {
        self.qp.connect(peer, now().after(timeout))
    }

    #[inline]
    fn state(&self) -> QpState {
        self.qp.state()
    }

    fn cause(&self) -> Option<Cause> {
        self.qp.cause()
    }

    fn modify(&self, to: QpState) -> Result<()> {
        self.qp.modify(to)
    }

    fn expose(&self, region: &ShmRegion, timeout: Duration) -> Result<()> {
        self.qp.expose(region, now().after(timeout))
    }

    fn unexpose(&self, region: &ShmRegion) {
        self.qp.unexpose(region);
    }

    fn hold(&self, remote: RemoteAddr, bytes: usize, access: Access) -> Option<Loan> {
        self.qp.hold(remote, bytes, access)
    }

    fn window(&self, remote: RemoteAddr, bytes: usize, access: Access) -> Option<NonNull<u8>> {
        self.qp.window(remote, bytes, access)
    }

    #[inline]
    fn doorbell(&self) {
        self.qp.ring_bell();
    }

    unsafe fn post(&self, chain: &[Work<'_>]) -> core::result::Result<(), PostError> {
        // SAFETY: the caller's promise.
        unsafe { self.qp.post(chain) }
    }

    fn post_receives(&self, count: u32) -> core::result::Result<(), PostError> {
        self.qp.post_receives(count)
    }
}
