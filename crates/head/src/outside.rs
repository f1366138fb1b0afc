//! The world as the head sees it, as traits: a simulation has its own.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::time::Duration;

use carril_core::Timer;
use carril_core::tune::TrialId;
use carril_core::tune::spec::ExperimentSpec;
use carril_proto::v1;
use carril_store::{Differences, Header, History, JournalRecord, Manifest, Recovered, Shard, Storage};
use carril_types::{ErrorCode, Failure, Metrics, NodeId, Rank, RunId, RunSpec, RunStatus, Validation, Value};
use tokio::sync::mpsc;

use crate::mirror::Mirror;

/// Clock, network, timers, and work that takes its time.
pub trait Outside: Send {
    /// Unix time in seconds.
    fn now(&self) -> f64;
    /// The time since any moment that stays the same: what durations are computed from, since somebody may set the clock.
    fn clock(&self) -> Duration;
    fn fresh_run_id(&mut self) -> RunId;
    fn to_agent(&mut self, node: &NodeId, order: v1::AgentOrder);
    /// Calls `Head::on_timer` with the same words after that time.
    fn set_timer(&mut self, run: RunId, timer: Timer, after: Duration);
    /// Calls `Head::on_retry_timer` after that time: what the disk has refused is tried again.
    fn set_retry_timer(&mut self, run: RunId, after: Duration);
    /// Calls `Head::on_progress_due` after that time.
    fn set_progress_timer(&mut self, run: RunId, after: Duration);
    /// Calls `Head::on_upkeep_due` after that time.
    fn set_upkeep_timer(&mut self, run: RunId, after: Duration);
    /// Calls `Head::on_lease_over` after that time.
    fn set_lease_timer(&mut self, run: RunId, after: Duration);
    /// Calls `Head::on_watcher_ready` once the watcher of this run has room again.
    fn when_watcher_ready(&mut self, run: RunId, watcher: u64, sender: mpsc::Sender<v1::RunEvent>);
    /// Calls `Head::on_run_opened` when the run's files are there, or cannot be.
    fn open_run(&mut self, request: OpenRequest);
    /// Calls `Head::on_latest_found` when every checkpoint was looked at, and the newest read in full.
    fn find_latest(&mut self, run: RunId, storage: Storage);
    /// Calls `Head::on_committed` when it is done.
    fn commit(&mut self, run: RunId, commit: Commit);
    /// Calls `Head::on_validation_kept` when it is done.
    fn keep_validation(&mut self, run: RunId, annotation: Annotation);
    /// Deletes what was stored of a checkpoint that never will be one; calls `Head::on_discarded` when it is done.
    fn discard(&mut self, run: RunId, name: String, checkpoint: Storage);
    /// Calls `Head::on_experiment_opened` when the experiment's files are there, or cannot be.
    fn open_experiment(&mut self, request: OpenExperiment);
    /// Calls `Head::on_budget_over` after that time.
    fn set_budget_timer(&mut self, experiment: RunId, after: Duration);
    /// Makes the newest checkpoint of one trial the newest of another; calls `Head::on_adopted` when it is done.
    fn adopt(&mut self, experiment: RunId, trial: TrialId, to: Storage, from: Storage);
    /// Calls `Head::on_mirrored` when it is done.
    fn mirror(&mut self, run: RunId, mirror: Mirror);
}

#[derive(Clone)]
pub struct OpenRequest {
    pub id: RunId,
    pub spec: RunSpec,
    pub config: Value,
    /// What the driver's environment says of storage.
    pub variables: BTreeMap<String, String>,
    pub now: f64,
}

#[derive(Clone)]
pub struct OpenExperiment {
    pub id: RunId,
    pub spec: ExperimentSpec,
    /// Each parameter in words.
    pub space: BTreeMap<String, String>,
    /// What the driver's environment says of storage.
    pub variables: BTreeMap<String, String>,
    pub now: f64,
}

pub struct ExperimentOpened {
    /// In what the request differs from the one that the search was started with.
    pub differences: Differences,
    /// So many trials come from another space or searcher.
    pub made_before: u64,
    /// What became of reports of trials that an earlier head could not store, in sentences.
    pub rescued: Vec<String>,
    /// All directories in its place, whichever experiment they come from.
    pub directories: Vec<String>,
    pub disk: Box<dyn ExperimentDisk>,
    pub storage: Storage,
    /// What earlier heads have written down of its trials, and what those have in their own files.
    pub before: Recovered,
    /// Lines that could not be read.
    pub unreadable: usize,
    /// Of the first of them, so that the names of trials go on.
    pub id: String,
    pub seed: u64,
    /// When the first of them began it, in Unix time.
    pub created: f64,
    /// Where the storage is not a local path.
    pub mirror: Option<Mirror>,
}

