//! What a run is given beside its function and its config.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::time::Duration;

use carril_types::{
    ErrorCode, FailureSpec, OnExisting, OtherConfig, Reduce as ReduceSpec, Resources, RunSpec, ScoreOrder,
    WorkerCommand,
};

use crate::again::{self, MadeUp};
use crate::error::{Error, Result};

/// How many workers there are, and what each of them reserves.
///
/// ```
/// use carril::ScalingConfig;
///
/// let two = ScalingConfig::workers(2);
/// let eight = ScalingConfig { gpus_per_worker: 1.0, ..ScalingConfig::workers(8) };
/// assert_eq!((two.num_workers, eight.num_workers), (2, 8));
/// ```
#[derive(Clone, Debug, PartialEq)]
pub struct ScalingConfig {
    /// How many processes the function runs in.
    pub num_workers: u32,
    /// CPUs that each reserves: more workers than fit are refused.
    pub cpus_per_worker: f64,
    /// GPUs that each reserves, and sees in `CUDA_VISIBLE_DEVICES`.
    pub gpus_per_worker: f64,
    /// Other resources that each reserves, by name.
    pub resources_per_worker: BTreeMap<String, f64>,
}

impl ScalingConfig {
    /// So many workers of one CPU each.
    ///
    /// ```
    /// assert_eq!(carril::ScalingConfig::workers(4).cpus_per_worker, 1.0);
    /// ```
    pub fn workers(num_workers: u32) -> Self {
        Self { num_workers, cpus_per_worker: 1.0, gpus_per_worker: 0.0, resources_per_worker: BTreeMap::new() }
    }

    fn resources(&self) -> Result<Resources> {
        let own = self.resources_per_worker.iter().map(|(name, amount)| (name.as_str(), *amount));
        let all = own.chain([("CPU", self.cpus_per_worker), ("GPU", self.gpus_per_worker)]);
        Resources::from_amounts(all).map_err(|error| Error::new(ErrorCode::InvalidConfig, error.to_string()))
    }
}

/// One worker.
impl Default for ScalingConfig {
    fn default() -> Self {
        Self::workers(1)
    }
}

/// How many failures a run survives. Each time it goes on from its latest checkpoint.
///
/// ```
/// use carril::FailureConfig;
///
/// let patient = FailureConfig { max_failures: 3, ..FailureConfig::default() };
/// assert_eq!(patient.max_infrastructure_failures, 3);
/// ```
#[derive(Clone, Debug, PartialEq)]
pub struct FailureConfig {
    /// Failures of the function: errors, panics, exit codes, memory that ran out. -1 is any number.
    pub max_failures: i64,
    /// Failures of machines: a process that was killed from outside. -1 is any number.
    pub max_infrastructure_failures: i64,
    /// How long a function whose machine is going to be taken away has for a last checkpoint.
    pub preemption_grace: Duration,
}

/// None of the function's, three of machines.
impl Default for FailureConfig {
    fn default() -> Self {
        Self { max_failures: 0, max_infrastructure_failures: 3, preemption_grace: Duration::from_secs(30) }
    }
}

/// Which of two values is the better one.
///
/// ```
/// use carril::{CheckpointConfig, Mode};
///
/// let best = CheckpointConfig { score: Some(("loss".into(), Mode::Min)), keep: Some(2) };
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mode {
    /// The smaller one.
    Min,
    /// The greater one.
    Max,
}

/// Which checkpoints are kept. All of them, unless said otherwise; the latest one always.
///
/// ```
/// use carril::{CheckpointConfig, Mode};
///
/// let best = CheckpointConfig { keep: Some(2), score: Some(("loss".into(), Mode::Min)) };
/// ```
#[derive(Clone, Debug, Default, PartialEq)]
pub struct CheckpointConfig {
    /// At most so many.
    pub keep: Option<u32>,
    /// By this metric; otherwise newer ones are better.
    pub score: Option<(String, Mode)>,
}

/// How a metric of all ranks becomes the run's one value.
///
/// ```
/// use carril::{Reduce, RunConfig};
///
/// let config = RunConfig { reduce: [("loss".into(), Reduce::Mean)].into(), ..RunConfig::default() };
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Reduce {
    /// The mean of all ranks.
    Mean,
    /// The sum of all ranks.
    Sum,
    /// The smallest of all ranks.
    Min,
    /// The greatest of all ranks.
    Max,
}

/// Where a run is kept, under which name, and what it survives.
///
/// ```
/// use carril::{FailureConfig, RunConfig};
///
/// let config = RunConfig {
///     name: Some("digits".into()),
///     storage: Some("/results".into()),
///     failure: FailureConfig { max_failures: 3, ..FailureConfig::default() },
///     ..RunConfig::default()
/// };
/// ```
#[derive(Clone, Debug, Default, PartialEq)]
pub struct RunConfig {
    /// A run of this name that did not finish is resumed. Without a name, one is made up.
    pub name: Option<String>,
    /// A directory or a URI; `~/carril_results` where none is given. The run is `<storage>/<name>`.
    pub storage: Option<String>,
    /// What it survives.
    pub failure: FailureConfig,
    /// What it keeps.
    pub checkpoint: CheckpointConfig,
    /// Go on with a run of this name also where it has finished.
    pub resume: bool,
    /// A rank without progress for so long ends the attempt. Without it, ten minutes bring a warning.
    pub hang_timeout: Option<Duration>,
    /// Metrics that are aggregated over the ranks, by name. Of the others rank 0's value is the run's.
    pub reduce: BTreeMap<String, Reduce>,
    /// Print nothing.
    pub quiet: bool,
}

