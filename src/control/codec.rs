//! Between the generated messages and plain values. Whatever a peer sends is checked here for form.

use super::health::{Health, HealthReport};
use super::messages::{Notice, SessionId};
use super::refusal::{Reason, Refusal};
use super::secret::{Proof, Secret};
use super::types::{Identity, Member, Peer, Role};
use crate::error::Status;
use crate::ids::{ClientId, Epoch, Incarnation, ShardId};
use core::time::Duration;
use prost::Message;
use tonic::metadata::{MetadataMap, MetadataValue};

/// The generated messages.
#[allow(missing_docs, unreachable_pub, missing_debug_implementations, clippy::all, clippy::pedantic)]
pub(super) mod proto {
    tonic::include_proto!("reclane.control.v1");
}

/// Binary metadata that carries a refusal.
const REFUSAL_KEY: &str = "reclane-refusal-bin";

pub(super) fn malformed(what: &str) -> Refusal {
    Refusal::new(Status::InvalidArgument, Reason::Malformed, format!("malformed request: {what}"))
}

pub(super) fn incarnation_bytes(incarnation: Incarnation) -> Vec<u8> {
    incarnation.0.to_be_bytes().to_vec()
}

pub(super) fn incarnation(bytes: &[u8]) -> Result<Incarnation, Refusal> {
    let bytes = <[u8; 16]>::try_from(bytes).map_err(|_| malformed("an incarnation has 16 bytes"))?;
    Ok(Incarnation(u128::from_be_bytes(bytes)))
}

/// An incarnation that may be left out.
pub(super) fn optional_incarnation(bytes: &[u8]) -> Result<Option<Incarnation>, Refusal> {
    if bytes.is_empty() { Ok(None) } else { incarnation(bytes).map(Some) }
}

pub(super) fn peer_message(peer: Peer) -> proto::Peer {
    let kind = match peer {
        Peer::Server(shard) => proto::peer::Kind::Server(shard.0),
        Peer::Client(client) => proto::peer::Kind::Client(client.0),
    };
    proto::Peer { kind: Some(kind) }
}

pub(super) fn peer(message: Option<proto::Peer>) -> Result<Peer, Refusal> {
    match message.and_then(|peer| peer.kind) {
        Some(proto::peer::Kind::Server(shard)) => Ok(Peer::Server(ShardId(shard))),
        Some(proto::peer::Kind::Client(client)) => Ok(Peer::Client(ClientId(client))),
        None => Err(malformed("a peer is missing")),
    }
}

pub(super) fn session(message: Option<proto::Session>) -> Result<(SessionId, Incarnation), Refusal> {
    let message = message.ok_or_else(|| malformed("the session is missing"))?;
    Ok((SessionId(message.id), incarnation(&message.incarnation)?))
}

pub(super) fn join_message(identity: &Identity, member: &Member, role: Role, proof: Proof) -> proto::JoinRequest {
    let role = match role {
        Role::Server(shard) => proto::join_request::Role::Server(shard.0),
        Role::Client(Some(client)) => proto::join_request::Role::Client(client.0),
        Role::Client(None) => proto::join_request::Role::NumberlessClient(true),
    };
    proto::JoinRequest {
        identity: Some(proto::Identity {
            deployment_id: identity.deployment_id.clone(),
            epoch: identity.epoch.0,
            namespace: identity.namespace.clone(),
            num_shards: identity.num_shards,
            layout: identity.layout.clone(),
            token: identity.secret.bytes(),
        }),
        role: Some(role),
        incarnation: incarnation_bytes(member.incarnation),
        pid: member.pid,
        host: member.host.clone(),
        proof: proof.0.to_vec(),
    }
}

