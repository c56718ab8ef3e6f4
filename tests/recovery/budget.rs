//! The defaults, and rebuilding with the budget of a lane's life.

use crate::rows::Table;
use crate::support::{Deployment, until};
use reclane::engine::LaneState;
use reclane::error::Outcome;

#[test]
fn by_default_nothing_is_rebuilt_or_sent_again() {
    let deployment = Deployment::start(1, &[]);
    let client = deployment.client();
    let table = Table::open(&client, "t", 16);
    table.fill(&client);
    for lane in 0..3 {
        client.break_lane(0, lane).expect("a lane");
    }
    for _ in 0..50 {
        let error = table.update(&client, &[1], 1.0).expect_err("no lane is left");
        assert_eq!(error.outcome, Outcome::NotExecuted, "{error}");
    }
    let info = client.lane(0, 1).expect("a lane");
    assert_eq!((info.state, info.generation, info.attempts), (LaneState::Dirty, 1, 0));
}

/// An acquisition finds a lane down and has it rebuilt, three times in its life.
#[test]
fn a_budget_for_life_is_used_up_by_successes_as_well() {
    let changes = [
        ("rdma-lane-rebuild-enabled", "true"),
        ("rdma-lane-rebuild-cooldown-ms", "1"),
        ("qps-per-client-per-shard", "1"),
    ];
    let deployment = Deployment::start(1, &changes);
    let client = deployment.client();
    let table = Table::open(&client, "t", 16);
    table.fill(&client);
    for attempt in 1..=3 {
        client.break_lane(0, 0).expect("a lane");
        // Without traffic it stays down: there is no sweep.
        assert_eq!(client.lane(0, 0).expect("a lane").state, LaneState::Dirty);
        until("an UPDATE that works", || table.update(&client, &[1], 1.0).map(drop), Result::is_ok);
        let info = client.lane(0, 0).expect("a lane");
        assert_eq!((info.state, info.generation, info.attempts), (LaneState::Active, 1 + attempt, attempt));
    }
    client.break_lane(0, 0).expect("a lane");
    until(
        "the end of the lane",
        || {
            let _ = table.update(&client, &[1], 1.0);
            client.lane(0, 0).expect("a lane").state
        },
        |state| *state == LaneState::Dead,
    );
    let info = client.lane(0, 0).expect("a lane");
    assert!(info.attempts == 3, "{info:?}");
}

/// Both ends must have it on.
#[test]
fn a_server_that_does_not_rebuild_is_no_help() {
    let deployment = Deployment::start(1, &[("qps-per-client-per-shard", "1")]);
    let mut changes = deployment.changes.clone();
    for (name, value) in [
        ("rdma-lane-rebuild-enabled", "true"),
        ("rdma-lane-rebuild-wait-ms", "20"),
        ("rdma-lane-rebuild-cooldown-ms", "1"),
    ] {
        changes = crate::support::with(&changes, name, value);
    }
    let client = crate::support::open_client(&changes);
    let table = Table::open(&client, "t", 16);
    client.break_lane(0, 0).expect("a lane");
    until(
        "the end of the lane",
        || {
            assert!(table.update(&client, &[1], 1.0).is_err());
            client.lane(0, 0).expect("a lane").state
        },
        |state| *state == LaneState::Dead,
    );
}
