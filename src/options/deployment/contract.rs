//! From JSON to a contract.

use super::super::choices::{HashMethod, choice};
use super::super::subnet::Subnet;
use super::super::table::{CLIENTS_MAX, SHARDS_MAX};
use super::super::value::{FromValue, Value};
use super::canonical::Digests;
use super::fields::{Object, Problem, Problems};
use super::json::Json;
use super::rules;
use crate::error::Status;

/// What a deployment agreed on. Everything in it obeys its bounds, and its parts agree with each other.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Contract {
    /// Number of shards.
    pub num_shards: u32,
    /// Which shard owns a key.
    pub hash_method: HashMethod,
    /// Most keys of one request on the wire.
    pub max_keys_per_request: u32,
    /// The shards' places, by shard.
    pub servers: Vec<ServerPlace>,
    /// The deployment's name.
    pub deployment_id: String,
    /// Its epoch.
    pub epoch: u64,
    /// Number of clients.
    pub num_clients: u32,
    /// Where the control plane is, when it is said apart from shard 0's place.
    pub control_plane: Option<(String, u16)>,
    /// Every process's port, by node: shards first, then clients.
    pub nodes: Vec<Node>,
    pub(super) digests: Digests,
}

/// Where a shard runs.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ServerPlace {
    /// The shard.
    pub shard: u32,
    /// Host name or address.
    pub host: String,
    /// TCP port of the host program; unused by lanes.
    pub port: u16,
}

/// One process.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Node {
    /// The shard's number, or the number of shards plus the client's.
    pub node_id: u32,
    /// What it is; agrees with its number.
    pub role: NodeRole,
    /// What carries its lanes.
    pub mode: Mode,
    /// The RDMA device; empty with [`Mode::Shm`].
    pub device: String,
    /// Port of the device; 0 with [`Mode::Shm`].
    pub port: u32,
    /// Place in the port's table of GIDs. None: found by type and subnet.
    pub gid_index: Option<u32>,
    /// Where to look for it.
    pub gid_subnet: Option<Subnet>,
    /// Hop limit, when it is said.
    pub hop_limit: Option<u32>,
    /// Traffic class, when it is said.
    pub traffic_class: Option<u32>,
    /// Flow label, when it is said.
    pub flow_label: Option<u32>,
}

choice! {
    /// What a node is.
    NodeRole {
        /// Serves a shard.
        Server = "server",
        /// Sends requests.
        Client = "client",
    }
}

choice! {
    /// What carries the lanes of a node.
    Mode {
        /// Shared memory of one host.
        Shm = "shm",
        /// InfiniBand.
        Ib = "ib",
        /// RoCE v1.
        RoceV1 = "rocev1",
        /// RoCE v2.
        RoceV2 = "rocev2",
    }
}

const ROOT: &[&str] = &["distributed_client", "rdma_deployment", "cache_ps", "client"];
const CLIENT: &[&str] = &["num_shards", "hash_method", "max_keys_per_request", "servers"];
const SERVER: &[&str] = &["host", "port", "shard"];
const DEPLOYMENT: &[&str] = &["deployment_id", "epoch", "protocol_version", "num_clients", "control_plane", "nodes"];
const PLANE: &[&str] = &["host", "port"];
const NODE: &[&str] = &[
    "node_id",
    "role",
    "device",
    "port",
    "gid_index",
    "gid_subnet",
    "mode",
    "hop_limit",
    "traffic_class",
    "flow_label",
];

const HOST: &str = "a host name or address of 1 to 255 bytes";
const NAME: &str = "1 to 63 letters, digits, dots, underscores and dashes";

fn is_host(text: &str) -> bool {
    let legal = |byte: u8| byte.is_ascii_alphanumeric() || b".:_-%".contains(&byte);
    (1..=255).contains(&text.len()) && text.bytes().all(legal)
}

