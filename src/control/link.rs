//! One member's connection: reaches the control plane, joins, and makes calls until they are answered or late.

use super::codec::{self, proto};
use super::events::Events;
use super::limits::{CONNECT_TIMEOUT, KEEPALIVE_INTERVAL, KEEPALIVE_TIMEOUT, RETRY_FIRST, RETRY_JOINING_MAX};
use super::refusal::{Reason, Refusal};
use super::secret::Proof;
use super::types::{Identity, Member, Peer, Role};
use super::view::View;
use crate::error::{Error, Result, Status};
use crate::ids::Incarnation;
use crate::sync::{AtomicBool, AtomicU64, Mutex};
use crate::time::{self, Tick};
use core::time::Duration;
use proto::control_client::ControlClient as Stub;
use tokio::sync::watch;
use tonic::transport::{Channel, Endpoint};

/// A call that found no session waits this long for a new one before it looks again.
const CALL_PAUSE: Duration = Duration::from_millis(20);

/// A live session.
#[derive(Clone, Debug)]
pub(super) struct Up {
    pub(super) stub: Stub<Channel>,
    pub(super) session: proto::Session,
}

/// Whether there is a session.
#[derive(Clone, Debug)]
pub(super) enum Link {
    Up(Up),
    /// Why not; a refusal when the control plane is there but does not take this member (any more).
    Down(Failure),
}

/// Why there is no session.
#[derive(Clone, Debug)]
pub(super) enum Failure {
    Unreachable(String),
    Refused(Refusal),
}

/// A session that has just begun.
#[derive(Debug)]
pub(super) struct Joined {
    pub(super) up: Up,
    pub(super) stream: tonic::Streaming<proto::JoinReply>,
    pub(super) me: Peer,
    pub(super) life: Incarnation,
}

/// What the control thread and the callers of one member share.
#[derive(Debug)]
pub(super) struct Shared {
    endpoint: Endpoint,
    pub(super) address: String,
    identity: Identity,
    member: Member,
    proof: Proof,
    pub(super) view: Mutex<View>,
    pub(super) events: Events,
    pub(super) link: watch::Sender<Link>,
    pub(super) next_call: AtomicU64,
    pub(super) leaving: AtomicBool,
    /// How often a server reports that it lives.
    pub(super) beat: watch::Sender<Option<Duration>>,
    /// Calls are not waited for any more.
    pub(super) given_up: watch::Sender<bool>,
}

impl Shared {
    pub(super) fn new(host: &str, port: u16, identity: &Identity, member: &Member) -> Result<Shared> {
        let address = if host.contains(':') { format!("[{host}]:{port}") } else { format!("{host}:{port}") };
        let endpoint = Endpoint::from_shared(format!("http://{address}"))
            .map_err(|source| {
                let message = format!("rdma-control-plane-host '{host}' is no host name or address: {source}");
                Error::new(Status::InvalidArgument, message)
            })?
            .connect_timeout(CONNECT_TIMEOUT)
            .tcp_nodelay(true)
            .http2_keep_alive_interval(KEEPALIVE_INTERVAL)
            .keep_alive_timeout(KEEPALIVE_TIMEOUT)
            .keep_alive_while_idle(true);
        Ok(Shared {
            endpoint,
            address,
            identity: identity.clone(),
            member: member.clone(),
            proof: Proof::fresh()?,
            view: Mutex::default(),
            events: Events::default(),
            link: watch::Sender::new(Link::Down(Failure::Unreachable("not joined yet".to_string()))),
            next_call: AtomicU64::new(1),
            leaving: AtomicBool::new(false),
            beat: watch::Sender::new(None),
            given_up: watch::Sender::new(false),
        })
    }

    /// A pause before the next attempt: doubles up to `most`, and differs from member to member.
    pub(super) fn pause_before(&self, attempt: u32, most: Duration) -> Duration {
        let full = RETRY_FIRST.saturating_mul(1 << attempt.min(16)).min(most);
        // Half of it is fixed, half is spread by a hash of who asks and how often.
        let who = u64::try_from(self.member.incarnation.0 >> 64).unwrap_or(0);
        let seed = who ^ u64::from(attempt).wrapping_mul(0x9e37_79b9_7f4a_7c15);
        let spread = seed.wrapping_mul(0xd6e8_feb8_6659_fd93) >> 54;
        let half_ns = u64::try_from(full.as_nanos() / 2).unwrap_or(u64::MAX);
        Duration::from_nanos(half_ns.saturating_add(half_ns / 1024 * spread))
    }

