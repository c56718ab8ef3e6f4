//! One text for all files that mean the same, and the digests of it.

use super::super::layout::fnv_1a;
use super::contract::{Contract, Mode, Node, ServerPlace};
use core::fmt;

/// What members compare. FNV-1a guards against mistakes, not against malice: nobody who may write the file is kept out.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Digests {
    /// Of the whole contract.
    pub configuration: u64,
    /// Of the nodes alone.
    pub fabric: u64,
}

impl fmt::Display for Digests {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "configuration {:016x} fabric {:016x}", self.configuration, self.fabric)
    }
}

impl Contract {
    /// The contract as JSON without spaces: names in alphabetical order, servers by shard, nodes by number, fields that
    /// were not given left out.
    #[must_use]
    pub fn canonical(&self) -> String {
        let servers: Vec<String> = self.servers.iter().map(server).collect();
        let client = format!(
            r#"{{"hash_method":"{}","max_keys_per_request":{},"num_shards":{},"servers":[{}]}}"#,
            self.hash_method,
            self.max_keys_per_request,
            self.num_shards,
            servers.join(",")
        );
        let plane = match &self.control_plane {
            Some((host, port)) => format!(r#""control_plane":{{"host":"{host}","port":{port}}},"#),
            None => String::new(),
        };
        format!(
            r#"{{"distributed_client":{client},"rdma_deployment":{{{plane}"deployment_id":"{}","epoch":{},"nodes":{},"num_clients":{},"protocol_version":1}}}}"#,
            self.deployment_id,
            self.epoch,
            self.canonical_nodes(),
            self.num_clients,
        )
    }

    fn canonical_nodes(&self) -> String {
        let nodes: Vec<String> = self.nodes.iter().map(node).collect();
        format!("[{}]", nodes.join(","))
    }
}

impl Digests {
    pub(super) fn of(contract: &Contract) -> Digests {
        Digests { configuration: fnv_1a(&contract.canonical()), fabric: fnv_1a(&contract.canonical_nodes()) }
    }
}

// Hosts and names are made of characters that JSON writes as they are.
fn server(server: &ServerPlace) -> String {
    format!(r#"{{"host":"{}","port":{},"shard":{}}}"#, server.host, server.port, server.shard)
}

fn node(node: &Node) -> String {
    if node.mode == Mode::Shm {
        return format!(r#"{{"mode":"shm","node_id":{},"role":"{}"}}"#, node.node_id, node.role);
    }
    let mut parts = vec![format!(r#""device":"{}""#, node.device)];
    parts.extend(node.flow_label.map(|label| format!(r#""flow_label":{label}"#)));
    parts.push(format!(r#""gid_index":{}"#, node.gid_index.map_or("-1".to_owned(), |index| index.to_string())));
    parts.extend(node.gid_subnet.map(|subnet| format!(r#""gid_subnet":"{subnet}""#)));
    parts.extend(node.hop_limit.map(|hops| format!(r#""hop_limit":{hops}"#)));
    parts.push(format!(r#""mode":"{}""#, node.mode));
    parts.push(format!(r#""node_id":{}"#, node.node_id));
    parts.push(format!(r#""port":{}"#, node.port));
    parts.push(format!(r#""role":"{}""#, node.role));
    parts.extend(node.traffic_class.map(|class| format!(r#""traffic_class":{class}"#)));
    format!("{{{}}}", parts.join(","))
}
