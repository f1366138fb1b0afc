//! A block: columns of equal length, as Arrow holds them, and the ways in and out.

use std::ffi::{CStr, c_int, c_void};
use std::io::Cursor;
use std::sync::Arc;

use arrow_array::ffi::{FFI_ArrowSchema, to_ffi};
use arrow_array::ffi_stream::{FFI_ArrowArrayStream, RecordBatchStreamReader};
use arrow_array::{Array, RecordBatch, RecordBatchIterator, RecordBatchOptions, RecordBatchReader, StructArray};
use arrow_ipc::reader::StreamReader;
use arrow_ipc::writer::StreamWriter;
use arrow_schema::{ArrowError, Schema};
use carril_data::{DataError, alike, joined, object};
use pyo3::IntoPyObjectExt;
use pyo3::exceptions::{PyBufferError, PyIndexError, PyTypeError};
use pyo3::ffi;
use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyCapsule, PyDict, PyList};

use super::{export, import};
use crate::errors::{raise, raise_as};

const STREAM: &CStr = c"arrow_array_stream";
const SCHEMA: &CStr = c"arrow_schema";
const ARRAY: &CStr = c"arrow_array";

#[pyclass(frozen, module = "carril._native")]
pub struct Block {
    pub batch: RecordBatch,
    /// Nobody else looks at its buffers: numpy may write into them.
    pub is_own: bool,
}

pub fn failed(py: Python<'_>, error: impl Into<DataError>) -> PyErr {
    match error.into() {
        DataError::Raised { failure, pickle } => raise_as(py, *failure, &pickle),
        other => raise(py, other.into()),
    }
}

