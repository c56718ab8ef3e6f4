//! Processes that are stopped and wake up again.

use crate::rows::Table;
use crate::support::{Deployment, milliseconds, until};
use reclane::engine::{Health, LaneState};
use reclane::time::now;
use std::time::Duration;

const RESILIENT: &[(&str, &str)] = &[("recovery-preset", "resilient")];

#[test]
fn a_stopped_shard_is_found_and_does_no_harm_when_it_wakes_up() {
    let deployment = Deployment::start(2, RESILIENT);
    let client = deployment.client();
    let table = Table::open(&client, "t", 16);
    table.fill(&client);
    let keys: Vec<u64> = (0..200).filter(|key| client.shard_of(*key) == 1).collect();
    until("a heartbeat", || client.health(1).expect("a shard"), |seen| seen.known && seen.health == Health::Serving);
    let mut expected = 0.0;
    for round in 0..3 {
        deployment.servers[1].freeze();
        let stopped = now();
        std::thread::scope(|scope| {
            // Sent to the stopped process, and then again to the one that has woken up.
            let caller = scope.spawn(|| table.update(&client, &keys, 1.0));
            until(
                "a verdict",
                || client.lane(1, 0).expect("a lane").state,
                |state| matches!(state, LaneState::Dirty | LaneState::Rebuilding),
            );
            let taken = milliseconds(Duration::from_nanos(now().since_ns(stopped)));
            println!("detection: shard 1 stopped, round {round}: its lanes were down after {taken:.1} ms");
            until("health", || client.health(1).expect("a shard").health, |health| *health == Health::Dead);
            deployment.servers[1].thaw();
            caller.join().expect("no panic").expect("the shard is back");
        });
        expected += 1.0;
        let seen = table.versions(&keys, &table.get(&client, &keys).expect("a GET"));
        assert!(seen.iter().all(|version| *version == expected), "{expected}: {seen:?}");
    }
    until("health", || client.health(1).expect("a shard").health, |health| *health == Health::Serving);
    until("all lanes", || client.stats().active_lanes, |lanes| *lanes == 6);
}

#[test]
fn the_end_of_the_control_plane_is_no_verdict() {
    let mut deployment = Deployment::start(2, RESILIENT);
    let client = deployment.client();
    let table = Table::open(&client, "t", 16);
    table.fill(&client);
    let keys: Vec<u64> = (0..200).filter(|key| client.shard_of(*key) == 1).collect();
    deployment.servers[0].kill();
    until("silence", || client.health(1).expect("a shard").known, |known| !*known);
    for round in 0..200 {
        table.update(&client, &keys[..1], 1.0).expect("shard 1 serves");
        assert_eq!(client.lane(1, round % 3).expect("a lane").generation, 1);
    }
    let server = deployment.server(0);
    deployment.servers[0] = server;
    until("health again", || client.health(1).expect("a shard"), |seen| seen.known && seen.health == Health::Serving);
    until("all lanes", || client.stats().active_lanes, |lanes| *lanes == 6);
    assert_eq!(Table::open(&client, "t", 16).tag, table.tag);
    // The shard that lived on has seen no new connection.
    assert!((0..3).all(|lane| client.lane(1, lane).expect("a lane").generation == 1));
}

#[test]
fn a_stopped_client_that_wakes_up_goes_on() {
    let mut deployment = Deployment::start(1, RESILIENT);
    let mut other = crate::support::Process::start("client", &deployment.changes);
    assert_eq!(other.hear(), "open");
    assert_eq!(other.ask("work"), "3");
    other.freeze();
    let client = deployment.client();
    let table = Table::open(&client, "t", 16);
    table.fill(&client);
    for key in 0..200 {
        table.update(&client, &[key], 1.0).expect("nobody is held up");
    }
    other.thaw();
    assert_eq!(other.ask("work"), "3");
    let server = &mut deployment.servers[0];
    until("lanes", || server.number("lanes"), |lanes| *lanes == 6);
}
