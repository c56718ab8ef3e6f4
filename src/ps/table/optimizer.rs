//! What PUT and UPDATE do to one row.
//!
//! # Arithmetic, exactly
//!
//! All values are f32, IEEE 754, rounded to nearest, every operation rounded on its own: no fused multiply-add, no
//! reordering. Another implementation that does the same operations in the same order gets the same bits:
//!
//! - SGD, for each element: `p = lr * g; w = w - p`.
//! - Adagrad, for each element: `a = a + (g * g); w = w - ((lr * g) / (sqrt(a) + eps))`.
//! - Row-wise Adagrad: 16 partial sums, all zero at first; for each element `i` in order,
//!   `s[i mod 16] = s[i mod 16] + (g * g)`; then for `h` in 8, 4, 2, 1 and each `j < h`, `s[j] = s[j] + s[j + h]`;
//!   `a = a + (s[0] / dim)`; then for each element `w = w - ((lr * g) / (sqrt(a) + eps))` with the new `a`.
//! - Add, for each element: `w = w + g`.
//!
//! A fresh row is all zeros with accumulators at the table's initial value.

use super::rows::Spot;
use crate::wire::payload::{Optimizer, TableSpec};

/// Elements handled at once: one cache line.
const LANES: usize = 16;
type Line = [f32; LANES];

/// Bytes of optimizer state for one row.
pub(super) fn state_bytes(spec: &TableSpec) -> usize {
    match spec.optimizer {
        Optimizer::Sgd | Optimizer::Add => 0,
        Optimizer::Adagrad => spec.dim as usize * 4,
        Optimizer::RowwiseAdagrad => 4,
    }
}

/// Changes one row. Implementations are `inline(always)`: they become part of a batch loop that is compiled once for
/// the portable and once for the wide instruction set.
pub(super) trait RowOp: Copy {
    /// Whether there is optimizer state to fetch.
    const HAS_STATE: bool = false;

    /// # Safety
    /// The row (and state, if any) at `spot` belongs to the caller alone or is under its write lock; `source` is valid
    /// for reads of `dim` elements, which a peer may be changing: the outcome may then be any number.
    unsafe fn apply(&self, spot: Spot, source: *const f32, dim: usize);
}

/// PUT.
#[derive(Clone, Copy)]
pub(super) struct Set;
/// [`Optimizer::Sgd`].
#[derive(Clone, Copy)]
pub(super) struct Sgd {
    pub lr: f32,
}
/// [`Optimizer::Adagrad`].
#[derive(Clone, Copy)]
pub(super) struct Adagrad {
    pub lr: f32,
    pub eps: f32,
}
/// [`Optimizer::RowwiseAdagrad`].
#[derive(Clone, Copy)]
pub(super) struct RowwiseAdagrad {
    pub lr: f32,
    pub eps: f32,
}
/// [`Optimizer::Add`].
#[derive(Clone, Copy)]
pub(super) struct Add;

/// Runs `step(w, g) -> w` over a row, a line at a time, then the rest.
///
/// # Safety
/// As for [`RowOp::apply`].
#[inline(always)]
unsafe fn each(row: *mut f32, source: *const f32, dim: usize, step: impl Fn(f32, f32) -> f32) {
    let lines = dim / LANES;
    for line in 0..lines {
        // SAFETY: line * LANES + LANES <= dim.
        unsafe {
            let at = row.add(line * LANES).cast::<Line>();
            let g = source.add(line * LANES).cast::<Line>().read();
            let mut w = at.read();
            for i in 0..LANES {
                w[i] = step(w[i], g[i]);
            }
            at.write(w);
        }
    }
    for i in lines * LANES..dim {
        // SAFETY: i < dim.
        unsafe { row.add(i).write(step(row.add(i).read(), source.add(i).read())) };
    }
}

impl RowOp for Set {
    #[inline(always)]
    unsafe fn apply(&self, spot: Spot, source: *const f32, dim: usize) {
        // SAFETY: the caller's promise; table rows and a peer's rows never overlap.
        unsafe { each(spot.row.cast(), source, dim, |_, g| g) };
    }
}

