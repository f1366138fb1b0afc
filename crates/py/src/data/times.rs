//! Dates and times: Arrow's as Python's own objects, and Python's as what Arrow has for them.
//!
//! TIMES-1: what a user sees is what pyarrow's `to_pylist` gives. Python's own `datetime` and `timedelta` have no nanoseconds:
//! columns of those are pandas' `Timestamp` and `Timedelta`; without pandas a value that has some is an error, because
//! nothing is lost in silence. A time of day has microseconds, whatever the column has.

use std::sync::Arc;

use arrow_array::builder::{
    Date32Builder, DurationMicrosecondBuilder, DurationNanosecondBuilder, Time64MicrosecondBuilder,
    TimestampMicrosecondBuilder, TimestampNanosecondBuilder,
};
use arrow_array::cast::AsArray;
use arrow_array::types::{
    Date32Type, Date64Type, DurationMicrosecondType, DurationMillisecondType, DurationNanosecondType,
    DurationSecondType, Time32MillisecondType, Time32SecondType, Time64MicrosecondType, Time64NanosecondType,
    TimestampMicrosecondType, TimestampMillisecondType, TimestampNanosecondType, TimestampSecondType,
};
use arrow_array::{Array, ArrayRef};
use arrow_schema::{DataType, TimeUnit};
use pyo3::exceptions::{PyOverflowError, PyValueError};
use pyo3::prelude::*;
use pyo3::sync::PyOnceLock;
use pyo3::types::{PyDate, PyDateTime, PyDelta, PyDict, PyInt, PyModule, PyTime, PyTzInfo};

use super::block::wrong_type;

type Given<'py> = Bound<'py, PyAny>;
type Made<'py> = PyResult<Bound<'py, PyAny>>;

/// The ordinal of 1970-01-01 in Python.
const FIRST_DAY: i32 = 719_163;
const DAY: i64 = 86_400;

/// A value of a column, or nothing where the column holds no times.
pub fn exported<'py>(py: Python<'py>, array: &ArrayRef, row: usize) -> PyResult<Option<Given<'py>>> {
    Ok(Some(match array.data_type() {
        DataType::Date32 => date(py, ticks(array, row))?,
        DataType::Date64 => date(py, ticks(array, row).div_euclid(DAY * 1000))?,
        DataType::Time32(unit) | DataType::Time64(unit) => time(py, ticks(array, row), *unit)?,
        DataType::Duration(unit) => duration(py, ticks(array, row), *unit)?,
        DataType::Timestamp(unit, name) => {
            let zone = name.as_deref().map(|name| zone(py, name)).transpose()?;
            timestamp(py, ticks(array, row), *unit, zone)?
        }
        _ => return Ok(None),
    }))
}

/// The number that a column holds.
fn ticks(array: &ArrayRef, row: usize) -> i64 {
    use TimeUnit::{Microsecond, Millisecond, Nanosecond, Second};
    macro_rules! of {
        ($kind:ty) => {
            i64::from(array.as_primitive::<$kind>().value(row))
        };
    }
    match array.data_type() {
        DataType::Date32 => of!(Date32Type),
        DataType::Date64 => of!(Date64Type),
        DataType::Time32(Second) => of!(Time32SecondType),
        DataType::Time32(_) => of!(Time32MillisecondType),
        DataType::Time64(Nanosecond) => of!(Time64NanosecondType),
        DataType::Time64(_) => of!(Time64MicrosecondType),
        DataType::Duration(Second) => of!(DurationSecondType),
        DataType::Duration(Millisecond) => of!(DurationMillisecondType),
        DataType::Duration(Microsecond) => of!(DurationMicrosecondType),
        DataType::Duration(Nanosecond) => of!(DurationNanosecondType),
        DataType::Timestamp(Second, _) => of!(TimestampSecondType),
        DataType::Timestamp(Millisecond, _) => of!(TimestampMillisecondType),
        DataType::Timestamp(Microsecond, _) => of!(TimestampMicrosecondType),
        DataType::Timestamp(Nanosecond, _) => of!(TimestampNanosecondType),
        other => unreachable!("{other} is no time"),
    }
}

