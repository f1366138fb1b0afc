//! Our schedulers beside Ray's, on the same reports: `scripts/record_ray_schedulers.py` has recorded what Ray decided.
//!
//! Every decision and every choice of who runs next is compared. Where we do something else, the case is in `DIFFERENCES`
//! with the reason, and what we do is asserted.

mod hyperband;
mod pbt;

use std::collections::{BTreeMap, BTreeSet};

use carril_core::tune::scheduler::{
    Asha, AshaOptions, Decision, Fifo, HyperBand, HyperBandOptions, MedianOptions, MedianStopping, Mutation,
    MutationOptions, Pbt, PbtOptions, Scheduler, Target,
};
use carril_core::tune::{Mode, TrialId};
use carril_types::{Metrics, Value};
use serde::Deserialize;
use serde_json::Value as Json;

#[derive(Deserialize)]
struct Recorded {
    ray: String,
    asha_rungs: Vec<AshaRungs>,
    hyperband_plans: Vec<Band>,
    cases: Vec<Case>,
    differences: BTreeMap<String, Case>,
}

#[derive(Deserialize)]
struct AshaRungs {
    max_t: f64,
    grace_period: f64,
    reduction_factor: f64,
    rungs: Vec<Vec<f64>>,
}

/// The brackets of a band, the smallest number of halvings first: how many trials are trained for how long.
#[derive(Deserialize)]
struct Band {
    max_t: f64,
    reduction_factor: f64,
    brackets: Vec<Vec<(usize, f64)>>,
}

#[derive(Deserialize)]
struct Case {
    scheduler: String,
    options: Json,
    events: Vec<Vec<Json>>,
    /// In the end all that live wait, and nobody is chosen.
    stuck: bool,
    /// HyperBand: which trials are in which bracket, as in `Band`.
    #[serde(default)]
    brackets: Vec<Vec<u64>>,
}

fn recorded() -> Recorded {
    serde_json::from_str(include_str!("../data/ray_schedulers.json")).unwrap()
}

impl Case {
    fn number(&self, name: &str, default: f64) -> f64 {
        self.options.get(name).map_or(default, |value| value.as_f64().unwrap())
    }

    fn flag(&self, name: &str, default: bool) -> bool {
        self.options.get(name).map_or(default, |value| value.as_bool().unwrap())
    }

    fn target(&self) -> Target {
        let mode = if self.options["mode"] == "min" { Mode::Min } else { Mode::Max };
        Target::new("t", "score", mode)
    }

    fn simple(&self) -> Box<dyn Scheduler> {
        match self.scheduler.as_str() {
            "fifo" => Box::new(Fifo::default()),
            "asha" => Box::new(self.asha()),
            "median" => Box::new(self.median()),
            other => panic!("`{other}` has a player of its own"),
        }
    }

    fn asha(&self) -> Asha {
        let options = AshaOptions {
            max_t: self.number("max_t", 100.0),
            grace_period: self.number("grace_period", 1.0),
            reduction_factor: self.number("reduction_factor", 4.0),
            stop_last_trials: self.flag("stop_last_trials", true),
            ..AshaOptions::new(self.target())
        };
        Asha::new(options).unwrap()
    }

    fn median(&self) -> MedianStopping {
        let options = MedianOptions {
            target: self.target(),
            grace_period: self.number("grace_period", 60.0),
            min_samples_required: self.number("min_samples_required", 3.0) as usize,
            min_time_slice: self.number("min_time_slice", 0.0),
            hard_stop: self.flag("hard_stop", true),
        };
        MedianStopping::new(options).unwrap()
    }

    fn hyperband(&self) -> HyperBand {
        let (max_t, reduction_factor) = (self.number("max_t", 81.0), self.number("reduction_factor", 3.0));
        let options = HyperBandOptions { max_t, reduction_factor, ..HyperBandOptions::new(self.target()) };
        HyperBand::new(options).unwrap()
    }

