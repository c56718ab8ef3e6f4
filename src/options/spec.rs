//! One row of the table, and how its values are read.

use super::choices::Side;
use super::names;
use super::value::Value;
use crate::error::{Error, Result, Status};

/// Type and bounds of an option.
#[derive(Clone, Copy, Debug)]
pub enum Kind {
    /// `true` or `false` (also 1/0, yes/no, on/off, t/f, y/n).
    Flag,
    /// A whole number within bounds, both included.
    Number {
        /// Smallest.
        min: u64,
        /// Largest.
        max: u64,
    },
    /// The same, or `auto` (also -1).
    OptionalNumber {
        /// Smallest.
        min: u64,
        /// Largest.
        max: u64,
    },
    /// One of these words.
    Choice(&'static [&'static str]),
    /// Letters, digits and `.` `_` `-`, from `min_bytes` to `max_bytes`.
    Name {
        /// Shortest.
        min_bytes: usize,
        /// Longest.
        max_bytes: usize,
    },
    /// Any text without control characters, up to `max_bytes`.
    Text {
        /// Longest.
        max_bytes: usize,
    },
}

/// One option.
#[derive(Clone, Copy, Debug)]
pub struct Spec {
    /// The name, spelled with dashes. Underscores are accepted alike, and the prefixes `rdma-` and `rdma-rc-` may be
    /// left out or added.
    pub name: &'static str,
    /// Other names.
    pub aliases: &'static [&'static str],
    /// Type and bounds.
    pub kind: Kind,
    /// The value when nobody sets it.
    pub default: &'static str,
    /// Unit of numbers, or empty.
    pub unit: &'static str,
    /// What it does, in Markdown.
    pub meaning: &'static str,
    /// Who looks at it.
    pub side: Side,
    /// Whether both ends must agree on it, because it shapes the layout of memory or the routing of keys.
    pub shapes_layout: bool,
    /// Environment variables beside `RECLANE_<NAME>`, first one first.
    pub environment: &'static [&'static str],
    /// The field of [`Settings`](super::Settings).
    pub field: &'static str,
}

impl Spec {
    pub(super) const fn new(name: &'static str, default: &'static str, kind: Kind) -> Spec {
        Spec {
            name,
            aliases: &[],
            kind,
            default,
            unit: "",
            meaning: "",
            side: Side::Both,
            shapes_layout: false,
            environment: &[],
            field: "",
        }
    }

    pub(super) const fn number(name: &'static str, default: &'static str, min: u64, max: u64) -> Spec {
        Spec::new(name, default, Kind::Number { min, max })
    }

    pub(super) const fn optional(name: &'static str, min: u64, max: u64) -> Spec {
        Spec::new(name, "auto", Kind::OptionalNumber { min, max })
    }

