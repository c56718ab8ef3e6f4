//! A rank over one fabric: joins, hears, closes.

use super::admit::Guest;
use super::board::Other;
use super::checkpoint::{self, Desk, Entry, Saved, Section};
use super::numbers::RankSource;
use crate::control::{ControlClient, ControlPlane, Event, Member, Peer, Role, Thresholds};
use crate::engine::client::checkpoint::Notes;
use crate::engine::metrics::figures::figures;
use crate::engine::metrics::{Keeper, Source, is_counting};
use crate::engine::server::checkpoint::{Lead, Post};
use crate::engine::{fresh_incarnation, host_name, identity};
use crate::error::{Error, Result, Status};
use crate::fabric::{Access, Fabric, Qp, Region, Waker};
use crate::ids::{Epoch, Incarnation, ShardId};
use crate::memory::{Dedupe, Gate, HoldId, Home, Mailbox, RegionFacts};
use crate::options::Settings;
use crate::sync::{Arc, AtomicBool, AtomicU64, Condvar, Mutex, Ordering, lock};
use crate::thread::start;
use crate::time::{Tick, now};
use core::time::Duration;
use std::collections::{BTreeMap, BTreeSet};
use std::thread::JoinHandle;

/// How long a peer may take to map a new region.
const EXPOSE_TIMEOUT: Duration = Duration::from_secs(5);
/// How long the rank that hosts the control plane stays for the others to leave before it.
const LAST_TIMEOUT: Duration = Duration::from_secs(5);
/// How long a leaving rank tries to tell the others.
const DRAINING_TIMEOUT: Duration = Duration::from_secs(1);
/// The event thread looks up this often.
const LISTEN: Duration = Duration::from_millis(500);
/// How long it may take to tell the control plane this rank's numbers.
const REPORT_TIMEOUT: Duration = Duration::from_millis(500);
/// Completions of queue pairs that only receive writes: none.
pub(super) const GUEST_CQ_DEPTH: u32 = 16;

type Mailboxes<F> = Vec<Arc<Mutex<Mailbox<F>>>>;

/// What the threads of a rank share.
#[derive(Debug)]
pub(super) struct Shared<F: Fabric> {
    pub(super) rank: u32,
    pub(super) incarnation: Incarnation,
    pub(super) epoch: Epoch,
    pub(super) settings: Settings,
    /// Places of each lane's log.
    pub(super) places: usize,
    /// The fabric reaches any local memory.
    pub(super) load_store: bool,
    pub(super) gate: Gate,
    /// Never closed: for what a closed gate waits for.
    pub(super) open: Gate,
    pub(super) others: Vec<Other<F>>,
    pub(super) guests: Mutex<Vec<Guest<F>>>,
    /// None while this rank is suspended.
    pub(super) guest_cq: Mutex<Option<Arc<F::Cq>>>,
    pub(super) mailboxes: Mutex<Mailboxes<F>>,
    pub(super) dedupe: Mutex<Dedupe>,
    /// As above.
    pub(super) waker: Mutex<Option<Arc<F::Waker>>>,
    pub(super) server: Mutex<Option<JoinHandle<()>>>,
    /// What was heard of checkpoints.
    pub(super) notes: Arc<Notes>,
    pub(super) desk: Desk,
    /// Epoch of the checkpoint that this rank started from; 0: none.
    pub(super) restored: u64,
    /// Regions of that checkpoint that the program has not opened yet, and its sections.
    pub(super) unclaimed: Mutex<BTreeMap<u32, F::Region>>,
    pub(super) sections: Mutex<Vec<Section>>,
    present: Mutex<BTreeSet<u32>>,
    left: Condvar,
    /// Nothing new begins.
    pub(super) closing: AtomicBool,
    /// Atomics that were executed once for peers.
    pub(super) served: AtomicU64,
    /// The control plane is gone for now.
    pub(super) plane_lost: AtomicBool,
    /// The threads end.
    pub(super) ended: AtomicBool,
    /// The device was given back: nothing can be connected or let in.
    pub(super) asleep: AtomicBool,
    /// What holds the gate while this rank is suspended.
    pub(super) slept: Mutex<Option<HoldId>>,
    /// The thread that executes atomics ends; another one is started when it is needed.
    pub(super) rest: AtomicBool,
    pub(super) home: Home<F>,
    /// Last, so that lanes go before the fabric that made them.
    pub(super) fabric: F,
}

