//! Putting a request together: its header, and what goes into its payload.

use super::Plan;
use super::request::{Local, Source};
use crate::wire::{INLINE_BYTES, Op, RemoteBuffer, RequestHeader, Word, flags};

/// A header of which the rest is still to be said.
#[inline(always)]
pub(super) fn blank(op: Op, table: u16, keys: usize) -> RequestHeader {
    RequestHeader {
        op: op as u8,
        flags: 0,
        table,
        #[allow(clippy::cast_possible_truncation)] // a part fits a slot
        key_count: keys as u32,
        sequence: 0,
        payload_bytes: 0,
        checksum: 0,
        response_bytes: 0,
        shard: 0,
        reserved: 0,
        inline: [0; INLINE_BYTES / 8],
        commit: Word::ZERO,
    }
}

/// Puts the keys into header or payload; returns the payload bytes they take.
///
/// # Safety
/// `payload` has room for the keys.
#[inline(always)]
pub(super) unsafe fn place_keys(header: &mut RequestHeader, keys: &[u64], payload: *mut u8) -> usize {
    if RequestHeader::keys_are_inline(header.flags, header.key_count) {
        header.set_inline_keys(keys);
        return 0;
    }
    if cfg!(target_endian = "little") {
        // SAFETY: as the caller vouches.
        unsafe { core::ptr::copy_nonoverlapping(keys.as_ptr().cast::<u8>(), payload, size_of_val(keys)) };
    } else {
        for (index, key) in keys.iter().enumerate() {
            // SAFETY: as above.
            unsafe { payload.add(index * 8).cast::<u64>().write_unaligned(key.to_le()) };
        }
    }
    size_of_val(keys)
}

/// Keys and rows into header and payload; returns the payload bytes. Row `i` of the part is row `positions[i]` of the
/// source, or row `i` without positions.
///
/// # Safety
/// `payload` has room for the part; the source has the rows.
#[inline(always)]
pub(super) unsafe fn place_rows(
    header: &mut RequestHeader,
    plan: &Plan<'_>,
    source: Source,
    positions: Option<&[u32]>,
    payload: *mut u8,
) -> usize {
    match source {
        // The frequent case: one matrix behind the keys.
        Source::Local(Local::Dense(first)) if positions.is_none() && plan.op != Op::Update => {
            let rows_bytes = plan.keys.len() * plan.row_bytes;
            // SAFETY: as the caller vouches.
            unsafe {
                let keys_bytes = place_keys(header, plan.keys, payload);
                core::ptr::copy_nonoverlapping(first, payload.add(keys_bytes), rows_bytes);
                keys_bytes + rows_bytes
            }
        }
        // SAFETY: as the caller vouches: a number takes no more than a row.
        Source::Named(whole) => unsafe { name_rows(header, plan, whole, positions, payload) },
        // SAFETY: as the caller vouches.
        Source::Local(rows) => unsafe { fill_rows(header, plan, rows, positions, payload) },
    }
}

/// Keys and the place of the rows, which the server reads: where they follow each other the place is all it needs, else
/// their numbers within the whole follow the keys.
///
/// # Safety
/// `payload` has room for a key and a number for each row.
#[inline(never)]
unsafe fn name_rows(
    header: &mut RequestHeader,
    plan: &Plan<'_>,
    whole: RemoteBuffer,
    positions: Option<&[u32]>,
    payload: *mut u8,
) -> usize {
    let positions = positions.unwrap_or(&[]);
    let first = positions.first().copied().unwrap_or(0);
    let in_order = positions.iter().zip(first..).all(|(position, next)| *position == next);
    if in_order {
        #[allow(clippy::cast_possible_truncation)] // no more than the whole, which is a u32
        let bytes = (plan.keys.len() * plan.row_bytes) as u32;
        let address = whole.address + u64::from(first) * plan.row_bytes as u64;
        header.set_remote_buffer(RemoteBuffer { address, rkey: whole.rkey, bytes });
        // SAFETY: as the caller vouches.
        return unsafe { place_keys(header, plan.keys, payload) };
    }
    header.set_remote_buffer(whole);
    header.flags |= flags::INDEXED;
    // SAFETY: as the caller vouches.
    unsafe {
        let keys_bytes = place_keys(header, plan.keys, payload);
        let numbers = payload.add(keys_bytes).cast::<u32>();
        for (index, position) in positions.iter().enumerate() {
            numbers.add(index).write_unaligned(position.to_le());
        }
        keys_bytes + size_of_val(positions)
    }
}

/// As [`place_rows`], with the rows themselves.
///
/// # Safety
/// As there.
#[inline(never)]
unsafe fn fill_rows(
    header: &mut RequestHeader,
    plan: &Plan<'_>,
    source: Local,
    positions: Option<&[u32]>,
    payload: *mut u8,
) -> usize {
    let row_bytes = plan.row_bytes;
    let row_of = |index: usize| positions.map_or(index, |p| p[index] as usize);
    // SAFETY: as the caller vouches: the payload has room for keys and rows, in either arrangement.
    unsafe {
        if plan.op == Op::Update {
            for (index, key) in plan.keys.iter().enumerate() {
                let block = payload.add(index * (8 + row_bytes));
                block.cast::<u64>().write_unaligned(key.to_le());
                source.copy_row(row_of(index), row_bytes, block.add(8));
            }
            return plan.keys.len() * (8 + row_bytes);
        }
        let keys_bytes = place_keys(header, plan.keys, payload);
        let matrix = payload.add(keys_bytes);
        for index in 0..plan.keys.len() {
            source.copy_row(row_of(index), row_bytes, matrix.add(index * row_bytes));
        }
        keys_bytes + plan.keys.len() * row_bytes
    }
}
