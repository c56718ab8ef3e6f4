//! Reports: what a lane, a client and a server are doing. Numbers of events only grow, until the handle is closed.

use core::ffi::c_char;

use super::client::reclane_client;
use super::error::reclane_error;
use super::guard;
use super::server::reclane_server;
use super::structs::{self, Versioned};
use crate::engine::{Client, LaneInfo, LaneState, Server, ServerStats};
use crate::error::Status;

/// State of a lane: values of reclane_lane_info.state. Treat an unknown value as "some other".
#[repr(u32)]
#[derive(Clone, Copy, Debug)]
pub enum reclane_lane_state {
    /// It is being connected.
    Connecting = 0,
    /// It carries requests.
    Active = 1,
    /// It has failed and carries no new request; a rebuild could help.
    Dirty = 2,
    /// It is being connected again.
    Rebuilding = 3,
    /// It will not come back.
    Dead = 4,
    /// It is not connected yet, because no request has needed it: see the option qps-at-open.
    Unconnected = 5,
}

const _: () = assert!(
    reclane_lane_state::Connecting as u32 == LaneState::Connecting as u32
        && reclane_lane_state::Active as u32 == LaneState::Active as u32
        && reclane_lane_state::Dirty as u32 == LaneState::Dirty as u32
        && reclane_lane_state::Rebuilding as u32 == LaneState::Rebuilding as u32
        && reclane_lane_state::Dead as u32 == LaneState::Dead as u32
        && reclane_lane_state::Unconnected as u32 == LaneState::Unconnected as u32
);

/// What one lane is doing. Set struct_size = sizeof(reclane_lane_info) before the call.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct reclane_lane_info {
    /// sizeof(reclane_lane_info), set by the caller.
    pub struct_size: u32,
    /// The shard it leads to.
    pub shard: u32,
    /// Its number, 0..qps-per-client-per-shard - 1.
    pub lane: u32,
    /// A reclane_lane_state.
    pub state: u32,
    /// Counts its connections, from 1; 0 before the first.
    pub generation: u32,
    /// Number of its queue pair; 0 before the first.
    pub queue_pair: u32,
    /// How a request is committed: "single", "crc" or "imm"; empty before its first connection. A static string.
    pub commit_scheme: *const c_char,
    /// 1 while it is connected anew when it fails or has failed, if rdma-lane-rebuild-enabled is on; 0 when that could
    /// not help.
    pub rebuildable: u32,
    /// Times that it was connected anew, or tried to be.
    pub attempts: u32,
    /// Why it last failed, as in the event lane_dirty; empty when it never has. A static string.
    pub reason: *const c_char,
}

/// What a client has at a moment. Set struct_size = sizeof(reclane_client_counters) before the call.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct reclane_client_counters {
    /// sizeof(reclane_client_counters), set by the caller.
    pub struct_size: u32,
    /// Number of this client in the deployment.
    pub client_id: u32,
    /// Shards of the deployment.
    pub num_shards: u32,
    /// Lanes to all shards together, connected or not.
    pub lanes: u32,
    /// Lanes of these that carry requests.
    pub lanes_active: u32,
    /// Request slots of all lanes.
    pub slots: u32,
    /// Slots of these that requests hold.
    pub slots_held: u32,
    /// 0.
    pub reserved: u32,
    /// Bytes of registered memory for the connected lanes on this side.
    pub lane_bytes: u64,
}

