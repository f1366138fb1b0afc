//! What makes one trial better than another: a metric, which way it counts, and which of a trial's values.

use std::collections::BTreeSet;

use carril_store::{Experiment, StoreError, Trial};
use carril_types::{AUTOMATIC_FIELDS, ErrorCode, Failure, ScoreOrder, Value};
use clap::{Args, ValueEnum};

use super::target::over_trials;

/// As many names are told in a hint.
const MOST_NAMES: usize = 15;

#[derive(Args, Default)]
pub struct Objective {
    /// The metric to go by, instead of the experiment's own; a nested one as `a/b`
    #[arg(long, value_name = "NAME")]
    metric: Option<String>,
    /// Whether the least or the most of it is best
    #[arg(long)]
    mode: Option<Mode>,
    /// Which value of a trial counts
    #[arg(long, default_value = "last")]
    scope: Scope,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Mode {
    Min,
    Max,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
pub enum Scope {
    /// Its last
    #[default]
    Last,
    /// The best of all that it reported
    All,
    /// The mean of all
    Avg,
    /// The mean of the last five
    #[value(name = "last-5-avg")]
    Last5Avg,
    /// The mean of the last ten
    #[value(name = "last-10-avg")]
    Last10Avg,
}

#[derive(Clone, Debug)]
pub struct Goal {
    pub metric: String,
    pub mode: ScoreOrder,
    pub scope: Scope,
}

/// The value of each trial, in their order.
#[derive(Debug)]
pub struct Scores {
    pub goal: Goal,
    /// `None` where the trial never reported the metric; NaN and infinity where it reported that.
    pub values: Vec<Option<f64>>,
}

impl Objective {
    /// Whether there is a metric to go by, from the user or from the experiment.
    pub fn is_known(&self, experiment: &Experiment) -> bool {
        self.metric.is_some() || experiment.summary.metric.is_some()
    }

    fn goal(&self, experiment: &Experiment) -> Result<Goal, Failure> {
        let summary = &experiment.summary;
        let Some(metric) = self.metric.as_ref().or(summary.metric.as_ref()) else {
            let message = format!("the experiment `{}` names no metric to compare its trials by", summary.name);
            return Err(Failure::new(ErrorCode::InvalidConfig, message)
                .hint("give one with --metric NAME --mode min|max")
                .hint(reported(experiment)));
        };
        let mode = match self.mode {
            Some(Mode::Min) => Some(ScoreOrder::Min),
            Some(Mode::Max) => Some(ScoreOrder::Max),
            None if summary.metric.as_ref() == Some(metric) => summary.mode,
            None => None,
        };
        let Some(mode) = mode else {
            // Of a metric that nobody has reported, nothing else is worth asking.
            let known = over_trials(experiment, |trial| last(experiment, trial, metric))?;
            if known.iter().all(Option::is_none) {
                return Err(not_reported(experiment, metric));
            }
            let message = format!("it is not known whether the least or the most `{metric}` is best");
            return Err(Failure::new(ErrorCode::InvalidConfig, message).hint("say so with --mode min|max"));
        };
        Ok(Goal { metric: metric.clone(), mode, scope: self.scope })
    }

    /// The value of every trial; a metric that none has is an error.
    pub fn scores(&self, experiment: &Experiment) -> Result<Scores, Failure> {
        let goal = self.goal(experiment)?;
        let values = match goal.scope {
            Scope::Last => over_trials(experiment, |trial| last(experiment, trial, &goal.metric))?,
            _ => over_trials(experiment, |trial| Ok(goal.of(&experiment.values(trial, &goal.metric)?)))?,
        };
        let scores = Scores { goal, values };
        if scores.values.iter().all(Option::is_none) {
            return Err(not_reported(experiment, &scores.goal.metric));
        }
        Ok(scores)
    }
}

fn not_reported(experiment: &Experiment, metric: &str) -> Failure {
    let message = format!("no trial of `{}` has reported `{metric}`", experiment.summary.name);
    Failure::new(ErrorCode::NotFound, message).hint(reported(experiment))
}

/// Of the last result that has the metric, which is mostly the last.
fn last(experiment: &Experiment, trial: &Trial, metric: &str) -> Result<Option<f64>, StoreError> {
    match trial.metrics.find(metric).and_then(Value::as_f64) {
        None if trial.iterations > 1 => Ok(experiment.values(trial, metric)?.last().copied()),
        value => Ok(value),
    }
}

/// What there is to choose from, for a hint.
fn reported(experiment: &Experiment) -> String {
    let mut names = BTreeSet::new();
    for trial in &experiment.trials {
        trial.metrics.for_each_flat(&mut |name, value| {
            let top = name.split('/').next().unwrap_or(name);
            if !AUTOMATIC_FIELDS.contains(&top) && value.as_f64().is_some() && !names.contains(name) {
                names.insert(name.to_owned());
            }
        });
    }
    if names.is_empty() {
        return "no trial has reported a number yet".into();
    }
    let more = if names.len() > MOST_NAMES { ", …" } else { "" };
    let names: Vec<String> = names.into_iter().take(MOST_NAMES).collect();
    format!("reported are: {}{more}", names.join(", "))
}

impl Goal {
    pub fn mode_word(&self) -> &'static str {
        match self.mode {
            ScoreOrder::Min => "min",
            ScoreOrder::Max => "max",
        }
    }

    /// For a plot, where the word alone would be a riddle.
    pub fn mode_sentence(&self) -> &'static str {
        match self.mode {
            ScoreOrder::Min => "less is better",
            ScoreOrder::Max => "more is better",
        }
    }

