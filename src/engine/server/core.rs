//! A shard over one fabric.

use super::ServerStats;
use super::checkpoint::{self, Hold, Lead, Post, SavedWindow, Tally, restore};
use super::guests::Guests;
use super::listen::listen;
use super::poller::{IdlePolicy, Mailbox, Outlets, Poller, Station};
use super::queue::{Job, Queue};
use super::registered::Registered;
use super::watched::{Watch, Watched};
use crate::control::{ControlClient, ControlPlane, Identity, Member, Role, Thresholds};
use crate::engine::connect::{EndOf, expect};
use crate::engine::metrics::server::{ServerPage, ServerSource};
use crate::engine::metrics::{Keeper, Source, is_counting};
use crate::engine::state::HostState;
use crate::engine::{fresh_incarnation, host_name, identity};
use crate::error::{Error, Result, Status};
use crate::fabric::Fabric;
use crate::ids::{ClientId, Incarnation, ShardId};
use crate::options::{CheckpointSurvivors, Settings, SharedReads};
use crate::ps::table::{SharedRows, not_shared};
use crate::ps::{Handler, HandlerCounts, Scratch, Store};
use crate::rpc::Window;
use crate::sync::{Arc, AtomicBool, Mutex, OnceLock, Ordering, lock};
use crate::thread::start;
use crate::time::{Tick, now, pause};
use core::time::Duration;
use std::collections::BTreeSet;
use std::thread::JoinHandle;

/// How long a stopping shard tries to tell the others: they see it leave in any case.
const DRAINING_TIMEOUT: Duration = Duration::from_secs(1);
/// Why a shard could not stop in time.
const HANDLER_BUSY: &str = "a handler has not returned yet; call stop again";
const GUEST_BUSY: &str = "the thread that lets clients in has not ended yet; call stop again";
const CHECKPOINT_BUSY: &str = "a checkpoint is being written; call stop again";
/// Between two looks at threads that are asked to end.
const STOP_LOOK: Duration = Duration::from_millis(1);
/// The goodbye may take this long, also when the time is over.
const GOODBYE_TIMEOUT_MIN: Duration = Duration::from_millis(100);

/// What the threads of a shard share.
#[derive(Debug)]
pub(in crate::engine) struct Shared<F: Fabric> {
    pub(in crate::engine) mailboxes: Vec<Arc<Mailbox<F>>>,
    pub(in crate::engine) settings: Settings,
    pub(super) incarnation: Incarnation,
    pub(in crate::engine) guests: Guests<F>,
    pub(in crate::engine) worker_counts: Vec<Mutex<HandlerCounts>>,
    pub(super) closing: AtomicBool,
    /// Where threads rest while a checkpoint is cut.
    pub(super) hold: Arc<Hold>,
    /// State of the host program that goes with checkpoints.
    pub(super) state: Option<Arc<dyn HostState>>,
    /// What is counted of checkpoints.
    pub(in crate::engine) checkpoints: Arc<Tally>,
    /// Requests on their way to workers; none where there are no workers.
    pub(in crate::engine) queues: OnceLock<Vec<Arc<Queue<F>>>>,
    /// The checkpoint that this shard started from; 0: none.
    pub(super) restored: u64,
    /// Shard 0's word on what is restored, which this shard has started by, is still among the events.
    pub(super) told: AtomicBool,
    /// The deployment was restored while this shard ran on: it is of a world that is undone.
    pub(super) superseded: AtomicBool,
    /// The control plane is gone for now.
    pub(in crate::engine) plane_lost: AtomicBool,
    /// The built-in store's rows, where clients may read them.
    pub(super) rows: Option<F::Region>,
    pub(super) shown: Option<Arc<SharedRows>>,
    /// Last, so that lanes go before the fabric that made them.
    pub(super) fabric: F,
}

impl<F: Fabric> Shared<F> {
    /// What all threads have done, as far as they have said.
    pub(super) fn counts(&self) -> HandlerCounts {
        let mut sum = HandlerCounts::default();
        self.mailboxes.iter().for_each(|mailbox| sum.add(&mailbox.stats().handled));
        self.worker_counts.iter().for_each(|counts| sum.add(&lock(counts)));
        sum
    }