    /// Joins, trying again until the deadline while nobody listens.
    pub(super) async fn join_until(&self, started: Tick, deadline: Tick) -> Result<Joined> {
        for attempt in 0.. {
            let why = match tokio::time::timeout(deadline.remaining(), self.join(self.member.role)).await {
                Ok(Ok(joined)) => return Ok(joined),
                Ok(Err(Failure::Refused(refusal))) => return Err(refusal.into_error()),
                Ok(Err(Failure::Unreachable(why))) => why,
                Err(_) => "it does not answer".to_string(),
            };
            let pause = self.pause_before(attempt, RETRY_JOINING_MAX);
            if deadline.remaining() <= pause {
                return Err(self.unreachable(started, &why));
            }
            tokio::time::sleep(pause).await;
        }
        Err(self.unreachable(started, "no attempt was made"))
    }

    /// One attempt to join.
    pub(super) async fn join(&self, role: Role) -> core::result::Result<Joined, Failure> {
        let channel = self.endpoint.connect().await.map_err(|error| Failure::Unreachable(chain(&error)))?;
        let mut stub = Stub::new(channel);
        let request = codec::join_message(&self.identity, &self.member, role, self.proof);
        let mut stream = stub.join(request).await.map_err(|status| failure(&status))?.into_inner();
        let first = stream.message().await.map_err(|status| failure(&status))?;
        let Some(proto::JoinReply { kind: Some(proto::join_reply::Kind::Joined(joined)) }) = first else {
            return Err(Failure::Unreachable("its answer to the join makes no sense".to_string()));
        };
        let me = codec::peer(joined.me).map_err(Failure::Refused)?;
        let life = codec::incarnation(&joined.life).map_err(Failure::Refused)?;
        let incarnation = codec::incarnation_bytes(self.member.incarnation);
        let up = Up { stub, session: proto::Session { id: joined.session, incarnation } };
        Ok(Joined { up, stream, me, life })
    }

    /// Makes one call, again when the session changes under it. `rpc` gets what is left of the time; its answer may be
    /// late by `slack`.
    pub(super) async fn call<T, F>(
        &self,
        deadline: Tick,
        slack: Duration,
        rpc: impl Fn(Stub<Channel>, proto::Session, Duration) -> F,
    ) -> Result<T>
    where
        F: Future<Output = core::result::Result<tonic::Response<T>, tonic::Status>>,
    {
        let started = time::now();
        let mut link = self.link.subscribe();
        loop {
            let state = link.borrow_and_update().clone();
            let why = match state {
                Link::Down(Failure::Refused(refusal)) => return Err(refusal.into_error()),
                Link::Down(Failure::Unreachable(reason)) => reason,
                Link::Up(up) => {
                    let answer = rpc(up.stub, up.session, deadline.remaining());
                    match tokio::time::timeout(deadline.after(slack).remaining(), answer).await {
                        Ok(Ok(answer)) => return Ok(answer.into_inner()),
                        Ok(Err(status)) => match failure(&status) {
                            Failure::Refused(refusal) => return Err(refusal.into_error()),
                            Failure::Unreachable(reason) => reason,
                        },
                        Err(_) => return Err(self.unreachable(started, "it does not answer")),
                    }
                }
            };
            let left = deadline.remaining();
            if left.is_zero() {
                return Err(self.unreachable(started, &why));
            }
            // Either way the loop looks again; an error would mean that the sender, which we hold, is gone.
            drop(tokio::time::timeout(left.min(CALL_PAUSE), link.changed()).await);
        }
    }

    pub(super) fn unreachable(&self, started: Tick, why: &str) -> Box<Error> {
        let elapsed_ns = time::now().since_ns(started);
        let message = format!(
            "the control plane at {} was not reached within {} ms: {why}",
            self.address,
            elapsed_ns / 1_000_000
        );
        let mut error = Error::new(Status::ControlPlaneUnreachable, message);
        error.elapsed_ns = elapsed_ns;
        error
    }
}

/// What a failed call means. A control plane that is stopping, or that has forgotten us, is as good as not reached.
pub(super) fn failure(status: &tonic::Status) -> Failure {
    match codec::refusal(status) {
        Some(refusal) if matches!(refusal.reason, Reason::UnknownSession | Reason::Stopping) => {
            Failure::Unreachable(refusal.message)
        }
        Some(refusal) => Failure::Refused(refusal),
        None => Failure::Unreachable(chain(status)),
    }
}

/// An error with its causes, which is where the transport hides what happened.
pub(super) fn chain(error: &(dyn std::error::Error + 'static)) -> String {
    let mut text = error.to_string();
    let mut cause = error.source();
    while let Some(inner) = cause {
        let inner_text = inner.to_string();
        if !text.contains(&inner_text) {
            text.push_str(": ");
            text.push_str(&inner_text);
        }
        cause = inner.source();
    }
    text
}
