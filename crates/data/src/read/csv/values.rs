//! The values of CSV fields: which type a column has, and its array.
//!
//! What counts as null, true and false, and which types are inferred, is as pyarrow has it: a text is never null unless that
//! is asked for.

use std::collections::HashSet;
use std::sync::Arc;

use arrow_array::builder::{BooleanBuilder, PrimitiveBuilder};
use arrow_array::types::{
    ArrowPrimitiveType, Date32Type, Float64Type, Int64Type, TimestampNanosecondType, TimestampSecondType,
};
use arrow_array::{ArrayRef, NullArray, StringArray};
use arrow_buffer::{NullBuffer, OffsetBuffer};
use arrow_cast::parse::{Parser, string_to_timestamp_nanos};
use arrow_schema::{DataType, TimeUnit};

use crate::read::layout::to_type;

const NULLS: [&str; 17] = [
    "", "#N/A", "#N/A N/A", "#NA", "-1.#IND", "-1.#QNAN", "-NaN", "-nan", "1.#IND", "1.#QNAN", "N/A", "NA", "NULL",
    "NaN", "n/a", "nan", "null",
];

pub(super) struct Nulls {
    words: HashSet<Vec<u8>>,
    /// Whether one of the words may be a number too.
    is_own: bool,
    pub strings: bool,
}

impl Nulls {
    pub fn new(own: Option<&[String]>, strings: bool) -> Self {
        let words = match own {
            Some(own) => own.iter().map(|word| word.clone().into_bytes()).collect(),
            None => NULLS.iter().map(|word| word.as_bytes().to_vec()).collect(),
        };
        Self { words, is_own: own.is_some(), strings }
    }

    fn has(&self, value: &[u8]) -> bool {
        self.words.contains(value)
    }
}

/// A value that its column cannot hold.
pub(super) struct BadValue {
    pub row: usize,
    pub value: String,
}

/// The type of the values, and null where all of them are.
pub(super) fn infer<'a>(values: impl Iterator<Item = &'a [u8]>, nulls: &Nulls) -> DataType {
    let mut all = DataType::Null;
    for value in values {
        all = join(&all, &kind(value, nulls));
        if all == DataType::Utf8 {
            break;
        }
    }
    all
}

/// The type of columns of several files: text where nothing else holds both.
pub(super) fn join(left: &DataType, right: &DataType) -> DataType {
    use DataType::*;
    match (left, right) {
        (a, b) if a == b => a.clone(),
        (Null, other) | (other, Null) => other.clone(),
        (Int64, Float64) | (Float64, Int64) => Float64,
        (Date32, Timestamp(unit, None)) | (Timestamp(unit, None), Date32) => Timestamp(*unit, None),
        (Timestamp(..), Timestamp(..)) => Timestamp(TimeUnit::Nanosecond, None),
        _ => Utf8,
    }
}

fn kind(value: &[u8], nulls: &Nulls) -> DataType {
    if nulls.has(value) {
        return DataType::Null;
    }
    let Ok(text) = std::str::from_utf8(value) else { return DataType::Utf8 };
    if integer(value).is_some() {
        return DataType::Int64;
    }
    if boolean(value).is_some() {
        return DataType::Boolean;
    }
    if looks_like_date(value) {
        return match value.len() {
            10 if Date32Type::parse(text).is_some() => DataType::Date32,
            16 | 19 if timestamp(value).is_some() => DataType::Timestamp(TimeUnit::Second, None),
            20.. if value[19] == b'.' && timestamp(value).is_some() => DataType::Timestamp(TimeUnit::Nanosecond, None),
            _ => DataType::Utf8,
        };
    }
    if float(value).is_some() { DataType::Float64 } else { DataType::Utf8 }
}

fn looks_like_date(value: &[u8]) -> bool {
    value.len() >= 10 && value[4] == b'-' && value[7] == b'-' && value[..4].iter().all(u8::is_ascii_digit)
}

fn trim(value: &[u8]) -> &[u8] {
    match value {
        [b' ' | b'\t', ..] | [.., b' ' | b'\t'] => value.trim_ascii(),
        value => value,
    }
}

fn integer(value: &[u8]) -> Option<i64> {
    let value = trim(value);
    let (negative, digits) = match value {
        [b'-', digits @ ..] => (true, digits),
        digits => (false, digits),
    };
    if digits.is_empty() || digits.len() > 18 {
        // Rare: the plain way is exact up to the last number.
        return std::str::from_utf8(value).ok().filter(|text| !text.starts_with('+'))?.parse().ok();
    }
    let mut number: i64 = 0;
    for digit in digits {
        let digit = digit.wrapping_sub(b'0');
        if digit > 9 {
            return None;
        }
        number = number * 10 + i64::from(digit);
    }
    Some(if negative { -number } else { number })
}

fn float(value: &[u8]) -> Option<f64> {
    std::str::from_utf8(trim(value)).ok()?.parse().ok()
}

fn boolean(value: &[u8]) -> Option<bool> {
    match trim(value) {
        b"1" | b"true" | b"True" | b"TRUE" => Some(true),
        b"0" | b"false" | b"False" | b"FALSE" => Some(false),
        _ => None,
    }
}

