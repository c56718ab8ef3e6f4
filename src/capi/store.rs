//! Tables and stores: what a table is made of, and the callbacks by which a host brings its own storage engine.

use core::ffi::{c_char, c_int, c_void};

use super::arguments::text;
use super::structs::Versioned;
use crate::error::{Error, Result, Status};
use crate::wire::payload::{Command, Optimizer, TableSpec};

/// How UPDATE changes rows: values of reclane_table_options.optimizer. Treat an unknown value as "some other".
#[repr(u32)]
#[derive(Clone, Copy, Debug)]
pub enum reclane_optimizer {
    /// w -= learning_rate * g
    Sgd = 0,
    /// a += g * g; w -= learning_rate * g / (sqrt(a) + epsilon), one accumulator per element
    Adagrad = 1,
    /// the same with one accumulator per row, fed with the mean of g * g
    RowwiseAdagrad = 2,
    /// w += g, exact for integers
    Add = 3,
}

/// Words to the store as a whole: values for reclane_client_command(). Treat an unknown value as "some other".
#[repr(u32)]
#[derive(Clone, Copy, Debug)]
pub enum reclane_command {
    /// Forgets all rows of all tables; the tables stay. No argument.
    Clear = 1,
    /// Saves the store under the name in the argument.
    Save = 2,
    /// Loads what was saved under the name in the argument.
    Load = 3,
}

/// What a callback of reclane_store answers; the client gets it as the status beside.
#[repr(i32)]
#[derive(Clone, Copy, Debug)]
pub enum reclane_answer {
    /// Done.
    Ok = 0,
    /// Malformed: RECLANE_STATUS_INVALID_PAYLOAD.
    InvalidPayload = -1,
    /// Another shard's key: RECLANE_STATUS_WRONG_SHARD.
    WrongShard = -2,
    /// Too much for one request: RECLANE_STATUS_BATCH_TOO_LARGE.
    BatchTooLarge = -3,
    /// Another row width than the table's: RECLANE_STATUS_VALUE_SIZE_MISMATCH.
    ValueSizeMismatch = -4,
    /// No such table: RECLANE_STATUS_UNKNOWN_TABLE.
    UnknownTable = -5,
    /// Failed; the server lives on: RECLANE_STATUS_INTERNAL_ERROR.
    InternalError = -6,
}

/// Learning rate of a table whose options leave it 0.
pub(super) const LEARNING_RATE_DEFAULT: f32 = 0.01;
/// Epsilon of a table whose options leave it 0.
pub(super) const EPSILON_DEFAULT: f32 = 1e-10;

/// What a table is made of. Zero the struct, set struct_size = sizeof(reclane_table_options), name and dim.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct reclane_table_options {
    /// sizeof(reclane_table_options).
    pub struct_size: u32,
    /// floats per row, 1..16384. Required.
    pub dim: u32,
    /// 1..63 bytes of UTF-8, NUL-terminated. Required. Read during the call only.
    pub name: *const c_char,
    /// Keys 0..num_embeddings-1 are expected and get dense storage; others are taken too. 0: no expectation.
    pub num_embeddings: u64,
    /// A reclane_optimizer. 0 is SGD.
    pub optimizer: u32,
    /// Learning rate, positive. 0 means 0.01.
    pub learning_rate: f32,
    /// Adagrad's epsilon, not negative. 0 means 1e-10.
    pub epsilon: f32,
    /// Initial value of Adagrad's accumulators, not negative.
    pub initial_accumulator: f32,
}

// SAFETY: repr(C), `struct_size` first; zero is a valid pointer, integer and float.
unsafe impl Versioned for reclane_table_options {
    const NAME: &'static str = "reclane_table_options";
    const FIRST_SIZE: usize = 40;
}

