//! Each rule of the contract with a file that breaks it, seen from outside; and what a contract does to options.

use super::super::{Options, RdmaMode, Settings, Side, layout_difference};
use super::*;
use crate::options::FabricKind;
use proptest::prelude::*;
use serde_json::{Value, json};

/// Two shards and one client over RoCE v2.
fn sample() -> Value {
    let node = |id: u32, role: &str| {
        json!({
            "node_id": id, "role": role, "device": "mlx5_0", "port": 1, "gid_index": -1, "gid_subnet": "10.0.0.0/16",
            "mode": "rocev2", "hop_limit": 64, "traffic_class": 106, "flow_label": 7,
        })
    };
    json!({
        "distributed_client": {
            "num_shards": 2,
            "hash_method": "city_hash",
            "max_keys_per_request": 500,
            "servers": [
                { "host": "10.0.0.1", "port": 25000, "shard": 0 },
                { "host": "ps-1.example", "port": 25000, "shard": 1 },
            ],
        },
        "rdma_deployment": {
            "deployment_id": "ranker",
            "epoch": 3,
            "protocol_version": 1,
            "num_clients": 1,
            "nodes": [node(0, "server"), node(1, "server"), node(2, "client")],
        },
    })
}

fn contract(file: &Value) -> Contract {
    parse(&file.to_string()).unwrap_or_else(|problems| panic!("{problems:?}"))
}

/// The sample with one place changed; null takes it away.
fn with(pointer: &str, value: Value) -> Value {
    let mut file = sample();
    let (parent, name) = pointer.rsplit_once('/').unwrap();
    match file.pointer_mut(parent).unwrap() {
        Value::Object(fields) if value.is_null() => drop(fields.remove(name)),
        Value::Object(fields) => drop(fields.insert(name.to_owned(), value)),
        list => list[name.parse::<usize>().unwrap()] = value,
    }
    file
}

/// What is wrong with a file.
fn problems(file: &Value) -> Vec<Problem> {
    parse(&file.to_string()).expect_err("the file is taken")
}

