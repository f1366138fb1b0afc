//! An experiment of many trials, as its directory tells of it: for whoever looks at it, while it goes on or afterwards.
//!
//! Nothing here needs the user's code, and no path in the files is absolute: a directory that was moved reads the same.
//! EXPERIMENT-1: a line that was cut short, or cannot be understood, is left out and counted; it is never an error.
//! EXPERIMENT-2: the last event of a trial decides its state; of several ends the last one counts.

mod order;
mod recover;
mod trial;

use std::collections::HashMap;
use std::path::Path;
use std::time::{SystemTime, UNIX_EPOCH};

use carril_types::{Metrics, ScoreOrder, Value, write_json};

pub(crate) use self::recover::PREFIX;
use self::recover::recover_lost;
pub use self::recover::{RECOVERED, Reached, Recovered, recover};
pub use self::trial::{Trial, TrialState, UNFINISHED};
use crate::error::StoreError;
use crate::experiment_files::{CLOSED, OPENED, RESUMED, TRIALS};
use crate::experiment_record::{EXPERIMENT, LEASE, fields_in};
use crate::last_report::{RESULTS, last_report};
use crate::owner::Owner;
use crate::python_json::{find_in_object, parse_object};
use crate::run_directory::RunRecord;
use crate::storage::Storage;
use crate::verify::list_checkpoints;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ExperimentStatus {
    /// Not ended: whether it is alive is another question.
    Running,
    Finished,
    Stopped,
    Failed,
}

/// What a reader wants of `experiment.json`, as any version has written it; the head's own view of it is `ExperimentRecord`.
#[derive(Clone, Debug)]
pub struct ExperimentSummary {
    pub name: String,
    /// The ids of its trials begin with it; empty where it is not recorded.
    pub id: String,
    pub created: f64,
    pub ended: Option<f64>,
    pub carril_version: String,
    pub status: ExperimentStatus,
    /// Why it ended; empty where that is not told.
    pub reason: String,
    pub metric: Option<String>,
    pub mode: Option<ScoreOrder>,
    pub trainable: String,
    pub searcher: String,
    pub scheduler: String,
    /// Who runs it, where that is recorded; otherwise its trials tell.
    pub owner: Option<Owner>,
    /// When the owner was last heard of: one on another host is alive for a lease beyond that.
    pub renewed: f64,
    /// What the driver recorded of its request.
    pub asked: Metrics,
    /// What has become of `experiment.json`, where this was read from elsewhere.
    pub lost: Option<&'static str>,
}

#[derive(Clone, Debug)]
pub struct Experiment {
    place: Storage,
    pub summary: ExperimentSummary,
    /// In the order in which they were made.
    pub trials: Vec<Trial>,
    /// How many lines could not be understood, besides one at the end that was cut short.
    pub unreadable: usize,
    /// Whether the last line was cut short.
    pub torn: bool,
    /// How many trials no line tells of, and were read back from their directories.
    pub read_back: usize,
}

impl ExperimentSummary {
    /// What a place says of its experiment; `None` where it holds none. Where `experiment.json` is lost: what its lines say (RECORD-1).
    pub fn read(place: &Storage) -> Result<Option<Self>, StoreError> {
        let bytes = place.read(EXPERIMENT)?;
        let fields = bytes.as_ref().map(|bytes| parse_object(&String::from_utf8_lossy(bytes)));
        if let Some(summary) = fields.iter().flatten().find_map(Self::from_fields) {
            return Ok(Some(summary));
        }
        let lines = place.read(TRIALS)?.unwrap_or_default();
        let told = fields_in(&String::from_utf8_lossy(&lines)).and_then(|fields| Self::from_fields(&fields));
        let damaged = |why| StoreError::ExperimentDamaged { location: place.location().to_owned(), why };
        match (told, fields) {
            (Some(summary), fields) => {
                let lost = if fields.is_some() { "damaged" } else { "missing" };
                Ok(Some(Self { lost: Some(lost), ..summary }))
            }
            (None, None) => Ok(None),
            (None, Some(None)) => Err(damaged("is not JSON")),
            (None, Some(Some(_))) => Err(damaged("lacks a name or a status that is known")),
        }
    }

    /// The content of `experiment.json`.
    pub fn parse(text: &str) -> Option<Self> {
        Self::from_fields(&parse_object(text)?)
    }

    /// Whether its owner has it now; `None` where no owner is recorded, or it cannot be seen from here.
    pub fn is_live(&self) -> Option<bool> {
        if self.status != ExperimentStatus::Running {
            return Some(false);
        }
        let lease = || (now() - self.renewed < LEASE).then_some(true);
        self.owner.as_ref().and_then(|owner| owner.is_alive().or_else(lease))
    }

