//! The serving side: a shard's rows in a file, and its directory.

use super::super::arena::{MemoryReport, PAGE_BYTES, RowMemory, RowSegment, physical_bytes};
use super::super::index::Zeroed;
use super::super::locks::Stripes;
use super::{
    BASE_AT, DIRECT, ENTRIES_AT, ENTRY_BYTES, EPOCH_AT, HASHED, HUGE_BYTES, HugePages, MAGIC, MAGIC_AT, MAPPED,
    OWNER_AT, OWNER_BYTES_MAX, ROWS_AT, STRIPES_AT, WITHDRAWN, WRITER_LINES_AT, WRITERS_AT, WRITERS_MAX, more, word,
};
use crate::error::{Error, Result, Status};
use crate::fabric::SharedFile;
use crate::ids::TableTag;
use crate::sync::{Arc, AtomicBool, AtomicU32, AtomicU64, Mutex, Ordering, fence, lock};
use core::ptr::NonNull;

/// A smaller file is not worth it.
const FILE_BYTES_MIN: usize = 64 << 20;
/// As much as a client maps of one process, with room for the rest.
const FILE_BYTES_MAX: usize = 1 << 39;
/// `madvise`: make a huge page of what is there, whatever the system's setting for files in memory is. Linux 6.1.
const MADV_COLLAPSE: libc::c_int = 25;

/// How the keys of a published table find their rows.
#[derive(Clone, Copy, Debug)]
pub(in crate::ps::table) enum Index {
    /// Bits, from this address on.
    Bits(*const AtomicU64),
    /// Numbers, from this address on.
    Numbers(*const AtomicU32),
    /// There is none.
    Nothing,
}

/// The second part of a table's entry, which changes as the table grows.
#[derive(Clone, Debug)]
pub(in crate::ps::table) struct More {
    rows: Arc<SharedRows>,
    at: usize,
}

impl More {
    fn set(&self, place: usize, value: u64) {
        // Release: pairs with the reader's Acquire of what led it here: an entry, or a row's number.
        self.rows.word(self.at + place * 8).store(value, Ordering::Release);
    }

    /// The file.
    pub fn rows(&self) -> &Arc<SharedRows> {
        &self.rows
    }

    /// A chunk of rows is there. Before the first row of it has a number.
    pub fn chunk(&self, chunk: usize, first: *const u8) {
        self.set(more::CHUNKS_AT + chunk, self.rows.offset_of(first));
    }

    /// Another index takes the place of the last one. While all rows may change.
    pub fn slots(&self, first: *const u8, len: usize, seed: u64) {
        self.set(more::SLOTS, len as u64);
        self.set(more::SEED, seed);
        self.set(more::SLOTS_AT, self.rows.offset_of(first));
    }
}

/// A table's entry.
#[derive(Clone, Debug)]
pub(in crate::ps::table) struct Entry {
    pub row_bytes: u32,
    pub stride: u32,
    pub keys: u64,
    pub rows: u32,
    pub first_row: *const u8,
    pub index: Index,
    pub more: More,
}

/// The file. Rows keep their places in it; only a hash index that a larger one replaced is given back. Threads: any.
pub struct SharedRows {
    file: SharedFile,
    /// Huge pages are asked for, as long as the kernel has them for this.
    huge: AtomicBool,
    /// A thread serves it, or did and ended without a word.
    serving: AtomicBool,
    room: Mutex<Room>,
    /// A bit for each huge page that is to be asked for when it is touched.
    wanted: Zeroed<AtomicU64>,
}

impl core::fmt::Debug for SharedRows {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.debug_struct("SharedRows").field("file", &self.file).finish_non_exhaustive()
    }
}

#[derive(Debug)]
struct Room {
    /// Offset of the first byte that nobody ever had.
    next: usize,
    /// Offset and length of what was given back.
    free: Vec<(usize, usize)>,
}

/// A limit of this process.
fn limit_of(what: libc::__rlimit_resource_t) -> usize {
    let mut limit = libc::rlimit { rlim_cur: 0, rlim_max: 0 };
    // SAFETY: `limit` is writable.
    let known = unsafe { libc::getrlimit(what, &raw mut limit) } == 0;
    if known { usize::try_from(limit.rlim_cur).unwrap_or(usize::MAX) } else { usize::MAX }
}

/// The epoch is odd as long as this lives.
pub(in crate::ps::table) struct Changing<'a>(&'a AtomicU64);

impl Drop for Changing<'_> {
    fn drop(&mut self) {
        // Release: pairs with the reader's Acquire: whoever sees it even sees what was changed.
        self.0.fetch_add(1, Ordering::Release);
    }
}

