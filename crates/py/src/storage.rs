//! Storage for the driver and the workers: what `Checkpoint` and `Result` read from and write to.

use std::path::{Path, PathBuf};

use carril_store::{Entry, History, Journal, StoreError, Trust};
use carril_types::{ErrorCode, Failure};
use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyDict};

use crate::door::{leave, runtime};
use crate::errors::raise;
use crate::events;

#[pyclass(frozen, module = "carril._native")]
pub struct Storage {
    inner: carril_store::Storage,
}

/// Does what blocks on another thread, so that signals are seen meanwhile.
fn aside<T: Send + 'static>(
    py: Python<'_>,
    work: impl FnOnce() -> Result<T, StoreError> + Send + 'static,
) -> PyResult<T> {
    let runtime = runtime().map_err(|failure| raise(py, failure))?;
    leave(py, runtime.handle(), async {
        let done = tokio::task::spawn_blocking(work).await;
        let cut_short = |error| Failure::new(ErrorCode::Internal, format!("the work on storage did not end: {error}"));
        Ok(done.map_err(cut_short)??)
    })
}

/// Whether a head has the experiment of this `experiment.json`, as far as can be seen from here; None where no owner is recorded.
#[pyfunction]
pub fn is_experiment_live(record: &str) -> Option<bool> {
    let summary = carril_store::ExperimentSummary::parse(record)?;
    summary.owner.as_ref()?;
    Some(summary.is_live() == Some(true))
}

/// The lines of an experiment that is over, with what the directories of its trials say besides; None where they say nothing more.
#[pyfunction]
pub fn completed_lines(py: Python<'_>, location: String) -> PyResult<Option<String>> {
    aside(py, move || carril_store::Experiment::completed_lines(carril_store::Storage::open(&location, None)?))
}

/// The states of a trial by name, each with whether it is over, in the order in which they are told.
#[pyfunction]
pub fn trial_states() -> Vec<(&'static str, bool)> {
    let states = carril_store::TrialState::ALL.map(|state| (state.word(), state.is_over()));
    states.into_iter().chain([(carril_store::UNFINISHED, false)]).collect()
}

#[pymethods]
impl Storage {
    #[new]
    fn new(py: Python<'_>, location: String) -> PyResult<Self> {
        let inner = carril_store::Storage::open(&location, None).map_err(|error| raise(py, error.into()))?;
        Ok(Self { inner })
    }

    #[getter]
    fn location(&self) -> &str {
        self.inner.location()
    }

    fn join(&self, key: &str) -> Self {
        Self { inner: self.inner.join(key) }
    }

    fn read<'py>(&self, py: Python<'py>, key: String) -> PyResult<Option<Bound<'py, PyBytes>>> {
        let storage = self.inner.clone();
        let bytes = aside(py, move || storage.read(&key))?;
        Ok(bytes.map(|bytes| PyBytes::new(py, &bytes)))
    }

    fn write(&self, py: Python<'_>, key: String, data: Vec<u8>) -> PyResult<()> {
        let storage = self.inner.clone();
        aside(py, move || storage.write(&key, &data))
    }

    fn list(&self, py: Python<'_>) -> PyResult<Vec<(String, u64)>> {
        let storage = self.inner.clone();
        let entries = aside(py, move || storage.list())?;
        Ok(entries.into_iter().map(|entry| (entry.key, entry.size)).collect())
    }

    fn names(&self, py: Python<'_>) -> PyResult<Vec<String>> {
        let storage = self.inner.clone();
        aside(py, move || storage.names())
    }

    fn upload_directory(&self, py: Python<'_>, directory: PathBuf) -> PyResult<()> {
        let storage = self.inner.clone();
        aside(py, move || storage.upload_all(&files_below(&directory)?).map(drop))
    }

    fn download_directory(&self, py: Python<'_>, directory: PathBuf, verify: bool) -> PyResult<()> {
        let storage = self.inner.clone();
        aside(py, move || carril_store::download(&storage, &directory, trust(verify)).map(drop))
    }

    fn check(&self, py: Python<'_>, shared: Option<PathBuf>) -> PyResult<()> {
        let storage = self.inner.clone();
        aside(py, move || carril_store::check(&storage, shared.as_deref()))
    }

    fn delete_all(&self, py: Python<'_>) -> PyResult<()> {
        let storage = self.inner.clone();
        aside(py, move || storage.delete_all())
    }

    fn checkpoints<'py>(&self, py: Python<'py>, verify: bool) -> PyResult<Vec<Bound<'py, PyDict>>> {
        let storage = self.inner.clone();
        let list = if verify { carril_store::list_checkpoints } else { carril_store::list_unverified };
        let listed = aside(py, move || list(&storage))?;
        listed.into_iter().map(|listed| events::listed(py, listed)).collect()
    }
}

fn trust(verify: bool) -> Trust {
    if verify { Trust::Compare } else { Trust::Blindly }
}

/// Name, manifest, and the files that are there with their sizes.
type Brought = (String, Vec<u8>, Vec<(String, u64)>);

#[pyfunction]
pub fn list_manifests(py: Python<'_>, manifests: Vec<Brought>, verify: bool) -> PyResult<Vec<Bound<'_, PyDict>>> {
    let entries = |files: Vec<(String, u64)>| files.into_iter().map(|(key, size)| Entry { key, size }).collect();
    let brought = manifests.into_iter().map(|(name, bytes, files)| (name, bytes, entries(files)));
    let listed = carril_store::list_manifests(brought.collect(), trust(verify));
    let listed = listed.map_err(|error| raise(py, error.into()))?;
    listed.into_iter().map(|listed| events::listed(py, listed)).collect()
}

/// What the journal tells of the last `fit()`: its segments, oldest first.
#[pyfunction]
pub fn read_restarts(py: Python<'_>, segments: Vec<Vec<u8>>) -> PyResult<Vec<Bound<'_, PyDict>>> {
    let history = History::replay(segments.iter().flat_map(|segment| Journal::parse(segment)));
    let restarts = history.restarts.into_iter().map(|(at, restart)| {
        let dict = PyDict::new(py);
        dict.set_item("attempt", restart.attempt.0)?;
        dict.set_item("reason", restart.reason)?;
        dict.set_item("code", restart.code.name())?;
        dict.set_item("at", at)?;
        Ok(dict)
    });
    restarts.collect()
}

/// The hash by which `run.json` names the files that it keeps.
#[pyfunction]
pub fn blob_hash(data: &[u8]) -> String {
    carril_store::blob_hash(data)
}

#[pyfunction]
pub fn check_file(py: Python<'_>, location: &str, manifest: &[u8], key: &str, data: Option<&[u8]>) -> PyResult<()> {
    let checked = carril_store::check_file(manifest, key, data);
    checked.map_err(|damage| raise(py, StoreError::damaged(location, damage).into()))
}

#[pyfunction]
pub fn amend_manifest<'py>(
    py: Python<'py>,
    location: &str,
    manifest: &[u8],
    key: &str,
    data: Option<&[u8]>,
) -> PyResult<Option<Bound<'py, PyBytes>>> {
    let amended = carril_store::amend_manifest(manifest, key, data);
    let amended = amended.map_err(|damage| raise(py, StoreError::damaged(location, damage).into()))?;
    Ok(amended.map(|bytes| PyBytes::new(py, &bytes)))
}

fn files_below(root: &Path) -> Result<Vec<(PathBuf, String)>, StoreError> {
    let local = carril_store::Storage::open(&root.display().to_string(), None)?;
    Ok(local.list()?.into_iter().map(|entry| (root.join(&entry.key), entry.key)).collect())
}
