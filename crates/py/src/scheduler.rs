//! A scheduler of the core that decides in the driver: for a class of the user's that is derived from one of ours.

use carril_core::tune::TrialId;
use carril_core::tune::scheduler::{AnyScheduler, Decision, NewConfig, Scheduler as _};
use carril_core::tune::spec::SchedulerSpec;
use carril_types::{ErrorCode, Failure};
use pyo3::prelude::*;
use pyo3::types::PyDict;

use crate::errors::raise;
use crate::values::{Unpicklable, metrics_to_python, to_metrics, to_value};

#[pyclass(module = "carril._native")]
pub struct Scheduler(AnyScheduler);

#[pymethods]
impl Scheduler {
    /// `spec` is that of an experiment; `seed` counts where it has none.
    #[staticmethod]
    fn make(py: Python<'_>, spec: &str, constants: Vec<Bound<'_, PyAny>>, seed: u64) -> PyResult<Self> {
        let wrong = |text: String| raise(py, Failure::new(ErrorCode::InvalidConfig, text));
        let constants = constants.iter().map(|value| to_value(value, "mutations", 0, Unpicklable::Refuse));
        let constants = constants.collect::<PyResult<Vec<_>>>()?;
        let spec: SchedulerSpec = serde_json::from_str(spec).map_err(|error| wrong(error.to_string()))?;
        spec.build(&constants, seed).map(Self).map_err(wrong)
    }

    /// The config to run it with and the places in it that functions of the user draw, where that is another one.
    fn trial_added<'py>(
        &mut self,
        py: Python<'py>,
        trial: u64,
        config: &Bound<'py, PyDict>,
    ) -> PyResult<Option<Bound<'py, PyDict>>> {
        let config = to_metrics(config, Unpicklable::Refuse)?;
        let made = self.0.on_trial_added(TrialId(trial), &config);
        made.map(|made| new_config(py, made)).transpose()
    }

    fn configured(&mut self, trial: u64, config: &Bound<'_, PyDict>) -> PyResult<()> {
        self.0.on_config(TrialId(trial), &to_metrics(config, Unpicklable::Refuse)?);
        Ok(())
    }

    fn no_more_trials(&mut self) {
        self.0.on_no_more_trials();
    }

    fn reported<'py>(
        &mut self,
        py: Python<'py>,
        trial: u64,
        result: &Bound<'py, PyDict>,
        others_wait: bool,
    ) -> PyResult<Bound<'py, PyDict>> {
        let result = to_metrics(result, Unpicklable::KeepRepr)?;
        self.0.on_others_wait(others_wait);
        let (decision, reason) = self.0.on_result(TrialId(trial), &result);
        let decided = decided(py, decision, reason)?;
        decided.set_item("saves", self.0.wants_checkpoint(TrialId(trial)))?;
        Ok(decided)
    }

    fn completed(&mut self, trial: u64, result: &Bound<'_, PyDict>) -> PyResult<()> {
        self.0.on_trial_completed(TrialId(trial), &to_metrics(result, Unpicklable::KeepRepr)?);
        Ok(())
    }

    fn failed(&mut self, trial: u64) {
        self.0.on_trial_failed(TrialId(trial));
    }

    fn choose(&mut self, pending: Vec<u64>, paused: Vec<u64>) -> Option<u64> {
        let ids = |trials: Vec<u64>| trials.into_iter().map(TrialId).collect::<Vec<_>>();
        self.0.choose(&ids(pending), &ids(paused)).map(|trial| trial.0)
    }

    /// What was decided about trials that wait, each with its `trial`.
    fn take_orders<'py>(&mut self, py: Python<'py>) -> PyResult<Vec<Bound<'py, PyDict>>> {
        let order = |(trial, decision, reason): (TrialId, Decision, String)| {
            let order = decided(py, decision, reason)?;
            order.set_item("trial", trial.0)?;
            Ok(order)
        };
        self.0.take_orders().into_iter().map(order).collect()
    }

    fn describe(&self) -> String {
        self.0.describe()
    }

    #[staticmethod]
    fn restored(py: Python<'_>, state: &str) -> PyResult<Self> {
        let state = serde_json::from_str(state);
        state.map(Self).map_err(|error| raise(py, Failure::new(ErrorCode::InvalidConfig, error.to_string())))
    }

    fn __reduce__<'py>(&self, py: Python<'py>) -> PyResult<(Bound<'py, PyAny>, (String,))> {
        let state = serde_json::to_string(&self.0);
        let state = state.map_err(|error| raise(py, Failure::new(ErrorCode::Internal, error.to_string())))?;
        Ok((py.get_type::<Self>().getattr("restored")?, (state,)))
    }
}

/// In the words of an answer to the head.
fn decided(py: Python<'_>, decision: Decision, reason: String) -> PyResult<Bound<'_, PyDict>> {
    let (verdict, fields) = match decision {
        Decision::Continue => ("continue", PyDict::new(py)),
        Decision::Pause => ("pause", PyDict::new(py)),
        Decision::Stop => ("stop_early", PyDict::new(py)),
        Decision::Complete => ("stop", PyDict::new(py)),
        Decision::Exploit { from, with } => {
            let fields = new_config(py, with)?;
            fields.set_item("from", from.0)?;
            ("exploit", fields)
        }
        Decision::Resize(resources) => {
            let fields = PyDict::new(py);
            let amounts = PyDict::new(py);
            for (name, amount) in resources.iter() {
                amounts.set_item(name, amount)?;
            }
            fields.set_item("resources", amounts)?;
            ("resize", fields)
        }
    };
    fields.set_item("verdict", verdict)?;
    fields.set_item("reason", reason)?;
    Ok(fields)
}

fn new_config(py: Python<'_>, made: NewConfig) -> PyResult<Bound<'_, PyDict>> {
    let fields = PyDict::new(py);
    fields.set_item("config", metrics_to_python(py, made.config)?)?;
    fields.set_item("ask", made.ask)?;
    Ok(fields)
}
