//! What a driver asks for, in words, and what is made of it: the space, the searcher, the scheduler.
//!
//! A value of the user's is named by its index into a list that travels beside the words.

use std::collections::BTreeMap;

use carril_types::{Metrics, Resources, RunSpec, Value, write_json};
use serde::Deserialize;

use super::Mode;
use super::experiment::{Experiment, ExperimentOptions};
use super::scheduler::{
    Allocation, AnyScheduler, Asha, AshaOptions, Bound, Distribution, Factor, Fifo, HyperBand, HyperBandOptions,
    MedianOptions, MedianStopping, Mutation, MutationOptions, Pbt, PbtOptions, Replay, ResourceChanging, Target,
};
use super::search::{
    AnySearcher, Basic, BasicOptions, ConcurrencyLimiter, GaussianProcess, GaussianProcessOptions, Objective, Repeater,
    Tpe, TpeOptions,
};
use super::space::{Domain, Node};

/// Of a parameter's description so many characters are kept.
const LONGEST: usize = 500;

/// What is wrong with a specification, in one sentence.
pub type Wrong = String;

#[derive(Clone, Debug, Deserialize)]
#[serde(rename_all = "snake_case", deny_unknown_fields)]
pub enum NodeSpec {
    Map(Vec<(String, NodeSpec)>),
    List(Vec<NodeSpec>),
    Constant(usize),
    Grid(Vec<NodeSpec>),
    Choice(Vec<NodeSpec>),
    Uniform(f64, f64),
    Quniform(f64, f64, f64),
    Loguniform(f64, f64),
    Qloguniform(f64, f64, f64),
    Randn(f64, f64),
    Qrandn(f64, f64, f64),
    Randint(i64, i64),
    Qrandint(i64, i64, i64),
    Lograndint(i64, i64),
    Qlograndint(i64, i64, i64),
    Unresolved(usize),
}

impl NodeSpec {
    pub fn build(&self, constants: &[Value]) -> Result<Node, Wrong> {
        let all = |nodes: &[NodeSpec]| nodes.iter().map(|node| node.build(constants)).collect::<Result<Vec<_>, _>>();
        let domain = match self {
            NodeSpec::Map(items) => {
                let items = items.iter().map(|(key, node)| Ok((key.clone(), node.build(constants)?)));
                return Ok(Node::Map(items.collect::<Result<_, Wrong>>()?));
            }
            NodeSpec::List(items) => return Ok(Node::List(all(items)?)),
            NodeSpec::Constant(index) => return constant(constants, *index).cloned().map(Node::Constant),
            NodeSpec::Grid(options) => return Node::grid(all(options)?).map_err(|error| error.to_string()),
            NodeSpec::Unresolved(index) => return Ok(Node::Unresolved(*index)),
            NodeSpec::Choice(options) => Domain::choice(all(options)?),
            NodeSpec::Uniform(low, high) => Domain::uniform(*low, *high),
            NodeSpec::Quniform(low, high, q) => Domain::quniform(*low, *high, *q),
            NodeSpec::Loguniform(low, high) => Domain::loguniform(*low, *high),
            NodeSpec::Qloguniform(low, high, q) => Domain::qloguniform(*low, *high, *q),
            NodeSpec::Randn(mean, sd) => Domain::randn(*mean, *sd),
            NodeSpec::Qrandn(mean, sd, q) => Domain::qrandn(*mean, *sd, *q),
            NodeSpec::Randint(low, high) => Domain::randint(*low, *high),
            NodeSpec::Qrandint(low, high, q) => Domain::qrandint(*low, *high, *q),
            NodeSpec::Lograndint(low, high) => Domain::lograndint(*low, *high),
            NodeSpec::Qlograndint(low, high, q) => Domain::qlograndint(*low, *high, *q),
        };
        domain.map(Node::Domain).map_err(|error| error.to_string())
    }