pub(super) fn join(message: proto::JoinRequest) -> Result<(Identity, Member, Proof), Refusal> {
    let identity = message.identity.ok_or_else(|| malformed("the identity is missing"))?;
    let role = match message.role {
        Some(proto::join_request::Role::Server(shard)) => Role::Server(ShardId(shard)),
        Some(proto::join_request::Role::Client(client)) => Role::Client(Some(ClientId(client))),
        Some(proto::join_request::Role::NumberlessClient(_)) => Role::Client(None),
        None => return Err(malformed("the role is missing")),
    };
    let member = Member { role, incarnation: incarnation(&message.incarnation)?, pid: message.pid, host: message.host };
    let identity = Identity {
        deployment_id: identity.deployment_id,
        epoch: Epoch(identity.epoch),
        namespace: identity.namespace,
        num_shards: identity.num_shards,
        layout: identity.layout,
        secret: Secret::received(identity.token).ok_or_else(|| malformed("the token is too long"))?,
    };
    let proof = message.proof.try_into().map_err(|_| malformed("a proof has 16 bytes"))?;
    Ok((identity, member, Proof(proof)))
}

pub(super) fn notice_message(notice: Notice) -> proto::JoinReply {
    use proto::join_reply::Kind;
    let kind = match notice {
        Notice::MemberJoined { peer, incarnation } => Kind::MemberJoined(proto::MemberJoined {
            peer: Some(peer_message(peer)),
            incarnation: incarnation_bytes(incarnation),
        }),
        Notice::MemberLeft { peer, incarnation, died } => Kind::MemberLeft(proto::MemberLeft {
            peer: Some(peer_message(peer)),
            incarnation: incarnation_bytes(incarnation),
            died,
        }),
        Notice::LanesPublished { from, incarnation, version } => Kind::LanesPublished(proto::LanesPublished {
            from: Some(peer_message(from)),
            incarnation: incarnation_bytes(incarnation),
            version,
        }),
        Notice::ServerReady(shard) => Kind::ServerReady(shard.0),
        Notice::ServerDraining(shard) => Kind::ServerDraining(shard.0),
        Notice::ServerHealth { shard, incarnation, health } => Kind::ServerHealth(proto::ServerHealth {
            server: shard.0,
            incarnation: incarnation_bytes(incarnation),
            health: health as u32,
        }),
        Notice::Mail { from, incarnation, body } => Kind::Letter(proto::Letter {
            from: Some(peer_message(from)),
            incarnation: incarnation_bytes(incarnation),
            body: body.to_vec(),
        }),
        Notice::CaughtUp => Kind::CaughtUp(proto::CaughtUp {}),
        Notice::ReportWanted => Kind::ReportWanted(proto::ReportWanted {}),
    };
    proto::JoinReply { kind: Some(kind) }
}

/// What the stream said; none for a kind that this version does not know.
pub(super) fn notice(message: proto::JoinReply) -> Result<Option<Notice>, Refusal> {
    use proto::join_reply::Kind;
    Ok(match message.kind {
        Some(Kind::MemberJoined(m)) => {
            Some(Notice::MemberJoined { peer: peer(m.peer)?, incarnation: incarnation(&m.incarnation)? })
        }
        Some(Kind::MemberLeft(m)) => {
            Some(Notice::MemberLeft { peer: peer(m.peer)?, incarnation: incarnation(&m.incarnation)?, died: m.died })
        }
        Some(Kind::LanesPublished(m)) => Some(Notice::LanesPublished {
            from: peer(m.from)?,
            incarnation: incarnation(&m.incarnation)?,
            version: m.version,
        }),
        Some(Kind::ServerReady(shard)) => Some(Notice::ServerReady(ShardId(shard))),
        Some(Kind::ServerDraining(shard)) => Some(Notice::ServerDraining(ShardId(shard))),
        Some(Kind::ServerHealth(m)) => match Health::from_code(m.health) {
            Some(health) => Some(Notice::ServerHealth {
                shard: ShardId(m.server),
                incarnation: incarnation(&m.incarnation)?,
                health,
            }),
            // A verdict that this version does not know is none.
            None => None,
        },
        Some(Kind::Letter(m)) => {
            Some(Notice::Mail { from: peer(m.from)?, incarnation: incarnation(&m.incarnation)?, body: m.body.into() })
        }
        Some(Kind::CaughtUp(_)) => Some(Notice::CaughtUp),
        Some(Kind::ReportWanted(_)) => Some(Notice::ReportWanted),
        Some(Kind::Joined(_)) | None => None,
    })
}

