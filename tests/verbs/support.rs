//! A deployment on the devices under test.

use reclane::engine::{Client, Server};
use reclane::options::{Options, Settings, Side};
use reclane::sync::Arc;
use reclane::sync::{AtomicU32, Ordering};

#[path = "../common/fabric.rs"]
mod fabric;
#[path = "../common/training.rs"]
#[allow(dead_code)] // shared: not every test uses all of it
mod training;
pub use training::*;

pub type Changes = Vec<(String, String)>;

pub fn devices() -> Vec<String> {
    let names = std::env::var("RECLANE_TEST_DEVICES").expect("RECLANE_TEST_DEVICES names the devices to test on");
    names.split(',').map(str::to_owned).collect()
}

/// Options of one side: the device is the side's.
pub fn settings(changes: &Changes, side: Side) -> Settings {
    let mut options = Options::new();
    fabric::set_given(&mut options, if side == Side::Server { 0 } else { devices().len() - 1 });
    for (name, value) in changes {
        options.set(name, value).expect("a valid option");
    }
    options.settings(side).expect("valid options")
}

pub struct Deployment {
    pub servers: Vec<Server>,
    /// Options of a client of it.
    pub changes: Changes,
}

impl Deployment {
    pub fn start(shards: u32, changes: &[(&str, &str)]) -> Deployment {
        static NEXT: AtomicU32 = AtomicU32::new(0);
        let name = format!("verbs-{}-{}", std::process::id(), NEXT.fetch_add(1, Ordering::Relaxed));
        let mut all: Changes = vec![
            ("rdma-control-plane-port".into(), "0".into()),
            ("rdma-namespace".into(), name),
            ("fabric".into(), "verbs".into()),
            ("num-server-processes".into(), shards.to_string()),
            ("qps-per-client-per-shard".into(), "4".into()),
            // Tests that are about lanes have them from the beginning.
            ("qps-at-open".into(), "1024".into()),
            ("request-slot-bytes".into(), "65536".into()),
            ("response-slot-bytes".into(), "65536".into()),
        ];
        all.extend(changes.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())));
        let mut servers = Vec::new();
        for shard in 0..shards {
            let mut mine = all.clone();
            mine.push(("shard-id".into(), shard.to_string()));
            let settings = settings(&mine, Side::Server);
            let store = reclane::engine::builtin_store(&settings).expect("a store");
            let server = Server::start(&settings, Arc::new(store)).expect("a server");
            if let Some(port) = server.control_plane_port() {
                all[0].1 = port.to_string();
            }
            servers.push(server);
        }
        Deployment { servers, changes: all }
    }

    pub fn client(&self) -> Client {
        Client::open(&settings(&self.changes, Side::Client)).expect("a client")
    }
}
