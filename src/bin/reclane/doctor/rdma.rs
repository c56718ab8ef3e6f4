//! Whether RDMA can be used as the options ask, and what it looks like anyway.

use super::devices::{Device, Port, roce_mtu, scan};
use super::finding::Finding;
use super::tree::{Tree, field};
use reclane::options::deployment::read_all;
use reclane::options::{FabricKind, RdmaMode, Settings, Subnet};
use std::collections::BTreeSet;
use std::os::unix::ffi::OsStrExt;

/// Vendors of adapters whose Ethernet functions speak RDMA.
const RDMA_VENDORS: &[(&str, &str, &str)] = &[
    ("0x15b3", "NVIDIA (Mellanox)", "modprobe mlx5_ib"),
    ("0x14e4", "Broadcom", "modprobe bnxt_re"),
    ("0x1425", "Chelsio", "modprobe iw_cxgb4"),
    ("0x1d0f", "Amazon", "modprobe efa"),
];

/// Everything about RDMA that files tell. Nothing of it is wrong when it is not needed.
pub fn check(tree: &Tree, settings: &Settings) -> Vec<Finding> {
    let needed = settings.fabric == FabricKind::Verbs;
    let findings = look(tree, settings, needed);
    if needed { findings } else { findings.into_iter().map(Finding::not_needed).collect() }
}

fn look(tree: &Tree, settings: &Settings, needed: bool) -> Vec<Finding> {
    let devices = scan(tree);
    let mut findings = Vec::new();
    modules(tree, needed, &devices, &mut findings);
    if devices.is_empty() {
        findings.push(nothing(tree, needed));
        return findings;
    }
    for device in &devices {
        device_file(tree, device, is_wanted(device, settings), &mut findings);
        for port in &device.ports {
            let wanted = is_wanted(device, settings) && port.number == settings.device_port;
            findings.push(port_state(device, port, wanted));
            findings.push(port_gids(device, port, wanted));
            findings.extend(port_mtu(device, port));
        }
        findings.extend(numa(tree, device, settings));
    }
    findings.extend(deployment_mtu(&devices, settings));
    findings.extend(if needed { Some(choice(&devices, settings)) } else { None });
    findings
}

/// Whether the options name this device.
fn is_wanted(device: &Device, settings: &Settings) -> bool {
    settings.fabric == FabricKind::Verbs && settings.device == device.name
}

fn modules(tree: &Tree, needed: bool, devices: &[Device], findings: &mut Vec<Finding>) {
    let has = |name: &str| tree.exists(&format!("sys/module/{name}"));
    let drivers = ["mlx4_ib", "mlx5_ib", "bnxt_re", "irdma", "efa", "hns_roce_hw_v2", "qedr", "rdma_rxe", "siw"];
    let loaded: Vec<&str> = ["ib_core", "ib_uverbs"].into_iter().chain(drivers).filter(|name| has(name)).collect();
    let shown = if loaded.is_empty() { "none of RDMA are loaded".to_owned() } else { loaded.join(", ") };
    if has("ib_uverbs") || (devices.is_empty() && !needed) {
        findings.push(Finding::ok("kernel modules", shown));
    } else {
        findings.push(
            Finding::needed("kernel modules", needed, format!("{shown}; ib_uverbs is missing"))
                .means("programs reach RDMA devices through ib_uverbs")
                .mend("modprobe ib_uverbs"),
        );
    }
}

/// No device is there: why, and what to do.
fn nothing(tree: &Tree, needed: bool) -> Finding {
    let (mut hardware, mut mend) = (Vec::new(), "");
    for address in tree.names("sys/bus/pci/devices") {
        let text = |file: &str| tree.text(&format!("sys/bus/pci/devices/{address}/{file}")).unwrap_or_default();
        let (vendor, class) = (text("vendor"), text("class"));
        let known = RDMA_VENDORS.iter().find(|(id, _, _)| *id == vendor);
        let is_network = class.starts_with("0x0200") || class.starts_with("0x0207");
        if let Some((_, name, command)) = known.filter(|_| is_network) {
            hardware.push(format!("{name} adapter {address}"));
            mend = command;
        }
    }
    if !hardware.is_empty() {
        let found = format!("none, but there is hardware: {}", hardware.join(", "));
        return Finding::needed("rdma devices", needed, found)
            .means("the driver's RDMA part is not loaded, or RDMA is switched off in the firmware")
            .mend(mend);
    }
    let finding = Finding::needed("rdma devices", needed, "none; /sys/class/infiniband is empty");
    if !needed {
        return finding.means("it cannot run here");
    }
    finding
        .means("fabric=verbs needs a device; the host has no adapter, its driver is not loaded, or a container hides it")
        .mend("with an adapter: modprobe its driver. To try without: modprobe rdma_rxe && rdma link add rxe0 type rxe netdev NETDEV. Else fabric=shm")
}

