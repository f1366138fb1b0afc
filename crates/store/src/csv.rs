//! `progress.csv`: one row per report, a column per flattened metric. A metric that comes later widens the file.

use std::collections::HashMap;
use std::fmt::Write as _;
use std::fs::{self, File};
use std::io::Write as _;
use std::path::{Path, PathBuf};

use carril_types::{Metrics, Value};

use crate::error::StoreError;

pub(crate) struct CsvFile {
    path: PathBuf,
    file: File,
    columns: Vec<String>,
    index: HashMap<String, usize>,
    cells: Vec<String>,
    buffer: String,
}

impl CsvFile {
    /// Goes on with the columns of a file that is there.
    pub fn open(path: &Path) -> Result<Self, StoreError> {
        let columns = match fs::read_to_string(path) {
            Ok(text) => text.lines().next().map(split_row).unwrap_or_default(),
            Err(_) => Vec::new(),
        };
        let file = File::options().create(true).append(true).open(path).map_err(StoreError::io("open", path))?;
        let index = columns.iter().cloned().zip(0..).collect();
        Ok(Self { path: path.to_owned(), file, columns, index, cells: Vec::new(), buffer: String::new() })
    }

    pub fn append(&mut self, metrics: &Metrics) -> Result<(), StoreError> {
        let before = self.columns.len();
        for cell in &mut self.cells {
            cell.clear();
        }
        let Self { columns, index, cells, .. } = self;
        cells.resize(columns.len(), String::new());
        metrics.for_each_flat(&mut |name, value| {
            let column = match index.get(name) {
                Some(column) => *column,
                None => {
                    index.insert(name.to_owned(), columns.len());
                    columns.push(name.to_owned());
                    cells.push(String::new());
                    columns.len() - 1
                }
            };
            write_csv_cell(&mut cells[column], value);
        });
        if before == 0 {
            write_row(&mut self.buffer, self.columns.iter().map(|name| quoted(name)));
        } else if self.columns.len() > before {
            self.flush()?;
            self.widen(before)?;
        }
        write_row(&mut self.buffer, self.cells.iter());
        Ok(())
    }

    pub fn flush(&mut self) -> Result<(), StoreError> {
        self.file.write_all(self.buffer.as_bytes()).map_err(StoreError::io("write", &self.path))?;
        self.buffer.clear();
        Ok(())
    }

    /// Writes the file anew with the wider header: a reader sees the old or the new one, never half of it.
    fn widen(&mut self, before: usize) -> Result<(), StoreError> {
        let mut text = String::new();
        write_row(&mut text, self.columns.iter().map(|name| quoted(name)));
        let old = fs::read_to_string(&self.path).map_err(StoreError::io("read", &self.path))?;
        let padding = ",".repeat(self.columns.len() - before);
        for row in rows(&old).skip(1) {
            text.push_str(row);
            text.push_str(&padding);
            text.push('\n');
        }
        let part = self.path.with_extension("csv.part");
        fs::write(&part, text).map_err(StoreError::io("write", &part))?;
        fs::rename(&part, &self.path).map_err(StoreError::io("make", &self.path))?;
        self.file = File::options().append(true).open(&self.path).map_err(StoreError::io("open", &self.path))?;
        Ok(())
    }
}

/// As pandas reads it back: nothing for `None`, `nan`, `inf`, `True`.
pub fn write_csv_cell(out: &mut String, value: &Value) {
    match value {
        Value::None => {}
        Value::Bool(value) => out.push_str(if *value { "True" } else { "False" }),
        Value::Int(value) => write!(out, "{value}").expect("a String has room"),
        Value::BigInt(digits) => out.push_str(digits),
        Value::Float(value) if value.is_nan() => out.push_str("nan"),
        Value::Float(value) if value.is_infinite() => out.push_str(if *value > 0.0 { "inf" } else { "-inf" }),
        Value::Float(value) => write!(out, "{value:?}").expect("a String has room"),
        Value::Text(text) => out.push_str(&quoted(text)),
        Value::Object(object) => out.push_str(&quoted(&object.repr)),
        Value::List(_) | Value::Map(_) => {
            let mut json = String::new();
            carril_types::write_json(&mut json, &Metrics(vec![(String::new(), value.clone())]));
            // Without the braces and the empty key that it was wrapped in.
            out.push_str(&quoted(&json[5..json.len() - 1]));
        }
    }
}

fn quoted(text: &str) -> String {
    if text.contains([',', '"', '\n', '\r']) { format!("\"{}\"", text.replace('"', "\"\"")) } else { text.to_owned() }
}

fn write_row(out: &mut String, cells: impl Iterator<Item = impl AsRef<str>>) {
    for (index, cell) in cells.enumerate() {
        if index > 0 {
            out.push(',');
        }
        out.push_str(cell.as_ref());
    }
    out.push('\n');
}

/// Rows as they stand; a line end inside quotes does not end one.
fn rows(text: &str) -> impl Iterator<Item = &str> {
    let mut rest = text;
    std::iter::from_fn(move || {
        if rest.is_empty() {
            return None;
        }
        let mut inside = false;
        let end = rest.bytes().position(|byte| {
            inside ^= byte == b'"';
            byte == b'\n' && !inside
        });
        let (row, after) = match end {
            Some(end) => (&rest[..end], &rest[end + 1..]),
            None => (rest, ""),
        };
        rest = after;
        Some(row)
    })
}

fn split_row(row: &str) -> Vec<String> {
    let mut cells = vec![String::new()];
    let mut inside = false;
    let mut characters = row.chars().peekable();
    while let Some(character) = characters.next() {
        let last = cells.last_mut().expect("there is always one");
        match character {
            '"' if inside && characters.peek() == Some(&'"') => {
                characters.next();
                last.push('"');
            }
            '"' => inside = !inside,
            ',' if !inside => cells.push(String::new()),
            other => last.push(other),
        }
    }
    cells
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_new_metric_widens_the_file_and_old_rows_stay() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("progress.csv");
        let row =
            |entries: &[(&str, Value)]| Metrics(entries.iter().map(|(k, v)| ((*k).to_owned(), v.clone())).collect());
        let mut csv = CsvFile::open(&path).unwrap();
        csv.append(&row(&[("loss", Value::Float(0.5)), ("note", Value::Text("a,\"b\"\nc".into()))])).unwrap();
        csv.append(&row(&[("loss", Value::Float(f64::NAN)), ("acc", Value::Int(1))])).unwrap();
        csv.flush().unwrap();
        drop(csv);
        let mut csv = CsvFile::open(&path).unwrap();
        csv.append(&row(&[("acc", Value::Bool(true)), ("note", Value::Map(Metrics::default()))])).unwrap();
        csv.flush().unwrap();
        let text = fs::read_to_string(&path).unwrap();
        assert_eq!(text, "loss,note,acc\n0.5,\"a,\"\"b\"\"\nc\",\nnan,,1\n,{},True\n");
    }
}
