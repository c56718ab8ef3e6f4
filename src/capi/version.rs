//! Which library this is, and what its numbers mean.
//!
//! These functions need no handle, cannot block, and may be called at any time, in a forked child too.

use core::ffi::c_char;
use std::ffi::CString;

use super::error::reclane_error;
use super::guard;
use crate::error::{Error, Status, StatusClass};
use crate::sync::OnceLock;

/// Number of the binary interface: that of the SONAME. `build.rs` and the header's macro carry the same one.
const ABI_VERSION: u32 = 0;

const fn number(text: &str) -> u32 {
    let mut value = 0;
    let mut at = 0;
    while at < text.len() {
        // ASCII digits, by Cargo's own rule.
        value = value * 10 + (text.as_bytes()[at] - b'0') as u32;
        at += 1;
    }
    value
}

const VERSION_NUMBER: u32 = (number(env!("CARGO_PKG_VERSION_MAJOR")) << 16)
    | (number(env!("CARGO_PKG_VERSION_MINOR")) << 8)
    | number(env!("CARGO_PKG_VERSION_PATCH"));

/// Version of the loaded library as text, "0.1.0" say. Compare with RECLANE_VERSION_STRING, that of the header.
///
/// Returns a static string.
/// Threads: any.  Blocks: never.
#[unsafe(no_mangle)]
pub extern "C" fn reclane_version() -> *const c_char {
    concat!(env!("CARGO_PKG_VERSION"), "\0").as_ptr().cast::<c_char>()
}

/// Version of the loaded library as (major << 16) | (minor << 8) | patch. Compare with RECLANE_VERSION_NUMBER.
///
/// Threads: any.  Blocks: never.
#[unsafe(no_mangle)]
pub extern "C" fn reclane_version_number() -> u32 {
    VERSION_NUMBER
}

/// Number of the binary interface of the loaded library. Compare with RECLANE_ABI_VERSION.
///
/// Threads: any.  Blocks: never.
#[unsafe(no_mangle)]
pub extern "C" fn reclane_abi_version() -> u32 {
    ABI_VERSION
}

/// Checks that the loaded library fits the header: call it with RECLANE_ABI_VERSION before anything else.
///
/// abi_version  RECLANE_ABI_VERSION of the header that the caller was compiled with.
/// error        may be NULL; filled on failure only.
///
/// RECLANE_STATUS_OK           they fit
/// RECLANE_STATUS_ABI_VERSION  they do not; the message has both numbers
/// Threads: any.  Blocks: never.
#[unsafe(no_mangle)]
#[must_use]
pub unsafe extern "C" fn reclane_abi_check(abi_version: u32, error: *mut reclane_error) -> Status {
    let body = || {
        if abi_version == ABI_VERSION {
            return Ok(Status::Ok);
        }
        Err(Error::new(
            Status::AbiVersion,
            format!("the program was compiled for ABI {abi_version}, the loaded library has ABI {ABI_VERSION}"),
        ))
    };
    // SAFETY: the caller vouches for `error`.
    unsafe { guard::call(error, body) }
}

/// Name of a status: that of its constant, "RECLANE_STATUS_LANE_DOWN" say; "RECLANE_STATUS_?" for a number that this
/// library does not know.
///
/// Returns a static string.
/// Threads: any.  Blocks: never.
#[unsafe(no_mangle)]
pub extern "C" fn reclane_status_name(status: i32) -> *const c_char {
    static NAMES: OnceLock<Vec<(i32, CString)>> = OnceLock::new();
    let names = NAMES.get_or_init(|| {
        let entry = |s: &Status| (*s as i32, CString::new(format!("RECLANE_STATUS_{s}")).unwrap_or_default());
        Status::ALL.iter().map(entry).collect()
    });
    let found = names.iter().find(|(number, _)| *number == status);
    found.map_or(c"RECLANE_STATUS_?".as_ptr(), |(_, name)| name.as_ptr())
}

/// What a status says was ruined, and so what to do next. Any number has a class, known or not.
///
/// Threads: any.  Blocks: never.
#[unsafe(no_mangle)]
pub extern "C" fn reclane_status_class(status: i32) -> StatusClass {
    StatusClass::of(status)
}

#[cfg(test)]
mod tests {
    use super::*;
    use core::ffi::CStr;

    #[test]
    fn names_are_those_of_the_constants() {
        let name = |status: i32| {
            // SAFETY: a static string.
            unsafe { CStr::from_ptr(reclane_status_name(status)) }.to_str().unwrap().to_owned()
        };
        assert_eq!(name(0), "RECLANE_STATUS_OK");
        assert_eq!(name(-103), "RECLANE_STATUS_NOT_UTF8");
        assert_eq!(name(-404), "RECLANE_STATUS_LANE_DOWN");
        assert_eq!(name(-9999), "RECLANE_STATUS_?");
    }

    #[test]
    fn the_packed_version_is_that_of_the_text() {
        let mut parts = env!("CARGO_PKG_VERSION").split('.').map(|part| part.parse::<u32>().unwrap());
        let (major, minor, patch) = (parts.next().unwrap(), parts.next().unwrap(), parts.next().unwrap());
        assert_eq!(reclane_version_number(), (major << 16) | (minor << 8) | patch);
    }
}
