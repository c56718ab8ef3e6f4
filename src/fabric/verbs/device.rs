//! One opened device per process: context, protection domain, and the thread that hears of its troubles.
//!
//! Everybody in the process who opens the same device shares it, so memory is registered once and a program with a
//! client and a server costs one context.

use super::arena::Arena;
use super::choose::{Chosen, Wish, choose};
use super::info::{Context, devices, gid_text, open_by_name};
use super::locked;
use super::qp::QpCore;
use super::sys::{self, ibv_event_type, ibv_pd};
use crate::error::{Error, Result, Status};
use crate::fabric::WcStatus;
use crate::sync::{Arc, AtomicBool, Mutex, Ordering, Weak, lock};
use crate::thread::start;
use core::mem::MaybeUninit;
use core::ptr::NonNull;
use std::collections::HashMap;
use std::io;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};
use std::thread::JoinHandle;

/// How long a look for events lasts at most; a closing device rings.
const EVENT_WAIT_MS: libc::c_int = 1000;

/// A device of this process.
#[derive(Debug)]
pub(super) struct Device {
    pub(super) pd: NonNull<ibv_pd>,
    /// What it can do at most.
    pub(super) limits: Limits,
    /// It was said that a peer's packets have another size.
    pub(super) mtu_told: AtomicBool,
    /// Registrations that lanes share.
    pub(super) arena: Arena,
    thread: Mutex<Option<JoinHandle<()>>>,
    pub(super) events: Arc<Events>,
    /// Last: everything above was made from it.
    pub(super) context: Arc<Context>,
}

/// The numbers of a device that are looked at.
#[derive(Clone, Copy, Debug)]
pub(super) struct Limits {
    pub(super) qps: i32,
    pub(super) qp_wrs: i32,
    pub(super) cqs: i32,
    pub(super) cqes: i32,
    pub(super) mrs: i32,
    pub(super) mr_bytes: u64,
    pub(super) sges: i32,
    /// Reads and atomics that a queue pair sends, and takes, at a time.
    pub(super) reads_out: u8,
    pub(super) reads_in: u8,
    pub(super) has_atomics: bool,
}

// SAFETY: verbs calls on a device and what is made from it may come from any thread.
unsafe impl Send for Device {}
// SAFETY: as above.
unsafe impl Sync for Device {}

/// What the thread that hears of troubles shares with the device.
#[derive(Debug)]
pub(super) struct Events {
    qps: Mutex<HashMap<u32, Weak<QpCore>>>,
    closing: AtomicBool,
    bell: OwnedFd,
}

static OPEN: Mutex<Vec<(String, Weak<Device>)>> = Mutex::new(Vec::new());

impl Device {
    /// Chooses by the wish and opens, or finds what this process has open already.
    pub(super) fn open(wish: &Wish) -> Result<(Arc<Device>, Chosen)> {
        let chosen = choose(&devices()?, wish)?;
        let mut open = lock(&OPEN);
        open.retain(|(_, device)| device.strong_count() > 0);
        let known = open.iter().find(|(name, _)| *name == chosen.device).and_then(|(_, device)| device.upgrade());
        if let Some(device) = known {
            return Ok((device, chosen));
        }
        let device = Arc::new(Device::fresh(&chosen.device)?);
        open.push((chosen.device.clone(), Arc::downgrade(&device)));
        Ok((device, chosen))
    }

