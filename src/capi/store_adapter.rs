//! The callbacks of a [`reclane_store`] as the server's [`Store`].
//!
//! A number that is no RpcStatus becomes `InternalError`. Every call is marked, so that functions which would wait for
//! it refuse. An exception that leaves a callback ends the process: the callbacks are `extern "C-unwind"` and the
//! frames between here and the thread's catch cannot be passed.

use core::ffi::{CStr, c_int, c_void};
use std::ffi::CString;

use super::arguments::required;
use super::callback::Inside;
use super::store::{reclane_row, reclane_store, reclane_store_rows_fn, reclane_table_options};
use super::structs;
use crate::error::{Error, Result, Status};
use crate::ids::TableTag;
use crate::ps::{GetStats, RowRef, RowsIn, Store, TableShape};
use crate::sync::{AtomicBool, Ordering};
use crate::wire::RpcStatus;
use crate::wire::payload::{Command, DIM_MAX, TableSpec};

/// What a call of the store gives.
type Answer<T> = core::result::Result<T, RpcStatus>;

/// Rows of the host, behind its callbacks.
#[derive(Debug)]
pub(super) struct CallbackStore {
    table: reclane_store,
    owns_user_data: AtomicBool,
}

// SAFETY: the header demands of the host that its callbacks and `user_data` can be used from many threads at once.
unsafe impl Send for CallbackStore {}
// SAFETY: as above.
unsafe impl Sync for CallbackStore {}

impl Drop for CallbackStore {
    fn drop(&mut self) {
        // Relaxed: dropping has exclusive access, and `take_ownership` happened before the last clone went.
        if self.owns_user_data.load(Ordering::Relaxed)
            && let Some(drop_user_data) = self.table.drop_user_data
        {
            let _inside = Inside::enter();
            // SAFETY: the host gave this function for this pointer, and it is called once.
            unsafe { drop_user_data(self.table.user_data) };
        }
    }
}

/// The answer that a callback's number stands for.
fn answer(code: c_int) -> Answer<()> {
    match RpcStatus::from_code(code) {
        RpcStatus::Ok => Ok(()),
        refused => Err(refused),
    }
}

impl CallbackStore {
    /// Checks and copies the host's struct. `user_data` stays the host's until [`CallbackStore::take_ownership`].
    ///
    /// # Safety
    /// `from` is NULL or points to as many readable bytes as its `struct_size` says, and what it names lives until
    /// `drop_user_data`.
    pub(super) unsafe fn from_c(from: *const reclane_store) -> Result<CallbackStore> {
        // SAFETY: the caller's word.
        let table = unsafe { structs::read(from) }?;
        let missing =
            |name: &str| Error::new(Status::NullPointer, format!("reclane_store.{name} is required but NULL"));
        if table.reserved != 0 {
            return Err(Error::new(Status::InvalidArgument, "reclane_store.reserved must be 0"));
        }
        table.init_table.ok_or_else(|| missing("init_table"))?;
        table.table_shape.ok_or_else(|| missing("table_shape"))?;
        table.get_flat.ok_or_else(|| missing("get_flat"))?;
        if table.pin_rows.is_some() {
            table.unpin_rows.ok_or_else(|| missing("unpin_rows"))?;
            required(table.backing_base, "reclane_store.backing_base")?;
        }
        Ok(CallbackStore { table, owns_user_data: AtomicBool::new(false) })
    }

    /// From now on the library drops `user_data`.
    pub(super) fn take_ownership(&self) {
        // Relaxed: see `drop`.
        self.owns_user_data.store(true, Ordering::Relaxed);
    }

    fn dim(&self, table: TableTag) -> Answer<u32> {
        self.shape(table).map(|shape| shape.dim).ok_or(RpcStatus::UnknownTable)
    }

