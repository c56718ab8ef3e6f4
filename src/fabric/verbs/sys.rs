//! The only file that names `rdma_sys`: its types, checked against the C headers, and a table of the functions used,
//! filled by dlopen.
//!
//! In C, posting, polling, asking for notice and querying a port are inline functions of the header, which go through
//! the context's own table. libibverbs exports symbols of some of these names too, for programs of long ago; they do
//! less. Here both ways are what the header does. Symbols are asked for with their version, so that a later library can
//! change a default without changing what we call.

use crate::error::{Error, Result, Status};
use core::ffi::{CStr, c_int, c_void};
use core::mem::offset_of;
use once_cell::sync::OnceCell;
use rdma_sys::verbs_context;
use std::io;

pub(super) use rdma_sys::{
    ibv_ah_attr, ibv_async_event, ibv_comp_channel, ibv_context, ibv_cq, ibv_device, ibv_device_attr, ibv_event_type,
    ibv_gid, ibv_gid_entry, ibv_mr, ibv_pd, ibv_port_attr, ibv_qp, ibv_qp_attr, ibv_qp_init_attr, ibv_recv_wr,
    ibv_send_wr, ibv_sge, ibv_wc, rdma_t as RemotePlace,
};

// The unions of these structs are written by hand in rdma-sys. The sizes are those of rdma-core's headers on x86-64 and
// aarch64: a difference here would be memory corruption in the data path.
const _: () = assert!(size_of::<ibv_wc>() == 48);
const _: () = assert!(size_of::<ibv_send_wr>() == 128);
const _: () = assert!(size_of::<ibv_recv_wr>() == 32);
const _: () = assert!(size_of::<ibv_qp_attr>() == 144);
const _: () = assert!(size_of::<ibv_port_attr>() == 52);
const _: () = assert!(size_of::<ibv_sge>() == 16);
const _: () = assert!(size_of::<ibv_gid_entry>() == 32);
const _: () = assert!(size_of::<ibv_async_event>() == 16);

/// Numbers of the header that are used, as plain values.
pub(super) mod code {
    use rdma_sys::{ibv_access_flags, ibv_qp_attr_mask, ibv_send_flags, ibv_wc_opcode, ibv_wr_opcode};

    pub const ACCESS_LOCAL_WRITE: u32 = ibv_access_flags::IBV_ACCESS_LOCAL_WRITE.0;
    pub const ACCESS_REMOTE_WRITE: u32 = ibv_access_flags::IBV_ACCESS_REMOTE_WRITE.0;
    pub const ACCESS_REMOTE_READ: u32 = ibv_access_flags::IBV_ACCESS_REMOTE_READ.0;
    pub const ACCESS_REMOTE_ATOMIC: u32 = ibv_access_flags::IBV_ACCESS_REMOTE_ATOMIC.0;
    #[cfg(test)]
    pub const ACCESS_RELAXED_ORDERING: u32 = ibv_access_flags::IBV_ACCESS_RELAXED_ORDERING.0;

    pub const SEND_SIGNALED: u32 = ibv_send_flags::IBV_SEND_SIGNALED.0;
    pub const SEND_INLINE: u32 = ibv_send_flags::IBV_SEND_INLINE.0;

    pub const WR_WRITE: u32 = ibv_wr_opcode::IBV_WR_RDMA_WRITE;
    pub const WR_WRITE_IMM: u32 = ibv_wr_opcode::IBV_WR_RDMA_WRITE_WITH_IMM;
    pub const WR_READ: u32 = ibv_wr_opcode::IBV_WR_RDMA_READ;
    pub const WR_CMP_SWP: u32 = ibv_wr_opcode::IBV_WR_ATOMIC_CMP_AND_SWP;
    pub const WR_FETCH_ADD: u32 = ibv_wr_opcode::IBV_WR_ATOMIC_FETCH_AND_ADD;

    pub const WC_READ: u32 = ibv_wc_opcode::IBV_WC_RDMA_READ;
    pub const WC_CMP_SWP: u32 = ibv_wc_opcode::IBV_WC_COMP_SWAP;
    pub const WC_FETCH_ADD: u32 = ibv_wc_opcode::IBV_WC_FETCH_ADD;

    pub const ATOMIC_NONE: u32 = rdma_sys::ibv_atomic_cap::IBV_ATOMIC_NONE;
    pub const PORT_ACTIVE: u32 = rdma_sys::ibv_port_state::IBV_PORT_ACTIVE;
    pub const LINK_INFINIBAND: u8 = 1;
    pub const LINK_ETHERNET: u8 = 2;
    pub const QP_TYPE_RC: u32 = rdma_sys::ibv_qp_type::IBV_QPT_RC;