/// Place, value put there (null: taken away), status, and what the problem says.
const BREACHES: &str = r#"
/distributed_client | null | Bounds | distributed_client: this section is missing
/rdma_deployment | null | Bounds | rdma_deployment: this section is missing
/distributed_client | [] | Type | distributed_client: this is a list; an object is expected
/rdma_deploiment | {} | Unknown | rdma_deploiment: this field is unknown; did you mean rdma_deployment?
/zebra | {} | Unknown | zebra: this field is unknown; known here are distributed_client, rdma_deployment
/distributed_client/num_shards | 0 | Bounds | .num_shards: 0 is not a whole number from 1 to 4096
/distributed_client/num_shards | -1 | Bounds | .num_shards: -1 is not a whole number from 1 to 4096
/distributed_client/num_shards | 2.0 | Bounds | .num_shards: 2.0 is not a whole number
/distributed_client/num_shards | "2" | Bounds | .num_shards: "2" is not a whole number
/distributed_client/num_shards | [2] | Type | .num_shards: a list is not a whole number
/distributed_client/num_shards | null | Bounds | .num_shards: this field is missing; it is a whole
/distributed_client/num_shard | 2 | Unknown | client.num_shard: this field is unknown; did you mean num_sh
/distributed_client/hash_method | "md5" | Bounds | .hash_method: "md5" is not one of city_hash, simple
/distributed_client/max_keys_per_request | 0 | Bounds | _request: 0 is not a whole number from 1 to 1048576
/distributed_client/servers | {} | Type | distributed_client.servers: an object is not a list
/distributed_client/servers/1/host | "" | Bounds | servers[1].host: "" is not a host name or address
/distributed_client/servers/1/host | "a b" | Bounds | servers[1].host: "a b" is not a host name
/distributed_client/servers/1/port | 0 | Bounds | servers[1].port: 0 is not a whole number from 1 to 65535
/distributed_client/servers/1/port | 65536 | Bounds | servers[1].port: 65536 is not a whole number from 1
/distributed_client/servers/1/shard | true | Type | servers[1].shard: a truth value is not a whole
/distributed_client/servers/1/shards | 1 | Unknown | servers[1].shards: this field is unknown; did you mean
/rdma_deployment/deployment_id | "" | Bounds | rdma_deployment.deployment_id: "" is not 1 to 63 letters
/rdma_deployment/deployment_id | "a/b" | Bounds | rdma_deployment.deployment_id: "a/b" is not 1 to 63
/rdma_deployment/epoch | 0 | Bounds | rdma_deployment.epoch: 0 is not a whole number from 1 to
/rdma_deployment/protocol_version | 2 | Bounds | rdma_deployment.protocol_version: 2 is not 1
/rdma_deployment/num_clients | 0 | Bounds | rdma_deployment.num_clients: 0 is not a whole number from 1
/rdma_deployment/control_plane | {"host": "h"} | Bounds | control_plane.port: this field is missing
/rdma_deployment/control_plane | {"host": "h", "port": 0} | Bounds | control_plane.port: 0 is not a whole
/rdma_deployment/control_plane | {"port": 1} | Bounds | control_plane.host: this field is missing; it is a host
/rdma_deployment/control_plane | {"host": "", "port": 1} | Bounds | control_plane.host: "" is not a host name or
/rdma_deployment/control_plane | {"host": "a/b", "port": 1} | Bounds | control_plane.host: "a/b" is not a host name
/rdma_deployment/control_plane | {"host": 7, "port": 1} | Bounds | control_plane.host: 7 is not a host name
/rdma_deployment/control_plane | "h" | Type | rdma_deployment.control_plane: this is a text; an object is
/rdma_deployment/nodes | {} | Type | rdma_deployment.nodes: an object is not a list
/rdma_deployment/nodes | "all" | Bounds | rdma_deployment.nodes: "all" is not a list
/rdma_deployment/nodes/2 | 2 | Type | rdma_deployment.nodes[2]: this is a number; an object is expected
/rdma_deployment/nodes/2/node_id | "2" | Bounds | rdma_deployment.nodes[2].node_id: "2" is not a whole
/rdma_deployment/nodes/2/role | "worker" | Bounds | nodes[2].role: "worker" is not one of server, client
/rdma_deployment/nodes/2/device | "" | Bounds | nodes[2].device: "" is not 1 to 63 letters
/rdma_deployment/nodes/2/device | "../x" | Bounds | nodes[2].device: "../x" is not 1 to 63 letters
/rdma_deployment/nodes/2/port | 0 | Bounds | nodes[2].port: 0 is not a whole number from 1 to 255
/rdma_deployment/nodes/2/port | 256 | Bounds | nodes[2].port: 256 is not a whole number from 1 to 255
/rdma_deployment/nodes/2/gid_index | -2 | Bounds | nodes[2].gid_index: -2 is not a whole number from 0 to
/rdma_deployment/nodes/2/gid_index | 65536 | Bounds | nodes[2].gid_index: 65536 is not a whole number
/rdma_deployment/nodes/2/gid_subnet | "10.0.0.0" | Bounds | gid_subnet: "10.0.0.0" is not a subnet
/rdma_deployment/nodes/2/mode | "roce" | Bounds | nodes[2].mode: "roce" is not one of shm, ib, rocev1, roce
/rdma_deployment/nodes/2/hop_limit | 0 | Bounds | nodes[2].hop_limit: 0 is not a whole number from 1 to 255
/rdma_deployment/nodes/2/hop_limit | null | Bounds | nodes[2].hop_limit: this field is missing
/rdma_deployment/nodes/2/traffic_class | 256 | Bounds | traffic_class: 256 is not a whole number from 0
/rdma_deployment/nodes/2/traffic_class | null | Bounds | nodes[2].traffic_class: this field is missing
/rdma_deployment/nodes/2/flow_label | 1048576 | Bounds | flow_label: 1048576 is not a whole number from 0
/rdma_deployment/nodes/2/flow_label | null | Bounds | nodes[2].flow_label: this field is missing
/rdma_deployment/nodes/2/gid_indx | 1 | Unknown | nodes[2].gid_indx: this field is unknown; did you mean gid
"#;

/// The one problem of the sample with a change that says this.
fn problem_with(pointer: &str, value: &str, expected: &str) -> (Problem, usize) {
    let found = problems(&with(pointer, serde_json::from_str(value).unwrap()));
    let problem = found.iter().find(|problem| problem.to_string().contains(expected));
    let problem = problem.unwrap_or_else(|| panic!("{pointer}={value}: {expected:?} is not in {found:?}"));
    (problem.clone(), found.len())
}

