//! Who may touch what when several workers share a store. A store with one worker uses none of this.

use super::index::fetch_line;
use super::shared::SharedRows;
use crate::sync::{Arc, AtomicBool, AtomicU32, AtomicU64, CachePadded, Mutex, MutexGuard, Ordering, fence, lock};
use crate::time;
use core::ptr::NonNull;
use core::time::Duration;

/// Longest a writer waits for pinned rows.
const PIN_WAIT: Duration = Duration::from_secs(2);
/// Turns of a waiting loop before the core is offered to others.
const SPINS: u32 = 200;

/// Waits a little; the more turns, the politer.
pub(super) fn relax(turn: &mut u32) {
    *turn = turn.wrapping_add(1);
    if turn.is_multiple_of(SPINS) { std::thread::yield_now() } else { core::hint::spin_loop() }
}

/// Lets workers in together, or one visitor alone (growth of an index, CLEAR, SAVE, LOAD). A worker pays one exchange on
/// a cache line of its own.
pub(super) struct Gate {
    inside: Box<[CachePadded<AtomicU32>]>,
    closed: AtomicBool,
    visitor: Mutex<()>,
}

/// A worker's stay.
pub(super) struct Inside<'a>(&'a AtomicU32);

/// The visitor's stay.
pub(super) struct Alone<'a> {
    gate: &'a Gate,
    _visitor: MutexGuard<'a, ()>,
}

impl Gate {
    pub fn new(workers: u32) -> Gate {
        Gate {
            inside: (0..workers).map(|_| CachePadded(AtomicU32::new(0))).collect(),
            closed: AtomicBool::new(false),
            visitor: Mutex::new(()),
        }
    }

    /// Waits while a visitor is inside. None for a worker number that was not announced.
    #[inline]
    pub fn enter(&self, worker: u32) -> Option<Inside<'_>> {
        let mine: &AtomicU32 = self.inside.get(worker as usize)?;
        let mut turn = 0_u32;
        loop {
            // SeqCst: with the visitor's store to `closed` and loads of `inside` (also SeqCst), one of the two sides
            // sees the other.
            mine.store(1, Ordering::SeqCst);
            // SeqCst: see above. It also acquires what the last visitor left.
            if !self.closed.load(Ordering::SeqCst) {
                return Some(Inside(mine));
            }
            // Release: pairs with the visitor's load; nothing was touched, but the rule is simpler without exceptions.
            mine.store(0, Ordering::Release);
            // Acquire: pairs with the Release of Alone's drop.
            while self.closed.load(Ordering::Acquire) {
                relax(&mut turn);
            }
        }
    }

    /// Waits until every worker is outside and keeps them there. The caller itself must be outside.
    pub fn enter_alone(&self) -> Alone<'_> {
        let visitor = lock(&self.visitor);
        // SeqCst: see `enter`.
        self.closed.store(true, Ordering::SeqCst);
        let mut turn = 0_u32;
        for worker in &self.inside {
            // SeqCst: see `enter`; it also acquires what the worker did (Release of Inside's drop).
            while worker.load(Ordering::SeqCst) != 0 {
                relax(&mut turn);
            }
        }
        Alone { gate: self, _visitor: visitor }
    }
}

impl Drop for Inside<'_> {
    fn drop(&mut self) {
        // Release: pairs with the SeqCst load in `enter_alone`.
        self.0.store(0, Ordering::Release);
    }
}

impl Drop for Alone<'_> {
    fn drop(&mut self) {
        // Release: pairs with the loads in `enter`.
        self.gate.closed.store(false, Ordering::Release);
    }
}

/// Bits of a stripe's word: a writer is inside; a writer waits for pins; count of pins; version.
const WRITER: u64 = 1;
const WAITING: u64 = 2;
const PIN: u64 = 4;
const PINS: u64 = VERSION - PIN;
const VERSION: u64 = 1 << 24;
pub(super) const STRIPES: usize = 4096;
/// Times that a reader of another process looks at a row that is being written, before it asks by request: some
/// microseconds.
const LOOKS: u32 = 1000;

/// Sequence locks for rows, by address: writers exclude each other and pins, readers look twice.
pub(super) struct Stripes {
    /// As many as [`STRIPES`].
    words: NonNull<AtomicU64>,
    _keeper: Keeper,
}

/// What the words lie in.
enum Keeper {
    Own { _words: Box<[AtomicU64]> },
    Shared { _rows: Arc<SharedRows> },
}

// SAFETY: the words are atomics, which the keeper keeps.
unsafe impl Send for Stripes {}
// SAFETY: as above.
unsafe impl Sync for Stripes {}

/// A stripe of another process: its rows can be read, and not locked.
#[derive(Clone, Copy)]
pub(super) struct Versions<'a>(pub &'a AtomicU64);

impl Versions<'_> {
    /// As [`Stripes::read`]; false when a writer was at work all the time.
    #[inline(always)]
    pub fn read(self, mut read: impl FnMut()) -> bool {
        for _ in 0..LOOKS {
            if read_once(self.0, &mut read) {
                return true;
            }
            core::hint::spin_loop();
        }
        false
    }
}