    fn fresh(name: &str) -> Result<Device> {
        let library = sys::library()?;
        let context = Arc::new(open_by_name(library, name)?);
        let failed = |what: &str, error: &io::Error| Error::os(format_args!("rdma-device={name}: {what}"), error);
        let attr = context.limits().map_err(|error| failed("its limits cannot be read", &error))?;
        let byte = |number: i32| u8::try_from(number.clamp(0, 255)).unwrap_or(u8::MAX);
        let limits = Limits {
            qps: attr.max_qp,
            qp_wrs: attr.max_qp_wr,
            cqs: attr.max_cq,
            cqes: attr.max_cqe,
            mrs: attr.max_mr,
            mr_bytes: attr.max_mr_size,
            sges: attr.max_sge,
            reads_out: byte(attr.max_qp_init_rd_atom),
            reads_in: byte(attr.max_qp_rd_atom),
            has_atomics: attr.atomic_cap != sys::code::ATOMIC_NONE,
        };
        // SAFETY: the context is open.
        let pd = NonNull::new(unsafe { (library.alloc_pd)(context.raw.as_ptr()) });
        let pd = pd.ok_or_else(|| failed("no protection domain can be had", &io::Error::last_os_error()))?;
        // SAFETY: no pointers.
        let bell = unsafe { libc::eventfd(0, libc::EFD_CLOEXEC | libc::EFD_NONBLOCK) };
        if bell < 0 {
            return Err(failed("no event descriptor can be had", &io::Error::last_os_error()));
        }
        // SAFETY: the descriptor is new and nobody else's.
        let bell = unsafe { OwnedFd::from_raw_fd(bell) };
        let events = Arc::new(Events { qps: Mutex::default(), closing: AtomicBool::new(false), bell });
        let device = Device {
            pd,
            limits,
            mtu_told: AtomicBool::new(false),
            arena: Arena::default(),
            thread: Mutex::new(None),
            events: Arc::clone(&events),
            context: Arc::clone(&context),
        };
        set_nonblocking(async_fd(&context)).map_err(|error| failed("its events cannot be read", &error))?;
        *lock(&device.thread) = Some(start("reclane-verbs", move || hear(&context, &events))?);
        Ok(device)
    }

    /// Its name.
    pub(super) fn name(&self) -> &str {
        &self.context.name
    }
}

impl Drop for Device {
    fn drop(&mut self) {
        // Relaxed: the bell's system call orders it.
        self.events.closing.store(true, Ordering::Relaxed);
        ring(&self.events.bell);
        if let Some(thread) = lock(&self.thread).take() {
            // A panic of it was reported by its own hook.
            let _ = thread.join();
        }
        // SAFETY: whatever was made in the domain holds the device, so nothing is left of it.
        let _ = unsafe { (self.context.library.dealloc_pd)(self.pd.as_ptr()) };
    }
}

impl Events {
    /// From here on troubles of the queue pair reach it.
    pub(super) fn watch(&self, number: u32, qp: &Arc<QpCore>) {
        lock(&self.qps).insert(number, Arc::downgrade(qp));
    }

    /// It is being closed.
    pub(super) fn forget(&self, number: u32) {
        lock(&self.qps).remove(&number);
    }

    fn all(&self) -> Vec<Arc<QpCore>> {
        lock(&self.qps).values().filter_map(Weak::upgrade).collect()
    }
}

/// Makes an event counter readable.
pub(super) fn ring(bell: &OwnedFd) {
    let one = 1_u64.to_ne_bytes();
    // SAFETY: 8 readable bytes. A full counter refuses, and is readable already.
    let _ = unsafe { libc::write(bell.as_raw_fd(), one.as_ptr().cast(), one.len()) };
}

/// Reads of this descriptor do not wait.
pub(super) fn set_nonblocking(fd: libc::c_int) -> io::Result<()> {
    // SAFETY: no pointers.
    let flags = unsafe { libc::fcntl(fd, libc::F_GETFL) };
    // SAFETY: no pointers.
    if flags < 0 || unsafe { libc::fcntl(fd, libc::F_SETFL, flags | libc::O_NONBLOCK) } < 0 {
        return Err(io::Error::last_os_error());
    }
    Ok(())
}

fn async_fd(context: &Context) -> libc::c_int {
    // SAFETY: the context is open.
    unsafe { (*context.raw.as_ptr()).async_fd }
}

