//! The files that hold what was reported: `result.json`, `progress.csv`, TensorBoard's, and `ranks/` for the other ranks.
//!
//! Lines are gathered and written by `flush`, which the head calls after each batch, so that the files can be read while
//! the run goes on. What cannot be written is kept for the next flush.

use std::fs;
use std::path::{Path, PathBuf};

use carril_types::{Metrics, Rank, Value, count, verb, write_json};

use crate::append::{AppendFile, Lines};
use crate::csv::CsvFile;
use crate::error::StoreError;
use crate::local;
use crate::owner::hostname;
use crate::tensorboard;

pub struct ReportFiles {
    result: Lines,
    csv: CsvFile,
    /// Open files of `ranks/`, by rank; opened with the first report.
    ranks: Vec<Option<Lines>>,
    ranks_directory: PathBuf,
    events: Option<AppendFile>,
    events_path: PathBuf,
    events_buffer: Vec<u8>,
    /// Of a run that has ended, where its directory may come back.
    output: Vec<AppendFile>,
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
            csv: CsvFile::open(&directory.join("progress.csv"), &directory.join("result.json"))?,
            result: Lines::open(directory.join("result.json"))?,
            ranks: Vec::new(),
            ranks_directory,
            events: None,
            events_path: tensorboard::file_name(directory, now as u64, &hostname()),
            events_buffer: Vec::new(),
            output: Vec::new(),
            parameters: None,
            config: format!(", {}", &text[1..]),
        })
    }

    /// The run is a trial, made with these parameters.
    pub fn set_parameters(&mut self, parameters: Metrics) {
        self.parameters = Some(parameters);
    }

    /// A report of the run. `automatic` are the fields that we add; a key of the user's is never written twice.
    pub fn append(&mut self, at: f64, iteration: u64, reported: &Metrics, automatic: &Metrics) {
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
        self.csv.append(&all);
        if self.events.is_none() && self.events_buffer.is_empty() {
            tensorboard::write_version(&mut self.events_buffer, at);
            if let Some(parameters) = &self.parameters {
                tensorboard::write_parameters(&mut self.events_buffer, at, parameters);
            }
        }
        tensorboard::write_scalars(&mut self.events_buffer, at, iteration, reported);
    }

    pub fn append_rank(&mut self, rank: Rank, metrics: &Metrics) {
        if self.ranks.len() <= rank.index() {
            self.ranks.resize_with(rank.index() + 1, || None);
        }
        let slot = &mut self.ranks[rank.index()];
        let path = || self.ranks_directory.join(format!("rank_{rank}.json"));
        let lines = slot.get_or_insert_with(|| Lines::new(path()));
        write_json(&mut lines.buffer, metrics);
        lines.buffer.push('\n');
    }

    /// Writes what can be written, and tells of the first file that cannot. With `all`, nothing is put off.
    pub fn flush(&mut self, all: bool) -> Result<(), StoreError> {
        let mut done = self.result.flush();
        done = done.and(self.csv.flush(all));
        for lines in self.ranks.iter_mut().flatten() {
            done = done.and(lines.flush());
        }
        done.and(self.flush_events())
    }

    fn flush_events(&mut self) -> Result<(), StoreError> {
        if self.events_buffer.is_empty() {
            return Ok(());
        }
        let events = match &mut self.events {
            Some(events) => events,
            none => none.insert(AppendFile::open_binary(&self.events_path)?),
        };
        events.append(&self.events_buffer)?;
        self.events_buffer.clear();
        Ok(())
    }

    /// Makes files again that were taken away; true where there were any.
    pub fn restore(&mut self) -> Result<bool, StoreError> {
        let mut restored = self.result.restore()? | self.csv.restore()?;
        for lines in self.ranks.iter_mut().flatten() {
            restored |= lines.restore()?;
        }
        for file in self.events.iter_mut().chain(&mut self.output) {
            restored |= file.restore()?;
        }
        Ok(restored)
    }

    /// Holds the output of the ranks open too, which others have written, so that `restore` makes it again.
    pub fn hold_output(&mut self) -> Result<(), StoreError> {
        let (_, files) = local::level(&self.ranks_directory)?;
        let logs = files.into_iter().filter(|name| name.ends_with(".log"));
        self.output =
            logs.map(|name| AppendFile::open_binary(&self.ranks_directory.join(name))).collect::<Result<_, _>>()?;
        Ok(())
    }

    /// What somebody has cut off files since the last time: those reports are in no file any more.
    pub fn take_warnings(&mut self) -> Vec<String> {
        let ranks = self.ranks.iter_mut().flatten();
        let lost =
            self.result.take_lost().into_iter().chain(self.csv.take_lost()).chain(ranks.filter_map(Lines::take_lost));
        let text = |(path, lost): (&Path, u64)| {
            let (reports, are) = (count(lost, "report"), verb(lost, "is", "are"));
            format!("`{}` was cut short while the run was going on: {reports} {are} missing from it", path.display())
        };
        lost.map(text).collect()
    }

    /// Writes all of it into another directory, with what the run's own could not take.
    pub fn copy_into(&self, directory: &Path) -> Result<(), StoreError> {
        let ranks = directory.join("ranks");
        fs::create_dir_all(&ranks).map_err(StoreError::io("make", &ranks))?;
        self.result.copy_into(directory)?;
        self.csv.copy_into(directory)?;
        self.ranks.iter().flatten().try_for_each(|lines| lines.copy_into(&ranks))
    }
}