fn device_file(tree: &Tree, device: &Device, wanted: bool, findings: &mut Vec<Finding>) {
    let name = &device.name;
    let Some(file) = &device.file else {
        findings.push(
            Finding::needed("device file", wanted, format!("{name} has no file in /sys/class/infiniband_verbs"))
                .means("programs cannot open this device")
                .mend("modprobe ib_uverbs"),
        );
        return;
    };
    let path = tree.place(&format!("dev/infiniband/{file}"));
    let shown = format!("/dev/infiniband/{file} of {name}");
    let c_path = std::ffi::CString::new(path.as_os_str().as_bytes()).unwrap_or_default();
    // SAFETY: the path is a C string that outlives the call.
    let allowed = unsafe { libc::access(c_path.as_ptr(), libc::R_OK | libc::W_OK) } == 0;
    let refused = std::io::Error::last_os_error();
    findings.push(if allowed {
        Finding::ok("device file", format!("{shown} can be read and written"))
    } else if refused.raw_os_error() == Some(libc::ENOENT) {
        Finding::needed("device file", wanted, format!("{shown} is missing"))
            .means("the kernel has the device, and this environment has no file for it: udev has not made it, or a container lacks it")
            .mend(format!("udevadm trigger --subsystem-match=infiniband_verbs; in a container: --device=/dev/infiniband/{file}"))
    } else {
        let finding = format!("{shown}: {refused}");
        let finding =
            if wanted { Finding::error("device file", finding) } else { Finding::warning("device file", finding) };
        finding
            .means("this user may not use the device")
            .mend(format!("join the file's group (ls -l /dev/infiniband/{file}), or chmod 0666 /dev/infiniband/{file}"))
    });
}

fn port_state(device: &Device, port: &Port, wanted: bool) -> Finding {
    let what = format!(
        "{} port {}: {} ({}), link layer {}, rate {}{}",
        device.name,
        port.number,
        port.state,
        port.physical,
        port.link_layer,
        port.rate,
        if port.is_ib() { format!(", LID {}", port.lid) } else { String::new() }
    );
    if port.is_active() {
        return Finding::ok("port", what);
    }
    let finding = if wanted { Finding::error("port", what) } else { Finding::warning("port", what) };
    let netdev = port.netdev.as_ref().map_or("NETDEV", |(name, _)| name.as_str());
    match (port.is_ib(), port.state.as_str()) {
        (true, "INIT" | "ARMED") => finding
            .means("the link is up and no subnet manager has configured it")
            .mend("start a subnet manager once in the subnet: systemctl start opensm; sminfo shows it"),
        (true, _) => {
            finding.means("there is no link: no cable, no switch, or the port is disabled").mend("ibstat; iblinkinfo")
        }
        (false, _) if port.physical == "Polling" => finding
            .means("the network interface behind it is up and has no link: no cable, or the other end is down")
            .mend(format!("ip link show dev {netdev}; the cable and the switch's port")),
        (false, _) => finding
            .means("the network interface behind it is down, or has no link")
            .mend(format!("ip link set dev {netdev} up")),
    }
}

fn port_gids(device: &Device, port: &Port, wanted: bool) -> Finding {
    let what = format!("{} port {}: {}", device.name, port.number, port.all_gids());
    if !port.gids.is_empty() {
        return Finding::ok("gids", what);
    }
    let finding = if wanted { Finding::error("gids", what) } else { Finding::warning("gids", what) };
    let netdev = port.netdev.as_ref().map_or("NETDEV", |(name, _)| name.as_str());
    finding.means("lanes have no address on this port").mend(if port.is_ib() {
        "check the subnet manager: sminfo".to_owned()
    } else {
        format!("ip link set dev {netdev} up; ip addr add ADDRESS/BITS dev {netdev}")
    })
}

