//! Options: a bag of named values that a server or a client is opened with.
//!
//! Names are those of docs/options.md, spelled with dashes or underscores alike ("slots-per-qp", "rdma_namespace").
//! Values are text, checked when they are set; contradictions between options are found when something is opened.
//! An options handle is read only while a server or client is being opened, so it may be changed or closed afterwards.

use core::ffi::c_char;

use super::arguments::{required, text, write_text};
use super::error::reclane_error;
use super::guard;
use super::handle::{self, Noun};
use crate::engine::Server;
use crate::error::{Error, Result, Status};
use crate::options::{Options, Side};
use crate::sync::{Mutex, lock};

/// A bag of named options. Opaque; made by reclane_options_open().
#[derive(Debug)]
pub struct reclane_options {
    _opaque: (),
}

impl Noun for reclane_options {
    // The lock makes a wrongly shared handle harmless; it is never contended in right use.
    type Object = Mutex<Options>;
    const TAG: u32 = 0x0B71_0501;
    const NAME: &'static str = "reclane_options";
}

/// Writes a handle to the caller's variable, NULL before the work so that a failure leaves NULL.
///
/// # Safety
/// `out` is NULL or writable.
pub(super) unsafe fn publish_to<N: Noun>(out: *mut *mut N, make: impl FnOnce() -> Result<N::Object>) -> Result<Status> {
    required(out, "out")?;
    // SAFETY: not NULL, writable by the caller's word.
    unsafe { out.write(core::ptr::null_mut()) };
    let object = make()?;
    // SAFETY: as above.
    unsafe { out.write(handle::publish::<N>(object)) };
    Ok(Status::Ok)
}

/// Opens a bag of options in which each has its default.
///
/// out    receives the handle; NULL is written on failure. Close it with reclane_options_close().
/// error  may be NULL; filled on failure only.
///
/// RECLANE_STATUS_NULL_POINTER  out is NULL
/// RECLANE_STATUS_STRUCT_SIZE   error has a size that cannot be
/// Threads: any.  Blocks: never.
#[unsafe(no_mangle)]
#[must_use]
pub unsafe extern "C" fn reclane_options_open(out: *mut *mut reclane_options, error: *mut reclane_error) -> Status {
    guard::keep_panics_quiet();
    // SAFETY: the caller vouches for `out` and `error`.
    unsafe { guard::call(error, || publish_to(out, || Ok(Mutex::new(Options::new())))) }
}

/// Sets one option.
///
/// options  from reclane_options_open().
/// name     name of the option, NUL-terminated UTF-8, dashes or underscores alike, without leading dashes. Copied.
/// value    its value as text: a decimal number, "true" or "false", or one of the option's words. Copied.
/// error    may be NULL; filled on failure only, with the name, the value and its bounds.
///
/// RECLANE_STATUS_UNKNOWN_OPTION  no option has this name
/// RECLANE_STATUS_OPTION_TYPE     the value is of the wrong type
/// RECLANE_STATUS_OPTION_BOUNDS   the value is out of bounds
/// RECLANE_STATUS_NULL_POINTER, _NOT_UTF8, _BAD_HANDLE, _CLOSED, _FORKED, _STRUCT_SIZE  as their names say
/// Threads: one at a time per options.  Blocks: never.
#[unsafe(no_mangle)]
#[must_use]
pub unsafe extern "C" fn reclane_options_set(
    options: *mut reclane_options,
    name: *const c_char,
    value: *const c_char,
    error: *mut reclane_error,
) -> Status {
    // SAFETY: the caller vouches for the strings.
    let body = |options: &Mutex<Options>| unsafe {
        lock(options).set(text(name, "name")?, text(value, "value")?)?;
        Ok(Status::Ok)
    };
    // SAFETY: the caller vouches for the handle and `error`.
    unsafe { guard::with(options.cast_const(), error, body) }
}

/// Sets one option from a command-line word: "--name=value", "-name=value" or "--name" (meaning "true"). For programs
/// that pass their own flags on.
///
/// options  from reclane_options_open().
/// flag     NUL-terminated UTF-8. Copied.
/// error    may be NULL; filled on failure only.
///
/// RECLANE_STATUS_INVALID_ARGUMENT  flag does not start with a dash or has no name
/// RECLANE_STATUS_UNKNOWN_OPTION, _OPTION_TYPE, _OPTION_BOUNDS  as reclane_options_set()
/// RECLANE_STATUS_NULL_POINTER, _NOT_UTF8, _BAD_HANDLE, _CLOSED, _FORKED, _STRUCT_SIZE  as their names say
/// Threads: one at a time per options.  Blocks: never.
#[unsafe(no_mangle)]
#[must_use]
pub unsafe extern "C" fn reclane_options_set_flag(
    options: *mut reclane_options,
    flag: *const c_char,
    error: *mut reclane_error,
) -> Status {
    let body = |options: &Mutex<Options>| {
        // SAFETY: the caller vouches for the string.
        let (name, value) = split_flag(unsafe { text(flag, "flag") }?)?;
        lock(options).set(name, value)?;
        Ok(Status::Ok)
    };
    // SAFETY: the caller vouches for the handle and `error`.
    unsafe { guard::with(options.cast_const(), error, body) }
}

