//! The contract's suite on a network without trouble and on two that make all the trouble the contract allows.

mod rewind;

use super::{Net, Policy, Sim};
use crate::fabric::conformance::conformance_suite;
use crate::sync::{Arc, OnceLock};

fn open(net: &'static OnceLock<Arc<Net>>, policy: fn() -> Policy) -> Sim {
    Sim::open(net.get_or_init(|| Net::new(7, policy(), true)))
}

mod calm {
    use super::*;

    fn open() -> Sim {
        static NET: OnceLock<Arc<Net>> = OnceLock::new();
        super::open(&NET, Policy::calm)
    }
    conformance_suite!(open);
}

mod rough_and_ordered {
    use super::*;

    fn open() -> Sim {
        static NET: OnceLock<Arc<Net>> = OnceLock::new();
        super::open(&NET, || Policy { retries: 40, ..Policy::rough(true) })
    }
    conformance_suite!(open);
}

mod rough {
    use super::*;

    fn open() -> Sim {
        static NET: OnceLock<Arc<Net>> = OnceLock::new();
        super::open(&NET, || Policy { retries: 40, ..Policy::rough(false) })
    }
    conformance_suite!(open);
}
