//! Who may not take part, and that the refusal says why.

use crate::rows::Table;
use crate::support::{Changes, PATIENCE, Process, open_client, options, settings, start_server, with};
use reclane::engine::{Client, Server};
use reclane::error::{Error, Status};
use reclane::options::Side;

/// Shard 0 of this process, and the options of everybody else.
fn shard_0(shards: u32) -> (Server, Changes) {
    let changes = options(shards, &[("deployment-epoch", "7"), ("deployment-id", "orchard")]);
    let server = start_server(&changes).expect("a server");
    let port = server.control_plane_port().expect("shard 0 hosts it").to_string();
    (server, with(&changes, "rdma-control-plane-port", &port))
}

fn client_error(changes: &Changes) -> Box<Error> {
    Client::open(&settings(Side::Client, changes)).expect_err("refused")
}

fn assert_says(error: &Error, status: Status, words: &[&str]) {
    assert_eq!(error.status, status, "{error}");
    for word in words {
        assert!(error.message.contains(word), "'{word}' is missing in: {error}");
    }
}

#[test]
fn a_second_server_of_a_shard_is_refused_while_the_first_serves() {
    let (_zero, changes) = shard_0(2);
    let mine = with(&changes, "shard-id", "1");
    let _one = start_server(&mine).expect("shard 1");
    let client = open_client(&changes);
    let table = Table::open(&client, "t", 16);
    table.fill(&client);
    let error = start_server(&mine).expect_err("taken");
    assert_says(&error, Status::DuplicateId, &["shard 1", &std::process::id().to_string()]);
    let mut other = Process::start("server that is refused", &mine);
    let said = other.hear();
    assert!(said.starts_with(&format!("{}", Status::DuplicateId as i32)) && said.contains("shard 1"), "{said}");
    table.versions(&[1, 2, 3], &table.get(&client, &[1, 2, 3]).expect("the first one serves"));
}

#[test]
fn a_client_number_in_use_is_refused_and_names_the_holder() {
    let (_zero, changes) = shard_0(1);
    let mine = with(&changes, "client-id", "3");
    let client = open_client(&mine);
    assert_says(&client_error(&mine), Status::DuplicateId, &["client 3", &std::process::id().to_string()]);
    client.shutdown(PATIENCE).expect("nothing under way");
    assert_eq!(open_client(&mine).client_id(), 3);
}

#[test]
fn members_of_other_deployments_and_epochs_are_refused() {
    let (_zero, changes) = shard_0(2);
    for (name, value, ours) in
        [("deployment-id", "quarry", "orchard"), ("deployment-epoch", "6", "7"), ("deployment-epoch", "8", "7")]
    {
        let other = with(&changes, name, value);
        assert_says(&client_error(&other), Status::StaleEpoch, &[value, ours]);
        let server = start_server(&with(&other, "shard-id", "1")).expect_err("refused");
        assert_says(&server, Status::StaleEpoch, &[value, ours]);
    }
    let error = client_error(&with(&changes, "rdma-namespace", "elsewhere"));
    assert!(matches!(error.status, Status::DeploymentMismatch | Status::StaleEpoch), "{error}");
    assert_says(&error, error.status, &["namespace", "elsewhere", "kills-"]);
}

#[test]
fn every_difference_of_layout_is_refused_with_both_values() {
    let (_zero, changes) = shard_0(1);
    for (name, theirs, ours) in [
        ("slots-per-qp", "5", "2"),
        ("qps-per-client-per-shard", "7", "3"),
        ("rdma-rc-request-slot-bytes", "32768", "65536"),
        ("rdma-rc-response-slot-bytes", "32768", "65536"),
        ("integrity", "crc32c", "off"),
        ("commit-scheme", "imm", "auto"),
        ("hash-method", "simple_mod", "city_hash"),
        ("value-size", "64", "128"),
        ("max-kv-num-per-request", "11", "300"),
        ("num-server-processes", "2", "1"),
    ] {
        let error = client_error(&with(&changes, name, theirs));
        // Its short name.
        let name = if name == "num-server-processes" { "num-shards" } else { name };
        assert_says(&error, Status::DeploymentMismatch, &[name, theirs, ours]);
    }
    drop(open_client(&changes));
}

#[test]
fn a_missing_shard_is_named_within_the_deadline() {
    let (_zero, changes) = shard_0(3);
    let _one = start_server(&with(&changes, "shard-id", "1")).expect("shard 1");
    let error = client_error(&with(&changes, "rdma-control-plane-timeout-ms", "300"));
    assert_says(&error, Status::StartupTimeout, &["shard 2"]);
    assert!(!error.message.contains("shard 1") && !error.message.contains("shard 0"), "{error}");
}

#[test]
fn without_a_control_plane_the_address_is_named() {
    // A port that nobody listens on: it was given out a moment ago and is closed.
    let listener = std::net::TcpListener::bind("127.0.0.1:0").expect("a port");
    let port = listener.local_addr().expect("an address").port().to_string();
    let taken = with(&options(1, &[]), "rdma-control-plane-port", &port);
    let error = start_server(&taken).expect_err("the port is taken");
    assert_says(&error, error.status, &["127.0.0.1", &port]);
    drop(listener);
    let hasty = with(&taken, "rdma-control-plane-timeout-ms", "200");
    assert_says(&client_error(&hasty), Status::ControlPlaneUnreachable, &["127.0.0.1", &port]);
    let server = start_server(&with(&with(&hasty, "num-server-processes", "2"), "shard-id", "1")).expect_err("alone");
    assert_says(&server, Status::ControlPlaneUnreachable, &["127.0.0.1", &port]);
}
