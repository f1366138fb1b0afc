//! A worker's place in a group that shares memory with the other workers of its host.
//!
//! Arrays come as the address of their first value and their length: the Python side, which keeps them alive and knows
//! that they are contiguous, is the only caller.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use carril_collective::{CollectiveError, Element, Group, Op};
use carril_types::{ErrorCode, Failure};
use pyo3::prelude::*;

use crate::errors::raise;

/// An exception that a signal's handler raised while an operation waited.
type Raised = Arc<Mutex<Option<PyErr>>>;

#[pyclass(frozen, module = "carril._native")]
pub struct Collective {
    /// Nothing when it was closed.
    group: Mutex<Option<Group>>,
    raised: Raised,
}

#[pymethods]
impl Collective {
    /// A new group that this process is rank 0 of, and the address at which the others join it.
    #[staticmethod]
    fn offer(py: Python<'_>, world_size: usize) -> PyResult<(Self, String)> {
        let made = Group::offer(world_size).and_then(|offer| {
            let address = offer.address();
            Ok((offer.join(0)?, address))
        });
        let (group, address) = made.map_err(|error| raise(py, failure_of(error)))?;
        Ok((Self::new(group), address))
    }

    #[staticmethod]
    fn join(py: Python<'_>, address: &str, rank: usize) -> PyResult<Self> {
        let group = Group::join(address, rank).map_err(|error| raise(py, failure_of(error)))?;
        Ok(Self::new(group))
    }

    fn broadcast(
        &self,
        py: Python<'_>,
        kind: &str,
        values: (usize, usize),
        root: usize,
        timeout_s: f64,
    ) -> PyResult<()> {
        match kind {
            "float64" => self.run(py, timeout_s, |group| group.broadcast(borrow_mut::<f64>(values), root)),
            "int64" => self.run(py, timeout_s, |group| group.broadcast(borrow_mut::<i64>(values), root)),
            _ => self.run(py, timeout_s, |group| group.broadcast(borrow_mut::<f32>(values), root)),
        }
    }

    fn all_reduce(&self, py: Python<'_>, kind: &str, values: (usize, usize), op: &str, timeout_s: f64) -> PyResult<()> {
        let op = op_of(py, op)?;
        match kind {
            "float64" => self.run(py, timeout_s, |group| group.all_reduce(borrow_mut::<f64>(values), op)),
            "int64" => self.run(py, timeout_s, |group| group.all_reduce(borrow_mut::<i64>(values), op)),
            _ => self.run(py, timeout_s, |group| group.all_reduce(borrow_mut::<f32>(values), op)),
        }
    }

    fn all_gather(
        &self,
        py: Python<'_>,
        kind: &str,
        own: (usize, usize),
        all: (usize, usize),
        timeout_s: f64,
    ) -> PyResult<()> {
        match kind {
            "float64" => self.run(py, timeout_s, |group| group.all_gather::<f64>(borrow(own), borrow_mut(all))),
            "int64" => self.run(py, timeout_s, |group| group.all_gather::<i64>(borrow(own), borrow_mut(all))),
            _ => self.run(py, timeout_s, |group| group.all_gather::<f32>(borrow(own), borrow_mut(all))),
        }
    }

    fn reduce_scatter(
        &self,
        py: Python<'_>,
        kind: &str,
        all: (usize, usize),
        own: (usize, usize),
        op: &str,
        timeout_s: f64,
    ) -> PyResult<()> {
        let op = op_of(py, op)?;
        match kind {
            "float64" => self.run(py, timeout_s, |group| group.reduce_scatter::<f64>(borrow(all), borrow_mut(own), op)),
            "int64" => self.run(py, timeout_s, |group| group.reduce_scatter::<i64>(borrow(all), borrow_mut(own), op)),
            _ => self.run(py, timeout_s, |group| group.reduce_scatter::<f32>(borrow(all), borrow_mut(own), op)),
        }
    }

    /// Leaves the group: ranks that wait for this one are told.
    fn close(&self, py: Python<'_>) {
        py.detach(|| drop(self.group.lock().unwrap_or_else(PoisonError::into_inner).take()));
    }
}

impl Collective {
    fn new(mut group: Group) -> Self {
        let raised = Raised::default();
        let kept = raised.clone();
        group.set_interrupt(move || {
            // The thread that waits is the one that Python called from.
            let signal = Python::attach(|py| py.check_signals()).err();
            let is_raised = signal.is_some();
            *kept.lock().unwrap_or_else(PoisonError::into_inner) = signal;
            is_raised
        });
        Self { group: Mutex::new(Some(group)), raised }
    }

    fn run(
        &self,
        py: Python<'_>,
        timeout_s: f64,
        operate: impl FnOnce(&mut Group) -> Result<(), CollectiveError> + Send,
    ) -> PyResult<()> {
        let timeout = Duration::try_from_secs_f64(timeout_s).unwrap_or(Duration::MAX);
        let done = py.detach(|| {
            let mut group = self.group.lock().unwrap_or_else(PoisonError::into_inner);
            let Some(group) = group.as_mut() else {
                return Err(Failure::new(
                    ErrorCode::CollectiveMismatch,
                    "the function has returned: its group is closed",
                ));
            };
            group.set_timeout(timeout);
            operate(group).map_err(failure_of)
        });
        done.map_err(|failure| {
            let raised = self.raised.lock().unwrap_or_else(PoisonError::into_inner).take();
            raised.unwrap_or_else(|| raise(py, failure))
        })
    }
}

fn borrow<'a, T: Element>((address, length): (usize, usize)) -> &'a [T] {
    if length == 0 {
        return &[];
    }
    // SAFETY: the Python side holds a contiguous array of these values there for as long as the call takes.
    unsafe { std::slice::from_raw_parts(address as *const T, length) }
}

fn borrow_mut<'a, T: Element>((address, length): (usize, usize)) -> &'a mut [T] {
    if length == 0 {
        return &mut [];
    }
    // SAFETY: as in `borrow`, and nobody else is told of the array before the call returns.
    unsafe { std::slice::from_raw_parts_mut(address as *mut T, length) }
}

fn op_of(py: Python<'_>, name: &str) -> PyResult<Op> {
    match name {
        "sum" => Ok(Op::Sum),
        "mean" => Ok(Op::Mean),
        "max" => Ok(Op::Max),
        "scaled sum" => Ok(Op::ScaledSum),
        _ => {
            let message = format!("`op` is '{name}': it must be 'sum', 'mean' or 'max'");
            Err(raise(py, Failure::new(ErrorCode::InvalidConfig, message)))
        }
    }
}

fn failure_of(error: CollectiveError) -> Failure {
    use CollectiveError::{
        Address, Died, Disagree, Disagreed, GaveUp, Interrupted, Left, Length, MeanOfIntegers, Memory, NoSuchRank,
        Taken, TimedOut,
    };
    let code = match &error {
        Died { .. } | GaveUp { .. } | Interrupted { .. } => ErrorCode::CollectiveLost,
        Left { .. } | Disagree { .. } | Disagreed { .. } => ErrorCode::CollectiveMismatch,
        TimedOut { .. } => ErrorCode::CollectiveTimeout,
        Length { .. } | NoSuchRank { .. } | MeanOfIntegers { .. } => ErrorCode::InvalidConfig,
        Address { .. } | Taken { .. } | Memory(_) => ErrorCode::Internal,
    };
    let failure = Failure::new(code, error.to_string());
    match &error {
        TimedOut { .. } => failure.hint("`timeout_s` sets how long it waits"),
        Left { .. } | Disagree { .. } => failure.hint("every rank must call the same collectives in the same order"),
        _ => failure,
    }
}
