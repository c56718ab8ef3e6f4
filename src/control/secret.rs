//! The secret that all members of a deployment share, when they have one.
//!
//! It is read from a file, so that it stands in no flag, environment or process list, and is shown by nothing: not by
//! messages, events or `Debug`. Who joins must hold it; what a member may do afterwards hangs on its session, whose number
//! nobody else is told or can guess. It travels as it is: who can read the network between members can read it.

use crate::error::{Error, Result, Status};
use core::fmt;
use std::io::Read;

/// What a member shows when it joins again under its name. Incarnations are told to everybody; this is told to the control
/// plane alone.
#[derive(Clone, Copy, Default, PartialEq, Eq)]
pub struct Proof(pub [u8; 16]);

impl fmt::Debug for Proof {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Proof(..)")
    }
}

impl Proof {
    /// A fresh one.
    ///
    /// # Errors
    /// `OsError` when the system gives no random bytes.
    pub fn fresh() -> Result<Proof> {
        random().map(Proof)
    }
}

/// Random bytes.
///
/// # Errors
/// `OsError` when the system gives none.
pub(super) fn random<const N: usize>() -> Result<[u8; N]> {
    let mut bytes = [0; N];
    getrandom::fill(&mut bytes)
        .map_err(|source| Error::new(Status::OsError, format!("the system gives no random bytes: {source}")))?;
    Ok(bytes)
}

/// A shared secret, or none.
#[derive(Clone, Default)]
pub struct Secret(Vec<u8>);

impl Secret {
    /// Shortest secret that is taken.
    pub const BYTES_MIN: usize = 16;
    /// Longest secret that is taken.
    pub const BYTES_MAX: usize = 256;

    /// What a peer sent; None when it is too long to be one.
    #[must_use]
    pub fn received(bytes: Vec<u8>) -> Option<Secret> {
        (bytes.len() <= Secret::BYTES_MAX).then_some(Secret(bytes))
    }

    /// The secret in a file, without white space at its ends; no secret for an empty path.
    ///
    /// # Errors
    /// `OsError` naming the file; `InvalidArgument` when what is in it is too short, too long, or not plain text.
    pub fn read(path: &str) -> Result<Secret> {
        if path.is_empty() {
            return Ok(Secret::default());
        }
        let option = format!("control-plane-token-file={path:?}");
        let failed = |source: std::io::Error| Error::os(&option, &source);
        let refuse = |what: String| Error::new(Status::InvalidArgument, format!("{option}: {what}"));
        // Before it is opened: opening a pipe waits for its other end.
        if !std::fs::metadata(path).map_err(failed)?.is_file() {
            return Err(refuse("this is not a file with a content that stays".to_owned()));
        }
        let mut bytes = Vec::new();
        let file = std::fs::File::open(path).map_err(failed)?;
        file.take(Secret::BYTES_MAX as u64 * 4).read_to_end(&mut bytes).map_err(failed)?;
        let secret = bytes.trim_ascii();
        if !(Secret::BYTES_MIN..=Secret::BYTES_MAX).contains(&secret.len()) {
            let (min, max) = (Secret::BYTES_MIN, Secret::BYTES_MAX);
            return Err(refuse(format!("the token in it has {} bytes; {min} to {max} are taken", secret.len())));
        }
        if !secret.iter().all(u8::is_ascii_graphic) {
            return Err(refuse("the token in it is not one word of printable ASCII".to_owned()));
        }
        Ok(Secret(secret.to_vec()))
    }

    /// Whether there is one.
    #[must_use]
    pub fn is_given(&self) -> bool {
        !self.0.is_empty()
    }

    /// What is sent to the control plane.
    pub(super) fn bytes(&self) -> Vec<u8> {
        self.0.clone()
    }
}

/// Takes the same time wherever two secrets differ.
impl PartialEq for Secret {
    fn eq(&self, other: &Secret) -> bool {
        let differing = self.0.iter().zip(&other.0).fold(0, |seen, (a, b)| seen | (a ^ b));
        self.0.len() == other.0.len() && core::hint::black_box(differing) == 0
    }
}

impl Eq for Secret {}

impl fmt::Debug for Secret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(if self.is_given() { "Secret(not shown)" } else { "Secret(none)" })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECRET: &str = "0123456789abcdef-secret";

    fn read(name: &str, content: &[u8]) -> Result<Secret> {
        let path = std::env::temp_dir().join(format!("reclane-token-{}-{name}", std::process::id()));
        std::fs::write(&path, content).unwrap();
        let secret = Secret::read(path.to_str().unwrap());
        std::fs::remove_file(&path).unwrap();
        secret
    }

    #[test]
    fn a_file_holds_one_word_and_nothing_shows_it() {
        let secret = read("good", format!("  {SECRET}\n").as_bytes()).unwrap();
        assert_eq!(secret.bytes(), SECRET.as_bytes());
        assert!(secret.is_given() && !format!("{secret:?}").contains("secret"));
        assert_eq!(Secret::read("").unwrap(), Secret::default());
    }

    #[test]
    fn what_is_no_token_is_refused_without_being_shown() {
        let long = "s".repeat(Secret::BYTES_MAX + 1);
        let cases: &[(&str, &[u8], &str)] = &[
            ("short", b"secret-secret", "has 13 bytes; 16 to 256"),
            ("empty", b"\n", "has 0 bytes"),
            ("long", long.as_bytes(), "has 257 bytes"),
            ("words", b"secret secret secret", "one word of printable ASCII"),
            ("control", b"secret\x01secret\x01secret", "one word of printable ASCII"),
            ("bytes", &[0xff; 20], "one word of printable ASCII"),
        ];
        for (name, content, expected) in cases {
            let error = read(name, content).unwrap_err();
            assert_eq!(error.status, Status::InvalidArgument);
            assert!(error.message.contains(expected) && !error.message.contains("secret"), "{error}");
        }
        assert_eq!(Secret::read("/dev/null").unwrap_err().status, Status::InvalidArgument);
        assert_eq!(Secret::read("nowhere").unwrap_err().os_error, libc::ENOENT);
    }

    #[test]
    fn secrets_are_equal_in_all_bytes_or_not() {
        let secret = |text: &str| Secret::received(text.as_bytes().to_vec()).unwrap();
        assert_eq!(secret(SECRET), secret(SECRET));
        for other in ["", "0123456789abcdef-secres", "0123456789abcdef-secre", "0123456789abcdef-secret0"] {
            assert_ne!(secret(SECRET), secret(other));
        }
        assert!(Secret::received(vec![0; Secret::BYTES_MAX + 1]).is_none());
    }
}
