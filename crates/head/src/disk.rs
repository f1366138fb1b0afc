//! Runs on real storage: a local path, or a local directory that is mirrored to storage elsewhere.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use carril_core::tune::Mode;
use carril_core::tune::spec::{ExperimentSpec, SchedulerSpec, SearcherSpec};
use carril_proto::VERSION;
use carril_store::{
    BlobStore, Differences, EXPERIMENT, EXPERIMENT_FORMAT, Existing, Experiment, ExperimentFiles, ExperimentRecord,
    Fact, History, Journal, JournalRecord, Owner, PythonFilesystem, RUN_FORMAT, Recovered, ReportFiles, RunDirectory,
    RunRecord, Storage, StoreError, TRIALS, TrialState, last_report, recover, restore_record, take_epoch, take_rescued,
};
use carril_types::{
    ErrorCode, Failure, Metrics, OnExisting, OtherConfig, Rank, RunSpec, RunStatus, Value, WorkerCommand, count,
};
use serde::Deserialize;

use crate::mirror::Mirror;
use crate::outside::{
    Checkpoints, Disk, ExperimentDisk, ExperimentOpened, OpenExperiment, OpenRequest, RunDisk, RunOpened,
};

/// What `Trainer.restore` needs, as Python pickled it. No other file is written for a driver.
const KEPT: [&str; 2] = ["function.pkl", "trainer.pkl"];

pub struct RealDisk {
    /// Where the directories of runs lie whose storage is elsewhere.
    spool: PathBuf,
    blobs: BlobStore,
    /// Who holds the runs that are opened here.
    owner: Owner,
    abandoned: Abandoned,
}

/// Runs and experiments of this process that have ended without being able to write it, by their ids: their records say that they are
/// live.
type Abandoned = Arc<Mutex<BTreeSet<String>>>;

fn lock(abandoned: &Abandoned) -> MutexGuard<'_, BTreeSet<String>> {
    abandoned.lock().unwrap_or_else(PoisonError::into_inner)
}

/// The same for an experiment, which did not finish.
fn close_abandoned_experiment(path: &Path, abandoned: &Abandoned) -> Result<(), StoreError> {
    match ExperimentRecord::read(path) {
        Some(record) if lock(abandoned).remove(&record.id) && record.status == "running" => {
            ExperimentFiles::close(path, record)
        }
        _ => Ok(()),
    }
}

/// Writes down what a run could not at its end.
fn close_abandoned(path: &Path, abandoned: &Abandoned) -> Result<(), StoreError> {
    match RunRecord::read(path) {
        Some(record) if lock(abandoned).remove(&record.run_id) => RunDirectory::close(path, record),
        _ => Ok(()),
    }
}

impl RealDisk {
    pub fn new(spool: PathBuf, blobs: BlobStore, owner: Owner) -> Self {
        Self { spool, blobs, owner, abandoned: Abandoned::default() }
    }

    fn storage(&self, spec: &RunSpec, variables: &BTreeMap<String, String>) -> Result<Storage, Failure> {
        let filesystem = match &spec.filesystem {
            None => None,
            Some(spec) => {
                let pickle = self.blob(&spec.pickle)?;
                Some(PythonFilesystem { executable: spec.executable.clone(), path: spec.path.clone(), pickle })
            }
        };
        Ok(Storage::open_with(&spec.storage_path, filesystem, variables)?.join(&spec.name))
    }

    fn blob(&self, hash: &str) -> Result<PathBuf, Failure> {
        let missing = || Failure::new(ErrorCode::NotFound, format!("there is no blob `{hash}`"));
        self.blobs.path(hash).ok_or_else(missing)
    }
}

impl Disk for RealDisk {
    fn open_experiment(&self, request: &OpenExperiment) -> Result<ExperimentOpened, Failure> {
        self.opened(|begun| self.open_experiment_files(request, begun))
    }

    fn open_run(&self, request: &OpenRequest) -> Result<RunOpened, Failure> {
        self.opened(|begun| self.open_run_files(request, begun))
    }
}

