//! Clients that come and go, and servers that stop and start, while others work.

use crate::rows::Table;
use crate::support::{
    Deployment, Holdings, PATIENCE, Process, holds_again, open_client, options, settled, start_server, until, with,
};
use crate::traffic::{KINDS, Kind, keys_of, work};
use reclane::error::Status;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

#[test]
fn two_hundred_clients_leave_nothing_behind_here_or_there() {
    let mut deployment = Deployment::start(2, &[("server-rdma-threads", "2")]);
    let mut home = Process::start("home", &deployment.changes);
    assert_eq!(home.ask("live 4"), "lived");
    let lanes = |server: &mut Process| server.number("lanes");
    for server in &mut deployment.servers {
        until("lanes", || lanes(server), |seen| *seen == 0);
    }
    let before = settled(&home);
    let servers: Vec<Holdings> = deployment.servers.iter().map(settled).collect();
    assert_eq!(home.ask("live 200"), "lived");
    holds_again(&home, &before);
    for (server, before) in deployment.servers.iter_mut().zip(servers) {
        until("lanes", || lanes(server), |seen| *seen == 0);
        assert_eq!(server.number("lane bytes"), 0);
        holds_again(server, &before);
    }
}

#[test]
fn clients_of_several_threads_and_processes_come_and_go_together() {
    let mut deployment = Deployment::start(2, &[]);
    let client = deployment.client();
    let table = Table::open(&client, "t", 16);
    table.fill(&client);
    let keys = keys_of(&client, None);
    let (stop, done) = (AtomicBool::new(false), AtomicU64::new(0));
    std::thread::scope(|scope| {
        let caller = scope.spawn(|| work(&client, table, Kind::Batch, &keys, &stop, &done));
        let changes = &deployment.changes;
        let openers: Vec<_> = (0..3)
            .map(|_| {
                scope.spawn(|| {
                    for _ in 0..15 {
                        let mine = open_client(changes);
                        let table = Table::open(&mine, "t", 16);
                        table.versions(&[4], &table.get(&mine, &[4]).expect("a GET"));
                    }
                })
            })
            .collect();
        let mut homes: Vec<_> = (0..2).map(|_| Process::start("home", changes)).collect();
        homes.iter_mut().for_each(|home| home.tell("live 15"));
        homes.iter_mut().for_each(|home| assert_eq!(home.hear(), "lived"));
        openers.into_iter().for_each(|opener| opener.join().expect("no panic"));
        stop.store(true, Ordering::Relaxed);
        assert!(caller.join().expect("no panic").errors.is_empty());
    });
    assert!(done.load(Ordering::Relaxed) > 0);
    for server in &mut deployment.servers {
        until("lanes", || server.number("lanes"), |seen| *seen == 3);
    }
}

/// Stops one of two shards amid traffic, and starts it again.
fn stop_and_start(which: u32) {
    let mut deployment = Deployment::start(2, &[]);
    let client = deployment.client();
    let table = Table::open(&client, "t", 16);
    table.fill(&client);
    let (doomed, safe) = (keys_of(&client, Some(which)), keys_of(&client, Some(1 - which)));
    let (stop, done, safe_done) = (AtomicBool::new(false), AtomicU64::new(0), AtomicU64::new(0));
    std::thread::scope(|scope| {
        let (client, stop, done, safe_done) = (&client, &stop, &done, &safe_done);
        let (doomed, safe) = (&doomed, &safe);
        let callers: Vec<_> =
            KINDS.into_iter().map(|kind| scope.spawn(move || work(client, table, kind, doomed, stop, done))).collect();
        let other = scope.spawn(move || work(client, table, Kind::UpdateSome, safe, stop, safe_done));
        until("traffic", || done.load(Ordering::Relaxed), |seen| *seen > 200);
        assert_eq!(deployment.servers[which as usize].ask("stop"), "stopped");
        for caller in callers {
            let ended = caller.join().expect("no panic");
            assert!(!ended.errors.is_empty(), "{:?} met no error", ended.kind);
            for error in ended.errors {
                assert!(
                    matches!(error.status, Status::Draining | Status::ShardUnreachable),
                    "{:?}: {error}",
                    ended.kind
                );
                assert_eq!(error.shard, Some(which), "{error}");
            }
        }
        let before = safe_done.load(Ordering::Relaxed);
        until("the other shard", || safe_done.load(Ordering::Relaxed), |seen| *seen > before + 100);
        stop.store(true, Ordering::Relaxed);
        let ended = other.join().expect("no panic");
        assert!(ended.errors.is_empty(), "{:?}", ended.errors);
    });
    let port = deployment.changes.clone();
    // The process that stopped holds neither the shard's number nor the port any more, though it lives.
    let again = deployment.server(which);
    assert_eq!(
        deployment.changes.iter().find(|(n, _)| n.ends_with("port")),
        port.iter().find(|(n, _)| n.ends_with("port"))
    );
    let late = deployment.client();
    let table = Table::open(&late, "t", 16);
    table.fill(&late);
    let keys = keys_of(&late, None);
    table.versions(&keys, &table.get(&late, &keys).expect("both shards serve"));
    drop(again);
}

#[test]
fn shard_1_stops_and_starts_again() {
    stop_and_start(1);
}

#[test]
fn shard_0_stops_and_starts_again() {
    stop_and_start(0);
}

#[test]
fn a_shard_killed_and_started_again_serves_new_clients() {
    for which in [0, 1] {
        let mut deployment = Deployment::start(2, &[]);
        let old = deployment.client();
        deployment.servers[which as usize].kill();
        deployment.servers[which as usize] = deployment.server(which);
        let late = deployment.client();
        let table = Table::open(&late, "t", 16);
        table.fill(&late);
        let keys = keys_of(&late, None);
        table.versions(&keys, &table.get(&late, &keys).expect("both shards serve"));
        old.shutdown(PATIENCE).expect("nothing under way");
    }
}

#[test]
fn stop_is_not_held_up_by_callers_that_never_pause() {
    let changes = options(1, &[("qps-per-client-per-shard", "8")]);
    let server = start_server(&changes).expect("a server");
    let port = server.control_plane_port().expect("shard 0 hosts it").to_string();
    let client = open_client(&with(&changes, "rdma-control-plane-port", &port));
    let table = Table::open(&client, "t", 16);
    table.fill(&client);
    let keys = keys_of(&client, None);
    let (stop, done) = (AtomicBool::new(false), AtomicU64::new(0));
    std::thread::scope(|scope| {
        let callers: Vec<_> =
            (0..8).map(|_| scope.spawn(|| work(&client, table, Kind::Ring, &keys, &stop, &done))).collect();
        until("traffic", || done.load(Ordering::Relaxed), |seen| *seen > 1000);
        server.stop(PATIENCE).expect("it stops");
        server.stop(PATIENCE).expect("again: nothing to do");
        for caller in callers {
            let ended = caller.join().expect("no panic");
            assert!(!ended.errors.is_empty());
            for error in ended.errors {
                assert!(matches!(error.status, Status::Draining | Status::ShardUnreachable), "{error}");
                assert_eq!(error.shard, Some(0));
            }
        }
    });
    assert_eq!(client.stats().held_slots, 0);
}