    fn pbt(&self) -> Pbt {
        let options = PbtOptions {
            perturbation_interval: self.number("perturbation_interval", 60.0),
            burn_in_period: self.number("burn_in_period", 0.0),
            quantile_fraction: self.number("quantile_fraction", 0.25),
            synch: self.flag("synch", false),
            ..PbtOptions::new(self.target())
        };
        let choices = Mutation::Choices(vec![Value::Float(1.0), Value::Float(2.0)]);
        Pbt::new(options, MutationOptions::new(vec![("x".to_owned(), choices)])).unwrap()
    }
}

/// One event of a case.
struct Event<'a>(&'a [Json]);

impl Event<'_> {
    fn kind(&self) -> &str {
        self.0[0].as_str().unwrap()
    }

    fn trial(&self) -> TrialId {
        TrialId(self.0[1].as_u64().unwrap())
    }

    fn time(&self) -> f64 {
        self.0[2].as_f64().unwrap()
    }

    fn score(&self) -> f64 {
        self.0[3].as_f64().unwrap()
    }

    fn result(&self) -> Metrics {
        let numbers = [("t", self.time()), ("score", self.score())];
        Metrics(numbers.map(|(name, number)| (name.to_owned(), Value::Float(number))).into())
    }

    fn decision(&self) -> &str {
        self.0[4].as_str().unwrap()
    }

    fn trials_at(&self, index: usize) -> Vec<TrialId> {
        let numbers = self.0[index].as_array().unwrap().iter();
        numbers.map(|number| TrialId(number.as_u64().unwrap())).collect()
    }
}

fn word(decision: &Decision) -> &'static str {
    match decision {
        Decision::Continue => "go",
        Decision::Pause => "pause",
        Decision::Stop | Decision::Complete => "stop",
        Decision::Exploit { .. } => "exploit",
        Decision::Resize(_) => "resize",
    }
}

/// Who waits, as Ray had it.
#[derive(Default)]
struct Queue {
    pending: Vec<TrialId>,
    paused: Vec<TrialId>,
}

impl Queue {
    fn leave(&mut self, trial: TrialId) {
        self.pending.retain(|one| *one != trial);
        self.paused.retain(|one| *one != trial);
    }

    fn pause(&mut self, trial: TrialId) {
        self.paused.push(trial);
        self.paused.sort();
    }

    fn add(&mut self, scheduler: &mut dyn Scheduler, trial: TrialId) {
        scheduler.on_trial_added(trial, &Metrics(vec![("x".to_owned(), Value::Float(1.0))]));
        self.pending.push(trial);
    }

    /// What we choose where Ray chose `trial`, if that is somebody else.
    fn choose(&mut self, scheduler: &mut dyn Scheduler, trial: TrialId) -> Option<String> {
        let chosen = scheduler.choose(&self.pending, &self.paused);
        self.leave(trial);
        (chosen != Some(trial)).then(|| format!("run {}: {chosen:?}", trial.0))
    }
}

/// Plays the case, and tells where we decided otherwise: `trial at time: Ray's word, ours`.
fn play(case: &Case) -> Vec<String> {
    let mut scheduler = case.simple();
    let mut queue = Queue::default();
    let mut differing = Vec::new();
    for event in case.events.iter().map(|event| Event(event)) {
        let trial = event.trial();
        match event.kind() {
            "add" => queue.add(scheduler.as_mut(), trial),
            "run" => differing.extend(queue.choose(scheduler.as_mut(), trial)),
            "report" => {
                let ours = word(&scheduler.on_result(trial, &event.result()).0);
                if ours != event.decision() {
                    differing.push(format!("{} at {}: {}, {ours}", trial.0, event.time(), event.decision()));
                }
                if event.decision() == "pause" {
                    queue.pause(trial);
                }
            }
            "end" => scheduler.on_trial_completed(trial, &event.result()),
            "fail" => scheduler.on_trial_failed(trial),
            other => panic!("`{other}` is no event"),
        }
    }
    differing
}

