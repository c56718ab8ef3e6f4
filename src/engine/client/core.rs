//! A client over one fabric.

use super::checkpoint::Notes;
use super::listen::{listen, look_after};
use super::mend::{Mender, News};
use super::open::{channels, join, ps_options, router};
use super::reach::Buffers;
use super::{ClientStats, LaneInfo};
use crate::control::{ControlClient, HealthReport, Peer};
use crate::engine::metrics::client::{ClientPage, ClientSource, Who};
use crate::engine::metrics::{Keeper, Source, is_counting};
use crate::error::{Error, Result, Status};
use crate::fabric::{Access, Fabric, Qp, Region, WcStatus};
use crate::ids::{ShardId, TableTag};
use crate::lane::{DirtyReason, LaneState};
use crate::options::Settings;
use crate::ps::client::{PsClient, Request, Token};
use crate::rpc::{Bell, Channel, ClientLane};
use crate::sync::{Arc, AtomicBool, AtomicU32, Mutex, Ordering, lock};
use crate::thread::start;
use crate::time::now;
use crate::wire::payload::{Command, TableSpec};
use core::time::Duration;
use std::thread::JoinHandle;

/// How long a shard's thread may take to map a new buffer.
const EXPOSE_TIMEOUT: Duration = Duration::from_secs(5);
/// Between two looks at requests under way in `shutdown`.
const SHUTDOWN_LOOK: Duration = Duration::from_millis(1);

/// A client over one fabric: operations, the control plane's session, and the thread that hears its verdicts.
#[derive(Debug)]
pub(super) struct Core<F: Fabric> {
    shared: Arc<Shared<F>>,
    /// The session and the thread that hears it; gone after shutdown.
    session: Mutex<Option<Session>>,
    client_id: u32,
    numbers: Arc<ClientSource<F>>,
    /// Only where requests are counted; gone after shutdown.
    keeper: Mutex<Option<Keeper>>,
}

/// What the threads of a client share.
#[derive(Debug)]
pub(in crate::engine) struct Shared<F: Fabric> {
    pub(in crate::engine) ps: PsClient<F>,
    pub(super) closing: AtomicBool,
    /// Wakes the thread that looks after lanes.
    pub(super) bell: Arc<Bell>,
    /// What it is to hear.
    pub(super) news: Mutex<Vec<News>>,
    pub(in crate::engine) settings: Settings,
    /// What the control plane last told of each shard's health, by its number; 0: nothing.
    pub(in crate::engine) health: Box<[AtomicU32]>,
    pub(in crate::engine) plane_up: AtomicBool,
    /// Every buffer of this client: a rebuilt lane's peer must reach them too.
    pub(in crate::engine) buffers: Buffers<F>,
    /// What shard 0 says of checkpoints.
    pub(super) notes: Notes,
    /// Last, so that lanes go before the fabric that made them.
    pub(super) fabric: F,
}

impl<F: Fabric> Shared<F> {
    /// Bytes of registered memory for the connections that lanes have now, or had last.
    pub(in crate::engine) fn lane_bytes(&self) -> u64 {
        let lanes = self.ps.channels().iter().flat_map(Channel::lanes);
        lanes.filter_map(ClientLane::connection).map(|connection| connection.parts().bytes()).sum()
    }
}

#[derive(Debug)]
struct Session {
    control: Arc<ControlClient>,
    events: JoinHandle<()>,
    /// Only where lanes are rebuilt, probed, or connected when they are needed.
    mender: Option<JoinHandle<()>>,
}

