//! Where rows live: memory that never moves, zeroed, and fit to be registered with a fabric.

use crate::error::{Error, Result, Status};
use crate::options::HugePages;
use crate::sync::{Mutex, lock};
use core::ptr::NonNull;
use std::io;

/// Bytes of a huge page on x86-64 and on arm64 with 4 KiB base pages.
pub(super) const HUGE_BYTES: usize = 2 << 20;
pub(super) const PAGE_BYTES: usize = 4096;
/// Less address space than this is no table.
const RESERVE_BYTES_MIN: usize = 64 << 20;

/// A piece of row memory. It is never given back before its [`RowMemory`] is dropped.
#[derive(Clone, Copy, Debug)]
pub struct RowSegment {
    /// Its start, at least page-aligned.
    pub base: NonNull<u8>,
    /// Its length, at least what was asked for.
    pub bytes: usize,
    /// Local key of the region that holds it; 0 where nothing is registered.
    pub lkey: u32,
}

/// What row memory is made of.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct MemoryReport {
    /// Address space set aside.
    pub reserved_bytes: u64,
    /// Handed out to tables; touched or not.
    pub used_bytes: u64,
    /// Of it, on reserved huge pages (hugetlb).
    pub hugetlb_bytes: u64,
    /// Of it, for which the kernel took the advice to use transparent huge pages. Says what was asked: the kernel
    /// may still lack free huge pages.
    pub advised_bytes: u64,
}

/// Gives out row memory: zeroed, page-aligned, valid and in place until the giver is dropped. Threads: any.
pub trait RowMemory: Send + Sync + 'static {
    /// One more segment.
    ///
    /// # Errors
    /// `OsError` or `ResourceLimit` when the memory cannot be had.
    fn allocate(&self, bytes: usize) -> Result<RowSegment>;

    /// The segments that were given so far: start and length.
    fn segments(&self) -> Vec<(*const u8, usize)> {
        Vec::new()
    }

    /// What was given so far.
    fn report(&self) -> MemoryReport;
}

/// Anonymous memory of this process: address space is reserved once and made usable piece by piece.
#[derive(Debug)]
pub struct MappedMemory {
    mapping: NonNull<u8>,
    mapping_bytes: usize,
    huge_pages: HugePages,
    state: Mutex<State>,
}

#[derive(Debug)]
struct State {
    /// Offset of the first byte that nobody has.
    next: usize,
    /// Offset and length of what was given.
    segments: Vec<(usize, usize)>,
    report: MemoryReport,
}

// SAFETY: the mapping belongs to this value alone and has no thread affinity; `state` is behind a lock.
unsafe impl Send for MappedMemory {}
// SAFETY: as above.
unsafe impl Sync for MappedMemory {}

/// Physical memory of this machine; 1 GiB when the system does not say.
pub(crate) fn physical_bytes() -> u64 {
    // SAFETY: sysconf has no preconditions.
    let (pages, page_bytes) = unsafe { (libc::sysconf(libc::_SC_PHYS_PAGES), libc::sysconf(libc::_SC_PAGESIZE)) };
    match (u64::try_from(pages), u64::try_from(page_bytes)) {
        (Ok(pages), Ok(page_bytes)) if pages > 0 && page_bytes > 0 => pages * page_bytes,
        _ => 1 << 30,
    }
}

impl MappedMemory {
    /// Takes rows from a NUMA node. Not those on reserved huge pages: they come from the system's own choice.
    pub(super) fn prefer(&self, node: Option<u32>) {
        crate::numa::prefer(node, self.mapping, self.mapping_bytes);
    }

