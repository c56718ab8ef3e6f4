//! Which device, port and address a process uses, from what it was told and what there is. Pure; every refusal says
//! what there is and what to do.

use super::info::{DeviceInfo, GidInfo, GidKind, PortInfo, gid_text};
use super::sys::code;
use crate::error::{Error, Result, Status};
use crate::options::{RdmaMode, Subnet};
use std::net::Ipv6Addr;

/// What the process was told.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) struct Wish {
    /// Name of the device; empty for the first that fits.
    pub(super) device: String,
    /// Number of the port.
    pub(super) port: u8,
    /// Place of the address; None: found by type and subnet.
    pub(super) gid_index: Option<u32>,
    /// Subnet of the address, `address/bits`; empty for any.
    pub(super) subnet: String,
    /// How packets look.
    pub(super) mode: RdmaMode,
}

/// What was chosen.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) struct Chosen {
    pub(super) device: String,
    pub(super) port: PortInfo,
    pub(super) gid: GidInfo,
}

fn unavailable(why: impl Into<String>) -> Box<Error> {
    Error::new(Status::FabricUnavailable, why)
}

fn all(devices: &[DeviceInfo]) -> String {
    devices.iter().map(ToString::to_string).collect::<Vec<_>>().join("; ")
}

/// Chooses.
///
/// # Errors
/// `FabricUnavailable`, `OptionBounds` for a subnet that is none.
pub(super) fn choose(devices: &[DeviceInfo], wish: &Wish) -> Result<Chosen> {
    let subnet = subnet_of(&wish.subnet)?;
    if devices.is_empty() {
        return Err(unavailable(
            "fabric=verbs: this host shows no RDMA device; load the driver of the adapter ('rdma link' lists what there \
             is), or try without one: modprobe rdma_rxe && rdma link add rxe0 type rxe netdev NETDEV",
        ));
    }
    if !wish.device.is_empty() {
        let device = devices.iter().find(|device| device.name == wish.device).ok_or_else(|| {
            unavailable(format!("rdma-device={}: no such device; this host has: {}", wish.device, all(devices)))
        })?;
        return fit(device, wish, subnet.as_ref());
    }
    let mut first = None;
    for device in devices {
        match fit(device, wish, subnet.as_ref()) {
            Ok(chosen) => return Ok(chosen),
            Err(error) if first.is_none() => first = Some(error),
            Err(_) => {}
        }
    }
    match (devices, first) {
        ([_], Some(error)) => Err(error),
        _ => Err(unavailable(format!(
            "fabric=verbs: no device fits rdma-mode={} on port {}: {}; name one with rdma-device to see why it does not",
            wish.mode,
            wish.port,
            all(devices)
        ))),
    }
}

fn fit(device: &DeviceInfo, wish: &Wish, subnet: Option<&Subnet>) -> Result<Chosen> {
    let name = &device.name;
    let ports = device.ports.as_ref().map_err(|why| unavailable(format!("rdma-device={name}: {why}")))?;
    let port = ports.iter().find(|port| port.number == wish.port).ok_or_else(|| {
        unavailable(format!("rdma-port={}: device {name} has the ports 1 to {}", wish.port, ports.len()))
    })?;
    let needed = if wish.mode == RdmaMode::Ib { code::LINK_INFINIBAND } else { code::LINK_ETHERNET };
    if port.link_layer != needed {
        let fits = if port.link_layer == code::LINK_INFINIBAND { "ib" } else { "rocev2 or rocev1" };
        return Err(unavailable(format!(
            "rdma-mode={}: the link layer of port {} of {name} is {}; set rdma-mode={fits}, or name another device or port",
            wish.mode,
            wish.port,
            port.link_layer_name()
        )));
    }
    if !port.is_active() {
        let cure = if needed == code::LINK_INFINIBAND {
            "check the cable and that a subnet manager runs (ibstat, sminfo)"
        } else {
            "bring its network interface up (rdma link show; ip link set dev NETDEV up)"
        };
        return Err(unavailable(format!(
            "rdma-port={}: port {} of {name} is {}, not ACTIVE; {cure}",
            wish.port,
            wish.port,
            port.state_name()
        )));
    }
    let gid = gid(name, port, wish, subnet)?;
    Ok(Chosen { device: name.clone(), port: port.clone(), gid })
}

fn gid(name: &str, port: &PortInfo, wish: &Wish, subnet: Option<&Subnet>) -> Result<GidInfo> {
    let there = || {
        let each = |g: &GidInfo| {
            format!("{} {} {}", g.index, g.kind.map_or("of unknown type", GidKind::name), gid_text(g.gid))
        };
        port.gids.iter().map(each).collect::<Vec<_>>().join(", ")
    };
    if let Some(index) = wish.gid_index {
        let found = port.gids.iter().find(|gid| gid.index == index).filter(|gid| fits(gid.kind, wish.mode));
        return found.copied().ok_or_else(|| {
            unavailable(format!(
                "rdma-gid-index={index}: there is no address of type {} at that place of port {} of {name}; there are: {}; \
                 -1 finds one by type",
                kind_of(wish.mode).name(),
                port.number,
                there()
            ))
        });
    }
    let fitting = port.gids.iter().filter(|gid| fits(gid.kind, wish.mode));
    let within = fitting.filter(|gid| subnet.is_none_or(|subnet| subnet.contains(gid.gid)));
    within.min_by_key(|gid| (rank(gid.gid), gid.index)).copied().ok_or_else(|| {
        let place = if wish.subnet.is_empty() { String::new() } else { format!(" in rdma-gid-subnet={}", wish.subnet) };
        unavailable(format!(
            "rdma-mode={}: port {} of {name} has no address of type {}{place}; there are: {}; give its network interface \
             an address (ip addr add ...), or set another mode",
            wish.mode,
            port.number,
            kind_of(wish.mode).name(),
            there()
        ))
    })
}

