//! The clients of a shard: who they are, which connections of their lanes were answered, and what was executed for them.
//!
//! A client is known by number and process. Its window outlives its lanes: it stays for a lease after the client has
//! vanished, for it may only have lost sight of the control plane.

use crate::ids::{ClientId, Incarnation};
use crate::lane::{GuestLane, LaneEnd};
use crate::rpc::{ServerLane, Window};
use crate::sync::{Arc, AtomicU64, Mutex, Ordering, Weak, lock};
use crate::time::Tick;
use core::time::Duration;
use std::collections::{BTreeMap, HashMap, VecDeque};

/// Most clients whose windows are kept after they have vanished: the oldest go first.
const GONE_MAX: usize = 4096;
/// Handshakes at the same time. A client that is stopped in the middle of one blocks its thread and nobody else.
const HANDSHAKES_MAX: usize = 64;

/// One client's process.
#[derive(Debug)]
pub(crate) struct Guest<F: crate::fabric::Fabric> {
    pub(super) client: ClientId,
    pub(super) incarnation: Incarnation,
    pub(super) window: Arc<Window>,
    /// Held by the handshake that is under way.
    pub(super) lanes: Mutex<GuestLanes<F>>,
    turn: Mutex<Turn>,
}

/// Its lanes.
#[derive(Debug)]
pub(crate) struct GuestLanes<F: crate::fabric::Fabric> {
    pub(crate) known: BTreeMap<u32, GuestLane>,
    /// What it was answered.
    pub(crate) ends: BTreeMap<u32, LaneEnd>,
    pub(crate) live: BTreeMap<u32, Weak<ServerLane<F>>>,
    /// It was let in before.
    pub(crate) admitted: bool,
}

#[derive(Debug, Default)]
struct Turn {
    working: bool,
    again: bool,
    gone: Option<Tick>,
}

type ByProcess<F> = HashMap<(ClientId, Incarnation), Arc<Guest<F>>>;

/// All of them.
#[derive(Debug)]
pub(crate) struct Guests<F: crate::fabric::Fabric> {
    all: Mutex<ByProcess<F>>,
    next_window: AtomicU64,
    /// Set in the number of each window where windows outlive the process.
    lasting: u64,
    queue: Mutex<Handshakes<F>>,
}

#[derive(Debug)]
struct Handshakes<F: crate::fabric::Fabric> {
    running: usize,
    waiting: VecDeque<Arc<Guest<F>>>,
}

impl<F: crate::fabric::Fabric> Guest<F> {
    fn new(client: ClientId, incarnation: Incarnation, window: Arc<Window>) -> Guest<F> {
        let (known, ends, live) = (BTreeMap::new(), BTreeMap::new(), BTreeMap::new());
        let lanes = Mutex::new(GuestLanes { known, ends, live, admitted: false });
        Guest { client, incarnation, window, lanes, turn: Mutex::default() }
    }
}

impl<F: crate::fabric::Fabric> Guests<F> {
    /// Remembers a client of a restored world. It may come back within the lease.
    pub(super) fn remember(&self, client: ClientId, incarnation: Incarnation, window: Arc<Window>, now: Tick) {
        let guest = Guest::new(client, incarnation, window);
        lock(&guest.turn).gone = Some(now);
        lock(&self.all).insert((client, incarnation), Arc::new(guest));
    }

    /// What is remembered of each client, those included that have vanished.
    pub(super) fn export<T>(&self, mut of: impl FnMut(ClientId, Incarnation, &Window) -> T) -> Vec<T> {
        let mut guests: Vec<Arc<Guest<F>>> = lock(&self.all).values().cloned().collect();
        guests.sort_unstable_by_key(|guest| (guest.client, guest.incarnation.0));
        guests.iter().map(|guest| of(guest.client, guest.incarnation, &guest.window)).collect()
    }

