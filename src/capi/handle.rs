//! Handles: what C holds is the address of a shell that outlives the object, so that a closed handle is told from a
//! live one without touching freed memory.
//!
//! Shells are recycled, the oldest first and only once [`QUARANTINE`] of them lie idle; until then a closed handle is
//! recognised for certain. A call on a handle while another thread closes it is the caller's mistake and not caught.

use core::cell::UnsafeCell;
use core::ptr;
use std::collections::VecDeque;

use super::fork;
use crate::error::{Error, Result, Status};
use crate::sync::{AtomicBool, AtomicU32, Mutex, Ordering, lock};

/// Idle shells that must have gathered before the oldest is used again.
const QUARANTINE: usize = 256;

/// The tag of a shell whose handle was closed.
const TAG_CLOSED: u32 = 0xC105_ED00;

/// What stands behind one kind of handle.
pub(super) trait Noun: Sized {
    /// The object.
    type Object: Send + Sync + 'static;
    /// First word of a live handle.
    const TAG: u32;
    /// Its name in the header, for messages.
    const NAME: &'static str;
}

#[repr(C)]
struct Shell {
    tag: AtomicU32,
    poisoned: AtomicBool,
    /// From `Box::into_raw`. Written only while the shell is idle.
    object: UnsafeCell<*mut ()>,
}

// SAFETY: `object` is written by the one thread that holds the idle shell and published by `tag`; the objects are Send
// and Sync by `Noun`.
unsafe impl Sync for Shell {}

/// Idle shells, oldest first. Reachable for good: a shell is never freed.
static IDLE: Mutex<VecDeque<&'static Shell>> = Mutex::new(VecDeque::new());

fn idle_shell() -> &'static Shell {
    let mut idle = lock(&IDLE);
    if idle.len() > QUARANTINE
        && let Some(shell) = idle.pop_front()
    {
        return shell;
    }
    drop(idle);
    Box::leak(Box::new(Shell {
        tag: AtomicU32::new(TAG_CLOSED),
        poisoned: AtomicBool::new(false),
        object: UnsafeCell::new(ptr::null_mut()),
    }))
}

/// Makes a handle of an object.
pub(super) fn publish<N: Noun>(object: N::Object) -> *mut N {
    let shell = idle_shell();
    // SAFETY: nobody else has this shell: it was taken out of the idle ones, or is new.
    unsafe { *shell.object.get() = Box::into_raw(Box::new(object)).cast::<()>() };
    shell.poisoned.store(false, Ordering::Relaxed);
    // Release: pairs with the Acquire in `shell_of`, which sees the object behind the tag.
    shell.tag.store(N::TAG, Ordering::Release);
    ptr::from_ref(shell).cast_mut().cast::<N>()
}

/// The shell of a live handle of this kind.
///
/// # Safety
/// `handle` is NULL or points to at least 4 readable bytes.
#[inline]
unsafe fn shell_of<'a, N: Noun>(handle: *const N) -> Result<&'a Shell> {
    if handle.is_null() || !handle.cast::<Shell>().is_aligned() {
        return Err(no_shell(handle));
    }
    // SAFETY: readable, by the caller's word, and aligned.
    let tag = unsafe { &*handle.cast::<AtomicU32>() };
    // Acquire: pairs with the Release in `publish`.
    let tag = tag.load(Ordering::Acquire);
    if tag != N::TAG {
        return Err(refusal::<N>(tag));
    }
    // SAFETY: only `publish` writes this tag, so it is a shell, and shells live for ever.
    Ok(unsafe { &*handle.cast::<Shell>() })
}

#[cold]
fn no_shell<N: Noun>(handle: *const N) -> Box<Error> {
    let name = N::NAME;
    let words = if handle.is_null() {
        format!("the {name} handle is NULL: {name}_open() did not succeed, or the handle was closed or moved away")
    } else {
        format!("the {name} handle {handle:p} is misaligned: {name}_open() never gave it")
    };
    Error::new(Status::NullPointer, words)
}

#[cold]
fn refusal<N: Noun>(tag: u32) -> Box<Error> {
    let name = N::NAME;
    if tag == TAG_CLOSED {
        return Error::new(Status::Closed, format!("this {name} was closed: use one that {name}_open() gave since"));
    }
    Error::new(
        Status::BadHandle,
        format!("this is no {name}: its first word is {tag:#010x} instead of {:#010x}", N::TAG),
    )
}