impl<F: Fabric> Core<F> {
    pub(super) fn open(fabric: F, settings: &Settings) -> Result<Core<F>> {
        let deadline = now().after(Duration::from_millis(settings.control_plane_timeout_ms));
        let (control, incarnation) = join(settings, deadline)?;
        let bell = Arc::new(Bell::default());
        let (channels, shards) = channels(&fabric, settings, &control, incarnation, &bell, deadline)?;
        let client_id = match control.me() {
            Peer::Client(id) => id.0,
            Peer::Server(_) => return Err(Error::new(Status::Bug, "the control plane took this client for a server")),
        };
        let slots: Vec<usize> = channels.iter().map(Channel::slot_count).collect();
        let mut ps = PsClient::new(channels, router(settings), ps_options(settings, incarnation));
        let who = Who { number: client_id, incarnation, fabric: F::NAME };
        let (page, tallies) = ClientPage::make(settings, who, &slots)?;
        if let Some(tallies) = tallies {
            ps.count_into(tallies);
        }
        let mender = Mender::new(settings, incarnation, shards);
        let shared = Arc::new(Shared {
            ps,
            closing: AtomicBool::new(false),
            bell,
            news: Mutex::default(),
            settings: settings.clone(),
            health: slots.iter().map(|_| AtomicU32::new(0)).collect(),
            plane_up: AtomicBool::new(true),
            buffers: Mutex::default(),
            notes: Notes::default(),
            fabric,
        });
        let control = Arc::new(control);
        let woken = Arc::downgrade(&control);
        shared.ps.when_concerned(move || {
            if let Some(control) = woken.upgrade() {
                control.wake();
            }
        });
        let numbers = Arc::new(page.of(Arc::clone(&shared), who));
        let (listener, heard, told) = (Arc::clone(&shared), Arc::clone(&control), Arc::clone(&numbers));
        let events = start("reclane-events", move || listen(&listener, &heard, &*told))?;
        let grows = settings.lanes_at_open() < settings.qps_per_client_per_shard;
        let needed = grows || settings.lane_rebuild_enabled || settings.lane_probe_idle_ms > 0;
        let mender = if needed {
            let (mended, board) = (Arc::clone(&shared), Arc::clone(&control));
            Some(start("reclane-mend", move || look_after(&mended, &board, mender))?)
        } else {
            None
        };
        let session = Mutex::new(Some(Session { control, events, mender }));
        crate::event!(
            crate::observe::Level::INFO,
            crate::observe::events::CLIENT_READY,
            client_id,
            shards = settings.num_shards,
            fabric = F::NAME
        );
        let core = Core { shared, session, client_id, numbers, keeper: Mutex::new(None) };
        if is_counting(settings) {
            *lock(&core.keeper) = Some(Keeper::start(settings, Arc::clone(&core.numbers) as Arc<dyn Source>)?);
        }
        Ok(core)
    }

    pub(super) fn numbers(&self) -> &dyn Source {
        &*self.numbers
    }

    pub(super) fn metrics_port(&self) -> Option<u16> {
        lock(&self.keeper).as_ref().and_then(Keeper::port)
    }

    pub(super) fn ps(&self) -> &PsClient<F> {
        &self.shared.ps
    }

    #[allow(clippy::cast_possible_truncation)] // bounded by an option
    pub(super) fn num_shards(&self) -> u32 {
        self.ps().channels().len() as u32
    }

    pub(super) fn client_id(&self) -> u32 {
        self.client_id
    }

    #[inline(always)]
    fn open_for_use(&self) -> Result<()> {
        // Relaxed: a call that races with shutdown may go either way.
        if self.shared.closing.load(Ordering::Relaxed) {
            return Err(closed());
        }
        Ok(())
    }

    #[inline(always)]
    pub(super) unsafe fn submit<R: Region>(&self, request: &Request<'_, R>) -> Result<Token> {
        self.open_for_use()?;
        // SAFETY: as the caller vouches.
        unsafe { self.shared.ps.submit(request) }
    }

    /// The same, as a call: for a fabric whose requests take so long that a call is nothing.
    ///
    /// # Safety
    /// As [`Core::submit`].
    #[cfg(feature = "verbs")]
    #[inline(never)]
    pub(super) unsafe fn submit_elsewhere<R: Region>(&self, request: &Request<'_, R>) -> Result<Token> {
        // SAFETY: as the caller vouches.
        unsafe { self.submit(request) }
    }

