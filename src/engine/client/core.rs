//! A client over one fabric.

use super::open::{channels, join, ps_options, router};
use super::{ClientStats, LaneInfo};
use crate::control::{ControlClient, Event, Peer};
use crate::error::{Error, Result, Status};
use crate::fabric::{Access, Fabric, Qp, Region};
use crate::ids::TableTag;
use crate::lane::{DirtyReason, LaneState};
use crate::options::Settings;
use crate::ps::client::{PsClient, Request, Token};
use crate::rpc::Channel;
use crate::sync::{Arc, AtomicBool, Mutex, Ordering, lock};
use crate::thread::start;
use crate::time::now;
use crate::wire::payload::{Command, TableSpec};
use core::time::Duration;
use std::thread::JoinHandle;

/// How long a shard's thread may take to map a new buffer.
const EXPOSE_TIMEOUT: Duration = Duration::from_secs(5);
/// How often the event thread looks whether it should end; `wake` makes it look at once.
const EVENT_WAIT: Duration = Duration::from_millis(500);
/// Between two looks at requests under way in `shutdown`.
const SHUTDOWN_LOOK: Duration = Duration::from_millis(1);

/// A client over one fabric: operations, the control plane's session, and the thread that hears its verdicts.
#[derive(Debug)]
pub(super) struct Core<F: Fabric> {
    shared: Arc<Shared<F>>,
    /// The session and the thread that hears it; gone after shutdown.
    session: Mutex<Option<Session>>,
    client_id: u32,
    lane_bytes: u64,
    /// Last, so that lanes go before the fabric that made them.
    fabric: F,
}

#[derive(Debug)]
struct Shared<F: Fabric> {
    ps: PsClient<F>,
    closing: AtomicBool,
}

#[derive(Debug)]
struct Session {
    control: Arc<ControlClient>,
    events: JoinHandle<()>,
}

