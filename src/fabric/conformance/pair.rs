//! Two opened instances with a queue pair each.

use crate::fabric::{
    Access, Completion, Cq, Fabric, PostError, Qp, QpConfig, QpState, Region, RemoteAddr, Sge, WcStatus, Work, WorkOp,
};
use crate::sync::{Arc, AtomicU64};
use crate::time::{Tick, now};
use core::time::Duration;

/// Ends a test that hangs; nothing is measured with it.
pub const PATIENCE: Duration = Duration::from_secs(60);
/// Length of the memory of each side.
pub const BYTES: usize = 64 << 10;
/// Send and receive queue depth.
pub const DEPTH: u32 = 16;

/// Opens the provider.
pub trait Open<F: Fabric>: Fn() -> F + Sync {}
impl<F: Fabric, T: Fn() -> F + Sync> Open<F> for T {}

/// One side.
pub struct End<F: Fabric> {
    pub fabric: Arc<F>,
    pub cq: Arc<F::Cq>,
    pub waker: Arc<F::Waker>,
    /// What the peer may do anything with.
    pub memory: F::Region,
    /// Local memory for work.
    pub staging: F::Region,
    pub qp: F::Qp,
}

/// Both.
pub struct Pair<F: Fabric> {
    pub a: End<F>,
    pub b: End<F>,
}

/// How the test's queue pairs are made.
pub const CONFIG: QpConfig = QpConfig { max_send_wr: DEPTH, max_recv_wr: DEPTH, max_send_sge: 0, generation: 1 };

/// The end of the patience, from now.
pub fn patience() -> Tick {
    now().after(PATIENCE)
}

/// Tries until it gives something.
pub fn until<T>(what: &str, mut attempt: impl FnMut() -> Option<T>) -> T {
    let end = patience();
    loop {
        if let Some(value) = attempt() {
            return value;
        }
        assert!(!end.remaining().is_zero(), "{what} did not happen");
        std::thread::yield_now();
    }
}

impl<F: Fabric> End<F> {
    /// A side in RESET.
    pub fn new(fabric: Arc<F>) -> End<F> {
        let memory = fabric.allocate(BYTES, Access::ALL).expect("memory");
        End::exposing(fabric, memory)
    }

    /// A side in RESET with this memory.
    pub fn exposing(fabric: Arc<F>, memory: F::Region) -> End<F> {
        let cq = fabric.create_cq(256).expect("completion queue");
        let waker = fabric.create_waker().expect("waker");
        let staging = fabric.allocate(BYTES, Access::LOCAL).expect("staging");
        let exposed = [memory.clone()];
        let qp = fabric.create_qp(&CONFIG, &exposed, &cq, &cq, Some(&waker)).expect("queue pair");
        End { fabric, cq, waker, memory, staging, qp }
    }

    /// A place in this side's memory, for the peer.
    pub fn at(&self, offset: usize) -> RemoteAddr {
        let address = self.memory.address();
        RemoteAddr { address: address.iova + offset as u64, rkey: address.rkey }
    }

    /// A piece of this side's staging memory.
    pub fn piece(&self, offset: usize, bytes: usize) -> Sge {
        assert!(offset + bytes <= BYTES);
        Sge {
            address: self.staging.base().as_ptr().wrapping_add(offset),
            bytes: u32::try_from(bytes).expect("small"),
            lkey: self.staging.lkey(),
        }
    }

    /// A word of a region.
    pub fn word_of(region: &F::Region, offset: usize) -> &AtomicU64 {
        assert!(offset.is_multiple_of(8) && offset + 8 <= region.bytes());
        // SAFETY: aligned and inside the region, which the borrow keeps; shared memory is touched atomically.
        unsafe { AtomicU64::from_ptr(region.base().as_ptr().add(offset).cast()) }
    }

    /// A word of the memory that the peer reaches.
    pub fn word(&self, offset: usize) -> &AtomicU64 {
        End::<F>::word_of(&self.memory, offset)
    }