    /// Where values are drawn, tried or asked for: what tells one trial from another.
    pub fn varying(&self) -> Vec<Vec<String>> {
        let mut found = Vec::new();
        self.collect_varying(&mut Vec::new(), &mut found);
        found
    }

    fn collect_varying(&self, path: &mut Vec<String>, found: &mut Vec<Vec<String>>) {
        match self {
            NodeSpec::Map(items) => {
                for (key, node) in items {
                    path.push(key.clone());
                    node.collect_varying(path, found);
                    path.pop();
                }
            }
            NodeSpec::Constant(_) => {}
            NodeSpec::List(items) if items.iter().all(|item| item.varying().is_empty()) => {}
            _ => found.push(path.clone()),
        }
    }

    /// Each parameter under its flattened name, in words: what two requests for one search are compared by.
    pub fn describe(&self, constants: &[Value]) -> BTreeMap<String, String> {
        let mut found = BTreeMap::new();
        self.describe_below("", constants, &mut found);
        found
    }

    fn describe_below(&self, name: &str, constants: &[Value], found: &mut BTreeMap<String, String>) {
        let NodeSpec::Map(items) = self else {
            found.insert(name.to_owned(), clipped(self.words(constants)));
            return;
        };
        for (key, node) in items {
            let below = if name.is_empty() { key.clone() } else { format!("{name}/{key}") };
            node.describe_below(&below, constants, found);
        }
    }

    fn words(&self, constants: &[Value]) -> String {
        let all = |nodes: &[NodeSpec]| {
            let words: Vec<String> = nodes.iter().map(|node| node.words(constants)).collect();
            format!("[{}]", words.join(", "))
        };
        match self {
            NodeSpec::Map(items) => {
                let words: Vec<String> =
                    items.iter().map(|(key, node)| format!("{key}: {}", node.words(constants))).collect();
                format!("{{{}}}", words.join(", "))
            }
            NodeSpec::List(items) => all(items),
            NodeSpec::Constant(index) => constants.get(*index).map(json_text).unwrap_or_default(),
            NodeSpec::Grid(options) => format!("grid_search({})", all(options)),
            NodeSpec::Choice(options) => format!("choice({})", all(options)),
            NodeSpec::Uniform(low, high) => format!("uniform({low}, {high})"),
            NodeSpec::Quniform(low, high, q) => format!("quniform({low}, {high}, {q})"),
            NodeSpec::Loguniform(low, high) => format!("loguniform({low}, {high})"),
            NodeSpec::Qloguniform(low, high, q) => format!("qloguniform({low}, {high}, {q})"),
            NodeSpec::Randn(mean, sd) => format!("randn({mean}, {sd})"),
            NodeSpec::Qrandn(mean, sd, q) => format!("qrandn({mean}, {sd}, {q})"),
            NodeSpec::Randint(low, high) => format!("randint({low}, {high})"),
            NodeSpec::Qrandint(low, high, q) => format!("qrandint({low}, {high}, {q})"),
            NodeSpec::Lograndint(low, high) => format!("lograndint({low}, {high})"),
            NodeSpec::Qlograndint(low, high, q) => format!("qlograndint({low}, {high}, {q})"),
            NodeSpec::Unresolved(_) => "sample_from(…)".to_owned(),
        }
    }

    /// Whether functions of the user's are to be called for each config.
    pub fn asks(&self) -> bool {
        match self {
            NodeSpec::Unresolved(_) => true,
            NodeSpec::Map(items) => items.iter().any(|(_, node)| node.asks()),
            NodeSpec::List(items) | NodeSpec::Grid(items) | NodeSpec::Choice(items) => items.iter().any(NodeSpec::asks),
            _ => false,
        }
    }
}

fn json_text(value: &Value) -> String {
    let mut text = String::new();
    write_json(&mut text, &Metrics(vec![(String::new(), value.clone())]));
    // `{"": 1}` without what surrounds the value.
    text[5..text.len() - 1].to_owned()
}

