//! Operation: reading and changing regions of other ranks without their doing anything.
//!
//! A place is (peer, region, offset): the rank that owns the region, its id, and an offset in bytes. On `shm` local memory
//! may be any; on other fabrics it lies inside a region of this rank. Each call that fails says in reclane_error.outcome
//! whether the operation took effect, as far as that can be known: the log of what was posted and the peer's evidence
//! decide, nothing is guessed, and nothing but a read is made again by itself when that is not certain.

use core::ffi::c_void;

use super::arguments::{array, check_array, required, timeout_or};
use super::error::reclane_error;
use super::guard;
use super::rank::{WAIT_DEFAULT, reclane_rank};
use crate::engine::{Kind, Known, Operation, Place, Rank, Ticket};
use crate::error::{Error, Result, Status};

/// What an operation of a batch does.
#[repr(u32)]
#[derive(Clone, Copy, Debug)]
pub enum reclane_operation_kind {
    /// Local bytes to the region.
    Write = 1,
    /// The region's bytes here.
    Read = 2,
    /// Adds operand to 8 bytes; local receives the old value, or is NULL.
    FetchAdd = 3,
    /// Stores swap to 8 bytes if they equal operand; local receives the old value, or is NULL.
    CompareSwap = 4,
}

/// What is known of an operation.
#[repr(u32)]
#[derive(Clone, Copy, Debug)]
pub enum reclane_known {
    /// It is under way.
    UnderWay = 0,
    /// Its effect is in the peer's memory, and its result here.
    Done = 1,
    /// It had no effect and will have none.
    NotDone = 2,
    /// It may have had its effect, or not; it will have none from now on.
    Ambiguous = 3,
    /// An atomic that had its effect, and whose old value is lost.
    ResultLost = 4,
}

const _: () = assert!(
    reclane_known::UnderWay as u8 == Known::UnderWay as u8
        && reclane_known::Done as u8 == Known::Done as u8
        && reclane_known::NotDone as u8 == Known::NotDone as u8
        && reclane_known::Ambiguous as u8 == Known::Ambiguous as u8
        && reclane_known::ResultLost as u8 == Known::ResultLost as u8
        && reclane_operation_kind::Write as u8 == Kind::Write as u8
        && reclane_operation_kind::Read as u8 == Kind::Read as u8
        && reclane_operation_kind::FetchAdd as u8 == Kind::FetchAdd as u8
        && reclane_operation_kind::CompareSwap as u8 == Kind::CompareSwap as u8
);

/// Number of operations that were posted without waiting. It is not a handle: nothing has to be given back.
pub type reclane_ticket = u64;

/// One operation of a batch. Zero it first; fields that it does not use stay 0.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct reclane_operation {
    /// A reclane_operation_kind.
    pub kind: u32,
    /// The peer's region.
    pub region: u32,
    /// Byte offset in it; a multiple of 8 for atomics.
    pub offset: u64,
    /// Length of a write or read, at most 2^30; 8 for atomics.
    pub bytes: u64,
    /// A write's source, a read's target, where an atomic's old value goes.
    pub local: *mut c_void,
    /// What is added, or compared with.
    pub operand: u64,
    /// What is stored if equal.
    pub swap: u64,
    /// 0.
    pub reserved: u64,
}
const _: () = assert!(size_of::<reclane_operation>() == 56);

fn length(bytes: usize) -> Result<u32> {
    u32::try_from(bytes).map_err(|_| {
        Error::new(Status::InvalidArgument, format!("an operation of {bytes} bytes; at most 1073741824 in one"))
    })
}

