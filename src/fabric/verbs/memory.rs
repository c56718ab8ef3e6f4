//! Registered memory.

use super::arena::{Kind, Part};
use super::device::Device;
use super::locked;
use super::sys::{code, ibv_mr};
use crate::error::{Error, Result, Status};
use crate::fabric::{Access, Region, RegionAddress};
use crate::numa;
use crate::options::HugePages;
use crate::sync::Arc;
use core::ffi::c_void;
use core::ptr::NonNull;
use std::io;

const PAGE_BYTES: usize = 4096;
const HUGE_PAGE_BYTES: usize = 2 << 20;

/// Registered memory of the verbs provider: private pages of this process, pinned while it lives.
#[derive(Clone, Debug)]
pub struct VerbsRegion(Arc<Inner>);

#[derive(Debug)]
enum Inner {
    Whole(Registered),
    /// A part of one, with its length.
    Part(Part, usize),
}

#[derive(Debug)]
struct Registered {
    base: NonNull<u8>,
    /// What was asked for and is registered.
    bytes: usize,
    /// 0: somebody else's memory.
    mapped_bytes: usize,
    /// The address that peers use.
    iova: u64,
    mr: NonNull<ibv_mr>,
    /// A second registration under the memory's own address, where peers use another one: a key goes with its address for
    /// local work, too, and local work names the memory by where it is.
    local_mr: Option<NonNull<ibv_mr>>,
    lkey: u32,
    rkey: u32,
    access: Access,
    device: Arc<Device>,
}

// SAFETY: an address range and a handle that any thread may use; access goes through raw pointers and atomics.
unsafe impl Send for Registered {}
// SAFETY: as above.
unsafe impl Sync for Registered {}

/// The rights of the verbs. Never relaxed ordering: what a slot's reader sees first must be the data.
pub(super) fn rights(access: Access, has_atomics: bool) -> u32 {
    let right = |needed, bit| if access.allows(needed) { bit } else { 0 };
    code::ACCESS_LOCAL_WRITE
        | right(Access::REMOTE_WRITE, code::ACCESS_REMOTE_WRITE)
        | right(Access::REMOTE_READ, code::ACCESS_REMOTE_READ)
        | if has_atomics { right(Access::REMOTE_ATOMIC, code::ACCESS_REMOTE_ATOMIC) } else { 0 }
}

impl VerbsRegion {
    /// Allocates zeroed memory and registers it under `iova`, or else under its own address.
    pub(super) fn allocate(
        device: &Arc<Device>,
        bytes: usize,
        Kind { access, huge, numa_id }: Kind,
        iova: Option<u64>,
    ) -> Result<VerbsRegion> {
        if bytes == 0 {
            return Err(Error::new(Status::InvalidArgument, "verbs: a region of 0 bytes"));
        }
        let library = device.context.library;
        if iova.is_some() && library.reg_mr_iova2.is_none() && library.reg_mr_iova.is_none() {
            let why = "verbs: this libibverbs cannot register memory under a chosen address; take one of rdma-core 16 or newer";
            return Err(Error::new(Status::Unsupported, why));
        }
        let (base, mapped_bytes) = map(bytes, huge)?;
        // Registering brings all pages.
        numa::prefer(numa_id, base, mapped_bytes);
        let iova = iova.unwrap_or(base.addr().get() as u64);
        match register_both(device, base, bytes, access, iova) {
            Ok((mr, local_mr)) => {
                // SAFETY: the registrations are alive.
                let (lkey, rkey) = unsafe { ((*local_mr.unwrap_or(mr).as_ptr()).lkey, (*mr.as_ptr()).rkey) };
                let device = Arc::clone(device);
                let registered =
                    Registered { base, bytes, mapped_bytes, iova, mr, local_mr, lkey, rkey, access, device };
                locked::add(registered.locked_bytes());
                Ok(VerbsRegion(Arc::new(Inner::Whole(registered))))
            }
            Err(error) => {
                let twice = iova != base.addr().get() as u64;
                let refused = why_not_registered(device, bytes, twice, &error);
                // SAFETY: mapped above, and nobody has it.
                unsafe { libc::munmap(base.as_ptr().cast(), mapped_bytes) };
                Err(refused)
            }
        }
    }

    /// Registers memory of somebody else under its own address, for local work that reads it.
    ///
    /// # Safety
    /// The memory is readable and stays so until the last clone is dropped.
    pub(super) unsafe fn adopt(device: &Arc<Device>, base: NonNull<u8>, bytes: usize) -> Result<VerbsRegion> {
        let iova = base.addr().get() as u64;
        // Nothing is written there: pages of which nothing is there yet stay so, as far as the kernel can.
        let mr = register_as(device, base, bytes, 0, iova)
            .map_err(|error| why_not_registered(device, bytes, false, &error))?;
        // SAFETY: the registration is alive.
        let (lkey, rkey) = unsafe { ((*mr.as_ptr()).lkey, (*mr.as_ptr()).rkey) };
        let (access, device) = (Access::LOCAL, Arc::clone(device));
        let local_mr = None;
        let adopted = Registered { base, bytes, mapped_bytes: 0, iova, mr, local_mr, lkey, rkey, access, device };
        locked::add(adopted.locked_bytes());
        Ok(VerbsRegion(Arc::new(Inner::Whole(adopted))))
    }

