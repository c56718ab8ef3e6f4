//! `reclane deployment check` from outside, members that meet by a file and a token, and docs/deployment.md held to the
//! code.
#![cfg(feature = "command")]

use reclane::engine::{Client, Server, builtin_store};
use reclane::error::Status;
use reclane::options::{Options, Settings, Side};
use reclane::sync::Arc;
use serde_json::Value;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

/// A file of its own for one test; gone when dropped.
struct File(PathBuf);

impl File {
    fn new(name: &str, text: &str) -> File {
        let path = std::env::temp_dir().join(format!("reclane-check-{}-{name}.json", std::process::id()));
        fs::write(&path, text).unwrap();
        File(path)
    }
}

impl Drop for File {
    fn drop(&mut self) {
        let _ = fs::remove_file(&self.0);
    }
}

fn check(file: &Path, more: &[&str]) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_reclane"));
    command.args(["deployment", "check"]).arg(file).args(more).output().unwrap()
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

fn root() -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR"))
}

fn page() -> String {
    fs::read_to_string(root().join("docs/deployment.md")).unwrap()
}

/// The fenced blocks of JSON on the page.
fn examples() -> Vec<String> {
    let page = page();
    let blocks: Vec<String> =
        page.split("```json\n").skip(1).map(|rest| rest.split("```").next().unwrap().to_owned()).collect();
    assert!(blocks.len() >= 5, "docs/deployment.md has lost its examples");
    blocks
}

#[test]
fn every_example_of_the_page_is_a_deployment_that_can_run() {
    for (number, example) in examples().iter().enumerate() {
        let file = File::new(&format!("example-{number}"), example);
        let output = check(&file.0, &[]);
        assert_eq!(output.status.code(), Some(0), "{}", text(&output.stdout));
        let output = check(&file.0, &["--json"]);
        let value: Value = serde_json::from_slice(&output.stdout).unwrap();
        assert_eq!(value["ok"], true);
        for digest in ["configuration_digest", "fabric_digest", "layout_digest"] {
            assert_eq!(value[digest].as_str().unwrap().len(), 16);
        }
    }
}

#[test]
fn options_change_the_layout_digest_alone_and_may_not_contradict_the_file() {
    let file = File::new("options", &examples()[0]);
    let digests = |more: &[&str]| {
        let output = check(&file.0, &[&["--json"], more].concat());
        let value: Value = serde_json::from_slice(&output.stdout).unwrap();
        ["configuration_digest", "fabric_digest", "layout_digest"].map(|name| value[name].as_str().unwrap().to_owned())
    };
    let (plain, changed) = (digests(&[]), digests(&["--", "--slots-per-qp=2"]));
    assert_eq!(plain[..2], changed[..2]);
    assert_ne!(plain[2], changed[2]);
    let output = check(&file.0, &["--", "--num-shards=7"]);
    assert_eq!(output.status.code(), Some(2));
    let shown = text(&output.stdout);
    assert!(shown.contains("num-server-processes = 7 (flag --num-shards), but "), "{shown}");
    let output = check(&file.0, &["--", "--slots-per-pq=7"]);
    assert!(output.status.code() == Some(2) && text(&output.stdout).contains("did you mean slots-per-qp?"));
}

#[test]
fn every_fault_is_listed_with_its_field() {
    let bent = examples()[0].replace("\"epoch\": 1", "\"epoch\": 0").replace("\"hash_method\"", "\"hash_methud\"");
    let file = File::new("bent", &bent);
    let output = check(&file.0, &[]);
    assert_eq!(output.status.code(), Some(2));
    let shown = text(&output.stdout);
    for part in [
        "refused",
        "distributed_client.hash_methud: this field is unknown; did you mean hash_method?",
        "rdma_deployment.epoch: 0 is not",
    ] {
        assert!(shown.contains(part), "{part:?} is not in: {shown}");
    }
    let output = check(&file.0, &["--json"]);
    let value: Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!((value["ok"].as_bool(), output.status.code()), (Some(false), Some(2)));
    let output = check(Path::new("nowhere.json"), &[]);
    assert!(output.status.code() == Some(2) && text(&output.stdout).contains("nowhere.json"));
}

