//! Events: what the library has to say, one line of key=value each.
//!
//! Without a sink the options log-level and log-file decide where events go; by default nowhere.

use core::ffi::{c_char, c_void};

use super::error::reclane_error;
use super::guard;
use super::store::reclane_drop_fn;
use super::structs::{self, Versioned};
use crate::error::{Error, Status};

/// How much an event matters: values of reclane_event.level. Treat an unknown value as "some other".
#[repr(u32)]
#[derive(Clone, Copy, Debug)]
pub enum reclane_level {
    /// Something is lost and somebody should act.
    Error = 1,
    /// Something is lost; the library deals with it.
    Warn = 2,
    /// Something happens rarely and in order: a start, a join, an end.
    Info = 3,
    /// For the people who work on the library.
    Debug = 4,
    /// The same, with everything.
    Trace = 5,
}

/// One event. Valid during the callback only.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct reclane_event {
    /// sizeof(reclane_event) of the library: fields beyond it are not there.
    pub struct_size: u32,
    /// A reclane_level.
    pub level: u32,
    /// The whole event, "event=lane_dirty shard=1 lane=0 ...", NUL-terminated UTF-8.
    pub line: *const c_char,
    /// Bytes of line without the NUL.
    pub line_length: u64,
}

/// Takes one event. Runs on the thread that the event concerns, several at once; must be quick and must not call this
/// library.
pub type reclane_event_fn = Option<unsafe extern "C-unwind" fn(user_data: *mut c_void, event: *const reclane_event)>;

/// Where events go. Zero the struct, set struct_size = sizeof(reclane_event_sink) and on_event.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct reclane_event_sink {
    /// sizeof(reclane_event_sink).
    pub struct_size: u32,
    /// Highest reclane_level that is wanted. 0 means RECLANE_LEVEL_INFO.
    pub level: u32,
    /// Given back to on_event.
    pub user_data: *mut c_void,
    /// May be NULL.
    pub drop_user_data: reclane_drop_fn,
    /// Required.
    pub on_event: reclane_event_fn,
}

// SAFETY: repr(C), `struct_size` first; zero is a valid pointer, integer and `Option` of a function.
unsafe impl Versioned for reclane_event_sink {
    const NAME: &'static str = "reclane_event_sink";
    const FIRST_SIZE: usize = 32;
}
const _: () = assert!(size_of::<reclane_event_sink>() == 32);

/// Sends all events of this process to the host's callback instead of the places that the options name.
///
/// sink   where events go; copied. NULL takes the present sink away: when the call returns, it is not being called any
///        more and its user_data has been dropped. On RECLANE_STATUS_OK the library owns sink->user_data and calls
///        sink->drop_user_data once; on any other status it stays the caller's.
/// error  may be NULL; filled on failure only.
///
/// RECLANE_STATUS_NULL_POINTER      on_event is NULL
/// RECLANE_STATUS_INVALID_ARGUMENT  level is none of 0..5
/// RECLANE_STATUS_WOULD_DEADLOCK    called from inside a callback
/// RECLANE_STATUS_STRUCT_SIZE       sink or error has a size that cannot be, or an unknown tail
/// Threads: any.  Blocks: until the old sink's callbacks have returned.
#[unsafe(no_mangle)]
#[must_use]
pub unsafe extern "C" fn reclane_set_event_sink(sink: *const reclane_event_sink, error: *mut reclane_error) -> Status {
    let body = || {
        if !sink.is_null() {
            // SAFETY: the caller vouches for the struct.
            let _sink = unsafe { structs::read(sink) }?;
        }
        Err(Error::new(Status::Unsupported, "event sinks are not in this build"))
    };
    // SAFETY: the caller vouches for `error`.
    unsafe { guard::call(error, body) }
}
