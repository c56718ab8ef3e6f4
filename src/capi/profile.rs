//! Profiles: totals of a client or a shard, as structs.

use super::client::reclane_client;
use super::error::reclane_error;
use super::guard;
use super::server::reclane_server;
use super::structs::{self, Versioned};
use crate::engine::{Client, Server, Totals};
use crate::error::{Error, Result, Status};
use crate::observe::profile;

/// Totals of one client to one shard: what the lines component=rdma_rc_client_profile are made of.
/// Set struct_size = sizeof(reclane_client_profile_counters) before the call.
///
/// Times are those of timed requests, times the number of requests that one of them stands for (metrics-sample-every);
/// divided by the timed_ count beside them they are averages. All are 0 while requests are not counted.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct reclane_client_profile_counters {
    /// sizeof(reclane_client_profile_counters), set by the caller.
    pub struct_size: u32,
    /// The shard.
    pub shard: u32,
    /// Requests sent.
    pub submit_count: u64,
    /// Requests whose answer was taken home.
    pub wait_count: u64,
    /// Slots given back.
    pub revoke_count: u64,
    /// Slots taken.
    pub acquire_qp_count: u64,
    /// Attempts that found every slot held.
    pub acquire_qp_failures: u64,
    /// Time of submitting.
    pub submit_request_ns: u64,
    /// Time from there until the answer was seen.
    pub wait_status_ns: u64,
    /// Time of taking answers home.
    pub copy_response_ns: u64,
    /// Bytes of rows taken home.
    pub copied_bytes: u64,
    /// Time of giving slots back.
    pub revoke_resource_ns: u64,
    /// Requests that the three times before are of.
    pub timed_requests: u64,
    /// Revokes that their time is of.
    pub timed_revokes: u64,
    /// Most requests under way that a timed request found.
    pub pending_rpc_peak: u64,
    /// Requests under way, added up over the looks.
    pub pending_rpc_sum: u64,
    /// Timed requests that looked.
    pub pending_rpc_looks: u64,
    /// Requests under way now.
    pub pending_rpc_last: u64,
}

/// Totals of one shard: what the lines component=rdma_rc_server_profile are made of.
/// Set struct_size = sizeof(reclane_server_profile_counters) before the call.
///
/// Times are those of timed requests, times the number of requests that one of them stands for (metrics-sample-every);
/// divided by the timed_ count beside them they are averages. All are 0 while requests are not counted.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct reclane_server_profile_counters {
    /// sizeof(reclane_server_profile_counters), set by the caller.
    pub struct_size: u32,
    /// The shard.
    pub shard: u32,
    /// Poll threads.
    pub threads: u64,
    /// Rounds over slots.
    pub scan_rounds: u64,
    /// Slots looked at, worked out from the number of slots in use.
    pub scanned_slots: u64,
    /// Requests found.
    pub ready_slots: u64,
    /// Looks that found none.
    pub not_ready_slots: u64,
    /// 0: a slot without a sequence is never ready.
    pub zero_seq_ready: u64,
    /// Requests that came again and were answered from memory.
    pub duplicate_seq_ready: u64,
    /// Requests that came again while they were being executed.
    pub inflight_seq_ready: u64,
    /// Rounds that found nothing.
    pub empty_scan_rounds: u64,
    /// Rounds that found something.
    pub ready_rounds: u64,
    /// Most requests that a timed round found.
    pub max_ready_per_round: u64,
    /// GETs executed.
    pub handled_get: u64,
    /// PUTs executed.
    pub handled_put: u64,
    /// UPDATEs of both kinds executed.
    pub handled_update: u64,
    /// INIT_TABLEs executed.
    pub handled_init: u64,
    /// Requests refused as malformed, those for other shards included.
    pub invalid_descriptor: u64,
    /// Requests for other shards.
    pub wrong_shard: u64,
    /// Time of executing GETs.
    pub handle_get_ns: u64,
    /// GETs that this and the next four times are of.
    pub timed_gets: u64,
    /// The store's part of it.
    pub get_batch_get_ns: u64,
    /// Finding rows; 0 for a store behind callbacks.
    pub get_index_lookup_ns: u64,
    /// Zeros for missing rows; 0 for a store behind callbacks.
    pub get_zero_fill_ns: u64,
    /// Copying rows; for a store behind callbacks all of its part.
    pub get_row_copy_ns: u64,
    /// Keys of GETs.
    pub get_rows: u64,
    /// Bytes of rows answered.
    pub get_value_bytes: u64,
    /// Keys without a row.
    pub get_missing_rows: u64,
    /// GETs whose rows were copied once, from the table to their place.
    pub get_direct_sg: u64,
    /// GETs whose rows were copied twice.
    pub get_direct_sg_fallback: u64,
    /// Time of executing the former.
    pub get_direct_sg_ns: u64,
    /// GETs that this time is of.
    pub timed_direct: u64,
    /// Writes for them.
    pub get_direct_sg_wr: u64,
    /// Time of executing PUTs.
    pub handle_put_ns: u64,
    /// PUTs that this time is of.
    pub timed_puts: u64,
    /// Time of executing UPDATEs.
    pub handle_update_ns: u64,
    /// UPDATEs that this time is of.
    pub timed_updates: u64,
    /// Time of executing INIT_TABLEs.
    pub handle_init_ns: u64,
    /// INIT_TABLEs that this time is of.
    pub timed_inits: u64,
    /// Time of answering.
    pub complete_response_ns: u64,
    /// Answers that this time is of.
    pub timed_answers: u64,
    /// Time of poll threads that were not asleep.
    pub poll_loop_ns: u64,
    /// Poll threads that executed a GET.
    pub poller_active: u64,
    /// GETs that poll threads executed.
    pub poller_total_get: u64,
    /// GETs of the poll thread with the fewest.
    pub poller_min_get: u64,
    /// Its number.
    pub poller_min_get_thread: u64,
    /// GETs of the poll thread with the most.
    pub poller_max_get: u64,
    /// Its number.
    pub poller_max_get_thread: u64,
}

