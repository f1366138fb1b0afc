//! One run as its driver sees it: submitted, followed, concluded. The head decides everything.
//!
//! FIT-1: `fit` returns only when the run has ended.
//! FIT-2: a head that dies is started again, and the run goes on from its newest checkpoint.

use std::marker::PhantomData;

use carril_client::hash_of;
use carril_proto::v1;
use carril_proto::v1::run_event::Kind;
use carril_types::{ErrorCode, Failure, RunSpec, Value, WorkerFailure};
use serde::Serialize;
use serde::de::DeserializeOwned;

use crate::again;
use crate::blocking::outside;
use crate::callback::{Callback, CallbackResult, Report, RunInfo};
use crate::checkpoint::Checkpoint;
use crate::config::{RunConfig, ScalingConfig};
use crate::console::Console;
use crate::driver::{Connection, connect, replace_lost, why, worker_command};
use crate::encode::to_value;
use crate::error::{BoxError, Error, Result};
use crate::follow::Follower;
use crate::functions::{Known, number_of};
use crate::metrics::Metrics;
use crate::result::RunResult;
use crate::session::Session;
use crate::signals::Signals;
use crate::training::Given;
use crate::worker::{Call, END};

/// Heads that may be lost one after the other before one of them has taken the run: only from then on its budget counts.
const HEADS: u32 = 3;

/// Runs a function on the workers of a group.
///
/// The function is one that [`init!`](crate::init!) names. Its config is any type that goes through serde, and reaches every worker as
/// that type.
///
/// ```no_run
/// use carril::{RunConfig, Session, TrainResult, Trainer};
/// use serde::{Deserialize, Serialize};
///
/// #[derive(Serialize, Deserialize)]
/// struct Config {
///     rate: f64,
///     steps: u32,
/// }
///
/// fn train(session: &Session, config: Config) -> TrainResult {
///     let mut weight = 1.0;
///     for step in 0..config.steps {
///         weight -= config.rate * weight;
///         session.report(&serde_json::json!({"step": step, "loss": weight * weight}))?;
///     }
///     Ok(())
/// }
///
/// fn main() -> carril::Result<()> {
///     carril::init!(train);
///     let config = Config { rate: 0.1, steps: 10 };
///     let result = Trainer::new(train, config).workers(2).run_config(RunConfig::named("decay")).fit()?;
///     assert_eq!(result.table()?.len(), 10);
///     Ok(())
/// }
/// ```
pub struct Trainer<C> {
    function: Known,
    config: std::result::Result<Value, String>,
    scaling: ScalingConfig,
    run: RunConfig,
    callbacks: Vec<Box<dyn Callback>>,
    pub(crate) data: Given,
    _config: PhantomData<fn() -> C>,
}

impl<C: Serialize + DeserializeOwned> Trainer<C> {
    /// A run of this function with this config, on one worker. Nothing is started before [`fit`](Self::fit).
    ///
    /// ```
    /// # fn train(session: &carril::Session, rate: f64) -> carril::TrainResult { Ok(()) }
    /// let trainer = carril::Trainer::new(train, 0.1);
    /// ```
    pub fn new<F, T, E>(function: F, config: C) -> Self
    where
        F: Fn(&Session, C) -> std::result::Result<T, E> + Copy + Send + Sync + 'static,
        T: Serialize,
        E: Into<BoxError>,
    {
        let _ = function;
        Self {
            function: number_of::<F>(),
            config: to_value(&config).map_err(|unfit| unfit.to_string()),
            scaling: ScalingConfig::default(),
            run: RunConfig::default(),
            callbacks: Vec::new(),
            data: Given::default(),
            _config: PhantomData,
        }
    }

    /// So many workers.
    ///
    /// ```
    /// # fn train(session: &carril::Session, rate: f64) -> carril::TrainResult { Ok(()) }
    /// let trainer = carril::Trainer::new(train, 0.1).workers(2);
    /// ```
    pub fn workers(mut self, num_workers: u32) -> Self {
        self.scaling.num_workers = num_workers;
        self
    }

    /// How many workers, and what each reserves.
    ///
    /// ```
    /// # fn train(session: &carril::Session, rate: f64) -> carril::TrainResult { Ok(()) }
    /// use carril::{ScalingConfig, Trainer};
    ///
    /// let scaling = ScalingConfig { cpus_per_worker: 0.5, ..ScalingConfig::workers(4) };
    /// let trainer = Trainer::new(train, 0.1).scaling(scaling);
    /// ```
    pub fn scaling(mut self, scaling: ScalingConfig) -> Self {
        self.scaling = scaling;
        self
    }

    /// The run's name, its storage, what it survives and what it keeps.
    ///
    /// ```
    /// # fn train(session: &carril::Session, rate: f64) -> carril::TrainResult { Ok(()) }
    /// use carril::{RunConfig, Trainer};
    ///
    /// let trainer = Trainer::new(train, 0.1).run_config(RunConfig { quiet: true, ..RunConfig::named("quiet") });
    /// ```
    pub fn run_config(mut self, run: RunConfig) -> Self {
        self.run = run;
        self
    }

