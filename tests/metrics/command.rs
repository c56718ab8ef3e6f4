//! `reclane status` and `reclane top` on a deployment of processes.

use crate::Folder;
use crate::support::{Deployment, Process, until};
use serde_json::Value;
use std::process::{Command, Output};

/// The options by which the program finds the deployment.
fn flags(deployment: &Deployment) -> Vec<String> {
    let wanted = ["rdma-namespace", "rdma-control-plane-port", "metrics-directory", "control-plane-token-file"];
    let all = deployment.changes.iter().filter(|(name, _)| wanted.contains(&name.as_str()));
    all.map(|(name, value)| format!("--{name}={value}")).collect()
}

fn reclane(words: &[&str], flags: &[String]) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_reclane"));
    command.args(words).arg("--").args(flags).output().expect("the program")
}

fn status(deployment: &Deployment) -> (Value, i32) {
    let output = reclane(&["status", "--json"], &flags(deployment));
    let text = String::from_utf8_lossy(&output.stdout);
    let value = serde_json::from_str(&text).unwrap_or_else(|error| panic!("{error}: {text} {output:?}"));
    (value, output.status.code().expect("it ended by itself"))
}

#[test]
fn status_shows_a_deployment_without_any_option_of_metrics() {
    let deployment = Deployment::start(2, &[]);
    let mut client = Process::start("client", &deployment.changes);
    let id: u64 = client.hear().parse().expect("a number");
    client.ask("put 2 100");
    // The first heartbeats may be on their way, and poll threads tell what they did before they sleep.
    let mut seen = Value::Null;
    until(
        "all well",
        || {
            let (value, code) = status(&deployment);
            let puts = |shard: usize| value["shards"][shard]["figures"]["puts"].as_u64();
            let all = code == 0 && puts(0) > Some(0) && puts(1) > Some(0);
            seen = value;
            all
        },
        |all| *all,
    );
    assert_eq!((&seen["num_shards"], &seen["well"]), (&2.into(), &true.into()));
    for shard in 0..2 {
        let one = &seen["shards"][shard];
        assert_eq!((&one["shard"], &one["state"], &one["health"]), (&shard.into(), &"ready".into(), &"serving".into()));
        assert_eq!(one["pid"], deployment.servers[shard].pid());
        assert!(one["figures"]["lanes"] == 3, "{one}");
    }
    let one = &seen["clients"][0];
    assert_eq!((&one["client"], &one["answers"]), (&id.into(), &true.into()));
    assert_eq!((&one["figures"]["lanes_active"], &one["figures"]["slots_held"]), (&6.into(), &0.into()));
    let told: Vec<&str> =
        seen["events"].as_array().expect("events").iter().filter_map(|e| e["what"].as_str()).collect();
    assert!(told.contains(&"joined") && told.contains(&"ready"), "{told:?}");

    let text = String::from_utf8(reclane(&["status"], &flags(&deployment)).stdout).expect("text");
    assert!(text.contains("2 of 2 shards  1 clients") && text.contains("SHARD") && text.contains("CLIENT"), "{text}");
}

#[test]
fn top_writes_plain_frames_and_shows_a_death_as_it_happens() {
    let mut deployment = Deployment::start(2, &[("metrics", "true")]);
    let mut client = Process::start("client", &deployment.changes);
    client.hear();
    let frames = |deployment: &Deployment| {
        let output = reclane(&["top", "--frames", "2", "--interval-ms", "100"], &flags(deployment));
        assert!(output.status.success(), "{output:?}");
        String::from_utf8(output.stdout).expect("text")
    };
    let text = frames(&deployment);
    assert_eq!(text.matches("2 of 2 shards").count(), 2, "{text}");
    assert!(text.contains("GET/s") && !text.contains('\x1b'), "{text}");
    deployment.servers[1].kill();
    // What the control plane saw, and what the client says of its lanes.
    let words = ["1 of 2 shards", "shard 1 died", "warn lane_dirty shard=1", "lanes=0-2 (3 times)"];
    until("its end", || frames(&deployment), |text| words.iter().all(|word| text.contains(word)));
    let (seen, _) = status(&deployment);
    let said = |event: &&Value| event["source"] == "member" && event["who"]["client"].is_u64();
    let events = seen["events"].as_array().expect("events");
    let of_client: Vec<&Value> = events.iter().filter(said).collect();
    assert!(of_client.iter().any(|event| event["what"].as_str().is_some_and(|what| what.contains("lane_dirty"))));
    let ages: Vec<u64> = events.iter().filter_map(|event| event["age_ms"].as_u64()).collect();
    assert!(ages.is_sorted_by(|a, b| a >= b), "the oldest first: {ages:?}");
}