impl RunConfig {
    /// A run with this name.
    ///
    /// ```
    /// let config = carril::RunConfig { quiet: true, ..carril::RunConfig::named("digits") };
    /// assert_eq!(config.name.as_deref(), Some("digits"));
    /// ```
    pub fn named(name: impl Into<String>) -> Self {
        Self { name: Some(name.into()), ..Self::default() }
    }

    fn storage_path(&self) -> Result<String> {
        let storage = match &self.storage {
            Some(storage) if storage.contains("://") => return Ok(storage.clone()),
            Some(storage) => PathBuf::from(storage),
            None => {
                let none = || Error::new(ErrorCode::InvalidConfig, "there is no home directory to keep results in");
                let home = std::env::home_dir().filter(|home| home.is_absolute()).ok_or_else(none);
                home.map_err(|error| error.hint("set `RunConfig::storage`"))?.join("carril_results")
            }
        };
        let absolute = std::path::absolute(&storage).map_err(|error| {
            Error::new(ErrorCode::InvalidConfig, format!("`storage` is `{}`: {error}", storage.display()))
        })?;
        Ok(absolute.display().to_string())
    }

    /// The specification of the run that these ask for. `function` is what its name begins with where it has none.
    pub(crate) fn spec(&self, scaling: &ScalingConfig, function: &str, worker: Vec<String>) -> Result<RunSpec> {
        let (name, made_up) = match &self.name {
            Some(name) => (name.clone(), None),
            None => {
                let (name, made_up) = again::name_for(function, made_up_name(function)?)?;
                (name, Some(made_up))
            }
        };
        let directory = std::env::current_dir()
            .map_err(|error| Error::new(ErrorCode::InvalidConfig, format!("there is no working directory: {error}")))?;
        let reduce = |reduce: &Reduce| match reduce {
            Reduce::Mean => ReduceSpec::Mean,
            Reduce::Sum => ReduceSpec::Sum,
            Reduce::Min => ReduceSpec::Min,
            Reduce::Max => ReduceSpec::Max,
        };
        let score = self.checkpoint.score.as_ref();
        let spec = RunSpec {
            name,
            storage_path: self.storage_path()?,
            num_workers: scaling.num_workers,
            resources_per_worker: scaling.resources()?,
            worker: WorkerCommand::Command { arguments: worker },
            working_directory: directory.display().to_string(),
            metrics_reduce: self.reduce.iter().map(|(name, how)| (name.clone(), reduce(how))).collect(),
            share_devices: false,
            on_existing: if self.resume { OnExisting::Reuse } else { OnExisting::Refuse },
            // Who types `carril resume` means the run, whatever has changed since.
            other_config: if self.resume || again::is_again() { OtherConfig::Warn } else { OtherConfig::Refuse },
            checkpoint_files: Default::default(),
            data: BTreeMap::new(),
            record: record(function, scaling, made_up.as_ref()),
            threads_per_worker: scaling.cpus_per_worker.max(1.0),
            hang_timeout_s: self.hang_timeout.map(|timeout| timeout.as_secs_f64()),
            filesystem: None,
            num_to_keep: self.checkpoint.keep,
            checkpoint_score_attribute: score.map(|(name, _)| name.clone()),
            checkpoint_score_order: match score {
                Some((_, Mode::Min)) => ScoreOrder::Min,
                _ => ScoreOrder::Max,
            },
            failures: FailureSpec {
                max_failures: self.failure.max_failures,
                max_infrastructure_failures: Some(self.failure.max_infrastructure_failures),
                fail_fast: false,
            },
            preemption_grace_s: self.failure.preemption_grace.as_secs_f64(),
            continues: None,
            head_panic: None,
            validation: None,
            trial: None,
            parent: None,
        };
        spec.check().map_err(|wrong| Error::new(ErrorCode::InvalidConfig, wrong.to_string()))?;
        Ok(spec)
    }
}

/// What was asked, for `run.json`.
fn record(function: &str, scaling: &ScalingConfig, made_up: Option<&MadeUp>) -> String {
    let mut asked = serde_json::json!({
        "trainer": "Trainer",
        "function": function,
        "versions": {"carril": env!("CARGO_PKG_VERSION")},
        "num_workers": scaling.num_workers,
    });
    if let (Some(asked), serde_json::Value::Object(how)) = (asked.as_object_mut(), again::how_started(made_up)) {
        asked.extend(how);
    }
    asked.to_string()
}

/// What runs, when, and a random end: no other run has it.
fn made_up_name(function: &str) -> Result<String> {
    let mut random = [0; 3];
    getrandom::fill(&mut random)
        .map_err(|error| Error::new(ErrorCode::Internal, format!("there are no random bytes: {error}")))?;
    let base = function.rsplit("::").next().filter(|name| !name.contains(['{', '<', '>'])).unwrap_or("run");
    let [a, b, c] = random;
    Ok(format!("{base}_{}_{a:02x}{b:02x}{c:02x}", jiff::Zoned::now().strftime("%Y-%m-%d_%H-%M-%S")))
}
