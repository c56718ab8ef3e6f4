//! The op-layer entry's reader of environment variables.

use super::bag::Given;
use super::names::{self, Named, shown};
use super::spec::Spec;
use super::table::TABLE;
use crate::error::{Error, Result, Status};
use std::ffi::OsStr;

const OURS: &str = "RECLANE_";
/// Of the names that older systems had, only those with this prefix are ours to judge. `RECSTORE_CONFIG` and its like
/// belong to the host program.
const THEIRS: &str = "RECSTORE_RDMA_";
/// Never options: the project's own tests pass values to their child processes with it.
const TESTS: &str = "RECLANE_TEST_";

/// A variable that means something to us.
struct Candidate {
    /// Row of the table.
    at: usize,
    /// Lower wins: 0 for `RECLANE_<NAME>`, then the row's own list in its order.
    rank: usize,
    variable: String,
    text: String,
}

/// Reads every variable that concerns us; one entry per row of the table.
pub(super) fn read<N, V>(variables: impl IntoIterator<Item = (N, V)>) -> Result<Vec<Option<Given>>>
where
    N: AsRef<OsStr>,
    V: AsRef<OsStr>,
{
    let mut best: Vec<Option<Candidate>> = TABLE.iter().map(|_| None).collect();
    for (name, value) in variables {
        let Some(name) = name.as_ref().to_str() else { continue };
        let Some((at, rank)) = place(name, value.as_ref())? else { continue };
        let text = utf8(name, value.as_ref())?;
        let candidate = Candidate { at, rank, variable: name.to_owned(), text };
        settle(&mut best[at], candidate)?;
    }
    best.into_iter().map(|candidate| candidate.map(parse).transpose()).collect()
}

/// Row and rank of a variable; None for one that is not ours.
fn place(name: &str, value: &OsStr) -> Result<Option<(usize, usize)>> {
    if let Some(short) = name.strip_prefix(OURS) {
        if name.starts_with(TESTS) {
            return Ok(None);
        }
        return match names::find(&short.to_ascii_lowercase()) {
            Some(Named::Option(at)) => Ok(Some((at, 0))),
            Some(Named::Legacy(legacy)) => legacy.check(&utf8(name, value)?, &origin(name)).map(|()| None),
            None => Err(names::unknown("environment variable", OURS, name, Spec::variable)),
        };
    }
    let listed = TABLE.iter().enumerate().find_map(|(at, spec)| {
        let rank = spec.environment.iter().position(|variable| *variable == name)?;
        Some((at, rank + 1))
    });
    if listed.is_some() || !name.starts_with(THEIRS) {
        return Ok(listed);
    }
    let short = name.strip_prefix(THEIRS).unwrap_or(name);
    match names::find(&short.to_ascii_lowercase()) {
        Some(Named::Legacy(legacy)) => legacy.check(&utf8(name, value)?, &origin(name)).map(|()| None),
        Some(Named::Option(at)) => {
            let message = format!("environment variable {name} was never an option; use {}", TABLE[at].variable());
            Err(Error::new(Status::UnknownOption, message))
        }
        None => Err(names::unknown("environment variable", THEIRS, name, Spec::variable)),
    }
}

/// Keeps the candidate of the lower rank. Two of one rank are spellings of one name and must agree.
fn settle(best: &mut Option<Candidate>, candidate: Candidate) -> Result<()> {
    match best {
        Some(old) if old.rank == candidate.rank && old.text != candidate.text => {
            let (old_text, new_text) = (shown(&old.text), shown(&candidate.text));
            let message = format!(
                "environment variables {}={old_text} and {}={new_text} are the same option ({}) and disagree",
                old.variable, candidate.variable, TABLE[old.at].name
            );
            Err(Error::new(Status::OptionConflict, message))
        }
        Some(old) if old.rank <= candidate.rank => Ok(()),
        _ => {
            *best = Some(candidate);
            Ok(())
        }
    }
}

fn parse(candidate: Candidate) -> Result<Given> {
    let origin = origin(&candidate.variable);
    let value = TABLE[candidate.at].parse(&candidate.text, &origin)?;
    Ok(Given { value, origin })
}

fn origin(variable: &str) -> String {
    format!("environment variable {variable}")
}

fn utf8(name: &str, value: &OsStr) -> Result<String> {
    value.to_str().map(str::to_owned).ok_or_else(|| {
        let value = shown(&value.to_string_lossy());
        Error::new(Status::NotUtf8, format!("environment variable {name}: the value {value} is not UTF-8"))
    })
}
