//! Memory that can be handed to another process, and the checks on memory that another process hands to us.

use super::sys;
use crate::error::{Error, Result, Status};
use crate::fabric::{Access, Region, RegionAddress};
use crate::options::HugePages;
use crate::sync::{Arc, AtomicU32, Mutex, Ordering, lock};
use core::ptr::NonNull;
use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};

/// Regions up to this size have all their pages from the start; larger ones get them when touched.
const POPULATE_BYTES_MAX: usize = 64 << 20;
/// The same for memory of a peer, which must not make us spend memory that nobody will use.
const PEER_POPULATE_BYTES_MAX: usize = 4 << 20;
/// Smallest huge page of the machines this runs on; only a hint for [`HugePages::Auto`].
const HUGE_PAGE_BYTES: usize = 2 << 20;
/// What must be sealed before memory of a peer is mapped: it can never shrink under us.
const SEALS_NEEDED: libc::c_int = libc::F_SEAL_SHRINK;
const SEALS_SET: libc::c_int = libc::F_SEAL_SHRINK | libc::F_SEAL_GROW | libc::F_SEAL_SEAL;

/// Mapped memory, unmapped when dropped.
#[derive(Debug)]
pub(super) struct Mapping {
    base: NonNull<u8>,
    bytes: usize,
}

// SAFETY: a mapping is an address range; all access to it goes through raw pointers and atomics.
unsafe impl Send for Mapping {}
// SAFETY: as above.
unsafe impl Sync for Mapping {}

impl Mapping {
    /// Maps the first `bytes` of a file, shared with everyone who maps it.
    pub(super) fn shared(fd: BorrowedFd<'_>, bytes: usize, writable: bool, populate: bool) -> io::Result<Mapping> {
        let rights = if writable { libc::PROT_READ | libc::PROT_WRITE } else { libc::PROT_READ };
        let flags = libc::MAP_SHARED | if populate { libc::MAP_POPULATE } else { 0 };
        Mapping::map(bytes, rights, flags, fd.as_raw_fd())
    }

    /// Maps zeroed memory of this process alone.
    fn private(bytes: usize, populate: bool) -> io::Result<Mapping> {
        let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | if populate { libc::MAP_POPULATE } else { 0 };
        Mapping::map(bytes, libc::PROT_READ | libc::PROT_WRITE, flags, -1)
    }

    fn map(bytes: usize, rights: libc::c_int, flags: libc::c_int, fd: libc::c_int) -> io::Result<Mapping> {
        Mapping::map_at(core::ptr::null_mut(), bytes, rights, flags, fd)
    }

    fn map_at(
        place: *mut libc::c_void,
        bytes: usize,
        rights: libc::c_int,
        flags: libc::c_int,
        fd: libc::c_int,
    ) -> io::Result<Mapping> {
        // SAFETY: a new mapping at an address of the kernel's choice touches no existing memory; at a place, the caller
        // owns what is mapped there.
        let address = unsafe { libc::mmap(place, bytes, rights, flags, fd, 0) };
        if address == libc::MAP_FAILED {
            return Err(io::Error::last_os_error());
        }
        let base = NonNull::new(address.cast::<u8>()).ok_or_else(|| io::Error::other("mmap gave address 0"))?;
        Ok(Mapping { base, bytes })
    }

    /// Maps the first `bytes` of a file where its huge pages can be mapped whole. Without its pages.
    fn aligned(fd: BorrowedFd<'_>, bytes: usize, writable: bool) -> io::Result<Mapping> {
        let rights = if writable { libc::PROT_READ | libc::PROT_WRITE } else { libc::PROT_READ };
        let bytes =
            bytes.checked_next_multiple_of(4096).ok_or_else(|| io::Error::from_raw_os_error(libc::EOVERFLOW))?;
        let room = bytes.checked_add(HUGE_PAGE_BYTES).ok_or_else(|| io::Error::from_raw_os_error(libc::EOVERFLOW))?;
        let reserve = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_NORESERVE;
        let whole = core::mem::ManuallyDrop::new(Mapping::map(room, libc::PROT_NONE, reserve, -1)?);
        let skipped = whole.base.as_ptr().align_offset(HUGE_PAGE_BYTES);
        let place = whole.base.as_ptr().wrapping_add(skipped);
        let fixed = libc::MAP_SHARED | libc::MAP_NORESERVE | libc::MAP_FIXED;
        let mapped = Mapping::map_at(place.cast(), bytes, rights, fixed, fd.as_raw_fd());
        let behind = place.wrapping_add(bytes);
        let left = room - skipped - bytes;
        // SAFETY: what is left of our own reservation before and behind the file, or all of it if that was not mapped.
        unsafe {
            if mapped.is_err() {
                libc::munmap(whole.base.as_ptr().cast(), room);
            } else {
                if skipped > 0 {
                    libc::munmap(whole.base.as_ptr().cast(), skipped);
                }
                if left > 0 {
                    libc::munmap(behind.cast(), left);
                }
            }
        }
        mapped
    }

