//! The records of a text, one after the other, and what must be changed in it before Arrow's decoder reads it.

use memchr::memmem;
use serde_json::Value;

/// The records from the beginning of a text on, as far as they are whole and right, each with its place.
pub(super) struct Values<'a> {
    text: &'a [u8],
    at: usize,
    is_array: bool,
    wrong: Option<(usize, String)>,
}

impl<'a> Values<'a> {
    pub fn new(text: &'a [u8], is_array: bool) -> Self {
        let blank = text.len() - text.trim_ascii_start().len();
        Self { text, at: blank + usize::from(is_array), is_array, wrong: None }
    }

    /// Where the last record ends.
    pub fn position(&self) -> usize {
        self.at
    }

    /// Where the first record is that is none, and why.
    pub fn wrong(self) -> Option<(usize, String)> {
        self.wrong
    }
}

impl Iterator for Values<'_> {
    type Item = (usize, Value);

    fn next(&mut self) -> Option<Self::Item> {
        // Arrays may follow one another.
        let passed = |byte: &u8| byte.is_ascii_whitespace() || (self.is_array && b",[]".contains(byte));
        self.at += self.text[self.at..].iter().take_while(|byte| passed(byte)).count();
        let mut values = serde_json::Deserializer::from_slice(&self.text[self.at..]).into_iter::<Value>();
        let begin = self.at;
        match values.next()? {
            Ok(value) => {
                self.at += values.byte_offset();
                Some((begin, value))
            }
            Err(error) => {
                let why = error.to_string();
                let why = why.split(" at line ").next().unwrap_or(&why);
                self.wrong = Some((begin, format!("it is no JSON record: {why}")));
                None
            }
        }
    }
}

/// What becomes of `NaN`, `Infinity` and `-Infinity`, which Python writes and JSON does not know.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Words {
    /// Some number, for those who look for types.
    AreNumbers,
    /// Texts, of which a column of numbers makes what they mean.
    AreTexts,
}

/// The text such that Arrow's decoder reads it right, where that is not the text itself: without these words, and without
/// escaped characters beyond the second plane of Unicode, of which the decoder makes other ones.
pub(super) fn made_plain(text: &[u8], words: Words) -> Option<Vec<u8>> {
    let has_words = memmem::find(text, b"NaN").is_some() || memmem::find(text, b"Infinity").is_some();
    if !has_words && !memmem::find_iter(text, b"\\u").any(|at| far_character(&text[at..]).is_some()) {
        return None;
    }
    let mut made = Vec::with_capacity(text.len() + 64);
    let (mut at, mut is_quoted) = (0, false);
    while let Some(byte) = text.get(at) {
        let rest = &text[at..];
        let word = [&b"NaN"[..], b"Infinity", b"-Infinity"].into_iter().find(|word| rest.starts_with(word));
        match (word, byte) {
            (Some(word), _) if !is_quoted => {
                match words {
                    Words::AreNumbers => made.extend(b"0.5"),
                    Words::AreTexts => made.extend(b"\"".iter().chain(word).chain(b"\"")),
                }
                at += word.len();
                continue;
            }
            (_, b'\\') if is_quoted => {
                match far_character(rest) {
                    Some(character) => {
                        made.extend(character.encode_utf8(&mut [0; 4]).as_bytes());
                        at += PAIR;
                    }
                    None => {
                        made.extend(&rest[..rest.len().min(2)]);
                        at += 2;
                    }
                }
                continue;
            }
            (_, b'"') => is_quoted = !is_quoted,
            _ => {}
        }
        made.push(*byte);
        at += 1;
    }
    Some(made)
}

/// Whether the first line is an array of values. One of objects is a file of records.
pub(super) fn has_rows(text: &[u8]) -> bool {
    let inside = text.trim_ascii_start().strip_prefix(b"[").map(<[u8]>::trim_ascii_start);
    inside.is_some_and(|inside| !matches!(inside.first(), None | Some(b'{' | b']')))
}

/// The same text, where a line that is an array is an object whose keys are the places of its values.
pub(super) fn numbered(text: &[u8]) -> Vec<u8> {
    let mut made = Vec::with_capacity(text.len() * 2);
    for line in text.split_inclusive(|byte| *byte == b'\n') {
        let Ok(values) = serde_json::from_slice::<Vec<serde_json::Value>>(line) else {
            // Whoever reads it says what is wrong with it.
            made.extend_from_slice(line);
            continue;
        };
        let fields = values.iter().enumerate().map(|(place, value)| format!("\"{place}\":{value}"));
        made.extend_from_slice(format!("{{{}}}\n", fields.collect::<Vec<_>>().join(",")).as_bytes());
    }
    made
}

/// The length of `\ud840\udc00`.
const PAIR: usize = 12;

/// What two escapes at the beginning of a text mean together, if that lies beyond the second plane of Unicode.
fn far_character(text: &[u8]) -> Option<char> {
    let half = |at: usize| {
        let digits = text.get(at..at + 6)?.strip_prefix(b"\\u")?;
        u16::from_str_radix(std::str::from_utf8(digits).ok()?, 16).ok()
    };
    let high = half(0).filter(|high| (0xd840..0xdc00).contains(high))?;
    char::decode_utf16([high, half(6)?]).next()?.ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn characters_far_away_are_written_out() {
        let text = br#"{"a": "\\ud842\udfb7", "b": "\ud842\udfb7\n\ud83c\udf89", "c": "\uD842x"}"#;
        let plain = made_plain(text, Words::AreTexts).expect("there is one");
        let shown = String::from_utf8(plain).expect("it is text");
        assert_eq!(shown, r#"{"a": "\\ud842\udfb7", "b": "𠮷\n\ud83c\udf89", "c": "\uD842x"}"#);
        assert!(made_plain(br#"{"b": "\ud83c\udf89"}"#, Words::AreTexts).is_none());
    }

    #[test]
    fn words_are_replaced_outside_of_texts() {
        let text = br#"{"NaN": NaN, "b\"NaN": [-Infinity, Infinity], "c": "\\"}"#;
        let quoted = made_plain(text, Words::AreTexts).expect("it has some");
        assert_eq!(quoted, br#"{"NaN": "NaN", "b\"NaN": ["-Infinity", "Infinity"], "c": "\\"}"#);
        let numbers = made_plain(text, Words::AreNumbers).expect("it has some");
        assert!(serde_json::from_slice::<Value>(&numbers).is_ok());
        assert!(made_plain(b"{\"a\": 1}", Words::AreTexts).is_none());
    }

    #[test]
    fn records_are_found_with_their_places() {
        let text = b" [{\"a\": 1},\n {\"a\": 2}]\n[{}] ";
        let mut values = Values::new(text, true);
        let braces: Vec<usize> = memchr::memchr_iter(b'{', text).collect();
        assert_eq!(values.by_ref().map(|(at, _)| at).collect::<Vec<_>>(), braces);
        assert_eq!(values.wrong(), None);
        let mut values = Values::new(b"{}\n{\n", false);
        assert_eq!(values.by_ref().count(), 1);
        assert_eq!(values.wrong().map(|(at, _)| at), Some(3));
    }
}
