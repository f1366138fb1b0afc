//! A driver with a few places, trials that report until they are told to stop, and every scheduler in it.

use std::collections::{BTreeMap, BTreeSet};

use carril_core::tune::random::Rng;
use carril_core::tune::scheduler::{Allocation, Distribution, Holding};
use carril_core::tune::scheduler::{
    AnyScheduler, Asha, AshaOptions, Bound, Decision, Fifo, HyperBand, HyperBandOptions, MedianOptions, MedianStopping,
    Mutation, MutationOptions, NewConfig, Pbt, PbtOptions, Replay, ResourceChanging, Scheduler,
};
use carril_core::tune::space::Domain;
use carril_core::tune::{Mode, TrialId};
use carril_types::{Metrics, Resources, Value};
use proptest::prelude::*;

use crate::{report, target};

/// After so many reports a trial ends by itself.
const LENGTH: f64 = 12.0;
const PLACES: usize = 3;

pub struct World {
    pub scheduler: AnyScheduler,
    /// Some trials fail.
    pub failures: bool,
    rng: Rng,
    to_make: u64,
    made: u64,
    pending: Vec<TrialId>,
    paused: Vec<TrialId>,
    running: Vec<TrialId>,
    ended: BTreeSet<TrialId>,
    times: BTreeMap<TrialId, f64>,
    configs: BTreeMap<TrialId, Metrics>,
    resources: BTreeMap<TrialId, Resources>,
    /// Everything that was decided.
    pub log: Vec<String>,
}

impl World {
    pub fn new(scheduler: AnyScheduler, trials: u64, seed: u64) -> Self {
        Self {
            scheduler,
            failures: true,
            rng: Rng::new(seed),
            to_make: trials,
            made: 0,
            pending: Vec::new(),
            paused: Vec::new(),
            running: Vec::new(),
            ended: BTreeSet::new(),
            times: BTreeMap::new(),
            configs: BTreeMap::new(),
            resources: BTreeMap::new(),
            log: Vec::new(),
        }
    }

    fn make_one(&mut self) {
        let trial = TrialId(self.made);
        self.made += 1;
        let config = Metrics(vec![("fixed".to_owned(), Value::Int(1))]);
        let with = self.scheduler.on_trial_added(trial, &config);
        self.configs.insert(trial, config);
        if let Some(with) = with {
            self.configure(trial, with);
        }
        self.times.insert(trial, 0.0);
        self.pending.push(trial);
        if self.made == self.to_make {
            self.scheduler.on_no_more_trials();
            self.carry_out_orders();
        }
    }

    /// Functions of the user answer 5.
    fn configure(&mut self, trial: TrialId, with: NewConfig) {
        let mut config = with.config;
        for path in &with.ask {
            config.set(&path[0], Value::Float(5.0));
        }
        self.scheduler.on_config(trial, &config);
        self.configs.insert(trial, config);
    }

    fn start_some(&mut self) {
        while self.running.len() < PLACES {
            if self.pending.is_empty() && self.made < self.to_make {
                self.make_one();
            }
            let chosen = self.scheduler.choose(&self.pending, &self.paused);
            self.carry_out_orders();
            let Some(trial) = chosen else {
                if self.made == self.to_make {
                    return;
                }
                self.make_one();
                continue;
            };
            assert!(!self.ended.contains(&trial), "SCHED-4");
            let waited = self.pending.contains(&trial) || self.paused.contains(&trial);
            assert!(waited, "only who waits is chosen");
            self.pending.retain(|other| *other != trial);
            self.paused.retain(|other| *other != trial);
            self.running.push(trial);
            self.resources.entry(trial).or_insert_with(one_cpu);
            self.log.push(format!("{} runs", trial.0));
        }
    }

    fn carry_out_orders(&mut self) {
        for (trial, decision, why) in self.scheduler.take_orders() {
            assert!(
                self.paused.contains(&trial),
                "SCHED-4: orders are for those that wait, not for {}: {why}",
                trial.0
            );
            self.log.push(format!("{} {decision:?}: {why}", trial.0));
            match decision {
                Decision::Stop | Decision::Complete => self.end(trial),
                Decision::Exploit { from, with } => {
                    assert!(!self.ended.contains(&from), "PBT-4");
                    self.times.insert(trial, self.times[&from]);
                    self.configure(trial, with);
                }
                other => panic!("who waits is not told {other:?}"),
            }
        }
    }