    /// Nobody. `first` is the first window's number, with [`Window::LASTING`] and random where windows outlive the
    /// process.
    pub(super) fn new(first: u64) -> Guests<F> {
        Guests {
            all: Mutex::default(),
            next_window: AtomicU64::new(first),
            lasting: first & Window::LASTING,
            queue: Mutex::new(Handshakes { running: 0, waiting: VecDeque::new() }),
        }
    }

    /// The client has something to say. Its handshake, if a thread should be started for it: a client has one at a time,
    /// and all of them together are bounded.
    pub(super) fn knock(&self, client: ClientId, incarnation: Incarnation, slots: u32) -> Option<Arc<Guest<F>>> {
        let guest = {
            let mut all = lock(&self.all);
            let fresh = || {
                let number = self.next_window.fetch_add(1, Ordering::Relaxed) | self.lasting;
                Arc::new(Guest::new(client, incarnation, Arc::new(Window::new(number, slots))))
            };
            Arc::clone(all.entry((client, incarnation)).or_insert_with(fresh))
        };
        {
            let mut turn = lock(&guest.turn);
            turn.gone = None;
            if core::mem::replace(&mut turn.working, true) {
                turn.again = true;
                return None;
            }
        }
        let mut queue = lock(&self.queue);
        if queue.running >= HANDSHAKES_MAX {
            queue.waiting.push_back(guest);
            return None;
        }
        queue.running += 1;
        Some(guest)
    }

    /// A handshake has read what there was. True: there is more by now.
    pub(super) fn more(guest: &Guest<F>) -> bool {
        let mut turn = lock(&guest.turn);
        turn.working = core::mem::take(&mut turn.again);
        turn.working
    }

    /// A handshake's thread is free: the next client that waits for one.
    pub(super) fn next(&self) -> Option<Arc<Guest<F>>> {
        let mut queue = lock(&self.queue);
        let next = queue.waiting.pop_front();
        queue.running -= usize::from(next.is_none());
        next
    }

    /// A handshake that was asked for has no thread.
    pub(super) fn abandon(&self) {
        lock(&self.queue).running -= 1;
    }

    /// It left in order, or vanished at this moment.
    pub(super) fn leave(&self, client: ClientId, incarnation: Incarnation, vanished: Option<Tick>) {
        let mut all = lock(&self.all);
        match vanished {
            None => {
                all.remove(&(client, incarnation));
            }
            Some(_) => {
                if let Some(guest) = all.get(&(client, incarnation)) {
                    lock(&guest.turn).gone = vanished;
                    // A handshake that is under way looks afterwards whether the client is still here.
                    if let Ok(mut lanes) = guest.lanes.try_lock() {
                        lanes.ends.clear();
                        lanes.live.clear();
                    }
                }
            }
        }
    }

    /// Whether it is here.
    pub(super) fn is_here(&self, guest: &Guest<F>) -> bool {
        let known = lock(&self.all).contains_key(&(guest.client, guest.incarnation));
        known && lock(&guest.turn).gone.is_none()
    }

    /// Forgets those who vanished longer than `lease` ago, and the oldest of too many.
    pub(super) fn forget(&self, now: Tick, lease: Duration) {
        let mut all = lock(&self.all);
        all.retain(|_, guest| lock(&guest.turn).gone.is_none_or(|gone| gone.after(lease) > now));
        let mut gone: Vec<_> =
            all.iter().filter_map(|(name, guest)| lock(&guest.turn).gone.map(|gone| (gone, *name))).collect();
        if gone.len() > GONE_MAX {
            gone.sort_by_key(|(gone, _)| *gone);
            gone.iter().take(gone.len() - GONE_MAX).for_each(|(_, name)| drop(all.remove(name)));
        }
    }

    /// How many are here.
    pub(in crate::engine) fn count(&self) -> usize {
        self.present().len()
    }

    /// Those who are here.
    pub(super) fn present(&self) -> Vec<Arc<Guest<F>>> {
        lock(&self.all).values().filter(|guest| lock(&guest.turn).gone.is_none()).cloned().collect()
    }
}
