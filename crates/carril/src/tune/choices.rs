//! Who chooses the configs of a search, and who judges its trials. Both decide in the head.

use carril_types::Value;
use serde_json::{Value as Json, json};

use super::space::Space;
use crate::error::Result;

/// Who chooses what is tried next.
///
/// ```
/// use carril::tune::Searcher;
///
/// let searcher = Searcher::Tpe;
/// assert_ne!(searcher, Searcher::default());
/// ```
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Searcher {
    /// Every combination of the grids, and the rest at random.
    #[default]
    Random,
    /// A tree-structured Parzen estimator: near what was good.
    Tpe,
    /// A Gaussian process: few trials, each worth a lot.
    GaussianProcess,
}

impl Searcher {
    /// `points` are the numbers of the configs to try first.
    pub(super) fn encode(self, points: &[usize], metric: Option<(&str, &str)>) -> Json {
        let mut spec = json!({"points_to_evaluate": points});
        if let (Searcher::Tpe | Searcher::GaussianProcess, Some((metric, mode))) = (self, metric) {
            spec["metric"] = json!(metric);
            spec["mode"] = json!(mode);
            spec["n_startup"] = Json::Null;
            if self == Searcher::Tpe {
                spec["n_candidates"] = Json::Null;
            }
        }
        match self {
            Searcher::Random => json!({"basic": spec}),
            Searcher::Tpe => json!({"tpe": spec}),
            Searcher::GaussianProcess => json!({"gaussian_process": spec}),
        }
    }
}

/// Who judges the reports of trials: which goes on, and which is stopped.
///
/// ```
/// use carril::tune::{Asha, Scheduler};
///
/// let scheduler = Scheduler::from(Asha { max_t: 27.0, ..Asha::default() });
/// ```
#[derive(Clone, Debug, Default)]
#[non_exhaustive]
pub enum Scheduler {
    /// Every trial runs to its end.
    #[default]
    Fifo,
    /// Asynchronous successive halving.
    Asha(Asha),
    /// Synchronous successive halving in brackets.
    HyperBand(HyperBand),
    /// A trial that is worse than the median of the others is stopped.
    Median(MedianStopping),
    /// Population-based training.
    Pbt(Pbt),
}

/// Asynchronous successive halving: of the trials that have come so far, the worse ones are stopped.
///
/// ```
/// use carril::tune::Asha;
///
/// let asha = Asha { max_t: 81.0, grace_period: 3.0, ..Asha::default() };
/// assert_eq!(asha.reduction_factor, 4.0);
/// ```
#[derive(Clone, Debug, PartialEq)]
pub struct Asha {
    /// The metric that time is counted by.
    pub time_attr: String,
    /// A trial that has come so far is stopped.
    pub max_t: f64,
    /// No trial is stopped before.
    pub grace_period: f64,
    /// One in so many goes on.
    pub reduction_factor: f64,
    /// How many brackets of different grace periods there are.
    pub brackets: usize,
}

impl Default for Asha {
    fn default() -> Self {
        Self { time_attr: ITERATION.into(), max_t: 100.0, grace_period: 1.0, reduction_factor: 4.0, brackets: 1 }
    }
}

/// Synchronous successive halving: trials wait for each other, and the better ones go on.
///
/// ```
/// let band = carril::tune::HyperBand { max_t: 27.0, ..carril::tune::HyperBand::default() };
/// ```
#[derive(Clone, Debug, PartialEq)]
pub struct HyperBand {
    /// The metric that time is counted by.
    pub time_attr: String,
    /// A trial that has come so far is stopped.
    pub max_t: f64,
    /// One in so many goes on.
    pub reduction_factor: f64,
}

impl Default for HyperBand {
    fn default() -> Self {
        Self { time_attr: ITERATION.into(), max_t: 81.0, reduction_factor: 3.0 }
    }
}

/// Stops a trial whose best value is worse than the median of the others' means.
///
/// ```
/// let rule = carril::tune::MedianStopping { grace_period: 5.0, ..carril::tune::MedianStopping::default() };
/// ```
#[derive(Clone, Debug, PartialEq)]
pub struct MedianStopping {
    /// The metric that time is counted by.
    pub time_attr: String,
    /// No trial is stopped before.
    pub grace_period: f64,
    /// So many others must have come as far.
    pub min_samples_required: usize,
}

