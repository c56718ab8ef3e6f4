//! The memory that numbers are counted in: the process's own, or a file that others read while it runs, stands still, or
//! is gone.
//!
//! A number is one 8-byte word. Where it is counted once per request, it belongs to one thread at a time, which adds with
//! a load and a store; rows of different threads lie on different cache lines, and whoever reads adds them up.

use super::directory::{self, Owned};
use super::histogram;
use super::layout::{self, Head, LINE_WORDS, Series};
use super::metrics::Kind;
use crate::error::{Error, Result, Status};
use crate::sync::{Arc, AtomicU64, Ordering};
use core::ptr::NonNull;
use std::os::fd::AsRawFd;

/// Series and words of a page that is yet to be made.
#[derive(Debug, Default)]
pub struct Plan {
    series: Vec<Series>,
    words: usize,
}

/// A block of rows in a page.
#[derive(Clone, Copy, Debug)]
pub struct Block {
    at: usize,
    stride: usize,
    rows: usize,
}

/// One word of a page.
#[derive(Clone, Copy, Debug)]
pub struct Cell(usize);

/// A histogram of a page.
#[derive(Clone, Copy, Debug)]
pub struct Buckets(usize);

impl Plan {
    /// So many rows of so many words, each on cache lines of its own.
    pub fn block(&mut self, rows: usize, width: usize) -> Block {
        let stride = width.next_multiple_of(LINE_WORDS);
        let at = self.words.next_multiple_of(LINE_WORDS);
        self.words = at + stride * rows;
        Block { at, stride, rows }
    }

    /// A series over one word of every row of a block.
    pub fn over(&mut self, block: Block, word: usize, kind: Kind, name: &str, labels: String) {
        let Block { at, stride, rows } = block;
        let name = name.to_owned();
        self.series.push(Series { name, labels, kind, at: at + word, stride, rows });
    }

    /// A series of one word of one row.
    pub fn of_row(&mut self, block: Block, row: usize, word: usize, kind: Kind, name: &str, labels: String) {
        let at = block.at + row * block.stride;
        self.over(Block { at, rows: 1, ..block }, word, kind, name, labels);
    }

    /// A number of its own, which any thread may change, rarely.
    pub fn cell(&mut self, kind: Kind, name: &str, labels: String) -> Cell {
        let at = self.words;
        self.words += 1;
        self.series.push(Series { name: name.to_owned(), labels, kind, at, stride: 0, rows: 1 });
        Cell(at)
    }

    /// A histogram.
    pub fn histogram(&mut self, name: &str, labels: String) -> Buckets {
        let at = self.words.next_multiple_of(LINE_WORDS);
        self.words = at + histogram::WORDS;
        self.series.push(Series { name: name.to_owned(), labels, kind: Kind::Histogram, at, stride: 0, rows: 1 });
        Buckets(at)
    }

    /// Makes the page: in the directory, or, if that is empty, in memory of this process alone.
    ///
    /// # Errors
    /// `OsError` naming the file.
    pub fn make(mut self, head: &Head, folder: &str) -> Result<Arc<Page>> {
        let before = (layout::HEAD_WORDS + self.series.len() * layout::SERIES_WORDS).next_multiple_of(LINE_WORDS);
        self.series.iter_mut().for_each(|series| series.at += before);
        let words = before + self.words.next_multiple_of(LINE_WORDS);
        let described = layout::encode(head, &self.series, words)?;
        let owned = if folder.is_empty() { None } else { Some(directory::create(folder, head, words * 8)?) };
        let memory = Memory::map(words, owned.as_ref())?;
        let page = Page { first: before, series: self.series, memory, owned };
        for (word, value) in described.iter().enumerate().skip(1) {
            page.memory.word(word).store(*value, Ordering::Relaxed);
        }
        // Release: pairs with whoever reads the file: without its first word it is not finished.
        page.memory.word(0).store(described[0], Ordering::Release);
        Ok(Arc::new(page))
    }
}

/// Memory with series.
#[derive(Debug)]
pub struct Page {
    first: usize,
    series: Vec<Series>,
    memory: Memory,
    /// The file, which goes with the page.
    owned: Option<Owned>,
}

impl Page {
    /// Its series.
    #[must_use]
    pub fn series(&self) -> &[Series] {
        &self.series
    }

    /// The file's path, where there is one.
    #[must_use]
    pub fn path(&self) -> Option<&std::path::Path> {
        self.owned.as_ref().map(Owned::path)
    }

    /// A number.
    #[must_use]
    pub fn cell(&self, cell: Cell) -> &AtomicU64 {
        self.memory.word(self.first + cell.0)
    }

    /// A word of the head.
    #[must_use]
    pub fn head(&self, place: usize) -> &AtomicU64 {
        self.memory.word(place)
    }

    /// The words of a histogram.
    #[must_use]
    pub fn buckets(&self, buckets: Buckets) -> &[AtomicU64] {
        self.memory.words(self.first + buckets.0, histogram::WORDS)
    }

