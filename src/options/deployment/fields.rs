//! Reading fields of objects, and keeping what is wrong with them.

use super::json::Json;
use super::names::{nearest_word, shown};
use crate::error::Status;
use core::fmt;

/// One thing that is wrong with a deployment file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Problem {
    /// What kind of fault it is.
    pub status: Status,
    /// The field, as `rdma_deployment.nodes[2].port`; empty for the whole document.
    pub path: String,
    /// The value, its bound, and what to do.
    pub message: String,
}

impl Problem {
    /// Reading stops looking for more than so many.
    pub const SHOWN_MAX: usize = 32;
}

impl fmt::Display for Problem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.path.is_empty() { f.write_str(&self.message) } else { write!(f, "{}: {}", self.path, self.message) }
    }
}

/// What is wrong so far.
#[derive(Debug, Default)]
pub(super) struct Problems(pub(super) Vec<Problem>);

impl Problems {
    pub(super) fn add(&mut self, status: Status, path: impl Into<String>, message: impl Into<String>) {
        if self.0.len() < Problem::SHOWN_MAX {
            self.0.push(Problem { status, path: path.into(), message: message.into() });
        }
    }

    pub(super) fn full(&self) -> bool {
        self.0.len() >= Problem::SHOWN_MAX
    }
}

/// An object of the file, with its place.
#[derive(Clone, Copy, Debug)]
pub(super) struct Object<'a> {
    pub(super) path: &'a str,
    fields: &'a [(String, Json)],
}

impl<'a> Object<'a> {
    /// `json` as an object that has no fields but `known` ones.
    pub(super) fn of(path: &'a str, json: &'a Json, known: &[&str], problems: &mut Problems) -> Option<Object<'a>> {
        let Json::Object(fields) = json else {
            problems.add(Status::OptionType, path, format!("this is {}; an object is expected", json.kind()));
            return None;
        };
        let object = Object { path, fields };
        for (name, _) in fields {
            if !known.contains(&name.as_str()) {
                let hint = match nearest_word(name, known) {
                    Some(near) => format!("did you mean {near}?"),
                    None => format!("known here are {}", known.join(", ")),
                };
                problems.add(Status::UnknownOption, object.place(name), format!("this field is unknown; {hint}"));
            }
        }
        Some(object)
    }

    /// The path of a field; a name that could be mistaken for something else is quoted.
    pub(super) fn place(&self, name: &str) -> String {
        let plain = !name.is_empty()
            && name.len() <= 64
            && name.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'_' || byte == b'-');
        let name = if plain { name.to_owned() } else { shown(name) };
        if self.path.is_empty() { name } else { format!("{}.{name}", self.path) }
    }

    /// A field, if it is there.
    pub(super) fn find(&self, name: &str) -> Option<&'a Json> {
        self.fields.iter().find(|(field, _)| field == name).map(|(_, value)| value)
    }

    /// A field that must be there.
    fn need(&self, name: &str, what: &str, problems: &mut Problems) -> Option<&'a Json> {
        let found = self.find(name);
        if found.is_none() {
            problems.add(Status::OptionBounds, self.place(name), format!("this field is missing; it is {what}"));
        }
        found
    }

    fn refuse(&self, name: &str, value: &Json, what: &str, problems: &mut Problems) {
        let (status, value) = match value {
            Json::Number(number) => (Status::OptionBounds, shown(number).trim_matches('"').to_owned()),
            Json::Text(text) => (Status::OptionBounds, shown(text)),
            other => (Status::OptionType, other.kind().to_owned()),
        };
        problems.add(status, self.place(name), format!("{value} is not {what}"));
    }

    /// A whole number within bounds.
    pub(super) fn number(&self, name: &str, min: u64, max: u64, problems: &mut Problems) -> Option<u64> {
        let what = if min == max { format!("{min}") } else { format!("a whole number from {min} to {max}") };
        let value = self.need(name, &what, problems)?;
        if let Json::Number(text) = value
            && let Ok(number) = text.parse::<u64>()
            && (min..=max).contains(&number)
        {
            return Some(number);
        }
        self.refuse(name, value, &what, problems);
        None
    }

    /// The same for what fits 32 bits.
    pub(super) fn small(&self, name: &str, min: u32, max: u32, problems: &mut Problems) -> Option<u32> {
        self.number(name, min.into(), max.into(), problems).and_then(|number| u32::try_from(number).ok())
    }

    /// The same, if it is there.
    pub(super) fn optional(&self, name: &str, min: u32, max: u32, problems: &mut Problems) -> Option<u32> {
        self.find(name).and_then(|_| self.small(name, min, max, problems))
    }

    /// A number from 0 to `max`, or -1 for none of them.
    pub(super) fn index(&self, name: &str, max: u32, problems: &mut Problems) -> Option<Option<u32>> {
        let what = format!("a whole number from 0 to {max}, or -1: found by type and subnet");
        let value = self.need(name, &what, problems)?;
        match value {
            Json::Number(text) if text == "-1" => return Some(None),
            Json::Number(text) => {
                if let Ok(number) = text.parse::<u32>()
                    && number <= max
                {
                    return Some(Some(number));
                }
            }
            _ => {}
        }
        self.refuse(name, value, &what, problems);
        None
    }

    /// A text that `check` takes; `what` says which those are.
    pub(super) fn text(
        &self,
        name: &str,
        what: &str,
        check: impl Fn(&str) -> bool,
        problems: &mut Problems,
    ) -> Option<&'a str> {
        let value = self.need(name, what, problems)?;
        if let Json::Text(text) = value
            && check(text)
        {
            return Some(text);
        }
        self.refuse(name, value, what, problems);
        None
    }

    /// One of a few words.
    pub(super) fn word(&self, name: &str, words: &[&'static str], problems: &mut Problems) -> Option<&'static str> {
        let what = format!("one of {}", words.join(", "));
        let text = self.text(name, &what, |text| words.contains(&text), problems)?;
        words.iter().copied().find(|word| *word == text)
    }

    /// A list.
    pub(super) fn list(&self, name: &str, problems: &mut Problems) -> Option<&'a [Json]> {
        let value = self.need(name, "a list", problems)?;
        if let Json::List(items) = value {
            return Some(items);
        }
        self.refuse(name, value, "a list", problems);
        None
    }
}