/// Totals of writes and answers of one end: what the lines component=rdma_rc_transport_profile are made of.
/// Set struct_size = sizeof(reclane_transport_profile_counters) before the call.
///
/// Times are those of timed requests, times the number of requests that one of them stands for (metrics-sample-every);
/// divided by the timed_ count beside them they are averages. All are 0 while requests are not counted.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct reclane_transport_profile_counters {
    /// sizeof(reclane_transport_profile_counters), set by the caller.
    pub struct_size: u32,
    /// The shard.
    pub shard: u32,
    /// 1 for a shard's end, 2 for a client's.
    pub role: u32,
    /// 0.
    pub reserved: u32,
    /// Requests sent.
    pub submit_count: u64,
    /// Requests with keys or rows beside their cache line.
    pub submit_descriptor_writes: u64,
    /// Requests committed.
    pub submit_commit_writes: u64,
    /// Time of submitting.
    pub submit_request_ns: u64,
    /// Requests that this time is of.
    pub timed_submits: u64,
    /// 0: no submit waits for an earlier one.
    pub drain_submit_count: u64,
    /// 0.
    pub drain_pending_submit_ns: u64,
    /// Answers.
    pub complete_count: u64,
    /// Answers with rows beside their cache line.
    pub response_payload_writes: u64,
    /// 0: no scattered writes.
    pub response_payload_sg_writes: u64,
    /// 0.
    pub response_payload_sg_wrs: u64,
    /// Answers committed.
    pub response_status_writes: u64,
    /// Bytes of rows in answers.
    pub response_payload_bytes: u64,
    /// Time of answering.
    pub complete_response_ns: u64,
    /// Answers that this time is of.
    pub timed_completes: u64,
    /// 0: no answer waits for an earlier one.
    pub drain_response_count: u64,
    /// 0.
    pub drain_pending_response_ns: u64,
}

// SAFETY: repr(C), `struct_size` first, integers only.
unsafe impl Versioned for reclane_client_profile_counters {
    const NAME: &'static str = "reclane_client_profile_counters";
    const FIRST_SIZE: usize = 136;
}
const _: () = assert!(size_of::<reclane_client_profile_counters>() == 136);

