//! A poll thread: owns lanes, finds committed requests, executes them or hands them to workers, and backs off when
//! there is nothing to do.

use super::checkpoint::Hold;
use super::parked::Parked;
use super::queue::{Job, Queue};
use super::watched::{Rounds, Watched};
use crate::fabric::{Fabric, Waker, sleep};
use crate::ids::{ClientId, Incarnation};
use crate::ps::{Handler, HandlerCounts, RowKeys, Scratch, changes_rows};
use crate::rpc::{READY_MAX, Ready, Scanner, ServerLane, take_completions};
use crate::sync::{Arc, AtomicBool, AtomicU64, Mutex, Ordering, lock};
use crate::wire::{Op, RequestHeader};
use core::time::Duration;

/// Where one scanner's lanes put their completions.
#[derive(Debug)]
pub(super) struct Station<F: Fabric> {
    pub(super) send: Arc<F::Cq>,
    pub(super) recv: Arc<F::Cq>,
}

/// What other threads may touch of a poll thread.
#[derive(Debug)]
pub(in crate::engine) struct Mailbox<F: Fabric> {
    /// One per scanner.
    pub(super) stations: Vec<Station<F>>,
    pub(super) waker: Arc<F::Waker>,
    news: AtomicBool,
    inbox: Mutex<Inbox<F>>,
    counters: Counters,
    counts: Mutex<HandlerCounts>,
}

#[derive(Debug)]
struct Inbox<F: Fabric> {
    add: Vec<(usize, Arc<ServerLane<F>>)>,
    drop: Vec<(ClientId, Incarnation)>,
    retire: Vec<(ClientId, Incarnation, u32, u32)>,
    rest: bool,
    stop: bool,
}

#[derive(Debug, Default)]
struct Counters {
    lanes: AtomicU64,
    lane_bytes: AtomicU64,
    slots: AtomicU64,
    rounds: AtomicU64,
    empty: AtomicU64,
    found: AtomicU64,
    sleeps: AtomicU64,
}

/// Numbers of one poll thread.
#[derive(Clone, Copy, Debug, Default)]
pub(in crate::engine) struct PollerStats {
    pub(in crate::engine) lanes: u64,
    pub(in crate::engine) lane_bytes: u64,
    pub(in crate::engine) slots: u64,
    pub(in crate::engine) rounds: u64,
    pub(in crate::engine) empty: u64,
    pub(in crate::engine) found: u64,
    pub(in crate::engine) sleeps: u64,
    pub(in crate::engine) handled: HandlerCounts,
}

impl<F: Fabric> Mailbox<F> {
    pub(super) fn new(stations: Vec<Station<F>>, waker: Arc<F::Waker>) -> Mailbox<F> {
        Mailbox {
            stations,
            waker,
            news: AtomicBool::new(false),
            inbox: Mutex::new(Inbox {
                add: Vec::new(),
                drop: Vec::new(),
                retire: Vec::new(),
                rest: false,
                stop: false,
            }),
            counters: Counters::default(),
            counts: Mutex::new(HandlerCounts::default()),
        }
    }

    fn post(&self, change: impl FnOnce(&mut Inbox<F>)) {
        change(&mut lock(&self.inbox));
        // Release: pairs with the Acquire in `Poller::read_mail`.
        self.news.store(true, Ordering::Release);
        self.waker.notify();
    }

    /// Gives a lane to a scanner of this thread.
    pub(super) fn add(&self, station: usize, lane: Arc<ServerLane<F>>) {
        self.post(|inbox| inbox.add.push((station, lane)));
    }

    /// Takes a connection of one lane away, if it is that one.
    pub(super) fn drop_lane(&self, client: ClientId, incarnation: Incarnation, lane: u32, generation: u32) {
        self.post(|inbox| inbox.retire.push((client, incarnation, lane, generation)));
    }

    /// Takes all lanes of a client's process away.
    pub(super) fn drop_client(&self, client: ClientId, incarnation: Incarnation) {
        self.post(|inbox| inbox.drop.push((client, incarnation)));
    }

    /// Lets the thread rest between two requests while the gate is shut.
    pub(super) fn rest(&self) {
        self.post(|inbox| inbox.rest = true);
    }

    /// Ends the thread after what was committed by then.
    pub(super) fn stop(&self) {
        self.post(|inbox| inbox.stop = true);
    }