    #[inline]
    pub(super) unsafe fn call<R: Region>(&self, request: &Request<'_, R>) -> Result<()> {
        self.open_for_use()?;
        // SAFETY: as the caller vouches.
        unsafe { self.shared.ps.call(request) }
    }

    pub(super) fn init_table(&self, spec: &TableSpec) -> Result<TableTag> {
        self.open_for_use()?;
        self.ps().init_table(spec)
    }

    pub(super) fn command(&self, command: &Command) -> Result<()> {
        self.open_for_use()?;
        self.ps().command(command)
    }

    pub(super) fn control(&self) -> Option<Arc<ControlClient>> {
        lock(&self.session).as_ref().map(|session| Arc::clone(&session.control))
    }

    pub(super) fn notes(&self) -> &Notes {
        &self.shared.notes
    }

    pub(super) fn barrier(&self, name: &str, participants: u32, timeout: Duration) -> Result<()> {
        let control = lock(&self.session).as_ref().map(|session| Arc::clone(&session.control));
        control.ok_or_else(closed)?.barrier(name, participants, timeout)
    }

    pub(super) fn allocate_buffer(&self, bytes: usize) -> Result<F::Region> {
        self.open_for_use()?;
        if bytes == 0 {
            return Err(Error::new(Status::InvalidArgument, "a buffer of 0 bytes was asked for; at least 1"));
        }
        let region = self.shared.fabric.allocate(bytes, Access::ALL)?;
        // First, so that a lane that is being rebuilt has it from one side or the other: see `reach`.
        lock(&self.shared.buffers).push(region.clone());
        for lane in self.ps().channels().iter().flat_map(Channel::lanes) {
            // A shard that is gone, or goes meanwhile, does not keep the others from it.
            if lane.check().is_ok()
                && let Some(connection) = lane.connection()
                && let Err(error) = connection.parts().qp.expose(&region, EXPOSE_TIMEOUT)
                && lane.check().is_ok()
            {
                return Err(error.at_shard(lane.shard()));
            }
        }
        Ok(region)
    }

