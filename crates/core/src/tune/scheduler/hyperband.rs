//! HyperBand (Li et al. 2018, JMLR 18, algorithm 1): brackets of successive halving that trade many short trials for few long ones.
//!
//! Trials fill one bracket after the other. At a milestone a trial pauses until its whole bracket is there; then the best
//! go on and the others stop. HyperBand for BOHB (Falkner et al. 2018) is the same with one bracket at a time, so that the
//! searcher has learnt from a bracket before the next one begins.
//!
//! BAND-1: sizes and milestones are those of the algorithm: ⌈(s_max + 1)/(s + 1) · η^s⌉ trials, of which ⌊n/η⌋ go on, each until a *total*
//!   of R·η^(i - s). (Ray keeps ⌈n/η⌉ and rounds s_max; the table of the paper's version of 2017 rounds sizes down.)
//! BAND-2: a bracket is halved when all its trials that live have reached the milestone, and not before; a trial that
//!   failed leaves its place among those that go on to the others.
//! BAND-3: a bracket is halved before it is full only if no trial can join it: the searcher has finished, or nothing else can run.
//! BAND-4: the best of a bracket is never stopped before `max_t`.

mod bracket;

use std::collections::{BTreeMap, BTreeSet};

use carril_types::{Metrics, exact};
use serde::{Deserialize, Serialize};

use self::bracket::Bracket;
pub use self::bracket::{Plan, Rung, plan};
use super::errors::check;
use super::{Decision, Explained, NewConfig, Order, Scheduler, SchedulerError, Score, Target};
use crate::tune::TrialId;

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct HyperBandOptions {
    pub target: Target,
    /// R: what the best of a bracket are trained for.
    #[serde(with = "exact")]
    pub max_t: f64,
    /// η: of so many, one goes on.
    #[serde(with = "exact")]
    pub reduction_factor: f64,
    pub stop_last_trials: bool,
}

impl HyperBandOptions {
    /// What Ray has where nothing is said.
    pub fn new(target: Target) -> Self {
        Self { target, max_t: 81.0, reduction_factor: 3.0, stop_last_trials: true }
    }

    fn check(&self) -> Result<(), SchedulerError> {
        let Self { max_t, reduction_factor, .. } = *self;
        check(max_t >= 1.0 && max_t.is_finite(), "max_t", max_t, "a finite number of at least 1")?;
        check(reduction_factor > 1.0 && reduction_factor.is_finite(), "reduction_factor", reduction_factor, "above 1")
    }
}

#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct HyperBand {
    options: HyperBandOptions,
    plans: Vec<Plan>,
    one_at_a_time: bool,
    /// In the order in which they were opened; the last one may still take trials.
    brackets: Vec<Bracket>,
    homes: BTreeMap<TrialId, usize>,
    running: BTreeSet<TrialId>,
    orders: Vec<Order>,
    stopped: u64,
}

impl HyperBand {
    pub fn new(options: HyperBandOptions) -> Result<Self, SchedulerError> {
        options.check()?;
        Ok(Self {
            plans: plan(options.max_t, options.reduction_factor),
            options,
            one_at_a_time: false,
            brackets: Vec::new(),
            homes: BTreeMap::new(),
            running: BTreeSet::new(),
            orders: Vec::new(),
            stopped: 0,
        })
    }

    pub fn for_bohb(options: HyperBandOptions) -> Result<Self, SchedulerError> {
        Ok(Self { one_at_a_time: true, ..Self::new(options)? })
    }

    /// What a trial is trained for at present: BOHB has one model for each such budget.
    pub fn budget(&self, trial: TrialId) -> Option<f64> {
        self.homes.get(&trial).map(|home| self.brackets[*home].milestone())
    }

    fn open_bracket(&mut self) -> usize {
        if self.brackets.last().is_none_or(|last| !last.is_open()) {
            let plan = self.plans[self.brackets.len() % self.plans.len()].clone();
            self.brackets.push(Bracket::new(plan));
        }
        self.brackets.len() - 1
    }

    /// Halves the bracket while everybody is there.
    fn settle(&mut self, home: usize) {
        let bracket = &mut self.brackets[home];
        while bracket.is_assembled() {
            let milestone = bracket.milestone();
            let halved = bracket.halve(self.options.reduction_factor);
            for (trial, score) in halved.losers {
                let shown = self.options.target.show(score);
                let why = format!("{shown} at {milestone} is not among the best {} of {}", halved.keep, halved.of);
                self.orders.push((trial, Decision::Stop, why));
                self.homes.remove(&trial);
                self.running.remove(&trial);
                self.stopped += 1;
            }
        }
    }

    fn close_the_last(&mut self) {
        let Some(last) = self.brackets.len().checked_sub(1) else { return };
        self.brackets[last].close();
        self.settle(last);
    }

    fn leave(&mut self, trial: TrialId) {
        self.running.remove(&trial);
        self.orders.retain(|(ordered, _, _)| *ordered != trial);
        if let Some(home) = self.homes.remove(&trial) {
            self.brackets[home].leave(trial);
            self.settle(home);
        }
    }

