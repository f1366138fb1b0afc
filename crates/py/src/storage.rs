//! Storage for the driver and the workers: what `Checkpoint` and `Result` read from and write to.

use std::path::{Path, PathBuf};

use carril_store::StoreError;
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

    fn download_directory(&self, py: Python<'_>, directory: PathBuf) -> PyResult<()> {
        let storage = self.inner.clone();
        aside(py, move || carril_store::download(&storage, &directory).map(drop))
    }

    fn delete_all(&self, py: Python<'_>) -> PyResult<()> {
        let storage = self.inner.clone();
        aside(py, move || storage.delete_all())
    }

    fn checkpoints<'py>(&self, py: Python<'py>) -> PyResult<Vec<Bound<'py, PyDict>>> {
        let storage = self.inner.clone();
        let listed = aside(py, move || carril_store::list_checkpoints(&storage))?;
        listed.into_iter().map(|listed| events::listed(py, listed)).collect()
    }
}

fn files_below(root: &Path) -> Result<Vec<(PathBuf, String)>, StoreError> {
    let local = carril_store::Storage::open(&root.display().to_string(), None)?;
    Ok(local.list()?.into_iter().map(|entry| (root.join(&entry.key), entry.key)).collect())
}
