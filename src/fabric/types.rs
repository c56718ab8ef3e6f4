//! Plain values of the fabric contract. Numbers that verbs has are the same here.

/// Rights of the peer on a region.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Access(pub u8);

impl Access {
    /// No remote access: staging memory.
    pub const LOCAL: Access = Access(0);
    /// The peer may write.
    pub const REMOTE_WRITE: Access = Access(1);
    /// The peer may read.
    pub const REMOTE_READ: Access = Access(2);
    /// The peer may do atomics.
    pub const REMOTE_ATOMIC: Access = Access(4);
    /// The peer may read, as long as the owner lives: where peers map memory, they find zeros in its place afterwards, so
    /// that it is not kept by those who read it.
    pub const LENT: Access = Access(2 | 8);
    /// Everything that a peer may do.
    pub const ALL: Access = Access(7);

    /// Whether all rights of `needed` are in this set.
    #[inline]
    #[must_use]
    pub fn allows(self, needed: Access) -> bool {
        self.0 & needed.0 == needed.0
    }

    /// Both sets together.
    #[must_use]
    pub fn with(self, other: Access) -> Access {
        Access(self.0 | other.0)
    }
}

/// What a provider instance can do.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Capabilities {
    /// Bytes of one write become visible in order, the last 8 last.
    pub ordered_within_write: bool,
    /// An earlier write is visible before a later one.
    pub ordered_writes: bool,
    /// [`Qp::window`](super::Qp::window) gives pointers, and local memory of work need not be registered.
    pub load_store: bool,
    /// Most bytes of inline data of one work request.
    pub max_inline: u32,
    /// Most scatter-gather elements of one work request.
    pub max_sge: u32,
}

/// How to make a queue pair.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct QpConfig {
    /// Send queue depth.
    pub max_send_wr: u32,
    /// Receive queue depth.
    pub max_recv_wr: u32,
    /// Pieces of one work request that are asked for; 0: what the provider takes without being asked. Fewer may be
    /// granted.
    pub max_send_sge: u32,
    /// The lane generation this connection will have: completions of another one are dropped.
    pub generation: u32,
}

/// Queue pair states, numbered as `ibv_qp_state`.
#[repr(u8)]
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum QpState {
    /// Nothing may be posted.
    Reset = 0,
    /// Has its local attributes.
    Init = 1,
    /// Receives.
    Rtr = 2,
    /// Receives and sends.
    Rts = 3,
    /// Send queue drained or draining.
    Sqd = 4,
    /// Send queue error.
    Sqe = 5,
    /// Everything posted is flushed.
    Err = 6,
}

impl QpState {
    /// The state with this number; an unknown one counts as ERR.
    #[must_use]
    pub fn from_code(code: u8) -> QpState {
        match code {
            0 => QpState::Reset,
            1 => QpState::Init,
            2 => QpState::Rtr,
            3 => QpState::Rts,
            4 => QpState::Sqd,
            5 => QpState::Sqe,
            _ => QpState::Err,
        }
    }
}

/// Completion status, numbered as `ibv_wc_status`; numbers without a name here stay numbers.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct WcStatus(pub u32);

#[allow(non_upper_case_globals)] // named like the variants of an enum, open like a number
impl WcStatus {
    /// Done.
    pub const Success: WcStatus = WcStatus(0);
    /// Local length error.
    pub const LocLen: WcStatus = WcStatus(1);
    /// Local queue pair operation error.
    pub const LocQpOp: WcStatus = WcStatus(2);
    /// Local protection error.
    pub const LocProt: WcStatus = WcStatus(4);
    /// Flushed: an earlier error, or ERR was asked for.
    pub const WrFlush: WcStatus = WcStatus(5);
    /// Bad response from the peer.
    pub const BadResp: WcStatus = WcStatus(7);
    /// Local access error.
    pub const LocAccess: WcStatus = WcStatus(8);
    /// The peer says: invalid request.
    pub const RemInvReq: WcStatus = WcStatus(9);
    /// The peer says: no such key, bounds or access.
    pub const RemAccess: WcStatus = WcStatus(10);
    /// The peer says: operation error.
    pub const RemOp: WcStatus = WcStatus(11);
    /// The peer does not acknowledge.
    pub const RetryExc: WcStatus = WcStatus(12);
    /// The peer has no receive posted.
    pub const RnrRetryExc: WcStatus = WcStatus(13);
    /// Fatal.
    pub const Fatal: WcStatus = WcStatus(19);
    /// Anything else.
    pub const General: WcStatus = WcStatus(21);

