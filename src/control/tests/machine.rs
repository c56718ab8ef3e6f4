//! The state machine alone: stories first, then random ones.

use super::*;
use crate::control::limits::{
    BARRIERS_MAX, BARRIERS_PER_MEMBER_MAX, DUPLICATE_GRACE, OFFER_BYTES_MAX, WAITS_PER_MEMBER_MAX,
};
use crate::control::messages::{Action, Answer, Ask, Input, Notice, SessionId, Ticket};
use crate::control::secret::Proof;
use crate::control::session::Plane;
use crate::time::Tick;
use proptest::prelude::*;
use std::collections::{BTreeMap, BTreeSet};

/// Drives the machine by hand and checks after every step what must hold always.
struct Desk {
    plane: Plane,
    now: Tick,
    next_ticket: u64,
    open: BTreeSet<Ticket>,
    answers: BTreeMap<Ticket, Answer>,
    live: BTreeMap<SessionId, (Peer, Incarnation)>,
    notices: BTreeMap<SessionId, Vec<Notice>>,
    log: Vec<Action>,
}

impl Desk {
    fn new(num_shards: u32) -> Desk {
        Desk {
            plane: Plane::new(identity(num_shards), Incarnation(5)),
            now: Tick(1),
            next_ticket: 1,
            open: BTreeSet::new(),
            answers: BTreeMap::new(),
            live: BTreeMap::new(),
            notices: BTreeMap::new(),
            log: Vec::new(),
        }
    }

    fn ticket(&mut self) -> Ticket {
        self.next_ticket += 1;
        self.open.insert(Ticket(self.next_ticket));
        Ticket(self.next_ticket)
    }

    fn take(&mut self, actions: Vec<Action>) {
        for action in &actions {
            match action {
                Action::Answer(ticket, answer) => {
                    assert!(self.open.remove(ticket), "{ticket:?} was answered twice, or after it was cancelled");
                    if let Answer::Joined { session, me } = answer {
                        assert!(self.live.insert(*session, (*me, Incarnation(0))).is_none());
                        self.notices.insert(*session, Vec::new());
                    }
                    self.answers.insert(*ticket, answer.clone());
                }
                Action::Tell(session, notice) => {
                    self.notices.get_mut(session).expect("told after its end or before its start").push(notice.clone());
                }
                Action::End(session) => {
                    self.live.remove(session);
                    self.notices.remove(session);
                }
            }
        }
        let names: BTreeSet<Peer> = self.live.values().map(|(peer, _)| *peer).collect();
        assert_eq!(names.len(), self.live.len(), "a name has two holders");
        self.log.extend(actions);
        self.plane.check();
    }

    fn feed(&mut self, input: Input) {
        let actions = self.plane.handle(self.now, input);
        self.take(actions);
    }

    fn pass(&mut self, time: Duration) {
        self.now = self.now.after(time);
        let actions = self.plane.tick(self.now);
        self.take(actions);
        assert!(self.plane.next_deadline().is_none_or(|at| at > self.now));
    }

    fn start_join(&mut self, member: &Member) -> Ticket {
        self.start_join_with(member, Proof::default())
    }

    fn start_join_with(&mut self, member: &Member, proof: Proof) -> Ticket {
        let ticket = self.ticket();
        let identity = identity(self.plane.identity.num_shards);
        self.feed(Input::Join { ticket, identity, member: member.clone(), proof });
        ticket
    }

    fn join(&mut self, member: &Member) -> SessionId {
        let ticket = self.start_join(member);
        let Some(Answer::Joined { session, .. }) = self.answers.get(&ticket).cloned() else {
            panic!("not joined: {:?}", self.answers.get(&ticket))
        };
        session
    }

    fn start(&mut self, session: SessionId, member: &Member, ask: Ask, wait: Duration) -> Ticket {
        let ticket = self.ticket();
        let deadline = self.now.after(wait);
        self.feed(Input::Ask { ticket, session, incarnation: member.incarnation, ask, deadline });
        ticket
    }

    fn refusal(&self, ticket: Ticket) -> &Refusal {
        match self.answers.get(&ticket) {
            Some(Answer::Refused(refusal)) => refusal,
            other => panic!("not refused: {other:?}"),
        }
    }
}

fn barrier(name: &str, participants: u32, call: u64) -> Ask {
    Ask::Barrier { name: name.to_string(), participants, call }
}

