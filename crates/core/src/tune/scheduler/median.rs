//! The median stopping rule (Golovin et al. 2017, "Google Vizier", 3.2.2): what is worse at its best than the others on average, stops.
//!
//! MEDIAN-1: a trial stops at time t exactly when its best score so far is strictly below the median of the running averages, up to t, of the
//!   others that have come as far. The paper compares with trials that are complete; as in Ray, those that still run count too,
//!   and averages leave out what was reported in the grace period.
//! MEDIAN-2: an average that is not finite says nothing about the others: it is left out, and is no sample.
//! MEDIAN-3: without `hard_stop` a trial is paused once where it would have been stopped, and then left alone.
//! MEDIAN-4: while too few others have come as far, a trial yields its place to those that wait, at most once per `min_time_slice`.

use std::collections::{BTreeMap, BTreeSet};

use carril_types::{Metrics, exact};
use serde::{Deserialize, Serialize};

use super::errors::check;
use super::fifo::{Waiting, first};
use super::{Decision, Explained, NewConfig, Scheduler, SchedulerError, Score, Target};
use crate::tune::{Mode, TrialId};

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct MedianOptions {
    pub target: Target,
    #[serde(with = "exact")]
    pub grace_period: f64,
    pub min_samples_required: usize,
    #[serde(with = "exact")]
    pub min_time_slice: f64,
    pub hard_stop: bool,
}

impl MedianOptions {
    /// What Ray has where nothing is said.
    pub fn new(target: Target) -> Self {
        Self { target, grace_period: 60.0, min_samples_required: 3, min_time_slice: 0.0, hard_stop: true }
    }

    fn check(&self) -> Result<(), SchedulerError> {
        let Self { grace_period, min_samples_required, min_time_slice, .. } = *self;
        check(grace_period >= 0.0, "grace_period", grace_period, "at least 0")?;
        check(min_samples_required > 0, "min_samples_required", min_samples_required, "at least 1")?;
        check(min_time_slice >= 0.0, "min_time_slice", min_time_slice, "at least 0")
    }
}

#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct MedianStopping {
    options: MedianOptions,
    /// Of trials that have ended too.
    histories: BTreeMap<TrialId, History>,
    /// They were paused instead of stopped, and are left alone.
    spared: BTreeSet<TrialId>,
    waiting: Waiting,
    stopped: u64,
}

#[derive(Clone, Debug, Default, Serialize, Deserialize)]
struct History {
    /// In ascending time.
    points: Vec<Point>,
    #[serde(with = "exact")]
    yielded: f64,
}

/// What was known of a trial at a time: so an average up to any time is found without a walk.
#[derive(Clone, Debug, Serialize, Deserialize)]
struct Point {
    #[serde(with = "exact")]
    time: f64,
    best: Score,
    /// Sum and number of the scores after the grace period.
    #[serde(with = "exact")]
    sum: f64,
    count: u64,
}

impl History {
    fn add(&mut self, time: f64, score: Score, counts: bool) {
        // A trial that went back to a checkpoint reports the same time again.
        self.points.truncate(self.points.partition_point(|point| point.time < time));
        let (best, sum, count) = self.points.last().map_or((score, 0.0, 0), |last| (last.best, last.sum, last.count));
        let (sum, count) = if counts { (sum + score.value(), count + 1) } else { (sum, count) };
        self.points.push(Point { time, best: best.max(score), sum, count });
    }

    /// The average up to this time, if the trial has come as far.
    fn average(&self, time: f64) -> Option<f64> {
        self.points.last().filter(|last| last.time >= time)?;
        let known = self.points.partition_point(|point| point.time <= time);
        let point = &self.points[known.checked_sub(1)?];
        (point.count > 0).then(|| point.sum / point.count as f64)
    }
}

impl MedianStopping {
    pub fn new(options: MedianOptions) -> Result<Self, SchedulerError> {
        options.check()?;
        Ok(Self {
            options,
            histories: BTreeMap::new(),
            spared: BTreeSet::new(),
            waiting: Waiting::default(),
            stopped: 0,
        })
    }

