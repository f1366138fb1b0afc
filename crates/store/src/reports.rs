//! The files that hold what was reported: `result.json`, `progress.csv`, TensorBoard's, and `ranks/` for the other ranks.
//!
//! Lines are gathered and written by `flush`, which the head calls after each batch, so that the files can be read while
//! the run goes on.

use std::fs::{self, File};
use std::io::Write;
use std::path::{Path, PathBuf};

use carril_types::{Metrics, Rank, Value, write_json};

use crate::csv::CsvFile;
use crate::error::StoreError;
use crate::owner::hostname;
use crate::tensorboard;

struct Lines {
    path: PathBuf,
    file: File,
    buffer: String,
}

impl Lines {
    fn open(path: PathBuf) -> Result<Self, StoreError> {
        let file = File::options().create(true).append(true).open(&path).map_err(StoreError::io("open", &path))?;
        Ok(Self { path, file, buffer: String::new() })
    }

    fn flush(&mut self) -> Result<(), StoreError> {
        if !self.buffer.is_empty() {
            self.file.write_all(self.buffer.as_bytes()).map_err(StoreError::io("write", &self.path))?;
            self.buffer.clear();
        }
        Ok(())
    }
}

pub struct ReportFiles {
    result: Lines,
    csv: CsvFile,
    /// Open files of `ranks/`, by rank; opened with the first report.
    ranks: Vec<Option<Lines>>,
    ranks_directory: PathBuf,
    events: Option<File>,
    events_path: PathBuf,
    events_buffer: Vec<u8>,
    /// Of a trial: told to TensorBoard with the first report.
    parameters: Option<Metrics>,
    /// `, "config": {…}` as it ends every line of `result.json`, written out once.
    config: String,
}

impl ReportFiles {
    pub fn open(directory: &Path, config: &Value, now: f64) -> Result<Self, StoreError> {
        let ranks_directory = directory.join("ranks");
        fs::create_dir_all(&ranks_directory).map_err(StoreError::io("make", &ranks_directory))?;
        let mut text = String::new();
        write_json(&mut text, &Metrics(vec![("config".into(), config.clone())]));
        Ok(Self {
            result: Lines::open(directory.join("result.json"))?,
            csv: CsvFile::open(&directory.join("progress.csv"))?,
            ranks: Vec::new(),
            ranks_directory,
            events: None,
            events_path: tensorboard::file_name(directory, now as u64, &hostname()),
            events_buffer: Vec::new(),
            parameters: None,
            config: format!(", {}", &text[1..]),
        })
    }

    /// The run is a trial, made with these parameters.
    pub fn set_parameters(&mut self, parameters: Metrics) {
        self.parameters = Some(parameters);
    }

    /// A report of the run. `automatic` are the fields that we add; a key of the user's is never written twice.
    pub fn append(
        &mut self,
        at: f64,
        iteration: u64,
        reported: &Metrics,
        automatic: &Metrics,
    ) -> Result<(), StoreError> {
        let mut all = reported.clone();
        for (key, value) in &automatic.0 {
            all.set_default(key, value.clone());
        }
        write_json(&mut self.result.buffer, &all);
        if reported.get("config").is_none() {
            self.result.buffer.pop();
            self.result.buffer.push_str(&self.config);
        }
        self.result.buffer.push('\n');
        self.csv.append(&all)?;
        if self.events.is_none() {
            let path = &self.events_path;
            let file = File::options().create(true).append(true).open(path).map_err(StoreError::io("open", path))?;
            self.events = Some(file);
            tensorboard::write_version(&mut self.events_buffer, at);
            if let Some(parameters) = &self.parameters {
                tensorboard::write_parameters(&mut self.events_buffer, at, parameters);
            }
        }
        tensorboard::write_scalars(&mut self.events_buffer, at, iteration, reported);
        Ok(())
    }

    pub fn append_rank(&mut self, rank: Rank, metrics: &Metrics) -> Result<(), StoreError> {
        if self.ranks.len() <= rank.index() {
            self.ranks.resize_with(rank.index() + 1, || None);
        }
        let slot = &mut self.ranks[rank.index()];
        let lines = match slot {
            Some(lines) => lines,
            None => slot.insert(Lines::open(self.ranks_directory.join(format!("rank_{rank}.json")))?),
        };
        write_json(&mut lines.buffer, metrics);
        lines.buffer.push('\n');
        Ok(())
    }

    pub fn flush(&mut self) -> Result<(), StoreError> {
        self.result.flush()?;
        self.csv.flush()?;
        for lines in self.ranks.iter_mut().flatten() {
            lines.flush()?;
        }
        if let Some(events) = &mut self.events
            && !self.events_buffer.is_empty()
        {
            events.write_all(&self.events_buffer).map_err(StoreError::io("write", &self.events_path))?;
            self.events_buffer.clear();
        }
        Ok(())
    }
}