impl RealDisk {
    /// What is begun, and then cannot be opened to its end, has a record which says that it is live.
    fn opened<T>(&self, open: impl FnOnce(&mut Option<String>) -> Result<T, Failure>) -> Result<T, Failure> {
        let mut begun = None;
        open(&mut begun).inspect_err(|_| lock(&self.abandoned).extend(begun))
    }

    fn open_experiment_files(
        &self,
        request: &OpenExperiment,
        begun: &mut Option<String>,
    ) -> Result<ExperimentOpened, Failure> {
        let OpenExperiment { id, spec, variables, .. } = request;
        let place = RunSpec { name: spec.name.clone(), storage_path: spec.storage_path.clone(), ..spec.run.clone() };
        let storage = self.storage(&place, variables)?;
        let path = storage.local_path().map_or_else(|| self.spool.join(id.as_str()).join("experiment"), Path::to_owned);
        let open = || Mirror::of_experiment(storage.clone(), &path);
        let mut mirror = opened_behind_its_owner(&storage, &path.join(EXPERIMENT), open)?;
        close_abandoned_experiment(&path, &self.abandoned)?;
        let record = record_of(request, &self.owner);
        let restored = restore_record(&storage, &path, &record)?;
        let (differences, is_other) = search_differences(request, &record, &path)?;
        let existing = existing(spec);
        let opened = ExperimentFiles::open(&path, storage.location(), record, existing);
        let opened = opened.map_err(|error| explain_experiment(error, &path))?;
        let (mut files, lines) = opened;
        *begun = Some(files.record().id.clone());
        if take_epoch(&storage, &self.owner)?.is_none() {
            let message = format!("an experiment named `{}` is being started by another head", spec.name);
            return Err(Failure::new(ErrorCode::RunLive, message).hint("give the experiment another `name`"));
        }
        if let Some(mirror) = &mut mirror {
            mirror.round()?;
        }
        let (id, seed, created) = (files.record().id.clone(), files.record().seed, files.record().created);
        let unreadable = lines.unreadable;
        let rescued = take_rescued(storage.location(), &storage);
        let before = if lines.resumes {
            recover(&storage, &id, lines.readable, spec.metric.as_deref())?
        } else {
            Recovered::default()
        };
        let unreadable = unreadable + before.left_out;
        files.begin(is_other.then(|| before.made()))?;
        restored.into_iter().for_each(|text| files.warn(text));
        let made_before = files.record().made_before;
        // Of an earlier experiment too: a trial that a user has named like one of those gets another directory.
        let directories = storage.directories()?;
        let disk = Box::new(RealExperiment { files, abandoned: self.abandoned.clone() });
        Ok(ExperimentOpened {
            disk,
            storage,
            before,
            unreadable,
            id,
            seed,
            created,
            mirror,
            differences,
            made_before,
            rescued,
            directories,
        })
    }

