//! Population-based training (Jaderberg et al. 2017): what does badly goes on from the checkpoint of what does well, with other parameters.
//!
//! How the parameters change is the explorer's: mutations (`explore`), or the bandit of PB2 (`bandit`). A run's changes can be played
//! again (`policy`).
//!
//! PBT-1: only a trial of the worst quantile is replaced, and only by one of the best.
//! PBT-2: every value of a new config is within its domain. (Ray multiplies past the bounds.)
//! PBT-3: with `synch`, nobody is replaced before all that live have come as far, which is an interval further than the one ahead
//!   was the last time; one that ends keeps nobody waiting.
//! PBT-4: a trial that has ended is neither replaced nor copied.
//! PBT-5: while others wait, a trial runs for one interval at a time, and who was trained least runs next.

mod bandit;
mod explore;
mod paths;
mod policy;

use std::collections::BTreeMap;

use carril_types::{Metrics, exact};
use serde::{Deserialize, Serialize};

use self::bandit::Bandit;
pub use self::bandit::Bound;
use self::explore::{Explored, Mutations};
pub use self::explore::{Factor, Mutation, MutationOptions};
pub use self::policy::{Policy, Replay};
use super::errors::check;
use super::fifo::Waiting;
use super::gaussian::Input;
use super::score::number;
use super::{Decision, Explained, NewConfig, Order, Scheduler, SchedulerError, Score, Target};
use crate::tune::TrialId;
use crate::tune::random::Rng;

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct PbtOptions {
    pub target: Target,
    #[serde(with = "exact")]
    pub perturbation_interval: f64,
    #[serde(with = "exact")]
    pub burn_in_period: f64,
    #[serde(with = "exact")]
    pub quantile_fraction: f64,
    pub synch: bool,
    pub seed: u64,
}

impl PbtOptions {
    /// What Ray has where nothing is said.
    pub fn new(target: Target) -> Self {
        Self {
            target,
            perturbation_interval: 60.0,
            burn_in_period: 0.0,
            quantile_fraction: 0.25,
            synch: false,
            seed: 0,
        }
    }

    fn check(&self) -> Result<(), SchedulerError> {
        let Self { perturbation_interval: interval, burn_in_period, quantile_fraction: fraction, .. } = *self;
        check(interval > 0.0 && interval.is_finite(), "perturbation_interval", interval, "a finite number above 0")?;
        check(burn_in_period >= 0.0, "burn_in_period", burn_in_period, "at least 0")?;
        check((0.0..=0.5).contains(&fraction), "quantile_fraction", fraction, "between 0 and 0.5")
    }
}

#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Pbt {
    options: PbtOptions,
    explorer: Explorer,
    population: BTreeMap<TrialId, Member>,
    waiting: Waiting,
    /// Others wait that are not among those: they ask for room already, or are not made yet.
    #[serde(default)]
    others_wait: bool,
    /// With `synch`: how far all come before they are compared.
    #[serde(with = "exact")]
    next_synch: f64,
    orders: Vec<Order>,
    policies: Vec<Policy>,
    exploits: u64,
    /// Whose interval the last report has completed.
    compared: Option<TrialId>,
    rng: Rng,
}

#[derive(Clone, Debug, Serialize, Deserialize)]
enum Explorer {
    Mutations(Mutations),
    Bandit(Bandit),
}

/// A trial that lives.
#[derive(Clone, Debug, Serialize, Deserialize)]
struct Member {
    config: Metrics,
    /// As of the last interval that it completed.
    score: Option<Score>,
    /// What it was worth when this interval began: what was gained in it is what PB2 learns from.
    before: Option<Score>,
    #[serde(with = "exact")]
    trained: f64,
    #[serde(with = "exact")]
    compared: f64,
    step: u64,
    /// What it was until it was told to go on from another one.
    undo: Option<Box<Member>>,
}

impl Member {
    fn new(config: Metrics) -> Self {
        Self { config, score: None, before: None, trained: 0.0, compared: 0.0, step: 0, undo: None }
    }
}

/// The automatic field by which changes are logged and replayed.
const STEP: &str = "training_iteration";

impl Pbt {
    pub fn new(options: PbtOptions, mutations: MutationOptions) -> Result<Self, SchedulerError> {
        options.check()?;
        Ok(Self::with(options, Explorer::Mutations(Mutations::new(mutations)?)))
    }

    /// PB2: the bandit looks for values between bounds.
    pub fn pb2(options: PbtOptions, bounds: Vec<Bound>) -> Result<Self, SchedulerError> {
        options.check()?;
        Ok(Self::with(options, Explorer::Bandit(Bandit::new(bounds)?)))
    }

    fn with(options: PbtOptions, explorer: Explorer) -> Self {
        Self {
            explorer,
            population: BTreeMap::new(),
            waiting: Waiting::default(),
            others_wait: false,
            next_synch: options.perturbation_interval.max(options.burn_in_period),
            orders: Vec::new(),
            policies: Vec::new(),
            exploits: 0,
            compared: None,
            rng: Rng::of_scheduler(options.seed),
            options,
        }
    }

