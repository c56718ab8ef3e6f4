//! RDMA devices as sysfs shows them: no libibverbs is needed, and none is believed.

use super::tree::Tree;
use reclane::options::{RdmaMode, Subnet};
use std::net::Ipv6Addr;

/// Most ports of a device that are looked at.
const PORTS_MAX: usize = 32;
/// Most addresses of a port that are looked at.
const GIDS_MAX: usize = 1024;

/// A device.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Device {
    /// Its name.
    pub name: String,
    /// Its file below /dev/infiniband, when the kernel shows one.
    pub file: Option<String>,
    /// Its NUMA node, when it has one.
    pub numa_node: Option<u32>,
    /// Its ports.
    pub ports: Vec<Port>,
}

/// A port of it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Port {
    /// Its number.
    pub number: u32,
    /// `ACTIVE`, `DOWN`, ...
    pub state: String,
    /// `LinkUp`, `Polling`, `Disabled`, ...
    pub physical: String,
    /// `InfiniBand` or `Ethernet`.
    pub link_layer: String,
    /// As the kernel says it.
    pub rate: String,
    /// Its LID; 0 where there are none.
    pub lid: u64,
    /// Its addresses.
    pub gids: Vec<Gid>,
    /// The network interface behind it, and that one's MTU.
    pub netdev: Option<(String, Option<u64>)>,
}

/// An address of it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Gid {
    /// Its place.
    pub index: u32,
    /// Its type, as the kernel says it.
    pub kind: String,
    /// Its bytes.
    pub gid: [u8; 16],
}

impl Gid {
    /// The address as people write it.
    pub fn address(&self) -> String {
        let six = Ipv6Addr::from(self.gid);
        six.to_ipv4_mapped().map_or_else(|| six.to_string(), |four| four.to_string())
    }

    /// Whether packets of a mode can have it. On InfiniBand there is one type only.
    pub fn fits(&self, mode: RdmaMode) -> bool {
        match mode {
            RdmaMode::Ib => true,
            RdmaMode::RoceV1 => self.kind.contains("RoCE v1"),
            RdmaMode::RoceV2 => self.kind.contains("RoCE v2"),
        }
    }

    /// Which addresses two ends most likely have in common: IPv4, then routed IPv6, then link-local.
    fn rank(&self) -> u8 {
        let six = Ipv6Addr::from(self.gid);
        if six.to_ipv4_mapped().is_some() { 0 } else { 1 + u8::from(six.is_unicast_link_local()) }
    }
}

impl Port {
    /// Whether it can carry packets.
    pub fn is_active(&self) -> bool {
        self.state == "ACTIVE"
    }

    /// Whether it is InfiniBand.
    pub fn is_ib(&self) -> bool {
        self.link_layer == "InfiniBand"
    }

    /// Whether its link layer can carry a mode.
    pub fn carries(&self, mode: RdmaMode) -> bool {
        self.is_ib() == (mode == RdmaMode::Ib)
    }

    /// The address that lanes of a mode would use.
    pub fn pick(&self, mode: RdmaMode, index: Option<u32>, subnet: Option<Subnet>) -> Option<&Gid> {
        let fitting = self.gids.iter().filter(|gid| gid.fits(mode));
        match index {
            Some(index) => fitting.into_iter().find(|gid| gid.index == index),
            None => fitting
                .filter(|gid| subnet.is_none_or(|subnet| subnet.contains(gid.gid)))
                .min_by_key(|gid| (gid.rank(), gid.index)),
        }
    }

    /// All addresses in words.
    pub fn all_gids(&self) -> String {
        const SHOWN_MAX: usize = 16;
        let one = |gid: &Gid| format!("{} {} {}", gid.index, gid.kind, gid.address());
        let mut shown: Vec<String> = self.gids.iter().take(SHOWN_MAX).map(one).collect();
        if self.gids.len() > SHOWN_MAX {
            shown.push(format!("and {} more", self.gids.len() - SHOWN_MAX));
        }
        if shown.is_empty() { "none".to_owned() } else { shown.join(", ") }
    }
}

/// The largest RDMA payload that fits Ethernet frames of this size: the kernel takes 96 bytes for headers.
pub fn roce_mtu(netdev_mtu: u64) -> u64 {
    let room = netdev_mtu.saturating_sub(96);
    [4096, 2048, 1024, 512, 256].into_iter().find(|mtu| *mtu <= room).unwrap_or(0)
}

