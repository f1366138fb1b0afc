//! One search as its driver sees it: submitted, followed, concluded. The head decides everything.
//!
//! TFIT-1: `fit` returns only when the search has ended.
//! TFIT-2: a head that dies is started again, and the search goes on.

use std::collections::{BTreeMap, BTreeSet};
use std::time::{Duration, Instant};

use carril_client::hash_of;
use carril_proto::v1;
use carril_proto::v1::run_event::Kind;
use carril_types::{ErrorCode, Metrics, Value};
use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::json;

use super::choices::{Scheduler, Searcher};
use super::result::TuneResult;
use super::space::Space;
use crate::blocking::outside;
use crate::config::{Mode, RunConfig, ScalingConfig};
use crate::console::{Console, count};
use crate::driver::{Connection, connect, replace_lost, why, worker_command};
use crate::encode::to_value;
use crate::error::{BoxError, Error, Result};
use crate::follow::Follower;
use crate::functions::{Known, number_of};
use crate::session::Session;
use crate::signals::Signals;
use crate::trainer::{call_of, environment, error_of};
use crate::training::Given;

/// Heads that may be lost one after the other before the search is given up.
const HEADS: u32 = 3;
const BETWEEN_LINES: Duration = Duration::from_secs(5);

/// Runs a function once for each config of a search.
///
/// The function is one that [`init!`](crate::init!) names, and the same that a [`Trainer`](crate::Trainer) takes. What it reports is
/// judged: a trial that is to stop gets an error from `report`, which `?` takes out of the function.
///
/// ```no_run
/// use carril::tune::{Asha, Searcher, Space, choice, loguniform};
/// use carril::{Mode, Session, TrainResult, Tuner};
///
/// #[derive(serde::Serialize, serde::Deserialize)]
/// struct Config {
///     rate: f64,
///     steps: u32,
/// }
///
/// fn objective(session: &Session, config: Config) -> TrainResult {
///     let mut weight = 1.0;
///     for _ in 0..config.steps {
///         weight -= config.rate * weight;
///         session.report(&serde_json::json!({"loss": weight * weight}))?;
///     }
///     Ok(())
/// }
///
/// fn main() -> carril::Result<()> {
///     carril::init!(objective);
///     let space = Space::new().add("rate", loguniform(1e-4, 1.0)).add("steps", choice([10, 20]));
///     let result = Tuner::new(objective, space)
///         .metric("loss", Mode::Min)
///         .samples(20)
///         .searcher(Searcher::Tpe)
///         .scheduler(Asha { max_t: 20.0, ..Asha::default() })
///         .fit()?;
///     let best = result.best()?;
///     println!("rate {}: {}", best.config::<Config>()?.rate, best.metrics);
///     Ok(())
/// }
/// ```
pub struct Tuner {
    function: Known,
    space: Space,
    first: Vec<std::result::Result<Value, String>>,
    metric: Option<(String, Mode)>,
    samples: u64,
    searcher: Searcher,
    scheduler: Scheduler,
    stop: Vec<(String, f64)>,
    max_concurrent: Option<usize>,
    time_budget: Option<Duration>,
    seed: Option<u64>,
    scaling: ScalingConfig,
    run: RunConfig,
    pub(crate) data: Given,
}

impl Tuner {
    /// A search of this function over this space: one trial, on one CPU, unless told otherwise. Nothing is started before
    /// [`fit`](Self::fit).
    ///
    /// ```
    /// # #[derive(serde::Serialize, serde::Deserialize)] struct Config { rate: f64 }
    /// # fn objective(session: &carril::Session, config: Config) -> carril::TrainResult { Ok(()) }
    /// use carril::tune::{Space, uniform};
    ///
    /// let tuner = carril::Tuner::new(objective, Space::new().add("rate", uniform(0.0, 1.0)));
    /// ```
    pub fn new<F, C, T, E>(function: F, space: Space) -> Self
    where
        F: Fn(&Session, C) -> std::result::Result<T, E> + Copy + Send + Sync + 'static,
        C: DeserializeOwned,
        T: Serialize,
        E: Into<BoxError>,
    {
        let _ = function;
        Self {
            function: number_of::<F>(),
            space,
            first: Vec::new(),
            metric: None,
            samples: 1,
            searcher: Searcher::default(),
            scheduler: Scheduler::default(),
            stop: Vec::new(),
            max_concurrent: None,
            time_budget: None,
            seed: None,
            scaling: ScalingConfig::default(),
            run: RunConfig::default(),
            data: Given::default(),
        }
    }