    const fn mask(parts: &[ibv_qp_attr_mask]) -> i32 {
        let (mut all, mut at) = (0, 0);
        while at < parts.len() {
            all |= parts[at].0;
            at += 1;
        }
        all.cast_signed()
    }

    type M = ibv_qp_attr_mask;
    pub const MASK_STATE: i32 = mask(&[M::IBV_QP_STATE]);
    pub const MASK_INIT: i32 = mask(&[M::IBV_QP_STATE, M::IBV_QP_PKEY_INDEX, M::IBV_QP_PORT, M::IBV_QP_ACCESS_FLAGS]);
    pub const MASK_RTR: i32 = mask(&[
        M::IBV_QP_STATE,
        M::IBV_QP_AV,
        M::IBV_QP_PATH_MTU,
        M::IBV_QP_DEST_QPN,
        M::IBV_QP_RQ_PSN,
        M::IBV_QP_MAX_DEST_RD_ATOMIC,
        M::IBV_QP_MIN_RNR_TIMER,
    ]);
    pub const MASK_RTS: i32 = mask(&[
        M::IBV_QP_STATE,
        M::IBV_QP_SQ_PSN,
        M::IBV_QP_TIMEOUT,
        M::IBV_QP_RETRY_CNT,
        M::IBV_QP_RNR_RETRY,
        M::IBV_QP_MAX_QP_RD_ATOMIC,
    ]);
}

const NAME: &CStr = c"libibverbs.so.1";

/// Declares the table: a field, the symbol with its version, and its type as the header declares it. What old releases
/// lack is optional.
macro_rules! library {
    (
        needed { $($field:ident = $name:literal $version:literal: fn($($arg:ty),*) $(-> $ret:ty)?;)+ }
        optional { $($extra:ident = $extra_name:literal $extra_version:literal:
            fn($($extra_arg:ty),*) $(-> $extra_ret:ty)?;)+ }
    ) => {
        /// The functions of libibverbs that are used. The library stays open for the life of the process.
        #[derive(Debug)]
        pub(super) struct Library {
            $(pub(super) $field: unsafe extern "C" fn($($arg),*) $(-> $ret)?,)+
            $(pub(super) $extra: Option<unsafe extern "C" fn($($extra_arg),*) $(-> $extra_ret)?>,)+
        }

        /// Every symbol that is ever looked up: name, version, whether the provider can do without.
        #[cfg(test)]
        const SYMBOLS: &[(&CStr, &CStr, bool)] =
            &[$(($name, $version, false),)+ $(($extra_name, $extra_version, true),)+];

        fn fill(handle: *mut c_void) -> Result<Library> {
            Ok(Library {
                $($field: {
                    let found = find(handle, $name, $version).ok_or_else(|| lacks($name))?;
                    // SAFETY: this version of the symbol has this type in the header.
                    unsafe {
                        core::mem::transmute::<*mut c_void, unsafe extern "C" fn($($arg),*) $(-> $ret)?>(found)
                    }
                },)+
                $($extra: find(handle, $extra_name, $extra_version).map(|found| {
                    // SAFETY: as above.
                    unsafe {
                        core::mem::transmute::<*mut c_void, unsafe extern "C" fn($($extra_arg),*) $(-> $extra_ret)?>(
                            found,
                        )
                    }
                }),)+
            })
        }
    };
}