/// The thread: takes each event, acknowledges it at once, so that nobody who destroys something waits, and then tells
/// whom it concerns.
fn hear(context: &Context, events: &Events) {
    // Relaxed: see `Device::drop`.
    while !events.closing.load(Ordering::Relaxed) {
        let mut fds = [
            libc::pollfd { fd: async_fd(context), events: libc::POLLIN, revents: 0 },
            libc::pollfd { fd: events.bell.as_raw_fd(), events: libc::POLLIN, revents: 0 },
        ];
        // SAFETY: two entries.
        let ready = unsafe { libc::poll(fds.as_mut_ptr(), 2, EVENT_WAIT_MS) };
        if ready <= 0 || fds[0].revents == 0 {
            continue;
        }
        let mut event = MaybeUninit::<sys::ibv_async_event>::zeroed();
        // SAFETY: the context is open and its descriptor does not wait; `event` is ours.
        if unsafe { (context.library.get_async_event)(context.raw.as_ptr(), event.as_mut_ptr()) } != 0 {
            continue;
        }
        // SAFETY: filled by the successful call, and not acknowledged yet.
        let (kind, subject) = unsafe { (code_of(event.as_ptr()), subject(event.as_ptr())) };
        // SAFETY: the event that was got; once.
        unsafe { (context.library.ack_async_event)(event.as_mut_ptr()) };
        dispatch(context, events, kind, subject);
    }
}

/// What an event is about.
#[derive(Clone, Copy, Debug)]
enum Subject {
    Qp(u32),
    Cq(usize),
    Port(u8),
    Device,
    Nothing,
}

/// The event's number as the kernel told it: newer kernels have events that the enum of the header here has not.
///
/// # Safety
/// The event was got.
unsafe fn code_of(event: *const sys::ibv_async_event) -> u32 {
    // SAFETY: the field has the size and alignment of a u32, and any bits are a u32.
    unsafe { (&raw const (*event).event_type).cast::<u32>().read() }
}

const CQ_ERR: u32 = ibv_event_type::IBV_EVENT_CQ_ERR as u32;
const QP_FATAL: u32 = ibv_event_type::IBV_EVENT_QP_FATAL as u32;
const QP_REQ_ERR: u32 = ibv_event_type::IBV_EVENT_QP_REQ_ERR as u32;
const QP_ACCESS_ERR: u32 = ibv_event_type::IBV_EVENT_QP_ACCESS_ERR as u32;
const DEVICE_FATAL: u32 = ibv_event_type::IBV_EVENT_DEVICE_FATAL as u32;
const PORT_ERR: u32 = ibv_event_type::IBV_EVENT_PORT_ERR as u32;
const LID_CHANGE: u32 = ibv_event_type::IBV_EVENT_LID_CHANGE as u32;
const GID_CHANGE: u32 = ibv_event_type::IBV_EVENT_GID_CHANGE as u32;

/// # Safety
/// The event was got and is not acknowledged yet.
unsafe fn subject(event: *const sys::ibv_async_event) -> Subject {
    // SAFETY: the kind says which part of the union is filled; what it points to lives until it is acknowledged.
    unsafe {
        match code_of(event) {
            QP_FATAL | QP_REQ_ERR | QP_ACCESS_ERR => Subject::Qp((*(*event).element.qp).qp_num),
            CQ_ERR => Subject::Cq((*event).element.cq.addr()),
            PORT_ERR | LID_CHANGE | GID_CHANGE => Subject::Port(u8::try_from((*event).element.port_num).unwrap_or(0)),
            DEVICE_FATAL => Subject::Device,
            _ => Subject::Nothing,
        }
    }
}

fn dispatch(context: &Context, events: &Events, kind: u32, subject: Subject) {
    let name = &context.name;
    match subject {
        Subject::Qp(number) => {
            let qp = lock(&events.qps).get(&number).and_then(Weak::upgrade);
            let (status, what) = of_qp(kind);
            if let Some(qp) = qp {
                qp.break_off(status, format!("{name}: {what}"));
            }
        }
        Subject::Cq(address) => {
            let what = format!("{name}: completions were lost, for more came than the queue takes; raise cq-depth");
            for qp in events.all().into_iter().filter(|qp| qp.uses_cq(address)) {
                qp.break_off(WcStatus::Fatal, what.clone());
            }
        }
        Subject::Port(port) => {
            for qp in events.all().into_iter().filter(|qp| qp.path.port == port) {
                let concerns = match kind {
                    LID_CHANGE => qp.path.is_ib,
                    GID_CHANGE => !qp.path.has_gid(context),
                    _ => true,
                };
                if concerns && let Some(what) = of_port(kind, port, name, qp.path.gid) {
                    qp.break_off(WcStatus::WrFlush, what);
                }
            }
        }
        Subject::Device => {
            events.all().iter().for_each(|qp| qp.break_off(WcStatus::Fatal, of_device(name)));
        }
        Subject::Nothing => {}
    }
}