    /// Those that may be replaced, and those that may be copied: the worst and the best of all that were ever compared.
    pub fn quantiles(&self) -> (Vec<TrialId>, Vec<TrialId>) {
        let mut ranked: Vec<(Score, TrialId)> =
            self.population.iter().filter_map(|(trial, member)| Some((member.score?, *trial))).collect();
        ranked.sort();
        let ranked: Vec<TrialId> = ranked.into_iter().map(|(_, trial)| trial).collect();
        let share = (ranked.len() as f64 * self.options.quantile_fraction).ceil() as usize;
        let share = share.min(ranked.len() / 2);
        (ranked[..share].to_vec(), ranked[ranked.len() - share..].to_vec())
    }

    fn is_due(&self, member: &Member, time: f64) -> bool {
        let reached =
            if self.options.synch { self.next_synch } else { member.compared + self.options.perturbation_interval };
        time >= self.options.burn_in_period && time >= reached
    }

    /// An interval of this trial is over.
    fn save(&mut self, trial: TrialId, time: f64, score: Score) {
        let Some(member) = self.population.get_mut(&trial) else { return };
        if let (Explorer::Bandit(bandit), Some(before)) = (&mut self.explorer, member.before) {
            let interval = self.options.perturbation_interval;
            let gained = (score.value() - before.value()) / ((time - member.trained) / interval);
            if time > member.trained {
                bandit.learn(member.trained / interval, &member.config, gained);
            }
        }
        (member.score, member.before, member.trained) = (Some(score), Some(score), time);
    }

    fn on_interval(&mut self, trial: TrialId, time: f64) -> Explained {
        if let Some(member) = self.population.get_mut(&trial) {
            member.compared = time;
        }
        let (worst, best) = self.quantiles();
        if worst.contains(&trial) {
            return self.exploit(trial, &best);
        }
        if self.others_wait || self.waiting.anyone() {
            self.waiting.wait(trial);
            return (Decision::Pause, "its interval is over, and others wait".to_owned());
        }
        (Decision::Continue, "not among the worst".to_owned())
    }

    fn on_synch_interval(&mut self, trial: TrialId) -> Explained {
        let missing = self.missing();
        if missing > 0 {
            self.waiting.wait(trial);
            return (Decision::Pause, format!("waits at {} for {missing} trials", self.next_synch));
        }
        self.replace_the_worst();
        if let Some(index) = self.orders.iter().position(|(ordered, _, _)| *ordered == trial) {
            let (_, decision, why) = self.orders.remove(index);
            return (decision, why);
        }
        if self.population.get(&trial).is_some_and(|member| member.trained >= self.next_synch) {
            self.waiting.wait(trial);
            return (Decision::Pause, format!("the others have to come to {} first", self.next_synch));
        }
        (Decision::Continue, "all were compared, and it is not among the worst".to_owned())
    }

    /// How many of those that live have not come as far as all have to.
    fn missing(&self) -> usize {
        self.population.values().filter(|member| member.trained < self.next_synch).count()
    }

    /// PBT-3: everybody is there.
    fn replace_the_worst(&mut self) {
        let (worst, best) = self.quantiles();
        for trial in worst {
            let (decision, why) = self.exploit(trial, &best);
            self.orders.push((trial, decision, why));
        }
        // From the one that came furthest: else it would be compared again before its interval is over, or wait for nothing.
        let furthest = self.population.values().map(|member| member.trained).fold(0.0, f64::max);
        self.next_synch = furthest + self.options.perturbation_interval;
    }

    fn exploit(&mut self, trial: TrialId, best: &[TrialId]) -> Explained {
        let from = best[self.rng.index(best.len())];
        let source = self.population[&from].clone();
        let Explored { with, changes } = self.explore(trial, &source);
        let (bad, good) = (self.show(self.population[&trial].score), self.show(source.score));
        let member = self.population.get_mut(&trial).expect("only those that live are ranked");
        self.policies.push(Policy {
            trial,
            from,
            trial_step: member.step,
            from_step: source.step,
            old_config: source.config,
            new_config: with.config.clone(),
        });
        let new = Member {
            config: with.config.clone(),
            // Its own, until it has shown what it is worth now.
            score: member.score,
            before: source.score,
            trained: source.trained,
            compared: source.compared,
            step: source.step,
            undo: None,
        };
        let old = std::mem::replace(member, new);
        member.undo = Some(Box::new(Member { undo: None, ..old }));
        self.exploits += 1;
        self.waiting.wait(trial);
        let why = format!("{bad} is among the worst: it goes on from trial {} at {good}, {changes}", from.0);
        (Decision::Exploit { from, with }, why)
    }

