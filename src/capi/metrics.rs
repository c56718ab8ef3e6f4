//! Metrics: all numbers as text, one by name, and latencies as a struct. docs/metrics.md has the names.

use core::ffi::c_char;

use super::arguments::{required, text, write_text};
use super::client::reclane_client;
use super::error::reclane_error;
use super::guard;
use super::rank::reclane_rank;
use super::server::reclane_server;
use super::structs::{self, Versioned};
use crate::engine::{Client, Rank, Server};
use crate::error::{Error, Result, Status};

/// Latencies of one operation. Set struct_size = sizeof(reclane_latency_info) before the call.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct reclane_latency_info {
    /// sizeof(reclane_latency_info), set by the caller.
    pub struct_size: u32,
    /// 0.
    pub reserved: u32,
    /// Requests that were timed: one in metrics-sample-every.
    pub count: u64,
    /// Sum of their times, in nanoseconds.
    pub sum_ns: u64,
    /// Half of them took no longer; at most a thirty-second too large, as are the next three.
    pub p50_ns: u64,
    /// 90 % of them took no longer.
    pub p90_ns: u64,
    /// 99 %.
    pub p99_ns: u64,
    /// 99.9 %.
    pub p999_ns: u64,
    /// The longest one took so long.
    pub max_ns: u64,
}

// SAFETY: repr(C), `struct_size` first, integers only.
unsafe impl Versioned for reclane_latency_info {
    const NAME: &'static str = "reclane_latency_info";
    const FIRST_SIZE: usize = 64;
}
const _: () = assert!(size_of::<reclane_latency_info>() == 64);

/// The latencies of one operation of a metric.
fn latency(metric: &str, op: &str, number: impl Fn(&str) -> Result<u64>) -> Result<reclane_latency_info> {
    if !["get", "put", "update"].contains(&op) {
        return Err(Error::new(Status::InvalidArgument, format!("op is '{op}'; it is one of get, put, update")));
    }
    let part = |name: &str| number(&format!("{metric}{{op=\"{op}\"}}.{name}"));
    Ok(reclane_latency_info {
        struct_size: 0,
        reserved: 0,
        count: part("count")?,
        sum_ns: part("sum")?,
        p50_ns: part("p50")?,
        p90_ns: part("p90")?,
        p99_ns: part("p99")?,
        p999_ns: part("p999")?,
        max_ns: part("max")?,
    })
}

/// Writes all numbers of a client as Prometheus' text.
///
/// client    from reclane_client_open().
/// buffer    receives the text, always NUL-terminated when capacity is not 0; cut if it does not fit.
/// capacity  bytes of buffer, the NUL included.
/// length    may be NULL; receives the bytes of the whole text without the NUL, also when buffer is too small.
/// error     may be NULL; filled on failure only.
///
/// RECLANE_STATUS_BUFFER_TOO_SMALL  the text and its NUL need more than capacity bytes; call again with some more than
/// *length + 1, for numbers grow
/// RECLANE_STATUS_NULL_POINTER, _BAD_HANDLE, _CLOSED, _FORKED, _POISONED, _BUG, _STRUCT_SIZE  as their names say
/// Threads: any.  Blocks: never.
#[unsafe(no_mangle)]
#[must_use]
pub unsafe extern "C" fn reclane_client_metrics_text(
    client: *const reclane_client,
    buffer: *mut c_char,
    capacity: usize,
    length: *mut usize,
    error: *mut reclane_error,
) -> Status {
    let body = |client: &Client| {
        let all = client.metrics_text();
        // SAFETY: the caller vouches for the buffer and `length`.
        unsafe { write_text(&all, buffer, capacity, length, "the metrics") }
    };
    // SAFETY: the caller vouches for the handle and `error`.
    unsafe { guard::with(client, error, body) }
}

