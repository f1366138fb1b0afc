//! An experiment as its records tell it: what has ended stays ended, what has not goes on.
//!
//! A head may be killed between a decision and what comes of it. What was decided is decided again by the replay, so that it is known at
//! the end which trials were stopping or pausing; `Begun` then does what was left undone.
//!
//! WAITS-1: also where records are lost, a trial without an end is pending, paused, or about to be by `Begun`, in one list at most, and
//!   the scheduler has no trial that the experiment has given up: nobody waits for what will not come.
//! REPLAY-1: records may come in any order, twice or not at all: those of a trial that is not there are passed over.

use std::collections::{BTreeMap, BTreeSet};

use carril_types::{Metrics, Value};

use super::judging::ALWAYS_RECORDED;
use super::{
    AnyScheduler, Decision, EndedTrial, Experiment, Exploit, Out, Record, RunEnd, Scheduler, Searcher, State, Stop,
};
use crate::tune::TrialId;
use crate::tune::search::Suggestion;

/// What becomes of trials that an earlier head has left.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Resuming {
    /// Those that failed go on from their checkpoints.
    pub errored: bool,
    /// Those that did not end are left as they are.
    pub leaves_unfinished: bool,
    /// So many trials come from another space or searcher: they keep their configs, and this searcher passes over what they tried.
    pub made_before: u64,
}

impl Experiment {
    /// EXP-4: tells searcher and scheduler what they were told before, and puts the trials where they were. `runs_ended`: trials whose
    /// own files say that their runs have ended.
    pub fn replay(
        &mut self,
        records: Vec<(Record, Option<Metrics>)>,
        mut runs_ended: BTreeMap<TrialId, RunEnd>,
        resuming: Resuming,
    ) {
        for (record, last) in records {
            self.replay_one(record, last, resuming.made_before);
        }
        // What the driver's scheduler, or one that looks at resources, has decided cannot be decided again.
        if self.scheduler.is_none() || self.changes_resources() {
            runs_ended.clear();
        }
        let never_pauses = matches!(
            self.scheduler,
            Some(AnyScheduler::Fifo(_) | AnyScheduler::Asha(_) | AnyScheduler::MedianStopping(_))
        );
        if !never_pauses {
            runs_ended.retain(|trial, _| {
                let one = self.trials.get(trial.0 as usize);
                one.is_some_and(|one| one.state == State::Running)
            });
        }
        for index in 0..self.trials.len() {
            let trial = TrialId(index as u64);
            let one = &mut self.trials[index];
            let goes_on = match one.state {
                State::Ended => false,
                State::Unfinished => resuming.errored,
                State::Paused | State::Stopping(_) => continue,
                State::Pausing(_) if !resuming.leaves_unfinished => continue,
                State::Running if runs_ended.contains_key(&trial) => continue,
                // The record that it was started is lost. Where trials pause, its run may have ended for that.
                State::Pending if never_pauses && runs_ended.contains_key(&trial) => continue,
                _ => !resuming.leaves_unfinished,
            };
            let was_left = !goes_on && !matches!(one.state, State::Ended | State::Unfinished);
            // It had come as far as it may for now, and the records of how it went on from there are lost.
            let holds_back = goes_on && self.scheduler.as_ref().is_some_and(|scheduler| scheduler.holds_back(trial));
            one.exploit = None;
            one.state = match (goes_on, holds_back) {
                (true, true) => State::Paused,
                (true, false) => State::Pending,
                (false, _) => State::Ended,
            };
            if was_left && let Some(scheduler) = &mut self.scheduler {
                scheduler.on_trial_failed(trial);
            }
        }
        self.list_waiting();
        if let Some(scheduler) = &mut self.scheduler {
            scheduler.on_replayed();
        }
        self.runs_ended = runs_ended;
    }

    /// WAITS-1: the lists have who waits, in the order in which they came to wait.
    fn list_waiting(&mut self) {
        for (state, list) in [(State::Pending, &mut self.pending), (State::Paused, &mut self.paused)] {
            list.retain(|trial| self.trials[trial.0 as usize].state == state);
            let listed: BTreeSet<TrialId> = list.iter().copied().collect();
            let all = (0..).map(TrialId).zip(&self.trials);
            list.extend(
                all.filter(|(trial, one)| one.state == state && !listed.contains(trial)).map(|(trial, _)| trial),
            );
        }
    }

