//! Sockets of one host: abstract names, whole messages, descriptors beside them. Never blocking.

use super::message::DESCRIPTORS_MAX;
use super::sys;
use std::io;
use std::os::fd::{AsRawFd, BorrowedFd, FromRawFd, OwnedFd, RawFd};

/// Random name of an endpoint in the abstract name space: nothing of it lies on the file system, and it ends with its
/// process.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub(super) struct EndpointName(pub(super) [u8; 16]);

const NAME_PREFIX: &[u8] = b"reclane-shm-";

impl EndpointName {
    fn socket_address(self) -> (libc::sockaddr_un, libc::socklen_t) {
        // SAFETY: all-zero is a valid sockaddr_un.
        let mut address: libc::sockaddr_un = unsafe { core::mem::zeroed() };
        address.sun_family = libc::sa_family_t::try_from(libc::AF_UNIX).unwrap_or_default();
        let hex = format!("{:032x}", u128::from_be_bytes(self.0));
        // The first byte stays 0: an abstract name.
        let name = NAME_PREFIX.iter().chain(hex.as_bytes());
        let mut length = 1;
        for (to, from) in address.sun_path[1..].iter_mut().zip(name) {
            *to = from.cast_signed();
            length += 1;
        }
        let bytes = core::mem::offset_of!(libc::sockaddr_un, sun_path) + length;
        (address, libc::socklen_t::try_from(bytes).unwrap_or_default())
    }
}

const KIND: libc::c_int = libc::SOCK_SEQPACKET | libc::SOCK_CLOEXEC | libc::SOCK_NONBLOCK;

fn socket() -> io::Result<OwnedFd> {
    // SAFETY: no pointers.
    sys::owned(unsafe { libc::socket(libc::AF_UNIX, KIND, 0) })
}

/// Listens under `name`.
pub(super) fn listen(name: EndpointName) -> io::Result<OwnedFd> {
    let fd = socket()?;
    let (address, length) = name.socket_address();
    // SAFETY: `address` outlives the call and has `length` bytes.
    sys::checked(unsafe { libc::bind(fd.as_raw_fd(), (&raw const address).cast(), length) })?;
    // SAFETY: no pointers.
    sys::checked(unsafe { libc::listen(fd.as_raw_fd(), 1024) })?;
    Ok(fd)
}

/// Connects to `name`. `WouldBlock`: its queue is full, try again.
pub(super) fn dial(name: EndpointName) -> io::Result<OwnedFd> {
    let fd = socket()?;
    let (address, length) = name.socket_address();
    // SAFETY: `address` outlives the call and has `length` bytes.
    sys::checked(unsafe { libc::connect(fd.as_raw_fd(), (&raw const address).cast(), length) })?;
    Ok(fd)
}

/// Takes one waiting connection.
pub(super) fn accept(listener: BorrowedFd<'_>) -> io::Result<OwnedFd> {
    let flags = libc::SOCK_CLOEXEC | libc::SOCK_NONBLOCK;
    // SAFETY: the peer's address is not asked for.
    sys::owned(unsafe { libc::accept4(listener.as_raw_fd(), core::ptr::null_mut(), core::ptr::null_mut(), flags) })
}

/// Two connected sockets: the sender's and the receiver's end of a bell.
pub(super) fn pair() -> io::Result<(OwnedFd, OwnedFd)> {
    let mut fds: [RawFd; 2] = [-1; 2];
    // SAFETY: `fds` has room for two.
    sys::checked(unsafe { libc::socketpair(libc::AF_UNIX, KIND, 0, fds.as_mut_ptr()) })?;
    // SAFETY: two new descriptors that nobody else owns.
    Ok(unsafe { (OwnedFd::from_raw_fd(fds[0]), OwnedFd::from_raw_fd(fds[1])) })
}

fn option<T: Copy>(fd: BorrowedFd<'_>, option: libc::c_int, empty: T) -> io::Result<T> {
    let mut value = empty;
    let mut length = libc::socklen_t::try_from(size_of::<T>()).unwrap_or_default();
    // SAFETY: `value` has `length` writable bytes, and T is a plain C value.
    sys::checked(unsafe {
        libc::getsockopt(fd.as_raw_fd(), libc::SOL_SOCKET, option, (&raw mut value).cast(), &raw mut length)
    })?;
    Ok(value)
}

/// Process and user at the other end, as the kernel saw them when the connection was made.
pub(super) fn peer_of(fd: BorrowedFd<'_>) -> io::Result<(libc::pid_t, libc::uid_t)> {
    let peer = option(fd, libc::SO_PEERCRED, libc::ucred { pid: 0, uid: libc::uid_t::MAX, gid: libc::gid_t::MAX })?;
    Ok((peer.pid, peer.uid))
}

