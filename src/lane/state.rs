//! What becomes of a lane when something fails.
//!
//! Dirty means: nothing new is sent, everything under way fails or is sent again, and connecting anew could help. Dead
//! means that it could not. The event that ended Active decides. Slot memory that the peer may still write is never used
//! again within the same generation: that is why a wait timeout ends the lane and not only the request.

use crate::fabric::WcStatus;

/// Present state of a lane, as callers see it.
#[repr(u8)]
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum LaneState {
    /// Being connected.
    Connecting = 0,
    /// Carries requests.
    Active = 1,
    /// Unusable; a rebuild could help.
    Dirty = 2,
    /// Being rebuilt.
    Rebuilding = 3,
    /// Unusable for good.
    Dead = 4,
    /// Not connected yet: no request has needed it.
    Unconnected = 5,
}

impl LaneState {
    /// The state with this number; an unknown one counts as Dead.
    #[must_use]
    pub fn from_code(code: u8) -> LaneState {
        match code {
            0 => LaneState::Connecting,
            1 => LaneState::Active,
            2 => LaneState::Dirty,
            3 => LaneState::Rebuilding,
            5 => LaneState::Unconnected,
            _ => LaneState::Dead,
        }
    }
}

/// What kind of end a completion error is.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum CompletionClass {
    /// The peer does not answer: retries exhausted.
    PeerUnreachable,
    /// Behind another error, or flushed on purpose.
    Flushed,
    /// The peer refused: key, bounds, access, operation.
    PeerRejected,
    /// Our own mistake.
    LocalError,
    /// None of these.
    Other,
}

impl CompletionClass {
    /// The class of a completion status.
    #[must_use]
    pub fn of(status: WcStatus) -> CompletionClass {
        match status {
            WcStatus::RetryExc | WcStatus::RnrRetryExc => CompletionClass::PeerUnreachable,
            WcStatus::WrFlush => CompletionClass::Flushed,
            WcStatus::RemAccess | WcStatus::RemInvReq | WcStatus::RemOp => CompletionClass::PeerRejected,
            WcStatus::LocLen | WcStatus::LocQpOp | WcStatus::LocProt | WcStatus::LocAccess => {
                CompletionClass::LocalError
            }
            _ => CompletionClass::Other,
        }
    }

    /// The name in logs.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            CompletionClass::PeerUnreachable => "peer_unreachable",
            CompletionClass::Flushed => "flushed",
            CompletionClass::PeerRejected => "peer_rejected",
            CompletionClass::LocalError => "local_error",
            CompletionClass::Other => "other",
        }
    }

    /// Only a peer that fell silent can be met again by connecting anew.
    #[must_use]
    pub fn rebuildable(self) -> bool {
        matches!(self, CompletionClass::PeerUnreachable | CompletionClass::Flushed)
    }
}

/// What ended Active.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum DirtyReason {
    /// A post was refused.
    PostFailed,
    /// A completion came back with an error.
    Completion(WcStatus),
    /// A tracked write's completion did not come.
    CompletionTimeout,
    /// An answer did not come.
    WaitTimeout,
    /// The peer's process is gone: its socket closed, or the control plane says so.
    PeerGone,
    /// The control plane has not heard of the peer for so long that it counts as dead.
    NodeVerdict,
    /// The peer did not answer a probe on an idle lane.
    ProbeTimeout,
    /// The peer left in order.
    PeerLeft,
    /// Closed from this side.
    Closed,
}

impl DirtyReason {
    /// The name in logs.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            DirtyReason::PostFailed => "post_failed",
            DirtyReason::Completion(status) => CompletionClass::of(status).name(),
            DirtyReason::CompletionTimeout => "completion_timeout",
            DirtyReason::WaitTimeout => "wait_timeout",
            DirtyReason::PeerGone => "peer_gone",
            DirtyReason::NodeVerdict => "node_verdict",
            DirtyReason::ProbeTimeout => "probe_timeout",
            DirtyReason::PeerLeft => "peer_left",
            DirtyReason::Closed => "closed",
        }
    }

    /// What was known of the peer when it happened.
    #[must_use]
    pub fn verdict(self) -> &'static str {
        match self {
            DirtyReason::PeerGone | DirtyReason::PeerLeft | DirtyReason::NodeVerdict => "dead",
            DirtyReason::WaitTimeout | DirtyReason::ProbeTimeout => "suspect",
            _ => "unknown",
        }
    }

    /// The peer refused our key or bounds: its region may be another one by now, which one connection with fresh
    /// addresses shows.
    #[must_use]
    pub fn wants_refresh(self) -> bool {
        self == DirtyReason::Completion(WcStatus::RemAccess)
    }

    /// Whether connecting anew could help.
    #[must_use]
    pub fn rebuildable(self) -> bool {
        match self {
            DirtyReason::Completion(status) => CompletionClass::of(status).rebuildable() || self.wants_refresh(),
            DirtyReason::Closed => false,
            DirtyReason::NodeVerdict
            | DirtyReason::ProbeTimeout
            | DirtyReason::PostFailed
            | DirtyReason::CompletionTimeout
            | DirtyReason::WaitTimeout
            | DirtyReason::PeerGone
            | DirtyReason::PeerLeft => true,
        }
    }
}