// SAFETY: repr(C), `struct_size` first, integers only.
unsafe impl Versioned for reclane_server_profile_counters {
    const NAME: &'static str = "reclane_server_profile_counters";
    const FIRST_SIZE: usize = 376;
}
const _: () = assert!(size_of::<reclane_server_profile_counters>() == 376);

// SAFETY: repr(C), `struct_size` first, integers only.
unsafe impl Versioned for reclane_transport_profile_counters {
    const NAME: &'static str = "reclane_transport_profile_counters";
    const FIRST_SIZE: usize = 152;
}
const _: () = assert!(size_of::<reclane_transport_profile_counters>() == 152);

fn client_face(shard: u32, totals: &Totals) -> reclane_client_profile_counters {
    let at = |place: usize| totals.counters.get(place).copied().unwrap_or(0);
    reclane_client_profile_counters {
        struct_size: 0,
        shard,
        submit_count: at(profile::client::submit_count),
        wait_count: at(profile::client::wait_count),
        revoke_count: at(profile::client::revoke_count),
        acquire_qp_count: at(profile::client::acquire_qp_count),
        acquire_qp_failures: at(profile::client::acquire_qp_failures),
        submit_request_ns: at(profile::client::submit_request_ns),
        wait_status_ns: at(profile::client::wait_status_ns),
        copy_response_ns: at(profile::client::copy_response_ns),
        copied_bytes: at(profile::client::copied_bytes),
        revoke_resource_ns: at(profile::client::revoke_resource_ns),
        timed_requests: at(profile::client::timed_requests),
        timed_revokes: at(profile::client::timed_revokes),
        pending_rpc_peak: at(profile::client::pending_rpc_peak),
        pending_rpc_sum: at(profile::client::pending_rpc_sum),
        pending_rpc_looks: at(profile::client::pending_rpc_looks),
        pending_rpc_last: at(profile::client::pending_rpc_last),
    }
}

fn server_face(shard: u32, totals: &Totals) -> reclane_server_profile_counters {
    let at = |place: usize| totals.counters.get(place).copied().unwrap_or(0);
    reclane_server_profile_counters {
        struct_size: 0,
        shard,
        threads: at(profile::server::threads),
        scan_rounds: at(profile::server::scan_rounds),
        scanned_slots: at(profile::server::scanned_slots),
        ready_slots: at(profile::server::ready_slots),
        not_ready_slots: at(profile::server::not_ready_slots),
        zero_seq_ready: at(profile::server::zero_seq_ready),
        duplicate_seq_ready: at(profile::server::duplicate_seq_ready),
        inflight_seq_ready: at(profile::server::inflight_seq_ready),
        empty_scan_rounds: at(profile::server::empty_scan_rounds),
        ready_rounds: at(profile::server::ready_rounds),
        max_ready_per_round: at(profile::server::max_ready_per_round),
        handled_get: at(profile::server::handled_get),
        handled_put: at(profile::server::handled_put),
        handled_update: at(profile::server::handled_update),
        handled_init: at(profile::server::handled_init),
        invalid_descriptor: at(profile::server::invalid_descriptor),
        wrong_shard: at(profile::server::wrong_shard),
        handle_get_ns: at(profile::server::handle_get_ns),
        timed_gets: at(profile::server::timed_gets),
        get_batch_get_ns: at(profile::server::get_batch_get_ns),
        get_index_lookup_ns: at(profile::server::get_index_lookup_ns),
        get_zero_fill_ns: at(profile::server::get_zero_fill_ns),
        get_row_copy_ns: at(profile::server::get_row_copy_ns),
        get_rows: at(profile::server::get_rows),
        get_value_bytes: at(profile::server::get_value_bytes),
        get_missing_rows: at(profile::server::get_missing_rows),
        get_direct_sg: at(profile::server::get_direct_sg),
        get_direct_sg_fallback: at(profile::server::get_direct_sg_fallback),
        get_direct_sg_ns: at(profile::server::get_direct_sg_ns),
        timed_direct: at(profile::server::timed_direct),
        get_direct_sg_wr: at(profile::server::get_direct_sg_wr),
        handle_put_ns: at(profile::server::handle_put_ns),
        timed_puts: at(profile::server::timed_puts),
        handle_update_ns: at(profile::server::handle_update_ns),
        timed_updates: at(profile::server::timed_updates),
        handle_init_ns: at(profile::server::handle_init_ns),
        timed_inits: at(profile::server::timed_inits),
        complete_response_ns: at(profile::server::complete_response_ns),
        timed_answers: at(profile::server::timed_answers),
        poll_loop_ns: at(profile::server::poll_loop_ns),
        poller_active: at(profile::server::poller_active),
        poller_total_get: at(profile::server::poller_total_get),
        poller_min_get: at(profile::server::poller_min_get),
        poller_min_get_thread: at(profile::server::poller_min_get_thread),
        poller_max_get: at(profile::server::poller_max_get),
        poller_max_get_thread: at(profile::server::poller_max_get_thread),
    }
}