#[derive(Debug)]
struct Session {
    control: Arc<ControlClient>,
    events: JoinHandle<()>,
    post: Post,
    checkpoints: Vec<JoinHandle<()>>,
}

impl<F: Fabric> Shared<F> {
    fn new(
        fabric: F,
        settings: Settings,
        (incarnation, epoch): (Incarnation, Epoch),
        restored: u64,
    ) -> Result<Shared<F>> {
        // Each operation takes at most two places of the send queue: itself and a mark.
        let half = (settings.max_send_wr as usize / 2).max(2);
        let places = if half.is_power_of_two() { half } else { half.next_power_of_two() / 2 };
        Ok(Shared {
            rank: settings.shard_id,
            incarnation,
            epoch,
            places,
            load_store: fabric.capabilities().load_store,
            gate: Gate::default(),
            open: Gate::default(),
            others: (0..settings.num_shards).map(|number| Other::new(number, places)).collect(),
            guests: Mutex::default(),
            guest_cq: Mutex::new(Some(fabric.create_cq(GUEST_CQ_DEPTH)?)),
            mailboxes: Mutex::default(),
            dedupe: Mutex::default(),
            waker: Mutex::new(Some(fabric.create_waker()?)),
            asleep: AtomicBool::new(false),
            slept: Mutex::default(),
            rest: AtomicBool::new(false),
            server: Mutex::default(),
            notes: Arc::default(),
            desk: Desk::default(),
            restored,
            unclaimed: Mutex::default(),
            sections: Mutex::default(),
            present: Mutex::default(),
            left: Condvar::new(),
            closing: AtomicBool::new(false),
            served: AtomicU64::new(0),
            plane_lost: AtomicBool::new(false),
            ended: AtomicBool::new(false),
            home: Home::new(&fabric, incarnation, epoch)?,
            settings,
            fabric,
        })
    }
}

impl<F: Fabric> Shared<F> {
    /// Peers that are here.
    pub(super) fn present(&self) -> usize {
        lock(&self.present).len()
    }
}

/// A rank.
#[derive(Debug)]
pub(super) struct Core<F: Fabric> {
    pub(super) shared: Arc<Shared<F>>,
    session: Mutex<Option<Session>>,
    plane: Mutex<Option<ControlPlane>>,
    plane_port: u16,
    numbers: Arc<RankSource<F>>,
    /// Only where numbers are asked for; gone after the end.
    keeper: Mutex<Option<Keeper>>,
}

