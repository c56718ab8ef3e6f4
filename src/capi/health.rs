//! Health: what the control plane knows of a shard.

use super::client::reclane_client;
use super::error::reclane_error;
use super::guard;
use super::structs::{self, Versioned};
use crate::engine::{Client, Health, HealthReport};
use crate::error::Status;

/// Health of a shard: values of reclane_health_info.health. Treat an unknown value as RECLANE_HEALTH_UNKNOWN.
#[repr(u32)]
#[derive(Clone, Copy, Debug)]
pub enum reclane_health {
    /// Nothing is known: the control plane does not answer, or has never heard of the shard. No verdict.
    Unknown = 0,
    /// It was heard of lately.
    Serving = 1,
    /// Not for rdma-health-stale-ms.
    Suspect = 2,
    /// Not for rdma-health-dead-ms. A shard that is heard of again serves again.
    Dead = 3,
}

const _: () = assert!(
    reclane_health::Serving as u32 == Health::Serving as u32
        && reclane_health::Suspect as u32 == Health::Suspect as u32
        && reclane_health::Dead as u32 == Health::Dead as u32
);

/// What the control plane knows of a shard. Set struct_size = sizeof(reclane_health_info) before the call.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct reclane_health_info {
    /// sizeof(reclane_health_info), set by the caller.
    pub struct_size: u32,
    /// The shard.
    pub shard: u32,
    /// 1 when anything is known, else 0.
    pub known: u32,
    /// A reclane_health.
    pub health: u32,
    /// Milliseconds since the shard was last heard of; 0 when nothing is known.
    pub idle_ms: u64,
}

// SAFETY: repr(C), `struct_size` first, integers only.
unsafe impl Versioned for reclane_health_info {
    const NAME: &'static str = "reclane_health_info";
    const FIRST_SIZE: usize = 24;
}
const _: () = assert!(size_of::<reclane_health_info>() == 24);

fn face(shard: u32, report: &HealthReport) -> reclane_health_info {
    let health = if report.known { report.health as u32 } else { reclane_health::Unknown as u32 };
    reclane_health_info { struct_size: 0, shard, known: u32::from(report.known), health, idle_ms: report.idle_ms }
}

/// Asks the control plane about a shard. That it does not answer is no error and no verdict: known is 0 then.
///
/// client  from reclane_client_open().
/// shard   0..num_shards - 1.
/// info    receives the report; struct_size must be set.
/// error   may be NULL; filled on failure only.
///
/// RECLANE_STATUS_INVALID_ARGUMENT  there is no such shard
/// RECLANE_STATUS_STRUCT_SIZE       info or error has a size that cannot be
/// RECLANE_STATUS_NULL_POINTER, _BAD_HANDLE, _CLOSED, _FORKED, _POISONED, _BUG  as their names say
/// Threads: any.  Blocks: up to the option rdma-health-probe-timeout-ms.
#[unsafe(no_mangle)]
#[must_use]
pub unsafe extern "C" fn reclane_client_health(
    client: *const reclane_client,
    shard: u32,
    info: *mut reclane_health_info,
    error: *mut reclane_error,
) -> Status {
    let body = |client: &Client| {
        // SAFETY: the caller vouches for `info`.
        unsafe { structs::check_report(info.cast_const()) }?;
        let face = face(shard, &client.health(shard)?);
        // SAFETY: checked above.
        unsafe { structs::write(info, &face) };
        Ok(Status::Ok)
    };
    // SAFETY: the caller vouches for the handle and `error`.
    unsafe { guard::with(client, error, body) }
}
