//! What becomes of a lane when something fails.
//!
//! Active → Dirty → Dead. Dirty means: nothing new is sent, everything under way fails, and connecting anew could help.
//! Dead means that it could not. The event that ended Active decides. Slot memory that the peer may still write is never
//! used again within the same generation: that is why a wait timeout ends the lane and not only the request.

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
            DirtyReason::PeerLeft => "peer_left",
            DirtyReason::Closed => "closed",
        }
    }

    /// Whether connecting anew could help.
    #[must_use]
    pub fn rebuildable(self) -> bool {
        match self {
            DirtyReason::Completion(status) => CompletionClass::of(status).rebuildable(),
            DirtyReason::Closed => false,
            DirtyReason::PostFailed
            | DirtyReason::CompletionTimeout
            | DirtyReason::WaitTimeout
            | DirtyReason::PeerGone
            | DirtyReason::PeerLeft => true,
        }
    }
}

/// The life of one lane: states and the first reason for leaving Active.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Lifecycle {
    state: LaneState,
    reason: Option<DirtyReason>,
}

impl Lifecycle {
    /// A lane that is being connected.
    #[must_use]
    pub fn new() -> Lifecycle {
        Lifecycle { state: LaneState::Connecting, reason: None }
    }

    /// Present state.
    #[must_use]
    pub fn state(&self) -> LaneState {
        self.state
    }

    /// Why it left Active: the first reason; what follows from it is no news.
    #[must_use]
    pub fn reason(&self) -> Option<DirtyReason> {
        self.reason
    }

    /// Both ends are connected. True if the lane is Active now.
    pub fn connected(&mut self) -> bool {
        if self.state == LaneState::Connecting {
            self.state = LaneState::Active;
        }
        self.state == LaneState::Active
    }

    /// Something failed. True if this is the first failure of this generation.
    pub fn failed(&mut self, reason: DirtyReason) -> bool {
        match self.state {
            LaneState::Connecting | LaneState::Active | LaneState::Rebuilding => {
                self.state = if reason.rebuildable() { LaneState::Dirty } else { LaneState::Dead };
                self.reason = Some(reason);
                true
            }
            LaneState::Dirty if !reason.rebuildable() => {
                self.state = LaneState::Dead;
                false
            }
            LaneState::Dirty | LaneState::Dead => false,
        }
    }
}

impl Default for Lifecycle {
    fn default() -> Self {
        Lifecycle::new()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn peer_side_failures_leave_hope_and_local_ones_do_not() {
        for (reason, state) in [
            (DirtyReason::Completion(WcStatus::RetryExc), LaneState::Dirty),
            (DirtyReason::Completion(WcStatus::WrFlush), LaneState::Dirty),
            (DirtyReason::WaitTimeout, LaneState::Dirty),
            (DirtyReason::PeerGone, LaneState::Dirty),
            (DirtyReason::Completion(WcStatus::RemAccess), LaneState::Dead),
            (DirtyReason::Completion(WcStatus::LocProt), LaneState::Dead),
            (DirtyReason::Completion(WcStatus(4711)), LaneState::Dead),
            (DirtyReason::Closed, LaneState::Dead),
        ] {
            let mut lane = Lifecycle::new();
            assert!(lane.connected());
            assert!(lane.failed(reason), "{reason:?}");
            assert_eq!(lane.state(), state, "{reason:?}");
        }
    }

    #[test]
    fn the_first_reason_stays_and_dead_is_final() {
        let mut lane = Lifecycle::new();
        lane.connected();
        assert!(lane.failed(DirtyReason::WaitTimeout));
        assert!(!lane.failed(DirtyReason::PeerGone));
        assert_eq!((lane.state(), lane.reason()), (LaneState::Dirty, Some(DirtyReason::WaitTimeout)));
        assert!(!lane.failed(DirtyReason::Closed));
        assert_eq!(lane.state(), LaneState::Dead);
        assert!(!lane.connected());
    }
}