fn port_mtu(device: &Device, port: &Port) -> Option<Finding> {
    let (netdev, mtu) = port.netdev.as_ref().filter(|_| !port.is_ib())?;
    let Some(mtu) = *mtu else {
        let what = format!(
            "{} port {}: its network interface {netdev} is not in this network namespace",
            device.name, port.number
        );
        return Some(
            Finding::warning("mtu", what)
                .means("RoCE needs the interface in the namespace of the process, unless RDMA namespaces are shared")
                .mend("rdma system; run the process in the interface's namespace"),
        );
    };
    let payload = roce_mtu(mtu);
    let what =
        format!("{} port {}: {netdev} has {mtu}, so RDMA packets carry {payload} bytes", device.name, port.number);
    if payload >= 4096 {
        return Some(Finding::ok("mtu", what));
    }
    let finding = if payload == 0 { Finding::error("mtu", what) } else { Finding::warning("mtu", what) };
    Some(
        finding
            .means("more packets for the same rows; both ends and the switch must take the larger frames")
            .mend(format!("ip link set dev {netdev} mtu 4200")),
    )
}

fn numa(tree: &Tree, device: &Device, settings: &Settings) -> Option<Finding> {
    let nodes = tree.names("sys/devices/system/node").iter().filter(|name| is_node(name)).count();
    let node = device.numa_node.filter(|_| nodes > 1)?;
    let place = format!("{} is at NUMA node {node}", device.name);
    if let Some(wanted) = settings.numa_id.filter(|wanted| *wanted != node) {
        let finding = Finding::warning("numa", format!("{place}, and numa-id is {wanted}"))
            .means("every byte crosses the processors' link")
            .mend(format!("numa-id={node}, or take a device at node {wanted}"));
        return Some(finding);
    }
    let (near, ours) = (near(tree, node)?, allowed(tree)?);
    if near.is_disjoint(&ours) {
        let list = tree.text(&format!("sys/devices/system/node/node{node}/cpulist")).unwrap_or_default();
        let what = format!("{place}, and this process may use none of that node's processors ({list})");
        return Some(
            Finding::warning("numa", what)
                .means("every poll of a completion crosses the processors' link")
                .mend(format!("numactl --cpunodebind={node} COMMAND, and numa-id={node}")),
        );
    }
    let both = if ours.is_subset(&near) { "all" } else { "some" };
    Some(Finding::ok("numa", format!("{place}, with {both} of the processors that this process may use")))
}

/// Processors of a node.
fn near(tree: &Tree, node: u32) -> Option<BTreeSet<u32>> {
    processors(&tree.text(&format!("sys/devices/system/node/node{node}/cpulist"))?)
}

/// Processors that this process may use.
fn allowed(tree: &Tree) -> Option<BTreeSet<u32>> {
    processors(field(&tree.text("proc/self/status")?, "Cpus_allowed_list")?)
}

/// What a list like `0-3,8` names; None: it is none, or absurdly long.
fn processors(list: &str) -> Option<BTreeSet<u32>> {
    const MOST: u32 = 1 << 16;
    let mut all = BTreeSet::new();
    for part in list.trim().split(',').filter(|part| !part.is_empty()) {
        let (first, last) = part.split_once('-').unwrap_or((part, part));
        let (first, last): (u32, u32) = (first.trim().parse().ok()?, last.trim().parse().ok()?);
        if last >= MOST {
            return None;
        }
        all.extend(first..=last);
    }
    Some(all)
}

/// Ports that a deployment file names and this host has: whether their packets have one size.
fn deployment_mtu(devices: &[Device], settings: &Settings) -> Option<Finding> {
    let file = settings.deployment_file.as_str();
    let contract = read_all(file).ok()?.ok()?;
    let mut sizes: Vec<(String, u64)> = Vec::new();
    for node in &contract.nodes {
        let device = devices.iter().find(|device| device.name == node.device);
        let port = device.and_then(|device| device.ports.iter().find(|port| port.number == node.port));
        let mtu = port.and_then(|port| port.netdev.as_ref()).and_then(|(_, mtu)| *mtu);
        if let Some(mtu) = mtu {
            let name = format!("{} port {} of node {}", node.device, node.port, node.node_id);
            sizes.push((name, roce_mtu(mtu)));
        }
    }
    let (_, first) = sizes.first()?;
    let shown = sizes.iter().map(|(name, mtu)| format!("{name} {mtu}")).collect::<Vec<_>>().join(", ");
    if sizes.iter().all(|(_, mtu)| mtu == first) {
        return Some(Finding::ok("deployment mtu", format!("{file}: payload of packets: {shown}")));
    }
    Some(
        Finding::warning("deployment mtu", format!("{file}: ports differ in the payload of their packets: {shown}"))
            .means("lanes take the smaller one; where a switch has it too, larger packets are lost and lanes fail with RETRY_EXC_ERR")
            .mend("ip link set dev NETDEV mtu 4200 on all hosts and switches, or rdma-path-mtu on all members"),
    )
}

