//! Turns what C hands over into Rust values, or says what is wrong with it.

use core::ffi::{CStr, c_char};
use core::{ptr, slice};
use std::time::Duration;

use crate::error::{Error, Result, Status};
use crate::ids::TableTag;

/// Refuses a NULL for something required.
#[inline(always)]
pub(super) fn required<T>(pointer: *const T, name: &str) -> Result<()> {
    if pointer.is_null() { Err(null(name)) } else { Ok(()) }
}

#[cold]
fn null(name: &str) -> Box<Error> {
    Error::new(Status::NullPointer, format!("{name} is NULL"))
}

/// An array of C as a slice. NULL is allowed when it is empty.
///
/// # Safety
/// `first` points to `count` readable elements, or `count` is 0, for as long as the slice is used.
#[inline(always)]
pub(super) unsafe fn array<'a, T>(first: *const T, count: usize, name: &str) -> Result<&'a [T]> {
    if count == 0 {
        return Ok(&[]);
    }
    check_array(first, count, name)?;
    // SAFETY: not NULL, aligned, of a possible length; the elements are the caller's word.
    Ok(unsafe { slice::from_raw_parts(first, count) })
}

/// Refuses a pointer and length that cannot be an array.
#[inline(always)]
pub(super) fn check_array<T>(first: *const T, count: usize, name: &str) -> Result<()> {
    let fits = count <= isize::MAX.cast_unsigned() / size_of::<T>();
    if count == 0 || (fits && !first.is_null() && first.is_aligned()) {
        return Ok(());
    }
    Err(no_array(first.cast(), count, align_of::<T>(), size_of::<T>(), name))
}

#[cold]
fn no_array(first: *const u8, count: usize, align: usize, bytes: usize, name: &str) -> Box<Error> {
    if first.is_null() {
        return null(name);
    }
    if !first.addr().is_multiple_of(align) {
        return Error::new(Status::InvalidArgument, format!("{name} at {first:p} is not aligned to {align} bytes"));
    }
    Error::new(
        Status::InvalidArgument,
        format!("{name} has {count} elements of {bytes} bytes, more than memory can hold"),
    )
}

/// A string of C.
///
/// # Safety
/// `from` is NULL or points to a NUL-terminated string that lives as long as the result is used.
pub(super) unsafe fn text<'a>(from: *const c_char, name: &str) -> Result<&'a str> {
    required(from, name)?;
    // SAFETY: not NULL, and terminated by the caller's word.
    let bytes = unsafe { CStr::from_ptr(from) };
    bytes.to_str().map_err(|wrong| {
        Error::new(Status::NotUtf8, format!("{name} is not UTF-8 from byte {} on", wrong.valid_up_to()))
    })
}

/// Writes a string to a caller's buffer: always NUL-terminated, `length` without the NUL.
///
/// # Safety
/// `buffer` points to `capacity` writable bytes or is NULL; `length` is NULL or writable.
pub(super) unsafe fn write_text(
    value: &str,
    buffer: *mut c_char,
    capacity: usize,
    length: *mut usize,
    name: &str,
) -> Result<Status> {
    if !length.is_null() {
        // SAFETY: writable by the caller's word.
        unsafe { length.write(value.len()) };
    }
    if buffer.is_null() || capacity == 0 {
        return Err(Error::new(
            Status::BufferTooSmall,
            format!("{name} needs a buffer of {} bytes, got none", value.len() + 1),
        ));
    }
    let mut bytes = value.len().min(capacity - 1);
    while !value.is_char_boundary(bytes) {
        bytes -= 1;
    }
    // SAFETY: `bytes < capacity`; the two do not overlap: one is ours.
    unsafe { ptr::copy_nonoverlapping(value.as_ptr().cast::<c_char>(), buffer, bytes) };
    // SAFETY: `bytes < capacity`.
    unsafe { buffer.add(bytes).write(0) };
    if bytes < value.len() {
        return Err(Error::new(
            Status::BufferTooSmall,
            format!("{name} needs a buffer of {} bytes, got {capacity}", value.len() + 1),
        ));
    }
    Ok(Status::Ok)
}

/// A table's number.
#[inline]
pub(super) fn table_tag(tag: u32) -> Result<TableTag> {
    u16::try_from(tag).map(TableTag).map_err(|_| no_tag(tag))
}

#[cold]
fn no_tag(tag: u32) -> Box<Error> {
    Error::new(
        Status::UnknownTable,
        format!("table {tag} was not given by reclane_client_init_table; the highest possible one is {}", u16::MAX),
    )
    .before_sending()
}

/// A time limit: 0 is the default of the option.
#[inline]
pub(super) fn timeout(timeout_ms: u64) -> Option<Duration> {
    (timeout_ms != 0).then(|| Duration::from_millis(timeout_ms))
}

/// A time limit for calls that have a default of their own.
pub(super) fn timeout_or(timeout_ms: u64, default: Duration) -> Duration {
    timeout(timeout_ms).unwrap_or(default)
}
