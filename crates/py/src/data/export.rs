//! From Arrow to Python: `("plain", dtype, buffer, shape)` where numpy can look at the memory, `("ragged", [plain or nothing])`
//! for tensors and lists of numbers of several lengths or with gaps, `("list", [values])` for the rest.

use std::sync::Arc;

use arrow_array::cast::AsArray;
use arrow_array::types::{
    Decimal32Type, Decimal64Type, Decimal128Type, Decimal256Type, Float16Type, Float32Type, Float64Type, Int8Type,
    Int16Type, Int32Type, Int64Type, UInt8Type, UInt16Type, UInt32Type, UInt64Type,
};
use arrow_array::{Array, ArrayRef, BooleanArray};
use arrow_buffer::ArrowNativeType;
use arrow_cast::cast;
use arrow_schema::{DataType, Field, TimeUnit};
use carril_data::{object, tensor};
use pyo3::IntoPyObjectExt;
use pyo3::prelude::*;
use pyo3::sync::PyOnceLock;
use pyo3::types::{PyBytes, PyDict, PyList, PyString, PyTuple};

use super::block::{Buffer, failed};
use super::times;

/// numpy's name of a type whose values lie one after the other, and their width.
pub fn dtype(kind: &DataType) -> Option<(&'static str, usize)> {
    Some(match kind {
        DataType::Int8 => ("|i1", 1),
        DataType::Int16 => ("<i2", 2),
        DataType::Int32 => ("<i4", 4),
        DataType::Int64 => ("<i8", 8),
        DataType::UInt8 => ("|u1", 1),
        DataType::UInt16 => ("<u2", 2),
        DataType::UInt32 => ("<u4", 4),
        DataType::UInt64 => ("<u8", 8),
        DataType::Float16 => ("<f2", 2),
        DataType::Float32 => ("<f4", 4),
        DataType::Float64 => ("<f8", 8),
        DataType::Timestamp(TimeUnit::Second, _) => ("<M8[s]", 8),
        DataType::Timestamp(TimeUnit::Millisecond, _) | DataType::Date64 => ("<M8[ms]", 8),
        DataType::Timestamp(TimeUnit::Microsecond, _) => ("<M8[us]", 8),
        DataType::Timestamp(TimeUnit::Nanosecond, _) => ("<M8[ns]", 8),
        DataType::Duration(TimeUnit::Second) => ("<m8[s]", 8),
        DataType::Duration(TimeUnit::Millisecond) => ("<m8[ms]", 8),
        DataType::Duration(TimeUnit::Microsecond) => ("<m8[us]", 8),
        DataType::Duration(TimeUnit::Nanosecond) => ("<m8[ns]", 8),
        _ => return None,
    })
}

pub fn type_name(field: &Field) -> String {
    if let (Some(shape), DataType::FixedSizeList(item, _)) = (tensor::fixed_shape(field), field.data_type()) {
        return format!("tensor{shape:?} of {}", item.data_type().to_string().to_lowercase());
    }
    if tensor::is_variable(field) {
        return "tensor of several shapes".to_owned();
    }
    if object::is_object(field) {
        return "object of Python".to_owned();
    }
    match field.data_type() {
        DataType::Utf8 | DataType::LargeUtf8 | DataType::Utf8View => "string".to_owned(),
        DataType::Float32 => "float".to_owned(),
        DataType::Float64 => "double".to_owned(),
        DataType::Boolean => "bool".to_owned(),
        other => lowered(&other.to_string()),
    }
}

/// In small letters, but for what is quoted: the names of zones and fields.
fn lowered(text: &str) -> String {
    let parts = text.split('"').enumerate();
    let parts = parts.map(|(number, part)| if number % 2 == 0 { part.to_lowercase() } else { part.to_owned() });
    parts.collect::<Vec<_>>().join("\"")
}

