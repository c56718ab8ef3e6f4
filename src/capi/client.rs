//! Client: a process's connection to all shards of a parameter server.
//!
//! One handle serves any number of threads: every call on it may run at the same time as every other, close apart.
//! Batches are split by shard and by request limit inside; rows come back in the caller's order. Keys are uint64_t,
//! rows are float, row-major, one row of the table's width per key. A key may occur more than once in a batch.
//! After a fork the child may not use the handle: its calls answer RECLANE_STATUS_FORKED.

use core::ffi::c_char;
use std::time::Duration;

use super::arguments::{required, text, timeout_or};
use super::callback;
use super::error::reclane_error;
use super::handle::{self, Noun};
use super::options::{publish_to, reclane_options, snapshot};
use super::store::{command_of, reclane_table_options};
use super::{fork, guard, structs};
use crate::engine::Client;
use crate::error::Status;
use crate::options::{Options, Side};

/// A connection to all shards. Opaque; made by reclane_client_open().
#[derive(Debug)]
pub struct reclane_client {
    _opaque: (),
}

impl Noun for reclane_client {
    type Object = Client;
    const TAG: u32 = 0xC11E_4701;
    const NAME: &'static str = "reclane_client";
}

/// How long `shutdown` waits when the caller names no time.
const SHUTDOWN_DEFAULT: Duration = Duration::from_secs(10);
/// How long `barrier` waits when the caller names no time.
const BARRIER_DEFAULT: Duration = Duration::from_secs(60);

/// Connects to every shard of a deployment: the entry for programs with flags or setters. The environment is not read.
///
/// options  options of the client side; NULL for all defaults. Read during the call only.
/// out      receives the handle; NULL is written on failure. Close it with reclane_client_close().
/// error    may be NULL; filled on failure only.
///
/// RECLANE_STATUS_OPTION_CONFLICT            two options contradict each other, or one the deployment file
/// RECLANE_STATUS_UNKNOWN_OPTION, _OPTION_TYPE, _OPTION_BOUNDS, _INVALID_ARGUMENT, _NOT_UTF8  a field of the deployment
/// file is wrong, or it is no such file; the message names it
/// RECLANE_STATUS_STARTUP_TIMEOUT            not every shard was ready in time; the message names the missing ones
/// RECLANE_STATUS_CONTROL_PLANE_UNREACHABLE  nobody answers at rdma-control-plane-host and -port
/// RECLANE_STATUS_DEPLOYMENT_MISMATCH        settings differ from those of the deployment; the message has both values
/// RECLANE_STATUS_STALE_EPOCH                the deployment has a newer epoch, or another id
/// RECLANE_STATUS_DUPLICATE_ID               another live process holds this client id
/// RECLANE_STATUS_FABRIC_UNAVAILABLE         the chosen fabric cannot run here
/// RECLANE_STATUS_OS_ERROR, _RESOURCE_LIMIT, _NULL_POINTER, _BAD_HANDLE, _CLOSED, _FORKED, _STRUCT_SIZE, _BUG  as their
/// names say
/// Threads: any.  Blocks: up to the option rdma-control-plane-timeout-ms.
#[unsafe(no_mangle)]
#[must_use]
pub unsafe extern "C" fn reclane_client_open(
    options: *const reclane_options,
    out: *mut *mut reclane_client,
    error: *mut reclane_error,
) -> Status {
    guard::keep_panics_quiet();
    let make = || {
        fork::check()?;
        fork::watch()?;
        // SAFETY: the caller vouches for the handle.
        Client::open(&unsafe { snapshot(options) }?.settings(Side::Client)?)
    };
    // SAFETY: the caller vouches for `out` and `error`.
    unsafe { guard::call(error, || publish_to(out, make)) }
}

/// Connects to every shard of a deployment that the environment alone describes (RECLANE_* and its aliases, rank and
/// world size from RANK, WORLD_SIZE and their relatives; docs/options.md has the list): the entry for plug-ins that have
/// no command line.
///
/// out    receives the handle; NULL is written on failure. Close it with reclane_client_close().
/// error  may be NULL; filled on failure only.
///
/// RECLANE_STATUS_UNKNOWN_OPTION, _OPTION_TYPE, _OPTION_BOUNDS  an environment variable is wrong; the message names it
/// and all statuses of reclane_client_open()
/// Threads: any; no other thread may change the environment meanwhile.  Blocks: as reclane_client_open().
#[unsafe(no_mangle)]
#[must_use]
pub unsafe extern "C" fn reclane_client_open_from_environment(
    out: *mut *mut reclane_client,
    error: *mut reclane_error,
) -> Status {
    guard::keep_panics_quiet();
    let make = || {
        fork::check()?;
        fork::watch()?;
        Client::open(&Options::from_environment()?.settings(Side::Client)?)
    };
    // SAFETY: the caller vouches for `out` and `error`.
    unsafe { guard::call(error, || publish_to(out, make)) }
}