    fn add(&mut self, trial: TrialId, time: f64, score: Score) {
        let counts = time >= self.options.grace_period;
        self.histories.entry(trial).or_default().add(time, score, counts);
    }

    /// The averages of the other trials that have come as far (MEDIAN-2).
    fn averages(&self, trial: TrialId, time: f64) -> Vec<f64> {
        let others = self.histories.iter().filter(|(other, _)| **other != trial);
        others.filter_map(|(_, history)| history.average(time)).filter(|average| average.is_finite()).collect()
    }

    fn yield_or_go_on(&mut self, trial: TrialId, time: f64, samples: usize) -> Explained {
        let history = self.histories.entry(trial).or_default();
        let needed = self.options.min_samples_required;
        let few = format!("only {samples} others have come as far, of {needed} that the median needs");
        if time - history.yielded <= self.options.min_time_slice || !self.waiting.anyone() {
            return (Decision::Continue, few);
        }
        history.yielded = time;
        self.waiting.wait(trial);
        (Decision::Pause, format!("{few}: it yields its place to those that wait"))
    }

    fn stop(&mut self, trial: TrialId, best: Score, median: Score) -> Explained {
        let target = &self.options.target;
        let why =
            format!("its best, {}, is worse than the median of the others, {}", target.show(best), target.show(median));
        if self.options.hard_stop {
            self.stopped += 1;
            return (Decision::Stop, why);
        }
        self.spared.insert(trial);
        self.waiting.wait(trial);
        (Decision::Pause, why)
    }
}

/// Of an even number, the mean of the two in the middle.
fn median(mut values: Vec<f64>) -> Option<f64> {
    values.sort_by(f64::total_cmp);
    let middle = values.len() / 2;
    match values.len() {
        0 => None,
        odd if odd % 2 == 1 => Some(values[middle]),
        _ => Some(values[middle - 1] / 2.0 + values[middle] / 2.0),
    }
}

impl Scheduler for MedianStopping {
    fn on_trial_added(&mut self, trial: TrialId, _config: &Metrics) -> Option<NewConfig> {
        self.waiting.wait(trial);
        None
    }

    fn on_result(&mut self, trial: TrialId, result: &Metrics) -> Explained {
        self.waiting.leave(trial);
        let Some((time, score)) = self.options.target.read(result) else {
            return (Decision::Continue, self.options.target.missing());
        };
        self.add(trial, time, score);
        if self.spared.contains(&trial) {
            return (Decision::Continue, "it was paused once, and is left alone".to_owned());
        }
        let grace = self.options.grace_period;
        if time < grace {
            return (Decision::Continue, format!("`grace_period={grace}` is not over"));
        }
        let averages = self.averages(trial, time);
        if averages.len() < self.options.min_samples_required {
            return self.yield_or_go_on(trial, time, averages.len());
        }
        let best = self.histories[&trial].points.last().map_or(score, |point| point.best);
        // Averages are of scores, where more is better already.
        match median(averages).map(|median| Score::new(median, Mode::Max)) {
            Some(median) if best < median => self.stop(trial, best, median),
            _ => (Decision::Continue, format!("its best is {}", self.options.target.show(best))),
        }
    }

    fn on_trial_completed(&mut self, trial: TrialId, result: &Metrics) {
        if let Some((time, score)) = self.options.target.read(result) {
            self.add(trial, time, score);
        }
        self.on_trial_failed(trial);
    }

    fn on_trial_failed(&mut self, trial: TrialId) {
        self.waiting.leave(trial);
        self.spared.remove(&trial);
    }

    fn choose(&mut self, pending: &[TrialId], paused: &[TrialId]) -> Option<TrialId> {
        let chosen = first(pending, paused)?;
        self.waiting.leave(chosen);
        Some(chosen)
    }

    fn looks_at(&self) -> Vec<String> {
        self.options.target.names()
    }

    fn describe(&self) -> String {
        let compared = self.histories.len();
        format!(
            "median stopping rule, {compared} trials compared, {} stopped, {} spared",
            self.stopped,
            self.spared.len()
        )
    }
}