/// Whole seconds, and the microseconds behind them.
fn split(ticks: i64, unit: TimeUnit) -> (i64, i32) {
    let (second, micros_of) = match unit {
        TimeUnit::Second => (1, (0, 1)),
        TimeUnit::Millisecond => (1_000, (1_000, 1)),
        TimeUnit::Microsecond => (1_000_000, (1, 1)),
        TimeUnit::Nanosecond => (1_000_000_000, (1, 1_000)),
    };
    (ticks.div_euclid(second), (ticks.rem_euclid(second) * micros_of.0 / micros_of.1) as i32)
}

fn out_of_range() -> PyErr {
    PyOverflowError::new_err(
        "a date or time is outside of what Python's `datetime` holds, the years 1 to 9999; \
         `iter_batches()` has it as numpy's `datetime64`",
    )
}

fn date(py: Python<'_>, days: i64) -> Made<'_> {
    static DATE: PyOnceLock<Py<PyAny>> = PyOnceLock::new();
    let made = DATE.import(py, "datetime", "date")?.call_method1("fromordinal", (days + i64::from(FIRST_DAY),));
    made.map_err(|_| out_of_range())
}

fn time(py: Python<'_>, ticks: i64, unit: TimeUnit) -> Made<'_> {
    let (seconds, micros) = split(ticks, unit);
    let part = |of: i64, below: i64| (seconds / of % below) as u8;
    if !(0..DAY).contains(&seconds) {
        return Err(PyOverflowError::new_err("a time of day lies before 00:00 or behind 24:00"));
    }
    let made = PyTime::new(py, part(3600, 24), part(60, 60), part(1, 60), micros as u32, None)?;
    Ok(made.into_any())
}

fn delta(py: Python<'_>, ticks: i64, unit: TimeUnit) -> PyResult<Bound<'_, PyDelta>> {
    let (seconds, micros) = split(ticks, unit);
    let days = i32::try_from(seconds.div_euclid(DAY)).map_err(|_| out_of_range())?;
    PyDelta::new(py, days, seconds.rem_euclid(DAY) as i32, micros, false)
}

fn duration(py: Python<'_>, ticks: i64, unit: TimeUnit) -> Made<'_> {
    match nanosecond_kind(py, ticks, unit, "Timedelta")? {
        Some(kind) => kind.call1((ticks, "ns")),
        None => delta(py, ticks, unit).map(Bound::into_any),
    }
}

fn timestamp<'py>(py: Python<'py>, ticks: i64, unit: TimeUnit, zone: Option<Bound<'py, PyTzInfo>>) -> Made<'py> {
    if let Some(kind) = nanosecond_kind(py, ticks, unit, "Timestamp")? {
        let options = PyDict::new(py);
        options.set_item("unit", "ns")?;
        options.set_item("tz", zone)?;
        return kind.call((ticks,), Some(&options));
    }
    let utc = zone.is_some().then(|| PyTzInfo::utc(py)).transpose()?.map(|utc| utc.to_owned());
    let first = PyDateTime::new(py, 1970, 1, 1, 0, 0, 0, 0, utc.as_ref())?;
    let made = first.add(delta(py, ticks, unit)?).and_then(|made| match zone {
        Some(zone) => made.call_method1("astimezone", (zone,)),
        None => Ok(made),
    });
    made.map_err(|error| if error.is_instance_of::<PyOverflowError>(py) { out_of_range() } else { error })
}

/// pandas' class for nanoseconds, where they are asked for and pandas is there.
fn nanosecond_kind<'py>(py: Python<'py>, ticks: i64, unit: TimeUnit, name: &str) -> PyResult<Option<Given<'py>>> {
    // Asked once: an import that fails looks everywhere.
    static PANDAS: PyOnceLock<Option<Py<PyModule>>> = PyOnceLock::new();
    if unit != TimeUnit::Nanosecond {
        return Ok(None);
    }
    match PANDAS.get_or_init(py, || py.import("pandas").ok().map(Bound::unbind)) {
        Some(pandas) => pandas.bind(py).getattr(name).map(Some),
        None if ticks % 1000 == 0 => Ok(None),
        None => Err(PyValueError::new_err(format!(
            "a value has nanoseconds ({ticks} of them), which Python's `datetime` does not hold: install pandas, whose \
             `{name}` does, or read it with `iter_batches()` as numpy's `datetime64`"
        ))),
    }
}

/// By its name, or by how far it is from UTC: `Europe/Madrid`, `+02:00`.
fn zone<'py>(py: Python<'py>, name: &str) -> PyResult<Bound<'py, PyTzInfo>> {
    let digits: String = name.chars().filter(char::is_ascii_digit).collect();
    let is_offset = name.starts_with(['+', '-']) && (digits.len() == 2 || digits.len() == 4);
    if is_offset {
        let part = |range| digits.get(range).and_then(|two: &str| two.parse::<i32>().ok()).unwrap_or(0);
        let seconds = part(0..2) * 3600 + part(2..4) * 60;
        let east = if name.starts_with('-') { -seconds } else { seconds };
        return PyTzInfo::fixed_offset(py, PyDelta::new(py, 0, east, 0, true)?);
    }
    // UTC is known where no zones are installed too.
    PyTzInfo::timezone(py, name).or_else(|error| match name {
        "UTC" => Ok(PyTzInfo::utc(py)?.to_owned()),
        _ => Err(error),
    })
}

