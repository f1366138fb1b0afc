//! What a search leaves behind.

use carril_store::{Experiment, Storage, TrialState};
use carril_types::{ErrorCode, Value};
use serde::de::DeserializeOwned;

use crate::checkpoint::Checkpoint;
use crate::config::Mode;
use crate::decode::from_value;
use crate::error::{Error, Result};
use crate::metrics::Metrics;
use crate::result::RunResult;

/// One trial of a search, as it ended.
///
/// ```no_run
/// # fn show(trial: &carril::tune::Trial) -> carril::Result<()> {
/// let rate: f64 = trial.config::<std::collections::HashMap<String, f64>>()?["rate"];
/// println!("{} with rate {rate}: {}", trial.name, trial.metrics);
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Debug)]
pub struct Trial {
    /// Eight characters.
    pub id: String,
    /// As it is shown.
    pub name: String,
    /// Its directory or URI.
    pub path: String,
    /// Its last report.
    pub metrics: Metrics,
    /// The headline of its failure; `None` where it has not failed.
    pub error: Option<String>,
    config: carril_types::Metrics,
    checkpoint: Option<String>,
}

impl Trial {
    /// What it was given.
    ///
    /// ```no_run
    /// #[derive(serde::Deserialize)]
    /// struct Config {
    ///     rate: f64,
    /// }
    /// # fn show(trial: &carril::tune::Trial) -> carril::Result<()> {
    /// println!("{}", trial.config::<Config>()?.rate);
    /// # Ok(())
    /// # }
    /// ```
    pub fn config<C: DeserializeOwned>(&self) -> Result<C> {
        let unfit = |error| Error::new(ErrorCode::InvalidConfig, format!("the config of `{}`: {error}", self.name));
        from_value(Value::Map(self.config.clone())).map_err(unfit)
    }

    /// Its newest checkpoint.
    ///
    /// ```no_run
    /// # fn load(trial: &carril::tune::Trial) -> carril::Result<()> {
    /// if let Some(checkpoint) = trial.checkpoint()? {
    ///     let weights: Vec<f32> = checkpoint.read_json("weights.json")?;
    /// }
    /// # Ok(())
    /// # }
    /// ```
    pub fn checkpoint(&self) -> Result<Option<Checkpoint>> {
        self.checkpoint.as_deref().map(Checkpoint::stored).transpose()
    }

    /// Every report of it, in order.
    ///
    /// ```no_run
    /// # fn show(trial: &carril::tune::Trial) -> carril::Result<()> {
    /// let losses: Vec<f64> = trial.table()?.iter().filter_map(|row| row.number("loss")).collect();
    /// # Ok(())
    /// # }
    /// ```
    pub fn table(&self) -> Result<Vec<Metrics>> {
        RunResult::open(&self.path)?.table()
    }
}

/// The trials of a search.
///
/// ```no_run
/// # fn objective(session: &carril::Session, config: f64) -> carril::TrainResult { Ok(()) }
/// # fn run(tuner: carril::Tuner) -> carril::Result<()> {
/// let result = tuner.fit()?;
/// println!("the best of {} trials: {}", result.trials.len(), result.best()?.metrics);
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Debug)]
pub struct TuneResult {
    /// In the order in which they were made.
    pub trials: Vec<Trial>,
    /// The search's directory or URI.
    pub path: String,
    metric: Option<(String, Mode)>,
}

impl TuneResult {
    /// What the directory of a search tells, whether it has ended or not.
    ///
    /// ```
    /// assert!(carril::tune::TuneResult::open("/no/such/search").is_err());
    /// ```
    pub fn open(path: impl AsRef<str>) -> Result<Self> {
        let mut experiment = Experiment::open(Storage::open(path.as_ref(), None)?)?;
        experiment.look_at_unfinished()?;
        let trials = experiment.trials.iter().map(|trial| {
            let checkpoint = experiment.checkpoint(trial)?.map(|place| place.location().to_owned());
            Ok(Trial {
                id: trial.id.clone(),
                name: trial.name.clone(),
                path: experiment.place_of(trial).location().to_owned(),
                metrics: Metrics(trial.metrics.clone()),
                error: (trial.state == TrialState::Error).then(|| trial.reason.clone()),
                config: trial.config.clone(),
                checkpoint,
            })
        });
        let trials = trials.collect::<Result<_>>()?;
        let mode = experiment.summary.mode.map(|mode| match mode {
            carril_types::ScoreOrder::Min => Mode::Min,
            carril_types::ScoreOrder::Max => Mode::Max,
        });
        let metric = experiment.summary.metric.clone().zip(mode);
        Ok(Self { trials, path: experiment.place().location().to_owned(), metric })
    }

    /// The trial whose last report has the best value of the search's metric.
    ///
    /// ```no_run
    /// # fn show(result: &carril::tune::TuneResult) -> carril::Result<()> {
    /// println!("{}", result.best()?.name);
    /// # Ok(())
    /// # }
    /// ```
    pub fn best(&self) -> Result<&Trial> {
        let none = || {
            Error::new(ErrorCode::NotFound, "the search has no metric to be the best by")
                .hint("give the tuner one: `.metric(\"loss\", Mode::Min)`, or use `best_by`")
        };
        let (metric, mode) = self.metric.as_ref().ok_or_else(none)?;
        self.best_by(metric, *mode)
    }

    /// The trial whose last report has the best value of this metric. Values that are not numbers do not count.
    ///
    /// ```no_run
    /// # fn show(result: &carril::tune::TuneResult) -> carril::Result<()> {
    /// println!("{}", result.best_by("accuracy", carril::Mode::Max)?.name);
    /// # Ok(())
    /// # }
    /// ```
    pub fn best_by(&self, metric: &str, mode: Mode) -> Result<&Trial> {
        let valued = self.trials.iter().filter_map(|trial| Some((trial, trial.metrics.number(metric)?)));
        let valued = valued.filter(|(_, value)| !value.is_nan());
        let best = match mode {
            Mode::Min => valued.min_by(|(_, one), (_, other)| one.total_cmp(other)),
            Mode::Max => valued.max_by(|(_, one), (_, other)| one.total_cmp(other)),
        };
        best.map(|(trial, _)| trial)
            .ok_or_else(|| Error::new(ErrorCode::NotFound, format!("no trial has reported a number as `{metric}`")))
    }
}