fn is_node(name: &str) -> bool {
    name.strip_prefix("node").is_some_and(|number| number.parse::<u32>().is_ok())
}

/// Which device, port and address lanes would use: the question that opening the fabric asks.
fn choice(devices: &[Device], settings: &Settings) -> Finding {
    let check = "choice";
    let names = || devices.iter().map(|device| device.name.as_str()).collect::<Vec<_>>().join(", ");
    if settings.device.is_empty() {
        let fit = devices.iter().find_map(|device| fit(device, settings).ok());
        return fit.unwrap_or_else(|| {
            Finding::error(
                check,
                format!("no device fits rdma-mode={} on port {}", settings.rdma_mode, settings.device_port),
            )
            .means(format!("there are {}; the findings above say what each lacks", names()))
            .mend("name one with rdma-device to see why it does not fit")
        });
    }
    match devices.iter().find(|device| device.name == settings.device) {
        Some(device) => fit(device, settings).unwrap_or_else(|finding| *finding),
        None => Finding::error(check, format!("rdma-device={}: no such device", settings.device))
            .means(format!("this host has {}", names()))
            .mend("rdma-device names one of them; `rdma link` lists them"),
    }
}

fn fit(device: &Device, settings: &Settings) -> Result<Finding, Box<Finding>> {
    let check = "choice";
    let (name, number, mode) = (&device.name, settings.device_port, settings.rdma_mode);
    let refuse =
        |found: String, means: String, mend: String| Box::new(Finding::error(check, found).means(means).mend(mend));
    let port = device.ports.iter().find(|port| port.number == number).ok_or_else(|| {
        let ports: Vec<String> = device.ports.iter().map(|port| port.number.to_string()).collect();
        refuse(
            format!("rdma-port={number}: {name} has no such port"),
            format!("its ports are {}", ports.join(", ")),
            "set rdma-port to one of them".to_owned(),
        )
    })?;
    if !port.carries(mode) {
        let fits = if port.is_ib() { "ib" } else { "rocev2" };
        return Err(refuse(
            format!("rdma-mode={mode}: the link layer of {name} port {number} is {}", port.link_layer),
            "InfiniBand carries mode ib, Ethernet carries rocev1 and rocev2".to_owned(),
            format!("rdma-mode={fits} on all members, or another device"),
        ));
    }
    if !port.is_active() {
        return Err(refuse(
            format!("{name} port {number} is {}, not ACTIVE", port.state),
            "no packet can be sent".to_owned(),
            "see the finding of the port above".to_owned(),
        ));
    }
    let subnet: Option<Subnet> = settings.gid_subnet.parse().ok();
    let gid = port.pick(mode, settings.gid_index, subnet).ok_or_else(|| {
        let asked =
            settings.gid_index.map_or_else(|| "any place".to_owned(), |index| format!("rdma-gid-index={index}"));
        let place = if settings.gid_subnet.is_empty() { String::new() } else { format!(" in {}", settings.gid_subnet) };
        refuse(
            format!("{name} port {number} has no address for {mode}{place} at {asked}"),
            format!("there are: {}", port.all_gids()),
            "rdma-gid-index=-1 finds one by type; ip addr add ADDRESS/BITS dev NETDEV makes one".to_owned(),
        )
    })?;
    let what = format!("{name} port {number}, {mode}, GID {} {} {}", gid.index, gid.kind, gid.address());
    if mode != RdmaMode::Ib && settings.gid_index.is_some() {
        return Ok(Finding::ok(check, what)
            .means("places of addresses move when interfaces change; rdma-gid-index=-1 finds this one again by type and subnet"));
    }
    Ok(Finding::ok(check, what))
}
