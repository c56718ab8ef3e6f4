//! The network: one clock, one queue of things to come, everything that is registered. Single-threaded in a world; under
//! a lock all the same, because the contract's handles may be used from any thread.

use super::memory::{Memory, Registered};
use super::packet::{Packet, QpKey};
use super::policy::Policy;
use super::qp::QpCore;
use super::rng::{Rng, mix};
use crate::fabric::{Access, Completion};
use crate::sync::{Arc, Mutex, MutexGuard};
use crate::wire::PAGE_BYTES;
use std::collections::{BTreeMap, BTreeSet, VecDeque};

/// A simulated network with the processes on it.
#[derive(Debug)]
pub struct Net {
    core: Mutex<Core>,
    /// Runs by itself until nothing is left to happen, whenever it is touched: for users that know no virtual time.
    self_driven: bool,
}

/// Something that will happen.
#[derive(Debug)]
pub(super) enum Event {
    Arrive(Packet),
    /// A pending write, by its number, becomes visible.
    Visible(u64),
    /// The retry timer of a connection; void when the timer was set anew.
    Retry {
        qp: QpKey,
        timer: u64,
    },
}

/// Bytes that were acknowledged and are not visible yet.
#[derive(Debug)]
pub(super) struct Pending {
    pub(super) qp: QpKey,
    pub(super) memory: Arc<Memory>,
    pub(super) offset: usize,
    pub(super) data: Vec<u8>,
}

/// One completion in a queue.
#[derive(Debug)]
pub(super) struct Entry {
    pub(super) completion: Completion,
    pub(super) qp: QpKey,
    /// Of which connection; a queue pair's number may be in use again.
    pub(super) connection: u64,
    /// Places of the send queue that come back when it is polled.
    pub(super) frees: u32,
}

#[derive(Debug)]
pub(super) struct CqCore {
    pub(super) entries: VecDeque<Entry>,
    pub(super) depth: usize,
}

/// What happened on the network, counted.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct NetCounts {
    /// Packets that were sent.
    pub sent: u64,
    /// Packets that were lost, by chance or by a blocked way.
    pub lost: u64,
    /// Packets that were sent twice by the network.
    pub duplicated: u64,
    /// Packets that were overtaken.
    pub overtaken: u64,
    /// Writes that became visible in pieces.
    pub torn: u64,
    /// Packets that met no connection, or one that they do not belong to.
    pub stray: u64,
    /// Packets that were sent again.
    pub resent: u64,
    /// Connections that ended in an error.
    pub broken: u64,
    /// Completions that came too late and were left out.
    pub fenced: u64,
    /// Completion queues that ran over.
    pub cq_overruns: u64,
}

/// Everything behind the lock.
#[derive(Debug)]
pub(super) struct Core {
    pub(super) policy: Policy,
    pub(super) now: u64,
    order: u64,
    pub(super) events: BTreeMap<(u64, u64), Event>,
    pub(super) rng: Rng,
    pub(super) trace: u64,
    pub(super) qps: BTreeMap<QpKey, QpCore>,
    pub(super) cqs: BTreeMap<u32, CqCore>,
    pub(super) pending: BTreeMap<u64, Pending>,
    pub(super) regions: BTreeMap<(u32, u32), Registered>,
    /// Hosts whose process is gone.
    pub(super) dead: BTreeSet<u32>,
    /// Blocked ways, one direction each.
    pub(super) blocked: BTreeSet<(u32, u32)>,
    /// Hosts whose packets take so many times longer.
    pub(super) slow: BTreeMap<u32, u64>,
    pub(super) counts: NetCounts,
    pub(super) leak_stale_completions: bool,
    next_host: u32,
    next_number: u32,
    next_key: u32,
    next_cq: u32,
    next_iova: u64,
    next_unique: u64,
    free_numbers: Vec<u32>,
    /// Key, address and length of freed regions.
    free_keys: Vec<(u32, u64, usize)>,
    pub(super) last_psn: u32,
}

