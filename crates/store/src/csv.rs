//! `progress.csv`: one row per report, a column per flattened metric. A metric that comes later widens the file.

use std::collections::HashMap;
use std::fmt::Write as _;
use std::fs;
use std::path::{Path, PathBuf};
use std::time::Instant;

use carril_types::{Metrics, Value};

use crate::append::AppendFile;
use crate::error::StoreError;

pub(crate) struct CsvFile {
    path: PathBuf,
    file: AppendFile,
    columns: Vec<String>,
    index: HashMap<String, usize>,
    cells: Vec<String>,
    /// Of the columns, those that the file has.
    written: usize,
    /// Rows that are not written yet, each with the number of its cells.
    rows: Vec<(String, usize)>,
    /// The file is not written anew before, unless it must be: a metric that is new with each report would have it written for each.
    not_before: Instant,
}

/// A widening is followed by a pause of so many times its own length.
const PAUSE: u32 = 20;

impl CsvFile {
    /// Goes on with the columns of a file that is there. A row that was cut off is ended.
    pub fn open(path: &Path) -> Result<Self, StoreError> {
        let text = String::from_utf8_lossy(&fs::read(path).unwrap_or_default()).into_owned();
        let mut file = AppendFile::open(path)?;
        let columns = match text.contains('\n') {
            true => rows(&text).next().map(split_row).unwrap_or_default(),
            // Not even the names of the columns are whole.
            false => {
                fs::write(path, "").map_err(StoreError::io("empty", path))?;
                file = AppendFile::open(path)?;
                Vec::new()
            }
        };
        if text.bytes().filter(|byte| *byte == b'"').count() % 2 == 1 {
            file.append(b"\"\n")?;
        }
        let index = columns.iter().cloned().zip(0..).collect();
        let (written, not_before) = (columns.len(), Instant::now());
        let (path, cells, rows) = (path.to_owned(), Vec::new(), Vec::new());
        Ok(Self { path, file, columns, index, cells, written, rows, not_before })
    }

    pub fn append(&mut self, metrics: &Metrics) {
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
        let mut row = String::new();
        write_row(&mut row, self.cells.iter());
        row.pop();
        self.rows.push((row, self.cells.len()));
    }

    /// Writes the rows, unless the file would have to be widened again too soon and need not be: then they wait for the next flush.
    pub fn flush(&mut self, all: bool) -> Result<(), StoreError> {
        if self.rows.is_empty() {
            return Ok(());
        }
        let mut text = String::new();
        if self.written == 0 {
            write_row(&mut text, self.columns.iter().map(|name| quoted(name)));
        } else if self.columns.len() > self.written {
            if !all && Instant::now() < self.not_before {
                return Ok(());
            }
            self.widen()?;
        }
        for (row, cells) in &self.rows {
            text.push_str(row);
            text.extend(std::iter::repeat_n(',', self.columns.len() - cells));
            text.push('\n');
        }
        self.file.append(text.as_bytes())?;
        self.written = self.columns.len();
        self.rows.clear();
        Ok(())
    }

    pub fn restore(&mut self) -> Result<bool, StoreError> {
        self.file.restore()
    }

    /// Writes the file anew with the wider header: a reader sees the old or the new one, never half of it.
    fn widen(&mut self) -> Result<(), StoreError> {
        let began = Instant::now();
        let mut text = String::new();
        write_row(&mut text, self.columns.iter().map(|name| quoted(name)));
        self.file.restore()?;
        let old = fs::read(&self.path).map_err(StoreError::io("read", &self.path))?;
        let padding = ",".repeat(self.columns.len() - self.written);
        for row in rows(&String::from_utf8_lossy(&old)).skip(1) {
            text.push_str(row);
            text.push_str(&padding);
            text.push('\n');
        }
        let part = self.path.with_extension("csv.part");
        fs::write(&part, text).map_err(StoreError::io("write", &part))?;
        fs::rename(&part, &self.path).map_err(StoreError::io("make", &self.path))?;
        self.file = AppendFile::open(&self.path)?;
        self.written = self.columns.len();
        self.not_before = Instant::now() + began.elapsed() * PAUSE;
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
        csv.append(&row(&[("loss", Value::Float(0.5)), ("note", Value::Text("a,\"b\"\nc".into()))]));
        csv.append(&row(&[("loss", Value::Float(f64::NAN)), ("acc", Value::Int(1))]));
        csv.flush(true).unwrap();
        drop(csv);
        let mut csv = CsvFile::open(&path).unwrap();
        csv.append(&row(&[("acc", Value::Bool(true)), ("note", Value::Map(Metrics::default()))]));
        csv.flush(true).unwrap();
        let text = fs::read_to_string(&path).unwrap();
        assert_eq!(text, "loss,note,acc\n0.5,\"a,\"\"b\"\"\nc\",\nnan,,1\n,{},True\n");
    }
    #[test]
    fn a_row_that_was_cut_off_is_ended_and_later_rows_are_whole() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("progress.csv");
        let row = |note: &str| Metrics(vec![("n".into(), Value::Int(1)), ("note".into(), Value::Text(note.into()))]);
        for (cut, expected) in [
            ("n,no", "n,note\n1,b\n"),
            ("n,note\n1,a\n1", "n,note\n1,a\n1\n1,b\n"),
            ("n,note\n1,\"a, ", "n,note\n1,\"a, \n\"\n1,b\n"),
            ("n,note\n1,\"a\n", "n,note\n1,\"a\n\"\n1,b\n"),
        ] {
            fs::write(&path, cut).unwrap();
            let mut csv = CsvFile::open(&path).unwrap();
            csv.append(&row("b"));
            csv.flush(true).unwrap();
            assert_eq!(fs::read_to_string(&path).unwrap(), expected, "{cut:?}");
        }
    }

    #[test]
    fn a_metric_that_is_new_with_each_report_does_not_have_the_file_written_for_each() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("progress.csv");
        let mut csv = CsvFile::open(&path).unwrap();
        let mut inodes = std::collections::HashSet::new();
        for number in 0..300 {
            csv.append(&Metrics(vec![(format!("key_{number}"), Value::Int(number))]));
            csv.not_before += std::time::Duration::from_secs(if number == 1 { 3600 } else { 0 });
            csv.flush(false).unwrap();
            inodes.insert(std::os::unix::fs::MetadataExt::ino(&fs::metadata(&path).unwrap()));
        }
        csv.flush(true).unwrap();
        assert!(inodes.len() <= 3, "written {} times", inodes.len());
        let text = fs::read_to_string(&path).unwrap();
        assert_eq!(text.lines().count(), 301);
        assert!(text.lines().all(|line| split_row(line).len() == 300), "every row has every column");
    }
}
