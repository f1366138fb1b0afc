//! What a word on the command line names: a run, an experiment, or a trial of one. One way in for every command.
//!
//! `storage.resolve(word).await` gives a `Subject`: its kind, where it is kept, and what a live head of this user has of it. A word is
//! tried as, in this order,
//!   1. a directory or URI of a run, an experiment or a trial (a trial is one by the `trials.jsonl` above it: it has no `run.json` of its
//!      own until it has ended);
//!   2. the name or id of a run or experiment that a live head has, wherever that is kept; the first four digits of an id are enough;
//!   3. the same in the storage (`--storage`, a path or URI; otherwise the two usual directories);
//!   4. `EXPERIMENT/TRIAL`, where the trial is named by its id, number, name or directory;
//!   5. the id, name or directory of a trial of any of these experiments.
//!
//! `Subject::files` gives the directory to read, fetched where it is not local; `Subject::live` is there while it runs, for what only
//! its head can answer (stacks, stop). Experiments are read, with the last reports of trials that have not ended.
//!
//! RESOLVE-1: several trials of one name are an error that lists their ids; none is chosen.

use carril_proto::v1::RunSummary;
use carril_store::{Experiment, ExperimentSummary, RunRecord, Storage as Place, StoreError, Trial};
use carril_types::{ErrorCode, Failure};

use crate::find::{Live, RunFiles, Storage, absolute, blocking, fetch, is_end, is_id, live_runs};
use crate::tune::note;

const RECORD: &str = "run.json";
/// The status of a run whose record cannot be read.
pub const DAMAGED: &str = "damaged";
/// As many names are listed in a hint.
const MOST_NAMES: usize = 5;

pub struct Subject {
    pub kind: Kind,
    /// Its directory or URI.
    pub location: String,
    /// `None` where no live head has it, or it has ended.
    pub live: Option<Live>,
}

pub enum Kind {
    Run,
    Experiment(Box<Experiment>),
    Trial(Box<TrialOf>),
}

/// A trial with the experiment that it belongs to.
pub struct TrialOf {
    pub experiment: Experiment,
    at: usize,
}

impl TrialOf {
    pub fn trial(&self) -> &Trial {
        &self.experiment.trials[self.at]
    }
}

impl Subject {
    /// The directory of a run or trial, or a local copy of its small files.
    pub async fn files(&self) -> Result<RunFiles, Failure> {
        // What is kept elsewhere is local as long as it runs.
        let live = self.live.as_ref().map(|live| live.summary.directory.clone());
        let local = live.filter(|path| std::path::Path::new(path).exists());
        match local.or_else(|| (!self.location.contains("://")).then(|| self.location.clone())) {
            Some(path) => Ok(RunFiles::local(path.into())),
            None => fetch(self.location.clone()).await,
        }
    }
}

impl Storage {
    pub async fn resolve(&self, word: &str) -> Result<Subject, Failure> {
        let lives = live_runs().await;
        let summaries: Vec<RunSummary> = lives.iter().map(|live| live.summary.clone()).collect();
        let (storage, word) = (self.clone(), word.to_owned());
        let found = blocking(move || Search { places: storage.places()?, lives: summaries }.find(&word)).await?;
        let (kind, location) = found;
        let has = |live: &Live| live.summary.path.trim_end_matches('/') == location && !is_end(&live.summary.status);
        let live = lives.into_iter().find(has);
        if let Kind::Run = kind {
            note_damage(location.clone()).await?;
        }
        Ok(Subject { kind, location, live })
    }
}

type Found = (Kind, String);

/// Looks at files alone; `lives` are the runs and experiments that heads told of.
struct Search {
    places: Vec<Place>,
    lives: Vec<RunSummary>,
}

