//! Several processes of clients, and many requests.

use crate::support::{Changes, Deployment, get, put, rows_of, settings, table};
use reclane::engine::Client;
use reclane::options::Side;
use std::process::{Child, Command, Stdio};

pub const ROLE: &str = "RECLANE_TEST_VERBS_CHILD";
const OPTIONS: &str = "RECLANE_TEST_VERBS_OPTIONS";
const DIM: usize = 8;

/// This test program again, as another process of the deployment.
pub fn child(role: &str, test: &str, changes: &Changes) -> Child {
    let options: Vec<String> = changes.iter().map(|(name, value)| format!("{name}={value}")).collect();
    Command::new(std::env::current_exe().expect("own program"))
        .args(["--exact", test, "--nocapture", "--test-threads=1"])
        .env(ROLE, role)
        .env(OPTIONS, options.join("\n"))
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .expect("a second process")
}

/// The options that the parent gave, when this is such a process.
pub fn given() -> Option<(String, Changes)> {
    let role = std::env::var(ROLE).ok()?;
    let text = std::env::var(OPTIONS).expect("options");
    let split = |line: &str| line.split_once('=').map(|(name, value)| (name.to_owned(), value.to_owned()));
    Some((role, text.lines().map(|line| split(line).expect("name=value")).collect()))
}

#[test]
fn two_processes_of_clients_at_two_shards() {
    const SELF: &str = "processes::two_processes_of_clients_at_two_shards";
    if let Some((role, changes)) = given() {
        let first: u64 = role.parse().expect("a number");
        let client = Client::open(&settings(&changes, Side::Client)).expect("a client");
        let table = table(&client, "shared", DIM);
        for round in 0..20 {
            let keys: Vec<u64> = (0..50).map(|key| first * 1_000_000 + round * 50 + key).collect();
            let rows = rows_of(&keys, DIM);
            put(&client, table, &keys, &rows);
            assert_eq!(get(&client, table, &keys, DIM), rows);
        }
        client.shutdown(std::time::Duration::from_secs(5)).expect("nothing under way");
        return;
    }
    let deployment = Deployment::start(2, &[]);
    let children: Vec<Child> = ["1", "2"].iter().map(|role| child(role, SELF, &deployment.changes)).collect();
    for child in children {
        let output = child.wait_with_output().expect("its end");
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stdout));
    }
    let client = deployment.client();
    let table = table(&client, "shared", DIM);
    for first in [1, 2] {
        let keys: Vec<u64> = (0..200).map(|key| first * 1_000_000 + key).collect();
        assert_eq!(get(&client, table, &keys, DIM), rows_of(&keys, DIM));
    }
}

#[test]
fn many_requests_with_checksums() {
    let count: u64 = std::env::var("RECLANE_TEST_REQUESTS").map_or(100_000, |text| text.parse().expect("a number"));
    let deployment = Deployment::start(1, &[("integrity", "crc32c"), ("commit-scheme", "crc"), ("slots-per-qp", "4")]);
    let client = deployment.client();
    let table = table(&client, "many", DIM);
    let keys: Vec<u64> = (0..512).collect();
    let rows = rows_of(&keys, DIM);
    put(&client, table, &keys, &rows);
    let threads = 4;
    std::thread::scope(|scope| {
        for thread in 0..threads {
            let (client, keys, rows) = (&client, &keys, &rows);
            scope.spawn(move || {
                for request in 0..count / threads {
                    let at = ((request * 7 + thread * 131) % 500) as usize;
                    let keys = &keys[at..at + 1 + (request % 9) as usize];
                    assert_eq!(get(client, table, keys, DIM), rows[at * DIM..(at + keys.len()) * DIM]);
                }
            });
        }
    });
    let handled = deployment.servers[0].stats().handled;
    println!("{count} GETs with checksums, {} refused", handled.refused);
    assert_eq!((handled.refused, handled.internal_errors), (0, 0));
}