/// A writer is at work as long as this lives.
pub(in crate::ps::table) struct Busy<'a>(&'a AtomicU64);

impl Drop for Busy<'_> {
    #[inline]
    fn drop(&mut self) {
        let mark = self.0.load(Ordering::Relaxed);
        // Release: pairs with the reader's Acquire: whoever sees it even sees what was written.
        self.0.store(mark.wrapping_add(1), Ordering::Release);
    }
}

/// The file is served as long as this lives, by the thread that made it.
#[derive(Debug)]
pub struct Serving {
    rows: Arc<SharedRows>,
    /// A mutex is given back by the thread that took it.
    _here: core::marker::PhantomData<*const ()>,
}

impl Drop for Serving {
    fn drop(&mut self) {
        // SAFETY: this thread took it in `serve`.
        unsafe { libc::pthread_mutex_unlock(self.rows.owner()) };
        // Release: pairs with the Acquire in `serve`: the mutex is free.
        self.rows.serving.store(false, Ordering::Release);
    }
}

impl SharedRows {
    /// A file of as much address space as this machine has memory, and no more than 512 GiB or a quarter of what the
    /// process may have. `writers`: how many there will be at most, numbered from 0.
    ///
    /// # Errors
    /// `ResourceLimit` when that is less than 64 MiB, or memory is promised to whoever asks only as long as there is some
    /// (`vm.overcommit_memory=2`), when a touch could fail; `OsError`.
    pub fn new(huge_pages: HugePages, writers: u32) -> Result<SharedRows> {
        let refused = |why: &str| Err(Error::new(Status::ResourceLimit, why));
        if std::fs::read_to_string("/proc/sys/vm/overcommit_memory").is_ok_and(|text| text.trim() == "2") {
            return refused("vm.overcommit_memory is 2");
        }
        let physical = usize::try_from(physical_bytes()).unwrap_or(FILE_BYTES_MAX);
        let least = [limit_of(libc::RLIMIT_AS) / 4, limit_of(libc::RLIMIT_FSIZE), FILE_BYTES_MAX];
        let bytes = least.into_iter().fold(ROWS_AT + physical, usize::min) / HUGE_BYTES * HUGE_BYTES;
        if bytes < FILE_BYTES_MIN {
            return refused("the limits of this process (ulimit -v, ulimit -f) leave less than 64 MiB");
        }
        let file = SharedFile::new(bytes)?;
        if huge_pages != HugePages::Off {
            file.advise_huge();
        }
        let wanted = Zeroed::new((file.bytes() / HUGE_BYTES).div_ceil(64), false)?;
        let huge = AtomicBool::new(huge_pages != HugePages::Off);
        let serving = AtomicBool::new(false);
        let rows =
            SharedRows { file, huge, serving, room: Mutex::new(Room { next: ROWS_AT, free: Vec::new() }), wanted };
        rows.word(BASE_AT).store(rows.file.base().as_ptr() as u64, Ordering::Relaxed);
        let writers = u64::from(writers);
        let counted = if writers <= WRITERS_MAX as u64 { writers } else { 0 };
        rows.word(WRITERS_AT).store(counted, Ordering::Relaxed);
        // Release: pairs with the reader's Acquire.
        rows.word(MAGIC_AT).store(MAGIC, Ordering::Release);
        Ok(rows)
    }

    /// The file.
    #[must_use]
    pub fn file(&self) -> &SharedFile {
        &self.file
    }

    fn at(&self, offset: usize) -> NonNull<u8> {
        debug_assert!(offset < self.file.bytes());
        // SAFETY: every offset used here lies in the file.
        unsafe { self.file.base().add(offset) }
    }

    fn word(&self, offset: usize) -> &AtomicU64 {
        // SAFETY: a word of the directory, aligned, that lives as long as the file and is only used as an atomic.
        unsafe { self.at(offset).cast().as_ref() }
    }

    fn owner(&self) -> *mut libc::pthread_mutex_t {
        self.at(OWNER_AT).cast().as_ptr()
    }

    /// The locks of the rows in it.
    pub(in crate::ps::table) fn stripes(self: &Arc<Self>) -> Stripes {
        // SAFETY: zeros at first, aligned, in the file that the stripes keep.
        unsafe { Stripes::within(self.at(STRIPES_AT).cast(), Arc::clone(self)) }
    }

    /// Where an address lies in the file; 0: elsewhere.
    fn offset_of(&self, address: *const u8) -> u64 {
        let offset = address.addr().wrapping_sub(self.file.base().addr().get());
        if offset < self.file.bytes() { offset as u64 } else { 0 }
    }