    /// What the search is for: every trial reports it.
    ///
    /// ```no_run
    /// # fn with(tuner: carril::Tuner) -> carril::Tuner {
    /// tuner.metric("accuracy", carril::Mode::Max)
    /// # }
    /// ```
    pub fn metric(mut self, name: impl Into<String>, mode: Mode) -> Self {
        self.metric = Some((name.into(), mode));
        self
    }

    /// How many configs are tried; with grids, how often each combination is.
    ///
    /// ```no_run
    /// # fn with(tuner: carril::Tuner) -> carril::Tuner {
    /// tuner.samples(20)
    /// # }
    /// ```
    pub fn samples(mut self, samples: u64) -> Self {
        self.samples = samples;
        self
    }

    /// Who chooses the configs.
    ///
    /// ```no_run
    /// # fn with(tuner: carril::Tuner) -> carril::Tuner {
    /// tuner.searcher(carril::tune::Searcher::GaussianProcess)
    /// # }
    /// ```
    pub fn searcher(mut self, searcher: Searcher) -> Self {
        self.searcher = searcher;
        self
    }

    /// Who judges the trials.
    ///
    /// ```no_run
    /// # fn with(tuner: carril::Tuner) -> carril::Tuner {
    /// tuner.scheduler(carril::tune::Asha::default())
    /// # }
    /// ```
    pub fn scheduler(mut self, scheduler: impl Into<Scheduler>) -> Self {
        self.scheduler = scheduler.into();
        self
    }

    /// A config to try before any other: all of it, or some of its parameters.
    ///
    /// ```no_run
    /// # fn with(tuner: carril::Tuner) -> carril::Tuner {
    /// tuner.try_first(&serde_json::json!({"rate": 0.1}))
    /// # }
    /// ```
    pub fn try_first<T: Serialize + ?Sized>(mut self, config: &T) -> Self {
        self.first.push(to_value(config).map_err(|unfit| unfit.to_string()));
        self
    }

    /// A trial whose metric is at least this is stopped.
    ///
    /// ```no_run
    /// # fn with(tuner: carril::Tuner) -> carril::Tuner {
    /// tuner.stop_at("training_iteration", 10.0)
    /// # }
    /// ```
    pub fn stop_at(mut self, metric: impl Into<String>, value: f64) -> Self {
        self.stop.push((metric.into(), value));
        self
    }

    /// At most so many trials at a time. Without it, as many as the machine has room for.
    ///
    /// ```no_run
    /// # fn with(tuner: carril::Tuner) -> carril::Tuner {
    /// tuner.max_concurrent(2)
    /// # }
    /// ```
    pub fn max_concurrent(mut self, trials: usize) -> Self {
        self.max_concurrent = Some(trials);
        self
    }

    /// After so long no trial is begun, and those that run are stopped.
    ///
    /// ```no_run
    /// # fn with(tuner: carril::Tuner) -> carril::Tuner {
    /// tuner.time_budget(std::time::Duration::from_secs(3600))
    /// # }
    /// ```
    pub fn time_budget(mut self, budget: Duration) -> Self {
        self.time_budget = Some(budget);
        self
    }

    /// The same seed draws the same configs.
    ///
    /// ```no_run
    /// # fn with(tuner: carril::Tuner) -> carril::Tuner {
    /// tuner.seed(7)
    /// # }
    /// ```
    pub fn seed(mut self, seed: u64) -> Self {
        self.seed = Some(seed);
        self
    }

    /// How many workers each trial has, and what each reserves.
    ///
    /// ```no_run
    /// # fn with(tuner: carril::Tuner) -> carril::Tuner {
    /// tuner.scaling(carril::ScalingConfig { cpus_per_worker: 0.5, ..carril::ScalingConfig::default() })
    /// # }
    /// ```
    pub fn scaling(mut self, scaling: ScalingConfig) -> Self {
        self.scaling = scaling;
        self
    }

    /// The search's name and storage, and what each trial survives and keeps.
    ///
    /// ```no_run
    /// # fn with(tuner: carril::Tuner) -> carril::Tuner {
    /// tuner.run_config(carril::RunConfig::named("search"))
    /// # }
    /// ```
    pub fn run_config(mut self, run: RunConfig) -> Self {
        self.run = run;
        self
    }