/// Writes to a region of another rank and waits until the bytes are in its memory.
///
/// rank    from reclane_rank_open().
/// peer    the rank that owns the region.
/// region  its id.
/// offset  where, in bytes.
/// source  the bytes; read during the call only.
/// bytes   how many, at most 2^30.
/// error   may be NULL; filled on failure only.
///
/// RECLANE_STATUS_INVALID_ARGUMENT   there is no such rank or region, the range is not in it, its owner gave no right, or
///                                   local memory is in no region (other fabrics than shm)
/// RECLANE_STATUS_SHARD_UNREACHABLE  the rank is gone, or did not let a lane in
/// RECLANE_STATUS_COMPLETION_ERROR   the fabric says that it failed; outcome says whether it took effect
/// RECLANE_STATUS_WAIT_TIMEOUT       it did not complete within rdma-wait-timeout-ms; its lane was ended
/// RECLANE_STATUS_BUSY               a hold lasted longer than that; nothing was posted
/// RECLANE_STATUS_POST_FAILED, _CONTROL_PLANE_UNREACHABLE, _RESOURCE_LIMIT, _OS_ERROR  as their names say
/// RECLANE_STATUS_NULL_POINTER, _BAD_HANDLE, _CLOSED, _FORKED, _POISONED, _STRUCT_SIZE, _BUG  as their names say
/// Threads: any.  Blocks: until it is settled, up to rdma-wait-timeout-ms.
#[unsafe(no_mangle)]
#[must_use]
pub unsafe extern "C" fn reclane_rank_write(
    rank: *const reclane_rank,
    peer: u32,
    region: u32,
    offset: u64,
    source: *const c_void,
    bytes: usize,
    error: *mut reclane_error,
) -> Status {
    let body = |rank: &Rank| {
        check_array(source.cast::<u8>(), bytes, "source")?;
        // SAFETY: the caller vouches for the bytes.
        unsafe { rank.write(Place { rank: peer, region, offset }, source.cast(), length(bytes)?) }?;
        Ok(Status::Ok)
    };
    // SAFETY: the caller vouches for the handle and `error`.
    unsafe { guard::with(rank, error, body) }
}

/// Reads from a region of another rank. A read that a failing lane did not bring is made once more over the next one.
///
/// rank    from reclane_rank_open().
/// peer    the rank that owns the region.
/// region  its id.
/// offset  where, in bytes.
/// target  receives the bytes; written during the call only. After a failure its content is undefined.
/// bytes   how many, at most 2^30.
/// error   may be NULL; filled on failure only.
///
/// Statuses as reclane_rank_write().
/// Threads: any.  Blocks: until it is settled, up to rdma-wait-timeout-ms.
#[unsafe(no_mangle)]
#[must_use]
pub unsafe extern "C" fn reclane_rank_read(
    rank: *const reclane_rank,
    peer: u32,
    region: u32,
    offset: u64,
    target: *mut c_void,
    bytes: usize,
    error: *mut reclane_error,
) -> Status {
    let body = |rank: &Rank| {
        check_array(target.cast::<u8>().cast_const(), bytes, "target")?;
        // SAFETY: the caller vouches for the bytes.
        unsafe { rank.read(Place { rank: peer, region, offset }, target.cast(), length(bytes)?) }?;
        Ok(Status::Ok)
    };
    // SAFETY: the caller vouches for the handle and `error`.
    unsafe { guard::with(rank, error, body) }
}

/// Stores an atomic's old value where the caller wants it.
unsafe fn atomic(
    rank: *const reclane_rank,
    old: *mut u64,
    error: *mut reclane_error,
    run: impl FnOnce(&Rank) -> Result<u64>,
) -> Status {
    let body = |rank: &Rank| {
        let value = run(rank)?;
        if !old.is_null() {
            // SAFETY: writable by the caller's word.
            unsafe { old.write(value) };
        }
        Ok(Status::Ok)
    };
    // SAFETY: the caller vouches for the handle and `error`.
    unsafe { guard::with(rank, error, body) }
}