/// Whether a descriptor of a peer is a socket on which [`ring`] cannot block.
pub(super) fn is_bell(fd: BorrowedFd<'_>) -> bool {
    let is = |name, value| option::<libc::c_int>(fd, name, 0).is_ok_and(|found| found == value);
    is(libc::SO_DOMAIN, libc::AF_UNIX) && is(libc::SO_TYPE, libc::SOCK_SEQPACKET)
}

/// Sends one byte. Blocks never, whatever flags the other end has set on the socket; a full queue already rings.
pub(super) fn ring(fd: BorrowedFd<'_>) {
    let byte = 1u8;
    // SAFETY: one readable byte.
    unsafe {
        libc::send(fd.as_raw_fd(), (&raw const byte).cast(), 1, libc::MSG_DONTWAIT | libc::MSG_NOSIGNAL);
    }
}

/// Takes waiting bytes of [`ring`] away. False when the other end is closed.
pub(super) fn drain(fd: BorrowedFd<'_>) -> bool {
    const ROUNDS_MAX: usize = 64;
    let mut byte = 0u8;
    for _ in 0..ROUNDS_MAX {
        // SAFETY: one writable byte.
        let got = unsafe { libc::recv(fd.as_raw_fd(), (&raw mut byte).cast(), 1, libc::MSG_DONTWAIT) };
        match got {
            0 => return false,
            1.. => {}
            _ => return io::Error::last_os_error().kind() == io::ErrorKind::WouldBlock,
        }
    }
    true
}

/// Ends a connection in both directions; the descriptor lives on.
pub(super) fn shut(fd: BorrowedFd<'_>) {
    // SAFETY: no pointers. A connection that has already ended gives an error, which is fine.
    unsafe { libc::shutdown(fd.as_raw_fd(), libc::SHUT_RDWR) };
}

const CONTROL_BYTES: usize = 64;

/// Room for descriptors beside a message, aligned as the kernel wants it.
#[repr(C, align(8))]
struct Control([u8; CONTROL_BYTES]);

/// Sends one whole message with descriptors beside it.
pub(super) fn send(fd: BorrowedFd<'_>, bytes: &[u8], fds: &[RawFd]) -> io::Result<()> {
    debug_assert!(fds.len() <= DESCRIPTORS_MAX);
    let mut piece = libc::iovec { iov_base: bytes.as_ptr().cast_mut().cast(), iov_len: bytes.len() };
    let mut control = Control([0; CONTROL_BYTES]);
    // SAFETY: all-zero is a valid msghdr.
    let mut message: libc::msghdr = unsafe { core::mem::zeroed() };
    message.msg_iov = &raw mut piece;
    message.msg_iovlen = 1;
    if !fds.is_empty() {
        let payload = libc::c_uint::try_from(size_of_val(fds)).unwrap_or_default();
        message.msg_control = (&raw mut control).cast();
        // SAFETY: arithmetic only.
        message.msg_controllen = unsafe { libc::CMSG_SPACE(payload) } as usize;
        // SAFETY: `control` has room for one header and DESCRIPTORS_MAX descriptors, and is aligned for it.
        unsafe {
            let header = libc::CMSG_FIRSTHDR(&raw const message);
            (*header).cmsg_level = libc::SOL_SOCKET;
            (*header).cmsg_type = libc::SCM_RIGHTS;
            (*header).cmsg_len = libc::CMSG_LEN(payload) as usize;
            core::ptr::copy_nonoverlapping(fds.as_ptr().cast::<u8>(), libc::CMSG_DATA(header), size_of_val(fds));
        }
    }
    // SAFETY: everything that `message` points to outlives the call; the kernel only reads it.
    let sent = unsafe { libc::sendmsg(fd.as_raw_fd(), &raw const message, libc::MSG_DONTWAIT | libc::MSG_NOSIGNAL) };
    if sent < 0 { Err(io::Error::last_os_error()) } else { Ok(()) }
}

/// What arrived.
pub(super) struct Received {
    /// Bytes of the message; 0 at the end of the connection.
    pub(super) bytes: usize,
    /// Message or descriptors were longer than we take.
    pub(super) truncated: bool,
    /// Descriptors beside it, closed on exec.
    pub(super) fds: Vec<OwnedFd>,
}

