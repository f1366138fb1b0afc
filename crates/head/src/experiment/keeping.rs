//! An experiment whose storage refuses, or goes and comes back.
//!
//! KEEP-1: trials that ended while the directory was another one have their files in it again when it comes back.
//! KEEP-2: storage that takes nothing for `deadline` ends the experiment with that cause. What had not ended is left to the next head.

use std::time::Duration;

use carril_core::tune::TrialId;
use carril_core::tune::experiment::ExperimentEvent;
use carril_store::{RETRY, deadline};
use carril_types::{ErrorCode, Failure, count};

use super::ExperimentRun;
use crate::outside::{Outside, RunDisk};
use crate::refusals::Refusals;

/// The files of so many trials are held open.
const MOST_HELD: usize = 256;

#[derive(Default)]
pub(super) struct Keeping {
    /// KEEP-1: the files of trials that have ended, oldest first.
    held: Vec<Box<dyn RunDisk>>,
    restoring: Refusals,
    opening: Refusals,
    /// Trials whose files could not be opened, and since when none could.
    refused: Vec<TrialId>,
    refused_since: Option<Duration>,
}

impl ExperimentRun {
    /// A trial has ended: where its directory, or that of all, is not the one that it was, the other may come back.
    pub fn hold(&mut self, mut disk: Box<dyn RunDisk>) {
        if self.disk.is_in_place() && disk.is_in_place() {
            return;
        }
        if let Err(failure) = disk.hold() {
            self.warn(failure.message);
        }
        self.keeping.held.push(disk);
        if self.keeping.held.len() > MOST_HELD {
            self.keeping.held.remove(0);
        }
    }

    /// Finds out whether the files are where they were, and makes them again where they are not.
    pub(super) fn restore_files(&mut self) {
        let mut restored = self.disk.restore();
        for disk in &mut self.keeping.held {
            let of_trial = disk.restore();
            restored = restored.and_then(|done| of_trial.map(|too| done || too));
        }
        if let Some(text) = self.keeping.restoring.warning("the experiment's", &restored.clone().map(drop)) {
            self.warn(text);
        }
        if restored == Ok(true) {
            let place = &self.location;
            self.warn(format!(
                "the directory `{place}` was moved, removed or unmounted while the search was going on: its files are written there again"
            ));
        }
    }

    /// The files of a trial could not be opened. Where the storage refuses everything, it is tried again: that is no fault of the trial's.
    pub fn on_refused(
        &mut self,
        trial: TrialId,
        failure: Failure,
        outside: &mut dyn Outside,
    ) -> Option<ExperimentEvent> {
        if !self.is_storage_lost(&failure, outside.now()) {
            return Some(ExperimentEvent::Refused { trial, reason: failure.message });
        }
        self.forget_run(trial);
        self.waiting.end(trial);
        let since = *self.keeping.refused_since.get_or_insert(outside.clock());
        if self.machine.is_ending() || outside.clock().saturating_sub(since) >= deadline() {
            return Some(ExperimentEvent::Broken { trial: Some(trial), failure: self.storage_failure(failure) });
        }
        if let Some(text) = self.keeping.opening.warning("the trials'", &Err(failure)) {
            self.warn(text);
        }
        if self.keeping.refused.is_empty() {
            outside.set_retry_timer(self.id.clone(), RETRY);
        }
        self.keeping.refused.push(trial);
        None
    }

    pub fn on_opened(&mut self) {
        self.keeping.refused_since = None;
        if let Some(text) = self.keeping.opening.warning("the trials'", &Ok(())) {
            self.warn(text);
        }
    }

    /// What was refused is tried again.
    pub fn on_retry_timer(&mut self, outside: &mut dyn Outside) -> Vec<ExperimentEvent> {
        if self.closing.is_some() {
            self.close(outside);
        } else if self.last_round
            && let Some(mirror) = self.mirror.take()
        {
            self.begin_last_round(mirror, outside);
        }
        let refused = std::mem::take(&mut self.keeping.refused);
        if self.machine.is_ending() {
            let cut_off = |trial| ExperimentEvent::Refused { trial, reason: String::new() };
            return refused.into_iter().map(cut_off).collect();
        }
        for trial in refused {
            let (resources, free) = self.trials[trial.0 as usize].submitted.clone();
            self.submit(trial, resources, free);
        }
        Vec::new()
    }

    /// Whether it is the storage of all trials that refuses, and not one trial's own directory.
    pub(super) fn is_storage_lost(&mut self, failure: &Failure, now: f64) -> bool {
        let elsewhere = self.storage.as_ref().is_some_and(|storage| storage.local_path().is_none());
        matches!(failure.code, ErrorCode::Storage | ErrorCode::StorageRefused)
            && (elsewhere || self.disk.renew(now).is_err())
    }

    pub(super) fn storage_failure(&self, cause: Failure) -> Failure {
        let (place, seconds) = (&self.location, deadline().as_secs());
        let done = self.machine.ended();
        let message =
            format!("the storage of the search, `{place}`, refused everything for {seconds} s: {}", cause.message);
        let failure = Failure::new(cause.code, message);
        let failure =
            cause.hints.into_iter().filter(|hint| hint.contains("carril-rescued-")).fold(failure, Failure::hint);
        failure.hint(format!(
            "{done} of {} have ended; make room or mend the storage, and resume the others with the same script or `Tuner.restore`",
            count(self.trials.len() as u64, "trial")
        ))
    }

    pub(super) fn forget_run(&mut self, trial: TrialId) {
        if let Some(run) = self.trials[trial.0 as usize].run.take() {
            self.live.remove(&run);
        }
    }
}