/// A list of values may be long; what is cut off is known by a hash (FNV-1a) that every version computes alike.
fn clipped(text: String) -> String {
    if text.chars().count() <= LONGEST {
        return text;
    }
    let hash = text
        .bytes()
        .fold(0xcbf2_9ce4_8422_2325_u64, |hash, byte| (hash ^ u64::from(byte)).wrapping_mul(0x100_0000_01b3));
    text.chars().take(LONGEST).chain(format!("… ({hash:016x})").chars()).collect()
}

fn constant(constants: &[Value], index: usize) -> Result<&Value, Wrong> {
    constants.get(index).ok_or_else(|| format!("there is no value of number {index}"))
}

fn points(constants: &[Value], indices: &[usize]) -> Result<Vec<Metrics>, Wrong> {
    let point = |index: &usize| match constant(constants, *index)? {
        Value::Map(point) => Ok(point.clone()),
        _ => Err("`points_to_evaluate` holds something that is not a dict".to_owned()),
    };
    indices.iter().map(point).collect()
}

#[derive(Clone, Debug, Deserialize)]
#[serde(rename_all = "snake_case", deny_unknown_fields)]
pub enum SearcherSpec {
    Basic {
        #[serde(default)]
        points_to_evaluate: Vec<usize>,
        #[serde(default)]
        constant_grid_search: bool,
        #[serde(default)]
        seed: Option<u64>,
    },
    Tpe {
        #[serde(default)]
        points_to_evaluate: Vec<usize>,
        #[serde(default)]
        seed: Option<u64>,
        metric: String,
        mode: Mode,
        n_startup: Option<usize>,
        n_candidates: Option<usize>,
    },
    GaussianProcess {
        #[serde(default)]
        points_to_evaluate: Vec<usize>,
        #[serde(default)]
        seed: Option<u64>,
        metric: String,
        mode: Mode,
        n_startup: Option<usize>,
    },
    Limited {
        searcher: Box<SearcherSpec>,
        max_concurrent: usize,
        #[serde(default)]
        batch: bool,
    },
    Repeated {
        searcher: Box<SearcherSpec>,
        repeat: usize,
        set_index: bool,
        metric: String,
        mode: Mode,
    },
}

impl SearcherSpec {
    /// `seed` is for those that name none.
    pub fn build(
        &self,
        space: &Node,
        constants: &[Value],
        num_samples: Option<u64>,
        seed: u64,
    ) -> Result<AnySearcher, Wrong> {
        let wrong = |error: super::space::SpaceError| error.to_string();
        Ok(match self {
            SearcherSpec::Basic { points_to_evaluate, constant_grid_search, seed: own } => {
                let options = BasicOptions {
                    num_samples,
                    points_to_evaluate: points(constants, points_to_evaluate)?,
                    constant_grid_search: *constant_grid_search,
                    seed: own.unwrap_or(seed),
                };
                AnySearcher::Basic(Basic::new(space.clone(), options).map_err(wrong)?)
            }
            SearcherSpec::Tpe { points_to_evaluate, seed: own, metric, mode, n_startup, n_candidates } => {
                let usual = TpeOptions::default();
                let options = TpeOptions {
                    n_startup: n_startup.unwrap_or(usual.n_startup),
                    n_candidates: n_candidates.unwrap_or(usual.n_candidates),
                    points_to_evaluate: points(constants, points_to_evaluate)?,
                    seed: own.unwrap_or(seed),
                };
                let objective = Objective { metric: metric.clone(), mode: *mode };
                AnySearcher::Tpe(Tpe::new(space.clone(), objective, options).map_err(wrong)?)
            }
            SearcherSpec::GaussianProcess { points_to_evaluate, seed: own, metric, mode, n_startup } => {
                let usual = GaussianProcessOptions::default();
                let options = GaussianProcessOptions {
                    n_startup: n_startup.unwrap_or(usual.n_startup),
                    points_to_evaluate: points(constants, points_to_evaluate)?,
                    seed: own.unwrap_or(seed),
                };
                let objective = Objective { metric: metric.clone(), mode: *mode };
                AnySearcher::GaussianProcess(GaussianProcess::new(space.clone(), objective, options).map_err(wrong)?)
            }
            SearcherSpec::Limited { searcher, max_concurrent, batch } => {
                let inner = searcher.build(space, constants, num_samples, seed)?;
                AnySearcher::Limited(Box::new(ConcurrencyLimiter::new(inner, *max_concurrent, *batch).map_err(wrong)?))
            }
            SearcherSpec::Repeated { searcher, repeat, set_index, metric, mode } => {
                let inner = searcher.build(space, constants, num_samples, seed)?;
                let objective = Objective { metric: metric.clone(), mode: *mode };
                AnySearcher::Repeated(Box::new(Repeater::new(inner, objective, *repeat, *set_index).map_err(wrong)?))
            }
        })
    }