/// Unpickled. The mark of the column is that of blocks of our own, whose bytes were pickled here.
pub fn objects<'py>(py: Python<'py>, array: &ArrayRef) -> PyResult<Bound<'py, PyList>> {
    static LOADS: PyOnceLock<Py<PyAny>> = PyOnceLock::new();
    let loads = LOADS.import(py, "carril._internal.pickling", "loads")?;
    let made = PyList::empty(py);
    for pickled in array.as_binary::<i32>() {
        match pickled {
            Some(pickled) => made.append(loads.call1((PyBytes::new(py, pickled),))?)?,
            None => made.append(py.None())?,
        }
    }
    Ok(made)
}

type Made<'py> = PyResult<Bound<'py, PyAny>>;

pub fn column<'py>(py: Python<'py>, array: &ArrayRef, field: &Field, is_own: bool) -> Made<'py> {
    let rows = array.len();
    if let Some(shape) = tensor::fixed_shape(field) {
        let list = array.as_fixed_size_list();
        if array.null_count() > 0 {
            return ragged(py, array, |row| (list.value(row), shape.clone()));
        }
        let values = list.values().slice(list.value_offset_at(0), rows * shape.iter().product::<usize>());
        let whole: Vec<usize> = std::iter::once(rows).chain(shape).collect();
        if let Some(made) = plain(py, &values, &whole, is_own)? {
            return Ok(made);
        }
    }
    if tensor::is_variable(field) {
        return ragged_tensors(py, array);
    }
    match array.data_type() {
        DataType::FixedSizeList(item, size) if array.null_count() == 0 && dtype(item.data_type()).is_some() => {
            let list = array.as_fixed_size_list();
            let values = list.values().slice(list.value_offset_at(0), rows * *size as usize);
            if let Some(made) = plain(py, &values, &[rows, *size as usize], is_own)? {
                return Ok(made);
            }
        }
        DataType::List(item) if dtype(item.data_type()).is_some() => {
            let list = array.as_list::<i32>();
            if list.values().null_count() == 0 {
                return ragged(py, array, |row| (list.value(row), vec![list.value_length(row) as usize]));
            }
        }
        DataType::Dictionary(_, values) => {
            let plain = cast(array, values).map_err(|error| failed(py, error))?;
            return column(py, &plain, &Field::new(field.name(), (**values).clone(), true), is_own);
        }
        _ => {
            if let Some(made) = plain(py, array, &[rows], is_own)? {
                return Ok(made);
            }
        }
    }
    ("list", values(py, array, field)?).into_bound_py_any(py)
}

/// Numbers as they lie in memory; whole numbers with gaps become floats, as pandas has it.
fn plain<'py>(py: Python<'py>, array: &ArrayRef, shape: &[usize], is_own: bool) -> PyResult<Option<Bound<'py, PyAny>>> {
    let shape = PyTuple::new(py, shape)?;
    if let Some(flags) = array.as_any().downcast_ref::<BooleanArray>() {
        if flags.null_count() > 0 {
            return Ok(None);
        }
        let bytes: Vec<u8> = flags.values().iter().map(u8::from).collect();
        let buffer = Buffer { memory: arrow_buffer::Buffer::from_vec(bytes), is_own: true };
        return Ok(Some(("plain", "|b1", buffer, shape).into_bound_py_any(py)?));
    }
    let Some((name, width)) = dtype(array.data_type()) else { return Ok(None) };
    if array.null_count() == 0 {
        let data = array.to_data();
        let memory = data.buffers()[0].slice_with_length(data.offset() * width, data.len() * width);
        return Ok(Some(("plain", name, Buffer { memory, is_own }, shape).into_bound_py_any(py)?));
    }
    if name.contains('M') || name.contains('m') {
        let whole = cast(array, &DataType::Int64).map_err(|error| failed(py, error))?;
        let whole = whole.as_primitive::<Int64Type>();
        // numpy's "not a time" is the least number.
        let filled: Vec<i64> = whole.iter().map(|value| value.unwrap_or(i64::MIN)).collect();
        let buffer = Buffer { memory: arrow_buffer::Buffer::from_vec(filled), is_own: true };
        return Ok(Some(("plain", name, buffer, shape).into_bound_py_any(py)?));
    }
    let (kept, name) = match array.data_type() {
        DataType::Float32 => (DataType::Float32, "<f4"),
        DataType::Float16 => (DataType::Float32, "<f4"),
        _ => (DataType::Float64, "<f8"),
    };
    let floats = cast(array, &kept).map_err(|error| failed(py, error))?;
    let memory = match kept {
        DataType::Float32 => with_gaps(floats.as_primitive::<Float32Type>().iter(), f32::NAN),
        _ => with_gaps(floats.as_primitive::<Float64Type>().iter(), f64::NAN),
    };
    Ok(Some(("plain", name, Buffer { memory, is_own: true }, shape).into_bound_py_any(py)?))
}