impl<F: Fabric> Core<F> {
    pub(super) fn open(fabric: F, settings: &Settings) -> Result<Core<F>> {
        let mut settings = settings.clone();
        let (rank, ranks) = (settings.shard_id, settings.num_shards);
        let mut identity = identity(&settings)?;
        // Shards and clients of a parameter server are refused, with this line named.
        identity.layout.push_str("members=ranks\n");
        let entry = if rank == 0 { checkpoint::begin(&settings)? } else { None };
        let saved = looked_at(entry.as_ref(), rank)?;
        if let Some(entry) = &entry {
            identity.epoch = entry.epoch(identity.epoch);
        }
        let plane = if rank == 0 {
            let thresholds = Thresholds {
                stale: Duration::from_millis(settings.health_stale_ms),
                dead: Duration::from_millis(settings.health_dead_ms),
            };
            let (host, port) = (&settings.control_plane_host, settings.control_plane_port);
            Some(ControlPlane::serve_watching(host, port, &identity, thresholds)?)
        } else {
            None
        };
        settings.control_plane_port = plane.as_ref().map_or(settings.control_plane_port, ControlPlane::port);
        let deadline = now().after(Duration::from_millis(settings.control_plane_timeout_ms));
        let incarnation = fresh_incarnation()?;
        let member =
            Member { role: Role::Server(ShardId(rank)), incarnation, pid: std::process::id(), host: host_name() };
        let (control, entry) = checkpoint::join(&settings, &mut identity, &member, deadline, entry)?;
        let saved = if rank == 0 { saved } else { looked_at(entry.as_ref(), rank)? };
        let control = Arc::new(control);
        let restored = entry.as_ref().map_or(0, |entry| entry.world.restored);
        let shared = Arc::new(Shared::new(fabric, settings, (incarnation, identity.epoch), restored)?);
        saved.map_or(Ok(()), |saved| shared.fill(saved))?;
        entry.as_ref().map_or(Ok(()), |entry| entry.take_seat(rank))?;
        let numbers = Arc::new(RankSource::new(&shared)?);
        let session = run(&shared, &control, entry, &numbers)?;
        let plane_port = shared.settings.control_plane_port;
        let core = Core {
            shared,
            session: Mutex::new(Some(session)),
            plane: Mutex::new(plane),
            plane_port,
            numbers,
            keeper: Mutex::new(None),
        };
        if is_counting(&core.shared.settings) {
            let source = Arc::clone(&core.numbers) as Arc<dyn Source>;
            *lock(&core.keeper) = Some(Keeper::start(&core.shared.settings, source)?);
        }
        control.ready()?;
        control.beat_every(Duration::from_millis(core.shared.settings.heartbeat_interval_ms));
        crate::event!(
            crate::observe::Level::INFO,
            crate::observe::events::RANK_READY,
            rank,
            ranks,
            fabric = F::NAME,
            control_plane_port = plane_port
        );
        Ok(core)
    }

    pub(super) fn plane_port(&self) -> u16 {
        self.plane_port
    }

    pub(super) fn numbers(&self) -> &dyn Source {
        &*self.numbers
    }

    pub(super) fn metrics_port(&self) -> Option<u16> {
        lock(&self.keeper).as_ref().and_then(Keeper::port)
    }

    /// The session with the control plane, while the rank is open.
    pub(super) fn control(&self) -> Result<Arc<ControlClient>> {
        let session = lock(&self.session);
        session.as_ref().map(|session| Arc::clone(&session.control)).ok_or_else(closed)
    }

    /// How letters about checkpoints are sent, while the rank is open.
    pub(super) fn letters(&self) -> Option<Post> {
        lock(&self.session).as_ref().map(|session| session.post.clone())
    }

    pub(super) fn barrier(&self, name: &str, timeout: Duration) -> Result<()> {
        let ranks = u32::try_from(self.shared.others.len()).unwrap_or(u32::MAX);
        self.control()?.barrier(name, ranks, timeout)
    }

    pub(super) fn open_region(&self, id: u32, bytes: usize, access: Access) -> Result<F::Region> {
        let shared = &self.shared;
        if let Some(memory) = self.claim(id, bytes, access)? {
            return Ok(memory);
        }
        let control = self.control()?;
        let memory = shared.home.open(&shared.fabric, id, bytes, access)?;
        let told = self.show(&control, id, &memory);
        if let Err(error) = told {
            self.close_region(id);
            return Err(error);
        }
        Ok(memory)
    }

    /// A region that came back from a checkpoint.
    fn claim(&self, id: u32, bytes: usize, access: Access) -> Result<Option<F::Region>> {
        let mut unclaimed = lock(&self.shared.unclaimed);
        let Some(memory) = unclaimed.get(&id) else { return Ok(None) };
        let rights = memory.address().access;
        if memory.bytes() != bytes || rights != access {
            let message = format!(
                "region {id} came back from checkpoint {} with {} bytes and rights {:#x}; it cannot be opened with {bytes} \
                 bytes and rights {:#x}",
                self.shared.restored,
                memory.bytes(),
                rights.0,
                access.0
            );
            return Err(Error::new(Status::InvalidArgument, message));
        }
        Ok(unclaimed.remove(&id))
    }