impl reclane_table_options {
    /// The engine's form of it.
    ///
    /// # Safety
    /// `name` is NULL or NUL-terminated.
    pub(super) unsafe fn to_spec(self) -> Result<TableSpec> {
        let or = |value: f32, default: f32| if value == 0.0 { default } else { value };
        let optimizer = Optimizer::from_code(self.optimizer).ok_or_else(|| {
            Error::new(Status::InvalidArgument, format!("optimizer {} is none of 0..3", self.optimizer))
        })?;
        let spec = TableSpec {
            // SAFETY: the caller's word.
            name: unsafe { text(self.name, "reclane_table_options.name") }?.to_owned(),
            num_embeddings: self.num_embeddings,
            dim: self.dim,
            optimizer,
            learning_rate: or(self.learning_rate, LEARNING_RATE_DEFAULT),
            epsilon: or(self.epsilon, EPSILON_DEFAULT),
            initial_accumulator: self.initial_accumulator,
        };
        match spec.problem() {
            None => Ok(spec),
            Some(problem) => Err(Error::new(Status::InvalidArgument, problem)),
        }
    }
}

/// The engine's form of a command.
pub(super) fn command_of(code: u32, argument: &str) -> Result<Command> {
    match (code, argument) {
        (1, "") => Ok(Command::Clear),
        (2, name) if !name.is_empty() => Ok(Command::Save(name.to_owned())),
        (3, name) if !name.is_empty() => Ok(Command::Load(name.to_owned())),
        (1, name) => Err(Error::new(Status::InvalidArgument, format!("CLEAR takes no argument, got '{name}'"))),
        (2 | 3, _) => Err(Error::new(Status::InvalidArgument, "SAVE and LOAD need a name as their argument")),
        _ => Err(Error::new(Status::InvalidArgument, format!("command {code} is none of 1..3"))),
    }
}

/// One row in place, for pin_rows.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct reclane_row {
    /// First byte of the row, aligned to 4 bytes, inside the backing region; NULL when the key has no row.
    pub address: *const c_void,
}

/// Lets go of user_data: called exactly once, on any thread, when the library needs it no more.
pub type reclane_drop_fn = Option<unsafe extern "C-unwind" fn(user_data: *mut c_void)>;

/// Creates a table or finds the same one again; writes its number, 0..65535, to *table. All shards must give a table the
/// same number, or reclane_client_init_table() fails. *table holds a proposal that is the same on all shards, whatever the
/// order in which tables are made: a store without numbers of its own can leave it. Two tables may, rarely, be proposed the
/// same number; a store that finds it taken must choose another one in a way that all shards share.
pub type reclane_store_init_table_fn = Option<
    unsafe extern "C-unwind" fn(
        user_data: *mut c_void,
        worker: u32,
        options: *const reclane_table_options,
        table: *mut u32,
    ) -> c_int,
>;

/// Writes the floats per row of a table to *dim; nonzero when there is no such table. Called for each request, by many
/// workers at once: must be quick.
pub type reclane_store_table_shape_fn =
    Option<unsafe extern "C-unwind" fn(user_data: *mut c_void, table: u32, dim: *mut u32) -> c_int>;

/// Says which keys will be asked for soon. Only a hint.
pub type reclane_store_prefetch_fn =
    Option<unsafe extern "C-unwind" fn(user_data: *mut c_void, table: u32, keys: *const u64, key_count: usize)>;

/// Writes key_count rows of dim floats to rows, in the order of keys; a missing key gives a row of zeroes and counts in
/// *missing_rows.
pub type reclane_store_get_flat_fn = Option<
    unsafe extern "C-unwind" fn(
        user_data: *mut c_void,
        worker: u32,
        table: u32,
        keys: *const u64,
        key_count: usize,
        rows: *mut f32,
        dim: u32,
        missing_rows: *mut u32,
    ) -> c_int,
>;

/// Names key_count rows in place and keeps each from being freed or torn until unpin_rows of the number that it writes to
/// *pin.
pub type reclane_store_pin_rows_fn = Option<
    unsafe extern "C-unwind" fn(
        user_data: *mut c_void,
        worker: u32,
        table: u32,
        keys: *const u64,
        key_count: usize,
        rows: *mut reclane_row,
        dim: u32,
        pin: *mut u64,
    ) -> c_int,