fn is_name(text: &str) -> bool {
    let legal = |byte: u8| byte.is_ascii_alphanumeric() || b"._-".contains(&byte);
    (1..=63).contains(&text.len()) && text.bytes().all(legal)
}

/// The contract of a document.
pub(super) fn build(document: &Json) -> Result<Contract, Vec<Problem>> {
    let mut problems = Problems::default();
    let contract = root(document, &mut problems);
    match contract {
        Some(contract) if problems.0.is_empty() => {
            rules::check(&contract, &mut problems);
            if problems.0.is_empty() { Ok(contract.sorted()) } else { Err(problems.0) }
        }
        _ => Err(problems.0),
    }
}

fn root(document: &Json, problems: &mut Problems) -> Option<Contract> {
    // `cache_ps` and `client` are the host program's; they are bounded like the rest and not looked at.
    let root = Object::of("", document, ROOT, problems)?;
    let section = |name: &str, problems: &mut Problems| {
        let found = root.find(name);
        if found.is_none() {
            problems.add(Status::OptionBounds, name, "this section is missing");
        }
        found
    };
    let client = section("distributed_client", problems);
    let deployment = section("rdma_deployment", problems);
    let client = client.and_then(|json| Object::of("distributed_client", json, CLIENT, problems));
    let deployment = deployment.and_then(|json| Object::of("rdma_deployment", json, DEPLOYMENT, problems));
    let client = client.and_then(|object| distributed_client(object, problems));
    let deployment = deployment.and_then(|object| rdma_deployment(object, problems));
    let (num_shards, hash_method, max_keys_per_request, servers) = client?;
    let (deployment_id, epoch, num_clients, control_plane, nodes) = deployment?;
    Some(Contract {
        num_shards,
        hash_method,
        max_keys_per_request,
        servers,
        deployment_id,
        epoch,
        num_clients,
        control_plane,
        nodes,
        digests: Digests { configuration: 0, fabric: 0 },
    })
}

type ClientSection = (u32, HashMethod, u32, Vec<ServerPlace>);

fn distributed_client(object: Object<'_>, problems: &mut Problems) -> Option<ClientSection> {
    let shards_max = u32::try_from(SHARDS_MAX).unwrap_or(u32::MAX);
    let shards = object.small("num_shards", 1, shards_max, problems);
    let hash = object.word("hash_method", HashMethod::WORDS, problems);
    let keys = object.small("max_keys_per_request", 1, 1 << 20, problems);
    let mut servers = Vec::new();
    for (at, json) in object.list("servers", problems)?.iter().enumerate() {
        if problems.full() {
            break;
        }
        let path = format!("{}[{at}]", object.place("servers"));
        let Some(server) = Object::of(&path, json, SERVER, problems) else { continue };
        let host = server.text("host", HOST, is_host, problems);
        let port = server.small("port", 1, 65_535, problems).and_then(|port| u16::try_from(port).ok());
        let shard = server.small("shard", 0, shards_max - 1, problems);
        if let (Some(host), Some(port), Some(shard)) = (host, port, shard) {
            servers.push(ServerPlace { shard, host: host.to_owned(), port });
        }
    }
    Some((shards?, HashMethod::from_word(hash?)?, keys?, servers))
}

type DeploymentSection = (String, u64, u32, Option<(String, u16)>, Vec<Node>);