    fn open_run_files(&self, request: &OpenRequest, begun: &mut Option<String>) -> Result<RunOpened, Failure> {
        let OpenRequest { id, spec, config, variables, now } = request;
        let storage = self.storage(spec, variables)?;
        let path = storage.local_path().map_or_else(|| self.spool.join(id.as_str()).join("run"), Path::to_owned);
        let mut mirror =
            opened_behind_its_owner(&storage, &path.join("run.json"), || Mirror::open(storage.clone(), &path))?;
        close_abandoned(&path, &self.abandoned)?;
        let differences = differences(request, &path, &storage)?;
        let mut asked = serde_json::from_str(&spec.record).unwrap_or(serde_json::Value::Null);
        let wanted = to_keep(&mut asked);
        let before = RunRecord::read(&path).filter(|_| spec.continues.is_some());
        let started = before.map_or(*now, |before| before.started);
        let record = RunRecord {
            format: RUN_FORMAT,
            name: spec.name.clone(),
            run_id: id.as_str().to_owned(),
            status: RunStatus::Waiting,
            started,
            ended: None,
            carril_version: VERSION.to_owned(),
            owner: self.owner.clone(),
            renewed: *now,
            kept: still_kept(&path, &storage, &wanted),
            num_workers: Some(spec.num_workers),
            data: Some(spec.data.clone()),
            asked,
        };
        let is_trial = spec.trial.is_some();
        let begins = is_trial && mirror.is_none() && !path.exists();
        let mut directory =
            RunDirectory::create(&path, storage.location(), record, spec.on_existing, is_trial && mirror.is_none())
                .map_err(explain)?;
        *begun = Some(id.as_str().to_owned());
        // Who has an experiment has its trials.
        let taken = if is_trial { Some(0) } else { take_epoch(&storage, &self.owner)? };
        let Some(epoch) = taken else {
            let message =
                format!("a run named `{}` is being started in `{}` by another head", spec.name, spec.storage_path);
            return Err(Failure::new(ErrorCode::RunLive, message).hint("give the run another `name`"));
        };
        // Those of a trial were taken in with its experiment, which knows how far it came.
        let rescued = if is_trial { Vec::new() } else { take_rescued(storage.location(), &Storage::local(&path)) };
        let nothing = || Checkpoints { kept: Vec::new(), next: 0, set_aside: Vec::new() };
        let checkpoints = if begins { nothing() } else { Checkpoints::look(&storage)? };
        // One that resumes keeps the config of what it has reported until it reports with this one.
        let params = if is_trial && path.join("params.json").exists() {
            Params::AfterReport
        } else {
            directory.write_params(config)?;
            Params::Written
        };
        // A trial's last report is known to its experiment.
        let last = if is_trial { None } else { last_report(&Storage::local(&path))? };
        let mut files = ReportFiles::open(&path, config, *now)?;
        if let (Some(_), Value::Map(parameters)) = (&spec.trial, config) {
            files.set_parameters(parameters.clone());
        }
        let place = path.join("journal");
        let is_there = place.exists();
        // A trial whose journal was needed once goes on with it: the story would end with what went wrong.
        let journal = if is_trial && !is_there {
            Words::Kept(place.clone(), Vec::new())
        } else {
            Words::Written(Journal::open(&place)?)
        };
        let history = if is_there { History::replay(Journal::read(&place)?) } else { History::default() };
        if let Some(mirror) = &mut mirror {
            // Before a worker starts: storage that cannot be written is found out now.
            mirror.round()?;
        }
        let wanted = wanted.into_iter().map(|(name, hash)| self.blob(&hash).map(|blob| (name, hash, blob)));
        let wanted = wanted.collect::<Result<Vec<_>, _>>()?;
        directory.keep(&storage, &wanted)?;
        let has_record = !is_trial || path.join("run.json").exists();
        let (kept, config) = ((storage.clone(), wanted), config.clone());
        let abandoned = self.abandoned.clone();
        let ended = None;
        let disk = RealRun { directory, files, journal, kept, config, params, has_record, is_trial, ended, abandoned };
        let disk = Box::new(disk);
        Ok(RunOpened { disk, path, storage, checkpoints, history, last, started, epoch, mirror, differences, rescued })
    }
}

struct RealExperiment {
    files: ExperimentFiles,
    abandoned: Abandoned,
}

impl ExperimentDisk for RealExperiment {
    fn append(&mut self, line: &Metrics) {
        self.files.append(line);
    }

    fn flush(&mut self) -> Result<(), Failure> {
        Ok(self.files.flush()?)
    }

    fn log(&mut self, name: &str, line: &str) -> Result<(), Failure> {
        Ok(self.files.log(name, line)?)
    }

    fn renew(&mut self, now: f64) -> Result<(), Failure> {
        self.files.flush()?;
        Ok(self.files.renew(now)?)
    }

    fn rewrite(&mut self, lines: &[Metrics]) -> Result<(), Failure> {
        Ok(self.files.rewrite(lines)?)
    }

    fn end_trial(&mut self, directory: &str, line: &Metrics, run: &str) -> Result<(), Failure> {
        Ok(self.files.end_trial(directory, line, run)?)
    }