/// Ends a client in order: waits until every request was revoked, then leaves the deployment. May be called again after
/// a failure. Afterwards requests and buffers are refused with RECLANE_STATUS_CLOSED.
///
/// client      from reclane_client_open().
/// timeout_ms  how long to wait, milliseconds; 0 for 10 s.
/// error       may be NULL; filled on failure only.
///
/// RECLANE_STATUS_BUSY            requests were not revoked yet
/// RECLANE_STATUS_WOULD_DEADLOCK  called from inside a callback
/// RECLANE_STATUS_NULL_POINTER, _BAD_HANDLE, _CLOSED, _FORKED, _POISONED, _STRUCT_SIZE, _BUG  as their names say
/// Threads: any.  Blocks: up to timeout_ms.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn reclane_client_shutdown(
    client: *mut reclane_client,
    timeout_ms: u64,
    error: *mut reclane_error,
) -> Status {
    let body = |client: &Client| {
        callback::check_outside("reclane_client_shutdown")?;
        client.shutdown(timeout_or(timeout_ms, SHUTDOWN_DEFAULT))?;
        Ok(Status::Ok)
    };
    // SAFETY: the caller vouches for the handle and `error`.
    unsafe { guard::with(client.cast_const(), error, body) }
}

/// Closes a client: abandons requests under way, leaves the deployment, ends its threads. The caller's memory named by
/// requests is not touched after it returns; the rows of GETs in place are gone. Buffers of this client keep their memory
/// until they are closed themselves. NULL and an already closed handle do nothing; in a forked child it only forgets;
/// inside a callback of reclane_store it does nothing.
///
/// Threads: one at a time per client; no other call on it may be under way.  Blocks: until its threads have ended.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn reclane_client_close(client: *mut reclane_client) {
    if callback::is_inside() {
        return;
    }
    // SAFETY: the caller vouches for the handle.
    guard::quietly(|| drop(unsafe { handle::take(client) }));
}

/// Creates a table on every shard, or finds the one of this name again: then everything in the options must agree. With
/// the built-in table its number follows from the options: a shard that was started anew gives it the same one. Call it
/// again after a shard was; the rows are gone until they are put or loaded.
///
/// client         from reclane_client_open().
/// table_options  what to create. Read during the call only.
/// table          receives the number by which all other calls name the table.
/// error          may be NULL; filled on failure only.
///
/// RECLANE_STATUS_INVALID_ARGUMENT  a field is out of its range; the message names it
/// RECLANE_STATUS_INVALID_PAYLOAD   a table of this name exists with other options
/// RECLANE_STATUS_DEPLOYMENT_MISMATCH  stores of the host program's own give it different numbers on different shards
/// RECLANE_STATUS_RESOURCE_LIMIT    so many tables exist that no number was found for it
/// RECLANE_STATUS_INTERNAL_ERROR    a shard's store failed; it lives on
/// RECLANE_STATUS_WAIT_TIMEOUT, _SHARD_UNREACHABLE, _LANE_DOWN, _DRAINING  as their names say
/// RECLANE_STATUS_NULL_POINTER, _NOT_UTF8, _BAD_HANDLE, _CLOSED, _FORKED, _POISONED, _STRUCT_SIZE, _BUG  as their names
/// say
/// Threads: any.  Blocks: up to the option rdma-wait-timeout-ms.
#[unsafe(no_mangle)]
#[must_use]
pub unsafe extern "C" fn reclane_client_init_table(
    client: *mut reclane_client,
    table_options: *const reclane_table_options,
    table: *mut u32,
    error: *mut reclane_error,
) -> Status {
    let body = |client: &Client| {
        required(table, "table")?;
        // SAFETY: the caller vouches for the struct and its string.
        let spec = unsafe { structs::read(table_options)?.to_spec() }?;
        let tag = client.init_table(&spec)?;
        // SAFETY: not NULL; writable by the caller's word.
        unsafe { table.write(u32::from(tag.0)) };
        Ok(Status::Ok)
    };
    // SAFETY: the caller vouches for the handle and `error`.
    unsafe { guard::with(client.cast_const(), error, body) }
}

/// Says a word to every shard's store as a whole.
///
/// client    from reclane_client_open().
/// command   a reclane_command.
/// argument  for RECLANE_COMMAND_SAVE and _LOAD a name of 1 or more bytes, NUL-terminated UTF-8; NULL or "" for
///           RECLANE_COMMAND_CLEAR. Copied.
/// error     may be NULL; filled on failure only.
///
/// RECLANE_STATUS_INVALID_ARGUMENT  no such command, or an argument where none belongs, or none where one does
/// RECLANE_STATUS_INVALID_PAYLOAD   a shard's store does not know the command
/// RECLANE_STATUS_INTERNAL_ERROR    a shard's store could not do it; it lives on
/// RECLANE_STATUS_WAIT_TIMEOUT, _SHARD_UNREACHABLE, _LANE_DOWN, _DRAINING  as their names say
/// RECLANE_STATUS_NULL_POINTER, _NOT_UTF8, _BAD_HANDLE, _CLOSED, _FORKED, _POISONED, _STRUCT_SIZE, _BUG  as their names
/// say
/// Threads: any.  Blocks: up to the option rdma-wait-timeout-ms.
#[unsafe(no_mangle)]
#[must_use]
pub unsafe extern "C" fn reclane_client_command(
    client: *mut reclane_client,
    command: u32,
    argument: *const c_char,
    error: *mut reclane_error,
) -> Status {
    let body = |client: &Client| {
        // SAFETY: the caller vouches for the string.
        let argument = if argument.is_null() { "" } else { unsafe { text(argument, "argument") }? };
        client.command(&command_of(command, argument)?)?;
        Ok(Status::Ok)
    };
    // SAFETY: the caller vouches for the handle and `error`.
    unsafe { guard::with(client.cast_const(), error, body) }
}