    /// All words, as they are at about this moment.
    #[must_use]
    pub fn image(&self) -> Vec<u64> {
        let words = self.memory.words(0, self.memory.words);
        words.iter().map(|word| word.load(Ordering::Relaxed)).collect()
    }
}

/// Rows of a page for those who count once per request.
#[derive(Clone, Debug)]
pub struct Rows<const WIDTH: usize> {
    first: NonNull<[AtomicU64; WIDTH]>,
    stride: usize,
    count: usize,
    /// Keeps the memory.
    page: Arc<Page>,
}

// SAFETY: the rows are atomics in memory that `page` keeps mapped.
unsafe impl<const WIDTH: usize> Send for Rows<WIDTH> {}
// SAFETY: as above.
unsafe impl<const WIDTH: usize> Sync for Rows<WIDTH> {}

impl<const WIDTH: usize> Rows<WIDTH> {
    /// The rows of a block, which has at least that width.
    ///
    /// # Errors
    /// `Bug` when it has not.
    pub fn new(page: &Arc<Page>, block: Block) -> Result<Rows<WIDTH>> {
        if block.stride < WIDTH || block.rows == 0 {
            return Err(Error::new(Status::Bug, format!("a block of rows of {} words is too narrow", block.stride)));
        }
        let words = page.memory.words(page.first + block.at, block.stride * block.rows);
        let first = NonNull::from(&words[0]).cast();
        Ok(Rows { first, stride: block.stride, count: block.rows, page: Arc::clone(page) })
    }

    /// One row; of a number beyond the last, the last.
    #[inline]
    #[must_use]
    pub fn row(&self, index: usize) -> &[AtomicU64; WIDTH] {
        let index = if index < self.count { index } else { self.count - 1 };
        // SAFETY: the block has that row, WIDTH words wide at least; `page` keeps it mapped; atomics may be shared.
        unsafe { self.first.cast::<AtomicU64>().add(index * self.stride).cast().as_ref() }
    }

    /// How many.
    #[must_use]
    pub fn count(&self) -> usize {
        self.count
    }

    /// The page.
    #[must_use]
    pub fn page(&self) -> &Arc<Page> {
        &self.page
    }

    /// One word over all rows.
    #[must_use]
    pub fn sum(&self, word: usize) -> u64 {
        (0..self.count).fold(0, |sum, row| sum.wrapping_add(self.row(row)[word].load(Ordering::Relaxed)))
    }

    /// The largest of one word over all rows.
    #[must_use]
    pub fn peak(&self, word: usize) -> u64 {
        (0..self.count).map(|row| self.row(row)[word].load(Ordering::Relaxed)).max().unwrap_or(0)
    }
}

/// Adds to a word that only the calling thread changes now: a load and a store, no locked instruction.
#[inline(always)]
pub fn count(word: &AtomicU64, amount: u64) {
    word.store(word.load(Ordering::Relaxed).wrapping_add(amount), Ordering::Relaxed);
}

/// Mapped words.
#[derive(Debug)]
struct Memory {
    base: NonNull<AtomicU64>,
    words: usize,
}

// SAFETY: atomics in a mapping of its own, which any thread may use.
unsafe impl Send for Memory {}
// SAFETY: as above.
unsafe impl Sync for Memory {}

impl Memory {
    fn map(words: usize, owned: Option<&Owned>) -> Result<Memory> {
        let (flags, descriptor) = match owned {
            Some(owned) => (libc::MAP_SHARED, owned.file().as_raw_fd()),
            None => (libc::MAP_PRIVATE | libc::MAP_ANONYMOUS, -1),
        };
        // Touched now, so that no request waits for a page.
        let flags = flags | libc::MAP_POPULATE;
        let rights = libc::PROT_READ | libc::PROT_WRITE;
        // SAFETY: a new mapping at an address of the kernel's choice; the descriptor, if any, is open.
        let base = unsafe { libc::mmap(core::ptr::null_mut(), words * 8, rights, flags, descriptor, 0) };
        if base == libc::MAP_FAILED {
            let what = format!("mapping {} bytes for counters", words * 8);
            return Err(Error::os(what, &std::io::Error::last_os_error()));
        }
        let base = NonNull::new(base).ok_or_else(|| Error::new(Status::Bug, "the kernel mapped counters at 0"))?;
        Ok(Memory { base: base.cast(), words })
    }

    fn word(&self, index: usize) -> &AtomicU64 {
        &self.words(index, 1)[0]
    }

    fn words(&self, first: usize, count: usize) -> &[AtomicU64] {
        assert!(first.checked_add(count).is_some_and(|end| end <= self.words), "a word outside the counters");
        // SAFETY: within the mapping, which lives as long as `self` and holds valid atomics, whatever their bits. The file
        // is this process's, which never makes it shorter.
        unsafe { core::slice::from_raw_parts(self.base.add(first).as_ptr(), count) }
    }
}

impl Drop for Memory {
    fn drop(&mut self) {
        // SAFETY: the mapping is this value's, and nothing borrows from it any more.
        unsafe { libc::munmap(self.base.as_ptr().cast(), self.words * 8) };
    }
}