/// The type of address that a mode needs.
pub(super) fn kind_of(mode: RdmaMode) -> GidKind {
    match mode {
        RdmaMode::Ib => GidKind::Ib,
        RdmaMode::RoceV1 => GidKind::RoceV1,
        RdmaMode::RoceV2 => GidKind::RoceV2,
    }
}

/// On InfiniBand there is one type only, which some systems do not name.
pub(super) fn fits(kind: Option<GidKind>, mode: RdmaMode) -> bool {
    kind == Some(kind_of(mode)) || (mode == RdmaMode::Ib && kind.is_none())
}

/// Which addresses both ends most likely have in common: IPv4 first, then routed IPv6, then link-local.
fn rank(gid: [u8; 16]) -> u8 {
    let six = Ipv6Addr::from(gid);
    if six.to_ipv4_mapped().is_some() { 0 } else { 1 + u8::from(six.is_unicast_link_local()) }
}

/// The subnet asked for; None for an empty text.
fn subnet_of(text: &str) -> Result<Option<Subnet>> {
    if text.is_empty() {
        return Ok(None);
    }
    text.parse().map(Some).map_err(|_| {
        let why = format!("rdma-gid-subnet={text}: not a subnet; write it as 10.0.0.0/16 or fd00::/64");
        Error::new(Status::OptionBounds, why)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn four(last: u8) -> [u8; 16] {
        [0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 255, 255, 10, 77, 0, last]
    }

    fn port(number: u8, state: u32, link_layer: u8) -> PortInfo {
        let gid = |index, gid, kind| GidInfo { index, gid, kind: Some(kind) };
        let local = [0xfe, 0x80, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1];
        let gids = vec![
            gid(0, local, GidKind::RoceV2),
            gid(1, four(1), GidKind::RoceV1),
            gid(2, four(1), GidKind::RoceV2),
            gid(5, four(9), GidKind::RoceV2),
        ];
        PortInfo { number, state, link_layer, mtu: 5, lid: 0, gids }
    }

    fn device(name: &str, state: u32, link_layer: u8) -> DeviceInfo {
        DeviceInfo {
            name: name.into(),
            node: format!("/dev/{name}"),
            ports: Ok(vec![port(1, state, link_layer)]),
            limits: None,
        }
    }

    fn wish() -> Wish {
        Wish { device: String::new(), port: 1, gid_index: None, subnet: String::new(), mode: RdmaMode::RoceV2 }
    }

    fn refused(devices: &[DeviceInfo], wish: &Wish, words: &[&str]) {
        let error = choose(devices, wish).unwrap_err();
        for word in words {
            assert!(error.message.contains(word), "'{word}' is not in: {}", error.message);
        }
    }

    #[test]
    fn the_first_device_that_fits_and_its_ipv4_address() {
        let all = [device("a", 1, 2), device("b", 4, 1), device("c", 4, 2), device("d", 4, 2)];
        let chosen = choose(&all, &wish()).unwrap();
        assert_eq!((chosen.device.as_str(), chosen.gid.index), ("c", 2));
        let named = Wish { device: "d".into(), mode: RdmaMode::RoceV1, ..wish() };
        assert_eq!(choose(&all, &named).unwrap().gid.index, 1);
        let subnet = Wish { subnet: "10.77.0.8/29".into(), ..wish() };
        assert_eq!(choose(&all, &subnet).unwrap().gid.index, 5);
        let local = Wish { subnet: "fe80::/64".into(), ..wish() };
        assert_eq!(choose(&all, &local).unwrap().gid.index, 0);
        let by_place = Wish { gid_index: Some(0), ..wish() };
        assert_eq!(choose(&all, &by_place).unwrap().gid.index, 0);
    }

    #[test]
    fn every_refusal_says_what_there_is_and_what_to_do() {
        refused(&[], &wish(), &["no RDMA device", "rdma link add"]);
        let up = [device("a", 4, 2), device("b", 1, 1)];
        let on = |name: &str| Wish { device: name.into(), ..wish() };
        refused(&up, &on("x"), &["rdma-device=x", "a port 1 ACTIVE Ethernet; b port 1 DOWN InfiniBand"]);
        refused(&up, &Wish { port: 2, ..on("a") }, &["rdma-port=2", "ports 1 to 1"]);
        refused(&up, &on("b"), &["rdma-mode=rocev2", "InfiniBand", "rdma-mode=ib"]);
        refused(&up, &Wish { mode: RdmaMode::Ib, ..on("a") }, &["rdma-mode=ib", "Ethernet", "rocev2"]);
        refused(&up, &Wish { mode: RdmaMode::Ib, ..on("b") }, &["DOWN", "subnet manager"]);
        refused(&[device("a", 1, 2)], &wish(), &["port 1 of a is DOWN", "ip link set"]);
        refused(&up, &Wish { gid_index: Some(1), ..wish() }, &["no device fits", "name one with rdma-device"]);
        refused(&up, &Wish { gid_index: Some(1), ..on("a") }, &["rdma-gid-index=1", "RoCE v2", "1 RoCE v1 10.77.0.1"]);
        refused(
            &up,
            &Wish { subnet: "192.168.0.0/16".into(), ..on("a") },
            &["rdma-gid-subnet=192.168.0.0/16", "ip addr"],
        );
        refused(&up, &Wish { subnet: "10.0.0.0/33".into(), ..wish() }, &["not a subnet"]);
        let shut = DeviceInfo { ports: Err("no permission on /dev/a".into()), ..device("a", 4, 2) };
        refused(&[shut], &wish(), &["rdma-device=a", "no permission"]);
    }
}
