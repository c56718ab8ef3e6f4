//! What a member believes across losses and restarts of the control plane.

use super::*;
use crate::control::limits::RESETTLE;
use crate::control::messages::Notice;
use crate::control::view::View;
use crate::time::Tick;

const A: Peer = Peer::Server(ShardId(0));
const B: Peer = Peer::Client(ClientId(1));
const ONE: Incarnation = Incarnation(1);
const TWO: Incarnation = Incarnation(2);
const NOW: Tick = Tick(1);

fn here(peer: Peer, incarnation: Incarnation) -> Notice {
    Notice::MemberJoined { peer, incarnation }
}

fn published(version: u64) -> Notice {
    Notice::LanesPublished { from: A, incarnation: ONE, version }
}

/// A view that knows `A` (ready, published) and `B`.
fn settled() -> View {
    let mut view = View::default();
    assert!(view.joined(Incarnation(100)));
    assert_eq!(view.back(true), None);
    for notice in [here(A, ONE), here(B, ONE), Notice::ServerReady(ShardId(0)), published(1), Notice::CaughtUp] {
        view.notice(NOW, notice);
    }
    view.tick(NOW.after(RESETTLE));
    view
}

#[test]
fn a_restart_repeats_no_news() {
    let mut view = settled();
    assert_eq!(view.lost(), Some(Event::ControlPlaneLost));
    assert_eq!(view.lost(), None);
    assert!(!view.joined(Incarnation(101)));
    for notice in [Notice::CaughtUp, here(B, ONE), here(A, ONE), Notice::ServerReady(ShardId(0)), published(1)] {
        assert_eq!(view.notice(NOW, notice.clone()), [], "{notice:?}");
    }
    assert_eq!(view.back(false), Some(Event::ControlPlaneBack));
    let news = Event::LanesPublished { from: A, incarnation: ONE };
    assert_eq!(view.notice(NOW, published(2)), [news]);
    assert_eq!(view.tick(NOW.after(RESETTLE)), []);
}

#[test]
fn who_does_not_come_back_after_a_restart_is_dead() {
    let mut view = settled();
    view.lost();
    view.joined(Incarnation(101));
    view.notice(NOW, here(A, ONE));
    view.notice(NOW, Notice::CaughtUp);
    // A break of our own connection in the meantime does not cut the time short for the others.
    view.lost();
    assert!(!view.joined(Incarnation(101)));
    view.notice(NOW, here(A, ONE));
    assert_eq!(view.notice(NOW, Notice::CaughtUp), []);
    let due = view.next_deadline().unwrap();
    assert_eq!(view.tick(NOW), []);
    let dead = Event::MemberLeft { peer: B, incarnation: ONE, died: true };
    assert_eq!(view.tick(due), [dead]);
    assert_eq!(view.next_deadline(), None);
}

#[test]
fn who_went_while_only_our_connection_was_broken_is_dead_at_once() {
    let mut view = settled();
    view.lost();
    assert!(view.joined(Incarnation(100)));
    view.notice(NOW, here(B, TWO));
    let events = view.notice(NOW, Notice::CaughtUp);
    assert_eq!(events, [Event::MemberLeft { peer: A, incarnation: ONE, died: true }]);
}

#[test]
fn another_life_under_a_known_name_means_that_the_old_one_died() {
    let mut view = settled();
    let events = view.notice(NOW, Notice::LanesPublished { from: A, incarnation: TWO, version: 1 });
    assert_eq!(
        events,
        [
            Event::MemberLeft { peer: A, incarnation: ONE, died: true },
            Event::LanesPublished { from: A, incarnation: TWO }
        ]
    );
    // The late end of the old life is old news.
    assert_eq!(view.notice(NOW, Notice::MemberLeft { peer: A, incarnation: ONE, died: true }), []);
}

#[test]
fn offers_for_a_life_that_ended_are_not_told_again() {
    let mut view = settled();
    view.offer(A, b"a".as_slice().into());
    let unknown = Peer::Client(ClientId(8));
    let version = view.offer(unknown, b"u".as_slice().into()).version;
    view.offered(unknown, version, Some(TWO));
    assert_eq!(view.soft_state().0.len(), 2);
    view.notice(NOW, Notice::MemberLeft { peer: A, incarnation: ONE, died: false });
    let (offers, ready, draining) = view.soft_state();
    assert_eq!(offers.len(), 1);
    assert_eq!(offers[0].1.for_incarnation, Some(TWO));
    assert!(!ready && !draining);
}