fn with_gaps<T: ArrowNativeType>(values: impl Iterator<Item = Option<T>>, gap: T) -> arrow_buffer::Buffer {
    arrow_buffer::Buffer::from_vec(values.map(|value| value.unwrap_or(gap)).collect::<Vec<T>>())
}

/// Each row by itself, with its shape; nothing for one that is missing.
fn ragged<'py>(py: Python<'py>, array: &ArrayRef, row: impl Fn(usize) -> (ArrayRef, Vec<usize>)) -> Made<'py> {
    let parts = PyList::empty(py);
    for number in 0..array.len() {
        if array.is_null(number) {
            parts.append(py.None())?;
            continue;
        }
        let (values, shape) = row(number);
        parts.append(plain(py, &values, &shape, false)?)?;
    }
    ("ragged", parts).into_bound_py_any(py)
}

fn ragged_tensors<'py>(py: Python<'py>, array: &ArrayRef) -> Made<'py> {
    let both = array.as_struct();
    let (data, shapes) = (both.column(0).as_list::<i32>(), both.column(1).as_fixed_size_list());
    ragged(py, array, |row| {
        let shape = shapes.value(row);
        let shape = shape.as_primitive::<Int32Type>().values().iter().map(|length| *length as usize).collect();
        (data.value(row), shape)
    })
}

/// The array of numpy's that a tensor inside of other values is.
fn numpy_array<'py>(py: Python<'py>, given: &Bound<'py, PyAny>) -> Made<'py> {
    static TO_ARRAY: PyOnceLock<Py<PyAny>> = PyOnceLock::new();
    TO_ARRAY.import(py, "carril.data._convert", "to_array")?.call1((given,))
}

/// Python's own values, as pyarrow's `to_pylist` has them.
pub fn values<'py>(py: Python<'py>, array: &ArrayRef, field: &Field) -> PyResult<Bound<'py, PyList>> {
    if let DataType::Dictionary(_, kind) = array.data_type() {
        let plain = cast(array, kind).map_err(|error| failed(py, error))?;
        return values(py, &plain, &Field::new(field.name(), (**kind).clone(), true));
    }
    let made = PyList::empty(py);
    for row in 0..array.len() {
        made.append(value(py, array, row, field)?)?;
    }
    Ok(made)
}