    fn explore(&mut self, trial: TrialId, source: &Member) -> Explored {
        let interval = self.options.perturbation_interval;
        match &mut self.explorer {
            Explorer::Mutations(mutations) => mutations.explore(&source.config, &mut self.rng),
            Explorer::Bandit(bandit) => {
                let others = self.population.iter().filter(|(other, _)| **other != trial);
                let running: Vec<Input> =
                    others.filter_map(|(_, member)| bandit.input(member.trained / interval, &member.config)).collect();
                bandit.explore(source.trained / interval, &source.config, &running, &mut self.rng)
            }
        }
    }

    fn show(&self, score: Option<Score>) -> String {
        score.map_or_else(|| "nothing".to_owned(), |score| self.options.target.show(score))
    }

    fn leave(&mut self, trial: TrialId) {
        self.waiting.leave(trial);
        self.orders.retain(|(ordered, _, _)| *ordered != trial);
        let was_there = self.population.remove(&trial).is_some();
        if self.options.synch && was_there && !self.population.is_empty() && self.missing() == 0 {
            self.replace_the_worst();
        }
    }
}

impl Scheduler for Pbt {
    fn on_trial_added(&mut self, trial: TrialId, config: &Metrics) -> Option<NewConfig> {
        let filled = match &mut self.explorer {
            Explorer::Mutations(mutations) => mutations.fill(config, &mut self.rng),
            Explorer::Bandit(bandit) => bandit.fill(config, &mut self.rng),
        };
        self.population.insert(trial, Member::new(filled.config.clone()));
        self.waiting.wait(trial);
        (filled.config != *config || !filled.ask.is_empty()).then_some(filled)
    }

    fn on_config(&mut self, trial: TrialId, config: &Metrics) {
        if let Some(member) = self.population.get_mut(&trial) {
            member.config = config.clone();
        }
        // What was logged of a trial that did not run since is this change.
        let newest = self.policies.iter_mut().rev().find(|policy| policy.trial == trial);
        if let Some(policy) = newest {
            policy.new_config = config.clone();
        }
    }

    fn on_exploit_refused(&mut self, trial: TrialId) {
        let Some(member) = self.population.get_mut(&trial) else { return };
        let Some(undo) = member.undo.take() else { return };
        *member = *undo;
        self.waiting.leave(trial);
        self.exploits -= 1;
        if let Some(index) = self.policies.iter().rposition(|policy| policy.trial == trial) {
            self.policies.remove(index);
        }
    }

    fn on_others_wait(&mut self, others_wait: bool) {
        self.others_wait = others_wait;
    }

    fn on_result(&mut self, trial: TrialId, result: &Metrics) -> Explained {
        self.compared = None;
        self.waiting.leave(trial);
        let Some(member) = self.population.get_mut(&trial) else {
            return (Decision::Continue, "it is not in the population".to_owned());
        };
        member.undo = None;
        member.step = number(result, STEP).map_or(member.step, |step| step as u64);
        let Some((time, score)) = self.options.target.read(result) else {
            return (Decision::Continue, self.options.target.missing());
        };
        if !self.is_due(&self.population[&trial], time) {
            return (Decision::Continue, "its interval is not over".to_owned());
        }
        self.save(trial, time, score);
        self.compared = Some(trial);
        if self.options.synch { self.on_synch_interval(trial) } else { self.on_interval(trial, time) }
    }

    fn on_trial_completed(&mut self, trial: TrialId, _result: &Metrics) {
        self.leave(trial);
    }

    fn on_trial_failed(&mut self, trial: TrialId) {
        self.leave(trial);
    }

    fn choose(&mut self, pending: &[TrialId], paused: &[TrialId]) -> Option<TrialId> {
        let trained = |trial: &TrialId| self.population.get(trial).map_or(0.0, |member| member.trained);
        let may_run = |trial: &TrialId| !self.options.synch || trained(trial) < self.next_synch;
        let candidates = pending.iter().chain(paused).copied().filter(may_run);
        let chosen = candidates.min_by(|left, right| trained(left).total_cmp(&trained(right)).then(left.cmp(right)))?;
        self.waiting.leave(chosen);
        Some(chosen)
    }

    fn take_orders(&mut self) -> Vec<Order> {
        std::mem::take(&mut self.orders)
    }

    fn take_policies(&mut self) -> Vec<Policy> {
        std::mem::take(&mut self.policies)
    }

    fn wants_checkpoint(&self, trial: TrialId) -> bool {
        self.compared == Some(trial)
    }

    fn looks_at(&self) -> Vec<String> {
        self.options.target.names()
    }

    fn describe(&self) -> String {
        let name = match self.explorer {
            Explorer::Mutations(_) => "population-based training",
            Explorer::Bandit(_) => "population-based bandits (PB2)",
        };
        let all = if self.options.synch { format!(", all compared at {}", self.next_synch) } else { String::new() };
        format!("{name}, {} trials, {} went on from another one{all}", self.population.len(), self.exploits)
    }
}