library! {
    needed {
        get_device_list = c"ibv_get_device_list" c"IBVERBS_1.1": fn(*mut c_int) -> *mut *mut ibv_device;
        free_device_list = c"ibv_free_device_list" c"IBVERBS_1.1": fn(*mut *mut ibv_device);
        open_device = c"ibv_open_device" c"IBVERBS_1.1": fn(*mut ibv_device) -> *mut ibv_context;
        close_device = c"ibv_close_device" c"IBVERBS_1.1": fn(*mut ibv_context) -> c_int;
        query_device = c"ibv_query_device" c"IBVERBS_1.1": fn(*mut ibv_context, *mut ibv_device_attr) -> c_int;
        query_port_compat = c"ibv_query_port" c"IBVERBS_1.1": fn(*mut ibv_context, u8, *mut ibv_port_attr) -> c_int;
        query_gid = c"ibv_query_gid" c"IBVERBS_1.1": fn(*mut ibv_context, u8, c_int, *mut ibv_gid) -> c_int;
        alloc_pd = c"ibv_alloc_pd" c"IBVERBS_1.1": fn(*mut ibv_context) -> *mut ibv_pd;
        dealloc_pd = c"ibv_dealloc_pd" c"IBVERBS_1.1": fn(*mut ibv_pd) -> c_int;
        reg_mr = c"ibv_reg_mr" c"IBVERBS_1.1": fn(*mut ibv_pd, *mut c_void, usize, c_int) -> *mut ibv_mr;
        dereg_mr = c"ibv_dereg_mr" c"IBVERBS_1.1": fn(*mut ibv_mr) -> c_int;
        create_channel = c"ibv_create_comp_channel" c"IBVERBS_1.0": fn(*mut ibv_context) -> *mut ibv_comp_channel;
        destroy_channel = c"ibv_destroy_comp_channel" c"IBVERBS_1.0": fn(*mut ibv_comp_channel) -> c_int;
        create_cq = c"ibv_create_cq" c"IBVERBS_1.1":
            fn(*mut ibv_context, c_int, *mut c_void, *mut ibv_comp_channel, c_int) -> *mut ibv_cq;
        destroy_cq = c"ibv_destroy_cq" c"IBVERBS_1.1": fn(*mut ibv_cq) -> c_int;
        get_cq_event = c"ibv_get_cq_event" c"IBVERBS_1.1":
            fn(*mut ibv_comp_channel, *mut *mut ibv_cq, *mut *mut c_void) -> c_int;
        ack_cq_events = c"ibv_ack_cq_events" c"IBVERBS_1.1": fn(*mut ibv_cq, u32);
        create_qp = c"ibv_create_qp" c"IBVERBS_1.1": fn(*mut ibv_pd, *mut ibv_qp_init_attr) -> *mut ibv_qp;
        modify_qp = c"ibv_modify_qp" c"IBVERBS_1.1": fn(*mut ibv_qp, *mut ibv_qp_attr, c_int) -> c_int;
        destroy_qp = c"ibv_destroy_qp" c"IBVERBS_1.1": fn(*mut ibv_qp) -> c_int;
        get_async_event = c"ibv_get_async_event" c"IBVERBS_1.1": fn(*mut ibv_context, *mut ibv_async_event) -> c_int;
        ack_async_event = c"ibv_ack_async_event" c"IBVERBS_1.1": fn(*mut ibv_async_event);
    }
    optional {
        reg_mr_iova = c"ibv_reg_mr_iova" c"IBVERBS_1.7":
            fn(*mut ibv_pd, *mut c_void, usize, u64, c_int) -> *mut ibv_mr;
        reg_mr_iova2 = c"ibv_reg_mr_iova2" c"IBVERBS_1.8":
            fn(*mut ibv_pd, *mut c_void, usize, u64, u32) -> *mut ibv_mr;
        query_gid_ex = c"_ibv_query_gid_ex" c"IBVERBS_1.11":
            fn(*mut ibv_context, u32, u32, *mut ibv_gid_entry, u32, usize) -> c_int;
        query_gid_table = c"_ibv_query_gid_table" c"IBVERBS_1.11":
            fn(*mut ibv_context, *mut ibv_gid_entry, usize, u32, usize) -> isize;
        query_qp_data_in_order = c"ibv_query_qp_data_in_order" c"IBVERBS_1.14": fn(*mut ibv_qp, u32, u32) -> c_int;
    }
}

fn find(handle: *mut c_void, name: &CStr, version: &CStr) -> Option<*mut c_void> {
    // SAFETY: the handle is open and both names are C strings.
    let symbol = unsafe { libc::dlvsym(handle, name.as_ptr(), version.as_ptr()) };
    (!symbol.is_null()).then_some(symbol)
}

fn lacks(name: &CStr) -> Box<Error> {
    let what =
        format!("libibverbs.so.1 has no {}; install a release of rdma-core from 2018 on", name.to_string_lossy());
    Error::new(Status::FabricUnavailable, what)
}

/// Opens libibverbs once; a failure is not remembered, for it can be installed meanwhile.
///
/// # Errors
/// `FabricUnavailable`.
pub(super) fn library() -> Result<&'static Library> {
    static LIBRARY: OnceCell<Library> = OnceCell::new();
    LIBRARY.get_or_try_init(|| fill(open()?))
}

fn open() -> Result<*mut c_void> {
    // SAFETY: the name is a C string; the library's initialisers are those of rdma-core.
    let handle = unsafe { libc::dlopen(NAME.as_ptr(), libc::RTLD_NOW | libc::RTLD_LOCAL) };
    if handle.is_null() {
        return Err(Error::new(
            Status::FabricUnavailable,
            "fabric=verbs needs libibverbs.so.1, which is not installed (Debian: libibverbs1 and ibverbs-providers)",
        ));
    }
    Ok(handle)
}

/// What a call that returns 0, an `errno`, or -1 with `errno` set has done.
pub(super) fn checked(code: c_int) -> io::Result<()> {
    match code {
        0 => Ok(()),
        1.. => Err(io::Error::from_raw_os_error(code)),
        _ => Err(io::Error::last_os_error()),
    }
}

