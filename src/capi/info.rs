//! Reports: what a lane, a client and a server are doing. Counters only grow, until the handle is closed.

use super::backend::{Client, ClientStats, LaneInfo, Server, ServerStats};
use super::client::reclane_client;
use super::error::reclane_error;
use super::guard;
use super::server::reclane_server;
use super::structs::{self, Versioned};
use crate::error::Status;

/// State of a lane: values of reclane_lane_info.state. Treat an unknown value as "some other".
#[repr(u32)]
#[derive(Clone, Copy, Debug)]
pub enum reclane_lane_state {
    /// It carries requests.
    Active = 0,
    /// It has failed and carries no new request.
    Dirty = 1,
    /// It is being connected again.
    Rebuilding = 2,
    /// It will not come back.
    Dead = 3,
}

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
    /// Counts its connections, from 1.
    pub generation: u32,
    /// Requests it can carry at a time.
    pub slots: u32,
    /// Requests it carries now.
    pub slots_in_use: u32,
    /// How a request is committed: 1 single, 2 crc, 3 imm.
    pub commit_scheme: u32,
}

/// Counters of a client. Set struct_size = sizeof(reclane_client_counters) before the call.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct reclane_client_counters {
    /// sizeof(reclane_client_counters), set by the caller.
    pub struct_size: u32,
    /// Number of this client in the deployment.
    pub client_id: u32,
    /// Shards of the deployment.
    pub num_shards: u32,
    /// Lanes to all shards together.
    pub lanes: u32,
    /// Lanes of these that carry requests.
    pub lanes_active: u32,
    /// 0.
    pub reserved: u32,
    /// Requests sent, as the fabric saw them: a batch that was split counts for each part.
    pub requests: u64,
    /// Requests that ended with an error.
    pub failures: u64,
    /// Keys in requests sent.
    pub keys: u64,
    /// Payload bytes sent.
    pub bytes_sent: u64,
    /// Payload bytes received.
    pub bytes_received: u64,
}

/// Counters of a server. Set struct_size = sizeof(reclane_server_counters) before the call.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct reclane_server_counters {
    /// sizeof(reclane_server_counters), set by the caller.
    pub struct_size: u32,
    /// Number of this shard.
    pub shard: u32,
    /// Clients that are connected.
    pub clients: u32,
    /// Lanes of these clients.
    pub lanes: u32,
    /// Requests answered.
    pub requests: u64,
    /// Requests of these answered with an error.
    pub failures: u64,
    /// Requests of these that were malformed.
    pub malformed: u64,
    /// Keys in requests answered.
    pub keys: u64,
    /// Payload bytes received.
    pub bytes_received: u64,
    /// Payload bytes sent.
    pub bytes_sent: u64,
}

// SAFETY: repr(C), `struct_size` first, integers only.
unsafe impl Versioned for reclane_lane_info {
    const NAME: &'static str = "reclane_lane_info";
    const FIRST_SIZE: usize = 32;
}
// SAFETY: repr(C), `struct_size` first, integers only.
unsafe impl Versioned for reclane_client_counters {
    const NAME: &'static str = "reclane_client_counters";
    const FIRST_SIZE: usize = 64;
}
// SAFETY: repr(C), `struct_size` first, integers only.
unsafe impl Versioned for reclane_server_counters {
    const NAME: &'static str = "reclane_server_counters";
    const FIRST_SIZE: usize = 64;
}
const _: () = assert!(
    size_of::<reclane_lane_info>() == 32
        && size_of::<reclane_client_counters>() == 64
        && size_of::<reclane_server_counters>() == 64
);

fn lane_face(shard: u32, lane: u32, info: &LaneInfo) -> reclane_lane_info {
    reclane_lane_info {
        struct_size: 0,
        shard,
        lane,
        state: info.state,
        generation: info.generation,
        slots: info.slots,
        slots_in_use: info.slots_in_use,
        commit_scheme: info.commit_scheme,
    }
}

fn client_face(client: &Client, _stats: &ClientStats) -> reclane_client_counters {
    reclane_client_counters {
        struct_size: 0,
        client_id: client.client_id(),
        num_shards: client.num_shards(),
        lanes: 0,
        lanes_active: 0,
        reserved: 0,
        requests: 0,
        failures: 0,
        keys: 0,
        bytes_sent: 0,
        bytes_received: 0,
    }
}

fn server_face(_stats: &ServerStats) -> reclane_server_counters {
    reclane_server_counters {
        struct_size: 0,
        shard: 0,
        clients: 0,
        lanes: 0,
        requests: 0,
        failures: 0,
        malformed: 0,
        keys: 0,
        bytes_received: 0,
        bytes_sent: 0,
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
        let face = lane_face(shard, lane, &client.lane(shard, lane)?);
        // SAFETY: checked above.
        unsafe { structs::write(info, &face) };
        Ok(Status::Ok)
    };
    // SAFETY: the caller vouches for the handle and `error`.
    unsafe { guard::with(client, error, body) }
}

/// Reports a client's counters.
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
        unsafe { structs::write(stats, &client_face(client, &client.stats())) };
        Ok(Status::Ok)
    };
    // SAFETY: the caller vouches for the handle and `error`.
    unsafe { guard::with(client, error, body) }
}

/// Reports a server's counters.
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