>;

/// Lets pinned rows go; worker may be another one than pinned them.
pub type reclane_store_unpin_rows_fn =
    Option<unsafe extern "C-unwind" fn(user_data: *mut c_void, worker: u32, pin: u64)>;

/// Takes key_count rows of dim floats, row i at rows + i * stride_bytes, in the order of keys. A client that breaks the
/// rules can change the bytes meanwhile: read each once, and trust none.
pub type reclane_store_rows_fn = Option<
    unsafe extern "C-unwind" fn(
        user_data: *mut c_void,
        worker: u32,
        table: u32,
        keys: *const u64,
        key_count: usize,
        rows: *const f32,
        stride_bytes: usize,
        dim: u32,
    ) -> c_int,
>;

/// Does a reclane_command; argument is "" when the command has none.
pub type reclane_store_command_fn = Option<
    unsafe extern "C-unwind" fn(user_data: *mut c_void, worker: u32, command: u32, argument: *const c_char) -> c_int,
>;

/// The host's storage engine. Zero the struct, set struct_size = sizeof(reclane_store) and the required callbacks.
///
/// Each callback gets user_data first. worker is distinct among calls that run at the same time and lies below what
/// reclane_options_server_workers() says, so it can index per-thread scratch. Callbacks run on the server's threads, many
/// at once. Pointers are valid during the call only. No callback may throw: a C++ exception that leaves one ends the
/// process (reclane.hpp's Store catches them). A callback must not call the stop, shutdown and close functions, nor wait
/// for a request to its own server: the thread that would answer it is the one that waits.
///
/// Those that return an int return a reclane_answer: 0 when done, -1..-6 when not. Any other number counts as -6. The
/// client gets the answer as its status; the server lives on.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct reclane_store {
    /// sizeof(reclane_store).
    pub struct_size: u32,
    /// 0.
    pub reserved: u32,
    /// Given back to every callback.
    pub user_data: *mut c_void,
    /// May be NULL.
    pub drop_user_data: reclane_drop_fn,
    /// Required.
    pub init_table: reclane_store_init_table_fn,
    /// Required.
    pub table_shape: reclane_store_table_shape_fn,
    /// Required.
    pub get_flat: reclane_store_get_flat_fn,
    /// Sets rows. May be NULL: PUT is answered with -6.
    pub put: reclane_store_rows_fn,
    /// Applies gradients as UPDATE brings them, with any stride. May be NULL: update_flat is called with a dense copy.
    pub update: reclane_store_rows_fn,
    /// Applies gradients as UPDATE_FLAT brings them, stride_bytes = 4 * dim. May be NULL: update is called. Both NULL:
    /// UPDATE and UPDATE_FLAT are answered with -6.
    pub update_flat: reclane_store_rows_fn,
    /// May be NULL: commands are answered with -6.
    pub command: reclane_store_command_fn,
    /// May be NULL.
    pub prefetch: reclane_store_prefetch_fn,
    /// May be NULL: rows are copied with get_flat.
    pub pin_rows: reclane_store_pin_rows_fn,
    /// Required when pin_rows is set.
    pub unpin_rows: reclane_store_unpin_rows_fn,
    /// First byte of the region that holds every pinned row; it stays valid until drop_user_data. Required when pin_rows
    /// is set.
    pub backing_base: *const c_void,
    /// Bytes of that region.
    pub backing_bytes: u64,
}

// SAFETY: repr(C), `struct_size` first; zero is a valid pointer, integer and `Option` of a function.
unsafe impl Versioned for reclane_store {
    const NAME: &'static str = "reclane_store";
    const FIRST_SIZE: usize = 120;
}

const _: () = assert!(size_of::<reclane_store>() == 120 && size_of::<reclane_table_options>() == 40);
