//! Brings the state machine to life: hands its answers to the calls that wait and its notices to the streams.

use super::limits::{MAIL_WAITING_MAX, NOTICES_MAX};
use super::messages::{Action, Answer, Input, Notice, SessionId, Ticket};
use super::session::Plane;
use crate::sync::{Arc, Mutex, lock};
use crate::time::{self, Tick};
use core::task::{Context, Poll};
use std::collections::{BTreeMap, VecDeque};
use tokio::sync::{Notify, mpsc, oneshot};

/// What a call gets.
#[derive(Debug)]
pub(super) struct Reply {
    pub(super) answer: Answer,
    /// The stream of a member that has just joined.
    pub(super) watched: Option<Watched>,
}

#[derive(Debug)]
struct Inner {
    plane: Plane,
    next_ticket: u64,
    calls: BTreeMap<Ticket, oneshot::Sender<Reply>>,
    streams: BTreeMap<SessionId, mpsc::Sender<Notice>>,
}

/// The one state machine of a control plane and everybody who waits on it.
#[derive(Debug)]
pub(super) struct Hub {
    inner: Mutex<Inner>,
    /// The next deadline may have changed.
    rearm: Notify,
}

impl Hub {
    pub(super) fn new(plane: Plane) -> Arc<Hub> {
        let inner = Inner { plane, next_ticket: 1, calls: BTreeMap::new(), streams: BTreeMap::new() };
        Arc::new(Hub { inner: Mutex::new(inner), rearm: Notify::new() })
    }

    /// Makes a call and waits for its answer. Dropping the future takes the call back.
    pub(super) async fn call(self: &Arc<Hub>, input: impl FnOnce(Ticket) -> Input) -> Option<Reply> {
        let (sender, receiver) = oneshot::channel();
        let ticket = {
            let mut inner = lock(&self.inner);
            let ticket = Ticket(inner.next_ticket);
            inner.next_ticket += 1;
            inner.calls.insert(ticket, sender);
            ticket
        };
        let _taken_back_if_dropped = Pending { hub: self.clone(), ticket };
        self.feed(input(ticket));
        receiver.await.ok()
    }

    /// Hands one event to the machine and does what it says.
    pub(super) fn feed(self: &Arc<Hub>, input: Input) {
        // What nobody takes is dropped after the lock is released: dropping a stream feeds the machine again.
        let mut unclaimed = Vec::new();
        {
            let mut inner = lock(&self.inner);
            let now = time::now();
            let actions = inner.plane.handle(now, input);
            self.act(&mut inner, now, actions, &mut unclaimed);
        }
        self.rearm.notify_one();
    }

    fn act(self: &Arc<Hub>, inner: &mut Inner, now: Tick, actions: Vec<Action>, unclaimed: &mut Vec<Reply>) {
        let mut actions = VecDeque::from(actions);
        while let Some(action) = actions.pop_front() {
            match action {
                Action::Answer(ticket, answer) => {
                    let watched = match answer {
                        Answer::Joined { session, .. } => {
                            let (sender, receiver) = mpsc::channel(NOTICES_MAX);
                            inner.streams.insert(session, sender);
                            Some(Watched { hub: self.clone(), session, receiver })
                        }
                        _ => None,
                    };
                    let reply = Reply { answer, watched };
                    match inner.calls.remove(&ticket) {
                        Some(call) => unclaimed.extend(call.send(reply).err()),
                        None => unclaimed.push(reply),
                    }
                }
                // A letter may be lost; nothing else may.
                Action::Tell(session, Notice::Mail { .. })
                    if inner.streams.get(&session).is_some_and(|s| s.capacity() + MAIL_WAITING_MAX < NOTICES_MAX) => {}
                Action::Tell(session, notice) => {
                    let deaf = inner.streams.get(&session).is_some_and(|stream| stream.try_send(notice).is_err());
                    if deaf {
                        crate::event!(
                            crate::observe::Level::WARN,
                            crate::observe::events::CONTROL_MEMBER_DEAF,
                            session = session.0,
                            "does not read its notices"
                        );
                        inner.streams.remove(&session);
                        actions.extend(inner.plane.handle(now, Input::Gone(session)));
                    }
                }
                Action::End(session) => {
                    inner.streams.remove(&session);
                }
            }
        }
    }

    /// Answers calls at their deadlines, for ever.
    pub(super) async fn keep_time(self: Arc<Hub>) {
        loop {
            let next = lock(&self.inner).plane.next_deadline();
            match next {
                None => self.rearm.notified().await,
                Some(deadline) => {
                    if tokio::time::timeout(deadline.remaining(), self.rearm.notified()).await.is_ok() {
                        continue;
                    }
                    // After a stall deadlines and news come together. The news go first: an id's holder whose stream has
                    // broken meanwhile must not keep its successor out.
                    tokio::task::yield_now().await;
                    let mut unclaimed = Vec::new();
                    let mut inner = lock(&self.inner);
                    let now = time::now();
                    let actions = inner.plane.tick(now);
                    self.act(&mut inner, now, actions, &mut unclaimed);
                }
            }
        }
    }
}

/// A call that is under way.
struct Pending {
    hub: Arc<Hub>,
    ticket: Ticket,
}

impl Drop for Pending {
    fn drop(&mut self) {
        let waiting = lock(&self.hub.inner).calls.remove(&self.ticket).is_some();
        if waiting {
            self.hub.feed(Input::Cancel(self.ticket));
        }
    }
}

/// A member's stream. When it is dropped, because the connection broke, the member is gone.
#[derive(Debug)]
pub(super) struct Watched {
    hub: Arc<Hub>,
    session: SessionId,
    receiver: mpsc::Receiver<Notice>,
}

impl Watched {
    pub(super) fn poll_next(&mut self, cx: &mut Context<'_>) -> Poll<Option<Notice>> {
        self.receiver.poll_recv(cx)
    }
}

impl Drop for Watched {
    fn drop(&mut self) {
        self.hub.feed(Input::Gone(self.session));
    }
}
