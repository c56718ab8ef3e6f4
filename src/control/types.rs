//! What the control plane is told and what it tells, as plain values.

#![forbid(unsafe_code)]

use super::health::Health;
use super::secret::Secret;
use crate::ids::{ClientId, Epoch, Incarnation, ShardId};
use crate::sync::Arc;
use core::fmt;

/// What all members of one deployment agree on.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Identity {
    /// Name of the deployment.
    pub deployment_id: String,
    /// Fencing token: only members of the same epoch work together.
    pub epoch: Epoch,
    /// Separates runs that share a deployment id.
    pub namespace: String,
    /// Number of shards.
    pub num_shards: u32,
    /// Lines of `name=value`: everything that shapes the layout.
    pub layout: String,
    /// The secret that members share, or none.
    pub secret: Secret,
}

/// As what a process joins.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Role {
    /// The server of this shard.
    Server(ShardId),
    /// The client of this number; without one, the control plane gives one.
    Client(Option<ClientId>),
}

/// A member by its name. A restarted process has the same name and another incarnation.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Peer {
    /// The server of this shard.
    Server(ShardId),
    /// The client of this number.
    Client(ClientId),
}

impl fmt::Display for Peer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Peer::Server(shard) => write!(f, "shard {shard}"),
            Peer::Client(client) => write!(f, "client {client}"),
        }
    }
}

/// One process that joins.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Member {
    /// As what.
    pub role: Role,
    /// Random identity of this process life.
    pub incarnation: Incarnation,
    /// Process id, for messages.
    pub pid: u32,
    /// Host name, for messages.
    pub host: String,
}

/// What changed around a member.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Event {
    /// `from` published lanes for this member; [`get_lanes`](crate::control::ControlClient::get_lanes) has them.
    LanesPublished {
        /// Who published.
        from: Peer,
        /// Its life.
        incarnation: Incarnation,
    },
    /// A member is gone; what it published is gone, and its name is free.
    MemberLeft {
        /// Who.
        peer: Peer,
        /// Its life.
        incarnation: Incarnation,
        /// Whether it went without a word.
        died: bool,
    },
    /// This shard serves.
    ServerReady(ShardId),
    /// This shard is about to leave.
    ServerDraining(ShardId),
    /// What the control plane thinks of a shard's process has changed.
    ServerHealth {
        /// The shard.
        shard: ShardId,
        /// Its process.
        incarnation: Incarnation,
        /// What is thought of it.
        health: Health,
    },
    /// A letter from another member.
    Mail {
        /// By whom.
        from: Peer,
        /// Its life.
        incarnation: Incarnation,
        /// What it says.
        body: Arc<[u8]>,
    },
    /// Somebody looks at the deployment: [`report`](crate::control::ControlClient::report) what there is to say.
    ReportWanted,
    /// The control plane cannot be reached; data traffic is not concerned.
    ControlPlaneLost,
    /// The control plane is back and knows this member again.
    ControlPlaneBack,
}
