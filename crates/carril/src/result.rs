//! What a run leaves behind.

use carril_proto::v1;
use carril_store::{Storage, list_checkpoints, parse_object};
use carril_types::{ErrorCode, Value};
use serde::de::DeserializeOwned;

use crate::checkpoint::Checkpoint;
use crate::decode::from_value;
use crate::error::{Error, Result};
use crate::metrics::Metrics;

/// One failure that a run has survived.
///
/// ```no_run
/// # fn show(result: &carril::RunResult) {
/// for restart in &result.restarts {
///     println!("attempt {} because {}", restart.attempt, restart.reason);
/// }
/// # }
/// ```
#[derive(Clone, Debug, PartialEq)]
pub struct Restart {
    /// The number of the attempt that followed.
    pub attempt: u32,
    /// The failure, and what paid for it.
    pub reason: String,
    /// What kind of failure it was, as [`Error::code`] would tell it.
    pub code: String,
}

impl From<v1::Restarted> for Restart {
    fn from(told: v1::Restarted) -> Self {
        Self { attempt: told.attempt, reason: told.reason, code: told.code }
    }
}

/// The outcome of a run: metrics, checkpoints, files.
///
/// ```no_run
/// # fn train(session: &carril::Session, rate: f64) -> carril::TrainResult { Ok(()) }
/// # fn run() -> carril::Result<()> {
/// let result = carril::Trainer::new(train, 0.1).fit()?;
/// println!("loss {:?} in {}", result.metrics.number("loss"), result.path);
/// for row in result.table()? {
///     println!("{row}");
/// }
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Debug)]
pub struct RunResult {
    /// The last report.
    pub metrics: Metrics,
    /// The run's directory or URI.
    pub path: String,
    /// The checkpoints that were kept, the best last: by the score of the [`CheckpointConfig`](crate::CheckpointConfig), and
    /// without one in the order of the reports.
    pub checkpoints: Vec<Checkpoint>,
    /// Each failure that it has survived.
    pub restarts: Vec<Restart>,
    returned: Value,
}

impl RunResult {
    pub(crate) fn of(ended: &v1::RunEnded, path: &str, returned: Value) -> Self {
        Self {
            metrics: Metrics(ended.metrics.clone().unwrap_or_default().into()),
            path: path.to_owned(),
            checkpoints: ended.checkpoints.iter().cloned().map(Checkpoint::told).collect(),
            restarts: ended.restarts.iter().cloned().map(Restart::from).collect(),
            returned,
        }
    }

    /// What the directory of a run tells, whether it has ended or not.
    ///
    /// ```
    /// assert_eq!(carril::RunResult::open("/no/such/run").unwrap_err().code(), "not-found");
    /// ```
    pub fn open(path: impl AsRef<str>) -> Result<Self> {
        let storage = Storage::open(path.as_ref(), None)?;
        if storage.read("run.json")?.is_none() {
            let message = format!("`{}` holds no run: there is no `run.json`", path.as_ref());
            return Err(Error::new(ErrorCode::NotFound, message));
        }
        let mut checkpoints = Vec::new();
        for listed in list_checkpoints(&storage)? {
            let place = storage.join(&listed.name);
            match listed.state {
                Ok(_) => checkpoints.push(Checkpoint::stored(place.location())?),
                Err(damage) => {
                    eprintln!("carril: warning: the checkpoint `{}` is passed over: {damage}", place.location())
                }
            }
        }
        let mut result = Self {
            metrics: Metrics::default(),
            path: storage.location().to_owned(),
            checkpoints,
            restarts: Vec::new(),
            returned: Value::None,
        };
        result.metrics = result.table()?.pop().unwrap_or_default();
        Ok(result)
    }

    /// Every report of the run, in order: the rows of its `result.json`.
    ///
    /// ```no_run
    /// # fn show(result: &carril::RunResult) -> carril::Result<()> {
    /// let losses: Vec<f64> = result.table()?.iter().filter_map(|row| row.number("loss")).collect();
    /// # Ok(())
    /// # }
    /// ```
    pub fn table(&self) -> Result<Vec<Metrics>> {
        let bytes = Storage::open(&self.path, None)?.read("result.json")?.unwrap_or_default();
        Ok(String::from_utf8_lossy(&bytes).lines().filter_map(parse_object).map(Metrics).collect())
    }

    /// The newest checkpoint.
    ///
    /// ```no_run
    /// # fn show(result: &carril::RunResult) -> carril::Result<()> {
    /// if let Some(checkpoint) = result.checkpoint() {
    ///     println!("{}", checkpoint.path()?.display());
    /// }
    /// # Ok(())
    /// # }
    /// ```
    pub fn checkpoint(&self) -> Option<&Checkpoint> {
        self.checkpoints.iter().max_by_key(|checkpoint| checkpoint.iteration())
    }

    /// The best checkpoint by the score of the [`CheckpointConfig`](crate::CheckpointConfig); without one, the newest.
    ///
    /// ```no_run
    /// # fn show(result: &carril::RunResult) {
    /// let best = result.best_checkpoint().map(|checkpoint| checkpoint.metrics());
    /// # }
    /// ```
    pub fn best_checkpoint(&self) -> Option<&Checkpoint> {
        self.checkpoints.last()
    }

    /// What rank 0's function returned.
    ///
    /// ```no_run
    /// fn train(session: &carril::Session, rate: f64) -> carril::TrainResult<Vec<f64>> {
    ///     Ok(vec![rate, 1.0])
    /// }
    /// # fn run() -> carril::Result<()> {
    /// let weights: Vec<f64> = carril::Trainer::new(train, 0.1).fit()?.returned()?;
    /// # Ok(())
    /// # }
    /// ```
    pub fn returned<T: DeserializeOwned>(&self) -> Result<T> {
        let unfit = |error| Error::new(ErrorCode::NotFound, format!("what rank 0 returned is something else: {error}"));
        from_value(self.returned.clone()).map_err(unfit)
    }
}