/// Reads one number of a client by name.
///
/// client  from reclane_client_open().
/// name    "metric" (over all its labels), "metric{label=\"value\"}", of a histogram with .count, .sum, .max, .p50, .p90,
///         .p99 or .p999 behind (nanoseconds), or "component/field" of a profile. NUL-terminated UTF-8.
/// value   receives the number.
/// error   may be NULL; filled on failure only.
///
/// RECLANE_STATUS_INVALID_ARGUMENT  no number has this name; some are there only while requests are counted
/// RECLANE_STATUS_NULL_POINTER, _NOT_UTF8, _BAD_HANDLE, _CLOSED, _FORKED, _POISONED, _BUG, _STRUCT_SIZE  as their names say
/// Threads: any.  Blocks: never.
#[unsafe(no_mangle)]
#[must_use]
pub unsafe extern "C" fn reclane_client_metric(
    client: *const reclane_client,
    name: *const c_char,
    value: *mut u64,
    error: *mut reclane_error,
) -> Status {
    let body = |client: &Client| {
        required(value, "value")?;
        // SAFETY: the caller vouches for the string.
        let number = client.metric(unsafe { text(name, "name") }?)?;
        // SAFETY: not NULL; writable by the caller's word.
        unsafe { value.write(number) };
        Ok(Status::Ok)
    };
    // SAFETY: the caller vouches for the handle and `error`.
    unsafe { guard::with(client, error, body) }
}

/// Reports how long requests of a client took, from submit to the answer.
///
/// client  from reclane_client_open().
/// op      "get", "put" or "update". NUL-terminated UTF-8.
/// info    receives the report; struct_size must be set.
/// error   may be NULL; filled on failure only.
///
/// RECLANE_STATUS_INVALID_ARGUMENT  op is another word, or requests are not counted (options metrics and others)
/// RECLANE_STATUS_STRUCT_SIZE  info or error has a size that cannot be
/// RECLANE_STATUS_NULL_POINTER, _NOT_UTF8, _BAD_HANDLE, _CLOSED, _FORKED, _POISONED, _BUG  as their names say
/// Threads: any.  Blocks: never.
#[unsafe(no_mangle)]
#[must_use]
pub unsafe extern "C" fn reclane_client_latency(
    client: *const reclane_client,
    op: *const c_char,
    info: *mut reclane_latency_info,
    error: *mut reclane_error,
) -> Status {
    let body = |client: &Client| {
        // SAFETY: the caller vouches for `info`.
        unsafe { structs::check_report(info.cast_const()) }?;
        // SAFETY: the caller vouches for the string.
        let op = unsafe { text(op, "op") }?;
        let face = latency("reclane_client_latency_seconds", op, |name| client.metric(name))?;
        // SAFETY: checked above.
        unsafe { structs::write(info, &face) };
        Ok(Status::Ok)
    };
    // SAFETY: the caller vouches for the handle and `error`.
    unsafe { guard::with(client, error, body) }
}

/// Tells the TCP port of a client's metrics.
///
/// client  from reclane_client_open().
/// port    receives the port; 0 when the option metrics-port is auto.
/// error   may be NULL; filled on failure only.
///
/// RECLANE_STATUS_NULL_POINTER, _BAD_HANDLE, _CLOSED, _FORKED, _POISONED, _BUG, _STRUCT_SIZE  as their names say
/// Threads: any.  Blocks: never.
#[unsafe(no_mangle)]
#[must_use]
pub unsafe extern "C" fn reclane_client_metrics_port(
    client: *const reclane_client,
    port: *mut u32,
    error: *mut reclane_error,
) -> Status {
    let body = |client: &Client| {
        required(port, "port")?;
        // SAFETY: not NULL; writable by the caller's word.
        unsafe { port.write(u32::from(client.metrics_port().unwrap_or(0))) };
        Ok(Status::Ok)
    };
    // SAFETY: the caller vouches for the handle and `error`.
    unsafe { guard::with(client, error, body) }
}

