//! What holds between the parts of a contract.

use super::contract::{Contract, NodeRole};
use super::fields::Problems;
use crate::error::Status;
use std::collections::HashMap;

/// Checks all rules. Lists are still in the order of the file, so that paths are those of the file.
pub(super) fn check(contract: &Contract, problems: &mut Problems) {
    servers(contract, problems);
    nodes(contract, problems);
}

fn clash(problems: &mut Problems, path: impl Into<String>, message: impl Into<String>) {
    problems.add(Status::OptionConflict, path, message);
}

fn servers(contract: &Contract, problems: &mut Problems) {
    let (list, shards) = ("distributed_client.servers", contract.num_shards);
    if contract.servers.len() != shards as usize {
        let message = format!("there are {} entries, and num_shards is {shards}", contract.servers.len());
        clash(problems, list, message);
    }
    let (mut by_shard, mut by_place) = (HashMap::new(), HashMap::new());
    for (at, server) in contract.servers.iter().enumerate() {
        if server.shard >= shards {
            let message = format!("{} is not below num_shards, which is {shards}", server.shard);
            clash(problems, format!("{list}[{at}].shard"), message);
        }
        if let Some(first) = by_shard.insert(server.shard, at) {
            let message = format!("{} is the shard of {list}[{first}] already", server.shard);
            clash(problems, format!("{list}[{at}].shard"), message);
        }
        if let Some(first) = by_place.insert((server.host.as_str(), server.port), at) {
            let message = format!("{} on host {:?} is the place of {list}[{first}] already", server.port, server.host);
            clash(problems, format!("{list}[{at}].port"), message);
        }
    }
}

fn nodes(contract: &Contract, problems: &mut Problems) {
    let list = "rdma_deployment.nodes";
    let (shards, clients) = (contract.num_shards, contract.num_clients);
    let total = u64::from(shards) + u64::from(clients);
    if contract.nodes.len() as u64 != total {
        let message = format!(
            "there are {} entries, and num_shards {shards} + num_clients {clients} are {total}",
            contract.nodes.len()
        );
        clash(problems, list, message);
    }
    let mut by_id = HashMap::new();
    let first_mode = contract.nodes.first().map(|node| node.mode);
    for (at, node) in contract.nodes.iter().enumerate() {
        let id = node.node_id;
        if u64::from(id) >= total {
            let message = format!("{id} is not below num_shards {shards} + num_clients {clients} = {total}");
            clash(problems, format!("{list}[{at}].node_id"), message);
        } else {
            let role = if id < shards { NodeRole::Server } else { NodeRole::Client };
            if node.role != role {
                let message = format!(
                    "{} is not what node_id {id} says: ids below num_shards, {shards}, are servers, the others clients",
                    node.role
                );
                clash(problems, format!("{list}[{at}].role"), message);
            }
        }
        if let Some(first) = by_id.insert(id, at) {
            clash(problems, format!("{list}[{at}].node_id"), format!("{id} is the number of {list}[{first}] already"));
        }
        if let Some(mode) = first_mode.filter(|mode| *mode != node.mode) {
            let message = format!("{} cannot talk to {mode}, which {list}[0] has; all nodes have one mode", node.mode);
            clash(problems, format!("{list}[{at}].mode"), message);
        }
    }
}
