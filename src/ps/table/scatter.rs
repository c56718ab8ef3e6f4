//! PUT and UPDATE: one change to each row of a batch of keys, in order.

use super::index::fetch_row;
use super::locks::{Stripes, Writing};
use super::one::{ABSENT, Table};
use super::optimizer::{Adagrad, Add, RowOp, RowwiseAdagrad, Set, Sgd, make_fresh};
use crate::ps::store::RowsIn;
use crate::wire::payload::Optimizer;

/// Rows asked for ahead of the one being changed.
const AHEAD: usize = 16;

/// Why a batch stopped in the middle.
#[derive(Debug)]
pub(super) enum Stopped {
    /// Memory for a new row could not be had.
    Memory(Box<crate::error::Error>),
    /// A row stayed pinned.
    Pinned,
}

/// One PUT or UPDATE, or a part of it.
pub(super) struct Scatter<'a> {
    pub table: &'a Table,
    /// None: the store has one worker.
    pub stripes: Option<&'a Stripes>,
    /// Whether a pinned row is waited for.
    pub patient: bool,
    /// All owned by this shard; there is room in the index for each.
    pub keys: &'a [u64],
    pub rows: RowsIn,
}

impl Scatter<'_> {
    /// Sets the rows.
    ///
    /// # Safety
    /// `rows` is valid for a row for each key. Rows do not change meanwhile unless under `stripes`.
    pub unsafe fn put(&self) -> Result<(), Stopped> {
        // SAFETY: the caller's promise.
        unsafe { self.run(Set) }
    }

    /// Applies gradients with the table's optimizer.
    ///
    /// # Safety
    /// As for [`Scatter::put`].
    pub unsafe fn update(&self) -> Result<(), Stopped> {
        let (lr, eps) = (self.table.spec.learning_rate, self.table.spec.epsilon);
        // SAFETY: the caller's promise.
        unsafe {
            match self.table.spec.optimizer {
                Optimizer::Sgd => self.run(Sgd { lr }),
                Optimizer::Adagrad => self.run(Adagrad { lr, eps }),
                Optimizer::RowwiseAdagrad => self.run(RowwiseAdagrad { lr, eps }),
                Optimizer::Add => self.run(Add),
            }
        }
    }

    /// # Safety
    /// As for [`Scatter::put`].
    unsafe fn run<O: RowOp>(&self, op: O) -> Result<(), Stopped> {
        #[cfg(target_arch = "x86_64")]
        if std::arch::is_x86_feature_detected!("avx2") {
            // SAFETY: the processor has AVX2; the rest is the caller's promise.
            return unsafe { self.run_avx2(op) };
        }
        // SAFETY: the caller's promise.
        unsafe { self.body(op) }
    }

    // AVX2 without FMA: a product and a sum are never fused, see `optimizer`.
    /// # Safety
    /// As for [`Scatter::put`], on a processor with AVX2.
    #[cfg(target_arch = "x86_64")]
    #[target_feature(enable = "avx2")]
    unsafe fn run_avx2<O: RowOp>(&self, op: O) -> Result<(), Stopped> {
        // SAFETY: the caller's promise.
        unsafe { self.body(op) }
    }

    /// Row of a key, asked for with all that a change of it touches; [`ABSENT`] if there is none yet.
    #[inline(always)]
    fn locate<O: RowOp>(&self, key: u64) -> u32 {
        let row = self.table.find(key).unwrap_or(ABSENT);
        if row != ABSENT {
            let spot = self.table.rows.spot(row);
            fetch_row(spot.row, self.table.row_bytes);
            if O::HAS_STATE {
                fetch_row(spot.state, self.table.state_bytes);
            }
            if let Some(stripes) = self.stripes {
                stripes.fetch(spot.row);
            }
        }
        row
    }

    /// # Safety
    /// As for [`Scatter::put`].
    #[inline(always)]
    unsafe fn body<O: RowOp>(&self, op: O) -> Result<(), Stopped> {
        let dim = self.table.spec.dim as usize;
        if let [key] = self.keys {
            let row = self.table.find(*key).unwrap_or(ABSENT);
            // SAFETY: the caller's promise.
            return unsafe { self.change(op, *key, row, self.rows.first.cast(), dim) };
        }
        let mut ring = [ABSENT; AHEAD];
        if !self.table.is_direct() {
            self.keys.iter().for_each(|key| self.table.fetch_index(*key));
        }
        for (i, key) in self.keys.iter().take(AHEAD).enumerate() {
            ring[i] = self.locate::<O>(*key);
        }
        for (i, key) in self.keys.iter().enumerate() {
            let row = ring[i % AHEAD];
            if let Some(next) = self.keys.get(i + AHEAD) {
                ring[i % AHEAD] = self.locate::<O>(*next);
            }
            let source = self.rows.first.wrapping_add(i * self.rows.stride).cast::<f32>();
            // SAFETY: the caller's promise.
            unsafe { self.change(op, *key, row, source, dim)? };
        }
        Ok(())
    }

    /// # Safety
    /// As for [`Scatter::put`]; `row` was found for `key`.
    #[inline(always)]
    unsafe fn change<O: RowOp>(
        &self,
        op: O,
        key: u64,
        row: u32,
        source: *const f32,
        dim: usize,
    ) -> Result<(), Stopped> {
        if row == ABSENT {
            // SAFETY: the caller's promise.
            return unsafe { self.change_absent(op, key, source) };
        }
        let spot = self.table.rows.spot(row);
        let _writing = self.lock(spot.row)?;
        // SAFETY: the row exists and is ours while locked (or always, with one worker).
        unsafe { op.apply(spot, source, dim) };
        Ok(())
    }

    #[inline(always)]
    fn lock(&self, row: *const u8) -> Result<Option<Writing<'_>>, Stopped> {
        match self.stripes {
            None => Ok(None),
            Some(stripes) => stripes.write(row, self.patient).map(Some).ok_or(Stopped::Pinned),
        }
    }

    /// Changes a row that was not there a moment ago; an earlier key of the batch or another worker may have made it.
    ///
    /// # Safety
    /// As for [`Scatter::put`].
    #[inline(never)]
    unsafe fn change_absent<O: RowOp>(&self, op: O, key: u64, source: *const f32) -> Result<(), Stopped> {
        let dim = self.table.spec.dim as usize;
        if let Some((row, presence)) = self.table.direct_row(key) {
            let spot = self.table.rows.spot(row);
            self.table.warm(row, spot);
            let _writing = self.lock(spot.row)?;
            // SAFETY: the row is ours while locked (or always, with one worker).
            unsafe {
                if !presence.has(row) {
                    make_fresh(spot, &self.table.spec);
                }
                op.apply(spot, source, dim);
            }
            presence.set(row);
            return Ok(());
        }
        let row = self.table.make_row(key).map_err(Stopped::Memory)?;
        let spot = self.table.rows.spot(row);
        let _writing = self.lock(spot.row)?;
        // SAFETY: as above.
        unsafe { op.apply(spot, source, dim) };
        Ok(())
    }
}