/// Writes all numbers of a shard as Prometheus' text.
///
/// server    from reclane_server_open().
/// buffer    receives the text, always NUL-terminated when capacity is not 0; cut if it does not fit.
/// capacity  bytes of buffer, the NUL included.
/// length    may be NULL; receives the bytes of the whole text without the NUL, also when buffer is too small.
/// error     may be NULL; filled on failure only.
///
/// RECLANE_STATUS_BUFFER_TOO_SMALL  the text and its NUL need more than capacity bytes; call again with some more than
/// *length + 1, for numbers grow
/// RECLANE_STATUS_NULL_POINTER, _BAD_HANDLE, _CLOSED, _FORKED, _POISONED, _BUG, _STRUCT_SIZE  as their names say
/// Threads: any.  Blocks: never.
#[unsafe(no_mangle)]
#[must_use]
pub unsafe extern "C" fn reclane_server_metrics_text(
    server: *const reclane_server,
    buffer: *mut c_char,
    capacity: usize,
    length: *mut usize,
    error: *mut reclane_error,
) -> Status {
    let body = |server: &Server| {
        let all = server.metrics_text();
        // SAFETY: the caller vouches for the buffer and `length`.
        unsafe { write_text(&all, buffer, capacity, length, "the metrics") }
    };
    // SAFETY: the caller vouches for the handle and `error`.
    unsafe { guard::with(server, error, body) }
}

/// Reads one number of a shard by name.
///
/// server  from reclane_server_open().
/// name    "metric" (over all its labels), "metric{label=\"value\"}", of a histogram with .count, .sum, .max, .p50, .p90,
///         .p99 or .p999 behind (nanoseconds), or "component/field" of a profile. NUL-terminated UTF-8.
/// value   receives the number.
/// error   may be NULL; filled on failure only.
///
/// RECLANE_STATUS_INVALID_ARGUMENT  no number has this name; some are there only while requests are counted
/// RECLANE_STATUS_NULL_POINTER, _NOT_UTF8, _BAD_HANDLE, _CLOSED, _FORKED, _POISONED, _BUG, _STRUCT_SIZE  as their names say
/// Threads: any.  Blocks: never.
#[unsafe(no_mangle)]
#[must_use]
pub unsafe extern "C" fn reclane_server_metric(
    server: *const reclane_server,
    name: *const c_char,
    value: *mut u64,
    error: *mut reclane_error,
) -> Status {
    let body = |server: &Server| {
        required(value, "value")?;
        // SAFETY: the caller vouches for the string.
        let number = server.metric(unsafe { text(name, "name") }?)?;
        // SAFETY: not NULL; writable by the caller's word.
        unsafe { value.write(number) };
        Ok(Status::Ok)
    };
    // SAFETY: the caller vouches for the handle and `error`.
    unsafe { guard::with(server, error, body) }
}

/// Reports how long a shard took to execute and answer requests.
///
/// server  from reclane_server_open().
/// op      "get", "put" or "update". NUL-terminated UTF-8.
/// info    receives the report; struct_size must be set.
/// error   may be NULL; filled on failure only.
///
/// RECLANE_STATUS_INVALID_ARGUMENT  op is another word, or requests are not counted (options metrics and others)
/// RECLANE_STATUS_STRUCT_SIZE  info or error has a size that cannot be
/// RECLANE_STATUS_NULL_POINTER, _NOT_UTF8, _BAD_HANDLE, _CLOSED, _FORKED, _POISONED, _BUG  as their names say
/// Threads: any.  Blocks: never.
#[unsafe(no_mangle)]
#[must_use]
pub unsafe extern "C" fn reclane_server_latency(
    server: *const reclane_server,
    op: *const c_char,
    info: *mut reclane_latency_info,
    error: *mut reclane_error,
) -> Status {
    let body = |server: &Server| {
        // SAFETY: the caller vouches for `info`.
        unsafe { structs::check_report(info.cast_const()) }?;
        // SAFETY: the caller vouches for the string.
        let op = unsafe { text(op, "op") }?;
        let face = latency("reclane_server_service_seconds", op, |name| server.metric(name))?;
        // SAFETY: checked above.
        unsafe { structs::write(info, &face) };
        Ok(Status::Ok)
    };
    // SAFETY: the caller vouches for the handle and `error`.
    unsafe { guard::with(server, error, body) }
}

/// Tells the TCP port of a shard's metrics.
///
/// server  from reclane_server_open().
/// port    receives the port; 0 when the option metrics-port is auto.
/// error   may be NULL; filled on failure only.
///
/// RECLANE_STATUS_NULL_POINTER, _BAD_HANDLE, _CLOSED, _FORKED, _POISONED, _BUG, _STRUCT_SIZE  as their names say
/// Threads: any.  Blocks: never.
#[unsafe(no_mangle)]
#[must_use]
pub unsafe extern "C" fn reclane_server_metrics_port(
    server: *const reclane_server,
    port: *mut u32,
    error: *mut reclane_error,
) -> Status {
    let body = |server: &Server| {
        required(port, "port")?;
        // SAFETY: not NULL; writable by the caller's word.
        unsafe { port.write(u32::from(server.metrics_port().unwrap_or(0))) };
        Ok(Status::Ok)
    };
    // SAFETY: the caller vouches for the handle and `error`.
    unsafe { guard::with(server, error, body) }
}

