//! Sources, and streams of batches out of them.

use std::fs::File;
use std::mem::ManuallyDrop;
use std::os::fd::{FromRawFd, OwnedFd};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use arrow_array::RecordBatch;
use arrow_schema::Schema;
use carril_data::mapper::{self, Pool};
use carril_data::read::ReadSpec;
use carril_data::read::memory::Blocks;
use carril_data::{Columns, DataError, NextBatch, Pass, PassSpec, Pipeline, Selection, Subset};
use pyo3::prelude::*;
use pyo3::types::{PyDict, PyList};

use super::block::{Block, failed, schema_of};

/// How long Ctrl-C may go unnoticed.
pub(super) const POLL: Duration = Duration::from_millis(100);

#[pyclass(frozen, module = "carril._native")]
pub struct Source {
    pub inner: Arc<dyn carril_data::Source>,
    /// Every batch of it is in memory of its own.
    pub(super) is_own: bool,
}

#[pymethods]
impl Source {
    /// What is read, as JSON.
    #[staticmethod]
    fn open(py: Python<'_>, spec: &str) -> PyResult<Self> {
        let spec: ReadSpec = serde_json::from_str(spec)
            .map_err(|error| failed(py, DataError::invalid(format!("what to read is not understood: {error}"))))?;
        let inner = py.detach(|| spec.open()).map_err(|error| failed(py, error))?;
        Ok(Self { inner, is_own: true })
    }

    #[staticmethod]
    fn of_blocks(py: Python<'_>, blocks: Vec<PyRef<'_, Block>>) -> PyResult<Self> {
        let batches: Vec<RecordBatch> = blocks.iter().map(|block| block.batch.clone()).collect();
        let schema = batches.first().map_or_else(|| Arc::new(Schema::empty()), RecordBatch::schema);
        let inner = Arc::new(Blocks::new(schema, batches).map_err(|error| failed(py, error))?);
        Ok(Self { inner, is_own: false })
    }

    /// The rows of each unit; those that are not known are counted by reading.
    fn count(&self, py: Python<'_>, threads: usize) -> PyResult<Vec<u64>> {
        py.detach(|| carril_data::count(&*self.inner, threads)).map_err(|error| failed(py, error))
    }

    /// Some of the rows, as JSON says which: `{"range": {"begin", "end"}}`, or `{"chance": {"rows", "seed", "others"}}`.
    /// `rows` is what `count` gave.
    fn subset(&self, py: Python<'_>, selection: &str, rows: Vec<u64>) -> PyResult<Self> {
        let selection: Selection = serde_json::from_str(selection)
            .map_err(|error| failed(py, DataError::invalid(format!("which rows is not understood: {error}"))))?;
        let made = Subset::new(self.inner.clone(), selection, &rows).map_err(|error| failed(py, error))?;
        Ok(Self { inner: Arc::new(made), is_own: self.is_own })
    }

    /// Several one behind the other, each with what becomes of it; all have the columns of `empty`.
    #[staticmethod]
    fn union(parts: Vec<(PyRef<'_, Source>, Vec<PyRef<'_, Transform>>)>, empty: PyRef<'_, Block>) -> Self {
        let is_own = parts.iter().all(|(source, transforms)| source.is_own || makes_own(transforms));
        let pipelines = parts.iter().map(|(source, transforms)| pipeline(source, transforms)).collect();
        Self { inner: Arc::new(carril_data::Union::new(empty.batch.schema_ref(), pipelines)), is_own }
    }

    fn schema<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyDict>> {
        schema_of(py, &self.inner.schema())
    }

    /// A block without rows, for those who want the types themselves.
    fn empty(&self) -> Block {
        Block { batch: RecordBatch::new_empty(self.inner.schema()), is_own: false }
    }

    /// Rows, where they are known, and bytes of each unit.
    fn units<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyList>> {
        PyList::new(py, self.inner.units().iter().map(|unit| (unit.rows, unit.bytes)))
    }

    fn files(&self) -> Vec<String> {
        self.inner.files()
    }

    /// What was damaged and passed over so far.
    fn warnings(&self) -> Vec<String> {
        self.inner.warnings()
    }
}

/// What becomes of blocks: columns, or functions in processes.
#[pyclass(frozen, module = "carril._native")]
pub struct Transform {
    inner: Arc<dyn carril_data::Transform>,
}