    /// Puts zeros in the place of what is mapped, which lets go of the file. Whoever reads meanwhile reads zeros.
    pub(super) fn vacate(&self) {
        let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_NORESERVE | libc::MAP_FIXED;
        let place = self.base.as_ptr().cast();
        // SAFETY: replaces exactly this mapping, which stays readable. A refusal leaves the file where it is.
        unsafe { libc::mmap(place, self.bytes, libc::PROT_READ, flags, -1, 0) };
        self.advise(libc::MADV_DONTFORK);
    }

    fn advise(&self, advice: libc::c_int) {
        // SAFETY: the range is this mapping; none of the advice that is given here changes content, and a kernel that does
        // not know it says so.
        unsafe { libc::madvise(self.base.as_ptr().cast(), self.bytes, advice) };
    }

    /// A private copy of it.
    fn copied(&self) -> io::Result<Mapping> {
        let copy = Mapping::private(self.bytes, false)?;
        copy.take(self);
        Ok(copy)
    }

    /// Copies another one of the same length.
    fn take(&self, from: &Mapping) {
        debug_assert_eq!(self.bytes, from.bytes);
        // SAFETY: both are mapped and do not overlap; nobody writes to them now, as who suspends or resumes promises.
        unsafe { core::ptr::copy_nonoverlapping(from.base.as_ptr(), self.base.as_ptr(), from.bytes.min(self.bytes)) };
    }

    /// Takes the place of another one of the same length, whose address stays what it was.
    fn move_onto(self, place: &Mapping) -> io::Result<()> {
        let mut own = core::mem::ManuallyDrop::new(self);
        let (from, to) = (own.base.as_ptr().cast::<libc::c_void>(), place.base.as_ptr().cast::<libc::c_void>());
        let flags = libc::MREMAP_MAYMOVE | libc::MREMAP_FIXED;
        // SAFETY: replaces exactly the range of `place`, which stays mapped, now with the same bytes from elsewhere.
        let moved = unsafe { libc::mremap(from, own.bytes, place.bytes, flags, to) };
        if moved == libc::MAP_FAILED {
            let error = io::Error::last_os_error();
            // SAFETY: it is still mapped where it was, and is not used again.
            unsafe { core::mem::ManuallyDrop::drop(&mut own) };
            return Err(error);
        }
        // Its own range is not mapped any more: there is nothing to unmap.
        Ok(())
    }

    /// First address.
    pub(super) fn base(&self) -> NonNull<u8> {
        self.base
    }

    /// Length in bytes.
    pub(super) fn bytes(&self) -> usize {
        self.bytes
    }

    /// Asks for transparent huge pages, before the first page is touched.
    fn advise_huge(&self, populate: bool) {
        let advise = |advice| {
            // SAFETY: the range is this mapping; neither advice changes content. A kernel without it says so: fine.
            let _ = unsafe { libc::madvise(self.base.as_ptr().cast(), self.bytes, advice) };
        };
        advise(libc::MADV_HUGEPAGE);
        if populate {
            advise(libc::MADV_POPULATE_WRITE);
        }
    }
}

impl Drop for Mapping {
    fn drop(&mut self) {
        // SAFETY: exactly the range that was mapped; whoever holds pointers into it holds the mapping too.
        unsafe { libc::munmap(self.base.as_ptr().cast(), self.bytes) };
    }
}