    /// The poll thread and scanner that own a lane: neighbouring lanes go to different threads.
    pub(super) fn home(&self, client: ClientId, lane: u32) -> (usize, usize) {
        let threads = self.mailboxes.len();
        let place = lane as usize + client.0 as usize;
        let thread = place % threads;
        (thread, (place / threads) % self.mailboxes[thread].stations.len())
    }
}

#[derive(Debug)]
struct Running<F: Fabric> {
    pollers: Vec<JoinHandle<()>>,
    workers: Vec<JoinHandle<()>>,
    queues: Vec<Arc<Queue<F>>>,
    events: Option<JoinHandle<()>>,
    /// The threads that take checkpoints.
    checkpoints: Vec<JoinHandle<()>>,
    post: Post,
    control: Arc<ControlClient>,
    draining: bool,
}

/// A running shard.
#[derive(Debug)]
pub(super) struct Core<F: Fabric> {
    running: Mutex<Option<Running<F>>>,
    shared: Arc<Shared<F>>,
    plane: Mutex<Option<ControlPlane>>,
    plane_port: Option<u16>,
    numbers: Arc<ServerSource<F>>,
    /// Only where requests are counted; gone after the stop.
    keeper: Mutex<Option<Keeper>>,
}

impl<F: Fabric> Core<F> {
    pub(super) fn start(
        fabric: F,
        settings: &Settings,
        store: Arc<dyn Store>,
        state: Option<Arc<dyn HostState>>,
    ) -> Result<Core<F>> {
        crate::engine::connect::scheme(&fabric, settings)?;
        let mut settings = settings.clone();
        let identity = identity(&settings)?;
        let plane = if settings.shard_id == 0 {
            let (host, port) = (&settings.control_plane_host, settings.control_plane_port);
            Some(ControlPlane::serve_watching(host, port, &identity, thresholds(&settings))?)
        } else {
            None
        };
        let plane_port = plane.as_ref().map(ControlPlane::port);
        settings.control_plane_port = plane_port.unwrap_or(settings.control_plane_port);
        let deadline = now().after(Duration::from_millis(settings.control_plane_timeout_ms));
        let incarnation = fresh_incarnation()?;
        let control = Arc::new(join(&settings, &identity, incarnation, deadline)?);
        // Clients connect at least these, whatever they use later.
        expect(&fabric, &settings, EndOf::Server, settings.num_client_processes, settings.lanes_at_open());
        let restored = restore(&settings, &control, &*store, state.as_deref())?;
        let guests = guests(&settings, restored.windows)?;
        let shown = store.as_builtin().and_then(|store| store.shared().cloned());
        let shared = Arc::new(Shared {
            mailboxes: mailboxes(&fabric, &settings)?,
            incarnation,
            guests,
            hold: Arc::default(),
            state,
            checkpoints: Arc::default(),
            queues: OnceLock::new(),
            restored: restored.epoch,
            told: AtomicBool::new(settings.shard_id != checkpoint::LEADER.0),
            superseded: AtomicBool::new(false),
            worker_counts: (0..=settings.get_workers).map(|_| Mutex::default()).collect(),
            closing: AtomicBool::new(false),
            plane_lost: AtomicBool::new(false),
            rows: lend(&fabric, &settings, shown.as_ref()),
            shown,
            settings,
            fabric,
        });
        let threads = shared.mailboxes.len() + shared.worker_counts.len();
        let page = ServerPage::make(&shared.settings, incarnation, F::NAME, threads)?;
        let watch = page.watch.clone();
        let numbers = Arc::new(page.of(Arc::clone(&shared)));
        let running = run(&shared, &store, &control, restored.damaged, (watch.as_ref(), &numbers))?;
        let (running, plane, keeper) = (Mutex::new(Some(running)), Mutex::new(plane), Mutex::new(None));
        let core = Core { running, shared, plane, plane_port, numbers, keeper };
        if is_counting(&core.shared.settings) {
            let source = Arc::clone(&core.numbers) as Arc<dyn Source>;
            *lock(&core.keeper) = Some(Keeper::start(&core.shared.settings, source)?);
        }
        control.ready()?;
        control.beat_every(Duration::from_millis(core.shared.settings.heartbeat_interval_ms));
        drop(control);
        let settings = &core.shared.settings;
        crate::event!(
            crate::observe::Level::INFO,
            crate::observe::events::SERVER_READY_PUBLISHED,
            shard = settings.shard_id,
            shards = settings.num_shards,
            fabric = F::NAME,
            threads = settings.server_threads,
            control_plane_port = settings.control_plane_port,
        );
        Ok(core)
    }

