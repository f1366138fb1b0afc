//! JSON as Python's `json` writes it: NaN and the infinities keep their values, integers may have any length.
//!
//! A line is read whole, or only as far as one value in it, which costs a part of that. What is not JSON is `None`, never an
//! error: a file that is still being written, or was cut short, ends in such a line.

use carril_types::{Metrics, Value};

/// What Python itself would refuse to read is refused here before the stack runs out.
const DEEPEST: usize = 256;

/// A line that is one object.
pub fn parse_object(text: &str) -> Option<Metrics> {
    let mut reader = Reader::new(text);
    match reader.value(0)? {
        Value::Map(metrics) if reader.is_at_end() => Some(metrics),
        _ => None,
    }
}

/// One value of an object, by its key or, in nested ones, its path `a/b`. What follows it is not looked at.
pub fn find_in_object(text: &str, path: &str) -> Option<Value> {
    Reader::new(text).find(path, 0)
}

struct Reader<'a> {
    text: &'a str,
    at: usize,
}

impl<'a> Reader<'a> {
    fn new(text: &'a str) -> Self {
        Self { text, at: 0 }
    }

    fn peek(&self) -> Option<u8> {
        self.text.as_bytes().get(self.at).copied()
    }

    fn skip_space(&mut self) {
        while matches!(self.peek(), Some(b' ' | b'\t' | b'\n' | b'\r')) {
            self.at += 1;
        }
    }

    fn is_at_end(&mut self) -> bool {
        self.skip_space();
        self.at == self.text.len()
    }

    /// Takes the byte if it comes next.
    fn take(&mut self, byte: u8) -> bool {
        self.skip_space();
        let is_next = self.peek() == Some(byte);
        self.at += usize::from(is_next);
        is_next
    }

    fn word(&mut self, word: &str) -> Option<()> {
        self.text[self.at..].starts_with(word).then(|| self.at += word.len())
    }

    fn value(&mut self, depth: usize) -> Option<Value> {
        self.skip_space();
        match self.peek()? {
            b'{' => self.object(depth).map(Value::Map),
            b'[' => self.list(depth).map(Value::List),
            b'"' => self.string().map(Value::Text),
            b't' => self.word("true").map(|()| Value::Bool(true)),
            b'f' => self.word("false").map(|()| Value::Bool(false)),
            b'n' => self.word("null").map(|()| Value::None),
            b'N' => self.word("NaN").map(|()| Value::Float(f64::NAN)),
            b'I' => self.word("Infinity").map(|()| Value::Float(f64::INFINITY)),
            b'-' if self.word("-Infinity").is_some() => Some(Value::Float(f64::NEG_INFINITY)),
            b'-' | b'0'..=b'9' => number(self.number()),
            _ => None,
        }
    }

    /// Calls `entry` at each value of an object, with its key; it must take the value.
    fn entries(&mut self, depth: usize, mut entry: impl FnMut(&mut Self, String) -> Option<bool>) -> Option<()> {
        if depth > DEEPEST || !self.take(b'{') {
            return None;
        }
        if self.take(b'}') {
            return Some(());
        }
        loop {
            self.skip_space();
            let key = self.string()?;
            if !self.take(b':') {
                return None;
            }
            if !entry(self, key)? {
                return Some(());
            }
            if self.take(b'}') {
                return Some(());
            }
            if !self.take(b',') {
                return None;
            }
        }
    }

    fn object(&mut self, depth: usize) -> Option<Metrics> {
        let mut entries = Vec::new();
        self.entries(depth, |reader, key| {
            entries.push((key, reader.value(depth + 1)?));
            Some(true)
        })?;
        Some(Metrics(entries))
    }

    fn list(&mut self, depth: usize) -> Option<Vec<Value>> {
        let mut items = Vec::new();
        if depth > DEEPEST || !self.take(b'[') {
            return None;
        }
        if self.take(b']') {
            return Some(items);
        }
        loop {
            items.push(self.value(depth + 1)?);
            if self.take(b']') {
                return Some(items);
            }
            if !self.take(b',') {
                return None;
            }
        }
    }

    fn find(&mut self, path: &str, depth: usize) -> Option<Value> {
        let mut found = None;
        self.entries(depth, |reader, key| {
            if key == path {
                found = Some(reader.value(depth + 1)?);
                return Some(false);
            }
            let inner = path.strip_prefix(key.as_str()).and_then(|rest| rest.strip_prefix('/'));
            if let Some(inner) = inner {
                let before = reader.at;
                found = reader.find(inner, depth + 1);
                if found.is_some() {
                    return Some(false);
                }
                reader.at = before;
            }
            reader.skip_value().map(|()| true)
        });
        found
    }

    /// Passes over a value by its brackets and quotes alone.
    fn skip_value(&mut self) -> Option<()> {
        self.skip_space();
        let mut open = 0_usize;
        loop {
            match self.peek()? {
                b'"' => self.skip_string()?,
                b'{' | b'[' => {
                    open += 1;
                    self.at += 1;
                }
                b'}' | b']' | b',' if open == 0 => return Some(()),
                b'}' | b']' => {
                    open -= 1;
                    self.at += 1;
                }
                _ => self.at += 1,
            }
        }
    }

    fn skip_string(&mut self) -> Option<()> {
        self.at += 1;
        loop {
            match self.peek()? {
                b'"' => {
                    self.at += 1;
                    return Some(());
                }
                b'\\' => self.at += 2,
                _ => self.at += 1,
            }
        }
    }