/// Makes a sealed file in memory with `bytes` bytes of zeros and maps it.
pub(super) fn sealed_memory(bytes: usize, huge: bool, populate: bool) -> io::Result<(OwnedFd, Mapping)> {
    let (fd, length) = file_in_memory(bytes, huge)?;
    seal(fd.as_fd(), SEALS_SET)?;
    let mapping = Mapping::shared(fd.as_fd(), length, true, populate)?;
    Ok((fd, mapping))
}

fn seal(fd: BorrowedFd<'_>, seals: libc::c_int) -> io::Result<()> {
    // SAFETY: no pointers.
    sys::checked(unsafe { libc::fcntl(fd.as_raw_fd(), libc::F_ADD_SEALS, seals) }).map(|_| ())
}

/// A file in memory, not sealed yet, and its length, which is a multiple of its pages.
fn file_in_memory(bytes: usize, huge: bool) -> io::Result<(OwnedFd, usize)> {
    let flags = libc::MFD_CLOEXEC | libc::MFD_ALLOW_SEALING | if huge { libc::MFD_HUGETLB } else { 0 };
    // SAFETY: the name is a NUL-terminated string.
    let fd = sys::owned(unsafe { libc::memfd_create(c"reclane".as_ptr(), flags) })?;
    let page = usize::try_from(status_of(fd.as_fd())?.st_blksize).unwrap_or(4096).max(4096);
    let length = bytes.checked_next_multiple_of(page).ok_or_else(|| io::Error::from_raw_os_error(libc::EOVERFLOW))?;
    let offset = libc::off_t::try_from(length).map_err(|_| io::Error::from_raw_os_error(libc::EOVERFLOW))?;
    // SAFETY: no pointers.
    sys::checked(unsafe { libc::ftruncate(fd.as_raw_fd(), offset) })?;
    Ok((fd, length))
}

fn status_of(fd: BorrowedFd<'_>) -> io::Result<libc::stat> {
    let mut status = core::mem::MaybeUninit::<libc::stat>::uninit();
    // SAFETY: `status` is writable.
    sys::checked(unsafe { libc::fstat(fd.as_raw_fd(), status.as_mut_ptr()) })?;
    // SAFETY: filled by the successful call.
    Ok(unsafe { status.assume_init() })
}

/// Which file a descriptor names; equal for two descriptors of one file while either lives.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub(super) struct FileId {
    device: u64,
    inode: u64,
}

/// Whether the file's pages are reserved huge ones. Others come back, zeroed, when a hole that was punched into them is
/// touched; these come from a pool that may be empty by then, and the touch is a SIGBUS.
fn is_on_reserved_huge_pages(fd: BorrowedFd<'_>) -> io::Result<bool> {
    let mut about = core::mem::MaybeUninit::<libc::statfs>::uninit();
    // SAFETY: `about` is writable.
    sys::checked(unsafe { libc::fstatfs(fd.as_raw_fd(), about.as_mut_ptr()) })?;
    // SAFETY: filled by the successful call.
    Ok(unsafe { about.assume_init() }.f_type == libc::HUGETLBFS_MAGIC)
}

/// Checks memory that a peer handed over, so that touching its first `bytes` can never fault: it is a file in memory,
/// long enough, sealed against shrinking, and, unless `huge`, not on reserved huge pages.
pub(super) fn verify_peer_memory(
    fd: BorrowedFd<'_>,
    bytes: usize,
    huge: bool,
) -> core::result::Result<FileId, &'static str> {
    // SAFETY: no pointers. Files that are not in memory have no seals and give an error.
    let seals = sys::checked(unsafe { libc::fcntl(fd.as_raw_fd(), libc::F_GET_SEALS) })
        .map_err(|_| "the descriptor is not a sealable file in memory")?;
    if seals & SEALS_NEEDED != SEALS_NEEDED {
        return Err("the memory is not sealed against shrinking");
    }
    if !huge && is_on_reserved_huge_pages(fd).map_err(|_| "the memory's kind cannot be read")? {
        return Err("the memory is on reserved huge pages, which need huge-pages=on at both ends");
    }
    let status = status_of(fd).map_err(|_| "the memory's size cannot be read")?;
    if bytes == 0 || u64::try_from(status.st_size).unwrap_or(0) < bytes as u64 {
        return Err("the memory is smaller than announced");
    }
    Ok(FileId { device: status.st_dev, inode: status.st_ino })
}