    /// Whether a pinned row lies in the backing region.
    fn is_backed(&self, address: *const c_void, bytes: usize) -> bool {
        let offset = address.addr().checked_sub(self.table.backing_base.addr());
        let end = offset.and_then(|offset| offset.checked_add(bytes));
        address.cast::<f32>().is_aligned() && end.is_some_and(|end| end as u64 <= self.table.backing_bytes)
    }

    /// Calls one of the callbacks that take rows.
    ///
    /// # Safety
    /// `rows` is valid for reads of `keys.len()` rows.
    unsafe fn take_rows(
        &self,
        callback: reclane_store_rows_fn,
        worker: u32,
        table: TableTag,
        keys: &[u64],
        rows: RowsIn,
    ) -> Answer<()> {
        let callback = callback.ok_or(RpcStatus::InternalError)?;
        let dim = rows.row_bytes / 4;
        let _inside = Inside::enter();
        // SAFETY: the host's function with its own data; the arrays are as long as said.
        answer(unsafe {
            callback(
                self.table.user_data,
                worker,
                u32::from(table.0),
                keys.as_ptr(),
                keys.len(),
                rows.first.cast::<f32>(),
                rows.stride,
                dim,
            )
        })
    }
}

/// Copies rows with a stride into one dense array.
///
/// # Safety
/// `rows` is valid for reads of `count` rows; a peer may write it meanwhile.
unsafe fn dense(rows: RowsIn, count: usize) -> Vec<f32> {
    let floats = rows.row_bytes as usize / 4;
    let mut copy = Vec::with_capacity(count * floats);
    for row in 0..count {
        // SAFETY: row `row` of `count`.
        let first = unsafe { rows.first.add(row * rows.stride) }.cast::<f32>();
        for i in 0..floats {
            // SAFETY: float `i` of a row. Volatile: a peer may write it meanwhile, so it is read once.
            copy.push(unsafe { first.add(i).read_volatile() });
        }
    }
    copy
}

impl CallbackStore {
    /// The host's tag for a table; `proposed` is what it finds there.
    fn make_table(&self, worker: u32, spec: &TableSpec, proposed: TableTag) -> Answer<TableTag> {
        let init_table = self.table.init_table.ok_or(RpcStatus::InternalError)?;
        let name = CString::new(spec.name.as_str()).map_err(|_| RpcStatus::InvalidPayload)?;
        let options = reclane_table_options {
            struct_size: u32::try_from(size_of::<reclane_table_options>()).unwrap_or(u32::MAX),
            dim: spec.dim,
            name: name.as_ptr(),
            num_embeddings: spec.num_embeddings,
            optimizer: spec.optimizer as u32,
            learning_rate: spec.learning_rate,
            epsilon: spec.epsilon,
            initial_accumulator: spec.initial_accumulator,
        };
        let mut tag = u32::from(proposed.0);
        let _inside = Inside::enter();
        // SAFETY: the host's function with its own data; both structs live during the call.
        answer(unsafe { init_table(self.table.user_data, worker, &raw const options, &raw mut tag) })?;
        u16::try_from(tag).map(TableTag).map_err(|_| RpcStatus::InternalError)
    }
}

impl Store for CallbackStore {
    fn init_table(&self, worker: u32, spec: &TableSpec) -> Answer<TableTag> {
        self.make_table(worker, spec, TableTag(0))
    }

    fn init_table_as(&self, worker: u32, spec: &TableSpec, wanted: TableTag) -> Answer<Option<TableTag>> {
        self.make_table(worker, spec, wanted).map(Some)
    }

    fn shape(&self, table: TableTag) -> Option<TableShape> {
        let mut dim = 0_u32;
        let _inside = Inside::enter();
        // SAFETY: the host's function with its own data; `dim` lives during the call.
        let code = unsafe { self.table.table_shape?(self.table.user_data, u32::from(table.0), &raw mut dim) };
        (code == 0 && (1..=DIM_MAX).contains(&dim)).then_some(TableShape { dim })
    }