/// What column holds a value of Python's, pandas' or numpy's; nothing where it is no time.
pub fn kind_of(name: &str, value: &Given<'_>) -> PyResult<Option<DataType>> {
    let unit = |is_nano| if is_nano { TimeUnit::Nanosecond } else { TimeUnit::Microsecond };
    Ok(Some(if let Ok(moment) = value.cast::<PyDateTime>() {
        DataType::Timestamp(unit(is_nano(value)?), zone_name(moment)?.map(Arc::from))
    } else if value.is_instance_of::<PyDate>() {
        DataType::Date32
    } else if value.is_instance_of::<PyTime>() {
        if !value.getattr("tzinfo")?.is_none() {
            return Err(wrong_type(format!(
                "column `{name}` has a time of day in a time zone, which no column can have"
            )));
        }
        DataType::Time64(TimeUnit::Microsecond)
    } else if value.is_instance_of::<PyDelta>() {
        DataType::Duration(unit(is_nano(value)?))
    } else {
        match numpy_kind(value)?.as_deref() {
            Some("M") => DataType::Timestamp(TimeUnit::Nanosecond, None),
            Some("m") => DataType::Duration(TimeUnit::Nanosecond),
            _ => return Ok(None),
        }
    }))
}

/// The common kind of two that are both times.
pub fn both(one: &DataType, other: &DataType) -> Option<DataType> {
    Some(match (one, other) {
        (DataType::Duration(one), DataType::Duration(other)) => DataType::Duration(*one.max(other)),
        (DataType::Timestamp(one, zone), DataType::Timestamp(other, there)) if zone.is_some() == there.is_some() => {
            // The moments are the same in any zone.
            let zone = if zone == there { zone.clone() } else { Some("UTC".into()) };
            DataType::Timestamp(*one.max(other), zone)
        }
        _ => return None,
    })
}

/// A column of one of the kinds that `kind_of` tells.
pub fn built(py: Python<'_>, name: &str, kind: &DataType, values: &[Given<'_>]) -> PyResult<Option<ArrayRef>> {
    let too_far =
        |_| PyValueError::new_err(format!("column `{name}` has a time or a duration that 64 bits do not hold"));
    macro_rules! build {
        ($builder:ty, $number:expr) => {{
            let mut builder = <$builder>::with_capacity(values.len());
            for value in values {
                match value.is_none() {
                    true => builder.append_null(),
                    false => builder.append_value($number(value)?),
                }
            }
            builder.finish()
        }};
    }
    let first = PyDateTime::new(py, 1970, 1, 1, 0, 0, 0, 0, None)?;
    let micro = PyDelta::new(py, 0, 0, 1, false)?;
    let micros = |delta: &Given<'_>| -> PyResult<i64> { delta.floor_div(&micro)?.extract().map_err(too_far) };
    let since = |value: &Given<'_>| -> PyResult<i64> { micros(naive(value)?.sub(&first)?.as_any()) };
    let nanos = |value: &Given<'_>, micros: &dyn Fn(&Given<'_>) -> PyResult<i64>| -> PyResult<i64> {
        if numpy_kind(value)?.is_some() {
            return value.call_method1("astype", ("int64",))?.call_method0("item")?.extract();
        }
        match is_nano(value)? {
            true => value.getattr("value")?.extract(),
            false => micros(value)?.checked_mul(1000).ok_or(()).map_err(|()| too_far(PyValueError::new_err(()))),
        }
    };
    Ok(Some(match kind {
        DataType::Date32 => {
            let days = |value: &Given<'_>| -> PyResult<i32> {
                Ok(value.call_method0("toordinal")?.extract::<i32>()? - FIRST_DAY)
            };
            Arc::new(build!(Date32Builder, days))
        }
        DataType::Time64(_) => {
            let of_day = |value: &Given<'_>| -> PyResult<i64> {
                let part = |name| value.getattr(name)?.extract::<i64>();
                Ok(((part("hour")? * 60 + part("minute")?) * 60 + part("second")?) * 1_000_000 + part("microsecond")?)
            };
            Arc::new(build!(Time64MicrosecondBuilder, of_day))
        }
        DataType::Duration(TimeUnit::Nanosecond) => {
            Arc::new(build!(DurationNanosecondBuilder, |value| nanos(value, &micros)))
        }
        DataType::Duration(_) => Arc::new(build!(DurationMicrosecondBuilder, micros)),
        DataType::Timestamp(TimeUnit::Nanosecond, zone) => {
            let made = build!(TimestampNanosecondBuilder, |value| nanos(value, &since));
            Arc::new(made.with_timezone_opt(zone.clone()))
        }
        DataType::Timestamp(_, zone) => {
            Arc::new(build!(TimestampMicrosecondBuilder, since).with_timezone_opt(zone.clone()))
        }
        _ => return Ok(None),
    }))
}

