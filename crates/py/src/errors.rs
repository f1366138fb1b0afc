//! The one way in which a failure becomes an exception.

use carril_types::{ErrorCode, Failure};
use pyo3::exceptions::PyRuntimeError;
use pyo3::prelude::*;

pub fn raise(py: Python<'_>, failure: Failure) -> PyErr {
    let made = py.import("carril.exceptions").and_then(|module| {
        let code = failure.code;
        let arguments = (code.name(), code.origin().name(), code.retryable(), &failure.message, &failure.hints);
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
