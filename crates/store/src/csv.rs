//! `progress.csv`: one row per report, a column per flattened metric. A metric that comes later widens the file.

use std::collections::HashMap;
use std::fmt::Write as _;
use std::path::{Path, PathBuf};
use std::time::Instant;

use carril_types::{Metrics, Value};

use crate::append::AppendFile;
use crate::error::StoreError;
use crate::python_json::parse_object;
use crate::regular;

pub(crate) struct CsvFile {
    path: PathBuf,
    /// The reports, from which a file that was cut is made again.
    results: PathBuf,
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
    /// The rows that the file has, and those that somebody has cut off.
    count: usize,
    lost: u64,
}

/// A widening is followed by a pause of so many times its own length.
const PAUSE: u32 = 20;

impl CsvFile {
    /// Appends to a file that is there, under its columns. Half of the last row may be a number that nobody reported: such a file, and
    /// one that was emptied, is made again from `results`, or loses that row where these have fewer rows than the file.
    pub fn open(path: &Path, results: &Path) -> Result<Self, StoreError> {
        let text = String::from_utf8_lossy(&regular::read(path).unwrap_or_default()).into_owned();
        // One that is empty or missing beside reports was emptied or removed.
        let end = torn_row(&text).or(text.is_empty().then_some(0));
        let Some(end) = end else { return Self::open_whole(path, results, &text) };
        let reports = reported_rows(results);
        let whole = &text[..end];
        if reports.len() < rows(whole).count().saturating_sub(1) {
            write_whole(path, whole)?;
            return Self::open_whole(path, results, whole);
        }
        write_whole(path, "")?;
        let mut csv = Self::open_whole(path, results, "")?;
        reports.iter().for_each(|report| csv.append(report));
        csv.flush(true)?;
        Ok(csv)
    }

    fn open_whole(path: &Path, results: &Path, text: &str) -> Result<Self, StoreError> {
        let file = AppendFile::open(path)?;
        let columns = rows(text).next().map(split_row).unwrap_or_default();
        let index = columns.iter().cloned().zip(0..).collect();
        let (written, not_before) = (columns.len(), Instant::now());
        let count = rows(text).count().saturating_sub(1);
        let (path, results, cells, rows) = (path.to_owned(), results.to_owned(), Vec::new(), Vec::new());
        Ok(Self { path, results, file, columns, index, cells, written, rows, not_before, count, lost: 0 })
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
        self.replace_narrow()?;
        self.mend_cut()?;
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
        self.count += self.rows.len();
        self.rows.clear();
        Ok(())
    }

    /// Somebody has cut the file: it is made again from the reports, or where those are cut too, has its header and the rows that are left.
    fn mend_cut(&mut self) -> Result<(), StoreError> {
        if !self.file.is_cut() {
            return Ok(());
        }
        let there = regular::read(&self.path).map_err(StoreError::io("read", &self.path))?;
        let there = String::from_utf8_lossy(&there);
        let left: Vec<&str> = rows(&there[..torn_row(&there).unwrap_or(there.len())]).skip(1).collect();
        let reports = reported_rows(&self.results);
        let mut text = String::new();
        if reports.len() >= self.count {
            let rows = std::mem::take(&mut self.rows);
            reports[..self.count].iter().for_each(|report| self.append(report));
            let made = std::mem::replace(&mut self.rows, rows);
            self.written = self.columns.len();
            write_row(&mut text, self.columns.iter().map(|name| quoted(name)));
            for (row, cells) in made {
                text.push_str(&row);
                text.extend(std::iter::repeat_n(',', self.columns.len() - cells));
                text.push('\n');
            }
        } else {
            self.lost += self.count.saturating_sub(left.len()) as u64;
            self.count = left.len();
            write_row(&mut text, self.columns[..self.written].iter().map(|name| quoted(name)));
            left.iter().for_each(|row| text.extend([row, "\n"]));
        }
        write_whole(&self.path, &text)?;
        self.file = AppendFile::open(&self.path)?;
        Ok(())
    }

    /// How many rows somebody has cut off since the last time, and of which file.
    pub fn take_lost(&mut self) -> Option<(&Path, u64)> {
        let lost = std::mem::take(&mut self.lost);
        (lost > 0).then_some((&*self.path, lost))
    }