    /// Whether it comes to an end by itself; the others are asked `num_samples` times.
    pub fn counts(&self) -> bool {
        match self {
            SearcherSpec::Basic { .. } => true,
            SearcherSpec::Tpe { .. } | SearcherSpec::GaussianProcess { .. } => false,
            SearcherSpec::Limited { searcher, .. } => searcher.counts(),
            SearcherSpec::Repeated { .. } => false,
        }
    }

    /// What it is, whatever its limits are.
    pub fn kind(&self) -> String {
        match self {
            SearcherSpec::Limited { searcher, .. } => searcher.kind(),
            other => other.describe(),
        }
    }

    pub fn describe(&self) -> String {
        match self {
            SearcherSpec::Basic { .. } => "grid and random".to_owned(),
            SearcherSpec::Tpe { .. } => "tree-structured Parzen estimator".to_owned(),
            SearcherSpec::GaussianProcess { .. } => "Gaussian process".to_owned(),
            SearcherSpec::Limited { searcher, max_concurrent, .. } => {
                format!("{}, at most {max_concurrent} at a time", searcher.describe())
            }
            SearcherSpec::Repeated { searcher, repeat, .. } => {
                format!("{}, each {repeat} times", searcher.describe())
            }
        }
    }
}

#[derive(Clone, Debug, Deserialize)]
#[serde(rename_all = "snake_case", deny_unknown_fields)]
pub enum MutationSpec {
    Choices(Vec<usize>),
    Domain(NodeSpec),
    Ask,
    Map(Vec<(String, MutationSpec)>),
}

impl MutationSpec {
    fn build(&self, constants: &[Value]) -> Result<Mutation, Wrong> {
        Ok(match self {
            MutationSpec::Choices(indices) => {
                let values = indices.iter().map(|index| constant(constants, *index).cloned());
                Mutation::Choices(values.collect::<Result<_, _>>()?)
            }
            MutationSpec::Domain(node) => match node.build(constants)? {
                Node::Domain(domain) => Mutation::Domain(domain),
                _ => return Err("a mutation is neither a list nor a domain".to_owned()),
            },
            MutationSpec::Ask => Mutation::Ask,
            MutationSpec::Map(items) => Mutation::Map(mutations(items, constants)?),
        })
    }
}

fn mutations(items: &[(String, MutationSpec)], constants: &[Value]) -> Result<Vec<(String, Mutation)>, Wrong> {
    items.iter().map(|(key, mutation)| Ok((key.clone(), mutation.build(constants)?))).collect()
}

#[derive(Clone, Debug, Deserialize)]
pub struct TargetSpec {
    pub time_attr: String,
    pub metric: String,
    pub mode: Mode,
}