    /// Whether `Begun` ends this trial, which no record says has ended: nothing of it is run again.
    pub fn ends_at_once(&self, trial: TrialId) -> bool {
        match self.trials.get(trial.0 as usize).map(|one| &one.state) {
            Some(State::Stopping(_)) => true,
            Some(State::Pending | State::Running) => self.runs_ended.contains_key(&trial),
            _ => false,
        }
    }

    /// What a trial without an end had reported last, and whether the metric was ever among it.
    pub fn set_reached(&mut self, trial: TrialId, last: Metrics, has_metric: bool) {
        let metric = self.options.metric.as_ref().map(|(metric, _)| metric.clone());
        let one = self.trial(trial);
        let is_same = |name: &str| {
            let before = one.last.as_ref().and_then(|last| last.find(name));
            before.and_then(Value::as_f64) == last.find(name).and_then(Value::as_f64)
        };
        // Not every report has a record: this one came after the exploit.
        if !ALWAYS_RECORDED.into_iter().all(is_same) {
            one.reported_config = None;
        }
        one.has_metric |= has_metric || metric.is_none_or(|name| last.find(&name).and_then(Value::as_f64).is_some());
        one.last = Some(last);
    }

    /// What the head before has decided, and nobody has done.
    pub(super) fn catch_up(&mut self, out: &mut Out) {
        for (trial, (decision, reason)) in std::mem::take(&mut self.orders_left) {
            self.carry_out_order(trial, decision, reason, out);
        }
        for index in 0..self.trials.len() {
            let trial = TrialId(index as u64);
            match self.trials[index].state.clone() {
                State::Stopping(stop) => self.complete(trial, stop, out),
                State::Pausing(reason) => self.pause(trial, reason, out),
                _ => {}
            }
        }
        for (trial, end) in std::mem::take(&mut self.runs_ended) {
            if matches!(self.trial(trial).state, State::Pending | State::Running) {
                self.on_run_ended(trial, end, out);
            }
        }
    }

