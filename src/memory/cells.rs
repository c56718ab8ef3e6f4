//! Atomics that the owner of the memory executes: exactly once, whatever happens to the lane.
//!
//! A request is a record in a cell of the owner's memory; the owner's thread finds it, looks into its [`Dedupe`], executes
//! it or repeats the answer, and leaves the answer behind the request, where the asker reads it. An asker whose lane
//! failed sends the same record, with the same number, over the next one.

use super::dedupe::{Dedupe, Executed, Verdict};
use super::gate::Gate;
use super::home::Home;
use super::lane::{CELLS_REGION, Operation};
use super::log::Kind;
use crate::error::{Error, Result, Status};
use crate::fabric::{Access, Fabric, Region};
use crate::ids::Incarnation;
use crate::sync::{AtomicU64, Mutex, Ordering, lock};
use crate::wire::region::{
    AtomicAnswer, AtomicRequest, CELLS, MAILBOX_BYTES, RECORD_BYTES, answer_offset, request_offset,
};

const RECORD_WORDS: usize = RECORD_BYTES / 8;
/// Bytes of a record, as an operation counts them.
const RECORD_LENGTH: u32 = 64;
const _: () = assert!(RECORD_LENGTH as usize == RECORD_BYTES);

fn word<R: Region>(region: &R, offset: usize, index: usize) -> &AtomicU64 {
    let at = offset + index * 8;
    assert!(at + 8 <= region.bytes());
    // SAFETY: inside the region, which is page-aligned and which the borrow keeps; shared memory is touched atomically.
    unsafe { AtomicU64::from_ptr(region.base().as_ptr().add(at).cast()) }
}

fn load<R: Region>(region: &R, offset: usize) -> [u64; RECORD_WORDS] {
    // Acquire: whoever is convinced by the checksum sees what its writer did before. Partner: the writer's Release.
    core::array::from_fn(|index| word(region, offset, index).load(Ordering::Acquire))
}

fn store<R: Region>(region: &R, offset: usize, words: &[u64; RECORD_WORDS]) {
    for (index, value) in words.iter().enumerate() {
        // Release: pairs with the Acquire in `load`, here or behind a fabric.
        word(region, offset, index).store(*value, Ordering::Release);
    }
}

/// The owner's side: the cells of one asking rank's connection.
#[derive(Debug)]
pub struct Mailbox<F: Fabric> {
    cells: F::Region,
    asker: Incarnation,
    answered: [u64; CELLS],
}

impl<F: Fabric> Mailbox<F> {
    /// Cells for a connection of this asker, in fresh memory.
    ///
    /// # Errors
    /// CONTEXT statuses.
    pub fn new(fabric: &F, asker: Incarnation) -> Result<Mailbox<F>> {
        let cells = fabric.allocate(MAILBOX_BYTES, Access::ALL)?;
        Ok(Mailbox { cells, asker, answered: [0; CELLS] })
    }

    /// Its memory, for the peer.
    #[must_use]
    pub fn memory(&self) -> &F::Region {
        &self.cells
    }

    /// Executes what is there. How many requests.
    pub fn serve(&mut self, home: &Home<F>, dedupe: &Mutex<Dedupe>) -> usize {
        let mut served = 0;
        for cell in 0..CELLS {
            let Some(request) = AtomicRequest::decode(&load(&self.cells, request_offset(cell))) else { continue };
            if request.sequence == self.answered[cell] {
                continue;
            }
            let answer = self.execute(home, &mut lock(dedupe), cell, &request);
            store(&self.cells, answer_offset(cell), &answer.encode());
            self.answered[cell] = request.sequence;
            served += 1;
        }
        served
    }

    fn execute(&self, home: &Home<F>, dedupe: &mut Dedupe, cell: usize, request: &AtomicRequest) -> AtomicAnswer {
        let sequence = request.sequence;
        let (status, value) = match dedupe.judge(self.asker, cell, sequence) {
            Verdict::Repeat(status, value) => (status, value),
            Verdict::Stale => (5, 0),
            Verdict::Execute => {
                let done = home.execute(request.op, request.region, request.offset, request.operand, request.swap);
                let (status, value) = done.map_or_else(|status| (status, 0), |value| (0, value));
                let cell = u32::try_from(cell).unwrap_or(u32::MAX);
                dedupe.record(Executed { incarnation: self.asker, cell, sequence, status, value });
                (status, value)
            }
        };
        AtomicAnswer { sequence, status, value }
    }
}

