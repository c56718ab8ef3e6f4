//! Many lanes of many clients that lose their shard at the same moment.

use crate::support::{Deployment, Process, milliseconds, until};
use reclane::time::now;
use std::time::Duration;

#[test]
fn two_hundred_and_forty_lanes_of_eight_clients_all_come_back() {
    let changes = [
        ("recovery-preset", "resilient"),
        ("qps-per-client-per-shard", "30"),
        ("slots-per-qp", "1"),
        ("rdma-rc-request-slot-bytes", "1024"),
        ("rdma-rc-response-slot-bytes", "1024"),
    ];
    let mut deployment = Deployment::start(1, &changes);
    let mut clients: Vec<Process> = (0..8)
        .map(|_| {
            let mut client = Process::start("client", &deployment.changes);
            assert_eq!(client.hear(), "open");
            client
        })
        .collect();
    for round in 0..2 {
        deployment.servers[0].kill();
        let server = deployment.server(0);
        deployment.servers[0] = server;
        let started = now();
        for client in &mut clients {
            until("all lanes of a client", || client.number("active"), |active| *active == 30);
        }
        let taken = milliseconds(Duration::from_nanos(now().since_ns(started)));
        println!("storm, round {round}: 240 lanes of 8 clients were back after {taken:.0} ms");
        for client in &mut clients {
            assert_eq!(client.ask("work"), "3");
        }
        let server = &mut deployment.servers[0];
        until("lanes of the shard", || server.number("lanes"), |lanes| *lanes == 240);
    }
}
