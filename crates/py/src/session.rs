//! A worker's session.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, Instant};

use carril_types::{ErrorCode, Failure, Rank, ValidationTask, WorkerFailure};
use carril_worker::{ReportOptions, Saving};
use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyDict};

use crate::door::leave;
use crate::errors::raise;
use crate::events;
use crate::values::{Unpicklable, metrics_to_python, to_metrics};

#[pyclass(frozen, module = "carril._native")]
pub struct Session {
    pub(crate) inner: Arc<carril_worker::Session>,
}

#[pymethods]
impl Session {
    #[staticmethod]
    fn connect(py: Python<'_>) -> PyResult<Self> {
        let inner = py.detach(carril_worker::Session::from_environment);
        Ok(Self { inner: Arc::new(inner.map_err(|error| raise(py, error.into()))?) })
    }

    #[getter]
    fn rank(&self) -> u32 {
        self.inner.key().rank.0
    }

    #[getter]
    fn world_size(&self) -> u32 {
        self.inner.assignment().world_size
    }

    #[getter]
    fn local_rank(&self) -> u32 {
        self.inner.assignment().local_rank
    }

    #[getter]
    fn local_world_size(&self) -> u32 {
        self.inner.assignment().local_world_size
    }

    #[getter]
    fn node_rank(&self) -> u32 {
        self.inner.assignment().node_rank
    }

    #[getter]
    fn run_id(&self) -> &str {
        self.inner.key().run.as_str()
    }

    #[getter]
    fn attempt(&self) -> u32 {
        self.inner.key().attempt.0
    }

    #[getter]
    fn run_name(&self) -> &str {
        &self.inner.assignment().run_name
    }

    #[getter]
    fn run_directory(&self) -> &str {
        &self.inner.assignment().run_directory
    }

    #[getter]
    fn storage(&self) -> &str {
        &self.inner.assignment().storage
    }

    #[getter]
    fn filesystem_path(&self) -> &str {
        &self.inner.assignment().filesystem_path
    }

    #[getter]
    fn devices(&self) -> Vec<String> {
        self.inner.assignment().devices.clone()
    }

    #[getter]
    fn function_path(&self) -> &str {
        &self.inner.assignment().function_path
    }

    fn set_progress(&self, done: f64, total: f64) {
        self.inner.set_progress(done, total);
    }

    /// How many rows of its part of a data set this rank has read in an epoch.
    fn set_rows_read(&self, data: &str, epoch: u64, done: u64, total: u64) {
        self.inner.set_rows_read(data, epoch, done, total);
    }

    #[pyo3(signature = (stacks=false))]
    fn ready(&self, stacks: bool) {
        self.inner.ready(stacks);
    }

