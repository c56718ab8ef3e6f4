//! A reader of JSON for files that nobody vouches for: bounded in size, depth and count, with the place of a fault, and
//! without a second meaning for a name that stands twice.

/// Most bytes of a document: the largest deployment there can be, with room.
pub(super) const BYTES_MAX: usize = 16 << 20;
/// Most lists and objects inside each other.
pub(super) const DEPTH_MAX: usize = 32;
/// Most values of a document.
pub(super) const VALUES_MAX: usize = 1 << 20;

/// A value.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum Json {
    Null,
    Bool(bool),
    /// As it is written: no number is rounded.
    Number(String),
    Text(String),
    List(Vec<Json>),
    /// In the order of the document; each name once.
    Object(Vec<(String, Json)>),
}

impl Json {
    /// What kind of value it is, for messages.
    pub(super) fn kind(&self) -> &'static str {
        match self {
            Json::Null => "null",
            Json::Bool(_) => "a truth value",
            Json::Number(_) => "a number",
            Json::Text(_) => "a text",
            Json::List(_) => "a list",
            Json::Object(_) => "an object",
        }
    }
}

/// Where a document stops being JSON, and why.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Fault {
    /// From 1.
    pub line: usize,
    /// In bytes, from 1.
    pub column: usize,
    pub what: String,
}

/// Reads a whole document.
pub(super) fn parse(text: &str) -> Result<Json, Fault> {
    let mut reader = Reader { bytes: text.as_bytes(), text, at: 0, depth: 0, values: 0 };
    let document = if text.len() > BYTES_MAX {
        Err(format!("the document has {} bytes; at most {BYTES_MAX} are read", text.len()))
    } else {
        reader.document()
    };
    document.map_err(|what| {
        let before = &reader.bytes[..reader.at.min(reader.bytes.len())];
        let line = before.iter().filter(|byte| **byte == b'\n').count() + 1;
        let column = before.iter().rev().take_while(|byte| **byte != b'\n').count() + 1;
        Fault { line, column, what }
    })
}

struct Reader<'a> {
    bytes: &'a [u8],
    text: &'a str,
    at: usize,
    depth: usize,
    values: usize,
}

type Read<T> = Result<T, String>;