    /// The verbs name, or "unknown".
    #[must_use]
    pub fn name(self) -> &'static str {
        match self.0 {
            0 => "SUCCESS",
            1 => "LOC_LEN_ERR",
            2 => "LOC_QP_OP_ERR",
            4 => "LOC_PROT_ERR",
            5 => "WR_FLUSH_ERR",
            7 => "BAD_RESP_ERR",
            8 => "LOC_ACCESS_ERR",
            9 => "REM_INV_REQ_ERR",
            10 => "REM_ACCESS_ERR",
            11 => "REM_OP_ERR",
            12 => "RETRY_EXC_ERR",
            13 => "RNR_RETRY_EXC_ERR",
            19 => "FATAL_ERR",
            21 => "GENERAL_ERR",
            _ => "unknown",
        }
    }
}

impl core::fmt::Debug for WcStatus {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        write!(f, "{}({})", self.name(), self.0)
    }
}

/// What completed.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum WcOpcode {
    /// A write, with or without immediate, of this side.
    Write,
    /// A read of this side.
    Read,
    /// A fetch-add of this side.
    FetchAdd,
    /// A compare-swap of this side.
    CompareSwap,
    /// A write-with-immediate of the peer.
    ReceiveImm,
}

/// One completion.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Completion {
    /// The poster's own number; 0 for a receive.
    pub wr_id: u64,
    /// The queue pair's number.
    pub qp: u32,
    /// How it ended.
    pub status: WcStatus,
    /// What it was. Without meaning when `status` is an error.
    pub opcode: WcOpcode,
    /// The immediate of a [`WcOpcode::ReceiveImm`].
    pub imm: u32,
    /// The device's own error number.
    pub vendor_error: u32,
}

impl Completion {
    /// For arrays handed to [`Cq::poll`](super::Cq::poll).
    pub const EMPTY: Completion =
        Completion { wr_id: 0, qp: 0, status: WcStatus::Success, opcode: WcOpcode::Write, imm: 0, vendor_error: 0 };
}

/// Why a queue pair went to ERR by itself.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Cause {
    /// The first error.
    pub status: WcStatus,
    /// The device's own error number.
    pub vendor_error: u32,
    /// True when the peer's process is known to be gone (its socket closed), not only silent.
    pub peer_gone: bool,
    /// True when the peer is known to have closed its end in order.
    pub peer_closed: bool,
    /// In words.
    pub detail: String,
}

/// A place in the peer's memory.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct RemoteAddr {
    /// Address in the peer's numbering.
    pub address: u64,
    /// Key.
    pub rkey: u32,
}

/// A piece of local memory.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Sge {
    /// Address here.
    pub address: *const u8,
    /// Length in bytes.
    pub bytes: u32,
    /// Key of its region; ignored where [`Capabilities::load_store`].
    pub lkey: u32,
}

/// What a work request does.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum WorkOp {
    /// Local pieces, one after the other, to the remote place.
    Write,
    /// The same, and a completion with this number at the peer.
    WriteImm(u32),
    /// From the remote place to the local pieces.
    Read,
    /// Adds to the remote 8 bytes; the old value goes to the local 8 bytes.
    FetchAdd(u64),
    /// Swaps the remote 8 bytes if they equal `expect`; the old value goes to the local 8 bytes.
    CompareSwap {
        /// Compared with the remote value.
        expect: u64,
        /// Stored if equal.
        swap: u64,
    },
}

/// One work request.
#[derive(Clone, Copy, Debug)]
pub struct Work<'a> {
    /// Comes back in the completion.
    pub wr_id: u64,
    /// What to do.
    pub op: WorkOp,
    /// Local pieces.
    pub local: &'a [Sge],
    /// The peer's place.
    pub remote: RemoteAddr,
    /// Whether success completes too; errors always do.
    pub signaled: bool,
}

/// Why nothing was posted.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum PostError {
    /// The send queue has no room for the chain.
    QueueFull,
    /// The queue pair is not in RTS.
    NotConnected(QpState),
    /// The request itself is not allowed: too many pieces, misaligned atomic, wrong length.
    Invalid(&'static str),
    /// The provider refused with this `errno`.
    Os(i32),
}
