//! PUT and the two UPDATEs: rows come in the payload, in blocks or as a matrix, or lie in the client's memory.

use super::{Handler, Judged, Scratch, client_rows};
use crate::fabric::{Access, Fabric};
use crate::ids::TableTag;
use crate::ps::store::RowsIn;
use crate::rpc::{ServerLane, copy_keys};
use crate::wire::payload::block_bytes;
use crate::wire::{Op, RequestHeader, RpcStatus, flags};

/// Bytes of rows that are brought together from a client's memory at a time.
const INDEXED_BYTES: usize = 64 << 10;

/// The rows of a request, judged.
struct Input {
    table: TableTag,
    rows: RowsIn,
    /// The rows are those of [`Scratch`]'s numbers, in the client's memory.
    indexed: bool,
}

impl Handler {
    /// PUT and the two UPDATEs: they differ in how rows arrive and in what the store does with them.
    #[inline]
    pub(super) fn write<F: Fabric>(
        &self,
        op: Op,
        lane: &ServerLane<F>,
        slot: u32,
        h: &RequestHeader,
        scratch: &mut Scratch,
    ) -> Judged {
        let blocks = op == Op::Update && h.flags & flags::REMOTE_BUFFER == 0;
        let input = if blocks { self.blocks(lane, slot, h, scratch) } else { self.matrix(lane, slot, h, scratch) }?;
        let (puts, updates) = if op == Op::Put { (1, 0) } else { (0, 1) };
        scratch.counts.write_keys += scratch.keys.len() as u64;
        scratch.counts.puts += puts;
        scratch.counts.updates += updates;
        if input.indexed {
            return self.write_indexed(op, &input, scratch);
        }
        // SAFETY: `keys.len()` rows of the table's width were found behind the pointer.
        unsafe { self.hand_over(op, scratch.worker, input.table, &scratch.keys, input.rows) }
    }

    /// # Safety
    /// `rows` has a row of the table's width for each key.
    #[inline]
    unsafe fn hand_over(
        &self,
        op: Op,
        worker: u32,
        table: TableTag,
        keys: &[u64],
        rows: RowsIn,
    ) -> Result<(), RpcStatus> {
        // SAFETY: as the caller vouches.
        unsafe {
            match op {
                Op::Put => self.store.put(worker, table, keys, rows),
                _ => self.store.update(worker, table, keys, rows, op == Op::UpdateFlat),
            }
        }
    }

    /// Rows from here and there in the client's memory: brought together, some at a time, and handed to the store.
    fn write_indexed(&self, op: Op, input: &Input, scratch: &mut Scratch) -> Judged {
        let row_bytes = input.rows.row_bytes as usize;
        let step = (INDEXED_BYTES / row_bytes).max(1);
        scratch.staging.resize((step.min(scratch.keys.len()) * row_bytes).div_ceil(8), 0);
        let staging = scratch.staging.as_mut_ptr().cast::<u8>();
        for (keys, numbers) in scratch.keys.chunks(step).zip(scratch.numbers.chunks(step)) {
            for (index, number) in numbers.iter().enumerate() {
                // SAFETY: `matrix` found every number to be that of a row of the client's memory; the staging has `step`
                // rows.
                unsafe {
                    let from = input.rows.first.add(*number as usize * row_bytes);
                    core::ptr::copy_nonoverlapping(from, staging.add(index * row_bytes), row_bytes);
                }
            }
            let rows = RowsIn { first: staging.cast_const(), ..input.rows };
            // SAFETY: a row for each key was just put there.
            unsafe { self.hand_over(op, scratch.worker, input.table, keys, rows) }?;
        }
        Ok(())
    }