    /// Runs the search to its end. A trial that fails is in the result, and does not end the search.
    ///
    /// A search of the same name and storage that did not finish goes on. Ctrl-C stops it.
    ///
    /// ```no_run
    /// # fn run(tuner: carril::Tuner) -> carril::Result<()> {
    /// let best = tuner.fit()?.best()?.metrics.clone();
    /// # Ok(())
    /// # }
    /// ```
    pub fn fit(self) -> Result<TuneResult> {
        let call = call_of(self.function, Value::None, &self.data)?;
        let (spec, constants) = self.specification()?;
        let metric = self.metric.clone();
        let fit = Fit { call, spec, constants, quiet: self.run.quiet, metric };
        outside(|| fit.run())
    }

    /// What the head reads, and the values that it names by their number.
    fn specification(&self) -> Result<(serde_json::Value, Vec<Value>)> {
        let wrong = |what: String| Error::new(ErrorCode::InvalidConfig, what);
        let mut constants = Vec::new();
        let space = self.space.encode(&mut constants)?;
        let mut points = Vec::new();
        for first in &self.first {
            let first =
                first.clone().map_err(|unfit| wrong(format!("a config to try first cannot be sent: {unfit}")))?;
            points.push(constants.len());
            constants.push(first);
        }
        let metric = self.metric.as_ref().map(|(name, mode)| {
            let mode = match mode {
                Mode::Min => "min",
                Mode::Max => "max",
            };
            (name.as_str(), mode)
        });
        if metric.is_none() && (self.searcher != Searcher::Random || self.scheduler.judges()) {
            return Err(wrong("the searcher and the scheduler have no metric to go by".to_owned())
                .hint("give the tuner one: `.metric(\"loss\", Mode::Min)`"));
        }
        let (metric_name, mode) = metric.unwrap_or_default();
        let scheduler = self.scheduler.encode(metric_name, mode, &mut constants)?;
        let run = self.run.spec(&self.scaling, self.function.name, worker_command())?;
        let short = self.function.name.rsplit("::").next().unwrap_or(self.function.name);
        let seed = match self.seed {
            Some(seed) => seed,
            None => random_seed()?,
        };
        let spec = json!({
            "name": run.name,
            "storage_path": run.storage_path,
            "record": run.record,
            "run": serde_json::to_value(&run).map_err(|error| wrong(error.to_string()))?,
            "trainable": short,
            "metric": metric.map(|(name, _)| name),
            "mode": metric.map(|(_, mode)| mode),
            "num_samples": self.samples,
            "space": space,
            "searcher": self.searcher.encode(&points, metric),
            "scheduler": scheduler,
            "stop": self.stop,
            "needs_metric": metric.is_some(),
            "max_concurrent": self.max_concurrent,
            "time_budget_s": self.time_budget.map(|budget| budget.as_secs_f64()),
            "seed": seed,
            "goes_on": self.run.resume,
        });
        Ok((spec, constants))
    }
}

fn random_seed() -> Result<u64> {
    let mut bytes = [0; 4];
    getrandom::fill(&mut bytes)
        .map_err(|error| Error::new(ErrorCode::Internal, format!("there are no random bytes: {error}")))?;
    Ok(u32::from_le_bytes(bytes).into())
}

struct Fit {
    call: Vec<u8>,
    spec: serde_json::Value,
    constants: Vec<Value>,
    quiet: bool,
    metric: Option<(String, Mode)>,
}

impl Fit {
    fn run(mut self) -> Result<TuneResult> {
        let signals = Signals::watch();
        let mut follower = Follower::new(&signals);
        let mut connection = connect()?;
        let mut watched: Option<(Trials, Console)> = None;
        let mut heads = 0;
        loop {
            let followed = self.submit(&connection).and_then(|reply| {
                let (trials, console) = watched.get_or_insert_with(|| {
                    (Trials::new(self.metric.clone()), Console::new(&reply.name, &reply.path, self.quiet))
                });
                self.spec["goes_on"] = true.into();
                let run_id = reply.experiment_id.clone();
                let request = v1::WatchRequest { run_id, reports: false, output: !self.quiet, quiet: self.quiet };
                let ended = follower.until_ended(&connection, request, console, |console, kind| {
                    trials.take(console, kind);
                    Ok(())
                })?;
                Ok((ended, reply.path))
            });
            match followed {
                Ok((ended, path)) => {
                    let (trials, console) = watched.as_ref().expect("what was followed was submitted");
                    trials.closing(console, &ended);
                    return match error_of(&ended, &follower) {
                        Some(error) => Err(error),
                        None => TuneResult::open(path),
                    };
                }
                Err(lost) if lost.is_head_lost() && !follower.is_unwanted() && heads < HEADS => {
                    heads += 1;
                    if let Some((_, console)) = &watched {
                        console
                            .warning(&format!("the head has gone and is started again: {}", why(&connection, &lost)));
                    }
                    connection = replace_lost(&connection)?;
                }
                Err(error) => return Err(error),
            }
        }
    }

