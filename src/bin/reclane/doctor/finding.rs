//! What the doctor found, and how it is told.

use serde_json::{Value, json};
use std::fmt::Write;

/// How bad it is.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum Level {
    /// Nothing to do.
    Ok,
    /// It works, but slower or not for long, or it cannot be known.
    Warning,
    /// What the options ask for cannot run.
    Error,
}

impl Level {
    /// The level's word.
    pub fn word(self) -> &'static str {
        match self {
            Level::Ok => "ok",
            Level::Warning => "warning",
            Level::Error => "error",
        }
    }

    /// The exit code of a report whose worst finding has this level.
    pub fn exit_code(self) -> u8 {
        self as u8
    }
}

/// One finding.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Finding {
    /// Which check it is; stable, for machines.
    pub check: &'static str,
    /// How bad it is.
    pub level: Level,
    /// What was found, with the things' names and values.
    pub found: String,
    /// What that means; empty when it is as it should be.
    pub meaning: String,
    /// The command that mends it; empty when there is nothing to mend.
    pub mend: String,
}

impl Finding {
    /// As it should be.
    pub fn ok(check: &'static str, found: impl Into<String>) -> Finding {
        Finding { check, level: Level::Ok, found: found.into(), meaning: String::new(), mend: String::new() }
    }

    /// It works, but.
    pub fn warning(check: &'static str, found: impl Into<String>) -> Finding {
        Finding { level: Level::Warning, ..Finding::ok(check, found) }
    }

    /// It cannot run.
    pub fn error(check: &'static str, found: impl Into<String>) -> Finding {
        Finding { level: Level::Error, ..Finding::ok(check, found) }
    }

    /// Bad only when it is needed.
    pub fn needed(check: &'static str, needed: bool, found: impl Into<String>) -> Finding {
        if needed { Finding::error(check, found) } else { Finding::ok(check, found) }
    }

    /// What was looked at is not needed by what the options ask for: nothing is wrong.
    pub fn not_needed(mut self) -> Finding {
        self.level = Level::Ok;
        if !self.meaning.is_empty() {
            let mend = core::mem::take(&mut self.mend);
            let mend = if mend.is_empty() { mend } else { format!(" ({mend})") };
            self.meaning = format!("nothing for fabric=shm; for fabric=verbs: {}{mend}", self.meaning);
        }
        self
    }

    /// Says what it means.
    pub fn means(mut self, meaning: impl Into<String>) -> Finding {
        self.meaning = meaning.into();
        self
    }

    /// Says what mends it.
    pub fn mend(mut self, mend: impl Into<String>) -> Finding {
        self.mend = mend.into();
        self
    }
}

/// The worst level.
pub fn worst(findings: &[Finding]) -> Level {
    findings.iter().map(|finding| finding.level).max().unwrap_or(Level::Ok)
}

/// For people.
pub fn as_text(findings: &[Finding]) -> String {
    let mut text = String::new();
    for finding in findings {
        let _ = writeln!(text, "{:<8}{}: {}", finding.level.word(), finding.check, plain(&finding.found));
        if !finding.meaning.is_empty() {
            let _ = writeln!(text, "        means: {}", plain(&finding.meaning));
        }
        if !finding.mend.is_empty() {
            let _ = writeln!(text, "        do:    {}", plain(&finding.mend));
        }
    }
    let count = |level| findings.iter().filter(|finding| finding.level == level).count();
    let (errors, warnings) = (count(Level::Error), count(Level::Warning));
    let _ = writeln!(text, "{} checks, {warnings} warnings, {errors} errors", findings.len());
    text
}

/// What a file or a peer said must not move the reader's cursor.
fn plain(text: &str) -> String {
    text.chars().map(|c| if c.is_control() { char::REPLACEMENT_CHARACTER } else { c }).collect()
}

/// For machines.
pub fn as_json(findings: &[Finding], measured: &Value) -> String {
    let list: Vec<Value> = findings
        .iter()
        .map(|finding| {
            json!({
                "check": finding.check,
                "level": finding.level.word(),
                "found": finding.found,
                "meaning": finding.meaning,
                "mend": finding.mend,
            })
        })
        .collect();
    let worst = worst(findings);
    let object =
        json!({ "worst": worst.word(), "exit_code": worst.exit_code(), "findings": list, "measured": measured });
    format!("{object:#}\n")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_worst_finding_is_the_exit_code() {
        let all = [Finding::ok("a", "x"), Finding::warning("b", "y"), Finding::error("c", "z")];
        assert_eq!([0, 1, 2, 3].map(|count| worst(&all[..count]).exit_code()), [0, 0, 1, 2]);
    }

    #[test]
    fn text_has_one_line_a_statement_whatever_was_read() {
        let finding = Finding::warning("gid", "a\nb\x1b[2J").means("c\rd").mend("e");
        let text = as_text(&[finding]);
        assert_eq!(text.lines().count(), 4);
        assert!(!text.contains('\x1b') && !text.contains('\r'), "{text:?}");
    }
}