#[derive(Debug, Default)]
struct Places {
    taken: [bool; CELLS],
    sequence: u64,
}

/// The asker's side, for one peer.
#[derive(Debug)]
pub struct Asker<F: Fabric> {
    /// Requests and answers as they travel.
    desk: F::Region,
    places: Mutex<Places>,
}

/// A request on its way: its cell, and its number.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Asked {
    cell: usize,
    sequence: u64,
}

impl<F: Fabric> Asker<F> {
    /// Nothing under way.
    ///
    /// # Errors
    /// CONTEXT statuses.
    pub fn new(fabric: &F) -> Result<Asker<F>> {
        Ok(Asker { desk: fabric.allocate(MAILBOX_BYTES, Access::LOCAL)?, places: Mutex::default() })
    }

    /// Takes a cell and writes the request on the desk; `op` is 1 or 2. None: the gate is closed, or all cells are taken.
    pub fn begin(&self, gate: &Gate, mut request: AtomicRequest) -> Option<Asked> {
        let mut places = lock(&self.places);
        if gate.is_closed() {
            return None;
        }
        let cell = places.taken.iter().position(|taken| !taken)?;
        places.taken[cell] = true;
        places.sequence += 1;
        request.sequence = places.sequence;
        store(&self.desk, request_offset(cell), &request.encode());
        Some(Asked { cell, sequence: places.sequence })
    }

    /// Gives the cell back. A request that was not answered must not be given back while its lane can still bring it.
    pub fn end(&self, asked: Asked) {
        lock(&self.places).taken[asked.cell] = false;
    }

    /// Requests under way. After the gate was closed, and this asked once, no new one begins.
    #[must_use]
    pub fn under_way(&self) -> usize {
        lock(&self.places).taken.iter().filter(|taken| **taken).count()
    }

    fn operation(&self, kind: Kind, offset: usize) -> Operation {
        Operation {
            kind,
            region: CELLS_REGION,
            offset: offset as u64,
            bytes: RECORD_LENGTH,
            local: self.desk.base().as_ptr().wrapping_add(offset),
            operand: 0,
            swap: 0,
        }
    }

    /// Sends the request and looks for the answer.
    #[must_use]
    pub fn send(&self, asked: Asked) -> [Operation; 2] {
        [self.operation(Kind::Write, request_offset(asked.cell)), self.read(asked)]
    }

    /// Looks for the answer.
    #[must_use]
    pub fn read(&self, asked: Asked) -> Operation {
        self.operation(Kind::Read, answer_offset(asked.cell))
    }

    /// Takes the desk back from the device; nothing is under way.
    ///
    /// # Errors
    /// As [`Region::suspend`].
    pub fn suspend(&self) -> Result<()> {
        self.desk.suspend()
    }

    /// Registers it again.
    ///
    /// # Errors
    /// As [`Region::resume`].
    pub fn resume(&self) -> Result<()> {
        self.desk.resume()
    }

    /// The local key of the desk, which is all that these operations name.
    #[must_use]
    pub fn key(&self) -> u32 {
        self.desk.lkey()
    }

    /// The answer, if it was read whole.
    ///
    /// # Errors
    /// `InvalidArgument` naming why the owner refused.
    #[must_use]
    pub fn answer(&self, asked: Asked) -> Option<Result<u64>> {
        let answer = AtomicAnswer::decode(&load(&self.desk, answer_offset(asked.cell)))?;
        if answer.sequence != asked.sequence {
            return None;
        }
        let why = match answer.status {
            0 => return Some(Ok(answer.value)),
            1 => "it has no such region",
            2 => "the eight bytes do not lie in the region, or not at a multiple of 8",
            3 => "the region was opened without the right of atomics",
            4 => "it knows no such operation",
            _ => "it has executed a later request of this cell",
        };
        Some(Err(Error::new(Status::InvalidArgument, format!("its owner refused: {why}"))))
    }
}
