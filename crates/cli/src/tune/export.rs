//! `carril tune export EXPERIMENT`: a row per trial, or per result, for spreadsheets and data frames.
//!
//! Columns: `trial/…` is what is known of the trial, `config/…` its configuration, every other one a metric under its own name.

use std::collections::{HashMap, HashSet};
use std::io::Write;
use std::path::{Path, PathBuf};

use carril_store::{Experiment, StoreError, Trial, write_csv_cell};
use carril_types::{ErrorCode, Failure, Metrics, Value, write_json};
use clap::{Args, ValueEnum};

use super::target::{Target, note, over_trials};
use super::words::{reason_of, state_word};

#[derive(Args)]
pub struct Export {
    #[command(flatten)]
    target: Target,
    /// What to write; by default as the file's name ends, otherwise csv
    #[arg(long)]
    format: Option<Format>,
    /// The same as --format json
    #[arg(long, conflicts_with = "format")]
    json: bool,
    /// A row for every result, instead of one for every trial with its last
    #[arg(long)]
    results: bool,
    /// Where to write it, instead of printing it
    #[arg(short, long, value_name = "FILE")]
    output: Option<PathBuf>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Format {
    /// A table with a header
    Csv,
    /// A list of objects
    Json,
}

impl Export {
    pub fn run(self) -> Result<(), Failure> {
        let experiment = self.target.open()?;
        let rows = if self.results { result_rows(&experiment)? } else { trial_rows(&experiment) };
        let is_json = |path: &PathBuf| path.extension().is_some_and(|extension| extension.eq_ignore_ascii_case("json"));
        let text = match self.format {
            _ if self.json => json_list(&rows),
            Some(Format::Json) => json_list(&rows),
            None if self.output.as_ref().is_some_and(is_json) => json_list(&rows),
            _ => csv(&rows),
        };
        let Some(path) = &self.output else {
            return print(&text);
        };
        write_whole(path, text.as_bytes())?;
        let what = if self.results { "results" } else { "trials" };
        note(&format!("wrote {} {what} to `{}`", rows.len(), path.display()));
        Ok(())
    }
}

/// A row per trial: what is known of it, its last result, its configuration.
pub fn trial_rows(experiment: &Experiment) -> Vec<Metrics> {
    let is_live = experiment.status_word() == "running";
    let optional = |text: &Option<String>| text.clone().map_or(Value::None, Value::Text);
    experiment
        .trials
        .iter()
        .map(|trial| {
            let mut row = Metrics(identity(trial, is_live));
            row.0.extend([
                ("trial/reason".to_owned(), Value::Text(reason_of(experiment, trial, is_live).to_owned())),
                ("trial/iterations".to_owned(), Value::Int(trial.iterations as i64)),
                ("trial/seconds".to_owned(), Value::Float(trial.seconds)),
                ("trial/checkpoint".to_owned(), optional(&trial.checkpoint)),
                ("trial/directory".to_owned(), Value::Text(trial.directory.clone())),
            ]);
            add(&mut row, trial.metrics.clone(), &trial.config);
            row
        })
        .collect()
}

/// A row per result. A result says itself under which configuration it came: population-based training changes it.
fn result_rows(experiment: &Experiment) -> Result<Vec<Metrics>, StoreError> {
    let is_live = experiment.status_word() == "running";
    let rows_of = |trial: &Trial| {
        let results = experiment.results(trial)?;
        let rows = results.into_iter().map(|result| {
            let mut row = Metrics(identity(trial, is_live));
            add(&mut row, result, &trial.config);
            row
        });
        Ok(rows.collect::<Vec<_>>())
    };
    Ok(over_trials(experiment, rows_of)?.into_iter().flatten().collect())
}

fn identity(trial: &Trial, is_live: bool) -> Vec<(String, Value)> {
    vec![
        ("trial/id".to_owned(), Value::Text(trial.id.clone())),
        ("trial/number".to_owned(), Value::Int(trial.number as i64)),
        ("trial/state".to_owned(), Value::Text(state_word(trial, is_live).to_owned())),
    ]
}

/// Adds a result, and the configuration that it came under: its own word for that, where it has one.
fn add(row: &mut Metrics, mut result: Metrics, config: &Metrics) {
    let own = result.0.iter().position(|(name, _)| name == "config").map(|at| result.0.remove(at).1);
    result.0.retain(|(name, _)| !name.starts_with("config/"));
    flatten(row, "", result);
    match own {
        Some(Value::Map(config)) => flatten(row, "config", config),
        _ => flatten(row, "config", config.clone()),
    }
}

/// Takes the values as they are: an export is made of millions of them.
fn flatten(row: &mut Metrics, prefix: &str, values: Metrics) {
    for (name, value) in values.0 {
        let name = if prefix.is_empty() { name } else { format!("{prefix}/{name}") };
        match value {
            Value::Map(inner) if !inner.0.is_empty() => flatten(row, &name, inner),
            value => row.0.push((name, value)),
        }
    }
}

fn csv(rows: &[Metrics]) -> String {
    let columns = columns(rows);
    let index: HashMap<&str, usize> = columns.iter().copied().zip(0..).collect();
    let mut text = String::new();
    for (at, name) in columns.iter().enumerate() {
        text.push_str(if at > 0 { "," } else { "" });
        write_csv_cell(&mut text, &Value::Text((*name).to_owned()));
    }
    text.push('\n');
    let mut cells: Vec<Option<&Value>> = vec![None; columns.len()];
    let mut before: Vec<usize> = Vec::new();
    for row in rows {
        cells.fill(None);
        for (at, (name, value)) in row.0.iter().enumerate() {
            // Nearly always the row before had the same column in this place.
            let known = before.get(at).copied().filter(|column| columns[*column] == name.as_str());
            let column = known.unwrap_or_else(|| index[name.as_str()]);
            before.resize(before.len().max(at + 1), column);
            before[at] = column;
            cells[column] = Some(value);
        }
        for (at, cell) in cells.iter().enumerate() {
            text.push_str(if at > 0 { "," } else { "" });
            if let Some(value) = cell {
                write_csv_cell(&mut text, value);
            }
        }
        text.push('\n');
    }
    text
}

/// What any row has: first the trial's, then the metrics, then the configuration.
fn columns(rows: &[Metrics]) -> Vec<&str> {
    let mut seen: HashSet<&str> = HashSet::new();
    let mut columns = Vec::new();
    let mut before: &[(String, Value)] = &[];
    for row in rows {
        for (at, (name, _)) in row.0.iter().enumerate() {
            let is_known = before.get(at).is_some_and(|(known, _)| known == name);
            if !is_known && seen.insert(name) {
                columns.push(name.as_str());
            }
        }
        before = &row.0;
    }
    columns.sort_by_key(|name| match name.split('/').next() {
        Some("trial") => 0,
        Some("config") => 2,
        _ => 1,
    });
    columns
}

pub fn json_lines(rows: &[Metrics]) -> String {
    let mut text = String::new();
    for row in rows {
        write_json(&mut text, row);
        text.push('\n');
    }
    text
}

fn json_list(rows: &[Metrics]) -> String {
    let lines = json_lines(rows);
    format!("[\n{}\n]\n", lines.trim_end().replace('\n', ",\n"))
}

fn print(text: &str) -> Result<(), Failure> {
    let mut out = std::io::stdout().lock();
    match out.write_all(text.as_bytes()).and_then(|()| out.flush()) {
        Err(error) if error.kind() != std::io::ErrorKind::BrokenPipe => {
            Err(Failure::new(ErrorCode::Storage, format!("cannot print the table: {error}")))
        }
        _ => Ok(()),
    }
}

/// A reader of the file sees the old or the new one, never half of it.
pub fn write_whole(path: &Path, bytes: &[u8]) -> Result<(), Failure> {
    let name = path.file_name().map(|name| name.to_string_lossy().into_owned()).unwrap_or_default();
    let part = path.with_file_name(format!(".{name}.part"));
    // What is no plain file, as `/dev/stdout`, is written to and never replaced.
    let written = if std::fs::metadata(path).is_ok_and(|there| !there.is_file()) {
        std::fs::write(path, bytes)
    } else {
        std::fs::write(&part, bytes).and_then(|()| std::fs::rename(&part, path))
    };
    written.map_err(|error| {
        let _ = std::fs::remove_file(&part);
        let failure = Failure::new(ErrorCode::Storage, format!("cannot write `{}`: {error}", path.display()));
        match path.parent() {
            Some(parent) if !parent.as_os_str().is_empty() && !parent.is_dir() => {
                failure.hint(format!("make the directory `{}` first", parent.display()))
            }
            _ => failure,
        }
    })
}