#[test]
fn a_contender_waits_for_the_holder_to_turn_out_dead() {
    let mut desk = Desk::new(1);
    let (first, second, third) = (server(0), server(0), server(0));
    let holder = desk.join(&first);
    let contender = desk.start_join(&second);
    let other = desk.start_join(&third);
    assert!(!desk.answers.contains_key(&contender));
    desk.feed(Input::Gone(holder));
    assert!(matches!(desk.answers[&contender], Answer::Joined { .. }));
    assert!(!desk.answers.contains_key(&other));
    desk.pass(DUPLICATE_GRACE);
    assert_eq!(desk.refusal(other).reason, Reason::Duplicate);
}

#[test]
fn the_same_process_takes_its_own_name_over_silently() {
    let mut desk = Desk::new(1);
    let (a, c) = (server(0), client(0));
    let (old, watcher) = (desk.join(&a), desk.join(&c));
    desk.start(old, &a, Ask::Ready, Duration::ZERO);
    let waiting = desk.start(old, &a, Ask::Lanes { from: Peer::Client(ClientId(0)) }, LONG);
    let told = desk.notices[&watcher].len();
    let new = desk.join(&a);
    assert_ne!(old, new);
    assert_eq!(desk.refusal(waiting).reason, Reason::UnknownSession);
    assert_eq!(desk.notices[&watcher].len(), told);
    let ready = desk.start(watcher, &c, Ask::WaitReady(None), LONG);
    assert_eq!(desk.answers[&ready], Answer::Done);
    // The old stream's end arrives late and means nothing any more.
    desk.feed(Input::Gone(old));
    assert_eq!(desk.notices[&watcher].len(), told);
}

#[test]
fn a_newcomer_is_told_what_was_before() {
    let mut desk = Desk::new(2);
    let (a, b, c) = (server(0), server(1), client(0));
    let (sa, sb) = (desk.join(&a), desk.join(&b));
    desk.start(sa, &a, Ask::Ready, Duration::ZERO);
    desk.start(sb, &b, Ask::Ready, Duration::ZERO);
    desk.start(sb, &b, Ask::Draining, Duration::ZERO);
    let to = Peer::Client(ClientId(0));
    desk.start(sa, &a, Ask::Publish { to, version: 3, for_incarnation: None, offer: vec![1] }, Duration::ZERO);
    let sc = desk.join(&c);
    let from = Peer::Server(ShardId(0));
    for expected in [
        Notice::MemberJoined { peer: from, incarnation: a.incarnation },
        Notice::ServerReady(ShardId(0)),
        Notice::ServerDraining(ShardId(1)),
        Notice::LanesPublished { from, incarnation: a.incarnation, version: 3 },
    ] {
        assert!(desk.notices[&sc].contains(&expected), "{expected:?}");
    }
    assert_eq!(desk.notices[&sc].last(), Some(&Notice::CaughtUp));
}

#[test]
fn offers_die_with_either_end_and_old_ones_do_not_come_back() {
    let mut desk = Desk::new(1);
    let (a, c, next) = (server(0), client(0), client(0));
    let (sa, sc) = (desk.join(&a), desk.join(&c));
    let to = Peer::Client(ClientId(0));
    let publish = |version, for_incarnation, byte| Ask::Publish { to, version, for_incarnation, offer: vec![byte] };
    desk.start(sa, &a, publish(1, Some(c.incarnation), 1), Duration::ZERO);
    desk.start(sa, &a, publish(2, Some(c.incarnation), 2), Duration::ZERO);
    desk.start(sa, &a, publish(1, Some(c.incarnation), 1), Duration::ZERO);
    let from = Peer::Server(ShardId(0));
    let got = desk.start(sc, &c, Ask::Lanes { from }, LONG);
    assert_eq!(desk.answers[&got], Answer::Offer(vec![2]));
    desk.feed(Input::Gone(sc));
    // Told again, as after a restart, before and after the successor has come.
    desk.start(sa, &a, publish(2, Some(c.incarnation), 2), Duration::ZERO);
    let sn = desk.join(&next);
    desk.start(sa, &a, publish(2, Some(c.incarnation), 2), Duration::ZERO);
    let none = desk.start(sn, &next, Ask::Lanes { from }, Duration::ZERO);
    assert_eq!(desk.refusal(none).reason, Reason::Deadline);
    let large = Ask::Publish { to, version: 9, for_incarnation: None, offer: vec![0; OFFER_BYTES_MAX + 1] };
    let refused = desk.start(sa, &a, large, Duration::ZERO);
    assert_eq!(desk.refusal(refused).reason, Reason::TooLarge);
}

