//! What the table, the log and the gate cost on the path of an operation: a write of 8 bytes over `shm`, by the bare queue
//! pair and by a lane, turn by turn. Prints medians in cycles of the time-stamp counter and their difference.
//!
//!     cargo bench --bench one_sided

use reclane::fabric::shm::{Shm, ShmOptions};
use reclane::fabric::{
    Access, Completion, Cq as _, Fabric, Qp as _, QpConfig, Region as _, RemoteAddr, Sge, Work, WorkOp,
};
use reclane::ids::{Epoch, Incarnation};
use reclane::memory::{Gate, Home, Kind, Lane, Line, Look, Operation, PageOfPeer, SCRATCH_STRIDE};
use std::time::Duration;

const OWNER: Incarnation = Incarnation(5);
const REGION: u32 = 1;
const PLACES: usize = 512;
/// Operations between two looks at the counter, and such turns.
const TURN: u64 = 2000;
const TURNS: usize = 401;
const TIMEOUT: Duration = Duration::from_secs(10);

#[cfg(target_arch = "x86_64")]
fn cycles() -> u64 {
    // SAFETY: every x86-64 processor has it.
    unsafe { core::arch::x86_64::_rdtsc() }
}

#[cfg(not(target_arch = "x86_64"))]
fn cycles() -> u64 {
    reclane::time::now().0
}

struct Ends {
    near: Shm,
    far: Shm,
    home: Home<Shm>,
    local: <Shm as Fabric>::Region,
}

type Qp = <Shm as Fabric>::Qp;
type Cq = <Shm as Fabric>::Cq;

impl Ends {
    fn open() -> Ends {
        let (near, far) =
            (Shm::open(ShmOptions::default()).expect("shm"), Shm::open(ShmOptions::default()).expect("shm"));
        let home = Home::new(&far, OWNER, Epoch(1)).expect("a table");
        home.open(&far, REGION, 1 << 20, Access::ALL).expect("a region");
        home.publish(REGION);
        let local = near.allocate(1 << 16, Access::LOCAL).expect("memory");
        Ends { near, far, home, local }
    }

    /// Both ends of a connection.
    fn connect(&self) -> (Qp, std::sync::Arc<Cq>, Qp) {
        let config = QpConfig { max_send_wr: 1024, max_recv_wr: 1, max_send_sge: 0, generation: 1 };
        let far_cq = self.far.create_cq(16).expect("a queue");
        let mut exposed = vec![self.home.table().clone()];
        exposed.extend(self.home.memory());
        let theirs = self.far.create_qp(&config, &exposed, &far_cq, &far_cq, None).expect("a queue pair");
        let cq = self.near.create_cq(1024).expect("a queue");
        let qp = self.near.create_qp(&config, &[], &cq, &cq, None).expect("a queue pair");
        theirs.connect(&qp.address(), TIMEOUT).expect("connected");
        qp.connect(&theirs.address(), TIMEOUT).expect("connected");
        (qp, cq, theirs)
    }
}

fn bare(qp: &Qp, cq: &Cq, sge: Sge, remote: RemoteAddr) -> u64 {
    let local = [sge];
    let begin = cycles();
    for number in 0..TURN {
        let work = Work { wr_id: number, op: WorkOp::Write, local: &local, remote, signaled: true };
        // SAFETY: the memory lives as long as the bench.
        unsafe { qp.post(&[work]) }.expect("posted");
        let mut out = [Completion::EMPTY; 8];
        assert_eq!(cq.poll(&mut out), 1);
    }
    cycles() - begin
}

fn by_lane(lane: &Lane<Shm>, gate: &Gate, operation: &Operation) -> u64 {
    let begin = cycles();
    for _ in 0..TURN {
        // SAFETY: the memory lives as long as the bench.
        let posted = unsafe { lane.post(gate, core::slice::from_ref(operation), |_, _| Some(0)) };
        assert!(matches!(lane.look(posted.expect("posted")), Look::Done));
    }
    cycles() - begin
}

fn median(mut turns: Vec<u64>) -> (f64, f64, f64) {
    turns.sort_unstable();
    let at = |part: usize| turns[turns.len() * part / 100] as f64 / TURN as f64;
    (at(50), at(10), at(90))
}

fn main() {
    let ends = Ends::open();
    let (qp, cq, _theirs) = ends.connect();
    let (entry, gate) = (ends.home.entries()[0].1, Gate::default());
    let remote = RemoteAddr { address: entry.address.iova, rkey: entry.address.rkey };
    let sge = Sge { address: ends.local.base().as_ptr(), bytes: 8, lkey: ends.local.lkey() };
    let lane = Lane::<Shm>::new(1, PLACES);
    let (line_qp, line_cq, _guest) = ends.connect();
    let page = PageOfPeer::find(&line_qp, ends.home.table().address(), OWNER, Epoch(1));
    assert!(page.is_some());
    let scratch = ends.near.allocate(PLACES * SCRATCH_STRIDE, Access::LOCAL).expect("memory");
    let cells = ends.home.table().address();
    lane.attach(
        Line { qp: line_qp, cq: line_cq, scratch, generation: 1, cells, page, marks: false, synchronous: true },
        0,
    );
    let local = ends.local.base().as_ptr();
    let operation = Operation { kind: Kind::Write, region: REGION, offset: 0, bytes: 8, local, operand: 0, swap: 0 };
    let (mut one, mut other) = (Vec::new(), Vec::new());
    for _ in 0..TURNS {
        one.push(bare(&qp, &cq, sge, remote));
        other.push(by_lane(&lane, &gate, &operation));
    }
    let ((bare, bare_low, bare_high), (lane, lane_low, lane_high)) = (median(one), median(other));
    println!("bare queue pair: {bare:.0} cycles (10 %: {bare_low:.0}, 90 %: {bare_high:.0})");
    println!("lane:            {lane:.0} cycles (10 %: {lane_low:.0}, 90 %: {lane_high:.0})");
    println!("steady_overhead_cycles={:.0}", lane - bare);
}
