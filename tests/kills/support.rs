//! Deployments made of processes, and what is seen of a process from outside.

use reclane::engine::{Client, Server};
use reclane::options::{Options, Settings, Side};
use reclane::time::now;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

#[path = "../common/fabric.rs"]
mod fabric;
#[path = "../common/process.rs"]
#[allow(dead_code)] // shared: not every test uses all of it
mod process;
pub use process::*;

/// A test that waits this long for something hangs.
pub const PATIENCE: Duration = Duration::from_secs(60);

pub fn settings(side: Side, changes: &[(String, String)]) -> Settings {
    let mut options = Options::new();
    // Clients on the other device than servers, where there are two.
    fabric::set_given(&mut options, usize::from(side == Side::Client));
    for (name, value) in changes {
        options.set(name, value).expect("a valid option");
    }
    options.settings(side).expect("valid options")
}

/// A deployment's options: a name of its own, small slots.
pub fn options(shards: u32, changes: &[(&str, &str)]) -> Changes {
    static NEXT: AtomicU32 = AtomicU32::new(0);
    let name = format!("kills-{}-{}", std::process::id(), NEXT.fetch_add(1, Ordering::Relaxed));
    let mut all: Changes = vec![
        ("rdma-namespace".into(), name),
        ("num-server-processes".into(), shards.to_string()),
        ("rdma-control-plane-port".into(), "0".into()),
        ("rdma-rc-request-slot-bytes".into(), "65536".into()),
        ("rdma-rc-response-slot-bytes".into(), "65536".into()),
        ("qps-per-client-per-shard".into(), "3".into()),
        ("slots-per-qp".into(), "2".into()),
        // Tests that are about lanes have them from the beginning.
        ("qps-at-open".into(), "1024".into()),
        // Few cores: who finds nothing to do should let the others run.
        ("poll-spin-iterations".into(), "200".into()),
        ("rdma-rc-wait-spin-iterations".into(), "300".into()),
    ];
    for (name, value) in changes {
        all = with(&all, name, value);
    }
    all
}

pub fn start_server(changes: &[(String, String)]) -> reclane::error::Result<Server> {
    let settings = settings(Side::Server, changes);
    let store = reclane::engine::builtin_store(&settings).expect("a store");
    Server::start(&settings, Arc::new(store))
}

pub fn open_client(changes: &[(String, String)]) -> Client {
    Client::open(&settings(Side::Client, changes)).expect("a client")
}

/// One process per shard.
pub struct Deployment {
    pub servers: Vec<Process>,
    pub changes: Changes,
}

impl Deployment {
    pub fn start(shards: u32, changes: &[(&str, &str)]) -> Deployment {
        let mut deployment = Deployment { servers: Vec::new(), changes: options(shards, changes) };
        for shard in 0..shards {
            let server = deployment.server(shard);
            deployment.servers.push(server);
        }
        deployment
    }

    /// Starts the process of a shard; shard 0 decides about the port.
    pub fn server(&mut self, shard: u32) -> Process {
        let mut server = Process::start("server", &with(&self.changes, "shard-id", shard));
        let port = server.hear();
        if shard == 0 {
            self.changes = with(&self.changes, "rdma-control-plane-port", &port);
        }
        server
    }

    /// The first client of a program asks for every row, the next one reads those that it can, and so on, unless the
    /// options say something about that.
    pub fn client(&self) -> Client {
        if self.changes.iter().any(|(name, _)| name == "shared-reads") {
            return open_client(&self.changes);
        }
        static NEXT: AtomicU32 = AtomicU32::new(0);
        let asks = NEXT.fetch_add(1, Ordering::Relaxed).is_multiple_of(2);
        open_client(&with(&self.changes, "shared-reads", if asks { "off" } else { "auto" }))
    }

    /// A client in a process of its own, at work.
    pub fn worker(&self, changes: &[(&str, &str)]) -> Process {
        let mut all = self.changes.clone();
        for (name, value) in changes {
            all = with(&all, name, value);
        }
        let mut worker = Process::start("worker", &all);
        assert_eq!(worker.hear(), "at work");
        worker
    }
}

/// Looks until `wanted` is seen, and returns how long that took. Every look asks another process or thread.
pub fn until<T: core::fmt::Debug>(what: &str, mut look: impl FnMut() -> T, wanted: impl Fn(&T) -> bool) -> Duration {
    let start = now();
    loop {
        let seen = look();
        let taken = Duration::from_nanos(now().since_ns(start));
        if wanted(&seen) {
            return taken;
        }
        assert!(taken < PATIENCE, "{what}: still {seen:?}");
        reclane::time::pause(Duration::from_millis(1));
    }
}

/// What a process holds once that has not changed for a while.
pub fn settled(process: &Process) -> Holdings {
    let mut last = process.holdings();
    let mut same = 0;
    until(
        "a process at rest",
        || {
            let seen = process.holdings();
            same = if seen == last { same + 1 } else { 0 };
            last = seen;
            same
        },
        |same| *same > 200,
    );
    last
}

/// Waits until a process holds no more than before. Less is no leak: what it was about to let go, such as the thread
/// that was letting a client in, may have been counted.
pub fn holds_again(process: &Process, before: &Holdings) {
    let no_more = |seen: &Holdings| {
        seen.descriptors <= before.descriptors
            && seen.shared_mappings <= before.shared_mappings
            && seen.threads <= before.threads
    };
    until(&format!("holdings that were {before:?}"), || process.holdings(), no_more);
}

pub fn milliseconds(duration: Duration) -> f64 {
    duration.as_secs_f64() * 1e3
}