    fn end(&mut self, status: &str, reason: &str, at: f64) -> Result<(), Failure> {
        Ok(self.files.end(status, reason, at)?)
    }

    fn take_warnings(&mut self) -> Vec<String> {
        self.files.take_warnings()
    }

    fn is_in_place(&self) -> bool {
        self.files.is_in_place()
    }

    fn restore(&mut self) -> Result<bool, Failure> {
        Ok(self.files.restore()?)
    }

    fn abandon(&mut self) {
        lock(&self.abandoned).insert(self.files.record().id.clone());
    }
}

/// The mirror of what is kept elsewhere. A driver that starts again at once finds the head of the one before still ending:
/// its end is waited for, and what it wrote last is fetched.
fn opened_behind_its_owner(
    storage: &Storage,
    record: &Path,
    open: impl Fn() -> Result<Mirror, StoreError>,
) -> Result<Option<Mirror>, Failure> {
    let fetched = || if storage.local_path().is_none() { open().map(Some) } else { Ok(None) };
    let mirror = fetched()?;
    let content = carril_store::regular::read(record).ok().and_then(|bytes| serde_json::from_slice(&bytes).ok());
    let content: serde_json::Value = content.unwrap_or_default();
    match Owner::deserialize(&content["owner"]) {
        Ok(owner) if owner.is_ending() => {
            owner.wait_for_end();
            Ok(fetched()?)
        }
        _ => Ok(mirror),
    }
}

fn record_of(request: &OpenExperiment, owner: &Owner) -> ExperimentRecord {
    let OpenExperiment { id, spec, space, now, .. } = request;
    let words = |own: Option<String>, given: &str| own.unwrap_or_else(|| given.to_owned());
    let scheduler = spec.scheduler.as_ref().map(SchedulerSpec::describe);
    ExperimentRecord {
        format: EXPERIMENT_FORMAT,
        name: spec.name.clone(),
        id: id.as_str().to_owned(),
        status: "running".to_owned(),
        reason: String::new(),
        created: *now,
        ended: None,
        carril_version: VERSION.to_owned(),
        trainable: spec.trainable.clone(),
        metric: spec.metric.clone(),
        mode: spec.mode.map(|mode| if mode == Mode::Min { "min" } else { "max" }.to_owned()),
        num_samples: spec.num_samples,
        searcher_kind: Some(words(spec.searcher.as_ref().map(SearcherSpec::kind), &spec.searcher_name)),
        space: Some(space.clone()),
        made_before: 0,
        searcher: words(spec.searcher.as_ref().map(SearcherSpec::describe), &spec.searcher_name),
        scheduler: words(scheduler, &spec.scheduler_name),
        seed: spec.seed,
        owner: owner.clone(),
        renewed: *now,
        asked: serde_json::from_str(&spec.record).unwrap_or(serde_json::Value::Null),
    }
}

/// In what the request differs from the one that the run was started with. Refused where a checkpoint of one config would be
/// trained on with another, and nobody has said that this is meant. A trial's config is its experiment's affair.
fn differences(request: &OpenRequest, path: &Path, storage: &Storage) -> Result<Differences, Failure> {
    let OpenRequest { spec, config, now, .. } = request;
    let before = RunRecord::read(path).filter(|_| spec.trial.is_none() && spec.continues.is_none());
    let Some(before) = before else { return Ok(Differences::default()) };
    let found = Differences::find(path, &before, config, spec.num_workers, &spec.data);
    // Of one that is live or has finished something else is to be said.
    let resumes =
        !before.is_live(*now) && (before.status != RunStatus::Finished || spec.on_existing == OnExisting::Reuse);
    if found.config.is_empty() || spec.other_config == OtherConfig::Warn || !resumes {
        return Ok(found);
    }
    let mut whole = carril_store::list_checkpoints(storage)?.into_iter().filter_map(|listed| listed.state.ok());
    let Some(newest) = whole.next_back() else { return Ok(found) };
    let (resume, name) = match spec.worker {
        WorkerCommand::Python(_) => ("`RunConfig(resume=True)`", "`RunConfig(name=…)`"),
        WorkerCommand::Command { .. } => ("`RunConfig { resume: true, .. }`", "`RunConfig::named(…)`"),
    };
    let message = format!("the run `{}` was started with another config: {}", spec.name, found.describe());
    Err(Failure::new(ErrorCode::InvalidConfig, message)
        .hint(format!("{resume} resumes it after report {} with the config that is given now", newest.iteration))
        .hint(format!("another name, {name}, starts a new run")))
}