/// What an event of a queue pair says, and what to do.
fn of_qp(kind: u32) -> (WcStatus, &'static str) {
    match kind {
        QP_ACCESS_ERR => (
            WcStatus::RemAccess,
            "the peer used memory that it may not; see the log of the peer, and report it if it recurs",
        ),
        QP_REQ_ERR => (
            WcStatus::RemInvReq,
            "the peer sent what is no request; see that both ends have one version of this library, and report it if it \
             recurs",
        ),
        _ => (WcStatus::Fatal, "the queue pair failed; see the kernel's log (dmesg) for what its driver says"),
    }
}

/// The same of a port; None: nothing that ends a connection.
fn of_port(kind: u32, port: u8, name: &str, gid: [u8; 16]) -> Option<String> {
    Some(match kind {
        PORT_ERR => {
            format!(
                "port {port} of {name} went down; see its cable and switch, and its network interface ('rdma link')"
            )
        }
        LID_CHANGE => format!(
            "port {port} of {name} got another LID; see the subnet manager's log for why; lanes come back by \
             rdma-lane-rebuild-enabled, or when the client is opened again"
        ),
        GID_CHANGE => format!(
            "port {port} of {name} lost the address {}; see that its network interface is up and has it ('ip addr')",
            gid_text(gid)
        ),
        _ => return None,
    })
}

fn of_device(name: &str) -> String {
    format!(
        "{name}: the device failed; see the kernel's log (dmesg) for what its driver says, and start this process again \
         when the device is back"
    )
}

/// An error of the status that a device's refusal deserves: what is used up, how much there is, what to do.
pub(super) fn exhausted(device: &Device, what: &str, error: &io::Error, cure: &str) -> Box<Error> {
    let mut refused = Error::os(format_args!("{}: {what}", device.name()), error);
    let limit = matches!(error.raw_os_error(), Some(libc::ENOMEM | libc::EINVAL | libc::EMFILE | libc::ENOSPC));
    if limit {
        refused.status = Status::ResourceLimit;
    }
    let limit = if error.raw_os_error() == Some(libc::ENOMEM) { locked::limit() } else { None };
    refused.message = format!("{}; {cure}{}", refused.message, locked::suspicion(limit, locked::bytes()));
    refused
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_event_that_ends_connections_says_what_to_do() {
        let port = |kind| of_port(kind, 1, "d0", [0xfe; 16]).unwrap_or_default();
        for (told, words) in [
            (port(PORT_ERR), ["port 1 of d0 went down", "see its cable and switch"]),
            (port(LID_CHANGE), ["port 1 of d0 got another LID", "see the subnet manager's log"]),
            (port(GID_CHANGE), ["port 1 of d0 lost the address fefe:", "see that its network interface is up"]),
            (of_device("d0"), ["d0: the device failed", "see the kernel's log"]),
            (of_qp(QP_ACCESS_ERR).1.to_owned(), ["memory that it may not", "see the log of the peer"]),
            (of_qp(QP_REQ_ERR).1.to_owned(), ["what is no request", "one version of this library"]),
            (of_qp(QP_FATAL).1.to_owned(), ["the queue pair failed", "see the kernel's log"]),
        ] {
            words.iter().for_each(|word| assert!(told.contains(word), "{word:?} is not in: {told}"));
        }
        assert_eq!(of_port(CQ_ERR, 1, "d0", [0; 16]), None);
    }
}
