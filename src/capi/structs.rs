//! Structs that can grow: the caller's `struct_size` says which release it was compiled against.
//!
//! In: shorter than the first release is refused; shorter than ours leaves the missing fields zero; longer is accepted
//! only if the bytes that we do not know are zero. Out: at most `struct_size` bytes are written.

use core::{mem, ptr};

use crate::error::{Error, Result, Status};

/// No caller's struct is longer; what says so is an uninitialised one.
const CALLER_SIZE_MAX: usize = 4096;

/// A struct whose first field is `uint32_t struct_size`.
///
/// # Safety
/// The implementor is `repr(C)`, starts with that field, and all-zero bytes are a valid value of it.
pub(super) unsafe trait Versioned: Copy {
    /// Its name in the header, for messages.
    const NAME: &'static str;
    /// Its size in the first release.
    const FIRST_SIZE: usize;
}

/// The size that the caller states, if it can be right.
///
/// # Safety
/// `from` is not NULL and points to at least 4 bytes.
unsafe fn stated_size<T: Versioned>(from: *const T) -> Result<usize> {
    // SAFETY: every version starts with `struct_size`.
    let stated = unsafe { from.cast::<u32>().read_unaligned() } as usize;
    if (T::FIRST_SIZE..=CALLER_SIZE_MAX).contains(&stated) {
        return Ok(stated);
    }
    Err(Error::new(
        Status::StructSize,
        format!("{}.struct_size is {stated}; set it to sizeof({}), at least {}", T::NAME, T::NAME, T::FIRST_SIZE),
    ))
}

/// Reads a caller's struct of any release.
///
/// # Safety
/// `from` is NULL or points to as many readable bytes as its `struct_size` says.
pub(super) unsafe fn read<T: Versioned>(from: *const T) -> Result<T> {
    if from.is_null() {
        return Err(Error::new(Status::NullPointer, format!("the pointer to {} is NULL", T::NAME)));
    }
    // SAFETY: not NULL, and the caller vouches for the bytes.
    let stated = unsafe { stated_size(from) }?;
    let ours = size_of::<T>();
    // SAFETY: `Versioned` promises that all-zero bytes are a valid value.
    let mut value = unsafe { mem::zeroed::<T>() };
    // SAFETY: both sides hold at least that many bytes and do not overlap: one is a local.
    unsafe { ptr::copy_nonoverlapping(from.cast::<u8>(), (&raw mut value).cast::<u8>(), stated.min(ours)) };
    for offset in ours..stated {
        // SAFETY: `offset < stated`, vouched for by the caller.
        if unsafe { from.cast::<u8>().add(offset).read() } != 0 {
            return Err(Error::new(
                Status::StructSize,
                format!(
                    "{} has a non-zero byte at offset {offset}, beyond the {ours} bytes that this library knows; it was \
                     made for a newer one",
                    T::NAME
                ),
            ));
        }
    }
    Ok(value)
}

/// Refuses a report struct that [`write`] could not fill.
///
/// # Safety
/// `to` is NULL or points to as many writable bytes as its `struct_size` says.
pub(super) unsafe fn check_report<T: Versioned>(to: *const T) -> Result<()> {
    if to.is_null() {
        return Err(Error::new(Status::NullPointer, format!("the pointer to {} is NULL", T::NAME)));
    }
    // SAFETY: not NULL, and the caller vouches for the bytes.
    unsafe { stated_size(to) }.map(|_| ())
}

/// Writes a report into a caller's struct of any release; its `struct_size` stays.
///
/// # Safety
/// As for [`check_report`], which has accepted `to`.
pub(super) unsafe fn write<T: Versioned>(to: *mut T, value: &T) {
    const SIZE_FIELD: usize = size_of::<u32>();
    // SAFETY: every version starts with `struct_size`.
    let stated = unsafe { to.cast::<u32>().read_unaligned() } as usize;
    let bytes = stated.min(size_of::<T>()) - SIZE_FIELD;
    // SAFETY: `value` is ours and has size_of::<T>() bytes.
    let from = unsafe { ptr::from_ref(value).cast::<u8>().add(SIZE_FIELD) };
    // SAFETY: the caller's struct has `stated` bytes.
    let into = unsafe { to.cast::<u8>().add(SIZE_FIELD) };
    // SAFETY: both sides hold `bytes` more bytes; the caller's struct is not ours.
    unsafe { ptr::copy_nonoverlapping(from, into, bytes) };
}

#[cfg(test)]
mod tests {
    use super::*;

    #[repr(C)]
    #[derive(Clone, Copy, Debug, PartialEq)]
    struct Old {
        struct_size: u32,
        a: u32,
    }

    #[repr(C)]
    #[derive(Clone, Copy, Debug, PartialEq)]
    struct Now {
        struct_size: u32,
        a: u32,
        b: u64,
    }

    #[repr(C)]
    #[derive(Clone, Copy, Debug, PartialEq)]
    struct Newer {
        struct_size: u32,
        a: u32,
        b: u64,
        c: u64,
    }

    // SAFETY: repr(C), starts with the size, integers only.
    unsafe impl Versioned for Now {
        const NAME: &'static str = "now";
        const FIRST_SIZE: usize = 8;
    }

    #[test]
    fn an_older_caller_gets_zeroes_for_what_it_does_not_know() {
        let old = Old { struct_size: 8, a: 7 };
        // SAFETY: eight bytes are there and the size says so.
        let now = unsafe { read((&raw const old).cast::<Now>()) }.unwrap();
        assert_eq!(now, Now { struct_size: 8, a: 7, b: 0 });
    }

    #[test]
    fn a_newer_caller_is_taken_while_its_tail_is_zero() {
        let mut newer = Newer { struct_size: 24, a: 7, b: 9, c: 0 };
        // SAFETY: 24 bytes are there and the size says so.
        let now = unsafe { read((&raw const newer).cast::<Now>()) }.unwrap();
        assert_eq!((now.a, now.b), (7, 9));
        newer.c = 1 << 40;
        // SAFETY: as above.
        let refused = unsafe { read((&raw const newer).cast::<Now>()) }.unwrap_err();
        assert_eq!(refused.status, Status::StructSize);
        assert!(refused.message.contains("offset 21"), "{}", refused.message);
    }

    #[test]
    fn a_size_that_cannot_be_is_refused() {
        for struct_size in [0, 4, 7, 4097, u32::MAX] {
            let now = Now { struct_size, a: 1, b: 1 };
            // SAFETY: the size is refused before anything behind it is read.
            assert_eq!(unsafe { read(&raw const now) }.unwrap_err().status, Status::StructSize);
        }
        // SAFETY: NULL is refused.
        assert_eq!(unsafe { read(ptr::null::<Now>()) }.unwrap_err().status, Status::NullPointer);
    }

    #[test]
    fn a_report_is_never_longer_than_the_caller_said() {
        let mut two = [Old { struct_size: 8, a: 0 }, Old { struct_size: 1, a: 2 }];
        let report = Now { struct_size: 16, a: 7, b: u64::MAX };
        // SAFETY: the first element has the eight bytes that its size says.
        unsafe { write((&raw mut two).cast::<Now>(), &report) };
        assert_eq!(two, [Old { struct_size: 8, a: 7 }, Old { struct_size: 1, a: 2 }]);
    }
}
