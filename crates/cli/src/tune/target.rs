//! Finds the experiment that is meant, and says what could not be read of it.

use std::thread;

use carril_store::{Experiment, ExperimentSummary, Storage as Place, StoreError, Trial};
use carril_types::{ErrorCode, Failure, count, verb};
use clap::Args;

use crate::find::{Storage, block_on, typed};
use crate::resolve::Kind;

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
        let (given, subject) = (&self.experiment, block_on(self.storage.resolve(&self.experiment))?);
        let wrong = |message: String, hint: String| Err(Failure::new(ErrorCode::NotFound, message).hint(hint));
        match subject.kind {
            Kind::Experiment(experiment) => {
                note_damage(&experiment);
                Ok(*experiment)
            }
            Kind::Trial(of) => wrong(
                format!("`{given}` is the trial {}, not an experiment", of.trial().id),
                format!(
                    "it belongs to the experiment `{}`: name that one",
                    typed(&of.experiment.summary.name, of.experiment.place().location())
                ),
            ),
            Kind::Run => wrong(
                format!("`{given}` is a run, not an experiment"),
                format!("`carril status {}` shows a run", typed(given, &subject.location)),
            ),
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

/// Beside what is printed, so that a program that reads it is not disturbed.
pub fn note(text: &str) {
    eprintln!("note: {text}");
}

fn note_damage(experiment: &Experiment) {
    if let Some(lost) = experiment.summary.lost {
        note(&format!("`experiment.json` is {lost}: this is what `trials.jsonl` says; the search can be resumed"));
    }
    if experiment.torn {
        note("the last line of `trials.jsonl` was cut short, and is left out");
    }
    if experiment.unreadable > 0 {
        let (lines, cannot) =
            (count(experiment.unreadable as u64, "line"), "that cannot be read, as a crash leaves them");
        note(&format!("left out: {lines} of `trials.jsonl` {cannot}"));
    }
    note_read_back(experiment);
}

pub fn note_read_back(experiment: &Experiment) {
    let found = experiment.read_back as u64;
    if found > 0 {
        let (name, trials, were) = (&experiment.summary.name, count(found, "trial"), verb(found, "was", "were"));
        note(&format!("`trials.jsonl` of `{name}` has lost {trials}, which {were} read back from their directories"));
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