    /// What gives a buffer's registrations back, as long as this client lives.
    pub(super) fn giver_back(&self, region: &F::Region) -> impl Fn() + Send + Sync + 'static {
        let (home, region) = (Arc::downgrade(&self.shared), region.clone());
        move || {
            if let Some(shared) = home.upgrade() {
                // First here as well.
                lock(&shared.buffers).retain(|kept| kept.address() != region.address());
                let lanes = shared.ps.channels().iter().flat_map(Channel::lanes);
                let connections = lanes.filter_map(ClientLane::connection);
                connections.for_each(|connection| connection.parts().qp.unexpose(&region));
            }
        }
    }

    pub(super) fn lane(&self, shard: u32, lane: u32) -> Result<LaneInfo> {
        let channel = self.ps().channels().get(shard as usize);
        let found = channel.and_then(|channel| channel.lanes().get(lane as usize));
        let Some(found) = found else {
            return Err(self.no_lane(shard, lane));
        };
        // The slow signs show in the state without waiting for a request to notice them.
        let _ = found.check();
        let (connection, life) = (found.connection(), found.life());
        let parts = connection.as_ref().map(|connection| connection.parts());
        Ok(LaneInfo {
            shard,
            lane,
            state: life.state(),
            rebuildable: life.reason().is_none_or(crate::lane::DirtyReason::rebuildable),
            attempts: life.attempts(),
            reason: life.reason().map_or("", crate::lane::DirtyReason::name),
            generation: parts.map_or(0, |parts| parts.generation),
            scheme: parts.map_or("", |parts| parts.scheme.name()),
            queue_pair: parts.map_or(0, |parts| parts.qp.number()),
        })
    }

    #[cold]
    fn no_lane(&self, shard: u32, lane: u32) -> Box<Error> {
        let channels = self.ps().channels();
        let lanes = channels.first().map_or(0, |channel| channel.lanes().len());
        let message = format!(
            "there is no lane {lane} to shard {shard}: this client has {} shards with {lanes} lanes each, from 0 on",
            channels.len()
        );
        Error::new(Status::InvalidArgument, message)
    }

    pub(super) fn break_lane(&self, shard: u32, lane: u32) -> Result<()> {
        let channel = self.ps().channels().get(shard as usize);
        let Some(found) = channel.and_then(|channel| channel.lanes().get(lane as usize)) else {
            return Err(self.no_lane(shard, lane));
        };
        let Some(connection) = found.connection() else {
            let message = format!("lane {lane} to shard {shard} is not connected yet: no request has needed it");
            return Err(Error::new(Status::WrongState, message).at_shard(shard));
        };
        found.fail(connection.parts().generation, DirtyReason::Completion(WcStatus::WrFlush));
        Ok(())
    }

    pub(super) fn health(&self, shard: u32) -> Result<HealthReport> {
        if shard >= self.num_shards() {
            let message = format!("there is no shard {shard}: this client has {}, from 0 on", self.num_shards());
            return Err(Error::new(Status::InvalidArgument, message));
        }
        let control = lock(&self.session).as_ref().map(|session| Arc::clone(&session.control)).ok_or_else(closed)?;
        let timeout = Duration::from_millis(self.shared.settings.health_probe_timeout_ms);
        match control.server_health(ShardId(shard), timeout) {
            // That nobody answers is no verdict on the shard.
            Err(error) if error.status == Status::ControlPlaneUnreachable => Ok(HealthReport::UNKNOWN),
            other => other,
        }
    }

    #[allow(clippy::cast_possible_truncation)] // bounded by options
    pub(super) fn stats(&self) -> ClientStats {
        let channels = self.ps().channels();
        let lanes = || channels.iter().flat_map(Channel::lanes);
        ClientStats {
            lanes: lanes().count() as u32,
            active_lanes: lanes().filter(|lane| lane.state() == LaneState::Active).count() as u32,
            slots: channels.iter().map(Channel::slot_count).sum::<usize>() as u32,
            held_slots: self.ps().under_way() as u32,
            lane_bytes: self.shared.lane_bytes(),
        }
    }

    pub(super) fn shutdown(&self, timeout: Duration) -> Result<()> {
        let deadline = now().after(timeout);
        loop {
            let held = self.ps().under_way();
            if held == 0 {
                break;
            }
            if now() >= deadline {
                return Err(Error::new(
                    Status::Busy,
                    format!(
                        "{held} requests were not revoked within {} ms; revoke them or close the client",
                        timeout.as_millis()
                    ),
                ));
            }
            crate::time::pause(SHUTDOWN_LOOK);
        }
        self.end();
        Ok(())
    }

    fn end(&self) {
        self.shared.closing.store(true, Ordering::Relaxed);
        drop(lock(&self.keeper).take());
        let Some(Session { control, events, mender }) = lock(&self.session).take() else {
            return;
        };
        control.wake();
        self.shared.bell.ring();
        for thread in mender.into_iter().chain([events]) {
            // A panic of that thread was reported by its own hook; there is nothing left to save here.
            let _ = thread.join();
        }
        for lane in self.ps().channels().iter().flat_map(Channel::lanes) {
            lane.close();
        }
        if let Some(control) = Arc::into_inner(control) {
            control.leave();
        }
    }
}

#[cold]
pub(super) fn closed() -> Box<Error> {
    Error::new(Status::Closed, "the client was shut down by reclane_client_shutdown(): close it and open another")
}

impl<F: Fabric> Drop for Core<F> {
    fn drop(&mut self) {
        self.end();
    }
}