impl TargetSpec {
    fn build(&self) -> Target {
        Target::new(&self.time_attr, &self.metric, self.mode)
    }
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct DistributionSpec {
    #[serde(default)]
    pub increase_by: Resources,
    #[serde(default)]
    pub increase_by_times: Option<u32>,
    #[serde(default)]
    pub reserve: Resources,
    #[serde(default)]
    pub metric: Option<String>,
    #[serde(default)]
    pub mode: Option<Mode>,
}

#[derive(Clone, Debug, Deserialize)]
#[serde(rename_all = "snake_case", deny_unknown_fields)]
pub enum AllocationSpec {
    Evenly(DistributionSpec),
    ToTheTop(DistributionSpec),
}

#[derive(Clone, Debug, Deserialize)]
pub struct PbtSpec {
    #[serde(flatten)]
    pub target: TargetSpec,
    pub perturbation_interval: f64,
    #[serde(default)]
    pub burn_in_period: f64,
    pub quantile_fraction: f64,
    #[serde(default)]
    pub synch: bool,
    #[serde(default)]
    pub seed: Option<u64>,
    #[serde(default)]
    pub mutations: Vec<(String, MutationSpec)>,
    #[serde(default)]
    pub resample_probability: f64,
    #[serde(default)]
    pub perturbation_factors: Vec<f64>,
    #[serde(default)]
    pub custom_explore: bool,
    #[serde(default)]
    pub bounds: Vec<(String, (f64, f64))>,
}

impl PbtSpec {
    fn options(&self, seed: u64) -> PbtOptions {
        PbtOptions {
            target: self.target.build(),
            perturbation_interval: self.perturbation_interval,
            burn_in_period: self.burn_in_period,
            quantile_fraction: self.quantile_fraction,
            synch: self.synch,
            seed: self.seed.unwrap_or(seed),
        }
    }
}

#[derive(Clone, Debug, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum SchedulerSpec {
    Fifo {},
    Asha {
        #[serde(flatten)]
        target: TargetSpec,
        max_t: f64,
        grace_period: f64,
        reduction_factor: f64,
        brackets: usize,
        stop_last_trials: bool,
        #[serde(default)]
        seed: Option<u64>,
    },
    #[serde(rename = "hyperband")]
    HyperBand {
        #[serde(flatten)]
        target: TargetSpec,
        max_t: f64,
        reduction_factor: f64,
        stop_last_trials: bool,
        #[serde(default)]
        bohb: bool,
    },
    MedianStopping {
        #[serde(flatten)]
        target: TargetSpec,
        grace_period: f64,
        min_samples_required: usize,
        min_time_slice: f64,
        hard_stop: bool,
    },
    Pbt(PbtSpec),
    Pb2(PbtSpec),
    Replay {
        /// The config to begin with, and what follows it at which step.
        start: usize,
        changes: Vec<(u64, usize)>,
    },
    ResourceChanging {
        base: Box<SchedulerSpec>,
        allocation: AllocationSpec,
    },
}

impl SchedulerSpec {
    pub fn describe(&self) -> String {
        let name = match self {
            SchedulerSpec::Fifo {} => "first in, first out",
            SchedulerSpec::Asha { .. } => "asynchronous successive halving (ASHA)",
            SchedulerSpec::HyperBand { bohb: false, .. } => "HyperBand",
            SchedulerSpec::HyperBand { bohb: true, .. } => "HyperBand for BOHB",
            SchedulerSpec::MedianStopping { .. } => "median stopping",
            SchedulerSpec::Pbt(_) => "population-based training",
            SchedulerSpec::Pb2(_) => "population-based bandits (PB2)",
            SchedulerSpec::Replay { .. } => "replay of population-based training",
            SchedulerSpec::ResourceChanging { base, .. } => return format!("{}, resources change", base.describe()),
        };
        name.to_owned()
    }

