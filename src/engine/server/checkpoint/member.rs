//! A shard's part in checkpoints: shuts the gate, copies, opens it, writes.

use super::contents::{Contents, Frozen};
use super::windows::Exported;
use super::{Filing, Item, LEADER, Post, catalog, random};
use crate::checkpoint::cut::{Deed, Message, Order, Participant, WrittenFile};
use crate::checkpoint::disk::RealDisk;
use crate::checkpoint::format::FileRef;
use crate::checkpoint::writer::{Known, Unfinished};
use crate::checkpoint::{Catalog, Role, Written, steps};
use crate::control::Peer;
use crate::engine::server::core::Shared;
use crate::error::{Error, Result, Status};
use crate::fabric::Fabric;
use crate::ps::table::StoreImage;
use crate::ps::{BuiltinStore, Store};
use crate::sync::Arc;
use crate::time::{Tick, now};
use core::time::Duration;
use std::collections::VecDeque;

/// Longest time between two looks whether the shard stops.
const LOOK: Duration = Duration::from_millis(500);
/// Bytes of a container beyond its rows, about.
const OVERHEAD_BYTES: u64 = 1 << 20;

/// An attempt that this shard takes part in.
#[derive(Debug)]
struct Attempt {
    epoch: u64,
    unfinished: Option<Unfinished>,
    contents: Contents,
    written: Option<(FileRef, Written)>,
}

/// The thread's state.
#[derive(Debug)]
pub(in crate::engine::server) struct Member<F: Fabric> {
    shared: Arc<Shared<F>>,
    store: Arc<StoreHandle>,
    post: Post,
    catalog: Catalog,
    machine: Participant,
    attempt: Option<Attempt>,
    /// What the next one may build on.
    known: Option<(u64, Known)>,
    /// Memory of the last copy.
    spare: Option<StoreImage>,
}

/// A store that can be shown.
pub(in crate::engine::server) struct StoreHandle(pub(in crate::engine::server) Arc<dyn Store>);

impl core::fmt::Debug for StoreHandle {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.write_str("Store")
    }
}

impl<F: Fabric> Member<F> {
    /// None: the deployment has no checkpoints.
    pub(in crate::engine::server) fn new(
        shared: &Arc<Shared<F>>,
        store: &Arc<dyn Store>,
        post: Post,
    ) -> Option<Member<F>> {
        Some(Member {
            catalog: catalog(&shared.settings)?,
            shared: Arc::clone(shared),
            store: Arc::new(StoreHandle(Arc::clone(store))),
            post,
            machine: Participant::new(0),
            attempt: None,
            known: None,
            spare: None,
        })
    }

    /// Until the shard stops.
    pub(in crate::engine::server) fn run(mut self) {
        let letters = Arc::clone(&self.post.member);
        while !letters.is_closed() {
            let until = now().after(LOOK).min(self.machine.deadline().unwrap_or(Tick(u64::MAX)));
            let mut deeds = match letters.next(until) {
                Some(Item::Letter(Peer::Server(LEADER), Message::Command(epoch, command))) => {
                    self.machine.heard(now(), epoch, &command)
                }
                Some(_) => Vec::new(),
                None => self.machine.tick(now()),
            };
            let mut queue: VecDeque<Deed> = deeds.drain(..).collect();
            while let Some(deed) = queue.pop_front() {
                queue.extend(self.perform(deed));
            }
        }
        self.shared.hold.open();
        self.over(false);
    }

    /// The attempt is over.
    fn over(&mut self, committed: bool) {
        let Some(mut attempt) = self.attempt.take() else { return };
        attempt.contents.frozen.take().into_iter().for_each(|frozen| frozen.release(committed));
        attempt.unfinished.into_iter().for_each(|file| file.discard(&RealDisk));
        if committed {
            self.known = attempt.written.map(|(file, written)| (file.epoch, Known::of(file, &written.toc)));
        }
        self.spare = Some(attempt.contents.image);
    }

    fn perform(&mut self, deed: Deed) -> Vec<Deed> {
        match deed {
            Deed::ShutGate(order, deadline) => {
                self.shared.checkpoints.shuts();
                let shut = self.shut(&order, deadline).map_err(|error| error.message);
                self.machine.gate_shut(shut)
            }
            Deed::Capture => {
                let copied = self.capture().map_err(|error| error.message);
                self.machine.captured(copied)
            }
            Deed::OpenGate => {
                self.shared.hold.open();
                self.shared.checkpoints.opened();
                steps::at("resumed");
                Vec::new()
            }
            Deed::Write(order) => {
                let since = now();
                let written = self.write(&order).map_err(|error| error.message);
                let bytes = written.as_ref().ok().map(|file| (file.state_bytes, file.own_bytes));
                self.shared.checkpoints.wrote(since, order.epoch, bytes);
                if let Err(why) = &written {
                    crate::event!(
                        crate::observe::Level::ERROR,
                        crate::observe::events::CHECKPOINT_FAILED,
                        shard = self.shared.settings.shard_id,
                        epoch = order.epoch,
                        error = why
                    );
                }
                steps::at("durable");
                self.machine.written(written)
            }
            Deed::Discard => {
                self.over(false);
                Vec::new()
            }
            Deed::Keep => {
                self.over(true);
                Vec::new()
            }
            Deed::Say(epoch, report) => {
                self.post.send(Peer::Server(LEADER), Message::Report(epoch, report));
                Vec::new()
            }
        }
    }