    /// Lets all peers that have lanes reach a new region, then tells them of it.
    fn show(&self, control: &ControlClient, id: u32, memory: &F::Region) -> Result<()> {
        for (peer, qp) in self.shared.data_guests() {
            let exposed = qp.expose(memory, EXPOSE_TIMEOUT);
            // A peer that is gone, or goes meanwhile, does not keep the others from it.
            if let Err(error) = exposed
                && qp.state() == crate::fabric::QpState::Rts
            {
                return Err(error.at_shard(peer));
            }
        }
        self.shared.home.publish(id);
        self.shared.publish_regions(control, self.call_timeout())
    }

    pub(super) fn close_region(&self, id: u32) {
        let Some(memory) = self.shared.home.close(id) else { return };
        if let Ok(control) = self.control() {
            // Peers that are not told find out when they use it.
            let _ = self.shared.publish_regions(&control, self.call_timeout());
        }
        self.shared.data_guests().iter().for_each(|(_, qp)| qp.unexpose(&memory));
    }

    fn call_timeout(&self) -> Duration {
        Duration::from_millis(self.shared.settings.control_plane_timeout_ms)
    }

    pub(super) fn regions(&self) -> Vec<RegionFacts> {
        self.shared.home.facts()
    }

    pub(super) fn end(&self) {
        let Some(Session { control, events, post, checkpoints }) = lock(&self.session).take() else { return };
        drop(lock(&self.keeper).take());
        let shared = &self.shared;
        shared.closing.store(true, Ordering::Relaxed);
        // So that the others do not ask this rank for lanes any more. They see it leave in any case.
        let _ = control.draining(DRAINING_TIMEOUT);
        for other in &shared.others {
            // With the lock, so that no waiter is between its look at the flag and its sleep.
            drop(other.words());
            other.changed.notify_all();
            other.data.cut("this rank was closed", false);
            other.cells.cut("this rank was closed", false);
            shared.dismiss(other.number, None);
        }
        shared.notes.leader_lost("this rank");
        post.close();
        for thread in checkpoints {
            // A panic of a thread was reported by its own hook; there is nothing left to save here.
            let _ = thread.join();
        }
        drop(post);
        let plane = lock(&self.plane).take();
        if plane.is_some() {
            self.stay_last(now().after(LAST_TIMEOUT));
        }
        shared.ended.store(true, Ordering::Relaxed);
        control.wake();
        let waker = lock(&shared.waker).clone();
        waker.iter().for_each(|waker| waker.notify());
        drop(waker);
        // As above.
        let _ = events.join();
        let server = lock(&shared.server).take();
        if let Some(server) = server {
            let _ = server.join();
        }
        // Whoever was being let in meanwhile.
        shared.others.iter().for_each(|other| shared.dismiss(other.number, None));
        if let Some(control) = Arc::into_inner(control) {
            control.leave();
        }
        if let Some(plane) = plane {
            plane.stop();
        }
        crate::event!(crate::observe::Level::INFO, crate::observe::events::SHUTDOWN, rank = shared.rank);
    }

    /// The others' last words (the answers to their barriers among them) go through the control plane of this rank.
    fn stay_last(&self, until: Tick) {
        let mut present = lock(&self.shared.present);
        while !present.is_empty() && until > now() {
            let waited = self.shared.left.wait_timeout(present, until.remaining());
            present = waited.unwrap_or_else(std::sync::PoisonError::into_inner).0;
        }
    }
}

impl<F: Fabric> Drop for Core<F> {
    fn drop(&mut self) {
        self.end();
    }
}

#[cold]
pub(super) fn closed() -> Box<Error> {
    Error::new(Status::Closed, "this rank was closed")
}

/// What this rank gets back, judged before anything is made.
fn looked_at(entry: Option<&Entry>, rank: u32) -> Result<Option<Saved>> {
    entry.map_or(Ok(None), |entry| checkpoint::look(entry, rank))
}