    pub fn build(&self, constants: &[Value], seed: u64) -> Result<AnyScheduler, Wrong> {
        let wrong = |error: super::scheduler::SchedulerError| error.to_string();
        let config = |index: usize| match constant(constants, index)? {
            Value::Map(config) => Ok(config.clone()),
            _ => Err("a config of the policy is not a dict".to_owned()),
        };
        Ok(match self {
            SchedulerSpec::Fifo {} => AnyScheduler::Fifo(Fifo::default()),
            SchedulerSpec::Asha {
                target,
                max_t,
                grace_period,
                reduction_factor,
                brackets,
                stop_last_trials,
                seed: own,
            } => {
                let options = AshaOptions {
                    target: target.build(),
                    max_t: *max_t,
                    grace_period: *grace_period,
                    reduction_factor: *reduction_factor,
                    brackets: *brackets,
                    stop_last_trials: *stop_last_trials,
                    seed: own.unwrap_or(seed),
                };
                AnyScheduler::Asha(Asha::new(options).map_err(wrong)?)
            }
            SchedulerSpec::HyperBand { target, max_t, reduction_factor, stop_last_trials, bohb } => {
                let options = HyperBandOptions {
                    target: target.build(),
                    max_t: *max_t,
                    reduction_factor: *reduction_factor,
                    stop_last_trials: *stop_last_trials,
                };
                let band = if *bohb { HyperBand::for_bohb(options) } else { HyperBand::new(options) };
                AnyScheduler::HyperBand(band.map_err(wrong)?)
            }
            SchedulerSpec::MedianStopping { target, grace_period, min_samples_required, min_time_slice, hard_stop } => {
                let options = MedianOptions {
                    target: target.build(),
                    grace_period: *grace_period,
                    min_samples_required: *min_samples_required,
                    min_time_slice: *min_time_slice,
                    hard_stop: *hard_stop,
                };
                AnyScheduler::MedianStopping(MedianStopping::new(options).map_err(wrong)?)
            }
            SchedulerSpec::Pbt(spec) => {
                let options = MutationOptions {
                    mutations: mutations(&spec.mutations, constants)?,
                    resample_probability: spec.resample_probability,
                    perturbation_factors: spec.perturbation_factors.iter().copied().map(Factor).collect(),
                    custom_explore: spec.custom_explore,
                };
                AnyScheduler::Pbt(Pbt::new(spec.options(seed), options).map_err(wrong)?)
            }
            SchedulerSpec::Pb2(spec) => {
                let bound = |(key, (low, high)): &(String, (f64, f64))| Bound {
                    path: key.split('/').map(str::to_owned).collect(),
                    low: *low,
                    high: *high,
                };
                let bounds = spec.bounds.iter().map(bound).collect();
                AnyScheduler::Pbt(Pbt::pb2(spec.options(seed), bounds).map_err(wrong)?)
            }
            SchedulerSpec::Replay { start, changes } => {
                let changes = changes.iter().map(|(step, index)| Ok((*step, config(*index)?)));
                let changes = changes.collect::<Result<Vec<_>, Wrong>>()?;
                AnyScheduler::Replay(Replay::new(config(*start)?, changes).map_err(wrong)?)
            }
            SchedulerSpec::ResourceChanging { base, allocation } => {
                let distribution = |spec: &DistributionSpec| Distribution {
                    increase_by: spec.increase_by.clone(),
                    increase_by_times: spec.increase_by_times,
                    reserve: spec.reserve.clone(),
                };
                let allocation = match allocation {
                    AllocationSpec::Evenly(spec) => Allocation::Evenly(distribution(spec)),
                    AllocationSpec::ToTheTop(spec) => match (&spec.metric, spec.mode) {
                        (Some(metric), Some(mode)) => {
                            Allocation::ToTheTop { distribution: distribution(spec), metric: metric.clone(), mode }
                        }
                        _ => return Err("the allocation to the top trial needs a metric and a mode".to_owned()),
                    },
                };
                AnyScheduler::ResourceChanging(ResourceChanging::new(base.build(constants, seed)?, allocation))
            }
        })
    }
}