/// Takes one whole message.
pub(super) fn receive(fd: BorrowedFd<'_>, buffer: &mut [u8]) -> io::Result<Received> {
    let mut piece = libc::iovec { iov_base: buffer.as_mut_ptr().cast(), iov_len: buffer.len() };
    let mut control = Control([0; CONTROL_BYTES]);
    // SAFETY: all-zero is a valid msghdr.
    let mut message: libc::msghdr = unsafe { core::mem::zeroed() };
    message.msg_iov = &raw mut piece;
    message.msg_iovlen = 1;
    message.msg_control = (&raw mut control).cast();
    message.msg_controllen = CONTROL_BYTES;
    // SAFETY: everything that `message` points to is writable and outlives the call.
    let got = unsafe { libc::recvmsg(fd.as_raw_fd(), &raw mut message, libc::MSG_DONTWAIT | libc::MSG_CMSG_CLOEXEC) };
    let Ok(bytes) = usize::try_from(got) else { return Err(io::Error::last_os_error()) };
    let mut fds = Vec::new();
    // SAFETY: the kernel filled `control` with whole headers; CMSG_NXTHDR stays inside it. Every descriptor found is new
    // and ours, and is taken over exactly once.
    unsafe {
        let mut header = libc::CMSG_FIRSTHDR(&raw const message);
        while !header.is_null() {
            if (*header).cmsg_level == libc::SOL_SOCKET && (*header).cmsg_type == libc::SCM_RIGHTS {
                let payload = ((*header).cmsg_len as usize).saturating_sub(libc::CMSG_LEN(0) as usize);
                for index in 0..payload / size_of::<RawFd>() {
                    let place = libc::CMSG_DATA(header).cast::<RawFd>().add(index);
                    fds.push(OwnedFd::from_raw_fd(place.read_unaligned()));
                }
            }
            header = libc::CMSG_NXTHDR(&raw const message, header);
        }
    }
    let truncated = message.msg_flags & (libc::MSG_TRUNC | libc::MSG_CTRUNC) != 0;
    Ok(Received { bytes, truncated, fds })
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::fd::AsFd;

    #[test]
    fn messages_keep_their_borders_and_carry_descriptors() {
        let (left, right) = pair().expect("pair");
        let event = sys::event().expect("event");
        send(left.as_fd(), b"one", &[event.as_raw_fd(), event.as_raw_fd(), event.as_raw_fd()]).expect("send");
        send(left.as_fd(), b"twotwo", &[]).expect("send");
        let mut buffer = [0; 4];
        let first = receive(right.as_fd(), &mut buffer).expect("receive");
        assert_eq!((first.bytes, first.truncated, first.fds.len()), (3, false, 3));
        let second = receive(right.as_fd(), &mut buffer).expect("receive");
        assert!(second.truncated);
        assert_eq!(receive(right.as_fd(), &mut buffer).err().map(|e| e.kind()), Some(io::ErrorKind::WouldBlock));
        drop(left);
        assert_eq!(receive(right.as_fd(), &mut buffer).expect("end").bytes, 0);
    }

    #[test]
    fn more_descriptors_than_fit_are_truncated_and_closed() {
        let (left, right) = pair().expect("pair");
        let event = sys::event().expect("event");
        let many = [event.as_raw_fd(); 32];
        let mut control = [0u64; 32];
        let mut byte = 7u8;
        let mut piece = libc::iovec { iov_base: (&raw mut byte).cast(), iov_len: 1 };
        // SAFETY: as in `send`, with a larger control buffer.
        unsafe {
            let mut message: libc::msghdr = core::mem::zeroed();
            message.msg_iov = &raw mut piece;
            message.msg_iovlen = 1;
            message.msg_control = control.as_mut_ptr().cast();
            message.msg_controllen = libc::CMSG_SPACE(128) as usize;
            let header = libc::CMSG_FIRSTHDR(&raw const message);
            (*header).cmsg_level = libc::SOL_SOCKET;
            (*header).cmsg_type = libc::SCM_RIGHTS;
            (*header).cmsg_len = libc::CMSG_LEN(128) as usize;
            core::ptr::copy_nonoverlapping(many.as_ptr().cast::<u8>(), libc::CMSG_DATA(header), 128);
            assert_eq!(libc::sendmsg(left.as_raw_fd(), &raw const message, 0), 1);
        }
        let mut buffer = [0; 4];
        assert!(receive(right.as_fd(), &mut buffer).expect("receive").truncated);
    }

    #[test]
    fn peers_are_known_and_bells_are_recognised() {
        let (left, right) = pair().expect("pair");
        let (pid, uid) = peer_of(left.as_fd()).expect("peer");
        assert_eq!((pid.cast_unsigned(), uid), (std::process::id(), sys::user()));
        assert!(is_bell(left.as_fd()));
        assert!(!is_bell(sys::event().expect("event").as_fd()));
        ring(left.as_fd());
        ring(left.as_fd());
        assert!(drain(right.as_fd()));
        drop(left);
        assert!(!drain(right.as_fd()));
    }
}
