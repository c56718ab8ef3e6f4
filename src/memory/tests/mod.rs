//! The room over fabrics: `shm`, and `sim` with and without trouble.

// Numbers of these tests are small.
#![allow(clippy::cast_possible_truncation)]

mod bed;
mod evidence;
mod suite;

mod on_shm {
    use super::bed::{Bed, by_itself};
    use crate::fabric::shm::{Shm, ShmOptions};

    fn bed() -> Bed<Shm> {
        let open = || Shm::open(ShmOptions::default()).expect("shm");
        Bed::new(open(), open(), by_itself)
    }
    super::suite::suite!(bed());
}

mod on_sim {
    use super::bed::{Bed, by_itself};
    use crate::fabric::sim::{Net, Policy, Sim};

    fn bed() -> Bed<Sim> {
        let net = Net::new(11, Policy::calm(), true);
        Bed::new(Sim::open(&net), Sim::open(&net), by_itself)
    }
    super::suite::suite!(bed());
}

mod on_rough_sim {
    use super::bed::{Bed, by_itself};
    use crate::fabric::sim::{Net, Policy, Sim};

    fn bed() -> Bed<Sim> {
        let net = Net::new(12, Policy { retries: 40, ..Policy::rough(true) }, true);
        Bed::new(Sim::open(&net), Sim::open(&net), by_itself)
    }
    super::suite::suite!(bed());
}