    /// A part of a registration that others have parts of.
    pub(super) fn part(part: Part, bytes: usize) -> VerbsRegion {
        VerbsRegion(Arc::new(Inner::Part(part, bytes)))
    }

    /// The registration, and where in it this region begins.
    fn registered(&self) -> (&Registered, usize) {
        match &*self.0 {
            Inner::Whole(registered) => (registered, 0),
            Inner::Part(part, _) => (part.chunk.region().registered().0, part.offset),
        }
    }

    /// Zeroes it: nobody else has it.
    pub(super) fn clear(&self) {
        // SAFETY: within the registration, and just taken by the caller; raw memory, to which no reference is made.
        unsafe { self.base().as_ptr().write_bytes(0, self.bytes()) };
    }

    /// The device that it is registered with.
    pub(super) fn is_of(&self, device: &Arc<Device>) -> bool {
        Arc::ptr_eq(&self.registered().0.device, device)
    }

    /// Whether a peer can do anything with it.
    pub(super) fn is_remote(&self) -> bool {
        self.registered().0.access != Access::LOCAL
    }
}

fn map(bytes: usize, huge: HugePages) -> Result<(NonNull<u8>, usize)> {
    let unit = if huge == HugePages::On { HUGE_PAGE_BYTES } else { PAGE_BYTES };
    let too_large = || Error::new(Status::InvalidArgument, format!("verbs: a region of {bytes} bytes"));
    let mapped = bytes.checked_next_multiple_of(unit).ok_or_else(too_large)?;
    let large = if huge == HugePages::On { libc::MAP_HUGETLB } else { 0 };
    let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | large;
    // SAFETY: a new mapping at an address of the kernel's choice touches no existing memory.
    let address =
        unsafe { libc::mmap(core::ptr::null_mut(), mapped, libc::PROT_READ | libc::PROT_WRITE, flags, -1, 0) };
    if address == libc::MAP_FAILED {
        let hint = if huge == HugePages::On { " on huge pages (huge-pages=on; see vm.nr_hugepages)" } else { "" };
        let what = format!("verbs: {bytes} bytes of memory{hint}");
        return Err(Error::os(what, &io::Error::last_os_error()));
    }
    let advise = |advice| {
        // SAFETY: the range is the mapping just made; advice changes no content.
        let _ = unsafe { libc::madvise(address, mapped, advice) };
    };
    if huge == HugePages::Auto && mapped >= HUGE_PAGE_BYTES {
        advise(libc::MADV_HUGEPAGE);
    }
    // A forked child gets none of it: with copy-on-write the parent could end up on other pages than the device writes.
    advise(libc::MADV_DONTFORK);
    let base = NonNull::new(address.cast::<u8>()).ok_or_else(too_large)?;
    Ok((base, mapped))
}

fn register(
    device: &Device,
    base: NonNull<u8>,
    bytes: usize,
    access: Access,
    iova: u64,
) -> io::Result<NonNull<ibv_mr>> {
    register_as(device, base, bytes, rights(access, device.limits.has_atomics), iova)
}

fn register_as(
    device: &Device,
    base: NonNull<u8>,
    bytes: usize,
    rights: u32,
    iova: u64,
) -> io::Result<NonNull<ibv_mr>> {
    let library = device.context.library;
    let (pd, start) = (device.pd.as_ptr(), base.as_ptr().cast::<c_void>());
    // SAFETY: the domain lives and the range is mapped until the registration is gone.
    let mr = unsafe {
        if let Some(register) = library.reg_mr_iova2 {
            register(pd, start, bytes, iova, rights)
        } else if let Some(register) = library.reg_mr_iova {
            register(pd, start, bytes, iova, rights.cast_signed())
        } else {
            (library.reg_mr)(pd, start, bytes, rights.cast_signed())
        }
    };
    NonNull::new(mr).ok_or_else(io::Error::last_os_error)
}

/// For peers under `iova`, and for local work under the memory's own address where that is another.
fn register_both(
    device: &Device,
    base: NonNull<u8>,
    bytes: usize,
    access: Access,
    iova: u64,
) -> io::Result<(NonNull<ibv_mr>, Option<NonNull<ibv_mr>>)> {
    let own = base.addr().get() as u64;
    let mr = register(device, base, bytes, access, iova)?;
    if iova == own {
        return Ok((mr, None));
    }
    match register(device, base, bytes, Access::LOCAL, own) {
        Ok(local) => Ok((mr, Some(local))),
        Err(error) => {
            // SAFETY: made above, and nobody was told of it.
            unsafe { (device.context.library.dereg_mr)(mr.as_ptr()) };
            Err(error)
        }
    }
}