/// Starts the rank's threads.
fn run<F: Fabric>(
    shared: &Arc<Shared<F>>,
    control: &Arc<ControlClient>,
    entry: Option<Entry>,
    numbers: &Arc<RankSource<F>>,
) -> Result<Session> {
    let post = Post::new(&shared.settings, control).with_notes(Arc::clone(&shared.notes));
    let mut checkpoints = Vec::new();
    if let Some(member) = checkpoint::Member::new(shared, post.clone()) {
        checkpoints.push(start("reclane-ckpt", move || member.run())?);
    }
    if let Some(Entry { world, damaged, .. }) = entry
        && let Some(lead) = Lead::new(&shared.settings, shared.incarnation, post.clone(), damaged, Arc::default())
    {
        let lead = lead.of_ranks(world.number);
        checkpoints.push(start("reclane-ckpt-lead", move || lead.run())?);
    }
    let (heard, speaker, letters, told) = (Arc::clone(shared), Arc::clone(control), post.clone(), Arc::clone(numbers));
    let events = start("reclane-events", move || listen(&heard, &speaker, &letters, &*told))?;
    Ok(Session { control: Arc::clone(control), events, post, checkpoints })
}

/// Hears the control plane until the rank closes.
fn listen<F: Fabric>(shared: &Arc<Shared<F>>, control: &Arc<ControlClient>, post: &Post, numbers: &dyn Source) {
    let mut admissions: Vec<JoinHandle<()>> = Vec::new();
    while !shared.ended.load(Ordering::Relaxed) {
        admissions.retain(|thread| !thread.is_finished());
        match control.next_event(LISTEN) {
            Some(Event::LanesPublished { from: Peer::Server(from), .. }) => {
                if let Some(thread) = knock(shared, control, from.0) {
                    admissions.push(thread);
                }
            }
            Some(Event::MemberLeft { peer: Peer::Server(peer), incarnation, died }) => {
                let Some(other) = shared.others.get(peer.0 as usize) else { continue };
                crate::event!(
                    crate::observe::Level::WARN,
                    crate::observe::events::RANK_LOST,
                    rank = shared.rank,
                    peer = peer.0,
                    died
                );
                shared.lose(other, incarnation, died);
                post.left(peer);
                lock(&shared.present).remove(&peer.0);
                shared.left.notify_all();
            }
            Some(Event::ServerReady(peer)) => {
                let Some(other) = shared.others.get(peer.0 as usize) else { continue };
                shared.arrived(other);
                if peer.0 != shared.rank {
                    lock(&shared.present).insert(peer.0);
                }
            }
            Some(Event::ServerDraining(peer)) => {
                let Some(other) = shared.others.get(peer.0 as usize) else { continue };
                // Its lanes end by themselves; new ones are not to be had.
                other.words().gone.get_or_insert_with(|| "it is leaving".to_owned());
                other.changed.notify_all();
            }
            Some(Event::Mail { from, body, .. }) => post.deliver(from, &body),
            // Whoever waits in a checkpoint goes on: rank 0, which leads, is gone with its control plane.
            Some(Event::ControlPlaneLost) => {
                shared.plane_lost.store(true, Ordering::Relaxed);
                shared.notes.leader_lost("rank 0");
                post.leader_lost();
            }
            Some(Event::ControlPlaneBack) => shared.plane_lost.store(false, Ordering::Relaxed),
            // The answer is a courtesy to people who look: one that does not arrive is asked for again.
            Some(Event::ReportWanted) => drop(control.report(&figures(numbers), REPORT_TIMEOUT)),
            Some(_) | None => {}
        }
    }
    for thread in admissions {
        // As above.
        let _ = thread.join();
    }
}

/// Reads a peer's news on a thread of its own, so that a stopped peer holds up nobody.
fn knock<F: Fabric>(shared: &Arc<Shared<F>>, control: &Arc<ControlClient>, from: u32) -> Option<JoinHandle<()>> {
    let other = shared.others.get(from as usize)?;
    {
        let mut words = other.words();
        if words.working {
            words.again = true;
            return None;
        }
        words.working = true;
    }
    let (host, speaker) = (Arc::clone(shared), Arc::clone(control));
    let thread = start("reclane-admit", move || {
        if let Some(other) = host.others.get(from as usize) {
            host.attend(&speaker, other);
        }
    });
    thread
        .inspect_err(|error| {
            other.words().working = false;
            crate::event!(
                crate::observe::Level::ERROR,
                crate::observe::events::RANK_NOT_ADMITTED,
                rank = shared.rank,
                peer = from,
                error = %error
            );
        })
        .ok()
}