fn split_flag(flag: &str) -> Result<(&str, &str)> {
    let word = flag.strip_prefix("--").or_else(|| flag.strip_prefix('-'));
    let (name, value) = word.map_or(("", ""), |word| word.split_once('=').unwrap_or((word, "true")));
    if name.is_empty() {
        return Err(Error::new(Status::InvalidArgument, format!("flag '{flag}' is not of the form --name=value")));
    }
    Ok((name, value))
}

/// Reads one option as text: the value that was set, or its default.
///
/// options   from reclane_options_open().
/// name      name of the option, as in reclane_options_set().
/// buffer    receives the value, always NUL-terminated when capacity is not 0; cut if it does not fit.
/// capacity  bytes of buffer, the NUL included.
/// length    may be NULL; receives the bytes of the whole value without the NUL, also when buffer is too small.
/// error     may be NULL; filled on failure only.
///
/// RECLANE_STATUS_UNKNOWN_OPTION    no option has this name
/// RECLANE_STATUS_BUFFER_TOO_SMALL  the value and its NUL need more than capacity bytes; call again with *length + 1
/// RECLANE_STATUS_NULL_POINTER, _NOT_UTF8, _BAD_HANDLE, _CLOSED, _FORKED, _STRUCT_SIZE  as their names say
/// Threads: one at a time per options.  Blocks: never.
#[unsafe(no_mangle)]
#[must_use]
pub unsafe extern "C" fn reclane_options_get(
    options: *const reclane_options,
    name: *const c_char,
    buffer: *mut c_char,
    capacity: usize,
    length: *mut usize,
    error: *mut reclane_error,
) -> Status {
    let body = |options: &Mutex<Options>| {
        // SAFETY: the caller vouches for the string.
        let name = unsafe { text(name, "name") }?;
        let value = lock(options).get(name)?;
        // SAFETY: the caller vouches for the buffer and `length`.
        unsafe { write_text(&value, buffer, capacity, length, name) }
    };
    // SAFETY: the caller vouches for the handle and `error`.
    unsafe { guard::with(options, error, body) }
}

/// How many workers a server with these options has: a store's callbacks get worker numbers below it.
///
/// options  from reclane_options_open(); NULL for all defaults.
/// workers  receives the number, 1..513.
/// error    may be NULL; filled on failure only.
///
/// RECLANE_STATUS_OPTION_CONFLICT  two options contradict each other, or one the deployment file
/// RECLANE_STATUS_OS_ERROR, _UNKNOWN_OPTION, _OPTION_TYPE, _OPTION_BOUNDS, _INVALID_ARGUMENT, _NOT_UTF8  the deployment
/// file cannot be read or is wrong; the message names it
/// RECLANE_STATUS_NULL_POINTER, _BAD_HANDLE, _CLOSED, _FORKED, _STRUCT_SIZE  as their names say
/// Threads: one at a time per options.  Blocks: while the deployment file is read, if one is named.
#[unsafe(no_mangle)]
#[must_use]
pub unsafe extern "C" fn reclane_options_server_workers(
    options: *const reclane_options,
    workers: *mut u32,
    error: *mut reclane_error,
) -> Status {
    let body = || {
        required(workers, "workers")?;
        // SAFETY: the caller vouches for the handle.
        let settings = unsafe { snapshot(options) }?.settings(Side::Server)?;
        // SAFETY: not NULL; writable by the caller's word.
        unsafe { workers.write(Server::workers(&settings)) };
        Ok(Status::Ok)
    };
    // SAFETY: the caller vouches for `error`.
    unsafe { guard::call(error, body) }
}

/// Closes a bag of options. NULL and an already closed handle do nothing.
///
/// Threads: one at a time per options.  Blocks: never.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn reclane_options_close(options: *mut reclane_options) {
    // SAFETY: the caller vouches for the handle.
    guard::quietly(|| drop(unsafe { handle::take(options) }));
}

/// A copy of the options behind a handle; NULL means: all defaults.
///
/// # Safety
/// `options` is NULL or a handle.
pub(super) unsafe fn snapshot(options: *const reclane_options) -> Result<Options> {
    if options.is_null() {
        return Ok(Options::new());
    }
    // SAFETY: the caller's word.
    unsafe { handle::object(options) }.map(|options| lock(options).clone())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn flags_are_split_as_command_lines_spell_them() {
        assert_eq!(split_flag("--a-b=c=d").unwrap(), ("a-b", "c=d"));
        assert_eq!(split_flag("-x=").unwrap(), ("x", ""));
        assert_eq!(split_flag("--on").unwrap(), ("on", "true"));
        for bad in ["", "-", "--", "--=1", "name=1"] {
            assert_eq!(split_flag(bad).unwrap_err().status, Status::InvalidArgument, "{bad}");
        }
    }
}
