//! Models of what keeps a recovered lane's requests apart, in all interleavings: the fence of generations between a slot and
//! a lane that is rebuilt, the claim of a request that came twice, and the way to sleep of a poller.
//!
//! What is modelled are the words and their orderings, those of `rpc::Channel` with `rpc::ClientLane`, of `rpc::Window`, and of
//! a poller's waker. Each model has a twin with one ordering or check left out, which must be found: so the model can
//! tell. Not modelled: Linux `membarrier`, which stands for the client's fence in the last one and which no model checker
//! knows; devices; the memory of another process.

use loom::cell::UnsafeCell;
use loom::sync::atomic::{AtomicU32, AtomicU64, Ordering, fence};
use loom::sync::{Arc, Mutex};
use loom::thread;

/// What a twin leaves out.
#[derive(Clone, Copy, PartialEq)]
enum Twin {
    None,
    /// A slot stays on the connection that it was last used on.
    NoGeneration,
    /// The result is stored behind the word that says that it is there.
    ResultLast,
    /// A repetition looks at the word, and then marks it, in two steps.
    ClaimInTwoSteps,
    /// Who commits looks for a sleeper without a fence.
    NoFence,
}

/// A connection: its generation, and memory that was prepared for it.
struct Connection {
    generation: u32,
    memory: UnsafeCell<u32>,
}

impl Connection {
    fn new(generation: u32) -> Arc<Connection> {
        let connection = Connection { generation, memory: UnsafeCell::new(0) };
        // SAFETY: nobody else knows it yet.
        connection.memory.with_mut(|memory| unsafe { *memory = generation });
        Arc::new(connection)
    }
}

/// A lane with one slot.
struct Lane {
    active: AtomicU32,
    current: Mutex<Arc<Connection>>,
    state: AtomicU64,
    generation: AtomicU32,
    own: UnsafeCell<Option<Arc<Connection>>>,
    twin: Twin,
}

impl Lane {
    fn new(twin: Twin) -> Arc<Lane> {
        let first = Connection::new(1);
        Arc::new(Lane {
            active: AtomicU32::new(1),
            current: Mutex::new(Arc::clone(&first)),
            state: AtomicU64::new(0),
            generation: AtomicU32::new(1),
            own: UnsafeCell::new(Some(first)),
            twin,
        })
    }

    /// One request: `try_take`, `move_home`, the post, `release`. True if it was posted.
    fn request(&self) -> bool {
        let state = self.state.load(Ordering::Relaxed);
        // Acquire: pairs with the Release in `rebuild`.
        let active = self.active.load(Ordering::Acquire);
        if state & 1 == 1 || active == 0 {
            return false;
        }
        // Acquire: pairs with the Release below.
        if self.state.compare_exchange(state, state | 1, Ordering::Acquire, Ordering::Relaxed).is_err() {
            return false;
        }
        if self.generation.load(Ordering::Relaxed) != active && self.twin != Twin::NoGeneration {
            let connection = Arc::clone(&*self.current.lock().expect("a lock"));
            self.generation.store(connection.generation, Ordering::Relaxed);
            // SAFETY: the holder has `own` to itself.
            self.own.with_mut(|own| unsafe { *own = Some(connection) });
        }
        // SAFETY: as above.
        let connection = self.own.with(|own| unsafe { (*own).clone() }).expect("always one");
        assert!(connection.generation >= active, "a request went out on a connection that was known to be over");
        assert_eq!(connection.generation, self.generation.load(Ordering::Relaxed));
        // SAFETY: it was written before the connection was given to anybody.
        connection.memory.with(|memory| assert_eq!(unsafe { *memory }, connection.generation));
        // Release: pairs with the Acquire above.
        self.state.store(state + 2, Ordering::Release);
        true
    }

    fn rebuild(&self) {
        self.active.store(0, Ordering::Relaxed);
        let next = Connection::new(2);
        *self.current.lock().expect("a lock") = next;
        // Release: pairs with the Acquire in `request`.
        self.active.store(2, Ordering::Release);
    }
}

fn rebuilt_lane(twin: Twin) {
    loom::model(move || {
        let lane = Lane::new(twin);
        let mender = Arc::clone(&lane);
        let mender = thread::spawn(move || mender.rebuild());
        for _ in 0..2 {
            lane.request();
        }
        mender.join().expect("no panic");
        assert!(lane.request(), "the slot is free and the lane is up");
        // SAFETY: the other one has ended.
        let generation = lane.own.with(|own| unsafe { (*own).as_ref().map(|connection| connection.generation) });
        assert_eq!(generation, Some(2));
    });
}

#[test]
fn a_request_never_goes_out_on_a_connection_that_is_known_to_be_over() {
    rebuilt_lane(Twin::None);
}

#[test]
#[should_panic(expected = "known to be over")]
fn a_slot_that_ignores_generations_is_found() {
    rebuilt_lane(Twin::NoGeneration);
}

const EXECUTING: u64 = 1;
const DONE: u64 = 2;

/// One entry of a client's window: use 0 is `0 | state`, use 1 is `4 | state`; 0: never used.
struct Entry {
    word: AtomicU64,
    result: AtomicU64,
    executed: [AtomicU64; 2],
    twin: Twin,
}

#[derive(PartialEq, Debug)]
enum Claim {
    Execute,
    Done(u64),
    UnderWay,
    Obsolete,
}

