//! Which rows are pinned, by whom.

use super::locks::Stripes;
use crate::sync::{AtomicBool, AtomicU32, CachePadded, Mutex, Ordering, lock};

/// One worker's pins.
#[derive(Default)]
struct Held {
    sets: Vec<Set>,
    free: Vec<u16>,
}

/// Stripes pinned by one call; kept for the next one.
#[derive(Default)]
struct Set {
    stripes: Vec<u32>,
    /// Counts the lives of this place, so that a token is good once.
    life: u32,
    live: bool,
}

/// All pins of a store.
pub(super) struct Pins {
    held: Box<[CachePadded<Mutex<Held>>]>,
    /// Live sets by worker.
    counts: Box<[CachePadded<AtomicU32>]>,
    /// Set while somebody wants all pins gone.
    stopped: AtomicBool,
}

impl Pins {
    pub fn new(workers: u32) -> Pins {
        Pins {
            held: (0..workers).map(|_| CachePadded::default()).collect(),
            counts: (0..workers).map(|_| CachePadded::default()).collect(),
            stopped: AtomicBool::new(false),
        }
    }

    /// Pins the stripes that `name` lists; None when one of them is being written, pins are stopped, or the worker has
    /// 65536 sets of pins already. Nothing is pinned then.
    pub fn take(&self, worker: u32, stripes: &Stripes, name: impl FnOnce(&mut Vec<u32>)) -> Option<u64> {
        // Relaxed: whoever stops pins looks again when every worker is outside the gate.
        if self.stopped.load(Ordering::Relaxed) {
            return None;
        }
        let mut held = lock(self.held.get(worker as usize)?);
        let at = match held.free.pop() {
            Some(at) => at,
            None => {
                let at = u16::try_from(held.sets.len()).ok()?;
                held.sets.push(Set::default());
                at
            }
        };
        let set = &mut held.sets[usize::from(at)];
        set.stripes.clear();
        name(&mut set.stripes);
        if let Some(busy) = set.stripes.iter().position(|stripe| !stripes.pin(*stripe)) {
            set.stripes[..busy].iter().for_each(|stripe| stripes.unpin(*stripe));
            held.free.push(at);
            return None;
        }
        set.live = true;
        set.life = set.life.wrapping_add(1);
        let life = set.life;
        // Relaxed: read by the same worker, or by a visitor behind the gate.
        self.counts[worker as usize].fetch_add(1, Ordering::Relaxed);
        Some(u64::from(life) << 32 | u64::from(worker & 0xffff) << 16 | u64::from(at))
    }

    /// Takes pins back; a token that is not live does nothing. Threads: any.
    #[allow(clippy::cast_possible_truncation)] // the parts of a token
    pub fn give_back(&self, token: u64, stripes: &Stripes) {
        let (life, worker, at) = ((token >> 32) as u32, (token >> 16) as usize & 0xffff, token as u16);
        let Some(held) = self.held.get(worker) else { return };
        let mut held = lock(held);
        match held.sets.get_mut(usize::from(at)) {
            Some(set) if set.live && set.life == life => {
                set.stripes.iter().for_each(|stripe| stripes.unpin(*stripe));
                set.live = false;
            }
            _ => return,
        }
        held.free.push(at);
        // Release: pairs with the Acquire in `any`: what read the pinned rows is done.
        self.counts[worker].fetch_sub(1, Ordering::Release);
    }

    /// Whether the worker has pins.
    #[inline]
    pub fn has(&self, worker: u32) -> bool {
        self.counts.get(worker as usize).is_some_and(|count| count.load(Ordering::Relaxed) != 0)
    }

    /// Whether anybody has pins.
    pub fn any(&self) -> bool {
        // Acquire: pairs with `give_back`.
        self.counts.iter().any(|count| count.load(Ordering::Acquire) != 0)
    }

    /// Refuses new pins, or allows them again.
    pub fn stop(&self, stopped: bool) {
        self.stopped.store(stopped, Ordering::Relaxed);
    }
}
