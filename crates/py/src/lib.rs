//! `carril._native`: the only place where Rust and Python meet.
//!
//! PY-1: a thread of ours never takes the GIL: what Python must do is queued, and a Python thread comes for it.
//! PY-2: a call that can wait releases the GIL and polls signals every 100 ms (`door::leave`).
//! PY-3: every error that leaves here is made by `carril.exceptions.from_failure` out of a typed failure.
//! PY-4: a panic that comes here is raised as one of our exceptions, an `Exception` that says that it is a bug of ours.

mod client;
mod collective;
mod data;
mod door;
mod errors;
mod events;
mod scheduler;
mod session;
mod storage;
mod values;

use pyo3::prelude::*;

#[pymodule]
fn _native(module: &Bound<'_, PyModule>) -> PyResult<()> {
    module.add("__version__", carril_proto::VERSION)?;
    module.add("__protocol__", carril_proto::PROTOCOL)?;
    module.add("AUTOMATIC_FIELDS", carril_types::AUTOMATIC_FIELDS.to_vec())?;
    module.add("RUN_FORMAT", carril_store::RUN_FORMAT)?;
    module.add("STACK_SIGNAL", carril_worker::stack_signal())?;
    module.add_class::<client::Client>()?;
    module.add_class::<client::Run>()?;
    module.add_class::<collective::Collective>()?;
    module.add_class::<scheduler::Scheduler>()?;
    module.add_class::<session::Session>()?;
    module.add_class::<storage::Storage>()?;
    module.add_class::<values::Opaque>()?;
    module.add_function(wrap_pyfunction!(values::to_plain, module)?)?;
    module.add_function(wrap_pyfunction!(storage::list_manifests, module)?)?;
    module.add_function(wrap_pyfunction!(storage::blob_hash, module)?)?;
    module.add_function(wrap_pyfunction!(storage::check_file, module)?)?;
    module.add_function(wrap_pyfunction!(storage::read_restarts, module)?)?;
    module.add_function(wrap_pyfunction!(storage::amend_manifest, module)?)?;
    module.add_function(wrap_pyfunction!(errors::error_codes, module)?)?;
    module.add_function(wrap_pyfunction!(storage::is_experiment_live, module)?)?;
    module.add_function(wrap_pyfunction!(storage::completed_lines, module)?)?;
    module.add_function(wrap_pyfunction!(storage::trial_states, module)?)?;
    module.add_function(wrap_pyfunction!(session::shield_from_preemption, module)?)?;
    module.add_function(wrap_pyfunction!(session::show_title, module)?)?;
    module.add_function(wrap_pyfunction!(session::end_with_parent, module)?)?;
    module.add_function(wrap_pyfunction!(errors::panic, module)?)?;
    data::add(module)?;
    errors::adopt_panics(module.py())
}