    /// The rows to copy. A store behind callbacks has none that can be: its state is the host program's.
    fn rows<'a>(&self, store: &'a StoreHandle) -> Result<Option<&'a BuiltinStore>> {
        match store.0.as_builtin() {
            None if self.shared.state.is_none() => {
                let message = "this shard's store keeps its own state and has not been opened with callbacks for it: use \
                               reclane_server_open_with_state";
                Err(Error::new(Status::Unsupported, message))
            }
            rows => Ok(rows),
        }
    }

    /// Everything that can be done before work stops, then the gate.
    fn shut(&mut self, order: &Order, deadline: Tick) -> Result<()> {
        let handle = Arc::clone(&self.store);
        let rows = self.rows(&handle)?;
        let settings = &self.shared.settings;
        let name = Role::Shard.file_name(settings.shard_id, settings.num_shards);
        let directory = self.catalog.directory_of(order.epoch);
        // An incremental one takes less, nobody knows how much: it finds out when it writes.
        let bytes = if order.parent == 0 { rows.map_or(0, BuiltinStore::state_bytes) + OVERHEAD_BYTES } else { 0 };
        let unfinished = Unfinished::create(&RealDisk, &directory, &name, random()?, bytes)?;
        let spare = self.spare.take().unwrap_or_default();
        let image = rows.map(|rows| rows.prepare_image(spare)).unwrap_or_default();
        let (epoch, contents) = (order.epoch, Contents::new(image));
        self.attempt = Some(Attempt { epoch, unfinished: Some(unfinished), contents, written: None });
        steps::at("prepared");
        if now() >= deadline {
            let message = "making room for a copy took longer than checkpoint-hold-timeout-ms allows";
            return Err(Error::new(Status::Busy, message));
        }
        self.shared.hold.shut();
        self.shared.mailboxes.iter().for_each(|mailbox| mailbox.rest());
        if !self.shared.hold.wait_for_rest(self.shared.mailboxes.len(), deadline) {
            let message = "a request was still being executed after checkpoint-hold-timeout-ms";
            return Err(Error::new(Status::Busy, message));
        }
        steps::at("held");
        Ok(())
    }

    fn capture(&mut self) -> Result<u64> {
        steps::at("cut");
        let started = now();
        let handle = Arc::clone(&self.store);
        let rows = self.rows(&handle)?;
        let Some(attempt) = &mut self.attempt else {
            return Err(Error::new(Status::Bug, "a cut without a preparation"));
        };
        if let Some(state) = &self.shared.state {
            attempt.contents.frozen = Some(Frozen::freeze(state, attempt.epoch)?);
        }
        if let Some(rows) = rows {
            // SAFETY: every poll thread rests and no command is being executed, so nobody changes the store; GET workers
            // may be reading it.
            unsafe { rows.capture(&mut attempt.contents.image) };
        }
        attempt.contents.windows = self.shared.guests.export(Exported::of);
        let ns = now().since_ns(started);
        steps::at("captured");
        Ok(ns)
    }

    fn write(&mut self, order: &Order) -> Result<WrittenFile> {
        let settings = &self.shared.settings;
        let Some(attempt) = &mut self.attempt else {
            return Err(Error::new(Status::Bug, "a file without a copy"));
        };
        let Some(unfinished) = attempt.unfinished.take() else {
            return Err(Error::new(Status::Bug, "a file that was written already"));
        };
        attempt.contents.counts = self.shared.counts();
        attempt.contents.host =
            format!("host={}\npid={}\nfabric={}\n", crate::engine::host_name(), std::process::id(), F::NAME);
        attempt.contents.lay_out();
        let (role, incarnation) = (Role::Shard, self.shared.incarnation);
        let filing = Filing { settings, catalog: &self.catalog, role, incarnation };
        let plans = attempt.contents.plans();
        let filed = filing.write(order, unfinished, (&plans, &attempt.contents), self.known.as_ref())?;
        let (file, written, report) = filed;
        if let Some(error) = attempt.contents.frozen.as_ref().and_then(Frozen::trouble) {
            return Err(error);
        }
        attempt.written = Some((file, written));
        Ok(report)
    }
}