fn cases<'a>(recorded: &'a Recorded, scheduler: &'a str) -> impl Iterator<Item = &'a Case> {
    recorded.cases.iter().filter(move |case| case.scheduler == scheduler)
}

#[test]
fn fifo_asha_and_median_stopping_decide_as_ray_does() {
    let recorded = recorded();
    assert_eq!(recorded.ray, "2.60.0");
    for (name, reports, stops) in [("fifo", 30, 0), ("asha", 2_000, 250), ("median", 900, 100)] {
        let mut seen = (0, 0);
        for case in cases(&recorded, name) {
            assert_eq!(play(case), [] as [&str; 0], "{name} with {}", case.options);
            let decisions: Vec<&Vec<Json>> = case.events.iter().filter(|event| event[0] == "report").collect();
            seen.0 += decisions.len();
            seen.1 += decisions.iter().filter(|event| event[4] == "stop").count();
        }
        assert!(seen.0 >= reports && seen.1 >= stops, "{name} was compared at {seen:?} reports and stops");
    }
}

#[test]
fn asha_has_the_rungs_of_ray() {
    for AshaRungs { max_t, grace_period, reduction_factor, rungs } in recorded().asha_rungs {
        let target = Target::new("t", "score", Mode::Max);
        let options = AshaOptions { max_t, grace_period, reduction_factor, brackets: 3, ..AshaOptions::new(target) };
        let mut ours = Asha::new(options).unwrap().rungs();
        if [243.0, 1_000.0].contains(&max_t) {
            // Ray's logarithm of a power falls just short of it: it has no rung at `max_t`, where nothing is halved.
            assert!(ours.iter_mut().all(|bracket| bracket.pop() == Some(max_t)));
        }
        assert_eq!(ours, rungs);
    }
}

/// Where Ray does something else, why we do not, and what we do: `trial at time: Ray's word, ours`.
const DIFFERENCES: [(&str, &str, &[&str]); 6] = [
    (
        "asha_jumped_over_a_rung",
        "the late score of a trial that jumped over a rung says nothing beside the early scores there (ASHA-3)",
        &["1 at 5: stop, go"],
    ),
    (
        "asha_halves_at_the_end",
        "at `max_t` nothing is left to halve, and without `stop_last_trials` nothing stops there (ASHA-4)",
        &["1 at 9: stop, go"],
    ),
    (
        "median_counts_the_last_report_twice",
        "an average has each report once: Ray adds the last one again when the trial ends",
        &["1 at 2: stop, go"],
    ),
    (
        "median_yields_before_its_first_slice",
        "each trial runs for `min_time_slice` before it yields, as Ray's documentation says (MEDIAN-4)",
        &["0 at 1: pause, go"],
    ),
    (
        "median_forgets_whom_it_spared",
        "what a trial reports after it was spared counts for the others as what everybody reports (MEDIAN-3)",
        &["2 at 2: go, pause"],
    ),
    (
        "pbt_skips_who_was_not_best_before",
        "every trial saves when its interval is over, so whoever is among the best now can be copied",
        &["1 at 2: go, exploit"],
    ),
];

#[test]
fn where_we_differ_from_ray_is_known() {
    let recorded = recorded();
    for (name, why, expected) in DIFFERENCES {
        let case = &recorded.differences[name];
        let differing = if case.scheduler == "pbt" { pbt::play(case).0 } else { play(case) };
        assert_eq!(differing, expected, "{name}: {why}");
    }
    let elsewhere = [
        "hyperband_halves_what_is_not_full",
        "hyperband_keeps_the_newer_of_equals",
        "hyperband_waits_for_one_that_ended",
        "pbt_waits_for_one_that_ended",
    ];
    let named: BTreeSet<&str> = DIFFERENCES.iter().map(|(name, _, _)| *name).chain(elsewhere).collect();
    assert_eq!(recorded.differences.keys().map(String::as_str).collect::<BTreeSet<_>>(), named);
}