impl RowOp for Sgd {
    #[inline(always)]
    unsafe fn apply(&self, spot: Spot, source: *const f32, dim: usize) {
        let lr = self.lr;
        // SAFETY: the caller's promise.
        unsafe { each(spot.row.cast(), source, dim, |w, g| w - lr * g) };
    }
}

impl RowOp for Add {
    #[inline(always)]
    unsafe fn apply(&self, spot: Spot, source: *const f32, dim: usize) {
        // SAFETY: the caller's promise.
        unsafe { each(spot.row.cast(), source, dim, |w, g| w + g) };
    }
}

impl RowOp for Adagrad {
    const HAS_STATE: bool = true;

    #[inline(always)]
    unsafe fn apply(&self, spot: Spot, source: *const f32, dim: usize) {
        let (row, state) = (spot.row.cast::<f32>(), spot.state.cast::<f32>());
        let lines = dim / LANES;
        for line in 0..lines {
            // SAFETY: line * LANES + LANES <= dim, for row, state and source alike.
            unsafe {
                let (row, state) = (row.add(line * LANES).cast::<Line>(), state.add(line * LANES).cast::<Line>());
                let g = source.add(line * LANES).cast::<Line>().read();
                let (mut w, mut a) = (row.read(), state.read());
                // Three loops over a line become wide instructions; one loop of everything did not.
                let mut below = [0.0; LANES];
                for i in 0..LANES {
                    a[i] += g[i] * g[i];
                }
                for i in 0..LANES {
                    below[i] = a[i].sqrt() + self.eps;
                }
                for i in 0..LANES {
                    w[i] -= (self.lr * g[i]) / below[i];
                }
                row.write(w);
                state.write(a);
            }
        }
        for i in lines * LANES..dim {
            // SAFETY: i < dim.
            unsafe {
                let g = source.add(i).read();
                let a = state.add(i).read() + g * g;
                row.add(i).write(row.add(i).read() - (self.lr * g) / (a.sqrt() + self.eps));
                state.add(i).write(a);
            }
        }
    }
}

impl RowOp for RowwiseAdagrad {
    const HAS_STATE: bool = true;

    #[inline(always)]
    unsafe fn apply(&self, spot: Spot, source: *const f32, dim: usize) {
        let state = spot.state.cast::<f32>();
        // The gradient is read again below: a peer that changes it in between spoils the numbers of its own row and
        // nothing else.
        let mut sums = [0.0_f32; LANES];
        let lines = dim / LANES;
        for line in 0..lines {
            // SAFETY: line * LANES + LANES <= dim.
            let g = unsafe { source.add(line * LANES).cast::<Line>().read() };
            for i in 0..LANES {
                sums[i] += g[i] * g[i];
            }
        }
        for i in lines * LANES..dim {
            // SAFETY: i < dim.
            let g = unsafe { source.add(i).read() };
            sums[i % LANES] += g * g;
        }
        for half in [8, 4, 2, 1] {
            for i in 0..half {
                sums[i] += sums[i + half];
            }
        }
        // SAFETY: the state of a row is one element.
        let a = unsafe { state.read() } + sums[0] / dim as f32;
        let (lr, below) = (self.lr, a.sqrt() + self.eps);
        // SAFETY: the caller's promise.
        unsafe {
            state.write(a);
            each(spot.row.cast(), source, dim, |w, g| w - (lr * g) / below);
        }
    }
}

/// Makes a row fresh: zeros, accumulators at their initial value.
///
/// # Safety
/// As for [`RowOp::apply`]; `spec` is the table's.
pub(super) unsafe fn make_fresh(spot: Spot, spec: &TableSpec) {
    // SAFETY: a row has dim elements, its state has state_bytes(spec) bytes.
    unsafe {
        spot.row.cast::<f32>().write_bytes(0, spec.dim as usize);
        for i in 0..state_bytes(spec) / 4 {
            spot.state.cast::<f32>().add(i).write(spec.initial_accumulator);
        }
    }
}
