//! The one error type and the one status list of the library.
//!
//! Statuses are grouped by the largest thing that a failure has ruined, so that a caller knows from the class what to do
//! next: fix the call, try again, give up the request, lose the lane, lose the peer, lose the context, report a bug.
//! The numbers are part of the ABI: never reused, never renumbered.

use core::fmt;

/// Result of a call. Zero is success, positive values are success with a remark, negative values are errors.
/// A caller must treat a value it does not know as "some other error" (negative) or "some other success" (positive).
#[repr(i32)]
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Status {
    /// Done.
    Ok = 0,
    /// The request is still under way; nothing is wrong.
    Pending = 1,

    /// CALLER: an argument is out of its documented range.
    InvalidArgument = -100,
    /// CALLER: a required pointer is NULL.
    NullPointer = -101,
    /// CALLER: a struct's size field is unknown to this library, or its unknown tail is not zero.
    StructSize = -102,
    /// CALLER: a string is not UTF-8.
    NotUtf8 = -103,
    /// CALLER: no option has this name.
    UnknownOption = -104,
    /// CALLER: an option's value is of the wrong type.
    OptionType = -105,
    /// CALLER: an option's value is out of bounds.
    OptionBounds = -106,
    /// CALLER: two options contradict each other.
    OptionConflict = -107,
    /// CALLER: a buffer is too small for what was asked.
    BufferTooSmall = -108,
    /// CALLER: this is no live handle of the expected kind.
    BadHandle = -109,
    /// CALLER: the handle was closed.
    Closed = -110,
    /// CALLER: the token names a request that was already revoked.
    StaleToken = -111,
    /// CALLER: this handle belongs to the parent process; after fork only exec is allowed.
    Forked = -112,
    /// CALLER: the call is not allowed in the object's present state.
    WrongState = -113,
    /// CALLER: this build, fabric or store does not offer what was asked.
    Unsupported = -114,
    /// CALLER: called from inside a callback that must not call it.
    WouldDeadlock = -115,
    /// CALLER: the header's ABI version is not this library's.
    AbiVersion = -116,

    /// RETRY: every slot is taken by requests that were not revoked yet; nothing was sent.
    NoSlot = -200,
    /// RETRY: another thread is working on this request.
    Busy = -201,
    /// RETRY: the checkpoint came to nothing; work goes on, and another one may succeed.
    CheckpointAborted = -202,

    /// REQUEST: the server found the request malformed (RpcStatus -1).
    InvalidPayload = -300,
    /// REQUEST: the request reached a shard that does not own it (RpcStatus -2).
    WrongShard = -301,
    /// REQUEST: more keys or bytes than the server allows in one request (RpcStatus -3).
    BatchTooLarge = -302,
    /// REQUEST: the row width does not match the table (RpcStatus -4).
    ValueSizeMismatch = -303,
    /// REQUEST: no table has this tag or name (RpcStatus -5).
    UnknownTable = -304,
    /// REQUEST: the server's handler failed; the server lives on (RpcStatus -6).
    InternalError = -305,
    /// REQUEST: the response does not agree with its own checksum or lengths.
    CorruptResponse = -306,

    /// LANE: the fabric refused a post.
    PostFailed = -400,
    /// LANE: a completion came back with an error.
    CompletionError = -401,
    /// LANE: a tracked write's completion did not come in time.
    CompletionTimeout = -402,
    /// LANE: the answer did not come within the wait timeout.
    WaitTimeout = -403,
    /// LANE: no lane to this shard is usable.
    LaneDown = -404,

    /// PEER: the shard's process is gone or was judged dead.
    ShardUnreachable = -500,
    /// PEER: the peer was started with settings that shape the layout differently; both values are in the message.
    DeploymentMismatch = -501,
    /// PEER: this member belongs to an older epoch of the deployment, or to another deployment.
    StaleEpoch = -502,
    /// PEER: another live process already holds this id.
    DuplicateId = -503,
    /// PEER: start-up did not finish within its deadline; the message names who is missing.
    StartupTimeout = -504,
    /// PEER: the control plane cannot be reached.
    ControlPlaneUnreachable = -505,
    /// PEER: the shard is shutting down.
    Draining = -506,

    /// CONTEXT: the operating system refused a resource; `os_error` has its number.
    OsError = -600,
    /// CONTEXT: a limit of the process or the device is exhausted.
    ResourceLimit = -601,
    /// CONTEXT: the chosen fabric cannot run here.
    FabricUnavailable = -602,
    /// CONTEXT: the handle is poisoned by an earlier internal failure; only closing it is allowed.
    Poisoned = -603,

    /// BUG: an invariant of the library does not hold. Please report it with the message.
    Bug = -700,
}