/// Adds to 8 bytes of another rank's region by the fabric: at most once. When the lane fails meanwhile, outcome says
/// whether it took effect; the old value is lost then. reclane_rank_fetch_add_once() has no such doubt.
///
/// rank    from reclane_rank_open().
/// peer    the rank that owns the region.
/// region  its id; opened with RECLANE_RIGHT_ATOMIC.
/// offset  where, in bytes, a multiple of 8.
/// add     what is added, modulo 2^64.
/// old     receives the value before, or is NULL.
/// error   may be NULL; filled on failure only.
///
/// Statuses as reclane_rank_write().
/// Threads: any.  Blocks: until it is settled, up to rdma-wait-timeout-ms.
#[unsafe(no_mangle)]
#[must_use]
pub unsafe extern "C" fn reclane_rank_fetch_add(
    rank: *const reclane_rank,
    peer: u32,
    region: u32,
    offset: u64,
    add: u64,
    old: *mut u64,
    error: *mut reclane_error,
) -> Status {
    // SAFETY: the caller vouches for the handle, `old` and `error`.
    unsafe { atomic(rank, old, error, |rank| rank.fetch_add(Place { rank: peer, region, offset }, add)) }
}

/// Stores to 8 bytes of another rank's region if they equal `expect`, by the fabric: at most once, as
/// reclane_rank_fetch_add().
///
/// rank    from reclane_rank_open().
/// peer    the rank that owns the region.
/// region  its id; opened with RECLANE_RIGHT_ATOMIC.
/// offset  where, in bytes, a multiple of 8.
/// expect  what they are compared with.
/// swap    what is stored if equal.
/// old     receives the value before, or is NULL: equal to `expect` when it was stored.
/// error   may be NULL; filled on failure only.
///
/// Statuses as reclane_rank_write().
/// Threads: any.  Blocks: until it is settled, up to rdma-wait-timeout-ms.
#[unsafe(no_mangle)]
#[must_use]
pub unsafe extern "C" fn reclane_rank_compare_swap(
    rank: *const reclane_rank,
    peer: u32,
    region: u32,
    offset: u64,
    expect: u64,
    swap: u64,
    old: *mut u64,
    error: *mut reclane_error,
) -> Status {
    // SAFETY: the caller vouches for the handle, `old` and `error`.
    unsafe { atomic(rank, old, error, |rank| rank.compare_swap(Place { rank: peer, region, offset }, expect, swap)) }
}

/// Adds to 8 bytes of another rank's region exactly once, whatever happens to the lane: the owner's library executes it and
/// remembers its answer. Slower than reclane_rank_fetch_add(). Do not mix the two kinds on the same bytes, except on shm:
/// an adapter's atomics need not be atomic with a processor's.
///
/// rank    from reclane_rank_open().
/// peer    the rank that owns the region.
/// region  its id; opened with RECLANE_RIGHT_ATOMIC.
/// offset  where, in bytes, a multiple of 8.
/// add     what is added, modulo 2^64.
/// old     receives the value before, or is NULL.
/// error   may be NULL; filled on failure only. outcome is unknown only when the owner is gone or silent.
///
/// RECLANE_STATUS_NO_SLOT  16 such requests are under way to this rank already; nothing was sent
/// Other statuses as reclane_rank_write().
/// Threads: any.  Blocks: until it is answered, up to rdma-wait-timeout-ms.
#[unsafe(no_mangle)]
#[must_use]
pub unsafe extern "C" fn reclane_rank_fetch_add_once(
    rank: *const reclane_rank,
    peer: u32,
    region: u32,
    offset: u64,
    add: u64,
    old: *mut u64,
    error: *mut reclane_error,
) -> Status {
    // SAFETY: the caller vouches for the handle, `old` and `error`.
    unsafe { atomic(rank, old, error, |rank| rank.fetch_add_once(Place { rank: peer, region, offset }, add)) }
}

/// Stores to 8 bytes of another rank's region if they equal `expect`, exactly once, as reclane_rank_fetch_add_once().
///
/// rank    from reclane_rank_open().
/// peer    the rank that owns the region.
/// region  its id; opened with RECLANE_RIGHT_ATOMIC.
/// offset  where, in bytes, a multiple of 8.
/// expect  what they are compared with.
/// swap    what is stored if equal.
/// old     receives the value before, or is NULL.
/// error   may be NULL; filled on failure only.
///
/// Statuses as reclane_rank_fetch_add_once().
/// Threads: any.  Blocks: until it is answered, up to rdma-wait-timeout-ms.
#[unsafe(no_mangle)]
#[must_use]
pub unsafe extern "C" fn reclane_rank_compare_swap_once(
    rank: *const reclane_rank,
    peer: u32,
    region: u32,
    offset: u64,
    expect: u64,
    swap: u64,
    old: *mut u64,
    error: *mut reclane_error,
) -> Status {
    let at = Place { rank: peer, region, offset };
    // SAFETY: the caller vouches for the handle, `old` and `error`.
    unsafe { atomic(rank, old, error, |rank| rank.compare_swap_once(at, expect, swap)) }
}

