//! What goes into the control plane's state machine and what comes out.

#![forbid(unsafe_code)]

use super::health::{Health, HealthReport};
use super::overview::{Observer, Overview, SelfReport};
use super::refusal::Refusal;
use super::secret::Proof;
use super::types::{Identity, Member, Peer};
use crate::ids::{Incarnation, ShardId};
use crate::sync::Arc;
use crate::time::Tick;

/// One join of one member.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct SessionId(pub u64);

/// One call; the answer carries it back. Never reused.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Ticket(pub u64);

/// What happened.
#[derive(Clone, Debug)]
pub enum Input {
    /// A process wants to join.
    Join {
        /// Of the call.
        ticket: Ticket,
        /// What it thinks the deployment is.
        identity: Identity,
        /// Who it is.
        member: Member,
        /// That it is who it was, should its name be taken.
        proof: Proof,
    },
    /// A member calls.
    Ask {
        /// Of the call.
        ticket: Ticket,
        /// Who calls.
        session: SessionId,
        /// Proof that it is the one.
        incarnation: Incarnation,
        /// What it wants.
        ask: Ask,
        /// Until when it waits.
        deadline: Tick,
    },
    /// Somebody without a session looks at the deployment.
    Observe {
        /// Of the call.
        ticket: Ticket,
        /// Which deployment it means, and whether it may.
        observer: Observer,
    },
    /// The caller does not wait any more.
    Cancel(Ticket),
    /// A member's stream broke.
    Gone(SessionId),
}

/// A call of a member.
#[derive(Clone, Debug)]
pub enum Ask {
    /// Store an offer.
    Publish {
        /// For whom.
        to: Peer,
        /// Counted by the publisher.
        version: u64,
        /// For which life; none: any.
        for_incarnation: Option<Incarnation>,
        /// The offer.
        offer: Vec<u8>,
    },
    /// Wait for an offer.
    Lanes {
        /// By whom.
        from: Peer,
    },
    /// The server serves.
    Ready,
    /// The server is about to leave.
    Draining,
    /// Wait for every server, or for one.
    WaitReady(Option<ShardId>),
    /// Wait for the others.
    Barrier {
        /// Its name.
        name: String,
        /// How many members must come.
        participants: u32,
        /// The caller's own number of the call.
        call: u64,
    },
    /// Hand a letter to another member.
    Mail {
        /// To whom.
        to: Peer,
        /// What it says.
        body: Arc<[u8]>,
    },
    /// The server lives.
    Beat,
    /// What is known of a shard's health.
    Health(ShardId),
    /// The member's numbers.
    Report(SelfReport),
    /// Goodbye.
    Leave,
}

/// The answer to one call.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Answer {
    /// The member is in.
    Joined {
        /// Its session.
        session: SessionId,
        /// Its name.
        me: Peer,
    },
    /// Done, nothing to say.
    Done,
    /// The offer is stored; the receiver's present life.
    Published(Option<Incarnation>),
    /// The offer.
    Offer(Vec<u8>),
    /// A shard's health.
    Health(HealthReport),
    /// Who is here.
    Deployment(Box<Overview>),
    /// No.
    Refused(Refusal),
}

/// What a member's stream says.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Notice {
    /// Somebody is here.
    MemberJoined {
        /// Who.
        peer: Peer,
        /// Its life.
        incarnation: Incarnation,
    },
    /// Somebody is gone.
    MemberLeft {
        /// Who.
        peer: Peer,
        /// Its life.
        incarnation: Incarnation,
        /// Whether it went without a word.
        died: bool,
    },
    /// An offer for this member is stored.
    LanesPublished {
        /// By whom.
        from: Peer,
        /// Its life.
        incarnation: Incarnation,
        /// Counted by the publisher.
        version: u64,
    },
    /// A server serves.
    ServerReady(ShardId),
    /// A server is about to leave.
    ServerDraining(ShardId),
    /// A server's health has changed.
    ServerHealth {
        /// The shard.
        shard: ShardId,
        /// Its process.
        incarnation: Incarnation,
        /// What is thought of it.
        health: Health,
    },
    /// A letter.
    Mail {
        /// By whom.
        from: Peer,
        /// Its life.
        incarnation: Incarnation,
        /// What it says.
        body: Arc<[u8]>,
    },
    /// Everything that was so before the join has been told.
    CaughtUp,
    /// Somebody looks at the deployment.
    ReportWanted,
}

/// What to do.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Action {
    /// Answer a call. Each call is answered at most once, and exactly once unless it was cancelled.
    Answer(Ticket, Answer),
    /// Say something on a member's stream.
    Tell(SessionId, Notice),
    /// Close a member's stream.
    End(SessionId),
}
