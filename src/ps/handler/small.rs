//! GETs of one row, several at once: what most of the requests are when many are under way. Each is judged as
//! [`Handler::execute`] judges it, by comparing whole words; what the store, the guard against its panics and the counts
//! cost is paid once for all of them. Whatever is not the rule is left to [`Handler::execute`].

use super::{Handler, Scratch};
use crate::fabric::Fabric;
use crate::ids::TableTag;
use crate::rpc::{READY_MAX, Ready, Scanner};
use crate::wire::{INLINE_BYTES, Op, SmallGet};
use std::panic::{AssertUnwindSafe, catch_unwind};

impl Handler {
    /// Executes and answers the first of `ready` as long as they are GETs of one row of the same table; how many were.
    #[inline]
    pub fn execute_small_gets<F: Fabric>(&self, scanner: &Scanner<F>, ready: &[Ready], scratch: &mut Scratch) -> usize {
        let Some(first) = ready.first().map(Ready::header).filter(|first| first.op == Op::Get as u8) else { return 0 };
        let table = TableTag(first.table);
        let Some(shape) = self.store().shape(table) else { return 0 };
        let row_bytes = shape.row_bytes();
        if row_bytes as usize <= INLINE_BYTES {
            return 0;
        }
        let small = SmallGet::of(table.0, self.shard(), row_bytes);
        let (mut keys, mut outs) = ([0_u64; READY_MAX], [core::ptr::null_mut::<u8>(); READY_MAX]);
        let mut count = 0;
        for ((ready, key), out) in ready.iter().zip(&mut keys).zip(&mut outs) {
            let lane = scanner.lane(ready.lane);
            let fits = row_bytes <= lane.parts().geometry.response_payload_bytes;
            if !small.has(&ready.words) || !lane.is_plain() || !fits {
                break;
            }
            lane.fetch_for_answer(ready.slot, row_bytes);
            *key = SmallGet::key(&ready.words);
            *out = lane.response_payload(ready.slot, row_bytes);
            count += 1;
        }
        if count == 0 {
            return 0;
        }
        let (store, worker) = (self.store(), scratch.worker);
        // SAFETY: each place has room for the row: a slot's answer is its executor's.
        let gather = || unsafe { store.get_each(worker, table, &keys[..count], &outs[..count]) };
        // Whoever fails, or panics, does so again when asked alone, and is told.
        let Ok(Some(stats)) = catch_unwind(AssertUnwindSafe(gather)) else { return 0 };
        let counts = &mut scratch.counts;
        counts.gets += count as u64;
        counts.get_rows += count as u64;
        counts.get_payloads += count as u64;
        counts.get_bytes += count as u64 * u64::from(row_bytes);
        counts.missing_rows += u64::from(stats.missing_rows);
        for ready in &ready[..count] {
            scanner.lane(ready.lane).answer_rows(ready.slot, &ready.words, row_bytes);
        }
        count
    }
}
