//! Trials that grow while there is room: what nobody needs to begin is given to those that run.
//!
//! The two ways to give it are pure functions of who holds what and of what is free. Another scheduler decides everything else.
//!
//! GROW-1: a trial never gets less than it asked for.
//! GROW-2: a trial grows only by what is free now, so that it does not wait for what others hold.
//! GROW-3: what trials that wait need to begin is not given away, and neither is what is reserved.
//! GROW-4: only a trial that would go on is resized: a decision of the other scheduler stands.

use std::collections::BTreeMap;

use carril_types::{Metrics, Resources};
use serde::{Deserialize, Serialize};

use super::score::number;
use super::{AnyScheduler, Decision, Explained, NewConfig, Order, Policy, Scheduler, Score};
use crate::tune::{Mode, TrialId};

/// A trial that lives: what it asked for, and what it holds. One that waits holds nothing.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Holding {
    pub trial: TrialId,
    pub base: Resources,
    pub now: Resources,
}

/// In which portions trials grow.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Distribution {
    /// If it is empty: one CPU and one GPU, each on its own, of those that the trial asked for.
    pub increase_by: Resources,
    /// `None`: as often as there is room.
    pub increase_by_times: Option<u32>,
    pub reserve: Resources,
}

/// Who gets what is left.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Allocation {
    /// All that live get the same.
    Evenly(Distribution),
    /// The best one by this metric gets all of it.
    ToTheTop { distribution: Distribution, metric: String, mode: Mode },
}

impl Distribution {
    /// What the trial should hold if all that live grow alike.
    pub fn evenly(&self, trial: TrialId, holdings: &[Holding], free: &Resources) -> Option<Resources> {
        self.grown(trial, holdings, free, holdings.len())
    }

    /// What the trial should hold if only `top` grows.
    pub fn to_the_top(
        &self,
        trial: TrialId,
        top: TrialId,
        holdings: &[Holding],
        free: &Resources,
    ) -> Option<Resources> {
        if trial == top {
            return self.grown(trial, holdings, free, 1);
        }
        holdings.iter().find(|holding| holding.trial == trial).map(|holding| holding.base.clone())
    }

    /// What the trial asked for and one of `shares` equal parts of what is left.
    fn grown(&self, trial: TrialId, holdings: &[Holding], free: &Resources, shares: usize) -> Option<Resources> {
        let holding = holdings.iter().find(|holding| holding.trial == trial)?;
        let left = |name: &str| {
            let held: f64 = holdings.iter().map(|holding| holding.now.amount(name) - holding.base.amount(name)).sum();
            (free.amount(name) + held - self.reserve.amount(name)) / shares as f64
        };
        let within_reach = |name: &str| {
            let reach = holding.now.amount(name) + free.amount(name) - holding.base.amount(name);
            left(name).min(reach)
        };
        let mut grown = holding.base.clone();
        for portion in self.portions(&holding.base) {
            let times = self.increase_by_times.unwrap_or(u32::MAX).min(times_in(&portion, within_reach));
            grown.add(&portion.times(times));
        }
        Some(grown)
    }

    fn portions(&self, base: &Resources) -> Vec<Resources> {
        if self.increase_by != Resources::default() {
            return vec![self.increase_by.clone()];
        }
        let asked_for = ["CPU", "GPU"].into_iter().filter(|name| base.amount(name) > 0.0);
        let one = |name| Resources::from_amounts([(name, 1.0)]).expect("one is an amount");
        asked_for.map(one).collect()
    }
}

/// How often the portion is in what there is of each of its names.
fn times_in(portion: &Resources, amount: impl Fn(&str) -> f64) -> u32 {
    // A ten-thousandth is the least amount: half of it is lost in rounding only.
    let times = portion.iter().map(|(name, one)| ((amount(name) + 0.000_05) / one).floor());
    times.fold(f64::INFINITY, f64::min).clamp(0.0, 1e6) as u32
}

#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct ResourceChanging {
    base: Box<AnyScheduler>,
    allocation: Allocation,
    holdings: Vec<Holding>,
    free: Resources,
    scores: BTreeMap<TrialId, Score>,
    resized: u64,
}

impl ResourceChanging {
    pub fn new(base: AnyScheduler, allocation: Allocation) -> Self {
        Self {
            base: Box::new(base),
            allocation,
            holdings: Vec::new(),
            free: Resources::default(),
            scores: BTreeMap::new(),
            resized: 0,
        }
    }

