//! What a training function can do.

use std::path::Path;
use std::sync::atomic::Ordering;
use std::sync::{Arc, Weak};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use carril_types::ErrorCode;
use carril_worker::ReportOptions;
use serde::Serialize;
use serde::de::DeserializeOwned;

use crate::blocking::drive;
use crate::checkpoint::Checkpoint;
use crate::collective::Collectives;
use crate::error::{BoxError, Error, Result};
use crate::metrics::Metrics;
use crate::training::Shards;
use crate::worker::ASKS;

/// A worker's place in its group, and its way to report, to save and to wait for the others.
///
/// The training function is given one. It is cheap to clone, and may be used from any thread.
///
/// ```
/// use carril::{Session, TrainResult};
///
/// fn train(session: &Session, rate: f64) -> TrainResult {
///     let mut weight = match session.latest_checkpoint()? {
///         Some(checkpoint) => checkpoint.read_json("weight.json")?,
///         None => 1.0,
///     };
///     for step in 0..10 {
///         weight -= rate * weight;
///         session.report_and_save(&serde_json::json!({"step": step, "weight": weight}), |directory| {
///             std::fs::write(directory.join("weight.json"), weight.to_string())
///         })?;
///     }
///     Ok(())
/// }
/// ```
#[derive(Clone)]
pub struct Session {
    worker: Arc<carril_worker::Session>,
    collectives: Arc<Collectives>,
    data: Arc<Shards>,
}

/// The machine is going to be taken away.
///
/// ```
/// # fn look(session: &carril::Session) {
/// if let Some(preemption) = session.preemption() {
///     println!("{}: {:?} left", preemption.reason, preemption.left());
/// }
/// # }
/// ```
#[derive(Clone, Debug, PartialEq)]
pub struct Preemption {
    /// Who has said so.
    pub reason: String,
    /// By when a last checkpoint must be reported.
    pub deadline: SystemTime,
}

impl Preemption {
    /// How long there is.
    ///
    /// ```
    /// let deadline = std::time::SystemTime::now() + std::time::Duration::from_secs(30);
    /// let preemption = carril::Preemption { reason: "SIGUSR1".into(), deadline };
    /// assert!(preemption.left().as_secs() >= 29);
    /// ```
    pub fn left(&self) -> Duration {
        self.deadline.duration_since(SystemTime::now()).unwrap_or_default()
    }
}

/// Which trial of a search a function runs as.
///
/// ```
/// # fn look(session: &carril::Session) {
/// if let Some(trial) = session.trial() {
///     println!("{} of {}", trial.name, trial.experiment);
/// }
/// # }
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TrialInfo {
    /// Eight characters.
    pub id: String,
    /// As it is shown.
    pub name: String,
    /// The name of the search.
    pub experiment: String,
}

impl Session {
    pub(crate) fn new(worker: carril_worker::Session) -> Self {
        Self { worker: Arc::new(worker), collectives: Arc::default(), data: Arc::default() }
    }

    pub(crate) fn data(&self) -> &Shards {
        &self.data
    }

    pub(crate) fn worker(&self) -> &carril_worker::Session {
        &self.worker
    }

    pub(crate) fn worker_weakly(&self) -> Weak<carril_worker::Session> {
        Arc::downgrade(&self.worker)
    }

    pub(crate) fn collectives(&self) -> &Collectives {
        &self.collectives
    }

    /// This worker's number in the group, from 0.
    ///
    /// ```
    /// # fn look(session: &carril::Session) {
    /// if session.rank() == 0 {
    ///     println!("one of {} ranks prints", session.world_size());
    /// }
    /// # }
    /// ```
    pub fn rank(&self) -> u32 {
        self.worker.key().rank.0
    }

    /// How many workers the group has.
    ///
    /// ```
    /// # fn rows(session: &carril::Session, rows: &[f32]) -> Vec<f32> {
    /// let (rank, world) = (session.rank() as usize, session.world_size() as usize);
    /// rows.iter().copied().skip(rank).step_by(world).collect()
    /// # }
    /// ```
    pub fn world_size(&self) -> u32 {
        self.worker.assignment().world_size
    }