impl Search {
    fn find(&self, word: &str) -> Result<Found, Failure> {
        let word = word.strip_prefix("file://").filter(|path| path.starts_with('/')).unwrap_or(word);
        let word = if word.len() > 1 { word.trim_end_matches('/') } else { word };
        if let Some(found) = at_place(&Place::open(&absolute(word), None)?)? {
            return Ok(found);
        }
        if let Some(found) = self.by_name(word)? {
            return Ok(found);
        }
        if let Some((experiment, trial)) = word.rsplit_once('/')
            && let Some((Kind::Experiment(experiment), _)) = self.experiment_of(experiment)?
        {
            let near = trial_ids(&experiment.trials);
            return trial_in(*experiment, trial, true)?.ok_or_else(|| unknown_trial(word, near));
        }
        for place in self.experiments()? {
            // One that is damaged says so to whoever names it.
            let Ok(experiment) = open(place) else { continue };
            if let Some(found) = trial_in(experiment, word, false)? {
                return Ok(found);
            }
        }
        Err(self.unknown(word))
    }

    /// The experiment in the first part of `EXPERIMENT/TRIAL`.
    fn experiment_of(&self, word: &str) -> Result<Option<Found>, Failure> {
        match at_place(&Place::open(&absolute(word), None)?)? {
            Some(found) => Ok(Some(found)),
            None => self.by_name(word),
        }
    }

    fn by_name(&self, word: &str) -> Result<Option<Found>, Failure> {
        // Those that are going on come before those that have ended.
        let lives = self.lives.iter().filter(|live| is_meant(word, live));
        if let Some(live) = lives.min_by_key(|live| is_end(&live.status)) {
            let found = at_place(&Place::open(&live.path, None)?)?;
            // Its files may not be there yet, or not any more.
            return Ok(Some(found.unwrap_or_else(|| (Kind::Run, live.path.clone()))));
        }
        for place in &self.places {
            if !word.contains('/')
                && let Some(found) = at_place(&place.join(word))?
            {
                return Ok(Some(found));
            }
        }
        for place in &self.places {
            for name in place.names()? {
                let place = place.join(name.trim_end_matches('/'));
                if names_of(&place).is_some_and(|(name, id)| name == word || id.is_some_and(|id| is_id(word, &id))) {
                    return at_place(&place);
                }
            }
        }
        Ok(None)
    }

    /// Every experiment that is known: live ones first.
    fn experiments(&self) -> Result<Vec<Place>, Failure> {
        let mut places = Vec::new();
        for live in &self.lives {
            places.push(Place::open(&live.path, None)?);
        }
        for place in &self.places {
            places.extend(place.names()?.iter().map(|name| place.join(name.trim_end_matches('/'))));
        }
        places.retain(|place| matches!(ExperimentSummary::read(place), Ok(Some(_))));
        Ok(places)
    }

    fn unknown(&self, word: &str) -> Failure {
        let mut names: Vec<String> = self.lives.iter().map(|live| live.name.clone()).collect();
        for place in &self.places {
            let below = place.names().unwrap_or_default();
            names.extend(below.iter().filter_map(|name| Some(names_of(&place.join(name.trim_end_matches('/')))?.0)));
        }
        names.sort();
        names.dedup();
        names.retain(|name| name.starts_with(word) || word.starts_with(name.as_str()));
        names.truncate(MOST_NAMES);
        let failure = Failure::new(ErrorCode::NotFound, format!("there is no run, experiment or trial `{word}`"));
        if names.is_empty() {
            failure.hint("`carril runs` and `carril tune ls` list them; --storage says where they are kept")
        } else {
            failure.hint(format!("perhaps one of: {}", names.join(", ")))
        }
    }
}

