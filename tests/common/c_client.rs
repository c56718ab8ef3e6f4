//! A client and its requests, by the C interface: what a C or C++ program runs.

use reclane::capi::*;
use reclane::error::Status;
use std::ffi::CString;
use std::ptr::null_mut;

/// What is asked for, with rows in the caller's own memory.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Kind {
    Get,
    Put,
    Update,
}

/// An open client.
pub struct Client(*mut reclane_client);

fn good(status: Status, what: &str) {
    assert!(status == Status::Ok, "{what}: {status:?}");
}

impl Client {
    pub fn open(options: &[(&str, String)]) -> Client {
        let mut all = null_mut();
        // SAFETY: the places are ours; no error is asked for.
        good(unsafe { reclane_options_open(&raw mut all, null_mut()) }, "options");
        for (name, value) in options {
            let (name, value) = (CString::new(*name).expect("no zero"), CString::new(value.as_str()).expect("no zero"));
            // SAFETY: the handle is open, the strings are C strings.
            good(unsafe { reclane_options_set(all, name.as_ptr(), value.as_ptr(), null_mut()) }, "an option");
        }
        let mut client = null_mut();
        // SAFETY: as above.
        good(unsafe { reclane_client_open(all, &raw mut client, null_mut()) }, "client");
        // SAFETY: opened above, and nobody uses it any more.
        unsafe { reclane_options_close(all) };
        Client(client)
    }

    pub fn init_table(&self, dim: usize) -> u32 {
        self.init_table_of(0, dim)
    }

    /// A table whose keys are below `keys`; 0: they may be any.
    pub fn init_table_of(&self, keys: u64, dim: usize) -> u32 {
        let name = CString::new(format!("rows-{dim}")).expect("no zero");
        // SAFETY: all zero is a valid value of the struct, as its documentation says.
        let mut wanted: reclane_table_options = unsafe { core::mem::zeroed() };
        wanted.struct_size = u32::try_from(size_of::<reclane_table_options>()).expect("small");
        wanted.name = name.as_ptr();
        wanted.num_embeddings = keys;
        wanted.dim = u32::try_from(dim).expect("small");
        wanted.learning_rate = 0.5;
        let mut table = 0;
        // SAFETY: handle, struct and place are valid for the call.
        let status = unsafe { reclane_client_init_table(self.0, &raw const wanted, &raw mut table, null_mut()) };
        good(status, "a table");
        table
    }

    /// Begins a request. `keys` and `rows` must live until it is revoked; `rows` holds all rows of the keys.
    pub fn submit(&self, table: u32, kind: Kind, keys: &[u64], rows: &mut [f32]) -> reclane_request {
        let mut request = 0;
        let (at, first, count, error) = (&raw mut request, keys.as_ptr(), keys.len(), null_mut());
        let (client, memory, floats) = (self.0, rows.as_mut_ptr(), rows.len());
        // SAFETY: keys and rows live until the request is revoked, and are as long as said.
        let status = unsafe {
            match kind {
                Kind::Get => reclane_client_submit_get(client, table, first, count, memory, floats, at, error),
                Kind::Put => reclane_client_submit_put(client, table, first, count, memory, floats, at, error),
                Kind::Update => {
                    reclane_client_submit_update_flat(client, table, first, count, memory, floats, at, error)
                }
            }
        };
        good(status, "a submit");
        request
    }

    pub fn finish(&self, request: reclane_request) {
        // SAFETY: the handle is open and the request is this thread's.
        good(unsafe { reclane_client_wait(self.0, request, 0, null_mut()) }, "a wait");
        // SAFETY: as above.
        good(unsafe { reclane_client_revoke(self.0, request, null_mut()) }, "a revoke");
    }
}

impl Drop for Client {
    fn drop(&mut self) {
        // SAFETY: opened by `open`, and nobody uses it any more.
        unsafe { reclane_client_close(self.0) };
    }
}