    /// What was ordered about the trial that is being decided on.
    fn take_order(&mut self, trial: TrialId) -> Option<Explained> {
        let index = self.orders.iter().position(|(ordered, _, _)| *ordered == trial)?;
        let (_, decision, why) = self.orders.remove(index);
        Some((decision, why))
    }

    fn at_the_end(&mut self, trial: TrialId, time: f64) -> Explained {
        self.leave(trial);
        let (time_attr, max_t) = (&self.options.target.time_attr, self.options.max_t);
        if self.options.stop_last_trials {
            return (Decision::Complete, format!("`{time_attr}` is {time}, and `max_t` is {max_t}: it is done"));
        }
        self.running.insert(trial);
        (Decision::Continue, format!("`{time_attr}` is past `max_t={max_t}`, and nothing stops it there"))
    }

    fn arrive(&mut self, trial: TrialId, home: usize, time: f64, score: Score) -> Explained {
        if !self.brackets[home].arrive(trial, time, score) {
            let milestone = self.brackets[home].milestone();
            return (Decision::Continue, format!("it is compared with its bracket at {milestone}"));
        }
        self.settle(home);
        if let Some(order) = self.take_order(trial) {
            return order;
        }
        let bracket = &self.brackets[home];
        let milestone = bracket.milestone();
        if bracket.is_ready(trial) {
            return (Decision::Continue, format!("among the best of its bracket, and trained on to {milestone}"));
        }
        self.running.remove(&trial);
        let (missing, places) = (bracket.missing(), bracket.places_left());
        let why = format!("waits at {milestone} for {missing} trials of its bracket, which has room for {places} more");
        (Decision::Pause, why)
    }

    /// The trial of the earliest bracket, and the oldest of it.
    fn candidate(&self, pending: &[TrialId], paused: &[TrialId]) -> Option<TrialId> {
        let only = self.one_at_a_time.then(|| self.brackets.iter().position(|one| !one.is_done())).flatten();
        let may_run = |trial: &TrialId| match self.homes.get(trial) {
            Some(home) => self.brackets[*home].is_ready(*trial) && only.is_none_or(|only| only == *home),
            // It left its bracket at `max_t` and goes on, or is to be stopped.
            None => !self.orders.iter().any(|(ordered, _, _)| ordered == trial),
        };
        let order = |trial: &TrialId| (self.homes.get(trial).copied().unwrap_or(usize::MAX), *trial);
        // Those that were made earlier are in earlier brackets: of them, the first is enough.
        let begins = pending.iter().copied().find(may_run);
        paused.iter().copied().filter(may_run).chain(begins).min_by_key(order)
    }
}

impl Scheduler for HyperBand {
    fn on_trial_added(&mut self, trial: TrialId, _config: &Metrics) -> Option<NewConfig> {
        let home = self.open_bracket();
        self.brackets[home].join(trial);
        self.homes.insert(trial, home);
        None
    }

    fn on_no_more_trials(&mut self) {
        self.close_the_last();
    }

    fn on_result(&mut self, trial: TrialId, result: &Metrics) -> Explained {
        self.running.insert(trial);
        let Some((time, score)) = self.options.target.read(result) else {
            return (Decision::Continue, self.options.target.missing());
        };
        if time >= self.options.max_t {
            return self.at_the_end(trial, time);
        }
        match self.homes.get(&trial).copied() {
            Some(home) => self.arrive(trial, home, time, score),
            None => (Decision::Continue, "it belongs to no bracket".to_owned()),
        }
    }

    fn on_trial_completed(&mut self, trial: TrialId, _result: &Metrics) {
        self.leave(trial);
    }

    fn on_trial_failed(&mut self, trial: TrialId) {
        self.leave(trial);
    }

    fn choose(&mut self, pending: &[TrialId], paused: &[TrialId]) -> Option<TrialId> {
        let mut chosen = self.candidate(pending, paused);
        if chosen.is_none() && pending.is_empty() && self.running.is_empty() && !paused.is_empty() {
            // Everybody waits for trials that nobody makes: BAND-3.
            self.close_the_last();
            chosen = self.candidate(pending, paused);
        }
        self.running.extend(chosen);
        chosen
    }

    /// A replay with lost records may have chosen other trials than were started.
    fn on_replayed(&mut self) {
        self.running.clear();
    }

    fn holds_back(&self, trial: TrialId) -> bool {
        self.homes.get(&trial).is_some_and(|home| !self.brackets[*home].is_ready(trial))
    }

    fn take_orders(&mut self) -> Vec<Order> {
        std::mem::take(&mut self.orders)
    }

    fn looks_at(&self) -> Vec<String> {
        self.options.target.names()
    }

    fn describe(&self) -> String {
        let name = if self.one_at_a_time { "HyperBand for BOHB" } else { "HyperBand" };
        let live = self.brackets.iter().enumerate().filter(|(_, bracket)| !bracket.is_done());
        let brackets: Vec<String> = live.map(|(index, bracket)| format!("bracket {index}: {bracket}")).collect();
        let brackets = if brackets.is_empty() { "no bracket is open".to_owned() } else { brackets.join("; ") };
        format!("{name}, {} stopped; {brackets}", self.stopped)
    }
}