    pub(super) fn control_plane_port(&self) -> Option<u16> {
        self.plane_port
    }

    pub(super) fn numbers(&self) -> &dyn Source {
        &*self.numbers
    }

    pub(super) fn metrics_port(&self) -> Option<u16> {
        lock(&self.keeper).as_ref().and_then(Keeper::port)
    }

    pub(super) fn stats(&self) -> ServerStats {
        let mut stats = ServerStats::default();
        for mailbox in &self.shared.mailboxes {
            let one = mailbox.stats();
            stats.lanes += one.lanes;
            stats.lane_bytes += one.lane_bytes;
            stats.scan_rounds += one.rounds;
            stats.empty_scan_rounds += one.empty;
            stats.sleeps += one.sleeps;
            stats.handled.add(&one.handled);
        }
        for counts in &self.shared.worker_counts {
            stats.handled.add(&lock(counts));
        }
        stats
    }

    pub(super) fn stop(&self, timeout: Duration) -> Result<()> {
        let mut guard = lock(&self.running);
        let Some(running) = guard.as_mut() else {
            return Ok(());
        };
        let deadline = now().after(timeout);
        if !running.draining {
            running.draining = true;
            if !self.shared.plane_lost.load(Ordering::Relaxed)
                && let Err(error) = running.control.draining(timeout.min(DRAINING_TIMEOUT))
            {
                crate::event!(crate::observe::Level::WARN, crate::observe::events::DRAINING_NOT_PUBLISHED, error = %error);
            }
        }
        self.shared.closing.store(true, Ordering::Relaxed);
        running.control.wake();
        self.shared.mailboxes.iter().for_each(|mailbox| mailbox.stop());
        self.shared.hold.end();
        running.post.close();
        wait_for(&running.pollers, deadline, HANDLER_BUSY)?;
        running.queues.iter().for_each(|queue| queue.close());
        wait_for(&running.workers, deadline, HANDLER_BUSY)?;
        wait_for(&running.checkpoints, deadline, CHECKPOINT_BUSY)?;
        // Whoever is being let in may stand still, and so may the process that has the control plane.
        running.control.give_up();
        self.shared.fabric.give_up();
        wait_for(running.events.as_slice(), deadline, GUEST_BUSY)?;
        if let Some(Running { pollers, workers, events, checkpoints, post, control, .. }) = guard.take() {
            for thread in pollers.into_iter().chain(workers).chain(events).chain(checkpoints) {
                // A panic of a thread was reported by its own hook; there is nothing left to save here.
                let _ = thread.join();
            }
            drop(post);
            if let Some(control) = Arc::into_inner(control) {
                control.leave_within(deadline.remaining().max(GOODBYE_TIMEOUT_MIN));
            }
        }
        drop(guard);
        drop(lock(&self.keeper).take());
        if let Some(plane) = lock(&self.plane).take() {
            plane.stop();
        }
        crate::event!(
            crate::observe::Level::INFO,
            crate::observe::events::SHUTDOWN,
            shard = self.shared.settings.shard_id
        );
        Ok(())
    }
}

impl<F: Fabric> Drop for Core<F> {
    fn drop(&mut self) {
        // Handlers are the host's: when one does not return, its thread keeps what it needs alive, and nothing else.
        if let Err(error) = self.stop(Duration::from_secs(60)) {
            crate::event!(crate::observe::Level::ERROR, crate::observe::events::SERVER_ABANDONED, error = %error);
        }
    }
}