    /// A word of the staging memory.
    pub fn staged(&self, offset: usize) -> &AtomicU64 {
        End::<F>::word_of(&self.staging, offset)
    }

    /// Posts a chain that uses this side's staging memory.
    pub fn post(&self, chain: &[Work<'_>]) -> Result<(), PostError> {
        // SAFETY: the pieces lie in `staging`, which lives as long as the queue pair.
        unsafe { self.qp.post(chain) }
    }

    /// Posts one signaled request for `bytes` at the start of the staging memory.
    pub fn post_one(&self, wr_id: u64, op: WorkOp, bytes: usize, remote: RemoteAddr) -> Result<(), PostError> {
        let local = [self.piece(0, bytes)];
        self.post(&[Work { wr_id, op, local: &local, remote, signaled: true }])
    }

    /// The next completion.
    pub fn next(&self) -> Completion {
        let mut out = [Completion::EMPTY];
        until("a completion", || (self.cq.poll(&mut out) == 1).then(|| out[0]))
    }

    /// Posts one request; how it completes.
    pub fn outcome(&self, op: WorkOp, bytes: usize, remote: RemoteAddr) -> WcStatus {
        self.post_one(78, op, bytes, remote).expect("post");
        self.next().status
    }

    /// Posts one request and takes its completion, which must be a success.
    pub fn run(&self, op: WorkOp, bytes: usize, remote: RemoteAddr) {
        self.post_one(77, op, bytes, remote).expect("post");
        let done = self.next();
        assert_eq!((done.wr_id, done.status, done.qp), (77, WcStatus::Success, self.qp.number()));
    }

    /// Everything that completes until nothing more is due: the caller has made sure that all of it is there.
    pub fn drain(&self) -> Vec<Completion> {
        let mut all = Vec::new();
        let mut out = [Completion::EMPTY; 7];
        loop {
            let count = self.cq.poll(&mut out);
            if count == 0 {
                return all;
            }
            all.extend_from_slice(&out[..count]);
        }
    }

    /// Waits until the queue pair is in ERR, posting reads meanwhile for providers that notice only then.
    pub fn wait_for_err(&self, remote: RemoteAddr) {
        until("ERR", || {
            if self.qp.state() == QpState::Err {
                return Some(());
            }
            let _ = self.post_one(0, WorkOp::Read, 8, remote);
            self.drain();
            None
        });
    }
}

impl<F: Fabric> Pair<F> {
    /// Both in RESET.
    pub fn new(open: &impl Open<F>) -> Pair<F> {
        Pair { a: End::new(Arc::new(open())), b: End::new(Arc::new(open())) }
    }

    /// Both in RTS.
    pub fn connected(open: &impl Open<F>) -> Pair<F> {
        let pair = Pair::new(open);
        pair.connect();
        pair
    }

    /// Connects both.
    pub fn connect(&self) {
        self.a.qp.connect(&self.b.qp.address(), PATIENCE).expect("a connects");
        self.b.qp.connect(&self.a.qp.address(), PATIENCE).expect("b connects");
        assert_eq!((self.a.qp.state(), self.b.qp.state()), (QpState::Rts, QpState::Rts));
    }

    /// One word goes each way.
    pub fn works(&self) {
        use crate::sync::Ordering;
        for (from, to) in [(&self.a, &self.b), (&self.b, &self.a)] {
            let value = u64::from(from.qp.number()) << 32 | 0xabcd;
            from.staged(0).store(value, Ordering::Relaxed);
            from.run(WorkOp::Write, 8, to.at(64));
            // Acquire. Partner: the provider's write.
            assert_eq!(to.word(64).load(Ordering::Acquire), value);
        }
    }

    /// Both in ERR, whoever broke it.
    pub fn wait_for_err(&self) {
        self.a.wait_for_err(self.b.at(0));
        self.b.wait_for_err(self.a.at(0));
    }
}