impl<F: Fabric> Core<F> {
    pub(super) fn open(fabric: F, settings: &Settings) -> Result<Core<F>> {
        let deadline = now().after(Duration::from_millis(settings.control_plane_timeout_ms));
        let (control, incarnation) = join(settings, deadline)?;
        let (channels, lane_bytes) = channels(&fabric, settings, &control, incarnation, deadline)?;
        let client_id = match control.me() {
            Peer::Client(id) => id.0,
            Peer::Server(_) => return Err(Error::new(Status::Bug, "the control plane took this client for a server")),
        };
        let ps = PsClient::new(channels, router(settings), ps_options(settings));
        let shared = Arc::new(Shared { ps, closing: AtomicBool::new(false) });
        let control = Arc::new(control);
        let (listener, heard) = (Arc::clone(&shared), Arc::clone(&control));
        let events = start("reclane-events", move || listen(&listener, &heard))?;
        let session = Mutex::new(Some(Session { control, events }));
        crate::event!(
            crate::observe::Level::INFO,
            crate::observe::events::CLIENT_READY,
            client_id,
            shards = settings.num_shards,
            fabric = F::NAME
        );
        Ok(Core { shared, session, client_id, lane_bytes, fabric })
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

    fn open_for_use(&self) -> Result<()> {
        // Relaxed: a call that races with shutdown may go either way.
        if self.shared.closing.load(Ordering::Relaxed) {
            return Err(closed());
        }
        Ok(())
    }

    #[inline]
    pub(super) unsafe fn submit<R: Region>(&self, request: &Request<'_, R>) -> Result<Token> {
        self.open_for_use()?;
        // SAFETY: as the caller vouches.
        unsafe { self.shared.ps.submit(request) }
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

    pub(super) fn barrier(&self, name: &str, participants: u32, timeout: Duration) -> Result<()> {
        let control = lock(&self.session).as_ref().map(|session| Arc::clone(&session.control));
        control.ok_or_else(closed)?.barrier(name, participants, timeout)
    }

    pub(super) fn allocate_buffer(&self, bytes: usize) -> Result<F::Region> {
        self.open_for_use()?;
        if bytes == 0 {
            return Err(Error::new(Status::InvalidArgument, "a buffer of 0 bytes"));
        }
        let region = self.fabric.allocate(bytes, Access::ALL)?;
        for lane in self.ps().channels().iter().flat_map(Channel::lanes) {
            // A shard that is gone, or goes meanwhile, does not keep the others from it.
            if lane.check().is_ok()
                && let Err(error) = lane.parts().qp.expose(&region, EXPOSE_TIMEOUT)
                && lane.check().is_ok()
            {
                return Err(error.at_shard(lane.parts().shard));
            }
        }
        Ok(region)
    }

    /// What gives a buffer's registrations back, as long as this client lives.
    pub(super) fn giver_back(&self, region: &F::Region) -> impl Fn() + Send + Sync + 'static {
        let (home, region) = (Arc::downgrade(&self.shared), region.clone());
        move || {
            if let Some(shared) = home.upgrade() {
                let lanes = shared.ps.channels().iter().flat_map(Channel::lanes);
                lanes.for_each(|lane| lane.parts().qp.unexpose(&region));
            }
        }
    }

    pub(super) fn lane(&self, shard: u32, lane: u32) -> Result<LaneInfo> {
        let channel = self.ps().channels().get(shard as usize);
        let found = channel.and_then(|channel| channel.lanes().get(lane as usize));
        let Some(found) = found else {
            return Err(Error::new(Status::InvalidArgument, format!("there is no lane {lane} to shard {shard}")));
        };
        // The slow signs show in the state without waiting for a request to notice them.
        let _ = found.check();
        let parts = found.parts();
        Ok(LaneInfo {
            shard,
            lane,
            state: found.state(),
            generation: parts.generation,
            scheme: parts.scheme.name(),
            queue_pair: parts.qp.number(),
        })
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
            lane_bytes: self.lane_bytes,
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
                    format!("{held} requests were not revoked yet; revoke them or close the client"),
                ));
            }
            crate::time::pause(SHUTDOWN_LOOK);
        }
        self.end();
        Ok(())
    }

    fn end(&self) {
        self.shared.closing.store(true, Ordering::Relaxed);
        let Some(Session { control, events }) = lock(&self.session).take() else {
            return;
        };
        control.wake();
        // A panic of that thread was reported by its own hook; there is nothing left to save here.
        let _ = events.join();
        for lane in self.ps().channels().iter().flat_map(Channel::lanes) {
            lane.fail(DirtyReason::Closed);
        }
        if let Some(control) = Arc::into_inner(control) {
            control.leave();
        }
    }
}

#[cold]
fn closed() -> Box<Error> {
    Error::new(Status::Closed, "the client was shut down")
}

impl<F: Fabric> Drop for Core<F> {
    fn drop(&mut self) {
        self.end();
    }
}

/// Hears the control plane's verdicts. Its own end is no verdict on anybody.
fn listen<F: Fabric>(shared: &Shared<F>, control: &ControlClient) {
    while !shared.closing.load(Ordering::Relaxed) {
        match control.next_event(EVENT_WAIT) {
            Some(Event::MemberLeft { peer: Peer::Server(shard), died, .. }) => {
                let reason = if died { DirtyReason::PeerGone } else { DirtyReason::PeerLeft };
                if let Some(channel) = shared.ps.channels().get(shard.0 as usize) {
                    channel.lanes().iter().for_each(|lane| lane.fail(reason));
                }
            }
            Some(Event::ServerDraining(shard)) => {
                crate::event!(crate::observe::Level::INFO, crate::observe::events::SHARD_DRAINING, shard = shard.0)
            }
            // Reported where they are noticed; data traffic is not concerned.
            Some(Event::ControlPlaneLost | Event::ControlPlaneBack)
            | Some(Event::MemberLeft { .. } | Event::LanesPublished { .. } | Event::ServerReady(_))
            | None => {}
        }
    }
}
