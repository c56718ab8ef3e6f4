//! What RDMA devices this host shows: names, ports, addresses. Asked of the devices themselves.

use super::sys::{self, Library, code, ibv_context, ibv_device, ibv_gid, ibv_gid_entry};
use crate::error::{Error, Result, Status};
use core::ffi::c_int;
use core::fmt;
use core::ptr::NonNull;
use std::io;
use std::net::{Ipv4Addr, Ipv6Addr};

/// A device of this host.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct DeviceInfo {
    /// Its name, as in `ibv_devinfo`.
    pub name: String,
    /// The file by which programs reach it.
    pub node: String,
    /// Its ports; or, in words, why it cannot be opened.
    pub ports: core::result::Result<Vec<PortInfo>, String>,
    /// What it has at most, where it tells.
    pub limits: Option<DeviceLimits>,
}

/// What a device has at most; 0 or less where it does not know.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct DeviceLimits {
    /// Queue pairs, of all processes of the host.
    pub queue_pairs: i32,
    /// Places of a send queue.
    pub work_requests: i32,
    /// Completion queues.
    pub completion_queues: i32,
    /// Places of a completion queue.
    pub completions: i32,
    /// Memory regions.
    pub regions: i32,
    /// Bytes of a memory region.
    pub region_bytes: u64,
}

/// A port of a device.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct PortInfo {
    /// Its number, from 1.
    pub number: u8,
    /// State, numbered as `ibv_port_state`.
    pub state: u32,
    /// Link layer, numbered as `IBV_LINK_LAYER_*`.
    pub link_layer: u8,
    /// Largest packet payload of the port now, numbered as `ibv_mtu`.
    pub mtu: u8,
    /// Local identifier; InfiniBand only.
    pub lid: u16,
    /// Addresses, without empty places of the table.
    pub gids: Vec<GidInfo>,
}

/// An address of a port.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct GidInfo {
    /// Its place in the port's table.
    pub index: u32,
    /// Its value.
    pub gid: [u8; 16],
    /// What packets with it look like; None when the system does not say.
    pub kind: Option<GidKind>,
}

/// What packets with an address look like.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum GidKind {
    /// InfiniBand.
    Ib,
    /// RoCE v1: Ethernet frames of their own kind, not routed.
    RoceV1,
    /// RoCE v2: UDP.
    RoceV2,
}

impl GidKind {
    /// The name in messages.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            GidKind::Ib => "IB",
            GidKind::RoceV1 => "RoCE v1",
            GidKind::RoceV2 => "RoCE v2",
        }
    }
}

impl PortInfo {
    /// Whether it carries traffic.
    #[must_use]
    pub fn is_active(&self) -> bool {
        self.state == code::PORT_ACTIVE
    }

    /// The state's name.
    #[must_use]
    pub fn state_name(&self) -> &'static str {
        match self.state {
            1 => "DOWN",
            2 => "INIT",
            3 => "ARMED",
            4 => "ACTIVE",
            5 => "ACTIVE_DEFER",
            _ => "NOP",
        }
    }

    /// The link layer's name.
    #[must_use]
    pub fn link_layer_name(&self) -> &'static str {
        link_layer_name(self.link_layer)
    }

    /// [`PortInfo::mtu`] in bytes.
    #[must_use]
    pub fn mtu_bytes(&self) -> u32 {
        mtu_bytes(self.mtu)
    }
}

/// A link layer's name.
pub(super) fn link_layer_name(link_layer: u8) -> &'static str {
    match link_layer {
        code::LINK_INFINIBAND => "InfiniBand",
        code::LINK_ETHERNET => "Ethernet",
        _ => "an unknown link layer",
    }
}

/// Bytes of an `ibv_mtu`.
pub(super) fn mtu_bytes(mtu: u8) -> u32 {
    128 << u32::from(mtu.clamp(1, 5))
}