impl Net {
    /// A network of its own. Nothing happens on it before [`Net::advance`], or by itself if `self_driven`.
    #[must_use]
    pub fn new(seed: u64, policy: Policy, self_driven: bool) -> Arc<Net> {
        let core = Core {
            policy,
            now: 0,
            order: 0,
            events: BTreeMap::new(),
            rng: Rng::new(seed),
            trace: 0,
            qps: BTreeMap::new(),
            cqs: BTreeMap::new(),
            pending: BTreeMap::new(),
            regions: BTreeMap::new(),
            dead: BTreeSet::new(),
            blocked: BTreeSet::new(),
            slow: BTreeMap::new(),
            counts: NetCounts::default(),
            leak_stale_completions: false,
            next_host: 1,
            next_number: 0x10,
            next_key: 1,
            next_cq: 1,
            next_iova: 0x1_0000_0000,
            next_unique: 1,
            free_numbers: Vec::new(),
            free_keys: Vec::new(),
            last_psn: 0,
        };
        Arc::new(Net { core: Mutex::new(core), self_driven })
    }

    pub(super) fn lock(&self) -> MutexGuard<'_, Core> {
        crate::sync::lock(&self.core)
    }

    /// The lock, after everything that is due by itself has happened.
    pub(super) fn enter(&self) -> MutexGuard<'_, Core> {
        let mut core = self.lock();
        if self.self_driven {
            core.run_until(u64::MAX);
        }
        core
    }

    /// To be called at the end of what may have started something.
    pub(super) fn settle(&self, core: &mut Core) {
        if self.self_driven {
            core.run_until(u64::MAX);
        }
    }

    /// Lets everything happen that is due by `until_ns`.
    pub fn advance(&self, until_ns: u64) {
        self.lock().run_until(until_ns);
    }

    /// When the next thing happens.
    #[must_use]
    pub fn next_ns(&self) -> Option<u64> {
        self.lock().events.keys().next().map(|(at, _)| *at)
    }

    /// A number that differs when anything happened differently.
    #[must_use]
    pub fn trace(&self) -> u64 {
        self.lock().trace
    }

    /// What happened so far.
    #[must_use]
    pub fn counts(&self) -> NetCounts {
        self.lock().counts
    }

    /// Kills a process: what it sent and what is sent to it goes nowhere any more.
    pub fn kill(&self, host: u32) {
        self.lock().dead.insert(host);
    }

    /// Blocks or clears the way from one host to another, in this direction only.
    pub fn block(&self, from: u32, to: u32, blocked: bool) {
        let mut core = self.lock();
        if blocked {
            core.blocked.insert((from, to));
        } else {
            core.blocked.remove(&(from, to));
        }
    }

    /// Makes all packets of a host take `times` as long; 1 ends it.
    pub fn slow_down(&self, host: u32, times: u64) {
        self.lock().slow.insert(host, times.max(1));
    }

    /// Changes the habits of the network from now on.
    pub fn set_policy(&self, policy: Policy) {
        self.lock().policy = policy;
    }

    /// The habits of the network.
    #[must_use]
    pub fn policy(&self) -> Policy {
        self.lock().policy.clone()
    }

    /// Breaks a connection of a host by an error of its device: the `pick`-th of those that work. False: there is none.
    pub fn break_connection(&self, host: u32, pick: usize) -> bool {
        self.lock().break_one(host, pick)
    }

    /// Queue pairs and regions that a host has now.
    #[must_use]
    pub fn holdings(&self, host: u32) -> (usize, usize) {
        let core = self.lock();
        let qps = core.qps.keys().filter(|key| key.host == host).count();
        (qps, core.regions.keys().filter(|(owner, _)| *owner == host).count())
    }

    /// Delivers completions of former connections as if they were of the present one: a provider that breaks the
    /// contract. For tests that show that somebody notices.
    pub fn leak_stale_completions(&self, leak: bool) {
        self.lock().leak_stale_completions = leak;
    }
}

impl Core {
    pub(super) fn new_host(&mut self) -> u32 {
        self.next_host += 1;
        self.next_host - 1
    }

    pub(super) fn unique(&mut self) -> u64 {
        self.next_unique += 1;
        self.next_unique
    }

    pub(super) fn new_number(&mut self) -> u32 {
        if let Some(number) = self.free_numbers.pop() {
            return number;
        }
        self.next_number += 1;
        self.next_number
    }

    pub(super) fn free_number(&mut self, number: u32) {
        if self.policy.reuse_numbers {
            self.free_numbers.push(number);
        }
    }

    pub(super) fn new_cq(&mut self, depth: u32) -> u32 {
        self.next_cq += 1;
        self.cqs.insert(self.next_cq, CqCore { entries: VecDeque::new(), depth: depth as usize });
        self.next_cq
    }

