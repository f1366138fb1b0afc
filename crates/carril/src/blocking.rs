//! Waiting, from whatever thread the caller is on: one that belongs to a runtime of the user's must not be waited on.

use std::future::Future;

use tokio::runtime::Handle;

/// Drives a future to its end.
pub(crate) fn drive<T: Send>(runtime: &Handle, future: impl Future<Output = T> + Send) -> T {
    outside(|| runtime.block_on(future))
}

/// Calls `work` on a thread that no runtime has.
pub(crate) fn outside<T: Send>(work: impl FnOnce() -> T + Send) -> T {
    if Handle::try_current().is_err() {
        return work();
    }
    let done = std::thread::scope(|scope| {
        let thread = std::thread::Builder::new().name("carril".into()).stack_size(STACK);
        thread.spawn_scoped(scope, work).map(std::thread::ScopedJoinHandle::join)
    });
    match done {
        Ok(Ok(done)) => done,
        Ok(Err(panic)) => std::panic::resume_unwind(panic),
        Err(error) => panic!("no thread can be started: {error}"),
    }
}

/// As much as the first thread of a process has.
const STACK: usize = 8 << 20;