    fn prefetch(&self, _worker: u32, table: TableTag, keys: &[u64]) {
        if let Some(prefetch) = self.table.prefetch {
            let _inside = Inside::enter();
            // SAFETY: the host's function with its own data; the array is as long as said.
            unsafe { prefetch(self.table.user_data, u32::from(table.0), keys.as_ptr(), keys.len()) };
        }
    }

    unsafe fn get(&self, worker: u32, table: TableTag, keys: &[u64], ahead: &[u64], out: *mut u8) -> Answer<GetStats> {
        let get_flat = self.table.get_flat.ok_or(RpcStatus::InternalError)?;
        let dim = self.dim(table)?;
        if !ahead.is_empty() {
            self.prefetch(worker, table, ahead);
        }
        let mut missing_rows = 0_u32;
        let _inside = Inside::enter();
        // SAFETY: the host's function with its own data; `out` takes that many rows, by the caller's word.
        answer(unsafe {
            get_flat(
                self.table.user_data,
                worker,
                u32::from(table.0),
                keys.as_ptr(),
                keys.len(),
                out.cast::<f32>(),
                dim,
                &raw mut missing_rows,
            )
        })?;
        Ok(GetStats { missing_rows })
    }

    fn pin(&self, worker: u32, table: TableTag, keys: &[u64], rows: &mut Vec<RowRef>) -> Answer<u64> {
        let pin_rows = self.table.pin_rows.ok_or(RpcStatus::InternalError)?;
        let dim = self.dim(table)?;
        let mut named = vec![reclane_row { address: core::ptr::null() }; keys.len()];
        let mut token = 0_u64;
        {
            let _inside = Inside::enter();
            // SAFETY: the host's function with its own data; both arrays are as long as said.
            answer(unsafe {
                pin_rows(
                    self.table.user_data,
                    worker,
                    u32::from(table.0),
                    keys.as_ptr(),
                    keys.len(),
                    named.as_mut_ptr(),
                    dim,
                    &raw mut token,
                )
            })?;
        }
        let bytes = dim * 4;
        if named.iter().any(|row| !row.address.is_null() && !self.is_backed(row.address, bytes as usize)) {
            self.unpin(worker, token);
            return Err(RpcStatus::InternalError);
        }
        rows.extend(named.iter().map(|row| RowRef { address: row.address.cast::<u8>(), bytes, lkey: 0 }));
        Ok(token)
    }

    fn row_memory(&self) -> Option<Vec<(*const u8, usize)>> {
        let bytes = usize::try_from(self.table.backing_bytes).unwrap_or(0);
        self.table.pin_rows.map(|_| vec![(self.table.backing_base.cast::<u8>(), bytes)])
    }

    fn unpin(&self, worker: u32, token: u64) {
        if let Some(unpin_rows) = self.table.unpin_rows {
            let _inside = Inside::enter();
            // SAFETY: the host's function with its own data.
            unsafe { unpin_rows(self.table.user_data, worker, token) };
        }
    }

    unsafe fn put(&self, worker: u32, table: TableTag, keys: &[u64], rows: RowsIn) -> Answer<()> {
        // SAFETY: the caller's word.
        unsafe { self.take_rows(self.table.put, worker, table, keys, rows) }
    }

    unsafe fn update(&self, worker: u32, table: TableTag, keys: &[u64], gradients: RowsIn, flat: bool) -> Answer<()> {
        let dense_already = gradients.stride == gradients.row_bytes as usize;
        let (update, update_flat) = (self.table.update, self.table.update_flat);
        if dense_already && ((flat && update_flat.is_some()) || update.is_none()) {
            // SAFETY: the caller's word.
            return unsafe { self.take_rows(update_flat, worker, table, keys, gradients) };
        }
        if update.is_some() {
            // SAFETY: the caller's word.
            return unsafe { self.take_rows(update, worker, table, keys, gradients) };
        }
        // SAFETY: the caller's word.
        let copy = unsafe { dense(gradients, keys.len()) };
        let rows = RowsIn { first: copy.as_ptr().cast::<u8>(), stride: gradients.row_bytes as usize, ..gradients };
        // SAFETY: the copy is dense and has `keys.len()` rows.
        unsafe { self.take_rows(update_flat, worker, table, keys, rows) }
    }