/// The files of one experiment.
pub trait ExperimentDisk: Send {
    /// Written out by the next `flush`.
    fn append(&mut self, line: &Metrics);
    fn flush(&mut self) -> Result<(), Failure>;
    fn log(&mut self, name: &str, line: &str) -> Result<(), Failure>;
    /// The owner is alive at this time.
    fn renew(&mut self, now: f64) -> Result<(), Failure>;
    /// Replaces all lines: some were lost, and read back from the trials' own files.
    fn rewrite(&mut self, lines: &[Metrics]) -> Result<(), Failure>;
    /// Writes the line of a trial's end into the trial's own directory, with the id of its last run.
    fn end_trial(&mut self, directory: &str, line: &Metrics, run: &str) -> Result<(), Failure>;
    fn end(&mut self, status: &str, reason: &str, at: f64) -> Result<(), Failure>;
    /// What somebody should know of the files, since the last time.
    fn take_warnings(&mut self) -> Vec<String>;
    /// Whether its directory is the one that it was.
    fn is_in_place(&self) -> bool;
    /// Makes files again that were moved or removed since the last time; true where there were any.
    fn restore(&mut self) -> Result<bool, Failure>;
    /// Its end could not be written: what its files say of their owner is not so.
    fn abandon(&mut self);
}

/// What the ranks have brought, to become one checkpoint.
pub struct Commit {
    pub iteration: u64,
    pub storage: Storage,
    pub name: String,
    pub header: Header,
    pub shards: Vec<Shard>,
    /// The files lie where they belong.
    pub in_place: bool,
    pub may_be_empty: bool,
    /// Of this head: one that was followed by another commits nothing.
    pub epoch: u64,
    /// Checkpoints that go once this one is there.
    pub displaced: Vec<String>,
    /// Brings the reports up to this one to storage elsewhere first: they are there when the checkpoint is.
    pub mirror: Option<Mirror>,
}

pub struct Committed {
    pub location: String,
    pub bytes: u64,
    /// What is left on the disk, where that can be known.
    pub free: Option<u64>,
    /// What could not be deleted of the displaced ones.
    pub trouble: Option<Failure>,
}

impl Commit {
    /// Blocks: files are moved, flushed and deleted.
    pub fn carry_out(&mut self) -> Result<Committed, Failure> {
        if let Some(mirror) = &mut self.mirror {
            mirror.round()?;
        }
        if !carril_store::is_current(&self.storage, self.epoch)? {
            return Err(taken(&self.storage));
        }
        let mut shards = self.shards.clone();
        if let Some(first) = shards.first_mut().filter(|_| self.in_place) {
            first.files = carril_store::prepare_in_place(&self.storage.join(&self.name), self.may_be_empty)?;
        }
        let committed = carril_store::commit(&self.storage, &self.name, &self.header, &shards, self.in_place)?;
        let removed = self.displaced.iter().map(|name| carril_store::remove(&self.storage, name));
        let trouble = removed.filter_map(Result::err).next().map(Failure::from);
        let free = self.storage.local_path().and_then(carril_store::free_space);
        Ok(Committed { location: committed.location, bytes: committed.bytes, free, trouble })
    }
}

/// What came of the check of a checkpoint, to be written down with it.
pub struct Annotation {
    pub storage: Storage,
    pub name: String,
    pub metrics: serde_json::Value,
    /// `None` for a check that came to no end: it is still due.
    pub validation: Option<Validation>,
    pub epoch: u64,
    /// Checkpoints that go now.
    pub displaced: Vec<String>,
}

impl Annotation {
    /// Blocks: files are written, flushed and deleted.
    pub fn carry_out(self) -> Result<(), Failure> {
        if !carril_store::is_current(&self.storage, self.epoch)? {
            return Err(taken(&self.storage));
        }
        let stays = !self.displaced.contains(&self.name);
        if let Some(validation) = self.validation.filter(|_| stays) {
            carril_store::annotate(&self.storage, &self.name, self.metrics, validation)?;
        }
        for name in &self.displaced {
            carril_store::remove(&self.storage, name)?;
        }
        Ok(())
    }
}

fn taken(storage: &Storage) -> Failure {
    let message = format!("another head has taken the run in `{}`", storage.location());
    Failure::new(ErrorCode::RunLive, message)
}