/// What a driver asks for when it submits an experiment.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ExperimentSpec {
    pub name: String,
    pub storage_path: String,
    /// What the trials have in common; each has its own name, in the experiment's directory.
    pub run: RunSpec,
    /// What the names of the trials begin with.
    pub trainable: String,
    pub metric: Option<String>,
    pub mode: Option<Mode>,
    /// `None` is without end.
    pub num_samples: Option<u64>,
    pub space: NodeSpec,
    /// For the record, where a searcher of the driver's has the space.
    #[serde(default)]
    pub recorded_space: Option<NodeSpec>,
    /// `None`: the driver is asked.
    pub searcher: Option<SearcherSpec>,
    pub scheduler: Option<SchedulerSpec>,
    /// What a searcher of the driver's does not decide, by path: the names of trials tell the rest of their configs.
    #[serde(default)]
    pub constant: Vec<Vec<String>>,
    /// The words for what the driver decides.
    #[serde(default)]
    pub searcher_name: String,
    #[serde(default)]
    pub scheduler_name: String,
    #[serde(default)]
    pub stop: Vec<(String, f64)>,
    #[serde(default)]
    pub asks_judge: bool,
    #[serde(default)]
    pub asks_config: bool,
    #[serde(default)]
    pub asks_explored: bool,
    /// A trial that is told to pause saves a checkpoint by itself, as the class form of a trainable does.
    #[serde(default)]
    pub saves_itself: bool,
    /// What every report must have.
    #[serde(default)]
    pub requires: Vec<String>,
    /// The changes of population-based training are logged.
    #[serde(default)]
    pub logs_policies: bool,
    /// A trial that ends without having reported the metric ends the experiment.
    #[serde(default)]
    pub needs_metric: bool,
    #[serde(default)]
    pub max_concurrent: Option<usize>,
    #[serde(default)]
    pub time_budget_s: Option<f64>,
    #[serde(default)]
    pub fail_fast: bool,
    #[serde(default)]
    pub reuse: bool,
    #[serde(default)]
    pub own_directory: bool,
    /// A trial has as many workers, and each reserves as much, as `scaling_config` of its config says.
    #[serde(default)]
    pub scaled_by_config: bool,
    pub seed: u64,
    /// Goes on with what the directory holds, also where it has finished.
    #[serde(default)]
    pub goes_on: bool,
    /// Starts a new search beside what the directory holds, as Ray does where nothing says `resume`.
    #[serde(default)]
    pub begins_anew: bool,
    #[serde(default)]
    pub resume_errored: bool,
    /// Those that failed start over, whatever checkpoints they have.
    #[serde(default)]
    pub restart_errored: bool,
    #[serde(default)]
    pub leave_unfinished: bool,
    /// JSON text of what was asked, for the record.
    #[serde(default)]
    pub record: String,
}

impl ExperimentSpec {
    pub fn build(&self, constants: &[Value], seed: u64) -> Result<Experiment, Wrong> {
        let space = self.space.build(constants)?;
        let searcher = self.searcher.as_ref().map(|spec| spec.build(&space, constants, self.num_samples, seed));
        let scheduler = self.scheduler.as_ref().map(|spec| spec.build(constants, seed));
        let counts = self.searcher.as_ref().is_some_and(SearcherSpec::counts);
        let metric = self.metric.clone().zip(self.mode).filter(|_| self.needs_metric);
        let options = ExperimentOptions {
            most: self.num_samples.filter(|_| !counts),
            max_concurrent: self.max_concurrent,
            stop: self.stop.clone(),
            asks_judge: self.asks_judge,
            asks_config: self.asks_config || self.space.asks(),
            asks_explored: self.asks_explored,
            fail_fast: self.fail_fast,
            saves_itself: self.saves_itself,
            requires: self.requires.clone(),
            metric,
        };
        Ok(Experiment::new(options, searcher.transpose()?, scheduler.transpose()?))
    }
}