#[test]
fn a_dead_participant_fails_the_barrier_for_those_who_wait_and_those_who_come_later() {
    let mut desk = Desk::new(1);
    let (a, b, c) = (server(0), client(0), client(1));
    let (sa, sb, sc) = (desk.join(&a), desk.join(&b), desk.join(&c));
    let waiting = desk.start(sa, &a, barrier("cut", 3, 1), LONG);
    desk.start(sc, &c, barrier("cut", 3, 1), LONG);
    desk.feed(Input::Gone(sc));
    assert_eq!(desk.refusal(waiting).reason, Reason::BarrierFailed);
    let late = desk.start(sb, &b, barrier("cut", 3, 1), LONG);
    for ticket in [waiting, late] {
        let message = &desk.refusal(ticket).message;
        assert!(message.contains("'cut'") && message.contains("client 1") && message.contains("died"), "{message}");
    }
    // Everybody was told: the next round starts afresh.
    let again = desk.start(sa, &a, barrier("cut", 2, 2), LONG);
    desk.start(sb, &b, barrier("cut", 2, 2), LONG);
    assert_eq!(desk.answers[&again], Answer::Done);
}

#[test]
fn a_failed_barrier_is_forgotten_at_its_deadline() {
    let mut desk = Desk::new(1);
    let (a, b) = (server(0), client(0));
    let (sa, sb) = (desk.join(&a), desk.join(&b));
    desk.start(sa, &a, barrier("cut", 2, 1), Duration::from_secs(1));
    desk.feed(Input::Gone(sa));
    desk.pass(Duration::from_secs(1));
    let fresh = desk.start(sb, &b, barrier("cut", 2, 1), Duration::from_secs(1));
    assert!(!desk.answers.contains_key(&fresh));
}

#[test]
fn a_retry_of_a_released_barrier_call_is_not_counted_again() {
    let mut desk = Desk::new(1);
    let (a, b) = (server(0), client(0));
    let (sa, sb) = (desk.join(&a), desk.join(&b));
    desk.start(sa, &a, barrier("cut", 2, 7), LONG);
    desk.start(sb, &b, barrier("cut", 2, 1), LONG);
    // The answer to `a` was lost with its connection.
    desk.feed(Input::Gone(sa));
    let sa = desk.join(&a);
    let retry = desk.start(sa, &a, barrier("cut", 2, 7), LONG);
    assert_eq!(desk.answers[&retry], Answer::Done);
    let next = desk.start(sb, &b, barrier("cut", 2, 2), LONG);
    assert!(!desk.answers.contains_key(&next));
}

#[test]
fn waits_of_one_member_are_bounded() {
    let mut desk = Desk::new(2);
    let c = client(0);
    let sc = desk.join(&c);
    for _ in 0..WAITS_PER_MEMBER_MAX {
        desk.start(sc, &c, Ask::WaitReady(None), LONG);
    }
    let refused = desk.start(sc, &c, Ask::WaitReady(None), LONG);
    assert_eq!(desk.refusal(refused).status, Status::ResourceLimit);
    desk.feed(Input::Gone(sc));
    assert!(desk.open.is_empty());
}

#[test]
fn an_incarnation_that_everybody_knows_does_not_open_its_name() {
    let mut desk = Desk::new(1);
    let (victim, watcher) = (server(0), client(0));
    let first = desk.start_join_with(&victim, Proof([7; 16]));
    let Answer::Joined { session, .. } = desk.answers[&first] else { panic!("joins") };
    desk.join(&watcher);
    let thief = desk.start_join_with(&victim, Proof([8; 16]));
    desk.pass(DUPLICATE_GRACE);
    assert_eq!(desk.refusal(thief).reason, Reason::Duplicate);
    let ready = desk.start(session, &victim, Ask::Ready, Duration::ZERO);
    assert_eq!(desk.answers[&ready], Answer::Done, "the victim's session goes on");
}

