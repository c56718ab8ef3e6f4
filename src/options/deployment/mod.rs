//! The deployment contract: one JSON file that says who serves and who asks, and over which RDMA ports.
//!
//! The file is read by every member and trusted by none: [`parse`] bounds its size, depth and count, knows every field,
//! and names for each fault the field's path, its value and its bound. [`Contract::canonical`] is one text for all files
//! that mean the same, and [`Contract::digests`] are what members compare when they join; the options that shape the
//! layout stand beside them in [`Settings::layout`](super::Settings::layout).
//!
//! What the file says counts as if it had been set by name ([`feed`](super::Options::settings_under)).

mod canonical;
mod contract;
pub(super) mod feed;
mod fields;
mod json;
mod rules;
#[cfg(test)]
mod tests;

pub use canonical::Digests;
pub use contract::{Contract, Mode, Node, NodeRole, ServerPlace};
pub use fields::Problem;

use super::names::{self, shown};
use crate::error::{Error, Result, Status};
use std::io::Read;

/// Reads the text of a deployment file.
///
/// # Errors
/// Everything that is wrong with it, in the order of the text, at most [`Problem::SHOWN_MAX`]; never empty.
pub fn parse(text: &str) -> core::result::Result<Contract, Vec<Problem>> {
    match json::parse(text) {
        Ok(document) => contract::build(&document),
        Err(fault) => Err(vec![Problem {
            status: Status::OptionType,
            path: String::new(),
            message: format!("line {}, column {}: {}", fault.line, fault.column, fault.what),
        }]),
    }
}

/// Reads a deployment file and says all that is wrong with it.
///
/// # Errors
/// `OsError` naming the file when it cannot be read.
pub fn read_all(path: &str) -> Result<core::result::Result<Contract, Vec<Problem>>> {
    let refuse = |source| Error::os(format_args!("reading the deployment file {}", shown(path)), &source);
    // Before it is opened: opening a pipe waits for its other end.
    if !std::fs::metadata(path).map_err(refuse)?.is_file() {
        let what = format!("the deployment file {} is not a file with a content that stays", shown(path));
        return Err(Error::new(Status::InvalidArgument, what));
    }
    let mut bytes = Vec::new();
    let file = std::fs::File::open(path).map_err(refuse)?;
    file.take(json::BYTES_MAX as u64 + 1).read_to_end(&mut bytes).map_err(refuse)?;
    let text = String::from_utf8(bytes).map_err(|fault| {
        let at = fault.utf8_error().valid_up_to();
        Error::new(Status::NotUtf8, format!("the deployment file {} is not UTF-8 at byte {at}", shown(path)))
    })?;
    Ok(parse(&text))
}

/// Reads a deployment file.
///
/// # Errors
/// `OsError`, `InvalidArgument` or `NotUtf8` naming the file; else the status of the first thing that is wrong
/// (`OptionType`, `OptionBounds`, `UnknownOption` for a field, `OptionConflict` between fields), naming file, field, value
/// and bound.
pub fn read(path: &str) -> Result<Contract> {
    read_all(path)?.map_err(|problems| {
        let rest = match problems.len() {
            0 | 1 => String::new(),
            more => format!(" (and {} more; `reclane deployment check` lists them)", more - 1),
        };
        match problems.first() {
            Some(first) => Error::new(first.status, format!("deployment file {}: {first}{rest}", shown(path))),
            None => Error::new(Status::Bug, format!("deployment file {}: refused without a reason", shown(path))),
        }
    })
}
