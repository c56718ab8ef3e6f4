//! The real-RDMA provider: InfiniBand, RoCE v1 and RoCE v2 through libibverbs.
//!
//! libibverbs is opened when it is first asked for and not when this library is loaded, so a host without it runs every
//! other fabric. A process has one context and one protection domain per device, shared by everything in it. The memory
//! of lanes lies in few large registrations (`arena`), whatever the number of lanes, shards and clients; a buffer or a
//! region of a rank has one of its own.
//!
//! What the contract says and a device does not by itself is done here: states and causes (`qp`), places of the send
//! queue (`post`), completions of earlier connections (`cq`), troubles of device and port (`device`).
//!
//! What a peer can do to us: whoever knows a key reaches that region by any queue pair of this process and device, for
//! they are of one protection domain. Lanes share registrations: a client that is told a place for its own slots has a
//! key with which it could write beside them. A region that nobody was told of has a key all the same, and keys are few enough to
//! be guessed by a peer who tries; each wrong guess costs it the connection. So the processes of one deployment trust each
//! other, as they do with the rows.

mod address;
mod arena;
mod choose;
mod cq;
mod device;
mod info;
mod locked;
mod memory;
mod path;
mod post;
mod qp;
mod space;
mod sys;
#[cfg(all(test, feature = "device-tests"))]
mod tests;
mod waker;

pub use cq::VerbsCq;
pub use info::{DeviceInfo, DeviceLimits, GidInfo, GidKind, PortInfo, devices};
pub use memory::VerbsRegion;
pub use qp::VerbsQp;
pub use waker::VerbsWaker;

use super::{Access, Capabilities, Cause, Fabric, PostError, Qp, QpAddress, QpConfig, QpState, RemoteAddr, Work};
use crate::error::{Error, Result, Status};
use crate::numa;
use crate::options::{DataInOrder, HugePages, RdmaMode, Settings};
use crate::sync::Arc;
use arena::{Arena, Kind};
use choose::{Chosen, Wish};
use core::ptr::NonNull;
use core::time::Duration;
use device::Device;
use path::Path;

/// Pieces of one work request that are asked for by default: more make every place of a send queue larger.
const SGES: u32 = 4;
/// The same of queue pairs that are made for sending rows from where they lie.
const SGES_MAX: u32 = 30;

/// How to open the provider. The numbers are those of the options of the same names.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct VerbsOptions {
    /// Device; empty for the first that fits.
    pub device: String,
    /// Port of the device, from 1.
    pub port: u8,
    /// How packets look.
    pub mode: RdmaMode,
    /// Place of the address; None: found by type and subnet.
    pub gid_index: Option<u32>,
    /// Subnet of the address; empty for any.
    pub gid_subnet: String,
    /// Largest packet payload in bytes; 0 for what the port has.
    pub path_mtu: u32,
    /// Routers that a packet may pass.
    pub hop_limit: u8,
    /// Traffic class.
    pub traffic_class: u8,
    /// Flow label.
    pub flow_label: u32,
    /// Service level.
    pub service_level: u8,
    /// Wait for an acknowledgement: 4.096 us times 2 to this power.
    pub ack_timeout: u8,
    /// Repetitions without an acknowledgement.
    pub retry_cnt: u8,
    /// Repetitions without a receive; 7 for ever.
    pub rnr_retry: u8,
    /// What a peer without a receive asks to wait.
    pub min_rnr_timer: u8,
    /// Bytes of inline data that are asked for.
    pub inline_bytes: u32,
    /// Who vouches for the order of bytes.
    pub data_in_order: DataInOrder,
    /// Whether regions use huge pages.
    pub huge_pages: HugePages,
    /// The node that regions come from, as far as it has room.
    pub numa_id: Option<u32>,
    /// Most bytes of one registration that lanes share.
    pub region_bytes: usize,
}