    fn replay_one(&mut self, record: Record, last: Option<Metrics>, made_before: u64) {
        // Of a trial that no record before has made, or that one has made already: the files of a trial know what is needed.
        let is_made = matches!(record, Record::Made { .. } | Record::Found { .. });
        let (number, count) = (record.trial().0, self.trials.len() as u64);
        if if is_made { number != count } else { number >= count } {
            return;
        }
        match record {
            Record::Found { trial, config } => {
                let suggested = self.suggest_again(trial, config.as_ref(), made_before);
                let config = match (config, suggested) {
                    (Some(config), _) | (None, Some(Suggestion::Config(config))) => config,
                    (None, _) => Metrics::default(),
                };
                self.replay_made(trial, config);
            }
            Record::Made { trial, config, names, resources } => {
                self.suggest_again(trial, Some(&config), made_before);
                self.replay_made(trial, config);
                let one = self.trial(trial);
                one.names = names;
                one.resources = resources;
            }
            Record::Told { trial, result, others_wait } => {
                // Who reports runs, also where the record that it was started is lost.
                if matches!(self.trial(trial).state, State::Pending | State::Paused) {
                    self.trial(trial).state = State::Running;
                    self.pending.retain(|pending| *pending != trial);
                    self.paused.retain(|paused| *paused != trial);
                }
                self.trial(trial).has_metric = true;
                self.trial(trial).checkpoints = 1;
                let decided = self.scheduler.as_mut().map(|scheduler| {
                    scheduler.on_others_wait(others_wait);
                    scheduler.on_result(trial, &result)
                });
                let one = self.trial(trial);
                one.last = Some(result);
                one.reported_config = None;
                if let Some((decision, reason)) = decided
                    && !matches!(self.scheduler, Some(AnyScheduler::ResourceChanging(_)))
                {
                    self.replay_decision(trial, decision, reason);
                }
            }
            Record::Chosen { trial } => {
                self.orders_left.remove(&trial);
                if let Some(scheduler) = &mut self.scheduler {
                    scheduler.choose(&self.pending, &self.paused);
                }
                self.pending.retain(|pending| *pending != trial);
                self.paused.retain(|paused| *paused != trial);
                self.trial(trial).state = State::Running;
            }
            Record::Paused { trial, .. } => {
                self.trial(trial).state = State::Paused;
                self.paused.retain(|paused| *paused != trial);
                self.paused.push(trial);
            }
            Record::Exploited { trial, config, .. } => {
                if let Some(scheduler) = &mut self.scheduler {
                    scheduler.on_config(trial, &config);
                }
                let one = self.trial(trial);
                one.change_config(config);
                one.state = State::Paused;
                one.checkpoints = 1;
                self.orders_left.remove(&trial);
                self.paused.retain(|paused| *paused != trial);
                self.paused.push(trial);
            }
            Record::ExploitRefused { trial } => {
                self.orders_left.remove(&trial);
                if matches!(self.trial(trial).state, State::Pausing(_)) {
                    self.trial(trial).state = State::Running;
                }
                self.refuse_exploit(trial);
            }
            Record::Ended(EndedTrial { trial, error, by_scheduler, config, .. }) => {
                // It does not, where the record of what it was told is lost.
                let is_known = self.orders_left.remove(&trial).is_some()
                    || matches!(self.trial(trial).state, State::Stopping(_))
                    || self.changes_resources();
                let one = self.trial(trial);
                one.state = if error.is_some() { State::Unfinished } else { State::Ended };
                one.completed = error.is_none();
                if let Some(config) = config {
                    one.config = config;
                    one.reported_config = None;
                }
                if last.is_some() {
                    one.last = last;
                    one.has_metric = true;
                }
                let last = one.last.clone();
                self.pending.retain(|pending| *pending != trial);
                self.paused.retain(|paused| *paused != trial);
                if let Some(scheduler) = &mut self.scheduler {
                    match &error {
                        Some(_) => scheduler.on_trial_failed(trial),
                        None if !by_scheduler || !is_known => {
                            scheduler.on_trial_completed(trial, &last.clone().unwrap_or_default());
                        }
                        None => {}
                    }
                }
                if let Some(searcher) = &mut self.searcher {
                    searcher.on_completed(trial, last.as_ref(), error.is_some());
                }
            }
        }
        if let Some(scheduler) = &mut self.scheduler {
            // What they led to has records of its own, unless the head was killed before it wrote them.
            let orders = scheduler.take_orders();
            self.orders_left.extend(orders.into_iter().map(|(trial, decision, reason)| (trial, (decision, reason))));
            scheduler.take_policies();
        }
    }

    /// What the searcher suggests for a trial that is there; nothing where the trial came from another space or searcher.
    fn suggest_again(&mut self, trial: TrialId, config: Option<&Metrics>, made_before: u64) -> Option<Suggestion> {
        let searcher = self.searcher.as_mut()?;
        if trial.0 >= made_before {
            return Some(searcher.suggest(trial));
        }
        if let Some(config) = config {
            searcher.skip(config);
        }
        None
    }

    fn replay_made(&mut self, trial: TrialId, config: Metrics) {
        if let Some(scheduler) = &mut self.scheduler {
            scheduler.on_trial_added(trial, &config);
            scheduler.on_config(trial, &config);
        }
        let mut one = Self::new_trial(config);
        one.state = State::Pending;
        self.trials.push(one);
        self.pending.push(trial);
    }

    /// What `judge` made of the report.
    fn replay_decision(&mut self, trial: TrialId, decision: Decision, reason: String) {
        let one = self.trial(trial);
        match decision {
            Decision::Stop => one.state = State::Stopping(Stop::by_scheduler(reason, true)),
            Decision::Complete => one.state = State::Stopping(Stop::by_scheduler(reason, false)),
            Decision::Pause => one.state = State::Pausing(reason),
            Decision::Exploit { from, with } => {
                one.exploit = Some(Exploit { from, with, reason: reason.clone() });
                one.state = State::Pausing(reason);
            }
            Decision::Continue | Decision::Resize(_) => {}
        }
    }
}