/// All code that gives messages about RDMA and deployments, as one text in which a message stands as it is told.
fn sources() -> String {
    let mut all = String::new();
    let mut open: Vec<PathBuf> = vec![root().join("src")];
    while let Some(path) = open.pop() {
        if path.is_dir() {
            open.extend(fs::read_dir(path).unwrap().map(|entry| entry.unwrap().path()));
        } else if path.extension().is_some_and(|extension| extension == "rs") {
            all.push_str(&fs::read_to_string(path).unwrap());
        }
    }
    // A line that ends in a backslash goes on without the next one's spaces.
    let mut joined = String::new();
    for line in all.lines() {
        let line = if joined.ends_with('\\') { line.trim_start() } else { line };
        if joined.ends_with('\\') {
            joined.pop();
        } else {
            joined.push('\n');
        }
        joined.push_str(line);
    }
    joined
}

#[test]
fn every_fabric_of_the_page_ends_in_running_programs() {
    let page = page();
    for heading in ["One host: shared memory", "InfiniBand", "RoCE v2", "RoCE v1", "Soft-RoCE, to try"] {
        let (_, rest) = page.split_once(&format!("\n## {heading}\n")).unwrap_or_else(|| panic!("no '## {heading}'"));
        let section = rest.split("\n## ").next().unwrap();
        let commands = section.split("```sh\n").skip(1).map(|rest| rest.split("```").next().unwrap());
        let commands: Vec<&str> = commands.flat_map(str::lines).collect();
        for start in
            ["reclane deployment check ", "reclane_ps_server --deployment_file=", "reclane_ps_bench --deployment"]
        {
            assert!(commands.iter().any(|line| line.starts_with(start)), "## {heading} has no command {start}");
        }
    }
}

/// Cells of a row of a table.
fn cells(line: &str) -> Vec<&str> {
    line.trim_matches('|').split('|').map(str::trim).collect()
}

/// The rows of all tables between a heading and the next one of its level.
fn rows<'a>(page: &'a str, heading: &str) -> Vec<Vec<&'a str>> {
    let start = page.find(heading).unwrap_or_else(|| panic!("docs/deployment.md has no '{heading}'"));
    let section = page[start + heading.len()..].split("\n## ").next().unwrap();
    section.lines().filter(|line| line.starts_with("| `")).map(cells).collect()
}

/// Parts of a message of the page that are always the same: what stands between words in capitals, and before `...`.
fn fixed_parts(message: &str) -> Vec<String> {
    let mut parts = vec![String::new()];
    let mut word = String::new();
    for c in message.trim_end_matches("...").chars().chain(['\n']) {
        if c.is_ascii_alphanumeric() {
            word.push(c);
            continue;
        }
        if !word.is_empty() && word.chars().all(|c| c.is_ascii_uppercase()) {
            parts.push(String::new());
        } else {
            parts.last_mut().unwrap().push_str(&word);
        }
        word.clear();
        parts.last_mut().unwrap().push(c);
    }
    parts.iter().map(|part| part.trim().to_owned()).filter(|part| part.len() > 3).collect()
}

#[test]
fn names_in_capitals_are_not_part_of_a_message() {
    assert_eq!(fixed_parts("port N of DEV: is DOWN (x) ..."), ["port", ": is"]);
    assert_eq!(fixed_parts("/dev/x/FILE of DEVICE is missing"), ["/dev/x/", "is missing"]);
}

#[test]
fn every_message_of_the_page_is_one_that_the_code_gives() {
    let (page, sources) = (page(), sources());
    let rows = rows(&page, "## Troubleshooting by message");
    assert!(rows.len() > 20, "the table of messages was not found");
    for row in rows {
        let message = row[0].trim_matches('`');
        let parts = fixed_parts(message);
        assert!(!parts.is_empty(), "{message}: nothing of it is fixed");
        for part in parts {
            assert!(sources.contains(&part), "docs/deployment.md, message {message:?}: {part:?} is in no source");
        }
        assert!(row.len() == 3 && row[1..].iter().all(|cell| !cell.is_empty()), "{row:?}");
    }
}

#[test]
fn every_check_of_the_doctor_is_on_the_page() {
    let page = page();
    let known: Vec<String> =
        rows(&page, "## reclane doctor").iter().map(|row| row[0].trim_matches('`').to_owned()).collect();
    let mut found = Vec::new();
    for entry in fs::read_dir(root().join("src/bin/reclane/doctor")).unwrap() {
        let path = entry.unwrap().path();
        if path.ends_with("finding.rs") {
            continue;
        }
        let source = fs::read_to_string(&path).unwrap();
        for opening in
            ["Finding::ok(", "Finding::warning(", "Finding::error(", "Finding::needed(", "let check = ", "tried("]
        {
            for (at, _) in source.match_indices(opening) {
                let rest = source[at + opening.len()..].trim_start();
                if let Some(name) = rest.strip_prefix('"').and_then(|rest| rest.split('"').next()) {
                    found.push(name.to_owned());
                }
            }
        }
    }
    found.sort();
    found.dedup();
    let mut listed = known;
    listed.sort();
    assert_eq!(listed, found, "the page (left) and the code (right) differ");
}

