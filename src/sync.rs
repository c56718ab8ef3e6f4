//! The only door to atomics and locks. Everything that orders memory between threads or processes imports from here.

pub use core::sync::atomic::{
    AtomicBool, AtomicI32, AtomicPtr, AtomicU8, AtomicU16, AtomicU32, AtomicU64, AtomicUsize, Ordering, compiler_fence,
    fence,
};
pub use std::sync::{Arc, Condvar, Mutex, MutexGuard, OnceLock, RwLock, Weak};

/// For sections of a few instructions between threads that own their core; never around a callback, a system call or
/// an allocation.
pub type SpinMutex<T> = spin::Mutex<T>;

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
    mutex.lock().unwrap_or_else(std::sync::PoisonError::into_inner)
}
