//! The border: no panic leaves, every failure becomes a status and fills the caller's error struct.

use core::cell::RefCell;
use std::panic::{self, AssertUnwindSafe};

use super::error::{self, reclane_error};
use super::handle::{self, Noun};
use crate::error::{Error, Result, Status};
use crate::observe;
use crate::sync::OnceLock;

thread_local! {
    /// Text and place of the last panic on this thread.
    static PANIC: RefCell<String> = const { RefCell::new(String::new()) };
}

/// From now on a panic inside a call goes into the caller's error struct instead of the host's standard error.
/// The hook is that of the copy of std inside this library, which knows the names of threads that Rust code started, and
/// of no others. On a nameless one Rust code runs only inside a call; on one with a name a panic is also told where it
/// always was. So no call has to say when it begins and ends.
pub(super) fn keep_panics_quiet() {
    static HOOK: OnceLock<()> = OnceLock::new();
    HOOK.get_or_init(|| {
        let previous = panic::take_hook();
        panic::set_hook(Box::new(move |info| {
            PANIC.with_borrow_mut(|text| *text = info.to_string());
            if std::thread::current().name().is_some() {
                previous(info);
            }
        }));
    });
}

/// Runs `body` so that a panic in it comes out as an error.
#[inline(always)]
fn catch(body: impl FnOnce() -> Result<Status>) -> (Result<Status>, bool) {
    // Unwind safety: who calls this poisons the object that `body` may have left half-changed.
    match panic::catch_unwind(AssertUnwindSafe(body)) {
        Ok(result) => (result, false),
        Err(payload) => (Err(bug(&*payload)), true),
    }
}

#[cold]
fn bug(payload: &(dyn core::any::Any + Send)) -> Box<Error> {
    let mut text = PANIC.take();
    if text.is_empty() {
        let said =
            payload.downcast_ref::<&str>().copied().or_else(|| payload.downcast_ref::<String>().map(String::as_str));
        said.unwrap_or("no text").clone_into(&mut text);
    }
    crate::event!(observe::Level::ERROR, observe::events::BUG, text = %text);
    Error::new(Status::Bug, format!("internal failure, please report it: {text}"))
}

/// Runs a call that needs no handle.
///
/// # Safety
/// `error` is NULL or points to as many writable bytes as its `struct_size` says.
#[inline]
pub(super) unsafe fn call(error: *mut reclane_error, body: impl FnOnce() -> Result<Status>) -> Status {
    // SAFETY: the caller's word.
    if let Err(refused) = unsafe { error::check(error) } {
        return refused.status;
    }
    match catch(body).0 {
        Ok(status) => status,
        // SAFETY: checked above.
        Err(failure) => unsafe { error::fill(error, &failure) },
    }
}

/// Runs a call on a handle. A panic poisons it.
///
/// # Safety
/// `error` as for [`call`]; `handle` is NULL or was given by this library, or at least points to readable memory.
#[inline(always)]
pub(super) unsafe fn with<N: Noun>(
    handle: *const N,
    error: *mut reclane_error,
    body: impl FnOnce(&N::Object) -> Result<Status>,
) -> Status {
    // SAFETY: the caller's word.
    if let Err(refused) = unsafe { error::check(error) } {
        return refused.status;
    }
    // SAFETY: the caller's word.
    let object = match unsafe { handle::object::<N>(handle) } {
        Ok(object) => object,
        // SAFETY: checked above.
        Err(failure) => return unsafe { error::fill(error, &failure) },
    };
    let (result, panicked) = catch(|| body(object));
    if panicked {
        // SAFETY: the look-up above has accepted it.
        unsafe { handle::poison::<N>(handle) };
    }
    match result {
        Ok(status) => status,
        // SAFETY: checked above.
        Err(failure) => unsafe { error::fill(error, &failure) },
    }
}

/// Runs a call that cannot fail; a panic ends in nothing done.
pub(super) fn quietly(body: impl FnOnce()) {
    let (_result, _panicked) = catch(|| {
        body();
        Ok(Status::Ok)
    });
}

#[cfg(test)]
mod tests {
    use super::*;
    use core::ptr;

    struct Thing;
    impl Noun for Thing {
        type Object = u32;
        const TAG: u32 = 0x7E57_0001;
        const NAME: &'static str = "thing";
    }

    fn error_struct() -> reclane_error {
        // SAFETY: integers only.
        let mut face: reclane_error = unsafe { core::mem::zeroed() };
        face.struct_size = u32::try_from(size_of::<reclane_error>()).unwrap();
        face
    }

    fn text(face: &reclane_error) -> String {
        face.message.iter().take_while(|c| **c != 0).map(|c| char::from(c.cast_unsigned())).collect()
    }

    #[test]
    fn a_panic_becomes_a_status_and_poisons_the_handle() {
        keep_panics_quiet();
        let handle: *mut Thing = handle::publish::<Thing>(41);
        let mut face = error_struct();
        // SAFETY: a live handle and a full error struct.
        let status = unsafe { with(handle, &raw mut face, |_| panic!("the cat {}", "sat")) };
        assert_eq!(status, Status::Bug);
        assert!(text(&face).contains("the cat sat") && text(&face).contains("guard.rs"), "{}", text(&face));
        // SAFETY: as above.
        let status = unsafe { with(handle, &raw mut face, |_| Ok(Status::Ok)) };
        assert_eq!(status, Status::Poisoned);
        // SAFETY: a live handle; closing is allowed when poisoned.
        assert_eq!(unsafe { handle::take::<Thing>(handle) }, Some(41));
        // SAFETY: the shell of a closed handle stays readable.
        let status = unsafe { with(handle, &raw mut face, |_| Ok(Status::Ok)) };
        assert_eq!(status, Status::Closed);
    }

    #[test]
    fn an_error_struct_of_a_wrong_size_stops_the_call_before_it_begins() {
        let mut face = error_struct();
        face.struct_size -= 1;
        let mut ran = false;
        // SAFETY: the struct is there.
        let status = unsafe {
            call(&raw mut face, || {
                ran = true;
                Ok(Status::Ok)
            })
        };
        assert_eq!((status, ran), (Status::StructSize, false));
        // SAFETY: NULL is allowed.
        let status = unsafe { call(ptr::null_mut(), || Err(Error::new(Status::Busy, "x"))) };
        assert_eq!(status, Status::Busy);
    }
}
