//! A parsed value, and the types that settings have.

/// A value that obeys its option's type and bounds.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Value {
    /// Left to the library.
    Auto,
    /// Yes or no.
    Flag(bool),
    /// A whole number.
    Number(u64),
    /// One of the option's words.
    Word(&'static str),
    /// Free text.
    Text(String),
}

impl core::fmt::Display for Value {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        match self {
            Value::Auto => f.write_str("auto"),
            Value::Flag(on) => write!(f, "{on}"),
            Value::Number(number) => write!(f, "{number}"),
            Value::Word(word) => f.write_str(word),
            Value::Text(text) => f.write_str(text),
        }
    }
}

/// A type that a field of the settings can have. The table's bounds see to it that conversions lose nothing, and a test
/// sees to it that bounds fit the type.
pub trait FromValue {
    /// Largest number that fits; 0 for what is no number.
    const MAX: u64 = 0;
    /// The words, when it is one of a few.
    const WORDS: &'static [&'static str] = &[];

    /// The field's value.
    fn from_value(value: &Value) -> Self;
    /// The way back.
    fn to_value(&self) -> Value;
}

macro_rules! number {
    ($($type:ty),+) => {$(
        impl FromValue for $type {
            const MAX: u64 = <$type>::MAX as u64;

            fn from_value(value: &Value) -> $type {
                match value {
                    Value::Number(number) => <$type>::try_from(*number).unwrap_or(<$type>::MAX),
                    _ => 0,
                }
            }

            fn to_value(&self) -> Value {
                Value::Number(u64::from(*self))
            }
        }
    )+};
}

number!(u16, u32, u64);

impl FromValue for Option<u32> {
    const MAX: u64 = u32::MAX as u64;

    fn from_value(value: &Value) -> Option<u32> {
        match value {
            Value::Number(number) => u32::try_from(*number).ok(),
            _ => None,
        }
    }

    fn to_value(&self) -> Value {
        self.map_or(Value::Auto, |number| Value::Number(u64::from(number)))
    }
}

impl FromValue for bool {
    fn from_value(value: &Value) -> bool {
        *value == Value::Flag(true)
    }

    fn to_value(&self) -> Value {
        Value::Flag(*self)
    }
}

impl FromValue for String {
    fn from_value(value: &Value) -> String {
        match value {
            Value::Text(text) => text.clone(),
            _ => String::new(),
        }
    }

    fn to_value(&self) -> Value {
        Value::Text(self.clone())
    }
}
