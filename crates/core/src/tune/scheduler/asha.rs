//! Asynchronous successive halving (Li et al. 2020, "A System for Massively Parallel Hyperparameter Tuning"), as the rule that stops trials.
//!
//! A bracket has rungs at `grace_period · reduction_factor^k`. A trial that reaches one is compared with those that were there before
//! it; nobody ever waits.
//!
//! ASHA-1: a trial stops at a rung exactly when its score is below the (1 - 1/reduction_factor) quantile of those recorded there before it.
//! ASHA-2: so the best of a rung never stops there, and neither does the first.
//! ASHA-3: a trial is recorded once per rung, and never below a rung where it was recorded. (Ray goes back and compares the late
//!   score of a trial that jumped over a rung with early ones: a trial that reports rarely would always win.)
//! ASHA-4: at `max_t` nothing is left to halve, as in the paper: a trial stops there because it is done, or with `stop_last_trials` off goes on.

use std::collections::BTreeMap;

use carril_types::{Metrics, exact};
use serde::{Deserialize, Serialize};

use super::errors::{check, check_not_below};
use super::fifo::first;
use super::score::quantile;
use super::{Decision, Explained, NewConfig, Scheduler, SchedulerError, Score, Target};
use crate::tune::TrialId;
use crate::tune::random::Rng;
use crate::tune::random::elementary::exp;

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct AshaOptions {
    pub target: Target,
    #[serde(with = "exact")]
    pub max_t: f64,
    #[serde(with = "exact")]
    pub grace_period: f64,
    #[serde(with = "exact")]
    pub reduction_factor: f64,
    pub brackets: usize,
    pub stop_last_trials: bool,
    /// Decides to which bracket a trial belongs.
    pub seed: u64,
}

impl AshaOptions {
    /// What Ray has where nothing is said.
    pub fn new(target: Target) -> Self {
        Self {
            target,
            max_t: 100.0,
            grace_period: 1.0,
            reduction_factor: 4.0,
            brackets: 1,
            stop_last_trials: true,
            seed: 0,
        }
    }

    fn check(&self) -> Result<(), SchedulerError> {
        let Self { max_t, grace_period, reduction_factor, brackets, .. } = *self;
        check(max_t > 0.0 && max_t.is_finite(), "max_t", max_t, "a finite number above 0")?;
        check(grace_period > 0.0, "grace_period", grace_period, "above 0")?;
        check_not_below(("max_t", max_t), ("grace_period", grace_period))?;
        check(reduction_factor > 1.0 && reduction_factor.is_finite(), "reduction_factor", reduction_factor, "above 1")?;
        check((1..=MAX_BRACKETS).contains(&brackets), "brackets", brackets, "at least 1 and at most 64")
    }
}

const MAX_BRACKETS: usize = 64;
/// A reduction factor of almost 1 would make them without end.
const MAX_RUNGS: usize = 1_000;

/// The time that counts reports.
const ITERATION: &str = "training_iteration";

#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Asha {
    options: AshaOptions,
    brackets: Vec<Bracket>,
    places: BTreeMap<TrialId, Place>,
    stopped: u64,
    rng: Rng,
}

/// Rungs in ascending order.
#[derive(Clone, Debug, Serialize, Deserialize)]
struct Bracket(Vec<Rung>);

#[derive(Clone, Debug, Serialize, Deserialize)]
struct Rung {
    #[serde(with = "exact")]
    milestone: f64,
    /// Ascending.
    scores: Vec<Score>,
}

/// Where a trial that lives is.
#[derive(Clone, Debug, Serialize, Deserialize)]
struct Place {
    bracket: usize,
    /// The rungs that it has behind it.
    passed: usize,
}

/// What a rung says about a trial that has just reached it.
struct Verdict {
    milestone: f64,
    /// `None` for the first one there.
    cutoff: Option<Score>,
    among: usize,
}

impl Asha {
    pub fn new(options: AshaOptions) -> Result<Self, SchedulerError> {
        options.check()?;
        let brackets = (0..options.brackets).map(|late| Bracket::new(&options, late)).collect();
        let rng = Rng::of_scheduler(options.seed);
        Ok(Self { options, brackets, places: BTreeMap::new(), stopped: 0, rng })
    }

    /// The milestones of each bracket.
    pub fn rungs(&self) -> Vec<Vec<f64>> {
        let milestones = |bracket: &Bracket| bracket.0.iter().map(|rung| rung.milestone).collect();
        self.brackets.iter().map(milestones).collect()
    }

    /// A bracket with one rung more is e times as likely, as in Ray: those that stop early get the more trials.
    fn draw_bracket(&mut self) -> usize {
        if self.brackets.len() == 1 {
            return 0;
        }
        let longest = self.brackets[0].0.len();
        let weights: Vec<f64> = self.brackets.iter().map(|one| exp(one.0.len() as f64 - longest as f64)).collect();
        let mut left = self.rng.f64() * weights.iter().sum::<f64>();
        for (index, weight) in weights.iter().enumerate() {
            left -= weight;
            if left < 0.0 {
                return index;
            }
        }
        weights.len() - 1
    }

