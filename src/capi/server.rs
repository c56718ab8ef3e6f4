//! Server: one shard of the parameter server inside the host process.
//!
//! It serves the built-in table, or the host's own storage engine through the callbacks of reclane_store. Its threads
//! start in reclane_server_open() and end in reclane_server_close(); they are named, block all signals, and call back
//! only through reclane_store. Shard 0 hosts the control plane. After a fork the child may not use the handle.

use std::time::Duration;

use super::arguments::{required, timeout_or};
use super::callback;
use super::error::reclane_error;
use super::handle::{self, Noun};
use super::options::{publish_to, reclane_options, snapshot};
use super::state::reclane_state;
use super::state_adapter::CallbackState;
use super::store::reclane_store;
use super::store_adapter::CallbackStore;
use super::{fork, guard};
use crate::engine::{HostState, Server, builtin_store};
use crate::error::{Error, Result, Status};
use crate::options::Side;
use crate::sync::Arc;

/// A running shard. Opaque; made by reclane_server_open().
#[derive(Debug)]
pub struct reclane_server {
    _opaque: (),
}

impl Noun for reclane_server {
    type Object = Server;
    const TAG: u32 = 0x5E4E_0401;
    const NAME: &'static str = "reclane_server";
}

/// How long `stop` waits when the caller names no time.
const STOP_DEFAULT: Duration = Duration::from_secs(10);

/// Starts a shard: registers memory, starts its threads, joins the control plane (shard 0 starts it first) and says
/// that it is ready. Returns when the shard serves.
///
/// options  options of the server side; NULL for all defaults. Read during the call only.
/// store    the host's storage engine, or NULL for the built-in table. The struct is copied. On RECLANE_STATUS_OK the
///          library owns store->user_data and calls store->drop_user_data once, at the latest in
///          reclane_server_close(); on any other status it stays the caller's.
/// out      receives the handle; NULL is written on failure. Close it with reclane_server_close().
/// error    may be NULL; filled on failure only.
///
/// RECLANE_STATUS_OPTION_CONFLICT            two options contradict each other, or one the deployment file
/// RECLANE_STATUS_UNKNOWN_OPTION, _OPTION_TYPE, _OPTION_BOUNDS, _INVALID_ARGUMENT, _NOT_UTF8  a field of the deployment
/// file is wrong, or it is no such file; the message names it
/// RECLANE_STATUS_STRUCT_SIZE                store or error has a size that cannot be, or an unknown tail
/// RECLANE_STATUS_NULL_POINTER               out, or a required callback, is NULL
/// RECLANE_STATUS_FABRIC_UNAVAILABLE         the chosen fabric cannot run here
/// RECLANE_STATUS_DUPLICATE_ID               another live process serves this shard
/// RECLANE_STATUS_DEPLOYMENT_MISMATCH        settings differ from those of the deployment; the message has both values
/// RECLANE_STATUS_STALE_EPOCH                the deployment has a newer epoch, or another id
/// RECLANE_STATUS_CONTROL_PLANE_UNREACHABLE  shard 0 did not answer within rdma-control-plane-timeout-ms
/// RECLANE_STATUS_OS_ERROR, _RESOURCE_LIMIT, _BAD_HANDLE, _CLOSED, _FORKED, _BUG  as their names say
/// Threads: any.  Blocks: up to the option rdma-control-plane-timeout-ms.
#[unsafe(no_mangle)]
#[must_use]
pub unsafe extern "C" fn reclane_server_open(
    options: *const reclane_options,
    store: *const reclane_store,
    out: *mut *mut reclane_server,
    error: *mut reclane_error,
) -> Status {
    guard::keep_panics_quiet();
    // SAFETY: the caller vouches for all of them.
    unsafe { guard::call(error, || publish_to(out, || start(options, store, core::ptr::null()))) }
}

/// The same, with state of the host program that is part of the shard's checkpoints and comes back with them: of a size
/// that the program chooses, beside the built-in table, or as the whole state of a storage engine behind callbacks, which
/// has checkpoints only in this way.
///
/// options  as for reclane_server_open().
/// store    as for reclane_server_open().
/// state    its callbacks; the struct is copied. On a restore load is called before this function returns.
/// out      as for reclane_server_open().
/// error    may be NULL; filled on failure only.
///
/// RECLANE_STATUS_NULL_POINTER    also when state, or one of its callbacks, is NULL
/// RECLANE_STATUS_INTERNAL_ERROR  load has refused what was saved; the message has its answer
/// Others as for reclane_server_open().
/// Threads: any.  Blocks: up to the option rdma-control-plane-timeout-ms, and while a checkpoint is read.
#[unsafe(no_mangle)]
#[must_use]
pub unsafe extern "C" fn reclane_server_open_with_state(
    options: *const reclane_options,
    store: *const reclane_store,
    state: *const reclane_state,
    out: *mut *mut reclane_server,
    error: *mut reclane_error,
) -> Status {
    guard::keep_panics_quiet();
    let make = || {
        required(state, "state")?;
        // SAFETY: the caller vouches for all of them.
        unsafe { start(options, store, state) }
    };
    // SAFETY: the caller vouches for `out` and `error`.
    unsafe { guard::call(error, || publish_to(out, make)) }
}