    fn note_score(&mut self, trial: TrialId, result: &Metrics) {
        if let Allocation::ToTheTop { metric, mode, .. } = &self.allocation
            && let Some(metric) = number(result, metric)
        {
            self.scores.insert(trial, Score::new(metric, *mode));
        }
    }

    /// The older one of two that are equally good.
    fn top(&self) -> Option<TrialId> {
        let best = |(left, one): &(&TrialId, &Score), (right, other): &(&TrialId, &Score)| {
            one.cmp(other).then(right.cmp(left))
        };
        self.scores.iter().max_by(best).map(|(trial, _)| *trial)
    }

    fn wanted(&self, trial: TrialId) -> Option<Resources> {
        match &self.allocation {
            Allocation::Evenly(distribution) => distribution.evenly(trial, &self.holdings, &self.free),
            Allocation::ToTheTop { distribution, .. } => {
                distribution.to_the_top(trial, self.top()?, &self.holdings, &self.free)
            }
        }
    }

    fn leave(&mut self, trial: TrialId) {
        self.scores.remove(&trial);
        self.holdings.retain(|holding| holding.trial != trial);
    }
}

impl Scheduler for ResourceChanging {
    fn on_trial_added(&mut self, trial: TrialId, config: &Metrics) -> Option<NewConfig> {
        self.base.on_trial_added(trial, config)
    }

    fn on_config(&mut self, trial: TrialId, config: &Metrics) {
        self.base.on_config(trial, config);
    }

    fn on_exploit_refused(&mut self, trial: TrialId) {
        self.base.on_exploit_refused(trial);
    }

    fn on_others_wait(&mut self, others_wait: bool) {
        self.base.on_others_wait(others_wait);
    }

    fn on_no_more_trials(&mut self) {
        self.base.on_no_more_trials();
    }

    fn on_resources(&mut self, holdings: &[Holding], free: &Resources) {
        self.holdings = holdings.to_vec();
        self.free = free.clone();
        self.base.on_resources(holdings, free);
    }

    fn on_result(&mut self, trial: TrialId, result: &Metrics) -> Explained {
        let (decision, why) = self.base.on_result(trial, result);
        match decision {
            Decision::Stop | Decision::Complete => self.leave(trial),
            _ => self.note_score(trial, result),
        }
        if decision != Decision::Continue {
            return (decision, why);
        }
        let now = self.holdings.iter().find(|holding| holding.trial == trial).map(|holding| holding.now.clone());
        match (self.wanted(trial), now) {
            (Some(wanted), Some(now)) if wanted != now => {
                self.resized += 1;
                let why = format!("it holds {now}, and its part is {wanted}");
                (Decision::Resize(wanted), why)
            }
            _ => (Decision::Continue, why),
        }
    }

    fn on_trial_completed(&mut self, trial: TrialId, result: &Metrics) {
        self.leave(trial);
        self.base.on_trial_completed(trial, result);
    }

    fn on_trial_failed(&mut self, trial: TrialId) {
        self.leave(trial);
        self.base.on_trial_failed(trial);
    }

    fn choose(&mut self, pending: &[TrialId], paused: &[TrialId]) -> Option<TrialId> {
        self.base.choose(pending, paused)
    }

    fn on_replayed(&mut self) {
        self.base.on_replayed();
    }

    fn holds_back(&self, trial: TrialId) -> bool {
        self.base.holds_back(trial)
    }

    fn take_orders(&mut self) -> Vec<Order> {
        let orders = self.base.take_orders();
        for (trial, decision, _) in &orders {
            if matches!(decision, Decision::Stop | Decision::Complete) {
                self.leave(*trial);
            }
        }
        orders
    }

    fn take_policies(&mut self) -> Vec<Policy> {
        self.base.take_policies()
    }

    fn undecided_before(&self, _trial: TrialId) -> f64 {
        0.0
    }

    fn wants_checkpoint(&self, trial: TrialId) -> bool {
        self.base.wants_checkpoint(trial)
    }

    fn looks_at(&self) -> Vec<String> {
        let mut names = self.base.looks_at();
        if let Allocation::ToTheTop { metric, .. } = &self.allocation {
            names.push(metric.clone());
        }
        names
    }

    fn describe(&self) -> String {
        format!("{}; {} times a trial got other resources", self.base.describe(), self.resized)
    }
}
