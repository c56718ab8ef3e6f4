//! The contract on real devices, and what only they have.
//!
//! `RECLANE_TEST_DEVICES` names them, with commas between; with two, most connections go from one to the other.
//! `RECLANE_TEST_ON` has options for all of them, as "rdma-mode=ib".

use super::{Verbs, VerbsOptions};
use crate::fabric::conformance::conformance_suite;
use crate::options::{DataInOrder, Options, Side};
use crate::sync::{AtomicUsize, Ordering};

fn devices() -> Vec<String> {
    let names = std::env::var("RECLANE_TEST_DEVICES").expect("RECLANE_TEST_DEVICES names the devices to test on");
    names.split(',').map(str::to_owned).collect()
}

/// Options of one device: failures are noticed soon, and the order of bytes is taken for granted, as Soft-RoCE copies
/// packets in order.
fn options(device: &str) -> VerbsOptions {
    let mut given = Options::new();
    for (name, value) in
        std::env::var("RECLANE_TEST_ON").unwrap_or_default().split_whitespace().filter_map(|pair| pair.split_once('='))
    {
        given.set(name, value).expect("a valid option");
    }
    let settings = given.settings(Side::Both).expect("valid options");
    VerbsOptions {
        device: device.to_owned(),
        ack_timeout: 16,
        retry_cnt: 4,
        rnr_retry: 2,
        data_in_order: DataInOrder::Yes,
        ..VerbsOptions::from_settings(&settings)
    }
}

/// Opens the devices in turn.
fn open() -> Verbs {
    static NEXT: AtomicUsize = AtomicUsize::new(0);
    let all = devices();
    let device = &all[NEXT.fetch_add(1, Ordering::Relaxed) % all.len()];
    Verbs::open(&options(device)).expect("verbs opens")
}

mod contract {
    use super::{conformance_suite, open};
    conformance_suite!(open);
}

mod alone;
mod faults;
mod pinned;
