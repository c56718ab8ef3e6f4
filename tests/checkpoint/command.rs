//! `reclane checkpoint` says what is there.

use crate::world::{Directory, Model, checkpoint, deployment};
use serde_json::Value;
use std::process::Command;

/// Runs the command; its answer and whether it was content.
fn ask(words: &[&str]) -> (Value, bool) {
    let output = Command::new(env!("CARGO_BIN_EXE_reclane")).arg("checkpoint").args(words).output().expect("it runs");
    let text = String::from_utf8(output.stdout).expect("UTF-8");
    (serde_json::from_str(&text).unwrap_or(Value::String(text)), output.status.success())
}

#[test]
fn the_command_lists_inspects_verifies_and_plans() {
    let directory = Directory::new();
    let deployment = deployment(2, &directory, &[]);
    let client = deployment.client();
    let model = Model::open(&client);
    for step in 0..3 {
        model.step(&client, step).expect("an UPDATE");
        checkpoint(&client, step == 2).expect("a checkpoint");
    }
    let at = directory.path();
    let (list, good) = ask(&["list", at, "--json"]);
    let epochs: Vec<u64> = list["checkpoints"]
        .as_array()
        .expect("a list")
        .iter()
        .map(|one| one["epoch"].as_u64().expect("a number"))
        .collect();
    assert!(good && epochs.starts_with(&[3, 2]), "{list}");
    let (shown, good) = ask(&["inspect", at, "--json"]);
    let files = shown["files"].as_array().expect("files");
    assert!(good && files.len() == 3, "{shown}");
    let kinds: Vec<&str> =
        files[0]["sections"].as_array().expect("sections").iter().filter_map(|one| one["kind"].as_str()).collect();
    assert!(["HOST", "TABLE", "TABLE_ROWS", "DEDUPE", "COUNTERS"].iter().all(|kind| kinds.contains(kind)), "{kinds:?}");
    let (plan, good) = ask(&["restore-plan", at, "--shards", "3", "--json"]);
    assert!(good && plan["restore"]["epoch"] == 3 && plan["windows_kept"] == false, "{plan}");
    assert_eq!(ask(&["verify", at, "--json"]).0["good"], true);
    let path = directory.catalog().directory_of(3).join("shard-0-of-2.rck");
    let mut bytes = std::fs::read(&path).expect("a container");
    bytes[5000] ^= 1;
    std::fs::write(&path, bytes).expect("a container");
    let (verdict, good) = ask(&["verify", at, "--json"]);
    assert!(!good && verdict["checkpoints"][0]["why"].as_str().expect("why").contains("checksum"), "{verdict}");
    let (plan, good) = ask(&["restore-plan", at, "--json"]);
    assert!(good && plan["restore"]["epoch"] == 2 && plan["passed_over"][0]["epoch"] == 3, "{plan}");
    let (text, _) = ask(&["restore-plan", at]);
    assert!(text.as_str().expect("text").contains("epoch 3 is passed over"), "{text}");
    assert!(!ask(&["inspect", at, "--epoch", "77"]).1);
}
