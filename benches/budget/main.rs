//! Instructions of one request of one 64-byte row, at the client and at the server, counted by callgrind. One process,
//! with a real server and a real client over shared memory; `scripts/budget.sh` runs it and holds the counts against
//! benches/budget/budget.txt.
//!
//! How often somebody looks for a word in vain depends on how two threads are scheduled, so nothing is counted while
//! anybody waits. The client's wait is counted after the answer is there. The server is counted from inside the store:
//! it is held in a request's call until the next one is committed, so between two calls it goes round once and finds
//! one request. What is left to chance (a page that is touched first, the counters that are published every 1024
//! rounds) is rare, so the median of many counts is the one.
//!
//! `RECLANE_BUDGET_MODE` is empty; or `counting`: requests are counted and none of these is timed; or `timed`: each is.
//! Names then end with it.

#[path = "../../tests/common/c_client.rs"]
mod c_client;
mod callgrind;
mod gate;

use c_client::{Client, Kind};
use gate::{Gate, GatedStore};
use reclane::engine::{Server, builtin_store};
use reclane::options::{Options, Settings, Side};
use reclane::sync::Arc;
use std::time::Duration;

const ROW_FLOATS: usize = 16;
const KEYS: u64 = 1024;
/// Requests of each kind that are counted; some before them warm up.
const COUNTED: usize = 24;
const WARM_UP: usize = 8;

/// What is switched on.
const MODE: &str = "RECLANE_BUDGET_MODE";

fn mode() -> String {
    std::env::var(MODE).unwrap_or_default()
}

/// A count's name in this mode.
fn named(name: &str) -> &'static str {
    let mode = mode();
    let name = if mode.is_empty() { name.to_owned() } else { format!("{name}_{mode}") };
    // A handful for the whole run, in a place that outlives its threads.
    Box::leak(name.into_boxed_str())
}

fn main() {
    if !callgrind::is_running() {
        println!("budget: counts under callgrind only; run scripts/budget.sh");
        return;
    }
    let gate = Arc::new(Gate::default());
    let server = server(&gate, false);
    let client = Client::open(&options(server.control_plane_port().expect("shard 0 has the control plane")));
    let table = client.init_table(ROW_FLOATS);
    for key in 0..KEYS {
        client.finish(client.submit(table, Kind::Put, &[key], &mut [1.0; ROW_FLOATS]));
    }
    for _ in 0..COUNTED {
        callgrind::counted("nothing", || {});
    }
    for kind in [Kind::Get, Kind::Update] {
        count_client(&client, table, kind, &gate);
        count_server(&client, table, kind, &gate);
    }
    drop(client);
    server.stop(Duration::from_secs(60)).expect("an idle server stops");
    count_own_reads();
}

/// Options under which nobody yields or sleeps: that would be what is counted.
fn options(port: u16) -> Vec<(&'static str, String)> {
    let mut all = vec![
        ("rdma-namespace", format!("budget-{}", std::process::id())),
        ("rdma-control-plane-port", port.to_string()),
        ("poll-spin-iterations", "1073741824".to_owned()),
        ("rdma-rc-wait-spin-iterations", "1073741824".to_owned()),
        ("qps-per-client-per-shard", "1".to_owned()),
        ("slots-per-qp", "4".to_owned()),
    ];
    let every = match mode().as_str() {
        "" => return all,
        "counting" => "0",
        "timed" => "1",
        other => panic!("{MODE}={other}: it is counting, timed or nothing"),
    };
    // Profile lines are as far away as can be: they are written by a thread of their own.
    all.push(("rdma-rc-profile-interval-ms", "86400000".to_owned()));
    all.push(("metrics-sample-every", every.to_owned()));
    all
}

fn settings(side: Side) -> Settings {
    let mut all = Options::new();
    for (name, value) in options(0) {
        all.set(name, &value).expect("a valid option");
    }
    all.settings(side).expect("valid options")
}