    fn number(&mut self) -> &'a str {
        let start = self.at;
        while matches!(self.peek(), Some(b'0'..=b'9' | b'-' | b'+' | b'.' | b'e' | b'E')) {
            self.at += 1;
        }
        &self.text[start..self.at]
    }

    fn string(&mut self) -> Option<String> {
        if self.peek()? != b'"' {
            return None;
        }
        let start = self.at + 1;
        self.skip_string()?;
        let inside = self.text.get(start..self.at - 1)?;
        if inside.contains('\\') { unescaped(inside) } else { Some(inside.to_owned()) }
    }
}

fn number(text: &str) -> Option<Value> {
    if text.bytes().skip(1).all(|byte| byte.is_ascii_digit()) {
        let integer = text.parse().map(Value::Int);
        return integer.ok().or_else(|| (text.len() > 1).then(|| Value::BigInt(text.to_owned())));
    }
    text.parse().ok().map(Value::Float)
}

fn unescaped(text: &str) -> Option<String> {
    let mut out = String::with_capacity(text.len());
    let mut rest = text;
    while let Some(at) = rest.find('\\') {
        out.push_str(&rest[..at]);
        let escape = *rest.as_bytes().get(at + 1)?;
        rest = &rest[at + 2..];
        match escape {
            b'"' | b'\\' | b'/' => out.push(char::from(escape)),
            b'b' => out.push('\u{8}'),
            b'f' => out.push('\u{c}'),
            b'n' => out.push('\n'),
            b'r' => out.push('\r'),
            b't' => out.push('\t'),
            b'u' => rest = unicode(rest, &mut out)?,
            _ => return None,
        }
    }
    out.push_str(rest);
    Some(out)
}

/// Four hex digits, or twice four for a pair; half a pair, which Python writes too, becomes the replacement character.
fn unicode<'a>(rest: &'a str, out: &mut String) -> Option<&'a str> {
    let unit = |text: &str| u16::from_str_radix(text.get(..4)?, 16).ok();
    let first = unit(rest)?;
    let rest = &rest[4..];
    let second = rest.strip_prefix("\\u").and_then(unit);
    let pair = second.filter(|_| (0xd800..0xdc00).contains(&first));
    let mut decoded = char::decode_utf16([first].into_iter().chain(pair));
    let character = decoded.next()?;
    let is_pair = pair.is_some() && character.is_ok();
    out.push(character.unwrap_or(char::REPLACEMENT_CHARACTER));
    Some(if is_pair { &rest[6..] } else { rest })
}

#[cfg(test)]
mod tests {
    use carril_types::write_json;

    use super::*;

    #[test]
    fn what_is_written_comes_back() {
        let metrics = Metrics(vec![
            ("high".into(), Value::Float(f64::INFINITY)),
            ("low".into(), Value::Float(f64::NEG_INFINITY)),
            ("one".into(), Value::Float(1.0)),
            ("tiny".into(), Value::Float(-1.5e-9)),
            ("big".into(), Value::BigInt("123456789012345678901234567890".into())),
            ("list".into(), Value::List(vec![Value::None, Value::Bool(true), Value::Int(-3), Value::List(vec![])])),
            ("quo\"te".into(), Value::Text("a\nb\u{1}é\\".into())),
            ("map".into(), Value::Map(Metrics(vec![("empty".into(), Value::Map(Metrics::default()))]))),
        ]);
        let mut text = String::new();
        write_json(&mut text, &metrics);
        assert_eq!(parse_object(&text), Some(metrics));
        let nan = parse_object("{\"x\": NaN}").unwrap();
        assert!(matches!(nan.get("x"), Some(Value::Float(number)) if number.is_nan()));
    }

    #[test]
    fn escapes_of_every_kind_are_read() {
        let read = parse_object(r#"{"a": "\u00e9\ud83d\ude00\/\b", "b": "\ud83d!"}"#).unwrap();
        assert_eq!(read.get("a"), Some(&Value::Text("é😀/\u{8}".into())));
        assert_eq!(read.get("b"), Some(&Value::Text("\u{fffd}!".into())));
    }

    #[test]
    fn what_was_cut_short_is_nothing() {
        let whole = r#"{"a": [1, {"b": "x\"y"}], "c": -1e-3, "d": null}"#;
        assert!(parse_object(whole).is_some());
        for end in 0..whole.len() {
            assert_eq!(parse_object(&whole[..end]), None, "{}", &whole[..end]);
        }
        for wrong in ["[1]", "{} {}", "{\"a\": 1,}", "{\"a\" 1}", "{\"a\": -}", "{a: 1}", &"[".repeat(10_000)] {
            assert_eq!(parse_object(wrong), None, "{wrong}");
        }
        assert_eq!(parse_object(&"{\"a\":".repeat(10_000)), None, "too deep is refused, not overflown");
    }

    #[test]
    fn one_value_is_found_flat_or_nested() {
        let text = r#"{"config": {"loss": 9, "text": "}]\""}, "eval": {"loss": 2, "a/b": 3}, "loss": 1, "x/y": 4}"#;
        let metrics = parse_object(text).unwrap();
        for (path, value) in [("loss", 1), ("eval/loss", 2), ("eval/a/b", 3), ("x/y", 4), ("config/loss", 9)] {
            assert_eq!(find_in_object(text, path), Some(Value::Int(value)), "{path}");
            assert_eq!(metrics.find(path), Some(&Value::Int(value)), "{path}");
        }
        for path in ["eval/none", "none", "loss/x", ""] {
            assert_eq!(find_in_object(text, path), None, "{path}");
            assert_eq!(metrics.find(path), None, "{path}");
        }
    }
}