    pub(in crate::engine) fn stats(&self) -> PollerStats {
        PollerStats {
            lanes: self.counters.lanes.load(Ordering::Relaxed),
            lane_bytes: self.counters.lane_bytes.load(Ordering::Relaxed),
            slots: self.counters.slots.load(Ordering::Relaxed),
            rounds: self.counters.rounds.load(Ordering::Relaxed),
            empty: self.counters.empty.load(Ordering::Relaxed),
            found: self.counters.found.load(Ordering::Relaxed),
            sleeps: self.counters.sleeps.load(Ordering::Relaxed),
            handled: *lock(&self.counts),
        }
    }
}

/// When an idle thread stops spinning.
#[derive(Clone, Copy, Debug)]
pub(super) struct IdlePolicy {
    pub(super) spins: u32,
    pub(super) yields: u32,
}

/// Where requests go that a poll thread does not execute itself.
#[derive(Debug)]
pub(super) struct Outlets<F: Fabric> {
    /// GETs, when there are workers.
    pub(super) gets: Option<Arc<Queue<F>>>,
    /// Commands, unless this is the only thread.
    pub(super) commands: Option<Arc<Queue<F>>>,
    /// Where the thread rests when it is told to.
    pub(super) hold: Arc<Hold>,
}

impl<F: Fabric> Outlets<F> {
    /// Where this request goes; None: it is executed here.
    #[inline(always)]
    fn of(&self, header: &RequestHeader) -> Option<&Queue<F>> {
        match header.op {
            op if op == Op::Get as u8 => self.gets.as_deref(),
            _ if Handler::is_slow(header) => self.commands.as_deref(),
            _ => None,
        }
    }
}

/// Longest sleep of an idle thread: it looks after lanes whose peers vanished.
const SLEEP: Duration = Duration::from_millis(200);
/// Rounds between two looks at the lanes' queue pairs while busy.
const CARE_EVERY_ROUNDS: u64 = 4096;
/// Rounds after which the counters are made visible.
const PUBLISH_EVERY_ROUNDS: u64 = 1024;
/// The same for the page, where there is one: a thread that is stuck must not have kept much to itself.
const FLUSH_EVERY_ROUNDS: u64 = 16;

/// Rounds without work in which a thread does not even pause: a pause is as long as a cache line takes from core to core,
/// and half of one, on average, would be added to every request of a client that has one at a time. Some tens of
/// microseconds; after that the other hyperthread of the core gets its share.
const EAGER_ROUNDS: u32 = 2048;

/// A poll thread.
#[derive(Debug)]
pub(super) struct Poller<F: Fabric> {
    mailbox: Arc<Mailbox<F>>,
    scanners: Vec<Scanner<F>>,
    handler: Handler,
    scratch: Scratch,
    outlets: Outlets<F>,
    idle: IdlePolicy,
    ready: Vec<Ready>,
    /// Repetitions of requests that other threads are executing, and requests that wait for this thread's pins.
    later: Vec<Job<F>>,
    /// What is under way at the device.
    parked: Parked<F>,
    /// Bytes are moved by a device, and not by plain stores.
    has_device: bool,
    rounds: u64,
    empty: u64,
    /// Requests found.
    found: u64,
    /// Of those, repetitions that had to wait.
    waited: u64,
    /// A busy round whose number has none of these bits is timed; all bits: none is.
    sample_mask: u64,
    /// The same for telling what was counted.
    flush_mask: u64,
    watched: Option<Box<Watched>>,
    idle_rounds: u32,
    /// Rounds left, once told to stop.
    stopping: Option<usize>,
}

impl<F: Fabric> Poller<F> {
    pub(super) fn new(
        mailbox: Arc<Mailbox<F>>,
        handler: Handler,
        mut scratch: Scratch,
        (has_device, rows): (bool, Option<Arc<dyn RowKeys>>),
        outlets: Outlets<F>,
        idle: IdlePolicy,
        watched: Option<Watched>,
    ) -> Poller<F> {
        if let Some(rows) = rows {
            scratch.send_in_place(rows);
        }
        let scanners = mailbox.stations.iter().map(|station| Scanner::new(Arc::clone(&station.recv))).collect();
        Poller {
            mailbox,
            scanners,
            handler,
            scratch,
            outlets,
            idle,
            ready: Vec::with_capacity(READY_MAX),
            later: Vec::new(),
            parked: Parked::new(),
            has_device,
            rounds: 0,
            empty: 0,
            found: 0,
            waited: 0,
            sample_mask: watched.as_ref().map_or(u64::MAX, Watched::sample_mask),
            flush_mask: if watched.is_some() { FLUSH_EVERY_ROUNDS - 1 } else { PUBLISH_EVERY_ROUNDS - 1 },
            watched: watched.map(Box::new),
            idle_rounds: 0,
            stopping: None,
        }
    }