    /// This worker's number on its machine, from 0.
    ///
    /// ```
    /// # fn look(session: &carril::Session) {
    /// println!("local rank {}", session.local_rank());
    /// # }
    /// ```
    pub fn local_rank(&self) -> u32 {
        self.worker.assignment().local_rank
    }

    /// How many of the workers are on this machine.
    ///
    /// ```
    /// # fn look(session: &carril::Session) {
    /// assert!(session.local_rank() < session.local_world_size());
    /// # }
    /// ```
    pub fn local_world_size(&self) -> u32 {
        self.worker.assignment().local_world_size
    }

    /// The number of this machine among those of the group.
    ///
    /// ```
    /// # fn look(session: &carril::Session) {
    /// println!("machine {}", session.node_rank());
    /// # }
    /// ```
    pub fn node_rank(&self) -> u32 {
        self.worker.assignment().node_rank
    }

    /// How often the group was started before: 0 the first time.
    ///
    /// ```
    /// # fn look(session: &carril::Session) {
    /// if session.attempt() > 0 {
    ///     println!("going on after a failure");
    /// }
    /// # }
    /// ```
    pub fn attempt(&self) -> u32 {
        self.worker.key().attempt.0
    }

    /// The name of the run.
    ///
    /// ```
    /// # fn look(session: &carril::Session) {
    /// println!("{}", session.run_name());
    /// # }
    /// ```
    pub fn run_name(&self) -> &str {
        &self.worker.assignment().run_name
    }

    /// The run's directory on this machine: anything that the function writes there stays.
    ///
    /// ```
    /// # fn look(session: &carril::Session) -> std::io::Result<()> {
    /// std::fs::write(session.run_directory().join("notes.txt"), "well")?;
    /// # Ok(())
    /// # }
    /// ```
    pub fn run_directory(&self) -> &Path {
        Path::new(&self.worker.assignment().run_directory)
    }

    /// The devices of this worker, as `CUDA_VISIBLE_DEVICES` would list them.
    ///
    /// ```
    /// # fn look(session: &carril::Session) {
    /// println!("{} GPUs", session.devices().len());
    /// # }
    /// ```
    pub fn devices(&self) -> &[String] {
        &self.worker.assignment().devices
    }

    /// Which trial this is; `None` where a [`Trainer`](crate::Trainer) runs the function.
    ///
    /// ```
    /// # fn look(session: &carril::Session) {
    /// let is_search = session.trial().is_some();
    /// # }
    /// ```
    pub fn trial(&self) -> Option<TrialInfo> {
        let trial = self.worker.assignment().trial.as_ref()?;
        Some(TrialInfo { id: trial.id.clone(), name: trial.name.clone(), experiment: trial.experiment.clone() })
    }

    /// Reports values by name: a struct that derives `Serialize`, a map, or `serde_json::json!({…})`.
    ///
    /// Waits for nobody: what has returned is on its way to the run's files, and is not lost if the process dies right after it. In a
    /// trial it returns when it is decided that the trial goes on; one that is to stop gets an error whose
    /// [`is_stop`](Error::is_stop) is true, which `?` takes out of the function.
    ///
    /// ```
    /// #[derive(serde::Serialize)]
    /// struct Epoch {
    ///     epoch: u32,
    ///     loss: f64,
    /// }
    /// # fn train(session: &carril::Session) -> carril::Result<()> {
    /// session.report(&Epoch { epoch: 1, loss: 0.5 })?;
    /// session.report(&serde_json::json!({"epoch": 2, "loss": 0.25}))?;
    /// # Ok(())
    /// # }
    /// ```
    pub fn report<M: Serialize + ?Sized>(&self, metrics: &M) -> Result<()> {
        self.report_with(Metrics::of(metrics)?, ReportOptions::default())
    }