/// Nanoseconds since 1970, of a time without a zone.
fn timestamp(value: &[u8]) -> Option<i64> {
    let value = trim(value);
    let text = std::str::from_utf8(value).ok().filter(|_| looks_like_date(value))?;
    match value.len() {
        10 => Some(i64::from(Date32Type::parse(text)?) * 86_400_000_000_000),
        16 => string_to_timestamp_nanos(&format!("{text}:00")).ok(),
        19.. if value[19..].iter().all(|byte| *byte == b'.' || byte.is_ascii_digit()) => {
            string_to_timestamp_nanos(text).ok()
        }
        _ => None,
    }
}

pub(super) fn array<'a>(
    values: impl ExactSizeIterator<Item = &'a [u8]> + Clone,
    wanted: &DataType,
    nulls: &Nulls,
) -> Result<ArrayRef, BadValue> {
    use DataType::*;
    let built = match wanted {
        Int8 | Int16 | Int32 | Int64 | UInt8 | UInt16 | UInt32 | UInt64 => {
            primitive::<Int64Type>(values.clone(), nulls, integer, |_| false)
        }
        Float16 | Float32 | Float64 => primitive::<Float64Type>(values.clone(), nulls, float, |value| value.is_nan()),
        Date32 => {
            let parse = |value: &[u8]| Date32Type::parse(std::str::from_utf8(trim(value)).ok()?);
            primitive::<Date32Type>(values.clone(), nulls, parse, |_| false)
        }
        Timestamp(TimeUnit::Second, None) => {
            let parse = |value: &[u8]| timestamp(value).map(|nanoseconds| nanoseconds.div_euclid(1_000_000_000));
            primitive::<TimestampSecondType>(values.clone(), nulls, parse, |_| false)
        }
        Timestamp(_, None) => primitive::<TimestampNanosecondType>(values.clone(), nulls, timestamp, |_| false),
        Boolean => booleans(values.clone(), nulls),
        Null => match values.clone().enumerate().find(|(_, value)| !nulls.has(value)) {
            Some((row, value)) => Err(bad(row, value)),
            None => Ok(Arc::new(NullArray::new(values.len())) as ArrayRef),
        },
        Utf8 | LargeUtf8 | Utf8View => Ok(strings(values.clone(), nulls.strings.then_some(nulls))),
        // Decimals, times, binary: as Arrow reads them from text.
        _ => Ok(strings(values.clone(), Some(nulls))),
    }?;
    to_type(&built, wanted).map_err(|_| {
        let one = values.clone().enumerate().find(|(_, value)| {
            let alone = strings([*value].into_iter(), Some(nulls));
            to_type(&alone, wanted).is_err()
        });
        one.map_or(BadValue { row: 0, value: String::new() }, |(row, value)| bad(row, value))
    })
}

fn bad(row: usize, value: &[u8]) -> BadValue {
    BadValue { row, value: String::from_utf8_lossy(value).chars().take(80).collect() }
}

/// `doubtful` are values that are read well and may be null nevertheless.
fn primitive<'a, T: ArrowPrimitiveType>(
    values: impl ExactSizeIterator<Item = &'a [u8]>,
    nulls: &Nulls,
    parse: impl Fn(&[u8]) -> Option<T::Native>,
    doubtful: impl Fn(&T::Native) -> bool,
) -> Result<ArrayRef, BadValue> {
    let mut builder = PrimitiveBuilder::<T>::with_capacity(values.len());
    for (row, value) in values.enumerate() {
        match parse(value) {
            Some(parsed) if !(nulls.is_own || doubtful(&parsed)) || !nulls.has(value) => builder.append_value(parsed),
            None if !nulls.has(value) => return Err(bad(row, value)),
            _ => builder.append_null(),
        }
    }
    Ok(Arc::new(builder.finish()))
}

fn booleans<'a>(values: impl ExactSizeIterator<Item = &'a [u8]>, nulls: &Nulls) -> Result<ArrayRef, BadValue> {
    let mut builder = BooleanBuilder::with_capacity(values.len());
    for (row, value) in values.enumerate() {
        match boolean(value) {
            _ if nulls.has(value) => builder.append_null(),
            Some(parsed) => builder.append_value(parsed),
            None => return Err(bad(row, value)),
        }
    }
    Ok(Arc::new(builder.finish()))
}

/// The text was found to be UTF-8 before it was taken apart.
fn strings<'a>(values: impl ExactSizeIterator<Item = &'a [u8]> + Clone, nulls: Option<&Nulls>) -> ArrayRef {
    let length = values.clone().map(<[u8]>::len).sum();
    let mut bytes = Vec::with_capacity(length);
    let mut offsets = Vec::with_capacity(values.len() + 1);
    offsets.push(0i32);
    for value in values.clone() {
        bytes.extend_from_slice(value);
        offsets.push(bytes.len() as i32);
    }
    let validity = nulls.map(|nulls| NullBuffer::from_iter(values.map(|value| !nulls.has(value))));
    Arc::new(StringArray::new(OffsetBuffer::new(offsets.into()), bytes.into(), validity))
}
