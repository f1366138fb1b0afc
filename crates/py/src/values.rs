//! Python's values and ours.
//!
//! Numbers keep their value, whatever library they come from; a tensor of several elements is a mistake; anything else is
//! kept whole as a pickle, with its repr for people.

use carril_types::{ErrorCode, Failure, Metrics, Object, Value};
use pyo3::prelude::*;
use pyo3::types::{PyBool, PyBytes, PyDict, PyFloat, PyInt, PyList, PyString, PyTuple};

use crate::errors::raise;

/// Deeper than anything that is meant; a dict that holds itself ends here.
const DEEPEST: usize = 32;

/// Whose arrays are tensors that a step has computed: one of several elements among the metrics is a mistake.
const TENSOR_LIBRARIES: &[&str] = &["torch", "jax", "jaxlib", "tensorflow"];

/// Something that only Python understands, unopened.
#[pyclass(frozen, module = "carril._native")]
pub struct Opaque {
    #[pyo3(get)]
    repr: String,
    pickle: Vec<u8>,
}

#[pymethods]
impl Opaque {
    #[getter]
    fn pickle<'py>(&self, py: Python<'py>) -> Bound<'py, PyBytes> {
        PyBytes::new(py, &self.pickle)
    }

    fn __repr__(&self) -> &str {
        &self.repr
    }
}

/// What to do with an object that cannot be pickled.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Unpicklable {
    Refuse,
    KeepRepr,
}

/// How a Python object is seen.
enum Kind<'py> {
    Plain(Value),
    Dict(Bound<'py, PyDict>),
    Sequence(Bound<'py, PyAny>),
    Object,
}

pub fn to_metrics(metrics: &Bound<'_, PyDict>, unpicklable: Unpicklable) -> PyResult<Metrics> {
    dict_to_metrics(metrics, "", 0, unpicklable)
}

pub fn to_value(object: &Bound<'_, PyAny>, key: &str, depth: usize, unpicklable: Unpicklable) -> PyResult<Value> {
    if depth > DEEPEST {
        return Err(bad(object.py(), key, "is nested too deeply"));
    }
    match kind_of(object, key)? {
        Kind::Plain(value) => Ok(value),
        Kind::Dict(dict) => Ok(Value::Map(dict_to_metrics(&dict, key, depth + 1, unpicklable)?)),
        Kind::Sequence(items) => {
            let items = items.try_iter()?.map(|item| to_value(&item?, key, depth + 1, unpicklable));
            Ok(Value::List(items.collect::<PyResult<_>>()?))
        }
        Kind::Object => to_object(object, key, unpicklable),
    }
}

fn dict_to_metrics(dict: &Bound<'_, PyDict>, path: &str, depth: usize, unpicklable: Unpicklable) -> PyResult<Metrics> {
    let mut entries = Vec::with_capacity(dict.len());
    for (key, value) in dict.iter() {
        let key = match key.cast::<PyString>() {
            Ok(text) => text.to_str()?.to_owned(),
            Err(_) => key.str()?.to_str()?.to_owned(),
        };
        // A path is needed only for an error below this level.
        let value = if path.is_empty() && depth == 0 {
            to_value(&value, &key, depth, unpicklable)?
        } else {
            to_value(&value, &format!("{path}/{key}"), depth, unpicklable)?
        };
        entries.push((key, value));
    }
    Ok(Metrics(entries))
}

fn kind_of<'py>(object: &Bound<'py, PyAny>, key: &str) -> PyResult<Kind<'py>> {
    if let Ok(number) = object.cast::<PyFloat>() {
        return Ok(Kind::Plain(Value::Float(number.value())));
    }
    if let Ok(flag) = object.cast::<PyBool>() {
        return Ok(Kind::Plain(Value::Bool(flag.is_true())));
    }
    if object.is_instance_of::<PyInt>() {
        return Ok(Kind::Plain(integer(object)?));
    }
    if let Ok(text) = object.cast::<PyString>() {
        return Ok(Kind::Plain(Value::Text(text.to_cow()?.into_owned())));
    }
    if object.is_none() {
        return Ok(Kind::Plain(Value::None));
    }
    if let Ok(dict) = object.cast::<PyDict>() {
        return Ok(Kind::Dict(dict.clone()));
    }
    if object.is_instance_of::<PyList>() || object.is_instance_of::<PyTuple>() {
        return Ok(Kind::Sequence(object.clone()));
    }
    array_kind(object, key)
}