    /// Until told to stop.
    pub(super) fn run(mut self) {
        loop {
            // Relaxed: the Acquire follows in `read_mail`.
            if self.mailbox.news.load(Ordering::Relaxed) {
                self.read_mail();
            }
            let found = self.round(self.stopping.is_some());
            if let Some(rounds) = &mut self.stopping {
                // What callers that never pause commit meanwhile must not hold up the end.
                *rounds = rounds.saturating_sub(1);
                if *rounds == 0 {
                    break;
                }
            }
            if self.rounds & self.flush_mask == 0 {
                self.flush();
            }
            if found {
                self.idle_rounds = 0;
            } else if self.stopping.is_some() {
                break;
            } else {
                self.back_off();
            }
        }
        let stations = &self.mailbox.stations;
        let take = || stations.iter().for_each(|station| take_completions::<F>(&station.send));
        self.parked.end(&self.handler, self.scratch.worker, take);
        self.publish();
        self.scanners.clear();
        self.count_lanes();
    }

    /// One turn of every scanner. True if there was anything to do.
    #[inline]
    fn round(&mut self, every_slot: bool) -> bool {
        self.rounds += 1;
        let mut found = false;
        for index in 0..self.scanners.len() {
            self.ready.clear();
            let scanner = &mut self.scanners[index];
            if every_slot {
                scanner.scan_all(&mut self.ready);
            } else {
                scanner.scan(&mut self.ready);
            }
            if self.ready.is_empty() {
                continue;
            }
            found = true;
            self.found += self.ready.len() as u64;
            if self.rounds & self.sample_mask == 0 {
                self.serve_timed(index);
            } else if self.has_device {
                self.serve_by_device(index, Handler::execute);
            } else {
                self.serve_all(index);
            }
        }
        if self.has_device && !self.parked.is_empty() {
            self.look_at_device();
            found = true;
        }
        if !self.later.is_empty() {
            found |= self.look_again();
        }
        self.empty += u64::from(!found);
        found
    }

    /// Executes what one scanner found, or hands it on.
    #[inline(always)]
    fn serve_all(&mut self, index: usize) {
        let mut done = 0;
        if self.outlets.gets.is_none() {
            done = self.handler.execute_small_gets(&self.scanners[index], &self.ready, &mut self.scratch);
        }
        if done < self.ready.len() {
            self.serve(index, done, Handler::execute);
        }
    }

    /// The same from the request `first` on, each by itself.
    #[inline(always)]
    fn serve(
        &mut self,
        index: usize,
        first: usize,
        mut execute: impl FnMut(&Handler, &ServerLane<F>, u32, &RequestHeader, &mut Scratch) -> bool,
    ) {
        self.fetch(index, first);
        for ready in &self.ready[first..] {
            let (lane, header) = (self.scanners[index].lane(ready.lane), ready.header());
            match self.outlets.of(&header) {
                Some(queue) => queue.push(Job::of(lane, ready)),
                None if execute(&self.handler, lane, ready.slot, &header, &mut self.scratch) => {}
                None => {
                    self.waited += 1;
                    self.later.push(Job::of(lane, ready));
                }
            }
        }
    }

    /// Asks for what answering will touch: first all that comes from clients, then rows.
    #[inline(always)]
    fn fetch(&self, index: usize, first: usize) {
        let ready = &self.ready[first..];
        for ready in ready {
            let header = ready.header();
            let lane = self.scanners[index].lane(ready.lane);
            if header.op == Op::Get as u8 {
                lane.fetch_for_answer(ready.slot, header.response_bytes);
            } else {
                lane.fetch_payload(ready.slot, header.payload_bytes);
                lane.fetch_for_answer(ready.slot, 0);
            }
        }
        if ready.len() > 1 {
            let worker = self.scratch.worker;
            ready.iter().for_each(|ready| self.handler.prefetch(worker, &ready.header()));
        }
    }