/// What is asked for, where the directory holds an experiment.
fn existing(spec: &ExperimentSpec) -> Existing {
    match (spec.goes_on, spec.begins_anew, spec.run.on_existing) {
        (true, ..) => Existing::Extend,
        (false, true, _) => Existing::Begin,
        (false, false, OnExisting::Reuse) => Existing::ResumeOrBegin,
        (false, false, OnExisting::Refuse) => Existing::Resume,
    }
}

/// In what the request differs from the one that the search was started with, and whether that makes another search of it: other
/// configs come out of it than those that were tried. Refused where nobody has said that this is meant.
fn search_differences(
    request: &OpenExperiment,
    record: &ExperimentRecord,
    path: &Path,
) -> Result<(Differences, bool), Failure> {
    let OpenExperiment { spec, now, .. } = request;
    let nothing = (Differences::default(), false);
    let Some(before) = ExperimentRecord::read(path) else { return Ok(nothing) };
    // Of one that is live or has finished something else is to be said.
    let resumes = !before.is_live(*now) && existing(spec).resumes(&before);
    let has_trials = std::fs::metadata(path.join(TRIALS)).is_ok_and(|found| found.len() > 0);
    let found = Differences::of_searches(&before, record);
    if found.is_empty() || !resumes || !has_trials {
        return Ok(nothing);
    }
    let is_other = !found.config.is_empty()
        || (&before.metric, &before.mode) != (&record.metric, &record.mode)
        || before.searcher_kind.as_ref().is_some_and(|kind| Some(kind) != record.searcher_kind.as_ref());
    if spec.run.other_config == OtherConfig::Warn || spec.goes_on {
        return Ok((found, is_other));
    }
    let (resume, name) = match spec.run.worker {
        WorkerCommand::Python(_) => ("`RunConfig(resume=True)`", "`RunConfig(name=…)`"),
        WorkerCommand::Command { .. } => ("`RunConfig { resume: true, .. }`", "`RunConfig::named(…)`"),
    };
    let what = if found.config.is_empty() { "other settings" } else { "another `param_space`" };
    let message = format!("the search `{}` was started with {what}: {}", spec.name, found.describe());
    Err(Failure::new(ErrorCode::InvalidConfig, message)
        .hint(format!("{resume} resumes it: its trials keep their configs, and what was not tried yet is tried"))
        .hint(format!("another name, {name}, starts a new search")))
}

/// Takes out of the request which blobs the driver wants kept as files of the run, by name.
fn to_keep(asked: &mut serde_json::Value) -> BTreeMap<String, String> {
    let taken = asked.as_object_mut().and_then(|asked| asked.remove("kept"));
    let wanted: BTreeMap<String, String> = taken.and_then(|kept| serde_json::from_value(kept).ok()).unwrap_or_default();
    wanted.into_iter().filter(|(name, _)| KEPT.contains(&name.as_str())).collect()
}

/// What an earlier `fit` has left there and is wanted as it is: a function may drag many megabytes along.
fn still_kept(run: &Path, storage: &Storage, wanted: &BTreeMap<String, String>) -> BTreeMap<String, String> {
    let mut kept = RunRecord::read(run).map(|record| record.kept).unwrap_or_default();
    // One that was damaged since is written again.
    let is_whole = |name: &str, hash: &str| {
        let Some(directory) = storage.local_path() else { return true };
        carril_store::regular::read(&directory.join(name)).is_ok_and(|data| carril_store::blob_hash(&data) == hash)
    };
    kept.retain(|name, hash| wanted.get(name) == Some(hash) && is_whole(name, hash));
    kept
}