#[pymethods]
impl Transform {
    /// As JSON: `{"select": […]}`, `{"drop": […]}`, `{"rename": [[there, here], …]}`.
    #[staticmethod]
    fn columns(py: Python<'_>, spec: &str) -> PyResult<Self> {
        let columns: Columns = serde_json::from_str(spec)
            .map_err(|error| failed(py, DataError::invalid(format!("which columns is not understood: {error}"))))?;
        Ok(Self { inner: Arc::new(columns) })
    }

    /// On one block that gives one block: for its columns.
    fn apply(&self, py: Python<'_>, block: PyRef<'_, Block>) -> PyResult<Block> {
        let mut made = self.inner.apply(block.batch.clone()).map_err(|error| failed(py, error))?;
        match made.pop() {
            Some(batch) if made.is_empty() => Ok(Block { batch, is_own: false }),
            _ => Err(failed(py, DataError::invalid("several blocks were made of one"))),
        }
    }

    /// Of so many processes, forked by the one at the other end of a socket. The descriptor is ours from now on.
    #[staticmethod]
    fn pool(py: Python<'_>, control: i32, processes: usize, keeps_rows: bool) -> PyResult<Self> {
        // SAFETY: the caller has detached it from its own object.
        let control = unsafe { OwnedFd::from_raw_fd(control) };
        let pool = Pool::start(control.into(), processes, keeps_rows).map_err(|error| failed(py, error))?;
        Ok(Self { inner: Arc::new(pool) })
    }
}

pub(super) fn pipeline(source: &Source, transforms: &[PyRef<'_, Transform>]) -> Pipeline {
    Pipeline {
        source: source.inner.clone(),
        transforms: transforms.iter().map(|transform| transform.inner.clone()).collect(),
    }
}

/// What a function has made is in memory of its own.
pub(super) fn makes_own(transforms: &[PyRef<'_, Transform>]) -> bool {
    transforms.iter().any(|transform| !transform.inner.shares_memory())
}

/// The blocks in shared memory, for the process on the other side.
#[pyfunction]
pub fn read_blocks(py: Python<'_>, descriptor: i32, count: usize) -> PyResult<Vec<Block>> {
    let mut file = borrowed(descriptor);
    let blocks = mapper::read_blocks(&mut file, count).map_err(|error| failed(py, error))?;
    Ok(blocks.into_iter().map(|batch| Block { batch, is_own: true }).collect())
}

#[pyfunction]
pub fn write_blocks(py: Python<'_>, descriptor: i32, blocks: Vec<PyRef<'_, Block>>) -> PyResult<()> {
    let batches: Vec<RecordBatch> = blocks.iter().map(|block| block.batch.clone()).collect();
    mapper::write_blocks(&mut borrowed(descriptor), &batches).map_err(|error| failed(py, error))
}

fn borrowed(descriptor: i32) -> ManuallyDrop<File> {
    // SAFETY: the descriptor is the caller's and stays open: the file is never dropped.
    ManuallyDrop::new(unsafe { File::from_raw_fd(descriptor) })
}

#[pyclass(frozen, module = "carril._native")]
pub struct Stream {
    pass: Mutex<Pass>,
    is_own: bool,
}

impl Stream {
    fn pass(&self) -> MutexGuard<'_, Pass> {
        self.pass.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[pymethods]
impl Stream {
    #[new]
    fn new(
        py: Python<'_>,
        source: PyRef<'_, Source>,
        transforms: Vec<PyRef<'_, Transform>>,
        spec: &str,
    ) -> PyResult<Self> {
        let spec: PassSpec = serde_json::from_str(spec)
            .map_err(|error| failed(py, DataError::invalid(format!("what to stream is not understood: {error}"))))?;
        let is_own = source.is_own || makes_own(&transforms);
        Ok(Self { pass: Mutex::new(Pass::begin(pipeline(&source, &transforms), spec)), is_own })
    }

    /// The next batch, or nothing at the end.
    fn next(&self, py: Python<'_>) -> PyResult<Option<Block>> {
        loop {
            let next = py.detach(|| self.pass().next(POLL));
            match next.map_err(|error| failed(py, error))? {
                NextBatch::Batch(batch) => return Ok(Some(Block { batch, is_own: self.is_own })),
                NextBatch::Ended => return Ok(None),
                NextBatch::Pending => py.check_signals()?,
            }
        }
    }

    /// How many pieces were handed over.
    #[getter(done)]
    fn pieces_done(&self) -> u64 {
        self.pass().position().pieces
    }

    #[getter]
    fn bytes_in_memory(&self) -> u64 {
        self.pass().bytes_in_memory()
    }

    #[getter]
    fn pieces(&self) -> usize {
        self.pass().pieces
    }
}