#[test]
fn session_numbers_cannot_be_told_from_each_other() {
    let keyed = |key| Plane::new(identity(1), Incarnation(5)).with_session_key([key; 32]);
    let sessions = |mut plane: Plane| -> Vec<u64> {
        let joins = (0..3).map(|id| {
            let join =
                Input::Join { ticket: Ticket(id), identity: identity(1), member: client(9), proof: Proof::default() };
            plane.handle(Tick::default(), join)
        });
        let joined = |action| match action {
            Action::Answer(_, Answer::Joined { session, .. }) => Some(session.0),
            _ => None,
        };
        joins.flatten().filter_map(joined).collect()
    };
    let (one, other) = (sessions(keyed(1)), sessions(keyed(2)));
    assert!(!one.is_empty() && one[0] != other[0] && one[0] > u64::from(u32::MAX), "{one:?} {other:?}");
}

#[test]
fn nobody_can_take_all_barriers_alive_or_dead() {
    let mut desk = Desk::new(1);
    let (a, b) = (server(0), client(0));
    let (sa, sb) = (desk.join(&a), desk.join(&b));
    // Lives that begin as many barriers as they may, each for a day, and die.
    for life in 0..2 * BARRIERS_MAX / BARRIERS_PER_MEMBER_MAX {
        let greedy = client(1);
        let session = desk.join(&greedy);
        for number in 0..=BARRIERS_PER_MEMBER_MAX as u64 {
            let last = desk.start(session, &greedy, barrier(&format!("{life}-{number}"), 2, number), LONG);
            assert_eq!(desk.answers.contains_key(&last), number == BARRIERS_PER_MEMBER_MAX as u64);
        }
        let own = desk.start(sa, &a, barrier("own", 2, life as u64), LONG);
        desk.start(sb, &b, barrier("own", 2, life as u64), LONG);
        assert_eq!(desk.answers[&own], Answer::Done, "life {life}");
        desk.feed(Input::Gone(session));
    }
}

#[test]
fn a_stolen_session_number_is_of_no_use() {
    let mut desk = Desk::new(1);
    let (a, thief) = (server(0), client(0));
    let sa = desk.join(&a);
    let refused = desk.start(sa, &thief, Ask::Leave, Duration::ZERO);
    assert_eq!(desk.refusal(refused).reason, Reason::UnknownSession);
    assert_eq!(desk.live.len(), 1);
}

/// One step of a random story. Numbers are taken modulo what there is.
#[derive(Clone, Debug)]
enum Step {
    Join { name: u8, life: u8 },
    Ask { session: u8, ask: u8, other: u8, wait_ms: u8 },
    Cancel(u8),
    Gone(u8),
    Pass(u8),
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let step = prop_oneof![
        3 => (0..6u8, 0..3u8).prop_map(|(name, life)| Step::Join { name, life }),
        8 => (any::<u8>(), 0..9u8, any::<u8>(), 0..50u8)
            .prop_map(|(session, ask, other, wait_ms)| Step::Ask { session, ask, other, wait_ms }),
        1 => any::<u8>().prop_map(Step::Cancel),
        1 => any::<u8>().prop_map(Step::Gone),
        2 => (0..60u8).prop_map(Step::Pass),
    ];
    proptest::collection::vec(step, 1..120)
}

fn nth_peer(n: u8) -> Peer {
    match n % 5 {
        0 => Peer::Server(ShardId(0)),
        1 => Peer::Server(ShardId(1)),
        n => Peer::Client(ClientId(u32::from(n))),
    }
}

/// A member for a random story: a few names, a few lives of each; name 5 asks for a number.
fn nth_member(name: u8, life: u8) -> Member {
    let role = match nth_peer(name) {
        _ if name == 5 => Role::Client(None),
        Peer::Server(shard) => Role::Server(shard),
        Peer::Client(client) => Role::Client(Some(client)),
    };
    Member { role, incarnation: Incarnation(u128::from(name) * 100 + u128::from(life)), pid: 1, host: "h".to_string() }
}

fn nth_ask(ask: u8, other: u8, count: u64) -> Ask {
    match ask {
        0 => Ask::Publish { to: nth_peer(other), version: count, for_incarnation: None, offer: vec![other; 3] },
        1 => Ask::Lanes { from: nth_peer(other) },
        2 => Ask::Ready,
        3 => Ask::Draining,
        4 => Ask::WaitReady(None),
        5 => Ask::WaitReady(Some(ShardId(u32::from(other % 3)))),
        6 | 7 => barrier(["x", "y"][usize::from(other % 2)], 2 + u32::from(other % 2), count),
        _ => Ask::Leave,
    }
}

