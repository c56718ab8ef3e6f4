//! A buffer is reachable over every lane of its client, whichever of the two comes first.
//!
//! Who makes a buffer puts it on the client's list, and then exposes it to the lanes that are in use. Who makes a lane
//! exposes what is on the list, and takes the lane into use while nobody can change the list and nothing is missing. So
//! one of the two sees the other; and the same holds for a buffer that is given back, which leaves the list first.

use crate::error::Result;
use crate::fabric::{Fabric, Qp, Region};
use crate::rpc::{ClientLane, Connection};
use crate::sync::{Mutex, lock};
use crate::time::Tick;

/// The buffers of one client.
pub(crate) type Buffers<F> = Mutex<Vec<<F as Fabric>::Region>>;

/// What a connection that is not in use yet exposes.
#[derive(Clone, Debug)]
pub(super) struct Reach<F: Fabric>(Vec<F::Region>);

fn has<R: Region>(all: &[R], one: &R) -> bool {
    all.iter().any(|known| known.address() == one.address())
}

impl<F: Fabric> Reach<F> {
    /// A queue pair that was made with these.
    pub(super) fn of(made_with: Vec<F::Region>) -> Reach<F> {
        Reach(made_with)
    }

    /// Exposes what has come since, and takes back what has gone.
    pub(super) fn follow(&mut self, qp: &F::Qp, buffers: &Buffers<F>, deadline: Tick) -> Result<()> {
        let wanted = lock(buffers).clone();
        for come in &wanted {
            if !has(&self.0, come) {
                qp.expose(come, deadline.remaining())?;
                self.0.push(come.clone());
            }
        }
        self.0.retain(|known| {
            let stays = has(&wanted, known);
            if !stays {
                qp.unexpose(known);
            }
            stays
        });
        Ok(())
    }

    /// Takes the connection into use with all buffers there are in that moment. False: the attempt was given up meanwhile.
    pub(super) fn take_into_use(
        mut self,
        lane: &ClientLane<F>,
        connection: Connection<F>,
        buffers: &Buffers<F>,
        deadline: Tick,
    ) -> Result<bool> {
        loop {
            self.follow(&connection.parts().qp, buffers, deadline)?;
            let wanted = lock(buffers);
            if wanted.len() == self.0.len() && wanted.iter().all(|one| has(&self.0, one)) {
                return Ok(lane.connected(connection));
            }
        }
    }
}
