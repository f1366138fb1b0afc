//! From Python to Arrow. A column comes as `("plain", dtype, memory, shape)`, `("ragged", dtype, [(memory, shape) or nothing])`,
//! `("object", [values])` for Python's own objects, or `("list", [values])`, whose type is that of its values.

use std::sync::Arc;

use arrow_array::builder::{
    BinaryBuilder, BooleanBuilder, Float64Builder, Int64Builder, LargeBinaryBuilder, LargeStringBuilder,
    PrimitiveBuilder, StringBuilder, UInt64Builder,
};
use arrow_array::types::{Decimal128Type, Decimal256Type, DecimalType};
use arrow_array::{
    Array, ArrayRef, BooleanArray, FixedSizeListArray, Int32Array, ListArray, NullArray, StructArray, make_array,
};
use arrow_buffer::{BooleanBuffer, Buffer, NullBuffer, OffsetBuffer};
use arrow_cast::parse::parse_decimal;
use arrow_data::ArrayData;
use arrow_schema::{DataType, Field, Fields, TimeUnit};
use carril_data::{object, tensor};
use pyo3::buffer::PyBuffer;
use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;
use pyo3::sync::PyOnceLock;
use pyo3::types::{PyBool, PyByteArray, PyBytes, PyDateTime, PyDict, PyFloat, PyInt, PyList, PyString, PyTuple};

use super::block::{failed, wrong_type};
use super::times;

type Given<'py> = Bound<'py, PyAny>;