/// What a failure has ruined.
#[repr(i32)]
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum StatusClass {
    /// Nothing: success.
    Ok = 0,
    /// The call itself: fix it.
    Caller = 1,
    /// Nothing happened: the same call may succeed later.
    Retry = 2,
    /// This request only.
    Request = 3,
    /// The lane that carried the request.
    Lane = 4,
    /// The peer.
    Peer = 5,
    /// The whole context.
    Context = 6,
    /// A bug in the library.
    Bug = 7,
}

macro_rules! status_table {
    ($($variant:ident),* $(,)?) => {
        impl Status {
            /// Every status, in the order of the list.
            pub const ALL: &'static [Status] = &[$(Status::$variant),*];

            /// The variant's own name.
            #[must_use]
            pub fn variant_name(self) -> &'static str {
                match self { $(Status::$variant => stringify!($variant)),* }
            }
        }
    };
}

status_table!(
    Ok,
    Pending,
    InvalidArgument,
    NullPointer,
    StructSize,
    NotUtf8,
    UnknownOption,
    OptionType,
    OptionBounds,
    OptionConflict,
    BufferTooSmall,
    BadHandle,
    Closed,
    StaleToken,
    Forked,
    WrongState,
    Unsupported,
    WouldDeadlock,
    AbiVersion,
    NoSlot,
    Busy,
    CheckpointAborted,
    InvalidPayload,
    WrongShard,
    BatchTooLarge,
    ValueSizeMismatch,
    UnknownTable,
    InternalError,
    CorruptResponse,
    PostFailed,
    CompletionError,
    CompletionTimeout,
    WaitTimeout,
    LaneDown,
    ShardUnreachable,
    DeploymentMismatch,
    StaleEpoch,
    DuplicateId,
    StartupTimeout,
    ControlPlaneUnreachable,
    Draining,
    OsError,
    ResourceLimit,
    FabricUnavailable,
    Poisoned,
    Bug,
);

impl Status {
    /// What this status says was ruined.
    #[must_use]
    pub fn class(self) -> StatusClass {
        StatusClass::of(self as i32)
    }

    /// The status with this number, if there is one.
    #[must_use]
    pub fn from_code(code: i32) -> Option<Status> {
        Status::ALL.iter().copied().find(|s| *s as i32 == code)
    }
}

impl StatusClass {
    /// The class of a status number, known or not: the hundreds decide.
    #[must_use]
    pub fn of(code: i32) -> StatusClass {
        match code {
            0.. => StatusClass::Ok,
            -199..=-1 => StatusClass::Caller,
            -299..=-200 => StatusClass::Retry,
            -399..=-300 => StatusClass::Request,
            -499..=-400 => StatusClass::Lane,
            -599..=-500 => StatusClass::Peer,
            -699..=-600 => StatusClass::Context,
            _ => StatusClass::Bug,
        }
    }
}

/// Where a failure was seen: the seven layers of the error model, cheapest to diagnose first.
#[repr(u32)]
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Layer {
    /// Not yet attributed.
    None = 0,
    /// The caller's arguments or the local capacity.
    Usage = 1,
    /// The post of a work request.
    Post = 2,
    /// A completion with an error.
    Device = 3,
    /// A tracked write whose completion did not come.
    TrackedWrite = 4,
    /// The wait for the answer.
    Wait = 5,
    /// The verdict on the peer's process.
    Node = 6,
    /// The server's own answer.
    Server = 7,
}

/// What is known about the execution of a failed request.
#[repr(u32)]
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Outcome {
    /// It cannot be known.
    Unknown = 0,
    /// It was certainly not executed.
    NotExecuted = 1,
    /// It was executed.
    Executed = 2,
}

/// What is known about the peer at the time of the failure.
#[repr(u32)]
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Verdict {
    /// Nobody has judged.
    Unknown = 0,
    /// It serves.
    Serving = 1,
    /// It has been silent for a while.
    Suspect = 2,
    /// It is gone.
    Dead = 3,
}

/// A failure with everything that is known about it. Boxed in [`Result`], so the happy path stays small.
#[derive(Clone, Debug)]
pub struct Error {
    /// What happened.
    pub status: Status,
    /// Where it was seen.
    pub layer: Layer,
    /// Whether the request was executed.
    pub outcome: Outcome,
    /// What was known about the peer.
    pub verdict: Verdict,
    /// The shard concerned.
    pub shard: Option<u32>,
    /// The lane concerned.
    pub lane: Option<u32>,
    /// The slot concerned.
    pub slot: Option<u32>,
    /// The lane's generation.
    pub generation: u32,
    /// The request's sequence number; 0 when none.
    pub sequence: u64,
    /// The completion status as the fabric numbers it (`ibv_wc_status`); 0 when none.
    pub completion: u32,
    /// The device's own error number; 0 when none.
    pub vendor_error: u32,
    /// `errno` of the system call concerned; 0 when none.
    pub os_error: i32,
    /// Time from the start of the request or call to the failure.
    pub elapsed_ns: u64,
    /// The whole story in one line.
    pub message: String,
}

