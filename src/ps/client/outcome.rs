//! How a request that has ended did, shard by shard and key by key: what a caller needs who wants to send again only what
//! was not executed.

use super::record::Stage;
use super::token::Named;
use super::words::{no_shard, stale};
use super::{PsClient, Token};
use crate::error::{Error, Outcome, Result, Status};
use crate::fabric::{Fabric, Mutant, mutated};

/// How the keys of one shard did in a request.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct ShardResult {
    /// The shard.
    pub shard: u32,
    /// Of its part that failed first; `Ok` when none did.
    pub status: Status,
    /// Keys of the request that belong to it.
    pub keys: u64,
    /// Those that were executed.
    pub executed: u64,
    /// Those that were certainly not.
    pub not_executed: u64,
}

impl ShardResult {
    pub(super) fn none(shard: u32) -> ShardResult {
        ShardResult { shard, status: Status::Ok, keys: 0, executed: 0, not_executed: 0 }
    }

    pub(super) fn add(&mut self, keys: u64, outcome: Outcome) {
        self.keys += keys;
        match outcome {
            Outcome::Executed => self.executed += keys,
            Outcome::NotExecuted => self.not_executed += keys,
            Outcome::Unknown => {}
        }
    }

    /// Of all its keys together: unknown also when some were executed and some were not.
    #[must_use]
    pub fn outcome(&self) -> Outcome {
        match self.keys {
            keys if keys == self.executed => Outcome::Executed,
            keys if keys == self.not_executed => Outcome::NotExecuted,
            _ => Outcome::Unknown,
        }
    }
}

impl<F: Fabric> PsClient<F> {
    /// How the keys of a shard did in a request that has ended.
    ///
    /// # Errors
    /// `InvalidArgument` when there is no such shard; `WrongState` when the request is under way; `StaleToken`, `Busy`.
    pub fn shard_result(&self, token: Token, shard: u32) -> Result<ShardResult> {
        if shard as usize >= self.channels.len() {
            return Err(no_shard(shard, self.channels.len()));
        }
        if let Some(Named::Batch { index, use_low }) = token.named() {
            return self.with_ended_batch(index, use_low, |batch| batch.shard_result(shard));
        }
        let (at, keys, status, outcome) = self.single_end(token)?;
        let mut result = ShardResult::none(shard);
        if at == shard {
            result.add(keys as u64, outcome);
            result.status = status;
        }
        Ok(result)
    }

    /// How each key did in a request that has ended, in the order of its keys.
    ///
    /// # Errors
    /// `BufferTooSmall` unless there is a place for each key of the request; as [`PsClient::shard_result`].
    pub fn key_outcomes(&self, token: Token, outcomes: &mut [Outcome]) -> Result<()> {
        if let Some(Named::Batch { index, use_low }) = token.named() {
            return self.with_ended_batch(index, use_low, |batch| {
                check_count(batch.key_count(), outcomes.len())?;
                batch.key_outcomes(outcomes);
                Ok(())
            })?;
        }
        let (_, keys, _, outcome) = self.single_end(token)?;
        check_count(keys, outcomes.len())?;
        let mistaken = outcome == Outcome::Unknown && mutated::<F>(Mutant::DoubtCalledUndone);
        outcomes.fill(if mistaken { Outcome::NotExecuted } else { outcome });
        Ok(())
    }

    /// Shard, keys and end of a request that took one slot.
    fn single_end(&self, token: Token) -> Result<(u32, usize, Status, Outcome)> {
        let Some(Named::Single { shard, index, use_low }) = token.named() else {
            return Err(stale(token));
        };
        let (channel, held) = self.enter(shard, index, use_low)?;
        let has_ended = self.single_advance(channel, held, true);
        // SAFETY: this thread has entered the request, so the record is its own until it leaves.
        let record = unsafe { &*channel.record(held) };
        let end = match (&record.error, record.stage) {
            (Some(error), Stage::Failed) => (error.status, error.outcome),
            _ => (Status::Ok, Outcome::Executed),
        };
        let keys = record.keys as usize;
        channel.leave(held);
        if has_ended { Ok((channel.shard(), keys, end.0, end.1)) } else { Err(under_way()) }
    }
}

#[cold]
pub(super) fn under_way() -> Box<Error> {
    Error::new(Status::WrongState, "the request is still under way: wait for its end first")
}

fn check_count(keys: usize, places: usize) -> Result<()> {
    if keys == places {
        return Ok(());
    }
    let message = format!("a request of {keys} keys, and {places} places for their outcomes: give one for each key");
    Err(Error::new(Status::BufferTooSmall, message))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_shard_with_parts_of_both_kinds_is_in_doubt() {
        let mut result = ShardResult::none(3);
        assert_eq!(result.outcome(), Outcome::Executed);
        result.add(4, Outcome::NotExecuted);
        assert_eq!(result.outcome(), Outcome::NotExecuted);
        result.add(2, Outcome::Executed);
        assert_eq!((result.outcome(), result.keys, result.executed), (Outcome::Unknown, 6, 2));
        result.add(1, Outcome::Unknown);
        assert_eq!((result.keys, result.executed, result.not_executed), (7, 2, 4));
    }
}