/// Maps memory that [`verify_peer_memory`] found good.
pub(super) fn map_peer_memory(fd: BorrowedFd<'_>, bytes: usize, writable: bool, eager: bool) -> io::Result<Mapping> {
    if !writable && bytes > PEER_POPULATE_BYTES_MAX {
        let mapping = Mapping::aligned(fd, bytes, writable)?;
        // A child that somebody forks must not keep it when this process has let it go.
        mapping.advise(libc::MADV_DONTFORK);
        return Ok(mapping);
    }
    Mapping::shared(fd, bytes, writable, eager && bytes <= PEER_POPULATE_BYTES_MAX)
}

/// A file in memory, of this process and of whom it is [lent](crate::fabric::Fabric::lend) to. It cannot change its
/// length, and takes memory only where it was touched.
#[derive(Debug)]
pub struct SharedFile {
    fd: OwnedFd,
    mapping: Arc<Mapping>,
}

impl SharedFile {
    /// A file of `bytes` zeros.
    ///
    /// # Errors
    /// `OsError` or `ResourceLimit`.
    pub fn new(bytes: usize) -> Result<SharedFile> {
        let made = || {
            let (fd, length) = file_in_memory(bytes, false)?;
            let mapping = Arc::new(Mapping::aligned(fd.as_fd(), length, true)?);
            // It may be as large as the machine's memory, and to write its holes to a core file would fill them.
            mapping.advise(libc::MADV_DONTDUMP);
            // From now on nobody can map it for writing, whatever descriptor of it he gets hold of. Linux before 5.1 does
            // not know that.
            if seal(fd.as_fd(), SEALS_SET | libc::F_SEAL_FUTURE_WRITE).is_err() {
                seal(fd.as_fd(), SEALS_SET)?;
            }
            Ok(SharedFile { fd, mapping })
        };
        made().map_err(|error: io::Error| allocation_error(bytes, &error))
    }

    /// Where it is mapped here: at a multiple of 2 MiB. Valid for reads and writes as long as this value lives.
    #[must_use]
    pub fn base(&self) -> NonNull<u8> {
        self.mapping.base()
    }

    /// Its length.
    #[must_use]
    pub fn bytes(&self) -> usize {
        self.mapping.bytes()
    }

    /// Asks for huge pages, as far as the system gives them to files in memory.
    pub fn advise_huge(&self) {
        self.mapping.advise_huge(false);
    }
}

/// Registered memory of the shared-memory provider.
#[derive(Clone, Debug)]
pub struct ShmRegion(Arc<Owned>);

#[derive(Debug)]
struct Owned {
    mapping: Arc<Mapping>,
    bytes: usize,
    /// The address that peers use.
    iova: u64,
    rkey: AtomicU32,
    access: Access,
    /// What peers get; none for local memory, and while it is suspended. Read-only where peers may only read.
    shared: Mutex<Option<Arc<OwnedFd>>>,
}

impl ShmRegion {
    pub(super) fn allocate(bytes: usize, access: Access, huge: HugePages, iova: Option<u64>) -> Result<ShmRegion> {
        if bytes == 0 {
            return Err(Error::new(
                Status::InvalidArgument,
                "a region of 0 bytes cannot be registered; ask for 1 or more",
            ));
        }
        let failed = |error: io::Error| allocation_error(bytes, &error);
        let rkey = AtomicU32::new(u32::from_le_bytes(sys::random().map_err(failed)?));
        let populate = bytes <= POPULATE_BYTES_MAX;
        if access == Access::LOCAL {
            let mapping = Mapping::private(bytes, populate).map_err(failed)?;
            let iova = iova.unwrap_or(mapping.base().as_ptr() as u64);
            let mapping = Arc::new(mapping);
            return Ok(ShmRegion(Arc::new(Owned { mapping, bytes, iova, rkey, access, shared: Mutex::default() })));
        }
        let advise = huge == HugePages::Auto && bytes >= HUGE_PAGE_BYTES;
        let (fd, mapping) = sealed_memory(bytes, huge == HugePages::On, populate && !advise).map_err(failed)?;
        if advise {
            mapping.advise_huge(populate);
        }
        let shared = if access == Access::REMOTE_READ { read_only(fd.as_fd()).unwrap_or(fd) } else { fd };
        let iova = iova.unwrap_or(mapping.base().as_ptr() as u64);
        let (shared, mapping) = (Mutex::new(Some(Arc::new(shared))), Arc::new(mapping));
        Ok(ShmRegion(Arc::new(Owned { mapping, bytes, iova, rkey, access, shared })))
    }