#[pymethods]
impl Block {
    /// Of `(name, column)`, where a column is what `import` takes.
    #[staticmethod]
    fn of_columns(py: Python<'_>, columns: Vec<(String, Bound<'_, PyAny>)>, rows: usize) -> PyResult<Self> {
        let mut fields = Vec::with_capacity(columns.len());
        let mut arrays = Vec::with_capacity(columns.len());
        for (name, column) in &columns {
            let (field, array) = import::column(py, name, column)?;
            fields.push(field);
            arrays.push(array);
        }
        let options = RecordBatchOptions::new().with_row_count(Some(rows));
        let made = RecordBatch::try_new_with_options(Arc::new(Schema::new(fields)), arrays, &options);
        Ok(Self { batch: made.map_err(|error| failed(py, error))?, is_own: false })
    }

    /// Of anything that speaks Arrow's C interface: a table, a record batch, a data frame.
    #[staticmethod]
    fn of_arrow(py: Python<'_>, given: &Bound<'_, PyAny>) -> PyResult<Vec<Block>> {
        let capsule = given.call_method0("__arrow_c_stream__")?.cast_into::<PyCapsule>()?;
        let stream = capsule.pointer_checked(Some(STREAM))?.as_ptr().cast::<FFI_ArrowArrayStream>();
        // SAFETY: the capsule has the name that Arrow's interface gives to a stream, and `from_raw` takes the stream out of it.
        let reader = unsafe { RecordBatchStreamReader::from_raw(stream) }.map_err(|error| failed(py, error))?;
        let fields: Vec<_> = reader.schema().fields().iter().map(object::without_mark).collect();
        let schema = Arc::new(Schema::new_with_metadata(fields, reader.schema().metadata().clone()));
        let block = |batch: Result<RecordBatch, ArrowError>| {
            let batch = batch.and_then(|batch| {
                let options = RecordBatchOptions::new().with_row_count(Some(batch.num_rows()));
                RecordBatch::try_new_with_options(schema.clone(), batch.columns().to_vec(), &options)
            });
            Ok(Block { batch: batch.map_err(|error| failed(py, error))?, is_own: false })
        };
        let blocks = reader.map(block).collect::<PyResult<Vec<_>>>()?;
        // A table without rows still has columns.
        Ok(if blocks.is_empty() {
            vec![Block { batch: RecordBatch::new_empty(schema), is_own: false }]
        } else {
            blocks
        })
    }

    #[staticmethod]
    fn of_ipc(py: Python<'_>, data: &[u8]) -> PyResult<Block> {
        let batch = read_ipc(data).map_err(|error| failed(py, error))?;
        Ok(Block { batch, is_own: true })
    }

    #[staticmethod]
    fn concat(py: Python<'_>, blocks: Vec<PyRef<'_, Block>>) -> PyResult<Block> {
        let batches: Vec<RecordBatch> = blocks.iter().map(|block| block.batch.clone()).collect();
        if batches.is_empty() {
            return Err(PyIndexError::new_err("no block is given"));
        }
        let is_own = batches.len() > 1;
        let batch = joined(batches).map_err(|error| failed(py, error))?;
        Ok(Block { batch, is_own })
    }

    /// The same blocks, with the columns that hold what is in all of them.
    #[staticmethod]
    fn alike(py: Python<'_>, blocks: Vec<PyRef<'_, Block>>) -> PyResult<Vec<Block>> {
        let batches: Vec<RecordBatch> = blocks.iter().map(|block| block.batch.clone()).collect();
        let made = alike(batches).map_err(|error| failed(py, error))?;
        Ok(made.into_iter().map(|batch| Block { batch, is_own: false }).collect())
    }

    fn __len__(&self) -> usize {
        self.batch.num_rows()
    }

    #[getter]
    fn names(&self) -> Vec<String> {
        self.batch.schema().fields().iter().map(|field| field.name().clone()).collect()
    }

    /// The types of the columns as Arrow writes them.
    #[getter]
    fn types(&self) -> Vec<String> {
        self.batch.schema().fields().iter().map(|field| export::type_name(field)).collect()
    }

    #[getter]
    fn bytes(&self) -> u64 {
        carril_data::bytes_of(&self.batch)
    }

    /// Its columns, and those of another one with as many rows.
    fn beside(&self, py: Python<'_>, other: PyRef<'_, Block>) -> PyResult<Block> {
        let fields =
            self.batch.schema().fields().iter().chain(other.batch.schema().fields()).cloned().collect::<Vec<_>>();
        let columns = self.batch.columns().iter().chain(other.batch.columns()).cloned().collect();
        let batch = RecordBatch::try_new(Arc::new(Schema::new(fields)), columns).map_err(|error| failed(py, error))?;
        Ok(Block { batch, is_own: self.is_own && other.is_own })
    }

    fn slice(&self, begin: usize, rows: usize) -> PyResult<Block> {
        if begin + rows > self.batch.num_rows() {
            return Err(PyIndexError::new_err(format!(
                "a block of {} rows has no rows {begin} to {}",
                self.batch.num_rows(),
                begin + rows
            )));
        }
        Ok(Block { batch: self.batch.slice(begin, rows), is_own: false })
    }

    /// The rows at these places.
    fn take(&self, py: Python<'_>, places: Vec<u32>) -> PyResult<Block> {
        let places = arrow_array::UInt32Array::from(places);
        let taken = arrow_select::take::take_record_batch(&self.batch, &places);
        Ok(Block { batch: taken.map_err(|error| failed(py, error))?, is_own: true })
    }

    /// A column for numpy, as `export` tells.
    fn column<'py>(&self, py: Python<'py>, number: usize) -> PyResult<Bound<'py, PyAny>> {
        let (array, field) = (self.batch.column(number), self.batch.schema_ref().field(number));
        if object::is_object(field) {
            return ("list", export::objects(py, array)?).into_bound_py_any(py);
        }
        export::column(py, array, field, self.is_own)
    }

    /// A column as Python's own values.
    fn values<'py>(&self, py: Python<'py>, number: usize) -> PyResult<Bound<'py, PyList>> {
        let (array, field) = (self.batch.column(number), self.batch.schema_ref().field(number));
        if object::is_object(field) { export::objects(py, array) } else { export::values(py, array, field) }
    }

    fn to_ipc<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyBytes>> {
        let bytes = write_ipc(&self.batch).map_err(|error| failed(py, error))?;
        Ok(PyBytes::new(py, &bytes))
    }

    /// Pickled by its bytes.
    fn __reduce__<'py>(slf: Bound<'py, Self>) -> PyResult<(Bound<'py, PyAny>, (Bound<'py, PyBytes>,))> {
        let py = slf.py();
        let made = py.get_type::<Block>().getattr("of_ipc")?;
        Ok((made, (slf.get().to_ipc(py)?,)))
    }

    #[pyo3(signature = (requested_schema=None))]
    fn __arrow_c_stream__<'py>(
        &self,
        py: Python<'py>,
        requested_schema: Option<Bound<'py, PyAny>>,
    ) -> PyResult<Bound<'py, PyCapsule>> {
        let _ = requested_schema;
        let schema = self.batch.schema();
        let reader = RecordBatchIterator::new(vec![Ok(self.batch.clone())], schema);
        PyCapsule::new_with_value(py, FFI_ArrowArrayStream::new(Box::new(reader)), STREAM)
    }

    #[pyo3(signature = (requested_schema=None))]
    fn __arrow_c_array__<'py>(
        &self,
        py: Python<'py>,
        requested_schema: Option<Bound<'py, PyAny>>,
    ) -> PyResult<(Bound<'py, PyCapsule>, Bound<'py, PyCapsule>)> {
        let _ = requested_schema;
        let data = StructArray::from(self.batch.clone()).into_data();
        let (array, _) = to_ffi(&data).map_err(|error| failed(py, error))?;
        let schema = FFI_ArrowSchema::try_from(self.batch.schema().as_ref()).map_err(|error| failed(py, error))?;
        let schema = PyCapsule::new_with_value(py, schema, SCHEMA)?;
        Ok((schema, PyCapsule::new_with_value(py, array, ARRAY)?))
    }

    /// Columns under other names, in this order: `(there, here)`.
    fn project(&self, py: Python<'_>, columns: Vec<(String, String)>) -> PyResult<Block> {
        let batch = carril_data::project(&self.batch, &columns).map_err(|error| failed(py, error))?;
        Ok(Block { batch, is_own: self.is_own })
    }

    fn __repr__(&self) -> String {
        format!("<Block of {} rows, {} columns>", self.batch.num_rows(), self.batch.num_columns())
    }
}