    pub fn scope_word(&self) -> &'static str {
        match self.scope {
            Scope::Last => "last value",
            Scope::All => "best of all values",
            Scope::Avg => "mean of all values",
            Scope::Last5Avg => "mean of the last 5 values",
            Scope::Last10Avg => "mean of the last 10 values",
        }
    }

    /// Only finite ones should be compared.
    pub fn is_better(&self, one: f64, other: f64) -> bool {
        match self.mode {
            ScoreOrder::Min => one < other,
            ScoreOrder::Max => one > other,
        }
    }

    /// The one value of a trial that reported these. One that is not finite counts only where there is nothing else.
    fn of(&self, values: &[f64]) -> Option<f64> {
        let taken = match self.scope {
            Scope::Last => return values.last().copied(),
            Scope::All | Scope::Avg => values,
            Scope::Last5Avg => &values[values.len().saturating_sub(5)..],
            Scope::Last10Avg => &values[values.len().saturating_sub(10)..],
        };
        let finite: Vec<f64> = taken.iter().copied().filter(|value| value.is_finite()).collect();
        if finite.is_empty() {
            return taken.last().copied();
        }
        match self.scope {
            Scope::All => {
                finite.into_iter().reduce(|best, value| if self.is_better(value, best) { value } else { best })
            }
            _ => Some(finite.iter().sum::<f64>() / finite.len() as f64),
        }
    }
}

impl Scores {
    /// The value of a trial, where it can be compared.
    pub fn finite(&self, at: usize) -> Option<f64> {
        self.values[at].filter(|value| value.is_finite())
    }

    /// Of equal ones, the first that was made.
    pub fn best(&self) -> Option<usize> {
        let finite = (0..self.values.len()).filter(|at| self.finite(*at).is_some());
        finite.reduce(|best, at| match (self.finite(best), self.finite(at)) {
            (Some(one), Some(other)) if self.goal.is_better(other, one) => at,
            _ => best,
        })
    }

    /// Which trials cannot be compared, in words; `None` where all can.
    pub fn left_out(&self) -> Option<String> {
        let absent = self.values.iter().filter(|value| value.is_none()).count();
        let odd = self.values.iter().flatten().filter(|value| !value.is_finite()).count();
        let metric = &self.goal.metric;
        let mut parts = Vec::new();
        if absent > 0 {
            parts.push(format!("{} without `{metric}`", super::words::trials(absent)));
        }
        if odd > 0 {
            parts.push(format!("{} whose `{metric}` is NaN or infinite", super::words::trials(odd)));
        }
        if parts.is_empty() { None } else { Some(format!("left out: {}", parts.join(", "))) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn goal(mode: ScoreOrder, scope: Scope) -> Goal {
        Goal { metric: "loss".into(), mode, scope }
    }

    #[test]
    fn each_scope_takes_its_own_value() {
        let values = [4.0, f64::NAN, 1.0, 2.0, 3.0, 5.0, 6.0];
        for (mode, scope, value) in [
            (ScoreOrder::Min, Scope::Last, 6.0),
            (ScoreOrder::Min, Scope::All, 1.0),
            (ScoreOrder::Max, Scope::All, 6.0),
            (ScoreOrder::Min, Scope::Avg, 3.5),
            (ScoreOrder::Min, Scope::Last5Avg, 3.4),
            (ScoreOrder::Min, Scope::Last10Avg, 3.5),
        ] {
            assert_eq!(goal(mode, scope).of(&values), Some(value), "{scope:?}");
        }
        assert_eq!(goal(ScoreOrder::Min, Scope::All).of(&[]), None);
        assert!(goal(ScoreOrder::Min, Scope::All).of(&[f64::NAN]).is_some_and(f64::is_nan));
    }

    #[test]
    fn the_best_is_finite_and_the_first_of_its_equals() {
        let values = vec![None, Some(f64::NEG_INFINITY), Some(2.0), Some(1.0), Some(1.0), Some(f64::NAN)];
        let scores = Scores { goal: goal(ScoreOrder::Min, Scope::Last), values };
        assert_eq!(scores.best(), Some(3));
        let told = "left out: 1 trial without `loss`, 2 trials whose `loss` is NaN or infinite";
        assert_eq!(scores.left_out().as_deref(), Some(told));
        let none = Scores { goal: goal(ScoreOrder::Max, Scope::Last), values: vec![Some(f64::NAN)] };
        assert_eq!(none.best(), None);
    }
}
