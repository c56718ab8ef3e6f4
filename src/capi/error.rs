//! What went wrong, in a struct that the caller owns.
//!
//! Every call that can fail takes a `reclane_error *` last. It may be NULL. Otherwise set its `struct_size` before the
//! call; it is filled when the call fails and left alone when it succeeds. Detail belongs to the call, not to the
//! thread, so fibers and callbacks may move between threads.

use core::ffi::c_char;

use super::structs::{self, Versioned};
use crate::error::{Error, Result, Status};

/// Bytes of `reclane_error.message`, with the closing NUL.
pub const RECLANE_ERROR_MESSAGE_BYTES: usize = 512;

/// "No such thing": the value of `shard`, `lane` and `slot` when the failure concerns none.
pub(super) const NONE: u32 = u32::MAX;

/// What went wrong, where, and what is known about it. Set struct_size = sizeof(reclane_error) before the call.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct reclane_error {
    /// sizeof(reclane_error), set by the caller.
    pub struct_size: u32,
    /// The status that the call returned, a reclane_status.
    pub status: i32,
    /// Where the failure was seen, a reclane_layer.
    pub layer: u32,
    /// Whether the request was executed, a reclane_outcome.
    pub outcome: u32,
    /// What was known about the shard's process, a reclane_verdict.
    pub verdict: u32,
    /// The shard concerned, or RECLANE_NONE.
    pub shard: u32,
    /// The lane concerned, or RECLANE_NONE.
    pub lane: u32,
    /// The slot concerned, or RECLANE_NONE.
    pub slot: u32,
    /// Generation of the lane; 0 when no lane is concerned.
    pub generation: u32,
    /// Completion status as the fabric numbers it (ibv_wc_status); 0 when none.
    pub completion: u32,
    /// The device's own error number; 0 when none.
    pub vendor_error: u32,
    /// errno of the system call that failed; 0 when none did.
    pub os_error: i32,
    /// Sequence number of the request; 0 when no request is concerned.
    pub sequence: u64,
    /// Nanoseconds from the start of the request or call to the failure; 0 when not measured.
    pub elapsed_ns: u64,
    /// One line for people: what, which, the value and its bound, what to do. UTF-8, always NUL-terminated, cut at the
    /// end if it is too long.
    pub message: [c_char; 512],
}

// SAFETY: repr(C), `struct_size` first, integers only.
unsafe impl Versioned for reclane_error {
    const NAME: &'static str = "reclane_error";
    const FIRST_SIZE: usize = size_of::<reclane_error>();
}

impl reclane_error {
    fn of(error: &Error) -> reclane_error {
        let mut message = [0; RECLANE_ERROR_MESSAGE_BYTES];
        let text = &error.message;
        let mut end = text.len().min(RECLANE_ERROR_MESSAGE_BYTES - 1);
        while !text.is_char_boundary(end) {
            end -= 1;
        }
        for (to, from) in message.iter_mut().zip(text.as_bytes().iter().take(end)) {
            // A NUL inside would hide the rest from C.
            *to = if *from == 0 { b' '.cast_signed() } else { from.cast_signed() };
        }
        reclane_error {
            struct_size: 0,
            status: error.status as i32,
            layer: error.layer as u32,
            outcome: error.outcome as u32,
            verdict: error.verdict as u32,
            shard: error.shard.unwrap_or(NONE),
            lane: error.lane.unwrap_or(NONE),
            slot: error.slot.unwrap_or(NONE),
            generation: error.generation,
            completion: error.completion,
            vendor_error: error.vendor_error,
            os_error: error.os_error,
            sequence: error.sequence,
            elapsed_ns: error.elapsed_ns,
            message,
        }
    }
}

/// Refuses an error struct of a size that cannot be: nothing else is done then.
///
/// # Safety
/// `to` is NULL or points to as many writable bytes as its `struct_size` says.
#[inline]
pub(super) unsafe fn check(to: *const reclane_error) -> Result<()> {
    if to.is_null() {
        return Ok(());
    }
    // SAFETY: not NULL; the caller vouches for the bytes.
    unsafe { structs::check_report(to) }
}

/// Fills the caller's error struct, if there is one, and gives the status to return.
///
/// # Safety
/// As for [`check`], which has accepted `to`.
#[cold]
pub(super) unsafe fn fill(to: *mut reclane_error, error: &Error) -> Status {
    if !to.is_null() {
        // SAFETY: checked on entry.
        unsafe { structs::write(to, &reclane_error::of(error)) };
    }
    error.status
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_long_message_is_cut_between_characters_and_closed() {
        let error = Error::new(Status::Bug, format!("x{}", "é".repeat(400)));
        let face = reclane_error::of(&error);
        let bytes: Vec<u8> = face.message.iter().map(|c| c.cast_unsigned()).collect();
        let end = bytes.iter().position(|b| *b == 0).unwrap();
        assert_eq!(end, 511);
        assert!(core::str::from_utf8(&bytes[..end]).is_ok());
        assert_eq!((face.shard, face.lane, face.slot), (NONE, NONE, NONE));
    }

    #[test]
    fn a_nul_inside_a_message_hides_nothing() {
        let face = reclane_error::of(&Error::new(Status::Bug, "a\0b"));
        let bytes: Vec<u8> = face.message.iter().take(4).map(|c| c.cast_unsigned()).collect();
        assert_eq!(bytes, b"a b\0");
    }
}