    /// A region of a file of this process, which peers only read.
    pub(super) fn lend(file: &SharedFile) -> Result<ShmRegion> {
        let bytes = file.bytes();
        let lent = || {
            let rkey = AtomicU32::new(u32::from_le_bytes(sys::random()?));
            // What cannot be opened for reading alone is not lent.
            let fd = read_only(file.fd.as_fd())?;
            let mapping = Arc::clone(&file.mapping);
            let (iova, shared) = (mapping.base().as_ptr() as u64, Mutex::new(Some(Arc::new(fd))));
            Ok(ShmRegion(Arc::new(Owned { mapping, bytes, iova, rkey, access: Access::LENT, shared })))
        };
        lent().map_err(|error: io::Error| allocation_error(bytes, &error))
    }

    /// What a peer gets, if peers may reach it at all.
    pub(super) fn shared(&self) -> Option<Arc<OwnedFd>> {
        lock(&self.0.shared).clone()
    }
}

impl Region for ShmRegion {
    fn base(&self) -> NonNull<u8> {
        self.0.mapping.base()
    }

    fn bytes(&self) -> usize {
        self.0.bytes
    }

    fn lkey(&self) -> u32 {
        self.0.rkey.load(Ordering::Relaxed)
    }

    fn address(&self) -> RegionAddress {
        let rkey = self.0.rkey.load(Ordering::Relaxed);
        RegionAddress { iova: self.0.iova, bytes: self.0.bytes as u64, rkey, access: self.0.access }
    }

    fn suspend(&self) -> Result<()> {
        let mut shared = lock(&self.0.shared);
        if shared.is_none() {
            return Ok(());
        }
        let place = &self.0.mapping;
        let moved = place.copied().and_then(|copy| copy.move_onto(place));
        moved.map_err(|error| allocation_error(self.0.bytes, &error))?;
        *shared = None;
        Ok(())
    }

    fn resume(&self) -> Result<()> {
        let mut shared = lock(&self.0.shared);
        if shared.is_some() || self.0.access == Access::LOCAL {
            return Ok(());
        }
        let place = &self.0.mapping;
        let anew = || {
            // Never a key that a former registration had, but by chance.
            let rkey = u32::from_le_bytes(sys::random()?);
            let (fd, mapping) = sealed_memory(place.bytes, false, false)?;
            mapping.take(place);
            let fd = if self.0.access == Access::REMOTE_READ { read_only(fd.as_fd()).unwrap_or(fd) } else { fd };
            mapping.move_onto(place)?;
            self.0.rkey.store(rkey, Ordering::Relaxed);
            Ok(fd)
        };
        let fd = anew().map_err(|error: io::Error| allocation_error(self.0.bytes, &error))?;
        *shared = Some(Arc::new(fd));
        Ok(())
    }
}

fn allocation_error(bytes: usize, error: &io::Error) -> Box<Error> {
    let mut report = Error::os(format_args!("shm: cannot allocate a region of {bytes} bytes"), error);
    if matches!(error.raw_os_error(), Some(libc::ENOMEM | libc::EMFILE | libc::ENFILE | libc::EOVERFLOW)) {
        report.status = Status::ResourceLimit;
    }
    report
}

