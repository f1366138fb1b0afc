//! An experiment as its records tell it: what has ended stays ended, what has not goes on.

use carril_types::Metrics;

use super::{EndedTrial, Experiment, Record, Scheduler, Searcher, State};
use crate::tune::TrialId;

/// What becomes of trials that an earlier head has left.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Resuming {
    /// Those that failed go on from their checkpoints.
    pub errored: bool,
    /// Those that did not end are left as they are.
    pub leaves_unfinished: bool,
}

impl Experiment {
    /// EXP-4: tells searcher and scheduler what they were told before, and puts the trials where they were.
    pub fn replay(&mut self, records: Vec<(Record, Option<Metrics>)>, resuming: Resuming) {
        for (record, last) in records {
            self.replay_one(record, last);
        }
        for index in 0..self.trials.len() {
            let trial = TrialId(index as u64);
            let one = &mut self.trials[index];
            let goes_on = match one.state {
                State::Ended => false,
                State::Unfinished => resuming.errored,
                State::Paused => continue,
                _ => !resuming.leaves_unfinished,
            };
            one.state = if goes_on { State::Pending } else { State::Ended };
            if goes_on && !self.pending.contains(&trial) {
                self.pending.push(trial);
            }
        }
    }

    fn replay_one(&mut self, record: Record, last: Option<Metrics>) {
        match record {
            Record::Made { trial, config, names, resources } => {
                debug_assert_eq!(trial.0 as usize, self.trials.len(), "trials are made in order");
                if let Some(searcher) = &mut self.searcher {
                    searcher.suggest(trial);
                }
                if let Some(scheduler) = &mut self.scheduler {
                    scheduler.on_trial_added(trial, &config);
                    scheduler.on_config(trial, &config);
                }
                let mut one = Self::new_trial(config);
                one.names = names;
                one.resources = resources;
                one.state = State::Pending;
                self.trials.push(one);
                self.pending.push(trial);
            }
            Record::Told { trial, result } => {
                self.trial(trial).has_metric = true;
                self.trial(trial).checkpoints = 1;
                if let Some(scheduler) = &mut self.scheduler {
                    scheduler.on_result(trial, &result);
                }
                self.trial(trial).last = Some(result);
            }
            Record::Chosen { trial } => {
                if let Some(scheduler) = &mut self.scheduler {
                    scheduler.choose(&self.pending, &self.paused);
                }
                self.pending.retain(|pending| *pending != trial);
                self.paused.retain(|paused| *paused != trial);
                self.trial(trial).state = State::Running;
            }
            Record::Paused { trial, .. } => {
                self.trial(trial).state = State::Paused;
                self.paused.push(trial);
            }
            Record::Exploited { trial, config, .. } => {
                if let Some(scheduler) = &mut self.scheduler {
                    scheduler.on_config(trial, &config);
                }
                let one = self.trial(trial);
                one.config = config;
                one.state = State::Paused;
                one.checkpoints = 1;
                self.paused.push(trial);
            }
            Record::ExploitRefused { trial } => self.refuse_exploit(trial),
            Record::Ended(EndedTrial { trial, error, by_scheduler, .. }) => {
                let one = self.trial(trial);
                one.state = if error.is_some() { State::Unfinished } else { State::Ended };
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
                        None if !by_scheduler => {
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
            // What they led to has records of its own.
            scheduler.take_orders();
            scheduler.take_policies();
        }
    }
}