fn wait_for(threads: &[JoinHandle<()>], deadline: Tick, busy: &str) -> Result<()> {
    while threads.iter().any(|thread| !thread.is_finished()) {
        if now() >= deadline {
            return Err(Error::new(Status::Busy, busy));
        }
        pause(STOP_LOOK);
    }
    Ok(())
}

/// When a shard counts as stale, and as dead.
fn thresholds(settings: &Settings) -> Thresholds {
    let ms = Duration::from_millis;
    Thresholds { stale: ms(settings.health_stale_ms), dead: ms(settings.health_dead_ms) }
}

/// This process as a member of the deployment.
fn join(settings: &Settings, identity: &Identity, incarnation: Incarnation, deadline: Tick) -> Result<ControlClient> {
    let role = Role::Server(ShardId(settings.shard_id));
    let member = Member { role, incarnation, pid: std::process::id(), host: host_name() };
    let (host, port) = (&settings.control_plane_host, settings.control_plane_port);
    ControlClient::join(host, port, deadline.remaining(), identity, &member)
}

/// The store's rows as memory that clients may read. None: not this store, not this fabric, or not as the options say.
fn lend<F: Fabric>(fabric: &F, settings: &Settings, shown: Option<&Arc<SharedRows>>) -> Option<F::Region> {
    let shared = shown.filter(|_| settings.shared_reads == SharedReads::Auto)?;
    match fabric.lend(shared.file()) {
        Ok(region) => Some(region),
        Err(error) if error.status == Status::Unsupported => None,
        Err(error) => {
            not_shared(settings.shard_id, &error);
            None
        }
    }
}

fn mailboxes<F: Fabric>(fabric: &F, settings: &Settings) -> Result<Vec<Arc<Mailbox<F>>>> {
    let mut all = Vec::new();
    for _ in 0..settings.server_threads {
        let mut stations = Vec::new();
        for _ in 0..settings.coroutines_per_thread {
            let (send, recv) = (fabric.create_cq(settings.cq_depth)?, fabric.create_cq(settings.cq_depth)?);
            stations.push(Station { send, recv });
        }
        all.push(Arc::new(Mailbox::new(stations, fabric.create_waker()?)));
    }
    Ok(all)
}

/// Who is known before anybody has come: the clients of a restored world.
fn guests<F: Fabric>(settings: &Settings, windows: Vec<SavedWindow>) -> Result<Guests<F>> {
    let lasting = checkpoint::catalog(settings).is_some();
    let mut bytes = [0; 8];
    getrandom::fill(&mut bytes)
        .map_err(|error| Error::new(Status::OsError, format!("no random number for a window: {error}")))?;
    let random = u64::from_le_bytes(bytes) | Window::LASTING;
    let guests = Guests::new(if lasting { random } else { 1 });
    if settings.checkpoint_survivors == CheckpointSurvivors::Resume {
        for SavedWindow { client, incarnation, window } in windows {
            guests.remember(client, incarnation, window, now());
        }
    }
    Ok(guests)
}

