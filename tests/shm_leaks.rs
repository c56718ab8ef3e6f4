//! Nothing of the shm fabric stays behind. A program of its own: it counts what the whole process holds.

use reclane::fabric::shm::{Shm, ShmOptions};
use reclane::fabric::{
    Access, Completion, Cq, Fabric, Qp, QpConfig, QpState, Region, RemoteAddr, Sge, Waker, Work, WorkOp,
};
use std::sync::Arc;
use std::time::Duration;

const PATIENCE: Duration = Duration::from_secs(60);
const CYCLES: usize = 1_000;
const BYTES: usize = 16 << 10;

/// What a process holds: descriptors, mappings of shared memory, threads.
#[derive(Debug)]
struct Holdings {
    descriptors: usize,
    shared_mappings: usize,
    threads: usize,
}

impl Holdings {
    fn within(&self, other: &Holdings) -> bool {
        self.descriptors <= other.descriptors
            && self.shared_mappings <= other.shared_mappings
            && self.threads <= other.threads
    }
}

fn holdings() -> Holdings {
    let entries = |path: &str| std::fs::read_dir(path).expect("procfs").count();
    let maps = std::fs::read_to_string("/proc/self/maps").expect("procfs");
    Holdings {
        descriptors: entries("/proc/self/fd"),
        shared_mappings: maps.lines().filter(|line| line.contains("memfd:reclane")).count(),
        threads: entries("/proc/self/task"),
    }
}

fn all_mappings() -> usize {
    std::fs::read_to_string("/proc/self/maps").expect("procfs").lines().count()
}

struct End {
    fabric: Arc<Shm>,
    cq: Arc<<Shm as Fabric>::Cq>,
    waker: Arc<<Shm as Fabric>::Waker>,
    memory: <Shm as Fabric>::Region,
    qp: <Shm as Fabric>::Qp,
}

fn end(fabric: &Arc<Shm>) -> End {
    let memory = fabric.allocate(BYTES, Access::ALL).expect("region");
    let cq = fabric.create_cq(64).expect("completion queue");
    let waker = fabric.create_waker().expect("waker");
    let config = QpConfig { max_send_wr: 8, max_recv_wr: 8, max_send_sge: 0, generation: 3 };
    let qp = fabric.create_qp(&config, std::slice::from_ref(&memory), &cq, &cq, Some(&waker)).expect("queue pair");
    End { fabric: Arc::clone(fabric), cq, waker, memory, qp }
}

fn use_it(from: &End, to: &End) {
    to.qp.post_receives(3).expect("receives");
    let remote = RemoteAddr { address: to.memory.address().iova, rkey: to.memory.address().rkey };
    let local = [Sge { address: from.memory.base().as_ptr(), bytes: 64, lkey: from.memory.lkey() }];
    let work = Work { wr_id: 1, op: WorkOp::WriteImm(4), local: &local, remote, signaled: true };
    // SAFETY: the piece lies in a region that outlives the work.
    unsafe { from.qp.post(&[work]) }.expect("post");
    let mut out = [Completion::EMPTY];
    assert_eq!((from.cq.poll(&mut out), to.cq.poll(&mut out)), (1, 1));
    assert!(from.qp.window(remote, BYTES, Access::ALL).is_some());
    let late = to.fabric.allocate(BYTES, Access::REMOTE_READ).expect("region");
    to.qp.expose(&late, PATIENCE).expect("expose");
    to.waker.arm();
    from.qp.doorbell();
    assert!(to.waker.wait(PATIENCE));
    to.waker.disarm();
}

fn connect(a: &End, b: &End) {
    a.qp.connect(&b.qp.address(), PATIENCE).expect("a");
    b.qp.connect(&a.qp.address(), PATIENCE).expect("b");
    use_it(a, b);
    use_it(b, a);
}

/// Drops the parts of both ends in one of many orders.
fn drop_in_order(a: End, b: End, order: usize) {
    let End { fabric: fabric_a, cq: cq_a, waker: waker_a, memory: memory_a, qp: qp_a } = a;
    let End { fabric: fabric_b, cq: cq_b, waker: waker_b, memory: memory_b, qp: qp_b } = b;
    let mut parts: Vec<Box<dyn Send>> = vec![
        Box::new(fabric_a),
        Box::new(qp_b),
        Box::new(memory_a),
        Box::new(waker_b),
        Box::new(cq_a),
        Box::new(fabric_b),
        Box::new(qp_a),
        Box::new(memory_b),
        Box::new(waker_a),
        Box::new(cq_b),
    ];
    let steps = parts.len();
    parts.rotate_left(order % steps);
    if order / steps % 2 == 1 {
        parts.reverse();
    }
    for part in parts {
        drop(part);
    }
}

/// Waits until no more is held than before: a peer's thread lets go a moment after the other side has. Less than
/// before is no leak: the thread of an earlier life may still have been ending when `before` was counted.
fn settle(what: &str, before: &Holdings) {
    let start = reclane::time::now();
    loop {
        let after = holdings();
        if after.within(before) {
            return;
        }
        assert!(
            u128::from(reclane::time::now().since_ns(start)) < PATIENCE.as_nanos(),
            "{what}: {before:?} became {after:?}"
        );
        std::thread::yield_now();
    }
}

#[test]
fn a_thousand_lives_leave_nothing_behind() {
    let open = || Arc::new(Shm::open(ShmOptions::default()).expect("shm opens"));
    // Once for what is made once: the allocator's areas, lazily opened files.
    for order in 0..20 {
        let (a, b) = (end(&open()), end(&open()));
        connect(&a, &b);
        drop_in_order(a, b, order);
    }
    let nothing = holdings();
    let mappings = all_mappings();

    // Whole fabrics, in all orders of dropping.
    for order in 0..CYCLES {
        let (a, b) = (end(&open()), end(&open()));
        connect(&a, &b);
        drop_in_order(a, b, order);
    }
    settle("fabrics", &nothing);

    // Queue pairs over fabrics that stay, and their links with them.
    let (left, right) = (open(), open());
    let pair = || (end(&left), end(&right));
    let (a, b) = pair();
    connect(&a, &b);
    drop_in_order(a, b, 0);
    let open_fabrics = holdings();
    for order in 0..CYCLES {
        let (a, b) = pair();
        connect(&a, &b);
        drop_in_order(a, b, order);
    }
    settle("queue pairs", &open_fabrics);

    // One queue pair that is reset again and again.
    let (a, b) = pair();
    connect(&a, &b);
    let reset = |end: &End| {
        end.qp.modify(QpState::Err).expect("err");
        end.qp.modify(QpState::Reset).expect("reset");
    };
    reset(&a);
    reset(&b);
    connect(&a, &b);
    let start = holdings();
    for _ in 0..10 {
        reset(&a);
        reset(&b);
        a.qp.connect(&b.qp.address(), PATIENCE).expect("a");
        b.qp.connect(&a.qp.address(), PATIENCE).expect("b");
    }
    let descriptors = holdings().descriptors;
    assert!(descriptors <= start.descriptors, "{start:?} became {descriptors} descriptors");
    drop((a, b, left, right));
    settle("all", &nothing);
    // The allocator may keep an area or two; a leak would be hundreds.
    assert!(all_mappings() < mappings + 50, "{mappings} mappings became {}", all_mappings());
}
