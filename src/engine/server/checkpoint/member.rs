//! A shard's part in checkpoints: shuts the gate, copies, opens it, writes.

use super::contents::Contents;
use super::windows::Exported;
use super::{Item, LEADER, Post, catalog, job, random};
use crate::checkpoint::cut::{Deed, Message, Order, Participant, WrittenFile};
use crate::checkpoint::disk::{Disk, RealDisk};
use crate::checkpoint::format::{FileRef, Superblock};
use crate::checkpoint::writer::{Known, Task, Unfinished};
use crate::checkpoint::{Catalog, Role, Written, steps, write_container};
use crate::control::Peer;
use crate::engine::server::core::Shared;
use crate::error::{Error, Result, Status};
use crate::fabric::Fabric;
use crate::ps::table::StoreImage;
use crate::ps::{BuiltinStore, Store};
use crate::sync::Arc;
use crate::time::{Tick, now, unix_us};
use core::time::Duration;
use std::collections::VecDeque;

/// Longest time between two looks whether the shard stops.
const LOOK: Duration = Duration::from_millis(500);
/// Bytes of a container beyond its rows, about.
const OVERHEAD_BYTES: u64 = 1 << 20;

/// An attempt that this shard takes part in.
#[derive(Debug)]
struct Attempt {
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
                if let Some(attempt) = self.attempt.take() {
                    attempt.unfinished.into_iter().for_each(|file| file.discard(&RealDisk));
                    self.spare = Some(attempt.contents.image);
                }
                Vec::new()
            }
            Deed::Keep => {
                if let Some(attempt) = self.attempt.take() {
                    self.known = attempt.written.map(|(file, written)| (file.epoch, Known::of(file, &written.toc)));
                    self.spare = Some(attempt.contents.image);
                }
                Vec::new()
            }
            Deed::Say(epoch, report) => {
                self.post.send(Peer::Server(LEADER), Message::Report(epoch, report));
                Vec::new()
            }
        }
    }

    fn builtin(store: &StoreHandle) -> Result<&BuiltinStore> {
        store.0.as_builtin().ok_or_else(|| {
            let message = "this shard's store keeps its own state: checkpoints take the built-in store only";
            Error::new(Status::Unsupported, message)
        })
    }

    /// Everything that can be done before work stops, then the gate.
    fn shut(&mut self, order: &Order, deadline: Tick) -> Result<()> {
        let handle = Arc::clone(&self.store);
        let store = Member::<F>::builtin(&handle)?;
        let settings = &self.shared.settings;
        let name = Role::Shard.file_name(settings.shard_id, settings.num_shards);
        let directory = self.catalog.directory_of(order.epoch);
        // An incremental one takes less, nobody knows how much: it finds out when it writes.
        let bytes = if order.parent == 0 { store.state_bytes() + OVERHEAD_BYTES } else { 0 };
        let unfinished = Unfinished::create(&RealDisk, &directory, &name, random()?, bytes)?;
        let image = store.prepare_image(self.spare.take().unwrap_or_default());
        self.attempt = Some(Attempt { unfinished: Some(unfinished), contents: Contents::new(image), written: None });
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
        let store = Member::<F>::builtin(&handle)?;
        let Some(attempt) = &mut self.attempt else {
            return Err(Error::new(Status::Bug, "a cut without a preparation"));
        };
        // SAFETY: every poll thread rests and no command is being executed, so nobody changes the store; GET workers may
        // be reading it.
        unsafe { store.capture(&mut attempt.contents.image) };
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
        let block = Superblock {
            minor: 0,
            required: 0,
            optional: 0,
            checkpoint: order.checkpoint,
            job: job(settings).0,
            epoch: order.epoch,
            role: Role::Shard as u32,
            rank: settings.shard_id,
            world: settings.num_shards,
            instance: self.shared.incarnation.0,
            unix_us: unix_us(),
        };
        let name = Role::Shard.file_name(block.rank, block.world);
        // Only what the leader knows to be committed is there for certain.
        let known = self.known.as_ref().filter(|(epoch, _)| order.parent != 0 && *epoch == order.parent);
        let task = Task {
            name: &name,
            block: &block,
            plans: &attempt.contents.plans(),
            source: &attempt.contents,
            known: known.map(|(_, known)| known),
            threads: settings.checkpoint_writers as usize,
        };
        let written = write_container(&RealDisk, unfinished, &task)?;
        let Superblock { epoch, checkpoint, rank, world, .. } = block;
        let file = FileRef { epoch, checkpoint, rank, world, bytes: written.bytes, digest: written.digest };
        let report = WrittenFile {
            bytes: written.bytes,
            state_bytes: written.state_bytes,
            own_bytes: written.own_bytes,
            digest: written.digest,
            needs: written.needs.clone(),
        };
        // The directory's own name, which may be new.
        RealDisk
            .sync_dir(self.catalog.root())
            .map_err(|error| Error::os(format_args!("cannot sync {}", self.catalog.root().display()), &error))?;
        attempt.written = Some((file, written));
        Ok(report)
    }
}