/// Starts a server; a NULL store is the built-in one, a NULL state is none.
///
/// # Safety
/// The caller vouches for the handle, the structs and what they name.
unsafe fn start(
    options: *const reclane_options,
    store: *const reclane_store,
    state: *const reclane_state,
) -> Result<Server> {
    fork::check()?;
    fork::watch()?;
    // SAFETY: the caller vouches for the handle.
    let settings = unsafe { snapshot(options) }?.settings(Side::Server)?;
    let state: Option<Arc<dyn HostState>> = if state.is_null() {
        None
    } else {
        // SAFETY: the caller vouches for the struct and what it names.
        Some(Arc::new(unsafe { CallbackState::from_c(state) }?))
    };
    if store.is_null() {
        return Server::start_with(&settings, Arc::new(builtin_store(&settings)?), state);
    }
    // SAFETY: as above.
    let adapter = Arc::new(unsafe { CallbackStore::from_c(store) }?);
    let server = Server::start_with(&settings, Arc::clone(&adapter) as Arc<dyn crate::ps::Store>, state)?;
    adapter.take_ownership();
    Ok(server)
}

/// Stops serving in order: says "draining" to the control plane, answers what has arrived, then ends its threads. May be
/// called again after a failure. Requests that arrive later are not answered.
///
/// server      from reclane_server_open().
/// timeout_ms  how long to wait for requests under way, milliseconds; 0 for 10 s.
/// error       may be NULL; filled on failure only.
///
/// RECLANE_STATUS_BUSY            a callback or handler has not returned yet; the server goes on stopping
/// RECLANE_STATUS_WOULD_DEADLOCK  called from inside a callback
/// RECLANE_STATUS_NULL_POINTER, _BAD_HANDLE, _CLOSED, _FORKED, _POISONED, _STRUCT_SIZE, _BUG  as their names say
/// Threads: any.  Blocks: up to timeout_ms, whatever clients do; a goodbye and a scraper of the metrics
/// port that is being answered may take a second more.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn reclane_server_stop(
    server: *mut reclane_server,
    timeout_ms: u64,
    error: *mut reclane_error,
) -> Status {
    let body = |server: &Server| {
        callback::check_outside("reclane_server_stop")?;
        server.stop(timeout_or(timeout_ms, STOP_DEFAULT))?;
        Ok(Status::Ok)
    };
    // SAFETY: the caller vouches for the handle and `error`.
    unsafe { guard::with(server.cast_const(), error, body) }
}

/// Port on which this shard's control plane listens: of use when the option rdma-control-plane-port is 0, "any".
///
/// server  from reclane_server_open().
/// port    receives the port, 1..65535.
/// error   may be NULL; filled on failure only.
///
/// RECLANE_STATUS_WRONG_STATE  this server hosts no control plane: it is not shard 0
/// RECLANE_STATUS_NULL_POINTER, _BAD_HANDLE, _CLOSED, _FORKED, _POISONED, _STRUCT_SIZE  as their names say
/// Threads: any.  Blocks: never.
#[unsafe(no_mangle)]
#[must_use]
pub unsafe extern "C" fn reclane_server_control_plane_port(
    server: *const reclane_server,
    port: *mut u32,
    error: *mut reclane_error,
) -> Status {
    let body = |server: &Server| {
        required(port, "port")?;
        let found = server
            .control_plane_port()
            .ok_or_else(|| Error::new(Status::WrongState, "this server hosts no control plane; shard 0 does"))?;
        // SAFETY: not NULL; writable by the caller's word.
        unsafe { port.write(u32::from(found)) };
        Ok(Status::Ok)
    };
    // SAFETY: the caller vouches for the handle and `error`.
    unsafe { guard::with(server, error, body) }
}

/// Closes a server: stops it if it was not stopped, ends its threads, gives its memory back and drops the store. No
/// callback runs after it returns. NULL and an already closed handle do nothing. Inside a callback of reclane_store it
/// does nothing either, since it would wait for that callback; in a forked child it only forgets.
///
/// Threads: one at a time per server; no other call on it may be under way.  Blocks: until its threads have ended.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn reclane_server_close(server: *mut reclane_server) {
    if callback::is_inside() {
        return;
    }
    // SAFETY: the caller vouches for the handle.
    guard::quietly(|| drop(unsafe { handle::take(server) }));
}