    /// Reports values, and with them the files of a directory as a checkpoint. The files are copied: the directory is the caller's
    /// again when this returns. Where several ranks report one, their files are merged.
    ///
    /// ```
    /// # fn train(session: &carril::Session, directory: &std::path::Path) -> carril::Result<()> {
    /// session.report_with_checkpoint(&serde_json::json!({"loss": 0.5}), directory)?;
    /// # Ok(())
    /// # }
    /// ```
    pub fn report_with_checkpoint<M: Serialize + ?Sized>(
        &self,
        metrics: &M,
        directory: impl AsRef<Path>,
    ) -> Result<()> {
        let metrics = Metrics::of(metrics)?;
        let directory = std::path::absolute(directory.as_ref()).map_err(|error| {
            let shown = directory.as_ref().display();
            Error::new(ErrorCode::Checkpoint, format!("`{shown}` is no directory: {error}"))
        })?;
        self.report_with(metrics, ReportOptions { checkpoint: Some(directory), ..ReportOptions::default() })
    }

    /// Reports values, and with them as a checkpoint what `write` puts into the directory that it is given. Nothing is copied.
    ///
    /// ```
    /// # fn train(session: &carril::Session, weights: &[u8]) -> carril::Result<()> {
    /// session.report_and_save(&serde_json::json!({"loss": 0.5}), |directory| {
    ///     std::fs::write(directory.join("weights.bin"), weights)
    /// })?;
    /// # Ok(())
    /// # }
    /// ```
    pub fn report_and_save<M: Serialize + ?Sized, E: Into<BoxError>>(
        &self,
        metrics: &M,
        write: impl FnOnce(&Path) -> std::result::Result<(), E>,
    ) -> Result<()> {
        let metrics = Metrics::of(metrics)?;
        let unsaved =
            |why: String| Error::new(ErrorCode::Checkpoint, format!("the checkpoint cannot be written: {why}"));
        let directory = tempfile::tempdir().map_err(|error| unsaved(error.to_string()))?;
        write(directory.path())
            .map_err(|error| unsaved(crate::error::joined(&crate::error::chain(error.into().as_ref()))))?;
        let checkpoint = Some(directory.path().to_owned());
        self.report_with(metrics, ReportOptions { checkpoint, give_away: true, ..ReportOptions::default() })
    }

    fn report_with(&self, metrics: Metrics, mut options: ReportOptions) -> Result<()> {
        let worker = self.worker();
        // The function's own words may be what a rule of the search is about.
        let asks = ["training_iteration", "done"].iter().any(|name| metrics.0.get(name).is_some());
        options.last = options.checkpoint.is_some() && worker.is_preempted();
        if let Some(position) = self.data_position()? {
            worker.set_data_position(position);
        }
        let verdict = drive(worker.runtime(), async {
            if worker.is_ahead() {
                worker.wait_for_room().await?;
            }
            let began = Instant::now();
            worker.store_checkpoint(&options).await?;
            let stall = if options.checkpoint.is_some() { began.elapsed() } else { Duration::ZERO };
            worker.report(metrics.0, &options, stall, std::thread::sleep).map_err(carril_types::Failure::from)?;
            if options.last {
                worker.wait_for_end().await?;
            } else if worker.waits_for_commit(&options) {
                worker.latest_checkpoint().await?;
            }
            worker.decision(asks).await
        })?;
        match verdict.as_str() {
            "stop" | "pause" => Err(Error::stop()),
            _ => Ok(()),
        }
    }

    /// The newest checkpoint of the run; `None` at its beginning. After a failure, and when a run is resumed, this is where the
    /// function begins.
    ///
    /// ```
    /// # fn train(session: &carril::Session) -> carril::Result<()> {
    /// let first = match session.latest_checkpoint()? {
    ///     Some(checkpoint) => checkpoint.metrics().get("step")?.unwrap_or(0) + 1,
    ///     None => 0,
    /// };
    /// # Ok(())
    /// # }
    /// ```
    pub fn latest_checkpoint(&self) -> Result<Option<Checkpoint>> {
        let path = drive(self.worker.runtime(), self.worker.latest_checkpoint())?;
        let stored = path.map(|path| Checkpoint::stored(&path)).transpose()?;
        Ok(stored.map(|checkpoint| checkpoint.shared_in(self.run_directory())))
    }