/// Scalars and tensors of numpy, torch and their like: what has a shape and can give its item.
fn array_kind<'py>(object: &Bound<'py, PyAny>, key: &str) -> PyResult<Kind<'py>> {
    let Ok(shape) = object.getattr("shape").and_then(|shape| shape.try_iter()?.map(|n| n?.extract()).collect()) else {
        return Ok(Kind::Object);
    };
    let shape: Vec<i64> = shape;
    let elements: i64 = shape.iter().product();
    let type_name = object.get_type().fully_qualified_name()?;
    if elements != 1 {
        // Arrays and tables of other libraries are objects like any other.
        let library = type_name.to_str()?.split('.').next().unwrap_or_default().to_owned();
        if !TENSOR_LIBRARIES.contains(&library.as_str()) {
            return Ok(Kind::Object);
        }
        let message = format!("the metric `{key}` is a `{type_name}` of shape {shape:?}: a metric is one number");
        let hint = format!("reduce it first, as in `{key}.mean().item()`");
        return Err(raise(object.py(), Failure::new(ErrorCode::BadMetrics, message).hint(hint)));
    }
    let Ok(item) = object.call_method0("item") else { return Ok(Kind::Object) };
    if item.get_type().is(object.get_type()) {
        return Ok(Kind::Object);
    }
    match kind_of(&item, key)? {
        Kind::Plain(value) => Ok(Kind::Plain(value)),
        _ => Ok(Kind::Object),
    }
}

fn integer(object: &Bound<'_, PyAny>) -> PyResult<Value> {
    match object.extract::<i64>() {
        Ok(value) => Ok(Value::Int(value)),
        // Through int, because a subclass may print itself in its own way.
        Err(_) => {
            let plain = object.py().get_type::<PyInt>().call1((object,))?;
            Ok(Value::BigInt(plain.str()?.to_str()?.to_owned()))
        }
    }
}

fn to_object(object: &Bound<'_, PyAny>, key: &str, unpicklable: Unpicklable) -> PyResult<Value> {
    let py = object.py();
    let repr = object.repr()?.to_cow()?.into_owned();
    let pickled = py.import("cloudpickle")?.call_method1("dumps", (object,));
    let pickle = match (pickled, unpicklable) {
        (Ok(pickled), _) => pickled.cast::<PyBytes>()?.as_bytes().to_vec(),
        (Err(_), Unpicklable::KeepRepr) => Vec::new(),
        (Err(error), Unpicklable::Refuse) => {
            return Err(bad(py, key, &format!("cannot be pickled: {error}")));
        }
    };
    Ok(Value::Object(Object { repr, pickle }))
}

fn bad(py: Python<'_>, key: &str, what: &str) -> PyErr {
    raise(py, Failure::new(ErrorCode::BadMetrics, format!("the metric `{key}` {what}")))
}

pub fn metrics_to_python<'py>(py: Python<'py>, metrics: Metrics) -> PyResult<Bound<'py, PyDict>> {
    let dict = PyDict::new(py);
    for (key, value) in metrics.0 {
        dict.set_item(key, value_to_python(py, value)?)?;
    }
    Ok(dict)
}

pub fn value_to_python<'py>(py: Python<'py>, value: Value) -> PyResult<Bound<'py, PyAny>> {
    Ok(match value {
        Value::None => py.None().into_bound(py),
        Value::Bool(value) => PyBool::new(py, value).to_owned().into_any(),
        Value::Int(value) => value.into_pyobject(py)?.into_any(),
        Value::BigInt(digits) => py.get_type::<PyInt>().call1((digits,))?,
        Value::Float(value) => PyFloat::new(py, value).into_any(),
        Value::Text(text) => PyString::new(py, &text).into_any(),
        Value::List(items) => {
            let items = items.into_iter().map(|item| value_to_python(py, item)).collect::<PyResult<Vec<_>>>()?;
            PyList::new(py, items)?.into_any()
        }
        Value::Map(metrics) => metrics_to_python(py, metrics)?.into_any(),
        Value::Object(object) => Bound::new(py, Opaque { repr: object.repr, pickle: object.pickle })?.into_any(),
    })
}

/// What a report makes of metrics where there is no worker: objects stay themselves.
#[pyfunction]
pub fn to_plain<'py>(py: Python<'py>, metrics: &Bound<'py, PyDict>) -> PyResult<Bound<'py, PyDict>> {
    let plain = PyDict::new(py);
    for (key, value) in metrics.iter() {
        let name = key.str()?;
        plain.set_item(&name, plain_value(&value, name.to_str()?, 0)?)?;
    }
    Ok(plain)
}

fn plain_value<'py>(object: &Bound<'py, PyAny>, key: &str, depth: usize) -> PyResult<Bound<'py, PyAny>> {
    let py = object.py();
    if depth > DEEPEST {
        return Err(bad(py, key, "is nested too deeply"));
    }
    match kind_of(object, key)? {
        Kind::Plain(value) => value_to_python(py, value),
        Kind::Object => Ok(object.clone()),
        Kind::Dict(dict) => {
            let plain = PyDict::new(py);
            for (inner, value) in dict.iter() {
                let name = inner.str()?;
                plain.set_item(&name, plain_value(&value, &format!("{key}/{name}"), depth + 1)?)?;
            }
            Ok(plain.into_any())
        }
        Kind::Sequence(items) => {
            let items =
                items.try_iter()?.map(|item| plain_value(&item?, key, depth + 1)).collect::<PyResult<Vec<_>>>()?;
            Ok(PyList::new(py, items)?.into_any())
        }
    }
}