impl Default for MedianStopping {
    fn default() -> Self {
        Self { time_attr: ITERATION.into(), grace_period: 1.0, min_samples_required: 3 }
    }
}

/// Population-based training: a trial that is behind goes on from the checkpoint of one that is ahead, with changed parameters.
/// The function must report checkpoints, and begin with [`latest_checkpoint`](crate::Session::latest_checkpoint).
///
/// ```
/// use carril::tune::{Pbt, Space, loguniform};
///
/// let pbt = Pbt { perturbation_interval: 5.0, ..Pbt::new(Space::new().add("rate", loguniform(1e-4, 1e-1))) };
/// ```
#[derive(Clone, Debug)]
pub struct Pbt {
    /// The metric that time is counted by.
    pub time_attr: String,
    /// How often trials are compared.
    pub perturbation_interval: f64,
    /// The part of the trials that is behind, and the part that is ahead.
    pub quantile_fraction: f64,
    /// How often a parameter is resampled instead of changed.
    pub resample_probability: f64,
    /// The parameters that change, and what they may be.
    pub mutations: Space,
}

impl Pbt {
    /// With these parameters, every ten reports.
    ///
    /// ```
    /// use carril::tune::{Pbt, Space, uniform};
    ///
    /// let pbt = Pbt::new(Space::new().add("rate", uniform(0.0, 1.0)));
    /// assert_eq!(pbt.quantile_fraction, 0.25);
    /// ```
    pub fn new(mutations: Space) -> Self {
        Self {
            time_attr: ITERATION.into(),
            perturbation_interval: 10.0,
            quantile_fraction: 0.25,
            resample_probability: 0.25,
            mutations,
        }
    }
}

const ITERATION: &str = "training_iteration";

impl From<Asha> for Scheduler {
    fn from(asha: Asha) -> Self {
        Self::Asha(asha)
    }
}

impl From<HyperBand> for Scheduler {
    fn from(band: HyperBand) -> Self {
        Self::HyperBand(band)
    }
}

impl From<MedianStopping> for Scheduler {
    fn from(rule: MedianStopping) -> Self {
        Self::Median(rule)
    }
}

impl From<Pbt> for Scheduler {
    fn from(pbt: Pbt) -> Self {
        Self::Pbt(pbt)
    }
}

impl Scheduler {
    /// Whether it goes by the metric.
    pub(super) fn judges(&self) -> bool {
        !matches!(self, Scheduler::Fifo)
    }

    pub(super) fn encode(&self, metric: &str, mode: &str, constants: &mut Vec<Value>) -> Result<Json> {
        Ok(match self {
            Scheduler::Fifo => json!({"fifo": {}}),
            Scheduler::Asha(asha) => json!({"asha": {
                "time_attr": asha.time_attr, "metric": metric, "mode": mode, "max_t": asha.max_t,
                "grace_period": asha.grace_period, "reduction_factor": asha.reduction_factor,
                "brackets": asha.brackets, "stop_last_trials": true,
            }}),
            Scheduler::HyperBand(band) => json!({"hyperband": {
                "time_attr": band.time_attr, "metric": metric, "mode": mode, "max_t": band.max_t,
                "reduction_factor": band.reduction_factor, "stop_last_trials": true,
            }}),
            Scheduler::Median(rule) => json!({"median_stopping": {
                "time_attr": rule.time_attr, "metric": metric, "mode": mode, "grace_period": rule.grace_period,
                "min_samples_required": rule.min_samples_required, "min_time_slice": 0.0, "hard_stop": true,
            }}),
            Scheduler::Pbt(pbt) => {
                let mutations = pbt.mutations.encode_each(constants)?.into_iter();
                let mutations: Vec<Json> = mutations.map(|(name, node)| json!([name, {"domain": node}])).collect();
                json!({"pbt": {
                    "time_attr": pbt.time_attr, "metric": metric, "mode": mode, "mutations": mutations,
                    "perturbation_interval": pbt.perturbation_interval, "quantile_fraction": pbt.quantile_fraction,
                    "resample_probability": pbt.resample_probability, "perturbation_factors": [1.2, 0.8],
                }})
            }
        })
    }
}