/// Starts all threads.
fn run<F: Fabric>(
    shared: &Arc<Shared<F>>,
    store: &Arc<dyn Store>,
    control: &Arc<ControlClient>,
    damaged: BTreeSet<u64>,
    (watch, numbers): (Option<&Watch>, &Arc<ServerSource<F>>),
) -> Result<Running<F>> {
    let settings = &shared.settings;
    let shard = u16::try_from(settings.shard_id).unwrap_or(u16::MAX);
    let handler = Handler::new(Arc::clone(store), shard, settings.max_kv_num_per_request);
    let gets = (settings.get_workers > 0).then(|| Arc::new(Queue::new()));
    let alone = settings.server_threads + settings.get_workers == 1;
    let commands = (!alone).then(|| Arc::new(Queue::new()));
    let mut running = Running {
        pollers: Vec::new(),
        workers: Vec::new(),
        queues: gets.iter().chain(&commands).cloned().collect(),
        events: None,
        checkpoints: Vec::new(),
        post: Post::new(settings, control),
        control: Arc::clone(control),
        draining: false,
    };
    // The first and only one to set it.
    let _ = shared.queues.set(running.queues.clone());
    let rows = Registered::of(shared, store)?;
    let idle = IdlePolicy { spins: settings.poll_spin_iterations, yields: settings.poll_yield_iterations };
    for (index, mailbox) in (0_u32..).zip(&shared.mailboxes) {
        let outlets = Outlets { gets: gets.clone(), commands: commands.clone(), hold: Arc::clone(&shared.hold) };
        let watched = watch.map(|watch| Watched::new(watch.clone(), index as usize));
        let device = (!shared.fabric.capabilities().load_store, rows.clone());
        let poller =
            Poller::new(Arc::clone(mailbox), handler.clone(), Scratch::new(index), device, outlets, idle, watched);
        // The first thread serves the rows that clients read: as long as it lives, they are this shard's.
        let rows = shared.shown.clone().filter(|_| index == 0);
        running.pollers.push(start(&format!("reclane-poll-{index}"), move || {
            let _serving = rows.as_ref().and_then(|rows| rows.serve());
            poller.run();
        })?);
    }
    let get_workers = gets.iter().flat_map(|queue| (0..settings.get_workers).map(move |_| queue));
    for ((index, queue), worker) in get_workers.chain(&commands).enumerate().zip(settings.server_threads..) {
        let (queue, shared, handler) = (Arc::clone(queue), Arc::clone(shared), handler.clone());
        let watched = watch.map(|watch| Watched::new(watch.clone(), worker as usize));
        let body = move || work(&queue, &shared, &handler, (worker, index), watched);
        running.workers.push(start(&format!("reclane-work-{index}"), body)?);
    }
    if let Some(member) = checkpoint::Member::new(shared, store, running.post.clone()) {
        running.checkpoints.push(start("reclane-ckpt", move || member.run())?);
    }
    let (post, tally) = (running.post.clone(), Arc::clone(&shared.checkpoints));
    if let Some(lead) = Lead::new(settings, shared.incarnation, post, damaged, tally) {
        running.checkpoints.push(start("reclane-ckpt-lead", move || lead.run())?);
    }
    let (heard, speaker, post) = (Arc::clone(shared), Arc::clone(control), running.post.clone());
    let told = Arc::clone(numbers);
    running.events = Some(start("reclane-events", move || listen(&heard, &speaker, &post, &*told))?);
    Ok(running)
}

fn work<F: Fabric>(
    queue: &Queue<F>,
    shared: &Shared<F>,
    handler: &Handler,
    (worker, index): (u32, usize),
    mut watched: Option<Watched>,
) {
    let mut scratch = Scratch::new(worker);
    let mut jobs = 0_u64;
    while let Some(job) = queue.pop() {
        jobs += 1;
        // Requests of a lane that is down are not worth executing: its client sends them again, or has given them up.
        let _inside = Handler::is_slow(&job.header).then(|| shared.hold.command());
        while job.lane.is_usable() || !fenced(shared, &job) {
            let done = match &mut watched {
                Some(watched) if jobs & watched.sample_mask() == 0 => {
                    watched.execute(handler, &job.lane, job.slot, &job.header, &mut scratch)
                }
                _ => handler.execute(&job.lane, job.slot, &job.header, &mut scratch),
            };
            if done {
                break;
            }
            std::thread::yield_now();
        }
        if let Some(watched) = &watched {
            watched.store_worker(&scratch.counts, jobs);
        }
        *lock(&shared.worker_counts[index]) = scratch.counts;
    }
}

/// Says that a request of a lane that went down meanwhile is dropped, and that nothing is written to its memory. Always
/// true.
#[cold]
fn fenced<F: Fabric>(shared: &Shared<F>, job: &Job<F>) -> bool {
    let parts = job.lane.parts();
    crate::event!(
        crate::observe::Level::INFO,
        crate::observe::events::GET_PAYLOAD_DROPPED_STALE,
        shard = shared.settings.shard_id,
        client = parts.client.0,
        lane = parts.lane,
        generation = parts.generation,
        slot = job.slot,
        sequence = job.header.sequence,
    );
    true
}
