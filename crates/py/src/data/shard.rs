//! The part of a data set that one rank reads: `carril_data::Shard` for Python.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use carril_data::{Cut, DataError, NextBatch, Progress, ShardOptions, Watch, carried, positions};
use carril_store::Manifest;
use carril_types::{ErrorCode, Failure};
use pyo3::prelude::*;

use super::block::{Block, failed};
use super::stream::{POLL, Source, Transform, makes_own, pipeline};
use super::watch::Watcher;
use crate::errors::raise;
use crate::session::Session;

/// Where the ranks of a data set were when a checkpoint was made.
#[pyclass(frozen, module = "carril._native")]
pub struct Positions {
    ranks: Vec<Option<Progress>>,
}

#[pymethods]
impl Positions {
    /// Out of the bytes of a manifest, whose checksum is verified.
    #[staticmethod]
    fn of_manifest(py: Python<'_>, manifest: &[u8], checkpoint: &str, name: &str) -> PyResult<Self> {
        let manifest = Manifest::from_bytes(manifest).map_err(|damage| {
            let told = format!("`{checkpoint}` does not say how far `{name}` was read: {damage}");
            raise(py, Failure::new(ErrorCode::Checkpoint, told))
        })?;
        let ranks = positions(&manifest.data_position, name).map_err(|error| failed(py, error))?;
        Ok(Self { ranks })
    }

    fn __len__(&self) -> usize {
        self.ranks.len()
    }

    /// Of one rank alone, for a data set that each of them reads whole: one that is new goes on from another's place.
    fn of_rank(&self, rank: usize) -> Self {
        let ranks = self.ranks.get(rank % self.ranks.len().max(1)).cloned();
        Self { ranks: ranks.into_iter().collect() }
    }

    /// What a rank saves that has not asked for the data set since it resumed, as JSON.
    fn carried(&self) -> Option<String> {
        carried(&self.ranks).map(|progress| serde_json::to_string(&progress).expect("numbers are always JSON"))
    }
}

#[pyclass(frozen, module = "carril._native")]
pub struct Shard {
    inner: Arc<carril_data::Shard>,
    is_own: bool,
}

#[pymethods]
impl Shard {
    /// `options` is JSON, as `ShardOptions` has it. `session` is asked after ranks that do not read.
    #[new]
    fn new(
        py: Python<'_>,
        source: PyRef<'_, Source>,
        transforms: Vec<PyRef<'_, Transform>>,
        options: &str,
        saved: Option<PyRef<'_, Positions>>,
        session: Option<PyRef<'_, Session>>,
    ) -> PyResult<Self> {
        let mut options: ShardOptions = serde_json::from_str(options)
            .map_err(|error| failed(py, DataError::invalid(format!("what to deal is not understood: {error}"))))?;
        options.warn = |text| eprintln!("carril: {text}");
        options.watch = session.map(|session| Arc::new(Watcher(session.inner.clone())) as Arc<dyn Watch>);
        let is_own = source.is_own || makes_own(&transforms);
        let saved = saved.as_ref().map_or(&[][..], |saved| &saved.ranks);
        let inner = carril_data::Shard::new(pipeline(&source, &transforms), options, saved);
        Ok(Self { inner: inner.map_err(|error| failed(py, error))?, is_own })
    }

    /// What a checkpoint keeps, as JSON.
    fn progress(&self) -> String {
        serde_json::to_string(&self.inner.progress()).expect("numbers are always JSON")
    }

    #[getter]
    fn epoch(&self) -> u64 {
        self.inner.epoch()
    }

    /// The next epoch, or what is left of one. `cut` is JSON: `{"batch_size", "drop_last", "local_shuffle"}`.
    fn begin(&self, py: Python<'_>, cut: &str) -> PyResult<Epoch> {
        let cut: Cut = serde_json::from_str(cut)
            .map_err(|error| failed(py, DataError::invalid(format!("how to cut is not understood: {error}"))))?;
        let epoch = py.detach(|| self.inner.begin(cut)).map_err(|error| failed(py, error))?;
        Ok(Epoch { inner: Mutex::new(epoch), is_own: self.is_own })
    }
}

/// One pass over a shard. It leaves the other ranks when it goes before its end.
#[pyclass(frozen, module = "carril._native")]
pub struct Epoch {
    inner: Mutex<carril_data::Epoch>,
    is_own: bool,
}

impl Epoch {
    fn inner(&self) -> MutexGuard<'_, carril_data::Epoch> {
        self.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[pymethods]
impl Epoch {
    /// The next batch, or nothing at the end.
    fn next(&self, py: Python<'_>) -> PyResult<Option<Block>> {
        loop {
            let next = py.detach(|| self.inner().next(POLL));
            match next.map_err(|error| failed(py, error))? {
                NextBatch::Batch(batch) => return Ok(Some(Block { batch, is_own: self.is_own })),
                NextBatch::Ended => return Ok(None),
                NextBatch::Pending => py.check_signals()?,
            }
        }
    }

    /// Of the last batch only so many rows are handed over yet.
    fn hand_over(&self, rows: usize) {
        self.inner().hand_over(rows);
    }

    /// The number of this epoch, from 0.
    #[getter]
    fn number(&self) -> u64 {
        self.inner().epoch()
    }

    /// How many rows of its part of the epoch this rank was handed, and how many it has; None where rows are not counted.
    #[getter]
    fn rows_read(&self) -> Option<(u64, u64)> {
        self.inner().rows_read()
    }

    /// Counted rows that nobody gets, because they do not fill a row for each rank.
    #[getter]
    fn rest(&self) -> u64 {
        self.inner().rest()
    }

    /// How many rows this rank was handed or dropped itself, and how many of its rows were left out because another rank had no more.
    #[getter]
    fn left_out(&self) -> (u64, u64) {
        self.inner().left_out()
    }
}
