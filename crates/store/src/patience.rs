//! How long storage that refuses is tried again, for all that a run writes: its reports, its files, its checkpoints.
//!
//! What fills a disk is often gone in a moment, such as the file of another process. Only what leaves nothing behind when it fails may
//! be tried again.
//!
//! PATIENCE-1: storage that has refused for the whole time is given little of it from then on, until it takes something again: otherwise
//!   each checkpoint of a training on a full disk would hold it up for as long.

use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use crate::error::StoreError;
use crate::faults::shortened;

/// Between two tries.
pub const RETRY: Duration = Duration::from_millis(250);

/// For storage that has just refused for the whole time.
const LITTLE: Duration = Duration::from_secs(2);

/// PATIENCE-1, for all storage of this process: mostly there is one.
static IS_GIVEN_UP: AtomicBool = AtomicBool::new(false);

/// For so long storage may refuse.
pub fn deadline() -> Duration {
    shortened().unwrap_or(Duration::from_secs(30))
}

/// The tries of one piece of work, from now on.
pub struct Tries(Instant);

impl Tries {
    #[expect(clippy::new_without_default, reason = "it begins to count")]
    pub fn new() -> Self {
        Self(Instant::now() + deadline())
    }

    /// The pause before the next try; `None` when the time is over.
    pub fn pause(&self) -> Option<Duration> {
        (Instant::now() < self.0).then_some(RETRY)
    }
}

pub(crate) fn patiently<T>(work: impl FnMut() -> Result<T, StoreError>) -> Result<T, StoreError> {
    patiently_while(|| true, work)
}

/// As long as `may_try` says that nothing was used up.
pub(crate) fn patiently_while<T>(
    may_try: impl Fn() -> bool,
    work: impl FnMut() -> Result<T, StoreError>,
) -> Result<T, StoreError> {
    tried(&IS_GIVEN_UP, may_try, work)
}

fn tried<T>(
    is_given_up: &AtomicBool,
    may_try: impl Fn() -> bool,
    mut work: impl FnMut() -> Result<T, StoreError>,
) -> Result<T, StoreError> {
    let until = if is_given_up.load(Ordering::Relaxed) { deadline().min(LITTLE) } else { deadline() };
    let tries = Tries(Instant::now() + until);
    loop {
        match (work(), tries.pause()) {
            (Err(error), Some(pause)) if error.may_pass() && may_try() => std::thread::sleep(pause),
            (done, _) => {
                let is_refused = done.as_ref().err().map(StoreError::may_pass);
                is_given_up.store(is_refused.unwrap_or(false), Ordering::Relaxed);
                return done;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::io;
    use std::path::Path;

    use super::*;

    #[test]
    fn patience_1_the_second_refusal_is_waited_for_less_and_a_success_forgives() {
        let full = || StoreError::io("write", Path::new("file"))(io::Error::from_raw_os_error(nix::libc::ENOSPC));
        let is_given_up = AtomicBool::new(true);
        let began = Instant::now();
        assert!(tried(&is_given_up, || true, || Err::<(), _>(full())).is_err());
        assert!((LITTLE..deadline()).contains(&began.elapsed()), "PATIENCE-1: {:?}", began.elapsed());
        assert!(is_given_up.load(Ordering::Relaxed), "PATIENCE-1");
        tried(&is_given_up, || true, || Ok(())).unwrap();
        assert!(!is_given_up.load(Ordering::Relaxed), "PATIENCE-1");
    }
}