    /// Room for the second part of a table's entry. `first_shift`: log2 of the rows of its first chunk.
    pub(in crate::ps::table) fn more(self: &Arc<Self>, first_shift: u32) -> Result<More> {
        let segment = self.allocate(more::WORDS * 8)?;
        let at = usize::try_from(self.offset_of(segment.base.as_ptr())).unwrap_or(0);
        let more = More { rows: Arc::clone(self), at };
        more.set(more::FIRST_SHIFT, u64::from(first_shift));
        Ok(more)
    }

    /// Takes memory back that `allocate` gave, if it is of this file. Readers may still look at it, and find out.
    pub(in crate::ps::table) fn give_back(&self, first: *const u8, bytes: usize) {
        let start = usize::try_from(self.offset_of(first)).unwrap_or(0);
        if start >= ROWS_AT {
            lock(&self.room).free.push((start, bytes.max(1).next_multiple_of(PAGE_BYTES)));
        }
    }

    /// A piece that was given back and is as large as this, zeroed.
    fn reuse(&self, room: &mut Room, bytes: usize, unit: usize) -> Option<RowSegment> {
        let fits = |(start, length): &(usize, usize)| start.is_multiple_of(unit) && *length >= bytes;
        let at = room.free.iter().position(fits)?;
        let (start, length) = room.free.swap_remove(at);
        let taken = bytes.max(1).next_multiple_of(unit).min(length);
        if length > taken {
            room.free.push((start + taken, length - taken));
        }
        let base = self.at(start);
        // SAFETY: a piece of the file that nobody has; those who may still read it look afterwards whether they might.
        unsafe { base.as_ptr().write_bytes(0, taken) };
        Some(RowSegment { base, bytes: taken, lkey: 0 })
    }

