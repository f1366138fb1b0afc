//! The one way in which a failure becomes an exception, and a panic too.

use carril_types::{ErrorCode, Failure};
use pyo3::exceptions::PyRuntimeError;
use pyo3::panic::PanicException;
use pyo3::prelude::*;

pub fn raise(py: Python<'_>, failure: Failure) -> PyErr {
    raised(py, failure, None)
}

/// An exception that is also what the user's code raised: `pickle` is that one, in hexadecimal digits.
pub fn raise_as(py: Python<'_>, failure: Failure, pickle: &str) -> PyErr {
    raised(py, failure, Some(pickle))
}

fn raised(py: Python<'_>, failure: Failure, pickle: Option<&str>) -> PyErr {
    let made = py.import("carril.exceptions").and_then(|module| {
        let code = failure.code;
        let arguments = (code.name(), code.origin().name(), code.retryable(), &failure.message, &failure.hints, pickle);
        module.getattr("from_failure")?.call1(arguments)
    });
    match made {
        Ok(exception) => PyErr::from_value(exception),
        // The package is damaged: what happened must still be said.
        Err(_) => PyRuntimeError::new_err(failure.to_string()),
    }
}

#[pyfunction]
pub fn error_codes() -> Vec<(&'static str, &'static str, bool)> {
    ErrorCode::ALL.iter().map(|code| (code.name(), code.origin().name(), code.retryable())).collect()
}

/// A panic that comes to the boundary is raised as PyO3's `PanicException`, which passes `except Exception`. From here on it is one of our
/// exceptions, whichever function it comes from.
pub fn adopt_panics(py: Python<'_>) -> PyResult<()> {
    let ours = py.import("carril.exceptions")?.getattr("Panic")?;
    py.get_type::<PanicException>().setattr("__bases__", (ours,))
}

/// For the tests of the boundary.
#[pyfunction]
pub fn panic(message: &str) {
    panic!("{message}");
}