/// What a place itself is; `None` where it is none of the three.
fn at_place(place: &Place) -> Result<Option<Found>, Failure> {
    if place.local_path().is_some_and(std::path::Path::is_file) {
        return Ok(None);
    }
    let location = place.location().trim_end_matches('/').to_owned();
    if ExperimentSummary::read(place)?.is_some() {
        return Ok(Some((Kind::Experiment(Box::new(open(place.clone())?)), location)));
    }
    if let Some((above, directory)) = location.rsplit_once('/')
        && !above.is_empty()
        && !above.ends_with('/')
        && let Ok(above) = Place::open(above, None)
        && matches!(ExperimentSummary::read(&above), Ok(Some(_)))
        && let Some(found) = trial_in(open(above)?, directory, false)?
    {
        return Ok(Some(found));
    }
    // One that is damaged is a run all the same: its other files tell what they can.
    Ok(place.read(RECORD)?.map(|_| (Kind::Run, location)))
}

/// Beside what a command tells of the run.
async fn note_damage(location: String) -> Result<(), Failure> {
    blocking(move || {
        let data = Place::open(&location, None)?.read(RECORD)?;
        if data.is_some_and(|data| serde_json::from_slice::<RunRecord>(&data).is_err()) {
            let failure: Failure = StoreError::RunRecordDamaged { path: format!("{location}/{RECORD}").into() }.into();
            note(&failure.to_string());
        }
        Ok(())
    })
    .await
}

fn open(place: Place) -> Result<Experiment, Failure> {
    let mut experiment = Experiment::open(place)?;
    experiment.look_at_unfinished()?;
    Ok(experiment)
}

/// RESOLVE-1. By number only where the experiment was named.
fn trial_in(experiment: Experiment, word: &str, by_number: bool) -> Result<Option<Found>, Failure> {
    let is_trial = |trial: &Trial| {
        [&trial.id, &trial.directory, &trial.name].iter().any(|name| *name == word)
            || (by_number && trial.number.to_string() == word)
    };
    let exact = |trial: &Trial| trial.id == word || trial.directory == word;
    let named: Vec<usize> = (0..experiment.trials.len()).filter(|at| is_trial(&experiment.trials[*at])).collect();
    let unique = named.iter().copied().find(|at| exact(&experiment.trials[*at]));
    let at = match (unique, &named[..]) {
        (Some(at), _) => at,
        (None, []) => return Ok(None),
        (None, [at]) => *at,
        (None, several) => {
            let several: Vec<Trial> = several.iter().map(|at| experiment.trials[*at].clone()).collect();
            let message = format!("{} trials of `{}` are called `{word}`", several.len(), experiment.summary.name);
            let hint = format!("name one by its id: {}", trial_ids(&several));
            return Err(Failure::new(ErrorCode::InvalidConfig, message).hint(hint));
        }
    };
    let location = experiment.place_of(&experiment.trials[at]).location().trim_end_matches('/').to_owned();
    Ok(Some((Kind::Trial(Box::new(TrialOf { experiment, at })), location)))
}

fn unknown_trial(word: &str, ids: String) -> Failure {
    let failure = Failure::new(ErrorCode::NotFound, format!("there is no trial `{word}`"));
    if ids.is_empty() {
        failure.hint("the experiment has no trials yet")
    } else {
        failure.hint(format!("there are: {ids}"))
    }
}

fn trial_ids(trials: &[Trial]) -> String {
    let more = if trials.len() > MOST_NAMES { ", …" } else { "" };
    let ids: Vec<&str> = trials.iter().take(MOST_NAMES).map(|trial| trial.id.as_str()).collect();
    format!("{}{more}", ids.join(", "))
}

fn is_meant(word: &str, live: &RunSummary) -> bool {
    live.name == word || is_id(word, &live.run_id) || live.path.trim_end_matches('/') == word
}

/// The name that a place says it has, and its id.
fn names_of(place: &Place) -> Option<(String, Option<String>)> {
    if let Ok(Some(summary)) = ExperimentSummary::read(place) {
        return Some((summary.name, None));
    }
    record_at(place).map(|record| (record.name, Some(record.run_id)))
}

pub fn record_at(place: &Place) -> Option<RunRecord> {
    place.read(RECORD).ok().flatten().and_then(|data| serde_json::from_slice(&data).ok())
}