    /// Something that is called for what happens. Several are called one after the other.
    ///
    /// ```
    /// # fn train(session: &carril::Session, rate: f64) -> carril::TrainResult { Ok(()) }
    /// struct Silent;
    /// impl carril::Callback for Silent {}
    ///
    /// let trainer = carril::Trainer::new(train, 0.1).callback(Silent);
    /// ```
    pub fn callback(mut self, callback: impl Callback + 'static) -> Self {
        self.callbacks.push(Box::new(callback));
        self
    }

    /// Runs the function to its end on every worker.
    ///
    /// A run of the same name and storage that did not finish goes on from its latest checkpoint. Ctrl-C stops the run.
    ///
    /// ```no_run
    /// # fn train(session: &carril::Session, rate: f64) -> carril::TrainResult { Ok(()) }
    /// # fn run() -> carril::Result<()> {
    /// let result = carril::Trainer::new(train, 0.1).workers(2).fit()?;
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// It is refused, before anything is started, where the function is not named by [`init!`](crate::init!):
    ///
    /// ```
    /// # fn train(session: &carril::Session, rate: f64) -> carril::TrainResult { Ok(()) }
    /// let error = carril::Trainer::new(train, 0.1).fit().unwrap_err();
    /// assert_eq!(error.hints(), ["make this the first line of `main`: carril::init!(train);"]);
    /// ```
    pub fn fit(self) -> Result<RunResult> {
        let bad = |unfit| Error::new(ErrorCode::InvalidConfig, format!("the config cannot be sent: {unfit}"));
        let config = self.config.map_err(bad)?;
        let call = call_of(self.function, config.clone(), &self.data)?;
        let mut spec = self.run.spec(&self.scaling, self.function.name, worker_command())?;
        spec.data = self.data.describe();
        let fit = Fit { config, call, spec, quiet: self.run.quiet, callbacks: self.callbacks };
        outside(|| fit.run())
    }
}

/// What the workers read to know what to run, as a blob.
pub(crate) fn call_of(function: Known, config: Value, data: &Given) -> Result<Vec<u8>> {
    let number = function.number()?;
    let mut rows = Vec::new();
    let call = Call { function: number, name: function.name.to_owned(), config, data: data.send(&mut rows)? };
    let mut call = serde_json::to_vec(&call)
        .map_err(|error| Error::new(ErrorCode::InvalidConfig, format!("the config: {error}")))?;
    call.push(END);
    call.append(&mut rows);
    Ok(call)
}

/// The environment of the workers: the driver's own (AGAIN-1).
pub(crate) fn environment() -> std::collections::HashMap<String, String> {
    std::env::vars_os()
        .filter_map(|(name, value)| Some((name.into_string().ok()?, value.into_string().ok()?)))
        .filter(|(name, _)| name != again::VARIABLE)
        .collect()
}

struct Fit {
    config: Value,
    call: Vec<u8>,
    spec: RunSpec,
    quiet: bool,
    callbacks: Vec<Box<dyn Callback>>,
}

struct Told {
    info: RunInfo,
    callbacks: Vec<Box<dyn Callback>>,
    /// Of the first attempt only.
    started: bool,
}

impl Fit {
    fn run(mut self) -> Result<RunResult> {
        let signals = Signals::watch();
        let mut follower = Follower::new(&signals);
        let mut connection = connect()?;
        let callbacks = std::mem::take(&mut self.callbacks);
        let mut watched: Option<(Told, Console)> = None;
        let mut callbacks = Some(callbacks);
        let mut heads = 0;
        loop {
            let followed = self.submit(&connection).and_then(|reply| {
                heads = 0;
                let (told, console) = watched.get_or_insert_with(|| {
                    let console = Console::new(&reply.name, &reply.path, self.quiet);
                    (Told::new(&reply, self.spec.num_workers, callbacks.take().unwrap_or_default()), console)
                });
                self.spec.continues = Some(reply.run_id.clone());
                let request = v1::WatchRequest {
                    run_id: reply.run_id,
                    reports: !told.callbacks.is_empty(),
                    output: !self.quiet,
                    quiet: false,
                };
                Ok(follower.until_ended(&connection, request, console, |console, kind| told.take(console, kind))?)
            });
            match (followed, &mut watched) {
                (Ok(ended), Some((told, console))) => return conclude(&connection, ended, &follower, told, console),
                (Ok(_), None) => unreachable!("what was followed was submitted"),
                (Err(lost), _) if lost.is_head_lost() && !follower.is_unwanted() && heads < HEADS => {
                    heads += 1;
                    self.spec.head_panic = connection.client.panic();
                    if let Some((_, console)) = &watched {
                        console
                            .warning(&format!("the head has gone and is started again: {}", why(&connection, &lost)));
                    }
                    connection = replace_lost(&connection)?;
                }
                (Err(error), _) => return Err(error),
            }
        }
    }