/// A second descriptor of the same file through which it cannot be written.
fn read_only(fd: BorrowedFd<'_>) -> io::Result<OwnedFd> {
    let path = std::ffi::CString::new(format!("/proc/self/fd/{}", fd.as_raw_fd()))?;
    // SAFETY: `path` is a NUL-terminated string.
    sys::owned(unsafe { libc::open(path.as_ptr(), libc::O_RDONLY | libc::O_CLOEXEC) })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_sealed_and_large_enough_files_in_memory_are_good() {
        let (fd, _mapping) = sealed_memory(4096, false, false).expect("memory");
        assert!(verify_peer_memory(fd.as_fd(), 4096, false).is_ok());
        assert!(verify_peer_memory(fd.as_fd(), 4097, false).is_err());
        assert!(verify_peer_memory(fd.as_fd(), 0, false).is_err());
        // SAFETY: the name is a NUL-terminated string.
        let unsealed =
            sys::owned(unsafe { libc::memfd_create(c"t".as_ptr(), libc::MFD_ALLOW_SEALING) }).expect("memory");
        // SAFETY: no pointers.
        sys::checked(unsafe { libc::ftruncate(unsealed.as_raw_fd(), 4096) }).expect("size");
        assert!(verify_peer_memory(unsealed.as_fd(), 4096, false).is_err());
        let file = std::fs::File::open("/proc/self/exe").expect("own program");
        assert!(verify_peer_memory(file.as_fd(), 1, false).is_err());
        // A machine without reserved huge pages has no such memory.
        if let Ok((huge, _mapping)) = sealed_memory(4096, true, false) {
            assert!(verify_peer_memory(huge.as_fd(), 4096, false).expect_err("refused").contains("huge-pages=on"));
            assert!(verify_peer_memory(huge.as_fd(), 4096, true).is_ok());
        }
        let event = sys::event().expect("event");
        assert!(verify_peer_memory(event.as_fd(), 1, false).is_err());
    }

    #[test]
    fn sealed_memory_cannot_be_resized_by_anyone() {
        let (fd, mapping) = sealed_memory(100, false, true).expect("memory");
        assert_eq!(mapping.bytes(), 4096);
        for bytes in [0, 8192] {
            // SAFETY: no pointers.
            assert!(sys::checked(unsafe { libc::ftruncate(fd.as_raw_fd(), bytes) }).is_err());
        }
    }

    #[test]
    fn memory_stays_where_it_is_while_it_belongs_to_nobody_else() {
        for access in [Access::ALL, Access::REMOTE_READ, Access::LOCAL] {
            let region = ShmRegion::allocate(10_000, access, HugePages::Off, Some(1 << 40)).expect("region");
            let (base, before) = (region.base(), region.address());
            // SAFETY: inside the region, which nobody else has.
            unsafe { base.as_ptr().write_bytes(7, 10_000) };
            for round in 0..3 {
                region.suspend().expect("suspended");
                region.suspend().expect("once more does nothing");
                assert!(region.shared().is_none() && region.base() == base);
                // SAFETY: as above.
                let bytes = unsafe { core::slice::from_raw_parts_mut(base.as_ptr(), 10_000) };
                assert!(bytes.iter().all(|byte| *byte == 7 + round), "{access:?}");
                bytes.fill(8 + round);
                region.resume().expect("resumed");
                // SAFETY: as above.
                assert_eq!(unsafe { base.as_ptr().add(9999).read() }, 8 + round);
                assert_eq!((region.address().iova, region.bytes()), (before.iova, 10_000));
                assert_eq!(region.shared().is_some(), access != Access::LOCAL);
            }
            let fd = region.shared();
            let seen = fd.map(|fd| Mapping::shared(fd.as_fd(), 4096, false, false).expect("a peer's mapping"));
            // SAFETY: mapped.
            assert!(seen.is_none_or(|seen| unsafe { seen.base().as_ptr().read() } == 10));
        }
    }

    #[test]
    fn memory_that_peers_may_only_read_is_handed_over_read_only() {
        let region = ShmRegion::allocate(4096, Access::REMOTE_READ, HugePages::Off, None).expect("region");
        let fd = region.shared().expect("descriptor");
        assert!(Mapping::shared(fd.as_fd(), 4096, true, false).is_err());
        assert!(Mapping::shared(fd.as_fd(), 4096, false, false).is_ok());
        assert!(ShmRegion::allocate(4096, Access::LOCAL, HugePages::Off, None).expect("region").shared().is_none());
        assert_eq!(
            ShmRegion::allocate(0, Access::ALL, HugePages::Off, None).map(|_| ()).unwrap_err().status,
            Status::InvalidArgument
        );
    }
}