#[test]
fn a_wedged_member_is_read_from_its_file_and_a_dead_one_too() {
    let folder = Folder::new();
    let mut deployment = Deployment::start(2, &[("metrics-directory", &folder.text())]);
    let mut client = Process::start("client", &deployment.changes);
    client.hear();
    client.ask("get 17 1");
    client.freeze();
    let (seen, code) = status(&deployment);
    let one = &seen["clients"][0];
    assert_eq!((code, &one["answers"], &one["process"]), (1, &false.into(), &"stopped".into()), "{seen}");
    assert_eq!(one["figures"]["gets"], 17);
    client.kill();
    deployment.servers[1].kill();
    let mut seen = Value::Null;
    until(
        "both ends",
        || {
            seen = status(&deployment).0;
            (seen["shards"][1]["member"].as_bool(), seen["clients"][0]["member"].as_bool())
        },
        |members| *members == (Some(false), Some(false)),
    );
    assert_eq!((&seen["clients"][0]["process"], &seen["clients"][0]["figures"]["gets"]), (&"dead".into(), &17.into()));
    assert_eq!((&seen["shards"][1]["state"], &seen["shards"][1]["process"]), (&"gone".into(), &"dead".into()));
    // Without a control plane there are still the files.
    deployment.servers[0].kill();
    let (seen, code) = status(&deployment);
    assert_eq!((code, &seen["control_plane"]["reached"]), (1, &false.into()));
    assert_eq!(seen["shards"].as_array().map(Vec::len), Some(2), "{seen}");
    let cleaned = reclane(&["status", "--clean", "--json"], &flags(&deployment));
    let cleaned: Value = serde_json::from_slice(&cleaned.stdout).expect("JSON");
    assert_eq!(cleaned["removed"].as_array().map(Vec::len), Some(3), "{cleaned}");
    assert_eq!(status(&deployment).1, 2);
}

#[test]
fn who_looks_needs_the_deployments_name_and_token() {
    let folder = Folder::new();
    let token = folder.0.join("token");
    std::fs::write(&token, "0123456789abcdefghij").expect("a file");
    let deployment = Deployment::start(1, &[("control-plane-token-file", token.to_str().expect("a path"))]);
    until("a heartbeat", || status(&deployment).1, |code| *code == 0);
    let without: Vec<String> = flags(&deployment).into_iter().filter(|flag| !flag.contains("token")).collect();
    let refused = reclane(&["status", "--json"], &without);
    let refused: Value = serde_json::from_slice(&refused.stdout).expect("JSON");
    let why = refused["control_plane"]["error"].as_str().expect("an error");
    assert!(why.contains("token") && refused["shards"].as_array().is_some_and(Vec::is_empty), "{refused}");
    let mut elsewhere = flags(&deployment);
    elsewhere.push("--deployment-id=another".to_owned());
    let refused: Value = serde_json::from_slice(&reclane(&["status", "--json"], &elsewhere).stdout).expect("JSON");
    assert!(refused["control_plane"]["error"].as_str().is_some_and(|why| why.contains("another")), "{refused}");
}