/// One server and one client of one host.
fn shm_file(deployment: &str, keys: u32) -> String {
    let example = examples().into_iter().find(|example| example.contains("\"shm\"")).unwrap();
    let named = example.replace("one-host", deployment);
    named.replace("\"max_keys_per_request\": 500", &format!("\"max_keys_per_request\": {keys}"))
}

fn settings(side: Side, changes: &[(&str, &str)]) -> Settings {
    let mut options = Options::new();
    for (name, value) in changes {
        options.set(name, value).unwrap();
    }
    options.settings(side).unwrap()
}

fn serve(changes: &[(&str, &str)]) -> (Server, String) {
    let all = [&[("rdma-control-plane-port", "0")], changes].concat();
    let settings = settings(Side::Server, &all);
    let server = Server::start(&settings, Arc::new(builtin_store(&settings).unwrap())).unwrap();
    let port = server.control_plane_port().unwrap().to_string();
    (server, port)
}

fn open(port: &str, changes: &[(&str, &str)]) -> reclane::error::Result<Client> {
    Client::open(&settings(Side::Client, &[&[("rdma-control-plane-port", port)], changes].concat()))
}

#[test]
fn members_with_files_that_mean_the_same_meet_and_others_are_refused_with_both_digests() {
    let text = shm_file("meeting", 500);
    let ours = File::new("ours", &text);
    let spaced = File::new("spaced", &text.replace(": ", " :   "));
    let other = File::new("other", &text.replace("\"port\": 25000", "\"port\": 25001"));
    let path = |file: &File| file.0.to_str().unwrap().to_owned();
    let (_server, port) = serve(&[("deployment-file", &path(&ours))]);
    let client = open(&port, &[("deployment-file", &path(&spaced))]).unwrap();
    assert_eq!(client.num_shards(), 1);
    let refused = open(&port, &[("deployment-file", &path(&other))]).unwrap_err();
    assert_eq!(refused.status, Status::DeploymentMismatch);
    assert!(refused.message.contains("deployment-file differs"), "{refused}");
    assert_eq!(refused.message.matches("configuration ").count(), 2, "{refused}");
    assert!(refused.message.ends_with("'reclane deployment check FILE' shows the digests of one"), "{refused}");
    let without = [("deployment-id", "meeting"), ("max-keys-per-request", "500")];
    let refused = open(&port, &without).unwrap_err();
    assert!(refused.message.contains("deployment-file differs") && refused.message.contains("(absent)"), "{refused}");
    let slots = [("deployment-file", path(&ours)), ("slots-per-qp", "2".to_owned())];
    let refused = open(&port, &slots.each_ref().map(|(name, value)| (*name, value.as_str()))).unwrap_err();
    for part in ["slots-per-qp differs: ", "started with '1'", "with '2'; give all members the same", "reclane options"]
    {
        assert!(refused.message.contains(part), "{part:?} is not in: {refused}");
    }
}

#[test]
fn only_who_holds_the_token_joins_and_the_log_names_the_others_and_not_the_token() {
    const TOKEN: &str = "a-token-that-nobody-guesses";
    let (right, wrong) = (File::new("right", TOKEN), File::new("wrong", "another-token-of-somebody"));
    let log = File::new("log", "");
    let path = |file: &File| file.0.to_str().unwrap().to_owned();
    let (server, port) = serve(&[("control-plane-token-file", &path(&right)), ("log-file", &path(&log))]);
    for file in [None, Some(&wrong)] {
        let name = file.map_or_else(String::new, path);
        let refused = open(&port, &[("control-plane-token-file", &name)]).unwrap_err();
        assert_eq!(refused.status, Status::DeploymentMismatch);
        let pid = format!("pid {} on", std::process::id());
        assert!(refused.message.contains("the token differs") && refused.message.contains(&pid), "{refused}");
    }
    let client = open(&port, &[("control-plane-token-file", &path(&right))]).unwrap();
    drop(client);
    // The log is complete when its server is gone.
    drop(server);
    let lines = fs::read_to_string(&log.0).unwrap();
    assert_eq!(lines.matches("control_join_refused").count(), 2, "{lines}");
    assert!(lines.contains("127.0.0.1") && !lines.contains(TOKEN) && !lines.contains("another-token"), "{lines}");
}