    /// The same where a device moves the bytes: a request may wait for it, and writers wait for rows that it still sends.
    #[cold]
    fn serve_by_device(
        &mut self,
        index: usize,
        mut execute: impl FnMut(&Handler, &ServerLane<F>, u32, &RequestHeader, &mut Scratch) -> bool,
    ) {
        self.fetch(index, 0);
        for at in 0..self.ready.len() {
            let ready = self.ready[at];
            let job = Job::of(self.scanners[index].lane(ready.lane), &ready);
            match self.outlets.of(&job.header) {
                Some(queue) => queue.push(job),
                None => self.attempt(job, &mut execute),
            }
        }
    }

    /// Executes a request, or keeps it.
    fn attempt(
        &mut self,
        job: Job<F>,
        execute: &mut impl FnMut(&Handler, &ServerLane<F>, u32, &RequestHeader, &mut Scratch) -> bool,
    ) {
        if self.parked.has_pins() && changes_rows(&job.header) {
            self.waited += 1;
            self.later.push(job);
            return;
        }
        self.scratch.hold_back(!self.later.is_empty() || self.parked.wants_no_pins());
        let done = execute(&self.handler, &job.lane, job.slot, &job.header, &mut self.scratch);
        if let Some(sending) = self.scratch.take_sending() {
            self.parked.send(&job.lane, sending);
        }
        if !done {
            match self.scratch.take_fetching() {
                Some(fetching) => self.parked.fetch(job, fetching),
                None => {
                    self.waited += 1;
                    self.later.push(job);
                }
            }
        }
    }

    /// Ends what the device has ended.
    #[cold]
    fn look_at_device(&mut self) {
        self.mailbox.stations.iter().for_each(|station| take_completions::<F>(&station.send));
        self.parked.turn(&self.handler, &mut self.scratch);
    }

    /// The same with the clock.
    #[cold]
    fn serve_timed(&mut self, index: usize) {
        let Some(mut watched) = self.watched.take() else { return self.serve(index, 0, Handler::execute) };
        watched.found(self.ready.len());
        let timed = |handler: &Handler, lane: &ServerLane<F>, slot, header: &RequestHeader, scratch: &mut Scratch| {
            watched.execute(handler, lane, slot, header, scratch)
        };
        if self.has_device {
            self.serve_by_device(index, timed);
        } else {
            self.serve(index, 0, timed);
        }
        self.watched = Some(watched);
    }

    /// Tells what was counted, and looks after the lanes from time to time.
    #[cold]
    fn flush(&mut self) {
        if let Some(watched) = &mut self.watched {
            let looks = self.scanners.iter().map(|scanner| scanner.looks(FLUSH_EVERY_ROUNDS)).sum();
            watched.looked(looks);
            self.store_counts();
        }
        if self.rounds.is_multiple_of(PUBLISH_EVERY_ROUNDS) {
            self.publish();
            if self.rounds.is_multiple_of(CARE_EVERY_ROUNDS) {
                self.drop_unusable();
            }
        }
    }

    fn store_counts(&mut self) {
        let (rounds, empty, found, waited) = (self.rounds, self.empty, self.found, self.waited);
        if let Some(watched) = &mut self.watched {
            watched.store(&self.scratch.counts, Rounds { rounds, empty, found, waited });
        }
    }

    /// Hands repetitions in again. Each slot has one at most, so there are never many. True: there are some.
    #[cold]
    fn look_again(&mut self) -> bool {
        let waited = self.waited;
        for job in core::mem::take(&mut self.later).into_iter().filter(|job| job.lane.is_usable()) {
            self.attempt(job, &mut Handler::execute);
        }
        self.waited = waited;
        true
    }

    #[inline]
    fn back_off(&mut self) {
        self.idle_rounds = self.idle_rounds.saturating_add(1);
        if self.idle_rounds <= self.idle.spins {
            if self.idle_rounds > EAGER_ROUNDS {
                core::hint::spin_loop();
            }
        } else if self.idle_rounds <= self.idle.spins.saturating_add(self.idle.yields) {
            std::thread::yield_now();
        } else {
            self.sleep();
        }
    }