    pub(super) const fn choice(name: &'static str, default: &'static str, words: &'static [&'static str]) -> Spec {
        Spec::new(name, default, Kind::Choice(words))
    }

    /// At most one day, in milliseconds.
    pub(super) const fn milliseconds(name: &'static str, default: &'static str, min: u64) -> Spec {
        Spec::number(name, default, min, 86_400_000).unit("ms")
    }

    pub(super) const fn unit(mut self, unit: &'static str) -> Spec {
        self.unit = unit;
        self
    }

    pub(super) const fn aliases(mut self, aliases: &'static [&'static str]) -> Spec {
        self.aliases = aliases;
        self
    }

    pub(super) const fn server(mut self) -> Spec {
        self.side = Side::Server;
        self
    }

    pub(super) const fn client(mut self) -> Spec {
        self.side = Side::Client;
        self
    }

    pub(super) const fn layout(mut self) -> Spec {
        self.shapes_layout = true;
        self
    }

    pub(super) const fn environment(mut self, variables: &'static [&'static str]) -> Spec {
        self.environment = variables;
        self
    }

    pub(super) const fn documented(mut self, field: &'static str, meaning: &'static str) -> Spec {
        self.field = field;
        self.meaning = meaning.trim_ascii();
        self
    }

    /// Whether every value that this row allows fits a field that holds numbers up to `largest`, or one of `words` words.
    pub(super) const fn fits(&self, largest: u64, words: usize) -> bool {
        match self.kind {
            Kind::Number { min, max } | Kind::OptionalNumber { min, max } => min <= max && max <= largest,
            Kind::Choice(allowed) => allowed.len() == words,
            Kind::Flag | Kind::Name { .. } | Kind::Text { .. } => largest == 0 && words == 0,
        }
    }

    /// The canonical environment variable.
    #[must_use]
    pub fn variable(&self) -> String {
        format!("RECLANE_{}", self.name.replace('-', "_").to_ascii_uppercase())
    }

    /// Type and bounds in words.
    #[must_use]
    pub fn bounds(&self) -> String {
        let unit = if self.unit.is_empty() { String::new() } else { format!(" {}", self.unit) };
        match self.kind {
            Kind::Flag => "true or false".to_owned(),
            Kind::Number { min, max } => format!("a whole number from {min} to {max}{unit}"),
            Kind::OptionalNumber { min, max } => format!("auto, or a whole number from {min} to {max}{unit}"),
            Kind::Choice(words) => format!("one of {}", words.join(", ")),
            Kind::Name { min_bytes, max_bytes } => {
                format!("{min_bytes} to {max_bytes} letters, digits, dots, underscores and dashes")
            }
            Kind::Text { max_bytes } => format!("text of at most {max_bytes} bytes without control characters"),
        }
    }

    /// Reads a value. `origin` says where it came from, for the message.
    pub(super) fn parse(&self, text: &str, origin: &str) -> Result<Value> {
        let refuse = |status| {
            let shown = names::shown(text);
            let bounds = self.bounds();
            Err(Error::new(status, format!("option {} ({origin}): the value {shown} is not {bounds}", self.name)))
        };
        match self.kind {
            Kind::Flag => match text.to_ascii_lowercase().as_str() {
                "true" | "1" | "yes" | "on" | "t" | "y" => Ok(Value::Flag(true)),
                "false" | "0" | "no" | "off" | "f" | "n" => Ok(Value::Flag(false)),
                _ => refuse(Status::OptionType),
            },
            Kind::OptionalNumber { .. } if text == "auto" || text == "-1" => Ok(Value::Auto),
            Kind::Number { min, max } | Kind::OptionalNumber { min, max } => match text.parse::<u64>() {
                Ok(number) if (min..=max).contains(&number) => Ok(Value::Number(number)),
                Ok(_) => refuse(Status::OptionBounds),
                Err(_) if is_whole_number(text) => refuse(Status::OptionBounds),
                Err(_) => refuse(Status::OptionType),
            },
            Kind::Choice(words) => match words.iter().find(|word| names::same_word(word, text)) {
                Some(word) => Ok(Value::Word(word)),
                None => refuse(Status::OptionBounds),
            },
            Kind::Name { min_bytes, max_bytes } => {
                let legal = text.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"._-".contains(&byte));
                let fits = (min_bytes..=max_bytes).contains(&text.len());
                if legal && fits { Ok(Value::Text(text.to_owned())) } else { refuse(Status::OptionBounds) }
            }
            Kind::Text { max_bytes } => {
                let fits = text.len() <= max_bytes && !text.chars().any(char::is_control);
                if fits { Ok(Value::Text(text.to_owned())) } else { refuse(Status::OptionBounds) }
            }
        }
    }
}

/// Whether it is a whole number at all, of either sign and any size: then it is its bounds that are missed.
fn is_whole_number(text: &str) -> bool {
    let digits = text.strip_prefix(['-', '+']).unwrap_or(text);
    !digits.is_empty() && digits.bytes().all(|byte| byte.is_ascii_digit())
}
