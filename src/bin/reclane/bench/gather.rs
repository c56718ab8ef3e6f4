//! The cost of collecting random rows of a table into shared memory: no GET of these rows can be faster.

use super::clock::{Clock, ticks};
use super::histogram::Histogram;
use super::host::{Memory, on_cpu, two_cpus};
use reclane::error::{Error, Result, Status};

/// What is gathered.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Shape {
    /// Rows per gather.
    pub rows: usize,
    /// Bytes of a row: 128 or 512.
    pub row_bytes: usize,
}

/// 512 rows of 128 bytes.
pub const MANY_SMALL: Shape = Shape { rows: 512, row_bytes: 128 };
/// 32 rows of 512 bytes.
pub const FEW_LARGE: Shape = Shape { rows: 32, row_bytes: 512 };

/// How far ahead rows are prefetched; worth half of the time when the table does not fit the caches.
const AHEAD: usize = 16;
/// Batches of row numbers, drawn before: enough of them that the rows touched do not fit a core's own cache.
const BATCHES: usize = 1024;

/// A table of random rows, on huge pages where the system gives them.
#[derive(Debug)]
pub struct Table {
    memory: Memory,
}

impl Table {
    /// Allocates and fills the table.
    ///
    /// # Errors
    /// `OsError` when the memory cannot be had.
    pub fn new(bytes: usize) -> Result<Table> {
        let memory = Memory::private(bytes)?;
        let mut random = 0x9e37_79b9_7f4a_7c15;
        for at in (0..bytes - bytes % 8).step_by(8) {
            // SAFETY: 8-aligned and inside the mapping, which nobody else knows.
            unsafe { memory.start().add(at).cast::<u64>().write(next(&mut random)) };
        }
        Ok(Table { memory })
    }
}

/// Random rows of a table and the shared memory that they are collected into.
#[derive(Debug)]
pub struct Gather<'a> {
    table: &'a Table,
    shape: Shape,
    keys: Vec<u32>,
    target: Memory,
    clock: Clock,
    run: GatherRows,
}

impl Gather<'_> {
    /// Draws the rows.
    ///
    /// # Errors
    /// `InvalidArgument` for a row length that no gather was written for; `OsError`.
    pub fn new(table: &Table, shape: Shape) -> Result<Gather<'_>> {
        let run = match shape.row_bytes {
            128 => gather_rows::<128>,
            512 => gather_rows::<512>,
            other => {
                return Err(Error::new(Status::InvalidArgument, format!("rows of {other} bytes: only 128 or 512")));
            }
        };
        let rows_in_table = (table.memory.bytes() / shape.row_bytes) as u64;
        if rows_in_table == 0 {
            return Err(Error::new(Status::InvalidArgument, "the table is smaller than a row"));
        }
        let mut random = 0x1234_5678_9abc_def1;
        let keys: Vec<u32> =
            (0..BATCHES * shape.rows).map(|_| u32::try_from(next(&mut random) % rows_in_table).unwrap_or(0)).collect();
        let (target, _file) = Memory::shared(shape.rows * shape.row_bytes)?;
        Ok(Gather { table, shape, keys, target, clock: Clock::calibrate(), run })
    }

    /// Times so many gathers, where the server of a lane would run.
    ///
    /// # Errors
    /// `OsError` when there is no thread to be had.
    pub fn chunk(&mut self, rounds: usize) -> Result<Histogram> {
        let this = &*self;
        on_cpu(two_cpus().1, move || {
            let mut latencies = Histogram::new();
            let batches = this.keys.chunks_exact(this.shape.rows).cycle();
            // One pass over all batches warms up.
            for (round, batch) in batches.take(rounds + BATCHES).enumerate() {
                let start = ticks();
                // SAFETY: every row number is below the table's number of rows, and the target holds one batch.
                unsafe { (this.run)(this.table.memory.start(), batch, this.target.start()) };
                let elapsed = ticks().wrapping_sub(start);
                if round >= BATCHES {
                    latencies.record(this.clock.ns(elapsed));
                }
            }
            Ok(latencies)
        })
    }
}

type GatherRows = unsafe fn(*const u8, &[u32], *mut u8);

/// Copies rows to a dense block.
///
/// # Safety
/// The table holds every row of `keys`; the target holds `keys.len()` rows.
unsafe fn gather_rows<const ROW_BYTES: usize>(table: *const u8, keys: &[u32], target: *mut u8) {
    for (i, key) in keys.iter().enumerate() {
        if let Some(ahead) = keys.get(i + AHEAD) {
            prefetch::<ROW_BYTES>(table.wrapping_add(*ahead as usize * ROW_BYTES));
        }
        // SAFETY: as the caller promises; table and target are different mappings.
        unsafe {
            let row = table.add(*key as usize * ROW_BYTES);
            core::ptr::copy_nonoverlapping(row, target.add(i * ROW_BYTES), ROW_BYTES);
        }
    }
}

#[inline]
fn prefetch<const ROW_BYTES: usize>(row: *const u8) {
    #[cfg(target_arch = "x86_64")]
    for line in (0..ROW_BYTES).step_by(64) {
        // SAFETY: a prefetch of any address faults nothing and changes nothing.
        unsafe {
            core::arch::x86_64::_mm_prefetch::<{ core::arch::x86_64::_MM_HINT_T0 }>(row.wrapping_add(line).cast());
        }
    }
    #[cfg(not(target_arch = "x86_64"))]
    let _ = row;
}

/// xorshift64: numbers that no prefetcher guesses.
fn next(state: &mut u64) -> u64 {
    *state ^= *state << 13;
    *state ^= *state >> 7;
    *state ^= *state << 17;
    *state
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rows_arrive_in_order() {
        let table: Vec<u8> = (0..8_u8).flat_map(|row| [row; 128]).collect();
        let mut target = vec![0_u8; 3 * 128];
        // SAFETY: the table has rows 0..8, and the target holds three.
        unsafe { gather_rows::<128>(table.as_ptr(), &[5, 0, 7], target.as_mut_ptr()) };
        assert!(target[..128].iter().all(|b| *b == 5) && target[128..256].iter().all(|b| *b == 0));
        assert!(target[256..].iter().all(|b| *b == 7));
    }

    #[test]
    fn a_gather_is_timed_and_odd_rows_are_refused() {
        let table = Table::new(1 << 20).unwrap();
        let latencies = Gather::new(&table, FEW_LARGE).unwrap().chunk(10).unwrap();
        assert!(latencies.total() == 10 && latencies.min() > 0);
        assert!(Gather::new(&table, Shape { rows: 1, row_bytes: 100 }).is_err());
    }
}