/// Runs `read`; false if a writer was at work meanwhile.
#[inline(always)]
fn read_once(word: &AtomicU64, read: &mut impl FnMut()) -> bool {
    // Acquire: pairs with the writer's Release in `Writing::drop`.
    let before = word.load(Ordering::Acquire);
    if before & WRITER != 0 {
        return false;
    }
    read();
    // Acquire: pairs with the Release fence in `write`: if `read` saw any byte of a writer, the load below sees that
    // writer's bit or a later version.
    fence(Ordering::Acquire);
    let after = word.load(Ordering::Relaxed);
    (before ^ after) & !(WAITING | PINS) == 0
}

/// The write lock of one stripe.
pub(super) struct Writing<'a>(&'a AtomicU64);

impl Stripes {
    pub fn new() -> Stripes {
        let mut words: Box<[AtomicU64]> = (0..STRIPES).map(|_| AtomicU64::new(0)).collect();
        let first = NonNull::new(words.as_mut_ptr()).unwrap_or(NonNull::dangling());
        Stripes { words: first, _keeper: Keeper::Own { _words: words } }
    }

    /// Stripes that lie in shared memory.
    ///
    /// # Safety
    /// [`STRIPES`] words, aligned, live there as long as `rows`, and are used as atomics only.
    pub unsafe fn within(words: NonNull<AtomicU64>, rows: Arc<SharedRows>) -> Stripes {
        Stripes { words, _keeper: Keeper::Shared { _rows: rows } }
    }

    #[inline(always)]
    fn at(&self, index: u32) -> &AtomicU64 {
        debug_assert!((index as usize) < STRIPES);
        // SAFETY: `index_of` gives no more than there are; they live as long as this value.
        unsafe { self.words.add(index as usize).as_ref() }
    }

    /// The stripe of a row.
    #[allow(clippy::cast_possible_truncation)] // the highest bits only
    #[inline]
    pub fn index_of(row: *const u8) -> u32 {
        // Rows below a line long share stripes: they share lines anyway.
        ((row as usize as u64 >> 6).wrapping_mul(0x9e37_79b9_7f4a_7c15) >> (64 - STRIPES.ilog2())) as u32
    }

    #[inline]
    fn word(&self, row: *const u8) -> &AtomicU64 {
        self.at(Self::index_of(row))
    }

    /// Asks for the lock of a row.
    #[inline(always)]
    pub fn fetch(&self, row: *const u8) {
        fetch_line(core::ptr::from_ref(self.word(row)).cast());
    }

    /// Runs `read` until no writer was at work meanwhile. `read` may see torn rows on the way.
    #[inline(always)]
    pub fn read(&self, row: *const u8, mut read: impl FnMut()) {
        let word = self.word(row);
        let mut turn = 0_u32;
        while !read_once(word, &mut read) {
            relax(&mut turn);
        }
    }

    /// Takes a stripe for writing. None when it stayed pinned for two seconds, or at once (`patient` false) when it is
    /// pinned at all.
    #[inline]
    pub fn write(&self, row: *const u8, patient: bool) -> Option<Writing<'_>> {
        let word = self.word(row);
        let seen = word.load(Ordering::Relaxed);
        let locked = (seen | WRITER) & !WAITING;
        // Acquire: pairs with the Release of the writer or the pin before.
        if seen & (WRITER | PINS) != 0
            || word.compare_exchange(seen, locked, Ordering::Acquire, Ordering::Relaxed).is_err()
        {
            return self.write_slowly(row, patient);
        }
        // Release: pairs with the Acquire fence in `read`.
        fence(Ordering::Release);
        Some(Writing(word))
    }

    #[cold]
    fn write_slowly(&self, row: *const u8, patient: bool) -> Option<Writing<'_>> {
        let word = self.word(row);
        let deadline = time::now().after(PIN_WAIT);
        let mut turn = 0_u32;
        loop {
            let seen = word.load(Ordering::Relaxed);
            if seen & (WRITER | PINS) == 0 {
                let locked = (seen | WRITER) & !WAITING;
                // Acquire: as in `write`.
                if word.compare_exchange_weak(seen, locked, Ordering::Acquire, Ordering::Relaxed).is_ok() {
                    // Release: as in `write`.
                    fence(Ordering::Release);
                    return Some(Writing(word));
                }
            } else if seen & PINS != 0 {
                // Keeps new pins away, so that writers are not starved.
                word.fetch_or(WAITING, Ordering::Relaxed);
                if !patient || (turn.is_multiple_of(SPINS) && time::now() > deadline) {
                    word.fetch_and(!WAITING, Ordering::Relaxed);
                    return None;
                }
            }
            relax(&mut turn);
        }
    }

    /// Pins a stripe against writers; false when one is at work or waits.
    pub fn pin(&self, index: u32) -> bool {
        let word = self.at(index);
        let mut seen = word.load(Ordering::Relaxed);
        while seen & (WRITER | WAITING) == 0 && seen & PINS != PINS {
            // Acquire: pairs with the Release in `Writing::drop`: the pinned row is whole.
            match word.compare_exchange_weak(seen, seen + PIN, Ordering::Acquire, Ordering::Relaxed) {
                Ok(_) => return true,
                Err(now) => seen = now,
            }
        }
        false
    }

    /// Takes one pin back.
    pub fn unpin(&self, index: u32) {
        // Release: pairs with the writer's Acquire: what read the pinned row is done.
        self.at(index).fetch_sub(PIN, Ordering::Release);
    }
}

impl Drop for Writing<'_> {
    #[inline]
    fn drop(&mut self) {
        // Release: pairs with the Acquire loads of readers, writers and pins: the row is whole again.
        self.0.fetch_add(VERSION - WRITER, Ordering::Release);
    }
}
