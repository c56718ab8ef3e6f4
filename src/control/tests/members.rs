//! Joining, readiness, lanes, barriers.

use super::*;

#[test]
fn members_join_find_each_other_and_leave() {
    let plane = plane(2);
    let a = join(&plane, 2, &server(0));
    assert_eq!(a.me(), Peer::Server(ShardId(0)));
    let b = join(&plane, 2, &server(1));
    let c = client(3);
    let c_joined = join(&plane, 2, &c);
    assert_eq!(c_joined.me(), Peer::Client(ClientId(3)));
    a.ready().unwrap();
    b.ready().unwrap();
    c_joined.wait_servers_ready(LONG).unwrap();
    await_event(&c_joined, Event::ServerReady(ShardId(1)));
    c_joined.publish_lanes(a.me(), vec![1, 2, 3]).unwrap();
    await_event(&a, Event::LanesPublished { from: c_joined.me(), incarnation: c.incarnation });
    assert_eq!(a.get_lanes(c_joined.me(), LONG).unwrap(), [1, 2, 3]);
    c_joined.probe(LONG).unwrap();
    c_joined.leave();
    let left = Event::MemberLeft { peer: Peer::Client(ClientId(3)), incarnation: c.incarnation, died: false };
    await_event(&a, left.clone());
    await_event(&b, left);
    assert_error(
        a.get_lanes(Peer::Client(ClientId(3)), Duration::from_millis(10)),
        Status::StartupTimeout,
        &["client 3", "has not joined", " ms"],
    );
}

#[test]
fn letters_arrive_in_order_with_their_writer_and_a_shard_is_at_one_end() {
    let plane = plane(2);
    let (shard, writer, other) = (join(&plane, 2, &server(0)), client(3), client(4));
    let (from, to) = (join(&plane, 2, &writer), join(&plane, 2, &other));
    for body in [&b"one"[..], b"two", b""] {
        assert!(from.mail(shard.me(), body, LONG).unwrap(), "the shard is here");
    }
    let mail = |body: &[u8]| Event::Mail { from: from.me(), incarnation: writer.incarnation, body: body.into() };
    for body in [&b"one"[..], b"two", b""] {
        await_event(&shard, mail(body));
    }
    assert!(shard.mail(to.me(), b"back", LONG).unwrap());
    let large = vec![7; limits::MAIL_BYTES_MAX + 1];
    assert!(shard.mail(to.me(), &large[1..], LONG).unwrap(), "the largest");
    assert_error(shard.mail(to.me(), &large, LONG), Status::InvalidArgument, &["40961 bytes"]);
    assert_error(from.mail(to.me(), b"x", LONG), Status::InvalidArgument, &["one of the two must be a shard"]);
    assert_error(from.mail(Peer::Server(ShardId(9)), b"x", LONG), Status::InvalidArgument, &["no shard 9"]);
    assert!(!from.mail(Peer::Server(ShardId(1)), b"x", LONG).unwrap(), "nobody is here by that name");
}

#[test]
fn numberless_clients_get_numbers_of_their_own() {
    let plane = plane(1);
    let clients: Vec<_> = (0..5).map(|_| join(&plane, 1, &member(Role::Client(None)))).collect();
    let mut names: Vec<_> = clients.iter().map(ControlClient::me).collect();
    names.sort();
    names.dedup();
    assert_eq!(names.len(), 5);
    assert!(names.iter().all(|name| matches!(name, Peer::Client(_))));
}

