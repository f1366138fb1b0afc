//! Runs every suggestion several times and tells the searcher the mean: for metrics that chance moves.
//!
//! REPEAT-1: a searcher sees one trial for each suggestion, the first of its repeats, which ends when all of them have.
//! REPEAT-2: the mean is over the repeats that ended well; a suggestion failed when all of its repeats did.

use carril_types::{Metrics, Value};
use serde::{Deserialize, Serialize};

use super::{Objective, Searcher, Suggestion};
use crate::tune::space::SpaceError;
use crate::tune::{Mode, TrialId};

/// The key under which `set_index` puts the number of the repeat, from 0, into the config.
pub const TRIAL_INDEX: &str = "__trial_index__";

#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Repeater<S> {
    searcher: S,
    objective: Objective,
    repeat: usize,
    set_index: bool,
    /// Those of which not all repeats have ended; the newest, last, may have repeats to come.
    groups: Vec<Group>,
}

#[derive(Clone, Debug, Serialize, Deserialize)]
struct Group {
    config: Metrics,
    repeats: Vec<(TrialId, Repeat)>,
}

#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
enum Repeat {
    Running,
    Reported(#[serde(with = "carril_types::exact")] f64),
    Ended(#[serde(with = "carril_types::exact")] f64),
    Failed,
}

impl<S: Searcher> Repeater<S> {
    pub fn new(searcher: S, objective: Objective, repeat: usize, set_index: bool) -> Result<Self, SpaceError> {
        if repeat == 0 {
            return Err(SpaceError::TooSmall { name: "repeat", value: 0, least: 1 });
        }
        Ok(Self { searcher, objective, repeat, set_index, groups: Vec::new() })
    }

    fn find(&mut self, trial: TrialId) -> Option<(usize, &mut Repeat)> {
        self.groups.iter_mut().enumerate().find_map(|(index, group)| {
            let (_, repeat) = group.repeats.iter_mut().find(|(id, repeat)| *id == trial && !repeat.has_ended())?;
            Some((index, repeat))
        })
    }

    fn report_mean(&mut self, index: usize) {
        let group = self.groups.remove(index);
        let losses = group.repeats.iter().filter_map(|(_, repeat)| match repeat {
            Repeat::Ended(loss) => Some(*loss),
            _ => None,
        });
        let losses: Vec<f64> = losses.collect();
        let first = group.repeats[0].0;
        if losses.is_empty() {
            return self.searcher.on_completed(first, None, true);
        }
        let mean = losses.iter().sum::<f64>() / losses.len() as f64;
        let value = match self.objective.mode {
            Mode::Min => mean,
            Mode::Max => -mean,
        };
        let result = Metrics(vec![(self.objective.metric.clone(), Value::Float(value))]);
        self.searcher.on_completed(first, Some(&result), false);
    }
}

impl<S: Searcher> Searcher for Repeater<S> {
    fn suggest(&mut self, trial: TrialId) -> Suggestion {
        if self.groups.last().is_none_or(|group| group.repeats.len() == self.repeat) {
            match self.searcher.suggest(trial) {
                Suggestion::Config(config) => self.groups.push(Group { config, repeats: Vec::new() }),
                other => return other,
            }
        }
        let group = self.groups.last_mut().expect("one was pushed if there was none");
        let mut config = group.config.clone();
        if self.set_index {
            config.set(TRIAL_INDEX, Value::Int(group.repeats.len() as i64));
        }
        group.repeats.push((trial, Repeat::Running));
        Suggestion::Config(config)
    }

    fn on_result(&mut self, trial: TrialId, result: &Metrics) {
        let loss = self.objective.loss(result);
        if let Some((_, repeat)) = self.find(trial) {
            *repeat = loss.map_or(Repeat::Running, Repeat::Reported);
        }
    }

    fn on_completed(&mut self, trial: TrialId, result: Option<&Metrics>, failed: bool) {
        let told = result.map(|result| self.objective.loss(result).map_or(Repeat::Running, Repeat::Reported));
        let all = self.repeat;
        let Some((index, repeat)) = self.find(trial) else { return };
        *repeat = match told.unwrap_or(*repeat) {
            Repeat::Reported(loss) if !failed => Repeat::Ended(loss),
            _ => Repeat::Failed,
        };
        let group = &self.groups[index];
        if group.repeats.len() == all && group.repeats.iter().all(|(_, repeat)| repeat.has_ended()) {
            self.report_mean(index);
        }
    }
}

impl Repeat {
    fn has_ended(&self) -> bool {
        matches!(self, Repeat::Ended(_) | Repeat::Failed)
    }
}