fn transport_face(shard: u32, role: u32, totals: &Totals) -> reclane_transport_profile_counters {
    let at = |place: usize| totals.counters.get(place).copied().unwrap_or(0);
    reclane_transport_profile_counters {
        struct_size: 0,
        shard,
        role,
        reserved: 0,
        submit_count: at(profile::transport::submit_count),
        submit_descriptor_writes: at(profile::transport::submit_descriptor_writes),
        submit_commit_writes: at(profile::transport::submit_commit_writes),
        submit_request_ns: at(profile::transport::submit_request_ns),
        timed_submits: at(profile::transport::timed_submits),
        drain_submit_count: at(profile::transport::drain_submit_count),
        drain_pending_submit_ns: at(profile::transport::drain_pending_submit_ns),
        complete_count: at(profile::transport::complete_count),
        response_payload_writes: at(profile::transport::response_payload_writes),
        response_payload_sg_writes: at(profile::transport::response_payload_sg_writes),
        response_payload_sg_wrs: at(profile::transport::response_payload_sg_wrs),
        response_status_writes: at(profile::transport::response_status_writes),
        response_payload_bytes: at(profile::transport::response_payload_bytes),
        complete_response_ns: at(profile::transport::complete_response_ns),
        timed_completes: at(profile::transport::timed_completes),
        drain_response_count: at(profile::transport::drain_response_count),
        drain_pending_response_ns: at(profile::transport::drain_pending_response_ns),
    }
}

/// The totals of one component that a shard, or a client to one shard, has.
fn find(all: &[Totals], component: &profile::Component, nth: u32) -> Result<usize> {
    let mut places = (0..all.len()).filter(|place| all[*place].component.name == component.name);
    places.nth(nth as usize).ok_or_else(|| {
        Error::new(Status::InvalidArgument, format!("there is no shard {nth}, or it has no {}", component.name))
    })
}

/// Writes a report after its checks.
///
/// # Safety
/// `to` is NULL or points to as many writable bytes as its `struct_size` says.
unsafe fn report<T: Versioned>(to: *mut T, make: impl FnOnce() -> Result<T>) -> Result<Status> {
    // SAFETY: the caller's word.
    unsafe { structs::check_report(to.cast_const()) }?;
    let face = make()?;
    // SAFETY: checked above.
    unsafe { structs::write(to, &face) };
    Ok(Status::Ok)
}

/// Reports what a client has done at one shard.
///
/// client  from reclane_client_open().
/// shard   the shard that its lanes lead to, 0..num_shards - 1.
/// totals  receives the report; struct_size must be set.
/// error   may be NULL; filled on failure only.
///
/// RECLANE_STATUS_INVALID_ARGUMENT  there is no such shard
/// RECLANE_STATUS_STRUCT_SIZE  totals or error has a size that cannot be
/// RECLANE_STATUS_NULL_POINTER, _BAD_HANDLE, _CLOSED, _FORKED, _POISONED, _BUG  as their names say
/// Threads: any.  Blocks: never.
#[unsafe(no_mangle)]
#[must_use]
pub unsafe extern "C" fn reclane_client_profile(
    client: *const reclane_client,
    shard: u32,
    totals: *mut reclane_client_profile_counters,
    error: *mut reclane_error,
) -> Status {
    let body = |client: &Client| {
        let make = || {
            let all = client.profile_totals();
            find(&all, &profile::client::COMPONENT, shard).map(|at| client_face(shard, &all[at]))
        };
        // SAFETY: the caller vouches for `totals`.
        unsafe { report(totals, make) }
    };
    // SAFETY: the caller vouches for the handle and `error`.
    unsafe { guard::with(client, error, body) }
}