/// Writes all numbers of a rank as Prometheus' text.
///
/// rank      from reclane_rank_open().
/// buffer    receives the text, always NUL-terminated when capacity is not 0; cut if it does not fit.
/// capacity  bytes of buffer, the NUL included.
/// length    may be NULL; receives the bytes of the whole text without the NUL, also when buffer is too small.
/// error     may be NULL; filled on failure only.
///
/// RECLANE_STATUS_BUFFER_TOO_SMALL  the text and its NUL need more than capacity bytes; call again with some more than
/// *length + 1, for numbers grow
/// RECLANE_STATUS_NULL_POINTER, _BAD_HANDLE, _CLOSED, _FORKED, _POISONED, _BUG, _STRUCT_SIZE  as their names say
/// Threads: any.  Blocks: never.
#[unsafe(no_mangle)]
#[must_use]
pub unsafe extern "C" fn reclane_rank_metrics_text(
    rank: *const reclane_rank,
    buffer: *mut c_char,
    capacity: usize,
    length: *mut usize,
    error: *mut reclane_error,
) -> Status {
    let body = |rank: &Rank| {
        let all = rank.metrics_text();
        // SAFETY: the caller vouches for the buffer and `length`.
        unsafe { write_text(&all, buffer, capacity, length, "the metrics") }
    };
    // SAFETY: the caller vouches for the handle and `error`.
    unsafe { guard::with(rank, error, body) }
}

/// Reads one number of a rank by name.
///
/// rank    from reclane_rank_open().
/// name    "metric" (over all its labels), "metric{label=\"value\"}". NUL-terminated UTF-8.
/// value   receives the number.
/// error   may be NULL; filled on failure only.
///
/// RECLANE_STATUS_INVALID_ARGUMENT  no number has this name
/// RECLANE_STATUS_NULL_POINTER, _NOT_UTF8, _BAD_HANDLE, _CLOSED, _FORKED, _POISONED, _BUG, _STRUCT_SIZE  as their names say
/// Threads: any.  Blocks: never.
#[unsafe(no_mangle)]
#[must_use]
pub unsafe extern "C" fn reclane_rank_metric(
    rank: *const reclane_rank,
    name: *const c_char,
    value: *mut u64,
    error: *mut reclane_error,
) -> Status {
    let body = |rank: &Rank| {
        required(value, "value")?;
        // SAFETY: the caller vouches for the string.
        let number = rank.metric(unsafe { text(name, "name") }?)?;
        // SAFETY: not NULL; writable by the caller's word.
        unsafe { value.write(number) };
        Ok(Status::Ok)
    };
    // SAFETY: the caller vouches for the handle and `error`.
    unsafe { guard::with(rank, error, body) }
}

/// Tells the TCP port of a rank's metrics.
///
/// rank    from reclane_rank_open().
/// port    receives the port; 0 when the option metrics-port is auto.
/// error   may be NULL; filled on failure only.
///
/// RECLANE_STATUS_NULL_POINTER, _BAD_HANDLE, _CLOSED, _FORKED, _POISONED, _BUG, _STRUCT_SIZE  as their names say
/// Threads: any.  Blocks: never.
#[unsafe(no_mangle)]
#[must_use]
pub unsafe extern "C" fn reclane_rank_metrics_port(
    rank: *const reclane_rank,
    port: *mut u32,
    error: *mut reclane_error,
) -> Status {
    let body = |rank: &Rank| {
        required(port, "port")?;
        // SAFETY: not NULL; writable by the caller's word.
        unsafe { port.write(u32::from(rank.metrics_port().unwrap_or(0))) };
        Ok(Status::Ok)
    };
    // SAFETY: the caller vouches for the handle and `error`.
    unsafe { guard::with(rank, error, body) }
}