#[test]
fn every_field_has_its_bounds_and_a_breach_names_path_value_and_bound() {
    let mut count = 0;
    for line in BREACHES.trim().lines() {
        let [pointer, value, status, expected] = line.splitn(4, " | ").collect::<Vec<_>>()[..] else {
            panic!("{line}");
        };
        let status = match status {
            "Bounds" => Status::OptionBounds,
            "Type" => Status::OptionType,
            _ => Status::UnknownOption,
        };
        let (problem, problems) = problem_with(pointer, value, expected);
        assert_eq!((problem.status, problems), (status, 1), "{line}: {problem}");
        count += 1;
    }
    assert_eq!(count, 53);
}

/// Fields of the sample that may be left out.
const OPTIONAL: &[&str] = &["gid_subnet"];

#[test]
fn every_field_that_is_needed_is_named_when_it_is_missing() {
    let mut found = Vec::new();
    places(&sample(), "", &mut found);
    // Places in lists are no fields: what is missing there is counted by the rules.
    let is_field = |pointer: &&String| !pointer.ends_with(|last: char| last.is_ascii_digit());
    let mut needed = Vec::new();
    for pointer in found.iter().filter(is_field) {
        let name = pointer.rsplit('/').next().unwrap();
        if OPTIONAL.contains(&name) {
            contract(&with(pointer, Value::Null));
            continue;
        }
        // `a/1/b` is `a[1].b` in words.
        let place = pointer[1..].split('/').fold(String::new(), |path, part| match part.parse::<u32>() {
            Ok(at) => format!("{path}[{at}]"),
            Err(_) if path.is_empty() => part.to_owned(),
            Err(_) => format!("{path}.{part}"),
        });
        let found = problems(&with(pointer, Value::Null));
        let [problem] = &found[..] else { panic!("{pointer}: {found:?}") };
        assert_eq!((problem.path.as_str(), problem.status), (place.as_str(), Status::OptionBounds), "{problem}");
        assert!(problem.message.contains(" is missing"), "{problem}");
        needed.push(name);
    }
    needed.sort_unstable();
    needed.dedup();
    let expected = "deployment_id device distributed_client epoch flow_label gid_index hash_method hop_limit host \
                    max_keys_per_request mode node_id nodes num_clients num_shards port protocol_version \
                    rdma_deployment role servers shard traffic_class";
    assert_eq!(needed.join(" "), expected);
}

/// Place, value put there, and what the problem says.
const CONTRADICTIONS: &str = r#"
/distributed_client/num_shards | 3 | distributed_client.servers: there are 2 entries, and num_shards is 3
/distributed_client/servers/1/shard | 2 | servers[1].shard: 2 is not below num_shards, which is 2
/distributed_client/servers/1/shard | 0 | servers[1].shard: 0 is the shard of distributed_client.servers[0]
/distributed_client/servers/1/host | "10.0.0.1" | servers[1].port: 25000 on host "10.0.0.1" is the place
/rdma_deployment/num_clients | 2 | nodes: there are 3 entries, and num_shards 2 + num_clients 2 are 4
/rdma_deployment/nodes/2/node_id | 3 | nodes[2].node_id: 3 is not below num_shards 2 + num_clients 1 = 3
/rdma_deployment/nodes/2/node_id | 1 | nodes[2].node_id: 1 is the number of rdma_deployment.nodes[1]
/rdma_deployment/nodes/2/role | "server" | nodes[2].role: server is not what node_id 2 says
/rdma_deployment/nodes/1/role | "client" | nodes[1].role: client is not what node_id 1 says
/rdma_deployment/nodes/2/mode | "rocev1" | nodes[2].mode: rocev1 cannot talk to rocev2
/rdma_deployment/nodes/2/mode | "shm" | nodes[2].device: mode shm has no such field
/rdma_deployment/nodes/2/gid_index | 3 | nodes[2].gid_subnet: "10.0.0.0/16" is looked for only when gid
"#;

#[test]
fn parts_that_contradict_each_other_are_named_with_both_values() {
    for line in CONTRADICTIONS.trim().lines() {
        let [pointer, value, expected] = line.splitn(3, " | ").collect::<Vec<_>>()[..] else { panic!("{line}") };
        assert_eq!(problem_with(pointer, value, expected).0.status, Status::OptionConflict, "{line}");
    }
}

