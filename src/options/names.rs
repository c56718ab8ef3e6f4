//! Spelling: which names mean the same, and which one was probably meant.

use super::legacy::{LEGACY, Legacy};
use super::spec::Spec;
use super::table::TABLE;
use crate::error::{Error, Result, Status};

/// What a name stands for.
pub(super) enum Named {
    /// The option at this place of the table.
    Option(usize),
    /// An option of the past.
    Legacy(&'static Legacy),
}

/// The part of a name that counts: dashes, no transport prefix.
fn base(name: &str) -> String {
    let dashed = name.replace('_', "-");
    let short = dashed.strip_prefix("rdma-").unwrap_or(&dashed);
    short.strip_prefix("rc-").unwrap_or(short).to_owned()
}

/// Whether two names differ only in dashes and prefixes.
pub(super) fn is_spelling(a: &str, b: &str) -> bool {
    base(a) == base(b)
}

/// Every spelling that a row answers to, without prefixes.
pub(super) fn spellings(spec: &Spec) -> Vec<String> {
    let mut all: Vec<String> = vec![base(spec.name), base(spec.field)];
    all.extend(spec.aliases.iter().map(|alias| base(alias)));
    all.sort();
    all.dedup();
    all
}

fn answers_to(spec: &Spec, wanted: &str) -> bool {
    base(spec.name) == wanted || base(spec.field) == wanted || spec.aliases.iter().any(|alias| base(alias) == wanted)
}

/// Looks a name up.
pub(super) fn find(name: &str) -> Option<Named> {
    let wanted = base(name);
    if let Some(at) = TABLE.iter().position(|spec| answers_to(spec, &wanted)) {
        return Some(Named::Option(at));
    }
    LEGACY.iter().find(|legacy| base(legacy.name) == wanted).map(Named::Legacy)
}

/// The row of a name in any spelling, also of its flag and of its `RECLANE_` variable.
///
/// # Errors
/// `UnknownOption` with the nearest name; `Unsupported` for a name of the past, with what took its place.
pub fn look_up(name: &str) -> Result<&'static Spec> {
    let plain = name.to_ascii_lowercase();
    let plain = plain.trim_start_matches('-');
    let plain = plain.strip_prefix("reclane_").unwrap_or(plain);
    match find(plain) {
        Some(Named::Option(at)) => Ok(&TABLE[at]),
        Some(Named::Legacy(legacy)) => {
            let message = format!("option {} has no meaning any more: {}", legacy.name, legacy.reason);
            Err(Error::new(Status::Unsupported, message))
        }
        None => match TABLE.iter().find(|spec| spec.environment.iter().any(|known| known.eq_ignore_ascii_case(name))) {
            Some(spec) => Ok(spec),
            None => Err(unknown("option", "", plain, |spec| spec.name.to_owned())),
        },
    }
}

/// The refusal of a name that nobody knows, with the nearest one if there is one near. `prefix` is the part of the name
/// that says nothing about which option was meant.
pub(super) fn unknown(what: &str, prefix: &str, name: &str, spell: fn(&Spec) -> String) -> Box<Error> {
    let wanted = base(&name.strip_prefix(prefix).unwrap_or(name).to_ascii_lowercase());
    let mut message = format!("{what} {} is unknown", shown(name));
    if let Some(spec) = nearest(&wanted) {
        message.push_str("; did you mean ");
        message.push_str(&spell(spec));
        message.push('?');
    } else {
        message.push_str("; `reclane options` lists all");
    }
    Error::new(Status::UnknownOption, message)
}

/// The word of a list that was probably meant.
pub(super) fn nearest_word<'a>(wanted: &str, words: &[&'a str]) -> Option<&'a str> {
    if wanted.len() > 64 {
        return None;
    }
    let plain = wanted.to_ascii_lowercase();
    let distances = words.iter().map(|word| (edits(word, &plain), *word));
    distances.min().filter(|(distance, _)| *distance <= 1 + wanted.len() / 5).map(|(_, word)| word)
}

fn nearest(wanted: &str) -> Option<&'static Spec> {
    if wanted.len() > 64 {
        return None;
    }
    let close_enough = 1 + wanted.len() / 5;
    let distance = |spec: &Spec| spellings(spec).iter().map(|name| edits(name, wanted)).min().unwrap_or(usize::MAX);
    TABLE
        .iter()
        .map(|spec| (distance(spec), spec))
        .min_by_key(|(distance, _)| *distance)
        .filter(|(distance, _)| *distance <= close_enough)
        .map(|(_, spec)| spec)
}

/// Levenshtein distance.
fn edits(a: &str, b: &str) -> usize {
    let b: Vec<char> = b.chars().collect();
    let mut row: Vec<usize> = (0..=b.len()).collect();
    for (i, from) in a.chars().enumerate() {
        let mut diagonal = row[0];
        row[0] = i + 1;
        for (j, to) in b.iter().enumerate() {
            let replaced = diagonal + usize::from(from != *to);
            diagonal = row[j + 1];
            row[j + 1] = replaced.min(row[j] + 1).min(diagonal + 1);
        }
    }
    row[b.len()]
}

/// Words are the same with dashes or underscores, in any case.
pub(super) fn same_word(word: &str, text: &str) -> bool {
    word.len() == text.len()
        && word.bytes().zip(text.bytes()).all(|(a, b)| {
            let plain = |byte: u8| if byte == b'-' { b'_' } else { byte.to_ascii_lowercase() };
            plain(a) == plain(b)
        })
}

/// A foreign text fit for a message: quoted, escaped, cut.
pub(super) fn shown(text: &str) -> String {
    const LONGEST_CHARS: usize = 80;
    let mut short: String = text.chars().take(LONGEST_CHARS).collect();
    if short.len() < text.len() {
        short.push('…');
    }
    format!("{short:?}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn edits_counts_single_changes() {
        assert_eq!(edits("slots", "slots"), 0);
        assert_eq!(edits("slots", "slts"), 1);
        assert_eq!(edits("", "abc"), 3);
        assert_eq!(edits("kitten", "sitting"), 3);
    }

    #[test]
    fn a_name_has_one_meaning() {
        let mut seen = std::collections::HashMap::new();
        for spec in TABLE {
            for spelling in spellings(spec) {
                assert_eq!(seen.insert(spelling.clone(), spec.name), None, "{spelling} of {} is taken", spec.name);
            }
        }
        for legacy in LEGACY {
            let spelling = base(legacy.name);
            assert_eq!(seen.insert(spelling, legacy.name), None, "{} is taken", legacy.name);
        }
    }

    #[test]
    fn foreign_text_is_cut_and_escaped() {
        assert_eq!(shown("a\nb"), "\"a\\nb\"");
        assert!(shown(&"x".repeat(1000)).len() < 100);
    }
}