impl Reader<'_> {
    fn document(&mut self) -> Read<Json> {
        let value = self.value()?;
        self.space();
        if self.at < self.bytes.len() { Err("there is more behind the document's end".to_owned()) } else { Ok(value) }
    }

    fn space(&mut self) {
        while matches!(self.peek(), Some(b' ' | b'\t' | b'\n' | b'\r')) {
            self.at += 1;
        }
    }

    fn peek(&self) -> Option<u8> {
        self.bytes.get(self.at).copied()
    }

    fn expect(&mut self, byte: u8, after: &str) -> Read<()> {
        self.space();
        if self.peek() == Some(byte) {
            self.at += 1;
            return Ok(());
        }
        Err(format!("'{}' is missing {after}", char::from(byte)))
    }

    fn value(&mut self) -> Read<Json> {
        self.space();
        self.values += 1;
        if self.values > VALUES_MAX {
            return Err(format!("the document has more than {VALUES_MAX} values"));
        }
        match self.peek() {
            Some(b'{') => self.nested(Reader::object),
            Some(b'[') => self.nested(Reader::list),
            Some(b'"') => self.string().map(Json::Text),
            Some(b'-' | b'0'..=b'9') => self.number(),
            Some(b't') => self.word("true", Json::Bool(true)),
            Some(b'f') => self.word("false", Json::Bool(false)),
            Some(b'n') => self.word("null", Json::Null),
            Some(_) => Err("a value is expected here".to_owned()),
            None => Err("the document ends too early".to_owned()),
        }
    }

    fn nested(&mut self, inside: fn(&mut Self) -> Read<Json>) -> Read<Json> {
        if self.depth == DEPTH_MAX {
            return Err(format!("more than {DEPTH_MAX} lists and objects lie inside each other"));
        }
        self.depth += 1;
        self.at += 1;
        let value = inside(self);
        self.depth -= 1;
        value
    }

    fn object(&mut self) -> Read<Json> {
        let mut fields: Vec<(String, Json)> = Vec::new();
        let mut seen = std::collections::HashSet::new();
        self.space();
        if self.peek() == Some(b'}') {
            self.at += 1;
            return Ok(Json::Object(fields));
        }
        loop {
            self.space();
            if self.peek() != Some(b'"') {
                return Err("a field's name in double quotes is expected here".to_owned());
            }
            let name = self.string()?;
            if !seen.insert(name.clone()) {
                return Err(format!("the field {} stands twice in one object", super::names::shown(&name)));
            }
            self.expect(b':', "after a field's name")?;
            let value = self.value()?;
            fields.push((name, value));
            self.space();
            match self.peek() {
                Some(b',') => self.at += 1,
                _ => return self.expect(b'}', "at the end of an object").map(|()| Json::Object(fields)),
            }
        }
    }

    fn list(&mut self) -> Read<Json> {
        let mut items = Vec::new();
        self.space();
        if self.peek() == Some(b']') {
            self.at += 1;
            return Ok(Json::List(items));
        }
        loop {
            items.push(self.value()?);
            self.space();
            match self.peek() {
                Some(b',') => self.at += 1,
                _ => return self.expect(b']', "at the end of a list").map(|()| Json::List(items)),
            }
        }
    }

    fn word(&mut self, word: &str, value: Json) -> Read<Json> {
        if self.bytes[self.at..].starts_with(word.as_bytes()) {
            self.at += word.len();
            return Ok(value);
        }
        Err("a value is expected here".to_owned())
    }

    fn digits(&mut self) -> usize {
        let from = self.at;
        while matches!(self.peek(), Some(b'0'..=b'9')) {
            self.at += 1;
        }
        self.at - from
    }

    fn number(&mut self) -> Read<Json> {
        let from = self.at;
        if self.peek() == Some(b'-') {
            self.at += 1;
        }
        let leads_with_zero = self.peek() == Some(b'0');
        let whole = self.digits();
        if whole == 0 || (leads_with_zero && whole > 1) {
            return Err("this is no number as JSON writes them".to_owned());
        }
        if self.peek() == Some(b'.') {
            self.at += 1;
            if self.digits() == 0 {
                return Err("digits are missing after the decimal point".to_owned());
            }
        }
        if matches!(self.peek(), Some(b'e' | b'E')) {
            self.at += 1;
            if matches!(self.peek(), Some(b'+' | b'-')) {
                self.at += 1;
            }
            if self.digits() == 0 {
                return Err("digits are missing after the exponent".to_owned());
            }
        }
        Ok(Json::Number(self.text[from..self.at].to_owned()))
    }

    /// At a double quote.
    fn string(&mut self) -> Read<String> {
        self.at += 1;
        let mut text = String::new();
        let mut from = self.at;
        loop {
            match self.peek() {
                None => return Err("a text has no end".to_owned()),
                Some(b'"') => {
                    text.push_str(&self.text[from..self.at]);
                    self.at += 1;
                    return Ok(text);
                }
                Some(b'\\') => {
                    text.push_str(&self.text[from..self.at]);
                    self.at += 1;
                    text.push(self.escape()?);
                    from = self.at;
                }
                Some(0..=0x1f) => return Err("a control character stands in a text; write it as \\u00..".to_owned()),
                Some(_) => self.at += 1,
            }
        }
    }

    /// Behind a backslash.
    fn escape(&mut self) -> Read<char> {
        let byte = self.peek().ok_or("a text has no end")?;
        self.at += 1;
        Ok(match byte {
            b'"' | b'\\' | b'/' => char::from(byte),
            b'b' => '\u{8}',
            b'f' => '\u{c}',
            b'n' => '\n',
            b'r' => '\r',
            b't' => '\t',
            b'u' => return self.unicode(),
            _ => return Err(format!("'\\{}' means nothing in a text", byte.escape_ascii())),
        })
    }

    fn unicode(&mut self) -> Read<char> {
        let first = self.hex()?;
        let code = if (0xd800..0xdc00).contains(&first) && self.bytes[self.at..].starts_with(b"\\u") {
            self.at += 2;
            let second = self.hex()?;
            if !(0xdc00..0xe000).contains(&second) {
                return Err("the second half of a surrogate pair is missing".to_owned());
            }
            0x10000 + ((first - 0xd800) << 10) + (second - 0xdc00)
        } else {
            first
        };
        char::from_u32(code).ok_or_else(|| "half of a surrogate pair stands alone".to_owned())
    }

    fn hex(&mut self) -> Read<u32> {
        let four = self.bytes.get(self.at..self.at + 4).filter(|four| four.iter().all(u8::is_ascii_hexdigit));
        let digits = four.and_then(|four| core::str::from_utf8(four).ok());
        let code = digits.and_then(|digits| u32::from_str_radix(digits, 16).ok());
        self.at += if code.is_some() { 4 } else { 0 };
        code.ok_or_else(|| "four hexadecimal digits are expected after \\u".to_owned())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn fault(text: &str) -> String {
        let fault = parse(text).unwrap_err();
        format!("{}:{}: {}", fault.line, fault.column, fault.what)
    }

    #[test]
    fn faults_have_a_place_and_a_reason() {
        for (text, expected) in [
            ("", "1:1: the document ends too early"),
            ("{\"a\": 1,\n \"a\": 2}", "2:5: the field \"a\" stands twice in one object"),
            ("{\"a\" 1}", "1:6: ':' is missing after a field's name"),
            ("{a: 1}", "1:2: a field's name in double quotes is expected here"),
            ("[1 2]", "1:4: ']' is missing at the end of a list"),
            ("{\"a\": 1", "1:8: '}' is missing at the end of an object"),
            ("[1,]", "1:4: a value is expected here"),
            ("[01]", "1:4: this is no number as JSON writes them"),
            ("[1.]", "1:4: digits are missing after the decimal point"),
            ("[1e]", "1:4: digits are missing after the exponent"),
            ("\"a", "1:3: a text has no end"),
            ("\"a\nb\"", "1:3: a control character stands in a text; write it as \\u00.."),
            ("\"\\x\"", "1:4: '\\x' means nothing in a text"),
            ("\"\\ud800\"", "1:8: half of a surrogate pair stands alone"),
            ("\"\\ud800\\u0041\"", "1:14: the second half of a surrogate pair is missing"),
            ("\"\\u12g4\"", "1:4: four hexadecimal digits are expected after \\u"),
            ("{} x", "1:4: there is more behind the document's end"),
            ("nul", "1:1: a value is expected here"),
        ] {
            assert_eq!(fault(text), expected, "{text}");
        }
    }

    #[test]
    fn size_depth_and_count_are_bounded() {
        let nested = |depth: usize| format!("{}{}", "[".repeat(depth), "]".repeat(depth));
        parse(&nested(DEPTH_MAX)).unwrap();
        assert!(fault(&nested(DEPTH_MAX + 1)).contains("more than 32 lists and objects"));
        assert!(fault(&"[".repeat(1 << 20)).contains("more than 32 lists and objects"));
        let many = |count: usize| format!("[{}0]", "0,".repeat(count - 2));
        parse(&many(VALUES_MAX)).unwrap();
        assert!(fault(&many(VALUES_MAX + 1)).contains("more than 1048576 values"));
        assert!(fault(&" ".repeat(BYTES_MAX + 1)).contains("at most 16777216 are read"));
    }

    /// The same document as another reader of JSON sees it; None where the two differ by intent.
    fn same(ours: &Json, theirs: &serde_json::Value) -> bool {
        match (ours, theirs) {
            (Json::Null, serde_json::Value::Null) => true,
            (Json::Bool(a), serde_json::Value::Bool(b)) => a == b,
            (Json::Number(a), serde_json::Value::Number(b)) => a.parse::<f64>().ok() == b.as_f64(),
            (Json::Text(a), serde_json::Value::String(b)) => a == b,
            (Json::List(a), serde_json::Value::Array(b)) => {
                a.len() == b.len() && a.iter().zip(b).all(|(a, b)| same(a, b))
            }
            (Json::Object(a), serde_json::Value::Object(b)) => {
                a.len() == b.len() && a.iter().all(|(name, a)| b.get(name).is_some_and(|b| same(a, b)))
            }
            _ => false,
        }
    }

    fn document() -> impl Strategy<Value = serde_json::Value> {
        let leaf = prop_oneof![
            Just(serde_json::Value::Null),
            any::<bool>().prop_map(serde_json::Value::from),
            any::<i64>().prop_map(serde_json::Value::from),
            any::<String>().prop_map(serde_json::Value::from),
        ];
        leaf.prop_recursive(5, 64, 8, |inner| {
            prop_oneof![
                proptest::collection::vec(inner.clone(), 0..8).prop_map(serde_json::Value::from),
                proptest::collection::btree_map(any::<String>(), inner, 0..8)
                    .prop_map(|map| serde_json::Value::Object(map.into_iter().collect())),
            ]
        })
    }

    proptest! {
        #[test]
        fn what_another_writer_writes_is_read_alike(value in document(), pretty in any::<bool>()) {
            let text = if pretty { format!("{value:#}") } else { value.to_string() };
            prop_assert!(same(&parse(&text).unwrap(), &value), "{text}");
        }

        #[test]
        fn what_another_reader_refuses_is_refused(text in "[\\[\\]{}\",:0-9.eE+\\-a-z\\\\ ]{0,24}") {
            if let Ok(ours) = parse(&text) {
                match serde_json::from_str::<serde_json::Value>(&text) {
                    Ok(theirs) => prop_assert!(same(&ours, &theirs), "{text}"),
                    // A number beyond an f64: ours are kept as text.
                    Err(error) => prop_assert!(error.to_string().contains("number out of range"), "{text}: {error}"),
                }
            }
        }

        #[test]
        fn any_text_is_read_or_refused_within_it(text in "\\PC{0,64}") {
            if let Err(fault) = parse(&text) {
                prop_assert!(fault.line >= 1 && fault.column <= text.len() + 1);
            }
        }
    }
}