/// What a server has done and has now. Set struct_size = sizeof(reclane_server_counters) before the call.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct reclane_server_counters {
    /// sizeof(reclane_server_counters), set by the caller.
    pub struct_size: u32,
    /// 0.
    pub reserved: u32,
    /// GET requests executed.
    pub gets: u64,
    /// PUT requests executed.
    pub puts: u64,
    /// UPDATE and UPDATE_FLAT requests executed.
    pub updates: u64,
    /// INIT_TABLE requests executed.
    pub init_tables: u64,
    /// COMMAND requests executed.
    pub commands: u64,
    /// Rows answered.
    pub get_rows: u64,
    /// Rows of these that had no value.
    pub missing_rows: u64,
    /// Requests that were refused as malformed.
    pub refused: u64,
    /// Requests whose handler failed.
    pub internal_errors: u64,
    /// Lanes that are scanned.
    pub lanes: u64,
    /// Rounds over all slots.
    pub scan_rounds: u64,
    /// Rounds of these that found nothing.
    pub empty_scan_rounds: u64,
    /// Times that a poll thread went to sleep.
    pub sleeps: u64,
    /// Bytes of registered memory for the lanes on this side.
    pub lane_bytes: u64,
    /// Requests that came again, and were answered without being executed again.
    pub repeated: u64,
}

// SAFETY: repr(C), `struct_size` first; zero is a valid integer and pointer.
unsafe impl Versioned for reclane_lane_info {
    const NAME: &'static str = "reclane_lane_info";
    const FIRST_SIZE: usize = 32;
}
// SAFETY: repr(C), `struct_size` first, integers only.
unsafe impl Versioned for reclane_client_counters {
    const NAME: &'static str = "reclane_client_counters";
    const FIRST_SIZE: usize = 40;
}
// SAFETY: repr(C), `struct_size` first, integers only.
unsafe impl Versioned for reclane_server_counters {
    const NAME: &'static str = "reclane_server_counters";
    const FIRST_SIZE: usize = 120;
}
const _: () = assert!(
    size_of::<reclane_lane_info>() == 48
        && size_of::<reclane_client_counters>() == 40
        && size_of::<reclane_server_counters>() == 128
);

fn lane_face(info: &LaneInfo) -> reclane_lane_info {
    let commit_scheme = match info.scheme {
        "single" => c"single",
        "crc" => c"crc",
        "imm" => c"imm",
        _ => c"?",
    };
    reclane_lane_info {
        struct_size: 0,
        shard: info.shard,
        lane: info.lane,
        state: info.state as u32,
        generation: info.generation,
        queue_pair: info.queue_pair,
        commit_scheme: commit_scheme.as_ptr(),
        rebuildable: u32::from(info.rebuildable),
        attempts: info.attempts,
        reason: reason_text(info.reason).as_ptr(),
    }
}

/// The names of reasons as C strings.
fn reason_text(name: &str) -> &'static core::ffi::CStr {
    const NAMES: &[&core::ffi::CStr] = &[
        c"post_failed",
        c"peer_unreachable",
        c"flushed",
        c"peer_rejected",
        c"local_error",
        c"completion_timeout",
        c"wait_timeout",
        c"peer_gone",
        c"node_verdict",
        c"probe_timeout",
        c"peer_left",
        c"closed",
    ];
    let other = if name.is_empty() { c"" } else { c"other" };
    NAMES.iter().find(|known| known.to_bytes() == name.as_bytes()).copied().unwrap_or(other)
}

fn client_face(client: &Client) -> reclane_client_counters {
    let stats = client.stats();
    reclane_client_counters {
        struct_size: 0,
        client_id: client.client_id(),
        num_shards: client.num_shards(),
        lanes: stats.lanes,
        lanes_active: stats.active_lanes,
        slots: stats.slots,
        slots_held: stats.held_slots,
        reserved: 0,
        lane_bytes: stats.lane_bytes,
    }
}

fn server_face(stats: &ServerStats) -> reclane_server_counters {
    let handled = stats.handled;
    reclane_server_counters {
        struct_size: 0,
        reserved: 0,
        gets: handled.gets,
        puts: handled.puts,
        updates: handled.updates,
        init_tables: handled.init_tables,
        commands: handled.commands,
        get_rows: handled.get_rows,
        missing_rows: handled.missing_rows,
        refused: handled.refused,
        internal_errors: handled.internal_errors,
        lanes: stats.lanes,
        scan_rounds: stats.scan_rounds,
        empty_scan_rounds: stats.empty_scan_rounds,
        sleeps: stats.sleeps,
        lane_bytes: stats.lane_bytes,
        repeated: handled.repeated,
    }
}

