//! The system calls of this provider other than memory and sockets: descriptors, events, time limits, random numbers.

use crate::time::Tick;
use std::io;
use std::os::fd::{AsRawFd, BorrowedFd, FromRawFd, OwnedFd, RawFd};

/// Turns -1 into the error it stands for.
pub(super) fn checked(result: libc::c_int) -> io::Result<libc::c_int> {
    if result < 0 { Err(io::Error::last_os_error()) } else { Ok(result) }
}

/// Takes over a descriptor that a system call has just returned.
pub(super) fn owned(result: libc::c_int) -> io::Result<OwnedFd> {
    let fd = checked(result)?;
    // SAFETY: `fd` is a new descriptor that nobody else owns.
    Ok(unsafe { OwnedFd::from_raw_fd(fd) })
}

/// A non-blocking event counter, closed on exec.
pub(super) fn event() -> io::Result<OwnedFd> {
    // SAFETY: no pointers.
    owned(unsafe { libc::eventfd(0, libc::EFD_CLOEXEC | libc::EFD_NONBLOCK) })
}

/// Makes an event counter readable.
pub(super) fn event_signal(fd: BorrowedFd<'_>) {
    let one = 1u64.to_ne_bytes();
    // SAFETY: `one` has 8 readable bytes. EAGAIN means that the counter is full, hence readable: nothing is lost.
    let _ = unsafe { libc::write(fd.as_raw_fd(), one.as_ptr().cast(), one.len()) };
}

/// Makes an event counter unreadable again.
pub(super) fn event_clear(fd: BorrowedFd<'_>) {
    let mut count = [0u8; 8];
    // SAFETY: `count` has 8 writable bytes. The counter is private to this process and non-blocking.
    let _ = unsafe { libc::read(fd.as_raw_fd(), count.as_mut_ptr().cast(), count.len()) };
}

/// A new epoll instance.
pub(super) fn epoll() -> io::Result<OwnedFd> {
    // SAFETY: no pointers.
    owned(unsafe { libc::epoll_create1(libc::EPOLL_CLOEXEC) })
}

/// Watches `fd`; `token` comes back with its events.
pub(super) fn epoll_add(epoll: BorrowedFd<'_>, fd: RawFd, events: libc::c_int, token: u64) -> io::Result<()> {
    epoll_control(epoll, libc::EPOLL_CTL_ADD, fd, events, token)
}

/// Changes what is watched.
pub(super) fn epoll_change(epoll: BorrowedFd<'_>, fd: RawFd, events: libc::c_int, token: u64) -> io::Result<()> {
    epoll_control(epoll, libc::EPOLL_CTL_MOD, fd, events, token)
}

/// Stops watching `fd`; one that is not watched is fine.
pub(super) fn epoll_remove(epoll: BorrowedFd<'_>, fd: RawFd) {
    let _ = epoll_control(epoll, libc::EPOLL_CTL_DEL, fd, 0, 0);
}

fn epoll_control(
    epoll: BorrowedFd<'_>,
    operation: libc::c_int,
    fd: RawFd,
    events: libc::c_int,
    token: u64,
) -> io::Result<()> {
    let mut event = libc::epoll_event { events: events.cast_unsigned(), u64: token };
    // SAFETY: `event` outlives the call.
    checked(unsafe { libc::epoll_ctl(epoll.as_raw_fd(), operation, fd, &raw mut event) }).map(|_| ())
}

/// One thing that epoll saw.
pub(super) const NO_EVENT: libc::epoll_event = libc::epoll_event { events: 0, u64: 0 };

/// Waits for events, at most `timeout_ms` (-1: forever). An interrupted wait counts as no event.
pub(super) fn epoll_wait(
    epoll: BorrowedFd<'_>,
    events: &mut [libc::epoll_event],
    timeout_ms: i32,
) -> io::Result<usize> {
    let room = i32::try_from(events.len()).unwrap_or(i32::MAX);
    // SAFETY: `events` has room for `room` entries.
    let result = unsafe { libc::epoll_wait(epoll.as_raw_fd(), events.as_mut_ptr(), room, timeout_ms) };
    match checked(result) {
        Ok(count) => Ok(usize::try_from(count).unwrap_or(0)),
        Err(error) if error.kind() == io::ErrorKind::Interrupted => Ok(0),
        Err(error) => Err(error),
    }
}

/// Waits until `fd` is readable or the point in time has come. True if readable.
pub(super) fn wait_readable(fd: BorrowedFd<'_>, until: Tick) -> bool {
    loop {
        let left = until.remaining();
        let mut poll = libc::pollfd { fd: fd.as_raw_fd(), events: libc::POLLIN, revents: 0 };
        let timeout = libc::timespec {
            tv_sec: libc::time_t::try_from(left.as_secs()).unwrap_or(libc::time_t::MAX),
            tv_nsec: libc::c_long::from(left.subsec_nanos().cast_signed()),
        };
        // SAFETY: `poll` and `timeout` outlive the call; no signal mask is changed.
        let result = unsafe { libc::ppoll(&raw mut poll, 1, &raw const timeout, core::ptr::null()) };
        match checked(result) {
            Ok(count) => return count > 0,
            Err(error) if error.kind() == io::ErrorKind::Interrupted && !left.is_zero() => {}
            Err(_) => return false,
        }
    }
}

/// A descriptor that becomes readable when the process ends. None where the kernel or the namespace has none.
pub(super) fn process_watch(pid: libc::pid_t) -> Option<OwnedFd> {
    if pid <= 0 {
        return None;
    }
    // SAFETY: no pointers.
    let result = unsafe { libc::syscall(libc::SYS_pidfd_open, pid, 0) };
    owned(libc::c_int::try_from(result).ok()?).ok()
}

/// This process's effective user.
pub(super) fn user() -> libc::uid_t {
    // SAFETY: cannot fail.
    unsafe { libc::geteuid() }
}

/// Fills an array with random bytes of the kernel.
pub(super) fn random<const N: usize>() -> io::Result<[u8; N]> {
    let mut bytes = [0; N];
    getrandom::fill(&mut bytes).map_err(|error| io::Error::other(error.to_string()))?;
    Ok(bytes)
}
