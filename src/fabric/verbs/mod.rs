//! The real-RDMA provider. Its place is here; the provider itself is not part of this release.
//!
//! What stands is how it will reach the system: libibverbs is opened when it is first asked for and not when this library
//! is loaded, so a host without it runs every other fabric.

mod sys;

use crate::error::{Error, Result, Status};

/// How many RDMA devices this host shows.
///
/// # Errors
/// `FabricUnavailable` when libibverbs is not installed, when it lacks a function, or when the kernel has no RDMA.
pub fn device_count() -> Result<usize> {
    sys::library()?.device_count().map_err(|error| {
        let what = "libibverbs finds no RDMA in this kernel (load ib_uverbs and the driver of the device)";
        let mut refused = Error::os(what, &error);
        refused.status = Status::FabricUnavailable;
        refused
    })
}