    pub(super) fn register(
        &mut self,
        host: u32,
        memory: Arc<Memory>,
        bytes: usize,
        access: Access,
        chosen: Option<u64>,
    ) -> (u32, Registered) {
        let (key, iova) = match self.free_keys.iter().rposition(|(_, _, freed)| *freed == bytes) {
            Some(at) => {
                let (key, iova, _) = self.free_keys.remove(at);
                (key, iova)
            }
            None => {
                // Two apart, and a low byte of its own: no key is another one's neighbour.
                self.next_key += 2;
                let iova = self.next_iova;
                self.next_iova += bytes.next_multiple_of(PAGE_BYTES) as u64 + 16 * PAGE_BYTES as u64;
                ((self.next_key << 8) | (self.rng.below(255) as u32), iova)
            }
        };
        let registered = Registered { memory, iova: chosen.unwrap_or(iova), bytes, access };
        self.regions.insert((host, key), registered.clone());
        (key, registered)
    }

    pub(super) fn forget_region(&mut self, host: u32, key: u32) {
        let freed = self.regions.remove(&(host, key));
        if let Some(region) = freed.filter(|_| self.policy.reuse_numbers) {
            self.free_keys.push((key, region.iova, region.bytes));
        }
    }

    pub(super) fn note(&mut self, what: u64) {
        self.trace = mix(self.trace ^ what ^ self.now.rotate_left(32));
    }

    pub(super) fn at(&mut self, when: u64, event: Event) {
        self.order += 1;
        self.events.insert((when, self.order), event);
    }

    pub(super) fn run_until(&mut self, until: u64) {
        while let Some(entry) = self.events.first_entry() {
            let (when, _) = *entry.key();
            if when > until {
                break;
            }
            let event = entry.remove();
            self.now = self.now.max(when);
            match event {
                Event::Arrive(packet) => self.arrive(packet),
                Event::Visible(number) => self.show(number),
                Event::Retry { qp, timer } => self.retry(qp, timer),
            }
        }
        if until != u64::MAX {
            self.now = self.now.max(until);
        }
    }

    /// Sends a packet on its way, with what the policy does to it.
    pub(super) fn send(&mut self, packet: Packet) {
        self.counts.sent += 1;
        let (from, to) = (packet.from.host, packet.to.host);
        if self.dead.contains(&from)
            || self.blocked.contains(&(from, to))
            || (self.policy.may_lose(&packet.body) && self.rng.chance(self.policy.drop))
        {
            self.counts.lost += 1;
            return;
        }
        let times = self.slow.get(&from).copied().unwrap_or(1);
        let delay = self.rng.between(self.policy.delay_ns_min, self.policy.delay_ns_max) * times;
        let mut arrives = self.now + delay;
        if self.rng.chance(self.policy.reorder) {
            self.counts.overtaken += 1;
            arrives += self.rng.below(self.policy.reorder_ns_max);
        } else if let Some(qp) = self.qps.get_mut(&packet.from) {
            arrives = arrives.max(qp.last_arrival);
            qp.last_arrival = arrives;
        }
        if self.rng.chance(self.policy.duplicate) {
            self.counts.duplicated += 1;
            let again = arrives + self.rng.below(self.policy.duplicate_ns_max);
            self.at(again, Event::Arrive(packet.clone()));
        }
        self.at(arrives, Event::Arrive(packet));
    }

    fn arrive(&mut self, packet: Packet) {
        self.note(u64::from(packet.psn) << 32 | packet.body.code() << 24 | u64::from(packet.to.number));
        let (from, to) = (packet.from.host, packet.to.host);
        if self.dead.contains(&to) || self.blocked.contains(&(from, to)) {
            self.counts.lost += 1;
            return;
        }
        // As on the wire, the packet does not name the queue pair it comes from: the host and the packet number are all
        // that tells an old connection's packet from a new one's.
        let fits = self.qps.get(&packet.to).is_some_and(|qp| qp.receives_from(from));
        if !fits {
            self.counts.stray += 1;
        } else if packet.body.is_answer() {
            self.answered(packet);
        } else {
            self.asked(packet);
        }
    }

    /// Puts a completion into a queue.
    pub(super) fn complete(&mut self, cq: u32, entry: Entry) {
        self.note(entry.completion.wr_id ^ u64::from(entry.completion.status.0) << 56);
        let Some(queue) = self.cqs.get_mut(&cq) else { return };
        if queue.entries.len() >= queue.depth {
            self.counts.cq_overruns += 1;
            return;
        }
        queue.entries.push_back(entry);
    }
}
