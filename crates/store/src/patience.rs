//! How long storage that refuses is tried again, for all that a run writes: its reports, its files, its checkpoints.
//!
//! What fills a disk is often gone in a moment, such as the file of another process. Only what leaves nothing behind when it fails may
//! be tried again.

use std::time::{Duration, Instant};

use crate::error::StoreError;
use crate::faults::shortened;

/// Between two tries.
pub const RETRY: Duration = Duration::from_millis(250);

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
    mut work: impl FnMut() -> Result<T, StoreError>,
) -> Result<T, StoreError> {
    let tries = Tries::new();
    loop {
        match (work(), tries.pause()) {
            (Err(error), Some(pause)) if error.may_pass() && may_try() => std::thread::sleep(pause),
            (done, _) => return done,
        }
    }
}
