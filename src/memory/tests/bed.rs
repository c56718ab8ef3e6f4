//! Two processes of a fabric: one posts, the other one owns regions.

use crate::fabric::conformance::pair::{PATIENCE, until};
use crate::fabric::{Access, Fabric, Qp, QpConfig, QpState, Region};
use crate::ids::{Epoch, Incarnation};
use crate::memory::{
    Dedupe, Gate, Home, Kind, Lane, Line, Look, Mailbox, Operation, PageOfPeer, SCRATCH_STRIDE, Stop, evidence,
};
use crate::sync::{AtomicU64, Mutex};

/// Operations that a lane of these tests remembers.
pub const PLACES: usize = 16;
pub const OWNER: Incarnation = Incarnation(77);
pub const ASKER: Incarnation = Incarnation(78);
/// The region that all tests use, and its length.
pub const REGION: u32 = 3;
pub const BYTES: usize = 8192;

/// Both, with the lane that is tested.
pub struct Bed<F: Fabric> {
    pub lane: Lane<F>,
    pub gate: Gate,
    pub near: F,
    pub far: F,
    pub home: Home<F>,
    pub region: F::Region,
    /// Memory of the posting side, for operations.
    pub local: F::Region,
    pub dedupe: Mutex<Dedupe>,
    guest: Option<(F::Qp, F::Region)>,
    pub mailbox: Option<Mailbox<F>>,
    generation: u32,
    /// Lets the fabric go on, where it does not by itself.
    pub pump: Box<dyn Fn() + Sync>,
}

/// What a lane is connected for.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum To {
    Regions,
    Cells,
}

impl<F: Fabric> Bed<F> {
    /// Not connected yet.
    pub fn new(near: F, far: F, pump: impl Fn() + Sync + 'static) -> Bed<F> {
        let home = Home::new(&far, OWNER, Epoch(1)).expect("a table");
        let region = home.open(&far, REGION, BYTES, Access::ALL).expect("a region");
        home.publish(REGION);
        let local = near.allocate(BYTES, Access::LOCAL).expect("memory");
        Bed {
            lane: Lane::new(1, PLACES),
            gate: Gate::default(),
            near,
            far,
            home,
            region,
            local,
            dedupe: Mutex::default(),
            guest: None,
            mailbox: None,
            generation: 0,
            pump: Box::new(pump),
        }
    }

    /// Connects anew, as ranks do: the owner ends the former connection, then reads its evidence.
    pub fn connect(&mut self, to: To) {
        self.generation += 1;
        let mut proved = 0;
        if let Some((qp, mark)) = self.guest.take() {
            qp.modify(QpState::Err).expect("ERR");
            proved = if to == To::Regions { evidence(&mark).expect("a mark") } else { 0 };
        }
        let config = QpConfig {
            max_send_wr: 2 * PLACES as u32 + 2,
            max_recv_wr: 1,
            max_send_sge: 0,
            generation: self.generation,
        };
        let far_cq = self.far.create_cq(16).expect("a queue");
        let cells = match to {
            To::Regions => self.far.allocate(4096, Access::ALL).expect("memory"),
            To::Cells => {
                let mailbox = Mailbox::new(&self.far, ASKER).expect("cells");
                let memory = mailbox.memory().clone();
                self.mailbox = Some(mailbox);
                memory
            }
        };
        let mut exposed = vec![cells.clone(), self.home.table().clone()];
        exposed.extend(self.home.memory());
        let theirs = self.far.create_qp(&config, &exposed, &far_cq, &far_cq, None).expect("a queue pair");
        let cq = self.near.create_cq(64).expect("a queue");
        let qp = self.near.create_qp(&config, &[], &cq, &cq, None).expect("a queue pair");
        theirs.connect(&qp.address(), PATIENCE).expect("connected");
        qp.connect(&theirs.address(), PATIENCE).expect("connected");
        let page = PageOfPeer::find(&qp, self.home.table().address(), OWNER, Epoch(1));
        assert_eq!(page.is_some(), self.near.capabilities().load_store);
        let scratch = self.near.allocate(PLACES * SCRATCH_STRIDE, Access::LOCAL).expect("memory");
        let line = Line {
            qp,
            cq,
            scratch,
            generation: self.generation,
            cells: cells.address(),
            page,
            marks: to == To::Regions,
            synchronous: self.near.capabilities().load_store,
        };
        self.lane.told(&self.home.entries());
        self.lane.attach(line, proved);
        self.guest = Some((theirs, cells));
    }

    /// Lets the owner's side reach what it has opened since.
    pub fn expose_all(&self) {
        let (qp, _) = self.guest.as_ref().expect("connected");
        self.home.memory().iter().for_each(|memory| qp.expose(memory, PATIENCE).expect("exposed"));
    }

    pub fn unexpose(&self, memory: &F::Region) {
        self.guest.as_ref().expect("connected").0.unexpose(memory);
    }

    pub fn key_of(&self, piece: *const u8, bytes: usize) -> Option<u32> {
        let offset = piece.addr().checked_sub(self.local.base().addr().get())?;
        (offset + bytes <= BYTES).then(|| self.local.lkey())
    }

    /// An operation on the local memory's word `from` and the region's word `at`.
    pub fn operation(&self, kind: Kind, from: usize, at: usize) -> Operation {
        let local = self.local.base().as_ptr().wrapping_add(from * 8);
        Operation { kind, region: REGION, offset: at as u64 * 8, bytes: 8, local, operand: 1, swap: 0 }
    }

    pub fn post(&self, operations: &[Operation]) -> Result<u64, Stop> {
        // SAFETY: the operations name the local memory, which lives as long as the lane.
        unsafe { self.lane.post(&self.gate, operations, |piece, bytes| self.key_of(piece, bytes)) }
    }

    /// Until it is settled.
    pub fn settle(&self, sequence: u64) -> crate::error::Result<()> {
        until("an operation is settled", || {
            (self.pump)();
            match self.lane.look(sequence) {
                Look::UnderWay => None,
                Look::Done => Some(Ok(())),
                Look::Failed(error) => Some(Err(error)),
            }
        })
    }

    pub fn run(&self, operations: &[Operation]) -> crate::error::Result<u64> {
        let sequence = self.post(operations).expect("posted");
        self.settle(sequence).map(|()| sequence)
    }

    pub fn near_word(&self, index: usize) -> &AtomicU64 {
        word(&self.local, index)
    }

    pub fn far_word(&self, index: usize) -> &AtomicU64 {
        word(&self.region, index)
    }
}

fn word<R: Region>(region: &R, index: usize) -> &AtomicU64 {
    assert!((index + 1) * 8 <= region.bytes());
    // SAFETY: aligned and inside the region, which the borrow keeps; shared memory is touched atomically.
    unsafe { AtomicU64::from_ptr(region.base().as_ptr().add(index * 8).cast()) }
}

/// A pump for fabrics that need none.
pub fn by_itself() {}
