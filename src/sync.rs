//! The only door to atomics and locks. Everything that orders memory between threads or processes imports from here.

pub use core::sync::atomic::{
    AtomicBool, AtomicI32, AtomicPtr, AtomicU8, AtomicU16, AtomicU32, AtomicU64, AtomicUsize, Ordering, compiler_fence,
    fence,
};
pub use std::sync::{Arc, Condvar, Mutex, MutexGuard, OnceLock, Weak};
use std::sync::{LockResult, RwLockReadGuard, RwLockWriteGuard};

/// Called for every lock that is taken, in debug builds: a test counts them so. Before the first client or server opens.
#[cfg(debug_assertions)]
pub fn watch_locks(hook: fn()) {
    // A second one is of the same test program, and the first one stays.
    let _ = LOCK_HOOK.set(hook);
}

#[cfg(debug_assertions)]
static LOCK_HOOK: OnceLock<fn()> = OnceLock::new();

#[inline(always)]
fn noted() {
    #[cfg(debug_assertions)]
    if let Some(hook) = LOCK_HOOK.get() {
        hook();
    }
}

/// For sections of a few instructions between threads that own their core; never around a callback, a system call or
/// an allocation.
#[derive(Debug)]
pub struct SpinMutex<T>(spin::Mutex<T>);

impl<T> SpinMutex<T> {
    /// An open one.
    pub const fn new(value: T) -> SpinMutex<T> {
        SpinMutex(spin::Mutex::new(value))
    }

    /// Spins until it is open.
    pub fn lock(&self) -> spin::MutexGuard<'_, T> {
        noted();
        self.0.lock()
    }
}

/// Many readers or one writer.
#[derive(Debug, Default)]
pub struct RwLock<T>(std::sync::RwLock<T>);

impl<T> RwLock<T> {
    /// An open one.
    pub const fn new(value: T) -> RwLock<T> {
        RwLock(std::sync::RwLock::new(value))
    }

    /// As the standard library's.
    ///
    /// # Errors
    /// A writer panicked; the guard is in the error.
    pub fn read(&self) -> LockResult<RwLockReadGuard<'_, T>> {
        noted();
        self.0.read()
    }

    /// As the standard library's.
    ///
    /// # Errors
    /// As for [`RwLock::read`].
    pub fn write(&self) -> LockResult<RwLockWriteGuard<'_, T>> {
        noted();
        self.0.write()
    }
}

/// Keeps a value on its own pair of cache lines, so that neighbours do not slow each other (x86 fetches lines in pairs).
#[repr(align(128))]
#[derive(Debug, Default)]
pub struct CachePadded<T>(pub T);

impl<T> core::ops::Deref for CachePadded<T> {
    type Target = T;
    fn deref(&self) -> &T {
        &self.0
    }
}

impl<T> core::ops::DerefMut for CachePadded<T> {
    fn deref_mut(&mut self) -> &mut T {
        &mut self.0
    }
}

/// Locks a mutex whose data stays consistent under a panic of its holder, so poisoning carries no news.
pub fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    noted();
    mutex.lock().unwrap_or_else(std::sync::PoisonError::into_inner)
}