    fn submit(&self, connection: &Connection) -> Result<v1::RunReply> {
        let client = &connection.client;
        Ok(connection.runtime.block_on(async {
            let function = client.put_blob(self.call.clone(), hash_of(&self.call)).await?;
            client.submit(&self.spec, self.config.clone(), function, environment()).await
        })?)
    }
}

impl Told {
    fn new(reply: &v1::RunReply, num_workers: u32, callbacks: Vec<Box<dyn Callback>>) -> Self {
        let (name, path, id) = (reply.name.clone(), reply.path.clone(), reply.run_id.clone());
        Self { info: RunInfo { name, path, id, num_workers }, callbacks, started: false }
    }

    fn take(&mut self, console: &mut Console, kind: Kind) -> CallbackResult {
        match kind {
            Kind::State(state) => console.state(&state),
            Kind::Started(started) => {
                console.started(&started.workers);
                if !std::mem::replace(&mut self.started, true) {
                    return self.each(|callback, info| callback.on_start(info));
                }
            }
            Kind::Output(output) => console.output(&format!("rank {}", output.rank), &output.text),
            Kind::Warning(warning) => console.warning(&warning.text),
            Kind::Restarted(told) => {
                console.restarted(told.attempt, &told.reason);
                let restart = told.into();
                return self.each(|callback, info| callback.on_restart(info, &restart));
            }
            Kind::Progress(progress) => {
                let metrics = progress.metrics.unwrap_or_default().into();
                console.progress(
                    progress.iteration,
                    &metrics,
                    Some((progress.checkpoints, progress.saved)),
                    progress.time_total_s,
                );
            }
            Kind::Standing(standing) => console.standing(&standing),
            Kind::Reported(reported) => return self.reported(console, reported),
            Kind::Failed(_) | Kind::Ended(_) | Kind::Question(_) | Kind::Trial(_) | Kind::OfTrial(_) => {}
        }
        Ok(())
    }

    fn reported(&mut self, console: &mut Console, reported: v1::Reported) -> CallbackResult {
        let ranks = reported.ranks.into_iter();
        let report = Report {
            iteration: reported.iteration,
            metrics: Metrics(reported.metrics.unwrap_or_default().into()),
            ranks: ranks.map(|told| (told.rank, Metrics(told.metrics.unwrap_or_default().into()))).collect(),
        };
        let seconds = report.metrics.number("time_total_s").unwrap_or(0.0);
        console.progress(report.iteration, &report.metrics.0, None, seconds);
        self.each(|callback, info| callback.on_report(info, &report))?;
        let Some(checkpoint) = reported.checkpoint.map(Checkpoint::told) else { return Ok(()) };
        console.checkpoint();
        self.each(|callback, info| callback.on_checkpoint(info, &checkpoint))
    }

    fn each(&mut self, mut tell: impl FnMut(&mut dyn Callback, &RunInfo) -> CallbackResult) -> CallbackResult {
        self.callbacks.iter_mut().try_for_each(|callback| tell(callback.as_mut(), &self.info))
    }
}

fn conclude(
    connection: &Connection,
    ended: v1::RunEnded,
    follower: &Follower,
    told: &mut Told,
    console: &Console,
) -> Result<RunResult> {
    let outcome = match error_of(&ended, follower) {
        Some(error) => Err(error),
        None => returned(connection, &ended).map(|value| RunResult::of(&ended, &told.info.path, value)),
    };
    let at_the_end = told.each(|callback, info| callback.on_end(info, outcome.as_ref()));
    // A failure of the run itself says more than one of a callback that heard of it.
    let outcome = match (outcome, at_the_end) {
        (Ok(_), Err(error)) => Err(Error::of_callback(error.as_ref())),
        (outcome, _) => outcome,
    };
    match &outcome {
        Ok(_) => console.finished(&ended),
        Err(error) => console.failed(&ended, &error.to_string()),
    }
    outcome
}

fn returned(connection: &Connection, ended: &v1::RunEnded) -> Result<Value> {
    let Some(hash) = ended.return_values.first().filter(|hash| !hash.is_empty()) else { return Ok(Value::None) };
    let bytes = connection.runtime.block_on(connection.client.get_blob(hash.clone()))?;
    serde_json::from_slice(&bytes)
        .map_err(|error| Error::new(ErrorCode::Internal, format!("what was returned: {error}")))
}

/// Why a run did not finish; `None` where it did.
pub(crate) fn error_of(ended: &v1::RunEnded, follower: &Follower) -> Option<Error> {
    if let (Some(raised), true) = (&follower.failed, ended.status != "failed") {
        return Some(Error::of_callback(raised.as_ref()));
    }
    if ended.status == "finished" {
        return None;
    }
    if follower.interrupts > 0 {
        return Some(
            Error::interrupted("interrupted: the run was stopped").hint("`fit` with the same name resumes it"),
        );
    }
    let failure: Option<Failure> = ended.failure.clone().map(Into::into);
    let failure = failure.unwrap_or_else(|| Failure::new(ErrorCode::Aborted, ended.headline.clone()));
    let failures: Vec<WorkerFailure> = ended.failures.iter().cloned().map(Into::into).collect();
    Some(Error::of_ranks(failure, failures))
}