/// Whether it is one of pandas' that counts nanoseconds.
fn is_nano(value: &Given<'_>) -> PyResult<bool> {
    if !value.hasattr("nanosecond")? && !value.hasattr("nanoseconds")? {
        return Ok(false);
    }
    // Before pandas 2 there was no other unit.
    match value.getattr_opt("unit")? {
        Some(unit) => Ok(unit.extract::<String>()? == "ns"),
        None => Ok(true),
    }
}

/// `M` for a moment of numpy's and `m` for a duration.
fn numpy_kind(value: &Given<'_>) -> PyResult<Option<String>> {
    let Some(dtype) = value.getattr_opt("dtype")? else { return Ok(None) };
    let Some(kind) = dtype.getattr_opt("kind")? else { return Ok(None) };
    Ok(kind.extract().ok().filter(|kind: &String| kind == "M" || kind == "m"))
}

/// A scalar of numpy's as Python's own value. Its times keep their nanoseconds, and what is "not a time" is nothing.
pub fn of_numpy<'py>(value: &Given<'py>) -> Made<'py> {
    let plain = value.call_method0("item")?;
    match numpy_kind(value)? {
        // What Python's own times do not hold comes as a number.
        Some(kind) if plain.is_instance_of::<PyInt>() => value.call_method1("astype", (format!("{kind}8[ns]"),)),
        _ => Ok(plain),
    }
}

fn naive<'py>(value: &Given<'py>) -> Made<'py> {
    if value.getattr("tzinfo")?.is_none() {
        return Ok(value.clone());
    }
    let py = value.py();
    let replaced = PyDict::new(py);
    replaced.set_item("tzinfo", py.None())?;
    value.call_method1("astimezone", (PyTzInfo::utc(py)?,))?.call_method("replace", (), Some(&replaced))
}

/// Named zones by their name, others by how far they are from UTC.
fn zone_name(moment: &Bound<'_, PyDateTime>) -> PyResult<Option<String>> {
    let zone = moment.getattr("tzinfo")?;
    if zone.is_none() {
        return Ok(None);
    }
    // As `zoneinfo` and as `pytz` have it.
    for attribute in ["key", "zone"] {
        if let Some(Ok(name)) = zone.getattr_opt(attribute)?.map(|name| name.extract::<String>()) {
            return Ok(Some(name));
        }
    }
    let offset = moment.call_method0("utcoffset")?;
    let seconds = if offset.is_none() { 0.0 } else { offset.call_method0("total_seconds")?.extract::<f64>()? };
    let minutes = (seconds / 60.0).round() as i64;
    if minutes == 0 || seconds % 60.0 != 0.0 {
        return Ok(Some("UTC".to_owned()));
    }
    let sign = if minutes < 0 { '-' } else { '+' };
    Ok(Some(format!("{sign}{:02}:{:02}", minutes.abs() / 60, minutes.abs() % 60)))
}