/// Reports on one lane.
///
/// client  from reclane_client_open().
/// shard   the shard it leads to, 0..num_shards - 1.
/// lane    its number, 0..qps-per-client-per-shard - 1.
/// info    receives the report; struct_size must be set.
/// error   may be NULL; filled on failure only.
///
/// RECLANE_STATUS_INVALID_ARGUMENT  there is no such shard or lane
/// RECLANE_STATUS_STRUCT_SIZE       info or error has a size that cannot be
/// RECLANE_STATUS_NULL_POINTER, _BAD_HANDLE, _CLOSED, _FORKED, _POISONED, _BUG  as their names say
/// Threads: any.  Blocks: never.
#[unsafe(no_mangle)]
#[must_use]
pub unsafe extern "C" fn reclane_client_lane(
    client: *const reclane_client,
    shard: u32,
    lane: u32,
    info: *mut reclane_lane_info,
    error: *mut reclane_error,
) -> Status {
    let body = |client: &Client| {
        // SAFETY: the caller vouches for `info`.
        unsafe { structs::check_report(info.cast_const()) }?;
        let face = lane_face(&client.lane(shard, lane)?);
        // SAFETY: checked above.
        unsafe { structs::write(info, &face) };
        Ok(Status::Ok)
    };
    // SAFETY: the caller vouches for the handle and `error`.
    unsafe { guard::with(client, error, body) }
}

/// Reports what a client has.
///
/// client  from reclane_client_open().
/// stats   receives the report; struct_size must be set.
/// error   may be NULL; filled on failure only.
///
/// RECLANE_STATUS_STRUCT_SIZE  stats or error has a size that cannot be
/// RECLANE_STATUS_NULL_POINTER, _BAD_HANDLE, _CLOSED, _FORKED, _POISONED, _BUG  as their names say
/// Threads: any.  Blocks: never.
#[unsafe(no_mangle)]
#[must_use]
pub unsafe extern "C" fn reclane_client_stats(
    client: *const reclane_client,
    stats: *mut reclane_client_counters,
    error: *mut reclane_error,
) -> Status {
    let body = |client: &Client| {
        // SAFETY: the caller vouches for `stats`.
        unsafe { structs::check_report(stats.cast_const()) }?;
        // SAFETY: checked above.
        unsafe { structs::write(stats, &client_face(client)) };
        Ok(Status::Ok)
    };
    // SAFETY: the caller vouches for the handle and `error`.
    unsafe { guard::with(client, error, body) }
}

/// Reports what a server has done and has.
///
/// server  from reclane_server_open().
/// stats   receives the report; struct_size must be set.
/// error   may be NULL; filled on failure only.
///
/// RECLANE_STATUS_STRUCT_SIZE  stats or error has a size that cannot be
/// RECLANE_STATUS_NULL_POINTER, _BAD_HANDLE, _CLOSED, _FORKED, _POISONED, _BUG  as their names say
/// Threads: any.  Blocks: never.
#[unsafe(no_mangle)]
#[must_use]
pub unsafe extern "C" fn reclane_server_stats(
    server: *const reclane_server,
    stats: *mut reclane_server_counters,
    error: *mut reclane_error,
) -> Status {
    let body = |server: &Server| {
        // SAFETY: the caller vouches for `stats`.
        unsafe { structs::check_report(stats.cast_const()) }?;
        // SAFETY: checked above.
        unsafe { structs::write(stats, &server_face(&server.stats())) };
        Ok(Status::Ok)
    };
    // SAFETY: the caller vouches for the handle and `error`.
    unsafe { guard::with(server, error, body) }
}