/// `local` has its files.
fn explain_experiment(error: StoreError, local: &Path) -> Failure {
    match error {
        StoreError::RunExists { name, path } => {
            let place = path.display();
            let trials = Experiment::read(local).map(|experiment| experiment.trials).unwrap_or_default();
            let failed = trials.iter().filter(|trial| trial.state == TrialState::Error).count() as u64;
            let failure =
                Failure::new(ErrorCode::RunExists, format!("an experiment named `{name}` has finished in `{place}`"));
            let failure = match failed {
                0 => failure,
                _ => failure.hint(format!(
                    "`Tuner.restore(\"{place}\", trainable, restart_errored=True).fit()` runs the {} again that failed",
                    count(failed, "trial")
                )),
            };
            failure
                .hint("give the experiment another `name`")
                .hint("`RunConfig(resume=True)` resumes what it has left unfinished, and adds more `num_samples`")
                .hint(format!("`Tuner.restore(\"{place}\", trainable)` resumes it too, and reads its results"))
        }
        other => explain(other),
    }
}

fn explain(error: StoreError) -> Failure {
    let StoreError::Io { path, .. } = &error else { return Failure::from(error) };
    let file = path.ancestors().find(|path| path.is_file());
    let hint = match file {
        Some(file) => format!("`{}` is a file: RunConfig(storage_path=…) must be a directory", file.display()),
        None => "RunConfig(storage_path=…) must be a directory that can be written".to_owned(),
    };
    Failure::from(error).hint(hint)
}

/// A trial's journal is written when there is something to tell: most trials end well, and their experiment says what became of them.
enum Words {
    Kept(PathBuf, Vec<JournalRecord>),
    Written(Journal),
}

/// So many words are not kept in memory.
const MOST_WORDS: usize = 100;

impl Words {
    fn append(&mut self, record: &JournalRecord) -> Result<(), StoreError> {
        match self {
            Words::Written(journal) => journal.append(record),
            Words::Kept(_, records) => {
                records.push(record.clone());
                let tells = matches!(record.fact, Some(Fact::Restarted(_)));
                if !tells && records.len() <= MOST_WORDS {
                    return Ok(());
                }
                let written = self.write();
                // Whoever is told of the failure brings the record again.
                if let (Err(_), Words::Kept(_, records)) = (&written, self) {
                    records.pop();
                }
                written
            }
        }
    }

    fn restore(&mut self) -> Result<bool, StoreError> {
        match self {
            Words::Written(journal) => journal.restore(),
            Words::Kept(..) => Ok(false),
        }
    }

    fn write(&mut self) -> Result<(), StoreError> {
        if let Words::Kept(place, records) = self {
            let mut journal = Journal::open(place)?;
            records.iter().try_for_each(|record| journal.append(record))?;
            *self = Words::Written(journal);
        }
        Ok(())
    }
}

/// Whether `params.json` has the config of this run.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Params {
    Written,
    /// As soon as it reports, or fails.
    AfterReport,
    Due,
}

struct RealRun {
    directory: RunDirectory,
    files: ReportFiles,
    journal: Words,
    /// What is put into the run's storage for a driver that restores, with the blobs that it is made of.
    kept: (Storage, Vec<(String, String, PathBuf)>),
    config: Value,
    params: Params,
    /// A trial has none before its end.
    has_record: bool,
    is_trial: bool,
    ended: Option<Ended>,
    abandoned: Abandoned,
}

/// How a run has ended, for files that are written again, or elsewhere.
struct Ended {
    status: RunStatus,
    at: f64,
    /// `error.txt` and `error.json`.
    error: Option<(String, serde_json::Value)>,
}