    /// All rows may change until what this returns is dropped. One at a time.
    pub(in crate::ps::table) fn change_all(&self) -> Changing<'_> {
        let epoch = self.word(EPOCH_AT);
        epoch.fetch_add(1, Ordering::Relaxed);
        // Release: pairs with the reader's Acquire fence: if it saw any byte of the change, it sees the odd epoch, or a
        // later one.
        fence(Ordering::Release);
        Changing(epoch)
    }

    /// A writer is at work until what this returns is dropped: he alone has this number. What he writes is under the locks
    /// of its rows all the same.
    #[inline]
    pub(in crate::ps::table) fn busy(&self, writer: u32) -> Option<Busy<'_>> {
        let line = usize::try_from(writer).ok().filter(|writer| *writer < WRITERS_MAX)?;
        let word = self.word(WRITER_LINES_AT + line * 64);
        word.store(word.load(Ordering::Relaxed).wrapping_add(1), Ordering::Relaxed);
        // Release: pairs with the reader's Acquire fence: if it saw any byte of what is written, it sees the odd mark, or a
        // later one.
        fence(Ordering::Release);
        Some(Busy(word))
    }

    /// Lets readers find a table. A table is published once for each of its tags.
    pub(in crate::ps::table) fn publish(&self, tag: TableTag, entry: &Entry) {
        let at = ENTRIES_AT + usize::from(tag.0) * ENTRY_BYTES;
        let set = |place: usize, value: u64| self.word(at + place * 8).store(value, Ordering::Relaxed);
        let offset = |address: *const u8| self.offset_of(address);
        let (keying, index) = match entry.index {
            Index::Bits(bits) => (DIRECT, offset(bits.cast())),
            Index::Numbers(numbers) => (MAPPED, offset(numbers.cast())),
            Index::Nothing => (HASHED, 0),
        };
        set(word::ROW, u64::from(entry.row_bytes) | u64::from(entry.stride) << 32);
        set(word::KEYS, entry.keys);
        set(word::ROWS, u64::from(entry.rows));
        set(word::ROWS_AT, offset(entry.first_row));
        set(word::INDEX_AT, index);
        set(word::MORE_AT, entry.more.at as u64);
        // Release: pairs with the reader's Acquire.
        self.word(at + word::KEYING * 8).store(keying, Ordering::Release);
    }

    /// Says that the calling thread serves the file, until what this returns is dropped, or the thread ends. None: the
    /// system has no such mutex, or another thread serves it.
    #[must_use]
    pub fn serve(self: &Arc<Self>) -> Option<Serving> {
        const { assert!(size_of::<libc::pthread_mutex_t>() <= OWNER_BYTES_MAX) };
        let owner = self.owner();
        // Acquire: pairs with the Release in the drop of `Serving`.
        if self.serving.compare_exchange(false, true, Ordering::Acquire, Ordering::Relaxed).is_err() {
            return None;
        }
        // What was begun before is not taken for something of this time.
        drop(self.change_all());
        let mut kind = core::mem::MaybeUninit::<libc::pthread_mutexattr_t>::uninit();
        // SAFETY: `kind` is made before it is used; nobody holds the mutex, and it lies in memory that outlives the guard.
        let taken = unsafe {
            libc::pthread_mutexattr_init(kind.as_mut_ptr()) == 0
                && libc::pthread_mutexattr_setpshared(kind.as_mut_ptr(), libc::PTHREAD_PROCESS_SHARED) == 0
                && libc::pthread_mutexattr_setrobust(kind.as_mut_ptr(), libc::PTHREAD_MUTEX_ROBUST) == 0
                && libc::pthread_mutex_init(owner, kind.as_ptr()) == 0
                && libc::pthread_mutex_trylock(owner) == 0
        };
        let serving = taken.then(|| Serving { rows: Arc::clone(self), _here: core::marker::PhantomData });
        // That the kernel's word comes first is the C library's choice, not its promise.
        // SAFETY: no preconditions.
        let me = unsafe { libc::syscall(libc::SYS_gettid) };
        let held = i64::from(self.owner_word().load(Ordering::Relaxed) & libc::FUTEX_TID_MASK);
        serving.filter(|_| held == me)
    }

    /// Nobody reads it any more: what it holds is of a world that is undone.
    pub fn withdraw(&self) {
        // Release: pairs with the readers' Acquire fence, which comes after what they read.
        self.word(EPOCH_AT).fetch_or(WITHDRAWN, Ordering::Release);
    }

    fn owner_word(&self) -> &AtomicU32 {
        // SAFETY: the mutex's first word, aligned, that lives as long as the file; the C library uses it as an atomic.
        unsafe { self.at(OWNER_AT).cast().as_ref() }
    }

    /// Asks for huge pages where these bytes lie, as they are about to be touched for the first time, if they are of a
    /// segment of at least one.
    pub(in crate::ps::table) fn warm(&self, address: *const u8, bytes: usize) {
        let start = usize::try_from(self.offset_of(address)).unwrap_or(0);
        if start == 0 || bytes == 0 {
            return;
        }
        for page in start / HUGE_BYTES..=(start + bytes - 1) / HUGE_BYTES {
            let Some(word) = self.wanted.get(page / 64) else { return };
            let bit = 1_u64 << (page % 64);
            if word.load(Ordering::Relaxed) & bit != 0 && word.fetch_and(!bit, Ordering::Relaxed) & bit != 0 {
                self.collapse(page);
            }
        }
    }

    #[cold]
    fn collapse(&self, page: usize) {
        if !self.huge.load(Ordering::Relaxed) {
            return;
        }
        let place = self.at(page * HUGE_BYTES).as_ptr();
        // SAFETY: a page of our own file; no advice changes what is in it. Where nothing was touched yet there is nothing
        // to collapse, and the kernel refuses.
        let refused = unsafe {
            core::ptr::read_volatile(place);
            libc::madvise(place.cast(), HUGE_BYTES, MADV_COLLAPSE) != 0
        };
        if refused && std::io::Error::last_os_error().raw_os_error() == Some(libc::EINVAL) {
            // This kernel does not know it: small pages it is.
            self.huge.store(false, Ordering::Relaxed);
        }
    }
}

impl RowMemory for SharedRows {
    fn allocate(&self, bytes: usize) -> Result<RowSegment> {
        let unit = if bytes >= HUGE_BYTES { HUGE_BYTES } else { PAGE_BYTES };
        let mut room = lock(&self.room);
        if let Some(segment) = self.reuse(&mut room, bytes, unit) {
            return Ok(segment);
        }
        let start = room.next.next_multiple_of(unit);
        let end = bytes.max(1).checked_next_multiple_of(unit).and_then(|rounded| start.checked_add(rounded));
        let Some(end) = end.filter(|end| *end <= self.file.bytes()) else {
            let left = self.file.bytes() - room.next;
            let message = format!("{bytes} bytes of rows do not fit: {left} of {} bytes are left", self.file.bytes());
            return Err(Error::new(Status::ResourceLimit, message));
        };
        room.next = end;
        if unit == HUGE_BYTES {
            for page in start / HUGE_BYTES..end / HUGE_BYTES {
                if let Some(word) = self.wanted.get(page / 64) {
                    word.fetch_or(1 << (page % 64), Ordering::Relaxed);
                }
            }
        }
        Ok(RowSegment { base: self.at(start), bytes: end - start, lkey: 0 })
    }

    fn report(&self) -> MemoryReport {
        let used_bytes = (lock(&self.room).next - ROWS_AT) as u64;
        MemoryReport { reserved_bytes: self.file.bytes() as u64, used_bytes, hugetlb_bytes: 0, advised_bytes: 0 }
    }
}
