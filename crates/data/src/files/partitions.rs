//! Columns that stand in paths: `/year=2024/month=3/`.

use super::FileRef;

/// What Hive writes for a value that is null.
const NULL: &str = "__HIVE_DEFAULT_PARTITION__";

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum PartitionValue {
    Null,
    Integer(i64),
    Text(String),
}

/// Gives every file the values in its path: integers where every value of a key is one.
pub(super) fn fill(files: &mut [FileRef]) {
    let mut keys: Vec<String> = Vec::new();
    for file in files.iter_mut() {
        file.partitions = in_path(&file.name);
        for (key, _) in &file.partitions {
            if !keys.contains(key) {
                keys.push(key.clone());
            }
        }
    }
    for key in &keys {
        let value = |file: &FileRef| match file.partitions.iter().find(|(name, _)| name == key) {
            Some((_, value)) => value.clone(),
            None => PartitionValue::Null,
        };
        let values: Vec<PartitionValue> = files.iter().map(value).collect();
        let integers: Option<Vec<PartitionValue>> = values.iter().map(as_integer).collect();
        for (file, value) in files.iter_mut().zip(integers.unwrap_or(values)) {
            file.partitions.retain(|(name, _)| name != key);
            file.partitions.push((key.clone(), value));
        }
    }
}

fn in_path(name: &str) -> Vec<(String, PartitionValue)> {
    let Some((directories, _)) = name.rsplit_once('/') else { return Vec::new() };
    let mut found: Vec<(String, PartitionValue)> = Vec::new();
    for part in directories.split('/') {
        let Some((key, value)) = part.split_once('=') else { continue };
        if key.is_empty() || found.iter().any(|(known, _)| known == key) {
            continue;
        }
        let value = match value {
            NULL => PartitionValue::Null,
            text => PartitionValue::Text(decode(text)),
        };
        found.push((key.to_owned(), value));
    }
    found
}

fn as_integer(value: &PartitionValue) -> Option<PartitionValue> {
    match value {
        PartitionValue::Text(text) => {
            let number: i64 = text.parse().ok()?;
            // "007" and "+7" are names, and would not be found again as 7.
            (number.to_string() == *text || is_padded(text)).then_some(PartitionValue::Integer(number))
        }
        value => Some(value.clone()),
    }
}

/// Months and days are written with two digits.
fn is_padded(text: &str) -> bool {
    text.len() == 2 && text.bytes().all(|byte| byte.is_ascii_digit())
}

/// `%20` is a blank.
fn decode(text: &str) -> String {
    let mut out = Vec::with_capacity(text.len());
    let mut rest = text.as_bytes();
    while let Some((first, after)) = rest.split_first() {
        let digits = (*first == b'%').then(|| after.get(..2)).flatten();
        let byte = digits.and_then(|digits| u8::from_str_radix(std::str::from_utf8(digits).ok()?, 16).ok());
        match byte {
            Some(byte) => {
                out.push(byte);
                rest = &after[2..];
            }
            None => {
                out.push(*first);
                rest = after;
            }
        }
    }
    String::from_utf8(out).unwrap_or_else(|_| text.to_owned())
}
