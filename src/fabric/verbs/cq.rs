//! Completion queues.

use super::device::{Device, exhausted, set_nonblocking};
use super::qp::QpCore;
use super::sys::{self, ibv_comp_channel, ibv_cq, ibv_wc};
use crate::error::{Error, Result, Status};
use crate::fabric::{Completion, Cq};
use crate::sync::{Arc, Mutex, lock};
use core::mem::MaybeUninit;
use core::ptr::NonNull;
use std::collections::HashMap;
use std::io;

/// Completions taken from the device at a time.
const BATCH: usize = 16;

/// Completion queue of the verbs provider, with a channel of its own for pollers that sleep.
#[derive(Debug)]
pub struct VerbsCq {
    pub(super) raw: NonNull<ibv_cq>,
    channel: NonNull<ibv_comp_channel>,
    /// The connections that complete here, by the number that their work carries. Held while polling, so that who is
    /// taken out here is not reached any more.
    connections: Mutex<HashMap<u32, Arc<QpCore>>>,
    device: Arc<Device>,
}

// SAFETY: verbs calls on a completion queue may come from any thread.
unsafe impl Send for VerbsCq {}
// SAFETY: as above.
unsafe impl Sync for VerbsCq {}

impl VerbsCq {
    pub(super) fn new(device: &Arc<Device>, depth: u32) -> Result<VerbsCq> {
        let (most, library) = (device.limits.cqes, device.context.library);
        let entries = i32::try_from(depth).ok().filter(|depth| *depth <= most).ok_or_else(|| {
            let why = format!("cq-depth={depth}: device {} takes {most} entries per completion queue", device.name());
            Error::new(Status::ResourceLimit, why)
        })?;
        let refused = |what: &str| {
            let cure =
                format!("the device has {} completion queues; use fewer lanes or poll threads", device.limits.cqs);
            exhausted(device, what, &io::Error::last_os_error(), &cure)
        };
        // SAFETY: the context is open.
        let channel = NonNull::new(unsafe { (library.create_channel)(device.context.raw.as_ptr()) });
        let channel = channel.ok_or_else(|| refused("a completion channel"))?;
        // SAFETY: the channel is alive.
        let ready = set_nonblocking(unsafe { (*channel.as_ptr()).fd });
        // SAFETY: context and channel are alive; the queue has no owner's pointer.
        let raw = NonNull::new(unsafe {
            let context = device.context.raw.as_ptr();
            (library.create_cq)(context, entries, core::ptr::null_mut(), channel.as_ptr(), 0)
        });
        match (raw, ready) {
            (Some(raw), Ok(())) => {
                Ok(VerbsCq { raw, channel, connections: Mutex::default(), device: Arc::clone(device) })
            }
            (raw, _) => {
                let refused = refused(&format!("a completion queue of {depth} entries"));
                // SAFETY: made above; nobody has them.
                unsafe {
                    raw.map(|raw| (library.destroy_cq)(raw.as_ptr()));
                    (library.destroy_channel)(channel.as_ptr());
                }
                Err(refused)
            }
        }
    }

    /// From here on completions with this number are the connection's.
    pub(super) fn attach(&self, epoch: u32, qp: &Arc<QpCore>) {
        lock(&self.connections).insert(epoch, Arc::clone(qp));
    }

    /// Completions with this number are nobody's any more: what comes late is dropped.
    pub(super) fn detach(&self, epoch: u32) {
        lock(&self.connections).remove(&epoch);
    }

    /// Readable when a completion came after [`VerbsCq::ask`].
    pub(super) fn fd(&self) -> libc::c_int {
        // SAFETY: the channel lives as long as the queue.
        unsafe { (*self.channel.as_ptr()).fd }
    }

    /// Asks for an event with the next completion.
    pub(super) fn ask(&self) -> io::Result<()> {
        // SAFETY: the queue is alive.
        unsafe { sys::req_notify_cq(self.raw.as_ptr()) }
    }

    /// Takes events off the channel, and acknowledges each: the queue cannot be destroyed before.
    pub(super) fn take_events(&self) {
        let library = self.device.context.library;
        let (mut cq, mut owner) = (core::ptr::null_mut(), core::ptr::null_mut());
        // SAFETY: the channel is alive and does not wait; it serves this queue alone.
        while unsafe { (library.get_cq_event)(self.channel.as_ptr(), &raw mut cq, &raw mut owner) } == 0 {
            // SAFETY: one event of this queue was got.
            unsafe { (library.ack_cq_events)(cq, 1) };
        }
    }
}

impl Cq for VerbsCq {
    fn poll(&self, out: &mut [Completion]) -> usize {
        let connections = lock(&self.connections);
        let mut filled = 0;
        while filled < out.len() {
            let mut taken = [const { MaybeUninit::<ibv_wc>::uninit() }; BATCH];
            let room = (out.len() - filled).min(BATCH);
            // SAFETY: the queue is alive and `taken` has that room; one thread polls at a time.
            let count = unsafe {
                let room = i32::try_from(room).unwrap_or(1);
                sys::poll_cq(self.raw.as_ptr(), room, taken.as_mut_ptr().cast())
            };
            // A negative count: the device failed, which its event tells.
            let count = usize::try_from(count).unwrap_or(0);
            for one in &taken[..count.min(room)] {
                // SAFETY: filled by the device.
                let wc = unsafe { one.assume_init_ref() };
                let epoch = u32::try_from(wc.wr_id >> 32).unwrap_or(0);
                let qp = connections.get(&(epoch & super::qp::EPOCH_MASK));
                if let Some(completion) = qp.and_then(|qp| qp.completed(wc)) {
                    out[filled] = completion;
                    filled += 1;
                }
            }
            if count == 0 {
                break;
            }
        }
        filled
    }
}

impl Drop for VerbsCq {
    fn drop(&mut self) {
        self.take_events();
        let library = self.device.context.library;
        // SAFETY: queue pairs that complete here hold the queue, so none is left; its events are acknowledged. A refusal
        // leaves what it refuses.
        unsafe {
            (library.destroy_cq)(self.raw.as_ptr());
            (library.destroy_channel)(self.channel.as_ptr());
        }
    }
}
