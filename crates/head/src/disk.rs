//! Runs on a local path.

use std::path::{Path, PathBuf};

use carril_proto::VERSION;
use carril_store::{Journal, JournalRecord, Owner, ReportFiles, RunDirectory, RunRecord, StoreError, commit, latest};
use carril_types::{Failure, Metrics, Rank, RunId, RunSpec, RunStatus, Value};

use crate::outside::{Disk, RunDisk, RunOpened};

pub struct LocalDisk;

impl Disk for LocalDisk {
    fn open_run(&mut self, id: &RunId, spec: &RunSpec, config: &Value, now: f64) -> Result<RunOpened, Failure> {
        let record = RunRecord {
            name: spec.name.clone(),
            run_id: id.as_str().to_owned(),
            status: RunStatus::Waiting,
            started: now,
            ended: None,
            carril_version: VERSION.to_owned(),
            owner: Owner::this_process(),
            asked: serde_json::from_str(&spec.record).unwrap_or(serde_json::Value::Null),
        };
        let directory =
            RunDirectory::create(Path::new(&spec.storage_path), record, spec.on_existing).map_err(|error| {
                let cannot_write = matches!(error, StoreError::Io { .. });
                let failure = Failure::from(error);
                if cannot_write {
                    failure.hint("RunConfig(storage_path=…) must be a directory that can be written")
                } else {
                    failure
                }
            })?;
        directory.write_params(config)?;
        let path = directory.path().to_owned();
        let (latest_checkpoint, next_checkpoint) = latest(&path);
        let files = ReportFiles::open(&path, config, now)?;
        let journal = Journal::open(&path.join("journal"))?;
        let disk = Box::new(LocalRun { directory, files, journal });
        Ok(RunOpened { disk, path, latest_checkpoint, next_checkpoint })
    }
}

struct LocalRun {
    directory: RunDirectory,
    files: ReportFiles,
    journal: Journal,
}

impl RunDisk for LocalRun {
    fn journal(&mut self, record: &JournalRecord) -> Result<(), Failure> {
        Ok(self.journal.append(record)?)
    }

    fn append(&mut self, at: f64, iteration: u64, reported: &Metrics, automatic: &Metrics) -> Result<(), Failure> {
        Ok(self.files.append(at, iteration, reported, automatic)?)
    }

    fn append_rank(&mut self, rank: Rank, metrics: &Metrics) -> Result<(), Failure> {
        Ok(self.files.append_rank(rank, metrics)?)
    }

    fn flush(&mut self) -> Result<(), Failure> {
        Ok(self.files.flush()?)
    }

    fn commit_checkpoint(&mut self, iteration: u64, ranks: &[Rank], name: &str) -> Result<PathBuf, Failure> {
        Ok(commit(self.directory.path(), iteration, ranks, name)?)
    }

    fn set_status(&mut self, status: RunStatus) -> Result<(), Failure> {
        Ok(self.directory.set_status(status, None)?)
    }

    fn write_stacks(&mut self, text: &str) -> Result<(), Failure> {
        Ok(self.directory.write_text("stacks.txt", text)?)
    }

    fn end(&mut self, status: RunStatus, at: f64, error: Option<(String, serde_json::Value)>) -> Result<(), Failure> {
        self.files.flush()?;
        if let Some((text, json)) = error {
            self.directory.write_error(&text, &json)?;
        }
        self.directory.remove_staging();
        Ok(self.directory.set_status(status, Some(at))?)
    }
}