fn operation(at: usize, from: &reclane_operation) -> Result<Operation> {
    let refuse = |why: String| Error::new(Status::InvalidArgument, format!("operations[{at}]: {why}"));
    let kind = match from.kind {
        1 => Kind::Write,
        2 => Kind::Read,
        3 => Kind::FetchAdd,
        4 => Kind::CompareSwap,
        other => return Err(refuse(format!("kind {other} is no reclane_operation_kind"))),
    };
    if from.reserved != 0 {
        return Err(refuse("reserved is not 0".to_owned()));
    }
    let bytes = u32::try_from(from.bytes).map_err(|_| refuse(format!("{} bytes; at most 1073741824", from.bytes)))?;
    Ok(Operation {
        kind,
        region: from.region,
        offset: from.offset,
        bytes,
        local: from.local.cast(),
        operand: from.operand,
        swap: from.swap,
    })
}

/// Posts operations on one rank's regions together, with one doorbell where they fit, and does not wait. All are posted or
/// none. Reads and atomics come after earlier writes; of two writes to the same bytes the later one stays where the fabric
/// orders writes (shm does), elsewhere flush between them.
///
/// rank        from reclane_rank_open().
/// peer        the rank that owns the regions.
/// operations  an array of `count`; copied. What they name here stays valid until reclane_rank_wait() or
///             reclane_rank_flush() has said that they are settled.
/// count       1 to 64; also at most a quarter of the option max-send-wr.
/// ticket      receives the number of the last one.
/// error       may be NULL; filled on failure only.
///
/// Statuses as reclane_rank_write(); after a failure nothing was posted.
/// Threads: any.  Blocks: while the send queue is full, a hold is in force, or the lane connects, up to
/// rdma-wait-timeout-ms.
#[unsafe(no_mangle)]
#[must_use]
pub unsafe extern "C" fn reclane_rank_post(
    rank: *const reclane_rank,
    peer: u32,
    operations: *const reclane_operation,
    count: usize,
    ticket: *mut reclane_ticket,
    error: *mut reclane_error,
) -> Status {
    const MOST: usize = 64;
    let body = |rank: &Rank| {
        required(ticket, "ticket")?;
        // SAFETY: not NULL; writable by the caller's word.
        unsafe { ticket.write(0) };
        // SAFETY: the caller vouches for the array.
        let given = unsafe { array(operations, count, "operations") }?;
        if given.len() > MOST {
            return Err(Error::new(
                Status::InvalidArgument,
                format!("{count} operations in one batch; at most {MOST}"),
            ));
        }
        let nothing = Operation {
            kind: Kind::Read,
            region: 0,
            offset: 0,
            bytes: 0,
            local: core::ptr::null_mut(),
            operand: 0,
            swap: 0,
        };
        let mut batch = [nothing; MOST];
        for (at, (from, to)) in given.iter().zip(&mut batch).enumerate() {
            *to = operation(at, from)?;
        }
        // SAFETY: the caller vouches for what they name.
        let made = unsafe { rank.post(peer, &batch[..given.len()]) }?;
        // SAFETY: as above.
        unsafe { ticket.write(made.0) };
        Ok(Status::Ok)
    };
    // SAFETY: the caller vouches for the handle and `error`.
    unsafe { guard::with(rank, error, body) }
}