#[test]
fn all_that_is_wrong_is_said_up_to_a_bound() {
    let mut file = with("/distributed_client/num_shards", json!(0));
    file["rdma_deployment"]["epoch"] = json!(0);
    file["rdma_deployment"]["nodes"][0]["port"] = json!(0);
    file["rdma_deployment"]["nodes"][1]["port"] = json!(0);
    assert_eq!(problems(&file).len(), 4);
    file["rdma_deployment"]["nodes"] = json!(vec![json!({}); 1000]);
    assert_eq!(problems(&file).len(), Problem::SHOWN_MAX);
    assert!(problems(&json!(3))[0].message.contains("this is a number; an object is expected"));
    assert!(parse("{").unwrap_err()[0].to_string().starts_with("line 1, column 2: "));
}

#[test]
fn sections_of_the_host_program_are_not_looked_at() {
    let mut file = sample();
    file["cache_ps"] = json!({ "ps_type": "RDMA", "anything": [1, { "x": null }] });
    file["client"] = json!("whatever");
    assert_eq!(contract(&file), contract(&sample()));
}

#[test]
fn the_canonical_form_does_not_see_order_spaces_or_foreign_sections() {
    let ours = contract(&sample());
    let mut file = sample();
    file["distributed_client"]["servers"].as_array_mut().unwrap().reverse();
    file["rdma_deployment"]["nodes"].as_array_mut().unwrap().rotate_left(1);
    file["client"] = json!({});
    let other = parse(&format!("{file:#}")).unwrap();
    assert_eq!((other.canonical(), other.digests()), (ours.canonical(), ours.digests()));
    // It is JSON, and a contract with itself as canonical form.
    let again = parse(&ours.canonical()).unwrap();
    assert_eq!((again.canonical(), &again), (ours.canonical(), &ours));
    let value: Value = serde_json::from_str(&ours.canonical()).unwrap();
    assert_eq!(value.to_string(), ours.canonical(), "names are in alphabetical order");
}

#[test]
fn digests_cover_every_field_and_the_fabric_digest_only_nodes() {
    let ours = contract(&sample()).digests();
    let shown = ours.to_string();
    assert_eq!(shown.len(), "configuration 0123456789abcdef fabric 0123456789abcdef".len());
    for (pointer, value) in [
        ("/distributed_client/hash_method", json!("simple_mod")),
        ("/distributed_client/max_keys_per_request", json!(300)),
        ("/distributed_client/servers/1/host", json!("ps-2.example")),
        ("/distributed_client/servers/1/port", json!(25001)),
        ("/rdma_deployment/deployment_id", json!("other")),
        ("/rdma_deployment/epoch", json!(4)),
        ("/rdma_deployment/control_plane", json!({ "host": "h", "port": 1 })),
    ] {
        let other = contract(&with(pointer, value)).digests();
        assert!(other.configuration != ours.configuration && other.fabric == ours.fabric, "{pointer}");
    }
    for (field, value) in [
        ("device", json!("mlx5_1")),
        ("port", json!(2)),
        ("gid_subnet", json!("10.1.0.0/16")),
        ("gid_subnet", json!(null)),
        ("hop_limit", json!(1)),
        ("traffic_class", json!(0)),
        ("flow_label", json!(0)),
    ] {
        let other = contract(&with(&format!("/rdma_deployment/nodes/1/{field}"), value)).digests();
        assert!(other.configuration != ours.configuration && other.fabric != ours.fabric, "{field}");
    }
}

/// Changes that must come together, or the file contradicts itself.
#[test]
fn digests_cover_the_count_of_clients_the_mode_and_the_place_of_the_address() {
    let ours = contract(&sample()).digests();
    let changed = |what: &str, change: &dyn Fn(&mut Value)| {
        let mut file = sample();
        change(&mut file["rdma_deployment"]);
        let other = contract(&file).digests();
        assert!(other.configuration != ours.configuration && other.fabric != ours.fabric, "{what}");
    };
    changed("one client more", &|deployment| {
        let mut node = deployment["nodes"][2].clone();
        node["node_id"] = json!(3);
        deployment["nodes"].as_array_mut().unwrap().push(node);
        deployment["num_clients"] = json!(2);
    });
    changed("another mode", &|deployment| {
        for node in deployment["nodes"].as_array_mut().unwrap() {
            node["mode"] = json!("rocev1");
        }
    });
    // Without a subnet, which goes with an address that is found alone.
    let at = |index: i32| {
        let mut file = with("/rdma_deployment/nodes/1/gid_subnet", Value::Null);
        file["rdma_deployment"]["nodes"][1]["gid_index"] = json!(index);
        contract(&file).digests()
    };
    let places = [at(-1), at(0), at(3)];
    for (one, other) in [(0, 1), (0, 2), (1, 2)] {
        let (one, other) = (places[one], places[other]);
        assert!(one.configuration != other.configuration && one.fabric != other.fabric, "{places:?}");
    }
    // The number of clients stands in the digest for itself, not only by the nodes.
    let mut counted = contract(&sample());
    counted.num_clients = 2;
    assert_ne!(Digests::of(&counted).configuration, ours.configuration);
    assert_eq!(Digests::of(&counted).fabric, ours.fabric);
}