    pub fn restore(&mut self) -> Result<bool, StoreError> {
        self.mend_cut()?;
        Ok(self.replace_narrow()? | self.file.restore()?)
    }

    /// Where a copy from before the file was widened has come back: rows of two widths do not go into one file.
    fn replace_narrow(&mut self) -> Result<bool, StoreError> {
        // Mostly the file is where it was, and need not be read.
        let there = if self.file.is_in_place() { Vec::new() } else { regular::read(&self.path).unwrap_or_default() };
        let header = rows(&String::from_utf8_lossy(&there)).next().map(split_row).unwrap_or_default();
        let is_narrow = header.len() < self.written && self.columns.starts_with(&header) && !header.is_empty();
        if is_narrow {
            self.file.copy_to(&self.path)?;
            self.file = AppendFile::open(&self.path)?;
        }
        Ok(is_narrow)
    }

    /// What was written and what could not be, in another directory.
    pub fn copy_into(&self, directory: &Path) -> Result<(), StoreError> {
        let path = directory.join(self.path.file_name().unwrap_or_default());
        self.file.copy_to(&path)?;
        let (columns, index, rows) = (self.columns.clone(), self.index.clone(), self.rows.clone());
        let file = AppendFile::open(&path)?;
        let (cells, written, not_before) = (Vec::new(), self.written, Instant::now());
        let (results, count) = (self.results.clone(), self.count);
        Self { path, results, file, columns, index, cells, written, rows, not_before, count, lost: 0 }.flush(true)
    }

    /// Writes the file again with the wider header: a reader sees the old or the new one, never half of it.
    fn widen(&mut self) -> Result<(), StoreError> {
        let began = Instant::now();
        let mut text = String::new();
        write_row(&mut text, self.columns.iter().map(|name| quoted(name)));
        self.file.restore()?;
        let old = regular::read(&self.path).map_err(StoreError::io("read", &self.path))?;
        let padding = ",".repeat(self.columns.len() - self.written);
        for row in rows(&String::from_utf8_lossy(&old)).skip(1) {
            text.push_str(row);
            text.push_str(&padding);
            text.push('\n');
        }
        write_whole(&self.path, &text)?;
        self.file = AppendFile::open(&self.path)?;
        self.written = self.columns.len();
        self.not_before = Instant::now() + began.elapsed() * PAUSE;
        Ok(())
    }
}

fn reported_rows(results: &Path) -> Vec<Metrics> {
    let reports = regular::read(results).unwrap_or_default();
    String::from_utf8_lossy(&reports).lines().filter_map(reported_row).collect()
}

fn write_whole(path: &Path, text: &str) -> Result<(), StoreError> {
    regular::replace(path, text).map_err(StoreError::io("write", path))
}

/// Where the last row begins, if it has no end.
fn torn_row(text: &str) -> Option<usize> {
    let last = rows(text).last()?;
    let begin = last.as_ptr() as usize - text.as_ptr() as usize;
    (begin + last.len() == text.len()).then_some(begin)
}

