//! One event as a value, and as a line.

use core::fmt::{self, Write};
use tracing::Level;
use tracing::field::{Field, Visit};

/// One event.
#[derive(Clone, Debug)]
pub struct EventRecord {
    /// Microseconds since 1970-01-01 UTC.
    pub time_us: u64,
    /// How important it is.
    pub level: Level,
    /// Its name, one of [`events`](super::events).
    pub name: String,
    /// Its fields in the order in which they were given.
    pub fields: Vec<(&'static str, String)>,
}

impl EventRecord {
    pub(super) fn of(event: &tracing::Event<'_>, time_us: u64) -> EventRecord {
        let mut record =
            EventRecord { time_us, level: *event.metadata().level(), name: String::new(), fields: Vec::new() };
        event.record(&mut Collect(&mut record));
        record
    }

    /// The level's word.
    #[must_use]
    pub fn level_word(&self) -> &'static str {
        match self.level {
            Level::ERROR => "error",
            Level::WARN => "warn",
            Level::INFO => "info",
            Level::DEBUG => "debug",
            Level::TRACE => "trace",
        }
    }

    /// `time=<seconds> level=<word> event=<name> <key>=<value> ...`, without a line end. Values with spaces, quotes or
    /// control characters are quoted.
    #[must_use]
    pub fn line(&self) -> String {
        let (seconds, micros) = (self.time_us / 1_000_000, self.time_us % 1_000_000);
        let mut line = format!("time={seconds}.{micros:06} level={}", self.level_word());
        if !self.name.is_empty() {
            push(&mut line, "event", &self.name);
        }
        self.push_fields(&mut line);
        line
    }

    /// `<level> <name> <key>=<value> ...`, for people who see the time elsewhere.
    pub(super) fn words(&self) -> String {
        let mut words = format!("{} {}", self.level_word(), self.name);
        self.push_fields(&mut words);
        words
    }

    fn push_fields(&self, line: &mut String) {
        for (key, value) in &self.fields {
            push(line, key, value);
        }
    }
}

/// Appends ` key=value`.
pub(super) fn push(line: &mut String, key: &str, value: &str) {
    let plain =
        !value.is_empty() && value.chars().all(|c| !c.is_whitespace() && !c.is_control() && c != '"' && c != '=');
    let _ = if plain { write!(line, " {key}={value}") } else { write!(line, " {key}={value:?}") };
}

struct Collect<'a>(&'a mut EventRecord);

impl Collect<'_> {
    fn take(&mut self, field: &Field, value: String) {
        if field.name() == "event" {
            self.0.name = value;
        } else {
            self.0.fields.push((field.name(), value));
        }
    }
}

impl Visit for Collect<'_> {
    fn record_str(&mut self, field: &Field, value: &str) {
        self.take(field, value.to_owned());
    }

    fn record_debug(&mut self, field: &Field, value: &dyn fmt::Debug) {
        self.take(field, format!("{value:?}"));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn record(fields: Vec<(&'static str, String)>) -> EventRecord {
        EventRecord { time_us: 1_700_000_000_000_042, level: Level::WARN, name: "lane_dirty".to_owned(), fields }
    }

    #[test]
    fn a_line_has_time_level_name_and_fields_in_order() {
        let line = record(vec![("shard", "0".to_owned()), ("lane", "3".to_owned())]).line();
        assert_eq!(line, "time=1700000000.000042 level=warn event=lane_dirty shard=0 lane=3");
    }

    #[test]
    fn only_values_that_would_confuse_a_reader_are_quoted() {
        let values = ["plain", "two words", "a\"b", "", "a=b", "line\nend"];
        let line = record(values.iter().map(|value| ("v", (*value).to_owned())).collect()).line();
        assert!(line.ends_with(r#" v=plain v="two words" v="a\"b" v="" v="a=b" v="line\nend""#), "{line}");
    }
}