    /// Says how far the function is, in steps, epochs or whatever it counts: the console then shows when it will be done. It may be
    /// said at every step.
    ///
    /// ```
    /// # fn train(session: &carril::Session) -> carril::Result<()> {
    /// for step in 0..1_000 {
    ///     session.set_progress(step, 1_000);
    /// }
    /// # Ok(())
    /// # }
    /// ```
    pub fn set_progress(&self, done: u64, total: u64) {
        if total > 0 {
            self.worker.set_progress(done.min(total) as f64, total as f64);
        }
    }

    /// Waits until every rank is here. Ranks that wait for each other in different places are an error that names them.
    ///
    /// ```
    /// # fn train(session: &carril::Session) -> carril::Result<()> {
    /// session.barrier()?;
    /// # Ok(())
    /// # }
    /// ```
    pub fn barrier(&self) -> Result<()> {
        Ok(drive(self.worker.runtime(), self.worker.barrier())?)
    }

    /// Every rank gets rank 0's value. For values of a few kilobytes: an address, a seed, a split;
    /// [`broadcast_values`](Self::broadcast_values) is for more.
    ///
    /// ```
    /// # fn train(session: &carril::Session) -> carril::Result<()> {
    /// let seed: u64 = session.broadcast(&std::process::id().into())?;
    /// # Ok(())
    /// # }
    /// ```
    pub fn broadcast<T: Serialize + DeserializeOwned>(&self, value: &T) -> Result<T> {
        let unfit = |why: String| Error::new(ErrorCode::InvalidConfig, format!("the value cannot be broadcast: {why}"));
        let payload = match self.rank() {
            0 => {
                let value = crate::encode::to_value(value).map_err(|error| unfit(error.to_string()))?;
                serde_json::to_vec(&value).map_err(|error| unfit(error.to_string()))?
            }
            _ => Vec::new(),
        };
        let payload = drive(self.worker.runtime(), self.worker.broadcast(payload))?;
        let value = serde_json::from_slice(&payload).map_err(|error| unfit(error.to_string()))?;
        crate::decode::from_value(value).map_err(|error| unfit(error.to_string()))
    }

    /// Whether the run is being stopped. A function that asks has a second or so to leave in order; one that never does is ended.
    ///
    /// ```
    /// # fn train(session: &carril::Session) -> carril::Result<()> {
    /// for step in 0..1_000_000 {
    ///     if session.should_stop() {
    ///         break;
    ///     }
    /// }
    /// # Ok(())
    /// # }
    /// ```
    pub fn should_stop(&self) -> bool {
        ASKS.store(true, Ordering::Relaxed);
        self.worker.is_told()
    }

    /// Whether the machine is going to be taken away. The next checkpoint that is reported is then the last, and the run ends with it:
    /// [`fit`](crate::Trainer::fit) returns an error whose [`is_preempted`](Error::is_preempted) is true, and the next one of
    /// the same name goes on.
    ///
    /// ```
    /// # fn train(session: &carril::Session, directory: &std::path::Path) -> carril::Result<()> {
    /// if session.preemption().is_some() {
    ///     session.report_with_checkpoint(&serde_json::json!({"step": 7}), directory)?;
    /// }
    /// # Ok(())
    /// # }
    /// ```
    pub fn preemption(&self) -> Option<Preemption> {
        let (reason, deadline) = self.worker.preemption()?;
        let deadline = UNIX_EPOCH + Duration::try_from_secs_f64(deadline).unwrap_or_default();
        Some(Preemption { reason, deadline })
    }
}