/// Waits until the operations of a ticket, and all that were posted to the same rank before, are settled.
///
/// rank        from reclane_rank_open().
/// ticket      from reclane_rank_post().
/// timeout_ms  how long to wait, milliseconds; 0 for 60 s.
/// error       may be NULL; filled on failure only: of the last operation; reclane_rank_outcomes() has each.
///
/// RECLANE_STATUS_WAIT_TIMEOUT       they are under way still
/// RECLANE_STATUS_SHARD_UNREACHABLE, _COMPLETION_ERROR  the last one failed; outcome says whether it took effect
/// RECLANE_STATUS_STALE_TOKEN        no such ticket, or too long ago
/// RECLANE_STATUS_NULL_POINTER, _BAD_HANDLE, _CLOSED, _FORKED, _POISONED, _STRUCT_SIZE, _BUG  as their names say
/// Threads: any.  Blocks: up to timeout_ms.
#[unsafe(no_mangle)]
#[must_use]
pub unsafe extern "C" fn reclane_rank_wait(
    rank: *const reclane_rank,
    ticket: reclane_ticket,
    timeout_ms: u64,
    error: *mut reclane_error,
) -> Status {
    let body = |rank: &Rank| {
        rank.wait(Ticket(ticket), timeout_or(timeout_ms, WAIT_DEFAULT))?;
        Ok(Status::Ok)
    };
    // SAFETY: the caller vouches for the handle and `error`.
    unsafe { guard::with(rank, error, body) }
}

/// What is known of the operations that end with a ticket's: of a batch, when count is its own.
///
/// rank    from reclane_rank_open().
/// ticket  from reclane_rank_post().
/// known   receives `count` values of reclane_known, in the order of the operations.
/// count   how many, at least 1.
/// error   may be NULL; filled on failure only.
///
/// RECLANE_STATUS_STALE_TOKEN  no such ticket, or some are too long ago: a lane remembers half of the option max-send-wr
/// RECLANE_STATUS_NULL_POINTER, _BAD_HANDLE, _CLOSED, _FORKED, _POISONED, _STRUCT_SIZE, _BUG  as their names say
/// Threads: any.  Blocks: never.
#[unsafe(no_mangle)]
#[must_use]
pub unsafe extern "C" fn reclane_rank_outcomes(
    rank: *const reclane_rank,
    ticket: reclane_ticket,
    known: *mut u32,
    count: usize,
    error: *mut reclane_error,
) -> Status {
    let body = |rank: &Rank| {
        check_array(known.cast_const(), count, "known")?;
        // Longer than any log: refused there.
        let mut found = vec![Known::UnderWay; count.min(1 << 20)];
        rank.outcomes(Ticket(ticket), &mut found)?;
        for (at, one) in found.iter().enumerate() {
            // SAFETY: the caller vouches for `count` elements.
            unsafe { known.add(at).write(*one as u32) };
        }
        Ok(Status::Ok)
    };
    // SAFETY: the caller vouches for the handle and `error`.
    unsafe { guard::with(rank, error, body) }
}

/// Waits until everything that was posted to a rank so far is settled and visible to its processor.
///
/// rank        from reclane_rank_open().
/// peer        the rank.
/// timeout_ms  how long to wait, milliseconds; 0 for 60 s.
/// error       may be NULL; filled on failure only: the newest failure that no call has told of yet.
///
/// RECLANE_STATUS_WAIT_TIMEOUT  something is under way still
/// RECLANE_STATUS_SHARD_UNREACHABLE, _COMPLETION_ERROR  an operation failed; outcome says whether it took effect
/// RECLANE_STATUS_INVALID_ARGUMENT  there is no such rank
/// RECLANE_STATUS_NULL_POINTER, _BAD_HANDLE, _CLOSED, _FORKED, _POISONED, _STRUCT_SIZE, _BUG  as their names say
/// Threads: any.  Blocks: up to timeout_ms.
#[unsafe(no_mangle)]
#[must_use]
pub unsafe extern "C" fn reclane_rank_flush(
    rank: *const reclane_rank,
    peer: u32,
    timeout_ms: u64,
    error: *mut reclane_error,
) -> Status {
    let body = |rank: &Rank| {
        rank.flush(peer, timeout_or(timeout_ms, WAIT_DEFAULT))?;
        Ok(Status::Ok)
    };
    // SAFETY: the caller vouches for the handle and `error`.
    unsafe { guard::with(rank, error, body) }
}