#[test]
fn who_does_not_hold_the_token_is_refused_by_name_and_learns_nothing_else() {
    let secret = |text: &str| Secret::received(text.as_bytes().to_vec()).unwrap();
    let ours = Identity { secret: secret("correct-horse-battery"), ..identity(2) };
    let guarded = ControlPlane::serve(HOST, 0, &ours).unwrap();
    let asked = |plane: &ControlPlane, secret: Secret| {
        // Another layout too: the token is looked at first, so nothing is told of the deployment.
        let theirs = Identity { secret, layout: "fabric=shm\nslots-per-qp=64\n".to_string(), ..identity(2) };
        let error = refused(plane, &theirs, &client(0));
        for hidden in ["correct-horse-battery", "wrong-horse-battery", "slots-per-qp", "layout"] {
            assert!(!error.message.contains(hidden), "{error}");
        }
        error
    };
    let pid = format!("pid {} on", client(0).pid);
    for (wrong, part) in [(Secret::default(), "gave none"), (secret("wrong-horse-battery"), "gave another one")] {
        let error = asked(&guarded, wrong);
        assert_error(Err::<(), _>(error), Status::DeploymentMismatch, &["the token differs", &pid, part]);
    }
    ControlClient::join(HOST, guarded.port(), LONG, &ours, &client(0)).unwrap();
    let open = plane(2);
    let error = asked(&open, secret("correct-horse-battery"));
    assert_error(Err::<(), _>(error), Status::DeploymentMismatch, &["was started without"]);
}

#[test]
fn strangers_are_refused_with_the_reason() {
    let plane = plane(2);
    let other = Identity { deployment_id: "else".to_string(), ..identity(2) };
    assert_error(
        Err::<(), _>(refused(&plane, &other, &client(0))),
        Status::StaleEpoch,
        &["deployment-id", "'else'", "'test'"],
    );
    let stale = Identity { epoch: Epoch(6), ..identity(2) };
    assert_error(
        Err::<(), _>(refused(&plane, &stale, &client(0))),
        Status::StaleEpoch,
        &["stale", "epoch 6", "epoch 7"],
    );
    let newer = Identity { epoch: Epoch(8), ..identity(2) };
    assert_error(Err::<(), _>(refused(&plane, &newer, &client(0))), Status::StaleEpoch, &["older", "7", "8"]);
    let elsewhere = Identity { namespace: "run-2".to_string(), ..identity(2) };
    assert_error(
        Err::<(), _>(refused(&plane, &elsewhere, &client(0))),
        Status::DeploymentMismatch,
        &["namespace", "'run-1'", "'run-2'"],
    );
    let layout = Identity { layout: "fabric=shm\nslots-per-qp=64\n".to_string(), ..identity(2) };
    assert_error(
        Err::<(), _>(refused(&plane, &layout, &client(0))),
        Status::DeploymentMismatch,
        &["slots-per-qp", "'32'", "'64'"],
    );
    assert_error(
        Err::<(), _>(refused(&plane, &identity(3), &client(0))),
        Status::DeploymentMismatch,
        &["num-shards", "'2'", "'3'"],
    );
    assert_error(
        Err::<(), _>(refused(&plane, &identity(2), &server(2))),
        Status::OptionBounds,
        &["shard-id 2", "num-shards is 2"],
    );
}

#[test]
fn a_second_holder_of_an_id_is_refused_until_the_first_is_gone() {
    let plane = plane(1);
    for (role, name) in [(Role::Server(ShardId(0)), "shard 0"), (Role::Client(Some(ClientId(4))), "client 4")] {
        let mut first = member(role);
        first.pid = 4711;
        first.host = "holder-host".to_string();
        let holder = join(&plane, 1, &first);
        let error = refused(&plane, &identity(1), &member(role));
        assert_error(Err::<(), _>(error), Status::DuplicateId, &[name, "4711", "holder-host"]);
        holder.vanish();
        // The new holder's join and the end of the old one's connection may arrive in either order.
        join(&plane, 1, &member(role)).leave();
    }
}

#[test]
fn waiting_for_servers_names_who_is_missing() {
    let plane = plane(3);
    let a = join(&plane, 3, &server(0));
    let _b = join(&plane, 3, &server(1));
    a.ready().unwrap();
    let c = join(&plane, 3, &client(0));
    let error = c.wait_servers_ready(Duration::from_millis(20)).unwrap_err();
    assert!(!error.message.contains("shard 0"), "{error}");
    assert_error(Err::<(), _>(error), Status::StartupTimeout, &["shard 1 (joined", "shard 2 (not joined)", " ms"]);
    assert_error(
        c.wait_server_ready(ShardId(2), Duration::from_millis(20)),
        Status::StartupTimeout,
        &["shard 2 (not joined)"],
    );
    c.wait_server_ready(ShardId(0), LONG).unwrap();
    assert_error(c.wait_server_ready(ShardId(3), LONG), Status::InvalidArgument, &["no shard 3"]);
}