    /// Reserves address space of four times the physical memory, or less if the process may not have as much
    /// (`ulimit -v`).
    ///
    /// `Auto` uses transparent huge pages where the kernel has them; `On` uses reserved ones (hugetlb), and transparent
    /// ones for what does not fit any more, which the report shows.
    ///
    /// # Errors
    /// `OsError` when not even 64 MiB can be reserved, or when huge pages are `On` and there is not a single one.
    pub fn new(huge_pages: HugePages) -> Result<MappedMemory> {
        if huge_pages == HugePages::On {
            probe_hugetlb()?;
        }
        let wanted = usize::try_from(physical_bytes().saturating_mul(4)).unwrap_or(1 << 40);
        let mut bytes = wanted.next_multiple_of(HUGE_BYTES).max(RESERVE_BYTES_MIN);
        loop {
            match reserve(bytes) {
                Ok(mapping) => {
                    let next = mapping.as_ptr().align_offset(HUGE_BYTES);
                    let report = MemoryReport { reserved_bytes: bytes as u64, ..MemoryReport::default() };
                    let state = Mutex::new(State { next, segments: Vec::new(), report });
                    return Ok(MappedMemory { mapping, mapping_bytes: bytes, huge_pages, state });
                }
                Err(error) if bytes / 2 < RESERVE_BYTES_MIN => {
                    return Err(Error::os(format_args!("cannot reserve {bytes} bytes for the table's rows"), &error));
                }
                Err(_) => bytes = (bytes / 2).next_multiple_of(HUGE_BYTES),
            }
        }
    }

    /// Makes `bytes` at `at` usable. True when it is on reserved huge pages.
    fn commit(&self, at: NonNull<u8>, bytes: usize) -> io::Result<bool> {
        let protection = libc::PROT_READ | libc::PROT_WRITE;
        if self.huge_pages == HugePages::On && bytes >= HUGE_BYTES {
            let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_FIXED | libc::MAP_HUGETLB;
            // SAFETY: the range lies inside our own reservation and nobody has it yet; start and length are multiples
            // of the huge page.
            let got = unsafe { libc::mmap(at.as_ptr().cast(), bytes, protection, flags, -1, 0) };
            if got != libc::MAP_FAILED {
                return Ok(true);
            }
            // A failed MAP_FIXED may have unmapped the range: put the reservation back.
            let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_FIXED | libc::MAP_NORESERVE;
            // SAFETY: as above.
            let got = unsafe { libc::mmap(at.as_ptr().cast(), bytes, libc::PROT_NONE, flags, -1, 0) };
            if got == libc::MAP_FAILED {
                return Err(io::Error::last_os_error());
            }
        }
        // SAFETY: the range lies inside our own reservation and nobody has it yet.
        if unsafe { libc::mprotect(at.as_ptr().cast(), bytes, protection) } != 0 {
            return Err(io::Error::last_os_error());
        }
        Ok(false)
    }
}

/// Whether there is a reserved huge page at all.
fn probe_hugetlb() -> Result<()> {
    let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_HUGETLB;
    let protection = libc::PROT_READ | libc::PROT_WRITE;
    // SAFETY: a fresh private mapping at an address of the kernel's choice touches nothing that exists.
    let got = unsafe { libc::mmap(core::ptr::null_mut(), HUGE_BYTES, protection, flags, -1, 0) };
    if got == libc::MAP_FAILED {
        let error = io::Error::last_os_error();
        return Err(Error::os("huge-pages is on and there is no reserved huge page (vm.nr_hugepages)", &error));
    }
    // SAFETY: mapped above and used by nobody.
    unsafe { libc::munmap(got, HUGE_BYTES) };
    Ok(())
}

fn reserve(bytes: usize) -> io::Result<NonNull<u8>> {
    let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_NORESERVE;
    // SAFETY: a fresh private mapping at an address of the kernel's choice touches nothing that exists.
    let got = unsafe { libc::mmap(core::ptr::null_mut(), bytes, libc::PROT_NONE, flags, -1, 0) };
    if got == libc::MAP_FAILED {
        return Err(io::Error::last_os_error());
    }
    NonNull::new(got.cast()).ok_or_else(|| io::Error::from_raw_os_error(libc::ENOMEM))
}