/// An address as people write it.
pub(super) fn gid_text(gid: [u8; 16]) -> String {
    let six = Ipv6Addr::from(gid);
    six.to_ipv4_mapped().map_or_else(|| six.to_string(), |four: Ipv4Addr| four.to_string())
}

impl fmt::Display for DeviceInfo {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.name)?;
        match &self.ports {
            Err(why) => write!(f, " (cannot be opened: {why})"),
            Ok(ports) => {
                for port in ports {
                    write!(f, " port {} {} {}", port.number, port.state_name(), port.link_layer_name())?;
                }
                Ok(())
            }
        }
    }
}

/// All devices that this host shows, in the order of their names.
///
/// # Errors
/// `FabricUnavailable` when libibverbs is not installed or lacks a function, or when the kernel has no RDMA.
pub fn devices() -> Result<Vec<DeviceInfo>> {
    let library = sys::library()?;
    let list = List::get(library)?;
    let mut all: Vec<DeviceInfo> = list.iter().map(|device| describe(library, device)).collect();
    all.sort_by(|a, b| a.name.cmp(&b.name));
    Ok(all)
}

/// The list of devices, freed when dropped.
struct List {
    library: &'static Library,
    first: NonNull<*mut ibv_device>,
    count: usize,
}

impl List {
    fn get(library: &'static Library) -> Result<List> {
        let mut count: c_int = 0;
        // SAFETY: the function was found by name; `count` is ours.
        let first = unsafe { (library.get_device_list)(&raw mut count) };
        let count = usize::try_from(count).unwrap_or(0);
        NonNull::new(first).map(|first| List { library, first, count }).ok_or_else(|| {
            let what =
                "fabric=verbs: libibverbs finds no RDMA in this kernel; load ib_uverbs and the driver of the device";
            let mut refused = Error::os(what, &io::Error::last_os_error());
            refused.status = Status::FabricUnavailable;
            refused
        })
    }

    fn iter(&self) -> impl Iterator<Item = NonNull<ibv_device>> {
        // SAFETY: the list has `count` entries until it is freed.
        (0..self.count).filter_map(|at| NonNull::new(unsafe { *self.first.as_ptr().add(at) }))
    }
}

impl Drop for List {
    fn drop(&mut self) {
        // SAFETY: the list is the one that was made; devices that were opened stay open.
        unsafe { (self.library.free_device_list)(self.first.as_ptr()) };
    }
}

fn text(bytes: &[core::ffi::c_char]) -> String {
    let end = bytes.iter().position(|byte| *byte == 0).unwrap_or(bytes.len());
    bytes[..end].iter().map(|byte| char::from(byte.cast_unsigned())).collect()
}

fn name_of(device: NonNull<ibv_device>) -> String {
    // SAFETY: the list that the device is in is alive.
    text(unsafe { &(*device.as_ptr()).name })
}

fn node_of(device: NonNull<ibv_device>) -> String {
    // SAFETY: as above.
    format!("/dev/infiniband/{}", text(unsafe { &(*device.as_ptr()).dev_name }))
}

/// An open device, closed when dropped.
#[derive(Debug)]
pub(super) struct Context {
    pub(super) library: &'static Library,
    pub(super) raw: NonNull<ibv_context>,
    pub(super) name: String,
}

// SAFETY: verbs calls on a context may come from any thread.
unsafe impl Send for Context {}
// SAFETY: as above.
unsafe impl Sync for Context {}

impl Drop for Context {
    fn drop(&mut self) {
        // SAFETY: whatever was made from this context holds it, so nothing is left of it. A refusal leaves a descriptor.
        let _ = unsafe { (self.library.close_device)(self.raw.as_ptr()) };
    }
}

/// Opens a device.
fn open(library: &'static Library, device: NonNull<ibv_device>) -> core::result::Result<Context, String> {
    let (name, node) = (name_of(device), node_of(device));
    // SAFETY: the list that the device is in is alive.
    let raw = NonNull::new(unsafe { (library.open_device)(device.as_ptr()) });
    let error = io::Error::last_os_error();
    raw.map(|raw| Context { library, raw, name }).ok_or_else(|| {
        // The library tries other ways and reports the last one's failure; the file itself knows better.
        why_not_opened(&node, &std::fs::File::options().read(true).write(true).open(&node).err().unwrap_or(error))
    })
}