fn settings(pairs: &[(&str, &str)], file: &Value, side: Side) -> Result<Settings> {
    let mut options = Options::new();
    for (name, value) in pairs {
        options.set(name, value).unwrap();
    }
    options.settings_under(&contract(file), "deployment file \"d.json\"", side)
}

#[test]
fn a_contract_feeds_the_options() {
    let server = settings(&[("shard-id", "1")], &sample(), Side::Server).unwrap();
    assert_eq!((server.num_shards, server.num_client_processes, server.max_kv_num_per_request), (2, 1, 500));
    assert_eq!((server.deployment_id.as_str(), server.deployment_epoch), ("ranker", 3));
    assert_eq!((server.fabric, server.rdma_mode), (FabricKind::Verbs, RdmaMode::RoceV2));
    assert_eq!((server.device.as_str(), server.device_port, server.gid_index), ("mlx5_0", 1, None));
    assert_eq!((server.gid_subnet.as_str(), server.hop_limit), ("10.0.0.0/16", 64));
    assert_eq!((server.traffic_class, server.flow_label), (106, 7));
    assert_eq!((server.control_plane_host.as_str(), server.control_plane_port), ("10.0.0.1", 25_100));
    assert_eq!(server.contract, Some(contract(&sample()).digests()));
    let plane = with("/rdma_deployment/control_plane", json!({ "host": "cp", "port": 4000 }));
    let client = settings(&[("global-id", "2")], &plane, Side::Client).unwrap();
    assert_eq!((client.client_id, client.control_plane_host.as_str()), (Some(0), "cp"));
    assert_eq!(client.control_plane_port, 4000);
}

#[test]
fn what_is_set_alike_is_fine_and_a_host_may_have_several_names() {
    let pairs = [("num-shards", "2"), ("rdma-control-plane-host", "other-name"), ("rdma-device", "mlx5_0")];
    let client = settings(&pairs, &sample(), Side::Client).unwrap();
    assert_eq!(client.control_plane_host, "other-name");
}

#[test]
fn an_option_that_contradicts_the_file_is_refused_with_both_values() {
    for (name, value, path, theirs) in [
        ("num-shards", "3", "distributed_client.num_shards", "2"),
        ("hash-method", "simple_mod", "distributed_client.hash_method", "city_hash"),
        ("max-keys-per-request", "300", "distributed_client.max_keys_per_request", "500"),
        ("deployment-id", "other", "rdma_deployment.deployment_id", "ranker"),
        ("deployment-epoch", "2", "rdma_deployment.epoch", "3"),
        ("num-client-processes", "9", "rdma_deployment.num_clients", "1"),
        ("fabric", "shm", "rdma_deployment.nodes, their mode", "verbs"),
        ("rdma-mode", "ib", "rdma_deployment.nodes, their mode", "rocev2"),
        ("rdma-device", "mlx5_1", "rdma_deployment.nodes, device of node 2", "mlx5_0"),
        ("rdma-port", "2", "rdma_deployment.nodes, port of node 2", "1"),
        ("rdma-gid-index", "3", "rdma_deployment.nodes, gid_index of node 2", "auto"),
        ("rdma-gid-subnet", "10.9.0.0/16", "rdma_deployment.nodes, gid_subnet of node 2", "10.0.0.0/16"),
        ("rdma-hop-limit", "3", "rdma_deployment.nodes, hop_limit of node 2", "64"),
        ("rdma-traffic-class", "3", "rdma_deployment.nodes, traffic_class of node 2", "106"),
        ("rdma-flow-label", "3", "rdma_deployment.nodes, flow_label of node 2", "7"),
    ] {
        let error = settings(&[(name, value)], &sample(), Side::Client).unwrap_err();
        assert_eq!(error.status, Status::OptionConflict);
        let expected = format!("= {value} (flag --{name}), but {theirs} (deployment file \"d.json\", {path})");
        assert!(error.message.contains(&expected), "{expected:?} is not in: {error}");
    }
}