impl RealRun {
    fn write_due_params(&mut self) -> Result<(), StoreError> {
        if self.params == Params::Due {
            self.directory.write_params(&self.config)?;
            self.params = Params::Written;
        }
        Ok(())
    }

    /// Everything that does not grow, as it was written when the run began.
    fn write_again(&mut self) -> Result<(), StoreError> {
        self.directory.write_params(&self.config)?;
        if let Some((text, json)) = self.ended.as_ref().and_then(|ended| ended.error.as_ref()) {
            self.directory.write_error(text, json)?;
        }
        let (storage, wanted) = &self.kept;
        self.directory.keep_again(storage, wanted)
    }
}

impl RunDisk for RealRun {
    fn journal(&mut self, record: &JournalRecord) -> Result<(), Failure> {
        carril_store::journal_point(&record.event)?;
        Ok(self.journal.append(record)?)
    }

    fn append(&mut self, at: f64, iteration: u64, reported: &Metrics, automatic: &Metrics) -> Result<(), Failure> {
        if self.params == Params::AfterReport {
            self.params = Params::Due;
        }
        self.files.append(at, iteration, reported, automatic);
        Ok(())
    }

    fn append_rank(&mut self, rank: Rank, metrics: &Metrics) -> Result<(), Failure> {
        self.files.append_rank(rank, metrics);
        Ok(())
    }

    fn flush(&mut self) -> Result<(), Failure> {
        let flushed = self.files.flush(false).and(self.write_due_params());
        Ok(flushed.and(self.directory.flush())?)
    }

    fn set_status(&mut self, status: RunStatus) -> Result<(), Failure> {
        Ok(self.directory.set_status(status, None)?)
    }

    fn renew(&mut self, now: f64) -> Result<(), Failure> {
        self.files.flush(true)?;
        Ok(self.directory.renew(now)?)
    }

    fn restore(&mut self) -> Result<bool, Failure> {
        let is_there = |name: &str| self.directory.path().join(name).exists();
        let is_gone = self.has_record && !(is_there("run.json") && is_there("params.json"));
        let restored = self.files.restore()? | self.journal.restore()? | is_gone;
        // A copy that has come back may be of an earlier life, and nothing else is written after the end.
        if is_gone || (restored && self.ended.is_some()) {
            self.write_again()?;
        }
        Ok(restored)
    }

    fn take_warnings(&mut self) -> Vec<String> {
        self.files.take_warnings()
    }

    fn write_stacks(&mut self, text: &str) -> Result<(), Failure> {
        Ok(self.directory.write_text("stacks.txt", text)?)
    }

    fn end(&mut self, status: RunStatus, at: f64, error: Option<(String, serde_json::Value)>) -> Result<(), Failure> {
        // One file that cannot be written is no reason to leave the others out. But only a run whose files are complete has ended.
        if error.is_some() {
            self.params = Params::Due;
        }
        let mut done = self.files.flush(true).and(self.write_due_params());
        if let Some((text, json)) = &error {
            done = done.and(self.journal.write());
            done = done.and(self.directory.write_error(text, json));
        }
        self.ended = Some(Ended { status, at, error });
        done?;
        self.directory.remove_staging();
        self.directory.set_status(status, Some(at))?;
        self.has_record = true;
        Ok(())
    }

    fn rescue(&mut self) -> Result<PathBuf, Failure> {
        lock(&self.abandoned).insert(self.directory.run_id().to_owned());
        let rescued = carril_store::rescue(self.kept.0.location(), self.directory.run_id(), |path| {
            self.files.copy_into(path)?;
            match &self.ended {
                // Its experiment need not make it again: nothing but its reports is wanted of it.
                Some(Ended { status: RunStatus::Finished, at, .. }) if self.is_trial => {
                    self.directory.copy_record(path, RunStatus::Finished, *at)
                }
                _ => Ok(()),
            }
        });
        Ok(rescued?)
    }

    fn is_in_place(&self) -> bool {
        self.directory.is_in_place()
    }

    fn hold(&mut self) -> Result<(), Failure> {
        Ok(self.files.hold_output()?)
    }
}