    #[pyo3(signature = (metrics, directory=None, r#move=false, checkpoint_name=None, mode="sync", validation=None, silent=false))]
    #[allow(clippy::too_many_arguments)] // they are keywords in Python
    fn report(
        &self,
        py: Python<'_>,
        metrics: &Bound<'_, PyDict>,
        directory: Option<PathBuf>,
        r#move: bool,
        checkpoint_name: Option<String>,
        mode: &str,
        validation: Option<(String, Option<f64>)>,
        silent: bool,
    ) -> PyResult<String> {
        // The function's own words may be what a rule is about.
        let asks = metrics.contains("training_iteration")? || metrics.contains("done")?;
        let metrics = to_metrics(metrics, Unpicklable::Refuse)?;
        let saving = saving_of(py, mode)?;
        let last = directory.is_some() && self.inner.is_preempted();
        let validation = validation.map(|(arguments, timeout_s)| ValidationTask { arguments, timeout_s });
        let (give_away, name) = (r#move, checkpoint_name);
        let options = ReportOptions { checkpoint: directory, give_away, name, saving, last, validation, silent };
        let runtime = self.inner.runtime();
        if self.inner.is_ahead() {
            leave(py, runtime, self.inner.wait_for_room())?;
        }
        let began = Instant::now();
        let mut stall = Duration::ZERO;
        if options.checkpoint.is_some() {
            leave(py, runtime, self.inner.store_checkpoint(&options))?;
            stall = began.elapsed();
        }
        let pause = |time| py.detach(|| std::thread::sleep(time));
        self.inner.report(metrics, &options, stall, pause).map_err(|error| raise(py, error.into()))?;
        if last {
            leave(py, runtime, self.inner.wait_for_end())?;
        } else if self.inner.waits_for_commit(&options) {
            leave(py, runtime, self.inner.latest_checkpoint())?;
        }
        if silent {
            return Ok("continue".to_owned());
        }
        leave(py, runtime, self.inner.decision(asks))
    }

    /// The checkpoint that this attempt goes on from, or nothing.
    #[getter]
    fn began_from(&self) -> Option<&str> {
        Some(self.inner.assignment().latest_checkpoint.as_str()).filter(|path| !path.is_empty())
    }

    /// A directory that the workers of this node share, and that goes with the head.
    #[getter]
    fn node_directory(&self) -> String {
        let log = std::path::Path::new(&self.inner.assignment().report_log);
        log.parent().map_or_else(String::new, |directory| directory.display().to_string())
    }

    /// How far the data sets have been read, as JSON: it goes with every report from now on.
    fn set_data_position(&self, position: String) {
        self.inner.set_data_position(position);
    }

    /// After `returned`: the session of the next trial that this process serves.
    fn next(&self, py: Python<'_>) -> PyResult<Option<Self>> {
        let next = leave(py, self.inner.runtime(), async { self.inner.next().await.map_err(Failure::from) })?;
        Ok(next.map(|inner| Self { inner: Arc::new(inner) }))
    }

    /// Whether this process serves another trial after this one.
    #[getter]
    fn is_reused(&self) -> bool {
        self.inner.assignment().trial.as_ref().is_some_and(|trial| !trial.pool.is_empty())
    }

    #[getter]
    fn environment(&self) -> std::collections::HashMap<String, String> {
        self.inner.assignment().environment.clone()
    }

    #[getter]
    fn working_directory(&self) -> &str {
        &self.inner.assignment().working_directory
    }

    /// What the trial is: its id, name, experiment, resources, how far it has come; `None` where the run is no trial.
    #[getter]
    fn trial<'py>(&self, py: Python<'py>) -> PyResult<Option<Bound<'py, PyDict>>> {
        let Some(trial) = self.inner.assignment().trial.clone() else { return Ok(None) };
        let dict = PyDict::new(py);
        dict.set_item("id", trial.id)?;
        dict.set_item("name", trial.name)?;
        dict.set_item("experiment", trial.experiment)?;
        dict.set_item("resources", trial.resources)?;
        dict.set_item("iteration", trial.iteration)?;
        dict.set_item("seconds", trial.seconds)?;
        dict.set_item("config", metrics_to_python(py, trial.config.unwrap_or_default().into())?)?;
        Ok(Some(dict))
    }

    fn latest_checkpoint(&self, py: Python<'_>) -> PyResult<Option<String>> {
        leave(py, self.inner.runtime(), self.inner.latest_checkpoint())
    }

    #[pyo3(signature = (timeout=None, validated=false))]
    fn checkpoints<'py>(
        &self,
        py: Python<'py>,
        timeout: Option<f64>,
        validated: bool,
    ) -> PyResult<Vec<Bound<'py, PyDict>>> {
        let patience = timeout.and_then(|seconds| Duration::try_from_secs_f64(seconds).ok());
        let settled = async {
            let settled = async {
                self.inner.wait_for_checkpoints().await?;
                if validated { self.inner.wait_for_validations().await } else { Ok(()) }
            };
            match patience {
                // What is there by then is what is shown.
                Some(patience) => tokio::time::timeout(patience, settled).await.unwrap_or(Ok(())),
                None => settled.await,
            }
        };
        leave(py, self.inner.runtime(), settled)?;
        let kept = leave(py, self.inner.runtime(), self.inner.checkpoints())?;
        kept.into_iter().map(|checkpoint| events::checkpoint(py, checkpoint)).collect()
    }

    fn preemption(&self) -> Option<(String, f64)> {
        self.inner.preemption()
    }

    fn barrier(&self, py: Python<'_>) -> PyResult<()> {
        leave(py, self.inner.runtime(), self.inner.barrier())
    }

    fn broadcast<'py>(&self, py: Python<'py>, payload: Option<&[u8]>) -> PyResult<Bound<'py, PyBytes>> {
        let payload = payload.unwrap_or_default().to_vec();
        let payload = leave(py, self.inner.runtime(), self.inner.broadcast(payload))?;
        Ok(PyBytes::new(py, &payload))
    }

    fn put_blob(&self, py: Python<'_>, data: &[u8]) -> PyResult<String> {
        let data = data.to_vec();
        leave(py, self.inner.runtime(), self.inner.put_blob(data))
    }

    fn returned(&self, value: Option<String>) {
        self.inner.returned(value);
    }

    #[pyo3(signature = (message, exception_type, traceback, location, exception, code))]
    fn failed(
        &self,
        message: String,
        exception_type: String,
        traceback: String,
        location: String,
        exception: Option<Vec<u8>>,
        code: &str,
    ) {
        let code = ErrorCode::from_name(code).unwrap_or(ErrorCode::UserException);
        self.inner.failed(WorkerFailure {
            rank: Rank(self.rank()),
            failure: Failure::new(code, message),
            exception_type,
            traceback,
            location,
            exception: exception.unwrap_or_default(),
            exit: None,
            peak_memory: 0,
        });
    }

    #[pyo3(signature = (within=0.0))]
    fn is_told_to_exit(&self, py: Python<'_>, within: f64) -> PyResult<bool> {
        let within = Duration::try_from_secs_f64(within).unwrap_or_default();
        leave(py, self.inner.runtime(), async { Ok(self.inner.is_told_to_exit(within).await) })
    }

    fn wait_exit(&self, py: Python<'_>) -> PyResult<()> {
        leave(py, self.inner.runtime(), async {
            self.inner.wait_exit().await;
            Ok(())
        })
    }
}

#[pyfunction]
pub fn shield_from_preemption() {
    carril_worker::shield_from_preemption();
}

/// The name of this process in `top`, and its command line in `ps`.
#[pyfunction]
pub fn show_title(name: &str, command_line: &str) {
    carril_worker::show_title(name, command_line);
}

/// This process is killed when its parent ends, whose pid the caller knows.
#[pyfunction]
pub fn end_with_parent(parent: u32) {
    carril_process::end_with_parent(parent);
}

fn saving_of(py: Python<'_>, mode: &str) -> PyResult<Saving> {
    match mode {
        "sync" => Ok(Saving::Sync),
        "async" => Ok(Saving::Async),
        "in_place" => Ok(Saving::InPlace),
        other => Err(raise(py, Failure::new(ErrorCode::Internal, format!("`{other}` is no way of saving")))),
    }
}
