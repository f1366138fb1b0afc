//! The scheduler that stops nothing, and what others share with it: who comes first, and who waits.

use std::collections::BTreeSet;

use carril_types::Metrics;
use serde::{Deserialize, Serialize};

use super::{Decision, Explained, NewConfig, Scheduler};
use crate::tune::TrialId;

/// Every trial runs to its end, in the order in which trials were made.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct Fifo {}

impl Scheduler for Fifo {
    fn on_trial_added(&mut self, _trial: TrialId, _config: &Metrics) -> Option<NewConfig> {
        None
    }

    fn on_result(&mut self, _trial: TrialId, _result: &Metrics) -> Explained {
        (Decision::Continue, "first in, first out: every trial runs to its end".to_owned())
    }

    fn on_trial_completed(&mut self, _trial: TrialId, _result: &Metrics) {}

    fn on_trial_failed(&mut self, _trial: TrialId) {}

    fn choose(&mut self, pending: &[TrialId], paused: &[TrialId]) -> Option<TrialId> {
        first(pending, paused)
    }

    fn undecided_before(&self, _trial: TrialId) -> f64 {
        f64::INFINITY
    }

    fn looks_at(&self) -> Vec<String> {
        Vec::new()
    }

    fn describe(&self) -> String {
        "first in, first out".to_owned()
    }
}

/// A trial that has not begun comes before one that has.
pub(super) fn first(pending: &[TrialId], paused: &[TrialId]) -> Option<TrialId> {
    pending.first().or(paused.first()).copied()
}

/// The trials that would use a free place: whoever runs longer than its share takes it from them.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub(super) struct Waiting(BTreeSet<TrialId>);

impl Waiting {
    pub(super) fn wait(&mut self, trial: TrialId) {
        self.0.insert(trial);
    }

    /// It runs, or has ended.
    pub(super) fn leave(&mut self, trial: TrialId) {
        self.0.remove(&trial);
    }

    pub(super) fn anyone(&self) -> bool {
        !self.0.is_empty()
    }
}