pub fn column(py: Python<'_>, name: &str, given: &Given<'_>) -> PyResult<(Field, ArrayRef)> {
    let parts = given.cast::<PyTuple>()?;
    let kind: String = parts.get_item(0)?.extract()?;
    match kind.as_str() {
        "plain" => {
            let shape: Vec<usize> = parts.get_item(3)?.extract()?;
            let dtype: String = parts.get_item(1)?.extract()?;
            plain(py, name, &dtype, &parts.get_item(2)?, &shape)
        }
        "ragged" => {
            let dtype: String = parts.get_item(1)?.extract()?;
            ragged(py, name, &dtype, parts.get_item(2)?.cast::<PyList>()?)
        }
        "object" => objects(py, name, &parts.get_item(1)?.extract::<Vec<Given<'_>>>()?),
        _ => {
            let values: Vec<Given<'_>> = parts.get_item(1)?.extract()?;
            match kind_of_all(name, &values) {
                Ok(kind) => {
                    let kind = with_room(widened(kind), &values)?;
                    let array = built(py, name, &kind, &values)?;
                    Ok((Field::new(name, kind, true), array))
                }
                Err(Misfit::Object) => objects(py, name, &values),
                Err(Misfit::Wrong(error)) => Err(error),
            }
        }
    }
}

fn element(dtype: &str) -> Option<(DataType, usize)> {
    use TimeUnit::{Microsecond, Millisecond, Nanosecond, Second};
    Some(match dtype.trim_start_matches(['<', '|', '=']) {
        "i1" => (DataType::Int8, 1),
        "i2" => (DataType::Int16, 2),
        "i4" => (DataType::Int32, 4),
        "i8" => (DataType::Int64, 8),
        "u1" => (DataType::UInt8, 1),
        "u2" => (DataType::UInt16, 2),
        "u4" => (DataType::UInt32, 4),
        "u8" => (DataType::UInt64, 8),
        "f2" => (DataType::Float16, 2),
        "f4" => (DataType::Float32, 4),
        "f8" => (DataType::Float64, 8),
        "b1" => (DataType::Boolean, 1),
        "M8[s]" => (DataType::Timestamp(Second, None), 8),
        "M8[ms]" => (DataType::Timestamp(Millisecond, None), 8),
        "M8[us]" => (DataType::Timestamp(Microsecond, None), 8),
        "M8[ns]" => (DataType::Timestamp(Nanosecond, None), 8),
        "m8[s]" => (DataType::Duration(Second), 8),
        "m8[ms]" => (DataType::Duration(Millisecond), 8),
        "m8[us]" => (DataType::Duration(Microsecond), 8),
        "m8[ns]" => (DataType::Duration(Nanosecond), 8),
        _ => return None,
    })
}

/// A copy: what Python goes on to write into must not change a block.
fn copied(py: Python<'_>, memory: &Given<'_>) -> PyResult<Vec<u8>> {
    let buffer: PyBuffer<u8> = PyBuffer::get(memory)?;
    buffer.to_vec(py)
}

fn elements(py: Python<'_>, name: &str, dtype: &str, memory: &Given<'_>) -> PyResult<ArrayRef> {
    let Some((kind, width)) = element(dtype) else {
        return Err(wrong_type(format!("column `{name}` is of numpy's type `{dtype}`, which no column can have")));
    };
    let bytes = copied(py, memory)?;
    if kind == DataType::Boolean {
        let flags = BooleanBuffer::collect_bool(bytes.len(), |at| bytes[at] != 0);
        return Ok(Arc::new(BooleanArray::new(flags, None)));
    }
    let length = bytes.len() / width;
    let is_time = matches!(kind, DataType::Timestamp(..) | DataType::Duration(_));
    let data = ArrayData::builder(kind).len(length).add_buffer(Buffer::from_vec(bytes)).align_buffers(true);
    let mut data = data.build().map_err(|error| failed(py, error))?;
    if is_time {
        let there = times_there(&data);
        data = data.into_builder().nulls(there).build().map_err(|error| failed(py, error))?;
    }
    Ok(make_array(data))
}

/// numpy's "not a time" is a gap.
fn times_there(data: &ArrayData) -> Option<NullBuffer> {
    let values = data.buffer::<i64>(0);
    values.contains(&i64::MIN).then(|| NullBuffer::from_iter(values.iter().map(|value| *value != i64::MIN)))
}

fn plain(py: Python<'_>, name: &str, dtype: &str, memory: &Given<'_>, shape: &[usize]) -> PyResult<(Field, ArrayRef)> {
    let values = elements(py, name, dtype, memory)?;
    let Some((rows, inner)) = shape.split_first() else {
        return Err(PyValueError::new_err(format!("column `{name}` is a single value and not an array")));
    };
    if inner.is_empty() {
        let has_gaps = values.null_count() > 0;
        return Ok((Field::new(name, values.data_type().clone(), has_gaps), values));
    }
    let field = tensor::fixed_field(name, values.data_type().clone(), inner);
    let DataType::FixedSizeList(item, size) = field.data_type() else { unreachable!("a tensor is a list") };
    let list = FixedSizeListArray::try_new_with_length(item.clone(), *size, values, None, *rows);
    Ok((field.clone(), Arc::new(list.map_err(|error| failed(py, error))?)))
}

/// Arrays of several shapes, or of one shape with gaps between them.
fn ragged(py: Python<'_>, name: &str, dtype: &str, parts: &Bound<'_, PyList>) -> PyResult<(Field, ArrayRef)> {
    let parts: Vec<Option<(Given<'_>, Vec<i32>)>> = parts.extract()?;
    let mut there = parts.iter().flatten().map(|(_, shape)| shape);
    let model = there.next().cloned().unwrap_or_default();
    let is_uniform = there.all(|shape| *shape == model);
    let width = element(dtype).map_or(1, |(_, width)| width);
    // A gap between tensors of one shape takes the room of one.
    let gap = if is_uniform { model.iter().map(|length| *length as usize).product::<usize>() * width } else { 0 };
    let (mut all, mut offsets, mut shapes) = (Vec::new(), vec![0i32], Vec::new());
    for part in &parts {
        match part {
            Some((memory, shape)) => {
                all.extend(copied(py, memory)?);
                shapes.extend(shape);
            }
            None => {
                all.resize(all.len() + gap, 0);
                shapes.resize(shapes.len() + model.len(), 0);
            }
        }
        offsets.push(
            i32::try_from(all.len() / width).map_err(|_| {
                PyValueError::new_err(format!("column `{name}` has more than 2^31 elements in one block"))
            })?,
        );
    }
    let values = elements(py, name, dtype, PyBytes::new(py, &all).as_any())?;
    let has_gaps = parts.iter().any(Option::is_none);
    let nulls = has_gaps.then(|| NullBuffer::from_iter(parts.iter().map(Option::is_some)));
    if is_uniform {
        let shape: Vec<usize> = model.iter().map(|length| *length as usize).collect();
        let field = tensor::fixed_field(name, values.data_type().clone(), &shape).with_nullable(has_gaps);
        let DataType::FixedSizeList(item, size) = field.data_type() else { unreachable!("a tensor is a list") };
        let list = FixedSizeListArray::try_new_with_length(item.clone(), *size, values, nulls, parts.len());
        return Ok((field.clone(), Arc::new(list.map_err(|error| failed(py, error))?)));
    }
    let is_list = model.len() == 1;
    let item = Arc::new(Field::new("item", values.data_type().clone(), false));
    let list_nulls = if is_list { nulls.clone() } else { None };
    let list = ListArray::try_new(item, OffsetBuffer::new(offsets.into()), values.clone(), list_nulls);
    let list = list.map_err(|error| failed(py, error))?;
    if is_list {
        return Ok((Field::new(name, list.data_type().clone(), has_gaps), Arc::new(list)));
    }
    let field = tensor::variable_field(name, values.data_type().clone(), model.len()).with_nullable(has_gaps);
    let DataType::Struct(fields) = field.data_type().clone() else { unreachable!("a tensor is a structure") };
    let DataType::FixedSizeList(length, size) = fields[1].data_type() else { unreachable!("a shape is a list") };
    let shapes = Arc::new(Int32Array::from(shapes));
    let shapes = FixedSizeListArray::try_new_with_length(length.clone(), *size, shapes, None, parts.len());
    let columns: Vec<ArrayRef> = vec![Arc::new(list), Arc::new(shapes.map_err(|error| failed(py, error))?)];
    let both = StructArray::try_new(fields, columns, nulls).map_err(|error| failed(py, error))?;
    Ok((field, Arc::new(both)))
}

/// Why values have no type of Arrow's.
enum Misfit {
    /// One is Python's alone: of a class that Arrow does not know, a tuple of several types, a dictionary whose keys are no texts.
    Object,
    Wrong(PyErr),
}

impl From<PyErr> for Misfit {
    fn from(error: PyErr) -> Self {
        Misfit::Wrong(error)
    }
}

/// Values of whatever class, pickled.
fn objects(py: Python<'_>, name: &str, values: &[Given<'_>]) -> PyResult<(Field, ArrayRef)> {
    static DUMPS: PyOnceLock<Py<PyAny>> = PyOnceLock::new();
    let dumps = DUMPS.import(py, "carril._internal.pickling", "dumps")?;
    let mut builder = BinaryBuilder::new();
    for value in values {
        if value.is_none() {
            builder.append_null();
            continue;
        }
        let pickled = dumps.call1((value,)).map_err(|error| {
            let kind = value.get_type();
            wrong_type(format!("column `{name}` has a value of type {kind}, which no column can have: {error}"))
        })?;
        builder.append_value(pickled.cast::<PyBytes>()?.as_bytes());
    }
    Ok((object::field(name), Arc::new(builder.finish())))
}

fn kind_of_all(name: &str, values: &[Given<'_>]) -> Result<DataType, Misfit> {
    let mut kind = DataType::Null;
    for value in values {
        let next = kind_of(name, value)?;
        kind = both(name, kind, next)?;
    }
    Ok(kind)
}

fn kind_of(name: &str, value: &Given<'_>) -> Result<DataType, Misfit> {
    let value = &plain_value(value)?;
    Ok(if value.is_none() {
        DataType::Null
    } else if value.is_instance_of::<PyBool>() {
        DataType::Boolean
    } else if value.is_instance_of::<PyInt>() {
        if value.extract::<i64>().is_ok() {
            DataType::Int64
        } else if value.extract::<u64>().is_ok() {
            DataType::UInt64
        } else {
            let what = format!("column `{name}` has an integer that 64 bits do not hold");
            return Err(PyValueError::new_err(what).into());
        }
    } else if value.is_instance_of::<PyFloat>() {
        DataType::Float64
    } else if value.is_instance_of::<PyString>() {
        DataType::Utf8
    } else if value.is_instance_of::<PyBytes>() || value.is_instance_of::<PyByteArray>() {
        DataType::Binary
    } else if let Ok(dict) = value.cast::<PyDict>() {
        let mut fields = Vec::new();
        for (key, inner) in dict {
            let Ok(key) = key.extract::<String>() else { return Err(Misfit::Object) };
            fields.push(Field::new(key, kind_of(name, &inner)?, true));
        }
        DataType::Struct(fields.into())
    } else if let Some(kind) = times::kind_of(name, value)? {
        kind
    } else if value.is_instance(decimal_class(value.py())?)? {
        decimal_kind(name, value)?
    } else if let Ok(list) = value.extract::<Vec<Given<'_>>>() {
        let kind = match kind_of_all(name, &list) {
            Err(_) if value.is_instance_of::<PyTuple>() => return Err(Misfit::Object),
            kind => kind?,
        };
        DataType::List(Arc::new(Field::new("item", kind, true)))
    } else {
        return Err(Misfit::Object);
    })
}

fn decimal_class<'py>(py: Python<'py>) -> PyResult<&'py Given<'py>> {
    static DECIMAL: PyOnceLock<Py<PyAny>> = PyOnceLock::new();
    DECIMAL.import(py, "decimal", "Decimal")
}