/// Waits until as many members of the deployment as `participants` have called it with this name.
///
/// client        from reclane_client_open().
/// name          name of the barrier, NUL-terminated UTF-8, 1 or more bytes. Copied. It may be used again once passed.
/// participants  how many members (clients, not calls) make the barrier open, at least 1; all must say the same number.
/// timeout_ms    how long to wait, milliseconds; 0 for 60 s.
/// error         may be NULL; filled on failure only.
///
/// RECLANE_STATUS_STARTUP_TIMEOUT            not all came in time; the message says who did
/// RECLANE_STATUS_SHARD_UNREACHABLE          a participant died or left while it waited; the message names it
/// RECLANE_STATUS_INVALID_ARGUMENT           participants is 0, the name is empty, or the others say another number
/// RECLANE_STATUS_RESOURCE_LIMIT             too many barriers are waited for at once
/// RECLANE_STATUS_CONTROL_PLANE_UNREACHABLE  the control plane is gone
/// RECLANE_STATUS_NULL_POINTER, _NOT_UTF8, _BAD_HANDLE, _CLOSED, _FORKED, _POISONED, _STRUCT_SIZE, _BUG  as their names
/// say
/// Threads: any.  Blocks: up to timeout_ms.
#[unsafe(no_mangle)]
#[must_use]
pub unsafe extern "C" fn reclane_client_barrier(
    client: *mut reclane_client,
    name: *const c_char,
    participants: u32,
    timeout_ms: u64,
    error: *mut reclane_error,
) -> Status {
    let body = |client: &Client| {
        // SAFETY: the caller vouches for the string.
        let name = unsafe { text(name, "name") }?;
        client.barrier(name, participants, timeout_or(timeout_ms, BARRIER_DEFAULT))?;
        Ok(Status::Ok)
    };
    // SAFETY: the caller vouches for the handle and `error`.
    unsafe { guard::with(client.cast_const(), error, body) }
}

/// The shard that owns a key, 0..num_shards-1.
///
/// client  from reclane_client_open().
/// key     any key.
/// shard   receives the shard.
/// error   may be NULL; filled on failure only.
///
/// RECLANE_STATUS_NULL_POINTER, _BAD_HANDLE, _CLOSED, _FORKED, _POISONED, _STRUCT_SIZE  as their names say
/// Threads: any.  Blocks: never.
#[unsafe(no_mangle)]
#[must_use]
pub unsafe extern "C" fn reclane_client_shard_of(
    client: *const reclane_client,
    key: u64,
    shard: *mut u32,
    error: *mut reclane_error,
) -> Status {
    let body = |client: &Client| {
        required(shard, "shard")?;
        // SAFETY: not NULL; writable by the caller's word.
        unsafe { shard.write(client.shard_of(key)) };
        Ok(Status::Ok)
    };
    // SAFETY: the caller vouches for the handle and `error`.
    unsafe { guard::with(client, error, body) }
}

/// Takes a lane out of use, as a failed completion would: its queue pair goes to ERR. For maintenance, and for tests of what
/// depends on this library. Requests under way on it fail, or are sent again with request-retry=exactly-once; the lane
/// comes back where rdma-lane-rebuild-enabled is on.
///
/// client  from reclane_client_open().
/// shard   the shard it leads to, 0..num_shards - 1.
/// lane    its number, 0..qps-per-client-per-shard - 1.
/// error   may be NULL; filled on failure only.
///
/// RECLANE_STATUS_INVALID_ARGUMENT  there is no such shard or lane
/// RECLANE_STATUS_WRONG_STATE       the lane is not connected yet
/// RECLANE_STATUS_NULL_POINTER, _BAD_HANDLE, _CLOSED, _FORKED, _POISONED, _STRUCT_SIZE, _BUG  as their names say
/// Threads: any.  Blocks: never.
#[unsafe(no_mangle)]
#[must_use]
pub unsafe extern "C" fn reclane_client_break_lane(
    client: *mut reclane_client,
    shard: u32,
    lane: u32,
    error: *mut reclane_error,
) -> Status {
    let body = |client: &Client| {
        client.break_lane(shard, lane)?;
        Ok(Status::Ok)
    };
    // SAFETY: the caller vouches for the handle and `error`.
    unsafe { guard::with(client.cast_const(), error, body) }
}