impl Entry {
    fn new(twin: Twin) -> Arc<Entry> {
        let zero = || AtomicU64::new(0);
        Arc::new(Entry { word: zero(), result: zero(), executed: [zero(), zero()], twin })
    }

    fn claim(&self, use_count: u64) -> Claim {
        let mine = use_count << 2;
        // Acquire: pairs with the Release in `settle`.
        let mut word = self.word.load(Ordering::Acquire);
        loop {
            let (seen, state) = (word & !3, word & 3);
            if word != 0 && seen == mine {
                let result = || self.result.load(Ordering::Relaxed);
                return if state == DONE { Claim::Done(result()) } else { Claim::UnderWay };
            }
            if word != 0 && seen > mine {
                return Claim::Obsolete;
            }
            if state == EXECUTING {
                return Claim::UnderWay;
            }
            if self.twin == Twin::ClaimInTwoSteps {
                self.word.store(mine | EXECUTING, Ordering::Relaxed);
                return Claim::Execute;
            }
            // Acquire: as above.
            match self.word.compare_exchange(word, mine | EXECUTING, Ordering::Acquire, Ordering::Acquire) {
                Ok(_) => return Claim::Execute,
                Err(now) => word = now,
            }
        }
    }

    fn settle(&self, use_count: u64) {
        let result = 70 + use_count;
        if self.twin == Twin::ResultLast {
            self.word.store(use_count << 2 | DONE, Ordering::Release);
            self.result.store(result, Ordering::Relaxed);
            return;
        }
        self.result.store(result, Ordering::Relaxed);
        // Release: pairs with the Acquire in `claim`.
        self.word.store(use_count << 2 | DONE, Ordering::Release);
    }

    /// What a worker does with a request that it found.
    fn serve(&self, use_count: u64) -> Claim {
        let claim = self.claim(use_count);
        if claim == Claim::Execute {
            // Relaxed: an account for the test.
            self.executed[usize::try_from(use_count).expect("0 or 1")].fetch_add(1, Ordering::Relaxed);
            self.settle(use_count);
        }
        claim
    }
}

/// The same request comes over two lanes.
fn repeated_request(twin: Twin) {
    loom::model(move || {
        let entry = Entry::new(twin);
        let other = Arc::clone(&entry);
        let other = thread::spawn(move || other.serve(0));
        let claims = [entry.serve(0), other.join().expect("no panic")];
        for claim in &claims {
            assert!(matches!(claim, Claim::Execute | Claim::UnderWay | Claim::Done(70)), "a wrong answer: {claim:?}");
        }
        assert_eq!(entry.executed[0].load(Ordering::Relaxed), 1, "executed twice");
        assert_eq!(entry.claim(0), Claim::Done(70));
    });
}

#[test]
fn a_request_that_comes_twice_is_executed_once_and_answered_alike() {
    repeated_request(Twin::None);
}

#[test]
#[should_panic(expected = "a wrong answer")]
fn a_result_stored_behind_its_word_is_found() {
    repeated_request(Twin::ResultLast);
}

#[test]
#[should_panic(expected = "executed twice")]
fn a_claim_in_two_steps_is_found() {
    repeated_request(Twin::ClaimInTwoSteps);
}

/// A client that had its answer goes on to the next use, while a late repetition of the last one still travels.
#[test]
fn a_late_repetition_never_runs_again_beside_the_next_use() {
    loom::model(|| {
        let entry = Entry::new(Twin::None);
        assert_eq!(entry.serve(0), Claim::Execute);
        let late = Arc::clone(&entry);
        let late = thread::spawn(move || late.serve(0));
        let next = entry.serve(1);
        // Its answer is nobody's any more, so it may be that of the next use.
        let late = late.join().expect("no panic");
        assert!(matches!(late, Claim::Done(70 | 71) | Claim::Obsolete), "{late:?}");
        assert_eq!(next, Claim::Execute);
        assert_eq!([0, 1].map(|at: usize| entry.executed[at].load(Ordering::Relaxed)), [1, 1]);
    });
}

/// A poller goes to sleep while a client commits. The client's fence is what `membarrier` does to its core.
fn last_look(twin: Twin) {
    loom::model(move || {
        let (word, armed) = (Arc::new(AtomicU32::new(0)), Arc::new(AtomicU32::new(0)));
        let client = {
            let (word, armed) = (Arc::clone(&word), Arc::clone(&armed));
            thread::spawn(move || {
                // Release: pairs with the Acquire of the poller's last look.
                word.store(1, Ordering::Release);
                if twin != Twin::NoFence {
                    // Partner: the poller's fence.
                    fence(Ordering::SeqCst);
                }
                armed.load(Ordering::Relaxed) == 1
            })
        };
        armed.store(1, Ordering::Relaxed);
        // Partner: the client's fence.
        fence(Ordering::SeqCst);
        // Acquire: pairs with the client's Release.
        let found = word.load(Ordering::Acquire) == 1;
        let rung = client.join().expect("no panic");
        assert!(found || rung, "a request that nobody sees");
    });
}

#[test]
fn a_request_is_found_by_the_last_look_or_rings() {
    last_look(Twin::None);
}

#[test]
#[should_panic(expected = "a request that nobody sees")]
fn a_commit_without_a_fence_is_found() {
    last_look(Twin::NoFence);
}