impl RowMemory for MappedMemory {
    fn allocate(&self, bytes: usize) -> Result<RowSegment> {
        let unit = if bytes >= HUGE_BYTES { HUGE_BYTES } else { PAGE_BYTES };
        let full = |state: &State| {
            let left = self.mapping_bytes - state.next;
            let message = format!("{bytes} bytes of rows do not fit: {left} of {} bytes are left", self.mapping_bytes);
            Error::new(Status::ResourceLimit, message)
        };
        let mut state = lock(&self.state);
        // The reservation's start need not be huge-aligned, so alignment is one of addresses, not of offsets.
        let address = self.mapping.as_ptr() as usize;
        let rounded = bytes.max(1).checked_next_multiple_of(unit).ok_or_else(|| full(&state))?;
        let start = (address + state.next).next_multiple_of(unit) - address;
        let end = start.checked_add(rounded).filter(|end| *end <= self.mapping_bytes).ok_or_else(|| full(&state))?;
        // SAFETY: start <= end <= mapping_bytes.
        let base = unsafe { self.mapping.add(start) };
        let hugetlb = self
            .commit(base, rounded)
            .map_err(|error| Error::os(format_args!("cannot make {rounded} bytes usable for rows"), &error))?;
        state.next = end;
        state.segments.push((start, rounded));
        state.report.used_bytes += rounded as u64;
        if hugetlb {
            state.report.hugetlb_bytes += rounded as u64;
        } else {
            let advice = if self.huge_pages == HugePages::Off { libc::MADV_NOHUGEPAGE } else { libc::MADV_HUGEPAGE };
            // SAFETY: the range was just made usable and is ours; advice changes no contents.
            let taken = unsafe { libc::madvise(base.as_ptr().cast(), rounded, advice) } == 0;
            if taken && advice == libc::MADV_HUGEPAGE && rounded >= HUGE_BYTES {
                state.report.advised_bytes += rounded as u64;
            }
        }
        Ok(RowSegment { base, bytes: rounded, lkey: 0 })
    }

    fn segments(&self) -> Vec<(*const u8, usize)> {
        let base = self.mapping.as_ptr().cast_const();
        lock(&self.state).segments.iter().map(|(start, bytes)| (base.wrapping_add(*start), *bytes)).collect()
    }

    fn report(&self) -> MemoryReport {
        lock(&self.state).report
    }
}

impl Drop for MappedMemory {
    fn drop(&mut self) {
        // SAFETY: the mapping is ours and, by the trait's contract, nobody uses it beyond this value's life.
        unsafe { libc::munmap(self.mapping.as_ptr().cast(), self.mapping_bytes) };
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn segments_are_zeroed_apart_and_usable() {
        for huge_pages in [HugePages::Auto, HugePages::Off, HugePages::On] {
            let memory = match MappedMemory::new(huge_pages) {
                Err(error) if huge_pages == HugePages::On => {
                    assert!(error.message.contains("huge-pages is on"), "{error}");
                    continue;
                }
                memory => memory.unwrap(),
            };
            let small = memory.allocate(100).unwrap();
            let large = memory.allocate(HUGE_BYTES + 1).unwrap();
            assert_eq!((small.bytes, large.bytes), (PAGE_BYTES, 2 * HUGE_BYTES));
            assert_eq!(large.base.as_ptr() as usize % HUGE_BYTES, 0);
            for segment in [small, large] {
                for at in [0, segment.bytes - 1] {
                    // SAFETY: inside the segment, which is ours.
                    unsafe {
                        assert_eq!(segment.base.add(at).read(), 0);
                        segment.base.add(at).write(7);
                    }
                }
            }
            let report = memory.report();
            assert_eq!(report.used_bytes, (PAGE_BYTES + 2 * HUGE_BYTES) as u64);
            assert!(huge_pages != HugePages::Off || report.advised_bytes == 0);
        }
    }

    #[test]
    fn too_much_is_refused_with_the_bound() {
        let memory = MappedMemory::new(HugePages::Auto).unwrap();
        let error = memory.allocate(memory.mapping_bytes + 1).unwrap_err();
        assert!(error.message.contains(&memory.mapping_bytes.to_string()), "{error}");
        assert_eq!(memory.allocate(usize::MAX).unwrap_err().status, Status::ResourceLimit);
        assert!(memory.allocate(1).is_ok());
    }
}