    fn end(&mut self, trial: TrialId) {
        self.paused.retain(|other| *other != trial);
        self.running.retain(|other| *other != trial);
        assert!(self.ended.insert(trial), "a trial ends once");
    }

    fn wait(&mut self, trial: TrialId) {
        self.running.retain(|other| *other != trial);
        self.paused.push(trial);
    }

    fn tell_resources(&mut self) {
        let now = |trial: &TrialId| self.running.contains(trial).then(|| self.resources[trial].clone());
        let live = self.running.iter().chain(&self.paused).chain(&self.pending);
        let holdings: Vec<Holding> =
            live.map(|trial| Holding { trial: *trial, base: one_cpu(), now: now(trial).unwrap_or_default() }).collect();
        let mut free = Resources::from_amounts([("CPU", 64.0)]).unwrap();
        holdings.iter().for_each(|holding| free.subtract(&holding.now));
        self.scheduler.on_resources(&holdings, &free);
    }

    /// One of those that run reports, ends or fails.
    pub fn step(&mut self, score: impl Fn(TrialId, f64, &Metrics) -> f64) {
        self.start_some();
        let Some(length) = Some(self.running.len()).filter(|length| *length > 0) else { return };
        let trial = self.running[self.rng.index(length)];
        let time = self.times[&trial] + 1.0;
        if self.rng.below(40) == 0 && self.failures {
            self.end(trial);
            self.scheduler.on_trial_failed(trial);
            return self.carry_out_orders();
        }
        let result = report(time, score(trial, time, &self.configs[&trial]));
        if time > LENGTH {
            self.end(trial);
            self.scheduler.on_trial_completed(trial, &result);
            return self.carry_out_orders();
        }
        self.times.insert(trial, time);
        self.tell_resources();
        let (decision, why) = self.scheduler.on_result(trial, &result);
        self.log.push(format!("{} at {time} {decision:?}: {why}", trial.0));
        match decision {
            Decision::Continue => {}
            Decision::Pause => self.wait(trial),
            Decision::Stop | Decision::Complete => self.end(trial),
            Decision::Resize(resources) => {
                self.resources.insert(trial, resources);
                self.wait(trial);
            }
            Decision::Exploit { from, with } => {
                assert!(!self.ended.contains(&from), "PBT-4");
                self.times.insert(trial, self.times[&from]);
                self.wait(trial);
                self.configure(trial, with);
            }
        }
        self.carry_out_orders();
    }

    pub fn is_over(&self) -> bool {
        self.ended.len() as u64 == self.to_make
    }

    /// How many trials were trained for how long.
    pub fn trained(&self) -> BTreeMap<u64, usize> {
        let mut trained = BTreeMap::new();
        for time in self.times.values() {
            *trained.entry(*time as u64).or_default() += 1;
        }
        trained
    }

    /// How far the trials that live are.
    pub fn live_times(&self) -> Vec<f64> {
        self.times.iter().filter(|(trial, _)| !self.ended.contains(trial)).map(|(_, time)| *time).collect()
    }

    pub fn run(&mut self) {
        for _ in 0..20_000 {
            if self.is_over() {
                return;
            }
            self.step(bumpy);
        }
        panic!("nothing ends: {} with {:?} of {}", self.scheduler.describe(), self.ended, self.to_make);
    }
}

fn one_cpu() -> Resources {
    Resources::from_amounts([("CPU", 1.0)]).unwrap()
}

/// Different for each trial and time, the same in each world, and sometimes no number.
fn bumpy(trial: TrialId, time: f64, config: &Metrics) -> f64 {
    let x = config.get("x").and_then(Value::as_f64).unwrap_or(0.0);
    let bump = Rng::new(trial.0 * 1_000 + time as u64).f64();
    if bump > 0.97 { f64::NAN } else { time + 3.0 * bump - (x - 3.0).abs() }
}

