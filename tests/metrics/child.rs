//! The roles that another process of a test can have.

use crate::rows::Table;
use crate::support::{Changes, PATIENCE, commands, open_client, role, say, start_server};

/// Plays the role that the environment names; without one, nothing.
pub fn play() {
    let Some((role, changes)) = role() else { return };
    match role.as_str() {
        "server" => server(&changes),
        "client" => client(&changes),
        other => panic!("no such role: {other}"),
    }
}

fn server(changes: &Changes) {
    let server = start_server(changes).expect("a server");
    say(server.control_plane_port().unwrap_or(0));
    for command in commands() {
        match command.split_once(' ').unwrap_or((&command, "")) {
            ("metric", name) => say(server.metric(name).map_or_else(|error| error.to_string(), |n| n.to_string())),
            ("port", _) => say(server.metrics_port().unwrap_or(0)),
            ("stop", _) => say(server.stop(PATIENCE).map_or_else(|error| error.to_string(), |()| "stopped".to_owned())),
            other => panic!("no such command: {other:?}"),
        }
    }
}

/// A client that makes requests when it is told.
fn client(changes: &Changes) {
    let client = open_client(changes);
    let table = Table::open(&client, "t", 16);
    say(client.client_id());
    let numbers = |words: &str| words.split(' ').map(|word| word.parse().expect("a number")).collect::<Vec<u64>>();
    for command in commands() {
        let (what, rest) = command.split_once(' ').unwrap_or((&command, ""));
        match what {
            // put COUNT KEYS: so many requests of so many keys.
            "put" | "get" | "update" => {
                let [count, keys] = numbers(rest)[..] else { panic!("two numbers") };
                let keys: Vec<u64> = (0..keys).collect();
                for _ in 0..count {
                    match what {
                        "put" => table.put(&client, &keys, 1.0).expect("a PUT"),
                        "update" => table.update(&client, &keys, 1.0).expect("an UPDATE"),
                        _ => drop(table.get(&client, &keys).expect("a GET")),
                    }
                }
                say("done");
            }
            "metric" => say(client.metric(rest).map_or_else(|error| error.to_string(), |n| n.to_string())),
            "port" => say(client.metrics_port().unwrap_or(0)),
            "shutdown" => {
                client.shutdown(PATIENCE).expect("idle");
                say("shut");
            }
            other => panic!("no such command: {other}"),
        }
    }
}
