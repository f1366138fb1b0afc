//! Work that is tried again while a disk is full: what fills it is often gone in a moment, such as the file of another process.
//!
//! Only what leaves nothing behind when it fails may be tried again.

use std::time::Duration;

use crate::error::StoreError;

/// Between the tries, in milliseconds; two seconds in all.
pub const PAUSES: [u64; 4] = [100, 300, 600, 1000];

pub(crate) fn patiently<T>(work: impl FnMut() -> Result<T, StoreError>) -> Result<T, StoreError> {
    patiently_while(|| true, work)
}

/// As long as `may_try` says that nothing was used up.
pub(crate) fn patiently_while<T>(
    may_try: impl Fn() -> bool,
    mut work: impl FnMut() -> Result<T, StoreError>,
) -> Result<T, StoreError> {
    for pause in PAUSES {
        match work() {
            Err(error) if error.is_no_space() && may_try() => std::thread::sleep(Duration::from_millis(pause)),
            done => return done,
        }
    }
    work()
}
