//! The roles that another process of a test can have.

use crate::rows::Table;
pub use crate::support::say;
use crate::support::{Changes, PATIENCE, commands, open_client, role, start_server};

/// Plays the role that the environment names; without one, nothing.
pub fn play() {
    let Some((role, changes)) = role() else { return };
    match role.as_str() {
        "server" => server(&changes),
        "client" => client(&changes),
        "adder" => crate::chaos::adder(&changes, commands()),
        other => panic!("no such role: {other}"),
    }
}

fn server(changes: &Changes) {
    let server = start_server(changes).expect("a server");
    say(server.control_plane_port().unwrap_or(0));
    for command in commands() {
        match command.as_str() {
            "lanes" => say(server.stats().lanes),
            "updates" => say(server.stats().handled.updates),
            "repeated" => say(server.stats().handled.repeated),
            "stop" => say(server.stop(PATIENCE).map_or_else(|error| error.to_string(), |()| "stopped".to_owned())),
            other => panic!("no such command: {other}"),
        }
    }
}

/// A client that says how many lanes it has, and works when it is told.
fn client(changes: &Changes) {
    let client = open_client(changes);
    say("open");
    for command in commands() {
        match command.as_str() {
            "active" => say(client.stats().active_lanes),
            "work" => {
                let table = Table::open(&client, "t", 16);
                let mine = [u64::from(client.client_id() % 4096)];
                table.put(&client, &mine, 3.0).expect("a PUT");
                say(table.versions(&mine, &table.get(&client, &mine).expect("a GET"))[0]);
            }
            other => panic!("no such command: {other}"),
        }
    }
}
