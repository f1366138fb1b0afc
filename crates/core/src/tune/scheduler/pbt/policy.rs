//! What population-based training changed, as data, and how one trial's schedule is played again from it.
//!
//! REPLAY-1: a trial is played again along its line: what happened to the trial that it last went on from, before that, is part of it;
//!   what happened to itself before that is not.

use std::collections::BTreeMap;

use carril_types::Metrics;
use serde::{Deserialize, Serialize};

use super::STEP;
use crate::tune::TrialId;
use crate::tune::scheduler::fifo::first;
use crate::tune::scheduler::score::number;
use crate::tune::scheduler::{Decision, Explained, NewConfig, Scheduler, SchedulerError};

/// A trial went on from another one. Steps are `training_iteration`s.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Policy {
    pub trial: TrialId,
    pub from: TrialId,
    pub trial_step: u64,
    pub from_step: u64,
    /// Of `from`.
    pub old_config: Metrics,
    pub new_config: Metrics,
}

/// Plays a schedule of configs again: each from its step on, without a population.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Replay {
    start: Metrics,
    changes: Vec<(u64, Metrics)>,
    /// How many changes each trial has behind it.
    done: BTreeMap<TrialId, usize>,
}

impl Replay {
    /// `changes` in ascending steps.
    pub fn new(start: Metrics, changes: Vec<(u64, Metrics)>) -> Result<Self, SchedulerError> {
        if !changes.is_sorted_by_key(|(step, _)| *step) {
            return Err(SchedulerError::Parameter { path: "policy_file".to_owned(), why: "has steps out of order" });
        }
        Ok(Self { start, changes, done: BTreeMap::new() })
    }

    /// The schedule that led to this trial, out of the log of a whole population (REPLAY-1).
    pub fn of(log: &[Policy], trial: TrialId) -> Result<Self, SchedulerError> {
        let mut line = trial;
        let mut start = None;
        let mut changes = Vec::new();
        for policy in log.iter().rev() {
            if policy.trial == line {
                changes.push((policy.from_step, policy.new_config.clone()));
                start = Some(policy.old_config.clone());
                line = policy.from;
            }
        }
        changes.reverse();
        let nothing =
            SchedulerError::Parameter { path: "policy_file".to_owned(), why: "holds no change of this trial" };
        Self::new(start.ok_or(nothing)?, changes)
    }

    pub fn start(&self) -> &Metrics {
        &self.start
    }

    pub fn changes(&self) -> &[(u64, Metrics)] {
        &self.changes
    }
}

impl Scheduler for Replay {
    /// What the trial was made with and the schedule does not name stays.
    fn on_trial_added(&mut self, trial: TrialId, config: &Metrics) -> Option<NewConfig> {
        self.done.insert(trial, 0);
        let mut merged = config.clone();
        for (key, value) in &self.start.0 {
            merged.set(key, value.clone());
        }
        (merged != *config).then_some(NewConfig { config: merged, ask: Vec::new() })
    }

    fn on_result(&mut self, trial: TrialId, result: &Metrics) -> Explained {
        let (Some(step), Some(done)) = (number(result, STEP), self.done.get_mut(&trial)) else {
            return (Decision::Continue, format!("no `{STEP}` in the report"));
        };
        let due = self.changes.partition_point(|(change, _)| *change as f64 <= step);
        if due <= *done {
            return (Decision::Continue, "no change is due".to_owned());
        }
        *done = due;
        let (change, config) = &self.changes[due - 1];
        let with = NewConfig { config: config.clone(), ask: Vec::new() };
        let why = format!("change {due} of {}, which was at {change}, is played again at {step}", self.changes.len());
        (Decision::Exploit { from: trial, with }, why)
    }

    fn on_trial_completed(&mut self, trial: TrialId, _result: &Metrics) {
        self.done.remove(&trial);
    }

    fn on_trial_failed(&mut self, trial: TrialId) {
        self.done.remove(&trial);
    }

    fn choose(&mut self, pending: &[TrialId], paused: &[TrialId]) -> Option<TrialId> {
        first(pending, paused)
    }

    fn looks_at(&self) -> Vec<String> {
        vec![STEP.to_owned()]
    }

    fn describe(&self) -> String {
        let done: Vec<String> = self.done.values().map(usize::to_string).collect();
        format!("replay of population-based training, {} of {} changes", done.join(", "), self.changes.len())
    }
}