impl VerbsOptions {
    /// What the options of a process say.
    #[must_use]
    pub fn from_settings(settings: &Settings) -> VerbsOptions {
        // The table's bounds are those of a byte.
        let byte = |number: u32| u8::try_from(number).unwrap_or(u8::MAX);
        VerbsOptions {
            device: settings.device.clone(),
            port: byte(settings.device_port),
            mode: settings.rdma_mode,
            gid_index: settings.gid_index,
            gid_subnet: settings.gid_subnet.clone(),
            path_mtu: settings.path_mtu,
            hop_limit: byte(settings.hop_limit),
            traffic_class: byte(settings.traffic_class),
            flow_label: settings.flow_label,
            service_level: byte(settings.service_level),
            ack_timeout: byte(settings.ack_timeout),
            retry_cnt: byte(settings.retry_cnt),
            rnr_retry: byte(settings.rnr_retry),
            min_rnr_timer: byte(settings.min_rnr_timer),
            inline_bytes: settings.inline_bytes,
            data_in_order: settings.data_in_order,
            huge_pages: settings.huge_pages,
            numa_id: settings.numa_id,
            region_bytes: usize::try_from(settings.region_bytes).unwrap_or(usize::MAX),
        }
    }
}

/// The verbs provider, opened.
#[derive(Debug)]
pub struct Verbs {
    path: Path,
    in_order: bool,
    huge_pages: HugePages,
    numa_id: Option<u32>,
    region_bytes: usize,
    device: Arc<Device>,
}

impl Verbs {
    /// Opens a device, or shares the one that this process has open, and finds its port and address.
    ///
    /// # Errors
    /// `FabricUnavailable` when there is no such device, port, address or permission, `ResourceLimit` when the device is
    /// used up; each says what there is and what to do.
    pub fn open(options: &VerbsOptions) -> Result<Verbs> {
        numa::check(options.numa_id)?;
        let wish = Wish {
            device: options.device.clone(),
            port: options.port,
            gid_index: options.gid_index,
            subnet: options.gid_subnet.clone(),
            mode: options.mode,
        };
        let (device, chosen) = Device::open(&wish)?;
        let mut path = path(options, &chosen)?;
        let (inline, in_order) = probe(&device, options)?;
        path.inline = inline;
        path.sges = SGES.min(u32::try_from(device.limits.sges).unwrap_or(1)).max(1);
        crate::event!(
            crate::observe::Level::INFO,
            crate::observe::events::FABRIC_READY,
            device = device.name(),
            port = path.port,
            gid = info::gid_text(path.gid),
            mtu_bytes = info::mtu_bytes(path.mtu)
        );
        let VerbsOptions { huge_pages, numa_id, region_bytes, .. } = *options;
        Ok(Verbs { path, in_order, huge_pages, numa_id, region_bytes, device })
    }

    fn kind(&self, access: Access) -> Kind {
        Kind { access, huge: self.huge_pages, numa_id: self.numa_id }
    }

    /// The device's name.
    #[must_use]
    pub fn device(&self) -> &str {
        self.device.name()
    }
}

fn path(options: &VerbsOptions, chosen: &Chosen) -> Result<Path> {
    let port = &chosen.port;
    let mtu = match options.path_mtu {
        0 => port.mtu,
        bytes => {
            let code = path::mtu_code(bytes).filter(|code| *code <= port.mtu);
            code.ok_or_else(|| {
                let why = format!(
                    "rdma-path-mtu={bytes}: port {} of {} has an MTU of {} bytes; raise that of its network interface \
                     (ip link set dev NETDEV mtu N, some 100 bytes above), or lower rdma-path-mtu",
                    port.number,
                    chosen.device,
                    port.mtu_bytes()
                );
                Error::new(Status::FabricUnavailable, why)
            })?
        }
    };
    Ok(Path {
        port: port.number,
        mode: options.mode,
        link_layer: port.link_layer,
        is_ib: path::is_ib(port.link_layer),
        lid: port.lid,
        gid: chosen.gid.gid,
        gid_index: chosen.gid.index,
        mtu,
        hop_limit: options.hop_limit,
        traffic_class: options.traffic_class,
        flow_label: options.flow_label,
        service_level: options.service_level,
        ack_timeout: options.ack_timeout,
        retry_cnt: options.retry_cnt,
        rnr_retry: options.rnr_retry,
        min_rnr_timer: options.min_rnr_timer,
        sges: 1,
        inline: 0,
    })
}