pub struct RunOpened {
    pub disk: Box<dyn RunDisk>,
    /// A local directory: the run's own, or the one that is mirrored to its storage.
    pub path: PathBuf,
    pub storage: Storage,
    pub checkpoints: Checkpoints,
    pub history: History,
    /// Where the run resumes: the last report of before, which may be behind the checkpoint.
    pub last: Option<Metrics>,
    /// When it was submitted, in Unix time: also to a head before that was lost.
    pub started: f64,
    /// What this head has taken the run with.
    pub epoch: u64,
    pub mirror: Option<Mirror>,
    /// In what the request differs from the one that the run was started with.
    pub differences: Differences,
    /// What became of reports that an earlier start could not store, in sentences.
    pub rescued: Vec<String>,
}

/// The checkpoints of a run as its storage has them.
pub struct Checkpoints {
    /// Those that can be gone on from, in order of their reports.
    pub kept: Vec<(String, Manifest)>,
    /// The number of the next one that nobody names.
    pub next: u32,
    /// Damaged ones, by name, and why.
    pub set_aside: Vec<(String, String)>,
}

impl Checkpoints {
    /// Blocks: the newest one is read in full, and damaged ones are moved aside.
    pub fn look(storage: &Storage) -> Result<Self, Failure> {
        let found = carril_store::find_latest(storage)?;
        // Damaged ones keep their numbers: their files may still lie there.
        let number = |name: &String| name.strip_prefix("checkpoint_")?.get(..6)?.parse::<u32>().ok();
        let next = storage.names()?.iter().filter_map(number).max().map_or(0, |number| number + 1);
        Ok(Self { kept: found.kept, next, set_aside: found.set_aside })
    }
}

/// Where runs are kept.
pub trait Disk: Send + Sync {
    /// Blocks: a checkpoint that is there is read in full.
    fn open_run(&self, request: &OpenRequest) -> Result<RunOpened, Failure>;
    fn open_experiment(&self, request: &OpenExperiment) -> Result<ExperimentOpened, Failure>;
}

/// The files of one run.
pub trait RunDisk: Send {
    fn journal(&mut self, record: &JournalRecord) -> Result<(), Failure>;
    fn append(&mut self, at: f64, iteration: u64, reported: &Metrics, automatic: &Metrics) -> Result<(), Failure>;
    fn append_rank(&mut self, rank: Rank, metrics: &Metrics) -> Result<(), Failure>;
    fn flush(&mut self) -> Result<(), Failure>;
    fn set_status(&mut self, status: RunStatus) -> Result<(), Failure>;
    /// The owner is alive at this time.
    fn renew(&mut self, now: f64) -> Result<(), Failure>;
    /// Makes files again that were moved or removed since the last time; true where there were any.
    fn restore(&mut self) -> Result<bool, Failure>;
    /// What somebody should know of the files, since the last time.
    fn take_warnings(&mut self) -> Vec<String> {
        Vec::new()
    }
    /// Where every rank was, the last time somebody asked.
    fn write_stacks(&mut self, text: &str) -> Result<(), Failure>;
    /// May be called again where it fails: what was written then is not written twice.
    fn end(&mut self, status: RunStatus, at: f64, error: Option<(String, serde_json::Value)>) -> Result<(), Failure>;
    /// Copies everything that was reported, written or not, to a directory where there is room.
    fn rescue(&mut self) -> Result<PathBuf, Failure>;
    /// Whether its directory is the one that it was.
    fn is_in_place(&self) -> bool;
    /// The run has ended, and its files are to be made again where its directory comes back.
    fn hold(&mut self) -> Result<(), Failure>;
}

/// The files of a run that has ended: everything has been written.
pub(crate) struct Closed;

impl RunDisk for Closed {
    fn journal(&mut self, _: &JournalRecord) -> Result<(), Failure> {
        Ok(())
    }

    fn append(&mut self, _: f64, _: u64, _: &Metrics, _: &Metrics) -> Result<(), Failure> {
        Ok(())
    }

    fn append_rank(&mut self, _: Rank, _: &Metrics) -> Result<(), Failure> {
        Ok(())
    }

    fn flush(&mut self) -> Result<(), Failure> {
        Ok(())
    }

    fn set_status(&mut self, _: RunStatus) -> Result<(), Failure> {
        Ok(())
    }

    fn renew(&mut self, _: f64) -> Result<(), Failure> {
        Ok(())
    }

    fn restore(&mut self) -> Result<bool, Failure> {
        Ok(false)
    }

    fn write_stacks(&mut self, _: &str) -> Result<(), Failure> {
        Ok(())
    }

    fn end(&mut self, _: RunStatus, _: f64, _: Option<(String, serde_json::Value)>) -> Result<(), Failure> {
        Ok(())
    }

    fn rescue(&mut self) -> Result<PathBuf, Failure> {
        Err(Failure::new(ErrorCode::Internal, "the files of this run are closed"))
    }

    fn is_in_place(&self) -> bool {
        true
    }

    fn hold(&mut self) -> Result<(), Failure> {
        Ok(())
    }
}