    fn from_fields(fields: &Metrics) -> Option<Self> {
        let status = match text(fields, "status")?.as_str() {
            "running" => ExperimentStatus::Running,
            "finished" => ExperimentStatus::Finished,
            "stopped" => ExperimentStatus::Stopped,
            "failed" => ExperimentStatus::Failed,
            _ => return None,
        };
        let mode = match text(fields, "mode").as_deref() {
            Some("min") => Some(ScoreOrder::Min),
            Some("max") => Some(ScoreOrder::Max),
            _ => None,
        };
        let words = |key| text(fields, key).unwrap_or_default();
        Some(Self {
            name: text(fields, "name")?,
            id: words("id"),
            created: number(fields, "created").unwrap_or(0.0),
            ended: number(fields, "ended"),
            carril_version: words("carril_version"),
            status,
            reason: words("reason"),
            metric: text(fields, "metric"),
            mode,
            trainable: words("trainable"),
            searcher: words("searcher"),
            scheduler: words("scheduler"),
            owner: map(fields, "owner").and_then(owner),
            renewed: number(fields, "renewed").unwrap_or(0.0),
            asked: map(fields, "asked").cloned().unwrap_or_default(),
            lost: None,
        })
    }
}

impl Experiment {
    /// What a local directory holds.
    pub fn read(directory: &Path) -> Result<Self, StoreError> {
        Self::open(Storage::local(directory))
    }

    pub fn open(place: Storage) -> Result<Self, StoreError> {
        let Some(summary) = ExperimentSummary::read(&place)? else {
            return Err(StoreError::NotAnExperiment { location: place.location().to_owned() });
        };
        let events = place.read(TRIALS)?.unwrap_or_default();
        let mut experiment = Self { place, summary, trials: Vec::new(), unreadable: 0, torn: false, read_back: 0 };
        let lines = experiment.parse(&String::from_utf8_lossy(&events));
        experiment.take_lines(lines)?;
        Ok(experiment)
    }

    /// The lines of an experiment that is over, with what they have lost and the trials' own directories say; `None` where that is nothing.
    pub fn completed_lines(place: Storage) -> Result<Option<String>, StoreError> {
        let Some(summary) = ExperimentSummary::read(&place)? else { return Ok(None) };
        let events = place.read(TRIALS)?.unwrap_or_default();
        let id = summary.id.clone();
        let mut own = Self { place, summary, trials: Vec::new(), unreadable: 0, torn: false, read_back: 0 };
        let lines = own.parse(&String::from_utf8_lossy(&events));
        let directories = own.place.directories()?;
        let recovered = recover_lost(&own.place, &id, lines, Some(directories))?;
        if recovered.found.is_empty() && recovered.ends == 0 {
            return Ok(None);
        }
        let reached = recovered.reached.iter().map(|(number, reached)| reached.line(*number));
        let mut text = String::new();
        for line in recovered.lines.iter().cloned().chain(reached) {
            write_json(&mut text, &line);
            text.push('\n');
        }
        Ok(Some(text))
    }

    /// EXPERIMENT-1.
    fn parse(&mut self, text: &str) -> Vec<Metrics> {
        let mut lines = Vec::new();
        for line in text.split_inclusive('\n').filter(|line| !line.trim().is_empty()) {
            // What the scheduler was told is the greater part of the file, and for nobody who reads it.
            if matches!(find_in_object(line, "event"), Some(Value::Text(event)) if event == "told") {
                continue;
            }
            match parse_object(line) {
                Some(event) => lines.push(event),
                None if line.ends_with('\n') => self.unreadable += 1,
                None => self.torn = true,
            }
        }
        lines
    }

    /// As a head that resumes it: what the lines have lost is in the directories of the trials. Nothing is written.
    fn take_lines(&mut self, lines: Vec<Metrics>) -> Result<(), StoreError> {
        let summary = &self.summary;
        // A head that is alive may not have written yet what it has just begun.
        let has_trials = lines.iter().any(|line| text(line, "event").is_some_and(|event| event == "made"));
        let is_complete = summary.id.is_empty() || (has_trials && summary.is_live() == Some(true));
        let directories = if is_complete { None } else { Some(self.place.directories()?) };
        let Recovered { lines, reached, found, left_out, .. } =
            recover_lost(&self.place, &summary.id, lines, directories)?;
        self.unreadable += left_out;
        let mut by_number: HashMap<u64, usize> = HashMap::new();
        for line in &lines {
            if self.take_event(line, &mut by_number).is_none() {
                self.unreadable += 1;
            }
        }
        for (number, reached) in reached {
            if let Some(at) = by_number.get(&number) {
                self.trials[*at].take_reached(reached);
            }
        }
        self.read_back = found.len();
        Ok(())
    }

    fn take_event(&mut self, event: &Metrics, by_number: &mut HashMap<u64, usize>) -> Option<()> {
        if matches!(text(event, "event").as_deref(), Some(OPENED | RESUMED | CLOSED)) {
            return Some(());
        }
        let number = integer(event, "trial")?;
        if text(event, "event")? == "made" {
            let trial = Trial::made(number, event)?;
            match by_number.get(&number) {
                Some(at) => self.trials[*at] = trial,
                None => {
                    by_number.insert(number, self.trials.len());
                    self.trials.push(trial);
                }
            }
            return Some(());
        }
        self.trials.get_mut(*by_number.get(&number)?)?.take(event)
    }

