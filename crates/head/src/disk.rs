//! Runs on real storage: a local path, or a local directory that is mirrored to storage elsewhere.

use std::path::PathBuf;

use carril_proto::VERSION;
use carril_store::{
    BlobStore, History, Journal, JournalRecord, Owner, PythonFilesystem, ReportFiles, RunDirectory, RunRecord, Storage,
    StoreError,
};
use carril_types::{ErrorCode, Failure, Metrics, Rank, RunSpec, RunStatus};

use crate::mirror::Mirror;
use crate::outside::{Checkpoints, Disk, OpenRequest, RunDisk, RunOpened};

pub struct RealDisk {
    /// Where the directories of runs lie whose storage is elsewhere.
    pub spool: PathBuf,
    pub blobs: BlobStore,
}

impl RealDisk {
    fn storage(&self, spec: &RunSpec) -> Result<Storage, Failure> {
        let filesystem = match &spec.filesystem {
            None => None,
            Some(spec) => {
                let missing = || Failure::new(ErrorCode::NotFound, format!("there is no blob `{}`", spec.pickle));
                let pickle = self.blobs.path(&spec.pickle).ok_or_else(missing)?;
                Some(PythonFilesystem { executable: spec.executable.clone(), path: spec.path.clone(), pickle })
            }
        };
        Ok(Storage::open(&spec.storage_path, filesystem)?.join(&spec.name))
    }
}

impl Disk for RealDisk {
    fn open_run(&self, request: &OpenRequest) -> Result<RunOpened, Failure> {
        let OpenRequest { id, spec, config, now } = request;
        let storage = self.storage(spec)?;
        let (path, mut mirror) = match storage.local_path() {
            Some(path) => (path.to_owned(), None),
            None => {
                let path = self.spool.join(id.as_str()).join("run");
                let mirror = Mirror::open(storage.clone(), &path)?;
                (path, Some(mirror))
            }
        };
        let record = RunRecord {
            name: spec.name.clone(),
            run_id: id.as_str().to_owned(),
            status: RunStatus::Waiting,
            started: *now,
            ended: None,
            carril_version: VERSION.to_owned(),
            owner: Owner::this_process(),
            renewed: *now,
            asked: serde_json::from_str(&spec.record).unwrap_or(serde_json::Value::Null),
        };
        let directory = RunDirectory::create(&path, storage.location(), record, spec.on_existing).map_err(explain)?;
        let checkpoints = Checkpoints::look(&storage)?;
        directory.write_params(config)?;
        let files = ReportFiles::open(&path, config, *now)?;
        let journal = Journal::open(&path.join("journal"))?;
        let history = History::replay(Journal::read(&path.join("journal"))?);
        if let Some(mirror) = &mut mirror {
            // Before a worker starts: storage that cannot be written is found out now.
            mirror.round()?;
        }
        let disk = Box::new(RealRun { directory, files, journal });
        Ok(RunOpened { disk, path, storage, checkpoints, history, mirror })
    }
}

fn explain(error: StoreError) -> Failure {
    let cannot_write = matches!(error, StoreError::Io { .. });
    let failure = Failure::from(error);
    if cannot_write {
        failure.hint("RunConfig(storage_path=…) must be a directory that can be written")
    } else {
        failure
    }
}

struct RealRun {
    directory: RunDirectory,
    files: ReportFiles,
    journal: Journal,
}

impl RunDisk for RealRun {
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

    fn set_status(&mut self, status: RunStatus) -> Result<(), Failure> {
        Ok(self.directory.set_status(status, None)?)
    }

    fn renew(&mut self, now: f64) -> Result<(), Failure> {
        Ok(self.directory.renew(now)?)
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