    /// Sleeps until rung: armed, looked once more, asleep. What is found on the way is not lost.
    #[cold]
    fn sleep(&mut self) {
        self.drop_unusable();
        self.publish();
        let waker = Arc::clone(&self.mailbox.waker);
        waker.arm();
        if !self.mailbox.news.load(Ordering::Relaxed) && !self.round(true) {
            self.mailbox.counters.sleeps.fetch_add(1, Ordering::Relaxed);
            sleep(&*waker, SLEEP, || self.mailbox.news.load(Ordering::Relaxed) || self.round(true));
            if let Some(watched) = &mut self.watched {
                watched.slept();
            }
        }
        waker.disarm();
        // After a ring there is work: spin again. After a mere timeout, one more round and back to sleep.
        self.idle_rounds = if self.round(true) { 0 } else { self.idle.spins.saturating_add(self.idle.yields) };
    }

    #[cold]
    fn read_mail(&mut self) {
        // Acquire: pairs with the Release in `Mailbox::post`.
        if !self.mailbox.news.swap(false, Ordering::Acquire) {
            return;
        }
        let (stop, rest);
        let (add, drop, retire) = {
            let mut inbox = lock(&self.mailbox.inbox);
            (stop, rest) = (inbox.stop, inbox.rest);
            let inbox = &mut *inbox;
            inbox.rest = false;
            (core::mem::take(&mut inbox.add), core::mem::take(&mut inbox.drop), core::mem::take(&mut inbox.retire))
        };
        for (station, lane) in add {
            let parts = lane.parts();
            // A rebuilt lane takes the place of its former connection.
            self.retain(|old| {
                let old = old.parts();
                (old.client, old.incarnation, old.lane) != (parts.client, parts.incarnation, parts.lane)
            });
            if let Some(scanner) = self.scanners.get_mut(station) {
                scanner.add(lane);
            }
        }
        if !retire.is_empty() {
            self.retain(|lane| {
                let p = lane.parts();
                !retire.contains(&(p.client, p.incarnation, p.lane, p.generation))
            });
        }
        if !drop.is_empty() {
            self.retain(|lane| !drop.contains(&(lane.parts().client, lane.parts().incarnation)));
        }
        if stop && self.stopping.is_none() {
            // Enough for every request that is committed now.
            let slots = self.scanners.iter().map(Scanner::slot_count).max().unwrap_or(0);
            self.stopping = Some(slots / READY_MAX + 2);
        }
        self.count_lanes();
        self.publish();
        if rest {
            self.outlets.hold.rest();
        }
    }

    #[cold]
    fn drop_unusable(&mut self) {
        // A device tells of a broken connection by completions only.
        self.mailbox.stations.iter().for_each(|station| take_completions::<F>(&station.send));
        self.retain(|lane| lane.is_usable());
    }

    fn retain(&mut self, keep: impl Fn(&ServerLane<F>) -> bool) {
        let mut dropped = 0;
        for scanner in &mut self.scanners {
            dropped += scanner.retain(|lane| {
                let kept = keep(lane);
                if !kept {
                    lane.fail();
                }
                kept
            });
        }
        if dropped > 0 {
            crate::event!(crate::observe::Level::INFO, crate::observe::events::LANES_DROPPED, lanes = dropped);
            self.count_lanes();
        }
    }

    fn count_lanes(&self) {
        let counters = &self.mailbox.counters;
        let lanes = || self.scanners.iter().flat_map(Scanner::lanes);
        counters.lanes.store(lanes().count() as u64, Ordering::Relaxed);
        let slots: usize = self.scanners.iter().map(Scanner::slot_count).sum();
        counters.slots.store(slots as u64, Ordering::Relaxed);
        counters.lane_bytes.store(lanes().map(|lane| lane.registered_bytes() as u64).sum(), Ordering::Relaxed);
    }

    fn publish(&mut self) {
        if let Some(watched) = &mut self.watched {
            watched.spent();
        }
        self.store_counts();
        let counters = &self.mailbox.counters;
        counters.rounds.store(self.rounds, Ordering::Relaxed);
        counters.empty.store(self.empty, Ordering::Relaxed);
        counters.found.store(self.found, Ordering::Relaxed);
        *lock(&self.mailbox.counts) = self.scratch.counts;
    }
}