/// What only a queue pair knows: how much inline data is granted, and whether writes become visible in order.
fn probe(device: &Arc<Device>, options: &VerbsOptions) -> Result<(u32, bool)> {
    let cq = VerbsCq::new(device, 1)?;
    let config = QpConfig { max_send_wr: 1, max_recv_wr: 1, max_send_sge: 0, generation: 0 };
    let (raw, _, inline) = qp::create(device, (&cq, &cq), &config, (1, options.inline_bytes))?;
    let library = device.context.library;
    // SAFETY: the queue pair is alive.
    let told =
        library.query_qp_data_in_order.is_some_and(|ask| unsafe { ask(raw.as_ptr(), sys::code::WR_WRITE, 0) } == 1);
    // SAFETY: made above, and nobody else has it.
    unsafe { (library.destroy_qp)(raw.as_ptr()) };
    let in_order = match options.data_in_order {
        DataInOrder::Auto => told,
        DataInOrder::Yes => true,
        DataInOrder::No => false,
    };
    // Some devices grant more than was asked for: what is inline is copied by the processor, so the option bounds it.
    Ok((inline.min(options.inline_bytes), in_order))
}

impl Fabric for Verbs {
    type Region = VerbsRegion;
    type Cq = VerbsCq;
    type Qp = VerbsQp;
    type Waker = VerbsWaker;

    const NAME: &'static str = "verbs";
    const EXPOSES_PER_QP: bool = false;

    fn capabilities(&self) -> Capabilities {
        Capabilities {
            ordered_within_write: self.in_order,
            ordered_writes: self.in_order,
            load_store: false,
            max_inline: self.path.inline,
            max_sge: self.path.sges,
        }
    }

    fn allocate_at(&self, bytes: usize, access: Access, iova: Option<u64>) -> Result<VerbsRegion> {
        VerbsRegion::allocate(&self.device, bytes, self.kind(access), iova)
    }

    fn allocate_slots(&self, bytes: usize, access: Access) -> Result<VerbsRegion> {
        Arena::take(&self.device, self.kind(access), bytes, self.region_bytes)
    }

    fn expect_slots(&self, bytes: usize, access: Access) {
        self.device.arena.expect(self.kind(access), bytes);
    }

    unsafe fn register(&self, memory: NonNull<u8>, bytes: usize) -> Result<VerbsRegion> {
        // SAFETY: the caller's promise.
        unsafe { VerbsRegion::adopt(&self.device, memory, bytes) }
    }

    fn create_cq(&self, depth: u32) -> Result<Arc<VerbsCq>> {
        Ok(Arc::new(VerbsCq::new(&self.device, depth)?))
    }

    fn create_waker(&self) -> Result<Arc<VerbsWaker>> {
        let waker = VerbsWaker::new().map_err(|error| Error::os("verbs: a waker cannot be made", &error))?;
        Ok(Arc::new(waker))
    }

    fn create_qp(
        &self,
        config: &QpConfig,
        exposed: &[VerbsRegion],
        send_cq: &Arc<VerbsCq>,
        recv_cq: &Arc<VerbsCq>,
        waker: Option<&Arc<VerbsWaker>>,
    ) -> Result<VerbsQp> {
        VerbsQp::new(&self.device, self.path, config, exposed, (send_cq, recv_cq), waker)
    }
}

impl Qp for VerbsQp {
    type Region = VerbsRegion;

    fn number(&self) -> u32 {
        self.core.number
    }

    #[inline]
    fn send_depth(&self) -> u32 {
        self.core.ring.depth()
    }

    #[inline]
    fn send_pieces(&self) -> u32 {
        self.core.path.sges
    }

    fn address(&self) -> QpAddress {
        VerbsQp::address(self)
    }

    /// A local act of this side: the devices exchange nothing. So there is no time in which the peer is waited for, but
    /// for the look-up of its hardware address, which the kernel bounds.
    fn connect(&self, peer: &QpAddress, _timeout: Duration) -> Result<()> {
        self.connect_to(peer)
    }

    #[inline]
    fn state(&self) -> QpState {
        self.core.state()
    }

    fn cause(&self) -> Option<Cause> {
        self.core.cause()
    }

    fn modify(&self, to: QpState) -> Result<()> {
        VerbsQp::modify(self, to)
    }

    fn expose(&self, region: &VerbsRegion, _timeout: Duration) -> Result<()> {
        self.also_expose(region)
    }

    fn window(&self, _remote: RemoteAddr, _bytes: usize, _access: Access) -> Option<NonNull<u8>> {
        None
    }

    #[inline]
    fn doorbell(&self) {}

    unsafe fn post(&self, chain: &[Work<'_>]) -> core::result::Result<(), PostError> {
        // SAFETY: the caller's promise.
        unsafe { self.core.post(chain) }
    }

    fn post_receives(&self, count: u32) -> core::result::Result<(), PostError> {
        self.core.post_receives(count)
    }
}