/// The object behind a handle that may be used.
///
/// # Safety
/// As for [`shell_of`]; and no other thread closes the handle meanwhile.
#[inline]
pub(super) unsafe fn object<'a, N: Noun>(handle: *const N) -> Result<&'a N::Object> {
    // SAFETY: the caller's word.
    let shell = unsafe { shell_of(handle) }?;
    fork::check()?;
    if shell.poisoned.load(Ordering::Relaxed) {
        return Err(Error::new(
            Status::Poisoned,
            format!("this {} is poisoned by an earlier internal failure; close it and open another", N::NAME),
        ));
    }
    // SAFETY: written by `publish` before the tag that `shell_of` saw.
    let object = unsafe { *shell.object.get() };
    // SAFETY: it is an object of this kind, as the tag says, and lives until `take`.
    Ok(unsafe { &*object.cast::<N::Object>() })
}

/// Marks a handle as one that may only be closed.
///
/// # Safety
/// As for [`object`].
#[cold]
pub(super) unsafe fn poison<N: Noun>(handle: *const N) {
    // SAFETY: the caller's word.
    if let Ok(shell) = unsafe { shell_of(handle) } {
        shell.poisoned.store(true, Ordering::Relaxed);
    }
}

/// Ends a handle and gives its object back; `None` for NULL, a closed handle, or one of another kind. In a forked child
/// the object is left alone: its threads are not there, and what it shares belongs to the parent.
///
/// # Safety
/// As for [`object`].
pub(super) unsafe fn take<N: Noun>(handle: *mut N) -> Option<N::Object> {
    // SAFETY: the caller's word.
    let shell = unsafe { shell_of(handle.cast_const()) }.ok()?;
    // Relaxed: of two racing closers one sees the tag; the object was seen by `shell_of`'s Acquire.
    shell.tag.compare_exchange(N::TAG, TAG_CLOSED, Ordering::Relaxed, Ordering::Relaxed).ok()?;
    // SAFETY: the exchange made this thread the only owner of the shell.
    let object = unsafe { *shell.object.get() };
    lock(&IDLE).push_back(shell);
    if fork::is_child() {
        return None;
    }
    // SAFETY: from `Box::into_raw` in `publish` for the same kind, and taken once.
    Some(*unsafe { Box::from_raw(object.cast::<N::Object>()) })
}

#[cfg(test)]
mod tests {
    use super::*;

    struct Cat;
    impl Noun for Cat {
        type Object = String;
        const TAG: u32 = 0x7E57_0002;
        const NAME: &'static str = "cat";
    }
    struct Dog;
    impl Noun for Dog {
        type Object = u8;
        const TAG: u32 = 0x7E57_0003;
        const NAME: &'static str = "dog";
    }

    #[test]
    fn a_handle_is_told_from_another_kind_and_from_a_closed_one() {
        let cat = publish::<Cat>("tom".to_owned());
        // SAFETY: a live handle, used as another kind.
        assert_eq!(unsafe { object::<Dog>(cat.cast::<Dog>()) }.unwrap_err().status, Status::BadHandle);
        // SAFETY: a live handle.
        assert_eq!(unsafe { object::<Cat>(cat) }.unwrap(), "tom");
        // SAFETY: a live handle, closed as another kind, then right, then again.
        unsafe {
            assert_eq!(take::<Dog>(cat.cast::<Dog>()), None);
            assert_eq!(take::<Cat>(cat).as_deref(), Some("tom"));
            assert_eq!(take::<Cat>(cat), None);
        }
        // SAFETY: shells stay readable.
        assert_eq!(unsafe { object::<Cat>(cat) }.unwrap_err().status, Status::Closed);
        // SAFETY: NULL is allowed.
        assert_eq!(unsafe { object::<Cat>(ptr::null()) }.unwrap_err().status, Status::NullPointer);
    }

    #[test]
    fn many_openings_do_not_grow_the_number_of_shells() {
        let mut seen = std::collections::HashSet::new();
        for i in 0..3000_u32 {
            let cat = publish::<Cat>(i.to_string());
            seen.insert(cat.addr());
            // SAFETY: a live handle.
            assert_eq!(unsafe { take::<Cat>(cat) }, Some(i.to_string()));
        }
        assert!(seen.len() <= 2 * QUARANTINE, "{} shells", seen.len());
    }
}
