//! The contract on this provider, and what only this provider has.

mod hostile;
mod process;
mod shared;

use super::{Shm, ShmOptions};
use crate::fabric::conformance::conformance_suite;

fn open() -> Shm {
    Shm::open(ShmOptions::default()).expect("shm opens")
}

mod contract {
    use super::{conformance_suite, open};
    conformance_suite!(open);
}