/// `twice`: a second registration of the same memory belongs to it.
fn why_not_registered(device: &Device, bytes: usize, twice: bool, error: &io::Error) -> Box<Error> {
    let new = bytes as u64 * if twice { 2 } else { 1 };
    let sizes = (bytes, new, locked::bytes());
    explain(device.name(), sizes, locked::limit(), (device.limits.mrs, device.limits.mr_bytes), error)
}

/// In words: which limit it was, how much there is, how much is needed, how to raise it. `new` is what is locked for
/// these bytes, `had` what this process has locked before.
fn explain(
    name: &str,
    (bytes, new, had): (usize, u64, u64),
    memlock: Option<u64>,
    (mrs, mr_bytes): (i32, u64),
    error: &io::Error,
) -> Box<Error> {
    let needed = had + new;
    let what = format!("{name}: registering {bytes} bytes, with {had} registered before");
    let mut refused = Error::os(what, error);
    match (error.raw_os_error(), memlock) {
        (Some(libc::ENOMEM | libc::EPERM | libc::EAGAIN), Some(limit)) if needed > limit => {
            refused.status = Status::ResourceLimit;
            refused.message = format!(
                "{}; the limit of locked memory is {limit} bytes and {needed} are needed: {}; or make slots smaller \
                 (rdma-rc-request-slot-bytes, rdma-rc-response-slot-bytes) or fewer (qps-per-client-per-shard)",
                refused.message,
                locked::cure(needed)
            );
        }
        (Some(libc::ENOMEM | libc::EINVAL | libc::ENOSPC), _) => {
            refused.status = Status::ResourceLimit;
            refused.message = format!(
                "{}; the device takes {mrs} regions of at most {mr_bytes} bytes; make slots smaller \
                 (rdma-rc-request-slot-bytes, rdma-rc-response-slot-bytes), or see that memory is free",
                refused.message
            );
        }
        _ => {}
    }
    refused
}

impl Registered {
    /// What the kernel counts for it: each registration pins the pages once more.
    fn locked_bytes(&self) -> u64 {
        self.bytes as u64 * if self.local_mr.is_some() { 2 } else { 1 }
    }
}

impl Drop for Registered {
    fn drop(&mut self) {
        locked::remove(self.locked_bytes());
        let give_back = |mr: NonNull<ibv_mr>| {
            // SAFETY: made by `register` and given back once.
            unsafe { (self.device.context.library.dereg_mr)(mr.as_ptr()) == 0 }
        };
        let local_back = self.local_mr.is_none_or(give_back);
        if give_back(self.mr) && local_back && self.mapped_bytes > 0 {
            // SAFETY: exactly the range that was mapped; the device cannot reach it any more.
            unsafe { libc::munmap(self.base.as_ptr().cast(), self.mapped_bytes) };
        }
        // Otherwise the device may still write there, or they are not ours: the pages stay.
    }
}

impl Region for VerbsRegion {
    fn base(&self) -> NonNull<u8> {
        let (registered, offset) = self.registered();
        // SAFETY: a part lies within its registration.
        unsafe { registered.base.add(offset) }
    }

    fn bytes(&self) -> usize {
        match &*self.0 {
            Inner::Whole(registered) => registered.bytes,
            Inner::Part(_, bytes) => *bytes,
        }
    }

    fn lkey(&self) -> u32 {
        self.registered().0.lkey
    }

    fn address(&self) -> RegionAddress {
        let (whole, offset) = self.registered();
        let iova = whole.iova + offset as u64;
        RegionAddress { iova, bytes: self.bytes() as u64, rkey: whole.rkey, access: whole.access }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_memory_is_ever_of_relaxed_order() {
        for bits in 0..=Access::ALL.0 {
            for has_atomics in [false, true] {
                assert_eq!(rights(Access(bits), has_atomics) & code::ACCESS_RELAXED_ORDERING, 0);
            }
        }
        assert_eq!(rights(Access::LOCAL, true), code::ACCESS_LOCAL_WRITE);
        assert_eq!(rights(Access::REMOTE_ATOMIC, false), code::ACCESS_LOCAL_WRITE);
    }

    #[test]
    fn a_refusal_names_the_limit_and_what_is_needed() {
        let no_memory = io::Error::from_raw_os_error(libc::ENOMEM);
        let locked = explain("d", (4 << 20, 8 << 20, 1 << 20), Some(8 << 20), (9, 9), &no_memory);
        assert_eq!(locked.status, Status::ResourceLimit);
        for word in ["limit of locked memory is 8388608", "9437184 are needed", "ulimit -l 9216", "LimitMEMLOCK"] {
            assert!(locked.message.contains(word), "{word}: {}", locked.message);
        }
        let device = explain("d", (8 << 20, 8 << 20, 0), None, (77, 4096), &no_memory);
        assert!(device.message.contains("takes 77 regions of at most 4096 bytes"), "{}", device.message);
        let other = explain("d", (1, 1, 0), None, (1, 1), &io::Error::from_raw_os_error(libc::EIO));
        assert_eq!(other.status, Status::OsError);
    }
}
