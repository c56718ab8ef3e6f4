//! Why the control plane said no.

#![forbid(unsafe_code)]

use super::limits::MESSAGE_BYTES_MAX;
use crate::error::{Error, Status};

/// What was wrong, finer than the status.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Reason {
    /// The member belongs to a deployment of another name.
    OtherDeployment,
    /// The member belongs to an older epoch.
    StaleEpoch,
    /// The member belongs to a newer epoch than the control plane.
    ControlPlaneOlder,
    /// The member belongs to another namespace.
    Namespace,
    /// An option that shapes the layout differs.
    Layout,
    /// No such shard.
    ShardOutOfRange,
    /// Another live process holds the name.
    Duplicate,
    /// The control plane does not know the caller (any more): it must join again.
    UnknownSession,
    /// The call makes no sense.
    Malformed,
    /// A length is out of bounds.
    TooLarge,
    /// A count is out of bounds.
    TooMany,
    /// Not allowed in the member's present state.
    WrongState,
    /// The shard is about to leave.
    Draining,
    /// What was waited for did not happen in time.
    Deadline,
    /// A participant of the barrier is gone.
    BarrierFailed,
    /// The control plane is stopping.
    Stopping,
    /// The member does not hold the deployment's secret.
    Token,
}

/// A refused call.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Refusal {
    /// The status that the caller of the library sees.
    pub status: Status,
    /// What was wrong.
    pub reason: Reason,
    /// The whole story in one line.
    pub message: String,
}

impl Refusal {
    /// A refusal; its message is cut to what fits into a header.
    #[must_use]
    pub fn new(status: Status, reason: Reason, message: impl Into<String>) -> Refusal {
        let mut message = message.into();
        if message.len() > MESSAGE_BYTES_MAX {
            let cut = (0..=MESSAGE_BYTES_MAX).rev().find(|at| message.is_char_boundary(*at)).unwrap_or(0);
            message.truncate(cut);
        }
        Refusal { status, reason, message }
    }

    /// The caller must join again.
    #[must_use]
    pub fn unknown_session() -> Refusal {
        Refusal::new(
            Status::ControlPlaneUnreachable,
            Reason::UnknownSession,
            "the control plane does not know this member any more; it has to join again",
        )
    }

    /// As the library's error.
    #[must_use]
    pub fn into_error(self) -> Box<Error> {
        Error::new(self.status, self.message)
    }
}