#[test]
fn draining_needs_ready_and_ends_waits() {
    let plane = plane(2);
    let a = join(&plane, 2, &server(0));
    let c = join(&plane, 2, &client(0));
    assert_error(a.draining(Duration::from_secs(5)), Status::WrongState, &["never ready"]);
    assert_error(c.ready(), Status::WrongState, &["client 0", "no server"]);
    a.ready().unwrap();
    std::thread::scope(|scope| {
        let waiting = scope.spawn(|| c.wait_servers_ready(LONG));
        let lanes = scope.spawn(|| c.get_lanes(a.me(), LONG));
        a.draining(Duration::from_secs(5)).unwrap();
        assert_error(waiting.join().unwrap(), Status::Draining, &["shard 0"]);
        assert_error(lanes.join().unwrap(), Status::Draining, &["shard 0"]);
    });
    await_event(&c, Event::ServerDraining(ShardId(0)));
    assert_error(a.ready(), Status::Draining, &["cannot become ready again"]);
    assert_error(c.wait_servers_ready(LONG), Status::Draining, &["shard 0"]);
}

#[test]
fn a_request_for_lanes_waits_for_the_newest_offer() {
    let plane = plane(1);
    let a = join(&plane, 1, &server(0));
    let c = join(&plane, 1, &client(0));
    std::thread::scope(|scope| {
        let waiting = scope.spawn(|| c.get_lanes(a.me(), LONG));
        a.publish_lanes(c.me(), b"one".to_vec()).unwrap();
        assert_eq!(waiting.join().unwrap().unwrap(), b"one");
    });
    a.publish_lanes(c.me(), b"two".to_vec()).unwrap();
    assert_eq!(c.get_lanes(a.me(), LONG).unwrap(), b"two");
    assert_error(a.get_lanes(c.me(), Duration::ZERO), Status::StartupTimeout, &["client 0", "published nothing"]);
}

#[test]
fn a_barrier_releases_three_members_together() {
    let plane = plane(1);
    let members = [join(&plane, 1, &server(0)), join(&plane, 1, &client(0)), join(&plane, 1, &client(1))];
    for _round in 0..3 {
        let passed = AtomicU64::new(0);
        std::thread::scope(|scope| {
            for member in &members[..2] {
                scope.spawn(|| {
                    member.barrier("epoch", 3, LONG).unwrap();
                    passed.fetch_add(1, Ordering::Relaxed);
                });
            }
            // Two threads of one member are one participant.
            assert_error(
                members[0].barrier("epoch", 3, Duration::from_millis(30)),
                Status::StartupTimeout,
                &["'epoch'", "of 3 participants"],
            );
            assert_eq!(passed.load(Ordering::Relaxed), 0);
            members[2].barrier("epoch", 3, LONG).unwrap();
        });
        assert_eq!(passed.load(Ordering::Relaxed), 2);
    }
}

#[test]
fn impossible_barriers_are_refused() {
    let plane = plane(1);
    let c = join(&plane, 1, &client(0));
    assert_error(c.barrier("none", 0, LONG), Status::InvalidArgument, &["'none'", "0"]);
    assert_error(c.barrier("huge", u32::MAX, LONG), Status::InvalidArgument, &["'huge'", "4294967295"]);
    assert_error(c.barrier(&"x".repeat(300), 1, LONG), Status::InvalidArgument, &["300", "256"]);
    c.barrier("alone", 1, LONG).unwrap();
    let missing = c.barrier("two", 2, Duration::from_millis(10));
    assert_error(missing, Status::StartupTimeout, &["'two'", "1 of 2", " ms", "client 0"]);
}

#[test]
fn waking_ends_a_wait_for_events() {
    let plane = plane(1);
    let c = join(&plane, 1, &client(0));
    std::thread::scope(|scope| {
        let waiting = scope.spawn(|| c.next_event(LONG));
        c.wake();
        assert_eq!(waiting.join().unwrap(), None);
    });
    assert_eq!(c.next_event(Duration::ZERO), None);
}