#[test]
fn a_process_outside_the_file_is_refused_and_one_without_a_number_only_when_it_matters() {
    let refused = |pairs: &[(&str, &str)], file: &Value, side| settings(pairs, file, side).unwrap_err().message;
    let message = refused(&[("client-id", "5")], &sample(), Side::Client);
    assert!(message.contains("client-id = 5 (flag --client-id)") && message.contains("num_clients = 1"), "{message}");
    let message = refused(&[("shard-id", "7")], &sample(), Side::Server);
    assert!(message.contains("shard-id = 7") && message.contains("num_shards = 2"), "{message}");
    let mut two = with("/rdma_deployment/num_clients", json!(2));
    let mut fourth = two["rdma_deployment"]["nodes"][2].clone();
    fourth["node_id"] = json!(3);
    two["rdma_deployment"]["nodes"].as_array_mut().unwrap().push(fourth);
    assert_eq!(settings(&[], &two, Side::Client).unwrap().device, "mlx5_0");
    two["rdma_deployment"]["nodes"][3]["device"] = json!("mlx5_1");
    let message = refused(&[], &two, Side::Client);
    assert!(message.contains("client-id = auto") && message.contains("nodes 2 and 3"), "{message}");
    assert_eq!(settings(&[("client-id", "1")], &two, Side::Client).unwrap().device, "mlx5_1");
}

#[test]
fn the_layout_names_the_file_when_files_or_their_use_differ() {
    let ours = settings(&[], &sample(), Side::Client).unwrap();
    let changed = with("/rdma_deployment/nodes/0/device", json!("mlx5_9"));
    let theirs = settings(&[], &changed, Side::Client).unwrap();
    let (name, a, b) = layout_difference(&ours.layout(), &theirs.layout()).unwrap();
    assert_eq!(name, "deployment-file");
    assert_eq!((a, b), (contract(&sample()).digests().to_string(), contract(&changed).digests().to_string()));
    assert_ne!(ours.digest(), theirs.digest());
    let without = Settings { contract: None, ..ours.clone() };
    let difference = layout_difference(&ours.layout(), &without.layout()).unwrap();
    assert_eq!((difference.0.as_str(), difference.2.as_str()), ("deployment-file", "(absent)"));
    let slots = settings(&[("slots-per-qp", "2")], &sample(), Side::Client).unwrap();
    assert_ne!(ours.digest(), slots.digest());
}

#[test]
fn a_deployment_of_one_host_needs_no_ports() {
    let mut file = sample();
    for (id, node) in file["rdma_deployment"]["nodes"].as_array_mut().unwrap().iter_mut().enumerate() {
        *node = json!({ "node_id": id, "role": if id < 2 { "server" } else { "client" }, "mode": "shm" });
    }
    let settings = settings(&[], &file, Side::Client).unwrap();
    assert_eq!((settings.fabric, settings.device.as_str()), (FabricKind::Shm, ""));
    let again = contract(&file);
    assert_eq!(parse(&again.canonical()).unwrap(), again);
}

/// A file of its own for one test, gone when dropped.
struct File(std::path::PathBuf);

impl File {
    fn new(name: &str, text: &[u8]) -> File {
        let path = std::env::temp_dir().join(format!("reclane-deployment-{}-{name}.json", std::process::id()));
        std::fs::write(&path, text).unwrap();
        File(path)
    }

    fn path(&self) -> &str {
        self.0.to_str().unwrap()
    }
}

impl Drop for File {
    fn drop(&mut self) {
        let _ = std::fs::remove_file(&self.0);
    }
}