pub(super) fn health_message(report: &HealthReport) -> proto::GetServerHealthReply {
    proto::GetServerHealthReply {
        known: report.known,
        health: report.health as u32,
        incarnation: incarnation_bytes(report.incarnation),
        idle_ms: report.idle_ms,
    }
}

/// What was answered; anything that makes no sense is "not known".
pub(super) fn health_report(message: &proto::GetServerHealthReply) -> HealthReport {
    match (Health::from_code(message.health), incarnation(&message.incarnation)) {
        (Some(health), Ok(incarnation)) if message.known => {
            HealthReport { known: true, health, incarnation, idle_ms: message.idle_ms }
        }
        _ => HealthReport::UNKNOWN,
    }
}

/// A wait as it is sent, rounded up so that a short one does not become none.
pub(super) fn timeout_ms(timeout: Duration) -> u64 {
    u64::try_from(timeout.as_nanos().div_ceil(1_000_000)).unwrap_or(u64::MAX)
}

macro_rules! reasons {
    ($($name:ident),* $(,)?) => {
        fn reason_message(reason: Reason) -> proto::Reason {
            match reason { $(Reason::$name => proto::Reason::$name),* }
        }
        fn reason(message: proto::Reason) -> Reason {
            match message {
                $(proto::Reason::$name => Reason::$name,)*
                proto::Reason::Unspecified => Reason::Malformed,
            }
        }
    };
}

reasons!(
    OtherDeployment,
    StaleEpoch,
    ControlPlaneOlder,
    Namespace,
    Layout,
    ShardOutOfRange,
    Duplicate,
    UnknownSession,
    Malformed,
    TooLarge,
    TooMany,
    WrongState,
    Draining,
    Deadline,
    BarrierFailed,
    Stopping,
    Token,
);

fn code(reason: Reason) -> tonic::Code {
    match reason {
        Reason::OtherDeployment
        | Reason::StaleEpoch
        | Reason::ControlPlaneOlder
        | Reason::Namespace
        | Reason::Layout
        | Reason::WrongState => tonic::Code::FailedPrecondition,
        Reason::ShardOutOfRange => tonic::Code::OutOfRange,
        Reason::Duplicate => tonic::Code::AlreadyExists,
        Reason::UnknownSession | Reason::Token => tonic::Code::Unauthenticated,
        Reason::Malformed => tonic::Code::InvalidArgument,
        Reason::TooLarge | Reason::TooMany => tonic::Code::ResourceExhausted,
        Reason::Draining | Reason::Stopping => tonic::Code::Unavailable,
        Reason::Deadline => tonic::Code::DeadlineExceeded,
        Reason::BarrierFailed => tonic::Code::Aborted,
    }
}

/// A refusal as a gRPC status.
pub(super) fn refusal_status(refusal: &Refusal) -> tonic::Status {
    let message = proto::Refusal {
        status: refusal.status as i32,
        reason: reason_message(refusal.reason).into(),
        message: refusal.message.clone(),
    };
    let mut metadata = MetadataMap::new();
    metadata.insert_bin(REFUSAL_KEY, MetadataValue::from_bytes(&message.encode_to_vec()));
    tonic::Status::with_metadata(code(refusal.reason), refusal.message.clone(), metadata)
}

/// The refusal in a gRPC status; none when the call failed for another reason, on its way for instance.
pub(super) fn refusal(status: &tonic::Status) -> Option<Refusal> {
    let bytes = status.metadata().get_bin(REFUSAL_KEY)?.to_bytes().ok()?;
    let message = proto::Refusal::decode(bytes).ok()?;
    let reason = reason(message.reason());
    // An unknown number comes from a newer peer; a success cannot refuse.
    let status = Status::from_code(message.status).filter(|s| (*s as i32) < 0).unwrap_or(Status::InternalError);
    Some(Refusal::new(status, reason, message.message))
}