    fn submit(&self, connection: &Connection) -> Result<v1::ExperimentReply> {
        let client = &connection.client;
        Ok(connection.runtime.block_on(async {
            let function = client.put_blob(self.call.clone(), hash_of(&self.call)).await?;
            client.submit_experiment(self.spec.to_string(), self.constants.clone(), function, environment()).await
        })?)
    }
}

/// The trials as they are shown.
struct Trials {
    metric: Option<(String, Mode)>,
    names: BTreeMap<u64, String>,
    running: BTreeSet<u64>,
    /// Made, and not running: whatever they wait for.
    waiting: BTreeSet<u64>,
    ended: u64,
    failed: u64,
    best: Option<(f64, u64)>,
    last_line: Instant,
}

impl Trials {
    fn new(metric: Option<(String, Mode)>) -> Self {
        let (names, running, waiting) = Default::default();
        Self { metric, names, running, waiting, ended: 0, failed: 0, best: None, last_line: Instant::now() }
    }

    fn take(&mut self, console: &mut Console, kind: Kind) {
        match kind {
            Kind::State(state) if state.state == "resuming" => {
                console.resuming_search(&state.reason);
                self.ended = state.trials_done;
            }
            Kind::Warning(warning) => console.warning(&warning.text),
            Kind::Trial(changed) => self.changed(changed),
            Kind::OfTrial(of_trial) => {
                if let Some(kind) = of_trial.event.and_then(|event| event.kind) {
                    self.of_trial(console, of_trial.trial, kind);
                }
            }
            _ => {}
        }
        if self.last_line.elapsed() >= BETWEEN_LINES {
            self.last_line = Instant::now();
            console.say(&self.summary());
        }
    }

    fn changed(&mut self, changed: v1::TrialChanged) {
        if let Some(made) = changed.made {
            self.names.insert(changed.trial, made.name);
        }
        match changed.state.as_str() {
            "stopping" => {}
            "running" => {
                self.waiting.remove(&changed.trial);
                self.running.insert(changed.trial);
            }
            "terminated" | "stopped" | "error" => {
                self.waiting.remove(&changed.trial);
                self.running.remove(&changed.trial);
                self.ended += 1;
            }
            _ => {
                self.running.remove(&changed.trial);
                self.waiting.insert(changed.trial);
            }
        }
    }

    fn name(&self, trial: u64) -> String {
        self.names.get(&trial).cloned().unwrap_or_else(|| format!("trial {trial}"))
    }

    fn of_trial(&mut self, console: &Console, trial: u64, kind: Kind) {
        match kind {
            Kind::Output(output) => console.output(&self.name(trial), &output.text),
            Kind::Warning(warning) => console.warning(&format!("{}: {}", self.name(trial), warning.text)),
            Kind::Restarted(told) => {
                console.warning(&format!("{} is started again: {}", self.name(trial), told.reason));
            }
            Kind::Progress(progress) => self.reported(trial, progress.metrics),
            Kind::Ended(ended) => {
                if ended.status == "failed" {
                    self.failed += 1;
                    console.warning(&format!("{} failed: {}", self.name(trial), ended.headline));
                }
                self.reported(trial, ended.metrics);
            }
            _ => {}
        }
    }

    fn reported(&mut self, trial: u64, metrics: Option<v1::ValueMap>) {
        let Some((name, mode)) = &self.metric else { return };
        let metrics: Metrics = metrics.unwrap_or_default().into();
        let Some(value) = metrics.find(name).and_then(Value::as_f64) else { return };
        let better = |best: f64| if *mode == Mode::Min { value < best } else { value > best };
        if !value.is_nan() && self.best.is_none_or(|(best, _)| better(best)) {
            self.best = Some((value, trial));
        }
    }

    fn summary(&self) -> String {
        let mut facts =
            vec![format!("{} ended", count(self.ended, "trial")), format!("{} running", self.running.len())];
        if !self.waiting.is_empty() {
            facts.push(format!("{} waiting", self.waiting.len()));
        }
        if self.failed > 0 {
            facts.push(format!("{} failed", self.failed));
        }
        if let (Some((name, _)), Some((value, trial))) = (&self.metric, self.best) {
            facts.push(format!("best {name} {value:.4} by {}", self.name(trial)));
        }
        facts.join(" · ")
    }

    fn closing(&self, console: &Console, ended: &v1::RunEnded) {
        console.search_ended(&ended.status, &self.summary(), ended.seconds);
    }
}