#[test]
fn both_entries_take_a_file_by_its_name() {
    let file = File::new("entries", sample().to_string().as_bytes());
    let mut options = Options::new();
    options.set("deployment-file", file.path()).unwrap();
    assert_eq!(options.settings(Side::Server).unwrap().deployment_id, "ranker");
    let environment = Options::from_variables([("RECLANE_DEPLOYMENT_FILE", file.path()), ("WORLD_SIZE", "1")]).unwrap();
    assert_eq!(environment.settings(Side::Client).unwrap().num_shards, 2);
    let contradiction = Options::from_variables([("RECLANE_DEPLOYMENT_FILE", file.path()), ("WORLD_SIZE", "4")]);
    let error = contradiction.unwrap().settings(Side::Client).unwrap_err();
    assert!(error.message.contains("num-client-processes = 4 (environment variable WORLD_SIZE), but 1"), "{error}");
}

#[test]
fn a_file_that_cannot_be_read_is_named() {
    let refused = |path: &str| {
        let mut options = Options::new();
        options.set("deployment-file", path).unwrap();
        let error = options.settings(Side::Both).unwrap_err();
        assert!(error.message.contains(path), "{error}");
        error
    };
    let missing = refused("nowhere/deployment.json");
    assert_eq!((missing.status, missing.os_error), (Status::OsError, libc::ENOENT));
    assert_eq!(refused("/dev/null").status, Status::InvalidArgument);
    let file = File::new("utf8", b"{\"a\": \"\xff\"}");
    let error = refused(file.path());
    assert_eq!(error.status, Status::NotUtf8);
    assert!(error.message.contains("at byte 7"), "{error}");
    let file = File::new("two", b"{\"distributed_client\": 1, \"rdma_deployment\": 2}");
    let error = refused(file.path());
    assert_eq!(error.status, Status::OptionType);
    assert!(
        error.message.contains("distributed_client: this is a number") && error.message.contains("and 1 more"),
        "{error}"
    );
}

fn any_json() -> impl Strategy<Value = Value> {
    prop_oneof![
        Just(Value::Null),
        any::<bool>().prop_map(Value::from),
        any::<i64>().prop_map(Value::from),
        (-2_i64..5).prop_map(Value::from),
        any::<f64>().prop_map(Value::from),
        "\\PC{0,12}".prop_map(Value::from),
        Just(json!([])),
        Just(json!({})),
        Just(json!([[{ "a": 1 }]])),
    ]
}

/// Pointers to every place of a document.
fn places(value: &Value, at: &str, found: &mut Vec<String>) {
    let children: Vec<(String, &Value)> = match value {
        Value::Object(fields) => fields.iter().map(|(name, value)| (name.clone(), value)).collect(),
        Value::Array(items) => items.iter().enumerate().map(|(at, value)| (at.to_string(), value)).collect(),
        _ => Vec::new(),
    };
    for (name, child) in children {
        let pointer = format!("{at}/{name}");
        places(child, &pointer, found);
        found.push(pointer);
    }
}

proptest! {
    #[test]
    fn any_change_is_taken_as_a_contract_or_refused_with_a_reason(
        changes in proptest::collection::vec((any::<prop::sample::Index>(), any_json()), 1..4),
    ) {
        let mut file = sample();
        for (at, value) in changes {
            let mut found = Vec::new();
            places(&file, "", &mut found);
            if !found.is_empty() {
                *file.pointer_mut(&found[at.index(found.len())]).unwrap() = value;
            }
        }
        match parse(&file.to_string()) {
            Ok(contract) => {
                prop_assert_eq!(parse(&contract.canonical()), Ok(contract.clone()));
                prop_assert_eq!(contract.nodes.len() as u64, u64::from(contract.num_shards + contract.num_clients));
            }
            Err(problems) => {
                prop_assert!((1..=Problem::SHOWN_MAX).contains(&problems.len()));
                for problem in problems {
                    prop_assert!(!problem.message.is_empty() && problem.to_string().len() < 1000, "{}", problem);
                    prop_assert!(!problem.to_string().chars().any(char::is_control), "{}", problem);
                }
            }
        }
    }

    #[test]
    fn a_cut_or_bent_file_is_refused(at in any::<prop::sample::Index>(), byte in any::<u8>()) {
        let text = sample().to_string();
        let cut = &text[..at.index(text.len())];
        prop_assert!(parse(cut).is_err());
        let mut bent = text.clone().into_bytes();
        bent[at.index(text.len())] = byte;
        if let Some(Err(problems)) = String::from_utf8(bent).ok().map(|bent| parse(&bent)) {
            prop_assert!(!problems.is_empty());
        }
    }
}
