//! The only file that names `rdma_sys`: its types, checked against the C headers, and a table of the functions used,
//! filled by dlopen.

use crate::error::{Error, Result, Status};
use core::ffi::{CStr, c_int};
use once_cell::sync::OnceCell;
use std::io;

// The unions of these structs are written by hand in rdma-sys. The sizes are those of rdma-core's headers on x86-64 and
// aarch64: a difference here would be memory corruption in the data path.
const _: () = assert!(size_of::<rdma_sys::ibv_wc>() == 48);
const _: () = assert!(size_of::<rdma_sys::ibv_send_wr>() == 128);
const _: () = assert!(size_of::<rdma_sys::ibv_qp_attr>() == 144);
const _: () = assert!(size_of::<rdma_sys::ibv_port_attr>() == 52);
const _: () = assert!(size_of::<rdma_sys::ibv_sge>() == 16);

const NAME: &CStr = c"libibverbs.so.1";

type GetDeviceList = unsafe extern "C" fn(*mut c_int) -> *mut *mut rdma_sys::ibv_device;
type FreeDeviceList = unsafe extern "C" fn(*mut *mut rdma_sys::ibv_device);

/// The functions of libibverbs that are used. The library stays open for the life of the process.
#[derive(Debug)]
pub(super) struct Library {
    get_device_list: GetDeviceList,
    free_device_list: FreeDeviceList,
}

/// Opens libibverbs once; a failure is not remembered, for it can be installed meanwhile.
///
/// # Errors
/// `FabricUnavailable`.
pub(super) fn library() -> Result<&'static Library> {
    static LIBRARY: OnceCell<Library> = OnceCell::new();
    LIBRARY.get_or_try_init(open)
}

fn open() -> Result<Library> {
    // SAFETY: the name is a C string; the library's initialisers are those of rdma-core.
    let handle = unsafe { libc::dlopen(NAME.as_ptr(), libc::RTLD_NOW | libc::RTLD_LOCAL) };
    if handle.is_null() {
        return Err(Error::new(
            Status::FabricUnavailable,
            "fabric=verbs needs libibverbs.so.1, which is not installed (Debian: libibverbs1 and ibverbs-providers)",
        ));
    }
    let find = |name: &'static CStr| {
        // SAFETY: the handle is open and the name is a C string.
        let symbol = unsafe { libc::dlsym(handle, name.as_ptr()) };
        if symbol.is_null() {
            let what = format!("libibverbs.so.1 has no {}", name.to_string_lossy());
            return Err(Error::new(Status::FabricUnavailable, what));
        }
        Ok(symbol)
    };
    Ok(Library {
        // SAFETY: the symbol has this type in every release of libibverbs.so.1.
        get_device_list: unsafe {
            core::mem::transmute::<*mut libc::c_void, GetDeviceList>(find(c"ibv_get_device_list")?)
        },
        // SAFETY: as above.
        free_device_list: unsafe {
            core::mem::transmute::<*mut libc::c_void, FreeDeviceList>(find(c"ibv_free_device_list")?)
        },
    })
}

impl Library {
    /// How many devices there are. A kernel without RDMA is an error (ENOSYS), one without a device is not.
    pub(super) fn device_count(&self) -> io::Result<usize> {
        let mut count = 0;
        // SAFETY: the function was found by name; `count` is ours.
        let list = unsafe { (self.get_device_list)(&raw mut count) };
        if list.is_null() {
            return Err(io::Error::last_os_error());
        }
        // SAFETY: the list is the one that was just made, and is not used after this.
        unsafe { (self.free_device_list)(list) };
        Ok(usize::try_from(count).unwrap_or(0))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_host_without_devices_says_so_in_words() {
        match library().map(Library::device_count) {
            Ok(Ok(_)) => {}
            Ok(Err(error)) => assert!(error.raw_os_error().is_some()),
            Err(error) => {
                assert_eq!(error.status, Status::FabricUnavailable);
                assert!(error.message.contains("libibverbs"), "{error}");
            }
        }
    }
}