/// With as many digits as the value has.
fn decimal_kind(name: &str, value: &Given<'_>) -> PyResult<DataType> {
    let (_, digits, exponent): (i32, Vec<u8>, Given<'_>) = value.call_method0("as_tuple")?.extract()?;
    let Ok(exponent) = exponent.extract::<i64>() else {
        return Err(PyValueError::new_err(format!(
            "column `{name}` has the decimal {value}, which no column can have"
        )));
    };
    let scale = (-exponent).max(0);
    decimal_of(name, (digits.len() as i64 + exponent).max(0), scale)
}

fn decimal_of(name: &str, whole: i64, scale: i64) -> PyResult<DataType> {
    match whole + scale {
        digits @ ..=38 => Ok(DataType::Decimal128(digits.max(1) as u8, scale as i8)),
        digits @ ..=76 => Ok(DataType::Decimal256(digits as u8, scale as i8)),
        digits => Err(PyValueError::new_err(format!(
            "column `{name}` has decimals of {digits} digits together, and a column has room for 76"
        ))),
    }
}

/// Digits before and behind the point; whole numbers have those of their 64 bits.
fn digits_of(kind: &DataType) -> Option<(i64, i64)> {
    match kind {
        DataType::Decimal128(digits, scale) | DataType::Decimal256(digits, scale) => {
            Some((i64::from(*digits) - i64::from(*scale), i64::from(*scale)))
        }
        DataType::Int64 | DataType::UInt64 => Some((20, 0)),
        _ => None,
    }
}

/// With all digits that there is room for, so that the blocks of a column are of one type.
fn widened(kind: DataType) -> DataType {
    let inner = |field: &Field| field.clone().with_data_type(widened(field.data_type().clone()));
    match kind {
        DataType::Decimal128(_, scale) => DataType::Decimal128(38, scale),
        DataType::Decimal256(_, scale) => DataType::Decimal256(76, scale),
        DataType::List(item) => DataType::List(Arc::new(inner(&item))),
        DataType::Struct(fields) => DataType::Struct(fields.iter().map(|field| inner(field)).collect()),
        other => other,
    }
}

/// Texts and bytes that are too long together for 32 bits are counted with 64.
fn with_room(kind: DataType, values: &[Given<'_>]) -> PyResult<DataType> {
    let wide = match kind {
        DataType::Utf8 => DataType::LargeUtf8,
        DataType::Binary => DataType::LargeBinary,
        _ => return Ok(kind),
    };
    let mut length = 0;
    for value in values {
        length += match value.cast::<PyString>() {
            Ok(text) => text.to_str()?.len(),
            Err(_) if value.is_none() => 0,
            Err(_) => value.len().unwrap_or(0),
        };
    }
    Ok(if length > i32::MAX as usize { wide } else { kind })
}

fn both(name: &str, one: DataType, other: DataType) -> PyResult<DataType> {
    use DataType::{Float64, Int64, List, Null, Struct, UInt64};
    Ok(match (one, other) {
        (one, other) if one == other => one,
        (Null, kind) | (kind, Null) => kind,
        (Int64 | UInt64, Float64) | (Float64, Int64 | UInt64) => Float64,
        (Int64, UInt64) | (UInt64, Int64) => UInt64,
        (List(one), List(other)) => {
            let inner = both(name, one.data_type().clone(), other.data_type().clone())?;
            List(Arc::new(Field::new("item", inner, true)))
        }
        (Struct(one), Struct(other)) => {
            let mut fields: Vec<Field> = one.iter().map(|field| (**field).clone()).collect();
            for field in &other {
                match fields.iter_mut().find(|there| there.name() == field.name()) {
                    Some(there) => {
                        *there = Field::new(
                            field.name(),
                            both(name, there.data_type().clone(), field.data_type().clone())?,
                            true,
                        );
                    }
                    None => fields.push((**field).clone()),
                }
            }
            Struct(Fields::from(fields))
        }
        (one, other) if times::both(&one, &other).is_some() => times::both(&one, &other).unwrap_or(one),
        (one, other) => {
            let is_decimal = one.is_decimal() || other.is_decimal();
            if let (true, Some((whole, scale)), Some((more, finer))) = (is_decimal, digits_of(&one), digits_of(&other))
            {
                return decimal_of(name, whole.max(more), scale.max(finer));
            }
            return Err(wrong_type(format!("column `{name}` has values of two kinds: {one} and {other}")));
        }
    })
}

fn built(py: Python<'_>, name: &str, kind: &DataType, values: &[Given<'_>]) -> PyResult<ArrayRef> {
    let values: &[Given<'_>] = &values.iter().map(plain_value).collect::<PyResult<Vec<_>>>()?;
    macro_rules! build {
        ($builder:expr, $as:ty) => {{
            let mut builder = $builder;
            for value in values {
                match value.is_none() {
                    true => builder.append_null(),
                    false => builder.append_value(value.extract::<$as>()?),
                }
            }
            Arc::new(builder.finish()) as ArrayRef
        }};
    }
    if let Some(made) = times::built(py, name, kind, values)? {
        return Ok(made);
    }
    Ok(match kind {
        DataType::Null => Arc::new(NullArray::new(values.len())),
        DataType::Boolean => build!(BooleanBuilder::new(), bool),
        DataType::Int64 => build!(Int64Builder::new(), i64),
        DataType::UInt64 => build!(UInt64Builder::new(), u64),
        DataType::Float64 => build!(Float64Builder::new(), f64),
        DataType::Utf8 => build!(StringBuilder::new(), String),
        DataType::LargeUtf8 => build!(LargeStringBuilder::new(), String),
        DataType::Binary => build!(BinaryBuilder::new(), Vec<u8>),
        DataType::LargeBinary => build!(LargeBinaryBuilder::new(), Vec<u8>),
        DataType::Decimal128(precision, scale) => decimals::<Decimal128Type>(py, values, *precision, *scale)?,
        DataType::Decimal256(precision, scale) => decimals::<Decimal256Type>(py, values, *precision, *scale)?,
        DataType::List(item) => {
            let (mut all, mut lengths, mut there) = (Vec::new(), Vec::new(), Vec::new());
            for value in values {
                let inner: Vec<Given<'_>> = if value.is_none() { Vec::new() } else { value.extract()? };
                there.push(!value.is_none());
                lengths.push(inner.len());
                all.extend(inner);
            }
            let inner = built(py, name, item.data_type(), &all)?;
            let list = ListArray::try_new(item.clone(), OffsetBuffer::from_lengths(lengths), inner, Some(there.into()));
            Arc::new(list.map_err(|error| failed(py, error))?)
        }
        DataType::Struct(fields) => {
            let there: Vec<bool> = values.iter().map(|value| !value.is_none()).collect();
            let mut columns = Vec::new();
            for field in fields {
                let mut parts = Vec::with_capacity(values.len());
                for value in values {
                    let inner = value.cast::<PyDict>().ok().map(|dict| dict.get_item(field.name())).transpose()?;
                    parts.push(inner.flatten().unwrap_or_else(|| py.None().into_bound(py)));
                }
                columns.push(built(py, name, field.data_type(), &parts)?);
            }
            let made = StructArray::try_new_with_length(fields.clone(), columns, Some(there.into()), values.len());
            Arc::new(made.map_err(|error| failed(py, error))?)
        }
        other => return Err(wrong_type(format!("column `{name}` cannot be made as {other}"))),
    })
}

fn decimals<T: DecimalType>(py: Python<'_>, values: &[Given<'_>], precision: u8, scale: i8) -> PyResult<ArrayRef> {
    let mut builder = PrimitiveBuilder::<T>::with_capacity(values.len());
    for value in values {
        if value.is_none() {
            builder.append_null();
            continue;
        }
        // As digits without an exponent; a whole number has none either.
        let digits = match value.is_instance_of::<PyInt>() {
            true => value.str()?.to_string(),
            false => value.call_method1("__format__", ("f",))?.extract()?,
        };
        builder.append_value(parse_decimal::<T>(&digits, precision, scale).map_err(|error| failed(py, error))?);
    }
    let made = builder.finish().with_precision_and_scale(precision, scale).map_err(|error| failed(py, error))?;
    Ok(Arc::new(made))
}

/// A scalar of numpy's as Python's own value, and nothing for what pandas calls "not a time".
fn plain_value<'py>(value: &Given<'py>) -> PyResult<Given<'py>> {
    if value.is_none()
        || value.is_instance_of::<PyInt>()
        || value.is_instance_of::<PyFloat>()
        || value.is_instance_of::<PyString>()
        || value.is_instance_of::<PyBytes>()
        || value.is_instance_of::<PyList>()
        || value.is_instance_of::<PyDict>()
    {
        return Ok(value.clone());
    }
    if value.is_instance_of::<PyDateTime>() {
        return Ok(if value.ne(value)? { value.py().None().into_bound(value.py()) } else { value.clone() });
    }
    let is_scalar = value.getattr_opt("shape")?.is_some_and(|shape| shape.len().is_ok_and(|axes| axes == 0));
    if is_scalar && value.hasattr("item")? { times::of_numpy(value) } else { Ok(value.clone()) }
}
