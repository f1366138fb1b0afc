//! Columns that stand in paths: `/year=2024/month=3/`, or `/2024/3/` where their names are given.

use std::collections::HashMap;

use serde::Deserialize;

use super::FileRef;
use crate::error::DataError;

/// What Hive writes for a value that is null.
const NULL: &str = "__HIVE_DEFAULT_PARTITION__";

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum PartitionValue {
    Null,
    Integer(i64),
    /// A number, as it was written.
    Real(String),
    Truth(bool),
    Text(String),
}

/// Which columns stand in paths, and of which types they are.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Partitions {
    /// The columns of the directories below `base`, one after the other. Nothing: each directory names its own, as in `year=2024`.
    pub columns: Option<Vec<String>>,
    pub base: String,
    /// `int64`, `double`, `bool` or `string`, by column.
    pub types: HashMap<String, String>,
    /// Whether a column without a type is one of texts, also where all of them are integers.
    pub are_texts: bool,
}

/// Gives every file the values in its path: of their types, or integers where every value of a key is one.
pub(super) fn fill(files: &mut [FileRef], partitions: &Partitions) -> Result<(), DataError> {
    let mut keys: Vec<String> = Vec::new();
    for file in files.iter_mut() {
        file.partitions = match &partitions.columns {
            None => in_path(&file.name),
            Some(columns) => in_directories(&file.name, columns, &partitions.base)?,
        };
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
        let values = match partitions.types.get(key) {
            Some(kind) => values.into_iter().map(|value| typed(key, kind, value)).collect::<Result<_, _>>()?,
            None if partitions.are_texts => values,
            None => {
                let integers: Option<Vec<PartitionValue>> = values.iter().map(as_integer).collect();
                integers.unwrap_or(values)
            }
        };
        for (file, value) in files.iter_mut().zip(values) {
            file.partitions.retain(|(name, _)| name != key);
            file.partitions.push((key.clone(), value));
        }
    }
    Ok(())
}

fn typed(key: &str, kind: &str, value: PartitionValue) -> Result<PartitionValue, DataError> {
    let PartitionValue::Text(text) = value else { return Ok(value) };
    let made = match kind {
        "int64" => text.parse().ok().map(PartitionValue::Integer),
        "double" => text.parse::<f64>().ok().map(|_| PartitionValue::Real(text.clone())),
        "bool" => match text.to_lowercase().as_str() {
            "true" | "1" => Some(PartitionValue::Truth(true)),
            "false" | "0" => Some(PartitionValue::Truth(false)),
            _ => None,
        },
        _ => Some(PartitionValue::Text(text.clone())),
    };
    made.ok_or_else(|| DataError::invalid(format!("`{key}` is `{text}` in a path, which is no {kind}")))
}

fn in_directories(name: &str, columns: &[String], base: &str) -> Result<Vec<(String, PartitionValue)>, DataError> {
    let plain = |path: &str| path.split_once("://").map_or(path, |(_, rest)| rest).trim_matches('/').to_owned();
    let (path, base) = (plain(name), plain(base));
    let below = match base.is_empty() {
        true => Some(path.as_str()),
        false => path.strip_prefix(&base).and_then(|rest| rest.strip_prefix('/')),
    };
    let Some(below) = below else {
        return Err(DataError::invalid(format!("`{name}` is not below `{base}`, where its columns are looked for")));
    };
    let Some((directories, _)) = below.rsplit_once('/') else { return Ok(Vec::new()) };
    let directories: Vec<&str> = directories.split('/').collect();
    if directories.len() != columns.len() {
        return Err(DataError::invalid(format!(
            "`{name}` has {} directories below `{base}` for {} columns: {}",
            directories.len(),
            columns.len(),
            columns.join(", ")
        )));
    }
    let value = |text: &&str| PartitionValue::Text(decode(text));
    Ok(columns.iter().cloned().zip(directories.iter().map(value)).collect())
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
