//! From a contract to options: what the contract says counts as if it had been set by name.

use super::super::bag::{Given, Options};
use super::super::choices::{FabricKind, RdmaMode, Side};
use super::super::table::TABLE;
use super::super::value::Value;
use super::contract::{Contract, Mode, Node};
use crate::error::{Error, Result, Status};

/// One thing that the contract says.
struct Word {
    /// Field of the option.
    field: &'static str,
    /// Field of the contract.
    path: String,
    value: Value,
    /// Gives way to what was set by name.
    yields: bool,
}

fn word(field: &'static str, path: impl Into<String>, value: Value) -> Word {
    Word { field, path: path.into(), value, yields: false }
}

fn number(field: &'static str, path: impl Into<String>, value: impl Into<u64>) -> Word {
    word(field, path, Value::Number(value.into()))
}

/// `options` with what the contract says of the deployment and of the process that is to be opened.
///
/// # Errors
/// `OptionConflict` naming the option, the contract's field, and both values.
pub(in super::super) fn under(options: &Options, contract: &Contract, origin: &str, side: Side) -> Result<Options> {
    let mut words = deployment(contract);
    words.extend(process(options, contract, origin, side)?);
    let mut fed = options.clone();
    for word in words {
        let origin = format!("{origin}, {}", word.path);
        match options.given(word.field) {
            Some(given) if given.value == word.value || word.yields => {}
            Some(given) => return Err(conflict(&word, given, &origin)),
            None => fed.give(word.field, Given { value: word.value, origin }),
        }
    }
    Ok(fed)
}

fn conflict(word: &Word, given: &Given, origin: &str) -> Box<Error> {
    let name = TABLE.iter().find(|spec| spec.field == word.field).map_or(word.field, |spec| spec.name);
    let message = format!(
        "{name} = {} ({}), but {} ({origin}); leave the option out, or change the file for all members",
        given.value, given.origin, word.value
    );
    Error::new(Status::OptionConflict, message)
}

fn deployment(contract: &Contract) -> Vec<Word> {
    let client = |field: &str| format!("distributed_client.{field}");
    let deployment = |field: &str| format!("rdma_deployment.{field}");
    let text = |text: &str| Value::Text(text.to_owned());
    let mut words = vec![
        number("num_shards", client("num_shards"), contract.num_shards),
        word("hash_method", client("hash_method"), Value::Word(contract.hash_method.word())),
        number("max_kv_num_per_request", client("max_keys_per_request"), contract.max_keys_per_request),
        word("deployment_id", deployment("deployment_id"), text(&contract.deployment_id)),
        number("deployment_epoch", deployment("epoch"), contract.epoch),
        number("num_client_processes", deployment("num_clients"), contract.num_clients),
    ];
    match (&contract.control_plane, contract.servers.first()) {
        (Some((host, port)), _) => {
            words.push(word("control_plane_host", deployment("control_plane.host"), text(host)));
            words.push(number("control_plane_port", deployment("control_plane.port"), *port));
        }
        // A host has several names: this one is a guess that a flag corrects.
        (None, Some(shard)) => {
            let path = client("servers, the host of shard 0");
            let word = Word { yields: true, ..word("control_plane_host", path, text(&shard.host)) };
            words.push(word);
        }
        (None, None) => {}
    }
    if let Some(node) = contract.nodes.first() {
        let fabric = if node.mode == Mode::Shm { FabricKind::Shm } else { FabricKind::Verbs };
        words.push(word("fabric", deployment("nodes, their mode"), Value::Word(fabric.word())));
        words.extend(mode(node).map(|mode| word("rdma_mode", deployment("nodes, their mode"), mode)));
    }
    words
}

fn mode(node: &Node) -> Option<Value> {
    let mode = match node.mode {
        Mode::Shm => return None,
        Mode::Ib => RdmaMode::Ib,
        Mode::RoceV1 => RdmaMode::RoceV1,
        Mode::RoceV2 => RdmaMode::RoceV2,
    };
    Some(Value::Word(mode.word()))
}

/// What the contract says of the process itself.
fn process(options: &Options, contract: &Contract, origin: &str, side: Side) -> Result<Vec<Word>> {
    let Some((node_id, named)) = own_number(options, contract, side) else {
        return if side == Side::Client { common_to_clients(contract, origin) } else { Ok(Vec::new()) };
    };
    match contract.node(node_id) {
        Some(node) => Ok(port(node)),
        None => Err(Error::new(
            Status::OptionConflict,
            format!(
                "{named}, but {origin} has no node {node_id}: distributed_client.num_shards = {}, \
                 rdma_deployment.num_clients = {}",
                contract.num_shards, contract.num_clients
            ),
        )),
    }
}

/// This process's number over all, and how it was said.
fn own_number(options: &Options, contract: &Contract, side: Side) -> Option<(u32, String)> {
    let given = |field: &str| {
        let given = options.given(field)?;
        let Value::Number(number) = given.value else { return None };
        let name = field.replace('_', "-");
        Some((u32::try_from(number).ok()?, format!("{name} = {number} ({})", given.origin)))
    };
    match side {
        Side::Both => None,
        Side::Server => {
            let shard = given("global_id").or_else(|| given("shard_id"));
            Some(shard.unwrap_or_else(|| (0, "shard-id = 0 (default)".to_owned())))
        }
        Side::Client => given("global_id")
            .or_else(|| given("client_id").map(|(client, named)| (contract.num_shards.saturating_add(client), named))),
    }
}

/// A client that takes any number does not know which node it will be: that is well when it does not matter.
fn common_to_clients(contract: &Contract, origin: &str) -> Result<Vec<Word>> {
    let first = contract.num_shards as usize;
    let mut clients = contract.nodes.iter().skip(first);
    let Some(one) = clients.next() else { return Ok(Vec::new()) };
    let alike = |other: &Node| Node { node_id: one.node_id, ..other.clone() } == *one;
    match clients.find(|other| !alike(other)) {
        None => Ok(port(one)),
        Some(other) => Err(Error::new(
            Status::OptionConflict,
            format!(
                "client-id = auto, but {origin} gives its clients different ports (nodes {} and {}): \
                 set client-id or global-id",
                one.node_id, other.node_id
            ),
        )),
    }
}

fn port(node: &Node) -> Vec<Word> {
    if node.mode == Mode::Shm {
        return Vec::new();
    }
    let path = |field: &str| format!("rdma_deployment.nodes, {field} of node {}", node.node_id);
    let index = node.gid_index.map_or(Value::Auto, |index| Value::Number(index.into()));
    let mut words = vec![
        word("device", path("device"), Value::Text(node.device.clone())),
        number("device_port", path("port"), node.port),
        word("gid_index", path("gid_index"), index),
    ];
    words.extend(node.gid_subnet.map(|net| word("gid_subnet", path("gid_subnet"), Value::Text(net.to_string()))));
    words.extend(node.hop_limit.map(|hops| number("hop_limit", path("hop_limit"), hops)));
    words.extend(node.traffic_class.map(|class| number("traffic_class", path("traffic_class"), class)));
    words.extend(node.flow_label.map(|label| number("flow_label", path("flow_label"), label)));
    words
}