fn server(gate: &Arc<Gate>, is_shown: bool) -> Server {
    let ours = settings(Side::Server);
    let store = builtin_store(&ours).expect("a store");
    Server::start(&ours, Arc::new(GatedStore::new(store, Arc::clone(gate), is_shown))).expect("a server")
}

/// A client that reads the rows itself. The server is held in an UPDATE meanwhile, before it touches a row.
fn count_own_reads() {
    let gate = Arc::new(Gate::default());
    gate.open();
    let server = server(&gate, true);
    let client = Client::open(&options(server.control_plane_port().expect("shard 0 has the control plane")));
    let sizes = [("client_own_get_1x64", 1, 16), ("client_own_get_512x128", 512, 32)];
    let tables = sizes.map(|(_, _, floats)| client.init_table_of(KEYS, floats));
    for ((_, rows, floats), table) in sizes.iter().zip(tables) {
        for first in (0..KEYS).step_by(*rows) {
            let keys: Vec<u64> = (first..).take(*rows).collect();
            client.finish(client.submit(table, Kind::Put, &keys, &mut vec![1.0; rows * floats]));
        }
    }
    gate.close("held");
    let (before, mut gradient) = (gate.calls(), [1.0_f32; ROW_FLOATS]);
    let held = client.submit(tables[0], Kind::Update, &[0], &mut gradient);
    gate.await_calls(before + 1);
    for ((name, rows, floats), table) in sizes.iter().zip(tables) {
        let mut place = vec![1.0_f32; rows * floats];
        for round in 0..WARM_UP + COUNTED {
            let keys: Vec<u64> = (0..*rows as u64).map(|key| (key * 7 + round as u64) % KEYS).collect();
            callgrind::toggle();
            let request = client.submit(table, Kind::Get, &keys, &mut place);
            callgrind::toggle();
            callgrind::toggle();
            client.finish(request);
            callgrind::toggle();
            callgrind::dump(if round < WARM_UP { "warm_up" } else { named(name) });
        }
    }
    gate.open();
    client.finish(held);
    drop(client);
    server.stop(Duration::from_secs(60)).expect("an idle server stops");
}

/// The client's part: what `submit`, `wait` and `revoke` take together when the answer is there at the first look.
fn count_client(client: &Client, table: u32, kind: Kind, gate: &Gate) {
    let name = named(if kind == Kind::Get { "client_get_1x64" } else { "client_update_1x64" });
    let mut rows = [1.0_f32; ROW_FLOATS];
    for round in 0..WARM_UP + COUNTED {
        let keys = [round as u64 % KEYS];
        let before = gate.calls();
        callgrind::toggle();
        let request = client.submit(table, kind, &keys, &mut rows);
        callgrind::toggle();
        gate.await_calls(before + 1);
        callgrind::toggle();
        client.finish(request);
        callgrind::toggle();
        callgrind::dump(if round < WARM_UP { "warm_up" } else { name });
    }
}

/// The server's part: from one call of the store to the next.
fn count_server(client: &Client, table: u32, kind: Kind, gate: &Gate) {
    gate.close(named(if kind == Kind::Get { "server_get_1x64" } else { "server_update_1x64" }));
    let mut rows = [[1.0_f32; ROW_FLOATS]; 2];
    let mut keys = [[0_u64]; 2];
    let (mut before, mut begun) = (None, gate.calls());
    for round in 0..WARM_UP + COUNTED {
        keys[round % 2] = [round as u64 % KEYS];
        let request = client.submit(table, kind, &keys[round % 2], &mut rows[round % 2]);
        if let Some(before) = before.replace(request) {
            gate.let_one_go();
            client.finish(before);
        }
        // The next one is sent while this one is held: of two at once either could be the first.
        begun += 1;
        gate.await_calls(begun);
    }
    gate.open();
    if let Some(last) = before {
        client.finish(last);
    }
}