fn value<'py>(py: Python<'py>, array: &ArrayRef, row: usize, field: &Field) -> Made<'py> {
    if array.is_null(row) {
        return Ok(py.None().into_bound(py));
    }
    macro_rules! number {
        ($kind:ty) => {
            array.as_primitive::<$kind>().value(row).into_bound_py_any(py)
        };
    }
    macro_rules! decimal {
        ($kind:ty) => {
            decimal(py, &array.as_primitive::<$kind>().value_as_string(row))
        };
    }
    if let Some(made) = times::exported(py, array, row)? {
        return Ok(made);
    }
    match array.data_type() {
        DataType::Null => Ok(py.None().into_bound(py)),
        DataType::Boolean => array.as_boolean().value(row).into_bound_py_any(py),
        DataType::Int8 => number!(Int8Type),
        DataType::Int16 => number!(Int16Type),
        DataType::Int32 => number!(Int32Type),
        DataType::Int64 => number!(Int64Type),
        DataType::UInt8 => number!(UInt8Type),
        DataType::UInt16 => number!(UInt16Type),
        DataType::UInt32 => number!(UInt32Type),
        DataType::UInt64 => number!(UInt64Type),
        DataType::Float16 => array.as_primitive::<Float16Type>().value(row).to_f32().into_bound_py_any(py),
        DataType::Float32 => number!(Float32Type),
        DataType::Float64 => number!(Float64Type),
        DataType::Utf8 => Ok(PyString::new(py, array.as_string::<i32>().value(row)).into_any()),
        DataType::LargeUtf8 => Ok(PyString::new(py, array.as_string::<i64>().value(row)).into_any()),
        DataType::Utf8View => Ok(PyString::new(py, array.as_string_view().value(row)).into_any()),
        DataType::Binary => Ok(PyBytes::new(py, array.as_binary::<i32>().value(row)).into_any()),
        DataType::LargeBinary => Ok(PyBytes::new(py, array.as_binary::<i64>().value(row)).into_any()),
        DataType::BinaryView => Ok(PyBytes::new(py, array.as_binary_view().value(row)).into_any()),
        DataType::FixedSizeBinary(_) => Ok(PyBytes::new(py, array.as_fixed_size_binary().value(row)).into_any()),
        DataType::List(item) => Ok(values(py, &array.as_list::<i32>().value(row), item)?.into_any()),
        DataType::LargeList(item) => Ok(values(py, &array.as_list::<i64>().value(row), item)?.into_any()),
        DataType::ListView(item) => Ok(values(py, &array.as_list_view::<i32>().value(row), item)?.into_any()),
        DataType::LargeListView(item) => Ok(values(py, &array.as_list_view::<i64>().value(row), item)?.into_any()),
        DataType::FixedSizeList(item, _) => {
            let inner = array.as_fixed_size_list().value(row);
            let tensor = tensor::fixed_shape(field).map(|shape| plain(py, &inner, &shape, false)).transpose()?;
            match tensor.flatten() {
                Some(made) => numpy_array(py, &made),
                None => Ok(values(py, &inner, item)?.into_any()),
            }
        }
        DataType::Struct(fields) => {
            if tensor::is_variable(field) {
                return numpy_array(py, &ragged_tensors(py, &array.slice(row, 1))?)?.get_item(0);
            }
            let made = PyDict::new(py);
            for (inner, column) in fields.iter().zip(array.as_struct().columns()) {
                made.set_item(inner.name(), value(py, column, row, inner)?)?;
            }
            Ok(made.into_any())
        }
        DataType::Map(entries, _) => {
            let inner: ArrayRef = Arc::new(array.as_map().value(row));
            let made = PyList::empty(py);
            for entry in 0..inner.len() {
                let DataType::Struct(fields) = entries.data_type() else { continue };
                let pair = inner.as_struct();
                let key = value(py, pair.column(0), entry, &fields[0])?;
                made.append((key, value(py, pair.column(1), entry, &fields[1])?))?;
            }
            Ok(made.into_any())
        }
        DataType::Dictionary(..) => values(py, &array.slice(row, 1), field)?.get_item(0),
        DataType::Decimal32(..) => decimal!(Decimal32Type),
        DataType::Decimal64(..) => decimal!(Decimal64Type),
        DataType::Decimal128(..) => decimal!(Decimal128Type),
        DataType::Decimal256(..) => decimal!(Decimal256Type),
        _ => {
            let text = cast(&array.slice(row, 1), &DataType::Utf8).map_err(|error| failed(py, error))?;
            Ok(PyString::new(py, text.as_string::<i32>().value(0)).into_any())
        }
    }
}

/// By its digits: arithmetic would round them to what the context of the moment allows.
fn decimal<'py>(py: Python<'py>, digits: &str) -> Made<'py> {
    static DECIMAL: PyOnceLock<Py<PyAny>> = PyOnceLock::new();
    DECIMAL.import(py, "decimal", "Decimal")?.call1((digits,))
}
