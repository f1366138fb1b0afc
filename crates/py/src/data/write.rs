//! The writers of files, block by block.

use std::sync::{Mutex, MutexGuard, PoisonError};

use carril_data::DataError;
use carril_data::write::{WriteSpec, Writer as Inner};
use pyo3::prelude::*;

use super::block::{Block, failed};

/// Files below a directory. What it has made is removed when it goes without having been finished.
#[pyclass(frozen, module = "carril._native")]
pub struct Writer {
    inner: Mutex<Inner>,
}

impl Writer {
    fn inner(&self) -> MutexGuard<'_, Inner> {
        self.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[pymethods]
impl Writer {
    /// What is written, as JSON; nothing where files are there that are to be left alone.
    #[staticmethod]
    fn open(py: Python<'_>, spec: &str) -> PyResult<Option<Self>> {
        let spec: WriteSpec = serde_json::from_str(spec)
            .map_err(|error| failed(py, DataError::invalid(format!("what to write is not understood: {error}"))))?;
        let opened = py.detach(|| Inner::open(spec)).map_err(|error| failed(py, error))?;
        Ok(opened.map(|inner| Self { inner: Mutex::new(inner) }))
    }

    /// `name` is that of the file which the block begins, if it begins one.
    #[pyo3(signature = (block, name=None))]
    fn write(&self, py: Python<'_>, block: PyRef<'_, Block>, name: Option<String>) -> PyResult<()> {
        let batch = block.batch.clone();
        py.detach(|| self.inner().write(&batch, name.as_deref())).map_err(|error| failed(py, error))?;
        py.check_signals()
    }

    /// The files that were written. `empty` has the columns, for the case that there were no rows.
    #[pyo3(signature = (empty=None))]
    fn finish(&self, py: Python<'_>, empty: Option<PyRef<'_, Block>>) -> PyResult<Vec<String>> {
        let empty = empty.map(|block| block.batch.clone());
        let written = py.detach(|| self.inner().finish(empty.as_ref())).map_err(|error| failed(py, error))?;
        Ok(written.files)
    }

    fn give_up(&self, py: Python<'_>) {
        py.detach(|| self.inner().give_up());
    }
}