fn mutations() -> Vec<(String, Mutation)> {
    vec![
        ("x".to_owned(), Mutation::Domain(Domain::uniform(0.0, 10.0).unwrap())),
        ("asked".to_owned(), Mutation::Ask),
        ("list".to_owned(), Mutation::Choices((0..5).map(Value::Int).collect())),
    ]
}

fn pbt(synch: bool, seed: u64) -> Pbt {
    let options = PbtOptions { perturbation_interval: 2.0, synch, seed, ..PbtOptions::new(target(Mode::Max)) };
    Pbt::new(options, MutationOptions::new(mutations())).unwrap()
}

fn pb2(seed: u64) -> Pbt {
    let options = PbtOptions { perturbation_interval: 2.0, seed, ..PbtOptions::new(target(Mode::Max)) };
    Pbt::pb2(options, vec![Bound { path: vec!["x".to_owned()], low: 0.0, high: 10.0 }]).unwrap()
}

/// One of each kind.
fn scheduler(kind: usize, seed: u64) -> AnyScheduler {
    let target = target(Mode::Max);
    let asha = AshaOptions { max_t: 9.0, reduction_factor: 3.0, brackets: 2, seed, ..AshaOptions::new(target.clone()) };
    let band = HyperBandOptions { max_t: 9.0, ..HyperBandOptions::new(target.clone()) };
    let median = MedianOptions { grace_period: 2.0, hard_stop: seed.is_multiple_of(2), ..MedianOptions::new(target) };
    let change = |step: u64| (step, Metrics(vec![("x".to_owned(), Value::Int(step as i64))]));
    match kind {
        0 => AnyScheduler::Fifo(Fifo::default()),
        1 => AnyScheduler::Asha(Asha::new(asha).unwrap()),
        2 => AnyScheduler::HyperBand(HyperBand::new(band).unwrap()),
        3 => AnyScheduler::HyperBand(HyperBand::for_bohb(band).unwrap()),
        4 => AnyScheduler::MedianStopping(MedianStopping::new(median).unwrap()),
        5 => AnyScheduler::Pbt(pbt(false, seed)),
        6 => AnyScheduler::Pbt(pbt(true, seed)),
        7 => AnyScheduler::Pbt(pb2(seed)),
        8 => AnyScheduler::Replay(Replay::new(change(0).1, vec![change(3), change(7)]).unwrap()),
        9 => {
            let inner = scheduler(seed as usize % 9, seed);
            AnyScheduler::ResourceChanging(ResourceChanging::new(inner, Allocation::Evenly(Distribution::default())))
        }
        _ => {
            let allocation = Allocation::ToTheTop {
                distribution: Distribution::default(),
                metric: "score".to_owned(),
                mode: Mode::Max,
            };
            let inner = scheduler(seed as usize % 9, seed);
            AnyScheduler::ResourceChanging(ResourceChanging::new(inner, allocation))
        }
    }
}

const KINDS: usize = 11;

proptest! {
    #![proptest_config(ProptestConfig::with_cases(200))]

    #[test]
    fn with_every_scheduler_every_trial_ends(kind in 0..KINDS, seed in 0_u64..1_000, trials in 1_u64..25) {
        let mut world = World::new(scheduler(kind, seed), trials, seed);
        world.run();
        prop_assert!(!world.scheduler.describe().is_empty());
    }

    #[test]
    fn a_scheduler_that_was_saved_and_restored_decides_the_same(
        kind in 0..KINDS,
        seed in 0_u64..1_000,
        trials in 1_u64..25,
        at in 1_usize..150,
    ) {
        let mut straight = World::new(scheduler(kind, seed), trials, seed);
        let mut restored = World::new(scheduler(kind, seed), trials, seed);
        straight.run();
        for _ in 0..at {
            restored.step(bumpy);
        }
        let saved = serde_json::to_string(&restored.scheduler).unwrap();
        restored.scheduler = serde_json::from_str(&saved).unwrap();
        restored.run();
        prop_assert_eq!(straight.log, restored.log, "SCHED-3");
    }
}
