//! The one door out of Python: the GIL is released, the future driven, signals polled, the error mapped.

use std::future::Future;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use carril_types::{ErrorCode, Failure};
use pyo3::prelude::*;
use tokio::runtime::{Handle, Runtime};

use crate::errors::raise;

/// How long Ctrl-C may go unnoticed.
const POLL: Duration = Duration::from_millis(100);

/// The runtime of the driver's client, with the process that made it: a fork has the memory of it but not its thread.
static RUNTIME: Mutex<Option<(u32, Arc<Runtime>)>> = Mutex::new(None);

/// One runtime with one thread per process, made when it is first needed.
pub fn runtime() -> Result<Arc<Runtime>, Failure> {
    let mut slot = RUNTIME.lock().unwrap_or_else(PoisonError::into_inner);
    let pid = std::process::id();
    if let Some((owner, runtime)) = &*slot
        && *owner == pid
    {
        return Ok(runtime.clone());
    }
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(1)
        .max_blocking_threads(1)
        .thread_name("carril-client")
        .enable_all()
        .build()
        .map_err(|error| Failure::new(ErrorCode::Internal, format!("the client's thread cannot start: {error}")))?;
    let runtime = Arc::new(runtime);
    // The parent's runtime is not dropped in a fork: dropping it would wait for a thread that is not there.
    std::mem::forget(slot.replace((pid, runtime.clone())));
    Ok(runtime)
}

/// Drives a future to its end outside the GIL. An interrupt drops the future.
pub fn leave<T: Send>(
    py: Python<'_>,
    runtime: &Handle,
    future: impl Future<Output = Result<T, Failure>> + Send,
) -> PyResult<T> {
    let mut future = Box::pin(future);
    loop {
        let done = py.detach(|| runtime.block_on(async { tokio::time::timeout(POLL, &mut future).await }));
        match done {
            Ok(result) => return result.map_err(|failure| raise(py, failure)),
            Err(_) => py.check_signals()?,
        }
    }
}