    fn record(&mut self, trial: TrialId, time: f64, score: Score) -> Option<Verdict> {
        let place = self.places.get_mut(&trial)?;
        let rungs = &mut self.brackets[place.bracket].0;
        let reached = rungs.iter().take_while(|rung| time >= rung.milestone).count();
        if reached <= place.passed {
            return None;
        }
        place.passed = reached;
        Some(rungs[reached - 1].record(score, self.options.reduction_factor))
    }
}

impl Bracket {
    /// The bracket that begins to stop `late` rungs later than the first one.
    fn new(options: &AshaOptions, late: usize) -> Self {
        let mut rungs = Vec::new();
        let mut milestone = options.grace_period;
        for index in 0..MAX_RUNGS {
            if milestone > options.max_t {
                break;
            }
            if index >= late {
                rungs.push(Rung { milestone, scores: Vec::new() });
            }
            milestone *= options.reduction_factor;
        }
        Self(rungs)
    }
}

impl Rung {
    fn record(&mut self, score: Score, reduction_factor: f64) -> Verdict {
        let cutoff = quantile(&self.scores, 1.0 - 1.0 / reduction_factor);
        let verdict = Verdict { milestone: self.milestone, cutoff, among: self.scores.len() };
        let index = self.scores.partition_point(|recorded| *recorded < score);
        self.scores.insert(index, score);
        verdict
    }
}

impl Scheduler for Asha {
    fn on_trial_added(&mut self, trial: TrialId, _config: &Metrics) -> Option<NewConfig> {
        let bracket = self.draw_bracket();
        self.places.insert(trial, Place { bracket, passed: 0 });
        None
    }

    fn on_result(&mut self, trial: TrialId, result: &Metrics) -> Explained {
        let Some((time, score)) = self.options.target.read(result) else {
            return (Decision::Continue, self.options.target.missing());
        };
        let verdict = self.record(trial, time, score);
        if time >= self.options.max_t {
            return self.at_the_end(trial, time);
        }
        let Some(Verdict { milestone, cutoff, among }) = verdict else {
            return (Decision::Continue, "no rung was reached".to_owned());
        };
        let Some(cutoff) = cutoff else {
            return (Decision::Continue, format!("the first at the rung of {milestone}"));
        };
        let target = &self.options.target;
        let (shown, limit) = (target.show(score), target.show(cutoff));
        if score >= cutoff {
            return (Decision::Continue, format!("{shown} at the rung of {milestone} is as good as {limit}"));
        }
        self.places.remove(&trial);
        self.stopped += 1;
        let share = 1.0 / self.options.reduction_factor;
        let why = format!(
            "{shown} at the rung of {milestone} is worse than {limit}: not among the best {share:.2} of the {among} before it"
        );
        (Decision::Stop, why)
    }

    fn on_trial_completed(&mut self, trial: TrialId, result: &Metrics) {
        if let Some((time, score)) = self.options.target.read(result) {
            self.record(trial, time, score);
        }
        self.places.remove(&trial);
    }

    fn on_trial_failed(&mut self, trial: TrialId) {
        self.places.remove(&trial);
    }

    fn choose(&mut self, pending: &[TrialId], paused: &[TrialId]) -> Option<TrialId> {
        first(pending, paused)
    }

    fn undecided_before(&self, trial: TrialId) -> f64 {
        let (AshaOptions { target, max_t, .. }, Some(place)) = (&self.options, self.places.get(&trial)) else {
            return 0.0;
        };
        if target.time_attr != ITERATION {
            return 0.0;
        }
        let next = self.brackets[place.bracket].0.get(place.passed);
        next.map_or(*max_t, |rung| rung.milestone.min(*max_t))
    }

    fn looks_at(&self) -> Vec<String> {
        self.options.target.names()
    }

    fn describe(&self) -> String {
        let mut line = format!("ASHA, {} stopped", self.stopped);
        for (index, bracket) in self.brackets.iter().enumerate() {
            let rungs: Vec<String> =
                bracket.0.iter().map(|rung| format!("{} at {}", rung.scores.len(), rung.milestone)).collect();
            line.push_str(&format!("; bracket {index} had {}", rungs.join(", ")));
        }
        line
    }
}

impl Asha {
    fn at_the_end(&mut self, trial: TrialId, time: f64) -> Explained {
        let Target { time_attr, .. } = &self.options.target;
        let max_t = self.options.max_t;
        if !self.options.stop_last_trials {
            return (Decision::Continue, format!("`{time_attr}` is past `max_t={max_t}`, and nothing stops it there"));
        }
        self.places.remove(&trial);
        (Decision::Complete, format!("`{time_attr}` is {time}, and `max_t` is {max_t}: it is done"))
    }
}