fn rdma_deployment(object: Object<'_>, problems: &mut Problems) -> Option<DeploymentSection> {
    let clients_max = u32::try_from(CLIENTS_MAX).unwrap_or(u32::MAX);
    let id = object.text("deployment_id", NAME, is_name, problems);
    let epoch = object.number("epoch", 1, u64::MAX, problems);
    object.number("protocol_version", 1, 1, problems);
    let clients = object.small("num_clients", 1, clients_max, problems);
    let path = object.place("control_plane");
    let plane = object.find("control_plane").and_then(|json| {
        let plane = Object::of(&path, json, PLANE, problems)?;
        let host = plane.text("host", HOST, is_host, problems);
        let port = plane.small("port", 1, 65_535, problems).and_then(|port| u16::try_from(port).ok());
        Some((host?.to_owned(), port?))
    });
    let mut nodes = Vec::new();
    for (at, json) in object.list("nodes", problems)?.iter().enumerate() {
        if problems.full() {
            break;
        }
        let path = format!("{}[{at}]", object.place("nodes"));
        if let Some(node) = Object::of(&path, json, NODE, problems).and_then(|object| node(object, problems)) {
            nodes.push(node);
        }
    }
    Some((id?.to_owned(), epoch?, clients?, plane, nodes))
}

/// One node.
fn node(object: Object<'_>, problems: &mut Problems) -> Option<Node> {
    let id = object.small("node_id", 0, u32::MAX, problems);
    let role = object.word("role", NodeRole::WORDS, problems).and_then(NodeRole::from_word);
    let mode = Mode::from_word(object.word("mode", Mode::WORDS, problems)?)?;
    let mut node = Node {
        node_id: 0,
        role: NodeRole::Server,
        mode,
        device: String::new(),
        port: 0,
        gid_index: None,
        gid_subnet: None,
        hop_limit: None,
        traffic_class: None,
        flow_label: None,
    };
    if mode == Mode::Shm {
        for name in NODE.iter().filter(|name| !["node_id", "role", "mode"].contains(name)) {
            if object.find(name).is_some() {
                let message = "mode shm has no such field; leave it out, or name the mode of an RDMA port";
                problems.add(Status::OptionConflict, object.place(name), message);
            }
        }
    } else {
        rdma_port(object, &mut node, problems)?;
    }
    (node.node_id, node.role) = (id?, role?);
    Some(node)
}

/// What is said of an RDMA port.
fn rdma_port(object: Object<'_>, node: &mut Node, problems: &mut Problems) -> Option<()> {
    let device = object.text("device", NAME, is_name, problems);
    let port = object.small("port", 1, 255, problems);
    let index = object.index("gid_index", 65_535, problems);
    if let Some(json) = object.find("gid_subnet") {
        let what = "a subnet, as 10.77.0.0/24 or fd00::/64";
        let text = object.text("gid_subnet", what, |text| text.parse::<Subnet>().is_ok(), problems);
        node.gid_subnet = text.and_then(|text| text.parse().ok());
        if let (Json::Text(subnet), Some(Some(index))) = (json, index) {
            let message = format!("{subnet:?} is looked for only when gid_index is -1, and it is {index}");
            problems.add(Status::OptionConflict, object.place("gid_subnet"), message);
        }
    }
    let needed = node.mode == Mode::RoceV2;
    let mut header = |name, min, max| {
        let value =
            if needed { object.small(name, min, max, problems) } else { object.optional(name, min, max, problems) };
        if needed || object.find(name).is_some() { value.map(Some) } else { Some(None) }
    };
    let (hops, class, label) =
        (header("hop_limit", 1, 255), header("traffic_class", 0, 255), header("flow_label", 0, 0xF_FFFF));
    device?.clone_into(&mut node.device);
    node.port = port?;
    node.gid_index = index?;
    (node.hop_limit, node.traffic_class, node.flow_label) = (hops?, class?, label?);
    Some(())
}

impl Contract {
    /// The node with this number.
    #[must_use]
    pub fn node(&self, node_id: u32) -> Option<&Node> {
        self.nodes.get(usize::try_from(node_id).ok()?)
    }

    /// What members compare.
    #[must_use]
    pub fn digests(&self) -> Digests {
        self.digests
    }

    /// From a contract that obeys all rules: its nodes are then numbered by their places.
    fn sorted(mut self) -> Contract {
        self.servers.sort_by_key(|server| server.shard);
        self.nodes.sort_by_key(|node| node.node_id);
        self.digests = Digests::of(&self);
        self
    }
}