/// Plays a story; returns everything the machine did.
fn play(steps: &[Step]) -> Vec<Action> {
    let mut desk = Desk::new(2);
    let mut lives = BTreeMap::<Ticket, Incarnation>::new();
    // Barrier calls under way: who, where, how many it takes.
    let mut arrivals = BTreeMap::<Ticket, (Peer, String, u32)>::new();
    for step in steps {
        let seen = desk.log.len();
        let before = desk.live.clone();
        match *step {
            Step::Join { name, life } => {
                let member = nth_member(name, life);
                let ticket = desk.start_join(&member);
                lives.insert(ticket, member.incarnation);
            }
            Step::Ask { session, ask, other, wait_ms } => {
                let Some((session, (peer, incarnation))) = pick(&desk.live, session) else { continue };
                let ask = nth_ask(ask, other, desk.next_ticket);
                let ticket = desk.ticket();
                if let Ask::Barrier { name, participants, .. } = &ask {
                    arrivals.insert(ticket, (peer, name.clone(), *participants));
                }
                let deadline = desk.now.after(Duration::from_millis(wait_ms.into()));
                desk.feed(Input::Ask { ticket, session, incarnation, ask, deadline });
            }
            Step::Cancel(n) => {
                let Some(ticket) = desk.open.iter().copied().nth(usize::from(n) % desk.open.len().max(1)) else {
                    continue;
                };
                desk.open.remove(&ticket);
                desk.feed(Input::Cancel(ticket));
            }
            Step::Gone(n) => {
                let Some((session, _)) = pick(&desk.live, n) else { continue };
                desk.feed(Input::Gone(session));
            }
            Step::Pass(ms) => desk.pass(Duration::from_millis(ms.into())),
        }
        let new = desk.log[seen..].to_vec();
        for action in &new {
            if let Action::Answer(ticket, Answer::Joined { session, .. }) = action
                && let Some(entry) = desk.live.get_mut(session)
            {
                entry.1 = lives[ticket];
            }
        }
        check_releases(&new, &arrivals);
        check_departures(&new, &before, &desk.live);
    }
    desk.pass(LONG);
    assert!(desk.open.is_empty(), "calls without an answer: {:?}", desk.open);
    desk.log
}

fn pick<V: Clone>(map: &BTreeMap<SessionId, V>, n: u8) -> Option<(SessionId, V)> {
    map.iter().nth(usize::from(n) % map.len().max(1)).map(|(key, value)| (*key, value.clone()))
}

/// Whoever is released from a barrier in a step, the right number of different members is released with it.
fn check_releases(new: &[Action], arrivals: &BTreeMap<Ticket, (Peer, String, u32)>) {
    let mut released = BTreeMap::<(&str, u32), BTreeSet<Peer>>::new();
    for action in new {
        if let Action::Answer(ticket, Answer::Done) = action
            && let Some((peer, name, participants)) = arrivals.get(ticket)
        {
            released.entry((name, *participants)).or_default().insert(*peer);
        }
    }
    for ((name, participants), peers) in released {
        assert_eq!(peers.len(), participants as usize, "{name} was released for {peers:?}");
    }
}

/// Whoever went in a step, everybody who stayed was told once; a process that only joined again did not go.
fn check_departures(
    new: &[Action],
    before: &BTreeMap<SessionId, (Peer, Incarnation)>,
    after: &BTreeMap<SessionId, (Peer, Incarnation)>,
) {
    let still: Vec<_> = after.values().collect();
    for gone in before.values().filter(|old| !still.contains(old)) {
        for stayed in before.keys().filter(|session| after.contains_key(session)) {
            let told = new.iter().filter(|action| {
                matches!(action, Action::Tell(session, Notice::MemberLeft { peer, incarnation, .. })
                    if session == stayed && (*peer, *incarnation) == *gone)
            });
            assert_eq!(told.count(), 1, "{gone:?} went; {stayed:?} was not told once");
        }
    }
}

proptest! {
    #[test]
    fn random_stories_keep_the_invariants_and_repeat_exactly(steps in steps()) {
        prop_assert_eq!(play(&steps), play(&steps));
    }
}
