//! Finds the experiment that is meant, and says what could not be read of it.

use std::path::{Path, PathBuf};
use std::thread;

use carril_store::{Experiment, ExperimentSummary, Storage as Place, StoreError, Trial};
use carril_types::{ErrorCode, Failure};
use clap::Args;

use crate::find::{Storage, absolute};

#[derive(Args)]
pub struct Target {
    /// The experiment's name, directory or URI
    experiment: String,
    #[command(flatten)]
    storage: Storage,
}

impl Target {
    /// The experiment, with the last results of its unfinished trials.
    pub fn open(&self) -> Result<Experiment, Failure> {
        let mut experiment = Experiment::open(self.place()?)?;
        experiment.look_at_unfinished()?;
        note_damage(&experiment);
        Ok(experiment)
    }

    fn place(&self) -> Result<Place, Failure> {
        if self.experiment.contains("://") {
            return Ok(Place::open(&self.experiment, None)?);
        }
        let given = Place::local(Path::new(&absolute(&self.experiment)));
        if ExperimentSummary::read(&given)?.is_some() {
            return Ok(given);
        }
        let mut names = Vec::new();
        for directory in self.storage.directories() {
            for (place, summary) in
                experiments_in(&Place::local(&PathBuf::from(absolute(&directory.to_string_lossy()))))?
            {
                // One that is damaged is found by the name of its directory, and says so when it is opened.
                let name = summary.map(|summary| summary.name).unwrap_or_default();
                if name == self.experiment || last_part(place.location()) == self.experiment {
                    return Ok(place);
                }
                names.push(name);
            }
        }
        Err(self.unknown(&given, &names))
    }

    fn unknown(&self, given: &Place, names: &[String]) -> Failure {
        let meant = &self.experiment;
        let failure = Failure::new(ErrorCode::NotFound, format!("there is no experiment `{meant}`"));
        let parent = given.local_path().and_then(Path::parent).map(Place::local);
        if let Some(Ok(Some(summary))) = parent.as_ref().map(ExperimentSummary::read) {
            return failure.hint(format!("it lies in the experiment `{}`: give that one", summary.name));
        }
        let is_near = |name: &&String| name.starts_with(meant) || meant.starts_with(name.as_str());
        let near: Vec<&str> =
            names.iter().filter(|name| !name.is_empty()).filter(is_near).take(5).map(String::as_str).collect();
        if near.is_empty() {
            failure.hint("`carril tune ls` lists them; --storage says where they are kept")
        } else {
            failure.hint(format!("perhaps one of: {}", near.join(", ")))
        }
    }
}

/// The experiments right below a place, or the place itself where it is one; `None` for the summary of one that is damaged.
pub fn experiments_in(place: &Place) -> Result<Vec<(Place, Option<ExperimentSummary>)>, Failure> {
    let found = |place: Place| match ExperimentSummary::read(&place) {
        Ok(summary) => summary.map(|summary| (place, Some(summary))),
        Err(_) => Some((place, None)),
    };
    if let Some(itself) = found(place.clone()) {
        return Ok(vec![itself]);
    }
    Ok(place.names()?.iter().filter_map(|name| found(place.join(name))).collect())
}

fn last_part(location: &str) -> &str {
    location.trim_end_matches('/').rsplit('/').next().unwrap_or(location)
}

/// Beside what is printed, so that a program that reads it is not disturbed.
pub fn note(text: &str) {
    eprintln!("note: {text}");
}

fn note_damage(experiment: &Experiment) {
    if experiment.torn {
        note("the last line of `trials.jsonl` was cut short, and is left out");
    }
    if experiment.unreadable > 0 {
        let lines =
            if experiment.unreadable == 1 { "1 line".into() } else { format!("{} lines", experiment.unreadable) };
        note(&format!("left out: {lines} of `trials.jsonl` that cannot be read, as a crash leaves them"));
    }
}

/// Asks something of the files of every trial, several at once; in the order of the trials.
pub fn over_trials<T: Send>(
    experiment: &Experiment,
    ask: impl Fn(&Trial) -> Result<T, StoreError> + Sync,
) -> Result<Vec<T>, StoreError> {
    // A server answers many at once; on a disk it is the reading that takes time.
    let local = experiment.place().local_path().is_some();
    let threads = if local { thread::available_parallelism().map_or(1, usize::from).min(8) } else { 16 };
    let size = experiment.trials.len().div_ceil(threads).max(1);
    let answers: Result<Vec<Vec<T>>, StoreError> = thread::scope(|scope| {
        let parts: Vec<_> = experiment
            .trials
            .chunks(size)
            .map(|part| scope.spawn(|| part.iter().map(&ask).collect::<Result<Vec<T>, StoreError>>()))
            .collect();
        parts.into_iter().map(|part| part.join().expect("it does not panic")).collect()
    });
    Ok(answers?.into_iter().flatten().collect())
}