    /// Copies the numbers of rows out of the payload, behind the keys, and judges them against the `rows` that there are.
    fn numbers<F: Fabric>(
        lane: &ServerLane<F>,
        slot: u32,
        keys_bytes: u32,
        rows: u32,
        scratch: &mut Scratch,
    ) -> Result<(), RpcStatus> {
        let count = scratch.keys.len();
        scratch.numbers.clear();
        scratch.numbers.resize(count, 0);
        // SAFETY: the payload was found to hold the keys and a number for each, and fits the slot; the copy is ours.
        unsafe {
            let from = lane.request_payload(slot).add(keys_bytes as usize);
            core::ptr::copy_nonoverlapping(from, scratch.numbers.as_mut_ptr().cast::<u8>(), count * 4);
        }
        scratch.numbers.iter_mut().for_each(|number| *number = u32::from_le(*number));
        if scratch.numbers.iter().all(|number| *number < rows) { Ok(()) } else { Err(RpcStatus::InvalidPayload) }
    }

    /// Keys and a dense matrix: in the payload, or the matrix in the client's registered memory.
    fn matrix<F: Fabric>(
        &self,
        lane: &ServerLane<F>,
        slot: u32,
        h: &RequestHeader,
        scratch: &mut Scratch,
    ) -> Result<Input, RpcStatus> {
        let table = TableTag(h.table);
        let row_bytes = self.store.shape(table).ok_or(RpcStatus::UnknownTable)?.row_bytes();
        let keys_bytes = Self::keys(lane, slot, h, &mut scratch.keys)?;
        let total = u64::from(h.key_count) * u64::from(row_bytes);
        let indexed = h.flags & flags::INDEXED != 0;
        let first = if let Some(buffer) = h.remote_buffer() {
            let numbers_bytes = if indexed { h.key_count * 4 } else { 0 };
            if h.payload_bytes != keys_bytes + numbers_bytes || !buffer.address.is_multiple_of(4) {
                return Err(RpcStatus::InvalidPayload);
            }
            if indexed && buffer.bytes.is_multiple_of(row_bytes) {
                Self::numbers(lane, slot, keys_bytes, buffer.bytes / row_bytes, scratch)?;
            } else if indexed || u64::from(buffer.bytes) != total {
                return Err(RpcStatus::ValueSizeMismatch);
            }
            if lane.has_windows() {
                client_rows(lane, buffer, Access::REMOTE_READ, &mut scratch.held)?.cast_const()
            } else {
                Self::rows_from_afar(lane, slot, buffer, h.payload_bytes, scratch)?
            }
        } else {
            let got = u64::from(h.payload_bytes - keys_bytes);
            if got != total {
                let even = h.key_count != 0 && got % (u64::from(h.key_count) * 4) == 0;
                return Err(if even { RpcStatus::ValueSizeMismatch } else { RpcStatus::InvalidPayload });
            }
            lane.request_payload(slot).wrapping_add(keys_bytes as usize)
        };
        Ok(Input { table, rows: RowsIn { first, stride: row_bytes as usize, row_bytes }, indexed })
    }

    /// Blocks of key and row.
    fn blocks<F: Fabric>(
        &self,
        lane: &ServerLane<F>,
        slot: u32,
        h: &RequestHeader,
        scratch: &mut Scratch,
    ) -> Result<Input, RpcStatus> {
        let table = TableTag(h.table);
        let row_bytes = self.store.shape(table).ok_or(RpcStatus::UnknownTable)?.row_bytes();
        let stride = block_bytes(row_bytes);
        if u64::from(h.payload_bytes) != u64::from(h.key_count) * stride as u64 {
            let even = h.key_count != 0
                && h.payload_bytes.is_multiple_of(h.key_count)
                && (h.payload_bytes / h.key_count).is_multiple_of(4);
            return Err(if even { RpcStatus::ValueSizeMismatch } else { RpcStatus::InvalidPayload });
        }
        scratch.keys.clear();
        let payload = lane.request_payload(slot);
        for index in 0..h.key_count as usize {
            // SAFETY: every block lies within the payload, which fits the slot.
            unsafe { copy_keys(payload.add(index * stride), 1, &mut scratch.keys) };
        }
        Ok(Input { table, rows: RowsIn { first: payload.wrapping_add(8), stride, row_bytes }, indexed: false })
    }
}
