//! The values of CSV fields: a column's array, of a type that is known.
//!
//! What counts as null, true and false is as pyarrow has it: a text is never null unless that is asked for.

use std::collections::HashSet;
use std::sync::Arc;

use arrow_array::builder::{BooleanBuilder, PrimitiveBuilder};
use arrow_array::cast::AsArray;
use arrow_array::types::{
    ArrowPrimitiveType, ArrowTimestampType, Date32Type, Float32Type, Float64Type, Int64Type, Time32SecondType,
    TimestampMicrosecondType, TimestampMillisecondType, TimestampNanosecondType, TimestampSecondType, UInt64Type,
};
use arrow_array::{ArrayRef, NullArray, StringArray};
use arrow_buffer::{NullBuffer, OffsetBuffer};
use arrow_schema::{DataType, TimeUnit};

use super::times::{date, moment, time_of_day};
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

    pub fn has(&self, value: &[u8]) -> bool {
        self.words.contains(value)
    }
}

/// A value that its column cannot hold.
pub(super) struct BadValue {
    pub row: usize,
    pub value: String,
}

pub(super) fn trim(value: &[u8]) -> &[u8] {
    match value {
        [b' ' | b'\t', ..] | [.., b' ' | b'\t'] => value.trim_ascii(),
        value => value,
    }
}

pub(super) fn integer(value: &[u8]) -> Option<i64> {
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

pub(super) fn float(value: &[u8]) -> Option<f64> {
    parse(value)
}

fn parse<T: std::str::FromStr>(value: &[u8]) -> Option<T> {
    std::str::from_utf8(trim(value)).ok()?.parse().ok()
}

pub(super) fn boolean(value: &[u8]) -> Option<bool> {
    match value {
        b"1" | b"true" | b"True" | b"TRUE" => Some(true),
        b"0" | b"false" | b"False" | b"FALSE" => Some(false),
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
        Int8 | Int16 | Int32 | Int64 | UInt8 | UInt16 | UInt32 => {
            primitive::<Int64Type>(values.clone(), nulls, integer, |_| false)
        }
        UInt64 => primitive::<UInt64Type>(values.clone(), nulls, parse, |_| false),
        Float32 => primitive::<Float32Type>(values.clone(), nulls, parse, |value| value.is_nan()),
        Float16 | Float64 => primitive::<Float64Type>(values.clone(), nulls, float, |value| value.is_nan()),
        Date32 => primitive::<Date32Type>(values.clone(), nulls, |value| date(trim(value)), |_| false),
        Time32(TimeUnit::Second) => {
            primitive::<Time32SecondType>(values.clone(), nulls, |value| time_of_day(trim(value)), |_| false)
        }
        Timestamp(unit, zone) => {
            let has_zone = zone.is_some();
            let parse = |value: &[u8]| moment(trim(value)).filter(|it| it.has_zone == has_zone)?.in_unit(*unit);
            match unit {
                TimeUnit::Second => timestamps::<TimestampSecondType>(values.clone(), nulls, parse, zone),
                TimeUnit::Millisecond => timestamps::<TimestampMillisecondType>(values.clone(), nulls, parse, zone),
                TimeUnit::Microsecond => timestamps::<TimestampMicrosecondType>(values.clone(), nulls, parse, zone),
                TimeUnit::Nanosecond => timestamps::<TimestampNanosecondType>(values.clone(), nulls, parse, zone),
            }
        }
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

fn timestamps<'a, T: ArrowTimestampType>(
    values: impl ExactSizeIterator<Item = &'a [u8]>,
    nulls: &Nulls,
    parse: impl Fn(&[u8]) -> Option<i64>,
    zone: &Option<Arc<str>>,
) -> Result<ArrayRef, BadValue> {
    let built = primitive::<T>(values, nulls, parse, |_| false)?;
    Ok(Arc::new(built.as_primitive::<T>().clone().with_timezone_opt(zone.clone())))
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