fn why_not_opened(node: &str, error: &io::Error) -> String {
    match error.raw_os_error() {
        Some(libc::EACCES | libc::EPERM) => {
            format!(
                "no permission on {node}: join its group (ls -l {node}; Debian: rdma), or give it mode 0666 by a udev rule"
            )
        }
        Some(libc::ENOENT | libc::ENXIO | libc::ENODEV) => {
            format!("{node} is missing: load ib_uverbs; in a container, hand the device in (--device {node})")
        }
        _ => format!("{node}: {error}"),
    }
}

/// Opens the device of this name.
///
/// # Errors
/// `FabricUnavailable`.
pub(super) fn open_by_name(library: &'static Library, name: &str) -> Result<Context> {
    let list = List::get(library)?;
    let unavailable = |why: String| Error::new(Status::FabricUnavailable, format!("rdma-device={name}: {why}"));
    let device = list.iter().find(|device| name_of(*device) == name);
    let device = device.ok_or_else(|| unavailable("there is no such device any more".to_owned()))?;
    open(library, device).map_err(unavailable)
}

fn describe(library: &'static Library, device: NonNull<ibv_device>) -> DeviceInfo {
    let mut limits = None;
    let ports = open(library, device).and_then(|context| {
        let attr = context.limits().map_err(|error| error.to_string())?;
        limits = Some(DeviceLimits {
            queue_pairs: attr.max_qp,
            work_requests: attr.max_qp_wr,
            completion_queues: attr.max_cq,
            completions: attr.max_cqe,
            regions: attr.max_mr,
            region_bytes: attr.max_mr_size,
        });
        Ok((1..=attr.phys_port_cnt).filter_map(|port| context.port(port).ok()).collect())
    });
    DeviceInfo { name: name_of(device), node: node_of(device), ports, limits }
}

impl Context {
    /// What the device can do at most.
    pub(super) fn limits(&self) -> io::Result<sys::ibv_device_attr> {
        // SAFETY: plain numbers, for which zero is a value.
        let mut attr: sys::ibv_device_attr = unsafe { core::mem::zeroed() };
        // SAFETY: the context is open; `attr` is ours.
        sys::checked(unsafe { (self.library.query_device)(self.raw.as_ptr(), &raw mut attr) })?;
        Ok(attr)
    }

    /// A port as it is now.
    pub(super) fn port(&self, number: u8) -> io::Result<PortInfo> {
        // SAFETY: the context is open.
        let attr = unsafe { self.library.query_port(self.raw.as_ptr(), number) }?;
        let table = u32::try_from(attr.gid_tbl_len).unwrap_or(0);
        Ok(PortInfo {
            number,
            state: attr.state,
            link_layer: attr.link_layer,
            mtu: u8::try_from(attr.active_mtu).unwrap_or(1),
            lid: attr.lid,
            gids: self.gids(number, table),
        })
    }

    /// All addresses of a port: at once where the library can, for tables have a thousand places.
    fn gids(&self, port: u8, places: u32) -> Vec<GidInfo> {
        if let Some(query) = self.library.query_gid_table {
            let mut entries: Vec<ibv_gid_entry> = (0..TABLE_ENTRIES_MAX).map(|_| blank_entry()).collect();
            // SAFETY: the context is open; there are as many entries of the length as told.
            let count = unsafe {
                let room = entries.len();
                query(self.raw.as_ptr(), entries.as_mut_ptr(), room, 0, size_of::<ibv_gid_entry>())
            };
            if let Ok(count) = usize::try_from(count) {
                let ours = |entry: &&ibv_gid_entry| entry.port_num == u32::from(port);
                return entries.iter().take(count).filter(ours).map(known).collect();
            }
        }
        (0..places).filter_map(|index| self.gid(port, index)).collect()
    }

