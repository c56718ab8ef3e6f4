//! The simulated fabric: whole deployments in one thread, on a clock of their own, from one seed.
//!
//! It models reliable connections as devices do them: packets with 24-bit numbers that are acknowledged, sent again,
//! refused, and dropped when they are old; completions only for what asked for one; memory that shows what was written
//! late and in pieces; numbers and keys that come back. [`Policy`] says how bad the network is, [`Net`] lets time pass
//! and breaks things: processes that die, ways that are blocked, connections that the device gives up.
//!
//! Nothing here reads the clock or starts threads. There are no windows, so lanes take the posted path.

// Numbers of a simulated world are far below the bounds of their types.
#![allow(clippy::cast_possible_truncation)]

mod cq;
mod memory;
mod mutant;
mod net;
mod packet;
mod policy;
mod qp;
mod requester;
mod responder;
mod rng;
#[cfg(test)]
mod tests;
mod visible;
mod waker;

pub use cq::SimCq;
pub use memory::SimRegion;
pub use mutant::{Mutant, mutated, set_mutant};
pub use net::{Net, NetCounts};
pub use policy::Policy;
pub use qp::SimQp;
pub use rng::{Rng, mix};
pub use waker::SimWaker;

use super::{Access, Capabilities, Fabric, QpConfig};
use crate::error::Result;
use crate::sync::Arc;

/// The fabric as one simulated process has it.
#[derive(Debug)]
pub struct Sim {
    net: Arc<Net>,
    host: u32,
}

impl Sim {
    /// A new process on the network.
    #[must_use]
    pub fn open(net: &Arc<Net>) -> Sim {
        let host = net.lock().new_host();
        Sim { net: Arc::clone(net), host }
    }

    /// By which [`Net`] knows this process.
    #[must_use]
    pub fn host(&self) -> u32 {
        self.host
    }
}

impl Fabric for Sim {
    type Region = SimRegion;
    type Cq = SimCq;
    type Qp = SimQp;
    type Waker = SimWaker;

    const NAME: &'static str = "sim";
    const SIMULATED: bool = true;

    fn capabilities(&self) -> Capabilities {
        let core = self.net.lock();
        Capabilities {
            ordered_within_write: core.policy.ordered_within_write,
            ordered_writes: core.policy.ordered_writes,
            load_store: false,
            max_inline: 0,
            max_sge: qp::MAX_SGE,
        }
    }

    fn allocate_at(&self, bytes: usize, access: Access, iova: Option<u64>) -> Result<SimRegion> {
        SimRegion::new(&self.net, self.host, bytes, access, iova)
    }

    fn create_cq(&self, depth: u32) -> Result<Arc<SimCq>> {
        let id = self.net.lock().new_cq(depth);
        Ok(Arc::new(SimCq { net: Arc::clone(&self.net), id }))
    }

    fn create_waker(&self) -> Result<Arc<SimWaker>> {
        Ok(Arc::new(SimWaker::default()))
    }

    fn create_qp(
        &self,
        config: &QpConfig,
        exposed: &[SimRegion],
        send_cq: &Arc<SimCq>,
        recv_cq: &Arc<SimCq>,
        waker: Option<&Arc<SimWaker>>,
    ) -> Result<SimQp> {
        SimQp::new(&self.net, self.host, config, exposed, (send_cq.id, recv_cq.id), waker)
    }
}