/// All devices.
pub fn scan(tree: &Tree) -> Vec<Device> {
    let class = "sys/class/infiniband";
    let files: Vec<(String, String)> = tree
        .names("sys/class/infiniband_verbs")
        .into_iter()
        .filter(|file| file.strip_prefix("uverbs").is_some_and(|number| number.parse::<u32>().is_ok()))
        .filter_map(|file| Some((tree.line(&format!("sys/class/infiniband_verbs/{file}/ibdev"))?, file)))
        .collect();
    let device = |name: String| {
        let base = format!("{class}/{name}");
        let ports = tree.numbers(&format!("{base}/ports"));
        Device {
            file: files.iter().find(|(device, _)| *device == name).map(|(_, file)| file.clone()),
            numa_node: tree.number(&format!("{base}/device/numa_node")).and_then(|node| u32::try_from(node).ok()),
            ports: ports.into_iter().take(PORTS_MAX).map(|number| port(tree, &base, number)).collect(),
            name,
        }
    };
    tree.names(class).into_iter().map(device).collect()
}

/// `4: ACTIVE` without its number.
fn behind_number(text: String) -> String {
    text.split_once(": ").map_or(text.clone(), |(_, word)| word.to_owned())
}

fn port(tree: &Tree, device: &str, number: u32) -> Port {
    let base = format!("{device}/ports/{number}");
    let text = |file: &str| tree.line(&format!("{base}/{file}")).unwrap_or_else(|| "unknown".to_owned());
    let gids = tree.numbers(&format!("{base}/gids"));
    let gids = gids.into_iter().take(GIDS_MAX).filter_map(|index| {
        let gid: Ipv6Addr = tree.text(&format!("{base}/gids/{index}"))?.parse().ok()?;
        let kind =
            tree.line(&format!("{base}/gid_attrs/types/{index}")).unwrap_or_else(|| "of unknown type".to_owned());
        (!gid.is_unspecified()).then_some(Gid { index, kind, gid: gid.octets() })
    });
    let gids: Vec<Gid> = gids.collect();
    let first = gids.first().map_or(0, |gid| gid.index);
    let netdev = tree.name(&format!("{base}/gid_attrs/ndevs/{first}"));
    let lid = text("lid");
    Port {
        number,
        state: behind_number(text("state")),
        physical: behind_number(text("phys_state")),
        link_layer: text("link_layer"),
        rate: text("rate"),
        lid: u64::from_str_radix(lid.trim_start_matches("0x"), 16).unwrap_or(0),
        gids,
        netdev: netdev.map(|name| {
            let mtu = tree.number(&format!("sys/class/net/{name}/mtu"));
            (name, mtu)
        }),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_ethernet_mtu_gives_the_payload_that_the_kernel_takes() {
        let mtus = [(9000, 4096), (4200, 4096), (4191, 2048), (1500, 1024), (352, 256), (351, 0), (0, 0)];
        for (netdev, roce) in mtus {
            assert_eq!(roce_mtu(netdev), roce, "{netdev}");
        }
    }

    fn gid(index: u32, kind: &str, address: &str) -> Gid {
        Gid { index, kind: kind.to_owned(), gid: address.parse::<Ipv6Addr>().unwrap().octets() }
    }

    #[test]
    fn an_address_is_picked_by_type_subnet_and_kind() {
        let gids = vec![
            gid(0, "RoCE v2", "fe80::1"),
            gid(1, "IB/RoCE v1", "::ffff:10.77.0.1"),
            gid(2, "RoCE v2", "fd00::1"),
            gid(3, "RoCE v2", "::ffff:10.77.0.1"),
            gid(4, "RoCE v2", "::ffff:10.78.0.1"),
        ];
        let text = || "x".to_owned();
        let port = Port {
            number: 1,
            state: "ACTIVE".to_owned(),
            physical: text(),
            link_layer: "Ethernet".to_owned(),
            rate: text(),
            lid: 0,
            gids,
            netdev: None,
        };
        let pick = |mode, index, subnet: Option<&str>| {
            port.pick(mode, index, subnet.map(|subnet| subnet.parse().unwrap())).map(|gid| gid.index)
        };
        assert_eq!(pick(RdmaMode::RoceV2, None, None), Some(3));
        assert_eq!(pick(RdmaMode::RoceV1, None, None), Some(1));
        assert_eq!(pick(RdmaMode::RoceV2, None, Some("10.78.0.0/16")), Some(4));
        assert_eq!(pick(RdmaMode::RoceV2, None, Some("fd00::/8")), Some(2));
        assert_eq!(pick(RdmaMode::RoceV2, None, Some("10.79.0.0/16")), None);
        assert_eq!(pick(RdmaMode::RoceV2, Some(0), None), Some(0));
        assert_eq!(pick(RdmaMode::RoceV2, Some(1), None), None);
    }
}