impl Library {
    /// A port, by the context's own table as the header's inline function does.
    ///
    /// # Safety
    /// The context is open.
    pub(super) unsafe fn query_port(&self, context: *mut ibv_context, port: u8) -> io::Result<ibv_port_attr> {
        // SAFETY: plain numbers, for which zero is a value.
        let mut attr: ibv_port_attr = unsafe { core::mem::zeroed() };
        // SAFETY: the context is open; a context of the extended kind is embedded in a `verbs_context`, which says itself
        // how much of it there is.
        let op = unsafe {
            if (*context).abi_compat.addr() == usize::MAX {
                let whole = context.byte_sub(offset_of!(verbs_context, context)).cast::<verbs_context>();
                let has_it = (*whole).sz >= size_of::<verbs_context>() - offset_of!(verbs_context, query_port);
                if has_it { (*whole).query_port } else { None }
            } else {
                None
            }
        };
        // SAFETY: the context is open and `attr` has the length that is told, or the one of the oldest header, whose
        // fields come first.
        checked(unsafe {
            match op {
                Some(op) => op(context, port, &raw mut attr, size_of::<ibv_port_attr>()),
                None => (self.query_port_compat)(context, port, &raw mut attr),
            }
        })?;
        Ok(attr)
    }
}

/// Posts to the send queue. On failure `bad` is the first one that was not posted.
///
/// # Safety
/// The queue pair lives, and the chain is well-formed.
#[inline]
pub(super) unsafe fn post_send(qp: *mut ibv_qp, first: *mut ibv_send_wr, bad: *mut *mut ibv_send_wr) -> c_int {
    // SAFETY: as the caller vouches; a provider without this function has no queue pairs.
    unsafe { (*(*qp).context).ops.post_send.map_or(libc::EOPNOTSUPP, |post| post(qp, first, bad)) }
}

/// Posts to the receive queue.
///
/// # Safety
/// As [`post_send`].
#[inline]
pub(super) unsafe fn post_recv(qp: *mut ibv_qp, first: *mut ibv_recv_wr, bad: *mut *mut ibv_recv_wr) -> c_int {
    // SAFETY: as the caller vouches.
    unsafe { (*(*qp).context).ops.post_recv.map_or(libc::EOPNOTSUPP, |post| post(qp, first, bad)) }
}

/// Takes up to `room` completions; negative on failure.
///
/// # Safety
/// The queue lives, and `out` has room.
#[inline]
pub(super) unsafe fn poll_cq(cq: *mut ibv_cq, room: c_int, out: *mut ibv_wc) -> c_int {
    // SAFETY: as the caller vouches.
    unsafe { (*(*cq).context).ops.poll_cq.map_or(-1, |poll| poll(cq, room, out)) }
}

/// Asks for an event on the queue's channel with the next completion.
///
/// # Safety
/// The queue lives.
pub(super) unsafe fn req_notify_cq(cq: *mut ibv_cq) -> io::Result<()> {
    // SAFETY: as the caller vouches.
    checked(unsafe { (*(*cq).context).ops.req_notify_cq.map_or(libc::EOPNOTSUPP, |ask| ask(cq, 0)) })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_symbols_used_are_these_and_none_is_a_header_inline_of_old() {
        let names: Vec<&str> = SYMBOLS.iter().map(|(name, ..)| name.to_str().unwrap()).collect();
        for inline in ["ibv_post_send", "ibv_post_recv", "ibv_poll_cq", "ibv_req_notify_cq", "ibv_post_srq_recv"] {
            assert!(!names.contains(&inline), "{inline} is an inline function of the header");
        }
        assert_eq!(names.len(), 27);
        // These have two versions; the old ones speak to other structs.
        for (name, version, _) in SYMBOLS {
            let old = version.to_bytes() == b"IBVERBS_1.0";
            let channel = name.to_bytes().ends_with(b"_comp_channel");
            assert_eq!(old, channel, "{}", name.to_string_lossy());
        }
    }

    #[test]
    fn each_symbol_is_the_default_of_the_installed_library() {
        let Ok(handle) = open() else {
            println!("skipped: libibverbs.so.1 is not installed");
            return;
        };
        for (name, version, optional) in SYMBOLS {
            // SAFETY: the handle is open and the name is a C string.
            let default = unsafe { libc::dlsym(handle, name.as_ptr()) };
            match find(handle, name, version) {
                Some(found) => assert_eq!(found, default, "{} is not {version:?}", name.to_string_lossy()),
                None => assert!(optional, "{} is missing", name.to_string_lossy()),
            }
        }
    }
}