    fn command(&self, worker: u32, command: &Command) -> Answer<()> {
        let run = self.table.command.ok_or(RpcStatus::InternalError)?;
        let (code, argument) = match command {
            Command::Clear => (1, ""),
            Command::Save(name) => (2, name.as_str()),
            Command::Load(name) => (3, name.as_str()),
        };
        let argument = CString::new(argument).map_err(|_| RpcStatus::InvalidPayload)?;
        let argument: &CStr = &argument;
        let _inside = Inside::enter();
        // SAFETY: the host's function with its own data; the string lives during the call.
        answer(unsafe { run(self.table.user_data, worker, code, argument.as_ptr()) })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use core::ptr;

    /// Four rows of two floats; row 1 has no value, and `pin_rows` of key 9 names memory that is not backed.
    struct Host {
        rows: [[f32; 2]; 4],
        stranger: [f32; 2],
        unpinned: Vec<u64>,
        added: Vec<f32>,
        strides: Vec<usize>,
    }

    unsafe extern "C-unwind" fn init(
        _: *mut c_void,
        _: u32,
        _: *const reclane_table_options,
        table: *mut u32,
    ) -> c_int {
        // SAFETY: the adapter's own variable.
        unsafe { table.write(70_000) };
        0
    }

    unsafe extern "C-unwind" fn shape(_: *mut c_void, table: u32, dim: *mut u32) -> c_int {
        // SAFETY: the adapter's own variable.
        unsafe { dim.write(if table == 3 { 0 } else { 2 }) };
        0
    }

    unsafe extern "C-unwind" fn get(
        _: *mut c_void,
        _: u32,
        _: u32,
        _: *const u64,
        _: usize,
        _: *mut f32,
        _: u32,
        _: *mut u32,
    ) -> c_int {
        12
    }

    unsafe extern "C-unwind" fn pin(
        host: *mut c_void,
        _: u32,
        _: u32,
        keys: *const u64,
        count: usize,
        rows: *mut reclane_row,
        _: u32,
        token: *mut u64,
    ) -> c_int {
        // SAFETY: the test's own host; no other reference is alive during the call.
        let host = unsafe { &*host.cast::<Host>() };
        for i in 0..count {
            // SAFETY: `count` keys.
            let key = unsafe { *keys.add(i) };
            let address = match usize::try_from(key).unwrap() {
                1 => ptr::null(),
                9 => ptr::from_ref(&host.stranger).cast::<c_void>(),
                at => ptr::from_ref(&host.rows[at]).cast::<c_void>(),
            };
            // SAFETY: `count` rows.
            unsafe { rows.add(i).write(reclane_row { address }) };
        }
        // SAFETY: the adapter's own variable.
        unsafe { token.write(77) };
        0
    }

    unsafe extern "C-unwind" fn unpin(host: *mut c_void, _: u32, token: u64) {
        // SAFETY: as above.
        unsafe { &mut *host.cast::<Host>() }.unpinned.push(token);
    }

    unsafe extern "C-unwind" fn add(
        host: *mut c_void,
        _: u32,
        _: u32,
        _: *const u64,
        count: usize,
        rows: *const f32,
        stride: usize,
        dim: u32,
    ) -> c_int {
        // SAFETY: as above.
        let host = unsafe { &mut *host.cast::<Host>() };
        host.strides.push(stride);
        for i in 0..count {
            for j in 0..dim as usize {
                // SAFETY: `count` rows of `dim` floats, `stride` bytes apart.
                host.added.push(unsafe { rows.byte_add(i * stride).add(j).read_unaligned() });
            }
        }
        0
    }

    fn store(host: &mut Host) -> CallbackStore {
        // SAFETY: zero is a valid value of it.
        let mut face: reclane_store = unsafe { core::mem::zeroed() };
        face.struct_size = 120;
        face.init_table = Some(init);
        face.table_shape = Some(shape);
        face.get_flat = Some(get);
        face.pin_rows = Some(pin);
        face.unpin_rows = Some(unpin);
        face.backing_base = ptr::from_ref(&host.rows).cast::<c_void>();
        face.backing_bytes = size_of_val(&host.rows) as u64;
        face.user_data = ptr::from_mut(host).cast::<c_void>();
        // SAFETY: a whole struct; the host outlives the store in each test.
        unsafe { CallbackStore::from_c(&raw const face) }.unwrap()
    }

    fn host() -> Host {
        Host { rows: [[1.0; 2]; 4], stranger: [2.0; 2], unpinned: Vec::new(), added: Vec::new(), strides: Vec::new() }
    }

    #[test]
    fn pinned_rows_must_lie_in_the_backing_region() {
        let mut host = host();
        let store = store(&mut host);
        let mut rows = Vec::new();
        assert_eq!(store.pin(0, TableTag(0), &[0, 1, 3], &mut rows), Ok(77));
        assert!(rows[1].address.is_null() && !rows[2].address.is_null() && rows[0].bytes == 8);
        rows.clear();
        assert_eq!(store.pin(0, TableTag(0), &[0, 9], &mut rows), Err(RpcStatus::InternalError));
        assert!(rows.is_empty());
        drop(store);
        // What was refused was let go again.
        assert_eq!(host.unpinned, [77]);
    }

    #[test]
    fn answers_that_cannot_be_are_failures() {
        let mut host = host();
        let store = store(&mut host);
        let spec = TableSpec {
            name: "t".to_owned(),
            num_embeddings: 0,
            dim: 2,
            optimizer: crate::wire::payload::Optimizer::Sgd,
            learning_rate: 1.0,
            epsilon: 0.0,
            initial_accumulator: 0.0,
        };
        assert_eq!(store.init_table(0, &spec), Err(RpcStatus::InternalError));
        assert_eq!(store.shape(TableTag(3)), None);
        let mut room = [0_u8; 8];
        // SAFETY: room for one row.
        let got = unsafe { store.get(0, TableTag(0), &[0], &[], room.as_mut_ptr()) };
        assert_eq!(got, Err(RpcStatus::InternalError));
        let rows = RowsIn { first: room.as_ptr(), stride: 8, row_bytes: 8 };
        // SAFETY: one row.
        let put = unsafe { store.put(0, TableTag(0), &[0], rows) };
        assert_eq!(put, Err(RpcStatus::InternalError));
        assert_eq!(store.command(0, &Command::Clear), Err(RpcStatus::InternalError));
    }

    /// UPDATE brings blocks of key and row, so the rows have gaps; a store that takes dense rows only gets a copy.
    #[test]
    fn a_store_that_takes_dense_rows_gets_them_without_the_gaps() {
        let mut host = host();
        let blocks: [[f32; 4]; 2] = [[-1.0, -1.0, 1.0, 2.0], [-1.0, -1.0, 3.0, 4.0]];
        let rows = RowsIn { first: ptr::from_ref(&blocks[0][2]).cast::<u8>(), stride: 16, row_bytes: 8 };
        let mut store = store(&mut host);
        store.table.update_flat = Some(add);
        // SAFETY: two rows, 16 bytes apart.
        assert_eq!(unsafe { store.update(0, TableTag(0), &[5, 6], rows, false) }, Ok(()));
        store.table.update = Some(add);
        // SAFETY: as above.
        assert_eq!(unsafe { store.update(0, TableTag(0), &[5, 6], rows, false) }, Ok(()));
        drop(store);
        assert_eq!(host.strides, [8, 16]);
        assert_eq!(host.added, [1.0, 2.0, 3.0, 4.0, 1.0, 2.0, 3.0, 4.0]);
    }
}
