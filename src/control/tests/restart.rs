//! A control plane that goes and comes back.

use super::*;

fn restarted(port: u16, identity: &Identity) -> ControlPlane {
    ControlPlane::serve(HOST, port, identity).unwrap()
}

#[test]
fn a_restarted_control_plane_is_filled_again() {
    let plane = plane(2);
    let port = plane.port();
    let servers = [join(&plane, 2, &server(0)), join(&plane, 2, &server(1))];
    let old = member(Role::Client(None));
    let c = join(&plane, 2, &old);
    servers.iter().for_each(|server| server.ready().unwrap());
    servers[0].publish_lanes(c.me(), b"for c".to_vec()).unwrap();
    c.publish_lanes(servers[0].me(), b"from c".to_vec()).unwrap();
    await_event(&servers[0], Event::LanesPublished { from: c.me(), incarnation: old.incarnation });
    plane.stop();
    for member in servers.iter().chain([&c]) {
        await_event(member, Event::ControlPlaneLost);
    }
    let lost = c.probe(Duration::from_millis(20));
    assert_error(lost, Status::ControlPlaneUnreachable, &[&format!("{HOST}:{port}"), "ms"]);

    let plane = restarted(port, &identity(2));
    for member in servers.iter().chain([&c]) {
        // Nothing that was known before is told again.
        assert_eq!(member.next_event(LONG), Some(Event::ControlPlaneBack));
    }
    let late = join(&plane, 2, &client(0));
    late.wait_servers_ready(LONG).unwrap();
    assert_eq!(c.get_lanes(servers[0].me(), LONG).unwrap(), b"for c");
    assert_eq!(servers[0].get_lanes(c.me(), LONG).unwrap(), b"from c");
    // The number that the first control plane gave is not given again.
    let other = join(&plane, 2, &member(Role::Client(None)));
    assert_ne!(other.me(), c.me());
    let left = Event::MemberLeft { peer: c.me(), incarnation: old.incarnation, died: false };
    c.leave();
    await_event(&servers[1], left);
}

#[test]
fn calls_wait_for_the_control_plane_to_come_back() {
    let plane = plane(1);
    let port = plane.port();
    let a = join(&plane, 1, &server(0));
    let c = join(&plane, 1, &client(0));
    std::thread::scope(|scope| {
        let ready = scope.spawn(|| c.wait_servers_ready(LONG));
        let barrier = scope.spawn(|| c.barrier("b", 2, LONG));
        let lanes = scope.spawn(|| c.get_lanes(a.me(), LONG));
        plane.stop();
        await_event(&a, Event::ControlPlaneLost);
        let published = scope.spawn(|| a.publish_lanes(c.me(), b"x".to_vec()));
        let _plane = restarted(port, &identity(1));
        a.ready().unwrap();
        a.barrier("b", 2, LONG).unwrap();
        published.join().unwrap().unwrap();
        ready.join().unwrap().unwrap();
        barrier.join().unwrap().unwrap();
        assert_eq!(lanes.join().unwrap().unwrap(), b"x");
    });
}

#[test]
fn a_member_of_an_epoch_that_is_over_is_fenced() {
    let plane = plane(1);
    let port = plane.port();
    let a = join(&plane, 1, &server(0));
    plane.stop();
    await_event(&a, Event::ControlPlaneLost);
    let _newer = restarted(port, &Identity { epoch: Epoch(8), ..identity(1) });
    assert_error(a.ready(), Status::StaleEpoch, &["stale", "7", "8"]);
}