    /// The address at a place of a port's table; None when the place is empty.
    pub(super) fn gid(&self, port: u8, index: u32) -> Option<GidInfo> {
        let context = self.raw.as_ptr();
        if let Some(query) = self.library.query_gid_ex {
            let mut entry = blank_entry();
            // SAFETY: the context is open; `entry` has the length that is told.
            let code = unsafe { query(context, port.into(), index, &raw mut entry, 0, size_of::<ibv_gid_entry>()) };
            return (code == 0).then(|| known(&entry));
        }
        let mut gid = ibv_gid { raw: [0; 16] };
        // SAFETY: the context is open; `gid` is ours.
        let code = unsafe { (self.library.query_gid)(context, port, c_int::try_from(index).ok()?, &raw mut gid) };
        // SAFETY: as above.
        let gid = unsafe { gid.raw };
        let kind = sysfs_kind(&self.name, port, index);
        (code == 0 && gid != [0; 16]).then_some(GidInfo { index, gid, kind })
    }
}

/// Room for the addresses of all ports of a device; the library refuses when there are more.
const TABLE_ENTRIES_MAX: usize = 1024;

fn blank_entry() -> ibv_gid_entry {
    // SAFETY: plain numbers, for which zero is a value.
    unsafe { core::mem::zeroed() }
}

fn known(entry: &ibv_gid_entry) -> GidInfo {
    let kind = [GidKind::Ib, GidKind::RoceV1, GidKind::RoceV2].get(entry.gid_type as usize).copied();
    // SAFETY: the bytes are a view that every value of the union has.
    GidInfo { index: entry.gid_index, gid: unsafe { entry.gid.raw }, kind }
}

/// The kind of an address, for releases of libibverbs that cannot be asked.
fn sysfs_kind(device: &str, port: u8, index: u32) -> Option<GidKind> {
    let path = format!("/sys/class/infiniband/{device}/ports/{port}/gid_attrs/types/{index}");
    match std::fs::read_to_string(path).ok()?.trim() {
        "RoCE v2" => Some(GidKind::RoceV2),
        "IB/RoCE v1" | "RoCE v1" => Some(GidKind::RoceV1),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_host_without_devices_says_so_in_words() {
        match devices() {
            Ok(all) => all.iter().for_each(|device| assert!(!device.to_string().is_empty())),
            Err(error) => {
                assert_eq!(error.status, Status::FabricUnavailable);
                assert!(error.message.contains("libibverbs"), "{error}");
            }
        }
    }

    #[test]
    fn a_refused_device_file_comes_with_what_to_do() {
        let why = |number| why_not_opened("/dev/infiniband/uverbs0", &io::Error::from_raw_os_error(number));
        assert!(why(libc::EACCES).contains("no permission on /dev/infiniband/uverbs0: join its group"));
        assert!(why(libc::ENOENT).contains("/dev/infiniband/uverbs0 is missing"));
        assert!(why(libc::EIO).starts_with("/dev/infiniband/uverbs0: "));
    }

    #[test]
    fn addresses_read_as_people_write_them() {
        let mut four = [0; 16];
        four[10..].copy_from_slice(&[255, 255, 10, 77, 0, 1]);
        assert_eq!(gid_text(four), "10.77.0.1");
        assert_eq!(gid_text([0xfe, 0x80, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1]), "fe80::1");
        assert_eq!((mtu_bytes(1), mtu_bytes(5), mtu_bytes(0), mtu_bytes(9)), (256, 4096, 256, 4096));
    }

    #[test]
    fn names_end_at_their_zero() {
        let name = b"rxe0\0";
        let bytes: Vec<core::ffi::c_char> = name.iter().chain(b"xx").map(|b| b.cast_signed()).collect();
        assert_eq!(text(&bytes), "rxe0");
    }
}