/// A line of `result.json` as `progress.csv` has it: without the config, which the head puts last.
fn reported_row(line: &str) -> Option<Metrics> {
    let mut metrics = parse_object(line)?;
    metrics.0.pop_if(|(key, _)| key == "config");
    Some(metrics)
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
    use std::fs;

    use super::*;

    fn open(path: &Path) -> CsvFile {
        CsvFile::open(path, Path::new("nothing")).unwrap()
    }

    #[test]
    fn a_new_metric_widens_the_file_and_old_rows_stay() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("progress.csv");
        let row =
            |entries: &[(&str, Value)]| Metrics(entries.iter().map(|(k, v)| ((*k).to_owned(), v.clone())).collect());
        let mut csv = open(&path);
        csv.append(&row(&[("loss", Value::Float(0.5)), ("note", Value::Text("a,\"b\"\nc".into()))]));
        csv.append(&row(&[("loss", Value::Float(f64::NAN)), ("acc", Value::Int(1))]));
        csv.flush(true).unwrap();
        drop(csv);
        let mut csv = open(&path);
        csv.append(&row(&[("acc", Value::Bool(true)), ("note", Value::Map(Metrics::default()))]));
        csv.flush(true).unwrap();
        let text = fs::read_to_string(&path).unwrap();
        assert_eq!(text, "loss,note,acc\n0.5,\"a,\"\"b\"\"\nc\",\nnan,,1\n,{},True\n");
    }

    #[test]
    fn a_file_whose_last_row_was_cut_off_is_made_again_from_the_reports() {
        let directory = tempfile::tempdir().unwrap();
        let (path, results) = (directory.path().join("progress.csv"), directory.path().join("result.json"));
        let row = |note: &str| Metrics(vec![("n".into(), Value::Int(1)), ("note".into(), Value::Text(note.into()))]);
        let reports = "{\"n\": 1, \"note\": \"a\", \"config\": {}}\n{\"n\": 12, \"note\": \"x\\ny\", \"config\": {}}\n";
        for (cut, reports, expected) in [
            ("n,no", "", "n,note\n1,b\n"),
            ("n,no", reports, "n,note\n1,a\n12,\"x\ny\"\n1,b\n"),
            ("n,note\n1,a\n1", reports, "n,note\n1,a\n12,\"x\ny\"\n1,b\n"),
            ("n,note\n1,a\n12,\"x\n", reports, "n,note\n1,a\n12,\"x\ny\"\n1,b\n"),
            ("n,note\n1,a\n12,\"x\n", "", "n,note\n1,a\n1,b\n"),
            ("n,note\n1,a\n", reports, "n,note\n1,a\n1,b\n"),
            ("", reports, "n,note\n1,a\n12,\"x\ny\"\n1,b\n"),
        ] {
            fs::write(&path, cut).unwrap();
            fs::write(&results, reports).unwrap();
            let mut csv = CsvFile::open(&path, &results).unwrap();
            csv.append(&row("b"));
            csv.flush(true).unwrap();
            assert_eq!(fs::read_to_string(&path).unwrap(), expected, "{cut:?}");
        }
    }

    #[test]
    fn a_file_that_is_cut_while_it_is_open_is_made_again_or_what_it_lost_is_counted() {
        for (whole_reports, cut) in [(true, 0), (true, 9), (false, 0), (false, 9)] {
            let directory = tempfile::tempdir().unwrap();
            let (path, results) = (directory.path().join("progress.csv"), directory.path().join("result.json"));
            let mut csv = CsvFile::open(&path, &results).unwrap();
            for n in 0..4 {
                csv.append(&Metrics(vec![("n".into(), Value::Int(n)), ("note".into(), Value::Text("a\nb".into()))]));
                csv.flush(true).unwrap();
            }
            let report = |n: i64| format!("{{\"n\": {n}, \"note\": \"a\\nb\", \"config\": {{}}}}\n");
            let reports = if whole_reports { (0..5).map(report).collect() } else { String::new() };
            fs::write(&results, reports).unwrap();
            fs::File::options().write(true).open(&path).unwrap().set_len(cut).unwrap();
            csv.append(&Metrics(vec![("n".into(), Value::Int(4))]));
            csv.flush(true).unwrap();
            let made: String = (0..4).map(|n| format!("{n},\"a\nb\"\n")).collect();
            let made = if whole_reports { made } else { String::new() };
            assert_eq!(fs::read_to_string(&path).unwrap(), format!("n,note\n{made}4,\n"), "cut at {cut}");
            let lost = csv.take_lost().map(|(_, lost)| lost);
            assert_eq!(lost, (!whole_reports).then_some(4));
        }
    }

    #[test]
    fn a_narrow_copy_that_comes_back_is_replaced() {
        let directory = tempfile::tempdir().unwrap();
        let (run, away) = (directory.path().join("run"), directory.path().join("away"));
        fs::create_dir(&run).unwrap();
        let mut csv = open(&run.join("progress.csv"));
        let add = |csv: &mut CsvFile, name: &str| {
            csv.append(&Metrics(vec![(name.into(), Value::Int(1))]));
            csv.flush(true).unwrap();
        };
        add(&mut csv, "a");
        fs::rename(&run, &away).unwrap();
        csv.restore().unwrap();
        add(&mut csv, "b");
        fs::remove_dir_all(&run).unwrap();
        fs::rename(&away, &run).unwrap();
        add(&mut csv, "a");
        assert_eq!(fs::read_to_string(run.join("progress.csv")).unwrap(), "a,b\n1,\n,1\n1,\n");
    }

    #[test]
    fn a_metric_that_is_new_with_each_report_does_not_have_the_file_written_for_each() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("progress.csv");
        let mut csv = open(&path);
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