/// Reports a client's end of the transport to one shard.
///
/// client  from reclane_client_open().
/// shard   the shard that its lanes lead to, 0..num_shards - 1.
/// totals  receives the report; struct_size must be set.
/// error   may be NULL; filled on failure only.
///
/// RECLANE_STATUS_INVALID_ARGUMENT  there is no such shard
/// RECLANE_STATUS_STRUCT_SIZE  totals or error has a size that cannot be
/// RECLANE_STATUS_NULL_POINTER, _BAD_HANDLE, _CLOSED, _FORKED, _POISONED, _BUG  as their names say
/// Threads: any.  Blocks: never.
#[unsafe(no_mangle)]
#[must_use]
pub unsafe extern "C" fn reclane_client_transport_profile(
    client: *const reclane_client,
    shard: u32,
    totals: *mut reclane_transport_profile_counters,
    error: *mut reclane_error,
) -> Status {
    let body = |client: &Client| {
        let make = || {
            let all = client.profile_totals();
            find(&all, &profile::transport::COMPONENT, shard).map(|at| transport_face(shard, 2, &all[at]))
        };
        // SAFETY: the caller vouches for `totals`.
        unsafe { report(totals, make) }
    };
    // SAFETY: the caller vouches for the handle and `error`.
    unsafe { guard::with(client, error, body) }
}

/// Reports what a shard has done.
///
/// server  from reclane_server_open().
/// totals  receives the report; struct_size must be set.
/// error   may be NULL; filled on failure only.
///
/// RECLANE_STATUS_STRUCT_SIZE  totals or error has a size that cannot be
/// RECLANE_STATUS_NULL_POINTER, _BAD_HANDLE, _CLOSED, _FORKED, _POISONED, _BUG  as their names say
/// Threads: any.  Blocks: never.
#[unsafe(no_mangle)]
#[must_use]
pub unsafe extern "C" fn reclane_server_profile(
    server: *const reclane_server,
    totals: *mut reclane_server_profile_counters,
    error: *mut reclane_error,
) -> Status {
    let body = |server: &Server| {
        let make = || {
            let all = server.profile_totals();
            find(&all, &profile::server::COMPONENT, 0).map(|at| server_face(shard_of(&all[at]), &all[at]))
        };
        // SAFETY: the caller vouches for `totals`.
        unsafe { report(totals, make) }
    };
    // SAFETY: the caller vouches for the handle and `error`.
    unsafe { guard::with(server, error, body) }
}

/// Reports a shard's end of the transport.
///
/// server  from reclane_server_open().
/// totals  receives the report; struct_size must be set.
/// error   may be NULL; filled on failure only.
///
/// RECLANE_STATUS_STRUCT_SIZE  totals or error has a size that cannot be
/// RECLANE_STATUS_NULL_POINTER, _BAD_HANDLE, _CLOSED, _FORKED, _POISONED, _BUG  as their names say
/// Threads: any.  Blocks: never.
#[unsafe(no_mangle)]
#[must_use]
pub unsafe extern "C" fn reclane_server_transport_profile(
    server: *const reclane_server,
    totals: *mut reclane_transport_profile_counters,
    error: *mut reclane_error,
) -> Status {
    let body = |server: &Server| {
        let make = || {
            let all = server.profile_totals();
            find(&all, &profile::transport::COMPONENT, 0).map(|at| transport_face(shard_of(&all[at]), 1, &all[at]))
        };
        // SAFETY: the caller vouches for `totals`.
        unsafe { report(totals, make) }
    };
    // SAFETY: the caller vouches for the handle and `error`.
    unsafe { guard::with(server, error, body) }
}

/// The shard that totals are of.
fn shard_of(totals: &Totals) -> u32 {
    let shard = totals.head.iter().find(|(name, _)| *name == "shard");
    shard.and_then(|(_, shard)| shard.parse().ok()).unwrap_or(0)
}
