//! Servers and clients over real RDMA devices, as a host program would use them.
//!
//! `RECLANE_TEST_DEVICES` names the devices, with commas between; servers take the first one and clients the last, so
//! with two of them every byte goes over the wire between them.

mod deaths;
mod in_place;
mod memory;
mod processes;
mod profiles;
mod rounds;
mod support;
