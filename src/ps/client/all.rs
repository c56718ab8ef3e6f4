//! What is asked of all shards at once: INIT_TABLE and COMMAND.

use super::{PsClient, Token};
use crate::error::{Error, Outcome, Result, Status};
use crate::fabric::Fabric;
use crate::ids::TableTag;
use crate::wire::payload::{Command, TAG_TAKEN, TableSpec};
use crate::wire::{InlineWords, Op};

/// How many tags are proposed for a table. With thousands of tables the chance that so many in a row are taken is nil.
const PROPOSALS_MAX: u32 = 64;

impl<F: Fabric> PsClient<F> {
    /// Creates a table on all shards, or finds it again: its tag. Shards that lost their tables, or have others, come to
    /// agree with the rest: see [`TableSpec::tag_proposal`].
    ///
    /// # Errors
    /// `InvalidArgument` for a bad spec; `InvalidPayload` when a table of this name exists with another spec;
    /// `DeploymentMismatch` when stores with tags of their own do not agree on one; as [`PsClient::submit`] and
    /// [`PsClient::wait`], naming every shard that failed.
    pub fn init_table(&self, spec: &TableSpec) -> Result<TableTag> {
        if let Some(problem) = spec.problem() {
            return Err(Error::new(Status::InvalidArgument, problem));
        }
        for attempt in 0..PROPOSALS_MAX {
            let blame = |told: &InlineWords| spec.explain(told);
            let answers = self.ask_all(Op::InitTable, &spec.encode_init(spec.tag_proposal(attempt)), blame);
            let tags = all_or_errors(answers).map_err(|mut error| {
                if error.status == Status::InvalidPayload {
                    let before = core::mem::take(&mut error.message);
                    error.message = format!("table '{}' exists with another spec: {before}", spec.name);
                }
                error
            })?;
            if tags.contains(&TAG_TAKEN) {
                continue;
            }
            let tag = agreed(&spec.name, &tags)?;
            self.set_dim(tag, spec.dim);
            return Ok(tag);
        }
        let message = format!(
            "no tag for table '{}': {PROPOSALS_MAX} proposals are other tables' already, so there are too many tables",
            spec.name
        );
        Err(Error::new(Status::ResourceLimit, message))
    }

    /// A word to the stores of all shards, executed by all at the same time.
    ///
    /// # Errors
    /// As [`PsClient::submit`] and [`PsClient::wait`], naming every shard that failed; the others have been asked too.
    pub fn command(&self, command: &Command) -> Result<()> {
        all_or_errors(self.ask_all(Op::Command, &command.encode(), |_| None)).map(|_| ())
    }

    /// Sends the same bytes to every shard, then waits for every answer: the tag, or 0. `blame` has better words for a
    /// request that a shard found malformed, by what it was told.
    fn ask_all(&self, op: Op, bytes: &[u8], blame: impl Fn(&InlineWords) -> Option<String>) -> Vec<Result<u32>> {
        let sent: Vec<Result<Token>> =
            (0..self.channels.len()).map(|shard| self.patiently(|| self.submit_bytes(shard, op, bytes))).collect();
        let end = |token: Token| {
            let outcome = self.wait(token, None);
            let (aux, told) = self.answer_of(token);
            self.revoke(token)?;
            outcome.map(|()| aux).map_err(|mut error| {
                if error.status == Status::InvalidPayload
                    && let Some(words) = blame(&told)
                {
                    error.message = words;
                }
                error
            })
        };
        sent.into_iter().map(|token| token.and_then(end)).collect()
    }
}

/// The one tag that all shards answered.
fn agreed(name: &str, tags: &[u32]) -> Result<TableTag> {
    let first = tags.first().copied().unwrap_or(TAG_TAKEN);
    if tags.iter().any(|tag| *tag != first) {
        let each: Vec<String> = tags.iter().enumerate().map(|(shard, tag)| format!("shard {shard}: {tag}")).collect();
        let message = format!("the shards' stores have different tags for table '{name}': {}", each.join(", "));
        return Err(Error::new(Status::DeploymentMismatch, message));
    }
    u16::try_from(first).map(TableTag).map_err(|_| Error::new(Status::Bug, "a shard answered a tag above 65535"))
}

/// All answers, or one error that names each shard that failed: the first one's, with the words of all.
fn all_or_errors(answers: Vec<Result<u32>>) -> Result<Vec<u32>> {
    let asked = answers.len();
    let mut good = Vec::with_capacity(asked);
    let mut bad: Vec<(usize, Box<Error>)> = Vec::new();
    for (shard, answer) in answers.into_iter().enumerate() {
        match answer {
            Ok(tag) => good.push(tag),
            Err(error) => bad.push((shard, error)),
        }
    }
    if bad.is_empty() {
        return Ok(good);
    }
    let numbers: Vec<String> = bad.iter().map(|(shard, _)| shard.to_string()).collect();
    let words: Vec<String> = bad.iter().map(|(shard, error)| format!("shard {shard}: {}", error.message)).collect();
    let untouched = good.is_empty() && bad.iter().all(|(_, error)| error.outcome == Outcome::NotExecuted);
    let (_, mut error) = bad.swap_remove(0);
    if asked > 1 {
        // The numbers first: a long message is cut at its end.
        error.message =
            format!("failed on {} of {asked} shards ({}): {}", numbers.len(), numbers.join(", "), words.join("; "));
        if !untouched {
            error.outcome = Outcome::Unknown;
        }
    }
    Err(error)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_failed_shard_is_named_and_a_half_done_word_is_not_called_undone() {
        let error = |words: &str, shard| {
            let mut error = Error::new(Status::UnknownTable, words).at_shard(shard);
            error.outcome = Outcome::NotExecuted;
            error
        };
        assert_eq!(all_or_errors(vec![Ok(1), Ok(2)]).expect("both"), [1, 2]);
        let half = all_or_errors(vec![Ok(1), Err(error("north", 1)), Err(error("south", 2))]).expect_err("two failed");
        assert_eq!((half.shard, half.status, half.outcome), (Some(1), Status::UnknownTable, Outcome::Unknown));
        assert_eq!(half.message, "failed on 2 of 3 shards (1, 2): shard 1: north; shard 2: south");
        let none = all_or_errors(vec![Err(error("north", 0)), Err(error("south", 1))]).expect_err("all failed");
        assert_eq!(none.outcome, Outcome::NotExecuted);
        let only = all_or_errors(vec![Err(error("north", 0))]).expect_err("the only one");
        assert_eq!((only.message.as_str(), only.outcome), ("north", Outcome::NotExecuted));
    }

    #[test]
    fn different_tags_are_named_with_their_shards() {
        assert_eq!(agreed("t", &[7, 7]).expect("one tag"), TableTag(7));
        let error = agreed("t", &[7, 8]).expect_err("two tags");
        assert_eq!(error.status, Status::DeploymentMismatch);
        assert!(error.message.contains("'t': shard 0: 7, shard 1: 8"), "{}", error.message);
    }
}
