//! Options of servers and clients as they stand on a command line.

use reclane::error::{Error, Result, Status};
use reclane::options::Options;

/// The options of `--name=value` words; `--name` alone means `true`.
///
/// # Errors
/// `InvalidArgument` for a word of another form, and what the options refuse.
pub fn options(words: &[String]) -> Result<Options> {
    let mut options = Options::new();
    for word in words {
        let flag = word.strip_prefix("--").or_else(|| word.strip_prefix('-')).filter(|flag| !flag.is_empty());
        let Some(flag) = flag else {
            return Err(Error::new(Status::InvalidArgument, format!("'{word}' is not of the form --name=value")));
        };
        let (name, value) = flag.split_once('=').unwrap_or((flag, "true"));
        options.set(name, value)?;
    }
    Ok(options)
}