    /// What happened to the experiment and its trials, as the lines tell it in their order; its scheduler's record is left out.
    pub fn history(&self) -> Result<Vec<Metrics>, StoreError> {
        let bytes = self.place.read(TRIALS)?.unwrap_or_default();
        let lines = String::from_utf8_lossy(&bytes);
        let told = |event: &Metrics| text(event, "event").is_none_or(|event| event == "told");
        Ok(lines.lines().filter_map(parse_object).filter(|event| !told(event)).collect())
    }

    pub fn place(&self) -> &Storage {
        &self.place
    }

    /// The directory of a trial, wherever the experiment is now.
    pub fn place_of(&self, trial: &Trial) -> Storage {
        self.place.join(&trial.directory)
    }

    /// Fills in the last results of trials that have not ended, from their own files.
    pub fn look_at_unfinished(&mut self) -> Result<(), StoreError> {
        for at in 0..self.trials.len() {
            let trial = &self.trials[at];
            // One that waits for room may have run before.
            if !matches!(trial.state, TrialState::Pending | TrialState::Running | TrialState::Paused) {
                continue;
            }
            if let Some(result) = last_report(&self.place_of(trial))? {
                self.trials[at].set_last(result);
            }
        }
        Ok(())
    }

    /// Every result of a trial, in order.
    pub fn results(&self, trial: &Trial) -> Result<Vec<Metrics>, StoreError> {
        let bytes = self.place_of(trial).read(RESULTS)?.unwrap_or_default();
        Ok(String::from_utf8_lossy(&bytes).lines().filter_map(parse_object).collect())
    }

    /// One metric of every result of a trial that has it, in order: a part of the cost of `results`.
    pub fn values(&self, trial: &Trial, metric: &str) -> Result<Vec<f64>, StoreError> {
        let bytes = self.place_of(trial).read(RESULTS)?.unwrap_or_default();
        let text = String::from_utf8_lossy(&bytes);
        // A line that was cut short may show the metric and not be there for `results`.
        let whole = text.lines().filter(|line| line.ends_with('}'));
        Ok(whole.filter_map(|line| find_in_object(line, metric)?.as_f64()).collect())
    }

    /// The latest checkpoint of a trial.
    pub fn checkpoint(&self, trial: &Trial) -> Result<Option<Storage>, StoreError> {
        let place = self.place_of(trial);
        if let Some(name) = &trial.checkpoint {
            return Ok(Some(place.join(name)));
        }
        let whole = list_checkpoints(&place)?.into_iter().rev().find(|listed| listed.state.is_ok());
        Ok(whole.map(|listed| place.join(&listed.name)))
    }

    /// Whether a head has it now; `None` where that cannot be seen from here.
    pub fn is_live(&self) -> Option<bool> {
        if self.summary.status != ExperimentStatus::Running || self.summary.owner.is_some() {
            return self.summary.is_live();
        }
        let last = self.trials.iter().filter(|trial| trial.state != TrialState::Pending);
        let last = last.max_by(|left, right| left.started.total_cmp(&right.started));
        let record = last.and_then(|trial| self.place_of(trial).read("run.json").ok().flatten());
        let record: Option<RunRecord> = record.and_then(|bytes| serde_json::from_slice(&bytes).ok());
        record.map_or(Some(false), |record| record.owner.is_alive())
    }

    /// The status in the word for people: one whose head is gone is not running, whatever it says.
    pub fn status_word(&self) -> &'static str {
        match (self.summary.status, self.is_live()) {
            (ExperimentStatus::Finished, _) => "finished",
            (ExperimentStatus::Stopped, _) => "stopped",
            (ExperimentStatus::Failed, _) => "failed",
            (ExperimentStatus::Running, Some(true)) => "running",
            (ExperimentStatus::Running, Some(false)) => "unfinished",
            (ExperimentStatus::Running, None) => "unreachable",
        }
    }
}

fn now() -> f64 {
    SystemTime::now().duration_since(UNIX_EPOCH).map_or(0.0, |time| time.as_secs_f64())
}

fn owner(fields: &Metrics) -> Option<Owner> {
    let pid = u32::try_from(integer(fields, "pid")?).ok()?;
    let (host, boot, start) = (text(fields, "host")?, text(fields, "boot")?, integer(fields, "start")?);
    Some(Owner { host, boot, pid, start, driver: None })
}

fn text(fields: &Metrics, key: &str) -> Option<String> {
    match fields.get(key)? {
        Value::Text(text) => Some(text.clone()),
        _ => None,
    }
}

fn number(fields: &Metrics, key: &str) -> Option<f64> {
    fields.get(key)?.as_f64()
}

fn integer(fields: &Metrics, key: &str) -> Option<u64> {
    match fields.get(key)? {
        Value::Int(number) => u64::try_from(*number).ok(),
        _ => None,
    }
}

fn map<'a>(fields: &'a Metrics, key: &str) -> Option<&'a Metrics> {
    match fields.get(key)? {
        Value::Map(map) => Some(map),
        _ => None,
    }
}

#[cfg(test)]
mod tests;