/// What fallible functions of the library return.
pub type Result<T> = core::result::Result<T, Box<Error>>;

impl Error {
    /// A failure with a message and nothing else known.
    #[must_use]
    #[cold]
    pub fn new(status: Status, message: impl Into<String>) -> Box<Error> {
        let layer = match status.class() {
            StatusClass::Caller | StatusClass::Retry => Layer::Usage,
            StatusClass::Request => Layer::Server,
            StatusClass::Peer => Layer::Node,
            _ => Layer::None,
        };
        let outcome = match status.class() {
            StatusClass::Caller | StatusClass::Retry => Outcome::NotExecuted,
            // Found before anything is sent, and by a server before anything is executed.
            StatusClass::Request if status == Status::BatchTooLarge => Outcome::NotExecuted,
            _ => Outcome::Unknown,
        };
        Box::new(Error {
            status,
            layer,
            outcome,
            verdict: Verdict::Unknown,
            shard: None,
            lane: None,
            slot: None,
            generation: 0,
            sequence: 0,
            completion: 0,
            vendor_error: 0,
            os_error: 0,
            elapsed_ns: 0,
            message: message.into(),
        })
    }

    /// A failed system call: `what` says which and on what.
    #[must_use]
    #[cold]
    pub fn os(what: impl fmt::Display, source: &std::io::Error) -> Box<Error> {
        let mut error = Error::new(Status::OsError, format!("{what}: {source}"));
        error.os_error = source.raw_os_error().unwrap_or(0);
        error
    }

    /// Names the shard.
    #[must_use]
    pub fn at_shard(mut self: Box<Self>, shard: u32) -> Box<Self> {
        self.shard = Some(shard);
        self
    }

    /// Names the lane.
    #[must_use]
    pub fn at_lane(mut self: Box<Self>, lane: u32, generation: u32) -> Box<Self> {
        self.lane = Some(lane);
        self.generation = generation;
        self
    }

    /// Says that it was found before anything was sent.
    #[must_use]
    pub fn before_sending(mut self: Box<Self>) -> Box<Self> {
        self.layer = Layer::Usage;
        self.outcome = Outcome::NotExecuted;
        self
    }

    /// Says in which layer the failure was seen.
    #[must_use]
    pub fn in_layer(mut self: Box<Self>, layer: Layer) -> Box<Self> {
        self.layer = layer;
        self
    }
}

/// As docs/errors.md has it, and C behind `RECLANE_STATUS_`: `LANE_DOWN`.
impl fmt::Display for Status {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (at, letter) in self.variant_name().char_indices() {
            if letter.is_ascii_uppercase() && at > 0 {
                f.write_str("_")?;
            }
            write!(f, "{}", letter.to_ascii_uppercase())?;
        }
        Ok(())
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.status, self.message)?;
        if let Some(shard) = self.shard {
            write!(f, " shard={shard}")?;
        }
        if let Some(lane) = self.lane {
            write!(f, " lane={lane} generation={}", self.generation)?;
        }
        if let Some(slot) = self.slot {
            write!(f, " slot={slot}")?;
        }
        if self.sequence != 0 {
            write!(f, " sequence={}", self.sequence)?;
        }
        Ok(())
    }
}

impl std::error::Error for Error {}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn statuses_are_shown_as_c_knows_them() {
        let error = Error::new(Status::ShardUnreachable, "gone").at_shard(3);
        assert_eq!(error.to_string(), "SHARD_UNREACHABLE: gone shard=3");
        assert_eq!(Status::NotUtf8.to_string(), "NOT_UTF8");
    }

    #[test]
    fn every_status_is_listed_once_and_has_the_class_of_its_hundred() {
        for (i, status) in Status::ALL.iter().enumerate() {
            assert_eq!(Status::from_code(*status as i32), Some(*status));
            assert!(Status::ALL[i + 1..].iter().all(|other| *other as i32 != *status as i32));
        }
        assert_eq!(Status::Ok.class(), StatusClass::Ok);
        assert_eq!(Status::AbiVersion.class(), StatusClass::Caller);
        assert_eq!(Status::Busy.class(), StatusClass::Retry);
        assert_eq!(Status::CorruptResponse.class(), StatusClass::Request);
        assert_eq!(Status::LaneDown.class(), StatusClass::Lane);
        assert_eq!(Status::Draining.class(), StatusClass::Peer);
        assert_eq!(Status::Poisoned.class(), StatusClass::Context);
        assert_eq!(Status::Bug.class(), StatusClass::Bug);
    }
}