pub fn write_ipc(batch: &RecordBatch) -> Result<Vec<u8>, ArrowError> {
    let mut writer = StreamWriter::try_new(Vec::new(), &batch.schema())?;
    writer.write(batch)?;
    writer.into_inner()
}

pub fn read_ipc(data: &[u8]) -> Result<RecordBatch, DataError> {
    let mut reader = StreamReader::try_new(Cursor::new(data), None)?;
    match reader.next() {
        Some(batch) => Ok(batch?),
        None => Ok(RecordBatch::new_empty(reader.schema())),
    }
}

/// Schema of a block, as a dictionary of names and types.
pub fn schema_of<'py>(py: Python<'py>, schema: &Schema) -> PyResult<Bound<'py, PyDict>> {
    let types = PyDict::new(py);
    for field in schema.fields() {
        types.set_item(field.name(), export::type_name(field))?;
    }
    Ok(types)
}

/// Memory of a column that numpy looks at.
#[pyclass(frozen, module = "carril._native")]
pub struct Buffer {
    pub memory: arrow_buffer::Buffer,
    pub is_own: bool,
}

#[pymethods]
impl Buffer {
    fn __len__(&self) -> usize {
        self.memory.len()
    }

    /// # Safety
    /// As Python's buffer protocol asks: `view` is Python's to fill.
    unsafe fn __getbuffer__(slf: Bound<'_, Self>, view: *mut ffi::Py_buffer, flags: c_int) -> PyResult<()> {
        if view.is_null() {
            return Err(PyBufferError::new_err("no view is given"));
        }
        let this = slf.get();
        let pointer = this.memory.as_ptr().cast_mut().cast::<c_void>();
        let length = this.memory.len() as ffi::Py_ssize_t;
        // SAFETY: the memory lives as long as this object, to which the view holds a reference. It is given as writable only
        // where nothing else of ours reads it.
        let filled =
            unsafe { ffi::PyBuffer_FillInfo(view, slf.as_ptr(), pointer, length, c_int::from(!this.is_own), flags) };
        if filled == 0 { Ok(()) } else { Err(PyErr::fetch(slf.py())) }
    }
}

pub fn wrong_type(what: impl Into<String>) -> PyErr {
    PyTypeError::new_err(what.into())
}
